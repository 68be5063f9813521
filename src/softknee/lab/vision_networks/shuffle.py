"""ShuffleNetV1 for 32 x 32 images, three groups."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .places import Factory, Place, built, conv

_GROUPS = 3
_STEM = 24
_STAGES = ((240, 4), (480, 8), (960, 4))  # channels and units


def shufflenetv1(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Three stages of 4, 8 and 4 units after a 1 x 1 convolution: 49 places, 949,258 parameters with 100 classes.

    As the distillation literature has it, the depthwise convolution is followed by an activation too, which the first
    paper leaves out: three places in each of the 16 units, and one after the stem.

    Reference: Zhang, Zhou, Lin, Sun (2018); the form for CIFAR is that of Tian, Krishnan, Isola (2019).
    """
    return built(lambda: _shufflenet(classes), activation=activation, classes=classes, seed=seed)


class Shuffle(nn.Module):
    """Channel c of group g becomes channel g of group c, so that the next grouped convolution sees all groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, x: Tensor) -> Tensor:
        """Of images [n, c, h, w].

        >>> Shuffle(2)(torch.arange(6.0).view(1, 6, 1, 1)).flatten()
        tensor([0., 3., 1., 4., 2., 5.])
        """
        n, channels, height, width = x.shape
        grouped = x.reshape(n, self.groups, channels // self.groups, height, width)
        return grouped.transpose(1, 2).reshape(n, channels, height, width)


class Unit(nn.Module):
    """Grouped 1 x 1, shuffle, depthwise 3 x 3, grouped 1 x 1; added to x, or beside its mean over 3 x 3 at stride 2."""

    def __init__(self, inputs: int, outputs: int, *, halve: bool) -> None:
        super().__init__()
        made = outputs - inputs if halve else outputs
        middle = made // 4  # of what the unit itself makes: with a quarter of all outputs the paper's count is missed
        first = 1 if inputs == _STEM else _GROUPS  # the stem has too few channels to part them
        self.conv1, self.norm1, self.act1 = conv(inputs, middle, 1, groups=first), nn.BatchNorm2d(middle), Place()
        self.shuffle = Shuffle(first)
        self.conv2 = conv(middle, middle, 3, stride=2 if halve else 1, groups=middle)
        self.norm2, self.act2 = nn.BatchNorm2d(middle), Place()
        self.conv3, self.norm3, self.act3 = conv(middle, made, 1, groups=_GROUPS), nn.BatchNorm2d(made), Place()
        self.beside = nn.AvgPool2d(3, stride=2, padding=1) if halve else None

    def forward(self, x: Tensor) -> Tensor:
        """Of images [n, inputs, h, w]."""
        y = self.shuffle(self.act1(self.norm1(self.conv1(x))))
        y = self.norm3(self.conv3(self.act2(self.norm2(self.conv2(y)))))
        return self.act3(y + x if self.beside is None else torch.cat([y, self.beside(x)], dim=1))


def _shufflenet(classes: int) -> nn.Sequential:
    layers: list[nn.Module] = [conv(3, _STEM, 1), nn.BatchNorm2d(_STEM), Place()]
    inputs = _STEM
    for width, units in _STAGES:
        layers += [Unit(width if turn else inputs, width, halve=turn == 0) for turn in range(units)]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
