"""One training of a small GPT-2 on characters, with or without hardening, and the ways to recover after a swap."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import MissingToolError, ParameterError, did_you_mean
from ..measure.record import Quantity, Record
from ..surgery import Hardener, param_groups, relu_ize_, swap_
from ..surgery.modules import activation_modules
from ..train import fit
from .bench.speed import choose_device
from .data.text import Characters, load_characters
from .kept import Kept

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
    try:
        from transformers import AttentionInterface, GPT2Config, GPT2LMHeadModel
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "The language study needs the package 'transformers', which is not installed. Install it with: "
            "pip install 'softknee[text]'"
        ) from error
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
    return put_in_(model, activation, knobs)


def _causal_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, dropout: float = 0.0, **_: Any
) -> tuple[Tensor, None]:
    """Each token looks at itself and what is before it. transformers' own way there builds a mask, for which it asks
    the GPU; so no step could be recorded."""
    output = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    return output.transpose(1, 2), None


def put_in_(model: Any, activation: str, knobs: dict[str, Any] | None = None) -> Any:
    """An activation in the place of the model's GELU, in place; "gelu" leaves it."""
    if activation == "relu":
        swap_(model, "relu", replacing="gelu")
        relu_ize_(model)
    elif activation != "gelu":
        swap_(model, activation, replacing="gelu", **(knobs or {}))
    return model


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


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A finished run."""

    model: nn.Module
    seconds: float


def train(
    model: nn.Module,
    data: Characters,
    recipe: Recipe,
    *,
    seed: int,
    harden: bool,
    advance: Callable[[], None] = lambda: None,
) -> Trained:
    """Train in place: AdamW, warm-up, half a cosine down to a tenth; the knobs are hardened step by step."""
    hardener = Hardener(model, recipe.steps, start=recipe.start, tolerance=recipe.tolerance) if harden else None

    def share_of_rate(progress: float) -> float:
        step = round(progress * recipe.steps) + 1
        after = max(0.0, (step - recipe.warmup) / max(1, recipe.steps - recipe.warmup))
        return min(1.0, step / recipe.warmup) * (0.1 + 0.9 * (1 + math.cos(math.pi * after)) / 2)

    begin = time.perf_counter()
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
    return Trained(model=model, seconds=time.perf_counter() - begin)


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


@torch.no_grad()
def validation_loss(model: nn.Module, data: Characters, recipe: Recipe) -> float:
    """The mean loss over the whole validation text, cut into pieces one after the other."""
    mode = model.training
    model.eval()
    long = recipe.context + 1
    pieces = data.validation[: len(data.validation) // long * long].view(-1, long)
    total = sum(loss_of(model, batch).double().item() * len(batch) for batch in pieces.split(recipe.batch))
    model.train(mode)
    return total / len(pieces)


KIND = "study language"
COLUMNS = ("free", "bare", "hardened", "replaced", "together", "layerwise", "went on")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A row: the activation, whether it is hardened while it trains, and where its parameters start."""

    title: str
    name: str
    harden: bool = False
    knobs: Mapping[str, Any] = field(default_factory=dict)


ENTRIES = (
    Entry(title="GELU", name="gelu"),
    Entry(title="lambda-GELU, hardened", name="lambda_gelu", harden=True, knobs={"learn": True}),
    Entry(title="S-ReLU, hardened", name="srelu", harden=True, knobs={"learn": True, "delta": 1.0}),
    Entry(title="ReLU from scratch", name="relu"),
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is run, on what, and where the data lie. `rows` are names of activations, of those in ENTRIES."""

    recipe: Recipe = field(default_factory=Recipe)
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "auto"
    data: str | os.PathLike[str] | None = None
    rows: tuple[str, ...] = tuple(entry.name for entry in ENTRIES)

    def __post_init__(self) -> None:
        recipe, known = self.recipe, [entry.name for entry in ENTRIES]
        layerwise = recipe.layerwise and recipe.recover > 0
        if not self.seeds or recipe.steps < 4 or recipe.recover < (recipe.layers if layerwise else 0):
            raise ParameterError(
                "The language study needs a seed, four training steps and a recovery step for each layer at least (or "
                "none at all)."
            )
        if unknown := [row for row in self.rows if row not in known]:
            near = did_you_mean(unknown[0], known)
            raise ParameterError(f"The rows of the study are {', '.join(known)}, not {unknown[0]!r}.{near}")

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in ENTRIES if entry.name in self.rows)


def steps(settings: Settings) -> int:
    """How often `run` reports progress: once for every step of every training."""
    return len(settings.seeds) * settings.recipe.steps * sum(2 if entry.harden else 1 for entry in settings.entries)


def run(
    settings: Settings,
    *,
    command: str,
    advance: Callable[[str], None] = lambda _: None,
    text: Characters | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> Record:
    """Train everything and return the record; `text` instead of tiny-shakespeare from the data folder.

    In the folder `keep` the findings of each row and seed are kept as they come (`lab.kept`).
    """
    device = choose_device(settings.device)
    data = (text or load_characters(settings.data)).to(device)
    results: dict[str, list[Mapping[str, Any]]] = {entry.title: [] for entry in settings.entries}
    parameters = 0
    names = [_name(entry, seed) for seed in settings.seeds for entry in settings.entries]
    source = {"device": device.type, "text": _fingerprint(data)}
    store = Kept(keep, kind=KIND, settings=source | asdict(settings.recipe), names=names)
    for seed in settings.seeds:
        # Drawn once: every row begins with these weights.
        start = build(settings.recipe, vocabulary=data.vocabulary, seed=seed, activation="gelu").to(device)
        parameters = sum(parameter.numel() for parameter in start.parameters())
        for entry in settings.entries:
            row = store.found(
                _name(entry, seed),
                partial(_train_row, entry, start, data, settings.recipe, seed, advance),
                advance=partial(advance, f"{entry.name} seed {seed}"),
                steps=settings.recipe.steps * (2 if entry.harden else 1),
            )
            results[entry.title].append(row)
    return store.of(_record(settings, results, device, command, parameters))


def _name(entry: Entry, seed: int) -> str:
    return f"{entry.name}-seed-{seed}"


def _fingerprint(data: Characters) -> str:
    """A checksum of the text, by which findings from another one are told apart."""
    digest = hashlib.sha256()
    for part in (data.train, data.validation):
        digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _train_row(
    entry: Entry,
    start: Any,
    data: Characters,
    recipe: Recipe,
    seed: int,
    advance: Callable[[str], None],
) -> dict[str, Any]:
    """The losses of one row with one seed; `start` is the network with GELU before any training."""

    def trained(harden: bool) -> Any:
        return train(
            put_in_(copy.deepcopy(start), entry.name, dict(entry.knobs)).to(data.train.device),
            data,
            recipe,
            seed=seed,
            harden=harden,
            advance=lambda: advance(f"{entry.name} seed {seed}"),
        )

    def loss(model: Any) -> float:
        return validation_loss(model, data, recipe)

    free = trained(harden=False)
    result: dict[str, Any] = {"free": loss(free.model), "seconds": free.seconds}
    if entry.name == "relu":
        return result
    smooth = trained(harden=True).model if entry.harden else free.model
    if entry.harden:
        result["hardened"] = loss(smooth)
        result["knobs"] = _knobs(free.model)
        relu_ize_(free.model)
        result["bare"] = loss(free.model)

    def again(share: int) -> Callable[[Any], None]:
        return lambda model: recover(model, data, recipe, seed=seed + 1000, steps=recipe.recover // share)

    def softknee_copy() -> Any:
        """A copy whose stock GELU is softknee's, so that it can be replaced."""
        model = copy.deepcopy(smooth)
        if entry.name == "gelu":
            swap_(model, "gelu_tanh", replacing="gelu")
        return model

    once = relu_ize_(softknee_copy(), loss, finetune=again(1) if recipe.recover else None)
    result["replaced"] = once.after
    if recipe.recover:
        went_on = copy.deepcopy(smooth)
        again(1)(went_on)
        result |= {"together": once.recovered, "went on": loss(went_on)}
    if recipe.recover and recipe.layerwise:
        each = relu_ize_(softknee_copy(), loss, finetune=again(recipe.layers), order="layerwise")
        result |= {
            "layerwise": each.recovered,
            "layers": [[swapped, recovered] for _, swapped, recovered in each.trace],
        }
    return result


def _knobs(model: Any) -> list[float]:
    """The knob of every activation, in order of depth."""
    modules = activation_modules(model).values()
    return [getattr(module, module.definition.knobs[0]).detach().double().mean().item() for module in modules]


def _record(
    settings: Settings,
    results: Mapping[str, Sequence[Mapping[str, Any]]],
    device: torch.device,
    command: str,
    parameters: int,
) -> Record:
    rows = []
    for title, seeds in results.items():
        columns = [name for name in COLUMNS if name in seeds[0]]
        rows.append(
            {
                "row": title,
                "loss": {name: Quantity.mean([result[name] for result in seeds], unit="nats") for name in columns},
                "loss_by_seed": {name: [result[name] for result in seeds] for name in columns},
                "layer_by_layer": [result["layers"] for result in seeds if "layers" in result],
                "learned_knobs": [result["knobs"] for result in seeds if "knobs" in result],
                "time": Quantity.mean([result["seconds"] for result in seeds], unit="s"),
            }
        )
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline="ReLU from scratch, from the same weights on the same batches",
        settings={"device": device.type, "parameters": parameters, **asdict(settings.recipe)},
        notes=[
            "Validation loss in nats for each character of the last tenth of tiny-shakespeare.",
            "together, layerwise and went on spend the same number of training steps at the same rate.",
        ],
    )


def language_markdown(record: Record) -> str:
    """The table of a record of this study."""
    columns = columns_of(record)
    lines = [f"| validation loss, nats | {' | '.join(columns)} |", "|---" + "|---:" * len(columns) + "|"]
    for row in record.rows:
        cells = [row["loss"][name].text(4) if name in row["loss"] else "–" for name in columns]
        lines.append(f"| {row['row']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def columns_of(record: Record) -> tuple[str, ...]:
    """The columns that any row of the record has."""
    return tuple(name for name in COLUMNS if any(name in row["loss"] for row in record.rows))
