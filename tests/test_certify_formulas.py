"""Certificates of what is not in the zoo: random pieces, anyone's formula, what the engines make, what stays open."""

import itertools
import math
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import pytest
import sympy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sympy import Piecewise, exp, sin, sqrt

import softknee as sk
from checked_claims import check_claims
from softknee.design import definition
from softknee.design.proof.balls import factored
from softknee.design.proof.certificate import Certificate, Enclosure
from softknee.design.proof.certify import certify
from softknee.spec import Activation, Sigmoid, positive, x


def narrow(number: Enclosure) -> bool:
    return number.lower == number.upper or number.upper - number.lower <= 1e-12 * max(1, abs(number.lower))


# -- random functions -------------------------------------------------------------------------------------

small = st.fractions(-3, 3, max_denominator=8)


@st.composite
def piecewise(draw: st.DrawFn) -> Any:
    """Two to four pieces, each a polynomial or a gated line, with seams at fractions."""
    seams = sorted(draw(st.sets(small, min_size=1, max_size=3)))
    parts = []
    for _ in range(len(seams) + 1):
        a, b, c, d = (sympy.Rational(item.numerator, item.denominator) for item in draw(st.tuples(*[small] * 4)))
        kinds = [a * x + b, c * Sigmoid(d * x) + a * x, a * x * exp(-(x**2)) + b, a * sin(x) + b * x, a * x**2 + b]
        parts.append(draw(st.sampled_from(kinds)))
    ends = [sympy.Rational(seam.numerator, seam.denominator) for seam in seams]
    return ends, parts


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(piecewise())
def test_random_functions_against_dense_sampling(made: Any):
    seams, parts = made
    pairs = [(part, x < seam) for part, seam in zip(parts, seams, strict=False)]
    result = certify(Activation("random", Piecewise(*pairs, (parts[-1], True))))
    ends = [-40.0, *map(float, seams), 40.0]
    sampled = []
    for part, low, high in zip(parts, ends[:-1], ends[1:], strict=True):
        slope = sympy.lambdify(x, sympy.diff(part, x).replace(Sigmoid, Sigmoid.elementary), "mpmath")
        sampled += [slope(low + (high - low) * mpmath.mpf(i) / 400) for i in range(401)]
    top, bottom = max(sampled), min(sampled)
    slack = 1e-13 * max(1, abs(top), abs(bottom))  # the samples have sixteen digits
    assert top <= float(result.largest_slope.upper) + slack
    assert bottom >= float(result.smallest_slope.lower) - slack
    # And it is reached: a polynomial's slope at the ends of the grid, anything else's between its points.
    if math.isfinite(result.largest_slope.upper) and not result.open:
        assert float(result.largest_slope.lower) <= top + 0.35
        assert narrow(result.largest_slope)
        assert narrow(result.smallest_slope)
    assert result.lipschitz.lower <= max(abs(result.largest_slope.upper), abs(result.smallest_slope.lower)) or any(
        float(abs(left.subs(x, seam) - right.subs(x, seam))) > 0
        for left, right, seam in zip(parts[:-1], parts[1:], seams, strict=True)
    )


@settings(max_examples=12, deadline=None)
@given(st.lists(small, min_size=2, max_size=5), small)
@pytest.mark.slow
def test_random_quadratic_splines_are_known_exactly(slopes: list[Fraction], offset: Fraction):
    """Slopes that go from knot to knot on lines: the extremes are the largest and smallest of them."""
    expr, height = sympy.Integer(0), sympy.Rational(offset.numerator, offset.denominator)
    values = [sympy.Rational(slope.numerator, slope.denominator) for slope in slopes]
    pairs = [(height + values[0] * x, x < 0)]
    for place, (before, after) in enumerate(itertools.pairwise(values)):
        t = x - place
        expr = height + before * t + (after - before) * t**2 / 2
        pairs.append((expr, x < place + 1))
        height = expr.subs(x, place + 1)
    last = len(values) - 1
    result = certify(Activation("spline", Piecewise(*pairs, (height + values[-1] * (x - last), True))))
    assert result.largest_slope.lower <= max(slopes) <= result.largest_slope.upper
    assert result.smallest_slope.lower <= min(slopes) <= result.smallest_slope.upper
    assert result.monotone == (min(slopes) >= 0)
    assert result.smoothness == (math.inf if len(set(slopes)) == 1 else 1)
    assert result.is_settled


# -- anyone's formula -------------------------------------------------------------------------------------


def of(expr: Any, name: str = "mine") -> Certificate:
    return certify(Activation(name, expr))


def test_unbounded_slopes():
    assert of(x**2).lipschitz.lower == of(x**2).lipschitz.upper == math.inf
    assert of(exp(x)).largest_slope.lower == math.inf
    assert of(x**3).monotone is True
    assert of(x**5 - 3 * x).zeros is not None
    assert [float(zero.begin) for zero in of(x**5 - 3 * x).zeros] == pytest.approx([-(3**0.25), 0, 3**0.25])


def test_waves():
    wave = of(sin(x))
    assert wave.lipschitz.lower == wave.lipschitz.upper == 1
    assert wave.zeros is None
    assert "more zeros" in wave.open[0]
    assert of(x + sin(x)).monotone is True
    snake = of(x + sin(3 * x) ** 2 / 3)
    assert snake.monotone is True
    assert 2 in snake.lipschitz
    assert narrow(snake.lipschitz)


def test_spelled_out_functions_are_those_of_the_zoo():
    assert of(x / (1 + exp(-x))).lipschitz == certify("silu").lipschitz
    squareplus = of((x + sqrt(x**2 + 4)) / 2)
    assert squareplus.monotone is True
    assert squareplus.largest_slope.lower == squareplus.largest_slope.upper == 1
    assert of(sympy.log(1 + exp(x))).largest_slope.attained is False
    textbook = of(x * (1 + sympy.erf(x / sqrt(2))) / 2)
    assert str(textbook.lipschitz) == str(certify("gelu").lipschitz)


def test_texts_formulas_and_files_have_certificates(tmp_path: Path):
    silu = certify("silu").lipschitz
    assert certify("x * sigmoid(x)").lipschitz == silu
    assert certify(x * Sigmoid(x)).lipschitz == silu
    assert certify("x").lipschitz.lower == 1
    saved = sk.save(sk.design.mollify("relu", "box", 0.25), tmp_path / "knee.json")
    assert certify(saved) == certify(str(saved)) == certify("mollify(relu, box, width=0.25)")
    with pytest.raises(sk.FormulaError, match="params="):
        certify("x * sigmoid(beta * x)", beta=2)
    with pytest.raises(sk.DefinitionError, match="NoneType"):
        certify(None)


def test_jumps_and_values_at_seams():
    up = of(Piecewise((0, x < 0), (x + 1, True)))
    assert (up.smoothness, up.monotone, up.lipschitz.lower) == (-1, True, math.inf)
    assert str(up.zeros[0]) == "-inf to 0 without 0"
    down = of(Piecewise((1, x < 0), (x, True)))
    assert (down.smoothness, down.monotone) == (-1, False)
    lonely = of(Piecewise((0, x < 0), (x, x > 0), (5, True)))
    assert (lonely.smoothness, lonely.monotone) == (-1, False)
    assert [str(zero) for zero in lonely.zeros] == ["-inf to 0 without 0"]
    smooth = of(Piecewise((x**3, x < 0), (x**3 + x**7, True)))
    assert smooth.smoothness == 6


def test_seams_that_are_no_binary_numbers():
    result = certify("srelu", delta="0.1")
    assert result.monotone is True
    assert result.smoothness == 2
    assert result.zeros[0].end.lower == result.zeros[0].end.upper == Fraction(-1, 10)
    assert Fraction(3, 160) in result.distance
    roots = of(Piecewise((0, x < sqrt(2)), ((x - sqrt(2)) ** 2, True)))
    assert roots.smoothness == 1
    assert roots.monotone is True


# -- what stays open --------------------------------------------------------------------------------------

OPEN = {
    "a pole": 1 / x,
    "a root that touches 0": sqrt(x**2 - 2 * x + 1),
    "a logarithm": sympy.log(x),
    "a faster and faster wave": sin(x**2),
    "a function without an enclosure": sympy.gamma(x),
    "a single point": Piecewise((1, sympy.Eq(x, 0)), (x, True)),
    "another": Piecewise((0, x < 0), (0, x > 0), (5, True)),
    "a seam that is not solved for": Piecewise((0, sin(x) < 0), (x, True)),
    "a difference that algebra does not see": Piecewise(
        (0, x < 0), (x + sympy.sin(1) ** 2 + sympy.cos(1) ** 2 - 1 + sympy.Rational(1, 10**90), True)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", OPEN)
def test_what_is_not_settled_is_said(words: str):
    start = time.process_time()
    result = of(OPEN[words])
    assert time.process_time() - start < 30
    assert result.open
    assert all(sentence.endswith(".") for sentence in result.open)
    assert not result.is_settled
    assert result.lipschitz.upper == math.inf
    assert result.lipschitz.lower < math.inf
    assert ("defined for" if result.domain else "not settled") in str(result)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("log(x)", "x > 0"),
        ("sqrt(x)", "x >= 0"),
        ("1/x", "x != 0"),
        ("sqrt(1 - x**2)", "-1 <= x <= 1"),
        ("log(x) * sin(x)", "x > 0"),
        ("1/(x**2 - 2)", "x != -1.41421356... and x != 1.41421356..."),
        ("log(sin(x))", ""),
        ("sqrt(1 + x**2)", ""),
    ],
)
def test_a_function_that_is_not_defined_everywhere_says_where_it_is(text: str, domain: str):
    result = certify(text)
    assert result.domain == domain
    assert "-oo" not in str(result)
    assert ("defined for" in str(result)) == bool(domain)


def test_a_piece_without_a_value_is_said():
    assert "divides by 0 on a whole piece" in str(certify("max(cos(relu(x)**-2), x)"))


def test_a_budget_ends_every_search_and_more_time_goes_on():
    result = certify("gelu", seconds=-1)
    assert result.out_of_time
    assert not result.is_settled
    assert not certify("gelu").out_of_time
    assert result.lipschitz.lower <= 1.1289041 <= result.lipschitz.upper


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "smoothness"), [("erf(smelu(x)**16)", 1), ("erfc((smelu(x) + gelu(x))**5)", 1), ("log1p(relu(x)**16)", 15)]
)
def test_no_high_power_is_written_out(text: str, smoothness: int):
    """Idle, each takes one to two seconds of the processor; with its powers written out, the first took minutes."""
    start = time.thread_time()
    assert certify(text).smoothness == smoothness
    assert time.thread_time() - start < 10


# -- what the engines make --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["box", "triangle", "epanechnikov", "biweight", "gaussian", "logistic"])
@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
def test_mollified_functions(name: str, kernel: str):
    act = sk.design.mollify(name, kernel, width=0.5)
    result = certify(act)
    assert result.open == ()
    assert {claim.verdict for claim in check_claims(act, result)} <= {"holds", "more"}
    assert result.limit == name


@pytest.mark.slow
def test_mollified_functions_with_several_seams():
    result = certify(sk.design.mollify("relu6", "gaussian"))
    assert result.monotone is True
    assert float(result.largest_slope) == pytest.approx(math.erf(3 / math.sqrt(2)), rel=1e-15)
    overlapping = certify(sk.design.mollify("hardtanh", "triweight", width=3.0))
    assert overlapping.open == ()
    assert overlapping.smoothness == 4


@pytest.mark.slow
def test_joined_functions():
    beta = positive("beta", 1.0)
    dip = [
        (0, "-7 * beta"),
        ("-(x + 7 * beta)**2 / (80 * beta)", "-2 * beta"),
        ("(3 * x + beta) * (x + 3 * beta) / (16 * beta)", "beta"),
        "x",
    ]
    act = sk.design.rescu(dip, params=[beta])
    result = certify(act, beta=2)
    assert {claim.verdict for claim in check_claims(act, result)} <= {"holds", "more"}
    assert Fraction(-1, 8) in result.smallest_slope
    capped = certify(sk.design.join("x * sigmoid(x)", "x", between=(1, 3), smoothness=2, fixed=True))
    assert capped.smoothness == 2
    assert capped.is_settled


@pytest.mark.parametrize("text", ["exp(relu(x)**5)", "(exp((relu(relu(x)))**16))**5"])
def test_numbers_beyond_all_exponents_end_in_a_bound_and_not_the_process(text: str) -> None:
    result = certify(definition(text), seconds=60)
    assert result.monotone
    assert result.largest_slope.lower == 2**1000
    assert result.largest_slope.upper == math.inf
    assert "1.07151e+301" in str(result)


def test_polynomials_in_many_letters_are_left_as_they_are() -> None:
    """SymPy's factors of such a polynomial took more than ten minutes."""
    letters = sympy.symbols("a:7")
    product = sympy.expand((sum(letters[:4]) + 1) * (sum(letters[3:]) - 1))
    assert factored(product) == product
    assert factored(sympy.expand((letters[0] + 1) * (letters[1] - 1))).is_Mul
