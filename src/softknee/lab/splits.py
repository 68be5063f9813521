"""A data set in three parts: to train on, to choose a checkpoint by, and to report.

The validation part is taken from the training images in one order that never changes, so that every activation and
every seed is chosen by the same images; the test part is what the data set has for that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ..errors import ParameterError, did_you_mean
from .digits import load_digits
from .idx import SETS, load_images
from .pictures import PICTURES
from .synthetic import SYNTHETIC

IMAGE_SETS = ("digits", *SETS)  # images of ten classes
OWN_PARTS = (*SYNTHETIC, *PICTURES)  # come in their three parts, and only a study reads them
DATA_SETS = (*IMAGE_SETS, *OWN_PARTS)
_ORDER_SEED = 0
# Of the digits a fifth of the training half (179 of 898); of the larger sets 5,000 of 60,000.
_VALIDATION_SHARE = 0.2
_MOST_VALIDATION = 5000


@dataclass(frozen=True, kw_only=True)
class Split:
    """Images and labels of the three parts, standardised as `normalisation` says."""

    name: str
    normalisation: str
    train_images: Tensor
    train_labels: Tensor
    validation_images: Tensor
    validation_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def to(self, device: torch.device | str) -> Split:
        """The same data on another device."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in found.items() if isinstance(value, Tensor)})

    def sentence(self) -> str:
        """How many images each part has, for a record."""
        parts = (("training", self.train_labels), ("validation", self.validation_labels), ("test", self.test_labels))
        return f"{self.name}: " + ", ".join(f"{len(labels):,} {part}" for part, labels in parts)


def load_split(
    name: str, folder: str | os.PathLike[str] | None = None, *, flat: bool = False, check: bool = True
) -> Split:
    """The data set "digits", "mnist" or "fashion-mnist".

    Args:
        folder, check: as for `load_images`; the digits come with scikit-learn and need no folder.
        flat: every image as one row of numbers, as an MLP takes it, not as (1, height, width).

    >>> load_split("digits", flat=True).sentence()
    'digits: 719 training, 179 validation, 899 test'
    """
    if name not in IMAGE_SETS:
        known = ", ".join(repr(one) for one in IMAGE_SETS)
        if name in OWN_PARTS:
            raise ParameterError(
                f"The data set {name!r} has no images with labels, and is for studies; there are {known}."
            )
        raise ParameterError(f"There is no data set {name!r} here; there are {known}.{did_you_mean(name, IMAGE_SETS)}")
    if name == "digits":
        data, normalisation = load_digits(), "standardised by one mean and one standard deviation of the training half"
        train, test = (one if flat else one.unflatten(1, (1, 8, 8)) for one in (data.train_images, data.test_images))
    else:
        data = load_images(name, folder, check=check)
        normalisation = data.normalisation
        data = data.flat() if flat else data
        train, test = data.train_images, data.test_images
    count = len(train)
    kept = min(int(_VALIDATION_SHARE * count), _MOST_VALIDATION)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(_ORDER_SEED))
    chosen, rest = order[:kept], order[kept:]
    return Split(
        name=name,
        normalisation=normalisation,
        train_images=train[rest],
        train_labels=data.train_labels[rest],
        validation_images=train[chosen],
        validation_labels=data.train_labels[chosen],
        test_images=test,
        test_labels=data.test_labels,
    )
