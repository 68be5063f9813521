"""MNIST and Fashion-MNIST from their idx files, as published, gzipped or not, compared by SHA-256.

An idx file is a magic number (two zero bytes, the type of its numbers, how many dimensions), each dimension as a
big-endian 32-bit number, and the numbers themselves.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...errors import DataError
from .files import find_file, read_bytes
from .image_set import ImageSet

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


def load_idx(name: str, root: Path, *, check: bool) -> ImageSet:
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
        labels=tuple(map(str, range(10))),
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
        f"{SETS[name].sha256[part][:12]}.... Get it again; or, if it is meant to differ, load it with "
        "check=False (in a recipe: data.check: false)."
    )
