"""The figure of the SmeLU paper: how good against how reproducible, with the values of a knob as a path."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .figures import Figure, figure, safe
from .numbers import with_reach
from .palette import Look, looks
from .parts import Measure, Row, Summary
from .view import FEWEST_DRAWN, Group, View, Written, axis_title, interval_of, middle_of, view_of, written_at


def plane(summary: Summary) -> Figure | None:
    """The metric against the prediction difference, with intervals; values of a knob are joined in their order."""
    view = view_of(summary)
    if view is None:
        return None
    look, written = looks(summary), written_at(view)
    metric, spread = view.metric, view.spread
    traces = [_points(group, view, look[group.rows[0].label], written) for group in view.groups]
    toward = "right" if metric.larger_is_better else "left"
    # Where nothing is outside the page finds the ends of its axes itself.
    across, upright = ({"range": list(span)} if view.outside else {} for span in view.spans)
    layout = {
        "xaxis": {"title": {"text": axis_title(metric)}, "automargin": True, **across},
        "yaxis": {"title": {"text": axis_title(spread)}, "automargin": True, "rangemode": "normal", **upright},
        "hovermode": "closest",
        "annotations": [
            _remark("better ↘" if toward == "right" else "↙ better", right=toward == "right", top=False),
            *([_remark(safe(view.note), right=False, top=True)] if view.outside else []),
        ],
        "height": 520,
    }
    caption = f"Further {toward} is more accurate, further down more reproducible."
    if any(len(row.seeds) >= FEWEST_DRAWN for row in view.shown):
        caption += " Bars are 95 % intervals."
    if summary.knobs:
        caption += " A line joins the values of a knob in their order, with values beside it where there is room."
    label = f"{metric.title} against {spread.title} of every activation; the numbers are in the first table"
    return figure("plane", traces, layout, caption=f"{caption} {view.caption}".strip(), label=label)


def _remark(text: str, *, right: bool, top: bool) -> dict[str, Any]:
    """A text in a corner of the plane; at the top, above it."""
    return {
        "text": text,
        "x": float(right),
        "y": float(top),
        "xref": "paper",
        "yref": "paper",
        "xanchor": "right" if right else "left",
        "yanchor": "bottom",
        "showarrow": False,
    }


def _points(group: Group, view: View, style: Look, written: Mapping[str, Written]) -> dict[str, Any]:
    metric, spread, rows = view.metric, view.spread, group.rows
    middles = [middle_of(row, metric, spread) for row in rows]
    beside = [written.get(row.label, Written("", "top right")) for row in rows]
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
        "name": safe(group.name),
        "mode": "lines+markers+text" if group.joined else "markers+text",
        "x": [x for x, _ in middles],
        "y": [y for _, y in middles],
        "error_x": _bars(rows, metric, style),
        "error_y": _bars(rows, spread, style),
        "text": [safe(one.text) for one in beside],
        "textposition": [one.place for one in beside],
        "marker": {"color": style.colour, "symbol": style.symbol, "size": 10},
        "line": {"color": style.colour, "width": 1.6},
        "customdata": hover,
        "hovertemplate": "%{customdata[0]}<br>"
        + f"{safe(metric.title)} %{{customdata[1]}}<br>{safe(spread.title)} %{{customdata[2]}}<extra></extra>",
        "cliponaxis": any(row in view.outside for row in rows),
        "meta": {"joined": group.joined},
    }


def _bars(rows: Sequence[Row], measure: Measure, style: Look) -> dict[str, Any]:
    above, below = [], []
    for row in rows:
        found = row.found(measure)
        low, high = interval_of(row, measure) or (math.nan, math.nan)
        value = measure.scale * found.value if found else math.nan
        above.append(_or_none(high - value))
        below.append(_or_none(value - low))
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
