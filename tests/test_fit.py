"""`sk.design.fit`: what it says of itself is true, the sizes are small, and the errors fall as the theorem says."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor

import softknee as sk
from softknee.design import fit, fit_table, start
from softknee.design.fitting import Task, _slopes, read_target, solve
from softknee.errors import InputError, ParameterError

F64 = torch.float64


def kinked(x: Tensor) -> Tensor:
    return (x - 0.3).abs()


def smooth(x: Tensor) -> Tensor:
    return torch.sin(3 * x)


def fine(low: float, high: float, count: int = 50_001) -> Tensor:
    return torch.linspace(low, high, count, dtype=F64)


@pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
@pytest.mark.parametrize("error", ["sup", "mean_square"])
def test_what_it_says_of_itself_is_what_the_kernels_compute(error: str, weights: str):
    result = fit("gelu", low=-2.0, high=3.0, k=6, error=error, weights=weights)
    x = fine(-2.0, 3.0)
    off = (result(x) - sk.get("gelu")(x)).abs()
    assert float(off.max()) == pytest.approx(result.sup, rel=2e-3)
    assert float(off[:-1].square().mean()) == pytest.approx(result.mean_square, rel=1e-3)
    assert result.bound is not None
    assert float(off.max()) <= result.bound <= 1.06 * result.sup
    module = result.module(learn="z", dtype=F64)
    torch.testing.assert_close(module(x[::1000]), result(x[::1000]), rtol=1e-12, atol=1e-12)
    assert module.learned == ("z",)
    assert result.starts.keys() == {"k", "q", "alpha", "z", "window", "weights"}


@pytest.mark.parametrize("tolerance", [0.05, 4e-3])
def test_the_smallest_size_within_a_tolerance(tolerance: float):
    result = fit("gelu", low=-4.0, high=4.0, tolerance=tolerance)
    x = fine(-4.0, 4.0, 20_001)
    assert float((result(x) - sk.get("gelu")(x)).abs().max()) <= tolerance * 1.01
    for smaller in range(1, result.k):
        assert fit("gelu", low=-4.0, high=4.0, k=smaller).sup > tolerance


@pytest.mark.slow
def test_a_mean_square_tolerance_asks_for_less():
    wanted = 1e-2
    actual = fit(kinked, low=-1.0, high=1.0, tolerance=wanted**2, error="mean_square")
    assert actual.mean_square <= wanted**2
    assert actual.k <= fit(kinked, low=-1.0, high=1.0, tolerance=wanted).k
    with pytest.raises(ParameterError, match=f"k={actual.k - 1}"):
        fit(kinked, low=-1.0, high=1.0, k=actual.k - 1, tolerance=wanted**2, error="mean_square")


@pytest.mark.slow
def test_the_order_of_convergence():
    """A kink inside a cell is missed by a share of the spacing, order 1; without a window a smooth function's error
    falls far faster, here by 1e3 from k=2 to k=8, and never rises."""
    sizes = (4, 8, 16)
    kink = [fit(kinked, low=-1.0, high=1.0, k=k).sup for k in sizes]
    order = np.polyfit(np.log(sizes), np.log(kink), 1)[0]
    assert -1.4 < order < -0.8
    sups = [fit(smooth, low=-1.0, high=1.0, k=k, window=None).sup for k in (2, 4, 8)]
    orders = np.diff(np.log2(sups))
    assert (orders < -3).all()


def test_the_theorem_with_a_fixed_overlap():
    """Spacing 1/k and alpha q^2 = 1.5: the error of a continuous function whose modulus of continuity is sqrt(t), with
    no derivative at 0, falls like the root of the spacing."""
    errors = [
        fit(lambda x: x.abs().sqrt(), low=-1.0, high=1.0, k=k, q=1 / k, alpha=1.5 * k * k).sup for k in (4, 16, 64)
    ]
    assert all(0.4 < after / before < 0.62 for before, after in itertools.pairwise(errors))


def test_nearer_than_the_sampled_and_the_least_squares_table():
    result = fit("relu", low=-4.0, high=4.0, k=8)
    plain = fit_table("relu", k=8, q=0.5, alpha=6.0, window=5, low=-4.0, high=4.0)
    assert result.sup < 0.6 * plain.error < 0.6 * plain.sampled
    least = fit("relu", low=-4.0, high=4.0, k=8, error="mean_square")
    assert least.mean_square < plain.rms**2
    assert least.sup >= result.sup
    assert least.mean_square <= result.mean_square


def test_what_is_given_stays():
    result = fit("tanh", low=-2.0, high=2.0, k=4, q=0.5)
    assert result.q == 0.5
    assert result.alpha != 6.0
    result = fit("tanh", low=-2.0, high=2.0, k=4, alpha=3.0)
    assert result.alpha == 3.0
    result = fit("tanh", low=-2.0, high=2.0, k=4, q=0.5, alpha=6.0, error="mean_square")
    assert (result.q, result.alpha) == (0.5, 6.0)
    plain = fit_table("tanh", k=4, q=0.5, alpha=6.0, window=5, low=-2.0, high=2.0)
    torch.testing.assert_close(result.z, plain.z, rtol=0, atol=1e-9)


def test_the_papers_fit_by_squaf_alone():
    """Table 3 of the SQUAF paper: mean square 2.0e-7 with k=95, and 1.0e-3 with k=13 where alpha is trained as well."""

    def waves(x: Tensor) -> Tensor:
        return sum((a * torch.sin(f * x) for a, f in ((0.4, 19), (0.2, 23), (0.3, 29), (0.1, 31))), torch.zeros_like(x))

    given = {"low": -1.0, "high": 1.0, "error": "mean_square"}
    assert fit(waves, k=95, q=1 / 95, alpha=1.5 * 95**2, **given).mean_square == pytest.approx(2.0e-7, rel=0.05)
    assert fit(waves, k=13, q=1 / 13, **given).mean_square < 1.0e-3


def test_a_squaf_comes_back():
    z = torch.tensor([0.3, -1.0, 0.5, 2.0, 1.0, -0.5, 0.2], dtype=F64)
    target = lambda x: sk.get("squaf")(x, k=3, q=0.5, alpha=5.2, z=z, window=None)  # noqa: E731
    result = fit(target, low=-1.75, high=1.75, k=3, window=None, error="mean_square")
    assert result.sup < 1e-3
    assert (result.q, result.alpha) == pytest.approx((0.5, 5.2), rel=1e-2)
    torch.testing.assert_close(result.z, z, rtol=0, atol=0.02)


@pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
def test_the_slopes_along_q_and_alpha(weights: str):
    task = Task(read_target("gelu", low=-2.0, high=2.0, lipschitz=None), weights, None, "mean_square")
    item, rows = solve(task, k=3, q=0.7, alpha=2.0)
    shares = task.shares(rows.x, k=3, q=0.7, alpha=2.0)
    result = _slopes(task, item, rows.x, shares)
    step = 1e-6
    for at, (dq, da) in enumerate([(step, 0.0), (0.0, step)]):
        up, down = (
            task.shares(rows.x, k=3, q=0.7 * math.exp(s * dq), alpha=2.0 * math.exp(s * da)) @ item.z for s in (1, -1)
        )
        torch.testing.assert_close(result[:, at], (up - down) / (2 * step), rtol=1e-6, atol=1e-8)


def test_samples():
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, 400)
    y = np.sin(3 * x) + 0.01 * generator.normal(size=400)
    result = fit((x.tolist(), y.tolist()), k=5, error="mean_square")
    assert (result.low, result.high, result.bound) == (x.min(), x.max(), None)
    off = result(torch.tensor(x)).numpy() - y
    assert result.mean_square == pytest.approx(np.mean(off**2), rel=1e-9)
    assert result.sup == pytest.approx(np.abs(off).max(), rel=1e-9)
    # Noise of variance 1e-4, of which 13 numbers take their share.
    assert 0.8e-4 < result.mean_square < 1.2e-4
    assert np.abs(result(fine(-0.95, 0.95, 99)).numpy() - np.sin(3 * fine(-0.95, 0.95, 99).numpy())).max() < 0.02
    half = fit((torch.tensor(x), torch.tensor(y)), low=0.0, high=1.0, k=5)
    assert half.sup < 0.05
    y[[3, 7]] = np.nan, np.inf
    with pytest.raises(InputError, match=r"must be finite, and 2 of 400 y are not, .* y\[3\], which is nan"):
        fit((x, y), k=5)


def test_a_function_of_a_number_is_the_function_of_a_tensor():
    item, other = (fit(wave, low=-1.0, high=2.0, k=4) for wave in (math.sin, torch.sin))
    torch.testing.assert_close(item.z, other.z, rtol=0, atol=1e-9)
    bent = fit(lambda x: x if x > 0.3 else 0.3, low=-1.0, high=1.0, k=2, q=0.5, alpha=6.0)
    assert bent.sup == pytest.approx(fit(lambda x: x.clamp(min=0.3), low=-1.0, high=1.0, k=2, q=0.5, alpha=6.0).sup)
    assert fit(lambda x: 2, low=-1.0, high=1.0, k=1).sup < 1e-9


def test_fewer_samples_than_numbers_are_met_exactly():
    result = fit(([-1.0, 0.2, 0.5], [1.0, -2.0, 3.0]), k=6)
    assert result.sup < 1e-9
    assert result.z.isfinite().all()
    assert result.z.abs().max() < 50


@pytest.mark.parametrize(("name", "q"), [("relu", 1.0), ("gelu", 0.25)])
def test_the_starts_of_the_paper(name: str, q: float):
    result = start(name)
    assert (result.k, result.q, result.alpha) == (16, q, 1.5 / q**2)
    plain = fit_table(name, k=16, q=q, alpha=1.5 / q**2, window=5)
    torch.testing.assert_close(result.z, plain.z, rtol=0, atol=1e-9)
    assert sum(p.numel() for p in result.module(learn=True).parameters()) == 35
    # The paper's word is that the slope goes on outside; four steps out it is gone.
    x = torch.tensor([-20 * q, 20 * q], dtype=F64)
    slopes = sk.get("squaf").derivative()(x, **result.starts)
    assert result.slopes_outside == pytest.approx(slopes.tolist(), rel=1e-8, abs=1e-15)
    assert max(map(abs, result.slopes_outside)) < 1e-5


def test_the_bound_needs_a_constant():
    assert fit(smooth, low=-1.0, high=1.0, k=4).bound is None
    result = fit(smooth, low=-1.0, high=1.0, k=4, lipschitz=3.0)
    assert result.bound is not None
    assert result.sup <= result.bound <= 1.06 * result.sup


def test_out_of_reach():
    step = lambda x: (x > 0.3).double()  # noqa: E731
    with pytest.raises(ParameterError, match=r"0\.01 is not reached.*Up to k=8 the largest error is 0\.\d+ \(k=\d, q="):
        fit(step, low=-1.0, high=1.0, tolerance=0.01, largest=8)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"k": 3}, "give both"),
        ({"low": -1.0, "high": 1.0}, "give k"),
        ({"low": 1.0, "high": -1.0, "k": 3}, "low must be below"),
        ({"low": 0.0, "high": math.inf, "k": 3}, "low must be below"),
        ({"low": -1.0, "high": 1.0, "k": 0}, "k must be"),
        ({"low": -1.0, "high": 1.0, "tolerance": -1.0}, "tolerance must be"),
        ({"low": -1.0, "high": 1.0, "k": 3, "error": "l1"}, "error must be"),
        ({"low": -1.0, "high": 1.0, "k": 3, "weights": "flat"}, "weights must be"),
        ({"low": -1.0, "high": 1.0, "k": 3, "window": 4}, "window must be"),
        ({"low": -1.0, "high": 1.0, "k": 3, "lipschitz": -1.0}, "lipschitz must be"),
    ],
    ids=range(10),
)
def test_refusals(given: dict, words: str):
    with pytest.raises(ParameterError, match=words):
        fit("relu", **given)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (([1.0], [1.0]), "two or more x and as many y, and 1 and 1"),
        (([1.0, 2.0], [1.0]), "2 and 1 were given"),
        ((["a"], [1.0]), "a pair"),
        (([0.0, math.nan], [0.0, 1.0]), "1 of 2 x are not"),
        (lambda x: 1 / (x - x), "fit: the target is not finite everywhere: at .* it is inf"),
        (lambda x: x.sum(), "fit: the target must give one value for each"),
        (math.sqrt, r"^fit: .* neither with a tensor \(\w+Error: .*\) nor with the number -0\.\d+ \(ValueError: "),
        (lambda x: "text", r"\(it gave str\) nor with the number"),
        (lambda x: sk.get("smelu")(x, beta=-1.0), "^smelu: beta must be"),
    ],
    ids=range(9),
)
def test_refused_targets(target: object, words: str):
    with pytest.raises((InputError, ParameterError), match=words):
        fit(target, low=-1.0, high=3.0, k=2)
    with pytest.raises(ParameterError, match="give q="):
        start("tanh")
