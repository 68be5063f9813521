r"""Attention over sequences that fit into one tile: all of a head in one program, forward and backward.

    A = softmax(scale Q K^T) V,        for N <= 80 tokens, without mask, dropout or causality

The kernels of the large libraries walk over blocks of 64 or 128 keys. A picture of 64 patches and a class token has 65:
most of what they compute is padding, and their backward pass goes through memory three times. Here a head's tokens are
cut into two parts, each a power of two (65 = 64 + 1, in tiles of 64 and 16), everything in between stays in registers,
and the softmax is computed again in the backward pass, so that nothing but queries, keys and values is held for it.

Queries, keys and values come as one tensor [3, B, H, N, D], a view of what one linear map has written, and the gradient
goes back as one tensor with the same order in memory: nothing is stacked or copied on the way.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dispatch import interpreting
from .launch import on_device_of, power_of_two

# More would not stay in the registers of a program, nor in the shared memory of smaller GPUs.
MOST_TOKENS, _WIDTHS = 80, (16, 32, 64)
_WARPS = 4
_SMALLEST = 16  # a side of the smallest product of matrices on tensor cores
_LOG2_E = 1.4426950408889634


@triton.jit
def _softmax(q, k0, k1, slope, in0, in1):
    """Rows of the softmax over both parts of the keys."""
    s0 = tl.where(in0[None, :], tl.dot(q, tl.trans(k0)) * slope, float("-inf"))
    s1 = tl.where(in1[None, :], tl.dot(q, tl.trans(k1)) * slope, float("-inf"))
    top = tl.maximum(tl.max(s0, 1), tl.max(s1, 1))
    e0 = tl.exp2(s0 - top[:, None])
    e1 = tl.exp2(s1 - top[:, None])
    share = 1.0 / (tl.sum(e0, 1) + tl.sum(e1, 1))
    return e0 * share[:, None], e1 * share[:, None]


@triton.jit
def _forward_rows(q, k0, k1, v0, v1, slope, in0, in1):
    p0, p1 = _softmax(q, k0, k1, slope, in0, in1)  # pyright: ignore
    return tl.dot(p0.to(v0.dtype), v0) + tl.dot(p1.to(v1.dtype), v1)


@triton.jit
def _forward(
    qkv_ptr, out_ptr, heads, tokens, part, batch, head, token, out_batch, out_head, out_token, slope,
    FIRST: tl.constexpr, REST: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0)
    b, h = (at // heads).to(tl.int64), (at % heads).to(tl.int64)
    row0, row1, d = tl.arange(0, FIRST), FIRST + tl.arange(0, REST), tl.arange(0, D)
    in0, in1 = row0 < tokens, row1 < tokens
    start = qkv_ptr + b * batch + h * head
    place0, place1 = row0[:, None] * token + d[None, :], row1[:, None] * token + d[None, :]
    q0 = tl.load(start + place0, mask=in0[:, None], other=0.0)
    q1 = tl.load(start + place1, mask=in1[:, None], other=0.0)
    k0 = tl.load(start + part + place0, mask=in0[:, None], other=0.0)
    k1 = tl.load(start + part + place1, mask=in1[:, None], other=0.0)
    v0 = tl.load(start + part + part + place0, mask=in0[:, None], other=0.0)
    v1 = tl.load(start + part + part + place1, mask=in1[:, None], other=0.0)
    out = out_ptr + b * out_batch + h * out_head
    a0 = _forward_rows(q0, k0, k1, v0, v1, slope, in0, in1)  # pyright: ignore
    tl.store(out + row0[:, None] * out_token + d[None, :], a0.to(out_ptr.dtype.element_ty), mask=in0[:, None])
    a1 = _forward_rows(q1, k0, k1, v0, v1, slope, in0, in1)  # pyright: ignore
    tl.store(out + row1[:, None] * out_token + d[None, :], a1.to(out_ptr.dtype.element_ty), mask=in1[:, None])


@triton.jit
def _backward_rows(q, g, k0, k1, v0, v1, slope, scale, in0, in1):
    """What some queries add to all gradients: by themselves, and by both parts of the keys and values."""
    p0, p1 = _softmax(q, k0, k1, slope, in0, in1)  # pyright: ignore
    t0 = tl.dot(g, tl.trans(v0))
    t1 = tl.dot(g, tl.trans(v1))
    mean = tl.sum(p0 * t0, 1) + tl.sum(p1 * t1, 1)
    s0 = (p0 * (t0 - mean[:, None]) * scale).to(q.dtype)
    s1 = (p1 * (t1 - mean[:, None]) * scale).to(q.dtype)
    by_q = tl.dot(s0, k0) + tl.dot(s1, k1)
    by_k0, by_k1 = tl.dot(tl.trans(s0), q), tl.dot(tl.trans(s1), q)
    by_v0, by_v1 = tl.dot(tl.trans(p0.to(g.dtype)), g), tl.dot(tl.trans(p1.to(g.dtype)), g)
    return by_q, by_k0, by_k1, by_v0, by_v1


@triton.jit
def _backward(
    qkv_ptr, grad_ptr, out_ptr, heads, tokens, part, batch, head, token, grad_batch, grad_head, grad_token,
    slope, scale, FIRST: tl.constexpr, REST: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0)
    b, h = (at // heads).to(tl.int64), (at % heads).to(tl.int64)
    row0, row1, d = tl.arange(0, FIRST), FIRST + tl.arange(0, REST), tl.arange(0, D)
    in0, in1 = row0 < tokens, row1 < tokens
    start = qkv_ptr + b * batch + h * head
    place0, place1 = row0[:, None] * token + d[None, :], row1[:, None] * token + d[None, :]
    k0 = tl.load(start + part + place0, mask=in0[:, None], other=0.0)
    k1 = tl.load(start + part + place1, mask=in1[:, None], other=0.0)
    v0 = tl.load(start + part + part + place0, mask=in0[:, None], other=0.0)
    v1 = tl.load(start + part + part + place1, mask=in1[:, None], other=0.0)
    q0 = tl.load(start + place0, mask=in0[:, None], other=0.0)
    q1 = tl.load(start + place1, mask=in1[:, None], other=0.0)
    grad = grad_ptr + b * grad_batch + h * grad_head
    g0 = tl.load(grad + row0[:, None] * grad_token + d[None, :], mask=in0[:, None], other=0.0)
    g1 = tl.load(grad + row1[:, None] * grad_token + d[None, :], mask=in1[:, None], other=0.0)
    out = out_ptr + b * batch + h * head
    kind: tl.constexpr = out_ptr.dtype.element_ty
    # The rows past the last token are zeros in q and g, and add nothing to anything.
    by_q, by_k0, by_k1, by_v0, by_v1 = _backward_rows(q1, g1, k0, k1, v0, v1, slope, scale, in0, in1)  # pyright: ignore
    tl.store(out + place1, by_q.to(kind), mask=in1[:, None])
    by_q, a0, a1, c0, c1 = _backward_rows(q0, g0, k0, k1, v0, v1, slope, scale, in0, in1)  # pyright: ignore
    tl.store(out + place0, by_q.to(kind), mask=in0[:, None])
    tl.store(out + part + place0, (by_k0 + a0).to(kind), mask=in0[:, None])
    tl.store(out + part + place1, (by_k1 + a1).to(kind), mask=in1[:, None])
    tl.store(out + part + part + place0, (by_v0 + c0).to(kind), mask=in0[:, None])
    tl.store(out + part + part + place1, (by_v1 + c1).to(kind), mask=in1[:, None])


# Triton's kernels are launched by indexing, and take plain numbers for their constants; no type says so.
_forward_kernel: Any = _forward
_backward_kernel: Any = _backward


def fits(shape: torch.Size | tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether there is a kernel for queries, keys and values of this shape [3, B, H, N, D] and type."""
    if len(shape) != 5 or shape[0] != 3 or dtype not in (torch.bfloat16, torch.float16):
        return False
    tokens, width = shape[3], shape[4]
    return 0 < tokens <= MOST_TOKENS and width in _WIDTHS


@torch.library.custom_op("softknee::short_attention", mutates_args=())
def short_attention(qkv: Tensor, scale: float) -> Tensor:
    """softmax(scale Q K^T) V, [B, H, N, D], in memory as [B, N, H, D]."""
    if not _by_kernel(qkv):
        return _plain(qkv, scale)
    out = _empty_output(qkv)
    _, batch, heads, tokens, width = qkv.shape
    first, rest = _parts(tokens)
    with on_device_of(qkv):
        _forward_kernel[(batch * heads,)](
            qkv, out, heads, tokens, *qkv.stride()[:4], *out.stride()[:3], scale * _LOG2_E,
            FIRST=first, REST=rest, D=width, num_warps=_WARPS,
        )  # fmt: skip
    return out


@torch.library.custom_op("softknee::short_attention_backward", mutates_args=())
def short_attention_backward(grad: Tensor, qkv: Tensor, scale: float) -> Tensor:
    """The gradient by queries, keys and values, as they lie in memory."""
    if not _by_kernel(qkv):
        return torch.empty_like(qkv).copy_(_plain_gradient(grad, qkv, scale))
    out = torch.empty_like(qkv)
    _, batch, heads, tokens, width = qkv.shape
    first, rest = _parts(tokens)
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    with on_device_of(qkv):
        _backward_kernel[(batch * heads,)](
            qkv, grad, out, heads, tokens, *qkv.stride()[:4], *grad.stride()[:3], scale * _LOG2_E, scale,
            FIRST=first, REST=rest, D=width, num_warps=_WARPS,
        )  # fmt: skip
    return out


@short_attention.register_fake
def _(qkv: Tensor, scale: float) -> Tensor:
    return _empty_output(qkv)


@short_attention_backward.register_fake
def _(grad: Tensor, qkv: Tensor, scale: float) -> Tensor:
    return torch.empty_like(qkv)


def _keep(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (qkv,) = ctx.saved_tensors
    return short_attention_backward(grad, qkv, ctx.scale), None


short_attention.register_autograd(_differentiate, setup_context=_keep)


def _by_kernel(qkv: Tensor) -> bool:
    here = qkv.is_cuda or interpreting()
    dense = qkv.stride(-1) == 1 and torch.empty_like(qkv).stride() == qkv.stride()
    return here and dense and fits(qkv.shape, qkv.dtype)


def _parts(tokens: int) -> tuple[int, int]:
    """Two powers of two that hold all tokens, the first not larger than they are many."""
    first = max(_SMALLEST, power_of_two(tokens) // 2)
    return first, max(_SMALLEST, power_of_two(max(tokens - first, 1)))


def _empty_output(qkv: Tensor) -> Tensor:
    _, batch, heads, tokens, width = qkv.shape
    return qkv.new_empty(batch, tokens, heads, width).transpose(1, 2)


def _plain(qkv: Tensor, scale: float) -> Tensor:
    q, k, v = qkv.float().unbind(0)
    return _empty_output(qkv).copy_((scale * q @ k.mT).softmax(-1) @ v)


def _plain_gradient(grad: Tensor, qkv: Tensor, scale: float) -> Tensor:
    q, k, v = qkv.float().unbind(0)
    grad = grad.float()
    p = (scale * q @ k.mT).softmax(-1)
    by_p = grad @ v.mT
    by_score = scale * p * (by_p - (p * by_p).sum(-1, keepdim=True))
    return torch.stack([by_score @ k, by_score.mT @ q, p.mT @ grad])
