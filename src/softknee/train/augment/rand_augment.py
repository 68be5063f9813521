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

from .numbers import normal, uniform, whole

# -- where pixels come from -------------------------------------------------------------------------------
#
# Shifted crops, mirrored images, affine maps. Every image has its own numbers.


def crop_flip(images: Tensor, *, rows: Tensor, columns: Tensor, flips: Tensor, padding: int) -> Tensor:
    """A window of the image's own size out of the image with `padding` zeros around it, then mirrored where asked.

    Args:
        images: [n, channels, height, width], of any type.
        rows, columns: the corner of the window in the padded image, 0 to 2 * padding, [n].
        flips: whether left and right change places, [n].

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> one = torch.tensor([1])
    >>> crop_flip(image, rows=one, columns=one * 2, flips=one == 0, padding=1)
    tensor([[[[2, 0],
              [4, 0]]]])
    """
    n, _channels, height, width = images.shape
    y = torch.arange(height, device=images.device) + (rows - padding).unsqueeze(1)
    x = torch.arange(width, device=images.device).expand(n, width)
    x = torch.where(flips.unsqueeze(1), width - 1 - x, x) + (columns - padding).unsqueeze(1)
    inside = ((y >= 0) & (y < height)).unsqueeze(2) & ((x >= 0) & (x < width)).unsqueeze(1)
    found = _pick(images, y.clamp(0, height - 1).unsqueeze(2), x.clamp(0, width - 1).unsqueeze(1))
    return found * inside.unsqueeze(1).to(images.dtype)


def warp(levels: Tensor, matrices: Tensor, *, fill: Tensor) -> Tensor:
    """The image under affine maps, bilinear, rounded down as PIL does for 8 bits.

    The pixel with its centre at (x, y) is taken from (a x + b y + c, d x + e y + f); outside of the image it is `fill`.

    Args:
        levels: whole numbers 0 to 255 as floats, [n, channels, height, width].
        matrices: (a, b, c, d, e, f) of each image, [n, 6].
        fill: one level for each channel.
    """
    _, _, height, width = levels.shape
    y = (torch.arange(height, device=levels.device) + 0.5).view(1, -1, 1)
    x = (torch.arange(width, device=levels.device) + 0.5).view(1, 1, -1)
    a, b, c, d, e, f = matrices.view(-1, 6, 1, 1).unbind(1)
    from_x, from_y = a * x + b * y + c, d * x + e * y + f
    inside = (from_x >= 0) & (from_x < width) & (from_y >= 0) & (from_y < height)
    left, top = (from_x - 0.5).floor(), (from_y - 0.5).floor()
    right_share, low_share = (from_x - 0.5 - left).unsqueeze(1), (from_y - 0.5 - top).unsqueeze(1)
    columns = [(left.long() + one).clamp(0, width - 1) for one in (0, 1)]
    lines = [(top.long() + one).clamp(0, height - 1) for one in (0, 1)]
    above, below = (
        torch.lerp(_pick(levels, line, columns[0]), _pick(levels, line, columns[1]), right_share) for line in lines
    )
    return torch.where(inside.unsqueeze(1), torch.lerp(above, below, low_share).floor(), fill.view(-1, 1, 1))


def _pick(images: Tensor, lines: Tensor, columns: Tensor) -> Tensor:
    """The pixels at these places, the same for all channels; lines and columns broadcast to [n, height, width]."""
    n, channels, _height, width = images.shape
    places = (lines * width + columns).view(n, 1, -1).expand(n, channels, -1)
    return images.reshape(n, channels, -1).gather(2, places).view(images.shape)


# -- what becomes of levels 0 to 255 ----------------------------------------------------------------------
#
# Tables of 256 entries, and blends with a plainer image. As PIL computes them.


def autocontrast_table(pixels: Tensor, entries: Tensor) -> Tensor:
    """Stretches each channel to 0 to 255: pixels [n, channels, size] of whole numbers to [n, channels, 256]."""
    low, high = (one.double() for one in torch.aminmax(pixels, dim=2, keepdim=True))
    span = (high - low).clamp(min=1)
    scale = torch.full_like(span, 255) / span  # 255 / span would be 255 * (1 / span), and round elsewhere than PIL
    return torch.where(high > low, (entries * scale - low * scale).trunc().clamp(0, 255).long(), entries)


def equalize_table(pixels: Tensor, entries: Tensor) -> Tensor:
    """Makes the levels of each channel about equally frequent, [n, channels, 256]."""
    counts = torch.zeros(*pixels.shape[:2], 256, dtype=torch.int64, device=pixels.device)
    counts.scatter_add_(2, pixels, torch.ones_like(pixels))
    highest = counts.gather(2, pixels.amax(2, keepdim=True))
    step = (pixels.shape[2] - highest) // 255
    below = counts.cumsum(2) - counts
    found = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, found, entries)


def posterize_table(entries: Tensor, *, kept_bits: Tensor) -> Tensor:
    """Only the highest bits of each level are kept; `kept_bits` of each image, [n]."""
    step = 1 << (8 - kept_bits).view(-1, 1, 1)
    return entries // step * step


def solarize_table(entries: Tensor, *, threshold: Tensor) -> Tensor:
    """Levels from the threshold on are inverted, [n]."""
    return torch.where(entries < threshold.view(-1, 1, 1), entries, 255 - entries)


def solarize_add_table(entries: Tensor, *, added: Tensor) -> Tensor:
    """Levels below 128 become brighter by `added`, [n]."""
    return torch.where(entries < 128, (entries + added.view(-1, 1, 1)).clamp(max=255), entries)


def grey(levels: Tensor) -> Tensor:
    """Luma of red, green and blue (0.299, 0.587, 0.114 in 16 bits), [n, 1, height, width]; one channel stays."""
    if levels.shape[1] == 1:
        return levels
    red, green, blue = levels.long().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).unsqueeze(1).to(levels.dtype)


def mean_grey(levels: Tensor) -> Tensor:
    """The mean of `grey`, rounded, [n, 1, 1, 1]."""
    luma = grey(levels).long()
    pixels = luma.shape[2] * luma.shape[3]
    return ((2 * luma.sum((2, 3), keepdim=True) + pixels) // (2 * pixels)).to(levels.dtype)


def smooth(levels: Tensor) -> Tensor:
    """The mean over 3 x 3 in which the middle counts five times; the pixels at the edge stay."""
    rows = levels[..., :-2, :] + levels[..., 1:-1, :] + levels[..., 2:, :]
    around = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    found = levels.clone()
    found[..., 1:-1, 1:-1] = ((around + 4 * levels[..., 1:-1, 1:-1]) / 13).round()
    return found


def blend(plain: Tensor, levels: Tensor, factor: Tensor) -> Tensor:
    """plain + factor (levels - plain), cut to 0 to 255 and rounded down; the factor of each image, [n]."""
    return (plain + factor.view(-1, 1, 1, 1) * (levels - plain)).clamp(0, 255).floor()


# -- RandAugment as timm's "rand-m9-mstd0.5-inc1" has it --------------------------------------------------
#
# Two operations out of 15, each done with probability 1/2.


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
    table = where("AutoContrast", autocontrast_table(pixels, entries), entries)
    table = where("Equalize", equalize_table(pixels, entries), table)
    table = where("Invert", 255 - entries, table)
    table = where("PosterizeIncreasing", posterize_table(entries, kept_bits=4 - (share * 4).long()), table)
    table = where("SolarizeIncreasing", solarize_table(entries, threshold=256 - (share * 256).long()), table)
    table = where("SolarizeAdd", solarize_add_table(entries, added=(share * 110).long()), table)
    levels = table.gather(2, pixels).view(levels.shape).to(levels.dtype)

    plain = where("ColorIncreasing", grey(levels), levels)
    plain = where("ContrastIncreasing", mean_grey(levels), plain)
    plain = where("BrightnessIncreasing", torch.zeros_like(levels), plain)
    plain = where("SharpnessIncreasing", smooth(levels), plain)
    # Where no blend is asked for, `plain` is the image itself, and any factor leaves it.
    levels = blend(plain, levels, (1 + sign * share * 0.9).clamp(min=0.1))

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
