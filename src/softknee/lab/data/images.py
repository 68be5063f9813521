"""The data sets by name, and the three parts of those with images.

The validation part is taken from the training images in one order that never changes, so that every activation and
every seed is chosen by the same images; the test part is what the data set has for that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ...errors import ParameterError, did_you_mean, need_package
from .cifar import CIFAR_SETS, load_cifar
from .files import data_folder
from .idx import SETS, load_idx
from .image_set import ImageSet, checked
from .imagenet import load_imagenet, load_tiny_imagenet
from .synthetic import PICTURES, SYNTHETIC

IMAGES = ("cifar-10", "cifar-100", "tiny-imagenet", "imagenet")
IMAGE_SETS = ("digits", *SETS, *IMAGES)  # images of classes, with a test part of their own
ROW_SETS = ("adult",)  # rows of numbers of classes, with a test part of their own; only a study reads them
OWN_PARTS = (*SYNTHETIC, *PICTURES, "criteo")  # come in their three parts, and only a study reads them
DATA_SETS = (*IMAGE_SETS, *ROW_SETS, *OWN_PARTS)
# Half the digits are kept for the test: with fewer, one image would move the accuracy by more than the
# activations differ.
_DIGITS_TEST_SHARE = 0.5
_SIXTEENTH = 15  # the digits have levels of 0 to 16, which become 0 to 240


def load_image_set(
    name: str, folder: str | os.PathLike[str] | None = None, *, check: bool = True, most: int | None = None
) -> ImageSet:
    """A data set of `IMAGE_SETS` from its standard files, as levels of its pixels.

    Args:
        folder: what holds the data sets (each in a folder of its own, or as torchvision lays them out); by default the
            one that the environment variable SOFTKNEE_DATA names. The digits come with scikit-learn and need none.
        check: compare counts and contents with what was published, where that is known. False takes other files of
            the same format.
        most: of ImageNet, so many pictures of each part at most, which spares decoding the others.
    """
    if name not in IMAGE_SETS:
        known = ", ".join(map(repr, IMAGE_SETS))
        if name in DATA_SETS:
            raise ParameterError(
                f"The data set {name!r} has no labelled images, and is for studies; there are {known}."
            )
        raise ParameterError(f"There is no data set {name!r} here; there are {known}.{did_you_mean(name, IMAGE_SETS)}")
    if name == "digits":
        return load_digits()
    root = data_folder(folder)
    if name in SETS:
        return checked(load_idx(name, root, check=check))
    if name in CIFAR_SETS:
        return checked(load_cifar(name, root, check=check))
    return checked(load_imagenet(root, most=most) if name == "imagenet" else load_tiny_imagenet(root))


def load_digits() -> ImageSet:
    """The 1,797 digits that come with scikit-learn, always split in the same way.

    Both halves have the same share of every digit.
    """
    need_package("sklearn", "The digits come with scikit-learn", "lab")
    from sklearn import datasets, model_selection

    images, labels = datasets.load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = model_selection.train_test_split(
        images, labels, test_size=_DIGITS_TEST_SHARE, random_state=0, stratify=labels
    )
    train, test = (torch.tensor(part, dtype=torch.float32).unflatten(1, (1, 8, 8)) for part in (train_x, test_x))
    # One scale for the whole image: some pixels are always blank, and have no spread of their own.
    # In float64, where sums of whole numbers are exact: the same floats on every machine, whatever order it sums in.
    mean, spread = train.double().mean().float(), train.double().std().float()
    return ImageSet(
        name="digits",
        train_images=train,
        train_labels=torch.tensor(train_y, dtype=torch.int64),
        test_images=test,
        test_labels=torch.tensor(test_y, dtype=torch.int64),
        labels=tuple(map(str, range(10))),
        moments=((float(mean), float(spread)),),
        scale=_SIXTEENTH,
    )


@dataclass(frozen=True, kw_only=True)
class Split:
    """Images and labels of the three parts, standardised by the training images."""

    name: str
    train_images: Tensor
    train_labels: Tensor
    validation_images: Tensor
    validation_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def to(self, device: torch.device | str) -> Split:
        """The same data on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in values.items() if isinstance(value, Tensor)})

    def sentence(self) -> str:
        """How many images each part has, for a record."""
        parts = (("training", self.train_labels), ("validation", self.validation_labels), ("test", self.test_labels))
        return f"{self.name}: " + ", ".join(f"{len(labels):,} {part}" for part, labels in parts)


def load_split(
    name: str, folder: str | os.PathLike[str] | None = None, *, flat: bool = False, check: bool = True
) -> Split:
    """The three parts of a data set of `IMAGE_SETS`.

    Args:
        folder, check: as for `load_image_set`.
        flat: every image as one row of numbers, as an MLP takes it, not as (channels, height, width).

    >>> load_split("digits", flat=True).sentence()
    'digits: 719 training, 179 validation, 899 test'
    """
    data = load_image_set(name, folder, check=check)
    order, count = data.order(), data.validation
    chosen, rest = order[:count], order[count:]
    # Divided as levels, so that floats take their room once.
    train, validation, test = (
        data.ready(part).flatten(1) if flat else data.ready(part)
        for part in (data.train_images[rest], data.train_images[chosen], data.test_images)
    )
    return Split(
        name=name,
        train_images=train,
        train_labels=data.train_labels[rest],
        validation_images=validation,
        validation_labels=data.train_labels[chosen],
        test_images=test,
        test_labels=data.test_labels,
    )
