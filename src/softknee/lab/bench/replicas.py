"""What a training step of M replicas costs, against M models trained one after the other by a plain loop.

Both train the same network on the same examples with SGD and momentum. They take turns: each round times one stretch
of steps of the plain loop and of every number of replicas, so that a change of load meets all of them alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ...errors import ParameterError
from ...measure.record import Quantity, Record
from ...nn import make as make_activation
from ...train import Replicas
from ..table import Table
from .clock import (
    check_counts,
    check_settings,
    chosen_settings,
    cpu_threads,
    failures,
    machine,
    matmul_precision,
    now,
    why_not,
)

LARGE, SMALL = (784, 1200, 1200, 10), (64, 128, 128, 10)  # the MNIST network of the SmeLU paper; one for the digits
_LR, _MOMENTUM = 0.01, 0.9


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The network by its widths and activation, how many replicas, and how long to measure."""

    device: torch.device
    counts: tuple[int, ...]
    widths: tuple[int, ...] = SMALL
    activation: str = "relu"
    batch: int = 32
    steps: int = 200
    repeats: int = 5
    threads: int = field(default_factory=torch.get_num_threads)
    precision: str = "highest"
    """Of products in float32: "highest", or "high" for TF32 where the GPU has it."""

    def __post_init__(self) -> None:
        check_settings(self, "batch", "steps", "repeats", "threads")
        check_counts(self.counts, "replicas")
        if self.precision not in ("highest", "high", "medium"):
            raise ParameterError(f"The precision of products is highest, high or medium, not {self.precision!r}.")
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise ParameterError(f"A network needs at least two widths, each at least 1, and has {self.widths}.")


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Time all of it; `report` is called with what is being done."""
    with matmul_precision(settings.precision), cpu_threads(settings.threads):
        rows = _rows(settings, report)
    return Record.now(
        "bench replicas",
        command=command,
        rows=rows,
        seeds=tuple(range(max(settings.counts))),
        baseline="one model in a plain loop (eager, torch.optim.SGD), measured in turns in the same run",
        settings=chosen_settings(settings, "counts", "widths", "activation", "batch", "steps", "repeats", "threads")
        | {"optimizer": f"SGD, momentum {_MOMENTUM}", "matmul_precision": settings.precision},
        notes=(
            "step is the wall time of an epoch of Replicas.fit divided by its steps, with the drawing of the order; "
            "on a GPU the step is a captured CUDA graph",
            "in_a_row is the step of the plain loop times the number of replicas; gain is in_a_row over step",
        ),
    )


def _rows(settings: Settings, report: Callable[[str], None]) -> list[dict[str, Any]]:
    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for wide, narrow in pairwise(settings.widths):
            # A plain loop would have torch's own ReLU.
            own = nn.ReLU() if settings.activation == "relu" else make_activation(settings.activation)
            layers += [nn.Linear(wide, narrow), own]
        return nn.Sequential(*layers[:-1])

    draw = torch.Generator().manual_seed(0)
    examples = settings.steps * settings.batch
    x = torch.randn(examples, settings.widths[0], generator=draw).to(settings.device)
    y = torch.randint(settings.widths[-1], (examples,), generator=draw).to(settings.device)
    report("building the models")
    model = make().to(settings.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR, momentum=_MOMENTUM)

    def plain_loop() -> float:
        """The milliseconds of a step."""
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1)).to(x.device)
        start = now(settings.device)
        for chosen in order.split(settings.batch):
            optimizer.zero_grad()
            F.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimizer.step()
        return 1e3 * (now(settings.device) - start) / settings.steps

    def epoch(replicas: Replicas) -> float:
        """The milliseconds of a step in the second of two epochs: the first also warms up and captures."""
        ends: list[float] = []
        options = {"epochs": 2, "batch": settings.batch, "lr": _LR, "momentum": _MOMENTUM}
        replicas.fit(x, y, on_epoch=lambda _: ends.append(now(settings.device)), **options)
        return 1e3 * (ends[1] - ends[0]) / settings.steps

    plain_loop()
    built: dict[int, Replicas | str] = {}
    times: dict[int, list[float]] = {count: [] for count in settings.counts}
    for count in settings.counts:
        try:
            built[count] = Replicas(make, count=count, device=settings.device)
        except torch.OutOfMemoryError:
            built[count] = "It ran out of memory."
    eager: list[float] = []
    for turn in range(settings.repeats):
        report(f"round {turn + 1} of {settings.repeats}: the plain loop")
        eager.append(plain_loop())
        for count, replicas in built.items():
            if isinstance(replicas, str):
                continue
            report(f"round {turn + 1} of {settings.repeats}: {count} replicas")
            try:
                times[count].append(epoch(replicas))
            except Exception as error:
                built[count] = why_not(error)
    rows: list[dict[str, Any]] = []
    for count, replicas in built.items():
        row: dict[str, Any] = {"count": count, "one_eager": Quantity.median(eager, unit="ms")}
        row["in_a_row"] = Quantity.median([count * step for step in eager], unit="ms")
        if isinstance(replicas, str):
            row["not_run"] = replicas
        else:
            row["step"] = Quantity.median(times[count], unit="ms")
            gains = [count * alone / step for alone, step in zip(eager, times[count], strict=True)]
            row["gain"] = Quantity.median(gains, unit="x")
        rows.append(row)
    return rows


def tables(record: Record) -> list[Table]:
    """One line for each number of replicas: a step of all, the same models in a row, and the gain."""
    settings = record.settings
    network = "-".join(map(str, settings["widths"]))
    lines = [
        (row["count"], "not run", row["in_a_row"].text(2), "")
        if "not_run" in row
        else (row["count"], row["step"].text(3), row["in_a_row"].text(2), f"{row['gain'].value:.1f}x")
        for row in record.rows
    ]
    alone = f"One model in a plain loop: {record.rows[0]['one_eager'].text(3)} ms a step."
    title = f"{network}, {settings['activation']}, batch {settings['batch']}, on {machine(record)}"
    head = ("replicas", "one step of all, ms", "plain loop, in a row, ms", "gain")
    return [Table(title=title, head=head, rows=lines, remarks=[*failures(record, "count"), alone], align="rrrr")]
