"""The finished studies that the evidence is taken from: one folder for each, with its recipe and its records."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from softknee.errors import DataError, RecipeError
from softknee.lab.studies.reading import find_recipe
from softknee.lab.studies.recipe import Recipe
from softknee.lab.studies.reporting import recipe_of
from softknee.lab.studies.store import STUDY, TRIALS, RunStore
from softknee.lab.studies.trials import Outcome, every_chosen
from softknee.measure.record import Record

HERE = Path(__file__).parent


def recipe_file(name: str) -> Path | None:
    """The file of a paper's recipe by its name, "squaf-table-12"; None for another name."""
    for folder in HERE.glob("*/recipes"):
        stem = folder.parent.name.replace("_", "-")
        file = folder / f"{name.removeprefix(f'{stem}-')}.yaml"
        if name.startswith(f"{stem}-") and file.is_file():
            return file
    return None


def recipe_names() -> list[str]:
    """The names of the papers' recipes, in the order of the alphabet."""
    return sorted(f"{file.parents[1].name.replace('_', '-')}-{file.stem}" for file in HERE.glob("*/recipes/*.yaml"))


def recipe_named(name: str, *, settings: Sequence[str] = ()) -> Recipe:
    """The recipe of a paper, or of the package, by its name."""
    return _recipe(recipe_file(name) or name, tuple(settings))


@cache
def _recipe(name_or_file: str | Path, settings: tuple[str, ...]) -> Recipe:
    return find_recipe(name_or_file, settings=settings)


def labels_of_recipe(recipe: Recipe) -> tuple[str, ...]:
    """The labels of a recipe's activations, in order."""
    return tuple(chosen.label for chosen in every_chosen(recipe))


def printed_of(name: str) -> Mapping[str, Mapping[str, float]]:
    """The paper's numbers by label and measure, as the recipe of this name has them."""
    try:
        paper = recipe_named(name).paper
    except RecipeError:  # a recipe of the user's own
        return {}
    return {} if paper is None else paper.values


def command_of_recipe(name: str) -> str:
    """The command that runs a recipe.

    >>> command_of_recipe("squaf-table-12")
    'softknee study run papers/squaf/recipes/table-12.yaml'
    """
    file = recipe_file(name)
    return f"softknee study run {file.relative_to(HERE.parent) if file else name}"


def command_of_row(study: str, label: str) -> str:
    """The command that runs one activation of a study.

    >>> command_of_row("smelu-figure-4", "smelu beta=0.5")
    "softknee study run papers/smelu/recipes/figure-4.yaml --only 'smelu beta=0.5'"
    """
    return f"{command_of_recipe(study)} --only {shlex.quote(label)}"


# Of a command that was typed once: where its output went and where the data lay.
_PLACES = ("--json", "--figure", "--shapes", "--data", "--out")


def commands_of_rows(record: Record) -> Iterator[str]:
    """For every row of a benchmark of a model the command that runs it, from the command that made the record."""
    words = without(shlex.split(record.command), "--swap")
    for row in record.rows:  # the first is the model as it is, always run
        yield shlex.join([*words, "--swap", "relu" if row is record.rows[0] else row["variant"]])


def without(words: Sequence[str], *options: str) -> list[str]:
    """A command without some options and their values, and without where it wrote and read."""
    rest, skip = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip or name in (*options, *_PLACES):
            skip = not skip and not equals
        else:
            rest.append(word)
    return rest


def folded(commands: Iterable[str]) -> str:
    """The commands of the rows of a table, folded away below it."""
    lines = "".join(f"    {command}\n" for command in dict.fromkeys(commands))
    return f"\n<details><summary>Run one row</summary>\n\n{lines}\n</details>\n"


@dataclass(frozen=True)
class Study:
    """The outcomes of one study, by the labels of its activations.

    printed: the paper's numbers, as the recipe has them.
    commits: of the code that the records were made with, where they say so.
    teacher: of a distillation.
    """

    name: str
    folder: Path
    outcomes: dict[str, Outcome]
    machines: tuple[str, ...] = ()
    printed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    commits: tuple[str, ...] = ()
    teacher: Outcome | None = None

    def printed_scores(self, measure: str) -> dict[str, float]:
        """What the paper prints of one measure, by label."""
        return {label: values[measure] for label, values in self.printed.items() if measure in values}

    def values(self, label: str, measure: str) -> list[float | None]:
        """The test score of every seed, in the order of the seeds; None of one that diverged."""
        outcome = self.outcomes.get(label)
        if outcome is None or measure not in outcome.test:
            raise DataError(
                f"'{self.folder.name}' has no {measure} of {label!r}; it has {', '.join(sorted(self.outcomes))}. Run "
                f"the study whole: {command_of_recipe(self.name)}."
            )
        return [value if value is not None and math.isfinite(value) else None for value in outcome.test[measure]]

    def mean(self, label: str, measure: str, *, logarithmic: bool = False) -> float:
        """The mean over the seeds that did not diverge, geometric with `logarithmic`; NaN where all did."""
        values = [value for value in self.values(label, measure) if value is not None]
        if not values:
            return math.nan
        if logarithmic:
            return math.exp(math.fsum(math.log(max(value, 1e-300)) for value in values) / len(values))
        return math.fsum(values) / len(values)

    @cached_property
    def keys(self) -> dict[str, str]:
        """The key of each trial that trained, by the label of its activation: one key, one run."""
        return {label: outcome.trial.key for label, outcome in self.outcomes.items()}

    def seeds(self, label: str) -> int:
        """How many seeds came to their end."""
        return sum(epoch is None for epoch in self.outcomes[label].diverged)


class Runs:
    """Folders of finished studies, such as `records` of every paper.

    Only the records are read; predictions and models need not be there.
    """

    def __init__(self, *folders: str | os.PathLike[str]) -> None:
        self.folders = tuple(Path(folder) for folder in folders)
        self._read: dict[str, Study] = {}
        self._recipes: dict[str, Recipe] = {}
        self.judged: dict[int, Any] = {}  # what `statement.judge` made of a statement of that id

    @classmethod
    @cache
    def committed(cls) -> Runs:
        """The records in the folders of the papers, each read once in a process."""
        return cls(*sorted(HERE.glob("*/records")))

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The studies, and the records of benchmarks, by name."""
        for folder in self.folders:
            if not folder.is_dir():
                raise DataError(
                    f"There is no folder '{folder}' with studies to judge by. Name the one that holds them with "
                    "--results; without it the records of the papers are judged."
                )
        every = [path for folder in self.folders for path in folder.iterdir()]
        records = [path for path in every if (path / TRIALS).is_dir() or (path.is_file() and path.suffix == ".json")]
        return {path.name: path for path in sorted(records, key=lambda path: path.name)}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the studies and records of benchmarks, in the order of the alphabet."""
        return tuple(self.paths)

    def has(self, name: str, labels: Collection[str] = ()) -> bool:
        """Whether this is there: a study whole, or at least these activations of it."""
        if name not in self.names or not labels or name.endswith(".json"):
            return name in self.names and name not in self.unfinished
        return set(labels) <= set(self.study(name).outcomes)

    @cached_property
    def unfinished(self) -> dict[str, tuple[int, int]]:
        """The studies of which a part was run: how many activations are there, and how many there should be."""
        unfinished = {}
        for name in self.names:
            if not (self.paths[name] / STUDY).is_file():
                continue  # a benchmark; or records alone, which are taken for what they are
            wanted = set(labels_of_recipe(self.recipe(name)))
            if missing := wanted - set(self.study(name).outcomes):
                unfinished[name] = len(wanted) - len(missing), len(wanted)
        return unfinished

    def study(self, name: str) -> Study:
        """One study by the name of its recipe."""
        if name not in self.names:
            raise DataError(f"There are no records of the study {name!r}; run it: {command_of_recipe(name)}.")
        if name not in self._read:
            folder = self.paths[name]
            paths = sorted((folder / TRIALS).glob("*.json"))
            records = [Record.from_json(path.read_text("utf-8"), source=f"'{path}'") for path in paths]
            records.sort(key=lambda record: int(record.settings.get("store", {}).get("position", 0)))
            outcomes = [Outcome.read(record) for record in records]
            trained = {outcome.trial.activation.label: outcome for outcome in outcomes if outcome.trial.kind == "train"}
            machines = dict.fromkeys(record.hardware.gpu or record.hardware.cpu for record in records)
            teacher = next((outcome for outcome in outcomes if outcome.trial.kind == "teacher"), None)
            commits = dict.fromkeys((record.settings.get("git") or {}).get("commit", "")[:9] for record in records)
            self._read[name] = Study(
                name, folder, trained, tuple(machines), printed_of(name), tuple(filter(None, commits)), teacher
            )
        return self._read[name]

    def recipe(self, name: str) -> Recipe:
        """The recipe that a study was run with; what it says of the paper, which no trial depends on, as it ships."""
        if name not in self._recipes:
            ran = recipe_of(RunStore(self.paths[name]))
            try:
                self._recipes[name] = replace(ran, paper=recipe_named(name).paper)
            except RecipeError:  # a recipe of the user's own
                self._recipes[name] = ran
        return self._recipes[name]

    def benchmark(self, name: str) -> Record:
        """The record of a benchmark by its file name."""
        path = self.paths.get(name, Path(name))
        record = Record.from_json(path.read_text("utf-8"), source=f"'{path}'")
        if record.settings.get("smoke"):
            raise DataError(
                f"'{path}' is the record of a smoke run, whose numbers mean nothing. Move it elsewhere; without "
                f"--smoke the same command makes one to judge by: {record.command}."
            )
        return record
