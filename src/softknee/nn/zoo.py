"""The modules, one per function of the zoo. All take the arguments of `Pointwise`; parameters go by name.

`torch_arguments` lists, in torch's order, the arguments of torch's module of the same name and what each is here.
"""

from typing import Any, ClassVar

from .module import Pointwise, Table, channels, linear_from, squared

_INPLACE = {"inplace": "inplace"}
__all__ = [  # noqa: RUF022 - as below
    "ReLU",
    "LeakyReLU",
    "LReLU",
    "PReLU",
    "ReLU6",
    "Hardtanh",
    "Hardswish",
    "ELU",
    "CELU",
    "SELU",
    "Softplus",
    "Swish",
    "SiLU",
    "GELU",
    "LambdaGELU",
    "Mish",
    "TanhExp",
    "Tanh",
    "Sigmoid",
    "Softsign",
    "SReLU",
    "SmeLU",
    "AsymmetricSmeLU",
    "LeakySmeLU",
    "ShiftedSmeLU",
    "GeneralizedSmeLU",
    "OriginSmeLU",
    "SigmoidRESCU",
    "SmoothReLU",
    "CRReLU",
    "CRReLUExact",
    "RReLU",
    "Clamp",
    "Hardsigmoid",
    "SparseSigmoid",
    "Laplace",
    "GELU10",
    "QuickGELU",
    "HardMish",
    "LogSigmoid",
    "Squareplus",
    "Softshrink",
    "Hardshrink",
    "Tanhshrink",
    "Threshold",
    "ReLU2",
    "StarReLU",
    "XIELU",
]


class ReLU(Pointwise):
    """max(x, 0)."""

    activation = "relu"
    torch_arguments = _INPLACE


class LeakyReLU(Pointwise):
    """x above 0, `slope` x below; 0.01 by default."""

    activation = "leaky_relu"
    torch_arguments: ClassVar[Table] = {"negative_slope": "slope", "inplace": "inplace"}


class LReLU(LeakyReLU):
    """LeakyReLU under its short name."""


class PReLU(Pointwise):
    """As LeakyReLU, starting at 0.25 and learned unless learn=False; PReLU(8) has a slope for each of 8 channels.

    A state dict of torch's own nn.PReLU, which calls the slope `weight`, loads.
    """

    activation = "prelu"
    learns = True
    torch_arguments: ClassVar[Table] = {
        "num_parameters": channels,
        "init": "slope",
        "device": "device",
        "dtype": "dtype",
    }

    def _load_from_state_dict(  # as torch calls it
        self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any, **named: Any
    ) -> None:
        if f"{prefix}weight" in state_dict and f"{prefix}slope" not in state_dict:
            state_dict[f"{prefix}slope"] = state_dict.pop(f"{prefix}weight")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others, **named)


class ReLU6(Pointwise):
    """min(max(x, 0), 6)."""

    activation = "relu6"
    torch_arguments = _INPLACE


class Hardtanh(Pointwise):
    """min(max(x, -1), 1); with limits, min(max(x, `low`), `high`)."""

    activation = "hardtanh"
    general = "clamp"
    torch_arguments: ClassVar[Table] = {
        "min_val": "low",
        "max_val": "high",
        "inplace": "inplace",
        "min_value": "low",
        "max_value": "high",
    }


class Hardswish(Pointwise):
    """x relu6(x + 3)/6."""

    activation = "hardswish"
    torch_arguments = _INPLACE


class ELU(Pointwise):
    """x above 0, `beta` (e^x - 1) below."""

    activation = "elu"
    torch_arguments: ClassVar[Table] = {"alpha": "beta", "inplace": "inplace"}


class CELU(Pointwise):
    """x above 0, `beta` (e^(x/beta) - 1) below."""

    activation = "celu"
    torch_arguments: ClassVar[Table] = {"alpha": "beta", "inplace": "inplace"}


class SELU(Pointwise):
    """`lam` x above 0, `lam` `beta` (e^x - 1) below."""

    activation = "selu"
    torch_arguments = _INPLACE


class Softplus(Pointwise):
    """log(1 + e^(`beta` x))/beta."""

    activation = "softplus"
    torch_arguments: ClassVar[Table] = {"beta": "beta", "threshold": linear_from}


class Swish(Pointwise):
    """x sigmoid(`beta` x)."""

    activation = "swish"
    torch_arguments = _INPLACE


class SiLU(Swish):
    """Swish under its other name."""


class GELU(Pointwise):
    """x Phi(`beta` x); approximate="tanh" for the tanh form."""

    activation = "gelu"
    torch_arguments: ClassVar[Table] = {"approximate": "approximate"}


class LambdaGELU(Pointwise):
    """x Phi(`lam` x) with lam >= 1, learned as 1 + softplus(s/`temperature`)."""

    activation = "lambda_gelu"


class Mish(Pointwise):
    """x tanh(softplus(`beta` x))."""

    activation = "mish"
    torch_arguments = _INPLACE


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
    """ReLU mollified with the Epanechnikov kernel of half-width `delta`; 1 by default, 0.01 with preset="paper"."""

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
    """relu(x) + `eps` x e^(-x^2/2); 0.3 by default, 0.01 with preset="paper"."""

    activation = "crrelu"


class CRReLUExact(Pointwise):
    """The exact inverse that CRReLU approximates; `eps` is 0.3 by default, 0.01 with preset="paper"."""

    activation = "crrelu_exact"


class RReLU(Pointwise):
    """x above 0; below, a slope drawn between `lower` and `upper` for each element in training, their mean after it.

    By its name (`sk.nn.make`, `sk.swap_`) the function is its mean, in training too.
    """

    activation = "rrelu"
    drawn = "leaky_relu"
    torch_arguments: ClassVar[Table] = {"lower": "lower", "upper": "upper", "inplace": "inplace"}


class Clamp(Pointwise):
    """min(max(x, `low`), `high`)."""

    activation = "clamp"


class Hardsigmoid(Pointwise):
    """relu6(x + 3)/6."""

    activation = "hardsigmoid"
    torch_arguments = _INPLACE


class SparseSigmoid(Pointwise):
    """min(max(x + 1, 0), 2)/2."""

    activation = "sparse_sigmoid"


class Laplace(Pointwise):
    """Phi((x - `mu`)/`sigma`)."""

    activation = "laplace"


class GELU10(Pointwise):
    """gelu(min(x, 10)), which is min(gelu(x), 10) to the last bit."""

    activation = "gelu_10"


class QuickGELU(Pointwise):
    """x sigmoid(`beta` x) with beta = 1.702."""

    activation = "quick_gelu"
    torch_arguments = _INPLACE


class HardMish(Pointwise):
    """x min(max(x + 2, 0), 2)/2."""

    activation = "hard_mish"
    torch_arguments = _INPLACE


class LogSigmoid(Pointwise):
    """-log(1 + e^-x)."""

    activation = "logsigmoid"


class Squareplus(Pointwise):
    """(x + sqrt(x^2 + `delta`^2))/2; Keras's b is delta^2, and Squareplus(b=4) works."""

    activation = "squareplus"
    torch_arguments: ClassVar[Table] = {"b": squared}


class Softshrink(Pointwise):
    """x moved towards 0 by `lam`, and 0 between -lam and lam."""

    activation = "softshrink"
    torch_arguments: ClassVar[Table] = {"lambd": "lam"}


class Hardshrink(Pointwise):
    """0 between -`lam` and lam, x outside."""

    activation = "hardshrink"
    torch_arguments: ClassVar[Table] = {"lambd": "lam"}


class Tanhshrink(Pointwise):
    """x - tanh(x)."""

    activation = "tanhshrink"


class Threshold(Pointwise):
    """x above `theta`, `value` below."""

    activation = "threshold"
    torch_arguments: ClassVar[Table] = {"threshold": "theta", "value": "value", "inplace": "inplace"}


class ReLU2(Pointwise):
    """max(x, 0)^2."""

    activation = "relu2"


class StarReLU(Pointwise):
    """`scale` max(x, 0)^2 + `bias`."""

    activation = "star_relu"


class XIELU(Pointwise):
    """`alpha_p` x^2 + `beta` x above 0, `alpha_n` (e^x - 1 - x) + beta x below."""

    activation = "xielu"
