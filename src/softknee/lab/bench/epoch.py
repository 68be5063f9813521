"""What an epoch of training on images costs: a plain eager loop against `Replicas.fit(compiled=True)`.

Both train the same network on the same images, which lie on the device as uint8, in the same precision, with AdamW and
clipped gradients. The images are random: speed does not depend on what they show.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ParameterError
from ...measure.record import Quantity, Record, without_paths
from ...surgery import param_groups
from ...train import Replicas
from ...train.arguments import steps_of_epoch, tensor_of
from ...train.augment import Augment
from ...train.program import read_precision
from ..table import Table
from .clock import check_counts, check_names, check_settings, chosen_settings, failures, machine, now, why_not
from .models import Shape, build, swap_text

PLAIN, COMPILED = "plain loop", "compiled"
CROP_FLIP = "crop-flip"
_FULL = {"randaugment": (9, 0.5), "mixup": 0.8, "cutmix": 1.0, "erasing": 0.25, "smoothing": 0.1}
AUGMENTATIONS: Mapping[str, Mapping[str, Any]] = {CROP_FLIP: {}, "full": _FULL}
Call = Callable[[], None]
_LR, _DECAY, _CLIP, _CLASSES = 1e-3, 0.05, 1.0, 10


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The network by its name, the numbers of models trained at once, what is done to images, how long to measure."""

    model: str
    device: torch.device
    image: int = 32
    config: Mapping[str, Any] = field(default_factory=dict)
    swap: str | None = None
    counts: tuple[int, ...] = (1, 3)
    augment: tuple[str, ...] = tuple(AUGMENTATIONS)
    examples: int = 50_000
    batch: int = 256
    steps: int | None = None
    """How many are timed at a time; None for those of an epoch."""
    epochs: int = 100
    """What the seconds of a whole training are given for."""
    precision: str = "bfloat16"
    repeats: int = 2
    plain: bool = True

    def __post_init__(self) -> None:
        check_settings(self, "image", "examples", "batch", "epochs", "repeats")
        if self.steps is not None:
            check_settings(self, "steps")
        check_counts(self.counts, "models")
        check_names(self.augment, AUGMENTATIONS, "augmentation")
        if not self.augment and not self.plain:
            raise ParameterError("Nothing is left to measure: name an augmentation, or leave --no-plain out.")
        if self.timed > self.in_epoch:
            raise ParameterError(
                f"steps={self.timed} is too many: an epoch of {self.examples} examples in batches of "
                f"{self.batch} has {self.in_epoch}."
            )
        library, _, kind = self.model.partition(":")
        if library == "transformers" and kind != "vit":
            raise ParameterError(f"{self.model} takes no images: write timm:NAME, or transformers:vit.")
        read_precision(self.precision)

    @property
    def in_epoch(self) -> int:
        """The steps of an epoch, the last one smaller where the batch does not divide the examples."""
        return steps_of_epoch(self.examples, batch=min(self.batch, self.examples), drop_last=False)

    @property
    def timed(self) -> int:
        return self.in_epoch if self.steps is None else self.steps

    @property
    def built_with(self) -> dict[str, Any]:
        """The configuration, with the number of classes and, unless one was given, the patches of small images."""
        name = self.model.partition(":")[2]
        classes = "num_labels" if self.model.startswith("transformers") else "num_classes"
        small = {"patch_size": 4} if name.startswith("vit") and not self.config else {}
        return {classes: _CLASSES} | small | dict(self.config)


def measure(settings: Settings, *, command: str, report: Callable[[str], None] = lambda _: None) -> Record:
    """Time all of it, one after the other; `report` is called with what is being done."""
    rows, extrapolated = _rows(settings, report), settings.timed < settings.in_epoch
    return Record.now(
        "bench epoch",
        command=command,
        rows=rows,
        seeds=tuple(range(max(settings.counts))),
        baseline="a plain eager loop over one model, in the same run" if settings.plain else None,
        settings=chosen_settings(
            settings, "model", "image", "precision", "counts", "augment", "examples", "batch", "epochs", "repeats"
        )
        | {
            "config": settings.built_with,
            "swap": None if settings.swap is None else without_paths(settings.swap),
            "augmentations": {name: str(_augment(name, _CLASSES, 3)) for name in settings.augment},
            "steps_of_an_epoch": settings.in_epoch,
            "steps_timed": settings.timed,
            "threads": torch.get_num_threads(),
            "optimizer": f"AdamW, rate {_LR}, weight decay {_DECAY}, gradients clipped to {_CLIP}",
            "matmul_precision": torch.get_float32_matmul_precision(),
        },
        notes=(
            "the plain loop is an eager one over one model: autocast in bfloat16 where that is the precision, "
            "torch.optim.AdamW (fused on a GPU), clip_grad_norm_, cudnn.benchmark; the images lie on the device as "
            "uint8, and crop and flip are done there, eagerly",
            "compiled is Replicas.fit(compiled=True): on a GPU each model is compiled, and the step of all is a "
            "captured CUDA graph; on a CPU nothing is compiled",
            "step is the wall time of a stretch of steps, with the drawing of the order, over their number; a stretch "
            "that warms up is left out",
            f"run is {settings.epochs} epochs of {settings.in_epoch} such steps, without the start"
            + (f", extrapolated from stretches of {settings.timed} steps" if extrapolated else ""),
            "start is from the building of the models until the first step is done, with compiling and capturing; what "
            "one way compiled, the next may find in the compiler's cache on the disk",
            "first_epoch is the start and the rest of the first stretch, where a smaller last batch is compiled, too",
            "ratio is the step of the plain loop, with crop and flip alone, times the number of models, over the step",
        ),
    )


def _rows(settings: Settings, report: Callable[[str], None]) -> list[dict[str, Any]]:
    report("building the model")
    _, inputs = _make(settings, 0)  # wrong settings are refused here, and not in every row
    shape = next(iter(inputs.values())).shape[1:]
    classes = next(value for key, value in settings.built_with.items() if key in ("num_classes", "num_labels"))
    used = min(settings.examples, settings.timed * settings.batch)
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(256, (used, *shape), generator=draw, dtype=torch.uint8).to(settings.device)
    y = torch.randint(classes, (used,), generator=draw).to(settings.device)

    plain: Quantity | None = None
    rows: list[dict[str, Any]] = []
    if settings.plain:
        report("the plain loop")
        augment = _augment(CROP_FLIP, classes, shape[0])
        run = partial(_plain_loop, settings, x, y, augment)
        row = _row(settings, run, way=PLAIN, count=1, augmentation=CROP_FLIP)
        plain = row.get("step")
        rows.append(row)
    for augmentation in settings.augment:
        for count in settings.counts:
            report(f"{count} compiled, {augmentation}")
            run = partial(_fit, settings, x, y, _augment(augmentation, classes, shape[0]), count)
            row = _row(settings, run, way=COMPILED, count=count, augmentation=augmentation)
            if plain is not None and "step" in row:
                row["ratio"] = count * plain.value / row["step"].value
            rows.append(row)
    return rows


def _row(settings: Settings, run: Callable[[Call, Call], None], **row: Any) -> dict[str, Any]:
    """A row of what `run` takes; it calls its two arguments after the first step and after each stretch of steps."""
    begun, first, ends = now(settings.device), [], []
    try:
        run(lambda: first.append(now(settings.device)), lambda: ends.append(now(settings.device)))
    except Exception as error:
        # Only the text stays: the error holds the models through its traceback.
        return row | {"not_run": why_not(error)}
    finally:
        # What one way has compiled and taken must not be there for the next: a code object keeps few of its versions.
        gc.collect()
        if settings.device.type == "cuda":  # elsewhere nothing is compiled
            torch.compiler.reset()
            torch.cuda.empty_cache()
    steps = [1e3 * (late - early) / settings.timed for early, late in pairwise(ends)]
    seconds = settings.epochs * settings.in_epoch / 1e3
    return row | {
        "step": Quantity.median(steps, unit="ms"),
        "run": Quantity.median([step * seconds for step in steps], unit="s"),
        "start": first[0] - begun,
        "first_epoch": ends[0] - begun,
    }


def _augment(name: str, classes: int, channels: int) -> Augment:
    usual: dict[str, Any] = {"mean": (0.5,) * channels, "std": (0.25,) * channels}
    return Augment(crop=4, flip=True, classes=classes, **usual, **AUGMENTATIONS[name])


def _make(settings: Settings, seed: int) -> tuple[nn.Module, dict[str, Tensor]]:
    """A model with its swap, and an input."""
    model, inputs = build(settings.model, Shape(batch=1, image=settings.image), settings.built_with, seed=seed)
    if settings.swap is not None:
        swap_text(model, settings.swap)
    return model, inputs


def _fit(
    settings: Settings,
    x: Tensor,
    y: Tensor,
    augment: Augment,
    count: int,
    on_first: Call,
    on_end: Call,
) -> None:
    Replicas(lambda seed: _make(settings, seed)[0], count=count, device=settings.device).fit(
        x,
        y,
        epochs=1 + settings.repeats,
        batch=settings.batch,
        lr=_LR,
        optimizer="adamw",
        weight_decay=_DECAY,
        clip=_CLIP,
        augment=augment,
        compiled=True,
        precision=settings.precision,
        on_step=lambda done: on_first() if done == 1 else None,
        on_epoch=lambda _: on_end(),
    )


def _plain_loop(
    settings: Settings,
    x: Tensor,
    y: Tensor,
    augment: Augment,
    on_first: Call,
    on_end: Call,
) -> None:
    dtype = read_precision(settings.precision)
    model = _make(settings, 0)[0].to(settings.device).train()
    fused = True if settings.device.type == "cuda" else None
    optimizer = torch.optim.AdamW(param_groups(model, lr=_LR, weight_decay=_DECAY), fused=fused)
    parameters = list(model.parameters())
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        for stretch in range(1 + settings.repeats):
            order = torch.randperm(len(x), device=settings.device)
            for step, chosen in enumerate(order.split(settings.batch)):
                images, targets = augment(x[chosen], y[chosen])
                with nullcontext() if dtype is None else torch.autocast(settings.device.type, dtype=dtype):
                    output = tensor_of(model(images))
                loss = F.cross_entropy(output.float(), targets)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, _CLIP)
                optimizer.step()
                if stretch == step == 0:
                    on_first()
            on_end()


def tables(record: Record) -> list[Table]:
    """One line for each way, number of models and augmentation: a step, a whole training, the start, the ratio."""
    settings, lines = record.settings, []
    for row in record.rows:
        cells = ["not run", "", "", ""]
        if "not_run" not in row:
            ratio = f"{row['ratio']:.2f}x" if "ratio" in row else ""
            cells = [row["step"].text(2), row["run"].text(0), f"{row['start']:.1f}", ratio]
        lines.append((row["way"], row["count"], row["augmentation"], *cells))
    side, swap = settings["image"], f", {settings['swap']}" if settings["swap"] else ""
    remarks = [
        f"{settings['model']}{swap}, on {machine(record)}.",
        *failures(record, "way", "count", "augmentation"),
    ]
    if settings["steps_timed"] < settings["steps_of_an_epoch"]:
        steps = f"{settings['steps_timed']} of {settings['steps_of_an_epoch']} steps"
        remarks.append(f"The epochs are extrapolated from {steps}.")
    if record.baseline is not None:
        how = "with autocast in bfloat16" if settings["precision"] == "bfloat16" else "in float32"
        remarks.append(
            f"The plain loop trains one model, eagerly, {how}: AdamW, clipped gradients, crop and flip on the device; "
            "the ratio is how much longer as many models take one after the other in that loop."
        )
    title = (
        f"{settings['examples']:,} images of {side} x {side}, batch {settings['batch']}, {settings['precision']}, "
        f"{settings['steps_of_an_epoch']} steps an epoch"
    )
    head = ("way", "models", "augmentation", "step of all, ms", f"{settings['epochs']} epochs, s", "start, s", "ratio")
    return [Table(title=title, head=head, rows=lines, remarks=remarks, align="lrlrrrr")]
