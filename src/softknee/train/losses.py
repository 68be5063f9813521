"""Losses of all replicas at once: outputs [M, n, ...] and targets [M, n, ...] to one number for each replica."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import ParameterError, did_you_mean

Loss = Callable[[Tensor, Tensor], Tensor]


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    each = F.cross_entropy(output.flatten(0, 1), target.flatten(0, 1), reduction="none")
    return each.view(output.shape[0], -1).mean(1)


def _squared_error(output: Tensor, target: Tensor) -> Tensor:
    return (_like(output, target) - output).square().flatten(1).mean(1)


def _binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    each = F.binary_cross_entropy_with_logits(output, _like(output, target), reduction="none")
    return each.flatten(1).mean(1)


def _like(output: Tensor, target: Tensor) -> Tensor:
    # [M, n] of targets against [M, n, 1] of outputs would broadcast to every pair of examples.
    if target.numel() != output.numel():
        raise ParameterError(
            f"The loss needs a target for every output, and they have shapes {tuple(target.shape[1:])} and "
            f"{tuple(output.shape[1:])} for each replica."
        )
    return target.reshape(output.shape).to(output.dtype)


LOSSES: dict[str, Loss] = {
    "cross_entropy": _cross_entropy,
    "mse": _squared_error,
    "bce_with_logits": _binary_cross_entropy,
}


def read_loss(given: str | Loss) -> Loss:
    """The loss of that name, or a function of one replica's output and target, applied to each."""
    if isinstance(given, str):
        if given not in LOSSES:
            near = did_you_mean(given, LOSSES) or f" Known are {', '.join(LOSSES)}, or pass a function."
            raise ParameterError(f"There is no loss called {given!r}.{near}")
        return LOSSES[given]
    if not callable(given):
        raise ParameterError(f"loss must be a name or a function, and {type(given).__name__} was given.")
    return torch.func.vmap(given)
