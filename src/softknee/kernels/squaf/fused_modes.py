"""Launches the fused kernels of SQUAF's other modes on folded tensors."""

from typing import Any

import torch
from torch import Tensor

from ..launch import divide_up, on_device_of
from .cuda import modes as cuda_modes
from .fused import _half
from .layout import Layout
from .triton_modes import squaf_sample_kernel, squaf_step_kernel

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
    """The chosen values of a folded, contiguous x, or their symbols where z is None; see `eager_modes.forward`."""
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
