"""Signal propagation: correlation and variance by depth, edges of chaos, and one network drawn."""

import functools
import json
import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

import softknee as sk
from quadrature_helpers import by_quadrature
from softknee.design.concrete import Concrete, concrete
from softknee.design.gaussian import resolve
from softknee.measure.edge import NoEdge, find_edge, is_symmetrically_smoothed_relu
from softknee.measure.propagation import Interpolated
from softknee.spec import Activation, NormalCdf, NormalPdf, x

RELU_LAW = 9 * math.pi**2 / 2
SMOOTHED = [("srelu", "delta"), ("smelu", "beta"), ("softplus", "beta")]


# -- correlation by depth ---------------------------------------------------------------------------------


def test_relu_follows_its_law():
    result = sk.measure.propagation("relu", 2000)
    assert abs(result.one_minus_c[2000] * 2000**2 / RELU_LAW - 1) < 0.03
    assert result.coefficient == result.one_minus_c[2000] * 2000**2
    assert result.edge is not None
    assert abs(result.edge.limit_coefficient / RELU_LAW - 1) < 1e-14
    assert (result.edge.limit_exponent, result.edge.weight_variance, result.edge.bias_variance) == (-2, 2.0, 0.0)
    assert -2 < result.exponent < -1.95
    deeper = sk.measure.propagation("relu", 20_000)
    assert abs(deeper.coefficient / RELU_LAW - 1) < 0.004
    assert deeper.one_minus_c[:2001] == result.one_minus_c


def test_relu_against_fifty_digits():
    with mpmath.workdps(50):
        e = mpmath.mpf(1)
        for _ in range(2000):
            angle = mpmath.acos(1 - e)
            e -= (mpmath.sin(angle) - angle * mpmath.cos(angle)) / mpmath.pi
    assert abs(sk.measure.propagation("relu", 2000).one_minus_c[-1] / float(e) - 1) < 1e-12


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_table_of_the_map_is_as_good_as_the_closed_form():
    assert abs(by_quadrature_at_depth("relu", 2000) / sk.measure.propagation("relu", 2000).one_minus_c[-1] - 1) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gelu", "tanh", "origin_smelu"])
def test_smooth_functions_have_exponent_minus_one(name: str):
    result = sk.measure.propagation(name, 2000)
    assert result.edge is not None
    assert result.edge.bias_variance > 0
    assert result.edge.limit_exponent == -1
    assert abs(result.exponent + 1) < 0.03
    assert abs(result.coefficient / result.edge.limit_coefficient - 1) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hardtanh", "crrelu"])
def test_functions_whose_slope_jumps_have_exponent_minus_two(name: str):
    result = sk.measure.propagation(name, 2000)
    assert result.edge is not None
    assert result.edge.limit_exponent == -2
    assert abs(result.exponent + 2) < 0.06
    assert abs(result.coefficient / result.edge.limit_coefficient - 1) < 0.03


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
    result = sk.measure.propagation("leaky_relu", 50, slope=1.0, correlation=0.3)
    assert result.edge is not None
    assert (result.edge.limit_exponent, result.edge.limit_coefficient) == (0, None)
    assert abs(result.one_minus_c[-1] - 0.7) < 1e-14


def test_it_starts_where_it_is_told_to():
    near = sk.measure.propagation("tanh", 3, one_minus_c=1e-13)
    assert near.one_minus_c[0] == 1e-13
    assert abs(near.one_minus_c[3] / 1e-13 - 1) < 1e-12
    apart = sk.measure.propagation("tanh", 3, correlation=-0.5, weight_variance=2.0)
    together = sk.measure.propagation("tanh", 3, correlation=0.5, weight_variance=2.0)
    for item, other in zip(apart.one_minus_c, together.one_minus_c, strict=True):  # tanh is odd
        assert abs((1 - item) + (1 - other)) < 1e-13


# -- where there is no edge -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("width", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize(("name", "knob"), SMOOTHED)
def test_smoothed_relus_have_no_edge_and_it_says_why(name: str, knob: str, width: float):
    result = sk.measure.propagation(name, 100, **{knob: width})
    assert result.edge is None
    assert result.one_minus_c == ()
    assert result.exponent is None
    assert "E f^2 > q E f'^2" in result.why
    assert "symmetric kernel" in result.why
    assert f"{name}({knob}={width:g}) has no edge of chaos" in str(result)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["triangle", "biweight", "gaussian", "logistic"])
def test_no_mollified_relu_has_an_edge(kernel: str):
    result = sk.measure.propagation(sk.design.mollify("relu", kernel, width=0.5), 10)
    assert result.edge is None
    assert "symmetric kernel" in result.why


def test_a_users_own_formula_of_one_has_none_either():
    result = sk.measure.propagation(Activation("gauss_relu", x * NormalCdf(x) + NormalPdf(x)), 10)
    assert result.edge is None
    assert "symmetric kernel" in result.why


@pytest.mark.slow
def test_a_mollified_hardtanh_has_one():
    result = sk.measure.propagation(sk.design.mollify("hardtanh", width=0.5), 50)
    assert result.edge is not None
    assert result.edge.limit_exponent == -1


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
    result = sk.measure.propagation("sigmoid", 10)
    assert result.edge is not None
    assert 50 < result.edge.q < 60
    refused = sk.measure.propagation("sigmoid", 10, q=1.0)
    assert refused.edge is None
    assert "at this variance" in refused.why
    assert f"q = {result.edge.q:g}" in refused.why
    assert isinstance(find_edge(concrete("smelu"), q=2.0), NoEdge)


# -- other variances --------------------------------------------------------------------------------------


def test_variance_by_depth():
    result = sk.measure.propagation("tanh", 60, q=3.0, weight_variance=1.5, bias_variance=0.05)
    f = concrete("tanh")
    assert result.edge is None
    assert result.variance[0] == 3.0
    for before, after in zip(result.variance[:5], result.variance[1:6], strict=True):
        assert abs(1.5 * resolve(f, before).mean_square + 0.05 - after) < 1e-14
    q = result.variance[-1]
    assert abs(1.5 * resolve(f, q).mean_square + 0.05 - q) < 1e-13
    # In the ordered phase 1 - c falls by the slope at 1 in every layer.
    assert result.slope < 1
    assert abs(result.one_minus_c[-1] / result.one_minus_c[-2] / result.slope - 1) < 0.01


@pytest.mark.slow
def test_in_the_chaotic_phase_the_correlation_tends_to_a_constant():
    result = sk.measure.propagation("tanh", 100, weight_variance=3.0, bias_variance=0.1)
    assert result.slope > 1
    assert abs(result.one_minus_c[-1] / result.one_minus_c[-2] - 1) < 1e-5
    assert 0.4 < result.one_minus_c[-1] < 0.6


def test_a_variance_that_explodes_is_followed_to_the_end_of_float32():
    result = sk.measure.propagation("relu", 1000, weight_variance=4.0)
    assert "not followed further" in result.why
    assert len(result.variance) == 127
    assert result.variance[-1] == 2.0**126
    assert "not followed further" in str(result)


def test_wide_networks_do_the_same():
    """Variance and correlation of two inputs over 5 layers, averaged over 12 networks of width 700."""
    generator = torch.Generator().manual_seed(3)
    width, weights, biases, act = 700, 2.0, 0.1, sk.get("tanh")
    expected = sk.measure.propagation("tanh", 5, weight_variance=weights, bias_variance=biases, correlation=0.4)
    seen = torch.zeros(6, 2)
    for _ in range(12):
        item, other = torch.randn(2, width, generator=generator)
        both = torch.stack([item, 0.4 * item + math.sqrt(1 - 0.16) * other])
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
        ({"f": "relu", "depth": 0}, "from 1 to"),
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
    result = sk.measure.propagation("squaf", 4, params={"q": 0.25, "window": None})
    assert result.edge is not None
    assert result.params["q"] == 0.25
    assert result.one_minus_c[-1] < result.one_minus_c[0]
    assert json.loads(json.dumps(result.to_dict()))["params"]["window"] is None


def test_a_variant_is_another_function():
    exact, tanh = (sk.measure.propagation("gelu", 5, approximate=how).one_minus_c[-1] for how in ("none", "tanh"))
    assert exact != tanh
    assert abs(exact / tanh - 1) < 1e-3


def test_the_result_as_text_and_as_data():
    result = sk.measure.propagation("gelu", 12)
    text = str(result)
    assert "on the edge of chaos" in text
    assert "limit -1" in text
    assert "runs away" in text
    again = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert again["one_minus_c"] == list(result.one_minus_c)
    assert again["edge"]["q"] == 1.0
    assert len(result.one_minus_c) == len(result.variance) == 13
    assert "no edge" in sk.measure.propagation("smelu", 12).to_dict()["why"]
