"""How an image network is trained, as the SQUAF paper trains its CNNs on CIFAR-100, and which activations it gets.

As in the paper: SGD with momentum for the weights, whose rate falls to a tenth at 150, 180 and 210 of 240 epochs; Adam
with a rate of its own for the parameters of activations, which do not decay; random crops and mirror images. Of SQUAF
only the first layer is trained.

Reference: Soft quantization activation functions, appendix A.3; for the CNNs it names Tian, Krishnan, Isola (2019).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import softknee as sk

from ...errors import ParameterError, did_you_mean
from ..builders import build_network
from ..vision_networks import NETWORKS

SQUAF = "squaf"
TIMM = "timm:"
MODES = ("soft", "sampled", "step")
PRECISIONS = ("auto", "f32", "bf16")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long and how; the defaults are the paper's for batches of 64, with fewer epochs.

    milestones: shares of the training after which the rate of the weights is `factor` times lower.
    activation_rate: of Adam, which moves the parameters of activations; it stays as it is.
    crop, flip: zeros around an image out of which a window is taken, and mirror images.
    precision: "bf16" computes the network in bfloat16 (weights stay float32); "auto" does so on a GPU.
    every: test accuracy is noted after every so many epochs, and after the last.
    """

    epochs: int = 40
    batch: int = 64
    learning_rate: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    milestones: tuple[float, ...] = (150 / 240, 180 / 240, 210 / 240)
    factor: float = 0.1
    activation_rate: float = 1e-3
    crop: int = 4
    flip: bool = True
    precision: str = "auto"
    every: int = 5

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "every"):
            _need(getattr(self, name) >= 1, name, "a whole number of at least 1", getattr(self, name))
        _need(self.learning_rate > 0, "learning_rate", "a number above 0", self.learning_rate)
        for name in ("weight_decay", "activation_rate", "crop"):
            _need(getattr(self, name) >= 0, name, "at least 0", getattr(self, name))
        _need(0 <= self.momentum < 1, "momentum", "a number in [0, 1)", self.momentum)
        _need(self.precision in PRECISIONS, "precision", f"one of {', '.join(PRECISIONS)}", self.precision)

    def autocast(self, device: torch.device) -> bool:
        """Whether the network computes in bfloat16 there."""
        return self.precision == "bf16" or (self.precision == "auto" and device.type == "cuda")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An activation of a table.

    title:   what it is called there.
    name:    of the zoo, or "squaf".
    values:  its parameters; of SQUAF k and q, and "start": the function that z is fitted to.
    learn:   whether its parameters are trained.
    where:   of SQUAF, at which places: as `sk.train_squaf_` takes it.
    mode:    of SQUAF: "soft", or "sampled" for SQUAF-P.
    """

    title: str
    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    learn: bool = False
    where: str = "first"
    mode: str = "soft"

    def __post_init__(self) -> None:
        _need(self.mode in MODES, f"{self.title}: mode", f"one of {', '.join(MODES)}", self.mode)


def squaf(
    title: str = "SQUAF", *, q: float = 1.0, start: str = "relu", mode: str = "soft", where: str = "first"
) -> Entry:
    """SQUAF as the paper's CNNs have it: k = 16, fitted to ReLU, the first layer trained (35 numbers).

    >>> squaf("SQUAF-P", q=0.125, mode="sampled").values
    {'k': 16, 'q': 0.125, 'start': 'relu'}
    """
    return Entry(title=title, name=SQUAF, values={"k": 16, "q": q, "start": start}, learn=True, mode=mode, where=where)


def check_network(name: str) -> str:
    """The name, if there is such a network; whether timm has one of that name is seen when it is built."""
    if name not in NETWORKS and not name.startswith(TIMM):
        known = ", ".join(map(repr, NETWORKS))
        near = did_you_mean(name, NETWORKS)
        raise ParameterError(f"There is no network {name!r}; there are {known}, and those of timm: 'timm:NAME'.{near}")
    return name


def build(network: str, entry: Entry, *, classes: int, seed: int) -> nn.Module:
    """The network with this activation at every place; its weights come from the seed alone.

    >>> sum(one.numel() for one in build("vgg8", squaf(), classes=100, seed=0).parameters() if one.requires_grad)
    3965063
    """
    given = dict(entry.values)
    if entry.name == SQUAF:
        start = given.pop("start", None)
        if start is not None:
            given = {**given, **sk.design.start(start, k=given.get("k", 16), q=given.get("q")).starts}
    else:
        given["learn"] = entry.learn
    if check_network(network).startswith(TIMM):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = build_network(network, {"num_classes": classes})
        sk.swap_(model, entry.name, **given)
    else:
        model = NETWORKS[network](classes=classes, activation=lambda: sk.nn.make(entry.name, **given), seed=seed)
    if entry.name == SQUAF:
        sk.train_squaf_(model, sk.surgery.squaf_training.PARTS if entry.learn else (), where=entry.where)
        sk.squaf_mode_(model, entry.mode)
    return model


def trained_numbers(model: nn.Module) -> int:
    """How many parameters are trained."""
    return sum(one.numel() for one in model.parameters() if one.requires_grad)


def _need(holds: bool, what: str, wanted: str, value: Any) -> None:
    if not holds or (isinstance(value, float) and not math.isfinite(value)):
        raise ParameterError(f"{what} must be {wanted}, and {value!r} was given.")
