"""Checks of the arguments that all kinds of training share: seeds, examples, rates, outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, ParameterError, first_line, require_count, require_number
from .losses import Loss, read_loss
from .schedules import Schedule, read_table

_IGNORED = -100  # a label that torch's cross-entropy leaves out


def read_seeds(what: str, *, count: int, seeds: Iterable[int] | None, repeated: bool = False) -> list[int]:
    """One seed for each model, all different unless `repeated`; 0, 1, 2, ... by default."""
    require_count(what, "count", count)
    try:
        values = list(range(count) if seeds is None else seeds)
    except TypeError:
        raise ParameterError(f"{what}: seeds must be a list, one for each model, and {seeds!r} was given.") from None
    if len(values) != count:
        raise ParameterError(f"{what}: {len(values)} seeds were given for {count} models; give one for each.")
    for seed in values:
        require_count(what, "a seed", seed, least=0, most=2**63 - 1)
    if len(set(values)) < count and not repeated:
        twice = next(seed for seed in values if values.count(seed) > 1)
        raise ParameterError(f"{what}: the seed {twice} was given twice, which would make two equal models.")
    return values


def read_examples(
    x: Tensor, y: Tensor, *, epochs: int, batch: int, device: torch.device | str
) -> tuple[Tensor, Tensor]:
    """All examples and their targets, on the device."""
    for name, value in (("epochs", epochs), ("batch", batch)):
        require_count("fit", name, value)
    for name, data in (("x", x), ("y", y)):
        if not isinstance(data, Tensor) or data.dim() == 0:
            raise InputError(f"fit: {name} must be a tensor with the examples along its first dimension.")
    if len(x) != len(y) or len(x) == 0:
        raise InputError(f"fit: x has {len(x)} examples and y has {len(y)} targets; give one target for each.")
    return x.detach().to(device).contiguous(), y.detach().to(device).contiguous()


def read_targets(y: Tensor, loss: str | Loss) -> Tensor:
    """The targets as the loss takes them: labels of any whole type as int64."""
    if loss != "cross_entropy":
        return y
    if y.is_complex() or (y.is_floating_point() and y.dim() < 2):
        raise InputError(
            f"fit: cross_entropy takes labels as whole numbers, or the share of each label in a dimension more, and y "
            f"has {y.dtype} and shape {tuple(y.shape)}; convert labels with y.long(), or choose loss='mse'."
        )
    return y if y.is_floating_point() else y.long()


@torch.no_grad()
def try_example(model: nn.Module, x: Tensor, y: Tensor, loss: str | Loss) -> None:
    """Refuse examples that an ordinary copy of the model cannot be run on, and labels that it has no output for.

    Otherwise the message would blame vmap for the first; the second would be an error of the device, lost by then.
    """
    devices = [x.device] if x.is_cuda else []
    try:
        with torch.random.fork_rng(devices=devices):
            made = model.eval()(x[:1])
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise InputError(
            f"fit: {type(model).__name__} cannot be run on x, which has {x.dtype} and examples of shape "
            f"{tuple(x.shape[1:])}; give it the type and shape that the model takes. (torch says: {first_line(error)})"
        ) from error
    if loss != "cross_entropy" or y.is_floating_point() or not isinstance(made, Tensor) or made.dim() < 2:
        return
    low, high = int(y.where(y != _IGNORED, 0).min()), int(y.max())
    if low < 0 or high >= made.shape[1]:
        raise InputError(
            f"fit: the labels in y go from {low} to {high}, and the model has {made.shape[1]} outputs, for labels from "
            f"0 to {made.shape[1] - 1}; number the labels from 0, or give the model more outputs."
        )


def steps_of_epoch(examples: int, *, batch: int, drop_last: bool) -> int:
    """How many steps a pass over the examples has."""
    steps = examples // batch if drop_last else math.ceil(examples / batch)
    if steps == 0:
        raise ParameterError(f"A batch of {batch} is more than the {examples} examples there are.")
    return steps


def read_shares(
    schedule: Schedule | None, *, done: int, epochs: int, total_epochs: int | None, per_epoch: int
) -> list[float]:
    """The share of the full rate in each of the steps to come, after `done` epochs."""
    total = done + epochs if total_epochs is None else total_epochs
    if total < done + epochs:
        raise ParameterError(f"total_epochs={total} is less than the {done} epochs done and the {epochs} to come.")
    return read_table(schedule, first=done * per_epoch, count=epochs * per_epoch, total=max(1, total * per_epoch))


def read_rate(lr: float | Sequence[float] | Tensor, *, count: int) -> Tensor:
    """The full rate, in float64: a number, or one for each model."""
    rate = torch.as_tensor(lr, dtype=torch.float64).cpu()
    if rate.shape not in ((), (count,)) or not bool(((rate >= 0) & rate.isfinite()).all()):
        raise ParameterError(f"lr must be a finite number of at least 0, or {count} of them, one a model, not {lr!r}.")
    return rate


def check_clip(clip: float | None) -> None:
    """Refuse what is no bound of a norm."""
    if clip is not None:
        require_number("fit", "clip", clip)


def read_single(given: str | Loss) -> Loss:
    """The loss of that name, or the given function, for one model: outputs and targets [n, ...] to one number."""
    if not isinstance(given, str):
        read_loss(given)  # refuses what is no function
        return given
    stacked = read_loss(given)
    return lambda output, target: stacked(output.unsqueeze(0), target.unsqueeze(0)).squeeze(0)


def tensor_of(output: Any) -> Tensor:
    """A model's output, or the logits in it (transformers)."""
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor):
        raise InputError(
            f"The model must return one tensor, or something with a tensor called logits, and it returned a "
            f"{type(output).__name__}."
        )
    return logits


def scalar_loss(loss: Tensor) -> Tensor:
    """The loss of one model, refused where it is not a number."""
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        raise InputError(
            f"The loss must be one number, and it has shape {tuple(getattr(loss, 'shape', ()))}; take its mean "
            "over the examples."
        )
    return loss
