"""Which path a call takes, and why."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..kernels import Choice, choose
from ..spec import Activation
from .module import Pointwise


def explain(what: Any, x: Tensor) -> Choice:
    """Say how a module or a definition would be computed on this tensor, and why.

    >>> import softknee as sk, torch
    >>> sk.explain(sk.nn.SReLU(), torch.zeros(3)).path
    'plain'
    """
    if isinstance(what, Pointwise):
        return choose(what.definition, x, what.fitted(x))
    if isinstance(what, Activation):
        return choose(what, x, [torch.full((1,), p.default, device=x.device) for p in what.params])
    raise InputError(
        f"explain() takes a softknee module or a definition, and {type(what).__name__} was given; "
        f"for a whole model ask for its activation modules one by one."
    )
