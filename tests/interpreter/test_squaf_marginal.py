"""The Triton kernels of SQUAF's marginal, run by Triton's interpreter and held to float64.

Run with TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported.
"""

import os

import pytest
import torch
from torch import Tensor

from softknee.kernels.squaf import choose_path
from softknee.kernels.squaf.marginal import entropy_in_bits, squaf_marginal
from squaf_reference import inputs, parameters

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is asked for with TRITON_INTERPRET=1.", allow_module_level=True)

WEIGHTS = ["gaussian", "laplacian"]
# Whole tensor, channels, neurons, features, and two separate dimensions.
SHAPES = [(1,), (3, 1), (2, 3, 5), (5,), (2, 1, 5)]


def marginal_and_gradients(x: Tensor, q: Tensor, alpha: Tensor, *, k: int = 4, **options) -> list[Tensor]:
    tensors = [t.detach().requires_grad_() for t in (x, q, alpha)]
    p = squaf_marginal(tensors[0], q=tensors[1], alpha=tensors[2], points=2 * k + 1, **options)
    # A function of the marginals with a slope of its own at each point.
    outer = torch.linspace(1, 2, p.numel(), dtype=p.dtype).reshape(p.shape)
    return [p.detach(), *torch.autograd.grad((outer * p).sum() + entropy_in_bits(p).sum(), tensors)]


def check(x: Tensor, shape: tuple[int, ...], *, k: int = 4, **options) -> list[Tensor]:
    drawn = parameters(shape, k=k, dtype=torch.float32)
    q, alpha = drawn["q"], drawn["alpha"]
    assert choose_path(x)[0] == "fused"
    result = marginal_and_gradients(x, q, alpha, k=k, **options)
    truth = marginal_and_gradients(x.double(), q.double(), alpha.double(), k=k, **options)
    for ours, true in zip(result, truth, strict=True):
        if ours.numel():
            scale = float(true.abs().max())
            rough = 2 * torch.finfo(ours.dtype).eps if ours.dtype.itemsize == 2 else 2e-5
            torch.testing.assert_close(ours.double(), true, rtol=rough, atol=2e-5 * scale)
    return result


@pytest.mark.parametrize("window", [5, None])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_marginal_and_gradients_match_float64(shape, weights, window):
    check(inputs(2, 3, 5, dtype=torch.float32), shape, window=window, weights=weights, pooled=False)


@pytest.mark.parametrize("shape", [(1,), (40,)])
def test_many_tiles_and_a_rest_repeat_their_bits(shape):
    x = inputs(90, 40, dtype=torch.float32)
    first, drawn = check(x, shape, k=16), parameters(shape, k=16, dtype=torch.float32)
    second = marginal_and_gradients(x, drawn["q"], drawn["alpha"], k=16)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert float(first[0].sum()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    result = check(inputs(300, dtype=dtype), (1,), k=16)
    assert [t.dtype for t in result] == [torch.float32, dtype, torch.float32, torch.float32]


@pytest.mark.parametrize("per", ["layer", "channel"])
def test_other_memory_orders(per):
    x = inputs(2, 3, 4, 5, dtype=torch.float32).to(memory_format=torch.channels_last)
    check(x, (1,) if per == "layer" else (3, 1, 1), pooled=False)
    check(inputs(2, 3, 4, 9, dtype=torch.float32)[..., ::2], (1,) if per == "layer" else (3, 1, 1), pooled=False)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("window", [5, None])
def test_infinities_sit_on_the_ends_and_nan_stays_nan(weights, window):
    q, alpha = torch.ones(1), torch.full((1,), 40.0)
    x = torch.tensor([float("inf"), -float("inf"), 3e38, 0.0])
    result = marginal_and_gradients(x, q, alpha, window=window, weights=weights)
    assert all(t.isfinite().all() for t in result)
    torch.testing.assert_close(result[0][[0, 4, 8]], torch.tensor([0.25, 0.25, 0.5]))
    nan = squaf_marginal(torch.tensor([0.0, float("nan")]), q=q, alpha=alpha, points=9, window=window, weights=weights)
    assert nan.isnan().any()


def test_only_x_asks_for_no_sums_of_parameters():
    x, drawn = inputs(2, 30, dtype=torch.float32).requires_grad_(), parameters(dtype=torch.float32)
    p = squaf_marginal(x, q=drawn["q"], alpha=drawn["alpha"], points=9)
    (alone,) = torch.autograd.grad(entropy_in_bits(p), x)
    q, alpha = (drawn[name].requires_grad_() for name in ("q", "alpha"))
    p = squaf_marginal(x, q=q, alpha=alpha, points=9)
    assert torch.equal(alone, torch.autograd.grad(entropy_in_bits(p), [x, q, alpha])[0])
