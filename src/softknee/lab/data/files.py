"""Files of data sets: where they are, how they are read, and the packages that read them. Nothing is downloaded.

The folder of the data sets is one that is given, or the one that SOFTKNEE_DATA names. A file may be compressed with
gzip or xz; what is missing, damaged or too long is refused with its cause.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     Path(folder, "labels.gz").touch()
...     find_file(data_folder(folder), ["set/labels", "labels.gz"], what="The set", source="its authors").name
'labels.gz'
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BufferedIOBase, BufferedReader
from pathlib import Path
from typing import Any

from ...errors import DataError, SoftkneeError, need_package

VARIABLE = "SOFTKNEE_DATA"
_SHOWN = 6  # places named in an error; the rest are counted
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_ENDINGS = (".gz", ".xz")


def data_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the data sets: the one given, else the one that the environment names."""
    named = os.environ.get(VARIABLE, "")
    if given is None and not named:
        raise DataError(
            f"No data folder was given. Pass one (--data FOLDER), or set the environment variable {VARIABLE} to the "
            f"folder that holds the data sets."
        )
    folder = Path(named if given is None else given)
    if not folder.is_dir():
        origin = f"that {VARIABLE} names" if given is None else "that was given"
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise DataError(f"The data folder '{folder}' {origin} {problem}. Give the folder that holds the data sets.")
    return folder


def find_file(folder: Path, places: Sequence[str], *, what: str, source: str) -> Path:
    """The first of these places (paths inside the folder) where a file is.

    Args:
        what: the data set and the part of it, for the error.
        source: a half sentence that says where the file is usually obtained.
    """
    for place in places:
        if (folder / place).is_file():
            return folder / place
    shown = ", ".join(f"'{place}'" for place in places[:_SHOWN])
    more = f" and {len(places) - _SHOWN} more places" if len(places) > _SHOWN else ""
    raise not_found(f"{what} has no file", folder, f"{shown}{more}", source)


def not_found(what: str, folder: Path, searched: str, source: str) -> DataError:
    """The error of a data set that is not in the data folder: the places searched, and where to obtain it."""
    return DataError(
        f"{what} in the data folder '{folder}'. Looked for: {searched}. It is usually obtained from {source}; "
        f"softknee downloads nothing. Put it there, or name another folder with --data or {VARIABLE}."
    )


@contextmanager
def opened(path: str | os.PathLike[str], *, what: str) -> Iterator[BufferedIOBase]:
    """The bytes of a file as a stream, decompressed as its first bytes ask for, whatever its name.

    A damaged or unreadable file raises a DataError; `what` says in it what the file should hold.
    """
    with _file(path, what) as file:
        try:
            with _decompressed(file, path) as stream:
                yield stream
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
            raise DataError(f"'{path}' cannot be decompressed ({error}). It is damaged; get it again.") from error
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
        raise DataError(f"'{path}' holds more than {most_bytes:,} bytes, which no {what} does. Get it again.")
    return content


def read_text(path: str | os.PathLike[str], *, what: str, most_bytes: int = 2**31) -> str:
    """The same as text in UTF-8."""
    return text_of(read_bytes(path, what=what, most_bytes=most_bytes), path)


def text_of(content: bytes, path: str | os.PathLike[str]) -> str:
    """UTF-8 as text; the error names the first byte that is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is not text in UTF-8 (byte {error.start:,}). Get it again.") from error


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
        raise DataError(f"'{path}' is called {ending} but not compressed so. It is damaged or renamed; get it again.")
    return file


def _unreadable(path: str | os.PathLike[str], what: str, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or error
    return DataError(f"The {what} '{path}' could not be read ({reason}). Check the path and its permissions.")


def compare_md5(content: bytes, md5: str, path: Path) -> None:
    """Refuse what is not the file that was published."""
    actual = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if actual != md5:
        raise DataError(
            f"'{path}' is not the published file: its md5 is {actual[:12]}..., not {md5[:12]}.... Get it again; or, if "
            "it is meant to differ, load it with check=False (in a recipe: data.check: false)."
        )


def numpy() -> Any:
    """NumPy, or an error that says how to install it."""
    return need_package("numpy", "Data files are read with NumPy", "lab")


def pandas() -> Any:
    """pandas, or an error that says how to install it."""
    return need_package("pandas", "Tables are read with pandas", "lab")


def pillow() -> Any:
    """The module PIL.Image, or an error that says how to install Pillow."""
    return need_package("PIL.Image", "Pictures in files are read with Pillow", "vision")
