"""A data set in three parts: to train on, to choose a checkpoint by, and to report.

The validation part is taken from the training images in one order that never changes, so that every activation and
every seed is chosen by the same images; the test part is what the data set has for that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ..errors import MissingToolError, ParameterError, did_you_mean
from .data.cifar import IMAGES, load_image_set
from .idx import SETS, load_images
from .pictures import PICTURES
from .synthetic import SYNTHETIC

IMAGE_SETS = ("digits", *SETS, *IMAGES)  # images of classes, with a test part of their own
ROW_SETS = ("adult",)  # rows of numbers of classes, with a test part of their own; only a study reads them
OWN_PARTS = (*SYNTHETIC, *PICTURES, "criteo")  # come in their three parts, and only a study reads them
DATA_SETS = (*IMAGE_SETS, *ROW_SETS, *OWN_PARTS)
_ORDER_SEED = 0
# Of the digits a fifth of the training half (179 of 898); of the larger sets 5,000 of 60,000.
_VALIDATION_SHARE = 0.2
_MOST_VALIDATION = 5000
_SIXTEENTH = 15  # the digits have levels of 0 to 16, which become 0 to 240


# Half the digits are kept for the test: with fewer, one image would move the accuracy by more than the
# activations differ.
_DIGITS_TEST_SHARE = 0.5
_DIGITS_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Digits:
    """The 8 x 8 digits of scikit-learn as rows of 64 numbers, standardised; labels are 0 to 9.

    mean, spread: of the training half, in levels of 0 to 16.
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    mean: float
    spread: float


def load_digits() -> Digits:
    """The 1,797 digits that come with scikit-learn, always split in the same way.

    Both halves have the same share of every digit.
    """
    try:
        from sklearn import datasets, model_selection
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "The digits come with scikit-learn, which is not installed. Install it with: pip install 'softknee[lab]'"
        ) from error
    images, labels = datasets.load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = model_selection.train_test_split(
        images, labels, test_size=_DIGITS_TEST_SHARE, random_state=_DIGITS_SEED, stratify=labels
    )
    train, test = torch.tensor(train_x, dtype=torch.float32), torch.tensor(test_x, dtype=torch.float32)
    # One scale for the whole image: some pixels are always blank, and have no spread of their own.
    # In float64, where sums of whole numbers are exact: the same floats on every machine, whatever order it sums in.
    mean, spread = train.double().mean().float(), train.double().std().float()
    return Digits(
        train_images=(train - mean) / spread,
        train_labels=torch.tensor(train_y, dtype=torch.int64),
        test_images=(test - mean) / spread,
        test_labels=torch.tensor(test_y, dtype=torch.int64),
        mean=float(mean),
        spread=float(spread),
    )


@dataclass(frozen=True, kw_only=True)
class Split:
    """Images and labels of the three parts, standardised as `normalisation` says.

    mean, spread: of each channel, in levels of 0 to 255: an image is (level - mean) / spread. Empty where it is not
                  known.
    """

    name: str
    normalisation: str
    train_images: Tensor
    train_labels: Tensor
    validation_images: Tensor
    validation_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    mean: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()

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
    """A data set of `IMAGE_SETS`: "digits", "mnist", "fashion-mnist", "cifar-10", "cifar-100", "tiny-imagenet".

    Args:
        folder, check: as for `load_images` and `load_image_set`; the digits come with scikit-learn and need no folder.
        flat: every image as one row of numbers, as an MLP takes it, not as (1, height, width).

    >>> load_split("digits", flat=True).sentence()
    'digits: 719 training, 179 validation, 899 test'
    """
    if name not in IMAGE_SETS:
        known = ", ".join(repr(one) for one in IMAGE_SETS)
        if name in DATA_SETS:
            raise ParameterError(
                f"The data set {name!r} has no images with labels, and is for studies; there are {known}."
            )
        raise ParameterError(f"There is no data set {name!r} here; there are {known}.{did_you_mean(name, IMAGE_SETS)}")
    if name in IMAGES:
        return _of_bytes(name, folder, flat=flat, check=check)
    if name == "digits":
        data, normalisation = load_digits(), "standardised by one mean and one standard deviation of the training half"
        scale = float(_SIXTEENTH)
        train, test = (one if flat else one.unflatten(1, (1, 8, 8)) for one in (data.train_images, data.test_images))
    else:
        data = load_images(name, folder, check=check)
        normalisation, scale = data.normalisation, 255.0
        data = data.flat() if flat else data
        train, test = data.train_images, data.test_images
    chosen, rest = _divided(len(train))
    return Split(
        name=name,
        normalisation=normalisation,
        train_images=train[rest],
        train_labels=data.train_labels[rest],
        validation_images=train[chosen],
        validation_labels=data.train_labels[chosen],
        test_images=test,
        test_labels=data.test_labels,
        mean=(data.mean * scale,),
        spread=(data.spread * scale,),
    )


def _divided(count: int) -> tuple[Tensor, Tensor]:
    """Places of the validation part, and of the rest."""
    kept = min(int(_VALIDATION_SHARE * count), _MOST_VALIDATION)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(_ORDER_SEED))
    return order[:kept], order[kept:]


def _of_bytes(name: str, folder: str | os.PathLike[str] | None, *, flat: bool, check: bool) -> Split:
    """A data set that is kept in bytes: divided first, so that floats take their room once."""
    data = load_image_set(name, folder, check=check)
    chosen, rest = _divided(len(data.train_images))
    parts = (data.train_images[rest], data.train_images[chosen], data.test_images)
    train, validation, test = (data.ready(one).flatten(1) if flat else data.ready(one) for one in parts)
    return Split(
        name=name,
        normalisation=data.normalisation,
        train_images=train,
        train_labels=data.train_labels[rest],
        validation_images=validation,
        validation_labels=data.train_labels[chosen],
        test_images=test,
        test_labels=data.test_labels,
        mean=data.mean,
        spread=data.spread,
    )
