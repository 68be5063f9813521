"""Launching a Triton kernel with little Python in the way.

Triton binds and specialises the arguments at each launch (15 to 20 microseconds). For one plan everything but
the pointers and some numbers is fixed, and of the pointers only their alignment matters; so the compiled kernel is kept
per alignment, and launched through the C function below Triton's own launcher.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from .dispatch import interpreting


def divide_up(a: int, b: int) -> int:
    """How many pieces of size b cover a."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Kernels are launched on the current GPU; x may be on another."""
    return nullcontext() if interpreting() else torch.cuda.device(x.device)


class Launch:
    """One kernel with its grid, its whole numbers and its compile-time constants, launched on the current device."""

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], integers: Sequence[int], *, warps: int, **constants: Any
    ) -> None:
        self.kernel = kernel
        self.grid = (*grid, 1, 1)[:3]
        self.integers = tuple(integers)
        self.constants = constants
        self.warps = warps
        self._interpreted = interpreting()
        self._aligned: Callable[..., None] | None = None
        self._others: dict[tuple[bool, ...], Callable[..., None]] = {}

    def __call__(self, stream: int, tensors: Sequence[Tensor], numbers: Sequence[float] = ()) -> None:
        """Launch on this stream (the current one) with these tensors, and these numbers after them."""
        if self._interpreted:
            self.kernel[self.grid](*tensors, *numbers, *self.integers, **self.constants)
            return
        pointers = [tensor.data_ptr() for tensor in tensors]
        bits = 0
        for pointer in pointers:
            bits |= pointer
        aligned = None if bits & 15 == 0 else tuple([pointer & 15 == 0 for pointer in pointers])
        ready = self._aligned if aligned is None else self._others.get(aligned)
        if ready is not None:
            ready(stream, pointers, numbers)
            return
        options = {**self.constants, "num_warps": self.warps}
        compiled = self.kernel[self.grid](*tensors, *numbers, *self.integers, **options)
        ready = _handle(compiled, self.grid, (*self.integers, *self.constants.values()))
        if aligned is None:
            self._aligned = ready
        else:
            self._others[aligned] = ready


def _handle(compiled: Any, grid: tuple[int, ...], rest: tuple[Any, ...]) -> Callable[..., None]:
    """(stream, pointers, numbers) -> a launch of the compiled kernel.

    Triton's launcher, some Python above a C function, is called once with that function replaced by one that notes its
    arguments: their order is another in each version.
    """
    run, fixed = compiled.run, (compiled.function, compiled.packed_metadata, None, None, None)
    noted: list[tuple[Any, ...]] = []
    stream = object()
    try:
        launcher = copy.copy(run)
        function, launcher.launch = run.launch, lambda *arguments: noted.append(arguments)
        launcher(*grid, stream, *fixed, *rest)
        (arguments,) = noted
        assert arguments[:4] == (*grid, stream)
    except Exception:  # another launcher than those that we have seen
        return lambda stream, pointers, numbers: run(*grid, stream, *fixed, *pointers, *numbers, *rest)
    if arguments[-1] == rest:
        middle = arguments[4:-1]
        return lambda stream, pointers, numbers: function(*grid, stream, *middle, (*pointers, *numbers, *rest))
    middle = arguments[4 : -len(rest)]
    return lambda stream, pointers, numbers: function(*grid, stream, *middle, *pointers, *numbers, *rest)
