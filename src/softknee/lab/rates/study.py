r"""The rate-accuracy curve of the SQUAF paper's figure 3.

VGG-8 with SQUAF-P is trained with loss + weight * R for several weights, R its rate in bits per activation (equation
12); then each network is tested as it is, switched to SQUAF and switched to SQUAF-S, and its symbols are coded.
Beside it networks with ReLU, GELU and SQUAF, whose activations take 32 bits.

The paper trains on CIFAR-100 for 240 epochs with batches of 64, weights 0 to 0.006; its curve goes down to 3.4 bits at
an accuracy above ReLU's. Of the SQUAFs only the first is trained there, and here.

Reference: Soft quantization activation functions, section 4.4 and appendix A.3.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

import softknee as sk

from ...errors import ParameterError, did_you_mean
from ...measure.record import Record
from ...measure.speed import choose_device
from ..data.images import ImageSet, load_image_set
from ..image_training import (
    Batches,
    Entry,
    ImageTraining,
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
from .measuring import measure
from .penalty import QuickRate

KIND = "study rate"
BASELINES = (
    Entry(title="ReLU", name="relu"),
    Entry(title="GELU", name="gelu"),
    squaf("SQUAF"),
)
SAMPLED = "SQUAF-P"
# The paper's, all of them.
WEIGHTS = (0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run, on what, and where the data lie.

    q:            where the spacing of SQUAF-P starts; the paper has 0.125 for VGG-8.
    coded_images: of so many test images the symbols are coded; VGG-8 has 131,072 in each.
    draws:        the accuracy of SQUAF-P is the mean over so many draws.
    smoke:        a smoke run, which the record then says.
    plain_rate:   the rate by `sk.nn.RatePenalty` in the place of `QuickRate`: the same number, by other kernels.
    """

    network: str = "vgg8"
    data_set: str = "cifar-10"
    weights: tuple[float, ...] = WEIGHTS
    baselines: tuple[Entry, ...] = BASELINES
    seeds: tuple[int, ...] = (0, 1, 2)
    q: float = 0.125
    coded_images: int = 16
    draws: int = 8
    plain_rate: bool = False
    plan: Plan = field(default_factory=lambda: Plan(batch=256, learning_rate=0.1))
    device: str = "auto"
    data: str | os.PathLike[str] | None = None
    smoke: bool = False

    def __post_init__(self) -> None:
        check_network(self.network)
        if not self.seeds or len(set(self.weights)) < len(self.weights) or not self.weights:
            raise ParameterError("The study of the rate needs a seed, and weights that are all different.")
        for one in self.weights:
            if not 0 <= one < math.inf:
                raise ParameterError(f"A weight of the rate is at least 0, and {one!r} was given.")
        if self.coded_images < 1 or self.draws < 1 or not self.q > 0:
            raise ParameterError("q must be above 0; the symbols of one image and one draw are the least.")

    def for_smoke(self) -> Settings:
        """A form that only shows that everything runs: two batches of two, one epoch, one weight beside 0."""
        plan = replace(self.plan, epochs=1, batch=2, every=1)
        few = {"weights": (0.0, self.weights[-1] or 0.006), "seeds": self.seeds[:1], "coded_images": 1, "draws": 2}
        return replace(self, plan=plan, baselines=self.baselines[:1], smoke=True, **few)


def choose_baselines(names: Sequence[str]) -> tuple[Entry, ...]:
    """Those of `BASELINES` with these names."""
    known = {one.name: one for one in BASELINES}
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            raise ParameterError(f"Beside SQUAF-P there are {', '.join(known)}, and {name!r} was asked.{near}")
    return tuple(one for one in BASELINES if one.name in names)


def steps(settings: Settings) -> int:
    """How often `run` reports progress: after every epoch of every network."""
    return settings.plan.epochs * len(settings.seeds) * (len(settings.weights) + len(settings.baselines))


def run(
    settings: Settings,
    *,
    command: str,
    advance: Callable[[str], None] = lambda _: None,
    data: ImageSet | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> Record:
    """Train and measure everything and return the record; `data` in the place of the data set by its name.

    In the folder `keep` each network's finding is kept as soon as it is there, and not sought again (`lab.kept`).
    """
    device = choose_device(settings.device)
    images = (data or load_image_set(settings.data_set, settings.data)).to(device)
    entry, rows = squaf(SAMPLED, q=settings.q, mode="sampled"), []
    names = [name_of(one, None, seed) for one in settings.baselines for seed in settings.seeds]
    names += [name_of(entry, weight, seed) for weight in settings.weights for seed in settings.seeds]
    kept = Kept(keep, kind=KIND, settings=_settings_of_record(settings, images, device), names=names)
    batches = Batches(images, settings.plan, device=device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # seeds are set for SQUAF-P
        for one in settings.baselines:
            rows.append(row_of(one.title, None, _train(one, None, batches, settings, advance, kept)))
        found = _train(entry, settings.weights, batches, settings, advance, kept)
    rows += [row_of(SAMPLED, weight, [one for one in found if one.weight == weight]) for weight in settings.weights]
    return kept.of(_record(settings, rows, images, device, command))


def name_of(entry: Entry, weight: float | None, seed: int) -> str:
    """Under which name a finding is kept."""
    return f"{entry.name}{'' if weight is None else f'-{weight:g}'}-seed-{seed}"


def _train(
    entry: Entry,
    weights: Sequence[float] | None,
    batches: Batches,
    settings: Settings,
    advance: Callable[[str], None],
    kept: Kept,
) -> list[Trained]:
    """Every seed (and weight of the rate) of one entry; on a GPU they share one recorded step."""
    found, epochs = [], settings.plan.epochs
    with ExitStack() as closing:
        made = cache(partial(_training, entry, weights is not None, batches, settings, closing))  # if one is missing
        for weight in [None] if weights is None else weights:
            for seed in settings.seeds:
                label = f"{entry.title}{'' if weight is None else f' {weight:g}'} seed {seed}"
                say = partial(advance, label)
                train = partial(_one, made, entry, weight, seed, settings, say)
                found.append(Trained.of(kept.found(name_of(entry, weight, seed), train, advance=say, steps=epochs)))
    return found


def _training(entry: Entry, rated: bool, batches: Batches, settings: Settings, closing: ExitStack) -> ImageTraining:
    model = build(settings.network, entry, classes=len(batches.data.labels), seed=settings.seeds[0])
    if not rated:
        return ImageTraining(model, batches, settings.plan, device=batches.device)
    penalty = sk.nn.RatePenalty(model, weight=1.0) if settings.plain_rate else QuickRate(model)
    closing.callback(penalty.close)
    weight = torch.zeros((), device=batches.device)
    judge = _with_rate(penalty, weight)
    return ImageTraining(model, batches, settings.plan, device=batches.device, judge=judge, holds={"weight": weight})


def _one(
    made: Callable[[], ImageTraining],
    entry: Entry,
    weight: float | None,
    seed: int,
    settings: Settings,
    advance: Callable[[], None],
) -> dict[str, Any]:
    """What one network finds, as it is kept (`Trained.of` reads it)."""
    training = made()
    data = training.data
    model = build(settings.network, entry, classes=len(data.labels), seed=seed)
    began = time.perf_counter()
    training.begin(model.state_dict(), seed=seed, **({} if weight is None else {"weight": weight}))
    training.run(advance)
    lost = not bool(training.losses.isfinite().all())  # waits for the device
    seconds = time.perf_counter() - began
    network = training.snapshot()
    asked = {"coded_images": settings.coded_images, "draws": settings.draws, "seed": seed}
    found = Trained(
        seed=seed,
        weight=weight,
        numbers=trained_numbers(model),
        seconds=seconds,
        tests=dict(training.tests),
        start=learned(model),
        learned={} if lost else learned(network),
        measured=None if lost else measure(network, data, **asked),
    )
    return asdict(found)


def _with_rate(penalty: Any, weight: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda images, labels, output: cross_entropy(images, labels, output) + weight * penalty()


def _record(
    settings: Settings, rows: Sequence[Mapping[str, Any]], data: ImageSet, device: torch.device, command: str
) -> Record:
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline="ReLU from the same weights on the same batches; its activations take 32 bits",
        settings=_settings_of_record(settings, data, device),
        notes=[
            "Accuracy of the test images after the last epoch, in percent, in float32.",
            "bits.rate is the paper's equation 12 over all test images; entropy, huffman and rans are of the symbols "
            "of the coded images, each layer a message of its own with table and header; step_ of those of SQUAF-S.",
            "sampled: as trained (SQUAF-P), the mean over draws, each of which is in draws_by_seed; soft and step: "
            "switched to SQUAF and to SQUAF-S after training.",
        ],
    )


def _settings_of_record(settings: Settings, data: ImageSet, device: torch.device) -> dict[str, Any]:
    return {
        "network": settings.network,
        "q": settings.q,
        "coded_images": settings.coded_images,
        "draws": settings.draws,
        "smoke": settings.smoke,
        **settings_of_record(data, settings.plan, device),
    }
