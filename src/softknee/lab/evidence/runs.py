"""The finished studies that the evidence is taken from: one folder for each, with its recipe and its records."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ...errors import DataError, RecipeError
from ...measure.record import Record
from ..studies.outcome import Outcome
from ..studies.reading import find_recipe
from ..studies.recipe import Recipe
from ..studies.reporting import recipe_of
from ..studies.store import STUDY, TRIALS, RunStore
from ..studies.trials import every_chosen


@dataclass(frozen=True)
class Study:
    """The outcomes of one study, by the labels of its activations."""

    name: str
    folder: Path
    outcomes: dict[str, Outcome]
    machines: tuple[str, ...] = ()

    def values(self, label: str, measure: str) -> list[float | None]:
        """The test score of every seed, in the order of the seeds; None of one that diverged."""
        outcome = self.outcomes.get(label)
        if outcome is None or measure not in outcome.test:
            raise DataError(
                f"'{self.folder.name}' has no {measure} of {label!r}; it has {', '.join(sorted(self.outcomes))}. Run "
                f"the study whole: softknee study run {self.name}."
            )
        return [one if one is not None and math.isfinite(one) else None for one in outcome.test[measure]]

    def mean(self, label: str, measure: str, *, logarithmic: bool = False) -> float:
        """The mean over the seeds that did not diverge, a geometric one where asked for; NaN where all did."""
        found = [one for one in self.values(label, measure) if one is not None]
        if not found:
            return math.nan
        if logarithmic:
            return math.exp(math.fsum(math.log(max(one, 1e-300)) for one in found) / len(found))
        return math.fsum(found) / len(found)

    def seeds(self, label: str) -> int:
        """How many seeds came to their end."""
        return sum(gone is None for gone in self.outcomes[label].diverged)


class Runs:
    """A folder of finished studies, such as docs/evidence.

    Only the records are read, so that predictions and models need not lie beside them.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._read: dict[str, Study] = {}
        self._recipes: dict[str, Recipe] = {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The studies, and the records of benchmarks, that are there."""
        if not self.folder.is_dir():
            raise DataError(
                f"There is no folder '{self.folder}' with studies to judge by. Name the one that holds them with "
                "--results; the project's own are in docs/evidence of its repository."
            )
        return tuple(sorted(one.name for one in self.folder.iterdir() if _is_evidence(one)))

    def has(self, name: str, labels: Collection[str] = ()) -> bool:
        """Whether this is there: a study whole, or at least these activations of it."""
        if name not in self.unfinished:
            return name in self.names
        return bool(labels) and set(labels) <= set(self.study(name).outcomes)

    @cached_property
    def unfinished(self) -> dict[str, tuple[int, int]]:
        """The studies of which a part was run: how many activations are there, and how many there should be."""
        found = {}
        for name in self.names:
            described = self.folder / name / STUDY
            if not described.is_file():
                continue  # a benchmark; or records alone, which are taken for what they are
            wanted = {one.label for one in every_chosen(self.recipe(name))}
            if missing := wanted - set(self.study(name).outcomes):
                found[name] = len(wanted) - len(missing), len(wanted)
        return found

    def study(self, name: str) -> Study:
        """One study by the name of its recipe."""
        if name not in self.names:
            raise DataError(f"'{self.folder}' has no study {name!r}; run it: softknee study run {name}.")
        if name not in self._read:
            folder = self.folder / name
            records = [Record.from_json(one.read_text("utf-8"), source=f"'{one}'") for one in _records(folder)]
            outcomes = [Outcome.read(one) for one in records]
            trained = {one.trial.activation.label: one for one in outcomes if one.trial.kind == "train"}
            machines = dict.fromkeys(one.hardware.gpu or one.hardware.cpu for one in records)
            self._read[name] = Study(name, folder, trained, tuple(machines))
        return self._read[name]

    def keys(self, name: str) -> dict[str, str]:
        """The key of each trial of a study that trained, by the label of its activation: one key, one run."""
        return {label: one.trial.key for label, one in self.study(name).outcomes.items()}

    def recipe(self, name: str) -> Recipe:
        """The recipe that a study was run with; what it says of the paper, which no trial depends on, as it ships."""
        if name not in self._recipes:
            ran = recipe_of(RunStore(self.folder / name))
            try:
                self._recipes[name] = replace(ran, paper=find_recipe(name).paper)
            except RecipeError:  # a recipe of the user's own
                self._recipes[name] = ran
        return self._recipes[name]

    def benchmark(self, name: str) -> Record:
        """A record of a benchmark, which lies beside the studies."""
        path = self.folder / name
        found = Record.from_json(path.read_text("utf-8"), source=f"'{path}'")
        if found.settings.get("smoke"):
            raise DataError(
                f"'{path}' is the record of a smoke run, whose numbers mean nothing. Move it elsewhere; without "
                f"--smoke the same command makes one to judge by: {found.command}."
            )
        return found


def _is_evidence(path: Path) -> bool:
    return (path / TRIALS).is_dir() or (path.is_file() and path.suffix == ".json")


def _records(folder: Path) -> list[Path]:
    found = sorted((folder / TRIALS).glob("*.json"))

    def place(path: Path) -> int:
        return int(json.loads(path.read_text("utf-8")).get("settings", {}).get("store", {}).get("position", 0))

    return sorted(found, key=place)
