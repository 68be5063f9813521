"""Compiles and launches the CUDA C++ kernels, the fastest form of the usual case: five points, Gaussian
weights, an NVIDIA GPU.

The source is compiled once per storage type and grid size by NVRTC, the run-time compiler that torch carries:
no nvcc is needed. Where that cannot be done, a warning says so once and the Triton kernels run instead; the
variable SOFTKNEE_SQUAF_CUDA=0 asks for them from the start.
"""

import os
import warnings
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cuda_backward import BACKWARD
from .cuda_source import SOURCE
from .layout import Layout

VECTOR = 8  # elements per thread and step; as in the source
SHARED_BYTES = 48 * 1024 - 1  # what a block may have without asking the driver
_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
# Vectors a thread should find to do before another block is worth starting.
_STEPS_FORWARD, _STEPS_BACKWARD = 4, 16


class Kernels(NamedTuple):
    forward: Any
    backward: Any


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
) -> bool:
    """Whether this case is one the CUDA source was written for."""
    if x.device.type != "cuda" or window != 5 or laplacian or x.dtype not in _KINDS:
        return False
    if other is not None and (other.dtype != x.dtype or other.data_ptr() % 16):
        return False
    n = z.shape[-1]
    whole_vectors = layout.groups == 1 or layout.shape[4] % VECTOR == 0
    small_enough = layout.groups <= 65535 and layout.per_group // VECTOR < 2**31 - 2**22
    if n < 5 or _threads(n) == 0 or not whole_vectors or not small_enough or x.data_ptr() % 16:
        return False
    return (
        _kernels(x.device.index or 0, _KINDS[x.dtype], _parameter_kind(q, alpha, z), n, layout.groups == 1) is not None
    )


def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, out: Tensor, layout: Layout, window: int) -> None:
    """Write phi(x) into out."""
    n = z.shape[-1]
    kernels = _kernels(x.device.index or 0, _KINDS[x.dtype], _parameter_kind(q, alpha, z), n, layout.groups == 1)
    assert kernels is not None
    assert window == 5
    _give_thread_a_context(x.device)
    threads = 256
    # As many blocks as run at once, so that each fills its table one time; there is no sum whose order could
    # change.
    at_once = 6 * torch.cuda.get_device_properties(x.device).multi_processor_count
    blocks = _blocks(layout, threads=threads, steps=_STEPS_FORWARD, most=max(1, at_once // layout.groups))
    kernels.forward(
        grid=(blocks, layout.groups, 1),
        block=(threads, 1, 1),
        args=[x, out, *_alike(q, alpha, z), *_shape(layout)],
        shared_mem=n * 256,
    )


def backward(
    grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, dx: Tensor, layout: Layout, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Write the gradient of x into dx; return those of q, alpha (groups,) and z (groups, n)."""
    groups, n = z.shape
    kernels = _kernels(x.device.index or 0, _KINDS[x.dtype], _parameter_kind(q, alpha, z), n, layout.groups == 1)
    assert kernels is not None
    assert window == 5
    threads = _threads(n)
    blocks = _blocks(layout, threads=threads, steps=_STEPS_BACKWARD, most=1056 * 256 // threads)
    partial = torch.empty(groups, blocks, n + 2, device=x.device)
    _give_thread_a_context(x.device)
    kernels.backward(
        grid=(blocks, groups, 1),
        block=(threads, 1, 1),
        args=[grad, x, dx, partial, *_alike(q, alpha, z), *_shape(layout)],
        shared_mem=_backward_bytes(n, threads),
    )
    sums = partial.sum(1)
    if q.dtype == alpha.dtype == z.dtype:
        sums = sums.to(z.dtype)  # one conversion for all three
    return sums[:, n], sums[:, n + 1], sums[:, :n]


def _backward_bytes(n: int, threads: int) -> int:
    """Shared memory of a backward block: the table of differences, and every thread's private bins."""
    return n * 128 + (n + 2) * threads * 4


def _give_thread_a_context(device: torch.device) -> None:
    """These launches go to the driver, which needs a context in this thread; autograd's own threads may have none.

    Any call of the CUDA runtime makes one, and asking whether a stream is idle is the cheapest.
    """
    torch.cuda.current_stream(device).query()


def _parameter_kind(q: Tensor, alpha: Tensor, z: Tensor) -> int:
    """The kernels read parameters of one type as they are; others become float32 first."""
    same = q.dtype == alpha.dtype == z.dtype
    return _KINDS.get(z.dtype, 0) if same else 0


def _alike(q: Tensor, alpha: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The parameters as the kernels read them: of one type, and contiguous."""
    if q.dtype == alpha.dtype == z.dtype and z.dtype in _KINDS:
        return q.contiguous(), alpha.contiguous(), z.contiguous()
    return q.float().contiguous(), alpha.float().contiguous(), z.float().contiguous()


def _shape(layout: Layout) -> list[int]:
    """vectors and tail of one group, then the shape, as the kernels take them."""
    _, g1, middle, g2, inner = layout.shape
    if layout.groups == 1:
        return [layout.per_group // VECTOR, layout.per_group % VECTOR, 1, 1, 1, 1]
    return [layout.per_group // VECTOR, 0, g1, middle, g2, inner // VECTOR]


def _blocks(layout: Layout, *, threads: int, steps: int, most: int) -> int:
    """Blocks for one group, from its own elements alone: replicas then sum as they would on their own."""
    vectors = layout.per_group // VECTOR
    return max(1, min(most, -(-vectors // (threads * steps))))


def _threads(n: int) -> int:
    """Threads of a backward block: as many as have room for their private bins; 0 where too few have."""
    for threads in (256, 128, 64):
        if max(n * 256, _backward_bytes(n, threads)) <= SHARED_BYTES:
            return threads
    return 0


@cache
def _kernels(device: int, kind: int, parameters: int, n: int, shared: bool) -> Kernels | None:
    if os.environ.get("SOFTKNEE_SQUAF_CUDA") == "0" or torch.version.hip is not None:
        return None
    if torch.cuda.get_device_capability(device) < (8, 0):
        return None
    constants = {"KIND": kind, "PARAMETERS": parameters, "POINTS": n, "SHARED": int(shared)}
    try:
        with torch.cuda.device(device):
            return Kernels(
                forward=_compile("squaf_forward", THREADS=256, **constants),
                backward=_compile("squaf_backward", THREADS=_threads(n), **constants),
            )
    except Exception as problem:
        # Whatever the run-time compiler or the driver has to say, the Triton kernels still work.
        warnings.warn(
            f"SQUAF's CUDA kernels could not be compiled ({type(problem).__name__}: {problem}); "
            "its slower Triton kernels run instead. SOFTKNEE_SQUAF_CUDA=0 chooses them without a warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _compile(name: str, **constants: int) -> Any:
    header = "".join(f"#define {key} {int(value)}\n" for key, value in constants.items())
    return torch.cuda._compile_kernel(header + SOURCE + BACKWARD, name)  # pyright: ignore
