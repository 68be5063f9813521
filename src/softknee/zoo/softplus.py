r"""Softplus, the functions made of it, and squareplus, which needs no exponential.

    softplus(x) = log(1 + e^{beta x}) / beta          0 at -infinity, log(2)/beta at 0, x at +infinity
    logsigmoid(x) = -log(1 + e^{-x})                  x at -infinity, -log 2 at 0, -0 at +infinity
    squareplus(x) = (x + sqrt(x^2 + delta^2))/2       0 at -infinity, delta/2 at 0, x at +infinity

Softplus is ReLU mollified with the logistic density: sup |softplus - relu| = log(2)/beta, at 0. Hazards: beta x
overflows before the value does, so the value is relu(x) + log(1 + e^{-|beta x|})/beta; the derivative by beta is
minus the entropy of a coin with odds e^u, written without the cancellation of its two halves. One exponential,
e^{-|u|} <= 1, serves value and slopes. Squareplus cancels on the left and its square overflows: it is relu(x) +
delta/2/(w + |u|) with u = x/delta and w = sqrt(1 + u^2), where an infinite w gives the limits.

>>> import softknee as sk, torch
>>> sk.get("softplus")(torch.tensor([0.0]), beta=2.0)
tensor([0.3466])
>>> sk.get("squareplus")(torch.tensor([-3.0, 0.0, 3.0]), delta=2.0)
tensor([0.3028, 1.0000, 3.3028])
"""

from ..spec import Activation, Claims, Inner, Log1pUnit, Ramp, Softplus, positive, u, x
from ..spec.algebra import Abs, Piecewise, exp, log, sqrt

_beta = positive("beta", 1.0, "hardness")
_delta = positive("delta", 2.0, "width of the knee; delta squared is the b of the paper and of Keras")
beta, delta = _beta.symbol, _delta.symbol
_small = exp(-Abs(u))
_w = sqrt(1 + u**2)
_gap = 1 / (2 * _w * (_w + Abs(u)))  # of the slope to 0 on the left and to 1 on the right

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
logsigmoid = Activation(
    "logsigmoid",
    -Softplus(-x),
    claims=Claims(float("inf"), True, 1),
    about="Logarithm of the logistic function, minus softplus of -x.",
)
squareplus = Activation(
    "squareplus",
    (x + sqrt(x**2 + delta**2)) / 2,
    params=(_delta,),
    inner=Inner(x / delta),
    worked=delta * (u + _w) / 2,
    stable={
        (): Ramp(x) + delta / (2 * (_w + Abs(u))),
        ("x",): Piecewise((_gap, x < 0), (1 - _gap, True)),
        ("delta",): 1 / (2 * _w),
        ("x", "x"): 1 / (2 * delta * _w**3),
    },
    claims=Claims(float("inf"), True, 1, distance=delta / 2),
    knob="delta",
    limit="relu",
    about="ReLU rounded off by a hyperbola (Barron 2021).",
)
