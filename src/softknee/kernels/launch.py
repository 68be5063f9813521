"""Launching a Triton kernel with little Python in the way.

Triton binds and specialises the arguments at each launch (15 to 20 microseconds). For one plan everything but
the pointers is fixed, and of the pointers only their alignment matters; so the compiled kernel is kept per alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """One kernel with its grid, its numbers and its compile-time constants."""

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], numbers: Sequence[int], *, warps: int, **constants: Any
    ) -> None:
        self.kernel = kernel
        self.grid = (*grid, 1, 1)[:3]
        self.numbers = tuple(numbers)
        self.constants = constants
        self.warps = warps
        self._compiled: dict[tuple[bool, ...], Any] = {}

    def __call__(self, *tensors: Tensor) -> None:
        if interpreting():
            self.kernel[self.grid](*tensors, *self.numbers, **self.constants)
            return
        device = tensors[0].device.index
        if device != torch.cuda.current_device():
            with torch.cuda.device(device):
                self._launch(tensors)
        else:
            self._launch(tensors)

    def _launch(self, tensors: tuple[Tensor, ...]) -> None:
        aligned = tuple([t.data_ptr() & 15 == 0 for t in tensors])
        ready = self._compiled.get(aligned)
        if ready is None:
            self._compiled[aligned] = self.kernel[self.grid](
                *tensors, *self.numbers, **self.constants, num_warps=self.warps
            )
        else:
            ready[self.grid](*tensors, *self.numbers, *self.constants.values())
