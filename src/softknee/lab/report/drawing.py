"""The figures of a report. A row has one colour and one symbol in all of them; the values of a knob share a colour."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

import torch

from ...registry import get
from ..chart import (
    SOFT,
    Chart,
    by_name,
    config,
    log_axis,
    marks,
    number,
    outline,
    pdf_of,
    png_of,
    side_by_side,
    sized,
    ticks,
)
from .parts import (
    Band,
    Measure,
    Profile,
    Row,
    Shape,
    Summary,
    Trajectory,
    fixed,
    outside,
    plain,
    with_reach,
)

_WIDE_LEGEND, _TALL, _RADIUS = 26, 12, 5


def legend(entries: Sequence[Entry]) -> str:
    """Pressed is shown; one name alone needs no legend."""
    if len(entries) < 2:
        return ""
    return f'<div class="legend" role="group" aria-label="Shown in the figure">{"".join(map(_button, entries))}</div>'


def _button(entry: Entry) -> str:
    pressed, name = "true" if entry.shown else "false", escape(entry.name)
    return f'<button type="button" aria-pressed="{pressed}">{_swatch(entry)}<span>{name}</span></button>'


def _swatch(entry: Entry) -> str:
    parts = []
    if entry.line:
        dashes = " ".join(map(str, STROKES[entry.dash]))
        parts.append(
            f'<path d="M0 6H{_WIDE_LEGEND}" stroke="{entry.colour}" stroke-width="2" stroke-dasharray="{dashes}"/>'
        )
    if entry.symbol:
        middle = f"translate({_WIDE_LEGEND / 2:g} {_TALL / 2:g}) scale({_RADIUS})"
        parts.append(f'<path d="{outline(entry.symbol)}" transform="{middle}" fill="{entry.colour}"/>')
    size = f'width="{_WIDE_LEGEND}" height="{_TALL}" viewBox="0 0 {_WIDE_LEGEND} {_TALL}"'
    return f'<svg {size} aria-hidden="true">{"".join(parts)}</svg>'


STROKES = {"solid": [1, 0], "dash": [6, 4], "dot": [2, 3], "dashdot": [6, 3, 2, 3], "longdash": [10, 4]}
_WIDE, _HALF = 560, 280  # pixels of a panel on paper
_SHOWN = {"filter": "indexof(hidden, datum.name) < 0"}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A name of the legend, and how what it names is drawn."""

    name: str
    colour: str
    dash: str = "solid"
    symbol: str = ""
    line: bool = True
    shown: bool = True


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure: its anchor, its caption, its label for readers who cannot see it, and its chart.

    file: the name of its file on paper; figures of one file stand side by side in it. Empty for one of the page alone.
    """

    name: str
    caption: str
    label: str
    chart: Chart
    legend: tuple[Entry, ...]
    height: int
    wide: bool = True
    file: str = ""

    @property
    def hidden(self) -> Chart:
        """The names that are not shown at first, which the legend of the page changes."""
        return {"name": "hidden", "value": [entry.name for entry in self.legend if not entry.shown]}

    @property
    def on_page(self) -> Chart:
        """As wide as the page lets it be."""
        layers = [{**layer, "encoding": _without_legend(layer["encoding"])} for layer in self.chart["layer"]]
        return {**sized(self.chart, "container", self.height), "layer": layers, "params": [self.hidden]}


def _without_legend(encoding: Chart) -> Chart:
    """The page has buttons in its place, which can be reached with the keyboard and break into lines as text does."""
    return {name: {**channel, "legend": None} if "legend" in channel else channel for name, channel in encoding.items()}


def on_paper(figures: Sequence[Figure]) -> Chart:
    """The figures of one file, two in a row."""
    names = [name for figure in figures for name in figure.hidden["value"]]
    params = {"params": [{"name": "hidden", "value": names}]}
    if len(figures) == 1:
        return {**sized(figures[0].chart, _WIDE, 0.6 * _WIDE), **params}
    halves = [sized(figure.chart, _HALF, 0.75 * _HALF) for figure in figures]
    return {**side_by_side(halves, columns=2), **params, "config": config(columns=2)}


def series(kind: str, rows: Iterable[Chart] | None, entries: Sequence[Entry], encoding: Chart, **look: Any) -> Chart:
    """Marks in the colours of the legend; a row belongs to the entry of its `name`, and goes with it.

    The legend is that of the points, or of the lines where there are no points.
    """
    names, shown = [entry.name for entry in entries], [entry.name for entry in entries if entry.shown]
    named = kind == ("point" if any(entry.symbol for entry in entries) else "line")
    if not named:
        # As values and not by a scale, because that would have a say in the legend.
        colours = json.dumps({entry.name: entry.colour for entry in entries})
        paint = "stroke" if kind in ("line", "rule") else "fill"
        channels = {
            "detail": [{"field": "name", "type": "nominal"}],
            paint: {"field": "colour", "type": "nominal", "scale": None},
        }
        transform = [_SHOWN, {"calculate": f"{colours}[datum.name]", "as": "colour"}]
        return {**marks(kind, rows, {**channels, **encoding}, **look), "transform": transform}
    legend = {"values": shown, "symbolSize": 90 if kind == "point" else 400} if len(entries) > 1 else None
    channels = {"color": by_name(names, [entry.colour for entry in entries], legend=legend)}
    if kind == "point":
        channels["shape"] = by_name(names, [outline(entry.symbol) for entry in entries], legend=legend)
    else:
        channels["strokeDash"] = by_name(names, [STROKES[entry.dash] for entry in entries], legend=legend)
    return {**marks(kind, rows, {**encoding, **channels}, **look), "transform": [_SHOWN]}


def after_epochs(epochs: Sequence[int]) -> str:
    """`after each epoch`, or `after every 20 epochs` where only these were noted; the first may be 0, the start."""
    noted = [epoch for epoch in epochs if epoch]
    apart = noted[1] - noted[0] if len(noted) > 1 else 1
    return "after each epoch" if apart == 1 else f"after every {apart} epochs"


def epoch_axis(epochs: Sequence[int]) -> dict[str, Any]:
    """The axis of epochs; where there are few, each has its number, and nothing between them has one."""
    few = max(epochs, default=0) - min(epochs, default=0) <= 8
    return {"axis": ticks(epochs, format="d")} if few else {}


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
    *("top right", "top left", "bottom right", "bottom left"),
    *("top center", "bottom center", "middle right", "middle left"),
)
_OF_TEXTS, _OF_MARKS = 0.02, 0.1  # shares of a name that may lie on other names, and on points
_STEPS = 12  # points of a line between two of its values, as something that a name may cover
# Pixels of the figure on paper, of a letter, of a line of text and of half a point; on a wide page there is more room.
_ACROSS, _UPRIGHT, _LETTER, _LINE, _MARK = 560.0, 336.0, 6.6, 14.0, 8.0
_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Spot:
    """A point in the units of the data, its label, and how far its bars go.

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
        _span([spot.x for spot in spots], [spot.across for spot in spots]),
        _span([spot.y for spot in spots], [spot.upright for spot in spots]),
    )
    at = [(_scaled(spot.x, wide) * _ACROSS, _scaled(spot.y, tall) * _UPRIGHT) for spot in spots]
    marks = [_around(point, _MARK) for point in at]
    bars: list[_Box] = []
    for spot, (x, y) in zip(spots, at, strict=True):
        if spot.across:
            low, high = (_scaled(end, wide) * _ACROSS for end in spot.across)
            bars.append((low, y - 1, high, y + 1))
        if spot.upright:
            low, high = (_scaled(end, tall) * _UPRIGHT for end in spot.upright)
            bars.append((x - 1, low, x + 1, high))
    bars += [_around(point, 1.0) for line in lines for point in _along([at[number] for number in line])]
    written: list[_Box] = []
    positions: list[str | None] = [None] * len(spots)
    for place in sorted(range(len(spots)), key=lambda place: spots[place].rank):
        spot = spots[place]
        others = [mark for other, mark in enumerate(marks) if other != place]
        boxes = {name: _box(at[place], name, len(spot.text)) for name in _PLACES}
        best = min(_PLACES, key=lambda name: _covered(boxes[name], [*others, *bars], written))
        box = boxes[best]
        fits = _on(box, written) <= _OF_TEXTS * _area(box) and _on(box, others) <= _OF_MARKS * _area(box)
        if spot.rank == 0 or fits:
            written.append(box)
            positions[place] = best
    return positions


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


def _box(at: tuple[float, float], name: str, letters: int) -> _Box:
    """The rectangle of the text; y points up."""
    upright, side = name.split()
    wide = letters * _LETTER
    left = at[0] + {"center": -wide / 2, "right": _MARK, "left": -_MARK - wide}[side]
    low = at[1] + {"top": _MARK, "middle": -_LINE / 2, "bottom": -_MARK - _LINE}[upright]
    return left, low, left + wide, low + _LINE


def _covered(box: _Box, marks: Sequence[_Box], written: Sequence[_Box]) -> float:
    """How much this would cover of other texts (these weigh most), of points, and of what lies outside the plane."""
    outside = _area(box) - _shared(box, (0.0, -_LINE, _ACROSS, _UPRIGHT + _LINE))
    return 4 * _on(box, written) + _on(box, marks) + outside


def _on(box: _Box, others: Sequence[_Box]) -> float:
    return sum(_shared(box, other) for other in others)


def _area(box: _Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _shared(box: _Box, other: _Box) -> float:
    wide = min(box[2], other[2]) - max(box[0], other[0])
    tall = min(box[3], other[3]) - max(box[1], other[1])
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

    def at(self, row: Row) -> tuple[float, float]:
        return middle_of(row, self.metric, self.spread)

    @property
    def note(self) -> str:
        texts = (f"{self._way(row)} {self._described(row)}" for row in self.outside)
        return f"Outside the picture: {', '.join(texts)}" if self.outside else ""

    @property
    def caption(self) -> str:
        texts = ", ".join(self._described(row) for row in self.outside)
        return f"Too far away to be shown: {texts}." if self.outside else ""

    def _described(self, row: Row) -> str:
        across, upright = self.at(row)
        unit = f" {self.metric.unit}" if self.metric.unit else ""
        return f"{' '.join(row.label.split())} ({plain(across)}{unit}, {plain(upright)})"

    def _way(self, row: Row) -> str:
        at = self.at(row)
        across, upright = ((value > high) - (value < low) for value, (low, high) in zip(at, self.spans, strict=True))
        return _ARROWS[across, upright]


def view_of(summary: Summary) -> View | None:
    """What there is to show, of the rows that have both numbers; None where there is no such row."""
    metric, spread = summary.metric, summary.spread
    rows = [row for row in summary.judged if spread and row.result(metric) and row.result(spread)]
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
    every = [value for value in every if math.isfinite(value)]
    edge = _EDGE * (max(every) - min(every)) or 0.05 * abs(max(every)) or 0.05
    return min(every) - edge, max(every) + edge


def _groups(summary: Summary, rows: Sequence[Row]) -> tuple[Group, ...]:
    """In the order of their first rows."""
    on_path = {row.label for knob in summary.knobs for row in knob.rows}
    groups = [
        Group(knob.name, tuple(row for row in knob.rows if row in rows), True, knob.parameter) for knob in summary.knobs
    ]
    groups += [Group(row.label, (row,), False) for row in rows if row.label not in on_path]
    order = {row.label: place for place, row in enumerate(rows)}
    there = (group for group in groups if group.rows)
    return tuple(sorted(there, key=lambda group: min(order[row.label] for row in group.rows)))


# -- what is written beside the points ----------------------------------------------------------------------


def written_at(view: View) -> Mapping[str, tuple[str, str]]:
    """Text and position ("top right") by label; names and the ends of paths first, then what has room.

    Of a path these are the values of its knob, and at one of its ends its name, where there is more room.
    """
    texts, ranks = {}, {}
    for group in view.groups:
        shown = [row for row in group.rows if row in view.shown]
        if not shown:
            continue
        others = [row for row in view.shown if row not in shown]
        named = max(shown[:1] + shown[-1:], key=lambda row: _apart(view, row, others))
        best = min(shown, key=lambda row: view.at(row)[1])
        for row in shown:
            value = plain(row.number(group.parameter)) if group.joined else ""
            texts[row.label] = value if row is not named else f"{group.name} {group.parameter}={value}"
            ranks[row.label] = 0 if row is named else 1 if row in (shown[0], shown[-1], best) else 2
        if not group.joined:
            texts[group.name] = group.name
    spots = [
        Spot(
            *view.at(row),
            texts[row.label],
            interval_of(row, view.metric),
            interval_of(row, view.spread),
            ranks[row.label],
        )
        for row in view.shown
    ]
    number = {row.label: place for place, row in enumerate(view.shown)}
    lines = [[number[row.label] for row in group.rows if row.label in number] for group in view.groups]
    places = places_for(spots, spans=view.spans, lines=lines)
    return {
        row.label: (texts[row.label], place) for row, place in zip(view.shown, places, strict=True) if place is not None
    }


def _apart(view: View, row: Row, others: Sequence[Row]) -> float:
    """How far the nearest of the others is, the plane being one wide and one high."""
    wide, tall = ((high - low) or 1.0 for low, high in view.spans)
    x, y = view.at(row)
    near = [view.at(other) for other in others]
    return min((math.hypot((x - a) / wide, (y - b) / tall) for a, b in near), default=0.0)


# -- numbers ------------------------------------------------------------------------------------------------


def axis_title(measure: Measure) -> str:
    return f"{measure.title}, {measure.unit}" if measure.unit else measure.title


def middle_of(row: Row, metric: Measure, spread: Measure) -> tuple[float, float]:
    first, second = row.result(metric), row.result(spread)
    assert first is not None
    assert second is not None
    return metric.scale * first.value, spread.scale * second.value


def interval_of(row: Row, measure: Measure) -> tuple[float, float] | None:
    """The interval that is drawn: none of two seeds, whose t is 12.7 and whose bars would cross the whole plane."""
    result = row.result(measure)
    if result is None or result.interval is None or len(row.seeds) < FEWEST_DRAWN:
        return None
    return measure.scale * result.interval[0], measure.scale * result.interval[1]


_FAINT = 0.45  # many bars cross, and the points matter more
_SIDES = {"left": ("right", -8), "center": ("center", 0), "right": ("left", 8)}
_HEIGHTS = {"bottom": ("top", 7), "middle": ("middle", 0), "top": ("bottom", -7)}


def plane(summary: Summary) -> Figure | None:
    """The metric against the prediction difference, with intervals; values of a knob are joined in their order."""
    view = view_of(summary)
    if view is None:
        return None
    metric, spread, look = view.metric, view.spread, looks(summary)
    entries = [
        Entry(name=group.name, colour=style.colour, symbol=style.symbol, line=group.joined)
        for group in _shown_groups(view)
        for style in [look[group.rows[0].label]]
    ]
    every = _points(view)
    points = [point for point in every if not point["outside"]]
    across = number("x", title=axis_title(metric), domain=view.spans[0])
    upright = number("y", title=axis_title(spread), domain=view.spans[1])
    titles = {"activation": "activation", "metric": metric.title, "spread": spread.title}
    tips = [{"field": field, "type": "nominal", "title": title} for field, title in titles.items()]
    toward = "right" if metric.larger_is_better else "left"
    corner = {"x": {"value": "width" if toward == "right" else 0}, "y": {"value": "height"}}
    where, end, text = {"x": across, "y": upright}, {"field": "to"}, {"field": "text"}
    joined, named = [point for point in every if point["joined"]], [point for point in points if point["text"]]
    layers = [
        series("rule", _bars(view, metric), entries, {"x": across, "x2": end, "y": upright}, opacity=_FAINT),
        series("rule", _bars(view, spread), entries, {**where, "y2": end}, opacity=_FAINT),
        series("line", joined, entries, {**where, "order": {"field": "place"}}, clip=bool(view.outside)),
        series("point", points, entries, {**where, "tooltip": tips}, filled=True, opacity=1, size=100),
        series(
            "text",
            named,
            entries,
            {**where, "text": text},
            **{name: {"expr": f"datum.{name}"} for name in ("dx", "dy", "align", "baseline")},
            # Where there is little room, only what is written along a path.
            opacity={"expr": "width > 480 || datum.joined ? 1 : 0"},
        ),
        marks(
            "text",
            [{"text": "better ↘" if toward == "right" else "↙ better"}],
            {**corner, "text": text},
            align=toward,
            baseline="bottom",
            dx=-6 if toward == "right" else 6,
            dy=-6,
            style="remark",
        ),
    ]
    chart: dict[str, Any] = {"layer": layers}
    if view.outside:
        note = textwrap.wrap(view.note, 96, max_lines=3, placeholder=" ...")
        chart["title"] = {"text": note, "fontSize": 11, "color": SOFT}
    caption = f"Further {toward} is more accurate, further down more reproducible."
    if any(len(row.seeds) >= FEWEST_DRAWN for row in view.shown):
        caption += " Bars are 95 % intervals."
    if summary.knobs:
        caption += " A line joins the values of a knob in their order, with values beside it where there is room."
    return Figure(
        name="plane",
        caption=f"{caption} {view.caption}".strip(),
        label=f"{metric.title} against {spread.title} of every activation; the numbers are in the first table",
        chart=chart,
        legend=tuple(entries),
        height=440,
        file="plane",
    )


def _shown_groups(view: View) -> list[Group]:
    """Those of which something is seen."""
    return [group for group in view.groups if any(row in view.shown for row in group.rows)]


def _points(view: View) -> list[dict[str, Any]]:
    """Every row, also what lies outside: a line to it leaves the picture."""
    written, points = written_at(view), []
    for group in _shown_groups(view):
        for place, row in enumerate(group.rows):
            x, y = view.at(row)
            text, position = written.get(row.label, ("", "top right"))
            upright, side = position.split()
            (align, dx), (baseline, dy) = _SIDES[side], _HEIGHTS[upright]
            points.append(
                {
                    "name": group.name,
                    "x": x,
                    "y": y,
                    "place": place,
                    "joined": group.joined,
                    "outside": row in view.outside,
                    "text": text,
                    "dx": dx,
                    "dy": dy,
                    "align": align,
                    "baseline": baseline,
                    "activation": row.label,
                    "metric": _words(row, view.metric, 2 if view.metric.scale == 100 else 4),
                    "spread": _words(row, view.spread, 4),
                }
            )
    return points


def _words(row: Row, measure: Measure, places: int) -> str:
    return with_reach(row.result(measure), places, scale=measure.scale)


def _bars(view: View, measure: Measure) -> Sequence[dict[str, Any]]:
    bars = []
    for group in view.groups:
        for row in group.rows:
            interval = interval_of(row, measure)
            if row in view.shown and interval is not None:
                x, y = view.at(row)
                start = {"x": interval[0], "y": y} if measure is view.metric else {"x": x, "y": interval[0]}
                bars.append({"name": group.name, **start, "to": interval[1]})
    return bars


CURVES = {
    "validation_accuracy": ("Validation accuracy", "validation accuracy, %", 100.0),
    "validation_loss": ("Validation loss", "validation loss", 1.0),
    "train_loss": ("Training loss", "training loss", 1.0),
    "gradient_norm": ("Gradient norm", "gradient norm", 1.0),
}
_SHOWN_AT_FIRST = 8  # curves; the rest is shown by a click on the legend
MOST_BANDS = 6  # more of them cover each other: then the interval stands at the end of each line alone


def curves(summary: Summary) -> list[Figure]:
    """Validation accuracy (or loss) and training loss after every epoch, each with its band."""
    had = {band.curve for band in summary.bands}
    wanted = ["validation_accuracy" if "validation_accuracy" in had else "validation_loss", "train_loss"]
    return [_curves(summary, name) for name in wanted if name in had]


def _curves(summary: Summary, name: str) -> Figure:
    title, axis, scale = CURVES[name]
    first = first_shown(summary)
    bands = [band for band in summary.bands if band.curve == name]
    filled = len([band for band in bands if band.label in first]) <= MOST_BANDS
    caption = (
        f"{title} {after_epochs(bands[0].epochs)}: mean over seeds, with its 95 % interval "
        + ("as a band" if filled else "at the end")
        + ("; where that would reach below 0, down to the lowest seed." if any(band.cut for band in bands) else ".")
        + (" Where a seed diverged, every seed has a thin line of its own." if any(band.each for band in bands) else "")
    )
    entries = legend_of(bands, looks(summary), first)
    return Figure(
        name=f"curve-{name}",
        caption=caption,
        label=f"{title} over epochs, a line for each activation",
        chart=chart_of(bands, entries, axis, scale, filled=filled),
        legend=entries,
        height=380,
        file=name.replace("_", "-"),
    )


def first_shown(summary: Summary) -> set[str]:
    """Everything if it is little; else the baseline, what stands alone, and the best value of each knob."""
    if len(summary.rows) <= _SHOWN_AT_FIRST:
        return {row.label for row in summary.rows}
    sign = 1 if summary.metric.larger_is_better else -1
    on_path = {row.label for knob in summary.knobs for row in knob.rows}
    shown = {row.label for row in summary.rows if row.label not in on_path or row.baseline}
    for knob in summary.knobs:
        able = [(sign * result.value, row.label) for row in knob.rows if (result := row.result(summary.metric))]
        shown |= {max(able)[1]} if able else set()
    return shown


def legend_of(bands: Sequence[Band], look: Mapping[str, Look], first: set[str]) -> tuple[Entry, ...]:
    return tuple(
        Entry(name=_name(band), colour=style.colour, dash=style.dash, shown=band.label in first)
        for band in bands
        for style in [look[band.label]]
    )


def _name(band: Band) -> str:
    return f"{band.label}, each seed" if band.each else band.label


def chart_of(bands: Sequence[Band], entries: Sequence[Entry], axis: str, scale: float, *, filled: bool) -> Chart:
    """A line for each band with its interval; thin lines for the seeds of one that has no mean."""
    every = [scale * end for band in bands for end in (*band.low, *band.high)]
    numbers = log_axis(min(every), max(every)) if axis.endswith("loss") and min(every, default=0.0) > 0 else {}
    across, upright = number("epoch", title="epoch", **epoch_axis(bands[0].epochs)), number("y", title=axis, **numbers)
    tips = [{"field": field, "type": kind, "format": "~g"} for field, kind in _TIPS]
    lines = [row for band in bands if not band.each for row in _rows(band, scale)]
    seeds = [
        {"name": _name(band), "seed": seed, "epoch": epoch, "y": None if value is None else scale * value}
        for band in bands
        for seed, each in enumerate(band.each, start=1)
        for epoch, value in zip(band.epochs, each, strict=True)
    ]
    edges = {"x": across, "y": number("low", title=axis, **numbers), "y2": {"field": "high"}}
    ends = [
        {**_rows(band, scale)[-1], "epoch": end_place(band, place)} for place, band in enumerate(bands) if not band.each
    ]
    where = {"x": across, "y": upright}
    layers = [
        series("line", None, entries, where),
        # Points that cannot be seen: what is near a line says which it is.
        series("circle", [*lines, *seeds], entries, {**where, "tooltip": tips}, opacity=0, size=90),
    ]
    if seeds:
        seed = {**where, "detail": {"field": "seed", "type": "nominal"}}
        layers.append(series("line", seeds, entries, seed, strokeWidth=0.8))
    if filled:
        layers.insert(0, series("area", None, entries, edges, opacity=0.16))
    else:
        layers.append(series("rule", ends, entries, edges, strokeWidth=1.2))
        layers.append(series("circle", ends, entries, where, size=22, opacity=1))
    return {"data": {"values": lines}, "layer": layers}


_TIPS = (("name", "nominal"), ("epoch", "quantitative"), ("y", "quantitative"))


def _rows(band: Band, scale: float) -> list[dict[str, Any]]:
    numbers = zip(band.epochs, band.middle, band.low, band.high, strict=True)
    return [
        {"name": band.label, "epoch": epoch, "y": scale * middle, "low": scale * low, "high": scale * high}
        for epoch, middle, low, high in numbers
    ]


def end_place(band: Band, place: int) -> float:
    """Where the interval of the last epoch stands: to the right of the lines, each to the right of the one before."""
    return band.epochs[-1] + (place + 1) * 0.012 * (band.epochs[-1] - band.epochs[0] or 1)


_LOGARITHMIC = 10.0  # the ratio from which on equal steps would hide the small values
_MOST_NAMES = 24  # of sites, beside each other
_START = "#8a8983"


def learned(summary: Summary) -> list[Figure]:
    """For each activation that learned: the function before and after, and its parameters over the epochs."""
    figures = []
    for label in dict.fromkeys(item.label for item in (*summary.shapes, *summary.trajectories)):
        before_and_after = [shape for shape in summary.shapes if shape.label == label]
        over_time = [trajectory for trajectory in summary.trajectories if trajectory.label == label]
        figures += [_shape(label, before_and_after)] if before_and_after else []
        # A vector has a figure of its own, beside one of all single numbers.
        kinds: dict[str, list[Trajectory]] = {}
        for item in over_time:
            kinds.setdefault(item.parameter.partition("[")[0] if "[" in item.parameter else "", []).append(item)
        figures += [_trajectory(label, lines, vector) for vector, lines in kinds.items()]
    return figures


def _shape(label: str, sites: Sequence[Shape]) -> Figure:
    reach = reach_of(sites)
    starts = {tuple(site.start.items()): site for site in sites}
    lines = [(curve_of(site, reach), f"{site_name(site.path)}: ") for site in sites]
    dashed = [(curve_of(site, reach, at_start=True), "start: ") for site in starts.values()]
    entries = tuple(
        [Entry(name=f"{place}{line.words}", colour=COLOURS[i % len(COLOURS)]) for i, (line, place) in enumerate(lines)]
        + [Entry(name=f"{place}{line.words}", colour=_START, dash="dash") for line, place in dashed]
    )
    rows = [
        {"name": f"{place}{line.words}", "x": x, "y": y, "low": low, "high": high}
        for line, place in (*lines, *dashed)
        for x, y, low, high in zip(line.xs, line.middle, line.low, line.high, strict=True)
    ]
    return Figure(
        name=f"shape-{label}",
        caption="Dashed: at the start. Lines: mean of the learned parameters; bands: from the lowest to the highest "
        "seed.",
        label=f"{label} before and after training",
        chart=_bands(rows, entries, label, number("x", title="x"), {}),
        legend=entries,
        height=330,
        wide=False,
        file="shapes",
    )


def _bands(rows: list[Chart], entries: Sequence[Entry], title: str, across: Chart, upright: Chart) -> Chart:
    tips = [{"field": "name", "type": "nominal"}]
    tips += [{"field": field, "type": "quantitative", "format": ".4~g"} for field in ("x", "y")]
    where = {"x": across, "y": number("y", **upright)}
    edges = {"x": across, "y": number("low", **upright), "y2": {"field": "high"}}
    layers = [
        series("area", None, entries, edges, opacity=0.16),
        series("line", None, entries, where),
        series("circle", None, entries, {**where, "tooltip": tips}, opacity=0, size=60),
    ]
    return {"title": title, "data": {"values": rows}, "layer": layers}


def _trajectory(label: str, lines: Sequence[Trajectory], vector: str) -> Figure:
    """vector: the name of the one whose entries the lines are; empty for single numbers."""
    names = list(dict.fromkeys(line.parameter for line in lines))
    sites = list(dict.fromkeys(line.path for line in lines))
    titles = [f"{site_name(line.path)}, {line.parameter}" if len(names) > 1 else site_name(line.path) for line in lines]
    entries = tuple(
        Entry(
            name=title,
            colour=COLOURS[sites.index(line.path) % len(COLOURS)],
            dash=DASHES[names.index(line.parameter) % len(DASHES)],
        )
        for line, title in zip(lines, titles, strict=True)
    )
    rows = [
        {"name": title, "x": epoch, "y": y, "low": low, "high": high}
        for line, title in zip(lines, titles, strict=True)
        for epoch, y, low, high in zip(line.epochs, line.middle, line.low, line.high, strict=True)
    ]
    every = [value for line in lines for value in (*line.low, *line.high)]
    after = after_epochs(lines[0].epochs)
    across = number("x", title="epoch", **epoch_axis(lines[0].epochs))
    return Figure(
        name=f"trajectory-{label}-{vector}" if vector else f"trajectory-{label}",
        caption=f"{after[0].upper()}{after[1:]}, epoch 0 being the start: mean over seeds, from the lowest to the "
        "highest.",
        label=f"Learned parameters of {label} over epochs",
        chart=_bands(rows, entries, f"{label}: {vector or ', '.join(names)}", across, _scale(every)),
        legend=entries,
        height=330,
        wide=False,
    )


def _scale(values: Sequence[float]) -> Chart:
    low, high = min(values), max(values)
    return log_axis(low, high) if low > 0 and high / low > _LOGARITHMIC else {}


def site_name(path: str) -> str:
    """A path of numbers alone says nothing by itself."""
    return f"site {path}" if path.replace(".", "").isdigit() else path


def knob_name(knob: str) -> str:
    """The name of a knob on an axis: lam, which is no word, as its letter."""
    return {"lam": "λ"}.get(knob, knob)


def at_start(profile: Profile) -> tuple[list[float], list[float]]:
    """The line of a profile before training; of a single site a short one, because a point has no line to be seen."""
    start = [sum(site) / len(site) for site in profile.start]
    return ([0.85, 1.15], start * 2) if len(start) == 1 else ([1.0 + place for place in range(len(start))], start)


def hardness(summary: Summary) -> list[Figure]:
    """For each knob: its value at every site, from the input to the output, before and after training."""
    names = list(dict.fromkeys((profile.knob, len(profile.paths)) for profile in summary.profiles))
    return [
        _hardness(
            summary,
            knob,
            [profile for profile in summary.profiles if (profile.knob, len(profile.paths)) == (knob, sites)],
        )
        for knob, sites in names
    ]


def _hardness(summary: Summary, knob: str, profiles: Sequence[Profile]) -> Figure:
    look, paths = looks(summary), profiles[0].paths
    every = [value for profile in profiles for site in (*profile.start, *profile.end) for value in site]
    entries = tuple(
        Entry(name=profile.label, colour=style.colour, symbol=style.symbol)
        for profile in profiles
        for style in [look[profile.label]]
    )
    ends, starts = [], []
    for row in profiles:
        middle = [sum(site) / len(site) for site in row.end]
        if [sum(site) / len(site) for site in row.start] != middle:
            starts += [{"name": row.label, "x": x, "y": y} for x, y in zip(*at_start(row), strict=True)]
        for place, (path, site, mean) in enumerate(zip(row.paths, row.end, middle, strict=True)):
            far = row.distance[place] if place < len(row.distance) else ()
            words = f"{fixed(mean, 3)}, at most {max(far):.3g} from its limit" if far else fixed(mean, 3)
            ends.append(
                {
                    "name": row.label,
                    "site": site_name(path),
                    "value": words,
                    "x": place + 1,
                    "y": mean,
                    "low": min(site),
                    "high": max(site),
                }
            )
    across = number("x", title="from the input to the output", domain=(0.6, len(paths) + 0.4), axis=_sites(paths))
    scale = _scale(every)
    where = {"x": across, "y": number("y", **scale)}
    reach = {"x": across, "y": number("low", **scale), "y2": {"field": "high"}}
    tips = [{"field": field, "type": "nominal"} for field in ("name", "site", "value")]
    layers = [
        series("line", starts, entries, where, strokeDash=STROKES["dot"], strokeWidth=1.4),
        series("rule", None, entries, reach, strokeWidth=1),
        series("line", None, entries, where),
        series("point", None, entries, {**where, "tooltip": tips}, filled=True, opacity=1, size=70),
    ]
    return Figure(
        name=f"hardness-{knob}-{len(paths)}",
        caption=f"{knob} by depth after training: mean over seeds, from the lowest to the highest. Dotted: at the "
        "start.",
        label=f"{knob} of every activation that has it, by depth",
        chart={
            "title": f"{profiles[0].label}: {knob_name(knob)}" if len(profiles) == 1 else knob_name(knob),
            "data": {"values": ends},
            "layer": layers,
        },
        legend=entries,
        height=330,
        wide=False,
        file="hardness",
    )


def _sites(paths: Sequence[str]) -> Chart:
    """The names of the sites below the axis, slanted where they are long; of very many, every second or third."""
    names = [site_name(path) for path in paths]
    places = range(1, len(paths) + 1, math.ceil(len(paths) / _MOST_NAMES))
    slanted = {"labelAngle": -30} if len(paths) > 4 or any(len(name) > 13 for name in names) else {}
    words = json.dumps(names, ensure_ascii=False)
    return ticks(places, labelExpr=f"{words}[datum.value - 1]", **slanted)


_FARTHEST, _NEAREST, _POINTS = 3.0, 0.25, 121
_SAME = 0.05  # of the largest difference: what is less, far out, is nothing to see


@dataclass(frozen=True)
class Line:
    """x; f with the mean of the parameters; the lowest and the highest f over seeds; the parameters in words."""

    xs: list[float]
    middle: list[float]
    low: list[float]
    high: list[float]
    words: str


def reach_of(shapes: Sequence[Shape]) -> float:
    """How far from 0 there is something to see: where what was learned differs from the start."""
    reach = _FARTHEST
    while reach > _NEAREST and not any(_differs_beyond(shape, reach / 2) for shape in shapes):
        reach /= 2
    return reach


def _differs_beyond(shape: Shape, where: float) -> bool:
    act = get(shape.name)
    x = torch.linspace(-_FARTHEST, _FARTHEST, 8 * _POINTS, dtype=torch.float64)
    off = torch.stack([(act(x, **end) - act(x, **shape.start)).abs() for end in shape.ends]).amax(dim=0)
    return bool(off.max() == 0) or bool(off[x.abs() > where].max() > _SAME * off.max())


def curve_of(shape: Shape, reach: float, *, at_start: bool = False) -> Line:
    """The function at a site after training, or before."""
    act = get(shape.name)
    x = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
    every: tuple[Mapping[str, float], ...] = (shape.start,) if at_start else shape.ends
    mean = {name: sum(value[name] for value in every) / len(every) for name in shape.start}
    values = torch.stack([act(x, **value) for value in every])
    rounded = [[float(f"{number:.5g}") for number in row.tolist()] for row in (act(x, **mean), *values.aminmax(dim=0))]
    words = ", ".join(f"{name} {plain(value)}" for name, value in mean.items())
    return Line([float(f"{number:.5g}") for number in x.tolist()], rounded[0], rounded[1], rounded[2], words)


def pdf_figures(
    summary: Summary, *, png: bool = False, only: Collection[str] | None = None
) -> dict[str, tuple[bytes, str]]:
    """Content and caption of each figure that has something to show, by name; as PDF, or with `png` as PNG.

    only: the names of the figures to draw; without it, all.
    """
    drawn = plane(summary)
    files: dict[str, list[Figure]] = {}
    for figure in (*([drawn] if drawn else []), *curves(summary), *learned(summary), *hardness(summary)):
        if figure.file and (only is None or figure.file in only):
            files.setdefault(figure.file, []).append(figure)
    picture = png_of if png else pdf_of
    return {name: (picture(on_paper(figures)), figures[0].caption) for name, figures in files.items()}


def bands_png(look: Mapping[str, Look], bands: Sequence[Band], axis: str) -> bytes:
    """Curves of one's own over the epochs, drawn as those of a report."""
    entries = legend_of(bands, look, {band.label for band in bands})
    chart = chart_of(bands, entries, axis, 1.0, filled=True)
    return png_of(on_paper([Figure(name="", caption="", label="", chart=chart, legend=entries, height=0)]))
