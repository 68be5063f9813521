"""ImageNet's pictures, decoded once and kept as bytes on a disk, for studies that read their batches from there.

    imagenet-224/train.bytes     (pictures, 3, 224, 224) in uint8, in the order of imagenet_folder.py
    imagenet-224/val.bytes       the same; the test part here
    imagenet-224/meta.json       classes, labels, the SHA-256 of both files, mean and spread of the training pictures

150,528 bytes a picture: 193 GB and 7.5 GB for the two parts of ImageNet-1K. A folder of this name is whole: while it is
made it has another.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError, ParameterError
from ...files import WriteError
from ...train.streamed import Streamed
from ..compressed import read_bytes
from ..whole_folder import sync_folder
from .imagenet_folder import SIDE, decoded, find_place, labels_of, listed
from .images import level_counts, moments_of

COMMAND = "softknee data imagenet"
_FORMAT = "softknee imagenet bytes 1"
_META = "meta.json"
_MOST_META = 2**26  # bytes; ImageNet-1K has some 6 million
_SPARE = 2**26  # bytes beside the pictures
_TOLD_EVERY = 500  # pictures

Told = Callable[[str], object]


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
    """The bytes in a data folder; None where there are none, and a sentence where they are not as they were written."""
    folder = root / f"imagenet-{side}"
    if not (folder / _META).is_file():
        return None
    anew = f"Delete '{folder}', and make it anew with: {COMMAND}"
    try:
        meta = json.loads(read_bytes(folder / _META, what="description of ImageNet's bytes", most_bytes=_MOST_META))
        if meta["format"] != _FORMAT or meta["side"] != side:
            raise ValueError(f"it is not of the format '{_FORMAT}' with side {side}")
        found = PictureBytes(
            folder=folder,
            side=side,
            limit=None if meta["limit"] is None else int(meta["limit"]),
            classes=tuple(map(str, meta["classes"])),
            labels={part: torch.tensor(meta["labels"][part], dtype=torch.int64) for part in ("train", "val")},
            sha256={part: str(meta["sha256"][part]) for part in ("train", "val")},
            mean=tuple(map(float, meta["mean"])),
            spread=tuple(map(float, meta["spread"])),
        )
        if len(found.mean) != 3 or len(found.spread) != 3 or min(found.spread) <= 0:
            raise ValueError("mean and spread are not those of three channels")
        for part, one in found.labels.items():
            if one.dim() != 1 or not len(one) or int(one.min()) < 0 or int(one.max()) >= len(found.classes):
                raise ValueError(f"the labels of '{part}' are not numbers of its classes")
    except (ValueError, TypeError, KeyError, RecursionError, RuntimeError) as error:
        raise DataError(f"'{folder / _META}' cannot be used ({error}). {anew}") from error
    for part, one in found.labels.items():
        path, wanted = _file(folder, part), len(one) * 3 * side * side
        there = path.stat().st_size if path.is_file() else 0
        if there != wanted:
            raise DataError(
                f"'{path}' has {there:,} bytes, and its {len(one):,} pictures of {side} x {side} are {wanted:,}: it "
                f"was cut or changed. {anew}"
            )
    return found


def write_bytes(
    root: Path,
    *,
    side: int = SIDE,
    limit: int | None = None,
    begin: Told = lambda _: None,
    report: Told = lambda _: None,
) -> PictureBytes:
    """Decode the class folders of a data folder into imagenet-SIDE beside them: whole afterwards, or not there at all.

    Args:
        limit: so many pictures of each part at most, a random part of all classes.
        begin: is told once what room it takes, before anything is written.
        report: is told now and then how far it is.
    """
    if limit is not None and limit < 1:
        raise ParameterError(f"The limit must be a whole number of at least 1, and {limit} was given.")
    # Where a link points to, so that the bytes may lie on another disk than the pictures.
    target = (root / f"imagenet-{side}").resolve()
    unfinished = target.with_name(f".{target.name}.unfinished")
    classes, files = listed(find_place(root), limit)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WriteError(f"'{target}' is there already. Delete it first, if it is to be made anew.")
    begin(_room(target, sum(map(len, files.values())), side))
    try:
        unfinished.mkdir()
    except FileExistsError as error:
        raise WriteError(
            f"'{unfinished}' is of another run, which is still going on or was ended. If none is going on, delete it."
        ) from error
    except OSError as error:
        raise _unwritten(target, error) from error
    try:
        counts = torch.zeros(3, 256, dtype=torch.int64)
        sums = {"val": _write(files["val"], _file(unfinished, "val"), side, None, report)}
        sums["train"] = _write(files["train"], _file(unfinished, "train"), side, counts, report)
        moments = moments_of(counts, name="imagenet")
        meta = {
            "format": _FORMAT,
            "side": side,
            "limit": limit,
            "classes": classes,
            "labels": {part: labels_of(some, classes).tolist() for part, some in files.items()},
            "sha256": sums,
            "mean": [mean for mean, _ in moments],
            "spread": [spread for _, spread in moments],
        }
        (unfinished / _META).write_text(json.dumps(meta, separators=(",", ":")) + "\n")
        sync_folder(unfinished)
        if target.is_dir():
            target.rmdir()
        unfinished.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise _unwritten(target, error) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    found = find_bytes(root, side=side)
    assert found is not None
    return found


def _room(target: Path, count: int, side: int) -> str:
    """What is needed and what is there; refused where that is less."""
    needed, free = count * 3 * side * side + _SPARE, shutil.disk_usage(target.parent).free
    said = f"{count:,} pictures of {side} x {side} take {needed / 1e9:,.1f} GB in '{target}'"
    if needed > free:
        raise WriteError(
            f"{said}, and that disk has {free / 1e9:,.1f} GB left. Make room; or make '{target.name}' a link to an "
            "empty folder on another disk; or take a part of the pictures with --limit N."
        )
    return f"{said}; that disk has {free / 1e9:,.1f} GB left."


def _write(files: Sequence[Path], path: Path, side: int, counts: Tensor | None, report: Told) -> str:
    """The pictures as bytes in a file; their SHA-256. Levels are counted into `counts`."""
    digest = hashlib.sha256()
    with path.open("xb") as out:
        for place, picture in enumerate(decoded(files, side), start=1):
            raw: Any = picture.contiguous().numpy()
            out.write(raw)
            digest.update(raw)
            if counts is not None:
                counts += level_counts(picture.unsqueeze(0))
            if place % _TOLD_EVERY == 0 or place == len(files):
                report(f"{path.stem}: {place:,} of {len(files):,} pictures")
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _unwritten(target: Path, error: OSError) -> WriteError:
    return WriteError(
        f"The bytes of ImageNet could not be written to '{target}' ({error.strerror or error}); nothing is left of "
        "them. Choose a data folder that can be written to and has room, or make the folder a link to another disk."
    )


def _file(folder: Path, part: str) -> Path:
    return folder / f"{part}.bytes"
