"""What one student (or the teacher) found, and the row of the record that the seeds make together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...measure.record import Quantity


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One network of one seed; the accuracies are None where its loss was no longer a number."""

    seed: int
    numbers: int
    seconds: float
    accuracy: float | None
    train_accuracy: Sequence[float]
    tests: Mapping[int, float]
    start: Mapping[str, Any]
    learned: Mapping[str, Any]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Trained:
        """What was kept of one."""
        names = {one.name for one in fields(cls)}
        given = {name: value for name, value in row.items() if name in names}
        given["tests"] = {int(epoch): one for epoch, one in row["tests"].items()}  # JSON's keys are texts
        return cls(**given)

    @property
    def gap(self) -> float | None:
        return None if self.accuracy is None else self.train_accuracy[-1] - self.accuracy


def row_of(title: str, found: Sequence[Trained]) -> dict[str, Any]:
    """All seeds of one activation."""
    epochs = list(found[0].tests)
    row: dict[str, Any] = {
        "activation": title,
        "trained": found[0].numbers,
        "diverged": [one.seed for one in found if one.accuracy is None],
        "accuracy_by_seed": [one.accuracy for one in found],
        "gap_by_seed": [one.gap for one in found],
        "time": Quantity.mean([one.seconds for one in found], unit="s"),
        "curve": {
            "epochs": epochs,
            "test": [list(one.tests.values()) for one in found],
            "train": [[one.train_accuracy[epoch - 1] for epoch in epochs] for one in found],
        },
        "start": dict(found[0].start),
        "learned": [dict(one.learned) for one in found],
    }
    there = [one for one in found if one.accuracy is not None]
    if not there:
        return {**row, "not_run": "every seed diverged"}
    row["accuracy"] = Quantity.mean([one.accuracy for one in there if one.accuracy is not None], unit="%")
    row["gap"] = Quantity.mean([one.gap for one in there if one.gap is not None], unit="percentage points")
    return row
