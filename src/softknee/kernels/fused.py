"""Fused kernels of a definition: built once, launched on dense tensors in the order of their storage."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..spec import Activation, Constraint
from ..spec.activation import once_per_definition
from ..spec.emit import PARAMETER
from ..spec.printers import TRITON
from . import triton_source as source_text
from .generate import load
from .inverse import Inverse
from .launch import Launch, divide_up, power_of_two
from .layout import Pattern, find_pattern, storage_order
from .triton_source import Recovery, Source

# A backward program with parameter sums walks over many blocks: enough programs per multiprocessor keep loads in
# flight, and the sums are reduced across threads once per program. Elements of a block, warps and programs per
# multiprocessor, the fastest seen on an H200 over all functions: with sums from 2^23 elements on; with more than two of
# them, in a half type and in others; from 2^16 elements on; and without sums.
_LARGE, _MEDIUM, _NO_SUMS = (2048, 8, 32), (1024, 4, 4), (1024, 4, 64)
_MANY_HALF, _MANY = (2048, 8, 8), (1024, 4, 16)
# Largest number of programs that share one strip of columns or one channel in the first stage of a sum.
SPLITS = 128


# Functions with a cheaper form that is good enough where the result is rounded to 8 or 11 bits. The slopes' pairs
# serve bf16 alone: where a slope crosses 0 its terms cancel, and float16 sees what is left.
_COARSE_VALUES = ("log", "log1p", "log1p_minus_near", "normal_cdf", "tanh")
_COARSE = {torch.float16: _COARSE_VALUES, torch.bfloat16: (*_COARSE_VALUES, "normal_pair", "tanh_pair")}


def load_kernel(
    text: str, label: str, name: str, dtype: torch.dtype, lifts: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """A kernel from its text, with the functions that such numbers need."""
    from . import triton_math  # here, because a torch without Triton must be able to import this file

    names = {key: value for key, value in vars(triton_math).items() if not key.startswith("__")}
    names |= {key: names[f"{key}_half"] for key in _COARSE.get(dtype, ())}
    return load(text, f"{label} {dtype}", names | (lifts or {}), name, triton_math.__name__)


@once_per_definition
def _lifts(act: Activation, sources: tuple[Source, ...]) -> dict[str, Any]:
    """The functions that lift raw parameters, and their derivatives; with all digits in kernels of every type."""
    functions = {}
    for p, source in zip(act.params, sources, strict=True):
        if isinstance(source, Constraint):
            for slope, title in enumerate(("lift", "lift_slope")):
                name = f"{title}_{PARAMETER}{p.name}"
                text = source_text.lift(source, name, bool(slope))
                functions[name] = load_kernel(text, f"{act.key} {name} {source}", name, torch.float32)
    return functions


@once_per_definition
def _forward_kernel(
    act: Activation, sources: tuple[Source, ...] | None, dtype: torch.dtype, place: str = ""
) -> Callable[..., Any]:
    name = "forward_rows" if sources is None else "forward_flat"
    text = source_text.compute(act, "value", [()])
    text += source_text.forward_rows(act, place) if sources is None else source_text.forward_flat(act, sources, place)
    label = f"{act.key} {name} {sources} {place}"
    return load_kernel(text, label, name, dtype, _lifts(act, sources) if sources else None)


@once_per_definition
def _backward_kernel(
    act: Activation,
    needed: tuple[str, ...],
    want_x: bool,
    shape: str,
    dtype: torch.dtype,
    recovery: Recovery | None = None,
) -> Callable[..., Any]:
    text = getattr(source_text, f"backward_{shape}")(act, needed, want_x, recovery)
    label = f"{act.key} backward_{shape} {want_x} {' '.join(needed)} {hash(recovery) if recovery else ''}"
    return load_kernel(text, label, "backward_rows", dtype)


@once_per_definition
def _flat_backward_kernel(
    act: Activation,
    sources: tuple[Source, ...],
    needed: tuple[str, ...],
    want_x: bool,
    dtype: torch.dtype,
    recovery: Recovery | None = None,
) -> Callable[..., Any]:
    text = source_text.backward_flat(act, sources, needed, want_x, recovery)
    label = f"{act.key} backward_flat {sources} {want_x} {' '.join(needed)} {hash(recovery) if recovery else ''}"
    return load_kernel(text, label, "backward_flat", dtype, _lifts(act, sources))


# The ways to a new tensor and to the stream that cost a host least; torch has these names where it has CUDA.
new_on_gpu: Any = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cuda", None)
current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_scratches: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = {}


def stream_on(index: int | None) -> int | None:
    """The current stream of a GPU, None where it is not the current GPU; 0 in Triton's interpreter, which has none."""
    if index is None:
        return 0
    return current_stream(index) if index == current_device() else None


def scratch_for(device: torch.device, stream: int, size: int) -> tuple[Tensor, Tensor]:
    """Room for partial sums and a counter at 0, to which the kernel that has used it sets it back.

    Kernels on one stream follow each other and share it. A graph has its own, set to 0 by a node of the graph: it may
    be replayed on any stream.
    """
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return torch.empty(size, dtype=torch.float32, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    scratch = _scratches.get((device, stream))
    if scratch is None or scratch[0].numel() < size:
        counter = torch.zeros(1, dtype=torch.int32, device=device) if scratch is None else scratch[1]
        partial = torch.empty(power_of_two(size), dtype=torch.float32, device=device)
        scratch = _scratches[device, stream] = partial, counter
    return scratch


class FusedPlan:
    """Everything about a call that does not depend on the numbers: made once per layout, then only launched.

    `sources` says what stands for each parameter, by default a tensor with its value. The tensors of a call are those
    of the parameters, in their order, and then the anchors; `numbers` are for the parameters that are numbers.

    With an `inverse` the backward pass is given y for x, and the packed sides of a minimum where there is one.
    """

    def __init__(
        self,
        act: Activation,
        x: Tensor,
        params: Sequence[Tensor],
        sources: tuple[Source, ...] | None = None,
        inverse: Inverse | None = None,
    ) -> None:
        pattern = find_pattern(x, params)
        assert pattern is not None
        self.act = act
        self.pattern: Pattern = pattern
        self.flat = pattern.channels == 1
        self.sources = sources or (None,) * len(act.params)
        assert self.flat or not any(self.sources)
        self.dense = storage_order(x) is not None
        self.dtype = x.dtype
        self.shape = tuple(x.shape)
        self.stride = x.stride() if self.dense else torch.empty(x.shape, device="meta").stride()
        self.steps = [0 if p.numel() == 1 else 1 for p in params]
        self.n = x.numel()
        self.device = x.device
        self.index = x.device.index if x.is_cuda else None
        self.backwards: dict[tuple[bool, ...], tuple[Launch, tuple[int, ...]]] = {}
        self.forward_launch: Launch | None = None
        self.sides_launch: Launch | None = None
        self.recovery, self.place = None, ""
        if inverse is not None:
            sided = inverse.place is not None
            self.recovery = Recovery(inverse.source(TRITON, x.dtype), sided)
            self.place = inverse.place_text(TRITON) if sided else ""

    def _empty(self, shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if self.index is not None and new_on_gpu is not None:
            return new_on_gpu(shape, stride, dtype)
        return torch.empty_strided(shape, stride, dtype=dtype, device=self.device)

    # -- forward ----------------------------------------------------------------------------------------

    def forward(
        self,
        x: Tensor,
        tensors: Sequence[Tensor],
        numbers: Sequence[float] = (),
        out: Tensor | None = None,
        sides: Tensor | None = None,
    ) -> Tensor:
        """The value, in a tensor that lies in memory as x does (or in `out`, which may be x itself).

        A plan with a minimum writes the `sides` as well.
        """
        stream = stream_on(self.index)
        if stream is None:
            with torch.cuda.device(self.index):
                return self.forward(x, tensors, numbers, out, sides)
        x = x if self.dense else x.contiguous()
        y = self._empty(self.shape, self.stride, self.dtype) if out is None else out
        if not self.flat:
            tensors = [self.pattern.flat(p) for p in tensors]
        if sides is not None:
            if self.sides_launch is None:
                self.sides_launch = self._make_forward(self.place)
            self.sides_launch(stream, (x, y, sides, *tensors), numbers)
            return y
        if self.forward_launch is None:
            self.forward_launch = self._make_forward()
        self.forward_launch(stream, (x, y, *tensors), numbers)
        return y

    def new_sides(self, x: Tensor) -> Tensor:
        """Room for a bit per element, beside x."""
        return torch.empty(divide_up(self.n, 8), dtype=torch.uint8, device=x.device)

    def _make_forward(self, place: str = "") -> Launch:
        pattern, n = self.pattern, self.n
        if self.flat:
            block = _block(n, _forward_block(self.act, self.dtype))
            kernel = _forward_kernel(self.act, self.sources, self.dtype, place)
            return Launch(kernel, (divide_up(n, block),), (n,), warps=4, BLOCK=block)
        kernel = _forward_kernel(self.act, None, self.dtype, place)
        integers = (*self.steps, n, pattern.channels, pattern.inner)
        return Launch(kernel, (divide_up(n, 1024),), integers, warps=4, BLOCK=1024)

    # -- backward ---------------------------------------------------------------------------------------

    def backward(
        self,
        g: Tensor,
        x: Tensor,
        tensors: Sequence[Tensor],
        needs: tuple[bool, ...],
        numbers: Sequence[float] = (),
        sides: Tensor | None = None,
    ) -> list[Tensor]:
        """The gradients that are needed: of x, and of each parameter the sums, added up in a fixed order."""
        stream = stream_on(self.index)
        if stream is None:
            with torch.cuda.device(self.index):
                return self.backward(g, x, tensors, needs, numbers, sides)
        x = x if self.dense else x.contiguous()
        if g.stride() != self.stride or g.dtype is not self.dtype:
            g = self._empty(self.shape, self.stride, self.dtype).copy_(g)
        made = self.backwards.get(needs)
        if made is None:
            made = self.backwards[needs] = self._make_backward(needs)
        launch, partial_shape = made
        dx = self._empty(self.shape, self.stride, self.dtype) if needs[0] else x
        grads = [dx] if needs[0] else []
        saved = (x,) if sides is None else (x, sides)
        wanted = [p for p, need in zip(tensors, needs[1:], strict=False) if need]
        if self.flat:
            totals = [self._empty(tuple(p.shape), p.stride(), p.dtype) for p in wanted]
            scratch = scratch_for(self.device, stream, partial_shape[0] * partial_shape[1]) if wanted else ()
            launch(stream, (g, *saved, dx, *scratch, *totals, *tensors), numbers)
            return grads + totals
        partial = self._empty(partial_shape, (partial_shape[1] * partial_shape[2], partial_shape[2], 1), torch.float32)
        launch(stream, (g, *saved, dx, partial, *[self.pattern.flat(p) for p in tensors]))
        if not wanted:
            return grads
        totals = partial.sum(dim=1)
        if len({p.dtype for p in wanted}) == 1:
            totals = totals.to(wanted[0].dtype)  # one conversion for all
        return grads + [self.pattern.restore(total, p) for total, p in zip(totals.unbind(0), wanted, strict=True)]

    def _make_backward(self, needs: Sequence[bool]) -> tuple[Launch, tuple[int, ...]]:
        needed = tuple(p.name for p, need in zip(self.act.params, needs[1:], strict=False) if need)
        pattern, n, want_x = self.pattern, self.n, needs[0]
        if self.flat:
            block, warps, per_core = _backward_shape(n, len(needed), self.dtype)
            programs = divide_up(n, block)
            if needed:
                programs = min(programs, per_core * cores(self.device))
            kernel = _flat_backward_kernel(self.act, self.sources, needed, want_x, self.dtype, self.recovery)
            vector = max(1, min(16 // self.dtype.itemsize, block // (32 * warps)))
            constants = {"VECTOR": vector, "SUM": min(1024, power_of_two(programs))} if needed else {}
            launch = Launch(kernel, (programs,), (n,), warps=warps, BLOCK=block, EVEN=n % block == 0, **constants)
            return launch, (len(needed), programs)
        columns_vary = pattern.inner == 1
        items = pattern.outer if columns_vary else pattern.outer * pattern.inner
        rows, columns = (16, 64) if columns_vary else (1, min(1024, power_of_two(items)))
        strips = divide_up(pattern.channels, columns) if columns_vary else pattern.channels
        unit = rows if columns_vary else columns
        share = divide_up(divide_up(items, max(1, min(SPLITS, divide_up(items, 4 * unit)))), unit) * unit
        splits = max(1, divide_up(items, share))
        shape = "columns" if columns_vary else "channels"
        kernel = _backward_kernel(self.act, needed, want_x, shape, self.dtype, self.recovery)
        integers = (*self.steps, items, pattern.channels, pattern.inner, share)
        launch = Launch(kernel, (strips, splits), integers, warps=4, ROWS=rows, COLUMNS=columns)
        return launch, (len(needed), splits, pattern.channels)


@functools.cache
def cores(device: torch.device) -> int:
    """The multiprocessors of a GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _forward_block(act: Activation, dtype: torch.dtype) -> int:
    """4 KiB of input for a program; twice that where it has many numbers to prepare (seen on an H200)."""
    return 1024 if dtype == torch.float32 else 4096 if len(act.params) > 4 else 2048


def _backward_shape(n: int, sums: int, dtype: torch.dtype) -> tuple[int, int, int]:
    """The elements of a block, the warps, and the programs per multiprocessor of a backward pass with so many sums."""
    if sums and n >= 1 << 16:
        large = _LARGE if sums <= 2 else _MANY_HALF if dtype.itemsize == 2 else _MANY
        return _MEDIUM if n < 1 << 23 else large
    return _block(n, _NO_SUMS[0]), *_NO_SUMS[1:]


def _block(n: int, most: int) -> int:
    """A small tensor is spread over more, smaller programs: a few thousand fill a large GPU."""
    return (
        most if n >= 1 << 23 else min(most, 1024) if n >= 1 << 16 else max(64, min(256, 1 << math.ceil(math.log2(n))))
    )
