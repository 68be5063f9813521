"""Residual networks for 32 x 32 images: ResNet-56, ResNet-18 with a 3 x 3 stem, and wide residual networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from .places import Factory, Place, built, conv, draw_by_outputs_


def resnet56(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Three stages of nine basic blocks, 16, 32 and 64 wide: 55 places, 861,620 parameters with 100 classes.

    Where a stage changes the shape, the shortcut is a 1 x 1 convolution with batch norm.

    Reference: He, Zhang, Ren, Sun (2016), section 4.2.
    """
    return built(lambda: _resnet((16, 32, 64), 9, classes), activation=activation, classes=classes, seed=seed)


def resnet18(*, classes: int = 10, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Four stages of two basic blocks, 64 to 512 wide, after a 3 x 3 convolution without pooling: 17 places.

    11,173,962 parameters with 10 classes, 11,220,132 with 100.
    """
    return built(lambda: _resnet((64, 128, 256, 512), 2, classes), activation=activation, classes=classes, seed=seed)


def wrn16_2(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Wide residual network of depth 16 and width 2: 13 places, 703,284 parameters with 100 classes.

    Batch norm and activation come before each convolution.

    Reference: Zagoruyko, Komodakis (2016).
    """
    return built(lambda: _wide(2, classes), activation=activation, classes=classes, seed=seed)


def wrn40_2(*, classes: int = 100, activation: Factory = nn.ReLU, seed: int = 0) -> nn.Module:
    """Depth 40 and width 2: 37 places, 2,255,156 parameters with 100 classes. See `wrn16_2`."""
    return built(lambda: _wide(6, classes), activation=activation, classes=classes, seed=seed)


class BasicBlock(nn.Module):
    """y = act(shortcut(x) + norm(conv(act(norm(conv(x))))))."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1, self.act1 = conv(inputs, outputs, 3, stride=stride), nn.BatchNorm2d(outputs), Place()
        self.conv2, self.norm2, self.act2 = conv(outputs, outputs, 3), nn.BatchNorm2d(outputs), Place()
        self.shortcut: nn.Module = (
            nn.Identity()
            if stride == 1 and inputs == outputs
            else nn.Sequential(conv(inputs, outputs, 1, stride=stride), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Of images [n, inputs, h, w]."""
        y = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        return self.act2(y + self.shortcut(x))


class PreactivatedBlock(nn.Module):
    """y = conv(act(norm(conv(a)))) + x with a = act(norm(x)); where the shape changes, x becomes conv(a)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.act1, self.conv1 = nn.BatchNorm2d(inputs), Place(), conv(inputs, outputs, 3, stride=stride)
        self.norm2, self.act2, self.conv2 = nn.BatchNorm2d(outputs), Place(), conv(outputs, outputs, 3)
        self.shortcut = None if inputs == outputs else conv(inputs, outputs, 1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """Of images [n, inputs, h, w]."""
        a = self.act1(self.norm1(x))
        y = self.conv2(self.act2(self.norm2(self.conv1(a))))
        return y + (x if self.shortcut is None else self.shortcut(a))


def _blocks(kind: type[nn.Module], widths: Sequence[int], depth: int) -> list[nn.Module]:
    """Stages of `depth` blocks; widths begin with that of the input, and every stage but the first halves the image."""
    return [
        kind(inputs if first else outputs, outputs, 2 if first and stage else 1)
        for stage, (inputs, outputs) in enumerate(pairwise(widths))
        for first in [True] + [False] * (depth - 1)
    ]


def _resnet(widths: Sequence[int], depth: int, classes: int) -> nn.Sequential:
    stem = [conv(3, widths[0], 3), nn.BatchNorm2d(widths[0]), Place()]
    blocks = _blocks(BasicBlock, (widths[0], *widths), depth)
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], classes))
    draw_by_outputs_(model)
    return model


def _wide(depth: int, classes: int) -> nn.Sequential:
    blocks = _blocks(PreactivatedBlock, (16, 32, 64, 128), depth)
    head = nn.Linear(128, classes)
    end = [nn.BatchNorm2d(128), Place(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head]
    model = nn.Sequential(conv(3, 16, 3), *blocks, *end)
    draw_by_outputs_(model)
    nn.init.zeros_(head.bias)
    return model
