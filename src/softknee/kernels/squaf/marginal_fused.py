"""Launches the kernels of the marginal on folded tensors, and adds up the partial sums they leave, in a fixed order."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import divide_up, on_device_of, power_of_two
from .fused import PARTS, TILE, TILES, _exponent, _half, _nearest
from .layout import Layout
from .marginal import Gradients

# -- the marginal of SQUAF in Triton ----------------------------------------------------------------------
#
# Sums of P(y_i | x) over x, and the gradient of a function of these sums.
#
# Tiles and layout are those of `fused.py`. Each program writes sums of its own, which are added up afterwards
# in a fixed order: there is nothing to scatter and no atomic addition, so results repeat to the bit.


@triton.jit
def marginal_kernel(
    x_ptr, q_ptr, alpha_ptr, sums_ptr, per_group, groups, n, k, g1, middle, g2, inner, tiles, parts,
    HALF: tl.constexpr, LAPLACIAN: tl.constexpr, BINS: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """This program's sums of P(y_i | x), row `part` of the partials (parts, groups, n).

    A tile is (ROWS elements of a group, GROUPS groups, BINS >= n points), dense over the grid as in SQUAF's backward
    pass; it lives in registers, so no tensor of elements times points exists.
    """
    part = (tl.program_id(0) % parts).to(tl.int64)
    group = tl.program_id(0) // parts * GROUPS + tl.arange(0, GROUPS)
    known = group < groups
    bins = tl.arange(0, BINS)
    q = tl.load(q_ptr + group, mask=known, other=1.0).to(tl.float32)[None, :]
    alpha = tl.load(alpha_ptr + group, mask=known, other=1.0).to(tl.float32)[None, :]
    sums = tl.zeros((GROUPS, BINS), tl.float32)
    for tile in range(tiles):
        element = (part * tiles + tile) * ROWS + tl.arange(0, ROWS)
        above = element // inner
        row = (((above // middle)[:, None] * g1 + (group // g2)[None, :]) * middle + (above % middle)[:, None]) * g2
        at = (row + (group % g2)[None, :]) * inner + (element % inner)[:, None]
        inside = (element < per_group)[:, None] & known[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        c, d = _nearest(x, q, k)
        steps = (bins.to(tl.float32) - k)[None, None, :] - c[:, :, None]
        keep = (bins < n)[None, None, :]
        if HALF >= 0:
            keep = keep & (tl.abs(steps) <= HALF)
        e = _exponent(d[:, :, None], q[:, :, None], alpha[:, :, None], steps, LAPLACIAN)
        w = tl.where(keep, tl.exp2(e), 0.0)
        p = w / tl.sum(w, axis=2)[:, :, None]
        sums += tl.sum(tl.where(keep & inside[:, :, None], p, 0.0), axis=0)
    into = (part * groups + group)[:, None] * n + bins[None, :]
    tl.store(sums_ptr + into, sums, mask=known[:, None] & (bins < n)[None, :])


@triton.jit
def marginal_backward_kernel(
    x_ptr, q_ptr, alpha_ptr, slope_ptr, dx_ptr, dq_ptr, dalpha_ptr,
    per_group, groups, n, k, g1, middle, g2, inner, tiles, parts,
    HALF: tl.constexpr, LAPLACIAN: tl.constexpr, PARAMETERS: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The gradient of sum_i slope_i sum_x P(y_i | x) by x, and this program's sums for q and alpha.

    It is the gradient of SQUAF with the slopes for its values z; the kept points are walked twice, once for the mean
    and once for the moments around it, because moments around 0 would cancel.
    """
    part = (tl.program_id(0) % parts).to(tl.int64)
    group = tl.program_id(0) // parts * GROUPS + tl.arange(0, GROUPS)
    known = group < groups
    q = tl.load(q_ptr + group, mask=known, other=1.0).to(tl.float32)[None, :]
    alpha = tl.load(alpha_ptr + group, mask=known, other=1.0).to(tl.float32)[None, :]
    table = slope_ptr + group.to(tl.int64)[None, :] * n
    sum_q = tl.zeros((GROUPS,), tl.float32)
    sum_alpha = tl.zeros((GROUPS,), tl.float32)
    for tile in range(tiles):
        element = (part * tiles + tile) * ROWS + tl.arange(0, ROWS)
        above = element // inner
        row = (((above // middle)[:, None] * g1 + (group // g2)[None, :]) * middle + (above % middle)[:, None]) * g2
        at = (row + (group % g2)[None, :]) * inner + (element % inner)[:, None]
        inside = (element < per_group)[:, None] & known[None, :]
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        c, d = _nearest(x, q, k)
        if HALF >= 0:
            lowest = (c + k).to(tl.int32) - HALF
            count = 2 * HALF + 1
        else:
            lowest = tl.zeros((ROWS, GROUPS), tl.int32)
            count = n
        weight = tl.zeros((ROWS, GROUPS), tl.float32)
        total = tl.zeros((ROWS, GROUPS), tl.float32)
        moment = tl.zeros((ROWS, GROUPS), tl.float32)
        for i in range(count):
            index = lowest + i
            on_grid = (index >= 0) & (index < n) & known[None, :]
            steps = index.to(tl.float32) - k - c
            w = tl.where(on_grid, tl.exp2(_exponent(d, q, alpha, steps, LAPLACIAN)), 0.0)
            weight += w
            total += w * tl.load(table + index, mask=on_grid, other=0.0).to(tl.float32)
            moment += w * steps
        # Where a group is unknown nothing is kept; any weight but 0 will do, its results are not stored.
        weight = tl.where(known[None, :], weight, 1.0)
        mean = total / weight
        middle_step = moment / weight
        first = tl.zeros((ROWS, GROUPS), tl.float32)
        second = tl.zeros((ROWS, GROUPS), tl.float32)
        off_centre = tl.zeros((ROWS, GROUPS), tl.float32)
        for i in range(count):
            index = lowest + i
            on_grid = (index >= 0) & (index < n) & known[None, :]
            steps = index.to(tl.float32) - k - c
            p = tl.where(on_grid, tl.exp2(_exponent(d, q, alpha, steps, LAPLACIAN)) / weight, 0.0)
            centred = p * (tl.load(table + index, mask=on_grid, other=0.0).to(tl.float32) - mean)
            centred = tl.where(on_grid, centred, 0.0)
            if LAPLACIAN:
                first += tl.where(steps > 0, centred, tl.where(steps < 0, -centred, 0.0))
                off_centre += tl.where(steps != 0, centred, 0.0)
                second += centred * tl.abs(steps)
            else:
                first += centred * (steps - middle_step)
                second += centred * steps * steps
        if LAPLACIAN:
            side = tl.where(d > 0, 1.0, tl.where(d < 0, -1.0, 0.0))
            by_x = alpha * (first + side * off_centre)
            by_q = -c * by_x - alpha * second
            by_alpha = d * (first + side * off_centre) - q * second
        else:
            by_x = 2.0 * (alpha * q) * first
            by_q = 2.0 * alpha * ((d - c * q) * first - q * second)
            by_alpha = q * (2.0 * d * first - q * second)
        tl.store(dx_ptr + at, by_x.to(dx_ptr.dtype.element_ty), mask=inside)
        if PARAMETERS:
            sum_q += tl.sum(tl.where(inside, by_q, 0.0), axis=0)
            sum_alpha += tl.sum(tl.where(inside, by_alpha, 0.0), axis=0)
    if PARAMETERS:
        into = part * groups + group
        tl.store(dq_ptr + into, sum_q, mask=known)
        tl.store(dalpha_ptr + into, sum_alpha, mask=known)


# -- launches on folded tensors, and the partial sums added up in a fixed order -----------------------------


# Triton's kernels are launched by indexing, and take plain numbers for their constants; no type says so.
_sums_kernel: Any = marginal_kernel
_gradients_kernel: Any = marginal_backward_kernel


def fused_sums(x: Tensor, q: Tensor, alpha: Tensor, n: int, *, layout: Layout, window: int, laplacian: bool) -> Tensor:
    """As `eager_sums`: one kernel leaves partial sums, which are then added in order."""
    groups = layout.groups
    if x.numel() == 0:
        return torch.zeros(groups, n, dtype=torch.float64, device=x.device)
    bins = max(16, power_of_two(n))
    rows, together, tiles, parts = _split(layout, bins=bins)
    with on_device_of(x):
        partial = torch.empty(parts, groups, n, device=x.device)
        _sums_kernel[(parts * divide_up(groups, together),)](
            x, q, alpha, partial,
            layout.per_group, groups, n, float(n // 2), *layout.shape[1:], tiles, parts,
            HALF=_half(window, n), LAPLACIAN=laplacian, BINS=bins, ROWS=rows, GROUPS=together,
        )  # fmt: skip
        return partial.sum(0, dtype=torch.float64)


def fused_gradients(
    slope: Tensor,
    x: Tensor,
    q: Tensor,
    alpha: Tensor,
    *,
    layout: Layout,
    window: int,
    laplacian: bool,
    parameters: bool,
) -> Gradients:
    """As `eager_gradients`, in one kernel."""
    groups, n = slope.shape
    dx = torch.empty_like(x)
    if x.numel() == 0:
        return dx, torch.zeros(groups, device=x.device), torch.zeros(groups, device=x.device)
    rows, together, tiles, parts = _split(layout, bins=16)
    with on_device_of(x):
        dq = torch.empty(parts if parameters else 0, groups, device=x.device)
        dalpha = torch.empty_like(dq)
        _gradients_kernel[(parts * divide_up(groups, together),)](
            x, q, alpha, slope.float().contiguous(), dx, dq, dalpha,
            layout.per_group, groups, n, float(n // 2), *layout.shape[1:], tiles, parts,
            HALF=_half(window, n), LAPLACIAN=laplacian, PARAMETERS=parameters, ROWS=rows, GROUPS=together,
        )  # fmt: skip
        if not parameters:
            return dx, None, None
        return dx, dq.sum(0, dtype=torch.float64), dalpha.sum(0, dtype=torch.float64)


def _split(layout: Layout, *, bins: int) -> tuple[int, int, int, int]:
    """(elements and groups of a tile, tiles of a program, programs): a matter of shapes alone, so sums repeat."""
    together = 1 if layout.groups == 1 or layout.shape[4] >= 32 else min(16, power_of_two(layout.groups))
    rows = max(1, TILE // (bins * together))
    tiles = min(divide_up(layout.per_group, rows), max(TILES, divide_up(layout.per_group, rows * PARTS)))
    return rows, together, tiles, divide_up(layout.per_group, rows * tiles)
