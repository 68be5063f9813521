r"""GELU and lambda-GELU: x gated by the normal distribution function.

    gelu(x)        = x Phi(beta x)                    -0 at -infinity, 0 at 0, x at +infinity
    gelu_tanh(x)   = x (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3)))/2 with u = beta x  (gelu with approximate="tanh")
    gelu_10(x)     = gelu(min(x, 10))                 min(gelu(x), 10) to the last bit: the two are 8e-23 apart
    lambda_gelu(x) = x Phi(lam x), lam >= 1, learned as lam = 1 + softplus(s/temperature)

sup |x Phi(lam x) - relu(x)| = 0.16997120747990366/lam at |x| = 0.751791524693564/lam. The Lipschitz constant is
Phi(sqrt 2) + sqrt 2 phi(sqrt 2) = 1.1289, not the 1.084 printed in the mollification paper.
Hazard: Phi in the left tail is computed relative to its size (by erfc), never as (1 + erf)/2; (1 + tanh w)/2 is
computed as sigmoid(2w) for the same reason.

>>> import softknee as sk, torch
>>> sk.get("lambda_gelu")(torch.tensor([-1.0, 1.0]), lam=2.0)
tensor([-0.0228,  0.9772])
"""

from ..spec import (
    Activation,
    AtLeastOne,
    Claims,
    FiniteLeft,
    Inner,
    NormalCdf,
    NormalPdf,
    Param,
    Sigmoid,
    positive,
    u,
    x,
)
from ..spec.algebra import FiniteSet, Float, Piecewise, Rational, pi, sqrt

_beta = positive("beta", 1.0, "hardness of the gate")
_lam = Param("lam", 1.0, AtLeastOne(), learned_default=1.01, about="hardness of the gate")
_FARTHEST = Float("0.16997120747990366169", 20)  # sup |x| Phi(-|x|)
_FARTHEST_TANH = Float("0.17004075057125405064", 20)
_STEEPEST = NormalCdf(sqrt(2)) + sqrt(2) * NormalPdf(sqrt(2))
_APPROXIMATE = {"approximate": {"none": "gelu", "tanh": "gelu_tanh"}}

gelu = Activation(
    "gelu",
    FiniteLeft(x) * NormalCdf(u),
    params=(_beta,),
    inner=Inner(_beta.symbol * x, low=-40.0, high=40.0),
    claims=Claims(float("inf"), False, _STEEPEST, FiniteSet(0), distance=_FARTHEST / _beta.symbol, one_minimum=True),
    knob="beta",
    toward=float("inf"),
    limit="relu",
    variants=_APPROXIMATE,
    about="Gaussian error linear unit (Hendrycks and Gimpel 2016).",
)
gelu_tanh = Activation(
    "gelu_tanh",
    FiniteLeft(x) * Sigmoid(2 * sqrt(2 / pi) * (u + Rational(44715, 1000000) * u**3)),
    params=(_beta,),
    inner=Inner(_beta.symbol * x, low=-40.0, high=40.0),
    claims=Claims(
        float("inf"),
        False,
        Float("1.1289930686587717655", 20),
        FiniteSet(0),
        distance=_FARTHEST_TANH / _beta.symbol,
        one_minimum=True,
    ),
    knob="beta",
    toward=float("inf"),
    limit="relu",
    variants=_APPROXIMATE,
    about="GELU with its tanh approximation (Hendrycks and Gimpel 2016).",
)
gelu_10 = Activation(
    "gelu_10",
    Piecewise((10 * NormalCdf(10), x > 10), (FiniteLeft(x) * NormalCdf(u), True)),
    inner=Inner(x, low=-40.0, high=40.0),
    claims=Claims(0, False, _STEEPEST, FiniteSet(0), one_minimum=True),
    about="GELU that stops at 10, for quantised networks (Wu et al. 2020).",
)
lambda_gelu = Activation(
    "lambda_gelu",
    FiniteLeft(x) * NormalCdf(u),
    params=(_lam,),
    inner=Inner(_lam.symbol * x, low=-40.0, high=40.0),
    claims=Claims(float("inf"), False, _STEEPEST, FiniteSet(0), distance=_FARTHEST / _lam.symbol, one_minimum=True),
    knob="lam",
    toward=float("inf"),
    limit="relu",
    about="GELU with a constrained, learned hardness that is hardened into ReLU.",
)
