"""timm's models with the settings of the mollification and EAFO papers: no dropout or drop path, nothing pretrained."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from torch import nn

from ...errors import MissingToolError
from .places import Factory, built


def vit_tiny(
    *,
    classes: int = 10,
    activation: Factory = nn.GELU,
    seed: int = 0,
    image: int = 32,
    patch: int = 4,
    pre_logits: int = 192,
) -> nn.Module:
    """ViT-Tiny with a pre-logits layer (linear, tanh) before the head: 12 places.

    5,399,818 parameters with 10 classes and 5,417,188 with 100; image=224 and patch=16 with 1000 have 5,754,472. The
    tanh is no place: the papers add 12 parameters for a function with one.

    Args:
        pre_logits: the width of that layer; 0 leaves it out, as timm does today (the SQUAF paper's ViT-T).
    """

    def make() -> nn.Module:
        model = _timm("vit_tiny_patch16_224", classes=classes, img_size=image, patch_size=patch)
        if pre_logits:
            width = model.head.in_features
            fc, head = nn.Linear(width, pre_logits), nn.Linear(pre_logits, classes)
            for linear in (fc, head):  # as timm draws every linear map of this model
                nn.init.trunc_normal_(linear.weight, std=0.02)
                nn.init.zeros_(linear.bias)
            model.head = nn.Sequential(OrderedDict(pre_logits=fc, tanh=nn.Tanh(), head=head))
        return model

    return built(make, activation=activation, classes=classes, seed=seed, is_place=_is_gelu)


def deit_tiny(
    *, classes: int = 10, activation: Factory = nn.GELU, seed: int = 0, image: int = 32, patch: int = 4
) -> nn.Module:
    """DeiT-Tiny with a distillation token and two heads, whose mean it returns: 12 places.

    5,365,076 parameters with 10 classes and 5,399,816 with 100; image=224 and patch=16 with 1000 have 5,910,800.
    """

    def make() -> nn.Module:
        return _timm("deit_tiny_distilled_patch16_224", classes=classes, img_size=image, patch_size=patch)

    return built(make, activation=activation, classes=classes, seed=seed, is_place=_is_gelu)


def tnt_small(
    *, classes: int = 10, activation: Factory = nn.GELU, seed: int = 0, image: int = 32, patch: int = 4
) -> nn.Module:
    """TNT-Small, an inner and an outer transformer in each of 12 blocks: 24 places.

    21,525,298 parameters with 10 classes and 21,559,948 with 100.
    """

    def make() -> nn.Module:
        return _timm("tnt_s_legacy_patch16_224", classes=classes, img_size=image, patch_size=patch)

    return built(make, activation=activation, classes=classes, seed=seed, is_place=_is_gelu)


def convnext_tiny(*, classes: int = 10, activation: Factory = nn.GELU, seed: int = 0) -> nn.Module:
    """ConvNeXt-Tiny, whose stem takes patches of 4 x 4: 18 places; 27,827,818 parameters with 10 classes.

    Images of 32 x 32 leave one pixel in the last stage.
    """
    return built(
        lambda: _timm("convnext_tiny", classes=classes),
        activation=activation,
        classes=classes,
        seed=seed,
        is_place=_is_gelu,
    )


def _timm(name: str, *, classes: int, **arguments: Any) -> Any:
    try:
        import timm
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"The network {name!r} is built by the package 'timm', which is not installed. Install it with: "
            "pip install timm"
        ) from error
    return timm.create_model(name, pretrained=False, num_classes=classes, **arguments)


def _is_gelu(module: nn.Module) -> bool:
    return type(module).__name__ == "GELU"  # torch's, or timm's own of that name
