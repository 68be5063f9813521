"""Networks of the vision papers, by name: those for CIFAR written here, those of timm with the papers' settings.

Every one takes `classes`, `activation` (a function that returns a new module at each call) and `seed`. Weights come
from the seed alone: the activations are put in after the weights are drawn, so that two functions with one seed start
from the same weights. The counts are of trained parameters, without those of activations.

| name         | parameters (100 classes) | places | source                                    |
|--------------|--------------------------|--------|-------------------------------------------|
| vgg8         | 3,965,028                | 5      | here                                      |
| vgg13        | 9,462,180                | 10     | here                                      |
| resnet56     | 861,620                  | 55     | here                                      |
| shufflenetv1 | 949,258                  | 49     | here                                      |
| wrn16_2      | 703,284                  | 13     | here                                      |
| wrn40_2      | 2,255,156                | 37     | here                                      |
| resnet18     | 11,220,132               | 17     | here                                      |
| vit_tiny     | 5,417,188                | 12     | timm, a pre-logits layer of 192 put in    |
| deit_tiny    | 5,399,816                | 12     | timm                                      |
| tnt_small    | 21,559,948               | 24     | timm                                      |
| convnext_tiny| 27,897,028               | 18     | timm                                      |
| enlarged     | 5,543,716 (ViT-Tiny)     | 12     | any of timm, its images enlarged to 224   |

The SQUAF paper prints 856,420 for its ResNet-56, which is the same network with 20 classes. On CIFAR its tables 7
and 13 add 35 parameters for SQUAF, which is one SQUAF, and 5 (VGG-8) and 13 (WRN-16-2) for PReLU: one at each place.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from .enlarging import enlarged
from .residual import resnet18, resnet56, wrn16_2, wrn40_2
from .shuffle import shufflenetv1
from .timm_models import convnext_tiny, deit_tiny, tnt_small, vit_tiny
from .vgg import vgg8, vgg13

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "vgg8": vgg8,
    "vgg13": vgg13,
    "resnet56": resnet56,
    "shufflenetv1": shufflenetv1,
    "wrn16_2": wrn16_2,
    "wrn40_2": wrn40_2,
    "resnet18": resnet18,
    "vit_tiny": vit_tiny,
    "deit_tiny": deit_tiny,
    "tnt_small": tnt_small,
    "convnext_tiny": convnext_tiny,
    "enlarged": enlarged,
}
"""The networks that a recipe may name, by their names."""

__all__ = [
    "NETWORKS",
    "convnext_tiny",
    "deit_tiny",
    "enlarged",
    "resnet18",
    "resnet56",
    "shufflenetv1",
    "tnt_small",
    "vgg8",
    "vgg13",
    "vit_tiny",
    "wrn16_2",
    "wrn40_2",
]
