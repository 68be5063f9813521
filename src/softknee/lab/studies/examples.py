"""The examples of a study in three parts, as tensors, with a fingerprint: the same for every activation and seed."""

from __future__ import annotations

import hashlib
import math
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor

from ...errors import DataError, did_you_mean
from ...train.streamed import Streamed
from ..data.adult import load_adult
from ..data.criteo import LABELS as CLICKS
from ..data.criteo import load_criteo
from ..data.files import data_folder, numpy, pandas
from ..data.imagenet import PictureBytes, find_bytes
from ..data.images import IMAGES, OWN_PARTS, ROW_SETS, load_image_set
from ..data.synthetic import CLUSTERS, PICTURES, SIDE, picture_parts, synthetic_parts
from ..networks import OF_ROWS
from .recipe import Data, Recipe, split, standardised

if TYPE_CHECKING:
    import numpy as np

    # Inputs and targets of one part of a file: targets are text, whole numbers or floats, one (or one row) each.
    Arrays = tuple[np.ndarray, np.ndarray]


_PARTS = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Inputs (float32) and targets: class numbers (int64), or for a regression float32 of shape (examples, quantities).

    classes:     how many classes there are; 0 for a regression.
    labels:      what the classes are called in the file.
    fingerprint: SHA-256 of all tensors, their shapes and types.
    base:        the folder that the recipe's own files are looked for in; no part of the examples.
    picture:     height and width, where the examples are the pixels of one picture, row by row; else None.
    image:       channels, height and width, where each example is an image, or a row of its numbers; else None.
    mean, spread: of each channel of such an image, in levels of 0 to 255: an example is (level - mean) / spread.

    Inputs that no memory holds are no tensors but `Streamed`, all three of them, which has as much of a tensor as a
    study needs; see `on_disk`.
    """

    task: Literal["classification", "regression"]
    classes: int
    train_x: Tensor
    train_y: Tensor
    validation_x: Tensor
    validation_y: Tensor
    test_x: Tensor
    test_y: Tensor
    name: str
    labels: tuple[str, ...] = ()
    fingerprint: str = ""
    base: str | None = None
    picture: tuple[int, int] | None = None
    image: tuple[int, int, int] | None = None
    mean: tuple[float, ...] = ()
    spread: tuple[float, ...] = ()

    @property
    def on_disk(self) -> bool:
        """Whether the inputs are read from a disk when they are needed."""
        return isinstance(self.train_x, Streamed)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.train_x.shape[1:])

    @property
    def outputs(self) -> int:
        """How many numbers a model gives for an example: one for each class, or for each quantity."""
        return self.classes or self.train_y.shape[1]

    def to(self, device: torch.device | str) -> Examples:
        """The same examples on another device; what is on a disk stays there."""
        return replace(self, **{name: tensor.to(device) for name, tensor in _tensors(self).items()})

    def sentence(self) -> str:
        """What there is, for a record and the head of a report."""
        counts = ", ".join(f"{len(getattr(self, f'{part}_y')):,} {part}" for part in _PARTS)
        quantities = "1 quantity" if self.outputs == 1 else f"{self.outputs} quantities"
        many = f"{self.classes} classes" if self.classes else quantities
        counts = counts.replace("train", "training")
        shape = " x ".join(map(str, self.input_shape))
        return f"{self.name}: {counts} examples of shape {shape}, {many}"


def recipe_examples(
    recipe: Recipe, *, folder: str | os.PathLike[str] | None = None, base: str | os.PathLike[str] | None = None
) -> Examples:
    """The examples that a recipe asks for, as its model takes them: rows for "mlp", images for others."""
    return load_examples(recipe.data, folder=folder, base=base, flat=recipe.model.build in OF_ROWS)


def load_examples(
    data: Data,
    *,
    folder: str | os.PathLike[str] | None = None,
    base: str | os.PathLike[str] | None = None,
    flat: bool = False,
) -> Examples:
    """The examples in their three parts.

    Args:
        folder: what holds the data sets; by default the one that SOFTKNEE_DATA names.
        base: the folder of the recipe, where a file is looked for before the current folder.
        flat: every example as one row of numbers, where `data.flat` does not say.

    >>> load_examples(Data(set="digits"), flat=True).sentence()
    'digits: 718 training, 180 validation, 899 test examples of shape 64, 10 classes'
    """
    flat = flat if data.flat is None else data.flat
    if data.set is None:
        examples = _of_file(data, base, flat)
    else:
        examples = _of_own_parts(data, folder) if data.set in OWN_PARTS else _of_set(data, folder, flat)
    examples = examples if data.limit is None else _first(examples, data.limit)
    return replace(examples, fingerprint=_fingerprint(examples), base=None if base is None else os.path.abspath(base))


def _first(examples: Examples, most: int) -> Examples:
    """The first examples of each part; the whole of a picture's test, which is judged as a picture."""
    whole = ("test_x", "test_y") if examples.picture else ()
    return replace(
        examples, **{name: tensor[:most] for name, tensor in _tensors(examples).items() if name not in whole}
    )


def _of_set(data: Data, folder: str | os.PathLike[str] | None, flat: bool) -> Examples:
    """A data set with a test part of its own, scaled by its training part before that is divided."""
    assert data.set is not None
    if data.set in ROW_SETS:
        rows = load_adult(folder, check=data.check)
        kept, rest = split(rows.train_y, share=data.validation, seed=data.split_seed)
        x, y = rows.train_x, rows.train_y
        parts = {"train": (x[rest], y[rest]), "validation": (x[kept], y[kept]), "test": (rows.test_x, rows.test_y)}
        return _examples(parts, labels=rows.labels, name=data.set)
    # A part is held in memory, and the whole of ImageNet is not.
    on_disk = find_bytes(data_folder(folder)) if data.set == "imagenet" and data.limit is None else None
    if on_disk is not None:
        return _of_disk(data, on_disk, flat)
    # Enough that the training part has its limit when validation has been taken from it.
    most = None if data.limit is None else math.ceil(data.limit / (1 - data.validation)) + 1
    images = load_image_set(data.set, folder, check=data.check, most=most)
    x, y = images.train_images, images.train_labels
    if data.set not in IMAGES:  # studies of the small ones began with the parts of `load_split`
        order = images.order().roll(-images.validation)
        x, y = x[order], y[order]
    kept, rest = split(y, share=data.validation, seed=data.split_seed)
    # Bytes are divided before they become floats, which take four times the room.
    parts = {"train": (x[rest], y[rest]), "validation": (x[kept], y[kept])}
    parts["test"] = images.test_images, images.test_labels
    floats = {
        part: (images.ready(levels).flatten(1) if flat else images.ready(levels), target)
        for part, (levels, target) in parts.items()
    }
    about = {"image": tuple(x.shape[1:]), "mean": images.mean, "spread": images.spread}
    return _examples(floats, labels=images.labels, name=data.set, **about)


def _of_disk(data: Data, pictures: PictureBytes, flat: bool) -> Examples:
    """The pictures that `softknee data imagenet` wrote, in the parts that they have in memory."""
    y = pictures.labels
    kept, rest = split(y["train"], share=data.validation, seed=data.split_seed)
    whole = torch.arange(len(y["val"]))
    parts = {
        part: (cast(Tensor, pictures.streamed(file, places, flat=flat)), y[file][places])
        for part, file, places in (("train", "train", rest), ("validation", "train", kept), ("test", "val", whole))
    }
    about = {"image": (3, pictures.side, pictures.side), "mean": pictures.mean, "spread": pictures.spread}
    return _examples(parts, labels=pictures.classes, name="imagenet", **about)


def _of_own_parts(data: Data, folder: str | os.PathLike[str] | None) -> Examples:
    """A data set that comes in its three parts, as rows of numbers; shares for test and validation do not apply."""
    assert data.set is not None
    if data.set == "criteo":
        return _examples(load_criteo(folder), labels=CLICKS, name=data.set)
    if data.set in PICTURES:
        return _examples(picture_parts(data.set), labels=None, name=data.set, picture=(SIDE, SIDE))
    labels = tuple(map(str, range(CLUSTERS[data.set]))) if data.set in CLUSTERS else None
    return _examples(synthetic_parts(data.set, seed=data.split_seed), labels=labels, name=data.set)


def _of_file(data: Data, base: str | os.PathLike[str] | None, flat: bool) -> Examples:
    assert data.file is not None
    path = resolve(data.file, base)
    tables = read_file(path, target=data.target, ignore=data.ignore)
    labels, targets = _targets(path, tables, data.task)
    whole = {part: torch.from_numpy(x) for part, (x, _) in tables.items()}
    inputs = {part: tensor.flatten(1) for part, tensor in whole.items()} if flat else whole
    parts = _parted(data, inputs, targets, stratified=labels is not None)
    for part, (x, _) in parts.items():
        if len(x) == 0:
            raise DataError(
                f"'{path}' has {len(inputs['']):,} examples, too few for the shares of data.test and data.validation: "
                f"nothing is left for the {part} part."
            )
    if data.standardise:
        parts = standardised(parts, targets_too=labels is None)
    return _examples(parts, labels=labels, name=Path(data.file).name)


def _examples(
    parts: Mapping[str, tuple[Tensor, Tensor]], *, labels: tuple[str, ...] | None, name: str, **about: Any
) -> Examples:
    """labels: None for a regression."""
    tensors = {f"{part}_{side}": tensor for part in _PARTS for side, tensor in zip("xy", parts[part], strict=True)}
    task = "regression" if labels is None else "classification"
    return Examples(task=task, classes=len(labels or ()), name=name, labels=labels or (), **tensors, **about)


def _parted(
    data: Data, inputs: dict[str, Tensor], targets: dict[str, Tensor], *, stratified: bool
) -> dict[str, tuple[Tensor, Tensor]]:
    """The three parts: those that the file has, and the others taken from what it has for training."""
    parts: dict[str, tuple[Tensor, Tensor]] = {}
    x, y = inputs[""], targets[""]
    rest = torch.arange(len(x))
    # The test part first: which examples it has does not depend on how the others are divided.
    for part, share, seed in (("test", data.test, 0), ("validation", data.validation, 1)):
        if f"_{part}" in inputs:
            parts[part] = inputs[f"_{part}"], targets[f"_{part}"]
            continue
        kept, left = split(y[rest], share=share, seed=2 * data.split_seed + seed, stratified=stratified)
        parts[part] = x[rest[kept]], y[rest[kept]]
        rest = rest[left]
    return {**parts, "train": (x[rest], y[rest])}


def _targets(path: Path, tables: dict[str, Arrays], task: str) -> tuple[tuple[str, ...] | None, dict[str, Tensor]]:
    """The names of the classes and the number of the class of each example; None and floats for a regression."""
    np = numpy()
    y = {part: targets for part, (_, targets) in tables.items()}
    every = np.concatenate(list(y.values())) if len({array.ndim for array in y.values()}) == 1 else None
    if every is None:
        raise DataError(f"'{path}': the parts of the target differ in shape.")
    kind, whole = every.dtype.kind, every.dtype.kind in "iub"
    if task == "auto":
        task = "regression" if kind == "f" or every.ndim == 2 else "classification"
        if task == "classification" and whole and len(np.unique(every)) > max(20, len(every) // 5):
            raise DataError(
                f"'{path}': the target has {len(np.unique(every)):,} different whole numbers in {len(every):,} rows. "
                "Say which it is: 'task: regression' for a quantity, 'task: classification' for classes, under data."
            )
    if task == "regression":
        if kind == "U":
            raise DataError(f"'{path}': the target is text ({str(every[0])!r:.40}, ...); a regression needs numbers.")
        if (every == every[0]).all():
            raise DataError(f"'{path}': every example has the target {every[0]}; there is nothing to predict.")
        return None, {
            part: torch.from_numpy(array.astype(np.float32)).reshape(len(array), -1) for part, array in y.items()
        }
    if every.ndim == 2 or (kind == "f" and (every != np.round(every)).any()):
        raise DataError(f"'{path}': a classification needs one label for each example, which the target is not.")
    values, numbers = np.unique(every, return_inverse=True)
    if len(values) < 2:
        raise DataError(f"'{path}': every example has the target {values[0]}; there is nothing to tell apart.")
    trained = set(np.unique(y[""]).tolist())
    for value in values.tolist():
        if value not in trained:
            raise DataError(f"'{path}': the label {value!r} occurs in the test or validation part alone.")
    ends = np.cumsum([len(array) for array in y.values()])
    cut = np.split(numbers.reshape(-1).astype(np.int64), ends[:-1])
    names = tuple(str(int(value)) if kind == "f" else str(value) for value in values.tolist())
    return names, {part: torch.from_numpy(array) for part, array in zip(y, cut, strict=True)}


def _tensors(examples: Examples) -> dict[str, Tensor]:
    every = {item.name: getattr(examples, item.name) for item in fields(examples)}
    return {name: value for name, value in every.items() if isinstance(value, Tensor)}


def _fingerprint(examples: Examples) -> str:
    digest = hashlib.sha256(f"{examples.task} {examples.classes}".encode())
    for part in _PARTS if examples.on_disk else ():
        # What was summed when the file was written stands for the file, which is not read for this.
        x: Any = getattr(examples, f"{part}_x")
        digest.update(f" {part}_x of {x.sha256} {tuple(x.shape)} {x.mean} {x.spread} ".encode())
        digest.update(x.places.numpy().data)
    for name, tensor in _tensors(examples).items():
        digest.update(f" {name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        raw: Any = tensor.contiguous().view(torch.uint8).numpy()
        digest.update(raw.data)
    return digest.hexdigest()


_MOST_BYTES = 8 * 2**30  # what arrays may be after decompression
_OWN_PARTS = ("", "_validation", "_test")
_MOST_CSV_BYTES = 2**30
_SEPARATORS = ",;\t"
_MISSING = ("na", "n/a", "nan", "null", "none", "?", "-")
_NUMBERS_FOR_A_WORD = 9  # so many with a decimal point among them: the word is a mistake
_MOST_VALUES = 100  # a text column with more different values is a name or a mistake, and not a kind
_WHOLE = r"[+-]?[0-9]{1,18}"
_COMMA = r"[+-]?(?:\d*,\d+|\d{1,3}(?:,\d{3})+(?:\.\d*)?)(?:[eE][+-]?\d+)?"  # 1,5 and 1,234,567.8
_RAGGED = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")


def read_file(path: Path, *, target: str | None, ignore: Sequence[str]) -> dict[str, Arrays]:
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


def _read_csv(path: Path, *, target: str | None, ignore: Sequence[str]) -> Arrays:
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
    return x, _Column(path, table[target]).as_target()


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
        raise DataError(f"'{path}' has no rows: a table has a line of column names, and one for each example.")
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


def _read_npz(path: Path, *, target: str) -> dict[str, Arrays]:
    arrays = read_arrays(path)
    for alias, usual in (("x_train", "x"), (f"{target}_train", target)):
        if alias in arrays and usual not in arrays:
            arrays[usual] = arrays.pop(alias)
    tables = {}
    for part in _OWN_PARTS:
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
    shapes = {x.shape[1:] for x, _ in tables.values()}
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


def _table(path: Path, names: Sequence[str], arrays: Sequence[np.ndarray]) -> Arrays:
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
            place = tuple(int(index) for index in np.argwhere(~np.isfinite(array))[0])
            raise DataError(f"'{path}': {name}{list(place)} is {array[place]}; fill in or remove missing values first.")
    if y.dtype.kind == "S":
        y = y.astype(str)
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise DataError(f"'{path}': {x_name} holds numbers beyond {np.finfo(np.float32).max:g}, float32's largest.")
    return narrow, y


def resolve(file: str, base: str | os.PathLike[str] | None) -> Path:
    """Where a data file lies: beside the recipe, or seen from the current folder."""
    path = Path(base or ".", file)
    return path if path.exists() or not Path(file).exists() else Path(file)
