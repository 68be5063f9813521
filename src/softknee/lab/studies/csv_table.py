"""A .csv file as numbers; the rules are those of `own_files`."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import DataError, did_you_mean
from .own_files import Table, numpy

_SEPARATORS = ",;\t"
_MISSING = ("na", "n/a", "nan", "null", "none", "?", "-")
_NUMBERS_FOR_A_WORD = 9  # so many with a decimal point among them: the word is a mistake
_MOST_VALUES = 100  # a text column with more different values is a name or a mistake, and not a kind
_MOST_BYTES = 2**30
# 1,5 and 1,234,567.8
_COMMA = re.compile(r"[+-]?(\d*,\d+|\d{1,3}(,\d{3})+(\.\d*)?)([eE][+-]?\d+)?")


def read_csv(path: Path, *, target: str | None, ignore: Sequence[str]) -> Table:
    """The inputs and targets of a table."""
    np = numpy()
    names, rows, lines = _cells(path)
    wanted = names[-1] if target is None else target
    for place, name in [("target", wanted), *(("ignore", one) for one in ignore)]:
        if name not in names:
            raise DataError(
                f"'{path}' has no column {name!r}, which data.{place} names; it has {', '.join(names)}."
                f"{did_you_mean(name, names)}"
            )
    inputs = [name for name in names if name != wanted and name not in ignore]
    if not inputs:
        raise DataError(f"'{path}' has no column beside the target {wanted!r} that could be an input.")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    read = [_input(_Column(path, name, columns[name], lines)) for name in inputs]
    return Table(x=np.concatenate(read, axis=1), y=_target(_Column(path, wanted, columns[wanted], lines)))


class _Column:
    """The cells of a column, and how to speak of one of them."""

    def __init__(self, path: Path, name: str, cells: Sequence[str], lines: Sequence[int]) -> None:
        self.path, self.name, self.cells, self.lines = path, name, cells, lines
        for at, cell in enumerate(cells):
            if not cell:
                raise self.refusal(at, "is empty; fill in what is missing, or remove the row")
        self.numbers = [_number(cell) for cell in cells]
        words = [at for at, number in enumerate(self.numbers) if number is None]
        self.is_text = bool(words)
        # A word for "missing" among numbers does not make them a column of text.
        if words and len(words) < len(cells) and all(cells[at].lower() in _MISSING for at in words):
            raise self.refusal(words[0], f"is {cells[words[0]]!r}; fill in what is missing, or remove the row")
        self.first_word = words[0] if words else None
        # Numbers of another country are no words: each would become a column, or a class, of its own.
        if words and all(_COMMA.fullmatch(cells[at]) for at in words):
            raise self.refusal(
                words[0], f"is {cells[words[0]]!r}; write numbers with a decimal point and no sign between thousands"
            )
        # Nor is one typing error among measurements a reason to make a column of each; whole numbers may be codes.
        others = len(cells) - len(words)
        if 0 < len(words) <= others / _NUMBERS_FOR_A_WORD and any(
            number is not None and not _is_whole(cell) for cell, number in zip(cells, self.numbers, strict=True)
        ):
            raise self.refusal(
                words[0],
                f"is {cells[words[0]]!r:.60}, and {others} others are numbers; write a number, or remove the row",
            )
        for at, number in enumerate(self.numbers):
            if not self.is_text and number is not None and not math.isfinite(number):
                raise self.refusal(at, f"is {cells[at]!r}, and a number must be finite")

    def refusal(self, at: int, what: str) -> DataError:
        return DataError(f"'{self.path}', line {self.lines[at]}, column {self.name!r} {what}.")


def _input(column: _Column) -> Any:
    """The numbers of a column as a matrix: itself, or a column for each value of a text."""
    np = numpy()
    if not column.is_text:
        with np.errstate(over="ignore"):
            found = np.array(column.numbers, dtype=np.float64).astype(np.float32)
        for at in np.flatnonzero(~np.isfinite(found))[:1]:
            raise column.refusal(int(at), f"is {column.cells[at]!r}, which is beyond float32")
        return found[:, None]
    values = sorted(set(column.cells))
    if len(values) > _MOST_VALUES:
        assert column.first_word is not None
        raise column.refusal(
            column.first_word,
            f"is {column.cells[column.first_word]!r:.60}, so the column is text, and it has {len(values)} different "
            "values; write numbers with a decimal point, or leave the column out with data.ignore",
        )
    place = {value: at for at, value in enumerate(values)}
    found = np.eye(len(values), dtype=np.float32)[[place[cell] for cell in column.cells]]
    # Of two values the second says all. One value alone says nothing, and is kept as zeros, so that columns keep their
    # places when rows are added.
    return found[:, 1:] if len(values) == 2 else found * (len(values) > 1)


def _target(column: _Column) -> Any:
    """Text, whole numbers or floats; which of them is decided by how the cells are written."""
    np = numpy()
    if column.is_text:
        return np.array(column.cells)
    whole = all(_is_whole(cell) for cell in column.cells)
    return np.array(
        [int(cell) for cell in column.cells] if whole else column.numbers, dtype=np.int64 if whole else None
    )


def _cells(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """The names of the columns, the cells of every row, and the line that each row ends in."""
    if path.stat().st_size > _MOST_BYTES:
        raise DataError(f"'{path}' is larger than {_MOST_BYTES:,} bytes; save it as .npz, which is read at once.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            separator = max(_SEPARATORS, key=first.count)
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            rows, lines = [], []
            for row in reader:
                if row:  # a line without anything in it is no row
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"'{path}' could not be read as a table of UTF-8 text ({error}).") from error
    if len(rows) < 2:
        raise DataError(
            f"'{path}' has no rows: a table has a line with the names of its columns, and one for each example."
        )
    _check_header(path, rows[0])
    for row, line in zip(rows[1:], lines[1:], strict=True):
        if len(row) != len(rows[0]):
            raise DataError(f"'{path}', line {line} has {len(row)} cells, and the table has {len(rows[0])} columns.")
    return rows[0], rows[1:], lines[1:]


def _check_header(path: Path, names: Sequence[str]) -> None:
    for at, name in enumerate(names):
        if not name:
            raise DataError(
                f"'{path}' has no name for column {at + 1}. Name it, or remove it if it only counts the rows."
            )
        if names.count(name) > 1:
            raise DataError(f"'{path}' has two columns called {name!r}; rename one of them.")
    if all(_number(name) is not None for name in names):
        raise DataError(f"'{path}' begins with numbers, where the first line must have the names of the columns.")


def _number(cell: str) -> float | None:
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _is_whole(cell: str) -> bool:
    digits = cell[1:] if cell[:1] in "+-" else cell
    return digits.isascii() and digits.isdigit() and len(digits) < 19
