"""What came of a trial: numbers for every seed, never averages alone.

None stands for what a seed that diverged does not have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from ...errors import SoftkneeError
from ...measure.record import Record, RecordError
from .trial import Trial

KIND = "trial"

Each = tuple[float | None, ...]  # one number for every seed, in the order of the seeds
Curve = tuple[Each, ...]  # [epoch][seed]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one trial.

    seconds:     how long the trial took, all its parts together where it was stopped and gone on with.
    diverged:    for each seed the epoch (from 1) in which its loss or its weights were no longer finite; None where
                 they always were.
    selected:    the epoch that each seed's numbers are of; None of one that diverged.
    test, validation, train: "accuracy", "log_loss", with two classes "auc", and "calibration_error" (test), as
                 fractions and nats; for a regression "mse" and "r2", of a picture also "psnr" and "ssim" (test). A
                 tuning trial has no test.
    curves:      "train_loss" (mean of the epoch), "validation_loss", "validation_accuracy" after each epoch, and
                 "gradient_norm" (mean of the epoch). They end early where every seed has diverged.
    epochs:      which epochs the rows of `curves` and of the parameters' curves are of; empty where it is every one.
                 `noted` is them in either case.
    difference:  for each prediction difference its {"value", "stdev", "interval", "without"} over the seeds that did
                 not diverge ("delta_1", "delta_2", "relative", "hamming", "true_label", "binary"); "without" is what it
                 is without each of them, which two activations are compared by.
    parameters:  by "path.name" of each activation parameter that moved: {"start": number, "end": Each, "curve": Curve}
                 (mean over channels where there are several; a vector entry by entry, as "path.z[0]"). Where the seeds
                 start with different values, "starts": Each has them, and "start" is their mean.
    activity:    a mapping for each activation site in order of depth: {"path", "activation", "zero_fraction": Each,
                 "dead_fraction": Each, "entropy": Each}, on validation examples.
    hardness:    a mapping for each site in order of depth: {"path", "knob", "start": Each, "end": Each, "distance":
                 Each}: the proved distance to the hard limit at the end, None where none is proved or it is infinite.
    gradients:   {"mean": Each, "variance": Each} of the gradient norm over the steps.
    entropy:     a mapping for each site in order of depth: {"path", "activation", "start", "end"}, the last two being
                 {"input": Each, "output": Each, "spread": Each} before and after training, on validation examples: the
                 entropies of `measure.entropies` in nats, and the standard deviation of the outputs.
    replacement: of a trial with `harden` or `replace`: {"limit": name, "test": {"accuracy": Each, ...} with the limit
                 in its place, "changed": Each: the share of test predictions that changed} (a regression has no
                 "changed"); also "not_run": why, where no plain module can stand for what some seeds have learned.
    cost:        of a cost trial, for each activation: {"label", "train": Quantity in ms, "infer": Quantity in ms,
                 "train_ratio": Quantity, "infer_ratio": Quantity against the cost baseline, "peak_memory": bytes or
                 None}.
    trained:     how many numbers of one model are trained; None in a record that was written before this was counted.
    """

    trial: Trial
    seconds: float
    diverged: tuple[int | None, ...] = ()
    selected: tuple[int | None, ...] = ()
    test: Mapping[str, Each] = field(default_factory=dict)
    validation: Mapping[str, Each] = field(default_factory=dict)
    train: Mapping[str, Each] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)
    difference: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    activity: tuple[Mapping[str, Any], ...] = ()
    hardness: tuple[Mapping[str, Any], ...] = ()
    gradients: Mapping[str, Each] = field(default_factory=dict)
    replacement: Mapping[str, Any] | None = None
    cost: tuple[Mapping[str, Any], ...] = ()
    epochs: tuple[int, ...] = ()
    trained: int | None = None
    entropy: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        # Lists become tuples, so that an outcome that was read equals the one that was written.
        for name in _NUMBERS:
            object.__setattr__(self, name, _settled(getattr(self, name)))

    @property
    def noted(self) -> tuple[int, ...]:
        """The epoch of each row of the curves."""
        rows = max((len(curve) for curve in self.curves.values()), default=0)
        return self.epochs or tuple(range(1, rows + 1))

    def record(self, *, command: str, git: Mapping[str, Any] | None) -> Record:
        """The record that the run store keeps: the trial in its settings, the numbers in its one row."""
        return Record.now(
            KIND,
            command=command,
            rows=[{name: getattr(self, name) for name in _NUMBERS}],
            seeds=() if self.trial.kind == "cost" else self.trial.seeds.numbers,
            settings={"key": self.trial.key, "trial": self.trial.plain(), "git": None if git is None else dict(git)},
        )

    @classmethod
    def read(cls, record: Record) -> Outcome:
        """The outcome of a record of the run store; RecordError where it is none, or was altered."""
        settings = record.settings
        if record.kind != KIND or not {"key", "trial"} <= settings.keys():
            _refuse(f"it is of the kind {record.kind!r}, and that of a trial is {KIND!r}")
        try:
            trial = Trial.read(json.loads(json.dumps(settings["trial"])))
        except (SoftkneeError, TypeError) as error:
            raise RecordError(f"The record holds no outcome of a trial: its trial cannot be read. {error}") from error
        if trial.key != settings["key"]:
            _refuse(f"it says to be {settings['key']!r}, and its trial has the key {trial.key!r}: it was altered")
        if len(record.rows) != 1 or not set(_NUMBERS) - set(_LATER) <= record.rows[0].keys() <= set(_NUMBERS):
            _refuse("its numbers are not those that an outcome has; it was altered, or is of another version")
        found = cls(trial=trial, **record.rows[0])
        counts = () if trial.kind == "cost" else (len(found.diverged), len(found.selected), len(record.seeds))
        if any(count != trial.seeds.count for count in counts):
            _refuse(f"its trial has {trial.seeds.count} seeds, and there are numbers for others: it was altered")
        if found.epochs and any(len(curve) != len(found.epochs) for curve in found.curves.values()):
            _refuse("its curves are not of the epochs that it names: it was altered")
        return found


_NUMBERS = tuple(one.name for one in fields(Outcome) if one.name != "trial")
_LATER = ("epochs", "trained", "entropy")  # what records that were written before do not have


def _settled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _settled(one) for key, one in value.items()}
    return tuple(_settled(one) for one in value) if isinstance(value, list | tuple) else value


def _refuse(why: str) -> NoReturn:
    raise RecordError(f"The record holds no outcome of a trial: {why}. Run the trial again.")


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A trial that came to its end: the outcome, and the files that go with it by their names."""

    outcome: Outcome
    files: Mapping[str, bytes] = field(default_factory=dict)
