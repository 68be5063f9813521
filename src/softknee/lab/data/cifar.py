"""CIFAR-10 and CIFAR-100 from the files of the published binary version.

    cifar-10-batches-bin/data_batch_1.bin ... data_batch_5.bin and test_batch.bin
    cifar-100-binary/train.bin and test.bin

Each image is a record: its label in one byte (CIFAR-100: coarse, then fine), then 1,024 bytes of red, of green, of
blue. The python version of the same images consists of pickles, which are not read.

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ...errors import DataError, ParameterError, did_you_mean
from .files import data_folder, read_bytes

_PIXELS = 3 * 32 * 32
_MOST_BYTES = 2**28  # the largest file, CIFAR-100's of 50,000 images, has 1.6e8
_HOME = "www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True, kw_only=True)
class Published:
    """A data set as published. The last byte of the `label_bytes` of a record is the label."""

    title: str
    labels: tuple[str, ...]
    label_bytes: int
    archive: str
    folder: str
    python_folder: str
    sha256: Mapping[str, str]  # by file; those named test... are the test part


SETS: dict[str, Published] = {
    "cifar-10": Published(
        title="CIFAR-10",
        labels=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        label_bytes=1,
        archive="cifar-10-binary.tar.gz",
        folder="cifar-10-batches-bin",
        python_folder="cifar-10-batches-py",
        sha256={
            "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
            "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
            "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
            "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
            "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        },
    ),
    "cifar-100": Published(
        title="CIFAR-100",
        labels=tuple(map(str, range(100))),
        label_bytes=2,
        archive="cifar-100-binary.tar.gz",
        folder="cifar-100-binary",
        python_folder="cifar-100-python",
        sha256={
            "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
    ),
}


def load_cifar(name: str, root: Path, *, check: bool = True) -> ImageSet:
    """CIFAR-10 or CIFAR-100 from a data folder; `check=False` takes other images in the same format."""
    published = SETS[name]
    folder = _find_folder(published, root)
    records = {file: _read(folder / file, published, check) for file in published.sha256}
    train = torch.cat([table for file, table in records.items() if not file.startswith("test")])
    test = torch.cat([table for file, table in records.items() if file.startswith("test")])
    before = published.label_bytes
    return ImageSet(
        name=name,
        train_images=train[:, before:].reshape(-1, 3, 32, 32),
        train_labels=train[:, before - 1].long(),
        test_images=test[:, before:].reshape(-1, 3, 32, 32),
        test_labels=test[:, before - 1].long(),
        labels=published.labels,
    )


def _find_folder(published: Published, root: Path) -> Path:
    parents = [root, root / published.title.lower(), root / published.title.lower().replace("-", "")]
    for parent in parents:
        if (parent / published.folder).is_dir():
            return parent / published.folder
    files = ", ".join(published.sha256)
    cure = (
        f"Unpack {published.archive} (the binary version) from {_HOME} there, so that it has '{published.folder}' with "
        f"{files}; softknee downloads nothing. Or name another folder with --data or SOFTKNEE_DATA."
    )
    for parent in parents:
        if (parent / published.python_folder).is_dir():
            raise DataError(
                f"'{parent / published.python_folder}' is the python version of {published.title}, which consists of "
                f"pickles, and those are not read because a pickle may run code. {cure}"
            )
    raise DataError(f"{published.title} has no folder '{published.folder}' in the data folder '{root}'. {cure}")


def _read(path: Path, published: Published, check: bool) -> Tensor:
    """The records of a file, (count, label bytes + 3,072) in uint8."""
    if not path.is_file():
        raise DataError(
            f"{published.title} has no file '{path.name}' in '{path.parent}'. It needs {', '.join(published.sha256)}; "
            f"unpack {published.archive} from {_HOME} again. softknee downloads nothing."
        )
    content = bytearray(read_bytes(path, what=f"file of {published.title}", most_bytes=_MOST_BYTES))
    length = published.label_bytes + _PIXELS
    if len(content) == 0 or len(content) % length:
        raise DataError(
            f"'{path}' has {len(content):,} bytes, which are no whole records of {length:,} bytes each, as "
            f"{published.title}'s are. It was cut short or is another's; take it anew."
        )
    if check and hashlib.sha256(content).hexdigest() != published.sha256[path.name]:
        raise DataError(
            f"'{path}' is not the published file: its SHA-256 differs. Take it anew; or, if it is meant to differ, "
            "load it with check=False."
        )
    return torch.frombuffer(content, dtype=torch.uint8).reshape(-1, length)


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
