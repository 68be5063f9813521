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
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ParameterError, did_you_mean
from ...measure.record import Record, RecordError
from ...measure.speed import choose_device
from ..data.images import ImageSet, load_image_set
from ..image_training import (
    Batches,
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
from ..kept import Kept
from .finding import Trained, row_of

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
    smoke:       a smoke run, which the record then says.
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
    smoke: bool = False

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
        few = (self.entries[0], *self.entries[1:][-1:])
        return replace(self, plan=plan, seeds=self.seeds[:1], entries=few, smoke=True)


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
    keep: str | os.PathLike[str] | None = None,
) -> Record:
    """Train the teacher and all students and return the record; `data` in the place of the data set by its name.

    In the folder `keep` each network's finding is kept as soon as it is there, and not sought again (`lab.kept`).
    """
    device = choose_device(settings.device)
    images = (data or load_image_set(settings.data_set, settings.data)).to(device)
    names = [TEACHER] if settings.teacher is not None else []
    names += [_name(entry, seed) for entry in settings.entries for seed in settings.seeds]
    kept = Kept(keep, kind=KIND, settings=_settings_of_record(settings, images, device), names=names)
    batches = Batches(images, settings.plan, device=device)
    rows, judge, taught_by = [], cross_entropy, ""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        for entry in settings.entries:  # what cannot be built is said now, and not when the teacher has been trained
            build(settings.student, entry, classes=len(images.labels), seed=settings.seeds[0])
        if settings.teacher is not None:
            found, teacher, taught_by = _teacher(settings.teacher, batches, settings, advance, kept)
            rows.append(row_of(f"{TEACHER}, ReLU", [found]))
            judge = distilling(teacher, temperature=settings.temperature, share=settings.share)
        for entry in settings.entries:
            each = _students(entry, batches, settings, judge, taught_by, advance, kept)
            rows.append(row_of(entry.title, each))
    return kept.of(_record(settings, rows, images, device, command))


def _teacher(
    network: str,
    batches: Batches,
    settings: Settings,
    advance: Callable[[str], None],
    kept: Kept,
) -> tuple[Trained, nn.Module, str]:
    """What it found, itself in eval mode, and the checksum of its weights: trained here, or as it was kept."""
    seed = settings.seeds[0]
    training = _training(network, _RELU, batches, settings, cross_entropy)
    say, was_there = partial(advance, f"{TEACHER} seed {seed}"), kept.get(TEACHER) is not None

    def train() -> dict[str, Any]:
        found = _one(training, network, _RELU, seed, say)
        # The weights first: where a finding is, they are.
        return {**asdict(found), "checksum": kept.put_weights(TEACHER, training.model)}

    row = kept.found(TEACHER, train, advance=say, steps=settings.plan.epochs)
    if was_there and kept.missing:
        kept.load_weights(TEACHER, training.model, checksum=row["checksum"])
    return Trained.of(row), training.snapshot(), row["checksum"]


def _students(
    entry: Entry,
    batches: Batches,
    settings: Settings,
    judge: Judge,
    taught_by: str,
    advance: Callable[[str], None],
    kept: Kept,
) -> list[Trained]:
    """Every seed of one activation; on a GPU they share one recorded step."""
    found, made = [], cache(partial(_training, settings.student, entry, batches, settings, judge))

    def train(seed: int, say: Callable[[], None]) -> dict[str, Any]:
        return {**asdict(_one(made(), settings.student, entry, seed, say)), "taught_by": taught_by}

    for seed in settings.seeds:
        name, say = _name(entry, seed), partial(advance, f"{entry.title} seed {seed}")
        row = kept.found(name, partial(train, seed, say), advance=say, steps=settings.plan.epochs)
        if row["taught_by"] != taught_by:
            raise RecordError(
                f"'{name}' in '{kept.folder}' learned from another teacher than the one that is kept there: two runs "
                "trained one at the same time. Delete that student's file to train it again."
            )
        found.append(Trained.of(row))
    return found


def _name(entry: Entry, seed: int) -> str:
    return f"{entry.name}-seed-{seed}"


def _training(network: str, entry: Entry, batches: Batches, settings: Settings, judge: Judge) -> ImageTraining:
    model = build(network, entry, classes=len(batches.data.labels), seed=settings.seeds[0])
    return ImageTraining(model, batches, settings.plan, device=batches.device, judge=judge)


def _one(
    training: ImageTraining,
    network: str,
    entry: Entry,
    seed: int,
    advance: Callable[[], None],
) -> Trained:
    model = build(network, entry, classes=len(training.data.labels), seed=seed)
    began = time.perf_counter()
    training.begin(model.state_dict(), seed=seed).run(advance)
    lost = not bool(training.losses.isfinite().all())
    return Trained(
        seed=seed,
        numbers=trained_numbers(model),
        seconds=time.perf_counter() - began,
        accuracy=None if lost else training.tests[training.plan.epochs],
        train_accuracy=training.train_accuracy,
        tests=dict(training.tests),
        start=learned(model),
        learned={} if lost else learned(training.snapshot()),
    )


def _record(
    settings: Settings, rows: Sequence[Mapping[str, Any]], data: ImageSet, device: torch.device, command: str
) -> Record:
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline="ReLU from the same weights on the same batches",
        settings=_settings_of_record(settings, data, device),
        notes=[
            "Accuracy of the test images after the last epoch, in percent, in float32; one teacher for all students.",
            "gap: accuracy of the training images, changed at random, during the last epoch, less that of the test.",
        ],
    )


def _settings_of_record(settings: Settings, data: ImageSet, device: torch.device) -> dict[str, Any]:
    return {
        "teacher": settings.teacher,
        "student": settings.student,
        "teacher_seed": settings.seeds[0] if settings.teacher else None,
        "share": settings.share if settings.teacher else 0.0,
        "temperature": settings.temperature,
        "smoke": settings.smoke,
        "trained_squafs": next((one.where for one in settings.entries if one.name == "squaf"), "first"),
        **settings_of_record(data, settings.plan, device),
    }
