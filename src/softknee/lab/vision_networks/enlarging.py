"""Networks of timm for large images, given small ones: an image is first enlarged to the side they were made for.

The SQUAF paper's counts on CIFAR-100 are of such networks: ViT-T with 224 x 224 pixels (5,543,716 parameters with 100
classes; patches of 4 on 32 x 32 would be 5,380,132) and EfficientFormer-L1, which knows no other size (11,481,728).
"""

from __future__ import annotations

from typing import Any

from torch import nn

from .places import Factory, built
from .timm_models import _timm

_ACTIVATIONS = ("GELU", "ReLU", "ReLU6", "SiLU", "Hardswish")  # torch's, or timm's own of these names


def enlarged(
    *,
    classes: int = 100,
    activation: Factory = nn.GELU,
    seed: int = 0,
    model: str = "vit_tiny_patch16_224",
    side: int = 224,
) -> nn.Module:
    """A network of timm behind bilinear interpolation to `side` x `side`, an activation of yours at each of its own."""

    def make() -> nn.Module:
        made: Any = _timm(model, classes=classes)
        return nn.Sequential(nn.Upsample(size=(side, side), mode="bilinear", align_corners=False), made)

    return built(make, activation=activation, classes=classes, seed=seed, is_place=_is_activation)


def _is_activation(module: nn.Module) -> bool:
    return type(module).__name__ in _ACTIVATIONS
