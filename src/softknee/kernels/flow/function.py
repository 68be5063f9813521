"""The function `bend`: checks its arguments, then hands them to the operator or to the plain form."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ParameterError
from ..squaf.dispatch import inside_transform, must_differentiate_through
from .op import BendFunction
from .plain import bend_plain


def bend(x: Tensor, theta: Tensor, *, low: float, high: float, gated: bool) -> Tensor:
    """T(x) Phi(x), or T(x) where `gated` is False: T carries x along a velocity on [low, high] for the time 1.

    The velocity is 0 at both ends and outside, theta (the last dimension) at the borders between equal cells, in cells
    per unit of time, and straight in each cell. The other dimensions of theta broadcast against x. Differentiable to
    every order by x and theta; half types are computed in float32. NaN stays NaN, and T(x) = x outside.

    >>> import torch
    >>> bend(torch.tensor([0.0, 0.5, 1.0, 2.5]), torch.tensor([1.0]), low=0.0, high=2.0, gated=False)
    tensor([0.0000, 1.2642, 1.6321, 2.5000])
    """
    own, wanted = theta.shape[:-1], x.shape or torch.Size([1])
    try:
        fits = torch.broadcast_shapes(own, wanted) == wanted
    except RuntimeError:
        fits = False
    if not fits:
        raise ParameterError(
            f"theta has shape {tuple(theta.shape)}, and without its last dimension it does not broadcast into x of "
            f"shape {tuple(x.shape)}; use (1, cells - 1) for the whole tensor."
        )
    arguments = (x.reshape(1) if x.dim() == 0 else x, theta, low, high, gated)
    if must_differentiate_through():
        out = bend_plain(*arguments)
    elif inside_transform():
        out = BendFunction.apply(*arguments)
    else:
        out = torch.ops.softknee.bend(*arguments)
    return out.reshape(x.shape)
