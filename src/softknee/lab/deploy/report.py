"""The result of a deploy check, for the model before and after, as a record and as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from ...measure.machine import Hardware
from ...measure.record import Record
from ..table import Table
from .layers import Layer, NotRun, Refused, tool_versions
from .marabou_check import COUNTEREXAMPLE, PROVED, TIMEOUT, UNDECIDED, RobustnessCheck
from .onnx_check import Int8Check, OnnxCheck
from .pruning_check import PruningCheck

T = TypeVar("T")


def deploy_table(report: DeployReport) -> Table:
    """The table of a report, with the reasons of what did not run below it."""
    notes = Notes()
    share, batch = f"{100 * report.settings['share']:g}%", report.settings["batch"]
    lines: list[tuple[str, ...]] = []

    def line(label: str, cell: Callable[[ModelReport], str]) -> None:
        lines.append((label, *(cell(model) for model in report.models)))

    def part(name: str, cell: Callable[[Any], str]) -> Callable[[ModelReport], str]:
        return lambda model: notes.cell(getattr(model, name), cell)

    line("activations", lambda model: _counts(model.activations))
    line("accuracy", lambda model: _percent(model.accuracy))
    line("parameters", lambda model: f"{model.parameters:,}")
    line("ONNX operators", part("onnx", lambda check: _counts(check.operators)))
    line("  not in the standard", part("onnx", lambda check: ", ".join(check.foreign) or "none"))
    line("  onnxruntime - torch, at most", part("onnx", lambda check: f"{check.difference:.1e}"))
    line("accuracy in int8", part("int8", lambda check: _percent(check.accuracy_int8)))
    line(f"  float, µs for {batch}", part("int8", lambda check: _micro(check.latency_float)))
    line(f"  int8, µs for {batch}", part("int8", lambda check: _micro(check.latency_int8)))
    line("  float / int8, KiB", part("int8", lambda check: f"{_kib(check.bytes_float)} / {_kib(check.bytes_int8)}"))
    line("  what runs in int8", part("int8", lambda check: _counts(check.runs_int8)))
    line("exact zeros", lambda model: notes.cell(model.layers, lambda _: _percent(100 * (model.zeros or 0.0))))
    for name in dict.fromkeys(name for model in report.models for name in _layer_names(model)):
        line(f"  APoZ of layer {name}", part("layers", lambda layers, name=name: _apoz(layers, name)))
    line(f"accuracy without {share} of units", lambda _: "")
    for way in ("by APoZ", "by size", "at random"):
        line(
            f"  {way}",
            part(f"pruned_{way.replace(' ', '_').lower()}", lambda check: f"{check.accuracy_after.text(2)}%"),
        )
    line("  parameters left (by size)", part("pruned_by_size", lambda check: f"{check.parameters_after:,}"))
    line(f"proved robust, eps {report.settings['eps']:g}", part("robustness", _proved))
    line("  counterexample / timeout / undecided", part("robustness", _others))
    return Table(
        title=report.settings["title"],
        head=("", report.before.name, report.after.name),
        rows=lines,
        remarks=(*notes.sentences(), *_remarks(report)),
        markup=True,
    )


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


def _remarks(report: DeployReport) -> list[str]:
    settings = report.settings
    return [
        f"{settings['test']:,} test images, {settings['calibration']:,} to calibrate and to rank units. Times are "
        f"medians ± half the interquartile range over {settings['repeats']} batches, {settings['threads']} thread"
        f"{'s' if settings['threads'] > 1 else ''}; nothing is trained after pruning.",
        "APoZ: the mean over the units of a layer of the share of their outputs that are exactly 0 on the test images. "
        "Every counterexample was run in torch and changes the class; proofs are up to Marabou's tolerances.",
        Hardware.here().sentence() + ".",
    ]


def _layer_names(model: ModelReport) -> list[str]:
    return [] if isinstance(model.layers, NotRun) else [layer.name for layer in model.layers]


def _apoz(layers: Any, name: str) -> str:
    for layer in layers:
        if layer.name == name:
            dead = int((layer.zeros == 1).sum())
            return _percent(100 * float(layer.zeros.mean())) + (
                f", {dead} of {len(layer.zeros)} always 0" if dead else ""
            )
    return "-"


def _proved(check: RobustnessCheck) -> str:
    return f"{check.count(PROVED)} of {len(check.points)}, {check.time.text(2)} s each"


def _others(check: RobustnessCheck) -> str:
    return " / ".join(str(check.count(verdict)) for verdict in (COUNTEREXAMPLE, TIMEOUT, UNDECIDED))


def _counts(names: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in names.items())


def _percent(value: float) -> str:
    return f"{value:.2f}%"


def _micro(quantity: Any) -> str:
    return f"{1e6 * quantity.value:,.0f} ± {1e6 * quantity.spread:,.0f}"


def _kib(size: int) -> str:
    return f"{size / 1024:,.0f}"


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
