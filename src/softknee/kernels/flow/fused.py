"""Launches the fused kernels on folded tensors, and adds up the partial sums they leave, in a fixed order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..launch import divide_up, on_device_of, power_of_two
from ..squaf.layout import Layout
from .places import scale_of
from .triton_kernels import bend_backward_kernel, bend_kernel

# Triton's kernels are launched by indexing, and take plain numbers for their constants; no type says so.
_forward_kernel: Any = bend_kernel
_backward_kernel: Any = bend_backward_kernel

# Elements of a tile: four for each thread, of which the gradients keep some thirty numbers in registers.
TILE = 512
# The most programs there are for a group.
PARTS = 1024


def forward(x: Tensor, theta: Tensor, *, layout: Layout, low: float, high: float, gated: bool) -> Tensor:
    """`bend` of a folded, contiguous x with theta (groups, n - 1)."""
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    rows, together = _tile(layout)
    parts = divide_up(layout.per_group, rows)
    with on_device_of(x):
        _forward_kernel[(parts * divide_up(layout.groups, together),)](
            x, theta, out, *_numbers(theta, layout, low, high), parts, GATED=gated, ROWS=rows, GROUPS=together
        )
    return out


def backward(
    grad: Tensor,
    x: Tensor,
    theta: Tensor,
    *,
    layout: Layout,
    low: float,
    high: float,
    gated: bool,
    by_x: bool,
    by_theta: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x (folded) and of theta (groups, n - 1), the latter in float64; None where not asked for."""
    dx = torch.empty_like(x) if by_x else None
    if x.numel() == 0:
        return dx, torch.zeros_like(theta) if by_theta else None
    rows, together = _tile(layout)
    # The split depends on the elements of one group alone: replicas folded in by vmap sum as they would alone.
    tiles = divide_up(layout.per_group, rows * PARTS)
    parts = divide_up(layout.per_group, rows * tiles)
    sums = torch.empty(parts, *theta.shape, dtype=torch.float32, device=x.device) if by_theta else None
    # What is not asked for is not written; the kernel is then compiled without it, and x stands in for the pointer.
    into = [x if one is None else one for one in (dx, sums)]
    with on_device_of(x):
        _backward_kernel[(parts * divide_up(layout.groups, together),)](
            grad, x, theta, *into, *_numbers(theta, layout, low, high), tiles, parts,
            GATED=gated, BY_X=by_x, BY_THETA=by_theta,
            BORDERS=power_of_two(theta.shape[1] + 1), ROWS=rows, GROUPS=together,
        )  # fmt: skip
    return dx, None if sums is None else sums.sum(0, dtype=torch.float64)


def _tile(layout: Layout) -> tuple[int, int]:
    """(elements of a group, groups) of a tile; groups share one where the elements of one do not lie side by side."""
    together = 1 if layout.groups == 1 or layout.shape[4] >= 32 else min(16, power_of_two(layout.groups))
    return TILE // together, together


def _numbers(theta: Tensor, layout: Layout, low: float, high: float) -> tuple[float, ...]:
    cells = theta.shape[1] + 1
    return (layout.per_group, layout.groups, cells, *layout.shape[1:], *scale_of(low, high, cells))
