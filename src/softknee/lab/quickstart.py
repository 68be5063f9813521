"""The quickstart: one small network, five activations, a few seeds, everything else the same.

For a given seed all activations start from the same weights and see the same batches in the same order, so
that what differs between them is the activation and nothing else.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import softknee as sk

from ..errors import ParameterError
from ..measure.record import Quantity, Record
from .digits import Digits, load_digits

BASELINE = "relu"
WIDTHS = (64, 128, 128, 10)
HIDDEN = len(WIDTHS) - 2


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An activation in the comparison: where its parameters start, and whether they are trained."""

    name: str
    start: Mapping[str, float] = field(default_factory=dict)

    @property
    def learns(self) -> bool:
        return bool(self.start)

    def module(self) -> nn.Module:
        return sk.nn.make(self.name, learn=self.learns, **self.start)


# Wide knees at the start, so that the page can show in which direction training moves them.
ENTRIES = (
    Entry(name="relu"),
    Entry(name="gelu"),
    Entry(name="srelu", start={"delta": 1.0}),
    Entry(name="smelu", start={"beta": 1.0}),
    Entry(name="crrelu", start={"eps": 0.01}),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The recipe. The parameters of activations learn 9 times as fast as the weights, and do not decay."""

    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 30
    batch: int = 64
    learning_rate: float = 1e-3
    activation_rate_factor: float = 9.0
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        if not self.seeds or self.epochs < 1:
            raise ParameterError(f"The quickstart needs a seed and an epoch at least, not {self.seeds}, {self.epochs}.")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one activation came to: a number per seed, and for each hidden layer its learned parameters."""

    entry: Entry
    accuracy: tuple[float, ...]
    loss: tuple[float, ...]
    seconds: tuple[float, ...]
    learned: tuple[tuple[Mapping[str, float], ...], ...]

    def at_end(self, layer: int, name: str) -> Quantity:
        """A learned parameter of a hidden layer, over the seeds."""
        return Quantity.mean([layers[layer][name] for layers in self.learned], unit="1")


@dataclass(frozen=True, kw_only=True)
class Study:
    """The outcomes, in the order of `ENTRIES`, and the record of them."""

    settings: Settings
    outcomes: tuple[Outcome, ...]
    record: Record


def steps(settings: Settings) -> int:
    """How often `run` reports progress: once for every epoch of every run."""
    return len(ENTRIES) * len(settings.seeds) * settings.epochs


def run(settings: Settings, *, command: str, advance: Callable[[str], None] = lambda _: None) -> Study:
    """Train everything; `advance` is called with the name of the activation after each epoch."""
    digits = load_digits()
    runs: dict[str, list[Any]] = {entry.name: [] for entry in ENTRIES}
    # Seed by seed rather than activation by activation: whatever else the machine does then slows all alike.
    for seed in settings.seeds:
        for entry in ENTRIES:
            runs[entry.name].append(_train(entry, digits, seed=seed, settings=settings, advance=advance))
    outcomes = []
    for entry in ENTRIES:
        accuracy, loss, seconds, learned = zip(*runs[entry.name], strict=True)
        outcomes.append(Outcome(entry=entry, accuracy=accuracy, loss=loss, seconds=seconds, learned=learned))
    return Study(settings=settings, outcomes=tuple(outcomes), record=_record(settings, outcomes, command))


def gain_over_baseline(outcome: Outcome, baseline: Outcome) -> Quantity:
    """The difference in accuracy to the baseline, seed by seed, in percentage points."""
    pairs = zip(outcome.accuracy, baseline.accuracy, strict=True)
    return Quantity.mean([ours - theirs for ours, theirs in pairs], unit="percentage points")


def _network(entry: Entry, *, seed: int) -> nn.Sequential:
    """Linear layers that depend on the seed alone, with the activation between them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        linears = [nn.Linear(wide, narrow) for wide, narrow in pairwise(WIDTHS)]
    modules: list[nn.Module] = [linears[0]]
    for linear in linears[1:]:
        modules += [entry.module(), linear]
    return nn.Sequential(*modules)


def _activations(network: nn.Sequential) -> list[nn.Module]:
    return [module for module in network if not isinstance(module, nn.Linear)]


def _optimizer(network: nn.Sequential, settings: Settings) -> torch.optim.Optimizer:
    weights = [p for module in network if isinstance(module, nn.Linear) for p in module.parameters()]
    knees = [p for module in _activations(network) for p in module.parameters()]
    rate = settings.learning_rate
    groups: list[dict[str, Any]] = [{"params": weights, "lr": rate, "weight_decay": settings.weight_decay}]
    if knees:
        groups.append({"params": knees, "lr": rate * settings.activation_rate_factor, "weight_decay": 0.0})
    return torch.optim.AdamW(groups)


def _train(
    entry: Entry, digits: Digits, *, seed: int, settings: Settings, advance: Callable[[str], None]
) -> tuple[float, float, float, tuple[Mapping[str, float], ...]]:
    """One run: accuracy in percent, loss, seconds, and the learned parameters of each hidden layer."""
    network = _network(entry, seed=seed)
    optimizer = _optimizer(network, settings)
    order = torch.Generator().manual_seed(seed)
    start = time.perf_counter()
    for _ in range(settings.epochs):
        for chosen in torch.randperm(len(digits.train_labels), generator=order).split(settings.batch):
            optimizer.zero_grad()
            F.cross_entropy(network(digits.train_images[chosen]), digits.train_labels[chosen]).backward()
            optimizer.step()
        advance(entry.name)
    seconds = time.perf_counter() - start
    accuracy, loss = _evaluate(network, digits.test_images, digits.test_labels)
    learned = tuple(
        {name: float(getattr(module, name).detach().reshape(())) for name in entry.start}
        for module in _activations(network)
    )
    return accuracy, loss, seconds, learned


@torch.no_grad()
def _evaluate(network: nn.Module, images: Tensor, labels: Tensor) -> tuple[float, float]:
    logits = network(images)
    correct = (logits.argmax(dim=1) == labels).double().mean()
    return 100 * float(correct), float(F.cross_entropy(logits, labels))


def _record(settings: Settings, outcomes: list[Outcome], command: str) -> Record:
    baseline = next(outcome for outcome in outcomes if outcome.entry.name == BASELINE)
    rows = []
    for outcome in outcomes:
        learned = [
            {"layer": layer + 1, "name": name, "start": start, "end": outcome.at_end(layer, name)}
            for layer in range(HIDDEN)
            for name, start in outcome.entry.start.items()
        ]
        rows.append(
            {
                "function": outcome.entry.name,
                "accuracy": Quantity.mean(outcome.accuracy, unit="%"),
                "accuracy_by_seed": outcome.accuracy,
                "gain": gain_over_baseline(outcome, baseline),
                "loss": Quantity.mean(outcome.loss, unit="nats"),
                "time": Quantity.mean(outcome.seconds, unit="s"),
                "learned": learned,
            }
        )
    return Record.now(
        "study quickstart",
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline=f"{BASELINE}, trained beside the others from the same weights on the same batches",
        settings={
            "data": "scikit-learn digits, half for training and half for the test, split once and stratified",
            "widths": WIDTHS,
            "epochs": settings.epochs,
            "batch": settings.batch,
            "optimizer": "AdamW",
            "learning_rate": settings.learning_rate,
            "activation_rate_factor": settings.activation_rate_factor,
            "weight_decay": settings.weight_decay,
            "threads": torch.get_num_threads(),
        },
    )
