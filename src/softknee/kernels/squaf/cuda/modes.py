"""Compiles and launches the CUDA C++ of SQUAF-P and SQUAF-S: five points, Gaussian weights, an NVIDIA GPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..layout import Layout
from . import launch
from .launch import compiled

_THREADS = 256
# Vectors a thread should find to do before another block is worth starting.
_STEPS_STEP, _STEPS_SAMPLED, _STEPS_BACKWARD = 4, 8, 16
# The table of a block is small: many blocks, so that the last ones to finish do not leave the others waiting.
_MOST_BLOCKS = 2**20


def can_choose(
    x: Tensor, seed: Tensor | None, *, symbols: bool, points: int, layout: Layout, window: int, laplacian: bool
) -> bool:
    """Whether the CUDA source was written for this case; without a seed it is the step function's."""
    usual = seed is None or (window == 5 and not laplacian and seed.numel() == 1)
    if not usual or not launch.fits(x, points=points, layout=layout):
        return False
    kind, one = launch.KINDS[x.dtype], layout.groups == 1
    # Asked for as `choose` does: the cache tells a default from the same number given.
    return _choose(x.device.index or 0, kind, points, one, seed is not None, symbols, parameters=0) is not None


def choose(
    x: Tensor,
    seed: Tensor | None,
    q: Tensor,
    alpha: Tensor,
    z: Tensor | None,
    *,
    out: Tensor,
    points: int,
    layout: Layout,
) -> None:
    """Write the chosen values into out, or their symbols where z is None."""
    rows = [one.float().contiguous() for one in (q, alpha, q if z is None else z)]
    addresses = [rows[0].data_ptr(), 0, rows[1].data_ptr(), 0, rows[2].data_ptr()]
    launch_choice(x, seed, addresses, out=out, points=points, layout=layout, symbols=z is None)


def launch_choice(
    x: Tensor,
    seed: Tensor | None,
    rows: list[int],
    *,
    out: Tensor,
    points: int,
    layout: Layout,
    symbols: bool = False,
    parameters: int = 0,
) -> None:
    """The same with q, its anchor, alpha, its anchor and z as addresses of numbers of the kind `parameters`."""
    device = x.device.index or 0
    kernel = _choose(
        device, launch.KINDS[x.dtype], points, layout.groups == 1, seed is not None, symbols, parameters=parameters
    )
    drawn, steps = (0, _STEPS_STEP) if seed is None else (seed.data_ptr(), _STEPS_SAMPLED)
    kernel(
        grid=(launch.blocks(layout, threads=_THREADS, steps=steps, most=_MOST_BLOCKS), layout.groups),
        threads=_THREADS,
        args=[x.data_ptr(), out.data_ptr(), drawn, *rows, *launch.shape(layout)],
        shared=0,
        device=device,
    )


def can_step_back(grad: Tensor, x: Tensor, *, points: int, layout: Layout) -> bool:
    """Whether the gradient of z for the step function can be summed by the CUDA source."""
    alike = grad.dtype == x.dtype and grad.data_ptr() % 16 == 0
    if not alike or not launch.fits(x, points=points, layout=layout):
        return False
    return _step_backward(x.device.index or 0, launch.KINDS[x.dtype], points, layout.groups == 1) is not None


def step_backward(grad: Tensor, x: Tensor, q: Tensor, *, points: int, layout: Layout) -> Tensor:
    """The gradient of z (groups, n)."""
    device = x.device.index or 0
    threads = launch.backward_threads(points)
    blocks = launch.blocks(layout, threads=threads, steps=_STEPS_BACKWARD, most=1056 * 256 // threads)
    partial = torch.empty(layout.groups, blocks, points, device=x.device)
    row = q.float().contiguous()
    _step_backward(device, launch.KINDS[x.dtype], points, layout.groups == 1)(
        grid=(blocks, layout.groups),
        threads=threads,
        args=[grad.data_ptr(), x.data_ptr(), partial.data_ptr(), row.data_ptr(), 0, *launch.shape(layout)],
        shared=points * threads * 4,
        device=device,
    )
    return partial.sum(1, dtype=torch.float64)


@cache
def _choose(
    device: int, kind: int, points: int, shared: bool, sampled: bool, symbols: bool, *, parameters: int = 0
) -> Any:
    flags = {"SAMPLED": int(sampled), "SYMBOLS": int(symbols), "parameters": parameters}
    return compiled(
        "squaf_choose", "choose.cu", device=device, kind=kind, points=points, one_group=shared, threads=_THREADS,
        **flags,
    )  # fmt: skip


@cache
def _step_backward(device: int, kind: int, points: int, shared: bool) -> Any:
    flags = {"SAMPLED": 0, "SYMBOLS": 1}
    return compiled(
        "squaf_step_backward", "choose.cu", "step_backward.cu", device=device, kind=kind, points=points,
        one_group=shared, threads=launch.backward_threads(points), **flags,
    )  # fmt: skip
