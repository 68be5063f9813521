"""What act(a) * b costs: time and memory, beside eager torch, torch.compile and Liger-Kernel."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import softknee as sk

from ...measure.record import Record
from ..table import Table
from .clock import Clock, check_names, check_settings, chosen_settings, put_time
from .speed import DTYPES

Gate = Callable[[Tensor, Tensor], Tensor]
# The definition of ours, torch's function, and the module and class of Liger-Kernel.
KINDS: Mapping[str, tuple[str, Callable[[Tensor], Tensor], str, str]] = {
    "swiglu": ("silu", F.silu, "liger_kernel.ops.swiglu", "LigerSiLUMulFunction"),
    "geglu": ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), "liger_kernel.ops.geglu", "LigerGELUMulFunction"),
}
BASELINE = "act(a) * b in eager torch, measured in turns in the same run"
_FEATURES = 512


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure: `tokens` rows of `hidden` numbers."""

    device: torch.device
    tokens: int = 16384
    hidden: int = 3072
    dtype: str = "bf16"
    repeats: int = 25
    seconds_per_call: float = 2.0

    def __post_init__(self) -> None:
        check_settings(self, "tokens", "hidden", "repeats")
        check_names([self.dtype], DTYPES, "dtype")


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Time every kind of gate in every way there is; Liger-Kernel where it is installed."""
    rows = [row for kind in KINDS for row in _rows(settings, kind, report)]
    return Record.now(
        "bench gated",
        command=command,
        rows=rows,
        baseline=BASELINE,
        settings=chosen_settings(settings, "tokens", "hidden", "dtype", "repeats", "seconds_per_call"),
        notes=(
            "forward runs without autograd; forward_backward yields the gradients of a and b",
            f"held and peak are of a block Linear({_FEATURES}, hidden) twice, gate, Linear(hidden, {_FEATURES}), in "
            "tensors of the hidden size: after the forward pass, and at most in a whole step",
        ),
    )


def _ways(kind: str, device: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Gate | str]]:
    """The name of each way, and the function or why there is none."""
    activation, plain, module, name = KINDS[kind]

    def eager(a: Tensor, b: Tensor) -> Tensor:
        return plain(a) * b

    yield "torch eager", eager
    yield "torch compiled", torch.compile(eager)
    for label, inplace in (("softknee", False), ("softknee inplace", True)):
        yield label, sk.nn.Gated(activation, inplace=inplace, device=device, dtype=dtype)
    try:
        yield "liger", getattr(importlib.import_module(module), name).apply
    except ImportError as error:
        yield "liger", f"{error.name} is not installed."


def _rows(settings: Settings, kind: str, report: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    report(kind)
    like = {"device": settings.device, "dtype": DTYPES[settings.dtype]}
    generator = torch.Generator(device=settings.device).manual_seed(0)
    a, b, g = torch.randn(3, settings.tokens, settings.hidden, generator=generator, **like)
    ways = dict(_ways(kind, **like))
    calls = {name: gate for name, gate in ways.items() if not isinstance(gate, str)}
    clock = Clock(device=settings.device, repeats=settings.repeats, seconds_per_call=settings.seconds_per_call)
    forwards = [torch.no_grad()(lambda gate=gate: gate(a, b)) for gate in calls.values()]
    leaves = [(a.clone().requires_grad_(), b.clone().requires_grad_()) for _ in calls]
    steps = [
        lambda gate=gate, pair=pair: torch.autograd.grad(gate(*pair), pair, g)
        for gate, pair in zip(calls.values(), leaves, strict=True)
    ]
    timed = clock.race([*forwards, *steps])
    results = dict(zip(calls, zip(timed[: len(calls)], timed[len(calls) :], strict=True), strict=True))
    for name, gate in ways.items():
        row: dict[str, Any] = {"kind": kind, "variant": name}
        if isinstance(gate, str):
            yield row | {"not_run": gate}
            continue
        for key, samples in zip(("forward", "forward_backward"), results[name], strict=True):
            put_time(row, key, samples)
        yield row | (_memory(gate, settings, like) if settings.device.type == "cuda" else {})


def _memory(gate: Gate, settings: Settings, like: Mapping[str, Any]) -> dict[str, float]:
    """What a block holds after its forward pass, and at most in a step, counted in tensors of the hidden size."""
    first, second = (nn.Linear(_FEATURES, settings.hidden, **like) for _ in range(2))
    down = nn.Linear(settings.hidden, _FEATURES, **like)
    x = torch.randn(settings.tokens, _FEATURES, **like)
    unit = settings.tokens * settings.hidden * x.element_size()
    held = peak = 0
    for _ in range(2):  # the first time torch sets its libraries up
        torch.cuda.synchronize(settings.device)
        torch.cuda.reset_peak_memory_stats(settings.device)
        before = torch.cuda.memory_allocated(settings.device)
        y = down(gate(first(x), second(x)))
        held = torch.cuda.memory_allocated(settings.device) - before
        y.sum().backward()
        del y
        peak = torch.cuda.max_memory_allocated(settings.device) - before
        for layer in (first, second, down):
            layer.zero_grad(set_to_none=True)
    return {"held": held / unit, "peak": peak / unit}


def tables(record: Record) -> list[Table]:
    """One line for each kind and way, with the ratio to eager torch."""
    rows, units = [], {row["kind"]: row for row in record.rows if row["variant"] == "torch eager"}
    for row in record.rows:
        if "not_run" in row:
            rows.append((row["kind"], row["variant"], row["not_run"], "", "", ""))
            continue
        times = [
            f"{row[key].value:.3f} ({row[key].value / units[row['kind']][key].value:.2f}x)"
            for key in ("forward", "forward_backward")
        ]
        memory = [f"{row[key]:.2f}" if key in row else "-" for key in ("held", "peak")]
        rows.append((row["kind"], row["variant"], *times, *memory))
    settings = record.settings
    title = f"{settings['tokens']} x {settings['hidden']}, {settings['dtype']}"
    head = ("kind", "way", "forward, ms", "forward+backward, ms", "held", "peak")
    remarks = [*record.notes, f"{record.hardware.sentence()}; {record.versions.sentence()}; {record.created}."]
    return [Table(title=title, head=head, rows=rows, remarks=remarks)]
