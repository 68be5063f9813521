"""CIFAR as sheets: lossless WebP pictures 32 pixels wide, each with its images one below the other.

`meta.json` says for "train" and "test" how many images (n) and sheets (files) there are, and the SHA-256 of all pixels
(image, row, column, colour) and of all labels; `train_000.webp`, ... are the sheets, `train_labels.npy` the labels.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError
from ..compressed import read_bytes
from .reading import numpy, pillow

_MOST = 4096  # images in a sheet; those that are known have 500


def read_sheets(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    """The images (count, 3, 32, 32) and labels of "train" or "test", all uint8."""
    np = numpy()
    meta = _meta(folder)
    try:
        count, sheets = int(meta[part]["n"]), int(meta[part]["files"])
        sums = str(meta[part]["sha256_pixels"]), str(meta[part]["sha256_labels"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"'{folder / 'meta.json'}' does not say what the part {part!r} has ({error}). Take the folder anew."
        ) from error
    files = [folder / f"{part}_{number:03d}.webp" for number in range(sheets)]
    labels_file = folder / f"{part}_labels.npy"
    for file in (*files, labels_file):
        if not file.is_file():
            raise DataError(f"'{folder}' has no file '{file.name}', which its meta.json counts. Take the folder anew.")
    pixels = np.concatenate([_sheet(file) for file in files])
    try:
        labels = np.load(labels_file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"'{labels_file}' could not be read ({error}). Take it anew.") from error
    if labels.dtype != np.uint8 or labels.shape != (count,) or len(pixels) != count:
        raise DataError(
            f"'{folder}' ({part}) has {len(pixels):,} images and labels of shape {labels.shape} in {labels.dtype}, "
            f"where its meta.json counts {count:,} of each, labels in uint8. Take the folder anew."
        )
    for what, array, wanted in zip(("pixels", "labels"), (pixels, labels), sums, strict=True):
        if hashlib.sha256(array.tobytes()).hexdigest() != wanted:
            raise DataError(
                f"'{folder}': the {what} of the part {part!r} are not those of its meta.json (sha256): a file is "
                "damaged or was exchanged. Take the folder anew."
            )
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels)


def _meta(folder: Path) -> Any:
    try:
        return json.loads(read_bytes(folder / "meta.json", what="description of sheets", most_bytes=2**20))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"'{folder / 'meta.json'}' is not JSON ({error}). Take it anew.") from error


def _sheet(file: Path) -> Any:
    """The images of one sheet, as an array (count, 32, 32, 3)."""
    np = numpy()
    try:
        with pillow().open(file, formats=["WEBP"]) as sheet:
            width, height = sheet.size
            if width != 32 or height % 32 or not 0 < height // 32 <= _MOST:
                raise DataError(
                    f"'{file}' is a picture of {width} x {height} pixels, where a sheet is 32 wide, with images of "
                    "32 rows one below the other. Take it anew."
                )
            return np.asarray(sheet.convert("RGB")).reshape(-1, 32, 32, 3)
    except (OSError, SyntaxError) as error:  # Pillow raises SyntaxError for some damaged files
        raise DataError(f"'{file}' is no WebP picture that can be read ({error}). Take it anew.") from error
