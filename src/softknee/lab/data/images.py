"""Coloured images of classes, as bytes: CIFAR-10, CIFAR-100, Tiny-ImageNet, ImageNet, and how they become floats.

The bytes are kept as they are (CIFAR-10: 150 MB for training), so that a training loop may hold them on a GPU and make
floats batch by batch. A study takes them as float32 (614 MB): (pixel - mean) / spread, with mean and spread of each
channel over all training images of the data set, the validation part among them.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ...errors import DataError, ParameterError, did_you_mean
from .files import data_folder

IMAGES = ("cifar-10", "cifar-100", "tiny-imagenet", "imagenet")


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images in uint8 of shape (count, channels, height, width), class numbers in int64, and the classes' names.

    >>> grey = torch.tensor([[10, 30], [10, 30]], dtype=torch.uint8).reshape(2, 1, 1, 2)
    >>> few = ImageSet(name="few", train_images=grey, train_labels=torch.tensor([0, 1]), test_images=grey,
    ...                test_labels=torch.tensor([0, 1]), labels=("a", "b"))
    >>> few.mean, few.spread, few.ready(grey[:1]).tolist()
    ((20.0,), (10.0,), [[[[-1.0, 1.0]]]])
    """

    name: str
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    labels: tuple[str, ...]

    @cached_property
    def _moments(self) -> tuple[tuple[float, float], ...]:
        return moments_of(level_counts(self.train_images), name=self.name)

    @property
    def mean(self) -> tuple[float, ...]:
        """Of each channel over the training images, between 0 and 255."""
        return tuple(mean for mean, _ in self._moments)

    @property
    def spread(self) -> tuple[float, ...]:
        """The standard deviation of each channel over the training images."""
        return tuple(spread for _, spread in self._moments)

    @property
    def normalisation(self) -> str:
        """What `ready` does to the pixels, for a record."""
        mean, spread = (", ".join(f"{value:.4f}" for value in three) for three in (self.mean, self.spread))
        return f"(pixel - [{mean}])/[{spread}], mean and standard deviation of each channel of the training images"

    def ready(self, images: Tensor) -> Tensor:
        """Images of this set as float32: each channel less its mean, by its spread."""
        mean, spread = (
            torch.tensor(three, device=images.device).reshape(-1, 1, 1) for three in (self.mean, self.spread)
        )
        return images.float().sub_(mean).div_(spread)

    def to(self, device: torch.device | str) -> ImageSet:
        """The same data on another device."""
        names = ("train_images", "train_labels", "test_images", "test_labels")
        return replace(self, **{name: getattr(self, name).to(device) for name in names})


def level_counts(images: Tensor) -> Tensor:
    """How often each channel of images [n, channels, height, width] in uint8 has each level, [channels, 256]."""
    return torch.stack(
        [torch.bincount(images[:, channel].flatten(), minlength=256) for channel in range(images.shape[1])]
    )


def moments_of(counts: Tensor, *, name: str) -> tuple[tuple[float, float], ...]:
    """Mean and standard deviation of each channel, from how often each has each level.

    Sums of whole numbers are exact, so that the same files give the same floats on every machine.
    """
    moments = []
    for channel, histogram in enumerate(counts.tolist()):
        pixels = sum(histogram)
        total = sum(value * count for value, count in enumerate(histogram))
        square = sum(value**2 * count for value, count in enumerate(histogram))
        variance = pixels * square - total**2  # times the square of their number
        if variance == 0:
            raise DataError(f"{name}: every training pixel of channel {channel} is the same: it is empty.")
        moments.append((total / pixels, math.sqrt(variance) / pixels))
    return tuple(moments)


def load_image_set(
    name: str, folder: str | os.PathLike[str] | None = None, *, check: bool = True, most: int | None = None
) -> ImageSet:
    """The data set "cifar-10", "cifar-100", "tiny-imagenet" or "imagenet" from its standard files, as bytes.

    Args:
        folder: what holds the data sets; by default the one that the environment variable SOFTKNEE_DATA names.
        check: compare counts and contents with what was published, where that is known. False takes other files of
            the same format.
        most: of ImageNet, so many pictures of each part at most, which spares decoding the others.
    """
    if name not in IMAGES:
        known = ", ".join(map(repr, IMAGES))
        raise ParameterError(f"There is no data set {name!r} here; there are {known}.{did_you_mean(name, IMAGES)}")
    root = data_folder(folder)
    if name == "imagenet":
        from .imagenet import load_imagenet

        return checked(load_imagenet(root, most=most))
    if name == "tiny-imagenet":
        from .tiny_imagenet import load_tiny_imagenet

        return checked(load_tiny_imagenet(root))
    from .cifar import load_cifar

    return checked(load_cifar(name, root, check=check))


def checked(data: ImageSet) -> ImageSet:
    """The same, if every image has a label, every label a name and every class an image to train on."""
    for part in ("train", "test"):
        images, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        if len(images) != len(labels) or len(images) == 0:
            raise DataError(f"{data.name} ({part}) has {len(images):,} images and {len(labels):,} labels.")
        if int(labels.min()) < 0 or int(labels.max()) >= len(data.labels):
            worst = int(labels.max()) if int(labels.max()) >= len(data.labels) else int(labels.min())
            raise DataError(
                f"{data.name} ({part}) has the label {worst}, where labels are 0 to {len(data.labels) - 1}."
            )
    if data.train_images.shape[1:] != data.test_images.shape[1:]:
        sizes = " and ".join(str(tuple(images.shape[1:])) for images in (data.train_images, data.test_images))
        raise DataError(f"{data.name}: training and test images differ in size: {sizes}.")
    return data
