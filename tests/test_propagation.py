"""Signal propagation: means under the normal distribution, edges of chaos, correlation by depth, gains.

Truth is mpmath with 20 digits and more, closed forms, identities of the normal distribution, and one network drawn.
"""

import dataclasses
import doctest
import functools
import importlib
import itertools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import softknee as sk
from helpers import SUBJECTS
from softknee.design.concrete import Concrete, concrete
from softknee.design.gaussian import legendre_rule, mean_square_difference, resolve, sine_minus
from softknee.measure.edge import NoEdge, find_edge, is_symmetrically_smoothed_relu
from softknee.measure.interpolated import Interpolated
from softknee.spec import Activation, NormalCdf, NormalPdf, x

RELU_LAW = 9 * math.pi**2 / 2
SMOOTHED = [("srelu", "delta"), ("smelu", "beta"), ("softplus", "beta")]


def by_quadrature(f: Concrete) -> Concrete:
    """The function without its closed form."""
    return dataclasses.replace(f, two_lines=None)


@pytest.mark.parametrize(
    "name", ["design.concrete", "design.gaussian", "design.init_gain", "measure.edge", "measure.propagation"]
)
def test_the_examples_run(name: str):
    result = doctest.testmod(importlib.import_module(f"softknee.{name}"), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


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
    """E X f(X) = q E f'(X): value and slope, each with its own quadrature, agree for every continuous function."""
    q = 1.7
    on = resolve(concrete(act), q)
    left, right = on.mean(lambda at: at * on.f.value(at)), q * on.mean(on.f.slope)
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
    found = on.mean(lambda at: on.f.slope(at) * (1 - on.f.slope(at))) * 1e6
    assert abs(found / float(gate) - 1) < 1e-9


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
            one, other = (mean_square_difference(resolve(f, 1.0), e) for f in (known, hidden))
            assert abs(one / other - 1) < 1e-11


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
    found = mean_square_difference(resolve(concrete(name, params), 1.0), e)
    assert abs(found / float(reference(function, e, seams)) - 1) < 1e-13


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


# -- correlation by depth ---------------------------------------------------------------------------------


def test_relu_follows_its_law():
    found = sk.measure.propagation("relu", 2000)
    assert abs(found.one_minus_c[2000] * 2000**2 / RELU_LAW - 1) < 0.03
    assert found.coefficient == found.one_minus_c[2000] * 2000**2
    assert found.edge is not None
    assert abs(found.edge.limit_coefficient / RELU_LAW - 1) < 1e-14
    assert (found.edge.limit_exponent, found.edge.weight_variance, found.edge.bias_variance) == (-2, 2.0, 0.0)
    assert -2 < found.exponent < -1.95
    deeper = sk.measure.propagation("relu", 20_000)
    assert abs(deeper.coefficient / RELU_LAW - 1) < 0.004
    assert deeper.one_minus_c[:2001] == found.one_minus_c


def test_relu_against_fifty_digits():
    with mpmath.workdps(50):
        e = mpmath.mpf(1)
        for _ in range(2000):
            angle = mpmath.acos(1 - e)
            e -= (mpmath.sin(angle) - angle * mpmath.cos(angle)) / mpmath.pi
    assert abs(sk.measure.propagation("relu", 2000).one_minus_c[-1] / float(e) - 1) < 1e-12


def test_a_gauss_hermite_rule_would_be_far_off():
    """What the quadrature is for: with 200 nodes that know nothing of the kink, depth 2000 is wrong by 48 times."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    share = np.outer(weights, weights) / weights.sum() ** 2
    c = 0.0
    for _ in range(2000):
        other = c * nodes[:, None] + math.sqrt(max(0.0, 1 - c * c)) * nodes[None, :]
        c = 2 * float((share * np.maximum(nodes[:, None], 0) * np.maximum(other, 0)).sum())
    assert 45 < (1 - c) * 2000**2 / RELU_LAW < 51
    assert abs(by_quadrature_at_depth("relu", 2000) * 2000**2 / RELU_LAW - 1) < 0.03


@functools.cache
def by_quadrature_at_depth(name: str, depth: int) -> float:
    from softknee.measure.propagation import _follow

    f = by_quadrature(concrete(name))
    return _follow(f, depth, 1.0, 1.0, 2.0, 0.0, find_edge(concrete(name))).one_minus_c[-1]  # type: ignore[arg-type]


def test_the_table_of_the_map_is_as_good_as_the_closed_form():
    assert abs(by_quadrature_at_depth("relu", 2000) / sk.measure.propagation("relu", 2000).one_minus_c[-1] - 1) < 1e-9


@pytest.mark.parametrize("name", ["gelu", "silu", "tanh", "origin_smelu"])
def test_smooth_functions_have_exponent_minus_one(name: str):
    found = sk.measure.propagation(name, 2000)
    assert found.edge is not None
    assert found.edge.bias_variance > 0
    assert found.edge.limit_exponent == -1
    assert abs(found.exponent + 1) < 0.03
    assert abs(found.coefficient / found.edge.limit_coefficient - 1) < 0.03


@pytest.mark.parametrize("name", ["hardtanh", "crrelu"])
def test_functions_whose_slope_jumps_have_exponent_minus_two(name: str):
    found = sk.measure.propagation(name, 2000)
    assert found.edge is not None
    assert found.edge.limit_exponent == -2
    assert abs(found.exponent + 2) < 0.06
    assert abs(found.coefficient / found.edge.limit_coefficient - 1) < 0.03


def test_an_edge_is_one():
    """The variances of the edge keep q and have slope 1, and its variance slope is that of the variance map."""
    for name in ("gelu", "tanh", "selu", "sigmoid"):
        f = concrete(name)
        edge = find_edge(f)
        assert isinstance(edge, sk.measure.Edge)

        def after(q: float, f: Concrete = f, edge: Any = edge) -> float:
            return edge.weight_variance * resolve(f, q).mean_square + edge.bias_variance

        assert abs(after(edge.q) / edge.q - 1) < 1e-14
        assert abs(edge.weight_variance * resolve(f, edge.q).mean_square_slope - 1) < 1e-14
        step = 1e-4 * edge.q
        assert abs((after(edge.q + step) - after(edge.q - step)) / (2 * step) - edge.variance_slope) < 1e-6


def test_a_line_keeps_its_correlation():
    found = sk.measure.propagation("leaky_relu", 50, slope=1.0, correlation=0.3)
    assert found.edge is not None
    assert (found.edge.limit_exponent, found.edge.limit_coefficient) == (0, None)
    assert abs(found.one_minus_c[-1] - 0.7) < 1e-14


def test_it_starts_where_it_is_told_to():
    near = sk.measure.propagation("tanh", 3, one_minus_c=1e-13)
    assert near.one_minus_c[0] == 1e-13
    assert abs(near.one_minus_c[3] / 1e-13 - 1) < 1e-12
    apart = sk.measure.propagation("tanh", 3, correlation=-0.5, weight_variance=2.0)
    together = sk.measure.propagation("tanh", 3, correlation=0.5, weight_variance=2.0)
    for one, other in zip(apart.one_minus_c, together.one_minus_c, strict=True):  # tanh is odd
        assert abs((1 - one) + (1 - other)) < 1e-13


# -- where there is no edge -------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize(("name", "knob"), SMOOTHED)
def test_smoothed_relus_have_no_edge_and_it_says_why(name: str, knob: str, width: float):
    found = sk.measure.propagation(name, 100, **{knob: width})
    assert found.edge is None
    assert found.one_minus_c == ()
    assert found.exponent is None
    assert "E f^2 > q E f'^2" in found.why
    assert "symmetric kernel" in found.why
    assert f"{name}({knob}={width:g}) has no edge of chaos" in str(found)


@pytest.mark.parametrize("kernel", ["triangle", "biweight", "gaussian", "logistic"])
def test_no_mollified_relu_has_an_edge(kernel: str):
    found = sk.measure.propagation(sk.design.mollify("relu", kernel, width=0.5), 10)
    assert found.edge is None
    assert "symmetric kernel" in found.why


def test_a_users_own_formula_of_one_has_none_either():
    found = sk.measure.propagation(Activation("gauss_relu", x * NormalCdf(x) + NormalPdf(x)), 10)
    assert found.edge is None
    assert "symmetric kernel" in found.why


def test_a_mollified_hardtanh_has_one():
    found = sk.measure.propagation(sk.design.mollify("hardtanh", width=0.5), 50)
    assert found.edge is not None
    assert found.edge.limit_exponent == -1


def test_the_gap_that_forbids_an_edge_is_the_one_of_the_proof():
    """E f^2 - E f'^2 = E[-min(S, T) L(max(S, T))], S and T uniform for SmeLU; the inner mean in 20 digits."""
    beta = 0.8
    on = resolve(concrete("smelu", {"beta": beta}), 1.0)
    with mpmath.workdps(20):

        def loss(t: Any) -> Any:
            return mpmath.npdf(t) - t * mpmath.ncdf(-t)

        # The density of max = t with min anywhere below, and the mean of min there, by hand.
        def at(t: Any) -> Any:
            return -loss(t) * 2 * (t**2 - beta**2) / 2 / (2 * beta) ** 2

        truth = mpmath.quad(at, [-beta, 0, beta])
    assert abs(on.mean_square - on.mean_square_slope - float(truth)) < 1e-14
    assert truth > 0


@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "relu", "asymmetric_smelu", "elu", "tanh"])
def test_what_is_no_smoothed_relu_is_not_called_one(name: str):
    params = {"alpha": 2.0} if name == "asymmetric_smelu" else {}
    assert not is_symmetrically_smoothed_relu(concrete(name, params))


def test_an_edge_elsewhere_is_found_and_named():
    found = sk.measure.propagation("sigmoid", 10)
    assert found.edge is not None
    assert 50 < found.edge.q < 60
    refused = sk.measure.propagation("sigmoid", 10, q=1.0)
    assert refused.edge is None
    assert "at this variance" in refused.why
    assert f"q = {found.edge.q:g}" in refused.why
    assert isinstance(find_edge(concrete("smelu"), q=2.0), NoEdge)


# -- other variances --------------------------------------------------------------------------------------


def test_variance_by_depth():
    found = sk.measure.propagation("tanh", 60, q=3.0, weight_variance=1.5, bias_variance=0.05)
    f = concrete("tanh")
    assert found.edge is None
    assert found.variance[0] == 3.0
    for before, after in zip(found.variance[:5], found.variance[1:6], strict=True):
        assert abs(1.5 * resolve(f, before).mean_square + 0.05 - after) < 1e-14
    q = found.variance[-1]
    assert abs(1.5 * resolve(f, q).mean_square + 0.05 - q) < 1e-13
    # In the ordered phase 1 - c falls by the slope at 1 in every layer.
    assert found.slope < 1
    assert abs(found.one_minus_c[-1] / found.one_minus_c[-2] / found.slope - 1) < 0.01


def test_in_the_chaotic_phase_the_correlation_tends_to_a_constant():
    found = sk.measure.propagation("tanh", 100, weight_variance=3.0, bias_variance=0.1)
    assert found.slope > 1
    assert abs(found.one_minus_c[-1] / found.one_minus_c[-2] - 1) < 1e-5
    assert 0.4 < found.one_minus_c[-1] < 0.6


def test_a_variance_that_explodes_is_followed_to_the_end_of_float32():
    found = sk.measure.propagation("relu", 1000, weight_variance=4.0)
    assert "not followed further" in found.why
    assert len(found.variance) == 127
    assert found.variance[-1] == 2.0**126
    assert "not followed further" in str(found)


def test_wide_networks_do_the_same():
    """Variance and correlation of two inputs over 5 layers, averaged over 12 networks of width 700."""
    generator = torch.Generator().manual_seed(3)
    width, weights, biases, act = 700, 2.0, 0.1, sk.get("tanh")
    expected = sk.measure.propagation("tanh", 5, weight_variance=weights, bias_variance=biases, correlation=0.4)
    seen = torch.zeros(6, 2)
    for _ in range(12):
        one, other = torch.randn(2, width, generator=generator)
        both = torch.stack([one, 0.4 * one + math.sqrt(1 - 0.16) * other])
        for layer in range(1, 6):
            matrix = torch.randn(width, width, generator=generator) * math.sqrt(weights / width)
            both = act(both) @ matrix.T + torch.randn(width, generator=generator) * math.sqrt(biases)
            variance = (both**2).mean()
            seen[layer] += torch.stack([variance, ((both[0] - both[1]) ** 2).mean() / 2 / variance]) / 12
    for layer in range(1, 6):
        variance, gap = seen[layer].tolist()
        assert abs(variance / expected.variance[layer] - 1) < 0.03
        assert abs(gap / expected.one_minus_c[layer] - 1) < 0.06


# -- tables, refusals, text -------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [math.sqrt, lambda t: 1 / (1 + t / 1e-4), lambda t: 1 - 0.3 * math.sqrt(t) / 2])
def test_interpolation_is_good_and_saves_work(function: Callable[[float], float]):
    calls = 0

    def counted(at: float) -> float:
        nonlocal calls
        calls += 1
        return function(at)

    table, at, count = Interpolated(counted), 1.0, 2000
    for _ in range(count):
        assert abs(table(at) / function(at) - 1) < 3e-12
        at *= 0.995
    assert calls < count / 4


def test_interpolation_asks_the_function_itself_while_it_moves_fast():
    calls = []
    table = Interpolated(lambda at: calls.append(at) or at)
    for k in range(10):
        table(0.5**k)
    assert len(calls) == 10


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"f": "relu", "depth": 0}, "at least 1"),
        ({"f": "relu", "depth": 2.5}, "whole number"),
        ({"f": "relu", "depth": 5, "correlation": 1.0}, "strictly between"),
        ({"f": "relu", "depth": 5, "one_minus_c": math.nan}, "strictly between"),
        ({"f": "relu", "depth": 5, "q": -1.0}, "variance"),
        ({"f": "relu", "depth": 5, "bias_variance": 0.1}, "without weight_variance"),
        ({"f": "relu", "depth": 5, "weight_variance": -2.0}, "above 0"),
        ({"f": "smelu", "depth": 5, "beta": -1.0}, "beta must be"),
        ({"f": "smelu", "depth": 5, "width": 1.0}, "no parameter 'width'"),
        ({"f": "smelu", "depth": 5, "beta": torch.ones(3)}, "one number"),
        ({"f": torch.nn.ReLU(), "depth": 5}, "definition"),
    ],
)
def test_refusals(given: dict[str, Any], words: str):
    with pytest.raises(sk.ParameterError, match=words):
        sk.measure.propagation(given.pop("f"), given.pop("depth"), **given)


def test_a_function_that_jumps_is_refused():
    with pytest.raises(sk.DefinitionError, match="jumps by"):
        sk.measure.propagation("squaf", 5)


def test_a_table_whose_parameter_is_called_q():
    found = sk.measure.propagation("squaf", 4, params={"q": 0.25, "window": None})
    assert found.edge is not None
    assert found.params["q"] == 0.25
    assert found.one_minus_c[-1] < found.one_minus_c[0]
    assert json.loads(json.dumps(found.to_dict()))["params"]["window"] is None


def test_a_variant_is_another_function():
    exact, tanh = (sk.measure.propagation("gelu", 5, approximate=how).one_minus_c[-1] for how in ("none", "tanh"))
    assert exact != tanh
    assert abs(exact / tanh - 1) < 1e-3


def test_the_result_as_text_and_as_data():
    found = sk.measure.propagation("gelu", 12)
    text = str(found)
    assert "on the edge of chaos" in text
    assert "limit -1" in text
    assert "runs away" in text
    again = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert again["one_minus_c"] == list(found.one_minus_c)
    assert again["edge"]["q"] == 1.0
    assert len(found.one_minus_c) == len(found.variance) == 13
    assert "no edge" in sk.measure.propagation("smelu", 12).to_dict()["why"]


# -- the gain of initial weights --------------------------------------------------------------------------


def test_gains_with_a_closed_form():
    gain = sk.design.init_gain
    assert gain("relu") == math.sqrt(2) == torch.nn.init.calculate_gain("relu")
    assert gain("relu", q=7.0) == math.sqrt(2)
    assert abs(gain("leaky_relu", slope=0.2) - torch.nn.init.calculate_gain("leaky_relu", 0.2)) < 1e-15
    assert abs(gain("selu") - 1) < 1e-14
    assert abs(gain("gelu") - 1 / math.sqrt(1 / 3 + 1 / (2 * math.pi * math.sqrt(3)))) < 1e-14
    assert abs(gain("srelu", delta=1e-9) - math.sqrt(2)) < 1e-9


@functools.cache
def many_draws() -> torch.Tensor:
    return torch.randn(400_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("q", [0.2, 1.0, 9.0])
@pytest.mark.parametrize("name", ["tanh", "silu", "smelu", "softplus", "squaf", "crrelu"])
def test_a_gain_keeps_the_variance(name: str, q: float):
    f = concrete(name)
    assert abs(sk.design.init_gain(name, q=q) ** 2 * resolve(f, q).mean_square / q - 1) < 1e-14
    draws = many_draws() * math.sqrt(q)
    assert abs(sk.design.init_gain(name, q=q) ** 2 * float((f.value(draws) ** 2).mean()) / q - 1) < 0.01


def test_what_is_said_of_torchs_gains():
    assert abs(sk.design.init_gain("tanh") - 1.5925) < 1e-4
    assert abs(sk.design.init_gain("tanh", q=1.17848049) - torch.nn.init.calculate_gain("tanh")) < 1e-8


def test_gains_that_do_not_exist():
    with pytest.raises(sk.ParameterError, match="above 0"):
        sk.design.init_gain("relu", q=0.0)
    with pytest.raises(sk.ParameterError, match="no gain brings"):
        sk.design.init_gain(Activation("zero", 0 * x))
    with pytest.raises(sk.UnknownActivationError):
        sk.design.init_gain("rleu")
