"""One training of a GPT-2 on characters or tokens, with or without hardening, and the recovery after a swap."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import need_package
from ..surgery import Hardener, param_groups, relu_ize_, swap_
from ..train import fit
from .data.text import Characters

_ATTENTION = "softknee_causal"
_BETAS = (0.9, 0.99)
_CLIP = 1.0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The network and its training.

    recover:   optimiser steps that every way of recovering may spend; 0 recovers in no way.
    layerwise: also recover layer by layer, which measures the loss twice for every layer.
    recorded:  on a GPU the step is a CUDA graph.
    """

    layers: int = 6
    width: int = 384
    heads: int = 6
    context: int = 256
    dropout: float = 0.2
    batch: int = 64
    steps: int = 2000
    warmup: int = 100
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    activation_rate_factor: float = 9.0
    start: float = 0.25
    tolerance: float = 5e-3
    recover: int = 240
    recover_rate: float = 1e-4
    layerwise: bool = True
    recorded: bool = True


def build(recipe: Recipe, *, vocabulary: int, seed: int, activation: str, knobs: dict[str, Any] | None = None) -> Any:
    """A GPT-2 with weights from the seed alone; `activation` takes the place of its GELU, "gelu" leaves it."""
    need_package("transformers", "The language study needs the package 'transformers'", "text")
    from transformers import AttentionInterface, GPT2Config, GPT2LMHeadModel

    AttentionInterface.register(_ATTENTION, _causal_attention)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=recipe.context,
        n_embd=recipe.width,
        n_layer=recipe.layers,
        n_head=recipe.heads,
        resid_pdrop=recipe.dropout,
        embd_pdrop=recipe.dropout,
        attn_pdrop=recipe.dropout,
        bos_token_id=None,
        eos_token_id=None,
        use_cache=False,
        attn_implementation=_ATTENTION,  # pyright: ignore[reportCallIssue] - every config takes it
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config)
    if activation == "relu":
        swap_(model, "relu", replacing="gelu")
        relu_ize_(model)
    elif activation != "gelu":
        swap_(model, activation, replacing="gelu", **(knobs or {}))
    return model


def _causal_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, dropout: float = 0.0, **_: Any
) -> tuple[Tensor, None]:
    """Each token looks at itself and what is before it. transformers' own way there builds a mask, for which it asks
    the GPU; so no step could be recorded."""
    output = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    return output.transpose(1, 2), None


class Batches:
    """Random pieces of a text, in an order that the seed alone decides."""

    def __init__(self, text: Tensor, recipe: Recipe, *, seed: int) -> None:
        self.text, self.recipe = text, recipe
        # Places are drawn on the CPU, where they are the same with and without a GPU.
        self.random = torch.Generator().manual_seed(seed)
        self.window = torch.arange(recipe.context + 1, device=text.device)

    def __iter__(self) -> Iterator[Tensor]:
        while True:
            yield self.draw()

    def draw(self) -> Tensor:
        last = len(self.text) - self.recipe.context - 1
        starts = torch.randint(last, (self.recipe.batch,), generator=self.random).to(self.text.device)
        return self.text[starts[:, None] + self.window]


def loss_of(model: nn.Module, pieces: Tensor) -> Tensor:
    """Cross-entropy of the next character, in nats."""
    with torch.autocast(pieces.device.type, torch.bfloat16, enabled=pieces.is_cuda):
        logits = model(input_ids=pieces[:, :-1]).logits
    return F.cross_entropy(logits.float().flatten(0, 1), pieces[:, 1:].flatten())


def train(
    model: nn.Module,
    data: Characters,
    recipe: Recipe,
    *,
    seed: int,
    harden: bool,
    advance: Callable[[], None] = lambda: None,
) -> None:
    """Train in place: AdamW, warm-up, half a cosine down to a tenth; the knobs are hardened step by step."""
    hardener = Hardener(model, recipe.steps, start=recipe.start, tolerance=recipe.tolerance) if harden else None

    def share_of_rate(progress: float) -> float:
        step = round(progress * recipe.steps) + 1
        after = max(0.0, (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup))
        return min(1.0, step / recipe.warmup) * (0.1 + 0.9 * (1 + math.cos(math.pi * after)) / 2)

    torch.manual_seed(seed)  # of dropout
    fit(
        model,
        Batches(data.train, recipe, seed=seed),
        loss_of,
        optimizer=adamw(model, recipe, lr=recipe.learning_rate, lr_scale=recipe.activation_rate_factor),
        steps=recipe.steps,
        schedule=share_of_rate,
        clip=_CLIP,
        capture=recipe.recorded,
        before_step=None if hardener is None else hardener.step,
        on_step=lambda _: advance(),
    )


def recover(model: nn.Module, data: Characters, recipe: Recipe, *, seed: int, steps: int) -> None:
    """A few steps at a small constant rate, with a fresh optimiser."""
    fit(
        model,
        Batches(data.train, recipe, seed=seed),
        loss_of,
        optimizer=adamw(model, recipe, lr=recipe.recover_rate),
        steps=steps,
        clip=_CLIP,
        capture=recipe.recorded,
    )


def adamw(model: nn.Module, recipe: Recipe, **rates: float) -> torch.optim.AdamW:
    """The optimiser of every training here; `rates` are lr and lr_scale of `param_groups`."""
    cuda = next(model.parameters()).is_cuda
    groups = param_groups(model, weight_decay=recipe.weight_decay, **rates)
    return torch.optim.AdamW(groups, betas=_BETAS, fused=cuda, capturable=recipe.recorded and cuda)


def validation_loss(model: nn.Module, data: Characters, recipe: Recipe) -> float:
    """The mean loss over the whole validation text."""
    return mean_loss(model, data.validation, recipe)


@torch.no_grad()
def mean_loss(model: nn.Module, text: Tensor, recipe: Recipe) -> float:
    """The mean loss over a text, cut into pieces one after the other."""
    mode = model.training
    model.eval()
    long = recipe.context + 1
    pieces = text[: len(text) // long * long].view(-1, long)
    total = sum(loss_of(model, batch).double().item() * len(batch) for batch in pieces.split(recipe.batch))
    model.train(mode)
    return total / len(pieces)
