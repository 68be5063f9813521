r"""Distillation with other activations: tables 7, 14 and 15 and figure 5 of the SQUAF paper.

A teacher with ReLU is trained, then students of it, each with its own activation:

    loss = (1 - share) CE(student, label) + share T^2 KL(softmax(teacher / T) || softmax(student / T))

with T = 4 and share = 0.9, the defaults of the code that the paper follows. The teacher sees the images as the student
does, changed at random. Without a teacher the loss is the cross-entropy alone: table 6 for one network.

The gap is training accuracy, over the images as they were changed in the last epoch, less test accuracy.

References: Soft quantization activation functions, section 4.4 and appendices A.3, A.9, A.12; Hinton, Vinyals, Dean
(2015); Tian, Krishnan, Isola (2019).
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ParameterError, did_you_mean
from ...measure.record import Quantity, Record
from ...measure.speed import choose_device
from ..data.images import ImageSet, load_image_set
from ..image_training import (
    Entry,
    ImageTraining,
    Judge,
    Plan,
    build,
    check_network,
    cross_entropy,
    learned,
    settings_of_record,
    squaf,
    trained_numbers,
)

KIND = "study distil"
TEACHER = "teacher"
_RELU = Entry(title="ReLU", name="relu")
# PolyNorm takes the channels of a place for its rows; the paper does not say what it takes in a CNN.
ENTRIES = {
    one.name: one
    for one in (
        _RELU,
        Entry(title="GELU", name="gelu"),
        Entry(title="LReLU", name="leaky_relu"),
        Entry(title="PReLU", name="prelu", learn=True),
        Entry(title="SiLU", name="silu"),
        Entry(title="Swish", name="swish", learn=True),
        Entry(title="CRReLU", name="crrelu", learn=True),
        Entry(title="PolyReLU", name="polyrelu", learn=True),
        Entry(title="PolyNorm", name="polynorm", values={"row_dim": 1}, learn=True),
        Entry(title="DiTAC", name="ditac", learn=True),
        squaf("SQUAF"),
    )
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run, on what, and where the data lie.

    teacher:     its network, or None for students that learn from the labels alone.
    share:       of the teacher in the loss.
    temperature: T of the loss.
    """

    teacher: str | None = "vgg13"
    student: str = "vgg8"
    entries: tuple[Entry, ...] = tuple(ENTRIES.values())
    data_set: str = "cifar-100"
    share: float = 0.9
    temperature: float = 4.0
    seeds: tuple[int, ...] = (0, 1, 2)
    plan: Plan = field(default_factory=lambda: Plan(epochs=240))
    device: str = "auto"
    data: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        for name in (self.student, *([] if self.teacher is None else [self.teacher])):
            check_network(name)
        if not self.seeds or not self.entries:
            raise ParameterError("A study of distillation needs an activation and a seed at least.")
        if not 0 <= self.share <= 1 or not 0 < self.temperature < math.inf:
            raise ParameterError("share must be in [0, 1], and temperature a finite number above 0.")

    def for_smoke(self) -> Settings:
        """A form that only shows that everything runs: two batches of two, one epoch, the first and last activation."""
        plan = replace(self.plan, epochs=1, batch=2, every=1)
        return replace(self, plan=plan, seeds=self.seeds[:1], entries=(self.entries[0], *self.entries[1:][-1:]))


def choose_entries(names: Sequence[str], *, where: str = "first") -> tuple[Entry, ...]:
    """The activations of these names; `where` says which SQUAFs are trained, as `sk.train_squaf_` takes it."""
    for name in names:
        if name not in ENTRIES:
            near = did_you_mean(name, ENTRIES)
            raise ParameterError(f"Students may have {', '.join(ENTRIES)}, and {name!r} was asked.{near}")
    found = [ENTRIES[name] for name in names or ENTRIES]
    return tuple(replace(one, where=where) if one.name == "squaf" else one for one in found)


def distilling(teacher: nn.Module, *, temperature: float, share: float) -> Judge:
    """The loss of a student of this teacher, which is in eval mode and is not trained."""

    def judge(images: Tensor, labels: Tensor, output: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = F.log_softmax(teacher(images).float() / temperature, dim=1)
        found = F.log_softmax(output.float() / temperature, dim=1)
        apart = F.kl_div(found, wanted, reduction="batchmean", log_target=True)
        return (1 - share) * cross_entropy(images, labels, output) + share * temperature**2 * apart

    return judge


def steps(settings: Settings) -> int:
    """How often `run` reports progress: after every epoch of every network."""
    students = len(settings.seeds) * len(settings.entries)
    return settings.plan.epochs * (students + (settings.teacher is not None))


def run(
    settings: Settings,
    *,
    command: str,
    advance: Callable[[str], None] = lambda _: None,
    data: ImageSet | None = None,
) -> Record:
    """Train the teacher and all students and return the record; `data` in the place of the data set by its name."""
    device = choose_device(settings.device)
    images = (data or load_image_set(settings.data_set, settings.data)).to(device)
    rows, judge = [], cross_entropy
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for entry in settings.entries:  # what cannot be built is said now, and not when the teacher has been trained
            build(settings.student, entry, classes=len(images.labels), seed=settings.seeds[0])
        if settings.teacher is not None:
            training = _training(settings.teacher, _RELU, images, settings, device, cross_entropy)
            found = _one(training, settings.teacher, _RELU, images, settings.seeds[0], advance, TEACHER)
            rows.append(_row(f"{TEACHER}, ReLU", training, [found]))
            judge = distilling(training.snapshot(), temperature=settings.temperature, share=settings.share)
        for entry in settings.entries:
            training = _training(settings.student, entry, images, settings, device, judge)
            each = [
                _one(training, settings.student, entry, images, seed, advance, entry.title) for seed in settings.seeds
            ]
            rows.append(_row(entry.title, training, each))
    return _record(settings, rows, images, device, command)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One network of one seed; the accuracies are None where its loss was no longer a number."""

    seed: int
    seconds: float
    accuracy: float | None
    train_accuracy: Sequence[float]
    tests: Mapping[int, float]
    start: Mapping[str, Any]
    learned: Mapping[str, Any]

    @property
    def gap(self) -> float | None:
        return None if self.accuracy is None else self.train_accuracy[-1] - self.accuracy


def _training(
    network: str, entry: Entry, data: ImageSet, settings: Settings, device: torch.device, judge: Judge
) -> ImageTraining:
    model = build(network, entry, classes=len(data.labels), seed=settings.seeds[0])
    return ImageTraining(model, data, settings.plan, device=device, judge=judge)


def _one(
    training: ImageTraining,
    network: str,
    entry: Entry,
    data: ImageSet,
    seed: int,
    advance: Callable[[str], None],
    label: str,
) -> Trained:
    model = build(network, entry, classes=len(data.labels), seed=seed)
    began = time.perf_counter()
    training.begin(model.state_dict(), seed=seed).run(lambda: advance(f"{label} seed {seed}"))
    lost = not bool(training.losses.isfinite().all())
    return Trained(
        seed=seed,
        seconds=time.perf_counter() - began,
        accuracy=None if lost else training.tests[training.plan.epochs],
        train_accuracy=training.train_accuracy,
        tests=dict(training.tests),
        start=learned(model),
        learned={} if lost else learned(training.snapshot()),
    )


def _row(title: str, training: ImageTraining, found: Sequence[Trained]) -> dict[str, Any]:
    epochs = list(found[0].tests)
    row: dict[str, Any] = {
        "activation": title,
        "trained": trained_numbers(training.model),
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


def _record(
    settings: Settings, rows: Sequence[Mapping[str, Any]], data: ImageSet, device: torch.device, command: str
) -> Record:
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline="ReLU from the same weights on the same batches",
        settings={
            "teacher": settings.teacher,
            "student": settings.student,
            "share": settings.share if settings.teacher else 0.0,
            "temperature": settings.temperature,
            **settings_of_record(data, settings.plan, device),
        },
        notes=[
            "Accuracy of the test images after the last epoch, in percent, in float32; one teacher for all students.",
            "gap: accuracy of the training images, changed at random, during the last epoch, less that of the test.",
        ],
    )
