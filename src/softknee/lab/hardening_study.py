"""The hardening study: what it costs to harden a smooth activation, and what is lost when ReLU takes its place.

For each data set, activation and seed, test accuracy of

    free         the smooth network trained as it is, its knob learned, at its best epoch by validation
    hardened     the same training with the knob frozen at a quarter of it and moved to its hard limit; still smooth,
                 at the end
    replaced     the hardened network of the end with ReLU in its place, no weight changed
    chosen       the same at the best epoch by validation under the smooth activation: the lambda-GELU paper's rule, by
                 which a checkpoint that is not yet hard can be chosen
    swapped      ReLU put into the free network, without hardening
    relu         a ReLU network trained from scratch from the same weights on the same batches

The paper's table shows the smooth hardened network beside the replaced one. What hardening itself costs, free against
hardened, and whether a ReLU network from scratch does as well, it does not show.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import MissingToolError, ParameterError, did_you_mean
from ..files import WriteError
from ..measure.record import Quantity, Record
from ..measure.speed import choose_device
from .hardening_runs import Metric, Recipe, Trained, evaluate, train, with_relu
from .networks import build
from .splits import Split, load_split

BASELINE = "relu"
COLUMNS = ("free", "hardened", "replaced", "chosen", "swapped", BASELINE)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An activation in the table. One that learns is trained twice: free, and hardened."""

    name: str
    knobs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def hardens(self) -> bool:
        return bool(self.knobs.get("learn"))


# S-ReLU starts at the width that is as far from ReLU as GELU is: 0.19 and 0.17 at most.
ENTRIES = (
    Entry(name="gelu"),
    Entry(name="lambda_gelu", knobs={"learn": True}),
    Entry(name="srelu", knobs={"learn": True, "delta": 1.0}),
)
_SCRATCH = Entry(name="torch:relu")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A data set, a network for it, and how it is trained."""

    data: str
    builder: str
    arguments: Mapping[str, Any]
    recipe: Recipe

    @property
    def flat(self) -> bool:
        """Whether the network takes images as rows of numbers."""
        return self.builder == "mlp"


TASKS = {
    "digits": Task(
        data="digits",
        builder="mlp",
        arguments={"widths": [64, 128, 128, 10]},
        recipe=Recipe(epochs=60, batch=64, learning_rate=1e-3, weight_decay=0.01),
    ),
    "fashion-mnist": Task(
        data="fashion-mnist",
        builder="cnn",
        arguments={"channels": [16, 32, 64], "classes": 10, "image": [1, 28, 28]},
        recipe=Recipe(epochs=20, batch=256, learning_rate=2e-3, weight_decay=0.01),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run, on what, and where the data lie."""

    tasks: tuple[Task, ...] = tuple(TASKS.values())
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "auto"
    data: str | os.PathLike[str] | None = None
    out: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not self.tasks or not self.seeds:
            raise ParameterError("The hardening study needs a task and a seed at least.")
        for task in self.tasks:
            recipe = task.recipe
            if not 1 <= recipe.freeze_epoch < recipe.epochs:
                raise ParameterError(
                    f"The hardening study trains {task.data} for {recipe.epochs} epochs and would freeze knobs after "
                    f"{recipe.freeze_epoch}; at least one must come before and one after. Take 4 epochs or more."
                )


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A row of the table: for each column the test metric of every seed, and the runs' own numbers."""

    task: Task
    entry: Entry
    metrics: Mapping[str, tuple[Metric, ...]]
    profiles: Mapping[str, tuple[Mapping[str, Mapping[str, float]], ...]]
    best_epochs: Mapping[str, tuple[int, ...]]
    seconds: Mapping[str, tuple[float, ...]]

    def accuracy(self, column: str) -> Quantity | None:
        """Over the seeds; None where the column does not apply to the activation."""
        if column not in self.metrics:
            return None
        return Quantity.mean([one.accuracy for one in self.metrics[column]], unit="%")

    def cost(self, before: str, after: str) -> Quantity | None:
        """What accuracy falls by from one column to the other, seed by seed, in percentage points."""
        if before not in self.metrics or after not in self.metrics:
            return None
        pairs = zip(self.metrics[before], self.metrics[after], strict=True)
        return Quantity.mean([first.accuracy - second.accuracy for first, second in pairs], unit="percentage points")


@dataclass(frozen=True, kw_only=True)
class Study:
    """The outcomes, task by task in the order of `ENTRIES`, and the record of them."""

    settings: Settings
    outcomes: tuple[Outcome, ...]
    record: Record


def choose_tasks(only: Sequence[str] = (), *, epochs: int | None = None) -> tuple[Task, ...]:
    """The tasks of these names, all by default, with other numbers of epochs where one is given."""
    for name in only:
        if name not in TASKS:
            raise ParameterError(
                f"The hardening study has no task {name!r}; it has {' and '.join(TASKS)}.{did_you_mean(name, TASKS)}"
            )
    chosen = [task for name, task in TASKS.items() if name in only or not only]
    if epochs is None:
        return tuple(chosen)
    return tuple(replace(task, recipe=replace(task.recipe, epochs=epochs)) for task in chosen)


def steps(settings: Settings) -> int:
    """How often `run` reports progress: once for every epoch of every training."""
    runs = 1 + sum(2 if entry.hardens else 1 for entry in ENTRIES)
    return sum(task.recipe.epochs for task in settings.tasks) * runs * len(settings.seeds)


def run(settings: Settings, *, command: str, advance: Callable[[str], None] = lambda _: None) -> Study:
    """Train everything; `advance` is called with what is trained after each epoch.

    With `settings.out`, a checkpoint of every network that is worth deploying is written there: `gelu` (free), `relu`,
    and each hardened one as it is at the end, under names such as `digits-srelu-seed0`.
    """
    device = choose_device(settings.device)
    # Whatever is missing is said before the training and not after it.
    _need_safetensors(settings)
    splits = {task.data: load_split(task.data, settings.data, flat=task.flat) for task in settings.tasks}
    out = _made(settings.out)
    outcomes: list[Outcome] = []
    for task in settings.tasks:
        data = splits[task.data].to(device)
        rows: dict[str, list[dict[str, Any]]] = {entry.name: [] for entry in ENTRIES}
        # Seed by seed rather than activation by activation: whatever else the machine does then slows all alike.
        for seed in settings.seeds:
            runs = _Runs(task, data, seed, device, advance, out)
            for entry in ENTRIES:
                rows[entry.name].append(runs.row(entry))
        outcomes += [_outcome(task, entry, rows[entry.name]) for entry in ENTRIES]
    record = _record(settings, outcomes, splits, device, command)
    return Study(settings=settings, outcomes=tuple(outcomes), record=record)


class _Runs:
    """The trainings of one task with one seed."""

    def __init__(
        self,
        task: Task,
        data: Split,
        seed: int,
        device: torch.device,
        advance: Callable[[str], None],
        out: Path | None,
    ) -> None:
        self.task, self.data, self.seed, self.device, self.advance, self.out = task, data, seed, device, advance, out
        scratch = self._train(_SCRATCH, harden=False)
        self.scratch = self._test(scratch.at_best())
        self._save(_SCRATCH, scratch.at_best())

    def row(self, entry: Entry) -> dict[str, Any]:
        """The metrics of one activation by column, and of each run its profiles, best epoch and seconds."""
        runs = {"free": self._train(entry, harden=False)}
        free = runs["free"].at_best()
        metrics = {"free": self._test(free), "swapped": self._test(with_relu(free)), BASELINE: self.scratch}
        if entry.hardens:
            runs["hardened"] = self._train(entry, harden=True)
            hardened, chosen = runs["hardened"].network, runs["hardened"].at_best()
            metrics |= {
                "hardened": self._test(hardened),
                "replaced": self._test(with_relu(hardened)),
                "chosen_smooth": self._test(chosen),
                "chosen": self._test(with_relu(chosen)),
            }
        self._save(entry, runs["hardened"].network if entry.hardens else free)
        return {"metrics": metrics, "runs": runs}

    def _arguments(self, entry: Entry) -> dict[str, Any]:
        return {**self.task.arguments, "activation": entry.name, "seed": self.seed, **entry.knobs}

    def _train(self, entry: Entry, *, harden: bool) -> Trained:
        network = build(self.task.builder, **self._arguments(entry)).to(self.device)
        return train(
            network,
            self.data,
            self.task.recipe,
            seed=self.seed,
            harden=harden,
            advance=lambda: self.advance(f"{self.task.data} {entry.name.removeprefix('torch:')}"),
        )

    def _test(self, network: nn.Module) -> Metric:
        return evaluate(network, self.data.test_images, self.data.test_labels)

    def _save(self, entry: Entry, network: nn.Module) -> None:
        if self.out is None:
            return
        from .checkpoint import save_checkpoint

        name = entry.name.removeprefix("torch:")
        save_checkpoint(
            self.out / f"{self.task.data}-{name}-seed{self.seed}",
            network,
            builder=self.task.builder,
            arguments=self._arguments(entry),
            task={"data": self.task.data, "metric": "accuracy"},
            notes=f"hardening study, {'hardened, at the end' if entry.hardens else 'at the best epoch by validation'}",
        )


def _need_safetensors(settings: Settings) -> None:
    if settings.out is not None and importlib.util.find_spec("safetensors") is None:
        raise MissingToolError(
            "Checkpoints need the package 'safetensors', which is not installed. Install it with: "
            "pip install 'softknee[deploy]', or leave out --out."
        )


def _made(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is None:
        return None
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(
            f"The folder '{folder}' for the checkpoints cannot be made ({error.strerror or error}); choose another."
        ) from error
    return Path(folder)


def _outcome(task: Task, entry: Entry, rows: Sequence[Mapping[str, Any]]) -> Outcome:
    kinds: Mapping[str, Trained] = rows[0]["runs"]
    return Outcome(
        task=task,
        entry=entry,
        metrics={column: tuple(row["metrics"][column] for row in rows) for column in rows[0]["metrics"]},
        profiles={kind: tuple(row["runs"][kind].profiles for row in rows) for kind in kinds},
        best_epochs={kind: tuple(row["runs"][kind].best_epoch for row in rows) for kind in kinds},
        seconds={kind: tuple(row["runs"][kind].seconds for row in rows) for kind in kinds},
    )


def _row(outcome: Outcome) -> dict[str, Any]:
    costs = {
        "cost_of_hardening": outcome.cost("free", "hardened"),
        "cost_of_replacement": outcome.cost("hardened", "replaced"),
        "cost_of_swap": outcome.cost("free", "swapped"),
        "behind_relu": outcome.cost(BASELINE, "replaced"),
    }
    knobs = [
        {
            "run": kind,
            "when": when,
            "layer": path,
            "knob": Quantity.mean([one[when][path] for one in seeds], unit="1"),
        }
        for kind, seeds in outcome.profiles.items()
        for when in seeds[0]
        for path in seeds[0][when]
    ]
    return {
        "data": outcome.task.data,
        "network": outcome.task.builder,
        "function": outcome.entry.name,
        "start": dict(outcome.entry.knobs),
        "accuracy": {column: outcome.accuracy(column) for column in outcome.metrics},
        "accuracy_by_seed": {column: [one.accuracy for one in found] for column, found in outcome.metrics.items()},
        "loss": {c: Quantity.mean([one.loss for one in found], unit="nats") for c, found in outcome.metrics.items()},
        **{name: found for name, found in costs.items() if found is not None},
        "best_epoch_by_seed": dict(outcome.best_epochs),
        "hardness_profile": knobs if outcome.entry.hardens else [],
        "time": {kind: Quantity.mean(found, unit="s") for kind, found in outcome.seconds.items()},
    }


def _record(
    settings: Settings, outcomes: Sequence[Outcome], splits: Mapping[str, Split], device: torch.device, command: str
) -> Record:
    tasks = {
        task.data: {
            "images": splits[task.data].sentence(),
            "normalisation": splits[task.data].normalisation,
            "network": task.builder,
            "arguments": dict(task.arguments),
            "epochs": task.recipe.epochs,
            "freeze_epoch": task.recipe.freeze_epoch,
            "batch": task.recipe.batch,
            "optimizer": "AdamW, learning rate falling as a half cosine by epoch",
            "learning_rate": task.recipe.learning_rate,
            "activation_rate_factor": task.recipe.activation_rate_factor,
            "weight_decay": task.recipe.weight_decay,
            "hardening": f"linear from epoch {task.recipe.freeze_epoch + 1}, tolerance {task.recipe.tolerance:g}",
        }
        for task in settings.tasks
    }
    return Record.now(
        "study hardening",
        command=command,
        rows=[_row(outcome) for outcome in outcomes],
        seeds=settings.seeds,
        baseline="relu, trained from scratch beside the others from the same weights on the same batches",
        settings={"device": device.type, "threads": torch.get_num_threads(), "tasks": tasks},
        notes=[
            "free, swapped, relu: at the best epoch by validation accuracy (equal ones by validation loss).",
            "hardened, replaced: at the end of hardening. chosen_smooth, chosen: the same pair at the best epoch by "
            "validation under the smooth activation, which is the lambda-GELU paper's rule.",
        ],
    )
