"""Whether λ-GELU orders the layers by hardness alike from all starts, epoch by epoch: figure 3 (right) of its paper."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

from ...measure.hardness import spearman
from ..report.palette import COLOURS, DASHES, SYMBOLS, Look
from ..report.parts import Band
from ..report.pdf import bands_png
from .lambda_gelu import LEARNED
from .runs import Study

FIGURE = "order-of-layers"
CAPTION = (
    "Rank correlation of the layers' hardness between two starts after each epoch: mean over seeds, with its standard "
    "deviation; 1 where both order the layers alike"
)
Profiles: TypeAlias = list[list[list[float]]]
"""[seed][epoch][layer]"""


def order_figure(study: Study) -> bytes | None:
    """The figure as a PNG; None where fewer than two starts were run, or the hardness was not followed."""
    found = correlations(study)
    bands = [_band(name, each) for name, each in found.items() if each]
    look = {band.label: Look(COLOURS[place], SYMBOLS[place], DASHES[place]) for place, band in enumerate(bands)}
    return bands_png(look, bands, "Spearman's correlation") if bands else None


def correlations(study: Study) -> dict[str, list[list[float]]]:
    """[seed][epoch] of the correlation between the profiles of two starts, by the names of the two.

    Seeds are paired, as everywhere; one that diverged from either start is left out. Not a number where all layers of
    a profile are equally hard.
    """
    profiles = {label: _profiles(study, label) for label in LEARNED if label in study.outcomes}
    return {
        f"{_short(one)} and {_short(other)}": [
            [spearman(a, b) for a, b in zip(first, second, strict=True)]
            for first, second in zip(profiles[one], profiles[other], strict=True)
            if first and second
        ]
        for one, other in combinations(profiles, 2)
    }


def _profiles(study: Study, label: str) -> Profiles:
    """Empty for a seed that diverged, and if a layer's hardness was not followed (it did not move)."""
    outcome = study.outcomes[label]
    ways = [outcome.parameters.get(f"{site['path']}.{site['knob']}") for site in outcome.hardness]
    curves = [way["curve"] for way in ways if way is not None]
    if len(curves) < len(ways) or not curves:
        return [[] for _ in outcome.diverged]
    seeds = range(len(outcome.diverged))
    return [_whole([[curve[epoch][seed] for curve in curves] for epoch in range(len(curves[0]))]) for seed in seeds]


def _whole(profile: Sequence[Sequence[float | None]]) -> list[list[float]]:
    there = [[one for one in epoch if one is not None] for epoch in profile]
    return there if all(len(a) == len(b) for a, b in zip(there, profile, strict=True)) else []


def _band(name: str, each: Sequence[Sequence[float]]) -> Band:
    """Mean and standard deviation over the seeds, of the epochs that have a correlation."""
    points = []
    for epoch, seeds in enumerate(zip(*each, strict=True), start=1):
        there = [one for one in seeds if not math.isnan(one)]
        if there:
            points.append((epoch, statistics.fmean(there), statistics.pstdev(there)))
    return Band(
        label=name,
        curve=FIGURE,
        epochs=tuple(epoch for epoch, _, _ in points),
        middle=tuple(middle for _, middle, _ in points),
        low=tuple(max(-1.0, middle - spread) for _, middle, spread in points),
        high=tuple(min(1.0, middle + spread) for _, middle, spread in points),
    )


def _short(label: str) -> str:
    return label.removeprefix("λ-GELU ")
