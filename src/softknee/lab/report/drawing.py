"""The figures of a report. A row has one colour and one symbol in all of them; the values of a knob share a colour."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from ...registry import get
from ..chart import SOFT, Chart, by_name, config, log_axis, marks, number, outline, pdf_of, png_of, side_by_side, sized
from ..chart import scale_of as axis_scale
from ..chart import ticks as axis_ticks
from .summary import (
    Band,
    Knob,
    Measure,
    Profile,
    Row,
    Shape,
    Summary,
    Trajectory,
    Values,
    fixed,
    outside,
    plain,
    with_reach,
)

STROKES = {"solid": [1, 0], "dash": [6, 4], "dot": [2, 3], "dashdot": [6, 3, 2, 3], "longdash": [10, 4]}
DASHES = tuple(STROKES)
# Each has a contrast of 3:1 or more against the light paper and against the dark one.
COLOURS = (
    "#2a7fd9", "#d9541e", "#16976f", "#b0569f", "#a07b00", "#7a6fe0", "#2b93a8", "#c4475f", "#6f8f22", "#8a8983",
    "#b5763a", "#d04fc0",
)  # fmt: skip
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "pentagon", "hexagon", "triangle-down", "x")
_START = "#8a8983"
_WIDE, _HALF = 560, 280  # pixels of a panel on paper
_SHOWN = {"filter": "indexof(hidden, datum.name) < 0"}
FEWEST_DRAWN = 3  # seeds that have an interval in a picture


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
    note: stands above it on paper, where the caption may be lost.
    """

    name: str
    caption: str
    label: str
    chart: Chart
    legend: Sequence[Entry]
    height: int = 330
    wide: bool = False
    file: str = ""
    note: str = ""

    @property
    def hidden(self) -> list[str]:
        """The names that are not shown at first, which the legend of the page changes."""
        return [entry.name for entry in self.legend if not entry.shown]

    @property
    def on_page(self) -> Chart:
        """As wide as the page lets it be, with the page's buttons in the place of the legend."""
        layers = [
            layer
            | {"encoding": {k: v | {"legend": None} if "legend" in v else v for k, v in layer["encoding"].items()}}
            for layer in self.chart["layer"]
        ]
        params = [{"name": "hidden", "value": self.hidden}]
        return {**sized(self.chart, "container", self.height), "layer": layers, "params": params}


def on_paper(figures: Sequence[Figure]) -> Chart:
    """The figures of one file, two in a row."""
    params = {"params": [{"name": "hidden", "value": [name for figure in figures for name in figure.hidden]}]}
    if len(figures) == 1:
        note = textwrap.wrap(figures[0].note, 96, max_lines=3, placeholder=" ...")
        title = {"title": {"text": note, "fontSize": 11, "color": SOFT}} if note else {}
        return {**sized(figures[0].chart, _WIDE, 0.6 * _WIDE), **title, **params}
    halves = [sized(figure.chart, _HALF, 0.75 * _HALF) for figure in figures]
    return {**side_by_side(halves, columns=2), **params, "config": config(columns=2)}


def series(kind: str, rows: Iterable[Chart] | None, entries: Sequence[Entry], encoding: Chart, **look: Any) -> Chart:
    """Marks in the colours of the legend; a row belongs to the entry of its `name`, and goes with it.

    The legend is that of the points, or of the lines where there are no points.
    """
    names, shown = [entry.name for entry in entries], [entry.name for entry in entries if entry.shown]
    if kind != ("point" if any(entry.symbol for entry in entries) else "line"):
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


def _edges(across: Chart, upright: Chart) -> Chart:
    """From the low to the high end of an interval."""
    return {"x": across, "y": {**upright, "field": "low"}, "y2": {"field": "high"}}


def _rows(name: str, field: str, *columns: Sequence[float], scale: float = 1.0) -> list[Chart]:
    """Rows of a line with its band, from x, the middle, the low and the high end."""
    return [
        {"name": name, field: x, "y": scale * middle, "low": scale * low, "high": scale * high}
        for x, middle, low, high in zip(*columns, strict=True)
    ]


def _bands(
    rows: list[Chart],
    entries: Sequence[Entry],
    across: Chart,
    upright: Chart,
    *,
    seeds: Sequence[Chart] = (),
    ends: Sequence[Chart] | None = None,
    **chart: Any,
) -> Chart:
    """A line with its band for each name, thin lines for seeds; with `ends` intervals there in the place of bands."""
    where, edges = {"x": across, "y": upright}, _edges(across, upright)
    tips = [{"field": "name", "type": "nominal"}]
    tips += [{"field": field, "type": "quantitative", "format": ".4~g"} for field in (across["field"], "y")]
    layers = [] if ends is not None else [series("area", None, entries, edges, opacity=0.16)]
    layers += [
        series("line", None, entries, where),
        # Points that cannot be seen: what is near a line says which it is.
        series("circle", [*rows, *seeds] if seeds else None, entries, {**where, "tooltip": tips}, opacity=0, size=90),
    ]
    if seeds:
        seed = {**where, "detail": {"field": "seed", "type": "nominal"}}
        layers.append(series("line", seeds, entries, seed, strokeWidth=0.8))
    if ends is not None:
        layers.append(series("rule", ends, entries, edges, strokeWidth=1.2))
        layers.append(series("circle", ends, entries, where, size=22, opacity=1))
    return {"data": {"values": rows}, "layer": layers, **chart}


def _epochs(epochs: Sequence[int], field: str) -> tuple[str, Chart]:
    """`after each epoch`, or `after every 20 epochs` where only these were noted (0 is the start); and their axis.

    Where there are few epochs, each has its number, and nothing between them has one.
    """
    noted = [epoch for epoch in epochs if epoch]
    apart = noted[1] - noted[0] if len(noted) > 1 else 1
    few = max(epochs, default=0) - min(epochs, default=0) <= 8
    axis = number(field, title="epoch", **({"axis": axis_ticks(epochs, format="d")} if few else {}))
    return "after each epoch" if apart == 1 else f"after every {apart} epochs", axis


# -- colours and symbols ------------------------------------------------------------------------------------


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
    styles = {}
    for group, labels in enumerate(groups.values()):
        again, symbol = divmod(group, len(SYMBOLS))
        for place, label in enumerate(labels):
            styles[label] = Look(
                COLOURS[group % len(COLOURS)],
                SYMBOLS[(symbol + again) % len(SYMBOLS)],
                DASHES[(place + again) % len(DASHES)],
            )
    return styles


# -- where names are written beside points ------------------------------------------------------------------

# Where a text stands beside its point: alignment and shift to the side and upwards, and the same for Vega.
_SIDES = {"left": ("right", -8), "center": ("center", 0), "right": ("left", 8)}
_HEIGHTS = {"bottom": ("top", 7), "middle": ("middle", 0), "top": ("bottom", -7)}
_PLACES = (
    *("top right", "top left", "bottom right", "bottom left"),
    *("top center", "bottom center", "middle right", "middle left"),
)
_OF_TEXTS, _OF_MARKS = 0.02, 0.1  # shares of a name that may lie on other names, and on points
_STEPS = 12  # points of a line between two of its values, as something that a name may cover
# Pixels of the figure on paper, of a letter, of a line of text and of half a point; on a wide page there is more room.
_ACROSS, _UPRIGHT, _LETTER, _LINE, _MARK = 560.0, 336.0, 6.6, 14.0, 8.0
_Box = tuple[float, float, float, float]
_Span = tuple[float, float]


@dataclass(frozen=True)
class Spot:
    """A point in the units of the data, its label, and how far its bars go.

    rank: those with a smaller one are written first; 0 is written whatever it covers, the others only where they fit.
    """

    x: float
    y: float
    text: str
    across: _Span | None = None
    upright: _Span | None = None
    rank: int = 0


def places_for(
    spots: Sequence[Spot],
    *,
    spans: tuple[_Span, _Span] | None = None,
    lines: Sequence[Sequence[int]] = (),
    texts: Sequence[_Box] = (),
) -> list[str | None]:
    """A position for each text, such as "top right": one after the other, each where it covers least.

    None is of a text that would lie on others wherever it is put, unless its rank is 0.

    Args:
        spans: what the axes go from and to; default from the first bar to the last.
        lines: the numbers of the spots that a line joins, for each line.
        texts: what is written already, in pixels.

    >>> places_for([Spot(0, 0, "left"), Spot(1, 1, "right")])
    ['top right', 'bottom left']
    >>> crowd = [Spot(0, 0, "more", rank=1)] * 9
    >>> places_for([Spot(0, 0, "first"), Spot(1, 1, "far"), *crowd])[-1] is None
    True
    """
    wide, tall = spans or (
        _span([end for spot in spots for end in (spot.x, *(spot.across or ()))]),
        _span([end for spot in spots for end in (spot.y, *(spot.upright or ()))]),
    )

    def pixel(value: float, span: _Span, size: float) -> float:
        return size * (value - span[0]) / (span[1] - span[0]) if span[1] > span[0] else size / 2

    at = [(pixel(spot.x, wide, _ACROSS), pixel(spot.y, tall, _UPRIGHT)) for spot in spots]
    points = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in at]
    bars: list[_Box] = []
    for spot, (x, y) in zip(spots, at, strict=True):
        if spot.across:
            bars.append((pixel(spot.across[0], wide, _ACROSS), y - 1, pixel(spot.across[1], wide, _ACROSS), y + 1))
        if spot.upright:
            bars.append((x - 1, pixel(spot.upright[0], tall, _UPRIGHT), x + 1, pixel(spot.upright[1], tall, _UPRIGHT)))
    for line in lines:
        for (x, y), (u, v) in pairwise(at[spot] for spot in line):
            way = [(x + (u - x) * step / _STEPS, y + (v - y) * step / _STEPS) for step in range(1, _STEPS)]
            bars += [(a - 1, b - 1, a + 1, b + 1) for a, b in way]
    written = list(texts)
    positions: list[str | None] = [None] * len(spots)
    for place in sorted(range(len(spots)), key=lambda place: spots[place].rank):
        others = [point for other, point in enumerate(points) if other != place]
        boxes = {name: _text_box(at[place], name, len(spots[place].text)) for name in _PLACES}
        best = min(_PLACES, key=lambda name: _covered(boxes[name], [*others, *bars], written))
        box = boxes[best]
        area = _overlap(box, [box])
        fits = _overlap(box, written) <= _OF_TEXTS * area and _overlap(box, others) <= _OF_MARKS * area
        if spots[place].rank == 0 or fits:
            written.append(box)
            positions[place] = best
    return positions


def _span(values: Sequence[float]) -> _Span:
    return min(values), max(values)


def _text_box(at: tuple[float, float], name: str, letters: int) -> _Box:
    """The rectangle of the text; y points up."""
    upright, side = name.split()
    wide = letters * _LETTER
    left = at[0] + {"center": -wide / 2, "right": _MARK, "left": -_MARK - wide}[side]
    low = at[1] + {"top": _MARK, "middle": -_LINE / 2, "bottom": -_MARK - _LINE}[upright]
    return left, low, left + wide, low + _LINE


def _covered(box: _Box, points: Sequence[_Box], written: Sequence[_Box]) -> float:
    """How much this would cover of other texts (these weigh most), of points, and of what lies outside the plane."""
    inside = _overlap(box, [(0.0, -_LINE, _ACROSS, _UPRIGHT + _LINE)])
    return 4 * _overlap(box, written) + _overlap(box, points) + _overlap(box, [box]) - inside


def _overlap(box: _Box, others: Sequence[_Box]) -> float:
    """The area that a box shares with others."""
    return sum(
        max(0.0, min(box[2], other[2]) - max(box[0], other[0]))
        * max(0.0, min(box[3], other[3]) - max(box[1], other[1]))
        for other in others
    )


# -- the plane ----------------------------------------------------------------------------------------------

_EDGE = 0.05  # of the width, left free at both ends
_FAINT = 0.45  # many bars cross, and the points matter more
_ARROWS = {(-1, 1): "↖", (0, 1): "↑", (1, 1): "↗", (-1, 0): "←", (1, 0): "→", (-1, -1): "↙", (0, -1): "↓", (1, -1): "↘"}


@dataclass(frozen=True)
class View:
    """The plane of metric and spread. Points far outside of it are not in `shown`; a line to them leaves the picture.

    at:     where each row is, by its label.
    groups: the names of the legend with their rows, in the order of their first rows; of a knob with its parameter.
    spans:  from where to where the axes go, with all bars of the points that are shown.
    """

    metric: Measure
    spread: Measure
    at: Mapping[str, tuple[float, float]]
    groups: tuple[Knob, ...]
    shown: tuple[Row, ...]
    outside: tuple[Row, ...]
    spans: tuple[_Span, _Span]

    @property
    def note(self) -> str:
        """Names what is outside, with its numbers, for the picture itself."""
        texts = []
        for row in self.outside:
            pairs = zip(self.at[row.label], self.spans, strict=True)
            across, upright = ((value > high) - (value < low) for value, (low, high) in pairs)
            texts.append(f"{_ARROWS[across, upright]} {self.describe(row)}")
        return f"Outside the picture: {', '.join(texts)}" if texts else ""

    def describe(self, row: Row) -> str:
        across, upright = self.at[row.label]
        unit = f" {self.metric.unit}" if self.metric.unit else ""
        return f"{' '.join(row.label.split())} ({plain(across)}{unit}, {plain(upright)})"


def view_of(summary: Summary) -> View | None:
    """What there is to show, of the rows that have both numbers; None where there is no such row."""
    metric, spread = summary.metric, summary.spread
    if spread is None:
        return None
    at = {
        row.label: (metric.scale * first.value, spread.scale * second.value)
        for row in summary.judged
        if (first := row.result(metric)) and (second := row.result(spread))
    }
    rows = [row for row in summary.judged if row.label in at]
    if not rows:
        return None
    far = {place for values in zip(*at.values(), strict=True) for place in outside(values)}
    shown = [row for place, row in enumerate(rows) if place not in far]

    def span(axis: int, measure: Measure) -> _Span:
        ends = [end for row in shown for end in (at[row.label][axis], *(interval_of(row, measure) or ()))]
        low, high = _span([end for end in ends if math.isfinite(end)])
        edge = _EDGE * (high - low) or 0.05 * abs(high) or 0.05
        return low - edge, high + edge

    spans = span(0, metric), span(1, spread)
    # A long bar of another point may reach as far; then there is no need to leave one out.
    gone = [
        row
        for row in rows
        if row not in shown
        and not all(low <= value <= high for value, (low, high) in zip(at[row.label], spans, strict=True))
    ]
    on_path = {row.label for knob in summary.knobs for row in knob.rows}
    groups = [
        Knob(name=knob.name, parameter=knob.parameter, rows=tuple(row for row in knob.rows if row in rows))
        for knob in summary.knobs
    ]
    groups += [Knob(name=row.label, parameter="", rows=(row,)) for row in rows if row.label not in on_path]
    order = list(at)
    there = [group for group in groups if group.rows]
    there.sort(key=lambda group: min(order.index(row.label) for row in group.rows))
    return View(metric, spread, at, tuple(there), tuple(row for row in rows if row not in gone), tuple(gone), spans)


def interval_of(row: Row, measure: Measure) -> _Span | None:
    """The interval that is drawn: none of two seeds, whose t is 12.7 and whose bars would cross the whole plane."""
    result = row.result(measure)
    if result is None or result.interval is None or len(row.seeds) < FEWEST_DRAWN:
        return None
    return measure.scale * result.interval[0], measure.scale * result.interval[1]


_BETTER, _INSET = {"right": "better ↘", "left": "↙ better"}, 6.0  # in the lower corner, so many pixels from the axes


def _toward(view: View) -> str:
    return "right" if view.metric.larger_is_better else "left"


def _better_at(view: View) -> _Box:
    """Where that corner says which way is better."""
    wide = len(_BETTER[_toward(view)]) * _LETTER
    left = _ACROSS - _INSET - wide if _toward(view) == "right" else _INSET
    return left, _INSET, left + wide, _INSET + _LINE


def written_at(view: View) -> Mapping[str, tuple[str, str]]:
    """Text and position ("top right") by label; names and the ends of paths first, then what has room.

    Of a path these are the values of its knob, and at one of its ends its name, where there is more room.
    """
    wide, tall = ((high - low) or 1.0 for low, high in view.spans)

    def apart(row: Row, others: Sequence[Row]) -> float:
        """How far the nearest of the others is, the plane being one wide and one high."""
        x, y = view.at[row.label]
        near = [view.at[other.label] for other in others]
        return min((math.hypot((x - a) / wide, (y - b) / tall) for a, b in near), default=0.0)

    texts, ranks = {}, {}
    for group in view.groups:
        shown = [row for row in group.rows if row in view.shown]
        if not shown:
            continue
        others = [row for row in view.shown if row not in shown]
        named = max(shown[:1] + shown[-1:], key=lambda row: apart(row, others))
        best = min(shown, key=lambda row: view.at[row.label][1])
        for row in shown:
            value = plain(row.number(group.parameter)) if group.parameter else ""
            name = f"{group.name} {group.parameter}={value}" if group.parameter else group.name
            texts[row.label] = name if row is named else value
            ranks[row.label] = 0 if row is named else 1 if row in (shown[0], shown[-1], best) else 2
    spots = [
        Spot(*view.at[row.label], texts[row.label], interval_of(row, view.metric), interval_of(row, view.spread), rank)
        for row in view.shown
        for rank in [ranks[row.label]]
    ]
    index = {row.label: place for place, row in enumerate(view.shown)}
    lines = [[index[row.label] for row in group.rows if row.label in index] for group in view.groups]
    places = places_for(spots, spans=view.spans, lines=lines, texts=[_better_at(view)])
    return {row.label: (texts[row.label], place) for row, place in zip(view.shown, places, strict=True) if place}


def plane(summary: Summary) -> Figure | None:
    """The metric against the prediction difference, with intervals; values of a knob are joined in their order."""
    view = view_of(summary)
    if view is None:
        return None
    metric, spread, look = view.metric, view.spread, looks(summary)
    groups = [group for group in view.groups if any(row in view.shown for row in group.rows)]
    entries = [
        Entry(name=group.name, colour=style.colour, symbol=style.symbol, line=bool(group.parameter))
        for group in groups
        for style in [look[group.rows[0].label]]
    ]
    titles = {"activation": "activation", "metric": metric.title, "spread": spread.title}
    tips = [{"field": field, "type": "nominal", "title": title} for field, title in titles.items()]
    across, upright = (
        number(field, title=f"{measure.title}, {measure.unit}" if measure.unit else measure.title, domain=span)
        for field, measure, span in (("x", metric, view.spans[0]), ("y", spread, view.spans[1]))
    )
    toward = _toward(view)
    corner = {"x": {"value": "width" if toward == "right" else 0}, "y": {"value": "height"}}
    where, end, text = {"x": across, "y": upright}, {"field": "to"}, {"field": "text"}
    every = _points(view, groups)
    points = [point for point in every if not point["outside"]]
    joined, named = [point for point in every if point["joined"]], [point for point in points if point["text"]]
    layers = [
        series("rule", _bars(view, groups, 0), entries, {"x": across, "x2": end, "y": upright}, opacity=_FAINT),
        series("rule", _bars(view, groups, 1), entries, {**where, "y2": end}, opacity=_FAINT),
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
            [{"text": _BETTER[toward]}],
            {**corner, "text": text},
            align=toward,
            baseline="bottom",
            dx=-_INSET if toward == "right" else _INSET,
            dy=-_INSET,
            style="remark",
        ),
    ]
    upwards = "more reproducible" if spread.of_sets else f"better by {spread.title}"
    caption = f"Further {toward} is more accurate, further down {upwards}."
    if any(len(row.seeds) >= FEWEST_DRAWN for row in view.shown):
        caption += " Bars are 95 % intervals."
    if summary.knobs:
        caption += " A line joins the values of a knob in their order, with values beside it where there is room."
    if view.outside:
        caption += f" Too far away to be shown: {', '.join(map(view.describe, view.outside))}."
    return Figure(
        name="plane",
        caption=caption,
        label=f"{metric.title} against {spread.title} of every activation; the numbers are in the first table",
        chart={"layer": layers},
        legend=entries,
        height=440,
        wide=True,
        file="plane",
        note=view.note,
    )


def _points(view: View, groups: Sequence[Knob]) -> list[Chart]:
    """Every row, also what lies outside: a line to it leaves the picture."""
    written, points = written_at(view), []
    for group in groups:
        for place, row in enumerate(group.rows):
            x, y = view.at[row.label]
            text, position = written.get(row.label, ("", "top right"))
            upright, side = position.split()
            (align, dx), (baseline, dy) = _SIDES[side], _HEIGHTS[upright]
            metric, spread, digits = view.metric, view.spread, 2 if view.metric.scale == 100 else 4
            points.append(
                {"name": group.name, "x": x, "y": y, "place": place, "joined": bool(group.parameter)}
                | {"outside": row in view.outside, "activation": row.label}
                | {"text": text, "dx": dx, "dy": dy, "align": align, "baseline": baseline}
                | {"metric": with_reach(row.result(metric), digits, scale=metric.scale)}
                | {"spread": with_reach(row.result(spread), 4, scale=spread.scale)}
            )
    return points


def _bars(view: View, groups: Sequence[Knob], axis: int) -> list[Chart]:
    bars = []
    for group in groups:
        for row in group.rows:
            interval = interval_of(row, (view.metric, view.spread)[axis])
            if row in view.shown and interval is not None:
                x, y = view.at[row.label]
                start = {"x": x, "y": interval[0]} if axis else {"x": interval[0], "y": y}
                bars.append({"name": group.name, **start, "to": interval[1]})
    return bars


# -- curves over the epochs ---------------------------------------------------------------------------------

CURVES = {
    "validation_accuracy": ("Validation accuracy", "validation accuracy, %", 100.0),
    "validation_loss": ("Validation loss", "validation loss", 1.0),
    "train_loss": ("Training loss", "training loss", 1.0),
}
_SHOWN_AT_FIRST = 8  # curves; the rest is shown by a click on the legend
MOST_BANDS = 6  # more of them cover each other: then the interval stands at the end of each line alone


def curves(summary: Summary) -> list[Figure]:
    """Validation accuracy (or loss) and training loss after every epoch, each with its band."""
    had = {band.curve for band in summary.bands}
    wanted = ["validation_accuracy" if "validation_accuracy" in had else "validation_loss", "train_loss"]
    first, look = first_shown(summary), looks(summary)
    figures = []
    for name in (name for name in wanted if name in had):
        title, axis, scale = CURVES[name]
        bands = [band for band in summary.bands if band.curve == name]
        filled = len([band for band in bands if band.label in first]) <= MOST_BANDS
        when, _ = _epochs(bands[0].epochs, "epoch")
        caption = f"{title} {when}: mean over seeds, with its 95 % interval {'as a band' if filled else 'at the end'}"
        cut = any(band.cut for band in bands)
        caption += "; where that would reach below 0, down to the lowest seed." if cut else "."
        if any(band.each for band in bands):
            caption += " Where a seed diverged, every seed has a thin line of its own."
        chart, entries = chart_of(bands, look, first, axis, scale, filled=filled)
        label, file = f"{title} over epochs, a line for each activation", name.replace("_", "-")
        figures.append(
            Figure(
                name=f"curve-{name}",
                caption=caption,
                label=label,
                chart=chart,
                legend=entries,
                height=380,
                wide=True,
                file=file,
            )
        )
    return figures


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


def chart_of(
    bands: Sequence[Band], look: Mapping[str, Look], first: set[str], axis: str, scale: float, *, filled: bool
) -> tuple[Chart, list[Entry]]:
    """A line for each band with its interval, thin lines for the seeds of one that has no mean; and the legend."""
    names = [f"{band.label}, each seed" if band.each else band.label for band in bands]
    entries = [
        Entry(name=name, colour=style.colour, dash=style.dash, shown=band.label in first)
        for name, band in zip(names, bands, strict=True)
        for style in [look[band.label]]
    ]
    every = [scale * end for band in bands for end in (*band.low, *band.high)]
    numbers = log_axis(min(every), max(every)) if axis.endswith("loss") and min(every, default=0.0) > 0 else {}
    lines, seeds, ends = [], [], []
    for place, (name, band) in enumerate(zip(names, bands, strict=True)):
        for seed, each in enumerate(band.each, start=1):
            values = [None if value is None else scale * value for value in each]
            pairs = zip(band.epochs, values, strict=True)
            seeds += [{"name": name, "seed": seed, "epoch": epoch, "y": value} for epoch, value in pairs]
        if not band.each:
            lines += _rows(name, "epoch", band.epochs, band.middle, band.low, band.high, scale=scale)
            # To the right of the lines, each to the right of the one before.
            step = 0.012 * (band.epochs[-1] - band.epochs[0] or 1)
            ends.append({**lines[-1], "epoch": band.epochs[-1] + (place + 1) * step})
    across, upright = _epochs(bands[0].epochs, "epoch")[1], number("y", title=axis, **numbers)
    return _bands(lines, entries, across, upright, seeds=seeds, ends=None if filled else ends), entries


# -- what activations learned -------------------------------------------------------------------------------

_FARTHEST, _NEAREST, _POINTS = 3.0, 0.25, 121
_SAME = 0.05  # of the largest difference: what is less, far out, is nothing to see
_MOST_NAMES = 24  # of sites, beside each other


def learned(summary: Summary) -> list[Figure]:
    """For each activation that learned: the function before and after, and its parameters over the epochs."""
    figures = []
    for label in dict.fromkeys(item.label for item in (*summary.shapes, *summary.trajectories)):
        before_and_after = [shape for shape in summary.shapes if shape.label == label]
        figures += [_shape(label, before_and_after)] if before_and_after else []
        # A vector has a figure of its own, beside one of all single numbers.
        kinds: dict[str, list[Trajectory]] = {}
        for item in (trajectory for trajectory in summary.trajectories if trajectory.label == label):
            kinds.setdefault(item.parameter.partition("[")[0] if "[" in item.parameter else "", []).append(item)
        figures += [_trajectory(label, lines, vector) for vector, lines in kinds.items()]
    return figures


def _shape(label: str, sites: Sequence[Shape]) -> Figure:
    reach = _FARTHEST
    while reach > _NEAREST and not any(_differs_beyond(shape, reach / 2) for shape in sites):
        reach /= 2
    starts = {tuple(site.start.items()): site for site in sites}
    drawn = [
        (site, site.ends, site_name(site.path), COLOURS[i % len(COLOURS)], "solid") for i, site in enumerate(sites)
    ]
    drawn += [(site, (site.start,), "start", _START, "dash") for site in starts.values()]
    entries, rows = [], []
    for site, values, place, colour, dash in drawn:
        x = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
        mean = {name: _mean([value[name] for value in values]) for name in site.start}
        low, high = torch.stack([heights(site, x, value) for value in values]).aminmax(dim=0)
        words = [f"{name} {plain(value)}" for name, value in mean.items() if isinstance(value, float)]
        name = f"{place}: {', '.join(words)}"
        columns = [[float(f"{y:.5g}") for y in column.tolist()] for column in (x, heights(site, x, mean), low, high)]
        entries.append(Entry(name=name, colour=colour, dash=dash))
        rows += _rows(name, "x", *columns)
    return Figure(
        name=f"shape-{label}",
        caption="Dashed: at the start. Lines: mean of the learned parameters; bands: from the lowest to the highest "
        "seed.",
        label=f"{label} before and after training",
        chart=_bands(rows, entries, number("x", title="x"), number("y"), title=label),
        legend=entries,
        file="shapes",
    )


def _mean(values: Sequence[float | tuple[float, ...]]) -> float | tuple[float, ...]:
    """Of numbers, or of tables entry by entry."""
    numbers = torch.tensor(values, dtype=torch.float64).mean(0).tolist()
    return tuple(numbers) if isinstance(numbers, list) else numbers


def heights(shape: Shape, x: torch.Tensor, values: Values) -> torch.Tensor:
    """The function at x, in float64."""
    given = {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}
    return get(shape.name)(x, **given, **shape.options)


def _differs_beyond(shape: Shape, where: float) -> bool:
    """Whether there is something to see that far from 0: what was learned differs from the start."""
    x = torch.linspace(-_FARTHEST, _FARTHEST, 8 * _POINTS, dtype=torch.float64)
    start = heights(shape, x, shape.start)
    off = torch.stack([(heights(shape, x, end) - start).abs() for end in shape.ends]).amax(dim=0)
    return bool(off.max() == 0) or bool(off[x.abs() > where].max() > _SAME * off.max())


def _trajectory(label: str, lines: Sequence[Trajectory], vector: str) -> Figure:
    """vector: the name of the one whose entries the lines are; empty for single numbers."""
    names = list(dict.fromkeys(line.parameter for line in lines))
    sites = list(dict.fromkeys(line.path for line in lines))
    entries, rows = [], []
    for line in lines:
        title = f"{site_name(line.path)}, {line.parameter}" if len(names) > 1 else site_name(line.path)
        colour = COLOURS[sites.index(line.path) % len(COLOURS)]
        entries.append(Entry(name=title, colour=colour, dash=DASHES[names.index(line.parameter) % len(DASHES)]))
        rows += _rows(title, "x", line.epochs, line.middle, line.low, line.high)
    upright = number("y", **axis_scale([value for line in lines for value in (*line.low, *line.high)]))
    when, across = _epochs(lines[0].epochs, "x")
    return Figure(
        name=f"trajectory-{label}-{vector}" if vector else f"trajectory-{label}",
        caption=f"{when.capitalize()}, epoch 0 being the start: mean over seeds, from the lowest to the highest.",
        label=f"Learned parameters of {label} over epochs",
        chart=_bands(rows, entries, across, upright, title=f"{label}: {vector or ', '.join(names)}"),
        legend=entries,
    )


def site_name(path: str) -> str:
    """A path of numbers alone says nothing by itself."""
    return f"site {path}" if path.replace(".", "").isdigit() else path


def hardness(summary: Summary) -> list[Figure]:
    """For each knob: its value at every site, from the input to the output, before and after training."""
    groups: dict[tuple[str, int], list[Profile]] = {}
    for profile in summary.profiles:
        groups.setdefault((profile.knob, len(profile.paths)), []).append(profile)
    look = looks(summary)
    return [_hardness(profiles, look) for profiles in groups.values()]


def _hardness(profiles: Sequence[Profile], look: Mapping[str, Look]) -> Figure:
    knob, paths = profiles[0].knob, profiles[0].paths
    every = [value for profile in profiles for site in (*profile.start, *profile.end) for value in site]
    entries, ends, starts = [], [], []
    for row in profiles:
        entries.append(Entry(name=row.label, colour=look[row.label].colour, symbol=look[row.label].symbol))
        start, middle = ([sum(site) / len(site) for site in sites] for sites in (row.start, row.end))
        if start != middle:
            # A point has no line to be seen: of a single site a short one.
            places, start = ([0.85, 1.15], start * 2) if len(start) == 1 else (range(1, len(start) + 1), start)
            starts += [{"name": row.label, "x": x, "y": y} for x, y in zip(places, start, strict=True)]
        for place, (path, site, mean) in enumerate(zip(row.paths, row.end, middle, strict=True)):
            far = row.distance[place] if place < len(row.distance) else ()
            words = f"{fixed(mean, 3)}, at most {max(far):.3g} from its limit" if far else fixed(mean, 3)
            point = {"name": row.label, "site": site_name(path), "value": words, "x": place + 1, "y": mean}
            ends.append(point | {"low": min(site), "high": max(site)})
    # The names of the sites below the axis, slanted where they are long; of very many, every second or third.
    names = [site_name(path) for path in paths]
    slanted = {"labelAngle": -30} if len(paths) > 4 or any(len(name) > 13 for name in names) else {}
    places = range(1, len(paths) + 1, math.ceil(len(paths) / _MOST_NAMES))
    axis = axis_ticks(places, labelExpr=f"{json.dumps(names, ensure_ascii=False)}[datum.value - 1]", **slanted)
    across = number("x", title="from the input to the output", domain=(0.6, len(paths) + 0.4), axis=axis)
    upright = number("y", **axis_scale(every))
    where = {"x": across, "y": upright}
    tips = [{"field": field, "type": "nominal"} for field in ("name", "site", "value")]
    layers = [
        series("line", starts, entries, where, strokeDash=STROKES["dot"], strokeWidth=1.4),
        series("rule", None, entries, _edges(across, upright), strokeWidth=1),
        series("line", None, entries, where),
        series("point", None, entries, {**where, "tooltip": tips}, filled=True, opacity=1, size=70),
    ]
    letter = "λ" if knob == "lam" else knob  # lam is no word
    title = f"{profiles[0].label}: {letter}" if len(profiles) == 1 else letter
    return Figure(
        name=f"hardness-{knob}-{len(paths)}",
        caption=f"{knob} by depth after training: mean over seeds, from the lowest to the highest. Dotted: at the "
        "start.",
        label=f"{knob} of every activation that has it, by depth",
        chart={"title": title, "data": {"values": ends}, "layer": layers},
        legend=entries,
        file="hardness",
    )


# -- on paper -----------------------------------------------------------------------------------------------


def pdf_figures(
    summary: Summary, *, png: bool = False, only: Collection[str] | None = None
) -> dict[str, tuple[bytes, str]]:
    """Content and caption of each figure that has something to show, by name; as PDF, or with `png` as PNG.

    only: the names of the figures to draw; without it, all.
    """
    files: dict[str, list[Figure]] = {}
    for figure in (plane(summary), *curves(summary), *learned(summary), *hardness(summary)):
        if figure is not None and figure.file and (only is None or figure.file in only):
            files.setdefault(figure.file, []).append(figure)
    picture = png_of if png else pdf_of
    return {name: (picture(on_paper(figures)), figures[0].caption) for name, figures in files.items()}


def bands_png(look: Mapping[str, Look], bands: Sequence[Band], axis: str) -> bytes:
    """Curves of one's own over the epochs, drawn as those of a report."""
    chart, entries = chart_of(bands, look, {band.label for band in bands}, axis, 1.0, filled=True)
    return png_of(on_paper([Figure(name="", caption="", label="", chart=chart, legend=entries)]))
