"""The deploy check: what quantisation, pruning and verification make of a model before and after it became ReLU."""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError
from ...measure.record import Quantity, Record, RecordError
from ...nn.parameters import Parameterised
from ...surgery import relu_ize_, sites, swap_
from ...version import VERSION
from ..checkpoint import Checkpoint, CheckpointError, load_checkpoint
from ..data.images import Split, load_split
from ..fits.runs import read_run
from ..studies.store import STUDY
from ..table import Table
from .layers import BATCH, Layer, NotRun, Refused, activation_layers, attempt, attempt_with, layers
from .marabou_check import PROVED, RobustnessCheck, check_robustness
from .onnx_check import Exported, Quantised, check_onnx, export, quantise, race, seven_bits
from .pruning_check import AT_RANDOM, BY_APOZ, BY_SIZE, PruningCheck, check_pruning, count_parameters
from .report import DeployReport, ModelReport, Notes


def deploy_check(
    before: nn.Module,
    after: nn.Module,
    *,
    images: Tensor,
    labels: Tensor,
    calibration: Tensor,
    title: str = "Before and after",
    names: tuple[str, str] = ("before", "after"),
    share: float = 0.3,
    points: int = 10,
    eps: float = 0.05,
    seconds_per_point: float = 20.0,
    batch: int = 64,
    repeats: int = 51,
    threads: int = 1,
    seed: int = 0,
    report: Callable[[str], None] = lambda _: None,
) -> DeployReport:
    """What real tools make of two classifiers: ONNX, int8, exact zeros, pruning, and proofs of robustness.

    Args:
        before, after: as trained, and replaced by ReLU. Neither is changed; copies on the CPU in float32 are checked.
        images, labels: the test data, as the models take it.
        calibration: training images, for the ranges of int8 and for the ranking of units.
        share: of the units to prune.
        points, eps, seconds_per_point: how many test points Marabou checks, how far every input may move, and
            how long it may take for one point. The points are drawn with `seed` from those that both have right.
        batch, repeats, threads: of the timing in onnxruntime.
        report: called with what is being done.

    Returns:
        A `DeployReport`. What could not run is in it with the reason.
    """
    _check(images, labels, calibration, share=share, points=points, eps=eps, seconds=seconds_per_point, batch=batch)
    models = [copy.deepcopy(model).cpu().float().eval() for model in (before, after)]
    images, calibration, labels = images.detach().cpu().float(), calibration.detach().cpu().float(), labels.cpu()
    logits = [_logits(model, images, labels) for model in models]
    chosen = _points(logits, labels, points, seed=seed)

    exports: list[Exported | NotRun] = []
    for model, name in zip(models, names, strict=True):
        report(f"{name}: ONNX")
        exports.append(attempt(lambda model=model: export(model, images[:2]), what="The export to ONNX"))
    quantised: list[Quantised | NotRun] = []
    for exported, name in zip(exports, names, strict=True):
        report(f"{name}: int8")
        quantised.append(
            attempt_with(exported, lambda ready: quantise(ready, calibration, threads=threads), what="Quantisation")
        )
    timed = race(quantised, images, labels, batch=batch, repeats=repeats, accuracy=_accuracy)

    reports = []
    for model, name, exported, int8, scores in zip(models, names, exports, timed, logits, strict=True):
        report(f"{name}: zeros and pruning")
        right = _accuracy(scores, labels)
        by_apoz, by_size, at_random = _pruned(
            model, calibration, images, labels, share=share, accuracy_before=right, seed=seed
        )
        report(f"{name}: robustness")
        kinds = Counter(type(module).__name__ for module, _ in activation_layers(model).values())
        onnx = attempt_with(
            exported,
            lambda ready, scores=scores: check_onnx(ready, images, scores),
            what="Running the exported model",
        )
        robustness = attempt_with(
            exported if chosen or isinstance(exported, NotRun) else _NO_POINTS,
            lambda ready, model=model: check_robustness(
                model, ready, images, labels, eps=eps, chosen=chosen, seconds=seconds_per_point
            ),
            what="The proof of robustness",
        )
        reports.append(
            ModelReport(
                name=name,
                activations=dict(kinds),
                accuracy=right,
                parameters=count_parameters(model),
                onnx=onnx,
                int8=int8,
                layers=attempt(lambda model=model: tuple(layers(model, images)), what="Counting zeros") or _NO_LAYERS,
                pruned_by_apoz=by_apoz,
                pruned_by_size=by_size,
                pruned_at_random=at_random,
                robustness=robustness,
            )
        )
    return DeployReport(
        before=reports[0],
        after=reports[1],
        seed=seed,
        settings={
            "title": title,
            "test": len(images),
            "calibration": len(calibration),
            "share": share,
            "points": points,
            "eps": eps,
            "seconds_per_point": seconds_per_point,
            "batch": min(batch, len(images)),
            "repeats": repeats,
            "threads": threads,
            "quantisation": "static, QDQ, uint8 activations, int8 weights per channel",
            "bits_of_weights": 7 if seven_bits() else 8,
        },
    )


_NO_LAYERS = NotRun(reason="No activation module was called: functions called inside a forward cannot be watched.")
_NO_POINTS = NotRun(reason="points is 0, or there is no test point that both models classify rightly.")


def _pruned(
    model: nn.Module,
    calibration: Tensor,
    images: Tensor,
    labels: Tensor,
    *,
    share: float,
    accuracy_before: float,
    seed: int,
) -> list[PruningCheck | NotRun]:

    def check(measured: list[Layer], criterion: str) -> PruningCheck | NotRun:
        return check_pruning(
            model,
            measured,
            images[:2],
            share=share,
            criterion=criterion,
            evaluate=lambda pruned: _accuracy(_logits(pruned, images, labels), labels),
            accuracy_before=accuracy_before,
            seed=seed,
        )

    measured = attempt(lambda: layers(model, calibration), what="Counting zeros")
    return [
        attempt_with(measured, lambda layers, how=how: check(layers, how), what="Pruning")
        for how in (BY_APOZ, BY_SIZE, AT_RANDOM)
    ]


def _points(logits: list[Tensor], labels: Tensor, count: int, *, seed: int) -> list[int]:
    """Test points that both models have right, drawn without replacement."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    right = [logit.argmax(dim=1) == labels for logit in logits]
    return order[(right[0] & right[1])[order]][:count].tolist()


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    return 100 * float((logits.argmax(dim=1) == labels).double().mean())


@torch.no_grad()
def _logits(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The outputs for all images, after a look at whether this is a classifier of them."""
    try:
        parts = [model(part) for part in images.split(BATCH)]
    except Exception as error:
        raise InputError(
            f"deploy_check: {type(model).__name__} does not take images of shape {tuple(images.shape[1:])} ({error})."
        ) from error
    first = parts[0]
    if not isinstance(first, Tensor) or first.dim() != 2 or first.shape[1] <= int(labels.max()):
        shape = tuple(first.shape) if isinstance(first, Tensor) else type(first).__name__
        raise InputError(
            f"deploy_check: a classifier gives one row of scores per image, with a column for each of the "
            f"{int(labels.max()) + 1} classes; {type(model).__name__} gave {shape} for {len(images[:BATCH])} images."
        )
    return torch.cat(parts)


def _check(
    images: Tensor,
    labels: Tensor,
    calibration: Tensor,
    *,
    share: float,
    points: int,
    eps: float,
    seconds: float,
    batch: int,
) -> None:
    if len(images) == 0 or len(calibration) == 0 or labels.shape != images.shape[:1]:
        raise InputError(
            f"deploy_check: images and one label for each are needed, and images to calibrate with; given were "
            f"{tuple(images.shape)}, {tuple(labels.shape)} and {tuple(calibration.shape)}."
        )
    if calibration.shape[1:] != images.shape[1:] or labels.is_floating_point():
        raise InputError(
            f"deploy_check: calibration images must be like the test images ({tuple(images.shape[1:])}, and "
            f"{tuple(calibration.shape[1:])} was given), and labels whole numbers ({labels.dtype} was given)."
        )
    for name, value, allowed, what in (
        ("share", share, 0 < share < 1, "between 0 and 1"),
        ("points", points, points >= 0, "at least 0"),
        ("eps", eps, eps > 0, "above 0"),
        ("seconds_per_point", seconds, seconds > 0, "above 0"),
        ("batch", batch, batch >= 1, "at least 1"),
    ):
        if not allowed:
            raise ParameterError(f"deploy_check: {name} must be {what}, and {value!r} was given.")


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
    return _check_model(load_checkpoint(folder), data=data, report=report, **options)


def _check_model(
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
    replaced = copy.deepcopy(model)
    foreign = [
        site.path
        for site in sites(replaced, example)
        if site.activation in _SMOOTH and not (site.kind == "module" and _own(replaced.get_submodule(site.path)))
    ]
    if foreign:
        swap_(replaced, "relu", where=lambda site: site.path in foreign, example=example)
    if any(_own(module) for module in replaced.modules()):
        relu_ize_(replaced)
    if not any(isinstance(module, nn.ReLU) for module in replaced.modules()):
        raise InputError(
            f"{type(model).__name__} has no activation that ReLU could stand for; put one in with sk.swap_ first."
        )
    return replaced


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
        checked = _check_model(
            checkpoint, data=data, report=lambda what, name=name: report(f"{name}: {what}"), **options
        )
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
            models = [checkpoint.report.models[index] for checkpoint in group]
            rows.append(
                {
                    "data": data,
                    "network": network,
                    "function": activation,
                    "form": models[0].name,
                    "checkpoints": len(models),
                    "activations": dict(models[0].activations),
                    **_figures(models),
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
    groups: dict[tuple[str, str, str], list[Checked]] = {}
    for checkpoint in checked:
        groups.setdefault((checkpoint.data, checkpoint.network, checkpoint.activation), []).append(checkpoint)
    return groups


def _figures(models: Sequence[ModelReport]) -> dict[str, Any]:
    """The numbers over the models, and in the place of those that there are not, why."""
    # Units are ranked by how often they are 0 where that says anything, else by size.
    way = "size" if isinstance(models[0].pruned_by_apoz, NotRun) else "apoz"
    zeros = [100 * model.zeros for model in models if model.zeros is not None]
    return {
        "accuracy": Quantity.mean([model.accuracy for model in models], unit="%"),
        "parameters": models[0].parameters,
        "operators": _over(models, "onnx", lambda checks: dict(checks[0].operators)),
        "standard_operators": _over(models, "onnx", lambda checks: not checks[0].foreign),
        "onnxruntime_difference": _over(models, "onnx", lambda checks: max(check.difference for check in checks)),
        "accuracy_int8": _mean(models, "int8", lambda check: check.accuracy_int8, "%"),
        "latency_float": _mean(models, "int8", lambda check: 1e6 * check.latency_float.value, "µs"),
        "latency_int8": _mean(models, "int8", lambda check: 1e6 * check.latency_int8.value, "µs"),
        **({"zeros": Quantity.mean(zeros, unit="%")} if len(zeros) == len(models) else {}),
        "pruned_by": way,
        "pruned": _mean(models, f"pruned_by_{way}", lambda check: check.accuracy_after.value, "%"),
        "pruned_at_random": _mean(models, "pruned_at_random", lambda check: check.accuracy_after.value, "%"),
        "proved": _over(models, "robustness", _proved),
    }


def _over(models: Sequence[ModelReport], part: str, summarise: Callable[[list[Any]], Any]) -> Any:
    checks = [getattr(model, part) for model in models]
    for check in checks:
        if isinstance(check, Refused):
            return {"refused": check.sentence}
    missing = next((check for check in checks if isinstance(check, NotRun)), None)
    return summarise(checks) if missing is None else {"not_run": missing.reason}


def _mean(models: Sequence[ModelReport], part: str, read: Callable[[Any], float], unit: str) -> Any:
    return _over(models, part, lambda checks: Quantity.mean([read(check) for check in checks], unit=unit))


def _proved(checks: Sequence[RobustnessCheck]) -> dict[str, Any]:
    verdicts = sorted({point.verdict for check in checks for point in check.points})
    counts = {verdict: sum(check.count(verdict) for check in checks) for verdict in verdicts}
    return {"points": sum(len(check.points) for check in checks), "eps": checks[0].eps, PROVED: 0, **counts}


def summary_tables(record: Record) -> list[Table]:
    """A table for each data set of such a record."""
    if record.kind != KIND:
        raise RecordError(f"The record is of {record.kind!r}, and the table is made from one of {KIND!r}.")
    tables = []
    for data in dict.fromkeys(row["data"] for row in record.rows):
        rows = [row for row in record.rows if row["data"] == data]
        notes = Notes()
        columns = {name: title for name, title in _HEADINGS.items() if any(_there(row.get(name)) for row in rows)}
        lines = [(f"{row['function']}, {row['form']}", *(_cell(row, name, notes) for name in columns)) for row in rows]
        many = max(row["checkpoints"] for row in rows)
        over = f", mean ± standard deviation over {many} seeds" if many > 1 else ""
        tables.append(
            Table(
                title=f"{rows[0]['network'].upper()} on {data}{over}",
                head=("", *columns.values()),
                rows=lines,
                remarks=notes.sentences(),
                markup=True,
            )
        )
    return tables


def _there(value: Any) -> bool:
    """Whether there is anything to show: a column that was run for no network is left out."""
    return value is not None and not (isinstance(value, Mapping) and "not_run" in value)


def _cell(row: Mapping[str, Any], name: str, notes: Notes) -> str:
    value = row.get(name)
    if value is None:
        return "–"
    if isinstance(value, Quantity):
        return value.text(0) if value.unit == "µs" else f"{value.text(2)}%"
    for word in ("refused", "not_run"):
        if word in value:
            return f"{word.replace('_', ' ')} [{notes.number(value[word])}]"
    return f"{value[PROVED]} of {value['points']}"
