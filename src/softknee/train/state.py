"""What training goes on from: written to plain tensors, numbers and text, and read back whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import InputError
from .optimizers import Own, StackedOptimizer, read_own

if TYPE_CHECKING:
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
        "tensors": {name: _copy(one) for name, one in replicas._stack.tensors.items()},
        "logs": [_copy(one) for one in replicas._logs],
        "optimizer": None
        if optimizer is None
        else {
            "name": optimizer.name,
            "options": dict(optimizer.options),
            "lr_scale": replicas._optimizer_key[2],
            **write_own(replicas._optimizer_key[3]),
            "tensors": [_copy(one) for one in optimizer.tensors()],
        },
    }


@torch.no_grad()
def read_state(replicas: Replicas, state: Mapping[str, Any]) -> None:
    """Check all of it, then copy."""
    wanted = {"format", "seeds", "shares", "frozen", "epoch", "step", "tensors", "logs", "optimizer"}
    if not isinstance(state, Mapping) or not wanted <= set(state) or state["format"] != FORMAT:
        raise InputError("This is no state of replicas: take what state_dict() gave, with the same version.")
    if list(state["seeds"]) != replicas.seeds or dict(state["shares"]) != replicas.shares:
        raise InputError(
            f"The state is of replicas with the seeds {list(state['seeds'])} and shares {dict(state['shares'])}, and "
            f"these have {replicas.seeds} and {replicas.shares}; build them alike."
        )
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
            own = {str(index): one for index, one in enumerate(chosen.tensors())}
            given = {str(index): one for index, one in enumerate(saved["tensors"])}
            pairs += pair_tensors(own, given, what="state is")
    except Exception:
        replicas._optimizer, replicas._optimizer_key, replicas._stack.frozen = before
        raise
    for held, given in pairs:
        held.copy_(given)
    replicas.epoch, replicas.step = int(state["epoch"]), int(state["step"])
    replicas._draws.step.fill_(replicas.step)
    replicas._logs = [one.to(replicas.device, copy=True) for one in state["logs"]]


def carry_over(old: StackedOptimizer, before: Groups, new: StackedOptimizer, after: Groups) -> None:
    """Give a new optimiser over fewer parameters what the old one keeps of them; groups are in the order of both."""
    held = {
        (name, key): kept[index]
        for names, state in zip(before.values(), old.state, strict=True)
        for key, kept in state.items()
        for index, name in enumerate(names)
    }
    new.age.copy_(old.age)
    for names, state in zip(after.values(), new.state, strict=True):
        for key, kept in state.items():
            for name, one in zip(names, kept, strict=True):
                one.copy_(held[name, key])


def write_own(own: Own | None) -> dict[str, Any]:
    """The optimiser of activations beside the one of the weights; nothing where there is none, as in older states."""
    return {} if own is None else {"activation_optimizer": own.name, "activation_lr": own.rate}


def own_in(saved: Mapping[str, Any]) -> Own | None:
    """What `write_own` wrote."""
    return read_own(saved.get("activation_optimizer"), saved.get("activation_lr"))


def pair_tensors(held: Mapping[str, Tensor], given: Mapping[str, Tensor], *, what: str) -> list[tuple[Tensor, Tensor]]:
    """The tensors that belong together; a sentence where names, shapes or types differ."""
    if set(held) != set(given):
        differs = sorted(set(held) ^ set(given))
        raise InputError(f"The {what} of another model: it differs in {', '.join(map(repr, differs[:3]))}.")
    for name, one in held.items():
        if one.shape != given[name].shape or one.dtype != given[name].dtype:
            raise InputError(
                f"The {what} of another model: {name!r} has shape {tuple(given[name].shape)} there and "
                f"{tuple(one.shape)} here, or another type."
            )
    return [(one, given[name]) for name, one in held.items()]


def _copy(one: Tensor) -> Tensor:
    return one.detach().to("cpu", copy=True)
