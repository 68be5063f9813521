r"""The exponential linear units: x above 0, a saturating exponential below.

    elu(x)  = x,          beta (e^x - 1)             for x <= 0;  tends to -beta
    celu(x) = x,          beta (e^{x/beta} - 1)      for x <= 0;  tends to -beta, slope continuous at 0
    selu(x) = lam x,      lam beta (e^x - 1)         for x <= 0;  tends to -lam beta

Hazard: e^x - 1 near 0 is `Expm1`. CELU's derivative by beta, e^u - 1 - u e^u with u = x/beta, needs u clipped at
the left or it is infinity times 0.

>>> import softknee as sk, torch
>>> sk.get("elu")(torch.tensor([-torch.inf, 0.0, 2.0]))
tensor([-1.,  0.,  2.])
"""

from ..spec import Activation, Claims, Expm1, Inner, positive, u, x
from ..spec.algebra import FiniteSet, Max, Piecewise

_beta = positive("beta", 1.0, "minus the value at minus infinity")
_lam = positive("lam", 1.0507009873554805, "slope above 0")
_selu_beta = positive("beta", 1.6732632423543772, "minus the value at minus infinity, over lam")
beta, lam = _beta.symbol, _lam.symbol

elu = Activation(
    "elu",
    Piecewise((x, x > 0), (beta * Expm1(x), True)),
    params=(_beta,),
    claims=Claims(0, True, Max(1, beta), FiniteSet(0), distance=beta),
    knob="beta",
    limit="relu",
    about="Exponential linear unit (Clevert et al. 2016); C1 at beta = 1 alone.",
)
celu = Activation(
    "celu",
    Piecewise((x, x > 0), (beta * Expm1(u), True)),
    params=(_beta,),
    inner=Inner(x / beta, low=-800.0),
    claims=Claims(1, True, 1, FiniteSet(0), distance=beta),
    knob="beta",
    limit="relu",
    about="Continuously differentiable exponential linear unit (Barron 2017).",
)
selu = Activation(
    "selu",
    Piecewise((lam * x, x > 0), (lam * beta * Expm1(x), True)),
    params=(_lam, _selu_beta),
    claims=Claims(0, True, lam * Max(1, beta), FiniteSet(0)),
    about="Self-normalising exponential linear unit (Klambauer et al. 2017).",
)
