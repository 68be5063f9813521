"""ImageNet-1K, or any pictures in one folder for each class, as bytes of one size.

    imagenet/train/CLASS/*.JPEG
    imagenet/val/CLASS/*.JPEG          the test part here, as it is everywhere

`ILSVRC/Data/CLS-LOC` and `imagenet-1k` are searched, too. Every picture is brought to the size once: its shorter side
by bicubic interpolation, and the middle of the longer one. The order is one that never changes and has all classes
mixed, so that the first N pictures are a random part; only those that are needed are decoded.

`load_imagenet` holds the pictures in memory, which a part of ImageNet is small enough for. The whole at 224 x 224 has
193 GB for training and 7.5 GB for the test, 150,528 bytes a picture: `softknee data imagenet` (`write_bytes`) decodes
them to a disk once, and a study then reads its batches from there:

    imagenet-224/train.bytes     (pictures, 3, 224, 224) in uint8
    imagenet-224/val.bytes       the same; the test part here
    imagenet-224/meta.json       classes, labels, the SHA-256 of both files, mean and spread of the training pictures

A folder of this name is whole: while it is made it has another.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError, ParameterError
from ...files import WriteError, new_folder
from ...train.streamed import Streamed
from .files import not_found, numpy, pillow, read_bytes, text_of
from .image_set import ImageSet, level_counts, moments_of

SIDE = 224
_FOLDERS = ("imagenet", "imagenet-1k", "ILSVRC/Data/CLS-LOC")
_ENDINGS = (".jpeg", ".jpg", ".png")
_FORMATS = ["JPEG", "PNG"]  # one of ImageNet's JPEG files is a PNG
_SOURCE = "image-net.org (ILSVRC2012, with the validation pictures sorted into a folder for each class)"
_AS_FLOATS = 5  # bytes for each byte: itself, and the float that a study makes of it
_AHEAD = 8  # pictures that each thread decodes ahead
COMMAND = "softknee data imagenet"
_FORMAT = "softknee imagenet bytes 1"
_META = "meta.json"
_MOST_META = 2**26  # bytes; ImageNet-1K has some 6 million
_SPARE = 2**26  # bytes beside the pictures
_REPORT_EVERY = 500  # pictures

Report = Callable[[str], object]


def load_imagenet(root: Path, *, most: int | None = None, side: int = SIDE) -> ImageSet:
    """The data set from a data folder; `most` pictures of each part at most.

    Where `softknee data imagenet` has written them they are taken from there, the same ones without decoding.
    """
    stored = find_bytes(root, side=side)
    if stored is not None and stored.holds(most):
        labels = {part: numbers[:most] for part, numbers in stored.labels.items()}
        refuse_too_many(sum(map(len, labels.values())), stored.folder, side)
        images = {part: stored.images(part, len(numbers)) for part, numbers in labels.items()}
        return _image_set(images, labels, stored.classes)
    place = find_place(root)
    classes, files = listed(place, most)
    refuse_too_many(sum(map(len, files.values())), place, side)
    images = {part: _all_decoded(paths, side) for part, paths in files.items()}
    return _image_set(images, {part: labels_of(paths, classes) for part, paths in files.items()}, classes)


def _image_set(images: dict[str, Tensor], labels: dict[str, Tensor], classes: tuple[str, ...]) -> ImageSet:
    return ImageSet(
        name="imagenet",
        train_images=images["train"],
        train_labels=labels["train"],
        test_images=images["val"],
        test_labels=labels["val"],
        labels=classes,
    )


def listed(place: Path, most: int | None) -> tuple[tuple[str, ...], dict[str, list[Path]]]:
    """The classes, and the pictures of "train" and "val" in the order that never changes, so many at most."""
    classes = tuple(sorted(folder.name for folder in (place / "train").iterdir() if folder.is_dir()))
    return classes, {part: _files(place / part, classes, most) for part in ("train", "val")}


def labels_of(files: Sequence[Path], classes: Sequence[str]) -> Tensor:
    """The number of the class of each picture."""
    number = {name: index for index, name in enumerate(classes)}
    return torch.tensor([number[path.parent.name] for path in files])


def find_place(root: Path) -> Path:
    for folder in _FOLDERS:
        if (root / folder / "train").is_dir() and (root / folder / "val").is_dir():
            return root / folder
    places = ", ".join(f"'{folder}/train' and '{folder}/val'" for folder in _FOLDERS)
    raise not_found("ImageNet has no folders", root, f"{places}, each with one folder for each class", _SOURCE)


def _files(folder: Path, classes: Sequence[str], most: int | None) -> list[Path]:
    """The pictures of a part, all classes mixed; the first of them."""
    pictures = []
    for name in classes:
        if not (folder / name).is_dir():
            raise DataError(f"'{folder}' has no folder of the class {name!r:.40}, which 'train' beside it has.")
        of_class = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in _ENDINGS)
        if not of_class:
            raise DataError(f"'{folder / name}' has no pictures ({', '.join(_ENDINGS)}). Get it again from {_SOURCE}.")
        pictures += of_class
    if not pictures:
        raise DataError(f"'{folder}' has no folders of classes. Get it again from {_SOURCE}.")
    order = torch.randperm(len(pictures), generator=torch.Generator().manual_seed(0)).tolist()
    return [pictures[place] for place in order[:most]]


def refuse_too_many(count: int, place: Path, side: int) -> None:
    """Refuse more pictures than the memory of this machine holds as bytes and floats."""
    needed = count * 3 * side * side * _AS_FLOATS
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
    if needed > memory:
        raise DataError(
            f"The {count:,} pictures of '{place}' take {needed / 1e9:,.0f} GB as bytes and floats of {side} x {side}, "
            f"and this machine has {memory / 1e9:,.0f} GB. Write the bytes to a disk once with: softknee data "
            "imagenet. A study without data.limit then reads its batches from there. Or take a part of them: --set "
            "data.limit=N, which is a random part of all classes."
        )


def decoded(files: Sequence[Path], side: int) -> Iterator[Tensor]:
    """The pictures one after the other as (3, side, side) bytes, by all cores; a few are decoded ahead."""
    threads = min(32, os.cpu_count() or 1)
    pending: deque[Future[Tensor]] = deque()
    # Pillow lets go of Python's lock while it decodes.
    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for path in files:
                pending.append(pool.submit(_picture, path, side))
                if len(pending) > _AHEAD * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _all_decoded(files: Sequence[Path], side: int) -> Tensor:
    pictures = torch.empty(len(files), 3, side, side, dtype=torch.uint8)
    for number, picture in enumerate(decoded(files, side)):
        pictures[number] = picture
    return pictures


def _picture(path: Path, side: int) -> Tensor:
    np, image = numpy(), pillow()
    try:
        with image.open(path, formats=_FORMATS) as picture:
            picture.draft("RGB", (side, side))  # a JPEG is decoded no larger than it has to be
            colours = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise DataError(f"'{path}' is no JPEG or PNG picture that can be read ({error}). Get it again.") from error
    wide, high = colours.size
    scale = side / min(wide, high)
    wide, high = max(side, round(wide * scale)), max(side, round(high * scale))
    left, top = (wide - side) // 2, (high - side) // 2
    resized = colours.resize((wide, high), image.Resampling.BICUBIC).crop((left, top, left + side, top + side))
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)


@dataclass(frozen=True, kw_only=True, eq=False)
class PictureBytes:
    """What a folder of bytes holds. Opening reads meta.json and the lengths of the files, and no picture."""

    folder: Path
    side: int
    limit: int | None
    classes: tuple[str, ...]
    labels: dict[str, Tensor]  # of "train" and "val"
    sha256: dict[str, str]
    mean: tuple[float, ...]
    spread: tuple[float, ...]

    def holds(self, most: int | None) -> bool:
        """Whether so many pictures of each part, or all of them, are here as far as there are any."""
        return self.limit is None or (most is not None and most <= self.limit)

    def streamed(self, part: str, places: Tensor, *, flat: bool = False) -> Streamed:
        """Some pictures of "train" or "val" as examples that stay on the disk."""
        return Streamed(
            path=_file(self.folder, part),
            image=(3, self.side, self.side),
            places=places,
            mean=self.mean,
            spread=self.spread,
            flat=flat,
            sha256=self.sha256[part],
        )

    def images(self, part: str, count: int) -> Tensor:
        """The first pictures of a part, in memory."""
        places = torch.arange(count)
        return self.streamed(part, places).levels(places)


def find_bytes(root: Path, *, side: int = SIDE) -> PictureBytes | None:
    """The bytes in a data folder; None where there are none. Damaged files are refused."""
    folder = root / f"imagenet-{side}"
    if not (folder / _META).is_file():
        return None
    cure = f"Delete '{folder}', and make it again with: {COMMAND}"
    try:
        meta = json.loads(read_bytes(folder / _META, what="description of ImageNet's bytes", most_bytes=_MOST_META))
        if meta["format"] != _FORMAT or meta["side"] != side:
            raise ValueError(f"it is not of the format '{_FORMAT}' with side {side}")
        stored = PictureBytes(
            folder=folder,
            side=side,
            limit=None if meta["limit"] is None else int(meta["limit"]),
            classes=tuple(map(str, meta["classes"])),
            labels={part: torch.tensor(meta["labels"][part], dtype=torch.int64) for part in ("train", "val")},
            sha256={part: str(meta["sha256"][part]) for part in ("train", "val")},
            mean=tuple(map(float, meta["mean"])),
            spread=tuple(map(float, meta["spread"])),
        )
        if len(stored.mean) != 3 or len(stored.spread) != 3 or min(stored.spread) <= 0:
            raise ValueError("mean and spread are not those of three channels")
        for part, labels in stored.labels.items():
            if (
                labels.dim() != 1
                or not len(labels)
                or int(labels.min()) < 0
                or int(labels.max()) >= len(stored.classes)
            ):
                raise ValueError(f"the labels of '{part}' are not numbers of its classes")
    except (ValueError, TypeError, KeyError, RecursionError, RuntimeError) as error:
        raise DataError(f"'{folder / _META}' cannot be used ({error}). {cure}") from error
    for part, labels in stored.labels.items():
        path, expected = _file(folder, part), len(labels) * 3 * side * side
        length = path.stat().st_size if path.is_file() else 0
        if length != expected:
            raise DataError(
                f"'{path}' has {length:,} bytes, and its {len(labels):,} pictures of {side} x {side} are {expected:,}: "
                f"it was cut or changed. {cure}"
            )
    return stored


def write_bytes(
    root: Path,
    *,
    side: int = SIDE,
    limit: int | None = None,
    begin: Report = lambda _: None,
    report: Report = lambda _: None,
) -> PictureBytes:
    """Decode the class folders of a data folder into imagenet-SIDE beside them: whole afterwards, or not there at all.

    Args:
        limit: so many pictures of each part at most, a random part of all classes.
        begin: called once with the space it takes, before anything is written.
        report: called now and then with the progress.
    """
    if limit is not None and limit < 1:
        raise ParameterError(f"The limit must be a whole number of at least 1, and {limit} was given.")
    # Where a link points to, so that the bytes may lie on another disk than the pictures.
    target = (root / f"imagenet-{side}").resolve()
    unfinished = target.with_name(f".{target.name}.unfinished")
    classes, files = listed(find_place(root), limit)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WriteError(f"'{target}' is there already. Delete it first, to make it again.")
    begin(_disk_space(target, sum(map(len, files.values())), side))
    try:
        with new_folder(target, unfinished):
            counts = torch.zeros(3, 256, dtype=torch.int64)
            sums = {"val": _write(files["val"], _file(unfinished, "val"), side, None, report)}
            sums["train"] = _write(files["train"], _file(unfinished, "train"), side, counts, report)
            moments = moments_of(counts, name="imagenet")
            meta = {
                "format": _FORMAT,
                "side": side,
                "limit": limit,
                "classes": classes,
                "labels": {part: labels_of(paths, classes).tolist() for part, paths in files.items()},
                "sha256": sums,
                "mean": [mean for mean, _ in moments],
                "spread": [spread for _, spread in moments],
            }
            (unfinished / _META).write_text(json.dumps(meta, separators=(",", ":")) + "\n")
    except FileExistsError as error:
        raise WriteError(
            f"'{unfinished}' is of another run, which is still going on or was ended. If none is going on, delete it."
        ) from error
    except OSError as error:
        raise WriteError(
            f"The bytes of ImageNet could not be written to '{target}' ({error.strerror or error}); nothing is left of "
            "them. Choose a data folder that can be written to and has room, or make the folder a link to another disk."
        ) from error
    stored = find_bytes(root, side=side)
    assert stored is not None
    return stored


def _disk_space(target: Path, count: int, side: int) -> str:
    """The space needed and the space left, in a sentence; too little is refused."""
    needed, free = count * 3 * side * side + _SPARE, shutil.disk_usage(target.parent).free
    demand = f"{count:,} pictures of {side} x {side} take {needed / 1e9:,.1f} GB in '{target}'"
    if needed > free:
        raise WriteError(
            f"{demand}, and that disk has {free / 1e9:,.1f} GB left. Make room; or make '{target.name}' a link to an "
            "empty folder on another disk; or take a part of the pictures with --limit N."
        )
    return f"{demand}; that disk has {free / 1e9:,.1f} GB left."


def _write(files: Sequence[Path], path: Path, side: int, counts: Tensor | None, report: Report) -> str:
    """The pictures as bytes in a file; their SHA-256. Levels are counted into `counts`."""
    digest = hashlib.sha256()
    with path.open("xb") as out:
        for place, picture in enumerate(decoded(files, side), start=1):
            raw: Any = picture.contiguous().numpy()
            out.write(raw)
            digest.update(raw)
            if counts is not None:
                counts += level_counts(picture.unsqueeze(0))
            if place % _REPORT_EVERY == 0 or place == len(files):
                report(f"{path.stem}: {place:,} of {len(files):,} pictures")
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _file(folder: Path, part: str) -> Path:
    return folder / f"{part}.bytes"


_SIDE = 64
_MOST_BYTES = 2**20  # of one file; the largest is val_annotations.txt with 0.4 MB
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tar.xz")
_TINY_SOURCE = "cs231n.stanford.edu/tiny-imagenet-200.zip"
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
    for name, content in _tiny_files(place):
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
            raise DataError(f"'{place}' has no '{text}', which Tiny-ImageNet has. Get it again from {_TINY_SOURCE}.")
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
            raise DataError(f"'{place}': the picture 'val/{name}' is in {here} and not in {there}. Get it again.")
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
    archives = [path for path in candidates if path.is_file() and path.name.endswith(_ARCHIVES)]
    places = sorted([*folders, *archives], key=lambda path: "tiny-imagenet-200" not in path.name)
    if places:
        return places[0]
    searched = (
        "'tiny-imagenet-200/wnids.txt' (with train and val), 'tiny-imagenet-200.zip', "
        "'tiny-imagenet/tiny-imagenet-200.zip', and the same as .tar, .tar.gz or .tar.xz"
    )
    raise not_found("Tiny-ImageNet has no files", root, searched, _TINY_SOURCE)


def _tiny_files(place: Path) -> Iterator[tuple[str, bytes]]:
    """Names (with '/') and contents of the files that are wanted, from a folder or an archive."""
    try:
        if place.is_dir():
            for path in sorted(place.rglob("*")):
                name = path.relative_to(place).as_posix()
                if _WANTED.fullmatch(name) and path.is_file():
                    _check_size(path.stat().st_size, path)
                    yield name, path.read_bytes()
        elif place.name.endswith(".zip"):
            with zipfile.ZipFile(place) as archive:
                for entry in archive.infolist():
                    if _WANTED.fullmatch(entry.filename):
                        _check_size(entry.file_size, place)
                        yield entry.filename, archive.read(entry)
        else:
            with tarfile.open(place) as archive:
                for entry in archive:
                    if entry.isreg() and _WANTED.fullmatch(entry.name):
                        _check_size(entry.size, place / entry.name)
                        file = archive.extractfile(entry)
                        assert file is not None  # a regular file has contents
                        yield entry.name, file.read()
    except (OSError, EOFError, LZMAError, tarfile.TarError, zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise DataError(f"'{place}' could not be read ({error}). It is damaged; get it again.") from error


def _check_size(size: int, path: Path) -> None:
    if size > _MOST_BYTES:
        raise DataError(f"'{path}' has a file of {size:,} bytes, and none of Tiny-ImageNet has {_MOST_BYTES:,}.")


def _decoded(content: bytes, path: Path) -> Tensor:
    """One picture as (64, 64, 3) bytes; some are grey, and are so in all three colours."""
    np = numpy()
    try:
        with pillow().open(io.BytesIO(content), formats=["JPEG"]) as picture:
            if picture.size != (_SIDE, _SIDE):
                raise DataError(f"'{path}' has {picture.size[0]} x {picture.size[1]} pixels, not {_SIDE} x {_SIDE}.")
            return torch.from_numpy(np.array(picture.convert("RGB")))
    except (OSError, SyntaxError) as error:  # Pillow raises SyntaxError for some damaged files
        raise DataError(f"'{path}' is no JPEG picture that can be read ({error}). Get it again.") from error


def _annotations(text: str, place: Path) -> dict[str, str]:
    """The class of each picture of val: name, class and a box, with tabs between."""
    classes = {}
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.split("\t")
        if len(cells) < 2:
            raise DataError(f"'{place}': line {number} of val_annotations.txt has no name and class between tabs.")
        classes[cells[0]] = cells[1]
    return classes


def _ordered(name: str) -> tuple[int, str]:
    """By the number at the end of the name, so that the order does not depend on the archive."""
    number = re.search(r"(\d+)\.JPEG$", name)
    return int(number[1]) if number else -1, name


def _stacked(pictures: list[Tensor], place: Path) -> Tensor:
    if not pictures:
        raise DataError(f"'{place}' has no pictures in train or in val. Get it again from {_TINY_SOURCE}.")
    stack = torch.empty(len(pictures), 3, _SIDE, _SIDE, dtype=torch.uint8)
    for number, picture in enumerate(pictures):
        stack[number] = picture.permute(2, 0, 1)
    return stack
