"""Launches the fused kernels of SQUAF's other modes on folded tensors."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import divide_up, on_device_of
from .cuda import modes as cuda_modes
from .fused import CEILING, LOG2_E, _exponent, _half, _nearest  # pyright: ignore[reportPrivateUsage]
from .layout import Layout

# -- SQUAF's sampling and stepping in Triton --------------------------------------------------------------
#
# One pass, one table read for each element, no random tensor.
#
# The layout of x and the meaning of HALF are those of `fused`; draws are those of `choice`.


@triton.jit
def _mix(h):
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = (h ^ (h >> 15)) * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def _uniform(seed, position, beyond):
    """Multiples of 2^-24 in [0, 1); `beyond` is position >> 32, which a whole block of positions may share."""
    low = seed.to(tl.uint32)
    high = (seed >> 32).to(tl.uint32) ^ _mix(beyond.to(tl.uint32))
    bits = _mix(_mix(position.to(tl.uint32) + low) ^ high)
    return (bits >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def _group(at, g1, middle, g2, inner):
    """The row of parameters that belongs to an element."""
    above = at // inner
    return (((above // g2) // middle) % g1 * g2 + above % g2).to(tl.int32)


@triton.jit
def _give(out_ptr, at, inside, x, symbol, z_ptr, row, n, SYMBOLS: tl.constexpr):
    """Store z at the symbol, or the symbol itself; NaN (-1) where x is NaN."""
    # A NaN has no place; the table must not be left for it.
    symbol = tl.minimum(tl.maximum(symbol, 0), n - 1)
    if SYMBOLS:
        tl.store(out_ptr + at, tl.where(x == x, symbol, -1), mask=inside)
    else:
        value = tl.load(z_ptr + row + symbol, mask=inside, other=0.0).to(tl.float32)
        tl.store(out_ptr + at, tl.where(x == x, value, x).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def squaf_step_kernel(
    x_ptr, out_ptr, q_ptr, z_ptr, numel, n, k, g1, middle, g2, inner,
    SYMBOLS: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """z (or the symbol) of the nearest point."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < numel
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if SHARED:
        q = tl.load(q_ptr).to(tl.float32)
        row = tl.zeros((BLOCK,), tl.int32)
    else:
        group = _group(at, g1, middle, g2, inner)
        q = tl.load(q_ptr + group, mask=inside, other=1.0).to(tl.float32)
        row = group * n
    c, _ = _nearest(x, q, k)  # pyright: ignore
    _give(out_ptr, at, inside, x, (c + k).to(tl.int32), z_ptr, row, n, SYMBOLS)


@triton.jit
def squaf_sample_kernel(
    x_ptr, out_ptr, seed_ptr, q_ptr, alpha_ptr, z_ptr, numel, each, n, k, g1, middle, g2, inner,
    HALF: tl.constexpr, LAPLACIAN: tl.constexpr, SYMBOLS: tl.constexpr, ONE_SEED: tl.constexpr,
    SHARED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """z (or the symbol) of a point drawn from P(. | x); every `each` elements have a seed of their own."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    at = start + tl.arange(0, BLOCK)
    inside = at < numel
    x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if ONE_SEED:
        u = _uniform(tl.load(seed_ptr), at, start >> 32)
    else:
        part = at // each
        position = at - part * each
        u = _uniform(tl.load(seed_ptr + part, mask=inside, other=0), position, position >> 32)
    if SHARED:
        q = tl.load(q_ptr).to(tl.float32)
        alpha = tl.load(alpha_ptr).to(tl.float32)
        row = tl.zeros((BLOCK,), tl.int32)
    else:
        group = _group(at, g1, middle, g2, inner)
        q = tl.load(q_ptr + group, mask=inside, other=1.0).to(tl.float32)
        alpha = tl.load(alpha_ptr + group, mask=inside, other=1.0).to(tl.float32)
        row = group * n
    c, d = _nearest(x, q, k)  # pyright: ignore
    here = (c + k).to(tl.int32)
    # The symbol is the first whose running sum passes u times the last running sum, which is always above it.
    if HALF == 2 and not LAPLACIAN:
        scale = alpha * q * LOG2_E
        fall = tl.exp2(-2.0 * scale * q)
        up = tl.exp2(tl.where(c < k, tl.minimum(scale * (2.0 * d - q), CEILING), -float("inf")))
        down = tl.exp2(tl.where(c > -k, tl.minimum(scale * (-2.0 * d - q), CEILING), -float("inf")))
        up2 = tl.where(c < k - 1, up * up * fall, 0.0)
        down2 = tl.where(c > 1 - k, down * down * fall, 0.0)
        sum1 = down2 + down
        sum2 = sum1 + 1.0
        sum3 = sum2 + up
        goal = u * (sum3 + up2)
        symbol = here - 2 + (down2 <= goal).to(tl.int32) + (sum1 <= goal).to(tl.int32)
        symbol += (sum2 <= goal).to(tl.int32) + (sum3 <= goal).to(tl.int32)
    else:
        total = tl.zeros((BLOCK,), tl.float32)
        running = tl.zeros((BLOCK,), tl.float32)
        if HALF >= 0:
            symbol = here - HALF
            for j in tl.static_range(-HALF, HALF + 1):
                on_grid = (here + j >= 0) & (here + j < n)
                steps = tl.full((BLOCK,), j, tl.float32)
                total += tl.where(on_grid, tl.exp2(_exponent(d, q, alpha, steps, LAPLACIAN)), 0.0)
            goal = u * total
            for j in tl.static_range(-HALF, HALF):
                on_grid = (here + j >= 0) & (here + j < n)
                steps = tl.full((BLOCK,), j, tl.float32)
                running += tl.where(on_grid, tl.exp2(_exponent(d, q, alpha, steps, LAPLACIAN)), 0.0)
                symbol += (running <= goal).to(tl.int32)
        else:
            symbol = tl.zeros((BLOCK,), tl.int32)
            for i in range(n):
                total += tl.exp2(_exponent(d, q, alpha, i - k - c, LAPLACIAN))
            goal = u * total
            for i in range(n - 1):
                running += tl.exp2(_exponent(d, q, alpha, i - k - c, LAPLACIAN))
                symbol += (running <= goal).to(tl.int32)
    _give(out_ptr, at, inside, x, symbol, z_ptr, row, n, SYMBOLS)


# -- launches the fused kernels of SQUAF's other modes on folded tensors ----------------------------------


_sample_kernel: Any = squaf_sample_kernel
_step_kernel: Any = squaf_step_kernel
BLOCK = 1024


def forward(
    x: Tensor,
    seed: Tensor | None,
    q: Tensor,
    alpha: Tensor,
    z: Tensor | None,
    *,
    points: int,
    layout: Layout,
    window: int,
    laplacian: bool,
) -> Tensor:
    """The chosen values of a folded, contiguous x, or their symbols where z is None; see `eager_forward`."""
    symbols = z is None
    out = torch.empty_like(x, dtype=torch.int32 if symbols else x.dtype)
    if x.numel() == 0:
        return out
    _, g1, middle, g2, inner = layout.shape
    shape = (points, float(points // 2), g1, middle, g2, inner)
    table = q if z is None else z  # not read for symbols
    grid = (divide_up(x.numel(), BLOCK),)
    with on_device_of(x):
        case = {"points": points, "layout": layout}
        if cuda_modes.can_choose(x, seed, symbols=symbols, window=window, laplacian=laplacian, **case):
            cuda_modes.choose(x, seed, q, alpha, z, out=out, **case)
        elif seed is None:
            _step_kernel[grid](
                x, out, q, table, x.numel(), *shape, SYMBOLS=symbols, SHARED=layout.groups == 1, BLOCK=BLOCK
            )
        else:
            _sample_kernel[grid](
                x, out, seed.contiguous(), q, alpha, table, x.numel(), x.numel() // seed.numel(), *shape,
                HALF=_half(window, points), LAPLACIAN=laplacian, SYMBOLS=symbols, ONE_SEED=seed.numel() == 1,
                SHARED=layout.groups == 1, BLOCK=BLOCK,
            )  # fmt: skip
    return out


def step_backward(grad: Tensor, x: Tensor, q: Tensor, *, points: int, layout: Layout) -> Tensor | None:
    """The gradient of z (groups, n) for the step function; None where no kernel was written for the case."""
    if x.numel() == 0 or not cuda_modes.can_step_back(grad, x, points=points, layout=layout):
        return None
    with on_device_of(x):
        return cuda_modes.step_backward(grad, x, q, points=points, layout=layout)
