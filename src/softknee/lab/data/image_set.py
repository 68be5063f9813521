"""Images of classes in memory, whatever files they came from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...errors import DataError

# Of the digits a fifth of the training half (179 of 898); of the larger sets 5,000 of 60,000.
_VALIDATION_SHARE = 0.2
_MOST_VALIDATION = 5000


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """Images of shape (count, channels, height, width), class numbers in int64, and the classes' names.

    Images are levels of 0 to 255 in uint8; those of the digits are levels of 0 to 16 in float32.

    moments: mean and standard deviation of each channel of the training images, where they are not to be computed.
    scale:   what a level counts for in `mean` and `spread`, which are in levels of 0 to 255.

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
    moments: tuple[tuple[float, float], ...] = ()
    scale: float = 1.0

    @cached_property
    def _moments(self) -> tuple[tuple[float, float], ...]:
        return self.moments or moments_of(level_counts(self.train_images), name=self.name)

    @property
    def mean(self) -> tuple[float, ...]:
        """Of each channel over the training images, between 0 and 255."""
        return tuple(mean * self.scale for mean, _ in self._moments)

    @property
    def spread(self) -> tuple[float, ...]:
        """The standard deviation of each channel over the training images."""
        return tuple(spread * self.scale for _, spread in self._moments)

    def ready(self, images: Tensor) -> Tensor:
        """Images of this set as float32: each channel less its mean, by its spread."""
        mean, spread = torch.tensor(self._moments, device=images.device).T.reshape(2, -1, 1, 1)
        return images.to(torch.float32, copy=True).sub_(mean).div_(spread)

    def order(self) -> Tensor:
        """The one order that never changes, in which validation images are taken from the training images."""
        return torch.randperm(len(self.train_images), generator=torch.Generator().manual_seed(0))

    @property
    def validation(self) -> int:
        """How many of the training images, the first ones in that order, are for validation."""
        return min(int(_VALIDATION_SHARE * len(self.train_images)), _MOST_VALIDATION)


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


def checked(data: ImageSet) -> ImageSet:
    """The same, if every image has a label, every label a name and every class an image to train on."""
    for part in ("train", "test"):
        images, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        if len(images) != len(labels) or len(images) == 0:
            raise DataError(f"{data.name} ({part}) has {len(images):,} images and {len(labels):,} labels.")
        if int(labels.min()) < 0 or int(labels.max()) >= len(data.labels):
            worst = int(labels.max()) if int(labels.max()) >= len(data.labels) else int(labels.min())
            raise DataError(f"{data.name} ({part}) has the label {worst}; labels are 0 to {len(data.labels) - 1}.")
    if data.train_images.shape[1:] != data.test_images.shape[1:]:
        sizes = " and ".join(str(tuple(images.shape[1:])) for images in (data.train_images, data.test_images))
        raise DataError(f"{data.name}: training and test images differ in size: {sizes}.")
    _ = data.mean  # refuses images without any spread
    return data
