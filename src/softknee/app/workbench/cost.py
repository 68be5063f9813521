"""What a function costs on this machine, beside ReLU and GELU of torch, in turns with them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from ...errors import SoftkneeError
from ...lab.bench.candidates import Candidate, candidates_for, too_large
from ...lab.bench.clock import Clock, Samples, cpu_threads, why_not
from ...measure.record import Quantity
from ...spec import Activation
from .export import as_file
from .reading import read

ELEMENTS = 2**20
# Where half of the rounds lie further apart than this share of their median, the machine is busy with something else.
WIDEST = 0.4
_RIVALS = {"relu": F.relu, "gelu": F.gelu}


def cost(query: dict[str, Any]) -> dict[str, Any]:
    """Time of a call, and of one with its backward pass, as multiples of torch's GELU in the same round."""
    function = read(query.get("function"))
    like: dict[str, Any] = {"device": torch.device("cpu"), "dtype": torch.float32}
    with tempfile.TemporaryDirectory() as folder:
        name = function.act.name
        if not function.is_named:
            assert isinstance(function.act, Activation)
            name = str(Path(folder) / "function.json")
            Path(name).write_text(as_file(function), encoding="utf-8")
        (ours,) = candidates_for(name, variants=("softknee eager",), **like)
    candidates = [Candidate(function=name, variant="torch", call=call) for name, call in _RIVALS.items()] + [ours]
    x = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(0)).requires_grad_()
    if (refusal := too_large(ours, x)) is not None:
        raise SoftkneeError(f"Its cost could not be measured. {refusal}")
    with cpu_threads(1):
        forward, step = _race(candidates, x)
    rows = [
        {"name": candidate.function, "ours": candidate is ours, "forward": _numbers(first), "step": _numbers(second)}
        for candidate, first, second in zip(candidates, forward, step, strict=True)
    ]
    widths = [(quantity.high - quantity.low) / quantity.value for quantity in (*forward, *step)]
    return {"rows": rows, "elements": ELEMENTS, "busy": max(widths) > WIDEST}


def _race(candidates: list[Candidate], x: torch.Tensor) -> tuple[list[Quantity], list[Quantity]]:
    """The ratios of each to GELU's, round by round: forward, and forward with backward."""
    plain, ones = x.detach(), torch.ones_like(x)
    forwards = [torch.no_grad()(lambda candidate=candidate: candidate.forward(plain)) for candidate in candidates]
    steps = [
        lambda candidate=candidate: torch.autograd.grad(candidate.forward(x), [x, *candidate.parameters.values()], ones)
        for candidate in candidates
    ]
    results = Clock(device=plain.device, repeats=25, seconds_per_call=0.5).race([*forwards, *steps])
    if failures := [why_not(result) for result in results if isinstance(result, Exception)]:
        raise SoftkneeError(f"Its cost could not be measured. {failures[0]}")
    times = [result.device for result in results if isinstance(result, Samples)]
    unit = list(_RIVALS).index("gelu")
    both = times[: len(candidates)], times[len(candidates) :]
    first, second = (
        [Quantity.median([a / b for a, b in zip(row, part[unit], strict=False)], unit="x gelu") for row in part]
        for part in both
    )
    return first, second


def _numbers(quantity: Quantity) -> dict[str, float]:
    return {"value": quantity.value, "low": quantity.low, "high": quantity.high}
