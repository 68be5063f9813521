"""All augmentations in the order in which timm has them, for a batch that is on the device."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ParameterError, require_count, require_number
from .random_keys import bits, fold, seed_keys, site_number
from .stacked_modules import Draws

# A gamma draw of shape 1 or more is accepted with more than 0.95: all of these fail once in 2.5e10.
_ATTEMPTS = 8
# Computed once: torch.compile cannot look into a checksum.
IMAGES, NOISE, MIXING, CHANCE = (site_number(f"augment/{name}") for name in ("images", "noise", "mixing", "chance"))
BETA_BITS = 2 * (2 * _ATTEMPTS + 1)


def image_bits(keys: Tensor, site: int, *, images: int, each: int) -> Tensor:
    """32 random bits, `each` for every image of every replica, [M, images, each]; the keys are those of the step."""
    return bits(fold(keys, site), images * each).view(-1, images, each)


def uniform(raw: Tensor) -> Tensor:
    """In (0, 1), of 23 bits: with the half that is added float32 holds them exactly, and neither end is met."""
    return ((raw >> 9).float() + 0.5) * 2**-23


def whole(raw: Tensor, count: int | Tensor) -> Tensor:
    """0, 1, ..., count - 1, each with probability 1 / count up to 2**-32."""
    return (raw * count) >> 32


def normal(raw: Tensor) -> Tensor:
    """Standard normal, by its quantile function: sqrt(2) erfinv(2 u - 1)."""
    return torch.erfinv(2 * uniform(raw) - 1) * math.sqrt(2)


def beta(raw: Tensor, alpha: Tensor) -> Tensor:
    """Beta(alpha, alpha) from BETA_BITS draws in the last dimension, as float64.

    G / (G + G') of two gamma draws of shape alpha, which is the sigmoid of the difference of their logarithms: with a
    small alpha both draws may be too small for a float, and their logarithms are not.
    """
    both = _log_gamma(raw.unflatten(-1, (2, -1)), alpha.unsqueeze(-1).double())
    return torch.sigmoid(both[..., 0] - both[..., 1])


def _log_gamma(raw: Tensor, alpha: Tensor) -> Tensor:
    """ln of a Gamma(alpha) draw: that of Gamma(alpha + 1) by Marsaglia and Tsang, times u^(1 / alpha)."""
    d = (alpha + (1 - 1 / 3)).unsqueeze(-1)
    u = uniform(raw).double()
    x, u, last = normal(raw[..., :_ATTEMPTS]).double(), u[..., _ATTEMPTS : 2 * _ATTEMPTS], u[..., -1]
    cube = (1 + x / (9 * d).sqrt()) ** 3
    log_cube = cube.clamp(min=1e-300).log()
    accepted = (cube > 0) & (u.log() < 0.5 * x * x + d - d * cube + d * log_cube)
    turns = torch.arange(_ATTEMPTS, device=raw.device)
    first = torch.where(accepted, turns, _ATTEMPTS - 1).amin(dim=-1, keepdim=True)
    return d.squeeze(-1).log() + log_cube.gather(-1, first).squeeze(-1) + last.log() / alpha


SMALLEST, LARGEST_ERASED = 0.02, 1 / 3  # shares of the image's area
SLIMMEST = 0.3  # height by width lies between this and its inverse
_ERASING_ATTEMPTS = 10
ERASING_DRAWS = 3 + 2 * _ERASING_ATTEMPTS  # for an image


def draw_erasing(raw: Tensor, *, probability: float, height: int, width: int) -> Tensor:
    """From bits [n, DRAWS] the rectangle (top, bottom, left, right) of each image, empty where nothing is erased.

    Area and ratio are drawn until the rectangle fits into the image, ten times at most.
    """
    area = (SMALLEST + (LARGEST_ERASED - SMALLEST) * uniform(raw[:, 3 : 3 + _ERASING_ATTEMPTS])) * (height * width)
    ratio = (math.log(SLIMMEST) * (1 - 2 * uniform(raw[:, 3 + _ERASING_ATTEMPTS :]))).exp()
    high, wide = (area * ratio).sqrt().round().long(), (area / ratio).sqrt().round().long()
    fits = (high < height) & (wide < width)
    turns = torch.arange(_ERASING_ATTEMPTS, device=raw.device)
    first = torch.where(fits, turns, _ERASING_ATTEMPTS - 1).amin(1, keepdim=True)
    done = (uniform(raw[:, 0]) < probability) & fits.any(1)
    high, wide = (side.gather(1, first).squeeze(1) * done for side in (high, wide))
    top, left = whole(raw[:, 1], height - high + 1), whole(raw[:, 2], width - wide + 1)
    return torch.stack([top, top + high, left, left + wide], dim=1)


def erase(images: Tensor, edges: Tensor, filling: Tensor) -> Tensor:
    """Images [n, channels, height, width] with `filling` inside their rectangles."""
    return torch.where(_inside(edges.view(-1, 4, 1, 1, 1), images), filling.to(images.dtype), images)


def _inside(edges: Tensor, images: Tensor) -> Tensor:
    """Which pixels [..., height, width] lie in their rectangle; edges [n, 4, ...] broadcast against the images."""
    top, bottom, left, right = edges.unbind(1)
    y = torch.arange(images.shape[-2], device=images.device).unsqueeze(1)
    x = torch.arange(images.shape[-1], device=images.device)
    return (y >= top) & (y < bottom) & (x >= left) & (x < right)


MIXING_DRAWS = BETA_BITS + 3  # for a replica


def draw_mixing(raw: Tensor, *, mixup: float, cutmix: float, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """From bits [M, DRAWS], for each replica the share that stays its own [M], whether a box is cut [M], and the box
    (top, bottom, left, right) [M, 4]; with both kinds each has probability 1/2."""
    cut = uniform(raw[:, -1]) < (0.5 if mixup and cutmix else float(bool(cutmix)))
    share = beta(raw[:, :BETA_BITS], torch.where(cut, cutmix, mixup))
    edges = box(share, whole(raw[:, -3], height), whole(raw[:, -2], width), height=height, width=width)
    top, bottom, left, right = edges.unbind(1)
    kept = 1 - ((bottom - top) * (right - left)).double() / (height * width)  # a box at the edge is smaller than drawn
    return torch.where(cut, kept, share), cut, edges


def box(kept: Tensor, row: Tensor, column: Tensor, *, height: int, width: int) -> Tensor:
    """The rectangle around (row, column) whose area is 1 - kept of the image, cut at its edges: [M, 4].

    >>> box(torch.tensor([0.75]), torch.tensor([4]), torch.tensor([0]), height=8, width=8)
    tensor([[2, 6, 0, 2]])
    """
    side = (1 - kept).clamp(min=0).sqrt()
    high, wide = (side * height).long(), (side * width).long()
    edges = [row - high // 2, row + (high + 1) // 2, column - wide // 2, column + (wide + 1) // 2]
    limits = (height, height, width, width)
    return torch.stack([edge.clamp(0, limit) for edge, limit in zip(edges, limits, strict=True)], dim=1)


def mix(images: Tensor, own: Tensor, cut: Tensor, edges: Tensor) -> Tensor:
    """Images [M, n, channels, height, width] with their partners, as `draw` says."""
    other = images.flip(1)
    share = own.to(images.dtype).view(-1, 1, 1, 1, 1)
    blended = share * images + (1 - share) * other
    inside = _inside(edges.view(-1, 4, 1, 1, 1, 1), images)
    return torch.where(cut.view(-1, 1, 1, 1, 1), torch.where(inside, other, images), blended)


def soft_targets(targets: Tensor, *, classes: int, smoothing: float) -> Tensor:
    """Class numbers [M, n] as probabilities [M, n, classes], of which `smoothing` is spread over all classes.

    >>> soft_targets(torch.tensor([[1]]), classes=4, smoothing=0.2)
    tensor([[[0.0500, 0.8500, 0.0500, 0.0500]]])
    """
    # torch's one_hot looks at the numbers on the host.
    hot = targets.unsqueeze(-1) == torch.arange(classes, device=targets.device)
    return hot.float() * (1 - smoothing) + smoothing / classes


def mix_targets(soft: Tensor, own: Tensor) -> Tensor:
    """Probabilities [M, n, classes] with those of the partners."""
    share = own.to(soft.dtype).view(-1, 1, 1)
    return share * soft + (1 - share) * soft.flip(1)


# -- where pixels come from -------------------------------------------------------------------------------
#
# Shifted crops, mirrored images, affine maps. Every image has its own numbers.


def crop_flip(images: Tensor, *, rows: Tensor, columns: Tensor, flips: Tensor, padding: int) -> Tensor:
    """A window of the image's own size out of the image with `padding` zeros around it, mirrored where `flips` says so.

    Args:
        images: [n, channels, height, width], of any type.
        rows, columns: the corner of the window in the padded image, 0 to 2 * padding, [n].
        flips: whether left and right change places, [n].

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]])
    >>> crop_flip(image, rows=torch.tensor([1]), columns=torch.tensor([2]), flips=torch.tensor([False]), padding=1)
    tensor([[[[2, 0],
              [4, 0]]]])
    """
    n, _channels, height, width = images.shape
    y = torch.arange(height, device=images.device) + (rows - padding).unsqueeze(1)
    x = torch.arange(width, device=images.device).expand(n, width)
    x = torch.where(flips.unsqueeze(1), width - 1 - x, x) + (columns - padding).unsqueeze(1)
    inside = ((y >= 0) & (y < height)).unsqueeze(2) & ((x >= 0) & (x < width)).unsqueeze(1)
    pixels = _pick(images, y.clamp(0, height - 1).unsqueeze(2), x.clamp(0, width - 1).unsqueeze(1))
    return pixels * inside.unsqueeze(1).to(images.dtype)


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
    columns = [(left.long() + offset).clamp(0, width - 1) for offset in (0, 1)]
    lines = [(top.long() + offset).clamp(0, height - 1) for offset in (0, 1)]
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
    low, high = (level.double() for level in torch.aminmax(pixels, dim=2, keepdim=True))
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
    table = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table, entries)


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
    smoothed = levels.clone()
    smoothed[..., 1:-1, 1:-1] = ((around + 4 * levels[..., 1:-1, 1:-1]) / 13).round()
    return smoothed


def blend(plain: Tensor, levels: Tensor, factor: Tensor) -> Tensor:
    """plain + factor (levels - plain), cut to 0 to 255 and rounded down; the factor of each image, [n]."""
    return (plain + factor.view(-1, 1, 1, 1) * (levels - plain)).clamp(0, 255).floor()


# -- RandAugment as timm's "rand-m9-mstd0.5-inc1" has it --------------------------------------------------
#
# Two operations out of 15, each done with probability 1/2.


LAYERS = 2
RAND_AUGMENT_DRAWS = 4  # for an image and a layer
PROBABILITY = 0.5
LARGEST_MAGNITUDE = 10.0  # magnitudes are a share of it
# timm's names, in its order.
OPERATIONS = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing", "SolarizeAdd"),
    *("ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing"),
    *("ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
NONE = len(OPERATIONS)
_NUMBER = {name: index for index, name in enumerate(OPERATIONS)}


def draw_rand_augment(raw: Tensor, *, magnitude: float, deviation: float) -> tuple[Tensor, Tensor, Tensor]:
    """From bits [n, DRAWS], for each image: the operation (NONE where none is done), its magnitude, and whether it is
    turned round, each [n]."""
    chosen, done, height, turned = raw.unbind(1)
    operation = torch.where(uniform(done) < PROBABILITY, whole(chosen, NONE), NONE)
    strength = (magnitude + deviation * normal(height)).clamp(0, LARGEST_MAGNITUDE)
    return operation, strength, uniform(turned) < 0.5


def apply(levels: Tensor, operation: Tensor, magnitude: Tensor, turned: Tensor, *, fill: Tensor) -> Tensor:
    """Each image after its operation.

    Args:
        levels: whole numbers 0 to 255 as floats, [n, 1 or 3, height, width].
        operation, magnitude, turned: as `draw` returns them.
        fill: the level of each channel where an affine map has no pixel.
    """
    share = magnitude / LARGEST_MAGNITUDE
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
    # Where nothing is blended, `plain` is the image itself, and any factor leaves it.
    levels = blend(plain, levels, (1 + sign * share * 0.9).clamp(min=0.1))

    moved = (operation == _NUMBER["Rotate"]) | ((operation >= _NUMBER["ShearX"]) & (operation < NONE))
    warped = warp(levels, _matrices(operation, sign * share, levels.shape[2], levels.shape[3]), fill=fill)
    return torch.where(moved.view(-1, 1, 1, 1), warped, levels)


def _matrices(operation: Tensor, amount: Tensor, height: int, width: int) -> Tensor:
    """(a, b, c, d, e, f) of each image, the identity where its operation is no affine map, [n, 6]."""
    nothing = torch.zeros_like(amount)

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
            cosine,
            down + sine * across - cosine * down + only("TranslateYRel", amount * (0.45 * height)),
        ],
        dim=1,
    )


# -- checks of the arguments ------------------------------------------------------------------------------


def shape_of(images: Any) -> str:
    """The shape of a tensor, or what was given in its place."""
    return str(tuple(images.shape)) if isinstance(images, Tensor) else f"a {type(images).__name__}"


def read_pair(given: Any) -> tuple[float, float]:
    """Magnitude and deviation of RandAugment."""
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ParameterError(f"randaugment must be the magnitude and its deviation, such as (9, 0.5), not {given!r}.")
    magnitude, deviation = given
    require_number("randaugment", "its magnitude", magnitude, zero=True, most=LARGEST_MAGNITUDE)
    require_number("randaugment", "its deviation", deviation, zero=True)
    return float(magnitude), float(deviation)


def read_normalisation(
    mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """A number for each channel, or None for both."""
    if (mean is None) != (std is None):
        raise ParameterError("mean and std go together: give both, or neither.")
    if mean is None or std is None:
        return None, None
    if len(mean) != len(std) or not all(deviation > 0 for deviation in std):
        raise ParameterError(
            f"mean and std must have a number for each channel, std above 0, not {mean!r} and {std!r}."
        )
    return tuple(map(float, mean)), tuple(map(float, std))


def read_shape(given: Sequence[int] | None) -> tuple[int, int, int] | None:
    """Channels, height and width of an image, or None."""
    if given is None:
        return None
    if not isinstance(given, list | tuple) or len(given) != 3:
        raise ParameterError(f"shape must be channels, height and width, such as (1, 28, 28), not {given!r}.")
    for size in given:
        require_count("", "each number of shape", size)
    channels, height, width = given
    return channels, height, width


_GREY = 128 / 255  # what timm fills with where it knows no mean
_CROP_DRAWS = 3
_DRAWS = _CROP_DRAWS + LAYERS * RAND_AUGMENT_DRAWS + ERASING_DRAWS


class Augment:
    """Random crops, mirror images, RandAugment, erasing, mixup and CutMix, all of them drawn from keys.

    Args:
        crop: zeros put around each image, out of which a window of its own size is taken; 4 is usual for CIFAR. With
            `crop` alone this is a random shift.
        flip: left and right change places with probability 1/2.
        randaugment: magnitude and its standard deviation, (9, 0.5) for timm's "rand-m9-mstd0.5-inc1". Images must then
            be uint8, or floats in [0, 1] that are not normalised yet.
        mixup, cutmix: the alpha of Beta(alpha, alpha); with both, each is taken with probability 1/2.
        erasing: the probability that a rectangle of an image is filled with noise.
        classes: how many there are, where class numbers become probabilities (mixup, cutmix, smoothing).
        smoothing: the share of a target that is spread over all classes.
        mean, std: of each channel; images are normalised with them after RandAugment and before erasing.
        probability: that an image is cropped at all. Whether it is mirrored is drawn by itself.
        from_step: the first step in which anything is done, counted from 0. Before it images are normalised and no
            more, and targets are certain.
        shape: channels, height and width, where the examples are rows of the numbers of an image, as an MLP takes them;
            rows come back.
        seeds: one for each replica, where no `draws` are given.

    Images may be uint8, which become float32 in [0, 1], or floats. The order is crop, flip, RandAugment, normalisation,
    erasing, mixup or CutMix. What a replica is given depends on its key, the step and the place of an image in the
    batch, and on nothing else. No value of a tensor reaches the host, so that a call can be part of a CUDA graph; call
    once before the recording, for that is when constants are put on the device.

    >>> augment = Augment(crop=4, flip=True, mixup=0.8, cutmix=1.0, erasing=0.25, classes=10)
    >>> images, targets = augment(torch.rand(6, 3, 32, 32), torch.arange(6))
    >>> images.shape, targets.shape, targets.sum(1).allclose(torch.ones(6))
    (torch.Size([6, 3, 32, 32]), torch.Size([6, 10]), True)
    """

    def __init__(
        self,
        *,
        crop: int = 0,
        flip: bool = False,
        randaugment: tuple[float, float] | None = None,
        mixup: float = 0.0,
        cutmix: float = 0.0,
        erasing: float = 0.0,
        classes: int | None = None,
        smoothing: float = 0.0,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        probability: float = 1.0,
        from_step: int = 0,
        shape: Sequence[int] | None = None,
        seeds: Sequence[int] = (0,),
    ) -> None:
        for name, value in (("crop", crop), ("from_step", from_step), ("classes", classes or 1)):
            require_count("", name, value, least=0)
        for name, value in (("mixup", mixup), ("cutmix", cutmix)):
            require_number("", name, value, zero=True)
        for name, value in (("erasing", erasing), ("smoothing", smoothing), ("probability", probability)):
            require_number("", name, value, zero=True, most=1)
        self.crop, self.from_step, self.classes, self.flip = crop, from_step, classes, bool(flip)
        self.mixup, self.cutmix, self.erasing = float(mixup), float(cutmix), float(erasing)
        self.smoothing, self.probability = float(smoothing), float(probability)
        self.randaugment = None if randaugment is None else read_pair(randaugment)
        self.mean, self.std = read_normalisation(mean, std)
        self.shape = read_shape(shape)
        self.seeds = tuple(seeds)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ParameterError(f"seeds must be different numbers, one for each replica, and {seeds!r} was given.")
        self._own: dict[torch.device, Draws] = {}
        self._constants: dict[Any, Tensor] = {}

    @torch.no_grad()
    def __call__(self, images: Tensor, targets: Tensor, *, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
        """New images, and targets: as they are, or probabilities where images are mixed or targets smoothed.

        Args:
            images: [n, channels, height, width], or [M, n, ...] for M replicas; with `shape` rows in their place.
            targets: class numbers [n] or [M, n], or probabilities with a last dimension of classes.
            draws: keys [M] and step; without them those of `seeds`, and a step that goes on by one with each call.
        """
        pixels = self._as_images(images)
        used = self._draws(pixels.device) if draws is None else draws
        single = pixels.dim() == 4
        stacked, wanted = (pixels.unsqueeze(0), targets.unsqueeze(0)) if single else (pixels, targets)
        if len(stacked) != len(used.keys):
            raise InputError(
                f"Augment: there are images of {len(stacked)} replicas and keys of {len(used.keys)}; give `seeds` as "
                "many as there are replicas."
            )
        if wanted.shape[:2] != stacked.shape[:2]:
            raise InputError(f"Augment: targets {shape_of(targets)} do not belong to images {shape_of(images)}.")
        augmented, soft = self._run(stacked, wanted, fold(used.keys, used.step))
        if self.from_step:
            begun = used.step >= self.from_step  # a tensor still: a captured call asks it anew in each step
            augmented = torch.where(begun, augmented, self._normalised(stacked.flatten(0, 1)).view(augmented.shape))
            soft = soft if soft is wanted else torch.where(begun, soft, self._soft(wanted, smoothing=0.0))
        if draws is None:
            used.step.add_(1)
        augmented = augmented if self.shape is None else augmented.flatten(-3)
        return (augmented.squeeze(0), soft.squeeze(0)) if single else (augmented, soft)

    def _as_images(self, given: Tensor) -> Tensor:
        if self.shape is None:
            if not isinstance(given, Tensor) or given.dim() not in (4, 5):
                raise InputError(
                    "Augment takes images [n, channels, height, width], or with replicas before that, and "
                    f"{shape_of(given)} was given; for rows of their numbers say `shape`."
                )
            return given
        numbers = math.prod(self.shape)
        if not isinstance(given, Tensor) or given.dim() not in (2, 3) or given.shape[-1] != numbers:
            raise InputError(
                f"Augment with shape={self.shape} takes rows [n, {numbers}], or with replicas before that, and "
                f"{shape_of(given)} was given."
            )
        return given.unflatten(-1, self.shape)

    def _run(self, images: Tensor, targets: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        _, count, channels, height, width = images.shape
        flat = images.flatten(0, 1)
        # One hash for all that an image may need: the draws of one augmentation never depend on the others.
        raw = image_bits(keys, IMAGES, images=count, each=_DRAWS).flatten(0, 1)
        if self.crop or self.flip:
            flat = self._cropped(flat, raw[:, :_CROP_DRAWS], keys)
        if self.randaugment is not None:
            flat = self._changed(flat, raw[:, _CROP_DRAWS:-ERASING_DRAWS])
        flat = self._normalised(flat)
        if self.erasing:
            bits = image_bits(keys, NOISE, images=count, each=channels * height * width)
            edges = draw_erasing(raw[:, -ERASING_DRAWS:], probability=self.erasing, height=height, width=width)
            flat = erase(flat, edges, normal(bits).view(flat.shape))
        augmented = flat.view(images.shape)
        mixed = bool(self.mixup or self.cutmix)
        if mixed or self.smoothing:
            targets = self._soft(targets, smoothing=self.smoothing)
        if mixed:
            bits = image_bits(keys, MIXING, images=1, each=MIXING_DRAWS).squeeze(1)
            drawn = draw_mixing(bits, mixup=self.mixup, cutmix=self.cutmix, height=height, width=width)
            augmented, targets = mix(augmented, *drawn), mix_targets(targets, drawn[0])
        return augmented, targets

    def _cropped(self, flat: Tensor, raw: Tensor, keys: Tensor) -> Tensor:
        rows, columns = whole(raw[:, 0], 2 * self.crop + 1), whole(raw[:, 1], 2 * self.crop + 1)
        if self.probability < 1:
            chance = image_bits(keys, CHANCE, images=len(flat) // len(keys), each=1).flatten()
            moved = uniform(chance) < self.probability
            rows, columns = (torch.where(moved, offset, self.crop) for offset in (rows, columns))
        flips = (uniform(raw[:, 2]) < 0.5) & self.flip
        return crop_flip(flat, rows=rows, columns=columns, flips=flips, padding=self.crop)

    def _normalised(self, flat: Tensor) -> Tensor:
        pixels = flat if flat.is_floating_point() else flat.float() / 255
        if self.mean is None or self.std is None:
            return pixels
        shape = (pixels.shape[1], 1, 1)
        return (pixels - self._constant(self.mean, pixels).view(shape)) / self._constant(self.std, pixels).view(shape)

    def _changed(self, flat: Tensor, raw: Tensor) -> Tensor:
        if flat.shape[1] not in (1, 3):
            raise InputError(f"RandAugment is for images of 1 or 3 channels, and these have {flat.shape[1]}.")
        assert self.randaugment is not None
        magnitude, deviation = self.randaugment
        kind = flat.dtype if flat.is_floating_point() else torch.float32
        levels = (flat.float() * 255).round().clamp(0, 255) if flat.is_floating_point() else flat.float()
        fill = (self._constant(self.mean or (_GREY,) * flat.shape[1], levels) * 255).round()
        for layer in raw.chunk(LAYERS, dim=1):
            drawn = draw_rand_augment(layer, magnitude=magnitude, deviation=deviation)
            levels = apply(levels, *drawn, fill=fill)
        return (levels / 255).to(kind)

    def _soft(self, targets: Tensor, *, smoothing: float) -> Tensor:
        if targets.is_floating_point() and targets.dim() == 3:
            classes = targets.shape[2]
            return targets * (1 - smoothing) + smoothing / classes
        if self.classes is None or targets.dim() != 2:
            raise InputError(
                "Augment: mixed or smoothed targets are probabilities; say how many `classes` there are and give class "
                f"numbers for all images, or give probabilities. The targets have shape {shape_of(targets)}."
            )
        return soft_targets(targets, classes=self.classes, smoothing=smoothing)

    def _draws(self, device: torch.device) -> Draws:
        if device not in self._own:
            step = torch.zeros(1, dtype=torch.int64, device=device)
            self._own[device] = Draws(seed_keys(self.seeds, device=device), step)
        return self._own[device]

    def _constant(self, values: Sequence[float], like: Tensor) -> Tensor:
        if len(values) != like.shape[1]:
            raise InputError(f"Augment: mean and std have {len(values)} numbers, and images {like.shape[1]} channels.")
        key = (tuple(values), like.device, like.dtype)
        if key not in self._constants:
            self._constants[key] = torch.tensor(values, device=like.device, dtype=like.dtype)
        return self._constants[key]

    def __repr__(self) -> str:
        usual = {
            name: entry.default for name, entry in inspect.signature(Augment).parameters.items() if name != "seeds"
        }
        given = [f"{name}={getattr(self, name)!r}" for name, value in usual.items() if getattr(self, name) != value]
        return f"Augment({', '.join(given)})"
