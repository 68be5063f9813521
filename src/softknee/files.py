"""Reads a small text file with care, and writes a file whole or not at all."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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
            _write_synced(temporary, content)
            os.replace(temporary, target)
            sync_folder(target.parent)
        finally:
            with suppress(FileNotFoundError):
                temporary.unlink()
    except OSError as error:
        raise WriteError(
            f"The {what} could not be written to '{path}' ({error.strerror or error}); what stood there "
            "before, if anything, is unchanged. Choose a folder that exists and can be written to, or make space there."
        ) from error
    return target


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def make_parents(folder: Path) -> None:
    """Make the folders that are missing on the way to this one and itself, each seen safe on the disk."""
    for missing in reversed([place for place in (folder, *folder.parents) if not place.exists()]):
        missing.mkdir(exist_ok=True)
        sync_folder(missing.parent)


def make_folder(path: str | os.PathLike[str], *, what: str) -> Path:
    """Make a folder, and those above it, where it is not there yet."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(
            f"The folder '{path}' for the {what} could not be made ({error.strerror or error}). Choose a place that "
            "can be written to."
        ) from error
    return Path(path)


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


def write_folder(place: str | os.PathLike[str], files: Mapping[str, bytes], *, what: str) -> Path:
    """Put a folder with these files there, or change nothing. Only a folder of the same files is replaced.

    The files are written beside the place and seen safe on the disk first. A folder that is not empty cannot be
    replaced in one step: whoever is stopped between the two steps finds both beside the place (`left_behind`).
    """
    target = Path(place).resolve()
    fresh, old = (target.with_name(f".{target.name}.{secrets.token_hex(4)}.{end}") for end in ("tmp", "old"))
    try:
        _refuse_foreign(target, files, what)
        try:
            fresh.mkdir()
            for name, content in files.items():
                _write_synced(fresh / name, content)
            sync_folder(fresh)
            replaced = target.exists()
            if replaced:
                target.rename(old)
            try:
                fresh.rename(target)
            except OSError:
                if replaced:
                    old.rename(target)
                raise
            sync_folder(target.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(
            f"The {what} could not be written to '{place}' ({error.strerror or error}); what stood there before, if "
            "anything, is unchanged. Choose a folder whose parent exists, can be written to and has space."
        ) from error
    return target


@contextmanager
def new_folder(target: Path, temporary: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of a target that is empty or not there when the block ends well."""
    temporary.mkdir(parents=True)
    try:
        yield temporary
        sync_folder(temporary)
        if target.is_dir():
            target.rmdir()
        temporary.rename(target)
        sync_folder(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _refuse_foreign(target: Path, files: Mapping[str, bytes], what: str) -> None:
    """Whatever else lies in the folder would be lost."""
    if not target.exists():
        return
    others = sorted({path.name for path in target.iterdir()} - set(files)) if target.is_dir() else [target.name]
    if others:
        raise WriteError(
            f"The {what} was not written to '{target}': {others[0]!r} is there, which is no part of a {what} and would "
            f"be lost. Give the {what} a folder of its own."
        )


def sync_folder(folder: Path) -> None:
    """See the names in a folder safe on the disk, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def left_behind(place: Path) -> Path | None:
    """What stood in a place before a replacement that was stopped half-way; None where nothing was."""
    leftovers = place.parent.glob(f".{glob.escape(place.name)}.{'?' * 8}.old")
    return max(leftovers, key=lambda path: path.stat().st_mtime, default=None) if not place.exists() else None
