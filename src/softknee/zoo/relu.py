r"""ReLU and the piecewise linear functions beside it.

    relu(x) = max(x, 0)                         slope 0 at 0, as everywhere in this field
    leaky_relu(x) = x for x >= 0, slope x below; prelu is the same with another start value
    rrelu(x) = x for x >= 0, (lower + upper)/2 x below: the mean of its random leak, which the module draws in training
    relu6(x) = min(max(x, 0), 6)
    hardtanh(x) = min(max(x, -1), 1)
    clamp(x) = min(max(x, low), high)           hardtanh with limits; high everywhere where low > high
    hardswish(x) = x relu6(x + 3) / 6

Hazard: a leak of 0 times minus infinity is 0, not NaN; `Line` says so. A seam is false for NaN, so clamp is computed
with minimum and maximum, which let a limit that is NaN be seen.

>>> import softknee as sk, torch
>>> sk.get("leaky_relu")(torch.tensor([-2.0, 3.0]), slope=0.5)
tensor([-1.,  3.])
"""

from ..spec import Activation, Claims, Line, Ramp, real, x
from ..spec.algebra import Abs, Eq, FiniteSet, Interval, Max, Min, Piecewise, Rational, oo

slope = real("slope", 0.01, "slope below 0").symbol
_leaky = Piecewise((Line(slope, x), x < 0), (x, True))
# Its distance to relu has no end, unless there is no leak.
_leaky_claims = Claims(
    0, slope >= 0, Max(1, Abs(slope)), FiniteSet(0), distance=Piecewise((0, Eq(slope, 0)), (oo, True))
)
_lower = real("lower", 0.125, "least slope below 0")
_upper = real("upper", 1 / 3, "greatest slope below 0")
_mean = (_lower.symbol + _upper.symbol) / 2
_low = real("low", -1.0, "least value")
_high = real("high", 1.0, "greatest value")
low, high = _low.symbol, _high.symbol

relu = Activation(
    "relu",
    Ramp(x),
    claims=Claims(0, True, 1, Interval(-oo, 0)),
    about="Rectified linear unit.",
)
leaky_relu = Activation(
    "leaky_relu",
    _leaky,
    params=(real("slope", 0.01, "slope below 0"),),
    claims=_leaky_claims,
    knob="slope",
    limit="relu",
    about="ReLU with a fixed leak (Maas et al. 2013).",
)
prelu = Activation(
    "prelu",
    _leaky,
    params=(real("slope", 0.25, "slope below 0"),),
    claims=_leaky_claims,
    knob="slope",
    limit="relu",
    about="ReLU with a learned leak (He et al. 2015).",
)
rrelu = Activation(
    "rrelu",
    Piecewise((Line(_mean, x), x < 0), (x, True)),
    params=(_lower, _upper),
    claims=Claims(0, _mean >= 0, Max(1, Abs(_mean)), FiniteSet(0)),
    about="ReLU with a random leak in training (Xu et al. 2015), and with its mean afterwards.",
)
relu6 = Activation(
    "relu6",
    Piecewise((0, x < 0), (6, x > 6), (x, True)),
    claims=Claims(0, True, 1, Interval(-oo, 0)),
    about="ReLU that stops at 6 (Howard et al. 2017).",
)
hardtanh = Activation(
    "hardtanh",
    Piecewise((-1, x < -1), (1, x > 1), (x, True)),
    claims=Claims(0, True, 1, FiniteSet(0)),
    about="The identity between -1 and 1, constant outside.",
)
clamp = Activation(
    "clamp",
    Piecewise((high, x > high), (low - Ramp(low - high), x < low), (x, True)),
    params=(_low, _high),
    stable={(): Min(Max(x, low), high)},
    claims=Claims(0, True, Piecewise((1, low < high), (0, True))),
    about="The identity between two limits, constant outside: hardtanh with limits of your own.",
)
hardswish = Activation(
    "hardswish",
    Piecewise((0, x <= -3), (x, x >= 3), (x * (x + 3) / 6, True)),
    claims=Claims(0, False, Rational(3, 2), Interval(-oo, -3) + FiniteSet(0), one_minimum=True),
    about="Swish with a piecewise linear gate (Howard et al. 2019).",
)
