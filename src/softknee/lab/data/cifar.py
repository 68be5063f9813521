"""CIFAR-10 and CIFAR-100 in each form that one may have them in; the first that is there is taken.

    binary   cifar-10-batches-bin/data_batch_1.bin ... test_batch.bin, cifar-100-binary/train.bin and test.bin: for each
             image its label in one byte (CIFAR-100: coarse, then fine), then 1024 bytes of red, of green, of blue
    python   cifar-10-batches-py/data_batch_1 ... test_batch, cifar-100-python/train and test: pickles of the same
             bytes, read by `plain_pickle`, which runs nothing
    sheets   cifar10/webp/train_000.webp ...: lossless WebP, each a column of images from top to bottom, with
             train_labels.npy and meta.json, which has the SHA-256 of all pixels and labels

Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError
from ..compressed import read_bytes
from .cifar_sheets import read_sheets
from .images import ImageSet
from .plain_pickle import read_pickle
from .reading import compare_md5

_PIXELS = 3 * 32 * 32
_MOST_BYTES = 2**28  # the largest file, CIFAR-100's of 50,000 images, has 1.6e8
_TEN = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_HOME = "www.cs.toronto.edu/~kriz/cifar.html"


@dataclass(frozen=True, kw_only=True)
class Published:
    """What the authors gave out, by the part ("train", "test") or the file."""

    title: str
    labels: tuple[str, ...]
    marks: int  # bytes before the pixels of a record; the last is the label
    key: str  # of the labels in a pickle
    binary: str  # the folder of each form
    python: str
    sheets: tuple[str, ...]
    files: Mapping[str, tuple[str, ...]]
    counts: Mapping[str, int]
    md5: Mapping[str, str]  # of the pickles, as torchvision compares them
    sha256: Mapping[str, tuple[str, str]]  # of all pixels (row, column, colour) and of all labels


SETS: dict[str, Published] = {
    "cifar-10": Published(
        title="CIFAR-10",
        labels=_TEN,
        marks=1,
        key="labels",
        binary="cifar-10-batches-bin",
        python="cifar-10-batches-py",
        sheets=("cifar10/webp", "cifar-10/webp"),
        files={"train": tuple(f"data_batch_{n}" for n in range(1, 6)), "test": ("test_batch",)},
        counts={"train": 50_000, "test": 10_000},
        md5={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
        sha256={
            "train": (
                "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
                "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            ),
            "test": (
                "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
                "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
            ),
        },
    ),
    "cifar-100": Published(
        title="CIFAR-100",
        labels=tuple(map(str, range(100))),
        marks=2,
        key="fine_labels",
        binary="cifar-100-binary",
        python="cifar-100-python",
        sheets=("cifar100/webp", "cifar-100/webp"),
        files={"train": ("train",), "test": ("test",)},
        counts={"train": 50_000, "test": 10_000},
        md5={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        sha256={},
    ),
}

_Part = tuple[Tensor, Tensor]  # images (count, 3, 32, 32) and labels, all uint8


def load_cifar(name: str, root: Path, *, check: bool = True) -> ImageSet:
    """CIFAR-10 or CIFAR-100 from a data folder; `check=False` takes other images in the same format."""
    published = SETS[name]
    read = _form(published, root, check)
    parts = {part: read(part) for part in ("train", "test")}
    for part, (images, labels) in parts.items() if check else ():
        _compare(published, part, images, labels)
    found = {
        f"{part}_{kind}": one for part in parts for kind, one in zip(("images", "labels"), parts[part], strict=True)
    }
    found = {kind: one.long() if kind.endswith("labels") else one for kind, one in found.items()}
    return ImageSet(name=name, labels=published.labels, **found)


def _form(published: Published, root: Path, check: bool) -> Callable[[str], _Part]:
    """How the parts are read, by the form that is there."""
    binary = [root / above / published.binary for above in _above(published)]
    python = [root / above / published.python for above in _above(published)]
    sheets = [root / folder for folder in published.sheets]
    for folder in filter(Path.is_dir, binary):
        return lambda part: _joined([_read_binary(file, published) for file in _files(published, folder, part, ".bin")])
    for folder in filter(Path.is_dir, python):
        return lambda part: _joined(
            [_read_python(file, published, check) for file in _files(published, folder, part, "")]
        )
    for folder in sheets:
        if (folder / "meta.json").is_file():
            return lambda part: read_sheets(folder, part)
    first, last = published.files["train"][0], published.files["test"][0]
    dots = " ..." if len(published.files["train"]) > 1 else ""
    raise DataError(
        f"{published.title} has no files in the data folder '{root}'. Looked for: "
        f"'{published.binary}/{first}.bin'{dots} and '{last}.bin', '{published.python}/{first}'{dots} and '{last}', "
        f"'{published.sheets[0]}/meta.json' with its sheets. The first two are usually had from "
        f"{_HOME}; softknee downloads nothing. Unpack one of them there, or "
        "name another folder with --data or SOFTKNEE_DATA."
    )


def _above(published: Published) -> tuple[str, ...]:
    return ".", published.title.lower(), published.title.lower().replace("-", "")


def _files(published: Published, folder: Path, part: str, ending: str) -> list[Path]:
    files = [folder / f"{stem}{ending}" for stem in published.files[part]]
    for file in files:
        if not file.is_file():
            every = ", ".join(one.name for kind in published.files for one in _named(published, folder, kind, ending))
            raise DataError(
                f"{published.title} ({part}) has no file '{file.name}' in '{folder}'. It needs {every}, usually had "
                f"from {_HOME}; softknee downloads nothing. Put it there."
            )
    return files


def _named(published: Published, folder: Path, part: str, ending: str) -> list[Path]:
    return [folder / f"{stem}{ending}" for stem in published.files[part]]


def _read_binary(file: Path, published: Published) -> _Part:
    content = bytearray(read_bytes(file, what=f"file of {published.title}", most_bytes=_MOST_BYTES))
    record = published.marks + _PIXELS
    if len(content) == 0 or len(content) % record:
        raise DataError(
            f"'{file}' has {len(content):,} bytes, which are no whole records of {record:,} bytes each, as "
            f"{published.title}'s are. It was cut short or is another's; take it anew."
        )
    rows = torch.frombuffer(content, dtype=torch.uint8).reshape(-1, record)
    return rows[:, published.marks :].reshape(-1, 3, 32, 32), rows[:, published.marks - 1]


def _read_python(file: Path, published: Published, check: bool) -> _Part:
    content = read_bytes(file, what=f"file of {published.title}", most_bytes=_MOST_BYTES)
    if check:
        compare_md5(content, published.md5[file.name], file)
    found = read_pickle(content, what=f"'{file}'")
    if not isinstance(found, dict):
        raise DataError(f"'{file}' holds a {type(found).__name__}, where {published.title} has a dict.")
    data: Any
    labels: Any
    data, labels = (found.get(key.encode(), found.get(key)) for key in ("data", published.key))
    if getattr(data, "shape", ())[1:] != (_PIXELS,) or not isinstance(labels, list):
        raise DataError(
            f"'{file}' has no array 'data' with {_PIXELS:,} bytes for each image and no list '{published.key}', as "
            f"{published.title} has. Is it another's?"
        )
    if len(labels) != len(data) or not all(isinstance(one, int) and 0 <= one < 256 for one in labels):
        raise DataError(f"'{file}' has {len(data):,} images and {len(labels):,} labels, or labels that are no classes.")
    images = torch.frombuffer(bytearray(data.tobytes()), dtype=torch.uint8).reshape(-1, 3, 32, 32)
    return images, torch.tensor(labels, dtype=torch.uint8)


def _joined(pieces: Sequence[_Part]) -> _Part:
    images, labels = zip(*pieces, strict=True)
    return torch.cat(images), torch.cat(labels)


def _compare(published: Published, part: str, images: Tensor, labels: Tensor) -> None:
    wrong = f"{published.title} ({part}) is not as published: "
    cure = " Take its files anew; or, if they are meant to differ, load them with check=False."
    if len(images) != published.counts[part]:
        raise DataError(f"{wrong}it has {len(images):,} images, not {published.counts[part]:,}.{cure}")
    for what, one, wanted in zip(
        ("pixels", "labels"), (images.permute(0, 2, 3, 1), labels), published.sha256.get(part, ()), strict=False
    ):
        if hashlib.sha256(one.contiguous().numpy().data).hexdigest() != wanted:
            raise DataError(f"{wrong}the SHA-256 of its {what} differs.{cure}")
