r"""CRReLU, and the function it approximates.

    crrelu(x)       = relu(x) + eps x e^{-x^2/2}                        0 at -infinity and at 0, x at +infinity
    crrelu_exact(x) = the y with y - eps y e^{-y^2/2} = x for x >= 0;   eps x e^{-x^2/2} below

The EAFO paper derives the inverse of an activation (its equation 6) and replaces that inverse's inverse by a
first-order formula; here both are to be had. The inverse exists for -e^{3/2}/2 < eps < 1. Contrary to the paper's
sign, eps > 0 raises the output entropy under its own assumption. Hazard: x e^{-x^2/2} at infinity; u is x clipped at
40, beyond which the correction is 0 in any float.

>>> import softknee as sk, torch
>>> sk.get("crrelu")(torch.tensor([-1.0, 1.0]), eps=0.01)
tensor([-0.0061,  1.0061])
"""

from ..spec import Activation, Between, Claims, Implicit, Inner, Param, Ramp, real, u, v, x
from ..spec.algebra import Abs, Eq, FiniteSet, Max, Piecewise, Rational, exp

# At eps = 0.3 it is 0.182 from ReLU at most, and S-ReLU of width 1 is 0.1875.
_eps = real("eps", 0.3, "size of the correction")
_LOWEST = -2.2408445351690324  # -e^{3/2}/2: below it the inverse folds at y = sqrt 3
_exact_eps = Param("eps", 0.3, Between(low=_LOWEST, high=1.0), about="size of the correction")
_PRESETS = {"paper": {"eps": 0.01}}
eps = _eps.symbol
_bump = u * exp(-(u**2) / 2)
_dip = 2 * exp(-Rational(3, 2))
_reach = Abs(eps) * exp(-Rational(1, 2))

crrelu = Activation(
    "crrelu",
    Ramp(x) + eps * _bump,
    params=(_eps,),
    inner=Inner(x, low=-40.0, high=40.0),
    claims=Claims(0, Eq(eps, 0), Max(1 + eps, 1 - _dip * eps, Abs(eps)), FiniteSet(0), distance=_reach),
    knob="eps",
    limit="relu",
    presets=_PRESETS,
    about="Correction-regularised ReLU, from entropy-based activation optimisation.",
)
crrelu_exact = Activation(
    "crrelu_exact",
    Piecewise((eps * _bump, x < 0), (v, True)),
    params=(_exact_eps,),
    # Beyond 40 v is x in any float, and need not be solved for.
    worked=Piecewise((eps * _bump, x < 0), (x, x > 40), (v, True)),
    inner=Inner(x, low=-40.0, high=40.0),
    implicit=Implicit(inverse=v - eps * v * exp(-(v**2) / 2), low=x - _reach, high=x + _reach),
    claims=Claims(0, Eq(eps, 0), Max(1 / (1 - eps), 1 / (1 + _dip * eps), Abs(eps)), FiniteSet(0), distance=_reach),
    knob="eps",
    limit="relu",
    presets=_PRESETS,
    about="The exact inverse of equation 6 of the EAFO paper, which CRReLU approximates.",
)
