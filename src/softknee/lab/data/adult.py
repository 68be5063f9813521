"""Adult, the census income data: 14 columns of a person, and whether the income is above 50,000 dollars a year.

Files `adult.data` (32,561 rows, to train on) and `adult.test` (16,281, the test part), plain or gzipped. Of the columns
six are whole numbers, each less its mean and by its standard deviation over all of adult.data; eight are words, each
value a column of 0 and 1, where a missing value ('?') is a value of its own in the three columns that have it. That
makes 108 inputs: 6 numbers and 102 values, in the order of the file.

Kohavi and Becker, UCI Machine Learning Repository, 1996.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from ...errors import DataError, did_you_mean
from ..compressed import read_bytes, text_of
from ..data_folder import data_folder, find_file
from .reading import compare_md5

_SOURCE = "archive.ics.uci.edu (the data set 'Adult')"
_MOST_BYTES = 2**25  # adult.data has 3,974,305
_MD5 = {"adult.data": "5d7c39d7b8804f071cdd1f2a7c460872", "adult.test": "35238206dfdf7f1fe215bbb874adecdc"}
LABELS = ("<=50K", ">50K")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The columns and, where they are words, their values, as adult.names lists them; by the alphabet, '?' first.
COLUMNS: dict[str, tuple[str, ...]] = {
    "age": (),
    "workclass": _words(
        "? Federal-gov Local-gov Never-worked Private Self-emp-inc Self-emp-not-inc State-gov Without-pay"
    ),
    "fnlwgt": (),
    "education": _words(
        "10th 11th 12th 1st-4th 5th-6th 7th-8th 9th Assoc-acdm Assoc-voc Bachelors Doctorate HS-grad Masters "
        "Preschool Prof-school Some-college"
    ),
    "education-num": (),
    "marital-status": _words(
        "Divorced Married-AF-spouse Married-civ-spouse Married-spouse-absent Never-married Separated Widowed"
    ),
    "occupation": _words(
        "? Adm-clerical Armed-Forces Craft-repair Exec-managerial Farming-fishing Handlers-cleaners Machine-op-inspct "
        "Other-service Priv-house-serv Prof-specialty Protective-serv Sales Tech-support Transport-moving"
    ),
    "relationship": _words("Husband Not-in-family Other-relative Own-child Unmarried Wife"),
    "race": _words("Amer-Indian-Eskimo Asian-Pac-Islander Black Other White"),
    "sex": ("Female", "Male"),
    "capital-gain": (),
    "capital-loss": (),
    "hours-per-week": (),
    "native-country": _words(
        "? Cambodia Canada China Columbia Cuba Dominican-Republic Ecuador El-Salvador England France Germany Greece "
        "Guatemala Haiti Holand-Netherlands Honduras Hong Hungary India Iran Ireland Italy Jamaica Japan Laos Mexico "
        "Nicaragua Outlying-US(Guam-USVI-etc) Peru Philippines Poland Portugal Puerto-Rico Scotland South Taiwan "
        "Thailand Trinadad&Tobago United-States Vietnam Yugoslavia"
    ),
}
NUMBERS = tuple(name for name, values in COLUMNS.items() if not values)
INPUTS = tuple(f"{name}={value}" if value else name for name, values in COLUMNS.items() for value in values or ("",))


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of numbers in float32 and class numbers in int64, with the names of the classes and of the inputs."""

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    labels: tuple[str, ...]
    inputs: tuple[str, ...]


def load_adult(folder: str | os.PathLike[str] | None = None, *, check: bool = True) -> Rows:
    """Adult from its two files; `check=False` takes other rows of the same format.

    >>> len(INPUTS), INPUTS[:2]
    (108, ('age', 'workclass=?'))
    """
    root = data_folder(folder)
    parts = [_read(_find(root, name), check) for name in _MD5]
    mean, spread = _scale(parts[0][0])
    numeric = torch.tensor([name in NUMBERS for name in INPUTS])
    ready = []
    for whole, target in parts:
        # In float64 and rounded once.
        x = _spelled_out(whole)
        x[:, numeric] = (x[:, numeric] - mean) / spread
        ready.append((x.float(), torch.tensor(target)))
    (train_x, train_y), (test_x, test_y) = ready
    return Rows(
        name="adult",
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        labels=LABELS,
        inputs=INPUTS,
    )


def _find(root: Path, name: str) -> Path:
    places = [f"{above}{name}{ending}" for above in ("adult/", "") for ending in ("", ".gz")]
    return find_file(root, places, what=f"Adult ({name})", source=_SOURCE)


def _read(path: Path, check: bool) -> tuple[list[list[int]], list[int]]:
    content = read_bytes(path, what="table of Adult", most_bytes=_MOST_BYTES)
    if check:
        compare_md5(content, _MD5[path.name.removesuffix(".gz")], path)
    rows, targets = [], []
    for number, line in enumerate(text_of(content, path).splitlines(), start=1):
        # adult.test begins with a remark, and both files end with an empty line.
        if not line.strip() or line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(COLUMNS) + 1:
            raise DataError(f"'{path}', line {number}: {len(cells)} values, where there are {len(COLUMNS) + 1}.")
        label = cells[-1].removesuffix(".")  # adult.test writes '<=50K.'
        if label not in LABELS:
            raise DataError(f"'{path}', line {number}: the income is {label!r:.40}, where it is '<=50K' or '>50K'.")
        rows.append([_number(name, cell, path, number) for name, cell in zip(COLUMNS, cells, strict=False)])
        targets.append(LABELS.index(label))
    if not rows:
        raise DataError(f"'{path}' has no rows. Take it anew from {_SOURCE}.")
    return rows, targets


def _number(name: str, cell: str, path: Path, number: int) -> int:
    """The number in a cell, or the place of its word among the values of the column."""
    values = COLUMNS[name]
    if values:
        if cell not in values:
            near = did_you_mean(cell, values)
            raise DataError(f"'{path}', line {number}: {name} has no value {cell!r:.40}.{near}")
        return values.index(cell)
    if not cell.isascii() or not cell.isdecimal() or len(cell) > 12:
        raise DataError(f"'{path}', line {number}: {name} is {cell!r:.40}, where it is a whole number.")
    return int(cell)


def _spelled_out(rows: list[list[int]]) -> Tensor:
    """Every number as it is, and a column of 0 and 1 for each value of a word; in float64."""
    whole = torch.tensor(rows)
    pieces = [
        functional.one_hot(column, len(values)) if values else column.unsqueeze(1)
        for column, values in zip(whole.unbind(dim=1), COLUMNS.values(), strict=True)
    ]
    return torch.cat(pieces, dim=1).double()


def _scale(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the numbers, by sums of whole numbers, which are exact."""
    means, spreads = [], []
    for name in NUMBERS:
        column, count = [row[list(COLUMNS).index(name)] for row in rows], len(rows)
        total, square = sum(column), sum(one * one for one in column)
        means.append(total / count)
        spreads.append(math.sqrt(count * square - total**2) / count or 1.0)  # a constant has no spread of its own
    return torch.tensor(means, dtype=torch.float64), torch.tensor(spreads, dtype=torch.float64)
