"""The arithmetic under the certificates: every enclosure holds the 60-digit value, on boxes and on half-lines."""

import math
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import cos, erf, exp, log, sin, sqrt

from softknee.design.proof.ball_pieces import keeps_sign
from softknee.design.proof.ball_tails import Tail, unfolded
from softknee.design.proof.balls import (
    FUNCTIONS,
    INFINITY,
    MINUS_INFINITY,
    Polynomial,
    Program,
    Span,
    UnknownFunction,
    arb,
    as_fraction,
    constant,
    factored,
    proves_zero,
    stable,
    tidy,
    working_precision,
)
from softknee.design.proof.branch_and_bound import Budget, Curve, infimum, supremum
from softknee.spec import primitives as p
from softknee.spec import x

DIGITS = 60
number = st.floats(-30, 30, allow_nan=False, width=32)
share = st.fractions(0, 1, max_denominator=1000)


@pytest.fixture(autouse=True)
def precision():
    with working_precision():
        yield


def holds(span: Span, value: Any, *, least: int = 0) -> bool:
    """Whether a value lies in a span, up to the 50th digit of the value or of 10^least."""
    lower, upper = as_fraction(span.lo, -1), as_fraction(span.hi, 1)
    slack = mpmath.mpf(10) ** -50 * max(mpmath.mpf(10) ** least, abs(value))
    low = mpmath.mpf(lower.numerator) / lower.denominator if isinstance(lower, Fraction) else mpmath.mpf(lower)
    high = mpmath.mpf(upper.numerator) / upper.denominator if isinstance(upper, Fraction) else mpmath.mpf(upper)
    return bool(low - slack <= value <= high + slack)


def span_of(a: float, b: float) -> Span:
    return Span.exact(min(a, b)).join(Span.exact(max(a, b)))


def inside(a: float, b: float, where: Fraction) -> Any:
    low, high = mpmath.mpf(min(a, b)), mpmath.mpf(max(a, b))
    return low + (high - low) * where.numerator / where.denominator


@given(number, number, number, number, share, share, st.integers(-5, 7))
@settings(max_examples=150, deadline=None)
def test_arithmetic(a: float, b: float, c: float, d: float, s: Fraction, t: Fraction, power: int):
    with mpmath.workdps(DIGITS):
        item, two, u, w = span_of(a, b), span_of(c, d), inside(a, b, s), inside(c, d, t)
        assert holds(item + two, u + w)
        assert holds(item - two, u - w)
        assert holds(item * two, u * w)
        assert holds(-item, -u)
        assert holds(item.size, abs(u))
        if u != 0 or power >= 0:
            assert holds(item.power(power), u**power)
        if u > 0:
            assert holds(item.root_power(Fraction(power, 3)), u ** (mpmath.mpf(power) / 3))


LOWEST = {p.Log1p: -0.96875, p.Log1pMinus: -0.96875, p.Log1pUnit: 0.0, p.Log1pMinusNear: -0.25, log: 0.03125}
SINGLE = [kind for kind in FUNCTIONS if kind not in (p.Line, sympy.Max, sympy.Min, sympy.sign)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SINGLE, ids=lambda kind: kind.__name__)
@given(number, number, share)
@settings(max_examples=25, deadline=None)
def test_functions(kind: Any, a: float, b: float, where: Fraction):
    lowest = LOWEST.get(kind, -math.inf)
    a, b = (lowest + abs(item) if math.isfinite(lowest) else item for item in (a, b))
    textbook = kind.elementary(x) if issubclass(kind, p.Primitive) else kind(x)
    with mpmath.workdps(DIGITS + 60):
        value = sympy.lambdify(x, textbook, "mpmath")
        at = inside(a, b, where)
        assert holds(FUNCTIONS[kind](span_of(a, b)), value(at))
        # Half-lines on either side.
        right = Span(span_of(a, b).lo, INFINITY)
        assert holds(FUNCTIONS[kind](right), value(inside(a, b, where)))
        assert holds(FUNCTIONS[kind](right), value(mpmath.mpf(max(a, b)) + 3))
        if not math.isfinite(lowest):
            left = Span(MINUS_INFINITY, span_of(a, b).hi)
            assert holds(FUNCTIONS[kind](left), value(at))
            assert holds(FUNCTIONS[kind](left), value(mpmath.mpf(min(a, b)) - 3))


def test_ends_are_tight():
    """A monotone function of a span is no wider than its values at the ends."""
    result = Program(p.NormalCdf(x), x)(span_of(-40.0, -39.0))
    with mpmath.workdps(DIGITS):
        for end, at in ((result.lo, -40), (result.hi, -39)):
            exact = as_fraction(end, 1)
            truth = mpmath.ncdf(at)
            assert abs(mpmath.mpf(exact.numerator) / exact.denominator / truth - 1) < mpmath.mpf(10) ** -50


SETTLING = [
    x * p.NormalCdf(x),
    p.NormalCdf(x) + x * p.NormalPdf(x),
    x * p.Sigmoid(3 * x / 2),
    x * p.Tanh(p.Softplus(x)),
    x * p.MishGate(x / 3),
    x * p.Tanh(exp(x)),
    x * exp(x) * p.SechSquared(exp(x)) + p.Tanh(exp(x)),
    p.Softplus(5 * x) / 5 - x,
    (x + sqrt(x**2 + 4)) / 2,
    x / sqrt(1 + x**2),
    1 / (1 + exp(-x)),
    exp(-x) / (1 + exp(-x)) ** 2,
    x**2 * exp(-(x**2) / 2) + 1 / (1 + x**2),
    (x**3 + 2 * x) / (x**2 + 1) - x,
    p.Log1pMinus(x**2) + x**2,
    log(1 + x**2) - 2 * log(3 + sqrt(1 + x**2)),
    p.Sigmoid(x) - p.Sigmoid(x - 6),
    p.NormalCdf(x) - p.NormalCdf(x - 6),
    x * p.Sigmoid(2 * sqrt(2 / sympy.pi) * (x + sympy.Rational(44715, 1000000) * x**3)),
    sin(x) * exp(-x / 10) * p.Sigmoid(x),
    x * (1 + erf(x / sqrt(2))) / 2,
    sympy.atan(x) * x - x,
    exp(1 / (1 + x**2)) * p.Expm1(-(x**2)),
    cos(x) / (2 + x**2),
]


@pytest.mark.slow
@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("expr", SETTLING, ids=str)
def test_forms_near_infinity(expr: Any, side: int):
    value = sympy.lambdify(x, p.elementary(expr), "mpmath")
    for start in (2, 16, 60):
        tail = Tail(x, arb(start), side)
        span, sign, limit = tail.range(expr), tail.sign(expr), tail.limit(expr)
        with mpmath.workdps(700):  # the textbook forms cancel in the tails
            for step in (0, 0.01, 0.3, 1, 7, 40):
                result = value(side * mpmath.mpf(start + step))
                if span is not None:
                    assert holds(span, result, least=-600), (start, step, span)
                if sign is not None:
                    assert result * sign > 0 or result == 0, (start, step)  # 0 where the digits of erfc end
            if limit is not None and limit.is_finite and start == 60:
                assert abs(result - mpmath.mpf(str(float(limit.lo)))) < 0.12


def test_forms_know_limits_and_growth():
    tail = Tail(x, arb(40), 1)
    zero = tail.limit(p.Softplus(3 * x) / 3 - x)
    assert zero is not None
    assert zero.lo == 0 == zero.hi
    down = tail.limit(-p.Log1pMinus(3 * x) / 3 - x)
    assert down is not None
    assert down.hi == MINUS_INFINITY
    assert tail.limit(sin(x)) is None
    bounded = tail.range(sin(x))
    assert bounded is not None
    assert bounded.lo == -1
    assert tail.limit(x**2 - x).lo == INFINITY
    assert tail.limit(x - x**2).hi == MINUS_INFINITY
    assert tail.sign(p.NormalCdf(6 - x) - p.NormalCdf(-x)) == 1


CURVES = [
    x * p.Sigmoid(x),
    x**5 - 3 * x**2 + 1,
    exp(-(x**2)) * (x + 1),
    p.Tanh(x) - x / 3,
    x * sin(x),
    sqrt(1 + x**2) - x,
]


@pytest.mark.slow
@pytest.mark.parametrize("expr", CURVES, ids=str)
@given(number, number, share)
@settings(max_examples=20, deadline=None)
def test_curves_and_their_extremes(expr: Any, a: float, b: float, where: Fraction):
    curve, box = Curve(expr, x), span_of(a / 6, b / 6)
    with mpmath.workdps(DIGITS):
        at = inside(a / 6, b / 6, where)
        for order in range(3):
            value = sympy.lambdify(x, sympy.diff(p.elementary(expr), x, order), "mpmath")(at)
            assert holds(curve.at(box, order), value)
        value = sympy.lambdify(x, p.elementary(expr), "mpmath")(at)
        high, low = supremum(curve, box.lo, box.hi), infimum(curve, box.lo, box.hi)
        assert holds(Span(low.lower, high.upper), value)
        assert high.settled
        assert low.settled
        reached = curve.at(high.places[0])
        assert reached.lo <= high.upper
        assert reached.hi >= high.lower


@given(st.lists(st.integers(-9, 9), min_size=3, max_size=9), number, number, share)
@settings(max_examples=50, deadline=None)
def test_polynomials_around_the_middle(coefficients: list[int], a: float, b: float, where: Fraction):
    expr = sum(c * x**i for i, c in enumerate([*coefficients, 1]))
    box = span_of(a / 8, b / 8)
    result = Polynomial(expr, x)(box)
    with mpmath.workdps(DIGITS):
        assert holds(result, mpmath.polyval([1, *reversed(coefficients)], inside(a / 8, b / 8, where)))


# -- algebra ----------------------------------------------------------------------------------------------

r = sympy.Rational(3152519739159347, 4503599627370496)
ZEROS = [
    sympy.Integer(0),
    1 / (1 + exp(-r)) - exp(r) / (1 + exp(r)),
    (1 + sqrt(2)) * (sqrt(2) - 1) - 1,
    1 / (1 + sqrt(2)) - sqrt(2) + 1,
    log(1 + sympy.E) - log(1 + exp(-1)) - 1,
    sympy.tanh(r) * 3 - 3 * sympy.tanh(r),
    (exp(r) - 1) * (exp(r) + 1) - exp(2 * r) + 1,
]
NOT_ZEROS = [
    sympy.Rational(1, 10**300),
    exp(r) - exp(r + sympy.Rational(1, 10**60)),
    log(2) - log(3),
    sqrt(2) - sympy.Rational(665857, 470832),
]


@pytest.mark.parametrize("expr", ZEROS, ids=str)
def test_what_is_zero(expr: Any):
    assert proves_zero(expr)


@pytest.mark.parametrize("expr", NOT_ZEROS, ids=str)
def test_what_is_not_zero(expr: Any):
    assert not proves_zero(expr)


def test_factors_do_not_touch_exponentials():
    """SymPy alone would take e^(p x/q) for a power of degree p."""
    expr = exp(r * x) * x - exp(r * x)
    assert factored(expr) == (x - 1) * exp(r * x)
    assert tidy(sin(x) * cos(x)) == sin(2 * x) / 2
    assert stable(log(1 + exp(3 * x)) + 1 / (1 + exp(-x)) ** 2) == p.Softplus(3 * x) + p.Sigmoid(x) ** 2


def test_unfolding_keeps_the_function():
    expr = p.NormalCdf(x) - p.NormalCdf(x - 6)
    other = unfolded(expr, x, 1)
    assert other == p.NormalCdf(6 - x) - p.NormalCdf(-x)
    assert unfolded(x**2, x, 1) is None
    assert Curve(expr, x).sign_on(span_of(50.0, 51.0)) == 1


def test_signs_over_a_whole_line():
    assert keeps_sign(Curve(x**2 + exp(x), x), MINUS_INFINITY, INFINITY, Budget()) == 1
    assert keeps_sign(Curve(-p.Sigmoid(x) - 1, x), MINUS_INFINITY, INFINITY, Budget()) == -1
    assert keeps_sign(Curve(x**2, x), MINUS_INFINITY, INFINITY, Budget()) is None
    assert keeps_sign(Curve(2 + 2 * sin(x), x), MINUS_INFINITY, INFINITY, Budget()) is None


def test_constants_and_unknown_functions():
    assert as_fraction(constant(sympy.Rational(1, 4)).lo, -1) == Fraction(1, 4)
    assert constant(sympy.Float("0.1", 30)).holds(arb(0)) is False
    assert constant(-sympy.oo).hi == MINUS_INFINITY
    with pytest.raises(UnknownFunction, match="no enclosure of zeta"):
        Program(sympy.zeta(x), x)


def test_a_top_in_the_middle_of_a_box():
    """The first value looked at is the largest, and its box is dropped because nothing in it is larger."""
    curve = Curve(p.SechSquared(6 * x + 3), x)
    for lo, hi in ((MINUS_INFINITY, INFINITY), (arb(-1), arb(0))):
        peak = supremum(curve, lo, hi)
        assert peak.lower == peak.upper == 1
        assert peak.attained
        assert any(place.holds(arb(-0.5)) for place in peak.places)
    dip = infimum(Curve((x - sympy.Rational(1, 2)) ** 4, x), arb(0), arb(1))
    assert dip.lower == dip.upper == 0


def test_a_search_over_the_line_ends():
    peak = supremum(Curve(sin(x**2) * x, x), MINUS_INFINITY, INFINITY, Budget(boxes=50))
    assert not peak.settled
    assert peak.upper == INFINITY
