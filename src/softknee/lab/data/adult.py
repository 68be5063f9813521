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
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ...errors import DataError, did_you_mean
from .files import compare_md5, data_folder, find_file, pandas, read_bytes, text_of

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
    for columns, target in parts:
        # In float64 and rounded once.
        x = _one_hot(columns)
        x[:, numeric] = (x[:, numeric] - mean) / spread
        ready.append((x.float(), target))
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


def _read(path: Path, check: bool) -> tuple[Tensor, Tensor]:
    """The 14 columns in int64, (rows, 14), a word as its place among the values of its column; and the classes."""
    pd, content = pandas(), read_bytes(path, what="table of Adult", most_bytes=_MOST_BYTES)
    if check:
        compare_md5(content, _MD5[path.name.removesuffix(".gz")], path)
    try:
        # adult.test begins with a remark, and both files end with an empty line.
        table = pd.read_csv(
            StringIO(text_of(content, path)),
            header=None,
            dtype=str,
            keep_default_na=False,
            skipinitialspace=True,
            comment="|",
        )
    except pd.errors.EmptyDataError as error:
        raise DataError(f"'{path}' has no rows. Get it again from {_SOURCE}.") from error
    except pd.errors.ParserError as error:
        raise DataError(f"'{path}' has a row of another length ({error}). Get it again from {_SOURCE}.") from error
    columns = {**COLUMNS, "income": LABELS}
    if table.shape[1] != len(columns):
        raise DataError(f"'{path}' has {table.shape[1]} columns, where there are {len(columns)}. Get it again.")
    table.columns = list(columns)
    table["income"] = table["income"].str.removesuffix(".")  # adult.test writes '<=50K.'
    numbers = [_numbers(table[name], values, path) for name, values in columns.items()]
    return torch.stack(numbers[:-1], dim=1), numbers[-1]


def _numbers(cells: Any, values: Sequence[str], path: Path) -> Tensor:
    """The numbers of a column, or the places of its words among these values."""
    if values:
        numbers = pandas().Index(values).get_indexer(cells)
    else:
        numbers = cells.where(cells.str.fullmatch("[0-9]{1,7}"), "-1").astype("int64").to_numpy()
    for row in (numbers < 0).nonzero()[0][:1]:
        kind = f"has no value {cells[row]!r:.40}" if values else f"is {cells[row]!r:.40}, where it is a whole number"
        suggestion = did_you_mean(cells[row], values) if values else ""
        raise DataError(f"'{path}', row {row + 1}: {cells.name} {kind}.{suggestion} Get the file again from {_SOURCE}.")
    return torch.tensor(numbers, dtype=torch.int64)


def _one_hot(columns: Tensor) -> Tensor:
    """Every number as it is, and a column of 0 and 1 for each value of a word; in float64."""
    pieces = [
        functional.one_hot(column, len(values)) if values else column.unsqueeze(1)
        for column, values in zip(columns.unbind(dim=1), COLUMNS.values(), strict=True)
    ]
    return torch.cat(pieces, dim=1).double()


def _scale(columns: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the numbers, by sums of whole numbers, which are exact."""
    count, means, spreads = len(columns), [], []
    for name in NUMBERS:
        column = columns[:, list(COLUMNS).index(name)]
        total, square = int(column.sum()), int((column * column).sum())
        means.append(total / count)
        spreads.append(math.sqrt(count * square - total**2) / count or 1.0)  # a constant has no spread of its own
    return torch.tensor(means, dtype=torch.float64), torch.tensor(spreads, dtype=torch.float64)
