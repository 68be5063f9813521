r"""Softplus: ReLU mollified with the logistic density.

    softplus(x) = log(1 + e^{beta x}) / beta          0 at -infinity, log(2)/beta at 0, x at +infinity

sup |softplus - relu| = log(2)/beta, at 0. Hazards: beta x overflows before the value does, so the value is
relu(x) + log(1 + e^{-|beta x|})/beta; the derivative by beta is minus the entropy of a coin with odds e^u,
written without the cancellation of its two halves. One exponential, e^{-|u|} <= 1, serves value and slopes.

>>> import softknee as sk, torch
>>> sk.get("softplus")(torch.tensor([0.0]), beta=2.0)
tensor([0.3466])
"""

from ..spec import Activation, Claims, Inner, Log1pUnit, Ramp, Softplus, positive, u, x
from ..spec.algebra import Abs, Piecewise, exp, log

_beta = positive("beta", 1.0, "hardness")
beta = _beta.symbol
_small = exp(-Abs(u))

softplus = Activation(
    "softplus",
    Softplus(u) / beta,
    params=(_beta,),
    inner=Inner(beta * x, low=-800.0, high=800.0),
    stable={
        (): Ramp(x) + Log1pUnit(_small) / beta,
        ("x",): Piecewise((_small / (1 + _small), x < 0), (1 / (1 + _small), True)),
        ("beta",): -(Log1pUnit(_small) + Abs(u) * _small / (1 + _small)) / beta**2,
    },
    claims=Claims(float("inf"), True, 1, distance=log(2) / beta),
    knob="beta",
    toward=float("inf"),
    limit="relu",
    about="ReLU mollified with the logistic density (Dugas et al. 2001).",
)
