"""What an activation holds for the backward pass, and what saving its output in place of its input buys.

The block is Linear(features, hidden), activation, Linear(hidden, features), as transformers have it. Everything is
counted in tensors of the hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import softknee as sk

from ...measure.record import Record
from ..table import Table
from .clock import Clock, bytes_held, check_names, check_settings, chosen_settings, failures, machine, put_time
from .speed import DTYPES

FUNCTIONS = ("srelu(delta=0.5)", "smelu(beta=1)", "softplus", "elu", "gelu", "silu", "mish", "lambda_gelu")
BASELINE = "the block with nn.GELU, measured in turns in the same run"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure: functions by name, in a block of these sizes."""

    device: torch.device
    functions: tuple[str, ...] = FUNCTIONS
    tokens: int = 16384
    features: int = 768
    hidden: int = 3072
    dtype: str = "bf16"
    repeats: int = 25
    seconds_per_call: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self, "tokens", "features", "hidden", "repeats")
        check_names([self.dtype], DTYPES, "dtype")


class Checkpointed(nn.Module):
    """An activation that is computed again in the backward pass."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, input: Tensor) -> Any:
        return checkpoint(self.activation, input, use_reentrant=False)


def _activations(functions: tuple[str, ...]) -> Iterator[tuple[str, str, nn.Module | str]]:
    """Function, what is saved, and the module or why there is none."""
    yield "nn.ReLU", "output", nn.ReLU()
    yield "nn.GELU", "input", nn.GELU()
    yield "nn.GELU", "checkpointed", Checkpointed(nn.GELU())
    yield "nn.SiLU", "input", nn.SiLU()
    for name in functions:
        for save in ("input", "output"):
            try:
                yield name, save, sk.nn.make(name, learn=True, save=save)
            except sk.ParameterError as refusal:
                yield name, save, str(refusal)


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Count and time the block with every function, saving its input and its output."""
    like = {"device": settings.device, "dtype": DTYPES[settings.dtype]}
    torch.manual_seed(0)
    x = torch.randn(settings.tokens, settings.features, **like)
    unit = settings.tokens * settings.hidden * x.element_size()
    rows: list[dict[str, Any]] = []
    steps = []
    for name, save, activation in _activations(settings.functions):
        report(f"{name}, {save}")
        row: dict[str, Any] = {"function": name, "save": save}
        rows.append(row)
        if isinstance(activation, str):
            row["not_run"] = activation
            continue
        layers = (
            nn.Linear(settings.features, settings.hidden),
            activation,
            nn.Linear(settings.hidden, settings.features),
        )
        block = nn.Sequential(*layers).to(**like)
        row |= {key: count / unit for key, count in _memory(block, x).items()}
        steps.append((row, lambda block=block: _step(block, x)))
    report("timing")
    clock = Clock(device=settings.device, repeats=settings.repeats, seconds_per_call=settings.seconds_per_call)
    for (row, _), samples in zip(steps, clock.race([step for _, step in steps]), strict=True):
        put_time(row, "step", samples)
    return Record.now(
        "bench memory",
        command=command,
        rows=rows,
        seeds=(0,),
        baseline=BASELINE,
        settings=chosen_settings(settings, "tokens", "features", "hidden", "dtype", "repeats", "seconds_per_call"),
        notes=(
            "held and peak are in tensors of the hidden size: what autograd keeps after the forward pass, without "
            "parameters, and what CUDA's allocator had in use at most during a step",
            "step is forward and backward; parameters of activations are learned",
        ),
    )


def _step(block: nn.Module, x: Tensor) -> None:
    block.zero_grad(set_to_none=True)
    block(x).float().square().mean().backward()


def _memory(block: nn.Module, x: Tensor) -> dict[str, int]:
    memory = {"held": bytes_held(lambda: block(x), excluded=list(block.parameters()))}
    if x.is_cuda:
        for _ in range(2):  # the first time torch sets its libraries up
            block.zero_grad(set_to_none=True)
            torch.cuda.synchronize(x.device)
            torch.cuda.reset_peak_memory_stats(x.device)
            before = torch.cuda.memory_allocated(x.device)
            _step(block, x)
            memory["peak"] = torch.cuda.max_memory_allocated(x.device) - before
        block.zero_grad(set_to_none=True)
    return memory


def tables(record: Record) -> list[Table]:
    """One line for each function and what is saved, with the time as a ratio to nn.GELU's."""
    unit = next(row for row in record.rows if (row["function"], row["save"]) == ("nn.GELU", "input"))
    lines = []
    for row in record.rows:
        memory = [f"{row[key]:.2f}" if key in row else "-" for key in ("held", "peak")]
        time = f"{row['step'].text(3)} ({row['step'].value / unit['step'].value:.3f})" if "step" in row else "-"
        lines.append((row["function"], row["save"], *memory, time))
    settings = record.settings
    title = f"{settings['tokens']} x {settings['features']} to {settings['hidden']} and back, {settings['dtype']}"
    head = ("function", "saved", "held", "peak", "forward and backward, ms")
    remarks = [*failures(record, "function", "save"), *record.notes, f"Measured on {machine(record)}."]
    return [Table(title=title, head=head, rows=lines, remarks=remarks)]
