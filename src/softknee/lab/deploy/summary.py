"""Several checkpoints checked, and summarised over seeds: one line for each network and activation."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...errors import InputError
from ...measure.record import Quantity, Record, RecordError
from ...nn.parameters import Parameterised
from ...surgery import relu_ize_, sites, swap_
from ...version import VERSION
from ..checkpoint import Checkpoint, CheckpointError, load_checkpoint
from ..fits.runs import read_run
from ..splits import Split, load_split
from ..studies.store import STUDY
from ..table import ResultTable
from .check import deploy_check
from .layers import NotRun, Refused
from .marabou_check import PROVED, RobustnessCheck
from .report import DeployReport, ModelReport

MOST_CALIBRATION = 1000
# What is like ReLU but smooth, in modules and calls that are not softknee's own. Those have their limit written down.
_SMOOTH = ("gelu", "gelu_tanh", "silu", "swish", "mish", "softplus", "elu", "celu", "tanhexp")


def check_checkpoint(
    folder: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> DeployReport:
    """Load a checkpoint and the data of its task, put ReLU into a copy, and check both.

    Args:
        data: the folder of the data sets; the digits need none.
        options: of `deploy_check`, such as points and eps.
    """
    report("loading")
    return _check(load_checkpoint(folder), data=data, report=report, **options)


def _check(
    checkpoint: Checkpoint,
    *,
    data: str | os.PathLike[str] | None,
    report: Callable[[str], None],
    **options: Any,
) -> DeployReport:
    split = data_of(checkpoint, data)
    after = relu_copy(checkpoint.model, split.test_images[:2])
    return deploy_check(
        checkpoint.model,
        after,
        images=split.test_images,
        labels=split.test_labels,
        calibration=split.train_images[:MOST_CALIBRATION],
        title=f"{checkpoint.builder} on {split.name}, as saved and with ReLU",
        names=("as saved", "with ReLU"),
        report=report,
        **options,
    )


def data_of(checkpoint: Checkpoint, folder: str | os.PathLike[str] | None = None) -> Split:
    """The data set that the checkpoint's task names, in the shape that its network takes."""
    name = checkpoint.task.get("data")
    if not isinstance(name, str):
        raise CheckpointError(
            "The checkpoint does not say what data it was trained on; save it with task={'data': 'digits'} or the "
            "like, or call deploy_check with your own images."
        )
    return load_split(name, folder, flat=checkpoint.builder == "mlp")


def relu_copy(model: nn.Module, example: Tensor) -> nn.Module:
    """A copy in which plain torch modules stand for all smooth relatives of ReLU; no weight changes.

    Softknee's activations become their hard limit; torch's and others' own (GELU, SiLU, ...) become ReLU. Whatever is
    neither stays.

    >>> import torch
    >>> relu_copy(nn.Sequential(nn.Linear(2, 3), nn.GELU()), torch.zeros(2, 2))[1]
    ReLU()
    """
    found = copy.deepcopy(model)
    foreign = [
        site.path
        for site in sites(found, example)
        if site.activation in _SMOOTH and not (site.kind == "module" and _own(found.get_submodule(site.path)))
    ]
    if foreign:
        swap_(found, "relu", where=lambda site: site.path in foreign, example=example)
    if any(_own(module) for module in found.modules()):
        relu_ize_(found)
    if not any(isinstance(module, nn.ReLU) for module in found.modules()):
        raise InputError(
            f"{type(model).__name__} has no activation that ReLU could stand for; put one in with sk.swap_ first."
        )
    return found


def _own(module: nn.Module) -> bool:
    return isinstance(module, Parameterised)


KIND = "deploy checks"
_HEADINGS = {
    "accuracy": "accuracy",
    "accuracy_int8": "in int8",
    "latency_float": "float32, µs",
    "latency_int8": "int8, µs",
    "zeros": "exact zeros",
    "pruned": "without 30% of units",
    "pruned_at_random": "the same, at random",
    "proved": "points proved robust",
}


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One checkpoint and its report."""

    data: str
    network: str
    activation: str
    report: DeployReport


def check_several(
    folders: Sequence[str | os.PathLike[str]],
    *,
    data: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> list[Checked]:
    """Check each checkpoint, and each model of a study's folder; all are read before the first is checked."""
    if not folders:
        raise InputError("There is no checkpoint to check; name a folder at least.")
    checkpoints: dict[str, Checkpoint] = {}
    for folder in folders:
        if Path(folder, STUDY).is_file():
            checkpoints |= study_checkpoints(folder, data=data)
        else:
            checkpoints[os.fspath(folder)] = load_checkpoint(folder)
    result = []
    for place, checkpoint in checkpoints.items():
        name = os.path.basename(os.path.normpath(place))
        checked = _check(checkpoint, data=data, report=lambda what, name=name: report(f"{name}: {what}"), **options)
        activation = str(checkpoint.arguments.get("activation", "as built")).removeprefix("torch:")
        task = str(checkpoint.task.get("data"))
        result.append(Checked(data=task, network=checkpoint.builder, activation=activation, report=checked))
    return result


def study_checkpoints(
    folder: str | os.PathLike[str], *, data: str | os.PathLike[str] | None = None
) -> dict[str, Checkpoint]:
    """The trained models of a study that kept them, one for each activation and seed that did not diverge."""
    run = read_run(folder, data_folder=data)
    checkpoints = {
        f"{fit.label} seed {fit.number(place)}": Checkpoint(
            model=fit.model(place),
            builder=run.recipe.model.build,
            arguments={**run.recipe.model.arguments, "activation": fit.label},
            surgery=None,
            task={"data": run.recipe.data.set} if run.recipe.data.set else {},
            notes=run.recipe.title,
            softknee=VERSION,
        )
        for fit in run.with_models()
        for place, epoch in enumerate(fit.outcome.diverged)
        if epoch is None
    }
    if not checkpoints:
        raise InputError(
            f"The study '{folder}' has no models to check. Run it with --set 'keep=[models]', and into another folder."
        )
    return checkpoints


def summary_record(checked: Sequence[Checked], *, command: str) -> Record:
    """One row for each network, activation and form (as saved, with ReLU), over the checkpoints that have it."""
    rows = []
    for (data, network, activation), group in _groups(checked).items():
        for index in (0, 1):
            models = [one.report.models[index] for one in group]
            rows.append(
                {
                    "data": data,
                    "network": network,
                    "function": activation,
                    "form": models[0].name,
                    "checkpoints": len(models),
                    "activations": dict(models[0].activations),
                    **dict(_figures(models)),
                }
            )
    settings = {key: value for key, value in checked[0].report.settings.items() if key not in ("title", "test")}
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        settings=settings,
        baseline="each network as saved, checked beside its copy with ReLU in the same run",
        notes=[
            "latency: onnxruntime on one thread, the median for a batch of that size, averaged over the checkpoints.",
            "pruned: accuracy without 30% of the units, those most often 0 first (ranked by mean size where nothing "
            "is ever 0), no training after it; pruned_at_random: the same number of units, mean of five draws.",
            "proved: of the points asked, those around which Marabou proved the class constant.",
        ],
    )


def _groups(checked: Sequence[Checked]) -> dict[tuple[str, str, str], list[Checked]]:
    found: dict[tuple[str, str, str], list[Checked]] = {}
    for one in checked:
        found.setdefault((one.data, one.network, one.activation), []).append(one)
    return found


def _figures(models: Sequence[ModelReport]) -> Iterator[tuple[str, Any]]:
    """The numbers over the models, and in the place of those that there are not, why."""
    yield "accuracy", Quantity.mean([model.accuracy for model in models], unit="%")
    yield "parameters", models[0].parameters
    yield from _over(models, "onnx", {"operators": lambda check: dict(check.operators)}, first=True)
    yield from _over(models, "onnx", {"standard_operators": lambda check: not check.foreign}, first=True)
    yield from _over(models, "onnx", {"onnxruntime_difference": lambda check: check.difference}, worst=True)
    yield from _over(models, "int8", {"accuracy_int8": lambda check: check.accuracy_int8}, unit="%")
    yield from _over(models, "int8", {"latency_float": lambda check: 1e6 * check.latency_float.value}, unit="µs")
    yield from _over(models, "int8", {"latency_int8": lambda check: 1e6 * check.latency_int8.value}, unit="µs")
    zeros = [model.zeros for model in models]
    if all(one is not None for one in zeros):
        yield "zeros", Quantity.mean([100 * (one or 0.0) for one in zeros], unit="%")
    # Units are ranked by how often they are 0 where that says anything, else by size.
    way = "pruned_by_apoz" if not isinstance(models[0].pruned_by_apoz, NotRun) else "pruned_by_size"
    yield "pruned_by", way.removeprefix("pruned_by_")
    yield from _over(models, way, {"pruned": lambda check: check.accuracy_after.value}, unit="%")
    at_random = {"pruned_at_random": lambda check: check.accuracy_after.value}
    yield from _over(models, "pruned_at_random", at_random, unit="%")
    checks = [model.robustness for model in models]
    refused = next((one for one in checks if isinstance(one, Refused)), None)
    if refused is not None:
        yield "proved", {"refused": refused.sentence}
    elif all(isinstance(one, RobustnessCheck) for one in checks):
        yield "proved", _proved([one for one in checks if isinstance(one, RobustnessCheck)])
    else:
        yield "proved", {"not_run": next(one.reason for one in checks if isinstance(one, NotRun))}


def _proved(checks: Sequence[RobustnessCheck]) -> dict[str, Any]:
    counts = {verdict: sum(one.count(verdict) for one in checks) for verdict in _verdicts(checks)}
    return {"points": sum(len(one.points) for one in checks), "eps": checks[0].eps, PROVED: 0, **counts}


def _verdicts(checks: Sequence[RobustnessCheck]) -> list[str]:
    return sorted({point.verdict for one in checks for point in one.points})


def _over(
    models: Sequence[ModelReport],
    part: str,
    wanted: Mapping[str, Callable[[Any], Any]],
    *,
    unit: str = "",
    first: bool = False,
    worst: bool = False,
) -> Iterator[tuple[str, Any]]:
    found = [getattr(model, part) for model in models]
    for name, read in wanted.items():
        missing = next((one for one in found if isinstance(one, NotRun)), None)
        if missing is not None:
            yield name, {"not_run": missing.reason}
        elif first:
            yield name, read(found[0])
        elif worst:
            yield name, max(read(one) for one in found)
        else:
            yield name, Quantity.mean([read(one) for one in found], unit=unit)


def summary_tables(record: Record) -> list[ResultTable]:
    """A table for each data set of such a record."""
    if record.kind != KIND:
        raise RecordError(f"The record is of {record.kind!r}, and the table is made from one of {KIND!r}.")
    tables = []
    for data in dict.fromkeys(row["data"] for row in record.rows):
        rows = [row for row in record.rows if row["data"] == data]
        reasons: dict[str, int] = {}
        columns = {name: title for name, title in _HEADINGS.items() if any(_there(row.get(name)) for row in rows)}
        lines = tuple(
            (f"{row['function']}, {row['form']}", *(_cell(row, name, reasons) for name in columns)) for row in rows
        )
        many = max(row["checkpoints"] for row in rows)
        over = f", mean ± standard deviation over {many} seeds" if many > 1 else ""
        tables.append(
            ResultTable(
                title=f"{rows[0]['network'].upper()} on {data}{over}",
                header=("", *columns.values()),
                lines=lines,
                remarks=tuple(f"[{number}] {reason}" for reason, number in reasons.items()),
            )
        )
    return tables


def _there(value: Any) -> bool:
    """Whether there is anything to show: a column that was run for no network is left out."""
    return value is not None and not (isinstance(value, Mapping) and "not_run" in value)


def _cell(row: Mapping[str, Any], name: str, reasons: dict[str, int]) -> str:
    value = row.get(name)
    if value is None:
        return "–"
    if isinstance(value, Quantity):
        return value.text(0) if value.unit == "µs" else f"{value.text(2)}%"
    for word in ("refused", "not_run"):
        if word in value:
            return f"{word.replace('_', ' ')} [{reasons.setdefault(value[word], len(reasons) + 1)}]"
    return f"{value[PROVED]} of {value['points']}"
