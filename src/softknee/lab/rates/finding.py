"""What one network of the rate curve found, and the row of the record that the seeds make together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...measure.record import Quantity
from ..image_training import MODES
from .measuring import Measured


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One network of one seed; `measured` is None where its loss was no longer a number."""

    seed: int
    weight: float | None
    numbers: int
    seconds: float
    tests: Mapping[int, float]
    start: Mapping[str, Any]
    learned: Mapping[str, Any]
    measured: Measured | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Trained:
        """What was kept of one."""
        given = dict(row)
        given["tests"] = {int(epoch): one for epoch, one in row["tests"].items()}  # JSON's keys are texts
        given["measured"] = None if row["measured"] is None else Measured.of(row["measured"])
        return cls(**given)


def row_of(title: str, weight: float | None, found: Sequence[Trained]) -> dict[str, Any]:
    """All seeds of one activation with one weight of the rate."""
    there = [one.measured for one in found if one.measured is not None]
    row: dict[str, Any] = {
        "activation": title,
        "weight": weight,
        "trained": found[0].numbers,
        "diverged": [one.seed for one in found if one.measured is None],
        "time": Quantity.mean([one.seconds for one in found], unit="s"),
        "curve": {"epochs": list(found[0].tests), "test": [list(one.tests.values()) for one in found]},
        "start": dict(found[0].start),
        "learned": [dict(one.learned) for one in found],
        "accuracy_by_seed": {
            mode: [None if one.measured is None else one.measured.accuracy.get(mode) for one in found]
            for mode in (MODES if weight is not None else ("soft",))
        },
    }
    if not there:
        return {**row, "not_run": "every seed diverged"}
    row["accuracy"] = {
        mode: Quantity.mean([one.accuracy[mode] for one in there], unit="%") for mode in there[0].accuracy
    }
    if there[0].rate is None or weight is None:
        return row  # activations of 32 bits: a SQUAF that is not drawn from has no symbols
    bits = {
        name: [None if one.measured is None else one.measured.bits[name] for one in found] for name in there[0].bits
    }
    row["bits"] = {
        name: Quantity.mean([one.bits[name] for one in there], unit="bits per activation") for name in there[0].bits
    }
    row["bits_by_seed"] = bits
    row["draws_by_seed"] = [None if one.measured is None else list(one.measured.draws) for one in found]
    row["symbols"] = there[0].coded["sampled"].symbols
    row["outside"] = Quantity.mean([one.outside for one in there if one.outside is not None], unit="share")
    row["layers"] = {path: [one.layers[path] for one in there] for path in there[0].layers}
    return row
