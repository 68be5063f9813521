"""Progressive validation: in a single pass each example is predicted before it is trained on (Blum et al., 1999).

The outputs of a training step are made before the step moves anything. Kept, they are what the model said of examples
that it had never seen, and no example needs to be set aside.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from ..errors import ParameterError
from ..nn.squaf_modes import SQUAFP


def check_progressive(model: nn.Module, *, epochs: int, compiled: bool, augment: Any) -> None:
    """Refuse what would make a training step's outputs other than predictions of unseen examples."""
    if epochs != 1:
        raise ParameterError(
            f"progressive: an example is unseen once, so that there is one pass; {epochs} epochs were asked for."
        )
    if compiled or augment is not None:
        raise ParameterError("progressive: compiled models and augmented examples are not for it; leave them out.")
    for path, module in model.named_modules():
        if (isinstance(module, _DropoutNd) and module.p > 0) or isinstance(module, _BatchNorm | SQUAFP):
            raise ParameterError(
                f"progressive: {path!r} ({type(module).__name__}) computes otherwise in training than in prediction, "
                "so that the outputs of a training step are no predictions; leave it out of the model."
            )


def room_for(outputs: Tensor, count: int) -> Tensor:
    """Room for the outputs of `count` examples, of the shape that `outputs` [M, n, ...] has; NaN until it is filled."""
    return outputs.new_full((outputs.shape[0], count, *outputs.shape[2:]), float("nan"))


def by_example(foretold: Tensor, order: Tensor) -> Tensor:
    """Outputs [M, n, ...] in the order of the steps, `order` [M or 1, n], in the order of the examples.

    >>> by_example(torch.tensor([[10.0, 11.0, 12.0]]), torch.tensor([[2, 0, 1]]))
    tensor([[11., 12., 10.]])
    """
    places = order.view(*order.shape, *[1] * (foretold.dim() - 2)).expand_as(foretold)
    return torch.empty_like(foretold).scatter_(1, places, foretold)
