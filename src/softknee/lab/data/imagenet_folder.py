"""ImageNet-1K, or any pictures in one folder for each class, as bytes of one size.

    imagenet/train/CLASS/*.JPEG
    imagenet/val/CLASS/*.JPEG          the test part here, as it is everywhere

`ILSVRC/Data/CLS-LOC` and `imagenet-1k` are looked at, too. Every picture is brought to the size once: its shorter side
by bicubic interpolation, and the middle of the longer one. The order is one that never changes and has all classes
mixed, so that the first N pictures are a random part; only those that are asked for are decoded.

What is read here is held in memory, and a study makes floats of it, which a part of ImageNet is small enough for. The
whole of ImageNet-1K at 224 x 224 has 193 GB of bytes: `softknee data imagenet` writes them to a disk once
(imagenet_bytes.py), and a study then reads its batches from there.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from ...errors import DataError
from .images import ImageSet
from .reading import numpy, pillow

SIDE = 224
_FOLDERS = ("imagenet", "imagenet-1k", "ILSVRC/Data/CLS-LOC")
_ENDINGS = (".jpeg", ".jpg", ".png")
_FORMATS = ["JPEG", "PNG"]  # one of ImageNet's JPEG files is a PNG
_SOURCE = "image-net.org (ILSVRC2012, with the validation pictures sorted into a folder for each class)"
_AS_FLOATS = 5  # bytes for each byte: itself, and the float that a study makes of it
_AHEAD = 8  # pictures for each thread that are decoded before they are asked for


def load_imagenet(root: Path, *, most: int | None = None, side: int = SIDE) -> ImageSet:
    """The data set from a data folder; `most` pictures of each part at most.

    Where `softknee data imagenet` has written them they are taken from there, the same ones without decoding.
    """
    from .imagenet_bytes import find_bytes

    found = find_bytes(root, side=side)
    if found is not None and found.holds(most):
        labels = {part: one[:most] for part, one in found.labels.items()}
        refuse_too_many(sum(map(len, labels.values())), found.folder, side)
        images = {part: found.images(part, len(one)) for part, one in labels.items()}
        return _image_set(images, labels, found.classes)
    place = find_place(root)
    classes, files = listed(place, most)
    refuse_too_many(sum(map(len, files.values())), place, side)
    images = {part: _all_decoded(some, side) for part, some in files.items()}
    return _image_set(images, {part: labels_of(some, classes) for part, some in files.items()}, classes)


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
    classes = tuple(sorted(one.name for one in (place / "train").iterdir() if one.is_dir()))
    return classes, {part: _files(place / part, classes, most) for part in ("train", "val")}


def labels_of(files: Sequence[Path], classes: Sequence[str]) -> Tensor:
    """The number of the class of each picture."""
    number = {name: index for index, name in enumerate(classes)}
    return torch.tensor([number[path.parent.name] for path in files])


def find_place(root: Path) -> Path:
    for one in _FOLDERS:
        if (root / one / "train").is_dir() and (root / one / "val").is_dir():
            return root / one
    places = ", ".join(f"'{one}/train' and '{one}/val'" for one in _FOLDERS)
    raise DataError(
        f"ImageNet has no folders in the data folder '{root}'. Looked for: {places}, each with one folder for each "
        f"class. It is usually had from {_SOURCE}; softknee downloads nothing. Put it there, or name another folder "
        "with --data or SOFTKNEE_DATA."
    )


def _files(folder: Path, classes: Sequence[str], most: int | None) -> list[Path]:
    """The pictures of a part, all classes mixed; the first of them."""
    found = []
    for name in classes:
        if not (folder / name).is_dir():
            raise DataError(f"'{folder}' has no folder of the class {name!r:.40}, which 'train' beside it has.")
        here = sorted(one for one in (folder / name).iterdir() if one.suffix.lower() in _ENDINGS)
        if not here:
            raise DataError(f"'{folder / name}' has no pictures ({', '.join(_ENDINGS)}). Take it anew from {_SOURCE}.")
        found += here
    if not found:
        raise DataError(f"'{folder}' has no folders of classes. Take it anew from {_SOURCE}.")
    order = torch.randperm(len(found), generator=torch.Generator().manual_seed(0)).tolist()
    return [found[place] for place in order[:most]]


def refuse_too_many(count: int, place: Path, side: int) -> None:
    """A sentence where the bytes and the floats of so many pictures are more than the memory of this machine."""
    needed = count * 3 * side * side * _AS_FLOATS
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
    if needed > there:
        raise DataError(
            f"The {count:,} pictures of '{place}' take {needed / 1e9:,.0f} GB as bytes and floats of {side} x {side}, "
            f"and this machine has {there / 1e9:,.0f} GB. Write the bytes to a disk once with: softknee data imagenet. "
            "A study without data.limit then reads its batches from there. Or take a part of them: --set data.limit=N, "
            "which is a random part of all classes."
        )


def decoded(files: Sequence[Path], side: int) -> Iterator[Tensor]:
    """The pictures one after the other as (3, side, side) bytes, by all cores; a few are decoded ahead."""
    threads = min(32, os.cpu_count() or 1)
    coming: deque[Future[Tensor]] = deque()
    # Pillow lets go of Python's lock while it decodes.
    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for path in files:
                coming.append(pool.submit(_picture, path, side))
                if len(coming) > _AHEAD * threads:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for one in coming:
                one.cancel()


def _all_decoded(files: Sequence[Path], side: int) -> Tensor:
    room = torch.empty(len(files), 3, side, side, dtype=torch.uint8)
    for place, picture in enumerate(decoded(files, side)):
        room[place] = picture
    return room


def _picture(path: Path, side: int) -> Tensor:
    """One picture as (3, side, side) bytes."""
    np, image = numpy(), pillow()
    try:
        with image.open(path, formats=_FORMATS) as picture:
            picture.draft("RGB", (side, side))  # a JPEG is decoded no larger than it has to be
            colours = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, image.DecompressionBombError) as error:
        raise DataError(f"'{path}' is no JPEG or PNG picture that can be read ({error}). Take it anew.") from error
    wide, high = colours.size
    scale = side / min(wide, high)
    wide, high = max(side, round(wide * scale)), max(side, round(high * scale))
    left, top = (wide - side) // 2, (high - side) // 2
    resized = colours.resize((wide, high), image.Resampling.BICUBIC).crop((left, top, left + side, top + side))
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)
