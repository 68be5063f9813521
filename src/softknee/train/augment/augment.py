"""All augmentations in the order in which timm has them, for a batch that is on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError, ParameterError
from ..random_keys import fold, seed_keys
from ..stacked_modules import Draws
from . import erasing as _erasing
from . import mixing as _mixing
from . import rand_augment as _rand_augment
from .numbers import CHANCE, IMAGES, MIXING, NOISE, image_bits, normal, uniform, whole
from .rand_augment import LARGEST, crop_flip

# -- what Augment is given, checked; refusals are sentences -----------------------------------------------


def shape_of(images: Any) -> str:
    """The shape of a tensor, or what was given in its place."""
    return str(tuple(images.shape)) if isinstance(images, Tensor) else f"a {type(images).__name__}"


def read_whole(name: str, value: Any, *, least: int) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ParameterError(f"{name} must be a whole number of at least {least}, and {value!r} was given.")
    return value


def read_number(name: str, value: Any, *, most: float = math.inf) -> float:
    """A finite number from 0 to `most`."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not good or not 0 <= value <= most or math.isinf(value):
        top = f" and at most {most:g}" if most < math.inf else ""
        raise ParameterError(f"{name} must be a finite number of at least 0{top}, and {value!r} was given.")
    return float(value)


def read_pair(given: Any) -> tuple[float, float]:
    """Magnitude and deviation of RandAugment."""
    if not isinstance(given, list | tuple) or len(given) != 2:
        raise ParameterError(
            f"randaugment must be the magnitude and its standard deviation, such as (9, 0.5), and {given!r} was given."
        )
    magnitude = read_number("randaugment's magnitude", given[0], most=LARGEST)
    return magnitude, read_number("randaugment's deviation", given[1])


def read_normalisation(
    mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """A number for each channel, or None for both."""
    if (mean is None) != (std is None):
        raise ParameterError("mean and std normalise together: give both, or neither.")
    if mean is None or std is None:
        return None, None
    if len(mean) != len(std) or not all(one > 0 for one in std):
        raise ParameterError(
            f"mean and std must have a number for each channel, std above 0; got {mean!r} and {std!r}."
        )
    return tuple(map(float, mean)), tuple(map(float, std))


def read_shape(given: Sequence[int] | None) -> tuple[int, int, int] | None:
    """Channels, height and width of an image, or None."""
    if given is None:
        return None
    if not isinstance(given, list | tuple) or len(given) != 3:
        raise ParameterError(
            f"shape must be the channels, height and width of an image, such as (1, 28, 28), and {given!r} was given."
        )
    channels, height, width = (read_whole("each number of shape", one, least=1) for one in given)
    return channels, height, width


# -- all augmentations in the order in which timm has them, for a batch that is on the device -------------


_GREY = 128 / 255  # what timm fills with where it knows no mean
_CROP_DRAWS = 3
_DRAWS = _CROP_DRAWS + _rand_augment.LAYERS * _rand_augment.DRAWS + _erasing.DRAWS


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
        self.crop, self.classes = read_whole("crop", crop, least=0), classes and read_whole("classes", classes, least=1)
        self.flip = bool(flip)
        self.mixup, self.cutmix = read_number("mixup", mixup), read_number("cutmix", cutmix)
        self.erasing = read_number("erasing", erasing, most=1)
        self.smoothing = read_number("smoothing", smoothing, most=1)
        self.randaugment = None if randaugment is None else read_pair(randaugment)
        self.mean, self.std = read_normalisation(mean, std)
        self.probability = read_number("probability", probability, most=1)
        self.from_step, self.shape = read_whole("from_step", from_step, least=0), read_shape(shape)
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
            raise InputError(
                f"Augment: targets of shape {shape_of(targets)} do not belong to images of shape {shape_of(images)}."
            )
        found, soft = self._run(stacked, wanted, fold(used.keys, used.step))
        if self.from_step:
            begun = used.step >= self.from_step  # a tensor still: a captured call asks it anew in each step
            found = torch.where(begun, found, self._normalised(stacked.flatten(0, 1)).view(found.shape))
            soft = soft if soft is wanted else torch.where(begun, soft, self._soft(wanted, smoothing=0.0))
        if draws is None:
            used.step.add_(1)
        found = found if self.shape is None else found.flatten(-3)
        return (found.squeeze(0), soft.squeeze(0)) if single else (found, soft)

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
        # One hash for all that an image needs, whatever is asked for: what is drawn for one thing never moves another.
        raw = image_bits(keys, IMAGES, images=count, each=_DRAWS).flatten(0, 1)
        if self.crop or self.flip:
            flat = self._cropped(flat, raw[:, :_CROP_DRAWS], keys)
        if self.randaugment is not None:
            flat = self._changed(flat, raw[:, _CROP_DRAWS : -_erasing.DRAWS])
        flat = self._normalised(flat)
        if self.erasing:
            bits = image_bits(keys, NOISE, images=count, each=channels * height * width)
            edges = _erasing.draw(raw[:, -_erasing.DRAWS :], probability=self.erasing, height=height, width=width)
            flat = _erasing.erase(flat, edges, normal(bits).view(flat.shape))
        found = flat.view(images.shape)
        mixed = bool(self.mixup or self.cutmix)
        if mixed or self.smoothing:
            targets = self._soft(targets, smoothing=self.smoothing)
        if mixed:
            bits = image_bits(keys, MIXING, images=1, each=_mixing.DRAWS).squeeze(1)
            drawn = _mixing.draw(bits, mixup=self.mixup, cutmix=self.cutmix, height=height, width=width)
            found, targets = _mixing.mix(found, *drawn), _mixing.mix_targets(targets, drawn[0])
        return found, targets

    def _cropped(self, flat: Tensor, raw: Tensor, keys: Tensor) -> Tensor:
        rows, columns = whole(raw[:, 0], 2 * self.crop + 1), whole(raw[:, 1], 2 * self.crop + 1)
        if self.probability < 1:
            chance = image_bits(keys, CHANCE, images=len(flat) // len(keys), each=1).flatten()
            moved = uniform(chance) < self.probability
            rows, columns = (torch.where(moved, one, self.crop) for one in (rows, columns))
        flips = (uniform(raw[:, 2]) < 0.5) & self.flip
        return crop_flip(flat, rows=rows, columns=columns, flips=flips, padding=self.crop)

    def _normalised(self, flat: Tensor) -> Tensor:
        found = flat if flat.is_floating_point() else flat.float() / 255
        if self.mean is None or self.std is None:
            return found
        shape = (found.shape[1], 1, 1)
        return (found - self._constant(self.mean, found).view(shape)) / self._constant(self.std, found).view(shape)

    def _changed(self, flat: Tensor, raw: Tensor) -> Tensor:
        if flat.shape[1] not in (1, 3):
            raise InputError(f"RandAugment is for images of 1 or 3 channels, and these have {flat.shape[1]}.")
        assert self.randaugment is not None
        magnitude, deviation = self.randaugment
        kind = flat.dtype if flat.is_floating_point() else torch.float32
        levels = (flat.float() * 255).round().clamp(0, 255) if flat.is_floating_point() else flat.float()
        fill = (self._constant(self.mean or (_GREY,) * flat.shape[1], levels) * 255).round()
        for layer in raw.chunk(_rand_augment.LAYERS, dim=1):
            drawn = _rand_augment.draw(layer, magnitude=magnitude, deviation=deviation)
            levels = _rand_augment.apply(levels, *drawn, fill=fill)
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
        return _mixing.soft_targets(targets, classes=self.classes, smoothing=smoothing)

    def _draws(self, device: torch.device) -> Draws:
        if device not in self._own:
            step = torch.zeros(1, dtype=torch.int64, device=device)
            self._own[device] = Draws(seed_keys(self.seeds, device=device), step)
        return self._own[device]

    def _constant(self, values: Sequence[float], like: Tensor) -> Tensor:
        if len(values) != like.shape[1]:
            raise InputError(
                f"Augment: mean and std have {len(values)} numbers, and the images have {like.shape[1]} channels."
            )
        key = (tuple(values), like.device, like.dtype)
        if key not in self._constants:
            self._constants[key] = torch.tensor(values, device=like.device, dtype=like.dtype)
        return self._constants[key]

    def __repr__(self) -> str:
        usual: dict[str, Any] = {"crop": 0, "flip": False, "randaugment": None, "mixup": 0.0, "cutmix": 0.0}
        usual |= {"erasing": 0.0, "classes": None, "smoothing": 0.0, "mean": None, "std": None}
        usual |= {"probability": 1.0, "from_step": 0, "shape": None}
        given = [f"{name}={getattr(self, name)!r}" for name, value in usual.items() if getattr(self, name) != value]
        return f"Augment({', '.join(given)})"
