"""What a task adds to the training of a classifier: a teacher's outputs among the targets, a price on bits, and scores.

A task has two hooks. `objective` gives the loss, and what is added to the targets of a batch; `scores` are test scores
that only this task has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ....errors import RecipeError
from ...rates import BitPrice, measure_coding
from ..building import Maker, model_maker
from ..examples import Examples
from ..recipe import Code, Distil, Model
from ..trial import Chosen, Trial
from .training import Trainer, read_tensors, spread_out


def objective(trial: Trial, make: Maker, examples: Examples, *, teacher: bytes | None) -> tuple[Maker, dict[str, Any]]:
    """What makes the models of a trial (those of a price on bits watch their SQUAF layers), and arguments of `fit`: the
    loss of one model's output and its targets, and `targets`, from a batch [M, n, ...] and its targets to those that
    the loss is given. Of a plain classification nothing changes.
    """
    if isinstance(trial.task, Distil):
        if teacher is None:
            raise RecipeError("A trial of a distillation needs the weights of its teacher, whose trial runs before it.")
        return make, _distilling(trial, trial.task, examples, teacher)
    price = trial.activation.price
    if not price:
        return make, {}
    watched = BitPrice()

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target) + price * watched.rate()

    return lambda seed: watched.watch(make(seed)), {"loss": loss}


def _distilling(trial: Trial, task: Distil, examples: Examples, weights: bytes) -> dict[str, Any]:
    network = Model(build=task.teacher, arguments=task.arguments)
    teacher = model_maker(network, Chosen(name=task.activation, label="teacher"), examples)(trial.seeds.first)
    teacher.load_state_dict({name: stacked[0] for name, stacked in read_tensors(weights).items()})
    teacher.to(trial.device).eval().requires_grad_(False)
    classes, share, temperature = examples.classes, task.share, task.temperature
    half = trial.training.precision == "bfloat16"  # as its students

    def targets(x: Tensor, y: Tensor) -> Tensor:
        """The shares of the classes, and behind them the teacher's log-probabilities at the temperature."""
        shares = F.one_hot(y, classes).float() if y.dim() == 2 else y
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=half, cache_enabled=False):
            logits = teacher(x.flatten(0, 1)).unflatten(0, x.shape[:2]).float()
        return torch.cat([shares, F.log_softmax(logits / temperature, dim=-1)], dim=-1)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        labels, taught = target.split(classes, dim=-1)
        own = F.log_softmax(output / temperature, dim=-1)
        divergence = (taught.exp() * (taught - own)).sum(-1).mean()
        return (1 - share) * F.cross_entropy(output, labels) + share * temperature**2 * divergence

    return {"loss": loss, "targets": targets}


def scores(trial: Trial, trainer: Trainer, examples: Examples, rows: Sequence[int]) -> Mapping[str, Any]:
    """What the task measures on the test examples beside the usual scores, by name, one number for every seed."""
    if not isinstance(trial.task, Code) or not rows:
        return {}
    measured = [
        measure_coding(
            trainer.model(row),
            examples.test_x.to(trainer.device),
            examples.test_y.to(trainer.device),
            coded=trial.task.examples,
            draws=trial.task.draws,
            seed=trial.seeds.numbers[row],
        )
        for row in rows
    ]
    return {name: spread_out([each[name] for each in measured], rows, trainer.count) for name in measured[0]}
