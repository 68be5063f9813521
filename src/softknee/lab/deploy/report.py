"""The result of a deploy check: what every tool said of the model before and after, as a record and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ...measure.record import Quantity, Record
from .int8_check import Int8Check
from .layers import Layer
from .marabou_check import COUNTEREXAMPLE, PROVED, TIMEOUT, UNDECIDED, RobustnessCheck
from .onnx_check import OnnxCheck
from .pruning_check import PruningCheck
from .tools import NotRun, Refused, tool_versions


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """What every check said of one model; a check without a result is a `NotRun` with its reason."""

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
        from .table import deploy_table

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
            rows.append({**head, "zeros": model.zeros, "layers": [_layer(one) for one in check]})
        else:
            rows.append({**head, **{key: _kept(value, check, key) for key, value in asdict(check).items()}})
    return rows


def _kept(value: Any, check: Any, key: str) -> Any:
    """`asdict` would take a quantity apart."""
    original = getattr(check, key)
    return original if isinstance(original, Quantity) else value


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
        "verdicts": [{key: value for key, value in asdict(one).items() if value is not None} for one in check.points],
    }
