"""The soft-quantisation activation: numbers, derivatives, extremes, windows and errors."""

from dataclasses import replace

import mpmath
import pytest
import torch
from torch import Tensor

from softknee.errors import ParameterError
from softknee.kernels.squaf import auto_window, choose_path, squaf, squaf_sampled
from softknee.kernels.squaf.plain import squaf_on_grid
from squaf_reference import DIGITS, draw, inputs, moments, parameters, worst_ratios

WINDOWS = [3, 5, 7, None]
WEIGHTS = ["gaussian", "laplacian"]
SHAPES = [(1,), (3, 1), (2, 3, 4), (4,), (2, 1, 4)]


# ---- numbers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_value_and_derivatives_match_fifty_digits(weights, window, dtype):
    sample = draw(120, k=4, window=window, laplacian=weights == "laplacian", dtype=dtype, seed=10)
    assert max(worst_ratios(sample)) <= 4


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("window", [3, 5, 7])
def test_second_derivative_keeps_its_digits_where_an_even_number_of_equal_weights_is_left(window, weights):
    sample = draw(100, k=4, window=window, laplacian=weights == "laplacian", dtype=torch.float64, seed=12)
    torch.manual_seed(12)
    # Near an end the window is cut; so soft that all weights are equal to a part in a thousand or less.
    step = sample.x.sign() * (4 - window // 2 + 1 - 0.5 + 0.4999 * torch.rand_like(sample.x))
    softness = 10 ** -(3 + 5 * torch.rand_like(sample.q))
    q = sample.q.clamp(1e-6, 1e-3)
    alpha = softness / (q if sample.laplacian else q * q)
    assert max(worst_ratios(replace(sample, x=step * q, q=q, alpha=alpha))) <= 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_grid_as_large_as_the_papers_meets_the_bound(dtype):
    assert max(worst_ratios(draw(150, k=16, window=5, laplacian=False, dtype=dtype, seed=11))) <= 4


@pytest.mark.parametrize("weights", WEIGHTS)
def test_general_grid_matches_fifty_digits(weights):
    grid = torch.tensor([-3.0, -1.7, -1.6, 0.0, 0.4, 2.5, 7.0], dtype=torch.float64)
    alpha = torch.tensor([1.3], dtype=torch.float64)
    z = torch.randn(7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.linspace(-9, 11, 41, dtype=torch.float64, requires_grad=True)
    value = squaf(x, grid=grid, alpha=alpha, z=z, window=None, weights=weights)
    (first,) = torch.autograd.grad(value.sum(), x)
    with mpmath.workdps(DIGITS):
        a, points, heights = (
            mpmath.mpf(alpha.item()),
            [*map(mpmath.mpf, grid.tolist())],
            [*map(mpmath.mpf, z.tolist())],
        )
        for row, at in enumerate(map(mpmath.mpf, x.tolist())):
            if weights == "laplacian":
                logs = [-a * abs(at - y) for y in points]
                slopes = [-a * mpmath.sign(at - y) for y in points]
            else:
                logs, slopes = [-a * (at - y) ** 2 for y in points], [2 * a * y for y in points]
            truth = moments(logs, slopes, heights)
            assert abs(value[row].item() - truth[0]) < 2e-15
            assert abs(first[row].item() - truth[1]) < 2e-14


@pytest.mark.parametrize("weights", WEIGHTS)
def test_uniform_points_given_as_a_grid_are_the_full_sum(weights):
    p = parameters()
    x = inputs(50)
    grid = p["q"] * torch.arange(-4, 5, dtype=torch.float64)
    full = squaf(x, **p, window=None, weights=weights)
    listed = squaf(x, grid=grid, alpha=p["alpha"], z=p["z"], window=None, weights=weights)
    torch.testing.assert_close(listed, full, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype):
    x = inputs(4000, dtype=dtype, spread=5.0).requires_grad_()
    p = parameters(dtype=torch.float32, k=16)
    value = squaf(x, **p)
    (slope,) = torch.autograd.grad(value.sum(), x)
    exact_x = x.detach().double().requires_grad_()
    exact = squaf(exact_x, **{name: t.double() for name, t in p.items()})
    (exact_slope,) = torch.autograd.grad(exact.sum(), exact_x)
    for result, truth in ((value, exact), (slope, exact_slope)):
        truth = truth.detach()
        rounded = truth.to(dtype)
        unit = torch.finfo(dtype).eps * 2.0 ** torch.floor(torch.log2(truth.abs().clamp(min=1e-4)))
        assert result.dtype == dtype
        assert ((result.double() - truth).abs() <= (rounded.double() - truth).abs() + unit).all()


# ---- derivatives -------------------------------------------------------------------------------------------


def test_third_derivative_is_reached_by_autograd_and_by_func():
    p = parameters()
    x = inputs(7).requires_grad_()
    slopes = squaf(x, **p, window=None)
    for _ in range(3):
        (slopes,) = torch.autograd.grad(slopes.sum(), x, create_graph=True)

    def third(at: Tensor) -> Tensor:
        return torch.func.grad(torch.func.grad(torch.func.grad(lambda t: squaf(t, **p, window=None))))(at)

    torch.testing.assert_close(slopes.detach(), torch.stack([third(at) for at in x.detach()]))
    assert slopes.abs().max() > 0.1


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_of_parameters_give_what_one_row_at_a_time_gives(shape):
    p = {name: t.requires_grad_() for name, t in parameters(shape).items()}
    x = inputs(2, 3, 4).requires_grad_()
    grad = inputs(2, 3, 4, seed=5)
    value = squaf(x, **p)
    gradients = torch.autograd.grad(value, [x, *p.values()], grad)
    spread = {name: t.detach().expand(2, 3, 4, *t.shape[len(shape) :]) for name, t in p.items()}
    sums = {name: torch.zeros_like(t) for name, t in p.items()}
    for place in [(a, b, c) for a in range(2) for b in range(3) for c in range(4)]:
        items = {name: t[place].reshape(1, *t.shape[3:]).clone().requires_grad_() for name, t in spread.items()}
        single = squaf(x.detach()[place].reshape(1), **items)
        assert single.item() == pytest.approx(value[place].item(), rel=1e-14)
        own = torch.autograd.grad(single, list(items.values()), grad[place].reshape(1))
        home = tuple(i if size > 1 else 0 for i, size in zip(place[3 - len(shape) :], shape, strict=True))
        for name, g in zip(p, own, strict=True):
            sums[name][home] += g.reshape(sums[name][home].shape)
    for name, g in zip(p, gradients[1:], strict=True):
        assert g.shape == p[name].shape
        torch.testing.assert_close(g, sums[name], rtol=1e-12, atol=1e-12)


def test_pieces_do_not_change_the_result(monkeypatch):
    p = {name: t.requires_grad_() for name, t in parameters((3, 1), dtype=torch.float32).items()}
    x = inputs(50, 3, 7, dtype=torch.float32).requires_grad_()
    whole = squaf(x, **p)
    gradients = torch.autograd.grad(whole.sum(), [x, *p.values()])
    monkeypatch.setattr("softknee.kernels.squaf.eager.PIECE", 500)
    cut = squaf(x, **p)
    # Not to the bit: a CPU's vector exponential and the scalar one for the last few elements round
    # differently.
    torch.testing.assert_close(cut, whole, rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(torch.autograd.grad(cut.sum(), [x, *p.values()]), gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_only_x_and_parameters_are_kept_for_backward():
    kept = []
    p = {name: t.requires_grad_() for name, t in parameters().items()}
    x = inputs(1000).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        squaf(x, **p)
    assert sorted(t.numel() for t in kept) == [1, 1, 9, 1000]


@pytest.mark.parametrize("function", [squaf, squaf_sampled])
@pytest.mark.parametrize("shape", [(1,), (3, 1)])
def test_a_general_grid_keeps_no_more_and_is_cut_into_pieces_too(function, shape, monkeypatch):
    monkeypatch.setattr("softknee.kernels.squaf.eager.PIECE", 500)
    kept = []
    x, alpha = inputs(50, 3, 7).requires_grad_(), torch.full(shape, 0.8, dtype=torch.float64, requires_grad=True)
    # One grid for all, also where each has values of its own.
    grid = torch.tensor([-2.0, -0.5, 0.3, 1.1, 2.6], dtype=torch.float64, requires_grad=True)
    z = torch.randn(*shape, 5, dtype=torch.float64, requires_grad=True)
    for at in (x, x.movedim(1, 0).contiguous().movedim(0, 1)):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            value = function(at, grid=grid, alpha=alpha, z=z, window=None)
        assert max(kept) == x.numel()
        whole, sources = squaf_on_grid(x, grid, alpha, z, False), [x, grid, alpha, z]
        if function is squaf:
            torch.testing.assert_close(value, whole)
            assert value.stride() == at.stride()
        ours, theirs = (torch.autograd.grad(entry.sum(), sources, retain_graph=True) for entry in (value, whole))
        for item, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(item, other)
        (alone,) = torch.autograd.grad(value.sum(), [alpha])
        torch.testing.assert_close(alone, theirs[2])


# ---- extremes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_limits_at_infinity_and_nan_only_from_nan(dtype, weights, window):
    p = {name: t.requires_grad_() for name, t in parameters(dtype=torch.float32).items()}
    huge = torch.finfo(dtype).max
    points = [
        float("inf"),
        -float("inf"),
        huge,
        -huge,
        torch.finfo(dtype).smallest_normal / 4,
        0.0,
        -0.0,
        1.0,
    ]
    x = torch.tensor(points, dtype=dtype, requires_grad=True)
    value = squaf(x, **p, window=window, weights=weights)
    # Beyond its ends the Laplacian keeps the weights e^(-alpha q |j|) of the last points; the Gaussian keeps
    # one point.
    far = torch.tensor([90.0, -90.0, 90.0, -90.0], dtype=torch.float64)
    limit = squaf(far, **{name: t.detach().double() for name, t in p.items()}, window=window, weights=weights)
    torch.testing.assert_close(value[:4].detach().double(), limit, rtol=2 * torch.finfo(dtype).eps, atol=1e-15)
    if weights == "gaussian":
        assert torch.equal(value[:4].detach(), p["z"][0, [-1, 0, -1, 0]].detach().to(dtype))
    assert value.isfinite().all()
    for gradient in torch.autograd.grad(value.sum(), [x, *p.values()]):
        assert gradient.isfinite().all()
    nan = squaf(torch.tensor([float("nan"), 1.0], dtype=dtype), **p, window=window, weights=weights)
    assert nan.isnan().tolist() == [True, False]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("h", [1e-18, 1e-6, 1.0, 1e6, 1e18])
def test_no_softness_overflows(h, dtype, window):
    q = torch.tensor([1e6 if h > 1e6 else 1e-6 if h < 1e-6 else 1.0], dtype=dtype)
    p = {"q": q, "alpha": h / q**2, "z": torch.randn(9, dtype=dtype)}
    steps = torch.linspace(-7, 7, 1401, dtype=torch.float64)
    x = (steps * q.double()).to(dtype).requires_grad_()
    p = {name: t.requires_grad_() for name, t in p.items()}
    value = squaf(x, **p, window=window)
    assert value.isfinite().all()
    assert (value <= p["z"].max() + 1e-6).all()
    assert (value >= p["z"].min() - 1e-6).all()
    for gradient in torch.autograd.grad(value.sum(), [x, *p.values()]):
        assert gradient.isfinite().all()


# ---- layouts and determinism -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("two_threads")
def test_parameter_gradients_are_the_same_bits_every_time():
    p = {name: t.requires_grad_() for name, t in parameters(dtype=torch.float32, k=16).items()}
    x = inputs(200_000, dtype=torch.float32)
    runs = [torch.autograd.grad(squaf(x, **p).square().sum(), list(p.values())) for _ in range(3)]
    for again in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], again, strict=True))


# ---- windows, paths, errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("softness", [0.05, 0.5, 1.5, 8.0])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
def test_auto_window_is_the_smallest_that_keeps_the_jump_small(softness, tolerance, weights):
    q, k = torch.tensor([0.3], dtype=torch.float64), 40
    alpha = softness / (q if weights == "laplacian" else q * q)
    window = auto_window(q, alpha=alpha, k=k, tolerance=tolerance, weights=weights)

    def jump(window: int) -> float:
        """The weight that enters when the window slides at x = q/2, over that of the nearest point."""
        z = torch.zeros(2 * k + 1, dtype=torch.float64)
        z[k + window // 2 + 1] = 1
        x = torch.nextafter(q / 2, q)
        value = squaf(x, q=q, alpha=alpha, z=z, window=window, weights=weights)
        nearest = torch.zeros_like(z)
        nearest[k + 1] = 1
        return float(value / squaf(x, q=q, alpha=alpha, z=nearest, window=window, weights=weights))

    if window is None:
        assert jump(2 * k - 1) > tolerance
    else:
        assert jump(window) <= tolerance * (1 + 1e-9)
        assert window == 3 or jump(window - 2) > tolerance


def test_auto_window_serves_the_softest_row():
    q = torch.tensor([1.0, 1.0])
    assert auto_window(q, alpha=torch.tensor([8.0, 1.5]), k=16, tolerance=2e-4) == 5
    assert auto_window(q, alpha=torch.tensor([8.0, 1e-3]), k=16, tolerance=2e-4) is None
    with pytest.raises(ParameterError, match="between 0 and 1"):
        auto_window(q, alpha=q, k=2, tolerance=0.0)


def test_the_path_is_explained():
    assert choose_path(torch.zeros(1, dtype=torch.float64)) == (
        "plain",
        "The fused kernels compute in float32; float64 takes plain tensor operations.",
    )
    assert "grid" in choose_path(torch.zeros(1), uniform=False)[1]
