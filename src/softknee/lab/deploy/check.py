"""The deploy check: what quantisation, pruning and verification make of a model before and after it became ReLU."""

from __future__ import annotations

import copy
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError
from ...measure.machine import Hardware
from ...measure.record import Quantity, Record, RecordError
from ...nn.parameters import Parameterised
from ...surgery import relu_ize_, sites, swap_
from ...version import VERSION
from ..checkpoint import Checkpoint, CheckpointError, load_checkpoint
from ..data.images import load_split
from ..fits.runs import read_run
from ..networks import OF_ROWS
from ..studies.store import STUDY
from ..table import Table
from .layers import BATCH, Layer, NotRun, Refused, activation_layers, attempt, attempt_with, layers, tool_versions
from .marabou_check import COUNTEREXAMPLE, PROVED, TIMEOUT, UNDECIDED, RobustnessCheck, check_robustness
from .onnx_check import Exported, Int8Check, OnnxCheck, Quantised, check_onnx, export, quantise, race, seven_bits
from .pruning_check import AT_RANDOM, BY_APOZ, BY_SIZE, PruningCheck, check_pruning, count_parameters

T = TypeVar("T")


def deploy_table(report: DeployReport) -> Table:
    """The table of a report, with the reasons of what did not run below it."""
    notes, settings = Notes(), report.settings
    lines: list[tuple[str, ...]] = []

    def line(label: str, cell: Callable[[ModelReport], str]) -> None:
        lines.append((label, *(cell(model) for model in report.models)))

    def part(label: str, name: str, cell: Callable[[Any], str]) -> None:
        line(label, lambda model: notes.cell(getattr(model, name), cell))

    def counts(names: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in names.items())

    def micro(time: Quantity) -> str:
        return f"{1e6 * time.value:,.0f} ± {1e6 * time.spread:,.0f}"

    line("activations", lambda model: counts(model.activations))
    line("accuracy", lambda model: f"{model.accuracy:.2f}%")
    line("parameters", lambda model: f"{model.parameters:,}")
    part("ONNX operators", "onnx", lambda check: counts(check.operators))
    part("  not in the standard", "onnx", lambda check: ", ".join(check.foreign) or "none")
    part("  onnxruntime - torch, at most", "onnx", lambda check: f"{check.difference:.1e}")
    part("accuracy in int8", "int8", lambda check: f"{check.accuracy_int8:.2f}%")
    part(f"  float, µs for {settings['batch']}", "int8", lambda check: micro(check.latency_float))
    part(f"  int8, µs for {settings['batch']}", "int8", lambda check: micro(check.latency_int8))
    sizes = "{:,.0f} / {:,.0f}".format
    part("  float / int8, KiB", "int8", lambda check: sizes(check.bytes_float / 1024, check.bytes_int8 / 1024))
    part("  what runs in int8", "int8", lambda check: counts(check.runs_int8))
    line("exact zeros", lambda model: notes.cell(model.layers, lambda _: f"{100 * (model.zeros or 0.0):.2f}%"))
    measured = [layer.name for model in report.models if isinstance(model.layers, tuple) for layer in model.layers]
    for name in dict.fromkeys(measured):
        part(f"  APoZ of layer {name}", "layers", lambda layers, name=name: _apoz(layers, name))
    line(f"accuracy without {100 * settings['share']:g}% of units", lambda _: "")
    for way in ("by APoZ", "by size", "at random"):
        name = f"pruned_{way.replace(' ', '_').lower()}"
        part(f"  {way}", name, lambda check: f"{check.accuracy_after.text(2)}%")
    part("  parameters left (by size)", "pruned_by_size", lambda check: f"{check.parameters_after:,}")
    part(
        f"proved robust, eps {settings['eps']:g}",
        "robustness",
        lambda check: f"{check.count(PROVED)} of {len(check.points)}, {check.time.text(2)} s each",
    )
    others = (COUNTEREXAMPLE, TIMEOUT, UNDECIDED)
    part(f"  {' / '.join(others)}", "robustness", lambda check: " / ".join(str(check.count(each)) for each in others))
    plural = "s" if settings["threads"] > 1 else ""
    remarks = [
        f"{settings['test']:,} test images, {settings['calibration']:,} to calibrate and to rank units. Times are "
        f"medians ± half the interquartile range over {settings['repeats']} batches, {settings['threads']} thread"
        f"{plural}; nothing is trained after pruning.",
        "APoZ: the mean over the units of a layer of the share of their outputs that are exactly 0 on the test images. "
        "Every counterexample was run in torch and changes the class; proofs are up to Marabou's tolerances.",
        Hardware.here().sentence() + ".",
    ]
    head = ("", report.before.name, report.after.name)
    remarks = [*notes.sentences(), *remarks]
    return Table(title=settings["title"], head=head, rows=lines, remarks=remarks, markup=True)


class Notes:
    """Reasons by number, so that a cell can be short."""

    def __init__(self) -> None:
        self.reasons: dict[str, int] = {}

    def cell(self, value: T | NotRun | Refused, show: Callable[[T], str]) -> str:
        if isinstance(value, NotRun):
            return f"not run [{self.number(value.reason)}]"
        if isinstance(value, Refused):
            return f"refused [{self.number(value.sentence + '.')}]"
        return show(value)

    def number(self, reason: str) -> int:
        """The number of a reason, the same for the same words."""
        return self.reasons.setdefault(reason, len(self.reasons) + 1)

    def sentences(self) -> list[str]:
        return [f"[{number}] {reason}" for reason, number in self.reasons.items()]


def _apoz(layers: Sequence[Layer], name: str) -> str:
    for layer in layers:
        if layer.name == name:
            dead = int((layer.zeros == 1).sum())
            always = f", {dead} of {len(layer.zeros)} always 0" if dead else ""
            return f"{100 * float(layer.zeros.mean()):.2f}%{always}"
    return "-"


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """The results of all checks of one model; a check without a result is a `NotRun` with its reason."""

    name: str
    activations: Mapping[str, int]
    accuracy: float
    parameters: int
    onnx: OnnxCheck | NotRun
    int8: Int8Check | NotRun
    layers: tuple[Layer, ...] | NotRun
    pruned_by_apoz: PruningCheck | NotRun
    pruned_by_size: PruningCheck | NotRun
    pruned_at_random: PruningCheck | NotRun
    robustness: RobustnessCheck | Refused | NotRun

    @property
    def zeros(self) -> float | None:
        """The share of all outputs of activation layers that are exactly 0."""
        if isinstance(self.layers, NotRun):
            return None
        weights = sum(layer.elements for layer in self.layers)
        return sum(float(layer.zeros.mean()) * layer.elements for layer in self.layers) / weights


@dataclass(frozen=True, kw_only=True)
class DeployReport:
    """Both models, side by side."""

    before: ModelReport
    after: ModelReport
    settings: Mapping[str, Any]
    seed: int

    @property
    def models(self) -> tuple[ModelReport, ModelReport]:
        """The network as it was, and the one with ReLU."""
        return self.before, self.after

    def record(self, *, command: str) -> Record:
        """Everything measured, with hardware, versions and settings; one row per model and check."""
        return Record.now(
            "deploy check",
            command=command,
            rows=[row for model in self.models for row in _rows(model)],
            seeds=(self.seed,),
            settings={**self.settings, "tools": tool_versions()},
            baseline="the model before, checked beside the one after in the same run",
        )

    def markdown(self) -> str:
        """The table as Markdown."""
        return deploy_table(self).markdown()


def _rows(model: ModelReport) -> list[dict[str, Any]]:
    first = {"model": model.name, "check": "model", "activations": model.activations}
    rows = [{**first, "accuracy": model.accuracy, "parameters": model.parameters}]
    checks: dict[str, Any] = {
        "onnx": model.onnx,
        "int8": model.int8,
        "zeros": model.layers,
        "pruned by APoZ": model.pruned_by_apoz,
        "pruned by size": model.pruned_by_size,
        "pruned at random": model.pruned_at_random,
        "robustness": model.robustness,
    }
    for name, check in checks.items():
        head = {"model": model.name, "check": name}
        if isinstance(check, NotRun):
            rows.append({**head, "not_run": check.reason})
        elif isinstance(check, Refused):
            rows.append({**head, "refused": check.message, "tool": check.tool})
        elif isinstance(check, RobustnessCheck):
            rows.append({**head, **_robustness(check)})
        elif isinstance(check, tuple):
            rows.append({**head, "zeros": model.zeros, "layers": [_layer(layer) for layer in check]})
        else:
            rows.append({**head, **vars(check)})
    return rows


def _layer(layer: Layer) -> dict[str, Any]:
    quartiles = layer.zeros.quantile(layer.zeros.new_tensor([0.0, 0.25, 0.5, 0.75, 1.0])).tolist()
    return {
        "layer": layer.name,
        "function": layer.function,
        "units": len(layer.zeros),
        "apoz_mean": float(layer.zeros.mean()),
        "apoz_quartiles": quartiles,
        "units_always_zero": int((layer.zeros == 1).sum()),
        "units_ever_zero": int((layer.zeros > 0).sum()),
        "mean_size": float(layer.size.mean()),
    }


def _robustness(check: RobustnessCheck) -> dict[str, Any]:
    return {
        "eps": check.eps,
        "points": len(check.points),
        **{verdict: check.count(verdict) for verdict in (PROVED, COUNTEREXAMPLE, TIMEOUT, UNDECIDED)},
        "seconds_per_point_at_most": check.seconds_per_point,
        "time": check.time,
        "reading_difference": check.reading,
        "verdicts": [
            {key: value for key, value in asdict(point).items() if value is not None} for point in check.points
        ],
    }


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
    # Test points that both models have right, drawn without replacement.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    right = (logits[0].argmax(dim=1) == labels) & (logits[1].argmax(dim=1) == labels)
    chosen = order[right[order]][:points].tolist()

    exports: list[Exported | NotRun] = []
    quantised: list[Quantised | NotRun] = []
    for model, name in zip(models, names, strict=True):
        report(f"{name}: ONNX")
        exports.append(attempt(lambda model=model: export(model, images[:2]), what="The export to ONNX"))
        report(f"{name}: int8")
        quantised.append(
            attempt_with(exports[-1], lambda ready: quantise(ready, calibration, threads=threads), what="Quantisation")
        )
    timed = race(quantised, images, labels, batch=batch, repeats=repeats, accuracy=_accuracy)

    reports = []
    for model, name, exported, int8, scores in zip(models, names, exports, timed, logits, strict=True):
        report(f"{name}: zeros and pruning")
        accuracy = _accuracy(scores, labels)
        prune = partial(
            check_pruning,
            model,
            example=images[:2],
            share=share,
            evaluate=lambda pruned: _accuracy(_logits(pruned, images, labels), labels),
            accuracy_before=accuracy,
            seed=seed,
        )
        units = attempt(lambda model=model: layers(model, calibration), what="Counting zeros")
        by_apoz, by_size, at_random = (
            attempt_with(units, lambda units, way=way, prune=prune: prune(units, criterion=way), what="Pruning")
            for way in (BY_APOZ, BY_SIZE, AT_RANDOM)
        )
        report(f"{name}: robustness")
        prove = partial(
            check_robustness, model, images=images, labels=labels, eps=eps, chosen=chosen, seconds=seconds_per_point
        )
        reports.append(
            ModelReport(
                name=name,
                activations=Counter(type(module).__name__ for module, _ in activation_layers(model).values()),
                accuracy=accuracy,
                parameters=count_parameters(model),
                onnx=attempt_with(
                    exported,
                    lambda ready, scores=scores: check_onnx(ready, images, scores),
                    what="Running the exported model",
                ),
                int8=int8,
                layers=attempt(lambda model=model: tuple(layers(model, images)), what="Counting zeros") or _NO_LAYERS,
                pruned_by_apoz=by_apoz,
                pruned_by_size=by_size,
                pruned_at_random=at_random,
                robustness=attempt_with(
                    exported if chosen or isinstance(exported, NotRun) else _NO_POINTS,
                    lambda ready, prove=prove: prove(exported=ready),
                    what="The proof of robustness",
                ),
            )
        )
    settings = {"title": title, "test": len(images), "calibration": len(calibration), "share": share, "points": points}
    settings |= {"eps": eps, "seconds_per_point": seconds_per_point, "batch": min(batch, len(images))}
    settings |= {"repeats": repeats, "threads": threads, "bits_of_weights": 7 if seven_bits() else 8}
    settings["quantisation"] = "static, QDQ, uint8 activations, int8 weights per channel"
    return DeployReport(before=reports[0], after=reports[1], seed=seed, settings=settings)


_NO_LAYERS = NotRun(reason="No activation module was called: functions called inside a forward cannot be watched.")
_NO_POINTS = NotRun(reason="points is 0, or there is no test point that both models classify rightly.")


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
    checkpoint: str | os.PathLike[str] | Checkpoint,
    *,
    data: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> DeployReport:
    """Load a checkpoint and the data of its task, put ReLU into a copy, and check both.

    Args:
        checkpoint: its folder, or one that is loaded already.
        data: the folder of the data sets; the digits need none.
        options: of `deploy_check`, such as points and eps.
    """
    if not isinstance(checkpoint, Checkpoint):
        report("loading")
        checkpoint = load_checkpoint(checkpoint)
    name = checkpoint.task.get("data")
    if not isinstance(name, str):
        raise CheckpointError(
            "The checkpoint does not say what data it was trained on; save it with task={'data': 'digits'} or the "
            "like, or call deploy_check with your own images."
        )
    split = load_split(name, data, flat=checkpoint.builder in OF_ROWS)
    return deploy_check(
        checkpoint.model,
        relu_copy(checkpoint.model, split.test_images[:2]),
        images=split.test_images,
        labels=split.test_labels,
        calibration=split.train_images[:MOST_CALIBRATION],
        title=f"{checkpoint.builder} on {split.name}, as saved and with ReLU",
        names=("as saved", "with ReLU"),
        report=report,
        **options,
    )


def relu_copy(model: nn.Module, example: Tensor) -> nn.Module:
    """A copy in which plain torch modules stand for all smooth relatives of ReLU; no weight changes.

    Softknee's activations become their hard limit; torch's and others' own (GELU, SiLU, ...) become ReLU. Whatever is
    neither stays.

    >>> import torch
    >>> relu_copy(nn.Sequential(nn.Linear(2, 3), nn.GELU()), torch.zeros(2, 2))[1]
    ReLU()
    """
    replaced = copy.deepcopy(model)
    own = {path for path, module in replaced.named_modules() if isinstance(module, Parameterised)}
    smooth = [site for site in sites(replaced, example) if site.activation in _SMOOTH]
    foreign = [site.path for site in smooth if site.kind != "module" or site.path not in own]
    if foreign:
        swap_(replaced, "relu", where=lambda site: site.path in foreign, example=example)
    if any(isinstance(module, Parameterised) for module in replaced.modules()):
        relu_ize_(replaced, tolerance=math.inf)  # its cost is what is measured
    if not any(isinstance(module, nn.ReLU) for module in replaced.modules()):
        raise InputError(
            f"{type(model).__name__} has no activation that ReLU could stand for; put one in with sk.swap_ first."
        )
    return replaced


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
        checked = check_checkpoint(
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
    groups: dict[tuple[str, str, str], list[Checked]] = {}
    for checkpoint in checked:
        groups.setdefault((checkpoint.data, checkpoint.network, checkpoint.activation), []).append(checkpoint)
    rows = []
    for (data, network, activation), group in groups.items():
        for models in zip(*(checkpoint.report.models for checkpoint in group), strict=True):
            row = {"data": data, "network": network, "function": activation, "form": models[0].name}
            row |= {"checkpoints": len(models), "activations": dict(models[0].activations)}
            rows.append(row | _figures(models))
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


def _figures(models: Sequence[ModelReport]) -> dict[str, Any]:
    """The numbers over the models, and in the place of those that there are not, why."""

    def over(part: str, summarise: Callable[[list[Any]], Any]) -> Any:
        checks = [getattr(model, part) for model in models]
        for check in checks:
            if isinstance(check, Refused):
                return {"refused": check.sentence}
        missing = next((check for check in checks if isinstance(check, NotRun)), None)
        return summarise(checks) if missing is None else {"not_run": missing.reason}

    def mean(part: str, read: Callable[[Any], float], unit: str) -> Any:
        return over(part, lambda checks: Quantity.mean([read(check) for check in checks], unit=unit))

    def proved(checks: Sequence[RobustnessCheck]) -> dict[str, Any]:
        verdicts = sorted({point.verdict for check in checks for point in check.points})
        counts = {verdict: sum(check.count(verdict) for check in checks) for verdict in verdicts}
        return {"points": sum(len(check.points) for check in checks), "eps": checks[0].eps, PROVED: 0, **counts}

    # Units are ranked by how often they are 0 where that says anything, else by size.
    way = "size" if isinstance(models[0].pruned_by_apoz, NotRun) else "apoz"
    zeros = [100 * model.zeros for model in models if model.zeros is not None]
    return {
        "accuracy": Quantity.mean([model.accuracy for model in models], unit="%"),
        "parameters": models[0].parameters,
        "operators": over("onnx", lambda checks: dict(checks[0].operators)),
        "standard_operators": over("onnx", lambda checks: not checks[0].foreign),
        "onnxruntime_difference": over("onnx", lambda checks: max(check.difference for check in checks)),
        "accuracy_int8": mean("int8", lambda check: check.accuracy_int8, "%"),
        "latency_float": mean("int8", lambda check: 1e6 * check.latency_float.value, "µs"),
        "latency_int8": mean("int8", lambda check: 1e6 * check.latency_int8.value, "µs"),
        **({"zeros": Quantity.mean(zeros, unit="%")} if len(zeros) == len(models) else {}),
        "pruned_by": way,
        "pruned": mean(f"pruned_by_{way}", lambda check: check.accuracy_after.value, "%"),
        "pruned_at_random": mean("pruned_at_random", lambda check: check.accuracy_after.value, "%"),
        "proved": over("robustness", proved),
    }


def summary_tables(record: Record) -> list[Table]:
    """A table for each data set of such a record."""
    if record.kind != KIND:
        raise RecordError(f"The record is of {record.kind!r}, and the table is made from one of {KIND!r}.")
    tables = []
    for data in dict.fromkeys(row["data"] for row in record.rows):
        rows = [row for row in record.rows if row["data"] == data]
        notes = Notes()
        # A column that was run for no network is left out.
        ran = [{n: v for n, v in row.items() if not (isinstance(v, Mapping) and "not_run" in v)} for row in rows]
        shown = {name for row in ran for name, value in row.items() if value is not None}
        columns = {name: title for name, title in _HEADINGS.items() if name in shown}
        lines = [(f"{row['function']}, {row['form']}", *(_cell(row, name, notes) for name in columns)) for row in rows]
        many = max(row["checkpoints"] for row in rows)
        over = f", mean ± standard deviation over {many} seeds" if many > 1 else ""
        title, head = f"{rows[0]['network'].upper()} on {data}{over}", ("", *columns.values())
        tables.append(Table(title=title, head=head, rows=lines, remarks=notes.sentences(), markup=True))
    return tables


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
