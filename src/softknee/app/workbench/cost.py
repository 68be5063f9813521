"""What a function costs on this machine, beside ReLU and GELU of torch, in the units of `softknee bench kernels`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from ...errors import SoftkneeError
from ...lab.bench.speed import Settings, measure
from ...measure.record import Quantity
from ...spec import Activation
from .export import as_file
from .reading import read

ELEMENTS = 2**20
_RIVALS = ("relu", "gelu")


def cost(query: dict[str, Any]) -> dict[str, Any]:
    """Time of a call and of a training step as multiples of copying the tensor; parameters do not change it."""
    function = read(query.get("function"))
    with tempfile.TemporaryDirectory() as folder:
        name = function.act.name
        if not function.is_named:
            assert isinstance(function.act, Activation)
            name = str(Path(folder) / "function.json")
            Path(name).write_text(as_file(function), encoding="utf-8")
        settings = Settings(
            device=torch.device("cpu"),
            elements=ELEMENTS,
            dtypes=("f32",),
            functions=(name,),
            variants=("softknee eager", "torch"),
            repeats=9,
            seconds_per_call=0.5,
            threads=1,
        )
        rows = measure(settings, command="softknee workbench").rows
    costs = [cost for row in rows if (cost := _row(row)) is not None]
    if not any(cost["ours"] for cost in costs):
        reasons = [str(row["not_run"]) for row in rows if "not_run" in row]
        raise SoftkneeError(f"Its cost could not be measured. {' '.join(reasons)}".strip())
    return {"rows": costs, "elements": ELEMENTS}


def _row(row: Any) -> dict[str, Any] | None:
    forward, step = row.get("forward"), row.get("forward_backward")
    ours = row["variant"].startswith("softknee")
    if not isinstance(forward, Quantity) or not isinstance(step, Quantity):
        return None
    if not ours and row["function"] not in _RIVALS:
        return None
    return {"name": row["function"], "ours": ours, "forward": forward.value, "step": step.value}
