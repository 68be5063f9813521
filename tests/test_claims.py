"""Every claim of every definition, held against the function."""

import itertools
import math

import mpmath
import pytest
import sympy
import torch

import softknee as sk
from helpers import F64, SUBJECTS, SYMBOL, ZOO, grid, ordinary_values, settings, tolerance
from joined import FORMULAS
from softknee.spec import Activation, elementary
from softknee.spec.reference import evaluate

# An engine makes no claim where it knows none; the zoo claims everything.
CLAIMED = {name: act for name, act in FORMULAS.items() if act.claims is not None}
every_claimed = pytest.mark.parametrize("act", CLAIMED.values(), ids=CLAIMED)


def symbols(act: Activation, values: dict[str, float]) -> dict[sympy.Symbol, float]:
    return {p.symbol: values[p.name] for p in act.params}


def moderate_settings(act: Activation) -> list[dict[str, float]]:
    """Without the ends of the knobs' range, where a slope turns within 1e-6 and a grid would miss it."""
    results = [{name: value.item() for name, value in setting.items()} for setting in settings(act)]
    return [
        ordinary_values(act),
        *(result for result in results if all(1e-3 < abs(v) < 1e3 or v == 0 for v in result.values())),
    ]


def steepest(act: Activation, values: dict[str, float]) -> float:
    """sup |f'| on the grid, then on finer and finer grids around its place: a peak may be narrow."""
    x = grid(values).sort().values
    best = 0.0
    for _ in range(4):
        slope = act.derivative(1)(x, **values).abs()
        place = int(slope.argmax())
        best = max(best, slope[place].item())
        x = torch.linspace(x[max(place - 2, 0)].item(), x[min(place + 2, len(x) - 1)].item(), 2001, dtype=F64)
    return best


@pytest.mark.parametrize("act", ZOO.values(), ids=ZOO)
def test_claims_are_made(act: Activation):
    assert act.claims is not None
    assert act.about.endswith(".")
    assert act.latex().startswith(r"\operatorname{")


# -- smoothness -------------------------------------------------------------------------------------------


def seams(act: Activation, values: dict[str, float]) -> list[mpmath.mpf]:
    """Where two pieces meet, to 60 digits."""
    result = set()
    for seam in elementary(act.formula).atoms(sympy.core.relational.Relational):
        result |= set(sympy.solve(sympy.Eq(seam.lhs, seam.rhs), SYMBOL))
    exact = {symbol: sympy.Float(value, 80) for symbol, value in symbols(act, values).items()}
    return [mpmath.mpf(str(sympy.N(place.subs(exact), 60))) for place in result]


def jump(act: Activation, order: int, at: mpmath.mpf, values: dict[str, float]) -> float:
    gap = mpmath.mpf(10) ** -40
    derivative = act.derivative(order)
    return float(abs(evaluate(derivative, at + gap, **values) - evaluate(derivative, at - gap, **values)))


@every_claimed
def test_smoothness(act: Activation):
    values = ordinary_values(act)
    with mpmath.workdps(100):
        places = seams(act, values)
        if math.isinf(act.claims.smoothness):
            # Only the bump kernel joins pieces without an end to its derivatives.
            assert places == [] or act.name.endswith("_bump")
            assert all(jump(act, order, at, values) < 1e-20 for order in range(5) for at in places)
            return
        assert places
        for order in range(int(act.claims.smoothness) + 1):
            assert max(jump(act, order, at, values) for at in places) < 1e-20
        # And no smoother than claimed.
        assert max(jump(act, int(act.claims.smoothness) + 1, at, values) for at in places) > 1e-3


# -- slopes -----------------------------------------------------------------------------------------------


@every_claimed
def test_monotone_exactly_where_claimed(act: Activation):
    for values in moderate_settings(act):
        x = grid(values).unique()
        slope = act.derivative(1)(x, **values).min().item()
        claim = sympy.sympify(act.claims.monotone).subs(symbols(act, values))
        assert claim in (sympy.true, sympy.false), values
        # A function that jumps may fall where its slope does not see it.
        falls = act.claims.smoothness < 0 and act(x, **values).diff().min().item() < 0
        assert (slope >= 0 and not falls) == bool(claim), (values, slope, falls)


@pytest.mark.slow
@every_claimed
def test_lipschitz_constant_holds_and_is_attained(act: Activation):
    for values in moderate_settings(act):
        result = steepest(act, values)
        claim = float(elementary(act.claims.lipschitz).subs(symbols(act, values)))
        if math.isinf(claim):
            assert has_no_lipschitz_constant(act, values), values
            continue
        assert result <= claim * (1 + 1e-12), values
        assert result >= claim * (1 - tolerance(F64, "attained")), values


def has_no_lipschitz_constant(act: Activation, values: dict[str, float]) -> bool:
    """Whether it jumps at a seam, or its slope grows tenfold with each tenfold x on one side."""
    with mpmath.workdps(100):
        if any(jump(act, 0, at, values) > 1e-3 for at in seams(act, values)):
            return True
    far = torch.tensor([1e3, 1e4, 1e5], dtype=F64)
    slopes = [act.derivative(1)(side * far, **values).abs() for side in (1, -1)]
    return any(bool((slope[1:] > 9 * slope[:-1]).all()) for slope in slopes)


@every_claimed
def test_secants_respect_the_lipschitz_constant(act: Activation):
    """The constant bounds differences of values, not only the derivative that was derived."""
    values = ordinary_values(act)
    x = torch.linspace(-9, 9, 4001, dtype=F64)
    y = act(x, **values)
    claim = float(elementary(act.claims.lipschitz).subs(symbols(act, values)))
    assert ((y[1:] - y[:-1]).abs() / (x[1:] - x[:-1])).max() <= claim * (1 + 1e-9)


# -- zeros ------------------------------------------------------------------------------------------------


def members(region: sympy.Set) -> tuple[list[float], list[float]]:
    """Points inside the region of zeros, and points just outside a stretch of it."""
    inside, outside = [], []
    for part in region.args if isinstance(region, sympy.Union) else [region]:
        if isinstance(part, sympy.FiniteSet):
            inside += [float(point) for point in part]
        elif isinstance(part, sympy.Interval):
            start, end = float(part.start), float(part.end)
            outside += [end + 1e-3, end + 0.1]
            if math.isfinite(start):
                inside += [start, start + 1e-9, (start + end) / 2, end - 1e-9, end]
                outside += [start - 1e-3, start - 0.1]
            else:
                inside += [end - 1e-9, end - 1, -50.0, -1e30, -math.inf]
        else:
            assert part is sympy.S.EmptySet
    return inside, outside


@every_claimed
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
    x = x[x.abs() <= 60]  # a leak is a line: its distance to the limit is infinite, and small where inputs are
    return (act(x, **values) - sk.get(act.limit)(x, **hard)).abs().max().item()


@pytest.mark.parametrize("act", HARDENED.values(), ids=HARDENED)
def test_the_knob_leads_to_the_limit(act: Activation):
    steps = [1.5, 15.0, 150.0, 1500.0] if act.toward == sympy.oo else [0.5, 0.05, 0.005, 0.0005]
    distances = [distance(act, knob) for knob in steps]
    assert all(after < 0.2 * before for before, after in itertools.pairwise(distances)), distances


def test_smooth_relu_never_returns():
    act, x = sk.get("smooth_relu"), torch.tensor([1e3, 1e6, 1e9], dtype=F64)
    for beta in (1.0, 100.0):
        away = x - act(x, beta=beta)
        assert (away[1:] > away[:-1] + 1 / beta).all()
