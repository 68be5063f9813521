"""Seeing any tensor, with parameters of any granularity, as five contiguous dimensions.

The kernels know one form only: x of shape (outer, g1, middle, g2, inner), dense, with one row of parameters
for each of the g1 * g2 groups. A shared parameter is (1, 1, 1, 1, numel); a channel of an image batch (N, C,
1, 1, H*W); one neuron each (N, F, 1, 1, 1); channels of replicas folded in by vmap (1, M, N, C, H*W). Memory
order is kept: a channels-last tensor is read as it lies, its parameters permuted instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

Shape5 = tuple[int, int, int, int, int]


@dataclass(frozen=True)
class Layout:
    """How to go from a tensor of the caller's shape to the five dimensions and back."""

    order: tuple[int, ...]  # the caller's dimensions, in the order in which the kernels read them
    sizes: tuple[int, ...]  # their sizes in that order
    parameter_sizes: tuple[int, ...]  # the parameters' sizes in that order, 1 where shared
    shape: Shape5

    @property
    def groups(self) -> int:
        return self.shape[1] * self.shape[3]

    @property
    def per_group(self) -> int:
        return self.shape[0] * self.shape[2] * self.shape[4]

    def fold(self, tensor: Tensor) -> Tensor:
        """The five-dimensional form; a view wherever the tensor lies in the order of this layout."""
        return tensor.permute(self.order).reshape(self.shape)

    def unfold(self, folded: Tensor) -> Tensor:
        """Back to the caller's shape: a view with the strides of the order that was read."""
        return folded.reshape(self.sizes).permute(self._inverse())

    def fold_parameter(self, parameter: Tensor, *, table: bool = False) -> Tensor:
        """(groups,), or (groups, n) for a table such as z."""
        tail = parameter.shape[-1:] if table else ()
        own = parameter.shape[:-1] if table else parameter.shape
        padded = parameter.reshape((1,) * (len(self.order) - len(own)) + own + tail)
        extra = (len(self.order),) if table else ()
        return padded.permute(*self.order, *extra).reshape(self.groups, *tail).contiguous()

    def unfold_parameter(self, folded: Tensor, *, like: Tensor, table: bool = False) -> Tensor:
        """The gradient of a parameter, from (groups,) or (groups, n) to its own shape and dtype, in its own memory.

        Kernels leave the sums of all parameters in one table, but outputs of an operator must not share memory, and
        code of torch.compile counts on aligned ones: columns are copied.
        """
        tail = folded.shape[1:] if table else ()
        extra = (len(self.order),) if table else ()
        spread = folded.reshape(*self.parameter_sizes, *tail).permute(*self._inverse(), *extra)
        parameter = spread.reshape(like.shape).to(like)
        alone = parameter.is_contiguous() and parameter.untyped_storage().nbytes() == parameter.nbytes
        return parameter if alone else parameter.clone(memory_format=torch.contiguous_format)

    def _inverse(self) -> tuple[int, ...]:
        return tuple(sorted(range(len(self.order)), key=self.order.__getitem__))


def dense(x: Tensor) -> Tensor:
    """x itself where its elements fill one block without gaps or overlap, in any order; else a copy."""
    return x if torch.empty_like(x).stride() == x.stride() else x.contiguous()


def as_stored(tensor: Tensor, *, like: Tensor) -> Tensor:
    """Strides as the fake operator promised them: those of a dense x."""
    return tensor if tensor.stride() == like.stride() else torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)


def arrange(x: Tensor, *, parameter_shape: torch.Size) -> Layout:
    """The layout of a dense x whose parameters have a shape that broadcasts against it."""
    dims = x.dim()
    shape = (1,) * (dims - len(parameter_shape)) + tuple(parameter_shape)
    order = sorted(range(dims), key=lambda dim: (-x.stride(dim), dim))
    blocks = _blocks(order, x=x, shape=shape)
    if sum(grouped for _, grouped in blocks) > 2:
        # More than two separate runs of parameter dimensions: bring them together, at the cost of a copy.
        order.sort(key=lambda dim: shape[dim] != 1)
        blocks = _blocks(order, x=x, shape=shape)
    five = [1, 1, 1, 1, 1]
    if not blocks[-1][1]:
        # What varies fastest is `inner`: the kernels read along it.
        five[4] = blocks.pop()[0]
    slot = 0
    for size, grouped in blocks:
        slot += (slot % 2 == 1) != grouped
        five[slot] = size
        slot += 1
    return Layout(
        order=tuple(order),
        sizes=tuple(x.shape[dim] for dim in order),
        parameter_sizes=tuple(shape[dim] for dim in order),
        shape=(five[0], five[1], five[2], five[3], five[4]),
    )


def _blocks(order: list[int], *, x: Tensor, shape: tuple[int, ...]) -> list[tuple[int, bool]]:
    """Neighbouring dimensions of one kind merged: (elements, whether the parameters vary along them)."""
    blocks: list[tuple[int, bool]] = []
    for dim in order:
        grouped = shape[dim] != 1
        if x.shape[dim] == 1:
            continue
        if blocks and blocks[-1][1] == grouped:
            blocks[-1] = (prod((blocks[-1][0], x.shape[dim])), grouped)
        else:
            blocks.append((x.shape[dim], grouped))
    return blocks or [(1, False)]


# -- which of SQUAF's gradients are computed --------------------------------------------------------------
#
# A sum of these, in the order of the arguments x, q, alpha, z.


BY_X, BY_Q, BY_ALPHA, BY_Z = 1, 2, 4, 8
EVERY = BY_X | BY_Q | BY_ALPHA | BY_Z


def wanted_of(needs: Sequence[bool]) -> int:
    """From what autograd says that it needs of x, q, alpha and z."""
    return sum(flag for flag, need in zip((BY_X, BY_Q, BY_ALPHA, BY_Z), needs, strict=True) if need)


def only_wanted(gradients: Sequence[Tensor], wanted: int) -> list[Tensor | None]:
    """The gradients by x, q, alpha and z, None in the place of one that is not wanted."""
    flags = (BY_X, BY_Q, BY_ALPHA, BY_Z)
    return [g if wanted & flag else None for g, flag in zip(gradients, flags, strict=True)]
