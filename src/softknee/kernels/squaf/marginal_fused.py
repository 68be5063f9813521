"""Launches the kernels of the marginal on folded tensors, and adds up the partial sums they leave, in a fixed order."""

from typing import Any

import torch
from torch import Tensor

from ..launch import divide_up, on_device_of, power_of_two
from .fused import PARTS, TILE, TILES, _half
from .layout import Layout
from .marginal_eager import Gradients
from .marginal_kernels import marginal_backward_kernel, marginal_kernel

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
