"""How a tensor and its broadcast parameters lie in memory, as seen by a kernel that walks storage in order.

A dense tensor is worked on in the order of its storage, whatever its strides, so transposed and
channels-last tensors cost no copy. A parameter then repeats along storage as (outer, channels, inner).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ParameterError
from ..spec import Activation


def storage_order(x: Tensor) -> list[int] | None:
    """The dimensions from slowest to fastest if x fills its storage without holes or overlap, else None."""
    sizes, strides = x.shape, x.stride()
    order = sorted((d for d in range(x.dim()) if sizes[d] != 1), key=lambda d: (-strides[d], d))
    expected = 1
    for d in reversed(order):
        if strides[d] != expected:
            return None
        expected *= sizes[d]
    return order


def writable(x: Tensor) -> bool:
    """Whether x can be overwritten: it has no expanded dimension, is no lazy minus, and inference mode is not left."""
    expanded = any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape, strict=True))
    return not expanded and not x.is_neg() and (torch.is_inference_mode_enabled() or not x.is_inference())


@dataclass(frozen=True)
class Pattern:
    """Storage seen as (outer, channels, inner); `run` are the dimensions that make the channels, slowest first."""

    shape: torch.Size
    outer: int
    channels: int
    inner: int
    run: tuple[int, ...] = ()

    def flat(self, p: Tensor) -> Tensor:
        """A parameter as one number, or as one per channel in the order of storage, side by side as kernels read them.

        A column of a table, or one number expanded, would otherwise come as a view with steps of its own.
        """
        if p.numel() == 1:
            return p
        dims = len(self.shape)
        wide = p.reshape([1] * (dims - p.dim()) + list(p.shape))
        wide = wide.permute([*self.run, *(d for d in range(dims) if d not in self.run)])
        wide = wide.reshape(wide.shape[: len(self.run)]).expand([self.shape[d] for d in self.run])
        return wide.reshape(-1).contiguous()

    def restore(self, sums: Tensor, p: Tensor) -> Tensor:
        """Sums per channel, brought back into the shape and type of the parameter they belong to."""
        if self.run:
            logical = sorted(self.run)
            wide = sums.reshape([self.shape[d] for d in self.run]).permute([self.run.index(d) for d in logical])
            sums = wide.reshape([size if d in self.run else 1 for d, size in enumerate(self.shape)])
        return sum_to_shape(sums, p.shape).to(p.dtype)


def sum_to_shape(t: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo a broadcast: sum over the dimensions that were repeated."""
    if t.shape == torch.Size(shape):
        return t
    lead = t.dim() - len(shape)
    dims = [*range(lead), *(lead + d for d, size in enumerate(shape) if size == 1)]
    return t.sum(dim=dims).reshape(shape)


def find_pattern(x: Tensor, params: Sequence[Tensor]) -> Pattern | None:
    """How parameters that broadcast to x repeat along its storage (or along a contiguous copy of it).

    None where the dimensions they vary in do not lie next to each other.
    """
    order = storage_order(x)
    if order is None:
        order = [d for d in range(x.dim()) if x.shape[d] != 1]
    varying: set[int] = set()
    for p in params:
        lead = x.dim() - p.dim()
        varying |= {lead + d for d in range(p.dim()) if p.shape[d] != 1}
    if not varying:
        return Pattern(x.shape, 1, 1, x.numel())
    places = [i for i, d in enumerate(order) if d in varying]
    first, last = places[0], places[-1]
    if last - first + 1 != len(places) or len(places) != len(varying):
        return None
    run = order[first : last + 1]
    outer = math.prod(x.shape[d] for d in order[:first])
    inner = math.prod(x.shape[d] for d in order[last + 1 :])
    return Pattern(x.shape, outer, math.prod(x.shape[d] for d in run), inner, tuple(run))


# -- jagged nested tensors --------------------------------------------------------------------------------
#
# Their rows lie end to end in one dense tensor, which element-wise functions work on.


def values_of(act: Activation, x: Tensor, params: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The dense tensor that holds the rows of x, and the parameters in shapes that broadcast against it.

    The rows have one dimension less than x: batch and ragged dimension are one there. `fit_shape` has seen to it that a
    parameter has size 1 along the ragged dimension.
    """
    return x.values(), [_beside_values(act, p, x) for p in params]


def _beside_values(act: Activation, p: Tensor, x: Tensor) -> Tensor:
    if p.is_nested:
        return p.values()
    if p.dim() < x.dim():
        return p
    if p.shape[0] != 1:
        raise ParameterError(
            f"{act.name}: a parameter has shape {tuple(p.shape)}, a value for each row of a jagged tensor; give one "
            "for all, one per channel of a dense dimension, or a jagged tensor like the input."
        )
    return p[0]


def like(values: Tensor, x: Any) -> Tensor:
    """These values as rows of the lengths of x, whose ragged dimension they share."""
    # torch has no public name for the dimension along which the rows differ.
    return torch.nested.nested_tensor_from_jagged(
        values, offsets=x.offsets(), lengths=x.lengths(), jagged_dim=x._ragged_idx
    )


def check_nested(act: Activation, x: Tensor) -> None:
    """Refuse the older kind of nested tensor, whose rows no element-wise kernel can reach."""
    if x.layout != torch.jagged:
        raise InputError(
            f"{act.name} works on nested tensors of the jagged layout, and one of the layout {x.layout} was given; "
            "make it with torch.nested.nested_tensor(rows, layout=torch.jagged)."
        )
