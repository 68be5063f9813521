"""What the loaders of data sets share: a checksum compared, and tools that may be missing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ...errors import DataError, MissingToolError


def compare_md5(content: bytes, md5: str, path: Path) -> None:
    """Refuse what is not the file that was published."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise DataError(
            f"'{path}' is not the published file: its md5 is {found[:12]}..., not {md5[:12]}.... Take it anew; or, if "
            "it is meant to differ, load it with check=False."
        )


def pillow() -> Any:
    """The module PIL.Image, or a sentence where Pillow is missing."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Pictures in files are read with Pillow, which is not installed. Install it with: "
            "pip install 'softknee[vision]'"
        ) from error
    return Image


def numpy() -> Any:
    """NumPy, or a sentence where it is missing."""
    try:
        import numpy
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "This data set is read with NumPy, which is not installed. Install it with: pip install 'softknee[lab]'"
        ) from error
    return numpy
