"""Weights first, activations after them: a network is built with empty places, which are then filled."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from ...errors import ParameterError

Factory = Callable[[], nn.Module]


class Place(nn.Identity):
    """Where an activation will stand."""


def built(
    make: Callable[[], nn.Module],
    *,
    activation: Factory,
    classes: int,
    seed: int,
    is_place: Callable[[nn.Module], bool] = lambda module: isinstance(module, Place),
) -> nn.Module:
    """What `make` returns, drawn from the seed, with a module of its own at each place.

    Torch's global random state is neither used nor changed. An activation that starts at random is drawn from the seed
    too, after all weights.
    """
    if not isinstance(classes, int) or isinstance(classes, bool) or classes < 1:
        raise ParameterError(f"classes must be a whole number above 0, and {classes!r} was given.")
    if not callable(activation):
        raise ParameterError(
            "activation must be a function that returns a new module at each call, such as torch.nn.GELU or "
            f"lambda: sk.nn.SmeLU(beta=0.5), and {type(activation).__name__} was given."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make()
        for path, module in list(model.named_modules()):
            if is_place(module):
                parent, _, name = path.rpartition(".")
                setattr(model.get_submodule(parent), name, _new(activation))
    return model


def _new(activation: Factory) -> nn.Module:
    made = activation()
    if not isinstance(made, nn.Module):
        raise ParameterError(f"activation() must return a torch.nn.Module, and it returned a {type(made).__name__}.")
    return made


def conv(inputs: int, outputs: int, size: int, *, stride: int = 1, groups: int = 1, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps height and width, but for its stride."""
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=bias)


def draw_by_outputs_(model: nn.Module) -> None:
    """Normal weights of variance 2 / (outputs * size of the kernel): what He's rule says of the backward pass."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            fan = module.out_channels * math.prod(module.kernel_size)
            nn.init.normal_(module.weight, std=math.sqrt(2 / fan))
            if module.bias is not None:
                nn.init.zeros_(module.bias)
