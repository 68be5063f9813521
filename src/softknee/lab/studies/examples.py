"""The examples of a study in three parts, as tensors, with a fingerprint: the same for every activation and seed."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from ...errors import DataError
from ...train.streamed import Streamed
from ..data.adult import load_adult
from ..data.criteo import LABELS as CLICKS
from ..data.criteo import load_criteo
from ..data.files import data_folder, numpy
from ..data.imagenet import PictureBytes, find_bytes
from ..data.images import IMAGES, load_image_set
from ..pictures import PICTURES, SIDE, picture_parts
from ..splits import OWN_PARTS, ROW_SETS, load_split
from ..synthetic import CLUSTERS, synthetic_parts
from .dividing import split, standardised
from .own_files import Table, read_file, resolve
from .recipe import Data, Recipe

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
        return replace(self, **{name: one.to(device) for name, one in _tensors(self).items()})

    def sentence(self) -> str:
        """What there is, for a record and the head of a report."""
        counts = ", ".join(f"{len(getattr(self, f'{part}_y')):,} {part}" for part in _PARTS).replace(
            "train", "training"
        )
        many = (
            f"{self.classes} classes"
            if self.classes
            else f"{self.outputs} quantit{'y' if self.outputs == 1 else 'ies'}"
        )
        return f"{self.name}: {counts} examples of shape {_times(self.input_shape)}, {many}"


def recipe_examples(
    recipe: Recipe, *, folder: str | os.PathLike[str] | None = None, base: str | os.PathLike[str] | None = None
) -> Examples:
    """The examples that a recipe asks for, as its model takes them: rows for "mlp", images for others."""
    return load_examples(recipe.data, folder=folder, base=base, flat=recipe.model.build == "mlp")


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
        found = _of_file(data, base, flat)
    else:
        found = _of_own_parts(data, folder) if data.set in OWN_PARTS else _of_set(data, folder, flat)
    found = found if data.limit is None else _first(found, data.limit)
    return replace(found, fingerprint=_fingerprint(found), base=None if base is None else os.path.abspath(base))


def _first(found: Examples, most: int) -> Examples:
    """The first examples of each part; the whole of a picture's test, which is judged as a picture."""
    whole = ("test_x", "test_y") if found.picture else ()
    return replace(found, **{name: one[:most] for name, one in _tensors(found).items() if name not in whole})


def _of_set(data: Data, folder: str | os.PathLike[str] | None, flat: bool) -> Examples:
    assert data.set is not None
    if data.set in (*IMAGES, *ROW_SETS):
        return _of_test_part(data, folder, flat)
    whole = load_split(data.set, folder, flat=flat)
    x = torch.cat([whole.train_images, whole.validation_images])
    y = torch.cat([whole.train_labels, whole.validation_labels])
    kept, rest = split(y, share=data.validation, seed=data.split_seed)
    return Examples(
        task="classification",
        classes=10,
        train_x=x[rest],
        train_y=y[rest],
        validation_x=x[kept],
        validation_y=y[kept],
        test_x=whole.test_images,
        test_y=whole.test_labels,
        name=data.set,
        labels=tuple(map(str, range(10))),
        image=_image(x.shape[1:]),
        mean=whole.mean,
        spread=whole.spread,
    )


def _of_test_part(data: Data, folder: str | os.PathLike[str] | None, flat: bool) -> Examples:
    """A data set with a test part of its own, scaled by its training part before that is divided."""
    assert data.set is not None
    if data.set in ROW_SETS:
        rows = load_adult(folder)
        x, y, labels = rows.train_x, rows.train_y, rows.labels
        ready, test = (lambda one: one), (rows.test_x, rows.test_y)
        about = {}
    else:
        # A part is held in memory, and the whole of ImageNet is not.
        on_disk = find_bytes(data_folder(folder)) if data.set == "imagenet" and data.limit is None else None
        if on_disk is not None:
            return _of_disk(data, on_disk, flat)
        # Enough that the training part has its limit when validation has been taken from it.
        most = None if data.limit is None else math.ceil(data.limit / (1 - data.validation)) + 1
        images = load_image_set(data.set, folder, most=most)
        x, y, labels = images.train_images, images.train_labels, images.labels
        ready, test = images.ready, (images.test_images, images.test_labels)
        about = {"image": _image(x.shape[1:]), "mean": images.mean, "spread": images.spread}
    kept, rest = split(y, share=data.validation, seed=data.split_seed)
    # Bytes are divided before they become floats, which take four times the room.
    parts = {"train": (x[rest], y[rest]), "validation": (x[kept], y[kept]), "test": test}
    floats = {part: (ready(one).flatten(1) if flat else ready(one), target) for part, (one, target) in parts.items()}
    return replace(_examples(floats, labels=labels, name=data.set), **about)


def _of_disk(data: Data, found: PictureBytes, flat: bool) -> Examples:
    """The pictures that `softknee data imagenet` wrote, in the parts that they have in memory."""
    y = found.labels
    kept, rest = split(y["train"], share=data.validation, seed=data.split_seed)
    whole = torch.arange(len(y["val"]))
    parts = {
        part: (cast(Tensor, found.streamed(file, places, flat=flat)), y[file][places])
        for part, file, places in (("train", "train", rest), ("validation", "train", kept), ("test", "val", whole))
    }
    about: dict[str, Any] = {"image": (3, found.side, found.side), "mean": found.mean, "spread": found.spread}
    return replace(_examples(parts, labels=found.classes, name="imagenet"), **about)


def _image(shape: Sequence[int]) -> tuple[int, int, int]:
    """Channels, height and width; a row is of a square grey image."""
    if len(shape) == 3:
        channels, height, width = shape
        return channels, height, width
    side = math.isqrt(shape[0])
    return 1, side, side


def _of_own_parts(data: Data, folder: str | os.PathLike[str] | None) -> Examples:
    """A data set that comes in its three parts, as rows of numbers; shares for test and validation do not apply."""
    assert data.set is not None
    if data.set == "criteo":
        return _examples(load_criteo(folder), labels=CLICKS, name=data.set)
    is_picture, classes = data.set in PICTURES, CLUSTERS.get(data.set, 0)
    parts = picture_parts(data.set) if is_picture else synthetic_parts(data.set, seed=data.split_seed)
    return _examples(
        parts,
        labels=tuple(map(str, range(classes))) if classes else None,
        name=data.set,
        picture=(SIDE, SIDE) if is_picture else None,
    )


def _of_file(data: Data, base: str | os.PathLike[str] | None, flat: bool) -> Examples:
    assert data.file is not None
    path = resolve(data.file, base)
    tables = read_file(path, target=data.target, ignore=data.ignore)
    labels, targets = _targets(path, tables, data.task)
    whole = {part: torch.from_numpy(table.x) for part, table in tables.items()}
    inputs = {part: one.flatten(1) for part, one in whole.items()} if flat else whole
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
    parts: Mapping[str, tuple[Tensor, Tensor]],
    *,
    labels: tuple[str, ...] | None,
    name: str,
    picture: tuple[int, int] | None = None,
) -> Examples:
    """labels: None for a regression."""
    (train_x, train_y), (validation_x, validation_y), (test_x, test_y) = (parts[part] for part in _PARTS)
    return Examples(
        task="regression" if labels is None else "classification",
        classes=0 if labels is None else len(labels),
        train_x=train_x,
        train_y=train_y,
        validation_x=validation_x,
        validation_y=validation_y,
        test_x=test_x,
        test_y=test_y,
        name=name,
        labels=labels or (),
        picture=picture,
    )


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


def _targets(path: Path, tables: dict[str, Table], task: str) -> tuple[tuple[str, ...] | None, dict[str, Tensor]]:
    """The names of the classes and the number of the class of each example; None and floats for a regression."""
    np = numpy()
    y = {part: table.y for part, table in tables.items()}
    every = np.concatenate(list(y.values())) if len({one.ndim for one in y.values()}) == 1 else None
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
            raise DataError(
                f"'{path}': the target is text ({str(every[0])!r:.40}, ...), and a regression needs numbers."
            )
        if (every == every[0]).all():
            raise DataError(f"'{path}': every example has the target {every[0]}; there is nothing to predict.")
        return None, {part: torch.from_numpy(one.astype(np.float32)).reshape(len(one), -1) for part, one in y.items()}
    if every.ndim == 2 or (kind == "f" and (every != np.round(every)).any()):
        raise DataError(
            f"'{path}': a classification needs one label for each example, and the target is of another kind."
        )
    values, numbers = np.unique(every, return_inverse=True)
    if len(values) < 2:
        raise DataError(f"'{path}': every example has the target {values[0]}; there is nothing to tell apart.")
    trained = set(np.unique(y[""]).tolist())
    for value in values.tolist():
        if value not in trained:
            raise DataError(f"'{path}': the label {value!r} occurs in the test or validation part alone.")
    ends = np.cumsum([len(one) for one in y.values()])
    cut = np.split(numbers.reshape(-1).astype(np.int64), ends[:-1])
    names = tuple(str(int(one)) if kind == "f" else str(one) for one in values.tolist())
    return names, {part: torch.from_numpy(one) for part, one in zip(y, cut, strict=True)}


def _tensors(examples: Examples) -> dict[str, Tensor]:
    every = {one.name: getattr(examples, one.name) for one in fields(examples)}
    return {name: value for name, value in every.items() if isinstance(value, Tensor)}


def _fingerprint(examples: Examples) -> str:
    found = hashlib.sha256(f"{examples.task} {examples.classes}".encode())
    for part in _PARTS if examples.on_disk else ():
        # What was summed when the file was written stands for the file, which is not read for this.
        x: Any = getattr(examples, f"{part}_x")
        found.update(f" {part}_x of {x.sha256} {tuple(x.shape)} {x.mean} {x.spread} ".encode())
        found.update(x.places.numpy().data)
    for name, one in _tensors(examples).items():
        found.update(f" {name} {one.dtype} {tuple(one.shape)} ".encode())
        raw: Any = one.contiguous().view(torch.uint8).numpy()
        found.update(raw.data)
    return found.hexdigest()


def _times(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))
