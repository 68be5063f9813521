"""Files of data sets, plain or gzipped: opened with care, read within a limit, and compared with a checksum."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from ...errors import DataError, MissingToolError, SoftkneeError

_GZIP = b"\x1f\x8b"


@contextmanager
def opened(path: Path) -> Iterator[BufferedIOBase]:
    """The bytes of a file as a stream, decompressed if they are gzipped; what goes wrong within becomes a sentence."""
    try:
        with path.open("rb") as file:
            yield gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"'{path}' cannot be decompressed ({error}). It is damaged; take it anew.") from error
    except OSError as error:
        if isinstance(error, SoftkneeError):  # of who reads, such as a file that could not be written meanwhile
            raise
        raise DataError(
            f"'{path}' could not be read ({error.strerror or error}). Check the path and its permissions."
        ) from error


def read_bytes(path: Path, *, most: int) -> bytes:
    """The whole of a small file, of at most `most` bytes after decompression."""
    with opened(path) as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise DataError(f"'{path}' holds more than {most:,} bytes, which is more than it can be. Take it anew.")
    return content


def text_of(content: bytes, path: Path) -> str:
    """UTF-8 as text, or the place of the first byte that is none."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is not text in UTF-8 (byte {error.start:,}). Take it anew.") from error


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
