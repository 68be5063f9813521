"""What the plane of accuracy and reproducibility shows: its points, how far its axes go, and what is written where."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .numbers import plain
from .outliers import outside
from .parts import Measure, Row, Summary
from .placing import Spot, places_for

_EDGE = 0.05  # of the width, left free at both ends
_ARROWS = {(-1, 1): "↖", (0, 1): "↑", (1, 1): "↗", (-1, 0): "←", (1, 0): "→", (-1, -1): "↙", (0, -1): "↓", (1, -1): "↘"}
FEWEST_DRAWN = 3  # seeds that have an interval in a picture
_Span = tuple[float, float]


@dataclass(frozen=True)
class Group:
    """A name of the legend with its points, joined by a line where they are the values of a knob, in their order."""

    name: str
    rows: tuple[Row, ...]
    joined: bool
    parameter: str = ""


@dataclass(frozen=True)
class View:
    """The plane. Points far outside of it are not in `shown`; a line to them leaves the picture.

    spans: from where to where the axes go, with all bars of the points that are shown.
    note:  names what is outside, with its numbers, for the picture itself.
    """

    metric: Measure
    spread: Measure
    groups: tuple[Group, ...]
    shown: tuple[Row, ...]
    outside: tuple[Row, ...]
    spans: tuple[_Span, _Span]

    @property
    def note(self) -> str:
        told = (f"{self._way(row)} {self._told(row)}" for row in self.outside)
        return f"Outside the picture: {', '.join(told)}" if self.outside else ""

    @property
    def caption(self) -> str:
        told = ", ".join(self._told(row) for row in self.outside)
        return f"Too far away to be shown: {told}." if self.outside else ""

    def _told(self, row: Row) -> str:
        across, upright = middle_of(row, self.metric, self.spread)
        unit = f" {self.metric.unit}" if self.metric.unit else ""
        return f"{' '.join(row.label.split())} ({plain(across)}{unit}, {plain(upright)})"

    def _way(self, row: Row) -> str:
        at = middle_of(row, self.metric, self.spread)
        across, upright = ((value > high) - (value < low) for value, (low, high) in zip(at, self.spans, strict=True))
        return _ARROWS[across, upright]


def view_of(summary: Summary) -> View | None:
    """What there is to show, of the rows that have both numbers; None where there is no such row."""
    metric, spread = summary.metric, summary.spread
    rows = [row for row in summary.judged if spread and row.found(metric) and row.found(spread)]
    if spread is None or not rows:
        return None
    axes = list(zip(*(middle_of(row, metric, spread) for row in rows), strict=True))
    far = {place for values in axes for place in outside(values)}
    shown = [row for place, row in enumerate(rows) if place not in far]
    spans = _span(shown, metric, 0, (metric, spread)), _span(shown, spread, 1, (metric, spread))
    # A long bar of another point may reach as far; then there is no need to leave one out.
    gone = [row for row in rows if row not in shown and not _within(middle_of(row, metric, spread), spans)]
    shown = [row for row in rows if row not in gone]
    return View(metric, spread, _groups(summary, rows), tuple(shown), tuple(gone), spans)


def _within(at: tuple[float, float], spans: tuple[_Span, _Span]) -> bool:
    return all(low <= value <= high for value, (low, high) in zip(at, spans, strict=True))


def _span(rows: Sequence[Row], measure: Measure, axis: int, both: tuple[Measure, Measure]) -> _Span:
    middles = [middle_of(row, *both)[axis] for row in rows]
    every = [*middles, *(end for row in rows if (reach := interval_of(row, measure)) for end in reach)]
    every = [one for one in every if math.isfinite(one)]
    edge = _EDGE * (max(every) - min(every)) or 0.05 * abs(max(every)) or 0.05
    return min(every) - edge, max(every) + edge


def _groups(summary: Summary, rows: Sequence[Row]) -> tuple[Group, ...]:
    """In the order of their first rows."""
    on_path = {row.label for knob in summary.knobs for row in knob.rows}
    found = [
        Group(knob.name, tuple(row for row in knob.rows if row in rows), True, knob.parameter) for knob in summary.knobs
    ]
    found += [Group(row.label, (row,), False) for row in rows if row.label not in on_path]
    order = {row.label: place for place, row in enumerate(rows)}
    there = (one for one in found if one.rows)
    return tuple(sorted(there, key=lambda one: min(order[row.label] for row in one.rows)))


# -- what is written beside the points ----------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The text beside a point, and where: "top right", "middle left"."""

    text: str
    place: str


def written_at(view: View) -> Mapping[str, Written]:
    """By label. Where many points are close, names and the ends of paths are written first, then what has room.

    Of a path these are the values of its knob, and at one of its ends its name, where there is more room.
    """
    texts, ranks = {}, {}
    for group in view.groups:
        shown = [row for row in group.rows if row in view.shown]
        if not shown:
            continue
        others = [row for row in view.shown if row not in shown]
        named = max(shown[:1] + shown[-1:], key=lambda row: _apart(view, row, others))
        best = min(shown, key=lambda row: middle_of(row, view.metric, view.spread)[1])
        for row in shown:
            value = plain(row.number(group.parameter)) if group.joined else ""
            texts[row.label] = value if row is not named else f"{group.name} {group.parameter}={value}"
            ranks[row.label] = 0 if row is named else 1 if row in (shown[0], shown[-1], best) else 2
        if not group.joined:
            texts[group.name] = group.name
    spots = [
        Spot(
            *middle_of(row, view.metric, view.spread),
            texts[row.label],
            interval_of(row, view.metric),
            interval_of(row, view.spread),
            ranks[row.label],
        )
        for row in view.shown
    ]
    number = {row.label: place for place, row in enumerate(view.shown)}
    lines = [[number[row.label] for row in one.rows if row.label in number] for one in view.groups]
    places = places_for(spots, spans=view.spans, lines=lines)
    return {
        row.label: Written(texts[row.label], place)
        for row, place in zip(view.shown, places, strict=True)
        if place is not None
    }


def _apart(view: View, row: Row, others: Sequence[Row]) -> float:
    """How far the nearest of the others is, the plane being one wide and one high."""
    wide, tall = ((high - low) or 1.0 for low, high in view.spans)
    x, y = middle_of(row, view.metric, view.spread)
    near = [middle_of(one, view.metric, view.spread) for one in others]
    return min((math.hypot((x - a) / wide, (y - b) / tall) for a, b in near), default=0.0)


# -- numbers ------------------------------------------------------------------------------------------------


def axis_title(measure: Measure) -> str:
    return f"{measure.title}, {measure.unit}" if measure.unit else measure.title


def middle_of(row: Row, metric: Measure, spread: Measure) -> tuple[float, float]:
    first, second = row.found(metric), row.found(spread)
    assert first is not None
    assert second is not None
    return metric.scale * first.value, spread.scale * second.value


def interval_of(row: Row, measure: Measure) -> tuple[float, float] | None:
    """The interval that is drawn: none of two seeds, whose t is 12.7 and whose bars would cross the whole plane."""
    found = row.found(measure)
    if found is None or found.interval is None or len(row.seeds) < FEWEST_DRAWN:
        return None
    return measure.scale * found.interval[0], measure.scale * found.interval[1]
