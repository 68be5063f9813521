"""ImageNet-1K, or any pictures in one folder for each class, as bytes of one size.

    imagenet/train/CLASS/*.JPEG
    imagenet/val/CLASS/*.JPEG          the test part here, as it is everywhere

`ILSVRC/Data/CLS-LOC` and `imagenet-1k` are looked at, too. Every picture is brought to the size once: its shorter side
by bicubic interpolation, and the middle of the longer one. The order is one that never changes and has all classes
mixed, so that the first N pictures are a random part; only those that are asked for are decoded.

All is held in memory: the whole of ImageNet-1K at 224 x 224 has 193 GB of bytes, and a study makes floats of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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


def load_imagenet(root: Path, *, most: int | None = None, side: int = SIDE) -> ImageSet:
    """The data set from a data folder; `most` pictures of each part at most."""
    place = _place(root)
    classes = tuple(sorted(one.name for one in (place / "train").iterdir() if one.is_dir()))
    files = {part: _files(place / part, classes, most) for part in ("train", "val")}
    _refuse_too_many(sum(map(len, files.values())), place, side)
    number = {name: index for index, name in enumerate(classes)}
    images = {part: _decoded(some, side) for part, some in files.items()}
    labels = {part: torch.tensor([number[path.parent.name] for path in some]) for part, some in files.items()}
    return ImageSet(
        name="imagenet",
        train_images=images["train"],
        train_labels=labels["train"],
        test_images=images["val"],
        test_labels=labels["val"],
        labels=classes,
    )


def _place(root: Path) -> Path:
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


def _refuse_too_many(count: int, place: Path, side: int) -> None:
    needed = count * 3 * side * side * _AS_FLOATS
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else needed
    if needed > there:
        raise DataError(
            f"The {count:,} pictures of '{place}' take {needed / 1e9:,.0f} GB as bytes and floats of {side} x {side}, "
            f"and this machine has {there / 1e9:,.0f} GB. Take a part of them: --set data.limit=N, which is a random "
            "part of all classes."
        )


def _decoded(files: Sequence[Path], side: int) -> Tensor:
    room = torch.empty(len(files), 3, side, side, dtype=torch.uint8)

    def put(place: int) -> None:
        room[place] = _picture(files[place], side)

    # Pillow lets go of Python's lock while it decodes.
    with ThreadPoolExecutor(max_workers=min(32, os.cpu_count() or 1)) as pool:
        for _ in pool.map(put, range(len(files))):  # to hear of what went wrong
            pass
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
