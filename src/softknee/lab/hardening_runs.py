"""One training of the hardening study: free or hardened, with the checkpoints that the study reports.

The data lie on the device as a whole and batches are gathered there; nothing waits for the device within an epoch,
because networks this small take less time to compute than to launch.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..measure.hardness import hardness_profile
from ..surgery import Hardener, param_groups, relu_ize_
from ..surgery.modules import activation_modules
from .splits import Split

State = dict[str, Tensor]
_EVALUATED_AT_ONCE = 10_000


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How long and how fast. The learning rate falls as a half cosine, epoch by epoch."""

    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float
    activation_rate_factor: float = 9.0
    start: float = 0.25
    tolerance: float = 5e-3

    @property
    def freeze_epoch(self) -> int:
        """The last epoch of free training, e_s = floor(start T)."""
        return math.floor(self.start * self.epochs)


@dataclass(frozen=True, kw_only=True)
class Metric:
    """Accuracy in percent and mean cross-entropy in nats."""

    accuracy: float
    loss: float

    @property
    def rank(self) -> tuple[float, float]:
        """Greater is better. Equal accuracies, common with few images, are told apart by the loss."""
        return self.accuracy, -self.loss


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A finished run: the network as it is at the end, its best epoch by validation, and what it was then."""

    network: nn.Module
    best_epoch: int
    best: State
    validation: tuple[Metric, ...]
    profiles: Mapping[str, Mapping[str, float]]
    seconds: float

    def at_best(self) -> nn.Module:
        """A copy of the network as it was at its best epoch."""
        found = copy.deepcopy(self.network)
        found.load_state_dict(self.best)
        return found


@contextmanager
def repeatable() -> Iterator[None]:
    """Convolutions by algorithms that give the same bits in each run."""
    backend = torch.backends.cudnn
    before = backend.deterministic, backend.benchmark
    backend.deterministic, backend.benchmark = True, False
    try:
        yield
    finally:
        backend.deterministic, backend.benchmark = before


@repeatable()
def train(
    network: nn.Module,
    data: Split,
    recipe: Recipe,
    *,
    seed: int,
    harden: bool,
    advance: Callable[[], None] = lambda: None,
    watch: Callable[[int, nn.Module], None] = lambda epoch, network: None,
) -> Trained:
    """Train in place. Two runs with one seed see the same batches, so that up to `freeze_epoch` they are one run.

    Args:
        harden: move the knobs to their hard limit (Algorithm 1 of the lambda-GELU paper); else they stay free.
        advance, watch: called after every epoch; `watch` with the epoch, from 1, and the network.
    """
    groups = param_groups(
        network,
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        lr_scale=recipe.activation_rate_factor,
    )
    optimizer = torch.optim.AdamW(groups, fused=data.train_images.is_cuda)
    rates = [group["lr"] for group in optimizer.param_groups]
    hardener = (
        Hardener(network, total=recipe.epochs, start=recipe.start, tolerance=recipe.tolerance) if harden else None
    )
    random = torch.Generator().manual_seed(seed)
    best: tuple[int, State] = (0, {})
    history: list[Metric] = []
    profiles = {"start": profile(network)}
    begin = time.perf_counter()
    for epoch in range(1, recipe.epochs + 1):
        if hardener is not None:
            hardener.step(epoch)
        share = (1 + math.cos(math.pi * (epoch - 1) / recipe.epochs)) / 2
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        _epoch(network, optimizer, data, batch=recipe.batch, random=random)
        history.append(evaluate(network, data.validation_images, data.validation_labels))
        if history[-1].rank > max((one.rank for one in history[:-1]), default=(-math.inf, -math.inf)):
            best = epoch, {name: value.clone() for name, value in network.state_dict().items()}
        if epoch == recipe.freeze_epoch:
            profiles["freeze"] = profile(network)
        advance()
        watch(epoch, network)
    profiles["end"] = profile(network)
    return Trained(
        network=network,
        best_epoch=best[0],
        best=best[1],
        validation=tuple(history),
        profiles=profiles,
        seconds=time.perf_counter() - begin,
    )


def _epoch(
    network: nn.Module, optimizer: torch.optim.Optimizer, data: Split, *, batch: int, random: torch.Generator
) -> None:
    # The order is made on the CPU, where it is the same with and without a GPU.
    order = torch.randperm(len(data.train_labels), generator=random).to(data.train_labels.device)
    for chosen in order.split(batch):
        optimizer.zero_grad()
        F.cross_entropy(network(data.train_images[chosen]), data.train_labels[chosen]).backward()
        optimizer.step()


@repeatable()
@torch.no_grad()
def evaluate(network: nn.Module, images: Tensor, labels: Tensor) -> Metric:
    """Accuracy and loss on all the images. Sums are of float64: the last digits do not depend on the pieces."""
    right = torch.zeros((), dtype=torch.float64, device=labels.device)
    loss = torch.zeros_like(right)
    for some, theirs in zip(images.split(_EVALUATED_AT_ONCE), labels.split(_EVALUATED_AT_ONCE), strict=True):
        logits = network(some)
        right += (logits.argmax(dim=1) == theirs).sum()
        loss += F.cross_entropy(logits.double(), theirs, reduction="sum")
    count = len(labels)
    return Metric(accuracy=100 * right.item() / count, loss=loss.item() / count)


def profile(network: nn.Module) -> dict[str, float]:
    """The knob of each softknee activation by its path, in order of depth; empty where there is none."""
    if not activation_modules(network):
        return {}
    found = hardness_profile(network, distances=False)
    return dict(zip(found.paths, found.values, strict=True))


def with_relu(network: nn.Module) -> nn.Module:
    """A copy with every softknee activation replaced by its hard limit, a plain module of torch; no weight changes."""
    found = copy.deepcopy(network)
    relu_ize_(found)
    return found
