"""RandAugment as timm's "rand-m9-mstd0.5-inc1" has it: two operations out of 15, each done with probability 1/2.

All 15 operations of timm's increasing set are there. They fall into three kinds: a table of 256 levels, a blend with a
plainer image, an affine map. Each kind is computed once for all images, with numbers of its own for each image, and an
image takes what its operation says. Differences from timm: affine maps are bilinear always (timm takes bilinear or
bicubic at random), and their fill is the mean that images are normalised by, or 128 where none is given.

Reference: Cubuk, Zoph, Shlens, Le, "RandAugment" (2020).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import colour
from .geometry import warp
from .numbers import normal, uniform, whole

LAYERS = 2
DRAWS = 4  # for an image and a layer
PROBABILITY = 0.5
LARGEST = 10.0  # magnitudes are a share of it

# timm's names, in its order.
OPERATIONS = (
    "AutoContrast",
    "Equalize",
    "Invert",
    "Rotate",
    "PosterizeIncreasing",
    "SolarizeIncreasing",
    "SolarizeAdd",
    "ColorIncreasing",
    "ContrastIncreasing",
    "BrightnessIncreasing",
    "SharpnessIncreasing",
    "ShearX",
    "ShearY",
    "TranslateXRel",
    "TranslateYRel",
)
NONE = len(OPERATIONS)
_NUMBER = {name: index for index, name in enumerate(OPERATIONS)}


def draw(raw: Tensor, *, magnitude: float, deviation: float) -> tuple[Tensor, Tensor, Tensor]:
    """From bits [n, DRAWS], for each image: the operation (NONE where none is done), its magnitude, and whether it is
    turned round, each [n]."""
    chosen, done, height, turned = raw.unbind(1)
    operation = torch.where(uniform(done) < PROBABILITY, whole(chosen, NONE), NONE)
    strength = (magnitude + deviation * normal(height)).clamp(0, LARGEST)
    return operation, strength, uniform(turned) < 0.5


def apply(levels: Tensor, operation: Tensor, magnitude: Tensor, turned: Tensor, *, fill: Tensor) -> Tensor:
    """Each image after its operation.

    Args:
        levels: whole numbers 0 to 255 as floats, [n, 1 or 3, height, width].
        operation, magnitude, turned: as `draw` returns them.
        fill: the level of each channel where an affine map has no pixel.
    """
    share = magnitude / LARGEST
    sign = torch.where(turned, -1.0, 1.0)

    def where(name: str, chosen: Tensor, other: Tensor) -> Tensor:
        return torch.where((operation == _NUMBER[name]).view(-1, *[1] * (other.dim() - 1)), chosen, other)

    pixels = levels.flatten(2).long()
    entries = torch.arange(256, device=levels.device).view(1, 1, 256)
    table = where("AutoContrast", colour.autocontrast_table(pixels, entries), entries)
    table = where("Equalize", colour.equalize_table(pixels, entries), table)
    table = where("Invert", 255 - entries, table)
    table = where("PosterizeIncreasing", colour.posterize_table(entries, kept_bits=4 - (share * 4).long()), table)
    table = where("SolarizeIncreasing", colour.solarize_table(entries, threshold=256 - (share * 256).long()), table)
    table = where("SolarizeAdd", colour.solarize_add_table(entries, added=(share * 110).long()), table)
    levels = table.gather(2, pixels).view(levels.shape).to(levels.dtype)

    plain = where("ColorIncreasing", colour.grey(levels), levels)
    plain = where("ContrastIncreasing", colour.mean_grey(levels), plain)
    plain = where("BrightnessIncreasing", torch.zeros_like(levels), plain)
    plain = where("SharpnessIncreasing", colour.smooth(levels), plain)
    # Where no blend is asked for, `plain` is the image itself, and any factor leaves it.
    levels = colour.blend(plain, levels, (1 + sign * share * 0.9).clamp(min=0.1))

    moved = (operation == _NUMBER["Rotate"]) | ((operation >= _NUMBER["ShearX"]) & (operation < NONE))
    warped = warp(levels, _matrices(operation, sign * share, levels.shape[2], levels.shape[3]), fill=fill)
    return torch.where(moved.view(-1, 1, 1, 1), warped, levels)


def _matrices(operation: Tensor, amount: Tensor, height: int, width: int) -> Tensor:
    """(a, b, c, d, e, f) of each image, the identity where its operation is no affine map, [n, 6]."""
    one, nothing = torch.ones_like(amount), torch.zeros_like(amount)

    def only(name: str, value: Tensor) -> Tensor:
        return torch.where(operation == _NUMBER[name], value, nothing)

    angle = only("Rotate", amount * (-30 * math.pi / 180))
    cosine, sine = angle.cos(), angle.sin()
    across, down = width / 2, height / 2
    return torch.stack(
        [
            cosine,
            sine + only("ShearX", amount * 0.3),
            across - cosine * across - sine * down + only("TranslateXRel", amount * (0.45 * width)),
            -sine + only("ShearY", amount * 0.3),
            one * cosine,
            down + sine * across - cosine * down + only("TranslateYRel", amount * (0.45 * height)),
        ],
        dim=1,
    )
