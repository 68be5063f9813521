"""Tiny-ImageNet: 64 x 64 pictures of 200 kinds of things, 500 of each to train on and 50 to test with.

Read from its official layout, unpacked or from the archive without unpacking it (.zip, .tar, .tar.gz, .tar.xz):

    tiny-imagenet-200/wnids.txt                     the classes
    tiny-imagenet-200/train/CLASS/images/*.JPEG
    tiny-imagenet-200/val/val_annotations.txt       which class each picture of val/images has
    tiny-imagenet-200/val/images/*.JPEG

Its own test pictures have no labels; the part "val" is the test part here, as it is everywhere. A copy with fewer
classes is taken as it is: the classes are those of its wnids.txt, in the order of the alphabet.
"""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from lzma import LZMAError
from pathlib import Path

import torch
from torch import Tensor

from ...errors import DataError
from .cifar import ImageSet
from .files import numpy, pillow, text_of

_SIDE = 64
_MOST_BYTES = 2**20  # of one file; the largest is val_annotations.txt with 0.4 MB
_ENDINGS = (".zip", ".tar", ".tar.gz", ".tar.xz")
_SOURCE = "cs231n.stanford.edu/tiny-imagenet-200.zip"
_WANTED = re.compile(
    r"(?:.*/)?(?:(?P<text>wnids\.txt|val/val_annotations\.txt)"
    r"|train/(?P<kind>[^/]+)/images/(?P<train>[^/]+\.JPEG)|val/images/(?P<val>[^/]+\.JPEG))"
)


def load_tiny_imagenet(root: Path) -> ImageSet:
    """The data set from a data folder, as bytes."""
    place = _place(root)
    texts: dict[str, str] = {}
    train: dict[tuple[str, int, str], Tensor] = {}
    val: dict[str, Tensor] = {}
    for name, content in _files(place):
        match = _WANTED.fullmatch(name)
        if match is None:
            continue
        if text := match["text"]:
            texts[text] = text_of(content, place / text)
        elif kind := match["kind"]:
            train[kind, *_ordered(match["train"])] = _decoded(content, place / name)
        else:
            val[match["val"]] = _decoded(content, place / name)
    for text in ("wnids.txt", "val/val_annotations.txt"):
        if text not in texts:
            raise DataError(f"'{place}' has no '{text}', which Tiny-ImageNet has. Take it anew from {_SOURCE}.")
    classes = tuple(sorted(set(texts["wnids.txt"].split())))
    names = sorted(train)
    for kind in classes:
        if not any(name[0] == kind for name in names):
            raise DataError(f"'{place}' has no pictures in 'train/{kind}/images', a class of its wnids.txt.")
    numbers = {kind: number for number, kind in enumerate(classes)}
    truth = _annotations(texts["val/val_annotations.txt"], place)
    for kind, where in [*((name[0], "train") for name in names), *((truth[picture], "val") for picture in truth)]:
        if kind not in numbers:
            raise DataError(f"'{place}' has the class {kind!r:.40} in {where}, which is not in its wnids.txt.")
    for name in (*truth, *val):
        if name not in val or name not in truth:
            here, there = ("val_annotations.txt", "images") if name not in val else ("images", "val_annotations.txt")
            raise DataError(f"'{place}': the picture 'val/{name}' is in {here} and not in {there}. Take it anew.")
    ordered = sorted(truth, key=_ordered)
    return ImageSet(
        name="tiny-imagenet",
        train_images=_stacked([train.pop(name) for name in names], place),
        train_labels=torch.tensor([numbers[name[0]] for name in names]),
        test_images=_stacked([val.pop(name) for name in ordered], place),
        test_labels=torch.tensor([numbers[truth[name]] for name in ordered]),
        labels=classes,
    )


def _place(root: Path) -> Path:
    """The unpacked folder, or else the archive; the whole data set before a smaller one."""
    candidates = [
        path for above in (root, root / "tiny-imagenet") if above.is_dir() for path in sorted(above.iterdir())
    ]
    candidates = [root / "tiny-imagenet", *(path for path in candidates if path.name.startswith("tiny-imagenet"))]
    folders = [path for path in candidates if (path / "wnids.txt").is_file()]
    archives = [path for path in candidates if path.is_file() and path.name.endswith(_ENDINGS)]
    places = sorted([*folders, *archives], key=lambda path: "tiny-imagenet-200" not in path.name)
    if places:
        return places[0]
    raise DataError(
        f"Tiny-ImageNet has no files in the data folder '{root}'. Looked for: 'tiny-imagenet-200/wnids.txt' (with "
        "train and val), 'tiny-imagenet-200.zip', 'tiny-imagenet/tiny-imagenet-200.zip', and the same as .tar, .tar.gz "
        f"or .tar.xz. It is usually had from {_SOURCE}; softknee downloads nothing. Put it there, or name another "
        "folder with --data or SOFTKNEE_DATA."
    )


def _files(place: Path) -> Iterator[tuple[str, bytes]]:
    """Names (with '/') and contents of the files that are wanted, from a folder or an archive."""
    try:
        if place.is_dir():
            for path in sorted(place.rglob("*")):
                name = path.relative_to(place).as_posix()
                if _WANTED.fullmatch(name) and path.is_file():
                    yield name, _limited(path.stat().st_size, path.read_bytes, place / name)
        elif place.name.endswith(".zip"):
            with zipfile.ZipFile(place) as archive:
                for one in archive.infolist():
                    if _WANTED.fullmatch(one.filename):
                        yield one.filename, _limited(one.file_size, lambda one=one: archive.read(one), place)
        else:
            with tarfile.open(place) as archive:
                for one in archive:
                    if one.isreg() and _WANTED.fullmatch(one.name):
                        file = archive.extractfile(one)
                        assert file is not None  # a regular file has contents
                        yield one.name, _limited(one.size, file.read, place / one.name)
    except (OSError, EOFError, LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise DataError(f"'{place}' could not be read ({error}). It is damaged; take it anew.") from error


def _limited(size: int, read: object, path: Path) -> bytes:
    if size > _MOST_BYTES:
        raise DataError(f"'{path}' has a file of {size:,} bytes, and none of Tiny-ImageNet has {_MOST_BYTES:,}.")
    assert callable(read)
    content = read()
    assert isinstance(content, bytes)
    return content


def _decoded(content: bytes, path: Path) -> Tensor:
    """One picture as (64, 64, 3) bytes; some are grey, and are so in all three colours."""
    np = numpy()
    try:
        with pillow().open(io.BytesIO(content), formats=["JPEG"]) as picture:
            if picture.size != (_SIDE, _SIDE):
                raise DataError(f"'{path}' has {picture.size[0]} x {picture.size[1]} pixels, not {_SIDE} x {_SIDE}.")
            return torch.from_numpy(np.array(picture.convert("RGB")))
    except (OSError, SyntaxError) as error:  # Pillow raises SyntaxError for some damaged files
        raise DataError(f"'{path}' is no JPEG picture that can be read ({error}). Take it anew.") from error


def _annotations(text: str, place: Path) -> dict[str, str]:
    """The class of each picture of val: name, class and a box, with tabs between."""
    classes = {}
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.split("\t")
        if len(cells) < 2:
            raise DataError(
                f"'{place}': line {number} of val_annotations.txt has no name and class with a tab between."
            )
        classes[cells[0]] = cells[1]
    return classes


def _ordered(name: str) -> tuple[int, str]:
    """By the number at the end of the name, so that the order does not depend on the archive."""
    number = re.search(r"(\d+)\.JPEG$", name)
    return int(number[1]) if number else -1, name


def _stacked(pictures: list[Tensor], place: Path) -> Tensor:
    if not pictures:
        raise DataError(f"'{place}' has no pictures in one of its parts, train and val. Take it anew from {_SOURCE}.")
    stack = torch.empty(len(pictures), 3, _SIDE, _SIDE, dtype=torch.uint8)
    for number, picture in enumerate(pictures):
        stack[number] = picture.permute(2, 0, 1)
    return stack
