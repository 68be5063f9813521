"""The click model from words alone, as a checkpoint or a recipe holds them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch import nn

from ..networks import new_activation
from .model import HIDDEN, click_model

# What it takes besides its activation and its seed.
ARGUMENTS = tuple(name for name in inspect.signature(click_model).parameters if name not in ("activation", "seed"))


def build_by_name(*, activation: str = "relu", seed: int = 0, **given: Any) -> nn.Module:
    """The model with an activation by its name; what is no argument of the model is a knob of the activation.

    >>> made = build_by_name(hidden=[8, 4], activation="smelu", beta=2.0, learn=True, per="channel")
    >>> made[2], made[4]
    (SmeLU(beta=2 (learned), per='channel', size=8, dim=1), SmeLU(beta=2 (learned), per='channel', size=4, dim=1))
    """
    own = {name: given.pop(name) for name in ARGUMENTS if name in given}
    widths: Iterator[int] = iter(own.get("hidden", HIDDEN))
    return click_model(**own, activation=lambda: new_activation(activation, given, channels=next(widths)), seed=seed)
