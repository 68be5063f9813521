"""The language study: a small GPT-2 on characters, ReLU put in the place of its GELU, and ways to make that cheap.

The lambda-GELU paper reports that GPT-2 breaks under a plain swap. For each seed, validation loss of

    free        the smooth network as trained
    replaced    ReLU put in, no weight changed
    together    ReLU put in everywhere, then `recover` steps of training
    layerwise   layer by layer from the first: ReLU put in, then that layer's share of the same `recover` steps
    went on     the smooth network, trained for those steps too: what they are worth without any swap

for GELU trained freely, and for lambda-GELU and S-ReLU hardened during training (their free training beside it, because
hardening has a cost of its own); and of a ReLU network from scratch.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from ..errors import ParameterError
from ..measure.record import Quantity, Record
from ..measure.speed import choose_device
from ..surgery import relu_ize_, swap_
from .characters import Characters, load_characters
from .language_runs import Recipe, build, recover, train, validation_loss

KIND = "study language"
COLUMNS = ("free", "hardened", "replaced", "together", "layerwise", "went on")


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
    """What is run, on what, and where the data lie."""

    recipe: Recipe = field(default_factory=Recipe)
    seeds: tuple[int, ...] = (0, 1, 2)
    device: str = "auto"
    data: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not self.seeds or self.recipe.steps < 4 or self.recipe.recover < self.recipe.layers:
            raise ParameterError(
                "The language study needs a seed, four training steps and a recovery step for each layer at least."
            )


def steps(settings: Settings) -> int:
    """How often `run` reports progress: once for every step of every training."""
    return len(settings.seeds) * settings.recipe.steps * sum(2 if entry.harden else 1 for entry in ENTRIES)


def run(
    settings: Settings,
    *,
    command: str,
    advance: Callable[[str], None] = lambda _: None,
    text: Characters | None = None,
) -> Record:
    """Train everything and return the record; `text` instead of tiny-shakespeare from the data folder."""
    device = choose_device(settings.device)
    data = (text or load_characters(settings.data)).to(device)
    found: dict[str, list[dict[str, Any]]] = {entry.title: [] for entry in ENTRIES}
    for seed in settings.seeds:
        for entry in ENTRIES:
            found[entry.title].append(_one(entry, data, settings.recipe, seed, device, advance))
    return _record(settings, found, device, command)


def _one(
    entry: Entry,
    data: Characters,
    recipe: Recipe,
    seed: int,
    device: torch.device,
    advance: Callable[[str], None],
) -> dict[str, Any]:
    """The losses of one row with one seed."""

    def trained(harden: bool) -> Any:
        model = build(recipe, vocabulary=data.vocabulary, seed=seed, activation=entry.name, knobs=dict(entry.knobs))
        return train(
            model.to(device),
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

    def again(share: int) -> Callable[[Any], None]:
        return lambda model: recover(model, data, recipe, seed=seed + 1000, steps=recipe.recover // share)

    def softknee_copy() -> Any:
        """A copy whose stock GELU is softknee's, so that it can be replaced."""
        model = copy.deepcopy(smooth)
        if entry.name == "gelu":
            swap_(model, "gelu_tanh", replacing="gelu")
        return model

    once = relu_ize_(softknee_copy(), loss, finetune=again(1))
    each = relu_ize_(softknee_copy(), loss, finetune=again(recipe.layers), order="layerwise")
    went_on = copy.deepcopy(smooth)
    again(1)(went_on)
    result |= {
        "replaced": once.after,
        "together": once.recovered,
        "layerwise": each.recovered,
        "went on": loss(went_on),
    }
    result["layers"] = [[swapped, recovered] for _, swapped, recovered in each.trace]
    return result


def _record(
    settings: Settings, found: Mapping[str, Sequence[Mapping[str, Any]]], device: torch.device, command: str
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
                "time": Quantity.mean([one["seconds"] for one in seeds], unit="s"),
            }
        )
    return Record.now(
        KIND,
        command=command,
        rows=rows,
        seeds=settings.seeds,
        baseline="ReLU from scratch, from the same weights on the same batches",
        settings={"device": device.type, **asdict(settings.recipe)},
        notes=[
            "Validation loss in nats for each character of the last tenth of tiny-shakespeare.",
            "together, layerwise and went on spend the same number of training steps at the same rate.",
        ],
    )


def language_markdown(record: Record) -> str:
    """The table of a record of this study."""
    lines = [f"| validation loss, nats | {' | '.join(COLUMNS)} |", "|---" + "|---:" * len(COLUMNS) + "|"]
    for row in record.rows:
        cells = [row["loss"][name].text(4) if name in row["loss"] else "–" for name in COLUMNS]
        lines.append(f"| {row['row']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
