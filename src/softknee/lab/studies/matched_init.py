r"""Initial weights whose size is matched to the activation, so that every activation starts with a signal of one size.

With weights of variance g^2/fan_in the variance of pre-activations stays 1 from layer to layer if g^2 E f(Z)^2 = 1
(`sk.design.init_gain`: sqrt 2 for ReLU). Every linear and convolution weight is multiplied by one number, so that its
mean square is g^2/fan_in: the directions are still those of the seed, the same for every activation. The first layer
that runs reads the data, which are standardised, and has g = 1. Biases stay.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from ...design.init_gain import init_gain
from ...nn.parameters import Parameterised
from .checking import module_of
from .trial import Chosen

_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@torch.no_grad()
def match_init_(model: nn.Module, chosen: Chosen, example: Tensor) -> None:
    """Scale the weights of a model in place; a weight that is all 0 stays so."""
    order = _in_order(model, example)
    done: set[int] = set()
    for place, layer in enumerate(order):
        weight = layer.weight
        if id(weight) in done:  # shared by two layers
            continue
        done.add(id(weight))
        gain = start_gain(chosen) if place else 1.0
        size = weight.double().square().mean().sqrt()
        if size > 0:
            fan_in = weight[0].numel()
            weight.mul_((gain / fan_in**0.5 / size).to(weight.dtype))


def start_gain(chosen: Chosen) -> float:
    """The gain of an activation at the values its parameters start with.

    >>> start_gain(Chosen(name="relu", label="relu"))
    1.4142135623730951
    >>> round(start_gain(Chosen(name="srelu", label="srelu", values={"delta": 0.5})), 5)
    1.41201
    """
    module = module_of(chosen, per="layer")
    assert isinstance(module, Parameterised)
    values = {p.name: module.effective(p).detach().double() for p in module.params}
    numbers = tuple((name, one.item()) for name, one in values.items() if one.numel() == 1)
    others = {name: value for name, value in chosen.values.items() if name not in values}
    if others or len(numbers) < len(values):  # a table, or a setting that is no parameter
        return init_gain(chosen.name, params={**chosen.values})
    return _gain(chosen.name, numbers)


@functools.lru_cache(maxsize=256)
def _gain(name: str, numbers: tuple[tuple[str, float], ...]) -> float:
    return init_gain(name, params=dict(numbers))


def _in_order(model: nn.Module, example: Tensor) -> list[Any]:
    """The layers with weights in the order in which they first run; those that never run are left alone."""
    order: list[nn.Module] = []

    def note(layer: nn.Module, *_: object) -> None:
        if layer not in order:
            order.append(layer)

    hooks = [one.register_forward_pre_hook(note) for one in model.modules() if isinstance(one, _LAYERS)]
    modes = {one: one.training for one in model.modules()}
    model.eval()  # batch statistics stay as they are
    try:
        model(example)
    finally:
        for one, mode in modes.items():
            one.training = mode
        for hook in hooks:
            hook.remove()
    return order
