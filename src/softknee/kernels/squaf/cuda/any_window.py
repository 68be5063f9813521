"""The backward pass of what `soft.py` was not written for: any window, Laplacian weights, a table for every channel.

One element a thread at a time, two walks over the points of its window. As in `soft` a thread adds gradients
of z into bins of its own; where the elements of one group do not lie side by side (channels last), 32 neighbouring
groups share a block, so that a warp still reads one piece of memory.
"""

from functools import cache

import torch
from torch import Tensor

from ..layout import BY_ALPHA, BY_Q, BY_X, BY_Z, Layout
from . import launch
from .launch import Kernel, compiled

_TOGETHER = 32
_ELEMENTS_PER_THREAD = 64
_MOST_BLOCKS = 2048


def can_run(x: Tensor, grad: Tensor, *, points: int, layout: Layout) -> bool:
    """Whether the kernel was written for this case: nearly any on a GPU of NVIDIA's."""
    if x.device.type != "cuda" or x.dtype not in launch.KINDS or grad.dtype != x.dtype:
        return False
    if (
        launch.backward_threads(points) == 0
        or layout.per_group >= 2**31
        or -(-layout.groups // _together(layout)) > 65535
    ):
        return False
    return _kernel(x.device.index or 0, launch.KINDS[x.dtype], points, _together(layout), 0, False, BY_X) is not None


def backward(
    grad: Tensor,
    x: Tensor,
    q: Tensor,
    alpha: Tensor,
    z: Tensor,
    *,
    dx: Tensor | None,
    layout: Layout,
    half: int,
    laplacian: bool,
    wanted: int,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """As `soft.backward`; `half` points are kept on each side of the nearest, all for -1."""
    groups, n = z.shape
    device, together = x.device.index or 0, _together(layout)
    threads, bins = launch.backward_threads(n), launch.bins_of(n, wanted)
    rows = threads // together
    count = max(1, min(_MOST_BLOCKS, -(-layout.per_group // (rows * _ELEMENTS_PER_THREAD))))
    kernel = _kernel(device, launch.KINDS[x.dtype], n, together, half, laplacian, wanted)
    assert kernel is not None
    partial = torch.empty(groups, count, bins, device=x.device) if bins else x
    parameters = [one.float().contiguous() for one in (q, alpha, z)]
    into = x if dx is None else dx
    _, g1, middle, g2, inner = layout.shape
    kernel(
        grid=(count, -(-groups // together)),
        threads=threads,
        args=[
            *(one.data_ptr() for one in (grad, x, into, partial, *parameters)),
            layout.per_group, groups, g1, middle, g2, inner,
        ],
        shared=(n * together + bins * threads) * 4,
        device=device,
    )  # fmt: skip
    return launch.summed(partial, n, wanted) if bins else (None, None, None)


def _together(layout: Layout) -> int:
    """Groups that share a block."""
    return 1 if layout.groups == 1 or layout.shape[4] >= _TOGETHER else _TOGETHER


@cache
def _kernel(
    device: int, kind: int, points: int, together: int, half: int, laplacian: bool, wanted: int
) -> Kernel | None:
    flags = {"BY_X": BY_X, "BY_Q": BY_Q, "BY_ALPHA": BY_ALPHA, "BY_Z": BY_Z}
    return compiled(
        "squaf_backward_any", "any_backward.cu", device=device, kind=kind, points=points, one_group=False,
        threads=launch.backward_threads(points), TOGETHER=together, HALF=half, LAPLACIAN=int(laplacian),
        **{name: int(bool(wanted & flag)) for name, flag in flags.items()},
    )  # fmt: skip
