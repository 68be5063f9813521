"""Fused kernels of a definition: built once, launched on dense tensors in the order of their storage."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..spec import Activation, NormalCdf
from ..spec.activation import once_per_definition
from . import triton_source as source
from .dispatch import interpreting
from .generate import load
from .launch import Launch, divide_up, power_of_two
from .layout import Pattern, find_pattern, storage_order

# A backward program with parameter sums walks over many blocks: enough programs per multiprocessor keep loads in
# flight, and the sums are reduced across threads once per program. By the number of sums: elements of a block, warps,
# programs per multiprocessor, the fastest seen on an H200.
_FEW, _SEVERAL, _MANY = (1024, 4, 64), (512, 2, 64), (2048, 4, 16)
_BACKWARD = (_FEW, _FEW, _FEW, _SEVERAL, _SEVERAL, _MANY)
# Largest number of programs that share one strip of columns or one channel in the first stage of a sum.
SPLITS = 128


# Functions with a cheaper form that is good enough where the result is rounded to 8 or 11 bits. The slopes' pairs
# serve bf16 alone: where a slope crosses 0 its terms cancel, and float16 sees what is left.
_COARSE_VALUES = ("normal_cdf", "tanh", "log1p_minus_near")
_COARSE = {torch.float16: _COARSE_VALUES, torch.bfloat16: (*_COARSE_VALUES, "normal_pair", "tanh_pair")}


def load_kernel(text: str, label: str, name: str, dtype: torch.dtype) -> Callable[..., Any]:
    """A kernel from its text, with the functions that such numbers need."""
    from . import triton_math  # here, because a torch without Triton must be able to import this file

    names = {key: value for key, value in vars(triton_math).items() if not key.startswith("__")}
    coarse = _COARSE.get(dtype, ())
    names |= {key: names[f"{key}_half"] for key in coarse}
    if coarse and not interpreting():
        names["log1p"] = names["log1p_half"]  # an instruction of the GPU, which the interpreter does not have
    return load(text, f"{label} {dtype}", names, name, triton_math.__name__)


@once_per_definition
def _forward_kernel(act: Activation, rows: bool, dtype: torch.dtype) -> Callable[..., Any]:
    name = "forward_rows" if rows else "forward_flat"
    text = source.compute(act, "value", [()]) + getattr(source, name)(act)
    return load_kernel(text, f"{act.key} {name}", name, dtype)


@once_per_definition
def _backward_kernel(
    act: Activation, needed: tuple[str, ...], want_x: bool, shape: str, dtype: torch.dtype
) -> Callable[..., Any]:
    text = getattr(source, f"backward_{shape}")(act, needed, want_x)
    label = f"{act.key} backward_{shape} {want_x} {' '.join(needed)}"
    return load_kernel(text, label, "backward_flat" if shape == "flat" else "backward_rows", dtype)


class FusedPlan:
    """Everything about a call that does not depend on the numbers: made once per layout, then only launched."""

    def __init__(self, act: Activation, x: Tensor, params: Sequence[Tensor]) -> None:
        pattern = find_pattern(x, params)
        assert pattern is not None
        self.act = act
        self.pattern: Pattern = pattern
        self.dense = storage_order(x) is not None
        self.dtype = x.dtype
        self.steps = [0 if p.numel() == 1 else 1 for p in params]
        self.n = x.numel()
        self.device = x.device
        self._backwards: dict[tuple[bool, ...], tuple[Launch, tuple[int, ...]]] = {}
        self._forward: Launch | None = None

    # -- forward ----------------------------------------------------------------------------------------

    def forward(self, x: Tensor, params: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
        """The value, in a tensor that lies in memory as x does (or in `out`, which may be x itself)."""
        x = x if self.dense else x.contiguous()
        y = torch.empty_like(x) if out is None else out
        if self._forward is None:
            self._forward = self._make_forward()
        self._forward(x, y, *[self.pattern.flat(p) for p in params])
        return y

    def _make_forward(self) -> Launch:
        pattern, n = self.pattern, self.n
        if pattern.channels == 1:
            block = _block(n, _forward_block(self.act, self.dtype))
            kernel = _forward_kernel(self.act, False, self.dtype)
            return Launch(kernel, (divide_up(n, block),), (n,), warps=4, BLOCK=block)
        kernel = _forward_kernel(self.act, True, self.dtype)
        numbers = (*self.steps, n, pattern.channels, pattern.inner)
        return Launch(kernel, (divide_up(n, 1024),), numbers, warps=4, BLOCK=1024)

    # -- backward ---------------------------------------------------------------------------------------

    def backward(self, g: Tensor, x: Tensor, params: Sequence[Tensor], needs: Sequence[bool]) -> list[Tensor]:
        """The gradients that are needed: of x, and of each parameter the sums, added up in a fixed order."""
        x = x if self.dense else x.contiguous()
        if g.stride() != x.stride() or g.dtype != x.dtype:
            g = torch.empty_like(x).copy_(g)
        made = self._backwards.get(tuple(needs))
        if made is None:
            made = self._backwards[tuple(needs)] = self._make_backward(needs)
        launch, partial_shape = made
        partial = torch.empty(partial_shape, dtype=torch.float32, device=x.device)
        dx = torch.empty_like(x) if needs[0] else x
        launch(g, x, dx, partial, *[self.pattern.flat(p) for p in params])
        grads = [dx] if needs[0] else []
        if partial_shape[0]:
            wanted = [p for p, need in zip(params, needs[1:], strict=True) if need]
            totals = partial.sum(dim=1)
            if len({p.dtype for p in wanted}) == 1:
                totals = totals.to(wanted[0].dtype)  # one conversion for all
            sums = iter(totals.unbind(0))
            if self.pattern.channels == 1:
                grads += [next(sums).reshape(p.shape).to(p.dtype) for p in wanted]
            else:
                grads += [self.pattern.restore(next(sums), p) for p in wanted]
        return grads

    def _make_backward(self, needs: Sequence[bool]) -> tuple[Launch, tuple[int, ...]]:
        needed = tuple(p.name for p, need in zip(self.act.params, needs[1:], strict=True) if need)
        pattern, n, want_x = self.pattern, self.n, needs[0]
        if pattern.channels == 1:
            block, warps, per_core = _BACKWARD[min(len(needed), 5)]
            block = _block(n, block)
            programs = divide_up(n, block)
            if needed:
                programs = min(programs, per_core * cores(self.device))
            kernel = _backward_kernel(self.act, needed, want_x, "flat", self.dtype)
            launch = Launch(kernel, (programs,), (n,), warps=warps, BLOCK=block, EVEN=n % block == 0)
            return launch, (len(needed), programs)
        columns_vary = pattern.inner == 1
        items = pattern.outer if columns_vary else pattern.outer * pattern.inner
        rows, columns = (16, 64) if columns_vary else (1, min(1024, power_of_two(items)))
        strips = divide_up(pattern.channels, columns) if columns_vary else pattern.channels
        unit = rows if columns_vary else columns
        share = divide_up(divide_up(items, max(1, min(SPLITS, divide_up(items, 4 * unit)))), unit) * unit
        splits = max(1, divide_up(items, share))
        kernel = _backward_kernel(self.act, needed, want_x, "columns" if columns_vary else "channels", self.dtype)
        numbers = (*self.steps, items, pattern.channels, pattern.inner, share)
        launch = Launch(kernel, (strips, splits), numbers, warps=4, ROWS=rows, COLUMNS=columns)
        return launch, (len(needed), splits, pattern.channels)


@functools.cache
def cores(device: torch.device) -> int:
    """The multiprocessors of a GPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _forward_block(act: Activation, dtype: torch.dtype) -> int:
    """4 KiB of input for a program; twice that where a program has much to prepare or to compute (seen on an H200)."""
    heavy = len(act.params) > 4 or act.computed.has(NormalCdf)
    return 1024 if dtype == torch.float32 else 4096 if heavy else 2048


def _block(n: int, most: int) -> int:
    """A small tensor is spread over more, smaller programs: a few thousand fill a large GPU."""
    return (
        most if n >= 1 << 23 else min(most, 1024) if n >= 1 << 16 else max(64, min(256, 1 << math.ceil(math.log2(n))))
    )
