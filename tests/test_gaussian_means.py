"""Means under the normal distribution, over one number and over two: against mpmath, closed forms and identities."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import pytest
import torch

import softknee as sk
from helpers import SUBJECTS
from quadrature_helpers import by_quadrature
from softknee.design.concrete import concrete
from softknee.design.gaussian import legendre_rule, mean_square_difference, resolve, sine_minus
from softknee.spec import Activation

# -- means over one number --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [4, 8, 16])
def test_the_rule_is_exact_to_twice_its_degree(count: int):
    nodes, weights = legendre_rule(count)
    for power in range(2 * count):
        exact = 2 / (power + 1) if power % 2 == 0 else 0.0
        assert abs(float((weights * nodes**power).sum()) - exact) < 1e-15
    assert abs(float((weights * nodes ** (2 * count)).sum()) - 2 / (2 * count + 1)) > 1e-12


@pytest.mark.parametrize("act", SUBJECTS.values(), ids=SUBJECTS)
def test_integration_by_parts_holds_for_the_whole_zoo(act: Activation):
    """E X f(X) = q E f'(X), where a jump counts with the density at its place: value and slope agree, each with its own
    quadrature."""
    q = 1.7
    on = resolve(concrete(act), q)
    left, right = on.mean(lambda at: at * on.f.value(at)), q * on.mean(on.f.slope)
    assert bool(on.f.value_jumps()) == (act.claims is not None and act.claims.smoothness < 0)
    density = {at: math.exp(-(at**2) / (2 * q)) / math.sqrt(2 * math.pi * q) for at in on.f.value_jumps()}
    right += q * sum(jump * density[at] for at, jump in on.f.value_jumps().items())
    assert abs(left - right) <= 1e-13 * math.sqrt(q * on.mean_square)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("lambda_gelu", {"lam": 1e6}),
        ("softplus", {"beta": 1e5}),
        ("srelu", {"delta": 1e-7}),
        ("swish", {"beta": 3e4}),
        ("generalized_smelu", {"alpha": 1e-3, "beta": 1e-5, "g_minus": -0.5, "t": 0.3}),
        ("shifted_smelu", {"beta": 1e-6, "shift": 0.7}),
    ],
)
def test_narrow_knees_are_found(name: str, params: dict[str, float]):
    """E f'^2 - (that of the hard limit) is of the size of the knee and has a sign; a rule that misses it gives 0."""
    on = resolve(concrete(name, params), 1.0)
    left, right = on.mean(lambda at: at * on.f.value(at)), on.mean(on.f.slope)
    assert abs(left - right) <= 1e-13
    knee = on.mean(lambda at: on.f.slope(at) * (1 - on.f.slope(at)))
    assert abs(knee) > 1e-9


def test_the_width_of_a_knee_comes_out():
    """For x Phi(lam x), E (f' (1 - f')) tends to C/lam with C = phi(0) times an integral over the gate."""
    with mpmath.workdps(20):

        def slope(u: Any) -> Any:
            return mpmath.ncdf(u) + u * mpmath.npdf(u)

        gate = mpmath.quad(lambda u: slope(u) * (1 - slope(u)), [-12, -4, 0, 4, 12]) / mpmath.sqrt(2 * mpmath.pi)
    on = resolve(concrete("lambda_gelu", {"lam": 1e6}), 1.0)
    result = on.mean(lambda at: on.f.slope(at) * (1 - on.f.slope(at))) * 1e6
    assert abs(result / float(gate) - 1) < 1e-9


@pytest.mark.parametrize(
    ("name", "function", "q"),
    [
        ("gelu", lambda t: t * mpmath.ncdf(t), 1.0),
        ("tanh", mpmath.tanh, 2.5),
        ("softplus", lambda t: mpmath.log(1 + mpmath.exp(t)), 0.1),
        ("mish", lambda t: t * mpmath.tanh(mpmath.log(1 + mpmath.exp(t))), 1.0),
        ("smelu", lambda t: 0 if t < -1 else t if t > 1 else (t + 1) ** 2 / 4, 1.0),
    ],
)
def test_mean_square_to_fourteen_digits(name: str, function: Callable[[Any], Any], q: float):
    with mpmath.workdps(25):
        ends = sorted({-1 / math.sqrt(q), 1 / math.sqrt(q), *range(-12, 13, 2)})
        truth = mpmath.quad(lambda z: function(mpmath.sqrt(q) * z) ** 2 * mpmath.npdf(z), ends)
    assert abs(resolve(concrete(name), q).mean_square / float(truth) - 1) < 1e-14


def test_a_function_without_declared_seams_is_cut_by_halving():
    """The same integrals to 11 digits when nobody says where ReLU and hardtanh bend."""
    for name in ("relu", "hardtanh"):
        known = by_quadrature(concrete(name))
        hidden = dataclasses.replace(known, seams=(), landmarks=())
        for e in (0.3, 1e-4):
            item, other = (mean_square_difference(resolve(f, 1.0), e) for f in (known, hidden))
            assert abs(item / other - 1) < 1e-11


def test_a_function_that_is_nowhere_smooth_is_refused():
    rough = dataclasses.replace(concrete("tanh"), name="rough", value=lambda at: torch.sin(1e9 * at))
    with pytest.raises(sk.DefinitionError, match="too rough"):
        resolve(rough, 1.0)


def test_a_solved_function_is_read_from_its_panels():
    """crrelu_exact solves an equation for each value; its panels' polynomials give the same to 13 digits."""
    act = concrete("crrelu_exact", {"eps": 0.3})
    table = resolve(act, 1.0).f
    assert act.costly
    assert not table.costly
    at = torch.linspace(-9, 9, 1001, dtype=torch.float64)
    assert float((table.value(at) - act.value(at)).abs().max()) < 1e-13
    assert float((table.slope(at) - act.slope(at))[at != 0].abs().max()) < 1e-12


# -- means over two correlated numbers --------------------------------------------------------------------


def reference(function: Callable[[Any], Any], e: float, seams: Sequence[float] = ()) -> Any:
    """E (f(U) - f(V))^2 at q = 1 by Gauss-Legendre panels in 30 digits, where the difference may cancel."""
    with mpmath.workdps(30):
        rule = mpmath.calculus.quadrature.GaussLegendre(mpmath.mp).calc_nodes(4, 110)  # 24 nodes
        gap = mpmath.mpf(e)
        wide, narrow = mpmath.sqrt(1 - gap / 2), mpmath.sqrt(gap / 2)

        def integral(g: Callable[[Any], Any], ends: Sequence[Any]) -> Any:
            total = mpmath.mpf(0)
            for a, b in itertools.pairwise(ends):
                total += (b - a) / 2 * sum(w * g((a + b) / 2 + (b - a) / 2 * t) for t, w in rule)
            return total

        def over_middle(share: Any) -> Any:
            d = narrow * share
            cuts = {wide * k for k in (-9, -4.5, 0, 4.5, 9)} | {k + s * d for k in seams for s in (1, -1)}
            inner = sorted(c for c in cuts if abs(c) <= 9 * wide)
            return integral(lambda m: (function(m + d) - function(m - d)) ** 2 * mpmath.npdf(m / wide) / wide, inner)

        outer = {mpmath.mpf(k) for k in (0, 4.5, 9)}  # 24 nodes on a panel this wide leave 1e-16
        outer |= {mpmath.mpf(b - a) / 2 / narrow for a in seams for b in seams if 0 < (b - a) / 2 / narrow < 9}
        return 2 * integral(lambda share: mpmath.npdf(share) * over_middle(share), sorted(outer))


def smelu_quarter(t: Any) -> Any:
    return 0 if t < -0.25 else t if t > 0.25 else (t + 0.25) ** 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "params", "function", "seams", "e"),
    [
        ("tanh", {}, mpmath.tanh, (), 0.4),
        ("tanh", {}, mpmath.tanh, (), 1e-6),
        ("smelu", {"beta": 0.25}, smelu_quarter, (-0.25, 0.25), 0.4),
        ("elu", {"beta": 0.5}, lambda t: t if t > 0 else mpmath.expm1(t) / 2, (0.0,), 1.6),
    ],
)
def test_squared_difference_against_thirty_digits(name: str, params: Any, function: Any, seams: Any, e: float):
    result = mean_square_difference(resolve(concrete(name, params), 1.0), e)
    assert abs(result / float(reference(function, e, seams)) - 1) < 1e-13


@pytest.mark.parametrize("name", ["relu", "leaky_relu"])
@pytest.mark.parametrize("e", [1.9, 1.0, 0.3, 1e-3, 1e-7, 1e-13])
def test_closed_form_and_quadrature_agree(name: str, e: float):
    f = concrete(name, {"slope": -0.4} if name == "leaky_relu" else {})
    closed, summed = (mean_square_difference(resolve(g, 2.0), e) for g in (f, by_quadrature(f)))
    assert abs(summed / closed - 1) < 1e-14


@pytest.mark.parametrize("e", [1.9, 1.0, 0.1, 1e-5, 1e-11])
def test_the_closed_form_is_the_arc_cosine_kernel(e: float):
    with mpmath.workdps(50):
        c = 1 - mpmath.mpf(e)
        truth = 1 - (mpmath.sqrt(1 - c**2) + c * (mpmath.pi - mpmath.acos(c))) / mpmath.pi
    assert abs(mean_square_difference(resolve(concrete("relu"), 1.0), e) / float(truth) - 1) < 4e-16


@pytest.mark.parametrize("angle", [1e-9, 1e-3, 0.49999, 0.50001, 3.0])
def test_sine_minus(angle: float):
    with mpmath.workdps(60):
        truth = mpmath.sin(angle) - angle * mpmath.cos(angle)
    assert abs(sine_minus(angle) / float(truth) - 1) < 1e-14


@pytest.mark.parametrize("name", ["gelu", "swish", "tanh", "smelu", "lambda_gelu"])
def test_near_one_the_map_is_its_slope(name: str):
    """E (f(U) - f(V))^2 -> 2 q e E f'^2, and the next term is that of the law at depth: nothing is lost to rounding."""
    on = resolve(concrete(name), 0.8)
    bends = on.mean(lambda at: on.f.bend(at) ** 2)
    for e in (1e-6, 1e-12):
        ratio = mean_square_difference(on, e) / (2 * 0.8 * e * on.mean_square_slope)
        assert abs(ratio - (1 - 0.8 * bends / on.mean_square_slope * e / 2)) < 1e-14 + 10 * e**1.5
