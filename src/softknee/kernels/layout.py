"""How a tensor and its broadcast parameters lie in memory, as seen by a kernel that walks storage in order.

A dense tensor is worked on in the order of its storage, whatever its strides, so transposed and
channels-last tensors cost no copy. A parameter then repeats along storage as (outer, channels, inner).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


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


@dataclass(frozen=True)
class Repeat:
    """Storage seen as (outer, channels, inner).

    `flat` are the parameters, one number or one per channel; `run` are the dimensions that make up the
    channels, slowest first.
    """

    outer: int
    channels: int
    inner: int
    flat: tuple[Tensor, ...]
    run: tuple[int, ...] = ()

    def restore(self, sums: Tensor, x: Tensor, p: Tensor) -> Tensor:
        """Sums per channel, brought back into the shape and type of the parameter they belong to."""
        if self.run:
            logical = sorted(self.run)
            wide = sums.reshape([x.shape[d] for d in self.run]).permute([self.run.index(d) for d in logical])
            sums = wide.reshape([x.shape[d] if d in self.run else 1 for d in range(x.dim())])
        return sum_to_shape(sums, p.shape).to(p.dtype)


def sum_to_shape(t: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo a broadcast: sum over the dimensions that were repeated."""
    if t.numel() == math.prod(shape):
        return t.reshape(shape)
    lead = t.dim() - len(shape)
    dims = [*range(lead), *(lead + d for d, size in enumerate(shape) if size == 1)]
    return t.sum(dim=dims).reshape(shape)


def repeat_pattern(x: Tensor, order: Sequence[int], params: Sequence[Tensor]) -> Repeat | None:
    """How parameters of shapes that broadcast to x repeat along its storage; None if no such pattern exists."""
    varying: set[int] = set()
    for p in params:
        lead = x.dim() - p.dim()
        varying |= {lead + d for d in range(p.dim()) if p.shape[d] != 1}
    if not varying:
        return Repeat(1, 1, x.numel(), tuple(p.reshape(1) for p in params))
    places = [i for i, d in enumerate(order) if d in varying]
    first, last = places[0], places[-1]
    if last - first + 1 != len(places) or len(places) != len(varying):
        return None
    run = order[first : last + 1]
    shape = [x.shape[d] for d in run]
    flat = []
    for p in params:
        if p.numel() == 1:
            flat.append(p.reshape(1))
            continue
        wide = p.reshape([1] * (x.dim() - p.dim()) + list(p.shape)).permute(
            [*run, *(d for d in range(x.dim()) if d not in run)]
        )
        flat.append(wide.reshape(wide.shape[: len(run)]).expand(shape).reshape(-1))
    outer = math.prod(x.shape[d] for d in order[:first])
    inner = math.prod(x.shape[d] for d in order[last + 1 :])
    return Repeat(outer, math.prod(shape), inner, tuple(flat), tuple(run))
