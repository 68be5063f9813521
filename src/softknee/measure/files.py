"""Writes a file whole or not at all."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from ..errors import SoftkneeError


class WriteError(SoftkneeError, OSError):
    """A file could not be written; what stood there before is unchanged."""


def write_whole(path: str | os.PathLike[str], text: str, *, what: str) -> Path:
    """Write `text` beside the target, see it safe on the disk, and only then put it in the target's place."""
    target = Path(path).resolve()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        try:
            with temporary.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
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
