"""Churn between two checkpoints of any model: the changes that a user sees when the new one replaces the old one."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ..errors import DataError, InputError, ParameterError, did_you_mean, first_line, need_package
from ..measure import Quantity, Record
from ..measure.estimate import check_level
from ..measure.scores import read
from ..train.arguments import tensor_of
from .checkpoint import CheckpointError, load_checkpoint
from .data.images import DATA_SETS
from .networks import OF_ROWS
from .studies.examples import Examples, load_examples, read_arrays
from .studies.own_functions import find_function, takes
from .studies.recipe import Data
from .table import Table


@dataclass(frozen=True)
class Rate:
    """A number over examples, with the interval in which it lies for other examples of the same kind."""

    value: float
    interval: tuple[float, float]


def wilson(count: int, examples: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share: all p for which `count` of `examples` is no surprise.

    >>> tuple(round(end, 6) for end in wilson(0, 10))
    (0.0, 0.277533)
    """
    from scipy.stats import binomtest  # comes with scikit-learn

    interval = binomtest(count, examples).proportion_ci(level, method="wilson")
    return float(interval.low), float(interval.high)


def mcnemar(spoiled: int, mended: int) -> float:
    """The exact two-sided McNemar test: how likely a split as uneven is where both ways are as likely.

    >>> mcnemar(1, 9)
    0.021484375
    """
    from scipy.stats import binomtest

    return float(binomtest(spoiled, spoiled + mended).pvalue) if spoiled + mended else 1.0


def gain_interval(spoiled: float, mended: float, examples: int, *, level: float = 0.95) -> tuple[float, float]:
    """The interval of (mended - spoiled) / examples, by Agresti and Min: half an example more in each of four cells.

    >>> tuple(round(end, 6) for end in gain_interval(0, 0, 98))
    (-0.0196, 0.0196)
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    worse, better, count = spoiled + 0.5, mended + 0.5, examples + 2
    middle = (better - worse) / count
    reach = z * math.sqrt(worse + better - (better - worse) ** 2 / count) / count
    return max(middle - reach, -1.0), min(middle + reach, 1.0)


def over_examples(each: Tensor, *, level: float = 0.95, low: float = 0.0) -> Rate:
    """The mean of a number that lies between `low` and 1 for each example, with its t interval."""
    count, mean = len(each), float(each.mean())
    if count < 2:
        return Rate(mean, (low, 1.0))
    from scipy.stats import t

    reach = float(t.ppf((1 + level) / 2, count - 1)) * float(each.std()) / math.sqrt(count)
    return Rate(mean, (max(mean - reach, low), min(mean + reach, 1.0)))


@dataclass(frozen=True, kw_only=True)
class Churn:
    """What changed from an old model to a new one.

    examples, pairs: how many there were; with several models on each side the counts are means over the pairs.
    left_out:        pairs in which a model had diverged (its predictions are no numbers).
    changed:         the share of examples whose predicted label changed.
    spoiled, mended: how many examples went from right to wrong, and from wrong to right.
    mcnemar:         how likely a table as uneven is if neither model is the better one; None with several pairs.
    delta_1:         the mean over examples of half the sum over labels of |p - p'|.
    old_accuracy, new_accuracy, gain: of the two models, and new less old.
    old, new, data:  what was compared on what, in words.
    """

    examples: int
    pairs: int
    left_out: int
    level: float
    changed: Rate
    spoiled: float
    mended: float
    mcnemar: float | None
    delta_1: Rate
    old_accuracy: Rate
    new_accuracy: Rate
    gain: Rate
    old: str = "old"
    new: str = "new"
    data: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Everything as numbers and mappings, for JSON."""
        return asdict(self)

    def record(self, *, command: str) -> Record:
        """The record of a comparison: a row for each number with an interval, and one for the table of changes."""
        units = {"changed": "share", "delta_1": "probability", "old_accuracy": "share", "new_accuracy": "share"}
        statistic = f"mean over examples, {100 * self.level:g} % interval"
        rows: list[dict[str, Any]] = []
        for name, unit in {**units, "gain": "share"}.items():
            rate: Rate = getattr(self, name)
            low, high = rate.interval
            value = Quantity(
                value=rate.value, low=low, high=high, repeats=self.examples, unit=unit, statistic=statistic
            )
            rows.append({"measure": name, "value": value})
        rows.append({"measure": "changes", "spoiled": self.spoiled, "mended": self.mended, "mcnemar": self.mcnemar})
        names = ("old", "new", "data", "examples", "pairs", "left_out", "level")
        settings = {name: getattr(self, name) for name in names}
        return Record.now("compare", command=command, rows=rows, settings=settings, baseline=self.old)

    def table(self) -> Table:
        """As a table: one line for each number, with its interval."""
        level = f"{100 * self.level:g} %"
        count = f"{self.examples:,}"
        lines = [
            ("predicted label changed", _percent(self.changed.value), _between(self.changed)),
            ("right before, wrong now", f"{_count(self.spoiled)} of {count}", ""),
            ("wrong before, right now", f"{_count(self.mended)} of {count}", ""),
            ("Delta_1 between the two", f"{self.delta_1.value:.4f}", _between(self.delta_1, percent=False)),
            ("accuracy of the old one", _percent(self.old_accuracy.value), _between(self.old_accuracy)),
            ("accuracy of the new one", _percent(self.new_accuracy.value), _between(self.new_accuracy)),
            ("new less old, in points", f"{100 * self.gain.value:+.2f}", _between(self.gain, sign="+", unit="")),
        ]
        remarks = [f"Intervals ({level}) are over the examples: what others of the same kind would give."]
        if self.mcnemar is not None:
            remarks.append(f"McNemar's exact test, that neither is the better one: p = {self.mcnemar:.3g}.")
        if self.pairs > 1:
            remarks.append(f"Means over {self.pairs} pairs of models, the old and the new one of each seed.")
        if self.left_out:
            remarks.append(f"{self.left_out} pairs were left out, because a model in them had diverged.")
        title = f"From {self.old} to {self.new}" + (f", on {self.data}" if self.data else "")
        return Table(title=title, head=("", "value", f"{level} interval"), rows=lines, remarks=remarks, markup=True)


def churn(old: Any, new: Any, labels: Any, *, level: float = 0.95) -> Churn:
    """What changed from the probabilities of an old model to those of a new one, [N, L] each, or [M, N, L].

    >>> import torch
    >>> old = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
    >>> new = torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.3, 0.7], [0.6, 0.4]])
    >>> change = churn(old, new, [0, 1, 1, 1])
    >>> change.changed.value, change.mended, change.spoiled, change.mcnemar, round(change.delta_1.value, 6)
    (0.5, 1, 1, 1.0, 0.175)
    """
    check_level(level)
    before, after, left_out = _pairs(old, new)
    before, truth = read(before, labels, logits=False)
    after, _ = read(after, labels, logits=False)
    pairs, examples = before.shape[:2]
    was, now = before.argmax(dim=2), after.argmax(dim=2)
    was_right, is_right = was == truth, now == truth
    apart = (before - after).abs().sum(dim=2) / 2
    each = {
        "changed": (was != now).double(),
        "old_accuracy": was_right.double(),
        "new_accuracy": is_right.double(),
        "gain": is_right.double() - was_right.double(),
        "delta_1": apart,
    }
    rates: dict[str, Any] = {
        name: over_examples(value.mean(dim=0), level=level, low=-1.0 if name == "gain" else 0.0)
        for name, value in each.items()
    }
    spoiled, mended = (
        float(flags.double().mean(dim=0).sum()) for flags in (was_right & ~is_right, is_right & ~was_right)
    )
    if pairs == 1:
        spoiled, mended = round(spoiled), round(mended)
    for name in ("changed", "old_accuracy", "new_accuracy"):
        # Also of several pairs where all examples are alike: the t interval of 0 changes would have no width.
        if pairs == 1 or rates[name].value in (0.0, 1.0):
            count = round(rates[name].value * examples)
            rates[name] = Rate(count / examples, wilson(count, examples, level=level))
    if pairs == 1 or spoiled == mended == 0:
        rates["gain"] = Rate((mended - spoiled) / examples, gain_interval(spoiled, mended, examples, level=level))
    return Churn(
        examples=examples,
        pairs=pairs,
        left_out=left_out,
        level=level,
        spoiled=spoiled,
        mended=mended,
        mcnemar=mcnemar(int(spoiled), int(mended)) if pairs == 1 else None,
        **rates,
    )


def _pairs(old: Any, new: Any) -> tuple[Tensor, Tensor, int]:
    """Both as [M, N, L], without the pairs in which a model diverged, and how many those were."""
    before, after = (torch.as_tensor(side).detach().double().cpu() for side in (old, new))
    before, after = (side.unsqueeze(0) if side.dim() == 2 else side for side in (before, after))
    if before.shape != after.shape or before.dim() != 3:
        raise InputError(
            f"The two sides must have predictions of as many models for the same examples and labels, and they have "
            f"the shapes {tuple(before.shape)} and {tuple(after.shape)} of (models, examples, labels)."
        )
    whole = before.flatten(1).isfinite().all(dim=1) & after.flatten(1).isfinite().all(dim=1)
    if not bool(whole.any()):
        raise InputError("There is nothing to compare: in every pair a model had diverged.")
    return before[whole], after[whole], int((~whole).sum())


def _percent(value: float) -> str:
    return f"{100 * value:.2f} %"


def _between(rate: Rate, *, percent: bool = True, sign: str = "", unit: str = " %") -> str:
    low, high = rate.interval
    if not percent:
        return f"{low:.4f} to {high:.4f}"
    return f"{100 * low:{sign}.2f} to {100 * high:{sign}.2f}{unit}"


def _count(number: float) -> str:
    """A number of examples; a mean over pairs of models need not be whole."""
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


_PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
_SCORES = ("probabilities", "logits")


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """One side of a comparison: models that predict, or what they predicted.

    models:      as many as there are; empty where there are predictions instead.
    flat:        whether a model takes every example as one row of numbers.
    predictions: probabilities, [M, N, L], and their labels, if they were in the file.
    data:        the data set that a checkpoint was trained on, if it says so.
    """

    name: str
    models: tuple[nn.Module, ...] = ()
    flat: bool = False
    predictions: Tensor | None = None
    labels: Tensor | None = None
    data: str | None = None

    @torch.no_grad()
    def predict(self, x: Tensor, *, batch: int, device: torch.device | str) -> Tensor:
        """The probabilities of x, [M, N, L], in float64."""
        parts = (x.flatten(1) if self.flat else x).split(batch)
        outputs = []
        for model in self.models:
            model = model.to(device).eval()
            try:
                outputs.append(torch.cat([tensor_of(model(part.to(device))).cpu() for part in parts]))
            except (RuntimeError, ValueError, TypeError) as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(
                    f"{self.name} cannot be run on examples of shape {tuple(x.shape[1:])} ({first_line(error)}). "
                    "Give the data that it was trained on."
                ) from error
        return as_probabilities(torch.stack(outputs))


def read_predictor(
    place: str | os.PathLike[str], *, model: str | None, arguments: Mapping[str, Any], examples: Examples | None
) -> Predictor:
    """Read one side of a comparison from a path.

    Args:
        model, arguments: how to build the model of a file of weights; `examples` tell it their shape and classes.
    """
    path = Path(place)
    ending = path.suffix.lower()
    if path.is_dir():
        checkpoint = load_checkpoint(path)
        data = checkpoint.task.get("data")
        return Predictor(
            name=path.name,
            models=(checkpoint.model,),
            flat=checkpoint.builder in OF_ROWS,
            data=data if isinstance(data, str) else None,
        )
    if ending in _PICKLED:
        raise DataError(
            f"'{path.name}' is a pickle, which may run code when it is read, so softknee does not read it. If you "
            f'trust it, convert its weights once: python -c "import torch, safetensors.torch as s; '
            f"s.save_file(torch.load('{path.name}', weights_only=True), '{path.stem}.safetensors')\""
        )
    if not path.is_file():
        raise DataError(f"There is no checkpoint or file of predictions '{place}'. Check the path.")
    if ending not in (".safetensors", ".npz"):
        raise DataError(
            f"'{path.name}' is no checkpoint: give the folder of one, a .safetensors file of weights or predictions, "
            "or a .npz file of predictions."
        )
    if ending == ".safetensors":
        tensors = _safetensors(path)
    else:
        arrays = read_arrays(path)
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype.kind in "fiub"}
    if kind := next((name for name in _SCORES if name in tensors), None):
        return _predicted(path, tensors, kind)
    if ending == ".npz":
        raise DataError(
            f"'{path.name}' has no array 'probabilities' or 'logits'; it has {', '.join(tensors) or 'none'}."
        )
    if model is None:
        raise ParameterError(
            f"'{path.name}' holds weights; say how their model is built: --model package.module:function (or, if it "
            "should hold predictions, call them 'probabilities')."
        )
    return Predictor(name=path.name, models=_built(path, tensors, model, arguments, examples))


def as_probabilities(outputs: Tensor) -> Tensor:
    """Softmax over the labels in float64; one output alone is the log-odds of the second of two labels."""
    outputs = outputs.double()
    outputs = outputs.unsqueeze(2) if outputs.dim() == 2 else outputs
    if outputs.dim() != 3:
        raise InputError(
            f"A comparison needs one row of outputs for each example; they have shape {tuple(outputs.shape)}."
        )
    return (torch.cat([torch.zeros_like(outputs), outputs], 2) if outputs.shape[2] == 1 else outputs).softmax(dim=2)


def _predicted(path: Path, tensors: Mapping[str, Tensor], kind: str) -> Predictor:
    scores, labels = tensors[kind].double(), tensors.get("labels")
    scores = scores.unsqueeze(0) if scores.dim() == 2 else scores
    if scores.dim() != 3 or 0 in scores.shape:
        raise DataError(
            f"'{path.name}': {kind} must have the shape (examples, labels) or (models, examples, labels), and they "
            f"have {tuple(tensors[kind].shape)}."
        )
    if labels is not None:
        if labels.is_floating_point() or labels.numel() != scores.shape[1]:
            raise DataError(f"'{path.name}': labels must be {scores.shape[1]} whole numbers, one for each example.")
        labels = labels.flatten().long()
    scores = as_probabilities(scores) if kind == "logits" else scores
    return Predictor(name=path.name, predictions=scores, labels=labels)


def _built(
    path: Path, tensors: Mapping[str, Tensor], build: str, arguments: Mapping[str, Any], examples: Examples | None
) -> tuple[nn.Module, ...]:
    """The models of the weights: one, or as many as they are stacked (as a study keeps them)."""
    function = find_function(build)
    offered = {} if examples is None else {"classes": examples.outputs, "input_shape": examples.input_shape}
    keywords = {**{name: value for name, value in offered.items() if takes(function, name)}, **arguments}

    def make() -> nn.Module:
        try:
            made = function(**keywords)
        except Exception as error:  # whatever the function does
            raise ParameterError(
                f"--model {build}: the function failed with the arguments {', '.join(keywords) or 'none'} "
                f"({type(error).__name__}: {error}); give others with --argument NAME=VALUE."
            ) from error
        if not isinstance(made, nn.Module):
            raise ParameterError(f"--model {build} must return a torch.nn.Module, not a {type(made).__name__}.")
        return made

    first = make()
    own = {name: value for name, value in first.state_dict().items() if isinstance(value, Tensor)}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    single = {name: tuple(value.shape) for name, value in own.items()}
    if shapes == single:
        first.load_state_dict(dict(tensors))
        return (first,)
    counts = {shape[0] if shape else 0 for shape in shapes.values()}
    many = counts.pop() if len(counts) == 1 else 0
    stacked = {name: (many, *value.shape) for name, value in own.items()}
    if many and shapes == stacked:
        models = [first, *(make() for _ in range(many - 1))]
        for index, each in enumerate(models):
            each.load_state_dict({name: tensor[index] for name, tensor in tensors.items()})
        return tuple(models)
    # Of models that were stacked, the stack is no difference.
    expected = stacked if any(shapes.get(name) == shape for name, shape in stacked.items()) else single
    differs = next(name for name in (*own, *shapes) if shapes.get(name) != expected.get(name))
    raise CheckpointError(
        f"The weights in '{path.name}' do not belong to the model that {build} builds: they differ in {differs!r}, "
        f"which is {shapes.get(differs, 'not there')} in the file and "
        f"{tuple(own[differs].shape) if differs in own else 'not there'} in the model."
    )


def _safetensors(path: Path) -> dict[str, Tensor]:
    safetensors = need_package("safetensors.torch", f"'{path.name}' is read with the package 'safetensors'", "deploy")
    try:
        return safetensors.load_file(path)
    except Exception as error:  # the library raises several kinds for what is no safetensors file
        raise DataError(f"'{path.name}' is no whole file of safetensors ({error}). Copy it again.") from error


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
    >>> change = compare(*places, data="digits")
    >>> change.examples, change.changed.interval[0] < change.changed.value < change.changed.interval[1]
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
    if examples is None and (named := next((side.data for side in sides if side.data), None)):
        examples = _examples(named, data_folder)
    if examples is not None and examples.task != "classification":
        raise DataError(f"'{examples.name}' is a regression, and churn is of predicted labels; give data with classes.")
    x = truth = None
    if examples is not None:
        parts = ("train", "validation", "test") if part == "all" else (part,)
        x, truth = (torch.cat([getattr(examples, f"{name}_{which}") for name in parts]) for which in "xy")
    truth = _labels(sides, truth)
    predictions: list[Tensor] = []
    for side in sides:
        if side.predictions is not None:
            predictions.append(side.predictions)
        elif x is not None:
            predictions.append(side.predict(x, batch=batch, device=device))
        else:
            raise ParameterError(
                f"Give the data that {side.name} shall predict: --data digits, or a .csv or .npz file."
            )
    names = [side.name for side in sides]
    if names[0] == names[1]:  # such as last/model.safetensors and best/model.safetensors
        names = [f"{Path(place).resolve().parent.name} {name}" for place, name in zip((old, new), names, strict=True)]
    where = "" if examples is None else f"{examples.name}, {part} part" if part != "all" else examples.name
    return replace(churn(predictions[0], predictions[1], truth, level=level), old=names[0], new=names[1], data=where)


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


def _labels(sides: Sequence[Predictor], truth: Tensor | None) -> Tensor:
    """The labels of the data, or of the files; where there are several they must be the same."""
    known = [labels for labels in (truth, *(side.labels for side in sides)) if labels is not None]
    if not known:
        raise ParameterError("There are no labels: give the data with --data, or predictions that have them.")
    for labels in known[1:]:
        if not torch.equal(labels.long().flatten(), known[0].long().flatten()):
            raise InputError(
                "The labels of the two sides are not those of the same examples in the same order; predict both again "
                "on the same data."
            )
    return known[0].long().flatten()
