"""Small studies for tests: a recipe on a few rows of numbers, and a quick stand-in for `run_trial`."""

import hashlib
import json
from pathlib import Path
from typing import Any

from softknee.lab.studies.reading import read_recipe
from softknee.lab.studies.recipe import Recipe
from softknee.lab.studies.runner import run_study
from softknee.lab.studies.running import QUIET, Watch
from softknee.lab.studies.trial import Trial
from softknee.lab.studies.trials import Finished, Outcome

RECIPE = """
name: small
data: {file: points.csv}
model: {build: mlp, arguments: {hidden: [8]}}
activations: [relu, {name: smelu, beta: [0.5, 1.0]}]
training: {epochs: 4, batch: 32}
seeds: 2
measures: [prediction_difference]
"""
TUNED = RECIPE + "tuning: {learning_rate: [1e-3, 1e-2], seeds: 2}\n"
REAL = """
name: small
data: {file: points.csv}
model: {build: mlp, arguments: {hidden: [12]}}
activations: [relu, {name: lambda_gelu, learn: true, harden: true}]
training: {epochs: 2, batch: 16, schedule: cosine}
seeds: 2
hardening: {start: 0.25}
tuning: {learning_rate: [1e-3, 1e-2], seeds: 2}
measures: [prediction_difference, hardness, gradients]
keep: [predictions, models]
"""
STEPS = 3  # of the stand-in, in an epoch


def write_points(folder: Path, *, rows: int = 80) -> Path:
    """Points in a square and on which side of a circle they are; returns the folder that they are in now."""
    lines = ["a,b,inside"]
    for index in range(rows):
        a, b = (index * 37 % rows) / rows, (index * 11 % rows) / rows
        lines.append(f"{a:.4f},{b:.4f},{'yes' if a * a + b * b < 0.5 else 'no'}")
    (folder / "points.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def small_recipe(text: str = RECIPE, *settings: str) -> Recipe:
    return read_recipe(text, settings=settings)


def quick_trial(
    trial: Trial,
    *,
    examples: Any = None,
    data_folder: Any = None,
    base: Any = None,
    saved: bytes | None = None,
    watch: Watch = QUIET,
) -> Finished:
    """Stands in for training: a chain of hashes, one link for each epoch, that depends on every link before."""
    links: list[str] = [] if saved is None else json.loads(saved)
    total = trial.training.epochs
    while len(links) < total:
        for _ in range(STEPS):
            watch.step()
        links.append(hashlib.sha256("".join([trial.key, *links]).encode()).hexdigest())
        watch.epoch(len(links), total, lambda: json.dumps(links).encode())
    seeds = range(trial.seeds.count)
    each = tuple(int(links[-1][4 * seed : 4 * seed + 4], 16) / 0xFFFF for seed in seeds)
    outcome = Outcome(
        trial=trial,
        seconds=0.25,
        diverged=(None,) * len(seeds),
        selected=(total,) * len(seeds),
        test={} if trial.kind == "tune" else {"accuracy": each},
        validation={"log_loss": each},
    )
    return Finished(outcome=outcome, files={"links.txt": "\n".join(links).encode()})


class Silent:
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.statuses: list[Any] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def status(self, status: Any) -> None:
        self.statuses.append(status)

    def close(self) -> None:
        pass


def run_small(
    folder: Path, recipe: Recipe | None = None, *, out: Any = None, trial: Any = quick_trial, **others: Any
) -> Any:
    """Run the small study, or another, on the points in this folder, without a word; by default into `study` there."""
    given = {"display": Silent(), "base": folder, "command": "softknee study small.yaml"} | others
    place = folder / "study" if out is None else out
    return run_study(small_recipe() if recipe is None else recipe, out=place, run_trial=trial, **given)


def contents(folder: Path) -> dict[str, bytes]:
    """Every record and file of a store on a disk, as bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for part in ("trials", "files")
        for path in (folder / part).glob("*")
    }


def results(store: Path) -> dict[str, Any]:
    """What a study came to: records without what may differ between two runs (when, and how long), and the files."""
    result: dict[str, Any] = {}
    for name, content in contents(store).items():
        result[name] = content
        if name.startswith("trials"):
            record = json.loads(content)
            del record["created"], record["rows"][0]["seconds"], record["settings"]["store"]["sha256"]
            result[name] = record
    return result
