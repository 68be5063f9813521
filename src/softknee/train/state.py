"""The state of a training: written as plain tensors, numbers and text, and read back whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError
from .optimizers import Own, StackedOptimizer, read_own

if TYPE_CHECKING:
    from .one_by_one import OneByOne
    from .replicas import Replicas

FORMAT = 2
Groups = Mapping[str, Sequence[str]]


def write_state(replicas: Replicas) -> dict[str, Any]:
    """Copies of everything, on the CPU."""
    optimizer = replicas._optimizer
    return {
        "format": FORMAT,
        "seeds": list(replicas.seeds),
        "shares": dict(replicas.shares),
        "frozen": sorted(replicas._stack.frozen),
        "epoch": replicas.epoch,
        "step": replicas.step,
        "tensors": {name: _copy(tensor) for name, tensor in replicas._stack.tensors.items()},
        "logs": [_copy(log) for log in replicas._logs],
        "optimizer": None
        if optimizer is None
        else {
            "name": optimizer.name,
            "options": dict(optimizer.options),
            "lr_scale": replicas._optimizer_key[2],
            **write_own(replicas._optimizer_key[3]),
            "tensors": [_copy(tensor) for tensor in optimizer.tensors()],
        },
    }


def check_state(state: Any, written_as: int | str, models: Replicas | OneByOne, *, what: str) -> None:
    """Refuse what is no state, or one of models with other seeds."""
    wanted = {"format", "seeds", "shares", "frozen", "epoch", "step", "tensors", "logs", "optimizer"}
    if not isinstance(state, Mapping) or not wanted <= set(state) or state["format"] != written_as:
        raise InputError(f"This is no state of {what}: pass the result of state_dict(), from the same version.")
    if list(state["seeds"]) != models.seeds or dict(state["shares"]) != models.shares:
        raise InputError(
            f"The state is of models with the seeds {list(state['seeds'])} and shares {dict(state['shares'])}, and "
            f"these have {models.seeds} and {models.shares}; build them alike."
        )


@torch.no_grad()
def read_state(replicas: Replicas, state: Mapping[str, Any]) -> None:
    """Check all of it, then copy."""
    check_state(state, FORMAT, replicas, what="replicas")
    pairs = pair_tensors(replicas._stack.tensors, state["tensors"], what="state is")
    saved = state["optimizer"]
    frozen = frozenset(state["frozen"])
    if not frozen <= set(replicas._stack.trainable):
        raise InputError("The state is of another model: it has frozen what is not trained here.")
    before = replicas._optimizer, replicas._optimizer_key, replicas._stack.frozen
    replicas._optimizer, replicas._stack.frozen = None, frozen
    try:
        if saved is not None:
            settings = saved["name"], saved["options"], saved["lr_scale"], own_in(saved)
            chosen = replicas._choose_optimizer(*settings)
            own = {str(index): tensor for index, tensor in enumerate(chosen.tensors())}
            given = {str(index): tensor for index, tensor in enumerate(saved["tensors"])}
            pairs += pair_tensors(own, given, what="state is")
    except Exception:
        replicas._optimizer, replicas._optimizer_key, replicas._stack.frozen = before
        raise
    for held, given in pairs:
        held.copy_(given)
    replicas.epoch, replicas.step = int(state["epoch"]), int(state["step"])
    replicas._draws.step.fill_(replicas.step)
    replicas._logs = [log.to(replicas.device, copy=True) for log in state["logs"]]


def carry_over(old: StackedOptimizer, before: Groups, new: StackedOptimizer, after: Groups) -> None:
    """Copy the state of an optimiser to a new one over fewer parameters; groups are in the order of both."""
    held = {
        (name, key): kept[index]
        for names, state in zip(before.values(), old.state, strict=True)
        for key, kept in state.items()
        for index, name in enumerate(names)
    }
    new.age.copy_(old.age)
    for names, state in zip(after.values(), new.state, strict=True):
        for key, kept in state.items():
            for name, tensor in zip(names, kept, strict=True):
                tensor.copy_(held[name, key])


def write_own(own: Own | None) -> dict[str, Any]:
    """The optimiser of the activations where they have their own; else nothing, as in older states."""
    return {} if own is None else {"activation_optimizer": own.name, "activation_lr": own.rate}


def own_in(saved: Mapping[str, Any]) -> Own | None:
    """What `write_own` wrote."""
    return read_own(saved.get("activation_optimizer"), saved.get("activation_lr"))


def pair_tensors(held: Mapping[str, Tensor], given: Mapping[str, Tensor], *, what: str) -> list[tuple[Tensor, Tensor]]:
    """The tensors in pairs by name; refused where names, shapes or types differ."""
    if set(held) != set(given):
        differs = sorted(set(held) ^ set(given))
        raise InputError(f"The {what} of another model: it differs in {', '.join(map(repr, differs[:3]))}.")
    for name, tensor in held.items():
        if tensor.shape != given[name].shape or tensor.dtype != given[name].dtype:
            raise InputError(
                f"The {what} of another model: {name!r} has shape {tuple(given[name].shape)} there and "
                f"{tuple(tensor.shape)} here, or another type."
            )
    return [(tensor, given[name]) for name, tensor in held.items()]


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)
