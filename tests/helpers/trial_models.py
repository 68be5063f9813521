"""Tiny trials: examples drawn here, models of one's own by import path, and a trial to change at will."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import nn

from softknee.lab.studies.examples import Examples
from softknee.lab.studies.recipe import MEASURES, Data, Hardening, Model, Seeds, Training
from softknee.lab.studies.trial import Chosen, Trial

FINGERPRINT = "5" * 64


def small(activation: Callable[[], nn.Module], classes: int, input_shape: tuple[int, ...], p: float = 0.0) -> nn.Module:
    """Two hidden layers, with dropout after the first."""
    return nn.Sequential(
        nn.Linear(input_shape[0], 8), activation(), nn.Dropout(p), nn.Linear(8, 8), activation(), nn.Linear(8, classes)
    )


class Scaled(nn.Module):
    """A number that is trained, which is one number for each seed in a stack."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x


def normed(activation: Callable[[], nn.Module], classes: int, input_shape: tuple[int, ...]) -> nn.Module:
    """Batch norm, whose statistics are part of a model's state, and a scale."""
    return nn.Sequential(nn.Linear(input_shape[0], 8), nn.BatchNorm1d(8), activation(), Scaled(), nn.Linear(8, classes))


def explosive(
    activation: Callable[[], nn.Module], classes: int, input_shape: tuple[int, ...], seed: int, factor: float = 1e20
) -> nn.Module:
    """The same; the model of seed 1 starts with weights so large that its loss overflows, with this factor at once."""
    model: Any = small(activation, classes, input_shape)
    if seed == 1:
        with torch.no_grad():
            for layer in (model[0], model[3], model[5]):
                layer.weight.mul_(factor)
    return model


class Shifted(nn.Module):
    """Adds a number that is trained, times a gain that is not."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))
        self.register_buffer("gain", torch.tensor([gain]))  # each seed of a stack has its own

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.gain * self.shift


def shifted(
    activation: Callable[[], nn.Module], classes: int, input_shape: tuple[int, ...], seed: int, growth: list[float]
) -> nn.Module:
    """The same, and a shift: plain steps of 0.02 by the squared error multiply its error by -growth[seed] and more.

    At 0 it is learned as any bias is. Above 1 the error grows step by step until nothing is finite, and the larger the
    factor, the sooner: when a seed diverges follows from its number here and not from rounding.
    """
    return nn.Sequential(*small(activation, classes, input_shape), Shifted(math.sqrt((1 + growth[seed]) / 0.04)))


def examples(*, classes: int = 3) -> Examples:
    """60 to train on, 24 to choose by, 30 to test; 0 classes make a regression."""
    draw = torch.Generator().manual_seed(7)
    x = torch.randn(114, 5, generator=draw)
    score = x[:, 0] + x[:, 1] ** 2 + 0.3 * torch.randn(114, generator=draw)
    y = score[:, None] if classes == 0 else (score > 0.3).long() + (score > 1.5).long() * (classes > 2)
    parts = dict(
        zip(
            ("train", "validation", "test"), zip(x.split([60, 24, 30]), y.split([60, 24, 30]), strict=True), strict=True
        )
    )
    return Examples(
        task="classification" if classes else "regression",
        classes=classes,
        name="drawn",
        fingerprint=FINGERPRINT,
        **{f"{part}_{axis}": item for part, both in parts.items() for axis, item in zip("xy", both, strict=True)},
    )


class WithoutTest:
    """Examples whose test part must not be looked at."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __getattr__(self, name: str) -> Any:
        assert not name.startswith("test"), "the test set was read"
        return getattr(self._examples, name)


def trial(name: str = "smelu", **changes: Any) -> Trial:
    """Four epochs of five steps with three seeds; `changes` are of the trial, its activation, training or model.

    `select` is the trial's own.
    """
    chosen, training, model, seeds = (
        {key: changes.pop(key) for key in list(changes) if key in {field.name for field in fields(kind)} - {"select"}}
        for kind in (Chosen, Training, Model, Seeds)
    )
    made = Trial(
        kind="train",
        activations=(Chosen(**{"name": name, "label": name, **chosen}),),
        data=Data(set="digits"),
        fingerprint=FINGERPRINT,
        model=Model(**{"build": "trial_models:small", **model}),
        training=Training(**{"batch": 12, "epochs": 4, "learning_rate": 0.02, **training}),
        seeds=Seeds(**{"count": 3, **seeds}),
        hardening=Hardening(start=0.25),
        measures=tuple(measure for measure in MEASURES if measure != "cost"),
        keep=("predictions", "models"),
    )
    return replace(made, **changes)
