"""What a loop goes on from: written to plain tensors, numbers and text, and read back whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import InputError
from . import parallel
from .optimizers import parts_of
from .state import own_in, pair_tensors, write_own

if TYPE_CHECKING:
    from .loop import OneByOne

FORMAT = "one by one, 1"


def write_state(loop: OneByOne) -> dict[str, Any]:
    """Copies of everything, on the CPU; in every process the whole."""
    return {
        "format": FORMAT,
        "seeds": list(loop.seeds),
        "shares": dict(loop.shares),
        "frozen": sorted(loop._models.frozen),
        "epoch": loop.epoch,
        "step": loop.step,
        "tensors": {name: one.cpu() for name, one in loop._models.stacked().items()},
        "logs": [one.detach().to("cpu", copy=True) for one in loop._logs],
        "optimizer": _write_optimizers(loop),
    }


def _write_optimizers(loop: OneByOne) -> dict[str, Any] | None:
    if not loop._steps.optimizers:
        return None
    name, options, lr_scale, own, _ = loop._steps.optimizer_key
    found: dict[str, list[Tensor]] = {}
    for model, optimizer in zip(loop._models.bare, loop._steps.optimizers, strict=True):
        for path, one in model.named_parameters():
            kept = (item for part in parts_of(optimizer) for item in part.state.get(one, {}).items())
            for key, value in kept:
                if value is not None:  # SGD without momentum says that it has none
                    found.setdefault(f"{path}:{key}", []).append(parallel.whole(torch.as_tensor(value)).cpu())
    tensors = {key: torch.stack(each) for key, each in found.items()}
    return {"name": name, "options": dict(options), "lr_scale": lr_scale, **write_own(own), "tensors": tensors}


@torch.no_grad()
def read_state(loop: OneByOne, state: Mapping[str, Any]) -> None:
    """Check all of it, then copy."""
    wanted = {"format", "seeds", "shares", "frozen", "epoch", "step", "tensors", "logs", "optimizer"}
    if not isinstance(state, Mapping) or not wanted <= set(state) or state["format"] != FORMAT:
        raise InputError("This is no state of such a loop: take what state_dict() gave, with the same version.")
    if list(state["seeds"]) != loop.seeds or dict(state["shares"]) != loop.shares:
        raise InputError(
            f"The state is of models with the seeds {list(state['seeds'])} and shares {dict(state['shares'])}, and "
            f"these have {loop.seeds} and {loop.shares}; build them alike."
        )
    pair_tensors(loop._models.shapes(), state["tensors"], what="state is")
    parameters = dict(loop._models.bare[0].named_parameters())
    frozen = frozenset(state["frozen"])
    if not frozen <= set(parameters):
        raise InputError("The state is of another model: it has frozen what is not trained here.")
    saved = state["optimizer"]
    moved = {name: one for name, one in parameters.items() if one.requires_grad and name not in frozen}
    _check_kept(saved, moved, loop.count)
    before = loop._steps.optimizers, loop._steps.optimizer_key, loop._models.frozen
    loop._steps.optimizers, loop._models.frozen = [], frozen
    try:
        if saved is not None:
            loop._steps.choose_optimizer(saved["name"], saved["options"], saved["lr_scale"], own_in(saved))
    except Exception:
        loop._steps.optimizers, loop._steps.optimizer_key, loop._models.frozen = before
        raise
    loop._models.load(state["tensors"])
    if saved is not None:
        _read_optimizers(loop, saved["tensors"])
    loop.epoch, loop.step = int(state["epoch"]), int(state["step"])
    loop._logs = [one.to(loop.device, copy=True) for one in state["logs"]]


def _check_kept(saved: Mapping[str, Any] | None, parameters: Mapping[str, Tensor], count: int) -> None:
    """Every tensor that an optimiser keeps is a number, or of the shape of its parameter, one that it moves."""
    for key, each in ({} if saved is None else saved["tensors"]).items():
        one = parameters.get(key.rpartition(":")[0])
        if one is None or tuple(each.shape) not in ((count,), (count, *one.shape)):
            raise InputError(f"The state is of another model: its optimiser keeps {key!r}, which has no place here.")


def _read_optimizers(loop: OneByOne, tensors: Mapping[str, Tensor]) -> None:
    for index, (model, optimizer) in enumerate(zip(loop._models.bare, loop._steps.optimizers, strict=True)):
        parameters = dict(model.named_parameters())
        keepers: dict[Tensor, Optimizer] = {}
        for part in parts_of(optimizer):
            part.state.clear()
            keepers |= {one: part for group in part.param_groups for one in group["params"]}
        for key, each in tensors.items():
            path, _, name = key.rpartition(":")
            one = parameters[path]
            keepers[one].state[one][name] = _like(one, each[index], counts=name == "step")


def _like(parameter: Tensor, value: Tensor, *, counts: bool) -> Tensor:
    """What is kept for a parameter, where it lies and in its shards; a count of steps stays on the CPU."""
    if counts:
        return value.clone()
    if hasattr(parameter, "full_tensor"):
        return parallel.like_sharded(parameter, value.clone())
    return value.to(parameter.device, copy=True)
