"""SQUAF's kernels, held to the references of the plain form.

They are those of a CPU, in C; with TRITON_INTERPRET=1 in the environment, which Triton reads when it is imported, those
in Triton.
"""

from types import ModuleType

import pytest
import torch
from torch import Tensor

from softknee.kernels import compiled
from softknee.kernels.dispatch import interpreting
from softknee.kernels.squaf import choose_path, squaf
from squaf_reference import draw, worst_ratios

if not interpreting():
    try:
        compiled.compile_command()
    except compiled.CompileError as error:
        pytest.skip(f"There are no compiled kernels here: {error}.", allow_module_level=True)


@pytest.fixture(autouse=True)
def kernels_serve_small_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "SMALLEST", 1)


def kernels() -> ModuleType:
    if interpreting():
        from softknee.kernels.squaf import fused

        return fused
    from softknee.kernels.squaf import compiled as in_c

    return in_c


WINDOWS = [3, 5, 7, None]
WEIGHTS = ["gaussian", "laplacian"]
# Whole tensor, channels, neurons, features, and two separate dimensions, as vmap leaves them.
SHAPES = [(1,), (3, 1), (2, 3, 5), (5,), (2, 1, 5)]


def parameters(shape: tuple[int, ...] = (1,), *, k: int = 4, dtype: torch.dtype = torch.float32):
    generator = torch.Generator().manual_seed(0)
    q = 0.5 + torch.rand(shape, generator=generator)
    alpha = 0.5 + torch.rand(shape, generator=generator)
    z = torch.randn(*shape, 2 * k + 1, generator=generator)
    return {"q": q.to(dtype), "alpha": alpha.to(dtype), "z": z.to(dtype)}


def inputs(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 1) -> Tensor:
    return (2.5 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def value_and_gradients(x: Tensor, p: dict[str, Tensor], grad: Tensor, **options) -> list[Tensor]:
    x = x.detach().requires_grad_()
    p = {name: t.detach().requires_grad_() for name, t in p.items()}
    value = squaf(x, **p, **options)
    return [value.detach(), *torch.autograd.grad(value, [x, *p.values()], grad)]


def exact(x: Tensor, p: dict[str, Tensor], grad: Tensor, **options) -> list[Tensor]:
    """The same in float64, which never takes a kernel."""
    return value_and_gradients(x.double(), {name: t.double() for name, t in p.items()}, grad.double(), **options)


def test_the_kernels_are_what_runs():
    assert choose_path(torch.zeros(1))[0] == ("fused" if interpreting() else "compiled")
    assert choose_path(torch.zeros(1, dtype=torch.float64))[0] == "plain"


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_value_and_slope_match_fifty_digits(weights, window):
    sample = draw(50, k=4, window=window, laplacian=weights == "laplacian", dtype=torch.float32, seed=21)
    assert max(worst_ratios(sample, orders=2)) <= 4


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_gradient_matches_float64(shape, weights, window):
    p, x, grad = parameters(shape), inputs(2, 3, 5), inputs(2, 3, 5, seed=2)
    options = {"window": window, "weights": weights}
    for result, truth in zip(value_and_gradients(x, p, grad, **options), exact(x, p, grad, **options), strict=True):
        torch.testing.assert_close(result.double(), truth, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(1,), (40,)])
def test_many_tiles_and_a_rest(shape):
    p, x, grad = parameters(shape, k=16), inputs(211, 40), inputs(211, 40, seed=2)
    for result, truth in zip(value_and_gradients(x, p, grad), exact(x, p, grad), strict=True):
        torch.testing.assert_close(result.double(), truth, rtol=2e-5, atol=2e-5 * truth.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype):
    p, x = parameters(k=16), inputs(3000, dtype=dtype)
    result = value_and_gradients(x, p, torch.ones_like(x))
    truths = exact(x, p, torch.ones_like(x))
    for ours, truth in zip(result[:2], truths[:2], strict=True):
        unit = torch.finfo(dtype).eps * 2.0 ** torch.floor(torch.log2(truth.abs().clamp(min=1e-4)))
        rounded = (truth.to(dtype).double() - truth).abs()
        assert ours.dtype == dtype
        assert ((ours.double() - truth).abs() <= rounded + unit).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_limits_at_infinity_and_nan_only_from_nan(weights, window, dtype):
    p, options = parameters(), {"window": window, "weights": weights}
    huge = torch.finfo(dtype).max
    x = torch.tensor([float("inf"), -float("inf"), huge, -huge, 0.0, -0.0, 1e-7], dtype=dtype)
    result = value_and_gradients(x, p, torch.ones_like(x), **options)
    assert all(t.isfinite().all() for t in result)
    far = squaf(torch.tensor([90.0, -90.0, 90.0, -90.0], dtype=torch.float64), **p, **options)
    torch.testing.assert_close(result[0][:4].double(), far, rtol=2 * torch.finfo(dtype).eps, atol=5e-7)
    nan = squaf(torch.tensor([float("nan"), 1.0], dtype=dtype), **p, **options)
    assert nan.isnan().tolist() == [True, False]
    if dtype == torch.float32:
        (slope,) = value_and_gradients(torch.tensor([float("nan"), 1.0]), p, torch.ones(2), **options)[1:2]
        assert slope.isnan().tolist() == [True, False]


@pytest.mark.parametrize("window", [5, None])
@pytest.mark.parametrize("h", [1e-6, 1.0, 1e6, 1e18])
def test_no_softness_overflows(h, window):
    q = torch.tensor([1e6 if h > 1e6 else 1.0])
    p = {"q": q, "alpha": h / q**2, "z": torch.randn(1, 9, generator=torch.Generator().manual_seed(3))}
    x = torch.linspace(-7, 7, 561) * q
    result = value_and_gradients(x, p, torch.ones_like(x), window=window)
    assert all(t.isfinite().all() for t in result)
    assert result[0].max() <= p["z"].max() + 1e-6
    assert result[0].min() >= p["z"].min() - 1e-6


LAYOUTS = {
    "transposed": lambda: inputs(4, 3, 2).permute(2, 1, 0),
    "channels last": lambda: inputs(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "strided slice": lambda: inputs(2, 3, 9)[..., ::2],
    "expanded": lambda: inputs(2, 3, 1).expand(2, 3, 4),
    "empty": lambda: inputs(2, 3, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("per", ["layer", "channel"])
def test_every_layout_matches_float64(layout, per):
    x = LAYOUTS[layout]()
    p = parameters((1,) if per == "layer" else (3, *(1,) * (x.dim() - 2)))
    grad = inputs(*x.shape, seed=8)
    result = value_and_gradients(x, p, grad)
    for ours, truth in zip(result, exact(x, p, grad), strict=True):
        torch.testing.assert_close(ours.double(), truth, rtol=2e-5, atol=2e-6)
    if layout == "channels last":
        assert result[0].is_contiguous(memory_format=torch.channels_last)


def test_parameters_of_another_dtype_are_read_as_float32():
    p, x, grad = parameters(dtype=torch.bfloat16), inputs(50), inputs(50, seed=2)
    result = value_and_gradients(x, p, grad)
    torch.testing.assert_close(result[0].double(), exact(x, p, grad)[0], rtol=1e-6, atol=1e-6)
    assert result[2].dtype == torch.bfloat16


def test_gradients_repeat_their_bits_and_replicas_sum_as_they_would_alone():
    p = {name: torch.stack([t, 1.1 * t]) for name, t in parameters().items()}
    x = inputs(2, 700)

    def loss(p, x):
        return squaf(x, **p).square().sum()

    mapped = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))
    first, second = mapped(p, x), mapped(p, x)
    for number in range(2):
        alone = torch.func.grad(loss, argnums=(0, 1))({name: t[number] for name, t in p.items()}, x[number])
        for name in p:
            assert torch.equal(first[0][name], second[0][name])
            assert torch.equal(first[0][name][number], alone[0][name])
        assert torch.equal(first[1][number], alone[1])


def test_second_derivatives_pass_through_the_kernels():
    p = {name: t.requires_grad_() for name, t in parameters().items()}
    x = inputs(30).requires_grad_()
    (slope,) = torch.autograd.grad(squaf(x, **p).sum(), x, create_graph=True)
    result = torch.autograd.grad(slope.square().sum(), [x, *p.values()])
    q = {name: t.detach().double().requires_grad_() for name, t in p.items()}
    y = x.detach().double().requires_grad_()
    (slope,) = torch.autograd.grad(squaf(y, **q).sum(), y, create_graph=True)
    for ours, truth in zip(result, torch.autograd.grad(slope.square().sum(), [y, *q.values()]), strict=True):
        torch.testing.assert_close(ours.double(), truth, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("window", "weights"), [(5, "gaussian"), (None, "laplacian")])
def test_only_the_wanted_gradients_are_written(window, weights):
    from softknee.kernels.squaf.layout import BY_ALPHA, BY_Q, BY_X, BY_Z, arrange

    x, grad, p = inputs(2, 3, 5), inputs(2, 3, 5, seed=3), parameters((3, 1))
    layout = arrange(x, parameter_shape=p["q"].shape)
    rows = layout.fold_parameter(p["q"]), layout.fold_parameter(p["alpha"]), layout.fold_parameter(p["z"], table=True)
    how = {"layout": layout, "window": window or 0, "laplacian": weights == "laplacian"}
    folded, before = layout.fold(x), x.clone()
    every = kernels().backward(layout.fold(grad), folded, *rows, **how)
    for choice in range(1, 16):
        result = kernels().backward(layout.fold(grad), folded, *rows, **how, wanted=choice)
        flags = (BY_X, BY_Q, BY_ALPHA, BY_Z)
        for item, whole, flag in zip(result, every, flags, strict=True):
            assert (item is not None) == bool(choice & flag)
            assert item is None or torch.equal(item, whole)
        # x stands in for the pointers of what is not wanted: a kernel that wrote it would write into x.
        assert torch.equal(x, before)
