"""Launches the fused kernels on folded tensors, and adds up the partial sums they leave, in a fixed order."""

from typing import Any

import torch
from torch import Tensor

from ..launch import divide_up, on_device_of, power_of_two
from .cuda import any_window, soft
from .layout import Layout
from .triton_kernels import squaf_backward_kernel, squaf_forward_kernel
from .wanted import BY_ALPHA, BY_Q, BY_X, BY_Z, EVERY

# Triton's kernels are launched by indexing, and take plain numbers for their constants; no type says so.
_forward_kernel: Any = squaf_forward_kernel
_backward_kernel: Any = squaf_backward_kernel

# Weights that one program of the dense backward holds at a time.
TILE = 8192
# Tiles one program walks through before it writes its partial sums, and the most programs there are for a
# group.
TILES, PARTS = 8, 1024


def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, layout: Layout, window: int, laplacian: bool) -> Tensor:
    """phi of a folded, contiguous x; q, alpha of shape (groups,) and z of shape (groups, n)."""
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    with on_device_of(x):
        if soft.can_run(x, q, alpha, z, layout=layout, window=window, laplacian=laplacian):
            soft.forward(x, q, alpha, z, out=out, layout=layout, window=window)
            return out
        block, n = 1024, z.shape[-1]
        _, g1, middle, g2, inner = layout.shape
        _forward_kernel[(divide_up(x.numel(), block),)](
            x, out, q, alpha, z, x.numel(), n, float(n // 2), g1, middle, g2, inner,
            HALF=_half(window, n), LAPLACIAN=laplacian, SHARED=layout.groups == 1, BLOCK=block,
        )  # fmt: skip
    return out


def backward(
    grad: Tensor,
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
    """Gradients of x (folded), q and alpha (groups,) and z (groups, n), the sums in float64; None where not wanted."""
    groups, n = z.shape
    dx = torch.empty_like(x) if wanted & BY_X else None
    if x.numel() == 0:
        zeros = torch.zeros(groups, n + 2, device=x.device)
        return _gathered(dx, [g if wanted & flag else None for g, flag in _in_columns(zeros)])
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
        together = 1 if groups == 1 or inner >= 32 else min(16, power_of_two(groups))
        rows = max(1, TILE // (bins * together))
        # The split depends on the elements of one group alone: replicas folded in by vmap sum as they would
        # alone.
        tiles = max(TILES, divide_up(layout.per_group, rows * PARTS))
        parts = divide_up(layout.per_group, rows * tiles)
        dq, dalpha = (
            torch.empty(parts, groups, device=x.device) if wanted & flag else None for flag in (BY_Q, BY_ALPHA)
        )
        dz = torch.empty(parts, groups, n, device=x.device) if wanted & BY_Z else None
        # What is not wanted is not written; the kernel is then compiled without it, and x stands in for the pointer.
        into = [x if one is None else one for one in (dx, dq, dalpha, dz)]
        _backward_kernel[(parts * divide_up(groups, together),)](
            grad, x, q, alpha, z, *into,
            layout.per_group, groups, n, float(n // 2), g1, middle, g2, inner, tiles, parts,
            HALF=_half(window, n), LAPLACIAN=laplacian, BINS=bins, ROWS=rows, GROUPS=together,
            WANT_X=bool(wanted & BY_X), WANT_Q=bool(wanted & BY_Q), WANT_ALPHA=bool(wanted & BY_ALPHA),
            WANT_Z=bool(wanted & BY_Z),
        )  # fmt: skip
        return _gathered(dx, [None if one is None else one.sum(0, dtype=torch.float64) for one in (dq, dalpha, dz)])


def _gathered(
    dx: Tensor | None, rest: list[Tensor | None]
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    dq, dalpha, dz = rest
    return dx, dq, dalpha, dz


def _in_columns(sums: Tensor) -> tuple[tuple[Tensor, int], ...]:
    """The columns for q, alpha and z of a table of sums, each with its flag."""
    return (sums[:, 0], BY_Q), (sums[:, 1], BY_ALPHA), (sums[:, 2:], BY_Z)


def _half(window: int, n: int) -> int:
    """Neighbours kept on each side; -1 for the full sum, which a window wide enough for any point also is."""
    return window // 2 if 0 < window < 2 * n - 1 else -1
