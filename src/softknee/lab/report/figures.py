"""A figure of the report: one chart for the page and for paper, its legend, and what stands below it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from ..chart import Chart, Row, by_name, config, marks, outline, side_by_side, sized, ticks
from .parts import few_epochs, log_ticks

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
    """A figure: its anchor, what stands below it, what it says to who cannot see it, and its chart.

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


def series(kind: str, rows: Iterable[Row] | None, entries: Sequence[Entry], encoding: Chart, **look: Any) -> Chart:
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
    """The axis of epochs; of few ones each has its number, and nothing between them has one."""
    return {"axis": ticks(epochs, format="d")} if few_epochs(epochs) else {}


def log_axis(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis with its numbers; a linear one where the range is too narrow for two of them."""
    places = log_ticks(low, high)
    return {"scale": {"type": "log"}, "axis": ticks(places, format="~g")} if places else {}
