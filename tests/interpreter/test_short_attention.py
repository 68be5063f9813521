"""Attention over short sequences by one program a head, against float64."""

import math

import pytest
import torch

from softknee.kernels.short_attention import fits, short_attention


def in_one_tensor(batch: int, heads: int, tokens: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Queries, keys and values as a linear map writes them, seen as [3, B, H, N, D]."""
    made = torch.randn(batch, tokens, 3, heads, width, generator=torch.Generator().manual_seed(tokens + width))
    return made.to(dtype).permute(2, 0, 3, 1, 4)


def attention(qkv: torch.Tensor, scale: float) -> torch.Tensor:
    q, k, v = qkv.unbind(0)
    return (scale * q @ k.mT).softmax(-1) @ v


@pytest.mark.parametrize("tokens", [1, 17, 64, 65, 80])
def test_values_and_gradients_are_those_of_float64(tokens: int) -> None:
    heads, width = (3, 64) if tokens == 65 else (2, 16)
    qkv = in_one_tensor(2, heads, tokens, width, torch.float16).requires_grad_()
    scale = 1.7 / math.sqrt(width)
    exact = qkv.detach().double().requires_grad_()
    found, wanted = short_attention(qkv, scale), attention(exact, scale)
    assert found.transpose(1, 2).is_contiguous()
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.double(), wanted, rtol=4e-3, atol=2e-3)
    weight = torch.randn(wanted.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).half()
    found.backward(weight)
    wanted.backward(weight.double())
    assert qkv.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(qkv.grad.double(), exact.grad, rtol=1e-2, atol=4e-3)


def test_a_gradient_that_lies_in_another_order_is_read_rightly() -> None:
    qkv = in_one_tensor(2, 2, 20, 16, torch.float16).requires_grad_()
    weight = torch.randn(2, 2, 16, 20, generator=torch.Generator().manual_seed(2)).half().mT
    (first,) = torch.autograd.grad(short_attention(qkv, 0.25), qkv, weight)
    (second,) = torch.autograd.grad(short_attention(qkv, 0.25), qkv, weight.contiguous())
    assert torch.equal(first, second)
    assert first.abs().sum() > 0


def test_the_operators_keep_their_promises_to_tracers() -> None:
    qkv = in_one_tensor(2, 2, 17, 16, torch.float16).requires_grad_()
    torch.library.opcheck(
        torch.ops.softknee.short_attention.default, (qkv, 0.25), test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.parametrize(
    ("shape", "dtype", "wanted"),
    [
        ((3, 2, 2, 65, 64), torch.bfloat16, True),
        ((3, 2, 2, 81, 64), torch.bfloat16, False),
        ((3, 2, 2, 65, 48), torch.bfloat16, False),
        ((3, 2, 2, 65, 64), torch.float32, False),
        ((2, 2, 2, 65, 64), torch.bfloat16, False),
    ],
)
def test_what_fits(shape: tuple[int, ...], dtype: torch.dtype, wanted: bool) -> None:
    assert fits(shape, dtype) is wanted
