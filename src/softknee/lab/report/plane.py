"""The figure of the SmeLU paper: how good against how reproducible, with the values of a knob as a path."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from ..chart import SOFT, marks, number
from .drawing import FEWEST_DRAWN, Group, View, axis_title, interval_of, looks, middle_of, view_of, written_at
from .figures import Entry, Figure, series
from .parts import Measure, Row, Summary, with_reach

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
        for group in _groups(view)
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
    layers = [
        series(
            "rule", _bars(view, metric), entries, {"x": across, "x2": {"field": "to"}, "y": upright}, opacity=_FAINT
        ),
        series(
            "rule", _bars(view, spread), entries, {"x": across, "y": upright, "y2": {"field": "to"}}, opacity=_FAINT
        ),
        series(
            "line",
            [point for point in every if point["joined"]],
            entries,
            {"x": across, "y": upright, "order": {"field": "place"}},
            clip=bool(view.outside),
        ),
        series(
            "point", points, entries, {"x": across, "y": upright, "tooltip": tips}, filled=True, opacity=1, size=100
        ),
        series(
            "text",
            [point for point in points if point["text"]],
            entries,
            {"x": across, "y": upright, "text": {"field": "text"}},
            **{name: {"expr": f"datum.{name}"} for name in ("dx", "dy", "align", "baseline")},
            # Where there is little room, only what is written along a path.
            opacity={"expr": "width > 480 || datum.joined ? 1 : 0"},
        ),
        marks(
            "text",
            [{"text": "better ↘" if toward == "right" else "↙ better"}],
            {**corner, "text": {"field": "text"}},
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


def _groups(view: View) -> list[Group]:
    """Those of which something is seen."""
    return [group for group in view.groups if any(row in view.shown for row in group.rows)]


def _points(view: View) -> list[dict[str, Any]]:
    """Every row, also what lies outside: a line to it leaves the picture."""
    written, points = written_at(view), []
    for group in _groups(view):
        for place, row in enumerate(group.rows):
            x, y = middle_of(row, view.metric, view.spread)
            name = written.get(row.label)
            upright, side = name.place.split() if name else ("top", "right")
            (align, dx), (baseline, dy) = _SIDES[side], _HEIGHTS[upright]
            points.append(
                {
                    "name": group.name,
                    "x": x,
                    "y": y,
                    "place": place,
                    "joined": group.joined,
                    "outside": row in view.outside,
                    "text": name.text if name else "",
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
    return with_reach(row.found(measure), places, scale=measure.scale)


def _bars(view: View, measure: Measure) -> Sequence[dict[str, Any]]:
    bars = []
    for group in view.groups:
        for row in group.rows:
            interval = interval_of(row, measure)
            if row in view.shown and interval is not None:
                x, y = middle_of(row, view.metric, view.spread)
                start = {"x": interval[0], "y": y} if measure is view.metric else {"x": x, "y": interval[0]}
                bars.append({"name": group.name, **start, "to": interval[1]})
    return bars
