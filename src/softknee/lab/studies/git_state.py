"""Which commit the current folder is at, for records."""

from __future__ import annotations

import os
import subprocess
from typing import Any

_SECONDS = 5.0


def git_state(folder: str | os.PathLike[str] = ".") -> dict[str, Any] | None:
    """The commit, and whether tracked files differ from it; None outside of a git checkout or without git.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     git_state(folder) is None
    True
    """
    commit = _git(folder, "rev-parse", "HEAD")
    # Files that git was never told of (the study's own folder among them) do not count.
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    if not commit or changed is None:
        return None
    return {"commit": commit, "dirty": bool(changed)}


def _git(folder: str | os.PathLike[str], *arguments: str) -> str | None:
    command = ["git", "-C", os.fspath(folder), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
