"""What is known of a trial so far, epoch by epoch, beside what its trainer keeps."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .scores import REGRESSION, finite_rows, judge, spread_out
from .sites import Followed
from .trainer import Trainer

Rows = list[list[float | None]]  # [epoch][seed]


@dataclass
class Progress:
    """Curves, divergence and the best epoch of each seed.

    After every epoch `passed` keeps, without waiting for the device, which models are still finite. `look` reads that,
    and dates what diverged. `note` looks, also at the predictions of the validation examples, and adds the epoch that
    has just ended to the curves.

    keep_best: keep the weights of the best epoch by validation: the highest accuracy, of equal ones the lowest loss.
    """

    count: int
    task: str
    keep_best: bool
    followed: Followed
    gradients: bool
    start: dict[str, list[float]]  # the followed parameters before training
    epochs: list[int] = field(default_factory=list)  # those that were noted
    curves: dict[str, Rows] = field(default_factory=dict)
    ways: dict[str, Rows] = field(default_factory=dict)
    diverged: list[int | None] = field(default_factory=list)
    best: list[list[float]] = field(default_factory=list)  # rank and epoch of each seed
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    unread: list[Tensor] = field(default_factory=list)  # of each epoch since the last look: who has finite weights, [M]
    seconds_before: float = 0.0
    begun: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.diverged = [None] * self.count
        self.best = [[-math.inf, -math.inf, 0] for _ in range(self.count)]

    @property
    def alive(self) -> list[int]:
        """The seeds that have not diverged."""
        return [seed for seed, epoch in enumerate(self.diverged) if epoch is None]

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.perf_counter() - self.begun

    def note(self, trainer: Trainer, *, steps: int, validation: tuple[Tensor, Tensor] | None) -> None:
        """Add the epoch that has just ended, which had so many steps."""
        self.look(trainer, steps=steps)
        outputs = None if validation is None else trainer.predict(validation[0])
        if outputs is not None:
            self._date(finite_rows(outputs), trainer.epoch)
        rows = self.alive
        self.epochs.append(trainer.epoch)
        self._add("train_loss", trainer.losses[-steps:].double().mean(dim=0), rows)
        if self.gradients:
            self._add("gradient_norm", trainer.gradient_norms[-steps:].double().mean(dim=0), rows)
        for name, values in self.followed.now(trainer).items():
            chosen = [values[row] for row in rows]
            self.ways.setdefault(name, []).append(list(spread_out(chosen, rows, self.count)))
        if outputs is not None and validation is not None:
            weights = trainer.weights() if self.keep_best else {}
            self._judge(outputs, validation[1], rows, weights, trainer.epoch)

    def passed(self, trainer: Trainer) -> None:
        """An epoch has ended. Nothing is read from the device here."""
        fine = torch.ones(self.count, dtype=torch.bool, device=trainer.device)
        for one in trainer.weights().values():
            if one.is_floating_point():
                fine &= one.reshape(self.count, -1).isfinite().all(dim=1)
        self.unread.append(fine)

    def look(self, trainer: Trainer, *, steps: int) -> None:
        """Read what `passed` kept since the last time: a seed diverged in the first epoch with a loss or a weight that
        is not finite."""
        passed = len(self.unread)
        if not passed:
            return
        losses = trainer.losses[-steps * passed :].reshape(passed, steps, self.count)
        fine = torch.stack(self.unread).cpu() & losses.isfinite().all(dim=1)
        self.unread = []
        for place, row in enumerate(fine):
            self._date(row, trainer.epoch - passed + 1 + place)

    def _date(self, fine: Tensor, epoch: int) -> None:
        for seed in self.alive:
            if not fine[seed]:
                self.diverged[seed] = epoch

    def _judge(
        self, outputs: Tensor, truth: Tensor, rows: Sequence[int], weights: Mapping[str, Tensor], epoch: int
    ) -> None:
        scores = judge(outputs, truth, task=self.task, rows=rows)
        loss = scores["mse" if self.task == REGRESSION else "log_loss"]
        right = scores.get("accuracy", (0.0,) * self.count)
        self.curves.setdefault("validation_loss", []).append(list(loss))
        if self.task != REGRESSION:
            self.curves.setdefault("validation_accuracy", []).append(list(right))
        if not self.keep_best:
            return
        if not self.best_weights:
            self.best_weights = dict(weights)
        for seed in rows:
            rank = [_number(right[seed], -math.inf), -_number(loss[seed], math.inf)]
            if rank > self.best[seed][:2]:
                self.best[seed] = [*rank, epoch]
                for name, one in weights.items():
                    self.best_weights[name][seed].copy_(one[seed])

    def _add(self, name: str, values: Tensor, rows: Sequence[int]) -> None:
        each = values[list(rows)].tolist()
        self.curves.setdefault(name, []).append(list(spread_out(each, rows, self.count)))

    def state(self) -> dict[str, Any]:
        """Everything, as numbers and tensors."""
        return {
            "epochs": self.epochs,
            "unread": self.unread,
            "curves": self.curves,
            "ways": self.ways,
            "diverged": self.diverged,
            # JSON has no infinity, which is the rank before any epoch.
            "best": [None if rank[2] == 0 else rank for rank in self.best],
            "best_weights": self.best_weights,
            "seconds": self.seconds,
        }

    def load(self, state: Mapping[str, Any], *, device: torch.device | str) -> None:
        self.curves, self.ways = dict(state["curves"]), dict(state["ways"])
        self.diverged, self.epochs = list(state["diverged"]), list(state["epochs"])
        self.unread = [one.to(device) for one in state["unread"]]
        self.best = [rank or [-math.inf, -math.inf, 0] for rank in state["best"]]
        self.best_weights = {name: one.to(device) for name, one in state["best_weights"].items()}
        self.seconds_before = float(state["seconds"])


def _number(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
