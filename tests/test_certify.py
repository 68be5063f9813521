"""Certificates of the zoo: every constant between proven ends, every claim checked, every question settled in time."""

import functools
import json
import math
import sys
import time
from fractions import Fraction
from typing import Any

import mpmath
import pytest
import sympy
import torch
from sympy import Piecewise, exp

import softknee as sk
from checked_claims import check_claims
from helpers import ZOO, ordinary_values
from softknee.design.proof.certificate import Certificate, Enclosure
from softknee.design.proof.certify import certify, range_of
from softknee.spec import Activation, AtLeastOne, Between, Claims, Param, Positive, Sigmoid, v, x
from softknee.spec.reference import evaluate

WIDTH = 1e-12
SECONDS = 10.0


def as_meant(act: Activation) -> Activation:
    """Without the piece that stands in for an implicit value beyond 40: there it is the same in every float, and its
    difference of 1e-346 is a jump to mathematics."""
    if act.implicit is None or act.index:
        return act
    kept = [pair for pair in act.formula.args if pair[0] != x]
    return act.with_(formula=Piecewise(*kept), worked=act.bound_formula)


SUBJECTS = {name: as_meant(act) for name, act in ZOO.items()}
every_subject = pytest.mark.parametrize("name", SUBJECTS)


def others(p: Param) -> tuple[float, float]:
    """Two settings beside the default, of moderate size."""
    if isinstance(p.constraint, Positive):
        return 0.125, 7.3
    if isinstance(p.constraint, AtLeastOne):
        return 1.0, 12.7
    if isinstance(p.constraint, Between):
        return 0.7 * p.constraint.low, 0.6 * p.constraint.high
    return -0.8, 1.75


def all_settings(act: Activation) -> list[dict[str, float]]:
    start = {p.name: p.default for p in act.params}
    return [start, ordinary_values(act), *(start | {p.name: value} for p in act.params for value in others(p))]


@functools.cache
def certified(name: str) -> list[tuple[dict[str, float], Certificate, float]]:
    """Every setting of a function of the zoo with its certificate and the seconds of work that it took."""
    results = []
    for values in all_settings(SUBJECTS[name]):
        start = time.process_time()
        results.append((values, certify(SUBJECTS[name], **values), time.process_time() - start))
    return results


def numbers(certificate: Certificate) -> list[Enclosure]:
    known = [certificate.smallest_slope, certificate.largest_slope, certificate.lipschitz]
    return known + ([] if certificate.distance is None else [certificate.distance])


def narrow(number: Enclosure) -> bool:
    if number.lower == number.upper:
        return True
    return number.upper - number.lower <= WIDTH * max(1, abs(number.lower))


# -- the zoo ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@every_subject
def test_every_question_is_settled_in_time(name: str):
    for values, certificate, seconds in certified(name):
        assert certificate.open == (), values
        assert certificate.is_settled
        assert all(narrow(number) for number in numbers(certificate)), values
        assert None not in (certificate.monotone, certificate.smoothness, certificate.zeros)
        assert seconds < SECONDS, values


@pytest.mark.slow
@every_subject
def test_every_claim_agrees(name: str):
    verdicts: dict[str, set[str]] = {}
    for values, certificate, _ in certified(name):
        for item in check_claims(SUBJECTS[name], certificate):
            assert item.verdict in ("holds", "more"), (values, item)
            verdicts.setdefault(item.claim, set()).add(item.verdict)
    # A claim is about all parameters; it must be exact for some, or it would claim too little. The zeros of the
    # generalised SmeLU depend on all of its parameters, and none is claimed.
    assert set(verdicts) == {"smoothness", "monotone", "lipschitz", "zeros"}
    for claim, result in verdicts.items():
        assert "holds" in result or (name, claim) == ("generalized_smelu", "zeros"), claim


def silu_slope(t: Any) -> Any:
    s = 1 / (1 + mpmath.exp(-t))
    return s + t * s * (1 - s)


CONSTANTS = {
    "gelu": (lambda t: mpmath.ncdf(t) + t * mpmath.npdf(t), 1.4, "1.12890414518515478"),
    "silu": (silu_slope, 2.4, "1.09983932012886691"),
    "mish": (
        lambda t: mpmath.diff(lambda y: y * mpmath.tanh(mpmath.log1p(mpmath.exp(y))), t),
        1.5,
        "1.08849816125172786",
    ),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_the_three_constants(name: str):
    slope, start, digits = CONSTANTS[name]
    with mpmath.workdps(40):
        top = mpmath.findroot(lambda t: mpmath.diff(slope, t), start, tol=1e-30)
        truth = slope(top)
        result = certify(name).lipschitz
        assert result.upper - result.lower < Fraction(1, 10**20)
        middle = mpmath.mpf(result.lower.numerator) / result.lower.denominator
        assert abs(middle - truth) < mpmath.mpf(10) ** -25
        place = result.places[-1].begin
        assert abs(mpmath.mpf(place.lower.numerator) / place.lower.denominator - top) < mpmath.mpf(10) ** -15
    assert str(result).startswith(digits)


DISTANCES: list[tuple[str, dict[str, Any], Any, list[Any]]] = [
    ("srelu", {"delta": Fraction(1, 4)}, sympy.Rational(3, 64), [0]),
    ("smelu", {"beta": Fraction(1, 4)}, sympy.Rational(1, 16), [0]),
    ("shifted_smelu", {"beta": 0.5, "shift": 3}, sympy.Rational(1, 8), [3]),
    ("softplus", {"beta": 3}, sympy.log(2) / 3, [0]),
    ("lambda_gelu", {"lam": 4}, None, []),
    ("crrelu", {"eps": "-0.3"}, sympy.Rational(3, 10) * exp(-sympy.Rational(1, 2)), [-1, 1]),
    ("elu", {"beta": 2}, sympy.Integer(2), [-math.inf]),
    ("smooth_relu", {"beta": 2}, sympy.oo, [math.inf]),
    ("leaky_relu", {"slope": "0.01"}, sympy.oo, [-math.inf]),
]


@pytest.mark.parametrize(("name", "values", "distance", "places"), DISTANCES)
def test_distances_to_the_hard_limit(name: str, values: dict[str, Any], distance: Any, places: list[Any]):
    result = certify(name, **values).distance
    assert result is not None
    if distance is None:
        # The formula sheet: 0.16997120747990366/lambda at |x| = 0.751791524693564/lambda.
        assert float(result) == pytest.approx(0.16997120747990366 / 4, rel=1e-16)
        assert [float(place.begin) for place in result.places] == pytest.approx([-0.187947881173391, 0.187947881173391])
        return
    if distance == sympy.oo:
        assert result.lower == result.upper == math.inf
        assert result.attained is False
    else:
        truth = sympy.N(distance, 50)
        assert narrow(result)
        exact = Fraction(str(truth))
        assert abs(exact - result.lower) < Fraction(1, 10**30)
    assert [place.begin.lower for place in result.places] == pytest.approx(places)


def test_suprema_that_are_only_approached():
    softplus = certify("softplus", beta=2)
    assert softplus.largest_slope.lower == softplus.largest_slope.upper == 1
    assert softplus.largest_slope.attained is False
    assert softplus.largest_slope.places[0].begin.lower == math.inf
    assert softplus.smallest_slope.lower == softplus.smallest_slope.upper == 0
    relu = certify("relu")
    assert relu.largest_slope.attained is True
    assert str(relu.largest_slope.places[0]) == "0 to inf"


def test_the_implicit_function():
    act, eps = SUBJECTS["crrelu_exact"], 0.4
    result = certify(act, eps=eps)
    assert v in act.formula.free_symbols
    assert float(result.largest_slope) == pytest.approx(1 / (1 - eps), rel=1e-15)
    assert [float(place.begin) for place in result.distance.places] == pytest.approx([-1, 1 - eps * math.exp(-0.5)])
    values = [evaluate(act, at, eps=eps) - max(at, 0) for at in (-1.0, 1 - eps * math.exp(-0.5))]
    assert [abs(float(value)) for value in values] == pytest.approx([float(result.distance)] * 2, rel=1e-14)


# -- wrong claims -----------------------------------------------------------------------------------------


def claimed(act: Activation, **changes: Any) -> dict[str, str]:
    claims = act.claims
    assert claims is not None
    fields = {name: getattr(claims, name) for name in ("smoothness", "monotone", "lipschitz", "zeros")}
    changed = act.with_(claims=Claims(**(fields | changes)))
    return {claim.claim: claim.verdict for claim in check_claims(changed, certify(act))}


@pytest.mark.parametrize("name", ["gelu", "srelu", "elu", "hardswish", "smooth_relu"])
def test_a_wrong_claim_fails(name: str):
    act = sk.get(name)
    claims = act.claims
    assert "fails" not in claimed(act).values()
    higher = 3 if math.isfinite(claims.smoothness) else math.inf
    if math.isfinite(higher):
        assert claimed(act, smoothness=higher)["smoothness"] == "fails"
    assert claimed(act, monotone=not claims.monotone)["monotone"] == "fails"
    for factor in (1 + sympy.Rational(1, 10**11), 1 - sympy.Rational(1, 10**11)):
        assert claimed(act, lipschitz=claims.lipschitz * factor)["lipschitz"] == "fails"
    assert claimed(act, zeros=claims.zeros + sympy.FiniteSet(sympy.Rational(1, 1000)))["zeros"] == "fails"


def test_the_printed_constant_of_gelu_fails():
    """The mollification paper prints 1.084 (the formula sheet's first erratum)."""
    assert claimed(sk.get("gelu"), lipschitz=sympy.Rational(1084, 1000))["lipschitz"] == "fails"


# -- soft quantisation ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
@pytest.mark.parametrize("window", [None, 3])
def test_soft_quantisation(weights: str, window: int | None):
    z = [0.5, 0.125, 1.0]
    start = time.process_time()
    result = certify("squaf", z=z, q=0.5, alpha=5.0, weights=weights, window=window)
    assert time.process_time() - start < SECONDS
    assert result.open == ()
    assert result.monotone is False
    if window is None:
        assert result.smoothness == sk.get("squaf").with_weights(weights).claims.smoothness
    else:
        assert (result.smoothness, result.lipschitz.lower) == (-1, math.inf)
    at = torch.linspace(-3, 3, 20001, dtype=torch.float64)
    given_z = torch.tensor(z, dtype=torch.float64)
    slope = sk.get("squaf").derivative(1)(at, z=given_z, q=0.5, alpha=5.0, weights=weights, window=window)
    for sampled, proved in ((slope.max(), result.largest_slope), (slope.min(), result.smallest_slope)):
        assert float(sampled) == pytest.approx(float(proved), rel=1e-5)
    assert slope.max() <= float(result.largest_slope.upper) + 1e-13


@pytest.mark.slow
def test_soft_quantisation_by_default():
    full, windowed = certify("squaf", window=None), certify("squaf")
    assert full.monotone is True
    h = 5.0 * 0.5**2
    assert float(full.lipschitz.upper) <= 0.5 / 0.5 * h / (1 - math.exp(-h))  # the claim: a bound
    assert windowed.smoothness == -1
    assert windowed.monotone is True
    assert certify("squaf", grid=[-1, 0, 2], z=[0, 1, 3]).monotone is True
    odd = certify("squaf", z=[-1, 0, 1], window=None)
    assert [(zero.begin.lower, zero.end.upper) for zero in odd.zeros] == [(0, 0)]


# -- arguments and output ---------------------------------------------------------------------------------


def test_parameters_are_exact():
    tenth = certify("leaky_relu", slope="0.1").smallest_slope
    assert Fraction(1, 10) in tenth
    binary = certify("leaky_relu", slope=0.1).smallest_slope
    assert binary.lower == binary.upper == Fraction(0.1) != Fraction(1, 10)
    assert certify("leaky_relu", slope=Fraction(1, 4)) == certify("leaky_relu", slope=0.25)


@pytest.mark.parametrize("value", [True, None, "a tenth", math.inf, math.nan, torch.tensor([1.0, 2.0])])
def test_a_parameter_that_is_no_number(value: Any):
    with pytest.raises(sk.ParameterError, match="slope must be one finite number"):
        certify("leaky_relu", slope=value)


def test_refusals():
    with pytest.raises(sk.ParameterError, match="Did you mean 'beta'"):
        certify("gelu", beto=1)
    with pytest.raises(sk.ParameterError, match="above 0"):
        certify("gelu", beta=-1)
    with pytest.raises(sk.UnknownActivationError, match="Did you mean"):
        certify("gelou")
    with pytest.raises(sk.DefinitionError, match="element-wise"):
        certify([3])
    with pytest.raises(sk.ParameterError, match="list of 5 numbers"):
        certify("squaf", z=[1, 2, 3], k=2)


def test_without_flint(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(sk.MissingToolError, match=r"pip install 'softknee\[design\]'"):
        certify("relu")


def test_a_certificate_is_data():
    result = certify("gelu", beta=2)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["smoothness"] == "inf"
    assert data["params"] == {"beta": "2"}
    lower, upper = (Fraction(data["lipschitz"][end]) for end in ("lower", "upper"))
    assert lower <= result.lipschitz.lower
    assert upper >= result.lipschitz.upper
    assert upper - lower < Fraction(1, 10**25)
    assert data["distance"]["places"][0]["begin"]["lower"].startswith("-0.3758957623")
    with pytest.raises(AttributeError):
        result.monotone = True  # pyright: ignore[reportAttributeAccessIssue]
    assert "certificate of gelu(beta=2)" in str(result)
    assert float(result.lipschitz.lower) == pytest.approx(1.1289041451851547)
    infinite = certify("leaky_relu").to_dict()["distance"]
    assert (infinite["lower"], infinite["attained"]) == ("inf", False)


def test_range_of():
    smallest, largest = range_of(x * Sigmoid(x), -3, Fraction(1, 2))
    assert float(smallest) == pytest.approx(-0.2784645427610738, rel=1e-15)
    assert float(largest) == pytest.approx(0.5 / (1 + math.exp(-0.5)), rel=1e-15)
    smallest, largest = range_of(sympy.Abs(x - 1), 0, 4)
    assert (smallest.lower, smallest.upper, largest.lower, largest.upper) == (0, 0, 3, 3)
    assert range_of(sympy.Integer(7), -1, 1)[0].lower == 7
    with pytest.raises(sk.DefinitionError, match="not settled"):
        range_of(1 / x, -1, 1)
    with pytest.raises(sk.ParameterError, match="low <= high"):
        range_of(x, 2, 1)
