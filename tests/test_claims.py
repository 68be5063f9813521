"""Every claim of every definition, held against the function; and the formula sheet's numbers."""

import math

import mpmath
import pytest
import sympy
import torch
from torch import Tensor

import softknee as sk
from helpers import F64, SUBJECTS, SYMBOL, every_subject, ordinary_values, settings, tolerance
from softknee.spec import Activation, elementary
from softknee.spec.reference import evaluate


def symbols(act: Activation, values: dict[str, float]) -> dict[sympy.Symbol, float]:
    return {p.symbol: values[p.name] for p in act.params}


def moderate_settings(act: Activation) -> list[dict[str, float]]:
    """Without the ends of the knobs' range, where a slope turns within 1e-6 and a grid would miss it."""
    found = [{name: value.item() for name, value in one.items()} for one in settings(act)]
    return [ordinary_values(act), *(one for one in found if all(1e-3 < abs(v) < 1e3 or v == 0 for v in one.values()))]


def grid(values: dict[str, float]) -> Tensor:
    """Dense around 0 at the scale of 1, of every width and of its inverse, and as far as +-60."""
    sizes = {1.0, 7.5, *(abs(v) for v in values.values() if v), *(1 / abs(v) for v in values.values() if v)}
    return torch.cat([size * torch.linspace(-8, 8, 8001, dtype=F64) for size in sorted(sizes)])


@every_subject
def test_claims_are_made(act: Activation):
    assert act.claims is not None
    assert act.about.endswith(".")
    assert act.latex().startswith(r"\operatorname{")


# -- smoothness -------------------------------------------------------------------------------------------


def seams(act: Activation, values: dict[str, float]) -> list[mpmath.mpf]:
    """Where two pieces meet, to 60 digits."""
    found = set()
    for seam in elementary(act.formula).atoms(sympy.core.relational.Relational):
        found |= set(sympy.solve(sympy.Eq(seam.lhs, seam.rhs), SYMBOL))
    exact = {symbol: sympy.Float(value, 80) for symbol, value in symbols(act, values).items()}
    return [mpmath.mpf(str(sympy.N(place.subs(exact), 60))) for place in found]


def jump(act: Activation, order: int, at: mpmath.mpf, values: dict[str, float]) -> float:
    gap = mpmath.mpf(10) ** -40
    derivative = act.derivative(order)
    return float(abs(evaluate(derivative, at + gap, **values) - evaluate(derivative, at - gap, **values)))


@every_subject
def test_smoothness(act: Activation):
    values = ordinary_values(act)
    with mpmath.workdps(100):
        places = seams(act, values)
        if math.isinf(act.claims.smoothness):
            assert places == []
            return
        assert places
        for order in range(int(act.claims.smoothness) + 1):
            assert max(jump(act, order, at, values) for at in places) < 1e-20
        # And no smoother than claimed.
        assert max(jump(act, int(act.claims.smoothness) + 1, at, values) for at in places) > 1e-3


# -- slopes -----------------------------------------------------------------------------------------------


@every_subject
def test_monotone_exactly_where_claimed(act: Activation):
    for values in moderate_settings(act):
        slope = act.derivative(1)(grid(values), **values)
        claim = sympy.sympify(act.claims.monotone).subs(symbols(act, values))
        assert claim in (sympy.true, sympy.false), values
        assert (slope.min().item() >= 0) == bool(claim), (values, slope.min().item())


@every_subject
def test_lipschitz_constant_holds_and_is_attained(act: Activation):
    for values in moderate_settings(act):
        steepest = act.derivative(1)(grid(values), **values).abs().max().item()
        claim = float(elementary(act.claims.lipschitz).subs(symbols(act, values)))
        assert steepest <= claim * (1 + 1e-12), values
        assert steepest >= claim * (1 - tolerance(F64, "attained")), values


@every_subject
def test_secants_respect_the_lipschitz_constant(act: Activation):
    """The constant bounds differences of values, not only the derivative that was derived."""
    values = ordinary_values(act)
    x = torch.linspace(-9, 9, 4001, dtype=F64)
    y = act(x, **values)
    claim = float(elementary(act.claims.lipschitz).subs(symbols(act, values)))
    assert ((y[1:] - y[:-1]).abs() / (x[1:] - x[:-1])).max() <= claim * (1 + 1e-9)


# -- zeros ------------------------------------------------------------------------------------------------


def members(region: sympy.Set) -> tuple[list[float], list[float]]:
    """Points inside the region of zeros, and points just outside a half-line of it."""
    inside, outside = [], []
    for part in region.args if isinstance(region, sympy.Union) else [region]:
        if isinstance(part, sympy.FiniteSet):
            inside += [float(point) for point in part]
        elif isinstance(part, sympy.Interval):
            assert part.start == -sympy.oo
            end = float(part.end)
            inside += [end - 1e-9, end - 1, -50.0, -1e30, -math.inf]
            outside += [end + 1e-3, end + 0.1]
        else:
            assert part is sympy.S.EmptySet
    return inside, outside


@every_subject
def test_zeros_are_exact_zeros(act: Activation):
    for values in moderate_settings(act):
        inside, outside = members(act.claims.zeros.subs(symbols(act, values)))
        if inside:
            assert (act(torch.tensor(inside, dtype=F64), **values) == 0).all(), values
        assert all(evaluate(act, at, **values) != 0 for at in outside), values


# -- the hard limit ---------------------------------------------------------------------------------------

HARDENED = {name: act for name, act in SUBJECTS.items() if act.limit is not None}


def distance(act: Activation, knob: float) -> float:
    """sup |f - limit|, on a grid that resolves the knee."""
    values = ordinary_values(act) | dict.fromkeys(act.knobs, knob)
    hard = {theirs: values[ours] for theirs, ours in act.limit_params.items()}
    x = grid(values)
    return (act(x, **values) - sk.get(act.limit)(x, **hard)).abs().max().item()


@pytest.mark.parametrize("act", HARDENED.values(), ids=HARDENED)
def test_the_knob_leads_to_the_limit(act: Activation):
    steps = [1.5, 15.0, 150.0, 1500.0] if act.toward == sympy.oo else [0.5, 0.05, 0.005, 0.0005]
    distances = [distance(act, knob) for knob in steps]
    assert all(after < 0.2 * before for before, after in zip(distances, distances[1:], strict=False)), distances


def test_smooth_relu_never_returns():
    act, x = sk.get("smooth_relu"), torch.tensor([1e3, 1e6, 1e9], dtype=F64)
    for beta in (1.0, 100.0):
        away = x - act(x, beta=beta)
        assert (away[1:] > away[:-1] + 1 / beta).all()


# -- the formula sheet's numbers --------------------------------------------------------------------------

DISTANCES = {  # name: (parameter, distance to ReLU times or over the parameter, where)
    "srelu": lambda knob: (3 * knob / 16, 0.0),
    "smelu": lambda knob: (knob / 4, 0.0),
    "softplus": lambda knob: (math.log(2) / knob, 0.0),
    "lambda_gelu": lambda knob: (0.16997120747990366 / knob, 0.751791524693564 / knob),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_distance_to_relu(name: str):
    act = sk.get(name)
    for knob in (1.0, 2.5, 40.0):
        sup, where = DISTANCES[name](knob)
        values = {act.knob: knob}
        at_place = evaluate(act, where, **values) - max(where, 0.0)
        assert float(abs(at_place)) == pytest.approx(sup, rel=1e-14)
        x = grid(values)
        assert (act(x, **values) - torch.relu(x)).abs().max().item() <= sup * (1 + 1e-12)


LIPSCHITZ = {
    "gelu": (1.4, "1.1289041451851547863"),
    "swish": (2.4, "1.0998393201288669170"),
    "mish": (1.5, "1.0884981612517278612"),
    "tanhexp": (1.0, "1.0619753087179159692"),
    "gelu_tanh": (1.4, "1.1289930686587717655"),
}


@pytest.mark.parametrize("name", LIPSCHITZ)
def test_lipschitz_constants_to_twenty_digits(name: str):
    act, (start, digits) = sk.get(name), LIPSCHITZ[name]
    with mpmath.workdps(40):
        top = mpmath.findroot(lambda at: evaluate(act.derivative(2), at, beta=1), start)
        steepest = evaluate(act.derivative(1), top, beta=1)
        assert abs(steepest - mpmath.mpf(digits)) < mpmath.mpf(10) ** -18
        assert abs(steepest - mpmath.mpf(str(sympy.N(elementary(act.claims.lipschitz), 30)))) < mpmath.mpf(10) ** -18


def test_crrelu_against_the_exact_inverse():
    """The paper's bound on the error of its first-order inverse, and the error itself."""
    x = torch.linspace(0, 8, 20001, dtype=F64)
    for eps in (0.01, 0.1):
        gap = (sk.get("crrelu")(x, eps=eps) - sk.get("crrelu_exact")(x, eps=eps)).abs().max().item()
        bound = math.exp(-1) * eps**2 + math.exp(-1.5) * eps**3 / 2
        assert gap <= bound
        if eps == 0.01:
            assert gap == pytest.approx(0.0000293, abs=5e-8)
            assert bound == pytest.approx(0.0000369, abs=5e-8)


def test_crrelu_exact_inverts_equation_six():
    y = torch.linspace(0, 8, 2001, dtype=F64)
    for eps in (-2.0, -0.5, 0.01, 0.9):
        x = y - eps * y * torch.exp(-y * y / 2)
        torch.testing.assert_close(sk.get("crrelu_exact")(x, eps=eps), y, rtol=1e-12, atol=1e-13)


TWINS = {
    "relu": torch.relu,
    "relu6": torch.nn.functional.relu6,
    "hardtanh": torch.nn.functional.hardtanh,
    "hardswish": torch.nn.functional.hardswish,
    "elu": torch.nn.functional.elu,
    "celu": torch.nn.functional.celu,
    "selu": torch.nn.functional.selu,
    "softplus": torch.nn.functional.softplus,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "mish": torch.nn.functional.mish,
    "softsign": torch.nn.functional.softsign,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": torch.nn.functional.leaky_relu,
}


@pytest.mark.parametrize("name", TWINS)
def test_defaults_are_those_of_torch(name: str):
    x = torch.linspace(-9, 9, 1001, dtype=F64)
    torch.testing.assert_close(sk.get(name)(x), TWINS[name](x), rtol=1e-8, atol=1e-8)
