"""run_trial: the one way from a trial to its outcome, for a study on this machine and for a worker elsewhere."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import DataError, ParameterError, RecipeError
from ....measure import HardnessProfile, SiteEntropy, prediction_difference
from ....surgery import relu_ize_
from ....train.augment import Augment
from ....train.streamed import Streamed
from ...networks import OF_ROWS
from ..building import model_maker
from ..examples import Examples, load_examples
from ..recipe import LanguageTask
from ..reporting import measure_cost
from ..texts import Texts, load_texts
from ..trial import Trial
from ..trials import Finished, Outcome
from .language import run_language_trial
from .tasks import objective
from .tasks import scores as task_scores
from .training import (
    QUIET,
    REGRESSION,
    Progress,
    Trainer,
    Watch,
    activities,
    entropy,
    finite_rows,
    hardness,
    judge,
    judge_on_disk,
    logits_of,
    make_trainer,
    parameters,
    probabilities_of,
    profiles,
    selected_epochs,
    site_entropies,
    spread_out,
    train,
    write_tensors,
)


def progressive_predictions(trial: Trial, trainer: Trainer, examples: Examples) -> tuple[Examples, Tensor | None]:
    """The examples with those in the place of the test that are judged, and the outputs [M, n, ...] that each of them
    had before its step; without progressive validation the examples as they are, and None.

    The last `training.progressive` of the training examples in their order are judged: the same ones in every model.
    """
    share = trial.training.progressive
    if share is None:
        return examples, None
    predictions: Any = getattr(trainer, "progressive_predictions", None)
    assert predictions is not None, "a progressive trial is trained by Replicas, which kept them"
    first = judged_from(len(examples.train_x), share)
    return replace(examples, test_x=examples.train_x[first:], test_y=examples.train_y[first:]), predictions[:, first:]


def judged_from(count: int, share: float) -> int:
    """The place of the first example that is judged, of so many.

    >>> judged_from(7200, 0.5), judged_from(3, 0.01)
    (3600, 2)
    """
    return min(count - round(count * share), count - 1)


_REPLACED_AT_ONCE = 1024


def replaced(
    trainer: Trainer, x: Tensor, y: Tensor, outputs: Tensor, *, task: str, rows: Sequence[int]
) -> dict[str, Any]:
    """The limit by name, the scores with it in place, and the share of predictions that changed.

    outputs: what the models said of x before.

    A seed whose activations no plain module can stand for any more has no numbers; "not_run" says why.
    """
    limits: dict[str, None] = {}
    refused: dict[str, None] = {}
    after = torch.full_like(outputs, float("nan"))
    plain: list[int] = []
    for row in rows:
        model = trainer.model(row)
        try:
            report = relu_ize_(model, tolerance=math.inf)  # its cost is what is measured
        except ParameterError as error:  # what was learned beside the knob may have left every plain module
            refused[str(error)] = None
            continue
        limits |= dict.fromkeys(module.partition("(")[0] for module in report.replaced.values())
        after[row] = _predict(model, x)
        plain.append(row)
    replacement: dict[str, Any] = {"limit": ", ".join(limits), "test": judge(after, y, task=task, rows=plain)}
    if task != REGRESSION:
        before, now = (logits_of(values).argmax(dim=2) for values in (outputs, after))
        changed = (before != now).double().mean(dim=1)
        replacement["changed"] = spread_out(changed[plain].tolist(), plain, len(outputs))
    return replacement | ({"not_run": " ".join(refused)} if refused else {})


@torch.no_grad()
def _predict(model: nn.Module, x: Tensor) -> Tensor:
    model.eval()
    device = next(model.parameters()).device
    parts = (
        x.batches(_REPLACED_AT_ONCE, device)
        if isinstance(x, Streamed)
        else (inputs.to(device) for inputs in x.split(_REPLACED_AT_ONCE))
    )
    return torch.cat([model(inputs) for inputs in parts])


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
    task, measures = examples.task, trial.measures
    for_report = trial.kind in ("train", "teacher")
    examples, predictions = progressive_predictions(trial, trainer, examples)
    parts = [("validation", examples.validation_x, examples.validation_y)]
    if not isinstance(examples.train_x, Streamed):
        parts.insert(0, ("train", examples.train_x, examples.train_y))
    if for_report:
        parts.append(("test", examples.test_x, examples.test_y))
    outputs = {name: trainer.predict(x) for name, x, _ in parts if len(x) and (name != "test" or predictions is None)}
    if predictions is not None and for_report:
        outputs["test"] = predictions
    for seed in list(progress.alive):
        # Finite at the end of every epoch on what was looked at, and not on all that is looked at now.
        if not all(bool(finite_rows(output)[seed]) for output in outputs.values()):
            progress.diverged[seed] = trainer.epoch
    by_parts: dict[str, Any] = {}
    if isinstance(examples.train_x, Streamed):
        about = examples.train_x, examples.train_y
        by_parts["train"], diverged = judge_on_disk(trainer.predict, *about, rows=progress.alive)
        for seed in diverged:
            progress.diverged[seed] = trainer.epoch
    rows = progress.alive
    scores = by_parts | {
        name: judge(
            outputs[name],
            y,
            task=task,
            rows=rows,
            calibration=name == "test" and "calibration" in measures,
            picture=examples.picture if name == "test" else None,
        )
        for name, _, y in parts
        if name in outputs
    }
    files: dict[str, bytes] = {}
    rest: dict[str, Any] = {}
    if for_report:
        test = outputs["test"]
        scores["test"] = {**scores["test"], **task_scores(trial, trainer, examples, rows)}
        differ = "prediction_difference" in measures and task != REGRESSION and len(rows) >= _FEWEST
        rest["difference"] = _differences(test, examples.test_y, rows) if differ else {}
        if "activity" in measures and rows:
            seen = measured_examples(examples)
            rest["activity"] = activities(trainer, seen, rows)
        if "entropy" in measures and rows:
            seen = measured_examples(examples)
            rest["entropy"] = entropy(start_entropies, site_entropies(trainer, seen, rows), trainer.count)
        if "hardness" in measures:
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


def measured_examples(examples: Examples) -> Tensor:
    """The examples that activity and entropy are measured on: never the test."""
    return examples.validation_x if len(examples.validation_x) else examples.train_x


def _differences(outputs: Tensor, labels: Tensor, rows: Sequence[int]) -> dict[str, dict[str, Any]]:
    difference = prediction_difference(probabilities_of(outputs[list(rows)]).cpu(), labels.cpu().long().flatten())
    each = {name: getattr(difference, name) for name in DIFFERENCES}
    return {name: asdict(estimate) for name, estimate in each.items() if estimate is not None}


def _gradients(norms: Tensor, rows: Sequence[int], count: int) -> dict[str, Any]:
    """Mean and variance over the steps, of the seeds that went through to the end."""
    chosen = norms[:, list(rows)].double()
    means = chosen.mean(dim=0)
    # Of a single step there is no variance.
    variances = (chosen - means).square().sum(dim=0) / (len(norms) - 1) if len(norms) > 1 else means * math.nan
    moments = {"mean": means, "variance": variances}
    return {name: spread_out(values.tolist(), rows, count) for name, values in moments.items()}


def _files(
    trial: Trial, trainer: Trainer, outputs: Tensor, labels: Tensor, rows: Sequence[int], task: str
) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    if "predictions" in trial.keep:
        values = outputs.float() if task == REGRESSION else probabilities_of(outputs)
        diverged = [seed for seed in range(trainer.count) if seed not in rows]
        values = values.cpu().index_fill(0, torch.tensor(diverged, dtype=torch.int64), float("nan"))
        name = "predictions" if task == REGRESSION else "probabilities"
        files[f"{trial.key}.predictions.safetensors"] = write_tensors({name: values, "labels": labels})
    if "models" in trial.keep:
        files[f"{trial.key}.models.safetensors"] = write_tensors(trainer.weights())
    return files


_IMAGES_AT_ONCE = 4096  # images


def training_inputs(trial: Trial, examples: Examples) -> tuple[Tensor, Augment | None]:
    """The inputs that `fit` is given, and its `augment`.

    Bytes take a quarter of the room of floats on a GPU, and black is 0 in them; they are normalised after they were
    changed. Images on a disk are bytes there, and stay there.
    """
    if examples.on_disk and trial.training.engine == "loop":
        raise RecipeError(
            f"training.engine: loop has all examples in memory, and those of {examples.name} are read from a disk. "
            "Take training.engine: compiled or replicas; or a part of them, which is in memory: --set data.limit=N."
        )
    if trial.augment is None:
        return examples.train_x, None
    if examples.image is None:
        raise RecipeError(f"augment is for images, and {examples.name} has none.")
    augment = trial.augment.augment(
        steps_of_epoch=math.ceil(len(examples.train_x) / trial.training.batch),
        classes=examples.classes,
        mean=[level / 255 for level in examples.mean],
        std=[level / 255 for level in examples.spread],
        shape=examples.image if examples.input_shape != examples.image else None,
    )
    return examples.train_x if examples.on_disk else levels(examples), augment


def levels(examples: Examples) -> Tensor:
    """The training images as bytes, in the shape that the examples have.

    >>> from softknee.lab.studies.examples import load_examples
    >>> from softknee.lab.studies.recipe import Data
    >>> found = levels(load_examples(Data(set="digits"), flat=True))  # sixteenths, as multiples of 15
    >>> found.shape, found.dtype, found.max().item(), (found % 15).max().item()
    (torch.Size([718, 64]), torch.uint8, 240, 0)
    """
    assert examples.image is not None
    x = examples.train_x
    mean, spread = (
        torch.tensor(levels_of, device=x.device).view(-1, 1, 1) for levels_of in (examples.mean, examples.spread)
    )
    # A float32 holds (level - mean) / spread to some 1e-5 of a level: rounding gives the byte that it was made of.
    parts = [part.reshape(-1, *examples.image) * spread + mean for part in x.split(_IMAGES_AT_ONCE)]
    return torch.cat([part.round().clamp(0, 255).byte() for part in parts]).reshape(x.shape)


def run_trial(
    trial: Trial,
    *,
    examples: Examples | Texts | None = None,
    data_folder: str | os.PathLike[str] | None = None,
    saved: bytes | None = None,
    watch: Watch = QUIET,
    base: str | os.PathLike[str] | None = None,
    teacher: bytes | None = None,
) -> Finished:
    """Run a trial to its end.

    Args:
        examples: the data, if they are there already; otherwise they are loaded as the trial says.
        data_folder: where the data sets by name lie.
        saved: what a `Watch` saved of this trial; it goes on from there, on a CPU to the same bits.
        watch: told of every step and epoch.
        base: the folder of the recipe, where a file or a function of your own is looked for.
        teacher: the weights that the trial of its teacher has kept, for a trial that has one.

    "train" reads the test set once, at the end, with the weights of the selected epochs (a hardened trial's last, where
    its knobs are at their targets, unless its activation says `select: best_val`); "tune" never reads it; "cost" trains
    nothing and times every activation.

    >>> from softknee.lab.studies.recipe import Data, Model, Seeds, Training
    >>> from softknee.lab.studies.trial import Chosen
    >>> digits = load_examples(Data(set="digits"), flat=True)
    >>> asked = Trial(kind="train", activations=(Chosen(name="smelu", label="smelu"),), data=Data(set="digits"),
    ...               fingerprint=digits.fingerprint, model=Model(arguments={"hidden": [16]}),
    ...               training=Training(epochs=2), seeds=Seeds(count=3))
    >>> found = run_trial(asked, examples=digits).outcome
    >>> found.selected, len(found.test["accuracy"]), min(found.test["accuracy"]) > 0.2
    ((2, 2, 2), 3, True)
    """
    if examples is None and isinstance(trial.task, LanguageTask):
        examples = load_texts(trial.data, trial.task, trial.model, folder=data_folder, base=base)
    elif examples is None:
        examples = load_examples(trial.data, folder=data_folder, base=base, flat=trial.model.build in OF_ROWS)
    if examples.fingerprint != trial.fingerprint:
        raise DataError(
            f"The trial {trial.key} is of other examples (fingerprint {trial.fingerprint[:12]}) than those that are "
            f"here now ({examples.fingerprint[:12]}); a changed file makes new trials: plan the study anew."
        )
    # What no record can hold is said now, and not after the training.
    Outcome(trial=trial, seconds=0.0).record(command="softknee study", git=None)
    if isinstance(examples, Texts):
        return run_language_trial(trial, examples, saved=saved, watch=watch)
    if trial.kind == "cost":
        return measure_cost(trial, examples)
    maker = model_maker(trial.model, trial.activation, examples, init=trial.init, loss=trial.training.loss)
    maker, goal = objective(trial, maker, examples, teacher=teacher)
    trainer = make_trainer(trial, maker)
    trained = sum(parameter.numel() for parameter in trainer.model(0).parameters() if parameter.requires_grad)
    everyone = range(trainer.count)
    start_profiles = profiles(trainer, everyone, distances=False) if "hardness" in trial.measures else []
    wanted = trial.kind == "train" and "entropy" in trial.measures
    start_entropies = site_entropies(trainer, measured_examples(examples), everyone) if wanted else {}
    validation = None
    if len(examples.validation_x):
        inputs = examples.validation_x if examples.on_disk else examples.validation_x.to(trainer.device)
        validation = inputs, examples.validation_y.to(trainer.device)
    inputs, augment = training_inputs(trial, examples)
    progress = train(
        trial,
        trainer,
        task=examples.task,
        train_examples=(inputs, examples.train_y),
        validation=validation,
        saved=saved,
        watch=watch,
        more={"augment": augment} | goal,
    )
    finished = finish(
        trial, trainer, progress, examples, start_profiles=start_profiles, start_entropies=start_entropies
    )
    # Where every epoch was noted their numbers go without saying.
    epochs = tuple(progress.epochs) if trial.training.every > 1 else ()
    return replace(finished, outcome=replace(finished.outcome, epochs=epochs, trained=trained))
