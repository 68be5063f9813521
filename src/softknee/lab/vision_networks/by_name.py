"""A network of the vision papers from words alone, as a checkpoint or a recipe holds them."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

import softknee as sk

from ..networks import new_activation
from . import NETWORKS

_SET_ELSEWHERE = ("activation", "seed")


def arguments_of(network: str) -> tuple[str, ...]:
    """What a network takes besides its activation and its seed.

    >>> arguments_of("vgg8"), arguments_of("deit_tiny")
    (('classes',), ('classes', 'image', 'patch'))
    """
    return tuple(name for name in inspect.signature(NETWORKS[network]).parameters if name not in _SET_ELSEWHERE)


def build_by_name(network: str, *, activation: str = "relu", seed: int = 0, **given: Any) -> nn.Module:
    """The network with an activation by its name; what is no argument of the network is a knob of the activation.

    >>> made = build_by_name("wrn16_2", classes=10, activation="srelu", delta=0.5, learn="delta", per="channel")
    >>> made[1].act2
    SReLU(delta=0.5 (learned), per='channel', size=32, dim=1)
    """
    own = {name: given.pop(name) for name in arguments_of(network) if name in given}
    # One size for all places is left to the activation, which says where it does not fit.
    sized = not activation.startswith("torch:") and given.get("per", "layer") != "layer" and "size" not in given
    per = given.pop("per") if sized else "layer"
    made: list[nn.Module] = []

    def new() -> nn.Module:
        made.append(new_activation(activation, given, channels=1))
        return made[-1]

    model = NETWORKS[network](**own, activation=new, seed=seed)
    if sized:  # the sizes are known once an image has passed
        ours, side = {id(one) for one in made}, own.get("image", 32)
        example = torch.zeros(2, 3, side, side)
        sk.swap_(model, activation, where=lambda site: id(site.place.old) in ours, per=per, example=example, **given)
    return model
