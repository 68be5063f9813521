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
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError, did_you_mean
from ..data.files import numpy, pandas

if TYPE_CHECKING:
    import numpy as np

_MOST_BYTES = 8 * 2**30  # what arrays may be after decompression
_PARTS = ("", "_validation", "_test")
_MOST_CSV_BYTES = 2**30
_SEPARATORS = ",;\t"
_MISSING = ("na", "n/a", "nan", "null", "none", "?", "-")
_NUMBERS_FOR_A_WORD = 9  # so many with a decimal point among them: the word is a mistake
_MOST_VALUES = 100  # a text column with more different values is a name or a mistake, and not a kind
_WHOLE = r"[+-]?[0-9]{1,18}"
_COMMA = r"[+-]?(?:\d*,\d+|\d{1,3}(?:,\d{3})+(?:\.\d*)?)(?:[eE][+-]?\d+)?"  # 1,5 and 1,234,567.8
_RAGGED = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


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
        return {"": _read_csv(path, target=target, ignore=ignore)}
    return _read_npz(path, target=target or "y")


def _read_csv(path: Path, *, target: str | None, ignore: Sequence[str]) -> Table:
    """The inputs and targets of a table."""
    np, table = numpy(), _text_table(path)
    names = list(table.columns)
    target = names[-1] if target is None else target
    for key, name in [("target", target), *(("ignore", name) for name in ignore)]:
        if name not in names:
            raise DataError(
                f"'{path}' has no column {name!r}, which data.{key} names; it has {', '.join(names)}."
                f"{did_you_mean(name, names)}"
            )
    inputs = [name for name in names if name != target and name not in ignore]
    if not inputs:
        raise DataError(f"'{path}' has no column beside the target {target!r} that could be an input.")
    x = np.concatenate([_Column(path, table[name]).as_input() for name in inputs], axis=1)
    return Table(x=x, y=_Column(path, table[target]).as_target())


def _text_table(path: Path) -> Any:
    """All cells of a .csv as text, in a DataFrame with the names of its columns and the lines of the file."""
    pd = pandas()
    if path.stat().st_size > _MOST_CSV_BYTES:
        raise DataError(f"'{path}' is larger than {_MOST_CSV_BYTES:,} bytes; save it as .npz, which is read at once.")
    try:
        with path.open(encoding="utf-8-sig") as file:
            separator = max(_SEPARATORS, key=file.readline().count)
        table = pd.read_csv(
            path,
            sep=separator,
            header=None,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
        )
    except pd.errors.EmptyDataError:
        table = pd.DataFrame()
    except (OSError, ValueError) as error:  # also UnicodeDecodeError and pandas' ParserError
        if ragged := _RAGGED.search(str(error)):
            columns, line, cells = ragged.groups()
            raise DataError(
                f"'{path}', line {line} has {cells} cells, and the table has {columns} columns. Correct the line, or "
                "put quotation marks around a cell with a separator in it."
            ) from error
        raise DataError(f"'{path}' could not be read as a table of UTF-8 text ({error}). Save it anew.") from error
    table = table.apply(lambda column: column.str.strip())
    table.index += 1
    table = table[(table != "").any(axis=1)]  # a line without anything in it is no row
    if len(table) < 2:
        raise DataError(
            f"'{path}' has no rows: a table has a line with the names of its columns, and one for each example."
        )
    names = table.iloc[0].tolist()
    for number, name in enumerate(names, start=1):
        if not name:
            raise DataError(f"'{path}' has no name for column {number}. Name it, or remove it if it only counts rows.")
        if names.count(name) > 1:
            raise DataError(f"'{path}' has two columns called {name!r}; rename one of them.")
    if pd.to_numeric(table.iloc[0], errors="coerce").notna().all():
        raise DataError(f"'{path}' begins with numbers, where the first line must have the names of the columns.")
    return table.iloc[1:].set_axis(names, axis=1)


class _Column:
    """A column of a table: its cells as text, and as numbers where it is no column of text."""

    def __init__(self, path: Path, cells: Any) -> None:
        self._path, self._cells = path, cells
        self._refuse(cells == "", "is empty; fill in what is missing, or remove the row")
        self._numbers = pandas().to_numeric(cells, errors="coerce").astype("float64")
        self._whole = cells.str.fullmatch(_WHOLE).astype(bool)
        self._word = self._numbers.isna()
        words, count = cells[self._word], int(self._word.sum())
        others = len(cells) - count
        if not count:
            self._refuse(self._numbers.abs() == float("inf"), "is {cell!r}, and a number must be finite")
        elif others and words.str.lower().isin(_MISSING).all():
            # A word for "missing" among numbers does not make them a column of text.
            self._refuse(self._word, "is {cell!r}; fill in what is missing, or remove the row")
        elif words.str.fullmatch(_COMMA).all():
            # Numbers of another country are no words: each would become a column, or a class, of its own.
            self._refuse(self._word, "is {cell!r}; write numbers with a decimal point and no sign between thousands")
        elif count <= others / _NUMBERS_FOR_A_WORD and not self._whole[~self._word].all():
            # One typing error among measurements does not make them text; whole numbers may be codes.
            self._refuse(
                self._word, f"is {{cell!r:.60}}, and {others} others are numbers; write a number, or remove the row"
            )

    def _refuse(self, rows: Any, reason: str) -> None:
        """Raise an error about the first of these rows, if there is any."""
        if rows.any():
            line = rows.idxmax()
            reason = reason.format(cell=self._cells[line])
            raise DataError(f"'{self._path}', line {line}, column {self._cells.name!r} {reason}.")

    def as_input(self) -> np.ndarray:
        """The column as a matrix: its numbers, or a column of 0 and 1 for each value of a text."""
        np = numpy()
        if not self._word.any():
            self._refuse(self._numbers.abs() > float(np.finfo(np.float32).max), "is {cell!r}, which is beyond float32")
            return self._numbers.to_numpy(dtype=np.float32)[:, None]
        values = self._cells.nunique()
        if values > _MOST_VALUES:
            self._refuse(
                self._word,
                f"is {{cell!r:.60}}, so the column is text, and it has {values} different values; write numbers with a "
                "decimal point, or leave the column out with data.ignore",
            )
        columns = pandas().get_dummies(self._cells).to_numpy(dtype=np.float32)
        # Of two values the second says all. One value alone says nothing, and is kept as zeros, so that columns keep
        # their places when rows are added.
        return columns[:, 1:] if values == 2 else columns * (values > 1)

    def as_target(self) -> np.ndarray:
        """Text, whole numbers or floats; which of them is decided by how the cells are written."""
        np = numpy()
        if self._word.any():
            return np.array(self._cells.tolist())
        if self._whole.all():
            return np.array([int(cell) for cell in self._cells], dtype=np.int64)
        return self._numbers.to_numpy()


def _read_npz(path: Path, *, target: str) -> dict[str, Table]:
    arrays = read_arrays(path)
    for alias, usual in (("x_train", "x"), (f"{target}_train", target)):
        if alias in arrays and usual not in arrays:
            arrays[usual] = arrays.pop(alias)
    tables = {}
    for part in _PARTS:
        names = [f"x{part}", f"{target}{part}"]
        present = [name for name in names if name in arrays]
        if part and not present:
            continue
        if len(present) < 2:
            missing = next(name for name in names if name not in arrays)
            raise DataError(
                f"'{path}' has no array {missing!r}; it has {', '.join(arrays) or 'none'}."
                f"{did_you_mean(missing, arrays)} Save it with numpy.savez(file, x=..., {target}=...)."
            )
        tables[part] = _table(path, names, [arrays[name] for name in names])
    shapes = {table.x.shape[1:] for table in tables.values()}
    if len(shapes) > 1:
        raise DataError(f"'{path}': the parts of x differ in shape: {' and '.join(map(str, sorted(shapes)))}.")
    return tables


def read_arrays(path: Path) -> dict[str, Any]:
    """The arrays of a .npz file by name; nothing is unpickled."""
    np = numpy()
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
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
    path = Path(base or ".", file)
    return path if path.exists() or not Path(file).exists() else Path(file)
