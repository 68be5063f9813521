"""Supervised fine-tuning on the chosen replies, then direct preference optimization, at the papers' settings.

RMSprop at 5e-7, a linear warm-up over 150 steps and then a constant rate, gradients clipped to a norm of 10, no
dropout, batches of 32 pairs (Rafailov et al. 2023; EAFO paper, table 8; SQUAF paper, table 9).

The reference of DPO is the model itself before its first step. Its log-probabilities are therefore computed once, on
the very batches that are trained on, and no second model is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ParameterError
from ...surgery import param_groups
from ...train import fit
from .preferences import (
    Batch,
    PairTokens,
    PreferenceScores,
    chosen_batch,
    dpo_losses,
    pair_batch,
    reply_log_probabilities,
    scores_of,
)
from .text_perplexity import exp_or_infinite


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The training of both stages. Without `steps` each stage is one pass over its pairs (`epochs` passes)."""

    learning_rate: float = 5e-7
    warmup: int = 150
    clip: float = 10.0
    batch: int = 32
    micro_batch: int = 32  # pairs that go through the model at once; their gradients add up to those of the batch
    epochs: int = 1
    steps: int | None = None
    length: int = 512
    prompt_length: int = 256
    activation_rate_factor: float = 1.0  # the papers name no rate of their own for activations

    def __post_init__(self) -> None:
        whole = (self.batch, self.micro_batch, self.epochs, self.length, self.prompt_length)
        if min(whole) < 1 or self.warmup < 0 or (self.steps is not None and self.steps < 1):
            raise ParameterError("Batches, epochs, steps and lengths of the recipe must be at least 1, the warm-up 0.")
        if not (0 < self.learning_rate < math.inf and self.clip > 0):
            raise ParameterError("The learning rate and the clipping of the recipe must be positive.")
        if self.batch % self.micro_batch:
            raise ParameterError(
                f"{self.batch} pairs cannot be cut into parts of {self.micro_batch}; choose a divisor."
            )

    def steps_of(self, pairs: int) -> int:
        """How many optimiser steps a stage has; a last batch that is not full is dropped, as the authors do."""
        full = self.epochs * (pairs // self.batch)
        if not full:
            raise ParameterError(f"There are {pairs} pairs, which do not fill a batch of {self.batch}.")
        return full if self.steps is None else min(self.steps, full)


def share_of_rate(step: int, warmup: int) -> float:
    """What part of the learning rate step 0, 1, ... has: (step + 1)/(warmup + 1) up to 1."""
    return min(1.0, (step + 1) / (warmup + 1))


def supervise_(
    model: Any,
    pairs: Sequence[PairTokens],
    recipe: Recipe,
    *,
    seed: int,
    padding: int,
    advance: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train in place on the chosen replies; returns the loss of each step, in nats for a reply.

    A reply's loss is the sum over its tokens, and a batch's the mean over its replies, as DPO's authors have it.
    """

    def make(part: Sequence[PairTokens]) -> Batch:
        return chosen_batch(part, padding=padding)

    def loss_of(model: Any, batch: Batch) -> Tensor:
        return -reply_log_probabilities(model, batch).mean()

    return _train(model, pairs, recipe, seed=seed, make=make, loss_of=loss_of, advance=advance)


def prefer_(
    model: Any,
    pairs: Sequence[PairTokens],
    recipe: Recipe,
    *,
    beta: float,
    seed: int,
    padding: int,
    advance: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train in place on preferences; returns the loss of each step, the first of which is log 2.

    It is that because model and reference are still the same.
    """
    if not 0 < beta < math.inf:
        raise ParameterError(f"beta of DPO must be a positive number, and {beta!r} was given.")
    without_dropout_(model)
    device = next(model.parameters()).device

    def make(part: Sequence[PairTokens]) -> Batch:
        return pair_batch(part, padding=padding)

    # The batches come in the order of the seed, so that they can be gone through twice.
    with torch.no_grad():
        reference = iter(
            [reply_log_probabilities(model, make(some).to(device)) for some in _batches(pairs, recipe, seed)]
        )

    def loss_of(model: Any, batch: Batch) -> Tensor:
        policy = reply_log_probabilities(model, batch)
        return dpo_losses(policy.view(2, -1), next(reference).view(2, -1), beta=beta)[0].mean()

    return _train(model, pairs, recipe, seed=seed, make=make, loss_of=loss_of, advance=advance)


@torch.no_grad()
def log_probabilities(model: Any, pairs: Sequence[PairTokens], *, batch: int, padding: int) -> Tensor:
    """The log-probabilities of all replies without dropout, of shape (2, pairs): the chosen ones, the rejected ones."""
    mode, device = model.training, next(model.parameters()).device
    model.eval()
    parts = [pairs[at : at + batch] for at in range(0, len(pairs), batch)]
    results = [reply_log_probabilities(model, pair_batch(part, padding=padding).to(device)).cpu() for part in parts]
    model.train(mode)
    return torch.cat([result.view(2, -1) for result in results], dim=1)


def evaluate(
    model: Any, pairs: Sequence[PairTokens], reference: Tensor, *, beta: float, batch: int, padding: int
) -> PreferenceScores:
    """The papers' metrics of a model against the log-probabilities of its reference (`log_probabilities`)."""
    return scores_of(log_probabilities(model, pairs, batch=batch, padding=padding), reference, beta=beta)


def reply_perplexity(log_probability: Tensor, pairs: Sequence[PairTokens]) -> float:
    """exp of the mean loss of a token of the chosen replies; `log_probability` as `log_probabilities` gives it."""
    total = log_probability[0].double().sum().item()
    return exp_or_infinite(-total / sum(len(pair.chosen) for pair in pairs))


def _train(
    model: Any,
    pairs: Sequence[PairTokens],
    recipe: Recipe,
    *,
    seed: int,
    make: Callable[[Sequence[PairTokens]], Batch],
    loss_of: Callable[[Any, Batch], Tensor],
    advance: Callable[[], None],
) -> list[float]:
    """The steps that both stages share."""
    without_dropout_(model)
    steps = recipe.steps_of(len(pairs))
    losses = fit(
        model,
        (make(part) for part in _batches(pairs, recipe, seed)),
        loss_of,
        optimizer=torch.optim.RMSprop(
            param_groups(model, lr=recipe.learning_rate, lr_scale=recipe.activation_rate_factor)
        ),
        steps=steps,
        schedule=lambda progress: share_of_rate(round(progress * steps), recipe.warmup),
        accumulate=recipe.batch // recipe.micro_batch,
        clip=recipe.clip,
        on_step=lambda _: advance(),
    )
    model.eval()
    return losses.tolist()


def _batches(pairs: Sequence[PairTokens], recipe: Recipe, seed: int) -> Iterator[Sequence[PairTokens]]:
    """Parts of `micro_batch` pairs for all steps, in an order that the seed alone decides; each epoch has its own."""
    random = torch.Generator().manual_seed(seed)
    steps, done = recipe.steps_of(len(pairs)), 0
    while done < steps:
        order = torch.randperm(len(pairs), generator=random).tolist()
        for at in range(0, len(pairs) - recipe.batch + 1, recipe.batch):
            if done == steps:
                return
            done += 1
            for part in range(at, at + recipe.batch, recipe.micro_batch):
                yield [pairs[index] for index in order[part : part + recipe.micro_batch]]


def without_dropout_(model: nn.Module) -> None:
    """Every share of dropout becomes 0, in place."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        # Attention keeps its share as a number of its own (GPT-2's is a module, Llama's and GPT-NeoX's are not).
        for name in ("attention_dropout", "attn_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
