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
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

import softknee as sk

from ...errors import ParameterError, did_you_mean
from ...measure.record import Quantity, Record
from ...measure.speed import choose_device
from ..data.images import ImageSet, load_image_set
from ..image_training import (
    MODES,
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
from .measuring import Measured, measure
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
    plain_rate:   the rate by `sk.nn.RatePenalty` in the place of `QuickRate`: the same number, by other kernels.
    """

    network: str = "vgg8"
    data_set: str = "cifar-10"
    weights: tuple[float, ...] = WEIGHTS
    baselines: tuple[Entry, ...] = BASELINES
    seeds: tuple[int, ...] = (0, 1, 2)
    q: float = 0.125
    coded_images: int = 16
    plain_rate: bool = False
    plan: Plan = field(default_factory=lambda: Plan(batch=256, learning_rate=0.1))
    device: str = "auto"
    data: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_network(self.network)
        if not self.seeds or len(set(self.weights)) < len(self.weights) or not self.weights:
            raise ParameterError("The study of the rate needs a seed, and weights that are all different.")
        for one in self.weights:
            if not 0 <= one < math.inf:
                raise ParameterError(f"A weight of the rate is at least 0, and {one!r} was given.")
        if self.coded_images < 1 or not self.q > 0:
            raise ParameterError("q must be above 0, and the symbols of one image at least are coded.")

    def for_smoke(self) -> Settings:
        """A form that only shows that everything runs: two batches of two, one epoch, one weight beside 0."""
        plan = replace(self.plan, epochs=1, batch=2, every=1)
        few = {"weights": (0.0, self.weights[-1] or 0.006), "seeds": self.seeds[:1], "coded_images": 1}
        return replace(self, plan=plan, baselines=self.baselines[:1], **few)


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
) -> Record:
    """Train and measure everything and return the record; `data` in the place of the data set by its name."""
    device = choose_device(settings.device)
    images = (data or load_image_set(settings.data_set, settings.data)).to(device)
    entry, rows = squaf(SAMPLED, q=settings.q, mode="sampled"), []
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):  # seeds are set for SQUAF-P
        for one in settings.baselines:
            rows.append(_row(one.title, None, _train(one, None, images, settings, device, advance)))
        found = _train(entry, settings.weights, images, settings, device, advance)
    rows += [_row(SAMPLED, weight, [one for one in found if one.weight == weight]) for weight in settings.weights]
    return _record(settings, rows, images, device, command)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One network of one seed; `measured` is None where its loss was no longer a number."""

    seed: int
    weight: float | None
    numbers: int
    seconds: float
    loss: float
    tests: Mapping[int, float]
    start: Mapping[str, Any]
    learned: Mapping[str, Any]
    measured: Measured | None


def _train(
    entry: Entry,
    weights: Sequence[float] | None,
    data: ImageSet,
    settings: Settings,
    device: torch.device,
    advance: Callable[[str], None],
) -> list[Trained]:
    """Every seed (and weight of the rate) of one entry; on a GPU they share one recorded step."""
    classes = len(data.labels)
    model = build(settings.network, entry, classes=classes, seed=settings.seeds[0])
    numbers, begun, holds, judge, penalty = trained_numbers(model), learned(model), {}, cross_entropy, None
    if weights is not None:
        penalty = sk.nn.RatePenalty(model, weight=1.0) if settings.plain_rate else QuickRate(model)
        holds = {"weight": torch.zeros((), device=device)}
        judge = _with_rate(penalty, holds["weight"])
    training = ImageTraining(model, data, settings.plan, device=device, judge=judge, holds=holds)
    found = []
    for weight in [None] if weights is None else weights:
        for seed in settings.seeds:
            start = build(settings.network, entry, classes=classes, seed=seed).state_dict()
            label = f"{entry.title}{'' if weight is None else f' {weight:g}'} seed {seed}"
            began = time.perf_counter()
            training.begin(start, seed=seed, **({} if weight is None else {"weight": weight}))
            training.run(lambda label=label: advance(label))
            losses = training.losses  # waits for the device
            seconds = time.perf_counter() - began
            lost = not bool(losses.isfinite().all())
            network = training.snapshot()
            found.append(
                Trained(
                    seed=seed,
                    weight=weight,
                    numbers=numbers,
                    seconds=seconds,
                    loss=math.nan if lost else float(losses[-training.per_epoch :].mean()),
                    tests=dict(training.tests),
                    start=begun,
                    learned={} if lost else learned(network),
                    measured=None if lost else measure(network, data, coded_images=settings.coded_images, seed=seed),
                )
            )
    if penalty is not None:
        penalty.close()
    return found


def _with_rate(penalty: Any, weight: Tensor) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda images, labels, output: cross_entropy(images, labels, output) + weight * penalty()


def _row(title: str, weight: float | None, found: Sequence[Trained]) -> dict[str, Any]:
    there = [one.measured for one in found if one.measured is not None]
    row: dict[str, Any] = {
        "activation": title,
        "weight": weight,
        "trained": found[0].numbers,
        "diverged": [one.seed for one in found if one.measured is None],
        "time": Quantity.mean([one.seconds for one in found], unit="s"),
        "curve": {"epochs": list(found[0].tests), "test": [list(one.tests.values()) for one in found]},
        "start": dict(found[0].start),
        "learned": [dict(one.learned) for one in found],
        "accuracy_by_seed": {
            mode: [None if one.measured is None else one.measured.accuracy.get(mode) for one in found]
            for mode in (MODES if weight is not None else ("soft",))
        },
    }
    if not there:
        return {**row, "not_run": "every seed diverged"}
    row["accuracy"] = {
        mode: Quantity.mean([one.accuracy[mode] for one in there], unit="%") for mode in there[0].accuracy
    }
    if there[0].rate is None or weight is None:
        return row  # activations of 32 bits: a SQUAF that is not drawn from has no symbols
    bits = {
        name: [None if one.measured is None else one.measured.bits[name] for one in found] for name in there[0].bits
    }
    row["bits"] = {
        name: Quantity.mean([one.bits[name] for one in there], unit="bits per activation") for name in there[0].bits
    }
    row["bits_by_seed"] = bits
    row["symbols"] = there[0].coded["sampled"].symbols
    row["outside"] = Quantity.mean([one.outside for one in there if one.outside is not None], unit="share")
    row["layers"] = {path: [one.layers[path] for one in there] for path in there[0].layers}
    return row


def _record(
    settings: Settings, rows: Sequence[Mapping[str, Any]], data: ImageSet, device: torch.device, command: str
) -> Record:
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline="ReLU from the same weights on the same batches; its activations take 32 bits",
        settings={
            "network": settings.network,
            "q": settings.q,
            "coded_images": settings.coded_images,
            **settings_of_record(data, settings.plan, device),
        },
        notes=[
            "Accuracy of the test images after the last epoch, in percent, in float32.",
            "bits.rate is the paper's equation 12 over all test images; entropy, huffman and rans are of the symbols "
            "of the coded images, each layer a message of its own with table and header; step_ of those of SQUAF-S.",
            "sampled: as trained (SQUAF-P); soft and step: switched to SQUAF and to SQUAF-S after training.",
        ],
    )
