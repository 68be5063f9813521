"""What the activations of a trial's models are like: learned parameters, hardness, activity, site by site."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from ....errors import InputError
from ....measure import HardnessProfile, SiteActivity, SiteEntropy, activity, entropies, hardness_profile
from ....surgery.modules import activation_modules
from ....train.streamed import Streamed
from ..outcome import Curve, Each
from .scores import spread_out
from .trainer import Trainer

MOST_EXAMPLES = 2048  # that the activity is looked at on: enough for a share of zeros, and quick
_AT_ONCE = 256  # of those that are read from a disk, which are large
MOST_ENTRIES = 64  # of a vector that is followed entry by entry; of more, the models that a study keeps have the end


class Followed:
    """The activation parameters that may move: those that are learned, and those that are hardened.

    A vector such as SQUAF's z is followed entry by entry, as "path.z[0]", "path.z[1]" ... A very long one is not.
    """

    def __init__(self, model: nn.Module, hardened: Sequence[str] = ()) -> None:
        self.widths: dict[str, int] = {}
        for path, module in activation_modules(model).items():
            for p in module.params:
                name = f"{path}.{p.name}" if path else p.name
                width = math.prod(module._tail(p.name))
                if (p.name in module.learned or name in hardened) and width <= MOST_ENTRIES:
                    self.widths[name] = width

    def now(self, trainer: Trainer) -> dict[str, list[float]]:
        """The mean over channels or neurons of each, for every seed."""
        if not self.widths:
            return {}
        found: dict[str, list[float]] = {}
        values = trainer.knobs()
        for name, width in self.widths.items():
            means = values[name].double().reshape(trainer.count, -1, width).mean(dim=1)
            for entry in range(width):
                found[name if width == 1 else f"{name}[{entry}]"] = means[:, entry].tolist()
        return found


def parameters(
    start: Mapping[str, Sequence[float]],
    end: Mapping[str, Sequence[float]],
    curves: Mapping[str, Curve],
    rows: Sequence[int],
) -> dict[str, dict[str, Any]]:
    """Start, end and way of every parameter that moved in one of these seeds, or that moved at all if there is none."""
    found: dict[str, dict[str, Any]] = {}
    for name, curve in curves.items():
        if all(value in (None, start[name][seed]) for epoch in curve for seed, value in enumerate(epoch)):
            continue
        last = spread_out([end[name][row] for row in rows], rows, len(end[name]))
        begin = [float(one) for one in start[name]]
        found[name] = {"start": begin[0], "end": last, "curve": curve}
        if len(set(begin)) > 1:  # drawn at random; else every seed starts with the value of the recipe
            found[name] |= {"start": sum(begin) / len(begin), "starts": tuple(begin)}
    return found


def profiles(trainer: Trainer, rows: Sequence[int], *, distances: bool) -> list[HardnessProfile]:
    """How hard the activations of these seeds are; empty where none of them has a knob."""
    try:
        return [hardness_profile(trainer.model(row), distances=distances) for row in rows]
    except InputError:
        return []


def hardness(
    start: Sequence[HardnessProfile], end: Sequence[HardnessProfile], rows: Sequence[int]
) -> tuple[dict[str, Any], ...]:
    """Site by site, from the profiles of all seeds at the start and of the seeds in `rows` at the end."""
    count = len(start)
    found = []
    for place, site in enumerate(start[0].sites if start else ()):
        distances = [one.sites[place].distance for one in end]
        far = [math.inf if one is None else one for one in distances]
        found.append(
            {
                "path": site.path,
                "knob": site.knob,
                "start": spread_out([one.sites[place].value for one in start], range(count), count),
                "end": spread_out([one.sites[place].value for one in end], rows, count),
                "distance": spread_out(far, rows, count),
            }
        )
    return tuple(found)


def activities(trainer: Trainer, x: Tensor, rows: Sequence[int]) -> tuple[dict[str, Any], ...]:
    """Site by site: exact zeros, dead units and the entropy of the pre-activations on some examples."""
    seen: dict[int, tuple[SiteActivity, ...]] = {}
    for row in rows:
        # A pre-activation may be infinite where the output is finite; such a seed has no activity.
        with suppress(InputError):
            seen[row] = activity(trainer.model(row), _first(x, trainer.device)).sites
    rows = list(seen)
    found = []
    for sites in zip(*seen.values(), strict=True):
        dead = [math.inf if not one.units else one.dead / one.units for one in sites]
        entropy = [math.inf if one.entropy is None else one.entropy for one in sites]
        found.append(
            {
                "path": sites[0].path,
                "activation": sites[0].activation,
                "zero_fraction": _each([one.zero_fraction for one in sites], rows, trainer),
                "dead_fraction": _each(dead, rows, trainer),
                "entropy": _each(entropy, rows, trainer),
            }
        )
    return tuple(found)


def site_entropies(trainer: Trainer, x: Tensor, rows: Sequence[int]) -> dict[int, tuple[SiteEntropy, ...]]:
    """The entropies of each activation of these seeds on some examples, by seed."""
    found: dict[int, tuple[SiteEntropy, ...]] = {}
    for row in rows:
        with suppress(InputError):  # as in `activities`: a number on the way may be infinite
            found[row] = entropies(trainer.model(row), _first(x, trainer.device))
    return found


def entropy(
    start: Mapping[int, Sequence[SiteEntropy]], end: Mapping[int, Sequence[SiteEntropy]], count: int
) -> tuple[dict[str, Any], ...]:
    """Site by site, before and after training, for every seed."""

    def numbers(seeds: Mapping[int, Sequence[SiteEntropy]], place: int) -> dict[str, Each]:
        names = [one.name for one in fields(SiteEntropy) if one.name not in ("path", "activation")]
        return {
            name: spread_out([getattr(sites[place], name) for sites in seeds.values()], list(seeds), count)
            for name in names
        }

    first = next(iter(start.values()), ())
    return tuple(
        {
            "path": site.path,
            "activation": site.activation,
            "start": numbers(start, place),
            "end": numbers(end, place),
        }
        for place, site in enumerate(first)
    )


def _first(x: Tensor, device: torch.device) -> Iterable[Tensor]:
    """The examples that are looked at; in several batches where they are read from a disk."""
    if isinstance(x, Streamed):
        return x.part(slice(MOST_EXAMPLES)).batches(_AT_ONCE, device)
    return [x[:MOST_EXAMPLES]]


def _each(values: Sequence[float], rows: Sequence[int], trainer: Trainer) -> Each:
    return spread_out(values, rows, trainer.count)
