"""Repeated EAFO: the descent on samples, where it ends and what it costs, and what is refused."""

import itertools
import math
import time

import pytest
import torch

import softknee as sk
from entropic_samples import draw
from helpers import F64
from softknee import InputError, ParameterError
from softknee.design.entropic.descent import _knots, _Sample


@pytest.mark.parametrize("start", ["softplus", "tanh", "elu", "gelu"])
def test_the_entropy_falls_at_every_step_at_fixed_mean_and_variance(start: str):
    x = draw(8000)
    output = sk.get(start)(x)
    result = sk.design.eafo_descent(start, x, steps=25)
    assert 5 <= result.steps <= 25
    assert all(later < earlier for earlier, later in itertools.pairwise(result.entropies))
    assert result.fall > 0.5
    for means, variances in zip(result.means, result.variances, strict=True):
        assert means == pytest.approx(float(output.mean()), abs=1e-12)
        assert variances == pytest.approx(float(output.var(unbiased=False)), rel=1e-12)
    y = result(x)
    assert float(y.mean()) == pytest.approx(float(output.mean()), abs=1e-12)
    assert float(y.var(unbiased=False)) == pytest.approx(float(output.var(unbiased=False)), rel=1e-12)
    # Invertible: the slopes keep above the floor, and the samples come back.
    assert float(result.spline.slopes.min()) >= 0.01 * float(result.spline.slopes.max()) * (1 - 1e-8)
    torch.testing.assert_close(result.spline.inverse(y), x, rtol=1e-9, atol=1e-9)
    assert ("lowest slope" in result.started) or start in ("softplus", "elu")


def test_an_estimate_that_knows_no_slope_sees_the_same_fall():
    x = draw(60_000)
    start = sk.design.eafo_descent("softplus", x, steps=0)
    result = sk.design.eafo_descent("softplus", x, steps=12)
    seen = sk.design.spacing_entropy(start(x)) - sk.design.spacing_entropy(result(x))
    assert result.fall > 1
    assert seen == pytest.approx(result.fall, abs=0.05)


def test_the_start_is_the_function_itself():
    """With a function whose slope is linear between the knots the spline is it, and without steps nothing changes."""
    x = draw(4000)
    line = sk.design.eafo_descent(lambda at: 3 * at - 1, x, steps=0)
    torch.testing.assert_close(line(x), 3 * x - 1, rtol=1e-9, atol=1e-9)
    assert line.entropies == (pytest.approx(math.log(3), abs=1e-12),)
    softplus = sk.design.eafo_descent("softplus", x, steps=0, knots=200)
    assert float((softplus(x) - sk.get("softplus")(x)).abs().max()) < 0.02
    assert softplus.entropies[0] == pytest.approx(float(torch.log(torch.sigmoid(x)).mean()), abs=2e-3)


def test_it_goes_on_where_it_stopped():
    x = draw(4000)
    first = sk.design.eafo_descent("softplus", x, steps=5)
    second = sk.design.eafo_descent(first, x, steps=5)
    assert second.entropies[0] == pytest.approx(first.entropies[-1], abs=0.02)
    assert second.entropies[-1] < first.entropies[-1]


def test_the_gradient_is_that_of_the_objective():
    """Against differences of E log f' - log std f, both measured from the finished spline."""
    x = torch.sort(draw(3000)).values
    sample = _Sample(x, _knots(x, 10), centre=0.3, spread=1.1, floor=0.01)
    slopes = torch.exp(torch.linspace(-1, 1, 10, dtype=F64).sin())

    def objective(logs: torch.Tensor) -> float:
        spline = sample.spline(torch.exp(logs))
        return float(torch.log(spline.slope(x)).mean() - torch.log(spline(x).std(unbiased=False)))

    now, gradient = sample.gradient(slopes)
    logs, step = torch.log(slopes), 1e-5
    assert now == pytest.approx(objective(logs), abs=1e-12)
    for i in range(10):
        move = torch.zeros(10, dtype=F64).index_fill(0, torch.tensor([i]), step)
        difference = (objective(logs + move) - objective(logs - move)) / (2 * step)
        assert float(gradient[i]) == pytest.approx(difference, abs=1e-8)


def test_its_first_step_is_an_eafo_step():
    """Along the correction of equation 5 the objective's first term falls as `eafo` measures it on the same samples."""
    x = draw(4000)
    result = sk.design.eafo("softplus", x)
    c = result.activation.partial("eps").derivative(1)(torch.sort(x).values)
    weak = float((c / torch.sigmoid(torch.sort(x).values)).mean())  # E[c'/f']
    assert weak < 0
    assert result.change(1e-6) / 1e-6 == pytest.approx(weak, rel=1e-4)


def test_it_stops_honestly():
    x = draw(2000)
    result = sk.design.eafo_descent("softplus", x, steps=3000, knots=8, floor=0.5)
    assert result.steps < 3000
    assert "no step lowered the entropy" in result.stopped
    assert "lowest allowed" in result.stopped
    assert all(later < earlier for earlier, later in itertools.pairwise(result.entropies))
    assert "5 steps were taken" in sk.design.eafo_descent("softplus", x, steps=5).stopped
    assert "nats down" in str(result)
    # The end is a broken line: each slope is the lowest or the highest allowed.
    share = result.spline.slopes / result.spline.slopes.max()
    assert bool(((share - 1).abs() < 1e-6).logical_or((share - 0.5).abs() < 1e-6).all())


def test_a_leaky_relu_is_a_minimum_and_softplus_ends_as_one():
    """At the end every slope is at a limit that the gradient pushes it through (Karush, Kuhn and Tucker)."""
    x = draw(8000)
    for start in ("relu", "leaky_relu", "softplus"):
        result = sk.design.eafo_descent(start, x, steps=100)
        assert "no step lowered the entropy" in result.stopped
        share = result.spline.slopes / result.spline.slopes.max()
        low, high = share < 0.0101, share > 0.9999
        assert bool((low | high).all())
        # One kink: flat to the left of it and steep to the right.
        assert low.tolist() == sorted(low.tolist(), reverse=True)
        held = {"centre": result.means[-1], "spread": math.sqrt(result.variances[-1])}
        sample = _Sample(torch.sort(x).values, result.spline.knots, **held, floor=0.01)
        _, gradient = sample.gradient(result.spline.slopes)
        assert float(gradient[low].min()) > 1e-3
        assert float(gradient[high].max()) < -1e-3


@pytest.mark.slow
def test_the_cost_grows_like_n_log_n():
    """Processor time, best of two in turns: from 1e5 to 1e6 samples n log n grows 12-fold, n squared 100-fold.

    The limit lies between: on a busy machine the large one may lack the cache that the small one had.
    """

    def cost(x: torch.Tensor) -> float:
        start = time.process_time()
        sk.design.eafo_descent("softplus", x, steps=3)
        return time.process_time() - start

    cost(draw(10_000))  # what is built once is built here
    few, many = draw(100_000), draw(1_000_000)
    pairs = [(cost(few), cost(many)) for _ in range(2)]
    least_of_few, least_of_many = map(min, zip(*pairs, strict=True))
    assert least_of_many < 40 * least_of_few


def test_samples_that_coincide():
    coarse = torch.round(draw(5000) * 4) / 4  # 30 different numbers
    result = sk.design.eafo_descent("softplus", coarse, steps=5)
    assert len(result.spline.knots) < 40
    assert result.fall > 0
    shifted = sk.design.eafo_descent("softplus", draw(5000) * 1e-3 + 20, steps=3)
    assert shifted.fall > 0


REFUSED = {
    "few": (lambda: sk.design.eafo_descent("relu", torch.randn(5)), InputError, ["at least 32"]),
    "nan": (lambda: sk.design.eafo_descent("relu", torch.full((99,), math.nan)), InputError, ["NaN"]),
    "dead": (lambda: sk.design.eafo_descent("relu", torch.zeros(99)), InputError, ["same number"]),
    "constant": (lambda: sk.design.eafo_descent("relu", -draw(99).abs() - 1), InputError, ["constant"]),
    "shape": (lambda: sk.design.eafo_descent(torch.sum, draw(99)), InputError, ["one finite number for each"]),
    "falling": (lambda: sk.design.eafo_descent(torch.neg, draw(99)), InputError, ["falls on all", "mirror"]),
    "no function": (lambda: sk.design.eafo_descent(3, draw(99)), InputError, ["int"]),
    "loose parameter": (lambda: sk.design.eafo_descent(torch.tanh, draw(99), beta=1), ParameterError, ["beta", "bind"]),
    "steps": (lambda: sk.design.eafo_descent("relu", draw(99), -1), ParameterError, ["steps", "-1"]),
    "knots": (lambda: sk.design.eafo_descent("relu", draw(99), knots=2), ParameterError, ["knots", "4 to 512"]),
    "floor": (lambda: sk.design.eafo_descent("relu", draw(99), floor=0.0), ParameterError, ["floor"]),
    "a word as floor": (lambda: sk.design.eafo_descent("relu", draw(99), floor="0.1"), ParameterError, ["floor"]),  # type: ignore
    "rate": (lambda: sk.design.eafo_descent("relu", draw(99), rate=0), ParameterError, ["rate"]),
    "falling spline": (
        lambda: sk.design.Spline(torch.arange(3.0), torch.arange(3.0), -torch.ones(3)),
        ParameterError,
        ["slopes above 0"],
    ),
    "one knot": (lambda: sk.design.Spline(*torch.ones(3, 1)), ParameterError, ["two or more"]),
    "every": (lambda: sk.nn.EntropicSpline(every=0), ParameterError, ["every", "at least 1"]),
    "memory": (lambda: sk.nn.EntropicSpline(memory=10), ParameterError, ["memory", "256"]),
    "integers": (lambda: sk.nn.EntropicSpline()(torch.arange(3)), InputError, ["floating-point", "int64"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_sentences(case: str):
    do, kind, words = REFUSED[case]
    with pytest.raises(kind) as caught:
        do()
    for word in words:
        assert word in str(caught.value), str(caught.value)
