"""Churn between two checkpoints of any model: what a user sees change when the new one takes the old one's place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ..errors import DataError, InputError, ParameterError, did_you_mean
from .churn import Churn, churn
from .predictors import Predictor, read_predictor
from .splits import DATA_SETS
from .studies.examples import Examples, load_examples
from .studies.recipe import Data

Part = Literal["test", "validation", "train", "all"]
Place = str | os.PathLike[str]


def compare(
    old: Place,
    new: Place,
    *,
    data: Place | Data | Examples | None = None,
    part: Part = "test",
    model: str | Sequence[str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    level: float = 0.95,
    batch: int = 1024,
    device: torch.device | str = "cpu",
    data_folder: Place | None = None,
) -> Churn:
    """What changes in the predictions when `new` takes the place of `old`.

    Args:
        old, new: a checkpoint's folder; a .safetensors file of weights (one model, or several stacked, as a study keeps
            them); or predictions, a .npz or .safetensors file with `probabilities` (or `logits`) of shape (examples,
            labels) or (models, examples, labels), and `labels`.
        data: what to predict: "digits", "mnist", "fashion-mnist", or a .csv or .npz file, whose inputs are scaled and
            split as a study does it; give a `Data` to choose otherwise. By default what a checkpoint says that it was
            trained on. Predictions that come with labels need none.
        part: of the data: "test", "validation", "train" or "all".
        model: for weights, the function that builds their model, as "package.module:function"; two for two models.
        arguments: what it is called with; it gets `classes` and `input_shape`, too, if it takes them.
        level: how often an interval should hold the truth.

    >>> import tempfile, torch
    >>> from softknee.lab import networks
    >>> from softknee.lab.checkpoint import save_checkpoint
    >>> folder, sizes = tempfile.TemporaryDirectory(), {"widths": [64, 8, 10], "activation": "relu"}
    >>> places = [
    ...     save_checkpoint(f"{folder.name}/{seed}", networks.mlp(**sizes, seed=seed), builder="mlp", arguments=sizes)
    ...     for seed in (0, 1)]
    >>> found = compare(*places, data="digits")
    >>> found.examples, found.changed.interval[0] < found.changed.value < found.changed.interval[1]
    (899, True)
    >>> folder.cleanup()
    """
    if part not in get_args(Part):
        raise ParameterError(f"part must be one of {', '.join(get_args(Part))}, and {part!r} was given.")
    builds = [model] if model is None or isinstance(model, str) else list(model)
    builds = builds * 2 if len(builds) == 1 else builds
    if len(builds) != 2:
        raise ParameterError(f"model is one function, or one for each of the two, and {len(builds)} were given.")
    examples = _examples(data, data_folder)
    sides = [
        read_predictor(place, model=build, arguments=arguments or {}, examples=examples)
        for place, build in zip((old, new), builds, strict=True)
    ]
    if examples is None and (named := next((one.data for one in sides if one.data), None)):
        examples = _examples(named, data_folder)
    if examples is not None and examples.task != "classification":
        raise DataError(f"'{examples.name}' is a regression, and churn is of predicted labels; give data with classes.")
    x, truth = (None, None) if examples is None else _part(examples, part)
    truth = _labels(sides, truth)
    before, after = (_probabilities(one, x, batch=batch, device=device) for one in sides)
    names = [one.name for one in sides]
    if names[0] == names[1]:  # such as last/model.safetensors and best/model.safetensors
        names = [f"{Path(place).resolve().parent.name} {name}" for place, name in zip((old, new), names, strict=True)]
    where = "" if examples is None else f"{examples.name}, {part} part" if part != "all" else examples.name
    return replace(churn(before, after, truth, level=level), old=names[0], new=names[1], data=where)


def _examples(data: Place | Data | Examples | None, folder: Place | None) -> Examples | None:
    if data is None or isinstance(data, Examples):
        return data
    if not isinstance(data, Data):
        name = os.fspath(data)
        if name in DATA_SETS:
            data = Data(set=name)
        elif Path(name).suffix.lower() in (".csv", ".npz"):
            data = Data(file=name)
        else:
            raise ParameterError(
                f"The data are {', '.join(DATA_SETS)}, or a .csv or .npz file, and {name!r} was given."
                f"{did_you_mean(name, DATA_SETS)}"
            )
    return load_examples(data, folder=folder)


def _part(examples: Examples, part: str) -> tuple[Tensor, Tensor]:
    parts = ("train", "validation", "test") if part == "all" else (part,)
    x, y = (torch.cat([getattr(examples, f"{one}_{which}") for one in parts]) for which in "xy")
    return x, y


def _labels(sides: Sequence[Predictor], truth: Tensor | None) -> Tensor:
    """The labels of the data, or of the files; where there are several they must be the same."""
    known = [one for one in (truth, *(side.labels for side in sides)) if one is not None]
    if not known:
        raise ParameterError("There are no labels: give the data with --data, or predictions that have them.")
    for one in known[1:]:
        if not torch.equal(one.long().flatten(), known[0].long().flatten()):
            raise InputError(
                "The labels of the two sides are not those of the same examples in the same order; predict both anew "
                "on the same data."
            )
    return known[0].long().flatten()


def _probabilities(side: Predictor, x: Tensor | None, *, batch: int, device: torch.device | str) -> Tensor:
    if side.predictions is not None:
        return side.predictions
    if x is None:
        raise ParameterError(f"Give the data that {side.name} shall predict: --data digits, or a .csv or .npz file.")
    return side.predict(x, batch=batch, device=device)
