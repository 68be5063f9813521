"""Examples from a file of one's own: a table (.csv) or arrays (.npz), read with care and refused with a place.

Table (.csv): the first line has the names of the columns, separated by commas, semicolons or tabs.
  - A column in which every cell is a number is taken as it is. Any other is text: of two different values the second
    (in the order of the alphabet) becomes 1, of more each has a column of 0 and 1, by all that occurs in the file.
  - An empty cell is a missing value and is refused with its line and column, as is a word for one (NA, nan, null, ?)
    among numbers. No row is ever left out.
Arrays (.npz): `x` and `y` (or x_train and y_train); where they are there also x_test, y_test, x_validation and
  y_validation. Nothing is unpickled.

Target: text, true and false, and whole numbers are classes; numbers with a decimal point (in a .csv as written) are
quantities to predict. `task` decides otherwise: a count of things is a whole number too.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError, MissingToolError, did_you_mean

if TYPE_CHECKING:
    import numpy as np

_MOST_BYTES = 8 * 2**30  # what arrays may be after decompression
_PARTS = ("", "_validation", "_test")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Inputs and targets of one part of a file. Targets are text, whole numbers or floats, one (or one row) each."""

    x: np.ndarray
    y: np.ndarray


def read_file(path: Path, *, target: str | None, ignore: Sequence[str]) -> dict[str, Table]:
    """The parts of a file: "" for all that is to be split, and "_validation" and "_test" where it has its own."""
    numpy()
    if not path.is_file():
        there = "is not a file" if path.exists() else "does not exist"
        raise DataError(
            f"The data file '{path}' {there}. Its path is seen from the recipe's folder, or the current one. Put it "
            "there, or name another with data.file in the recipe or --set data.file=FILE."
        )
    if path.suffix.lower() == ".csv":
        from .csv_table import read_csv

        return {"": read_csv(path, target=target, ignore=ignore)}
    return _read_npz(path, target=target or "y")


def numpy() -> Any:
    """NumPy, or a sentence where it is missing."""
    try:
        import numpy
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Data files are read with NumPy, which is not installed. Install it with: pip install 'softknee[lab]'"
        ) from error
    return numpy


def _read_npz(path: Path, *, target: str) -> dict[str, Table]:
    arrays = read_arrays(path)
    for given, usual in (("x_train", "x"), (f"{target}_train", target)):
        if given in arrays and usual not in arrays:
            arrays[usual] = arrays.pop(given)
    found = {}
    for part in _PARTS:
        names = [f"x{part}", f"{target}{part}"]
        there = [name for name in names if name in arrays]
        if part and not there:
            continue
        if len(there) < 2:
            missing = next(name for name in names if name not in arrays)
            raise DataError(
                f"'{path}' has no array {missing!r}; it has {', '.join(arrays) or 'none'}."
                f"{did_you_mean(missing, arrays)} Save it with numpy.savez(file, x=..., {target}=...)."
            )
        found[part] = _table(path, names, [arrays[name] for name in names])
    shapes = {table.x.shape[1:] for table in found.values()}
    if len(shapes) > 1:
        raise DataError(f"'{path}': the parts of x differ in shape: {' and '.join(map(str, sorted(shapes)))}.")
    return found


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a .npz file by name; nothing is unpickled."""
    np = numpy()
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(one.file_size for one in archive.infolist())
        if size > _MOST_BYTES:
            raise DataError(f"'{path}' holds {size:,} bytes, and at most {_MOST_BYTES:,} are read.")
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except DataError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise DataError(
            f"'{path}' could not be read as arrays ({error}). Save plain numbers or text with numpy.savez; arrays of "
            "Python objects are refused."
        ) from error


def _table(path: Path, names: Sequence[str], arrays: Sequence[np.ndarray]) -> Table:
    np, (x_name, y_name), (x, y) = numpy(), names, arrays
    if x.ndim < 2 or y.ndim not in (1, 2) or len(x) != len(y) or x.size == 0 or y.size == 0:
        raise DataError(
            f"'{path}': {x_name} must have one row (or image) for each example and {y_name} one target, and their "
            f"shapes are {x.shape} and {y.shape}."
        )
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    for name, array in ((x_name, x), (y_name, y)):
        if array.dtype.kind not in ("fiub" if name == x_name else "fiubUS"):
            raise DataError(f"'{path}': {name} holds {array.dtype}, where numbers are expected.")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            place = tuple(int(one) for one in np.argwhere(~np.isfinite(array))[0])
            raise DataError(f"'{path}': {name}{list(place)} is {array[place]}; fill in or remove missing values first.")
    if y.dtype.kind == "S":
        y = y.astype(str)
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise DataError(
            f"'{path}': {x_name} holds numbers beyond {np.finfo(np.float32).max:g}, the largest of float32."
        )
    return Table(x=narrow, y=y)


def resolve(file: str, base: str | os.PathLike[str] | None) -> Path:
    """Where a data file lies: beside the recipe, or seen from the current folder."""
    beside = Path(base or ".", file)
    return beside if beside.exists() or not Path(file).exists() else Path(file)
