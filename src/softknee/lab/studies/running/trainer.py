"""What trains the models of a trial: all seeds as one batched program, or one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ....train import Replicas, constant, cosine, linear, step
from ....train.schedules import Schedule
from ..recipe import Training
from ..trial import Trial

_SCHEDULES = {"constant": constant, "cosine": cosine, "linear": linear}  # and "step", which takes more


class Trainer(Protocol):
    """What a trial asks of `train.Replicas` and of `train.OneByOne` alike."""

    epoch: int
    step: int
    count: int
    device: torch.device

    def fit(self, x: Tensor, y: Tensor, **settings: Any) -> Any: ...
    def predict(self, x: Tensor) -> Tensor: ...
    def model(self, index: int) -> nn.Module: ...
    @property
    def losses(self) -> Tensor: ...
    @property
    def gradient_norms(self) -> Tensor: ...
    def knobs(self) -> dict[str, Tensor]: ...
    def set_knobs(self, knobs: Mapping[str, Sequence[float] | Tensor]) -> Any: ...
    def freeze_knobs(self, knobs: str | Iterable[str] | None = None) -> Any: ...
    def weights(self) -> dict[str, Tensor]: ...
    def load_weights(self, weights: Mapping[str, Tensor]) -> Any: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> Any: ...


def make_trainer(trial: Trial, maker: Callable[[int], nn.Module]) -> Trainer:
    """The models of the trial's seeds, before any training; `maker` makes the model of a seed."""

    def make(seed: int) -> nn.Module:
        return maker(seed)

    seeds = trial.seeds
    settings: dict[str, Any] = {
        "count": seeds.count,
        "seeds": list(seeds.numbers),
        "share_init": seeds.share_init,
        "share_order": seeds.share_order,
        "share_dropout": seeds.share_dropout,
        "device": trial.device,
    }
    if trial.training.engine == "loop":
        from ....train.loop import OneByOne

        return OneByOne(make, **settings, strategy=trial.training.strategy)
    return Replicas(make, **settings)


def fit_settings(training: Training, *, task: str, gradients: bool) -> dict[str, Any]:
    """What `fit` is called with, beside the examples and the number of epochs."""
    loss = training.loss if training.loss != "auto" else "mse" if task == "regression" else "cross_entropy"
    half = "float32" if training.precision == "tf32" else training.precision
    return {
        "batch": training.batch,
        "lr": training.learning_rate,
        "optimizer": training.optimizer,
        "loss": loss,
        "clip": training.clip,
        "schedule": _schedule(training),
        "total_epochs": training.epochs,
        "gradient_norms": gradients,
        "lr_scale": training.activation_rate,
        "activation_optimizer": training.activation_optimizer,
        "activation_lr": training.activation_learning_rate,
        **({} if training.shuffle is None else {"shuffle": training.shuffle}),
        **({} if training.progressive is None else {"progressive": True}),
        **({"compiled": True, "precision": half} if training.engine == "compiled" else {}),
        **training.optimizer_options,
    }


@contextmanager
def products_of(training: Training) -> Iterator[None]:
    """While a model is trained: how torch computes products of float32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if training.precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _schedule(training: Training) -> Schedule:
    warm = {"warmup": training.warmup, "start": training.warmup_start}
    if training.schedule == "step":
        shares = [epoch / training.epochs for epoch in training.milestones]
        return step(milestones=shares, factor=training.factor, **warm)
    floor = {"floor": training.floor} if training.floor else {}  # which "constant" has not
    return _SCHEDULES[training.schedule](**warm, **floor)
