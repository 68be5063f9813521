"""The language study: a small GPT-2 on characters, ReLU put in the place of its GELU, and ways to make that cheap.

The lambda-GELU paper reports that GPT-2 breaks under a plain swap. For each seed, validation loss of

    free        the smooth network as trained
    bare        ReLU put in after free training (of a row that is also hardened)
    replaced    ReLU put in, no weight changed
    together    ReLU put in everywhere, then `recover` steps of training
    layerwise   layer by layer from the first: ReLU put in, then that layer's share of the same `recover` steps
    went on     the smooth network, trained for those steps too: what they are worth without any swap

for GELU trained freely, and for lambda-GELU and S-ReLU hardened during training (their free training beside it, because
hardening has a cost of its own); and of a ReLU network from scratch.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from ..errors import ParameterError, did_you_mean
from ..measure.record import Quantity, Record
from ..measure.speed import choose_device
from ..surgery import relu_ize_, swap_
from ..surgery.modules import activation_modules
from .characters import Characters, load_characters
from .kept import Kept
from .language_runs import Recipe, build, put_in_, recover, train, validation_loss

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
    found: dict[str, list[Mapping[str, Any]]] = {entry.title: [] for entry in settings.entries}
    parameters = 0
    names = [_name(entry, seed) for seed in settings.seeds for entry in settings.entries]
    told = {"device": device.type, "text": _fingerprint(data)}
    kept = Kept(keep, kind=KIND, settings=told | asdict(settings.recipe), names=names)
    for seed in settings.seeds:
        # Drawn once: every row begins with these weights.
        start = build(settings.recipe, vocabulary=data.vocabulary, seed=seed, activation="gelu").to(device)
        parameters = sum(one.numel() for one in start.parameters())
        for entry in settings.entries:
            row = kept.found(
                _name(entry, seed),
                partial(_one, entry, start, data, settings.recipe, seed, advance),
                advance=partial(advance, f"{entry.name} seed {seed}"),
                steps=settings.recipe.steps * (2 if entry.harden else 1),
            )
            found[entry.title].append(row)
    return kept.of(_record(settings, found, device, command, parameters))


def _name(entry: Entry, seed: int) -> str:
    return f"{entry.name}-seed-{seed}"


def _fingerprint(data: Characters) -> str:
    """A checksum of the text, by which findings from another one are told apart."""
    found = hashlib.sha256()
    for part in (data.train, data.validation):
        found.update(part.cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def _one(
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
    return [getattr(one, one.definition.knobs[0]).detach().double().mean().item() for one in modules]


def _record(
    settings: Settings,
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    device: torch.device,
    command: str,
    parameters: int,
) -> Record:
    rows = []
    for title, seeds in found.items():
        columns = [name for name in COLUMNS if name in seeds[0]]
        rows.append(
            {
                "row": title,
                "loss": {name: Quantity.mean([one[name] for one in seeds], unit="nats") for name in columns},
                "loss_by_seed": {name: [one[name] for one in seeds] for name in columns},
                "layer_by_layer": [one["layers"] for one in seeds if "layers" in one],
                "learned_knobs": [one["knobs"] for one in seeds if "knobs" in one],
                "time": Quantity.mean([one["seconds"] for one in seeds], unit="s"),
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
