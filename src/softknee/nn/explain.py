"""Which path a call takes, and why."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..kernels import Choice, choose
from ..kernels.squaf import choose_path
from ..spec import Activation, Rowwise, SoftTable
from .module import Pointwise
from .rowwise import RowwiseModule
from .squaf import Squaf


def explain(what: Any, x: Tensor) -> Choice:
    """Say how a module or a definition would be computed on this tensor, and why.

    >>> import softknee as sk, torch
    >>> sk.explain(sk.nn.SReLU(), torch.zeros(3)).path
    'plain'
    """
    if not isinstance(x, Tensor):
        raise InputError(f"explain() takes the tensor of the call, and {type(x).__name__} was given.")
    if isinstance(what, Pointwise):
        return choose(what.definition, x, what.fitted(x))
    if isinstance(what, Activation):
        return choose(what, x, [torch.full((1,), p.default, device=x.device) for p in what.params])
    if isinstance(what, Squaf):
        found = _of_table(x, uniform=what.k is not None, order=what.definition.order)
        if what.tails == "flat":
            return found
        return Choice(found.path, f"{found.reason} Its linear tails are plain tensor operations around that.")
    if isinstance(what, SoftTable):
        return _of_table(x, uniform=True, order=what.order)
    if isinstance(what, (Rowwise, RowwiseModule)):
        return Choice("plain", "a function of rows runs the torch code that its author wrote")
    raise InputError(
        f"explain() takes a softknee module or a definition, and {type(what).__name__} was given; "
        f"for a whole model ask for its activation modules one by one."
    )


def _of_table(x: Tensor, *, uniform: bool, order: int) -> Choice:
    if order:
        return Choice("plain", "A derivative of its own is computed with plain tensor operations.")
    return Choice(*choose_path(x, uniform=uniform))
