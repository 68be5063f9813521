"""Weights saved before a swap load after it, strictly: the new activations keep their values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...nn.parameters import Parameterised
from ..finding.sites import Place


def keep_loadable(place: Place, new: nn.Module, *, kept: bool) -> Callable[[], None]:
    """Let a module be loaded from weights that were saved before it was there; returns how to take that back."""
    old = place.old
    names = tuple(old.state_dict()) if isinstance(old, nn.Module) else ()
    if not kept:
        handle = new.register_load_state_dict_pre_hook(partial(_keep_own, old_names=names))
        return handle.remove
    if not names:
        return _nothing
    # The old module under a second name: its weights were saved under the first.
    first = place.calls[0].attribute
    handle = place.owner.register_load_state_dict_pre_hook(partial(_take_from, first=first, second=place.name))
    return handle.remove


def _nothing() -> None:
    pass


def _keep_own(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any, old_names: tuple[str, ...]) -> None:
    """Weights saved before the swap know nothing of the new module: it keeps its values, and the old ones are left."""
    own = _values(module)
    news = [name for name in own if name not in old_names]
    if any(prefix + name in state for name in news) or (own and not news):
        return  # saved after the swap, or the two have the same names
    for name in old_names:
        state.pop(prefix + name, None)
    for name, value in own.items():
        state[prefix + name] = value


def _values(module: nn.Module) -> dict[str, Tensor]:
    """The state of a module; one on the meta device has none yet, so that its start values stand in."""
    own = module.state_dict()
    if isinstance(module, Parameterised) and any(value.device.type == "meta" for value in own.values()):
        started = copy.copy(module)
        for kept in ("_parameters", "_buffers"):
            held = {name: torch.empty_like(one, device="cpu") for name, one in vars(module)[kept].items()}
            vars(started)[kept] = held
        started.reset_parameters()
        return {name: started._held(name) for name in own}
    return own


def _take_from(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any, first: str, second: str) -> None:
    """What was saved under the first name goes under the second, unless that was saved, too."""
    if any(key.startswith(f"{prefix}{second}.") for key in state):
        return
    begin = f"{prefix}{first}."
    state.update(
        {f"{prefix}{second}.{key.removeprefix(begin)}": v for key, v in state.items() if key.startswith(begin)}
    )
