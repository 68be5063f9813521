"""One colour and one symbol for each row, the same in every figure; one colour for all values of a knob."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .parts import Measure, Row, Summary, outside, plain

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


_PLACES = (
    "top right",
    "top left",
    "bottom right",
    "bottom left",
    "top center",
    "bottom center",
    "middle right",
    "middle left",
)
_OF_TEXTS, _OF_MARKS = 0.02, 0.1  # shares of a name that may lie on other names, and on points
_STEPS = 12  # points of a line between two of its values, as something that a name may cover
_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Room:
    """How large the plane is, in any unit: between its edges, a letter's width, a line's height, half a point."""

    wide: float
    tall: float
    letter: float
    line: float
    mark: float


SCREEN = Room(560.0, 336.0, 6.6, 14.0, 8.0)  # pixels of the figure on paper; on a wide page there is more room


@dataclass(frozen=True)
class Spot:
    """A point in the units of the data, what is written beside it, and how far its bars go.

    rank: those with a smaller one are written first; 0 is written whatever it covers, the others only where they fit.
    """

    x: float
    y: float
    text: str
    across: tuple[float, float] | None = None
    upright: tuple[float, float] | None = None
    rank: int = 0


def places_for(
    spots: Sequence[Spot],
    *,
    room: Room = SCREEN,
    spans: tuple[tuple[float, float], tuple[float, float]] | None = None,
    lines: Sequence[Sequence[int]] = (),
) -> list[str | None]:
    """A position for each text, such as "top right": one after the other, each where it covers least.

    None is of a text that would lie on others wherever it is put, unless its rank is 0.

    Args:
        spans: what the axes go from and to; default from the first bar to the last.
        lines: the numbers of the spots that a line joins, for each line.

    >>> places_for([Spot(0, 0, "left"), Spot(1, 1, "right")])
    ['top right', 'bottom left']
    >>> crowd = [Spot(0, 0, "more", rank=1)] * 9
    >>> places_for([Spot(0, 0, "first"), Spot(1, 1, "far"), *crowd])[-1] is None
    True
    """
    wide, tall = spans or (
        _span([one.x for one in spots], [one.across for one in spots]),
        _span([one.y for one in spots], [one.upright for one in spots]),
    )
    at = [(_scaled(one.x, wide) * room.wide, _scaled(one.y, tall) * room.tall) for one in spots]
    marks = [_around(point, room.mark) for point in at]
    bars: list[_Box] = []
    for one, (x, y) in zip(spots, at, strict=True):
        if one.across:
            low, high = (_scaled(end, wide) * room.wide for end in one.across)
            bars.append((low, y - 1, high, y + 1))
        if one.upright:
            low, high = (_scaled(end, tall) * room.tall for end in one.upright)
            bars.append((x - 1, low, x + 1, high))
    bars += [_around(point, 1.0) for line in lines for point in _along([at[number] for number in line])]
    written: list[_Box] = []
    found: list[str | None] = [None] * len(spots)
    for place in sorted(range(len(spots)), key=lambda place: spots[place].rank):
        spot = spots[place]
        others = [mark for other, mark in enumerate(marks) if other != place]
        boxes = {name: _box(at[place], name, len(spot.text), room) for name in _PLACES}
        best = min(_PLACES, key=lambda name: _covered(boxes[name], [*others, *bars], written, room))
        box = boxes[best]
        fits = _on(box, written) <= _OF_TEXTS * _area(box) and _on(box, others) <= _OF_MARKS * _area(box)
        if spot.rank == 0 or fits:
            written.append(box)
            found[place] = best
    return found


def _span(middles: Sequence[float], reaches: Sequence[tuple[float, float] | None]) -> tuple[float, float]:
    every = [*middles, *(end for reach in reaches if reach for end in reach)]
    return min(every), max(every)


def _scaled(value: float, span: tuple[float, float]) -> float:
    return (value - span[0]) / (span[1] - span[0]) if span[1] > span[0] else 0.5


def _around(point: tuple[float, float], reach: float) -> _Box:
    return point[0] - reach, point[1] - reach, point[0] + reach, point[1] + reach


def _along(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points of the way from the first to the last."""
    return [
        (x + (u - x) * step / _STEPS, y + (v - y) * step / _STEPS)
        for (x, y), (u, v) in pairwise(points)
        for step in range(1, _STEPS)
    ]


def _box(at: tuple[float, float], name: str, letters: int, room: Room) -> _Box:
    """The rectangle of the text; y points up."""
    upright, side = name.split()
    wide, mark, line = letters * room.letter, room.mark, room.line
    left = at[0] + {"center": -wide / 2, "right": mark, "left": -mark - wide}[side]
    low = at[1] + {"top": mark, "middle": -line / 2, "bottom": -mark - line}[upright]
    return left, low, left + wide, low + line


def _covered(box: _Box, marks: Sequence[_Box], written: Sequence[_Box], room: Room) -> float:
    """How much this would cover of other texts (these weigh most), of points, and of what lies outside the plane."""
    outside = _area(box) - _shared(box, (0.0, -room.line, room.wide, room.tall + room.line))
    return 4 * _on(box, written) + _on(box, marks) + outside


def _on(box: _Box, others: Sequence[_Box]) -> float:
    return sum(_shared(box, one) for one in others)


def _area(box: _Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _shared(one: _Box, other: _Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, tall)


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
    spans = _span_of(shown, metric, 0, (metric, spread)), _span_of(shown, spread, 1, (metric, spread))
    # A long bar of another point may reach as far; then there is no need to leave one out.
    gone = [row for row in rows if row not in shown and not _within(middle_of(row, metric, spread), spans)]
    shown = [row for row in rows if row not in gone]
    return View(metric, spread, _groups(summary, rows), tuple(shown), tuple(gone), spans)


def _within(at: tuple[float, float], spans: tuple[_Span, _Span]) -> bool:
    return all(low <= value <= high for value, (low, high) in zip(at, spans, strict=True))


def _span_of(rows: Sequence[Row], measure: Measure, axis: int, both: tuple[Measure, Measure]) -> _Span:
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
