"""Reads a file that may be compressed with gzip or xz, up to a limit; what is damaged is a sentence."""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import zlib
from pathlib import Path

from ...errors import DataError

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"


def read_bytes(path: str | os.PathLike[str], *, what: str, most_bytes: int) -> bytes:
    """The bytes of a file after decompression; its first bytes say how it is compressed, and not its name.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".gz") as file:
    ...     _ = file.write(gzip.compress(b"some text")); file.flush()
    ...     read_bytes(file.name, what="text", most_bytes=100)
    b'some text'
    """
    try:
        # Without waiting: opening a pipe that nobody writes to would never return.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DataError(f"'{path}' is not a file, so no {what} can be read from it.")
            start = file.peek(len(_XZ))
            if start.startswith(_GZIP):
                with gzip.GzipFile(fileobj=file) as inside:
                    content = inside.read(most_bytes + 1)
            elif start.startswith(_XZ):
                with lzma.LZMAFile(file) as inside:
                    content = inside.read(most_bytes + 1)
            elif Path(path).suffix in (".gz", ".xz"):
                raise DataError(f"'{path}' is called {Path(path).suffix} and is not compressed so. Take it anew.")
            else:
                content = file.read(most_bytes + 1)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"'{path}' cannot be decompressed ({error}). It is damaged; take it anew.") from error
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        if isinstance(error, DataError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"The {what} '{path}' could not be read ({reason}). Check the path.") from error
    if len(content) > most_bytes:
        raise DataError(f"'{path}' holds more than {most_bytes:,} bytes, which no {what} does.")
    return content


def read_text(path: str | os.PathLike[str], *, what: str, most_bytes: int = 2**31) -> str:
    """The same as text in UTF-8."""
    try:
        return read_bytes(path, what=what, most_bytes=most_bytes).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is not a text in UTF-8, so it is no {what}.") from error
