"""Compiles kernels and launches them, at little cost to the host.

They are compiled once per storage type and grid size by NVRTC, the run-time compiler that torch carries: no nvcc is
needed. Where that cannot be done, a warning says so once and the Triton kernels run instead; the variable
SOFTKNEE_SQUAF_CUDA=0 asks for them from the start.

torch's own launcher makes ctypes objects one by one for every argument, which takes longer than many of these kernels
run. Here all arguments of a launch are slots of one array, which a `Prepared` launch keeps from one to the next.
Threads that share a `Prepared` launch one after the other.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..layout import BY_ALPHA, BY_Q, BY_Z, Layout

# -- what the CUDA kernels have in common -----------------------------------------------------------------
#
# Which tensors they take, and how many blocks, threads and bytes they need.


VECTOR = 8  # elements per thread and step; as in the source
SHARED_BYTES = 48 * 1024 - 1  # what a block may have without asking the driver
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def fits(x: Tensor, *, points: int, layout: Layout) -> bool:
    """Whether x lies in memory as the source reads it, and the grid has a size that it was written for."""
    if x.device.type != "cuda" or x.dtype not in KINDS or x.data_ptr() % 16:
        return False
    whole_vectors = layout.groups == 1 or layout.shape[4] % VECTOR == 0
    small_enough = layout.groups <= 65535 and layout.per_group // VECTOR < 2**31 - 2**22
    return points >= 5 and backward_threads(points) > 0 and whole_vectors and small_enough


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


# -- compiles kernels and launches them, at little cost to the host ---------------------------------------


_known = threading.local()


class Kernel:
    """A kernel whose arguments are addresses of tensors (0 for none) and whole numbers of 32 bits."""

    def __init__(self, compiled: Any) -> None:
        self._owner = compiled  # keeps the module loaded
        self._function = compiled.func
        self._launch = _driver_launch()

    def __call__(self, *, grid: tuple[int, int], threads: int, args: list[int], shared: int, device: int) -> None:
        """Launch on the current stream of this device, which must be the current device."""
        stream = torch._C._cuda_getCurrentRawStream(device)  # pyright: ignore
        Prepared(self, grid=grid, threads=threads, args=args, shared=shared)(stream, ())


class Prepared:
    """A kernel with all that a launch needs; a call gives the first arguments anew."""

    __slots__ = ("_after", "_before", "_kernel", "_launch", "_lock", "_slots")

    def __init__(
        self, kernel: Kernel, *, grid: tuple[int, int], threads: int, args: Sequence[int], shared: int
    ) -> None:
        self._kernel, self._launch, self._lock = kernel, kernel._launch, threading.Lock()
        self._slots = (ctypes.c_uint64 * len(args))(*args)
        first = ctypes.addressof(self._slots)
        places = (ctypes.c_void_p * len(args))(*range(first, first + 8 * len(args), 8))
        self._before = (kernel._function, grid[0], grid[1], 1, threads, 1, 1, shared)
        self._after = (places, None)

    def __call__(self, stream: int, first: Sequence[int]) -> None:
        """Launch on a stream of the current device, with these as the first arguments."""
        if not getattr(_known, "context", False):
            _give_thread_a_context()
        with self._lock:
            self._slots[: len(first)] = first
            failed = self._launch(*self._before, stream, *self._after)
        if failed:
            raise RuntimeError(f"SQUAF's kernel was not launched: {_error_text(failed)}.")


def compile_kernel(source: str, name: str, constants: dict[str, int]) -> Kernel:
    """The kernel of this name, with the constants defined before the source; on the current device."""
    _give_thread_a_context()  # a kernel may be compiled first in a thread of autograd's
    header = "".join(f"#define {key} {int(value)}\n" for key, value in constants.items())
    return Kernel(torch.cuda._compile_kernel(header + source, name))  # pyright: ignore


@cache
def source_of(*files: str) -> str:
    """The CUDA C++ that all kernels share, and that of these files after it."""
    return "\n".join(Path(__file__).with_name(file).read_text(encoding="utf-8") for file in ("common.cu", *files))


def compiled(
    name: str,
    *files: str,
    device: int,
    kind: int,
    points: int,
    one_group: bool,
    threads: int,
    parameters: int = 0,
    **flags: int,
) -> Kernel | None:
    """A kernel of these files with its constants; None, with a warning, where it cannot be had."""
    if os.environ.get("SOFTKNEE_SQUAF_CUDA") == "0" or torch.version.hip is not None:
        return None
    if torch.cuda.get_device_capability(device) < (8, 0):
        return None
    constants: dict[str, Any] = {"KIND": kind, "PARAMETERS": parameters, "POINTS": points, "SHARED": one_group}
    try:
        with torch.cuda.device(device):
            return compile_kernel(source_of(*files), name, {**constants, "THREADS": threads, **flags})
    except Exception as problem:
        # Whatever the run-time compiler or the driver has to say, the Triton kernels still work.
        warnings.warn(
            f"SQUAF's CUDA kernels could not be compiled ({type(problem).__name__}: {problem}); "
            "its slower Triton kernels run instead. SOFTKNEE_SQUAF_CUDA=0 chooses them without a warning.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _give_thread_a_context() -> None:
    """These launches go to the driver, which needs a context in this thread; autograd's own threads may have none.

    Any call of the CUDA runtime makes one. This one is also allowed while a graph is captured.
    """
    torch.cuda.is_current_stream_capturing()
    if not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream().query()
    _known.context = True


@cache
def _driver_launch() -> Callable[..., int]:
    function: Any = torch.cuda._utils._get_gpu_runtime_library().cuLaunchKernel  # pyright: ignore
    number = ctypes.c_uint
    # Said once, so that ctypes need not guess for every argument of every launch.
    kind = ctypes.PYFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, number, number, number, number, number, number, number, ctypes.c_void_p,
        ctypes.c_void_p, ctypes.c_void_p,
    )  # fmt: skip
    return ctypes.cast(function, kind)


def _error_text(code: int) -> str:
    text = ctypes.c_char_p()
    torch.cuda._utils._get_gpu_runtime_library().cuGetErrorString(code, ctypes.byref(text))  # pyright: ignore
    return text.value.decode() if text.value else f"error {code} of the driver"
