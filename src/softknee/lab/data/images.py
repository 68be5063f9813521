"""Images of classes: MNIST and Fashion-MNIST, CIFAR-10 and CIFAR-100, scikit-learn's digits; and their three parts.

Files are read as published, gzipped or not, and compared by SHA-256. The validation part is taken from the training
images in one order that never changes, so that every activation and every seed is chosen by the same images; the test
part is what the data set has for that.

An idx file is a magic number (two zero bytes, the type of its numbers, how many dimensions), each dimension as a
big-endian 32-bit number, and the numbers themselves.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from ...errors import DataError, ParameterError, did_you_mean, need_package
from .files import data_folder, find_file, read_bytes
from .synthetic import PICTURES, SYNTHETIC

_UNSIGNED_BYTE = 0x08
_TYPES = {0x09: "signed bytes", 0x0B: "16-bit integers", 0x0C: "32-bit integers", 0x0D: "floats", 0x0E: "doubles"}
# The largest data set of this kind (EMNIST by class) has 550 million bytes.
_MOST_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class Published:
    """A data set as it was published: where its files usually lie, where they are had, and their checksums."""

    title: str
    folders: tuple[str, ...]
    source: str
    sha256: Mapping[str, str]  # of the bytes after decompression, by the part of the data set


_TEN = tuple(map(str, range(10)))
_PARTS = {
    "train_images": ("train-images", 3),
    "train_labels": ("train-labels", 1),
    "test_images": ("t10k-images", 3),
    "test_labels": ("t10k-labels", 1),
}
SETS: dict[str, Published] = {
    "mnist": Published(
        title="MNIST",
        folders=("mnist", "MNIST/raw", "."),
        source="torchvision.datasets.MNIST or yann.lecun.com/exdb/mnist",
        sha256={
            "train_images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "train_labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "test_images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "test_labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        },
    ),
    "fashion-mnist": Published(
        title="Fashion-MNIST",
        folders=("fashion-mnist", "FashionMNIST/raw", "."),
        source="torchvision.datasets.FashionMNIST or github.com/zalandoresearch/fashion-mnist",
        sha256={
            "train_images": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "train_labels": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "test_images": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "test_labels": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        },
    ),
}


def _load_idx(name: str, root: Path, *, check: bool) -> ImageSet:
    """MNIST or Fashion-MNIST from its four idx files."""
    published = SETS[name]
    raw: dict[str, Tensor] = {}
    for part, (stem, dimensions) in _PARTS.items():
        places = _places(published, stem, dimensions)
        path = find_file(root, places, what=_named(published, part), source=published.source)
        raw[part], digest = _read(path, dimensions=dimensions)
        if check and digest != published.sha256[part]:
            raise DataError(_another(path, name, part, digest))
    return ImageSet(
        name=name,
        train_images=raw["train_images"].unsqueeze(1),
        train_labels=raw["train_labels"].long(),
        test_images=raw["test_images"].unsqueeze(1),
        test_labels=raw["test_labels"].long(),
        labels=_TEN,
    )


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """The numbers of one idx file of unsigned bytes, gzipped or not, as a uint8 tensor.

    >>> import gzip, tempfile
    >>> file = tempfile.NamedTemporaryFile(suffix=".gz")
    >>> _ = file.write(gzip.compress(bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6]))); file.flush()
    >>> read_idx(file.name)
    tensor([[1, 2, 3],
            [4, 5, 6]], dtype=torch.uint8)
    >>> file.close()
    """
    return _read(path)[0]


def _read(path: str | os.PathLike[str], *, dimensions: int | None = None) -> tuple[Tensor, str]:
    """The numbers of a file, and the checksum of its bytes after decompression."""
    content = read_bytes(path, what="idx file", most_bytes=_MOST_BYTES)
    head = content[:4]
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in (_UNSIGNED_BYTE, *_TYPES) or head[3] < 1:
        raise DataError(f"'{path}' is no idx file: it begins with {head.hex(' ') or 'nothing'}, and one with 00 00 08.")
    if head[2] != _UNSIGNED_BYTE:
        raise DataError(f"'{path}' holds {_TYPES[head[2]]}, where images and labels are unsigned bytes.")
    if dimensions is not None and head[3] != dimensions:
        raise DataError(f"'{path}' holds {_kind(head[3])}, where {_kind(dimensions)} belong. Were two files mixed up?")
    start = 4 + 4 * head[3]
    if len(content) < start:
        raise DataError(f"'{path}' ends within its header. It was cut short; get it again.")
    shape = struct.unpack_from(f">{head[3]}I", content, 4)
    count, actual, text = math.prod(shape), len(content) - start, " x ".join(map(str, shape))
    if not count:
        raise DataError(f"'{path}' claims {text} numbers: it must be at least 1. Get it again.")
    if actual != count:
        fault = f"has {actual:,}: it was cut short" if actual < count else "has more: it is not whole"
        raise DataError(f"'{path}' claims {text} = {count:,} numbers and {fault}. Get it again.")
    numbers = torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8).reshape(shape)
    return numbers, hashlib.sha256(content).hexdigest()


def _kind(dimensions: int) -> str:
    return {1: "labels (1 dimension)", 3: "images (3 dimensions)"}.get(
        dimensions, f"numbers in {dimensions} dimensions"
    )


def _places(published: Published, stem: str, dimensions: int) -> list[str]:
    """Where a file may lie. Some copies write the dimensions after a dot."""
    names = [f"{stem}{mark}idx{dimensions}-ubyte" for mark in "-."]
    files = [f"{name}{ending}" for name in names for ending in (".gz", "")]
    return [Path(folder, file).as_posix() for folder in published.folders for file in files]


def _named(published: Published, part: str) -> str:
    return f"{published.title} ({part.replace('_', ' ')})"


def _another(path: Path, name: str, part: str, digest: str) -> str:
    """The sentence for a file that is not the published one; what it is instead, where that is known."""
    for other in SETS.values():
        for kind, known in other.sha256.items():
            if known == digest:
                return f"'{path}' is {_named(other, kind)}, where {_named(SETS[name], part)} is expected. Exchange it."
    return (
        f"'{path}' is not the published file of {_named(SETS[name], part)}: its sha256 is {digest[:12]}..., not "
        f"{SETS[name].sha256[part][:12]}.... Get it again; or, if it is meant to differ, load it with check=False."
    )


_PIXELS = 3 * 32 * 32
_MOST_CIFAR_BYTES = 2**28  # the largest file, CIFAR-100's of 50,000 images, has 1.6e8
_HOME = "www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True, kw_only=True)
class CifarFiles:
    """A data set as published. The last byte of the `label_bytes` of a record is the label."""

    title: str
    labels: tuple[str, ...]
    label_bytes: int
    archive: str
    folder: str
    python_folder: str
    sha256: Mapping[str, str]  # by file; those named test... are the test part


CIFAR_SETS: dict[str, CifarFiles] = {
    "cifar-10": CifarFiles(
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
    "cifar-100": CifarFiles(
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
    published = CIFAR_SETS[name]
    folder = _find_folder(published, root)
    records = {file: _read_cifar(folder / file, published, check) for file in published.sha256}
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


def _find_folder(published: CifarFiles, root: Path) -> Path:
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


def _read_cifar(path: Path, published: CifarFiles, check: bool) -> Tensor:
    """The records of a file, (count, label bytes + 3,072) in uint8."""
    if not path.is_file():
        raise DataError(
            f"{published.title} has no file '{path.name}' in '{path.parent}'. It needs {', '.join(published.sha256)}; "
            f"unpack {published.archive} from {_HOME} again. softknee downloads nothing."
        )
    content = bytearray(read_bytes(path, what=f"file of {published.title}", most_bytes=_MOST_CIFAR_BYTES))
    length = published.label_bytes + _PIXELS
    if len(content) == 0 or len(content) % length:
        raise DataError(
            f"'{path}' has {len(content):,} bytes, which are no whole records of {length:,} bytes each, as "
            f"{published.title}'s are. It was cut short or is another's; get it again."
        )
    if check and hashlib.sha256(content).hexdigest() != published.sha256[path.name]:
        raise DataError(
            f"'{path}' is not the published file: its SHA-256 differs. Get it again; or, if it is meant to differ, "
            "load it with check=False."
        )
    return torch.frombuffer(content, dtype=torch.uint8).reshape(-1, length)


IMAGES = ("cifar-10", "cifar-100", "tiny-imagenet", "imagenet")
IMAGE_SETS = ("digits", *SETS, *IMAGES)  # images of classes, with a test part of their own
ROW_SETS = ("adult",)  # rows of numbers of classes, with a test part of their own; only a study reads them
OWN_PARTS = (*SYNTHETIC, *PICTURES, "criteo")  # come in their three parts, and only a study reads them
DATA_SETS = (*IMAGE_SETS, *ROW_SETS, *OWN_PARTS)
# Of the digits a fifth of the training half (179 of 898); of the larger sets 5,000 of 60,000.
_VALIDATION_SHARE = 0.2
_MOST_VALIDATION = 5000
# Half the digits are kept for the test: with fewer, one image would move the accuracy by more than the
# activations differ.
_DIGITS_TEST_SHARE = 0.5
_SIXTEENTH = 15  # the digits have levels of 0 to 16, which become 0 to 240


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
        return checked(_load_idx(name, root, check=check))
    if name in CIFAR_SETS:
        return checked(load_cifar(name, root, check=check))
    from .imagenet import load_imagenet, load_tiny_imagenet

    return checked(load_imagenet(root, most=most) if name == "imagenet" else load_tiny_imagenet(root))


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
        labels=_TEN,
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
