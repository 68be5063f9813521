"""Compiles and launches the fastest form of SQUAF's usual case: five points, Gaussian weights, an NVIDIA GPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..layout import BY_ALPHA, BY_Q, BY_X, BY_Z, Layout
from .launch import (
    KINDS,
    Kernel,
    backward_bytes,
    backward_threads,
    bins_of,
    blocks,
    compiled,
    fits,
    forward_bytes,
    processors,
    shape,
    summed,
)

FORWARD_THREADS = 256
# Vectors a thread should find to do before another block is worth starting.
_STEPS_FORWARD, _STEPS_BACKWARD = 4, 16


def can_run(
    x: Tensor,
    q: Tensor,
    alpha: Tensor,
    z: Tensor,
    *,
    layout: Layout,
    window: int,
    laplacian: bool,
    other: Tensor | None = None,
    wanted: int | None = None,
) -> bool:
    """Whether this case is one the CUDA source was written for; `wanted` is None for the value, else for these
    gradients."""
    if window != 5 or laplacian or not fits(x, points=z.shape[-1], layout=layout):
        return False
    if other is not None and (other.dtype != x.dtype or other.data_ptr() % 16):
        return False
    return _kernel(x, q, alpha, z, layout=layout, wanted=wanted) is not None


def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, out: Tensor, layout: Layout, window: int) -> None:
    """Write phi(x) into out."""
    kernel = _kernel(x, q, alpha, z, layout=layout, wanted=None)
    assert kernel is not None
    assert window == 5
    device, rows = x.device.index or 0, _alike(q, alpha, z)
    kernel(
        grid=(forward_blocks(layout, device), layout.groups),
        threads=FORWARD_THREADS,
        args=[x.data_ptr(), out.data_ptr(), *_addresses(rows), *shape(layout)],
        shared=forward_bytes(z.shape[-1]),
        device=device,
    )


def backward(
    grad: Tensor,
    x: Tensor,
    q: Tensor,
    alpha: Tensor,
    z: Tensor,
    *,
    dx: Tensor | None,
    layout: Layout,
    window: int,
    wanted: int,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Write the gradient of x into dx, if it is wanted; return those of q, alpha (groups,) and z (groups, n)."""
    groups, n = z.shape
    kernel = _kernel(x, q, alpha, z, layout=layout, wanted=wanted)
    assert kernel is not None
    assert window == 5
    count, bins = backward_blocks(layout, n), bins_of(n, wanted)
    # Where nothing is written, x stands in for the pointer.
    partial = torch.empty(groups, count, bins, device=x.device) if bins else x
    rows, into = _alike(q, alpha, z), x if dx is None else dx
    kernel(
        grid=(count, groups),
        threads=backward_threads(n),
        args=[*(one.data_ptr() for one in (grad, x, into, partial)), *_addresses(rows), *shape(layout)],
        shared=backward_bytes(n, backward_threads(n), bins=bins),
        device=x.device.index or 0,
    )
    if not bins:
        return None, None, None
    by_q, by_alpha, by_z = summed(partial, n, wanted)
    if q.dtype == alpha.dtype == z.dtype:
        return tuple(None if one is None else one.to(z.dtype) for one in (by_q, by_alpha, by_z))  # pyright: ignore
    return by_q, by_alpha, by_z


def forward_blocks(layout: Layout, device: int) -> int:
    """As many blocks as run at once, so that each fills its table one time; no sum depends on their number."""
    most = max(1, 6 * processors(device) // layout.groups)
    return blocks(layout, threads=FORWARD_THREADS, steps=_STEPS_FORWARD, most=most)


def backward_blocks(layout: Layout, n: int) -> int:
    threads = backward_threads(n)
    return blocks(layout, threads=threads, steps=_STEPS_BACKWARD, most=1056 * 256 // threads)


def _parameter_kind(q: Tensor, alpha: Tensor, z: Tensor) -> int:
    """The kernels read parameters of one type as they are; others become float32 first."""
    same = q.dtype == alpha.dtype == z.dtype
    return KINDS.get(z.dtype, 0) if same else 0


def _alike(q: Tensor, alpha: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The parameters as the kernels read them: of one type, and contiguous."""
    if q.dtype == alpha.dtype == z.dtype and z.dtype in KINDS:
        return q.contiguous(), alpha.contiguous(), z.contiguous()
    return q.float().contiguous(), alpha.float().contiguous(), z.float().contiguous()


def _addresses(rows: tuple[Tensor, Tensor, Tensor]) -> list[int]:
    """q, alpha and z as the kernels take them: without anchors, for these are effective values."""
    q, alpha, z = rows
    return [q.data_ptr(), 0, alpha.data_ptr(), 0, z.data_ptr()]


def _kernel(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, layout: Layout, wanted: int | None) -> Kernel | None:
    """The kernel for these tensors: that of the value, or that of the wanted gradients; None where there is none."""
    one_group, parameters = layout.groups == 1, _parameter_kind(q, alpha, z)
    return soft_kernel(x.device.index or 0, KINDS[x.dtype], parameters, z.shape[-1], one_group, wanted)


@cache
def soft_kernel(device: int, kind: int, parameters: int, n: int, one_group: bool, wanted: int | None) -> Kernel | None:
    """SQUAF's own kernel, for the value (wanted is None) or for gradients."""
    common: dict[str, Any] = {
        "device": device,
        "kind": kind,
        "points": n,
        "one_group": one_group,
        "parameters": parameters,
    }
    if wanted is None:
        return compiled("squaf_forward", threads=FORWARD_THREADS, **common)
    flags = {"BY_X": BY_X, "BY_Q": BY_Q, "BY_ALPHA": BY_ALPHA, "BY_Z": BY_Z}
    chosen: dict[str, Any] = {name: int(bool(wanted & flag)) for name, flag in flags.items()}
    return compiled("squaf_backward", "soft_backward.cu", threads=backward_threads(n), **common, **chosen)
