"""Lays a deploy check out as a table: one line per quantity, a column for the model before and one for after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...measure.machine import Hardware
from ...measure.result_table import ResultTable
from .marabou_check import COUNTEREXAMPLE, PROVED, TIMEOUT, UNDECIDED, RobustnessCheck
from .report import DeployReport, ModelReport
from .tools import NotRun, Refused

T = TypeVar("T")


def deploy_table(report: DeployReport) -> ResultTable:
    """The table of a report, with the reasons of what did not run below it."""
    notes = _Notes()
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
        line(f"  APoZ of layer {name}", part("layers", lambda found, name=name: _apoz(found, name)))
    line(f"accuracy without {share} of units", lambda _: "")
    for way in ("by APoZ", "by size", "at random"):
        line(
            f"  {way}",
            part(f"pruned_{way.replace(' ', '_').lower()}", lambda check: f"{check.accuracy_after.text(2)}%"),
        )
    line("  parameters left (by size)", part("pruned_by_size", lambda check: f"{check.parameters_after:,}"))
    line(f"proved robust, eps {report.settings['eps']:g}", part("robustness", _proved))
    line("  counterexample / timeout / undecided", part("robustness", _others))
    return ResultTable(
        title=report.settings["title"],
        header=("", report.before.name, report.after.name),
        lines=tuple(lines),
        remarks=(*notes.sentences(), *_remarks(report)),
    )


class _Notes:
    """Reasons by number, so that a cell can be short."""

    def __init__(self) -> None:
        self.reasons: dict[str, int] = {}

    def cell(self, value: T | NotRun | Refused, show: Callable[[T], str]) -> str:
        if isinstance(value, NotRun):
            return f"not run [{self._number(value.reason)}]"
        if isinstance(value, Refused):
            return f"refused [{self._number(value.sentence + '.')}]"
        return show(value)

    def _number(self, reason: str) -> int:
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
