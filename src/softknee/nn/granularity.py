"""How many values a parameter has: one per layer, per channel or per neuron; and how they meet an input."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex

from torch import Tensor

from ..errors import ParameterError, did_you_mean

_KINDS = ("layer", "channel", "neuron")


@dataclass(frozen=True)
class Granularity:
    """`per` with the shape its parameters are stored in; `dim` is the channels' dimension of the input."""

    per: str
    shape: tuple[int, ...]
    dim: int = 1

    @classmethod
    def read(cls, name: str, *, per: str, size: int | Sequence[int] | None, dim: int) -> Granularity:
        """What a module's arguments mean, or a sentence that says what they should be."""
        if per not in _KINDS:
            raise ParameterError(
                f"{name}: per must be 'layer', 'channel' or 'neuron', and {per!r} was given.{did_you_mean(per, _KINDS)}"
            )
        if per == "layer":
            if size is not None:
                raise ParameterError(f"{name}: size={size!r} was given, but per='layer' has one value; leave size out.")
            return cls(per, (1,))
        shape = _counts(size)
        counts = all(n >= 1 for n in shape)
        if not shape or not counts or (per == "channel" and len(shape) != 1):
            needs = "the number of channels" if per == "channel" else "the trailing shape of the input"
            raise ParameterError(f"{name}: per={per!r} needs size=, {needs}, and {size!r} was given.")
        if per == "channel" and (isinstance(dim, bool) or not isinstance(dim, int)):
            raise ParameterError(f"{name}: dim must be a whole number, the channels' dimension, and {dim!r} was given.")
        return cls(per, shape, dim)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def shaped(self, value: Tensor, x: Tensor, name: str, *, tail: int = 0) -> Tensor:
        """A parameter in the shape that broadcasts against this input; `tail` dimensions stay last."""
        own = value.shape[: value.dim() - tail]
        if self.per != "channel":
            return value
        dim = self.dim if self.dim >= 0 else x.dim() + self.dim
        if not 0 <= dim < x.dim() or x.shape[dim] != self.shape[0]:
            raise ParameterError(
                f"{name}: built for {self.shape[0]} channels along dimension {self.dim}, and the input has "
                f"shape {tuple(x.shape)}; pass the right size= and dim=."
            )
        if own.numel() == 1:
            return value
        return value.reshape([self.shape[0]] + [1] * (x.dim() - dim - 1) + list(value.shape[len(own) :]))

    def __str__(self) -> str:
        if self.per == "layer":
            return "per='layer'"
        size = self.shape[0] if self.per == "channel" else self.shape
        return f"per={self.per!r}, size={size}" + (f", dim={self.dim}" if self.per == "channel" else "")


def _counts(size: Any) -> tuple[int, ...]:
    """The whole numbers of a size, Python's or NumPy's; empty where it is none."""
    try:
        each = (size,) if isinstance(size, SupportsIndex) else tuple(size or ())
        return () if any(isinstance(n, bool) for n in each) else tuple(map(operator.index, each))
    except TypeError:
        return ()
