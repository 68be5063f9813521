"""Compiles and launches the CUDA C++ kernels, the fastest form of the usual case: five points, Gaussian
weights, an NVIDIA GPU.

The source is compiled once per storage type and grid size by NVRTC, the run-time compiler that torch carries:
no nvcc is needed. Where that cannot be done, a warning says so once and the Triton kernels run instead; the
variable SOFTKNEE_SQUAF_CUDA=0 asks for them from the start.
"""

import os
import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .cuda_backward import BACKWARD
from .cuda_launch import Kernel, compile_kernel
from .cuda_source import SOURCE
from .layout import Layout
from .wanted import BY_ALPHA, BY_Q, BY_X, BY_Z

VECTOR = 8  # elements per thread and step; as in the source
SHARED_BYTES = 48 * 1024 - 1  # what a block may have without asking the driver
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
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


def fits(x: Tensor, *, points: int, layout: Layout) -> bool:
    """Whether x lies in memory as the source reads it, and the grid has a size that it was written for."""
    if x.device.type != "cuda" or x.dtype not in KINDS or x.data_ptr() % 16:
        return False
    whole_vectors = layout.groups == 1 or layout.shape[4] % VECTOR == 0
    small_enough = layout.groups <= 65535 and layout.per_group // VECTOR < 2**31 - 2**22
    return points >= 5 and backward_threads(points) > 0 and whole_vectors and small_enough


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


def summed(partial: Tensor, n: int, wanted: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of q, alpha and z from the sums of the blocks (groups, blocks, bins), in a fixed order."""
    sums = partial.sum(1)
    first = n if wanted & BY_Z else 0
    return (
        sums[:, first] if wanted & BY_Q else None,
        sums[:, first + 1] if wanted & BY_ALPHA else None,
        sums[:, :n] if first else None,
    )


def bins_of(n: int, wanted: int) -> int:
    """What a block of the backward kernel adds up: z at each point, then q and alpha, as far as they are wanted."""
    return (n if wanted & BY_Z else 0) + (2 if wanted & (BY_Q | BY_ALPHA) else 0)


def forward_bytes(n: int) -> int:
    """Shared memory of a forward block: its table of values."""
    return n * 256


def backward_bytes(n: int, threads: int, *, bins: int) -> int:
    """Shared memory of a backward block: the table of differences, and every thread's private bins."""
    return n * 128 + bins * threads * 4


def backward_threads(n: int) -> int:
    """Threads of a backward block: as many as have room for their private bins; 0 where too few have."""
    for threads in (256, 128, 64):
        if max(forward_bytes(n), backward_bytes(n, threads, bins=n + 2)) <= SHARED_BYTES:
            return threads
    return 0


def forward_blocks(layout: Layout, device: int) -> int:
    """As many blocks as run at once, so that each fills its table one time; no sum depends on their number."""
    most = max(1, 6 * processors(device) // layout.groups)
    return blocks(layout, threads=FORWARD_THREADS, steps=_STEPS_FORWARD, most=most)


def backward_blocks(layout: Layout, n: int) -> int:
    threads = backward_threads(n)
    return blocks(layout, threads=threads, steps=_STEPS_BACKWARD, most=1056 * 256 // threads)


def blocks(layout: Layout, *, threads: int, steps: int, most: int) -> int:
    """Blocks for one group, from its own elements alone: replicas then sum as they would on their own."""
    vectors = layout.per_group // VECTOR
    return max(1, min(most, -(-vectors // (threads * steps))))


def shape(layout: Layout) -> list[int]:
    """vectors and tail of one group, then the shape, as the kernels take them."""
    _, g1, middle, g2, inner = layout.shape
    if layout.groups == 1:
        return [layout.per_group // VECTOR, layout.per_group % VECTOR, 1, 1, 1, 1]
    return [layout.per_group // VECTOR, 0, g1, middle, g2, inner // VECTOR]


@cache
def processors(device: int) -> int:
    """How many multiprocessors the GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count


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
        return compiled(SOURCE, "squaf_forward", threads=FORWARD_THREADS, **common)
    flags = {"BY_X": BY_X, "BY_Q": BY_Q, "BY_ALPHA": BY_ALPHA, "BY_Z": BY_Z}
    chosen: dict[str, Any] = {name: int(bool(wanted & flag)) for name, flag in flags.items()}
    return compiled(SOURCE + BACKWARD, "squaf_backward", threads=backward_threads(n), **common, **chosen)


def compiled(
    source: str,
    name: str,
    *,
    device: int,
    kind: int,
    points: int,
    one_group: bool,
    threads: int,
    parameters: int = 0,
    **flags: int,
) -> Kernel | None:
    """A kernel of the source with its constants; None, with a warning, where it cannot be had."""
    if os.environ.get("SOFTKNEE_SQUAF_CUDA") == "0" or torch.version.hip is not None:
        return None
    if torch.cuda.get_device_capability(device) < (8, 0):
        return None
    constants: dict[str, Any] = {"KIND": kind, "PARAMETERS": parameters, "POINTS": points, "SHARED": one_group}
    try:
        with torch.cuda.device(device):
            return compile_kernel(source, name, {**constants, "THREADS": threads, **flags})
    except Exception as problem:
        # Whatever the run-time compiler or the driver has to say, the Triton kernels still work.
        warnings.warn(
            f"SQUAF's CUDA kernels could not be compiled ({type(problem).__name__}: {problem}); "
            "its slower Triton kernels run instead. SOFTKNEE_SQUAF_CUDA=0 chooses them without a warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
