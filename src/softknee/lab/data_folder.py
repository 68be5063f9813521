"""Where the files of data sets lie: a folder that is given, or the one that SOFTKNEE_DATA names. Nothing is downloaded.

>>> import tempfile
>>> from pathlib import Path
>>> with tempfile.TemporaryDirectory() as folder:
...     Path(folder, "labels.gz").touch()
...     find_file(data_folder(folder), ["set/labels", "labels.gz"], what="The set", source="its authors").name
'labels.gz'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import DataError

VARIABLE = "SOFTKNEE_DATA"
_SHOWN = 6  # places named in an error; the rest are counted


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
        found = "is not a folder" if folder.exists() else "does not exist"
        raise DataError(f"The data folder '{folder}' {origin} {found}. Give the folder that holds the data sets.")
    return folder


def find_file(folder: Path, places: Sequence[str], *, what: str, source: str) -> Path:
    """The first of these places (paths inside the folder) where a file is.

    Args:
        what: the data set and the part of it, for the error.
        source: a half sentence that says where the file is usually had.
    """
    for place in places:
        if (folder / place).is_file():
            return folder / place
    shown = ", ".join(f"'{place}'" for place in places[:_SHOWN])
    more = f" and {len(places) - _SHOWN} more places" if len(places) > _SHOWN else ""
    raise DataError(
        f"{what} has no file in the data folder '{folder}'. Looked for: {shown}{more}. It is usually had from "
        f"{source}; softknee downloads nothing. Put it there, or name another folder with --data or {VARIABLE}."
    )
