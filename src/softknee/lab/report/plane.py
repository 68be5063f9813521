"""The figure of the SmeLU paper: how good against how reproducible, with the values of a knob as a path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .figures import Figure, figure, safe
from .numbers import plain, with_reach
from .palette import Look, looks
from .parts import Measure, Row, Summary
from .placing import Spot, places_for


def plane(summary: Summary) -> Figure | None:
    """The metric against the prediction difference, with intervals; values of a knob are joined in their order."""
    metric, spread = summary.metric, summary.spread
    rows = [row for row in summary.judged if spread and row.found(metric) and row.found(spread)]
    if spread is None or not rows:
        return None
    look = looks(summary)
    labels = _point_labels(summary, rows)
    spots = [
        Spot(*middle_of(row, metric, spread), labels[row.label], interval_of(row, metric), interval_of(row, spread))
        for row in rows
    ]
    position = dict(zip([row.label for row in rows], places_for(spots), strict=True))
    on_path = {row.label for knob in summary.knobs for row in knob.rows}
    groups = [(knob.name, [row for row in knob.rows if row in rows], True) for knob in summary.knobs]
    groups += [(row.label, [row], False) for row in rows if row.label not in on_path]
    order = {row.label: place for place, row in enumerate(rows)}
    groups = sorted((group for group in groups if group[1]), key=lambda group: order[group[1][0].label])
    traces = [
        _points(name, members, joined, metric, spread, look, labels, position, summary.knobs)
        for name, members, joined in groups
    ]
    toward = "right" if metric.larger_is_better else "left"
    layout = {
        "xaxis": {"title": {"text": axis_title(metric)}, "automargin": True},
        "yaxis": {"title": {"text": axis_title(spread)}, "automargin": True, "rangemode": "normal"},
        "hovermode": "closest",
        "annotations": [
            {
                "text": "better ↘" if toward == "right" else "↙ better",
                "x": 1 if toward == "right" else 0,
                "y": 0,
                "xref": "paper",
                "yref": "paper",
                "xanchor": toward,
                "yanchor": "bottom",
                "showarrow": False,
            }
        ],
        "height": 520,
    }
    caption = f"Further {toward} is more accurate, further down more reproducible. Bars are 95 % intervals. " + (
        "A line joins the values of a knob in their order, each with its value beside it." if summary.knobs else ""
    )
    label = f"{metric.title} against {spread.title} of every activation; the numbers are in the first table"
    return figure("plane", traces, layout, caption=caption.strip(), label=label)


def axis_title(measure: Measure) -> str:
    return f"{measure.title}, {measure.unit}" if measure.unit else measure.title


def middle_of(row: Row, metric: Measure, spread: Measure) -> tuple[float, float]:
    first, second = row.found(metric), row.found(spread)
    assert first is not None
    assert second is not None
    return metric.scale * first.value, spread.scale * second.value


def interval_of(row: Row, measure: Measure) -> tuple[float, float] | None:
    found = row.found(measure)
    if found is None or found.interval is None:
        return None
    return measure.scale * found.interval[0], measure.scale * found.interval[1]


def _point_labels(summary: Summary, rows: Sequence[Row]) -> dict[str, str]:
    """The value of a knob, with its name at the end of the path that has more room; else the whole label."""
    found = {row.label: row.label for row in rows}
    for knob in summary.knobs:
        shown = [row for row in knob.rows if row.label in found]
        others = [row for row in rows if row not in shown]
        named = max(shown[:1] + shown[-1:], key=lambda row: _apart(row, others, rows, summary), default=None)
        for row in shown:
            value = plain(row.number(knob.parameter))
            found[row.label] = f"{knob.name} {knob.parameter}={value}" if row is named else value
    return found


def _apart(row: Row, others: Sequence[Row], rows: Sequence[Row], summary: Summary) -> float:
    """How far the nearest of the others is, the plane being one wide and one high."""
    metric, spread = summary.metric, summary.spread
    assert spread is not None
    points = [middle_of(one, metric, spread) for one in rows]
    size = [(max(axis) - min(axis)) or 1.0 for axis in zip(*points, strict=True)]
    x, y = middle_of(row, metric, spread)
    near = [middle_of(one, metric, spread) for one in others]
    return min((math.hypot((x - a) / size[0], (y - b) / size[1]) for a, b in near), default=0.0)


def _points(
    name: str,
    rows: Sequence[Row],
    joined: bool,
    metric: Measure,
    spread: Measure,
    look: Any,
    labels: Any,
    position: Any,
    knobs: Any,
) -> dict[str, Any]:
    style: Look = look[rows[0].label]
    middles = [middle_of(row, metric, spread) for row in rows]
    hover = [
        [
            safe(row.label),
            with_reach(row.found(metric), 2 if metric.scale == 100 else 4, scale=metric.scale),
            with_reach(row.found(spread), 4, scale=spread.scale),
        ]
        for row in rows
    ]
    return {
        "type": "scatter",
        "name": safe(name),
        "mode": "lines+markers+text" if joined else "markers+text",
        "x": [x for x, _ in middles],
        "y": [y for _, y in middles],
        "error_x": _bars(rows, metric, style),
        "error_y": _bars(rows, spread, style),
        "text": [safe(labels[row.label]) for row in rows],
        "textposition": [position[row.label] for row in rows],
        "marker": {"color": style.colour, "symbol": style.symbol, "size": 10},
        "line": {"color": style.colour, "width": 1.6},
        "customdata": hover,
        "hovertemplate": "%{customdata[0]}<br>"
        + f"{safe(metric.title)} %{{customdata[1]}}<br>{safe(spread.title)} %{{customdata[2]}}<extra></extra>",
        "cliponaxis": False,
        "meta": {"joined": joined},
    }


def _bars(rows: Sequence[Row], measure: Measure, style: Look) -> dict[str, Any]:
    above, below = [], []
    for row in rows:
        found = row.found(measure)
        low, high = found.interval if found and found.interval else (math.nan, math.nan)
        value = found.value if found else math.nan
        above.append(_or_none(measure.scale * (high - value)))
        below.append(_or_none(measure.scale * (value - low)))
    return {
        "type": "data",
        "symmetric": False,
        "array": above,
        "arrayminus": below,
        "color": style.colour,
        "thickness": 1,
        "width": 3,
    }


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
