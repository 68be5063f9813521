"""Distillation: students with other activations than their teacher's, as in tables 7, 14 and 15 of the SQUAF paper."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache, partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import ParameterError, did_you_mean
from ..measure.record import Quantity, Record, RecordError
from .bench.speed import choose_device
from .chart import INK, Chart, by_name, lines_legend, marks, number, sized, write_figure
from .data.images import ImageSet, load_image_set
from .figures import DISTINCT
from .image_training import (
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
from .kept import Kept


@dataclass(frozen=True, kw_only=True)
class Reported:
    """One student of one teacher, or of none.

    accuracy, gap: of the test (validation) images, and training less test accuracy at the end, in percent.
    parameters: how many are trained; PolyReLU, which does not converge there, has no accuracy.
    """

    source: str
    data: str
    teacher_accuracy: float | None = None
    accuracy: Mapping[str, float]
    gap: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)


_VGG_8 = {
    "ReLU": 3_965_028, "GELU": 3_965_028, "LReLU": 3_965_028, "PReLU": 3_965_033, "Swish": 3_965_033,
    "CRReLU": 3_965_033, "PolyReLU": 3_965_048, "PolyNorm": 3_965_048, "DiTAC": 3_965_073, "SQUAF": 3_965_063,
}  # fmt: skip
PAPER: dict[tuple[str | None, str], Reported] = {
    (None, "vgg8"): Reported(
        source="table 6",
        data="cifar-100",
        accuracy={
            "ReLU": 70.36, "GELU": 69.94, "LReLU": 70.48, "PReLU": 68.30, "SiLU": 70.28, "Swish": 70.50,
            "CRReLU": 68.22, "PolyNorm": 66.65, "DiTAC": 71.03, "SQUAF": 72.57,
        },
        parameters=_VGG_8,
    ),
    ("vgg13", "vgg8"): Reported(
        source="tables 7 and 14",
        data="cifar-100",
        teacher_accuracy=74.64,
        accuracy={
            "ReLU": 72.98, "GELU": 73.51, "LReLU": 73.37, "PReLU": 72.27, "Swish": 73.45, "CRReLU": 72.88,
            "PolyNorm": 70.44, "DiTAC": 73.49, "SQUAF": 74.95,
        },
        gap={
            "GELU": 22.57, "LReLU": 21.52, "PReLU": 23.43, "Swish": 22.52, "CRReLU": 24.78, "PolyNorm": 24.23,
            "DiTAC": 22.53, "SQUAF": 20.68,
        },
        parameters={"teacher": 9_462_180, **_VGG_8},
    ),
    ("wrn40_2", "wrn16_2"): Reported(
        source="tables 7 and 14",
        data="cifar-100",
        teacher_accuracy=75.61,
        accuracy={
            "ReLU": 74.92, "GELU": 75.30, "LReLU": 74.90, "PReLU": 74.93, "Swish": 75.36, "CRReLU": 74.98,
            "PolyNorm": 72.86, "DiTAC": 75.45, "SQUAF": 75.93,
        },
        gap={
            "GELU": 14.87, "LReLU": 13.76, "PReLU": 14.31, "Swish": 14.95, "CRReLU": 15.61, "PolyNorm": 16.50,
            "DiTAC": 15.54, "SQUAF": 13.12,
        },
        parameters={
            "teacher": 2_255_156, "ReLU": 703_284, "GELU": 703_284, "LReLU": 703_284, "PReLU": 703_297,
            "Swish": 703_297, "CRReLU": 703_297, "PolyReLU": 703_336, "PolyNorm": 703_336, "DiTAC": 703_401,
            "SQUAF": 703_319,
        },
    ),
    ("timm:resnet18", "timm:mobilenetv1_100"): Reported(
        source="table 15",
        data="imagenet-1k",
        teacher_accuracy=69.76,
        accuracy={"ReLU": 69.71, "SQUAF": 70.87},
        parameters={"teacher": 11_689_512, "SQUAF": 4_232_781},  # the teacher's stands in table 13
    ),
}  # fmt: skip


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


_HEADS = ("activation", "parameters", "paper's", "accuracy, %", "paper's", "gap", "paper's gap")
_DASHES = ([1, 0], [6, 3], [2, 3])


def distil_markdown(record: Record) -> str:
    """A row for the teacher and for each activation of the student, mean and spread over the seeds."""
    if record.kind != KIND:
        raise ParameterError(
            f"This table is made of a record of 'softknee study distil', and this one is of {record.kind!r}; name "
            "another file."
        )
    reported = reported_of(record)
    lines = [f"| {' | '.join(_HEADS)} |", "|:--" + "|--:" * (len(_HEADS) - 1) + "|"]
    for row in record.rows:
        name = row["activation"]
        if "not_run" in row:
            found, gap = row["not_run"], ""
        else:
            found, gap = row["accuracy"].text(2), row["gap"].text(2)
        count, quoted, quoted_gap = "", "", ""
        if reported is not None:
            is_teacher = name.startswith(TEACHER)
            known = reported.parameters.get(TEACHER if is_teacher else name)
            count = "" if known is None else f"{known:,}"
            quoted = _number({name: reported.teacher_accuracy} if is_teacher else reported.accuracy, name)
            quoted_gap = _number(reported.gap, name)
        cells = [name, f"{row['trained']:,}", count, found, quoted, gap, quoted_gap]
        lines.append(f"| {' | '.join(cells)} |")
    note = "" if reported is None else f"\nThe paper's: {reported.source}, {reported.data}; here {_here(record)}.\n"
    return "\n".join(lines) + "\n" + note


def reported_of(record: Record) -> Reported | None:
    """The paper's numbers for this pair of networks, where it has any."""
    return PAPER.get((record.settings["teacher"], record.settings["student"]))


def draw_distil(record: Record, path: str | PathLike[str]) -> Path:
    """Test accuracy and generalisation gap over the epochs, one line for each activation, means over the seeds."""
    rows = [row for row in record.rows if "accuracy" in row and not row["activation"].startswith(TEACHER)]
    if record.kind != KIND or not rows:
        raise ParameterError(
            f"These curves are drawn from a record of 'softknee study distil', and this one is of {record.kind!r} or "
            "has no student."
        )
    teachers = [row for row in record.rows if row["activation"].startswith(TEACHER) and "accuracy" in row]
    left = _curves(rows, _tests, f"test accuracy, %: {_here(record)}", [row["accuracy"].value for row in teachers])
    right = _curves(rows, _gaps, "generalisation gap, percentage points", [])
    figure = {"hconcat": [left, right], "spacing": 28}
    return write_figure(figure, path, label="test accuracy and generalisation gap over the epochs")


def _curves(rows: list[Any], means: Any, title: str, teachers: list[float]) -> Chart:
    """A line for each activation; and one across at the accuracy of each teacher."""
    names = [row["activation"] for row in rows]
    points = [
        {"name": row["activation"], "epoch": epoch, "y": value}
        for row in rows
        for epoch, value in zip(row["curve"]["epochs"], means(row), strict=True)
    ]
    every = [point["y"] for point in points] + teachers
    room = 0.06 * (max(every) - min(every)) or 1.0
    last = max(row["curve"]["epochs"][-1] for row in rows)
    x = number("epoch", title="epoch", domain=(0, last))
    y = number("y", domain=(min(every) - room, max(every) + room))
    looks = [(DISTINCT[i % len(DISTINCT)], _DASHES[i // len(DISTINCT) % len(_DASHES)]) for i in range(len(names))]
    legend = lines_legend(columns=1, orient="right")
    channels = {
        "color": by_name(names, [colour for colour, _ in looks], legend=legend),
        "strokeDash": by_name(names, [dash for _, dash in looks], legend=legend),
    }
    levels = [{"y": value, "text": TEACHER} for value in teachers]
    layers = [
        marks("line", points, {"x": x, "y": y, **channels}),
        marks("rule", levels, {"y": y}, color=INK, strokeDash=[2, 3]),
        marks("text", levels, {"x": {"value": 4}, "y": y, "text": {"field": "text"}}, align="left", dy=-7),
    ]
    return sized({"title": title, "layer": layers}, 330, 270)


def _tests(row: Mapping[str, Any]) -> list[float]:
    return [sum(column) / len(column) for column in zip(*row["curve"]["test"], strict=True)]


def _gaps(row: Mapping[str, Any]) -> list[float]:
    trained = [sum(column) / len(column) for column in zip(*row["curve"]["train"], strict=True)]
    return [before - after for before, after in zip(trained, _tests(row), strict=True)]


def _here(record: Record) -> str:
    given = record.settings
    taught = f"{given['teacher']} → {given['student']}" if given["teacher"] else given["student"]
    epochs = f"{given['epochs']} epoch" + "s" * (given["epochs"] != 1)
    return f"{taught}, {given['data']}, {epochs}"


def _number(numbers: Mapping[str, float | None], name: str) -> str:
    found = numbers.get(name)
    return "" if found is None else f"{found:.2f}"


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
