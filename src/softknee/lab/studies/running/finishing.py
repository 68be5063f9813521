"""From trained models to the outcome of a trial: the test set is read here, once, and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from ....measure import HardnessProfile, SiteEntropy, prediction_difference
from ....train.streamed import Streamed
from ..examples import Examples
from ..outcome import Finished, Outcome
from ..trial import Trial
from .foretelling import foretold
from .progress import Progress
from .replacing import replaced
from .saving import write_tensors
from .scores import REGRESSION, finite_rows, judge, judge_on_disk, probabilities_of, spread_out
from .sites import activities, entropy, hardness, parameters, profiles, site_entropies
from .trainer import Trainer
from .training import selected_epochs

DIFFERENCES = ("delta_1", "delta_2", "relative", "hamming", "true_label", "binary")
_FEWEST = 2  # models that can differ


def finish(
    trial: Trial,
    trainer: Trainer,
    progress: Progress,
    examples: Examples,
    *,
    start_profiles: Sequence[HardnessProfile],
    start_entropies: Mapping[int, Sequence[SiteEntropy]],
) -> Finished:
    """Measure what the trial asks for; `start_profiles` and `start_entropies` are of the models before training."""
    task, asked = examples.task, trial.measures
    for_report = trial.kind == "train"
    examples, said = foretold(trial, trainer, examples)
    parts = [("validation", examples.validation_x, examples.validation_y)]
    if not isinstance(examples.train_x, Streamed):
        parts.insert(0, ("train", examples.train_x, examples.train_y))
    if for_report:
        parts.append(("test", examples.test_x, examples.test_y))
    outputs = {name: trainer.predict(x) for name, x, _ in parts if len(x) and (name != "test" or said is None)}
    if said is not None and for_report:
        outputs["test"] = said
    for seed in list(progress.alive):
        # Finite at the end of every epoch on what was looked at, and not on all that is looked at now.
        if not all(bool(finite_rows(one)[seed]) for one in outputs.values()):
            progress.diverged[seed] = trainer.epoch
    by_parts: dict[str, Any] = {}
    if isinstance(examples.train_x, Streamed):
        about = examples.train_x, examples.train_y
        by_parts["train"], gone = judge_on_disk(trainer.predict, *about, rows=progress.alive)
        for seed in gone:
            progress.diverged[seed] = trainer.epoch
    rows = progress.alive
    scores = by_parts | {
        name: judge(
            outputs[name],
            y,
            task=task,
            rows=rows,
            calibration=name == "test" and "calibration" in asked,
            picture=examples.picture if name == "test" else None,
        )
        for name, _, y in parts
        if name in outputs
    }
    files: dict[str, bytes] = {}
    rest: dict[str, Any] = {}
    if for_report:
        test = outputs["test"]
        rest["difference"] = _differences(test, examples.test_y, rows) if _differ(trial, task, rows) else {}
        if "activity" in asked and rows:
            seen = looked_at(examples)
            rest["activity"] = activities(trainer, seen, rows)
        if "entropy" in asked and rows:
            seen = looked_at(examples)
            rest["entropy"] = entropy(start_entropies, site_entropies(trainer, seen, rows), trainer.count)
        if "hardness" in asked:
            rest["hardness"] = hardness(start_profiles, profiles(trainer, rows, distances=True), rows)
        if (trial.activation.harden or trial.activation.replace) and rows:
            about = trainer, examples.test_x, examples.test_y, test
            rest["replacement"] = replaced(*about, task=task, rows=rows)
        files = _files(trial, trainer, test, examples.test_y, rows, task)
    if progress.gradients:
        rest["gradients"] = _gradients(trainer.gradient_norms, rows, trainer.count)
    curves = {name: tuple(tuple(row) for row in curve) for name, curve in progress.curves.items()}
    ways = {name: tuple(tuple(row) for row in way) for name, way in progress.ways.items()}
    return Finished(
        outcome=Outcome(
            trial=trial,
            seconds=progress.seconds,
            diverged=tuple(progress.diverged),
            selected=selected_epochs(progress, trainer),
            test=scores.get("test", {}),
            validation=scores.get("validation", {}),
            train=scores["train"],
            curves=curves,
            parameters=parameters(progress.start, progress.followed.now(trainer), ways, rows),
            **rest,
        ),
        files=files,
    )


def looked_at(examples: Examples) -> Tensor:
    """The examples that activity and entropy are measured on: never the test."""
    return examples.validation_x if len(examples.validation_x) else examples.train_x


def _differ(trial: Trial, task: str, rows: Sequence[int]) -> bool:
    return "prediction_difference" in trial.measures and task != REGRESSION and len(rows) >= _FEWEST


def _differences(outputs: Tensor, labels: Tensor, rows: Sequence[int]) -> dict[str, dict[str, Any]]:
    found = prediction_difference(probabilities_of(outputs[list(rows)]).cpu(), labels.cpu().long().flatten())
    each = {name: getattr(found, name) for name in DIFFERENCES}
    return {name: asdict(one) for name, one in each.items() if one is not None}


def _gradients(norms: Tensor, rows: Sequence[int], count: int) -> dict[str, Any]:
    """Mean and variance over the steps, of the seeds that went through to the end."""
    chosen = norms[:, list(rows)].double()
    means = chosen.mean(dim=0)
    # Of a single step there is no variance.
    variances = (chosen - means).square().sum(dim=0) / (len(norms) - 1) if len(norms) > 1 else means * math.nan
    found = {"mean": means, "variance": variances}
    return {name: spread_out(values.tolist(), rows, count) for name, values in found.items()}


def _files(
    trial: Trial, trainer: Trainer, outputs: Tensor, labels: Tensor, rows: Sequence[int], task: str
) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    if "predictions" in trial.keep:
        said = outputs.float() if task == REGRESSION else probabilities_of(outputs)
        gone = [seed for seed in range(trainer.count) if seed not in rows]
        said = said.cpu().index_fill(0, torch.tensor(gone, dtype=torch.int64), float("nan"))
        name = "predictions" if task == REGRESSION else "probabilities"
        files[f"{trial.key}.predictions.safetensors"] = write_tensors({name: said, "labels": labels})
    if "models" in trial.keep:
        files[f"{trial.key}.models.safetensors"] = write_tensors(trainer.weights())
    return files
