"""The modules, one per function of the zoo. All take the arguments of `Pointwise`; parameters go by name."""

from .module import Pointwise


class ReLU(Pointwise):
    """max(x, 0)."""

    activation = "relu"


class LeakyReLU(Pointwise):
    """x above 0, `slope` x below; 0.01 by default."""

    activation = "leaky_relu"


class LReLU(LeakyReLU):
    """LeakyReLU under its short name."""


class PReLU(Pointwise):
    """As LeakyReLU, starting at 0.25; pass learn=True to train it."""

    activation = "prelu"


class ReLU6(Pointwise):
    """min(max(x, 0), 6)."""

    activation = "relu6"


class Hardtanh(Pointwise):
    """min(max(x, -1), 1)."""

    activation = "hardtanh"


class Hardswish(Pointwise):
    """x relu6(x + 3)/6."""

    activation = "hardswish"


class ELU(Pointwise):
    """x above 0, `beta` (e^x - 1) below."""

    activation = "elu"


class CELU(Pointwise):
    """x above 0, `beta` (e^(x/beta) - 1) below."""

    activation = "celu"


class SELU(Pointwise):
    """`lam` x above 0, `lam` `beta` (e^x - 1) below."""

    activation = "selu"


class Softplus(Pointwise):
    """log(1 + e^(`beta` x))/beta."""

    activation = "softplus"


class Swish(Pointwise):
    """x sigmoid(`beta` x)."""

    activation = "swish"


class SiLU(Swish):
    """Swish under its other name."""


class GELU(Pointwise):
    """x Phi(`beta` x); approximate="tanh" for the tanh form."""

    activation = "gelu"


class LambdaGELU(Pointwise):
    """x Phi(`lam` x) with lam >= 1, learned as 1 + softplus(s/`temperature`)."""

    activation = "lambda_gelu"


class Mish(Pointwise):
    """x tanh(softplus(`beta` x))."""

    activation = "mish"


class TanhExp(Pointwise):
    """x tanh(e^(`beta` x))."""

    activation = "tanhexp"


class Tanh(Pointwise):
    """tanh(x)."""

    activation = "tanh"


class Sigmoid(Pointwise):
    """1/(1 + e^-x)."""

    activation = "sigmoid"


class Softsign(Pointwise):
    """x/(1 + |x|)."""

    activation = "softsign"


class SReLU(Pointwise):
    """ReLU mollified with the Epanechnikov kernel of half-width `delta`."""

    activation = "srelu"


class SmeLU(Pointwise):
    """0, a parabola on [-`beta`, beta], x."""

    activation = "smelu"


class AsymmetricSmeLU(Pointwise):
    """SmeLU with its seams at -`alpha` and `beta`."""

    activation = "asymmetric_smelu"


class LeakySmeLU(Pointwise):
    """SmeLU of half-width `beta` with slope `g_minus` on the left."""

    activation = "leaky_smelu"


class ShiftedSmeLU(Pointwise):
    """SmeLU of half-width `beta` moved right by `shift`."""

    activation = "shifted_smelu"


class GeneralizedSmeLU(Pointwise):
    """Two lines of slopes `g_minus`, `g_plus`, a parabola on [-`alpha`, `beta`], value `t` at -alpha."""

    activation = "generalized_smelu"


class OriginSmeLU(Pointwise):
    """Generalised SmeLU moved to pass through the origin."""

    activation = "origin_smelu"


class SigmoidRESCU(Pointwise):
    """A sigmoid below `beta` joined to x above."""

    activation = "sigmoid_rescu"


class SmoothReLU(Pointwise):
    """x - log(1 + `beta` x)/beta above 0, 0 below."""

    activation = "smooth_relu"


class CRReLU(Pointwise):
    """relu(x) + `eps` x e^(-x^2/2)."""

    activation = "crrelu"


class CRReLUExact(Pointwise):
    """The exact inverse that CRReLU approximates."""

    activation = "crrelu_exact"
