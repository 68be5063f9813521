"""Jagged nested tensors: their rows lie end to end in one dense tensor, which element-wise functions work on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ParameterError
from ..spec import Activation


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
