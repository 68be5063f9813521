"""What a call of an activation costs its host, beside torch's own: modules, fixed and learned, and functions.

On a tensor so small that the host is what one waits for, many calls are made in a row: without gradients, with the
graph recorded, and forward and backward. Each sample stands beside one of torch's own function of the same kind, taken
right before it, because the clock of a host changes within seconds; the ratio is that of the pair. The floor stands
among them: torch's own GELU, which autograd calls through Python as it does every function that torch does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import softknee as sk

from ...measure.record import Quantity, Record
from ..table import Table
from .clock import check_names, check_settings, chosen_settings, cpu_threads, failures, now, why_not

FUNCTIONS = (
    *("relu", "gelu", "srelu", "smelu", "crrelu", "lambda_gelu", "swish", "softplus", "prelu", "generalized_smelu"),
)
SHAPE = (256, 768)
COLUMNS = {"no_grad": "without gradients", "grad": "with gradients", "step": "forward and backward"}
# What each kind of call is compared with, and the largest ratio that is aimed at.
REFERENCES = {"fixed": ("nn.GELU", 1.5), "learned": ("nn.PReLU", 1.5), "function": ("F.gelu", 2.0)}


FLOOR = "gelu from Python"


class _FromPython(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.ops.aten.gelu(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return torch.ops.aten.gelu_backward(*grads, *ctx.saved_tensors)


class GELUFromPython(nn.Module):
    """torch's GELU with the least that autograd needs in Python."""

    def forward(self, input: Tensor) -> Tensor:
        return _FromPython.apply(input)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure: which functions, how many calls in a row, how often."""

    device: torch.device
    functions: tuple[str, ...] = FUNCTIONS
    calls: int = 400
    repeats: int = 9
    threads: int = field(default_factory=torch.get_num_threads)

    def __post_init__(self) -> None:
        check_settings(self, "calls", "repeats", "threads")
        check_names(self.functions, sk.names(), "function")


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Time all of it; `report` is called with the name of each function first."""
    with cpu_threads(settings.threads):
        rows = [_row(settings, FLOOR, "fixed", GELUFromPython())]
        for name in settings.functions:
            report(name)
            act = sk.get(name)
            calls: dict[str, Callable[[Tensor], Tensor]] = {"fixed": sk.nn.make(name, learn=False).to(settings.device)}
            if act.params:
                calls["learned"] = sk.nn.make(name, learn=True).to(settings.device)
                numbers = {p.name: float(p.default) for p in act.params}
                calls["function"] = lambda x, act=act, numbers=numbers: act(x, **numbers)
            rows += [_row(settings, name, kind, call) for kind, call in calls.items()]
    return Record.now(
        "bench calls",
        command=command,
        rows=rows,
        baseline="nn.GELU for fixed modules, nn.PReLU for learned ones, F.gelu for functions, measured in turns",
        settings=chosen_settings(settings, "calls", "repeats", "threads") | {"shape": SHAPE, "dtype": "float32"},
        notes=(
            "microseconds of one call of many in a row, until the device has done them all",
            "forward and backward: module(x).backward(g), which adds to the gradients of x and of the parameters",
            "function: the definition with each parameter given as a number, such as srelu(x, delta=0.5)",
            f"{FLOOR}: torch's own kernels, called by a Function with nothing else in it",
        ),
    )


def _row(settings: Settings, name: str, kind: str, call: Callable[[Tensor], Tensor]) -> dict[str, Any]:
    own = {"nn.GELU": nn.GELU(), "nn.PReLU": nn.PReLU().to(settings.device), "F.gelu": F.gelu}
    title, _ = REFERENCES[kind]
    row: dict[str, Any] = {"function": name, "kind": kind, "reference": title}
    try:
        for column in COLUMNS:
            pairs = _samples(settings, column, own[title], call)
            for key, samples in zip((f"{column}_reference", column), zip(*pairs, strict=True), strict=True):
                row[key] = Quantity.median(samples, unit="us")
            row[f"{column}_ratio"] = Quantity.median([ours / theirs for theirs, ours in pairs], unit="x")
    except Exception as error:
        row["not_run"] = why_not(error)
    return row


def _samples(
    settings: Settings, column: str, reference: Callable[[Tensor], Tensor], call: Callable[[Tensor], Tensor]
) -> list[tuple[float, float]]:
    generator = torch.Generator(device=settings.device).manual_seed(0)
    like = {"device": settings.device, "generator": generator}
    x, g = torch.randn(SHAPE, **like), torch.randn(SHAPE, **like)
    if column != "no_grad":
        x.requires_grad_()

    def sample(function: Callable[[Tensor], Tensor]) -> float:
        start = now(settings.device)
        with torch.set_grad_enabled(column != "no_grad"):
            for _ in range(settings.calls):
                y = function(x)
                if column == "step":
                    y.backward(g)
        return 1e6 * (now(settings.device) - start) / settings.calls

    for function in (reference, call):
        sample(function)
    return [(sample(reference), sample(call)) for _ in range(settings.repeats)]


def tables(record: Record) -> list[Table]:
    """One line for each function and kind; a cell has the microseconds and the ratio to torch's own."""
    lines = []
    for row in record.rows:
        cells = [
            f"{row[column].value:.1f} ({row[f'{column}_ratio'].value:.2f})" if column in row else "not run"
            for column in COLUMNS
        ]
        lines.append((row["function"], row["kind"], *cells, row["reference"]))
    shape = " x ".join(map(str, record.settings["shape"]))
    where = record.hardware.gpu if record.settings["device"] == "cuda" else record.hardware.cpu
    aims = ", ".join(f"{limit:g} x {title}" for title, limit in REFERENCES.values())
    remarks = [f"In brackets the ratio to torch's own; aims: {aims}.", *failures(record, "function", "kind")]
    title = f"microseconds a call, {shape} in float32, {where}"
    head = ("function", "kind", *COLUMNS.values(), "compared with")
    return [Table(title=title, head=head, rows=lines, remarks=remarks, align="llrrrl")]
