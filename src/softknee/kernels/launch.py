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
    """One kernel with its grid, its whole numbers and its compile-time constants, launched on the current device.

    Once it has run on tensors that are all aligned, `handle(stream, pointers, rest)` launches it; `rest` ends with
    `last`.
    """

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], integers: Sequence[int], *, warps: int, **constants: Any
    ) -> None:
        self.kernel = kernel
        self.grid = (*grid, 1, 1)[:3]
        self.options = {**constants, "num_warps": warps}
        self.integers = tuple(integers)
        self.last = (*integers, *constants.values())
        self._interpreted = interpreting()
        self._handles: dict[tuple[bool, ...], Handle] = {}
        self.handle: Handle | None = None

    def __call__(self, stream: int, tensors: Sequence[Tensor], numbers: Sequence[float] = ()) -> None:
        """Launch on this stream (the current one) with these tensors, and these numbers after them."""
        pointers = [tensor.data_ptr() for tensor in tensors]
        aligned = tuple([pointer & 15 == 0 for pointer in pointers])
        handle = self._handles.get(aligned)
        if handle is not None:
            handle(stream, pointers, (*numbers, *self.last))
            return
        compiled = self.kernel[self.grid](*tensors, *numbers, *self.integers, **self.options)
        if not self._interpreted:
            handle = self._handles[aligned] = _handle(compiled, self.grid)
            self.handle = handle if all(aligned) else self.handle


Handle = Callable[[int, Sequence[int], Sequence[Any]], None]


def _handle(compiled: Any, grid: tuple[int, ...]) -> Handle:
    """(stream, pointers, rest) -> a launch of the compiled kernel.

    Triton's launcher is some Python above a C function, whose arguments have another order in each version. It is
    called once with that function replaced by one that notes them.
    """
    run, fixed = compiled.run, (compiled.function, compiled.packed_metadata, None, None, None)
    noted: list[tuple[Any, ...]] = []
    mark, stream = object(), object()
    try:
        launcher = copy.copy(run)
        function, launcher.launch = run.launch, lambda *arguments: noted.append(arguments)
        launcher(*grid, stream, *fixed, mark)
        (arguments,) = noted
        assert arguments[:4] == (*grid, stream)
        assert arguments[-1] in (mark, (mark,))
    except Exception:  # another launcher than those that we have seen
        return lambda stream, pointers, rest: run(*grid, stream, *fixed, *pointers, *rest)
    (x, y, z), middle = grid, arguments[4:-1]
    if arguments[-1] is mark:
        return lambda stream, pointers, rest: function(x, y, z, stream, *middle, *pointers, *rest)
    return lambda stream, pointers, rest: function(x, y, z, stream, *middle, (*pointers, *rest))
