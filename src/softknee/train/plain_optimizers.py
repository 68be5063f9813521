"""torch's own optimisers over the groups of one model: one of them, or a pair where activations have their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from ..surgery.groups import Group
from ..surgery.optimizers import PairedOptimizer
from .optimizers import Own

_KINDS: dict[str, Any] = {
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}


def make_optimizer(groups: Sequence[Group], name: str, options: Mapping[str, Any], own: Own | None) -> Optimizer:
    """What moves these groups, which `param_groups` made and of which none is empty.

    own: moves the group "activations" where it is there; the optimiser called `name` moves the others, or all.
    """
    apart = [{**one, "lr": own.rate} for one in groups if own is not None and one["name"] == "activations"]
    others = [one for one in groups if not apart or one["name"] != "activations"]
    made = [_KINDS[name](others, lr=1.0, **options)] if others else []
    if own is not None and apart:
        made.append(_KINDS[own.name](apart, lr=own.rate))
    return made[0] if len(made) == 1 else PairedOptimizer(*made)


def parts_of(optimizer: Optimizer) -> list[Optimizer]:
    """Those that keep something for their parameters: the two of a pair, or the optimiser itself."""
    return list(optimizer.pair.values()) if isinstance(optimizer, PairedOptimizer) else [optimizer]
