"""SQUAF on a GPU: its kernels in Triton for every case, those in CUDA C++ where they were written for it.

x is folded (see `layout.py`). Kernels leave partial sums, which are added up in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import divide_up, on_device_of, power_of_two
from . import eager
from .cuda import any_window, modes, soft
from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, EVERY, Layout

# -- the fused SQUAF kernels in Triton --------------------------------------------------------------------
#
# Any window, both weights, parameters of any granularity, no atomics.
#
# x is flat and dense; with g1 * g2 groups of parameters it is laid out as (outer, g1, middle, g2, inner). HALF
# is the number of neighbours kept on each side, or -1 for the full sum; k is a float. Arithmetic is float32
# whatever the storage type.


LOG2_E = tl.constexpr(1.4426950408889634)
# Adding and subtracting 1.5 * 2^23 rounds a float32 below 2^22 to the nearest integer, ties to even, in two
# cheap additions; the rounding instruction runs at the rate of an exponential.
ROUNDER = tl.constexpr(12582912.0)
# The square root of the largest float32: infinities become this, so that no 0 * inf can arise (see plain.py).
LIMIT = tl.constexpr(1.8446742974197924e19)
# Exponents are at most 0 but for the rounding of x/q, which a huge alpha magnifies; 2^60 squared still is a
# float32.
CEILING = tl.constexpr(60.0)


@triton.jit
def _nearest(x, q, k):
    """(c, d): the nearest grid point's number and the distance x - c q from it, the product not rounded."""
    x = tl.minimum(tl.maximum(x, -LIMIT, propagate_nan=tl.PropagateNan.ALL), LIMIT, propagate_nan=tl.PropagateNan.ALL)
    ratio = x / q
    # A NaN must not become an index; it reaches the result through d.
    ratio = tl.where(ratio == ratio, ratio, 0.0)
    c = (tl.minimum(tl.maximum(ratio, -k), k) + ROUNDER) - ROUNDER
    leading = q.to(tl.bfloat16).to(tl.float32)
    d = (x - c * leading) - c * (q - leading)
    return c, d


@triton.jit
def _exponent(d, q, alpha, steps, LAPLACIAN: tl.constexpr):
    """log2 of a neighbour's weight relative to the nearest point's; q * alpha carries log2(e) already."""
    if LAPLACIAN:
        reach = tl.where(steps > 0, d + tl.abs(d), tl.where(steps < 0, tl.abs(d) - d, 0.0))
        e = (alpha * LOG2_E) * (reach - tl.abs(steps) * q)
    else:
        e = (alpha * q * LOG2_E) * (steps * (2.0 * d - steps * q))
    return tl.minimum(e, CEILING, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def squaf_forward_kernel(
    x_ptr, out_ptr, q_ptr, alpha_ptr, z_ptr, numel, n, k, g1, middle, g2, inner,
    HALF: tl.constexpr, LAPLACIAN: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    inside = start + lanes < numel
    x = tl.load(x_ptr + start + lanes, mask=inside, other=0.0).to(tl.float32)
    if SHARED:
        q = tl.load(q_ptr).to(tl.float32)
        alpha = tl.load(alpha_ptr).to(tl.float32)
        row = tl.zeros((BLOCK,), tl.int32)
    else:
        above = (start + lanes) // inner
        group = (((above // g2) // middle) % g1 * g2 + above % g2).to(tl.int32)
        q = tl.load(q_ptr + group, mask=inside, other=1.0).to(tl.float32)
        alpha = tl.load(alpha_ptr + group, mask=inside, other=1.0).to(tl.float32)
        row = group * n
    c, d = _nearest(x, q, k)  # pyright: ignore
    here = (c + k).to(tl.int32)
    zrow = z_ptr + row
    if HALF == 2 and not LAPLACIAN:
        # Two exponentials give five weights: w(+-2) = w(+-1)^2 e^(-2h).
        scale = alpha * q * LOG2_E
        fall = tl.exp2(-2.0 * scale * q)
        up = tl.minimum(scale * (2.0 * d - q), CEILING, propagate_nan=tl.PropagateNan.ALL)
        down = tl.minimum(scale * (-2.0 * d - q), CEILING, propagate_nan=tl.PropagateNan.ALL)
        up = tl.exp2(tl.where(c < k, up, -float("inf")))
        down = tl.exp2(tl.where(c > -k, down, -float("inf")))
        up2 = tl.where(c < k - 1, up * up * fall, 0.0)
        down2 = tl.where(c > 1 - k, down * down * fall, 0.0)
        last = n - 1
        total = tl.load(zrow + here).to(tl.float32)
        total += up * tl.load(zrow + tl.minimum(here + 1, last)).to(tl.float32)
        total += down * tl.load(zrow + tl.maximum(here - 1, 0)).to(tl.float32)
        total += up2 * tl.load(zrow + tl.minimum(here + 2, last)).to(tl.float32)
        total += down2 * tl.load(zrow + tl.maximum(here - 2, 0)).to(tl.float32)
        weight = 1.0 + (up + down) + (up2 + down2)
    else:
        total = tl.zeros((BLOCK,), tl.float32)
        weight = tl.zeros((BLOCK,), tl.float32)
        if HALF >= 0:
            for j in tl.static_range(-HALF, HALF + 1):
                on_grid = (here + j >= 0) & (here + j < n)
                steps = tl.full((BLOCK,), j, tl.float32)
                w = tl.where(on_grid, tl.exp2(_exponent(d, q, alpha, steps, LAPLACIAN)), 0.0)
                total += w * tl.load(zrow + here + j, mask=on_grid, other=0.0).to(tl.float32)
                weight += w
        else:
            for i in range(n):
                w = tl.exp2(_exponent(d, q, alpha, i - k - c, LAPLACIAN))
                total += w * tl.load(zrow + i).to(tl.float32)
                weight += w
    tl.store(out_ptr + start + lanes, (total / weight).to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def squaf_backward_kernel(
    grad_ptr, x_ptr, q_ptr, alpha_ptr, z_ptr, dx_ptr, dq_ptr, dalpha_ptr, dz_ptr,
    per_group, groups, n, k, g1, middle, g2, inner, tiles, parts,
    HALF: tl.constexpr, LAPLACIAN: tl.constexpr, BINS: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
    WANT_X: tl.constexpr, WANT_Q: tl.constexpr, WANT_ALPHA: tl.constexpr, WANT_Z: tl.constexpr,
):  # fmt: skip
    """Gradient of x, and this program's own sums for q, alpha and z, written to row `part` of the partials; each as
    far as it is wanted.

    A tile is (ROWS elements of a group, GROUPS groups, BINS >= n grid points), dense over the grid: the
    gradient of z is then a sum over the first dimension, in a fixed order, with nothing to scatter.
    """
    part = (tl.program_id(0) % parts).to(tl.int64)
    group = tl.program_id(0) // parts * GROUPS + tl.arange(0, GROUPS)
    known = group < groups
    bins = tl.arange(0, BINS)
    q = tl.load(q_ptr + group, mask=known, other=1.0).to(tl.float32)[None, :]
    alpha = tl.load(alpha_ptr + group, mask=known, other=1.0).to(tl.float32)[None, :]
    q_, alpha_ = q[:, :, None], alpha[:, :, None]
    on_table = known[:, None] & (bins < n)[None, :]
    z = tl.load(z_ptr + group[:, None].to(tl.int64) * n + bins[None, :], mask=on_table, other=0.0).to(tl.float32)
    z = z[None, :, :]
    sum_q = tl.zeros((GROUPS,), tl.float32)
    sum_alpha = tl.zeros((GROUPS,), tl.float32)
    sum_z = tl.zeros((GROUPS, BINS), tl.float32)
    for tile in range(tiles):
        element = (part * tiles + tile) * ROWS + tl.arange(0, ROWS)
        above = element // inner
        outer = above // middle
        row = ((outer[:, None] * g1 + (group // g2)[None, :]) * middle + (above % middle)[:, None]) * g2
        at = (row + (group % g2)[None, :]) * inner + (element % inner)[:, None]
        inside = (element < per_group)[:, None] & known[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + at, mask=inside, other=0.0).to(tl.float32)
        c, d = _nearest(x, q, k)
        steps = (bins.to(tl.float32) - k)[None, None, :] - c[:, :, None]
        keep = (bins < n)[None, None, :]
        if HALF >= 0:
            keep = keep & (tl.abs(steps) <= HALF)
        w = tl.where(keep, tl.exp2(_exponent(d[:, :, None], q_, alpha_, steps, LAPLACIAN)), 0.0)
        p = w / tl.sum(w, axis=2)[:, :, None]
        # Points outside the window get 0, also where x and so phi is NaN.
        if WANT_Z:
            sum_z += tl.sum(tl.where(keep, p * grad[:, :, None], 0.0), axis=0)
        if (WANT_X or WANT_Q) or WANT_ALPHA:
            phi = tl.sum(p * z, axis=2)
            centred = tl.where(keep, p * (z - phi[:, :, None]), 0.0)
            if WANT_Q or WANT_ALPHA:
                if LAPLACIAN:
                    second = tl.sum(centred * tl.abs(steps), axis=2)
                else:
                    second = tl.sum(centred * steps * steps, axis=2)
            if LAPLACIAN:
                upper = tl.sum(tl.where(steps > 0, centred, tl.where(steps < 0, -centred, 0.0)), axis=2)
                off_centre = tl.sum(tl.where(steps != 0, centred, 0.0), axis=2)
                side = tl.where(d > 0, 1.0, tl.where(d < 0, -1.0, 0.0))
                # Exactly 0 beyond the grid, where d may be huge; d * upper + abs(d) * off_centre would leave the
                # rounding of one product behind.
                first = upper + side * off_centre
            else:
                first = tl.sum(centred * (steps - tl.sum(p * steps, axis=2)[:, :, None]), axis=2)
            if WANT_X:
                if LAPLACIAN:
                    by_x = alpha * first
                else:
                    by_x = 2.0 * (alpha * q) * first
                tl.store(dx_ptr + at, (grad * by_x).to(dx_ptr.dtype.element_ty), mask=inside)
            if WANT_Q:
                if LAPLACIAN:
                    by_q = -c * (alpha * first) - alpha * second
                else:
                    by_q = 2.0 * alpha * ((d - c * q) * first - q * second)
                sum_q += tl.sum(grad * by_q, axis=0)
            if WANT_ALPHA:
                if LAPLACIAN:
                    by_alpha = d * first - q * second
                else:
                    by_alpha = q * (2.0 * d * first - q * second)
                sum_alpha += tl.sum(grad * by_alpha, axis=0)
    into = part * groups + group
    if WANT_Q:
        tl.store(dq_ptr + into, sum_q, mask=known)
    if WANT_ALPHA:
        tl.store(dalpha_ptr + into, sum_alpha, mask=known)
    if WANT_Z:
        tl.store(dz_ptr + into[:, None] * n + bins[None, :], sum_z, mask=on_table)


# -- SQUAF's sampling and stepping in Triton --------------------------------------------------------------
#
# One pass, one table read for each element, no random tensor.
#
# The layout of x and the meaning of HALF are those above; draws are those of `symbols`.


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


# -- launches the fused kernels on folded tensors, and adds up the partial sums they leave, in a fixed order ---


# Triton's kernels are launched by indexing, and take plain numbers for their constants; no type says so.
_forward_kernel: Any = squaf_forward_kernel
_backward_kernel: Any = squaf_backward_kernel
_sample_kernel: Any = squaf_sample_kernel
_step_kernel: Any = squaf_step_kernel

BLOCK = 1024  # elements that one program of the others takes
# Weights that one program of the dense backward holds at a time.
TILE = 8192
# Tiles one program walks through before it writes its partial sums, and the most programs there are for a
# group.
TILES, PARTS = 8, 1024


def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, layout: Layout, window: int, laplacian: bool) -> Tensor:
    """phi of a folded, contiguous x; q, alpha of shape (groups,) and z of shape (groups, n)."""
    out = torch.empty_like(x)
    with on_device_of(x):
        if soft.can_run(x, q, alpha, z, layout=layout, window=window, laplacian=laplacian):
            soft.forward(x, q, alpha, z, out=out, layout=layout, window=window)
            return out
        n = z.shape[-1]
        _, g1, middle, g2, inner = layout.shape
        _forward_kernel[(divide_up(x.numel(), BLOCK),)](
            x, out, q, alpha, z, x.numel(), n, float(n // 2), g1, middle, g2, inner,
            HALF=_half(window, n), LAPLACIAN=laplacian, SHARED=layout.groups == 1, BLOCK=BLOCK,
        )  # fmt: skip
    return out


def backward(
    grad: Tensor | None,
    x: Tensor,
    q: Tensor,
    alpha: Tensor,
    z: Tensor,
    *,
    layout: Layout,
    window: int,
    laplacian: bool,
    wanted: int = EVERY,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """As `eager.backward`."""
    groups, n = z.shape
    grad = torch.ones_like(x) if grad is None else grad
    dx = torch.empty_like(x) if wanted & BY_X else None
    with on_device_of(x):
        if soft.can_run(x, q, alpha, z, layout=layout, window=window, laplacian=laplacian, other=grad, wanted=wanted):
            return dx, *soft.backward(grad, x, q, alpha, z, dx=dx, layout=layout, window=window, wanted=wanted)
        if any_window.can_run(x, grad, points=n, layout=layout):
            half = _half(window, n)
            how = {"layout": layout, "half": half, "laplacian": laplacian, "wanted": wanted}
            return dx, *any_window.backward(grad, x, q, alpha, z, dx=dx, **how)
        _, g1, middle, g2, inner = layout.shape
        bins = max(16, power_of_two(n))
        # Neighbouring groups share a tile where the elements of one group do not lie side by side.
        groups_per_tile = 1 if groups == 1 or inner >= 32 else min(16, power_of_two(groups))
        rows = max(1, TILE // (bins * groups_per_tile))
        # The split depends on the elements of one group alone: replicas folded in by vmap sum as they would
        # alone.
        tiles = max(TILES, divide_up(layout.per_group, rows * PARTS))
        parts = divide_up(layout.per_group, rows * tiles)
        dq, dalpha = (
            torch.empty(parts, groups, device=x.device) if wanted & flag else None for flag in (BY_Q, BY_ALPHA)
        )
        dz = torch.empty(parts, groups, n, device=x.device) if wanted & BY_Z else None
        # What is not wanted is not written; the kernel is then compiled without it, and x stands in for the pointer.
        into = [x if tensor is None else tensor for tensor in (dx, dq, dalpha, dz)]
        _backward_kernel[(parts * divide_up(groups, groups_per_tile),)](
            grad, x, q, alpha, z, *into,
            layout.per_group, groups, n, float(n // 2), g1, middle, g2, inner, tiles, parts,
            HALF=_half(window, n), LAPLACIAN=laplacian, BINS=bins, ROWS=rows, GROUPS=groups_per_tile,
            WANT_X=bool(wanted & BY_X), WANT_Q=bool(wanted & BY_Q), WANT_ALPHA=bool(wanted & BY_ALPHA),
            WANT_Z=bool(wanted & BY_Z),
        )  # fmt: skip
        dq, dalpha, dz = (
            None if partial is None else partial.sum(0, dtype=torch.float64) for partial in (dq, dalpha, dz)
        )
        return dx, dq, dalpha, dz


def choose(
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
    """The chosen values of a folded, contiguous x, or their symbols where z is None; see `eager.choose`."""
    symbols = z is None
    out = torch.empty_like(x, dtype=torch.int32 if symbols else x.dtype)
    _, g1, middle, g2, inner = layout.shape
    shape = (points, float(points // 2), g1, middle, g2, inner)
    table = q if z is None else z  # not read for symbols
    grid = (divide_up(x.numel(), BLOCK),)
    with on_device_of(x):
        case = {"points": points, "layout": layout}
        if modes.can_choose(x, seed, symbols=symbols, window=window, laplacian=laplacian, **case):
            modes.choose(x, seed, q, alpha, z, out=out, **case)
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


def step_backward(grad: Tensor, x: Tensor, q: Tensor, *, points: int, layout: Layout) -> Tensor:
    """The gradient of z (groups, n) for the step function."""
    if not modes.can_step_back(grad, x, points=points, layout=layout):
        return eager.step_backward(grad, x, q, points=points, layout=layout)
    with on_device_of(x):
        return modes.step_backward(grad, x, q, points=points, layout=layout)


def _half(window: int, n: int) -> int:
    """Neighbours kept on each side; -1 for the full sum, which a window wide enough for any point also is."""
    return window // 2 if 0 < window < 2 * n - 1 else -1
