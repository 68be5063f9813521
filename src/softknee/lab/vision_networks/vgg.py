"""VGG for 32 x 32 images as the distillation literature has it: batch norm, one linear classifier."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from .places import Factory, Place, built, conv, draw_by_outputs_

_WIDTHS = (64, 128, 256, 512, 512)
_HALVED = 3  # stages that end in a maximum over 2 x 2; the last two stay at 4 x 4


def vgg8(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Five stages of one convolution: 5 places, 3,965,028 parameters with 100 classes.

    >>> import softknee as sk
    >>> sum(p.numel() for p in vgg8(activation=lambda: sk.nn.SmeLU(beta=0.5)).parameters())
    3965028

    Reference: Simonyan, Zisserman (2014); the form for CIFAR is that of Tian, Krishnan, Isola (2019).
    """
    return built(lambda: _vgg((1, 1, 1, 1, 1), classes), activation=activation, classes=classes, seed=seed)


def vgg13(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Five stages of two convolutions: 10 places, 9,462,180 parameters with 100 classes. See `vgg8`."""
    return built(lambda: _vgg((2, 2, 2, 2, 2), classes), activation=activation, classes=classes, seed=seed)


def _vgg(depths: Sequence[int], classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    inputs = 3
    for stage, (width, depth) in enumerate(zip(_WIDTHS, depths, strict=True)):
        for _ in range(depth):
            layers += [conv(inputs, width, 3, bias=True), nn.BatchNorm2d(width), Place()]
            inputs = width
        if stage < _HALVED:
            layers.append(nn.MaxPool2d(2))
    head = nn.Linear(inputs, classes)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    draw_by_outputs_(model)
    nn.init.normal_(head.weight, std=0.01)
    nn.init.zeros_(head.bias)
    return model
