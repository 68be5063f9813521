"""Puts a folder of files in its place as a whole, or not at all."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..files import WriteError


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
                with (fresh / name).open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
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
