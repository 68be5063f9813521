r"""How much the length of the gradient changes from batch to batch.

    g_b = || d loss / d w on batch b ||_2,      variance = sum_b (g_b - mean)^2 / (B - 1)

over all parameters together and for each alone, summed as the batches come (Welford), so that memory does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..nn.parameters import require_model
from ..surgery.modules import restored


@dataclass(frozen=True)
class Norms:
    """The norms of a gradient over the batches; the variance of a single one is None."""

    mean: float
    variance: float | None
    smallest: float
    largest: float

    @property
    def relative_variance(self) -> float | None:
        """The variance over the square of the mean, which does not change with the scale of the loss."""
        return None if self.variance is None or not self.mean else self.variance / self.mean**2


@dataclass(frozen=True)
class GradientNorms:
    """The norms of the whole gradient, of that by each parameter, and how many batches there were."""

    whole: Norms
    parameters: Mapping[str, Norms]
    batches: int

    @property
    def mean(self) -> float:
        """The mean norm of the whole gradient over the batches."""
        return self.whole.mean

    @property
    def variance(self) -> float | None:
        """The variance of that norm over the batches."""
        return self.whole.variance


def gradient_norms(model: nn.Module, loss: Callable[[nn.Module, Any], Tensor], batches: Iterable[Any]) -> GradientNorms:
    """The norms of the gradients of a loss over batches, for the model as it stands (its mode, its weights).

    loss: called with the model and a batch; returns one number as a tensor. What it raises itself comes through.

    The model is left as it was, also where a batch fails: modes, running statistics, `.grad`, random numbers.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Linear(1, 1, bias=False)
    >>> batches = torch.tensor([[[1.0]], [[3.0]]])
    >>> result = sk.measure.gradient_norms(net, lambda model, x: model(x).sum(), batches)
    >>> result.mean, result.variance
    (2.0, 2.0)
    """
    require_model(model, "gradient_norms")
    if not callable(loss) or isinstance(loss, nn.Module | type):
        raise InputError(
            f"loss must be a function of the model and a batch, such as lambda model, batch: model(batch).mean(), and "
            f"{loss.__name__ if isinstance(loss, type) else type(loss).__name__} was given."
        )
    one_batch = isinstance(batches, str | bytes | Mapping) or (isinstance(batches, Tensor) and not batches.dim())
    if one_batch or not isinstance(batches, Iterable):
        raise InputError(
            f"batches must be an iterable of batches, such as a loader or a list of them, and "
            f"{type(batches).__name__} was given."
        )
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    if not trained:
        raise InputError(f"{type(model).__name__} has no parameter that is trained, and so no gradient.")
    whole, each = _Moments(), {name: _Moments() for name in trained}
    count = 0
    with restored(model):
        for batch in batches:
            with torch.enable_grad():
                value = loss(model, batch)
                if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
                    raise InputError(
                        f"loss must return one number that depends on the model, as a tensor, and for batch {count} it "
                        f"returned {_shown(value)}."
                    )
                grads = torch.autograd.grad(value.reshape(()), list(trained.values()), allow_unused=True)
            norms = [0.0 if value is None else float(value.double().norm()) for value in grads]
            if not all(math.isfinite(value) for value in norms):
                name = next(name for name, value in zip(trained, norms, strict=True) if not math.isfinite(value))
                raise InputError(
                    f"The gradient by {name!r} on batch {count} is NaN or infinite; the model has diverged, or the "
                    f"batch holds such numbers."
                )
            for name, norm in zip(trained, norms, strict=True):
                each[name].add(norm)
            whole.add(math.hypot(*norms))
            count += 1
    if not count:
        raise InputError("batches was empty, so that there is nothing to go by.")
    return GradientNorms(whole.finished(), {name: value.finished() for name, value in each.items()}, count)


class _Moments:
    def __init__(self) -> None:
        self.count, self.mean, self.squares, self.low, self.high = 0, 0.0, 0.0, math.inf, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        apart = value - self.mean
        self.mean += apart / self.count
        self.squares += apart * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)

    def finished(self) -> Norms:
        variance = self.squares / (self.count - 1) if self.count > 1 else None
        return Norms(self.mean, variance, self.low, self.high)


def _shown(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"a tensor of shape {tuple(value.shape)}{'' if value.requires_grad else ' without a gradient'}"
