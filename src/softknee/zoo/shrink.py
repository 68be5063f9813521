r"""Functions that take small inputs to 0, or to another value.

    softshrink(x) = x - lam for x > lam, x + lam for x < -lam, 0 between
    hardshrink(x) = x for |x| > lam, 0 else: it jumps at -lam and lam
    tanhshrink(x) = x - tanh(x)                       x + 1, 0, x - 1 at -infinity, 0, +infinity; x^3/3 near 0
    threshold(x)  = x for x > theta, value else: it jumps unless value = theta

Hazards: x - tanh(x) cancels near 0, where its series is summed. A seam is false for NaN: a lam or theta that is NaN
would choose a piece and not be seen, so softshrink is computed as x - clip(x), and the other two from the greater of
input and theta or lam.

>>> import softknee as sk, torch
>>> sk.get("softshrink")(torch.tensor([-2.0, 0.25, 2.0]), lam=0.5)
tensor([-1.5000,  0.0000,  1.5000])
>>> sk.get("threshold")(torch.tensor([0.5, 2.0]), theta=1.0, value=-3.0)
tensor([-3.,  2.])
"""

from ..spec import Activation, Claims, Tanh, positive, real, x
from ..spec.algebra import Abs, Eq, Expr, FiniteSet, Interval, Max, Min, Piecewise, Rational, oo, sign, sympy

_lam = positive("lam", 0.5, "half-width of the zeros")
_theta = real("theta", 1.0, "the largest input that is replaced")
_value = real("value", 0.0, "what stands in its place")
lam, theta, value = _lam.symbol, _theta.symbol, _value.symbol
_zeros = Interval(-lam, lam)
_outer, _above = Max(Abs(x), lam), Max(x, theta)


def _tanhshrink_series() -> Expr:
    """x - tanh(x) by its first eleven terms: 1e-17 off at |x| = 0.3."""
    total = sympy.Integer(0)
    for n in range(12, 1, -1):
        term = -(4**n) * (4**n - 1) * sympy.bernoulli(2 * n) / sympy.factorial(2 * n)
        total = term + x**2 * total
    return x**3 * total


softshrink = Activation(
    "softshrink",
    Piecewise((x - lam, x > lam), (x + lam, x < -lam), (0, True)),
    params=(_lam,),
    stable={(): x - Min(Max(x, -lam), lam)},
    claims=Claims(0, True, 1, _zeros),
    about="Soft thresholding: towards 0 by lam, and 0 between (Donoho 1995).",
)
hardshrink = Activation(
    "hardshrink",
    Piecewise((0, Abs(x) <= lam), (x, True)),
    params=(_lam,),
    stable={(): Piecewise((0, _outer <= lam), (sign(x) * _outer, True))},
    claims=Claims(-1, True, oo, _zeros),
    about="Hard thresholding: 0 between -lam and lam, the identity outside (Donoho and Johnstone 1994).",
)
tanhshrink = Activation(
    "tanhshrink",
    x - Tanh(x),
    stable={
        (): Piecewise((_tanhshrink_series(), Abs(x) < Rational(3, 10)), (x - Tanh(x), True)),
        ("x",): Tanh(x) ** 2,
    },
    claims=Claims(float("inf"), True, 1, FiniteSet(0)),
    about="The identity less tanh.",
)
threshold = Activation(
    "threshold",
    Piecewise((x, x > theta), (value, True)),
    params=(_theta, _value),
    stable={(): Piecewise((value, _above <= theta), (_above, True))},
    claims=Claims(-1, value <= theta, Piecewise((1, Eq(value, theta)), (oo, True))),
    about="The identity above a threshold, one value below (Konda, Memisevic and Krueger 2014, with the value 0).",
)
