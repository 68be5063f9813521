"""Files that may be compressed with gzip or xz, read with care and within a limit; what is damaged is a sentence."""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase, BufferedReader
from pathlib import Path

from ..errors import DataError, SoftkneeError

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_ENDINGS = (".gz", ".xz")


@contextmanager
def opened(path: str | os.PathLike[str], *, what: str) -> Iterator[BufferedIOBase]:
    """The bytes of a file as a stream; its first bytes say how it is compressed, and not its name.

    What goes wrong within becomes a sentence: the file is damaged, or cannot be read. `what` says what it should hold.
    """
    with _file(path, what) as file:
        try:
            with _decompressed(file, path) as stream:
                yield stream
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
            raise DataError(f"'{path}' cannot be decompressed ({error}). It is damaged; take it anew.") from error
        except OSError as error:
            if isinstance(error, SoftkneeError):  # of who reads, such as a file that could not be written meanwhile
                raise
            raise _unreadable(path, what, error) from error


def read_bytes(path: str | os.PathLike[str], *, what: str, most_bytes: int) -> bytes:
    """The whole of a file, of at most so many bytes after decompression.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".gz") as file:
    ...     _ = file.write(gzip.compress(b"some text")); file.flush()
    ...     read_bytes(file.name, what="text", most_bytes=100)
    b'some text'
    """
    with opened(path, what=what) as stream:
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise DataError(f"'{path}' holds more than {most_bytes:,} bytes, which no {what} does. Take it anew.")
    return content


def read_text(path: str | os.PathLike[str], *, what: str, most_bytes: int = 2**31) -> str:
    """The same as text in UTF-8."""
    return text_of(read_bytes(path, what=what, most_bytes=most_bytes), path)


def text_of(content: bytes, path: str | os.PathLike[str]) -> str:
    """UTF-8 as text, or the place of the first byte that is none."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is not text in UTF-8 (byte {error.start:,}). Take it anew.") from error


def _file(path: str | os.PathLike[str], what: str) -> BufferedReader:
    try:
        # Without waiting: opening a pipe that nobody writes to would never return.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.fdopen(descriptor, "rb")
        os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise _unreadable(path, what, error) from error
    raise DataError(f"'{path}' is not a file, so no {what} can be read from it.")


def _decompressed(file: BufferedReader, path: str | os.PathLike[str]) -> BufferedIOBase:
    start = file.peek(len(_XZ))
    if start.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file)
    if start.startswith(_XZ):
        return lzma.LZMAFile(file)
    if (ending := Path(path).suffix) in _ENDINGS:
        raise DataError(
            f"'{path}' is called {ending} and is not compressed so. It is damaged or renamed; take it anew."
        )
    return file


def _unreadable(path: str | os.PathLike[str], what: str, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or error
    return DataError(f"The {what} '{path}' could not be read ({reason}). Check the path and its permissions.")
