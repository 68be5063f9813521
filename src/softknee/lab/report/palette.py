"""One colour and one symbol for each row, the same in every figure; one colour for all values of a knob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .parts import Summary

# Each has a contrast of 3:1 or more against the light paper and against the dark one.
COLOURS = (
    "#2a7fd9", "#d9541e", "#16976f", "#b0569f", "#a07b00", "#7a6fe0", "#2b93a8", "#c4475f", "#6f8f22", "#8a8983",
    "#b5763a", "#d04fc0",
)  # fmt: skip
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon", "hexagon", "triangle-down", "x")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass(frozen=True)
class Look:
    colour: str
    symbol: str
    dash: str


def looks(summary: Summary) -> Mapping[str, Look]:
    """By label. The values of a knob share a colour and differ in the dash of their lines.

    Where symbols are used a second time, colours and dashes are other ones.
    """
    owner = {row.label: knob.name for knob in summary.knobs for row in knob.rows}
    groups: dict[str, list[str]] = {}
    for row in summary.rows:
        groups.setdefault(owner.get(row.label, f"\0{row.label}"), []).append(row.label)
    return {
        label: _look(group, place) for group, labels in enumerate(groups.values()) for place, label in enumerate(labels)
    }


def _look(group: int, place: int) -> Look:
    again, symbol = divmod(group, len(SYMBOLS))
    colour = COLOURS[group % len(COLOURS)]
    return Look(colour, SYMBOLS[(symbol + again) % len(SYMBOLS)], DASHES[(place + again) % len(DASHES)])
