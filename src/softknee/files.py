"""Reads a small text file with care, and writes a file whole or not at all."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from .errors import SoftkneeError


class WriteError(SoftkneeError, OSError):
    """A file could not be written; what stood there before is unchanged."""


class ReadError(SoftkneeError, OSError):
    """A file could not be read: it is not there, not a file, too large or not text."""


def write_whole(path: str | os.PathLike[str], text: str | bytes, *, what: str) -> Path:
    """Write `text` beside the target, see it safe on the disk, and only then put it in the target's place."""
    content = text.encode("utf-8") if isinstance(text, str) else text
    target = Path(path).resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise WriteError(
            f"The {what} could not be written to '{path}' ({error.strerror or error}); what stood there "
            "before, if anything, is unchanged. Choose a folder that exists, can be written to and has space."
        ) from error
    return target


def check_place(path: str | os.PathLike[str], *, what: str) -> None:
    """Refuse a place that a file could not be written to, as far as that can be told beforehand."""
    folder = Path(path).resolve().parent
    why = (
        "it is a folder"
        if Path(path).is_dir()
        else f"there is no folder '{folder}'"
        if not folder.is_dir()
        else ""
        if os.access(folder, os.W_OK)
        else f"the folder '{folder}' cannot be written to"
    )
    if why:
        raise WriteError(f"The {what} could not be written to '{path}': {why}. Choose another place; nothing was done.")


def read_small(path: str | os.PathLike[str], *, what: str, most_bytes: int) -> str:
    """The text of a regular file of at most that many bytes."""
    try:
        # Without waiting: opening a pipe that nobody writes to would never return.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ReadError(f"'{path}' is not a file, so no {what} can be read from it.")
            content = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        if isinstance(error, ReadError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise ReadError(
            f"The {what} '{path}' could not be read ({reason}). Check the path and its permissions."
        ) from error
    if len(content) > most_bytes:
        raise ReadError(f"'{path}' is larger than {most_bytes:,} bytes, which no {what} is.")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ReadError(f"'{path}' is not a text in UTF-8, so it is no {what}.") from error
