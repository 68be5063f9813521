"""Lines to panels: f, f' and f'' beside each other, broken where they jump, with point masses as arrows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .chart import INK, Chart, by_name, lines_legend, marks, number, points, rule_at, sized, ticks
from .curves import Curve, thin
from .figure_lines import DISTINCT, Definition, Line, bounds, lines_of

NAMES = ("f(x)", "f′(x)", "f″(x)")
WIDE, TALL = (244, 200), (360, 190)  # pixels of a panel: of three beside each other, and of three below each other
_DOTS = [1.7, 2.4]
_HEAD = "M0,0L-0.45,1L0.45,1Z"  # of an arrow that points up, its tip at the place
_TOLERANCE = 0.08  # pixels that a point which is left out may lie off the line
_LETTER, _HANDLE = 7.0, 46.0  # pixels of a letter of the legend, and of its line with the room around it
_EXTENT = 30  # pixels for the numbers beside a panel, the same in every figure, so that pages look alike


def panels(
    rows: Sequence[Sequence[Line]],
    *,
    low: float | None = None,
    high: float | None = None,
    stacked: bool = False,
    note: str = "",
) -> Chart:
    """f, f' and f'' of the lines beside each other, a row for each group of lines, with a legend above each row."""
    low, high = bounds([line for lines in rows for line in lines], low, high)
    groups = []
    for place, lines in enumerate(rows):
        curves = [line.between(low, high) for line in lines]
        three = [_panel(order, lines, curves, (low, high), f"{place}_{order}", stacked) for order in range(3)]
        three[0]["layer"].append(_legend(lines, note, TALL[0] if stacked else 3 * WIDE[0]))
        together = {"scale": {"color": "shared", "strokeDash": "shared"}}
        groups.append({"vconcat" if stacked else "hconcat": three, "spacing": 14, "resolve": together})
    apart = {"scale": {"color": "independent", "strokeDash": "independent"}}
    return groups[0] if len(groups) == 1 else {"vconcat": groups, "resolve": apart}


def _panel(
    order: int, lines: Sequence[Line], curves: Sequence[Curve], reach: tuple[float, float], name: str, stacked: bool
) -> Chart:
    heights = [0.0]
    for curve in curves:
        heights += [y for run in curve.runs[order : order + 1] for part in run for y in part.ys]
        heights += [weight for _, weight in curve.masses[order]] if order == 2 else []
    room = 0.07 * ((max(heights) - min(heights)) or 1.0)
    bottom, top = min(heights) - room, max(heights) + room
    wide, tall = TALL if stacked else WIDE
    axis = {"format": ".4~g", "minExtent": _EXTENT}
    x, y = number("x", domain=reach, axis={"format": ".4~g"}), number("y", domain=(bottom, top), axis=axis)
    layers = [rule_at(y=0.0)] + [rule_at(x=0.0)] * (reach[0] <= 0 <= reach[1])
    for index, (line, curve) in enumerate(zip(lines, curves, strict=True)):
        strokes = _strokes(order, line, curve, (wide / (reach[1] - reach[0]), tall / (top - bottom)))
        layers += [
            {**marks(kind, rows, {"x": x, "y": y}, **look), "name": f"{part}_{name}_{index}_{place}"}
            for place, (part, kind, rows, look) in enumerate(strokes)
        ]
    words = f"{NAMES[order]}, x {reach[0]:.6g} to {reach[1]:.6g}, y {bottom:.6g} to {top:.6g}"
    title = {"text": NAMES[order], "fontStyle": "italic"}
    return {**sized({"layer": layers}, wide, tall), "name": f"panel_{name}", "title": title, "description": words}


def _strokes(order: int, line: Line, curve: Curve, scale: tuple[float, float]) -> list[Any]:
    """Each stroke of a line: what it is, its kind of mark, its points and its look."""
    look = {"color": line.colour, **({"strokeDash": _DOTS} if line.dotted else {})}
    strokes = []
    for run in curve.runs[order] if order < len(curve.runs) else ():
        kept = thin(run, scale_x=scale[0], scale_y=scale[1], tolerance=_TOLERANCE)
        strokes.append(("line", "line", points(kept.xs, kept.ys), {**look, "strokeWidth": 2.3}))
    for place, weight in curve.masses[order] if order == 2 else ():
        ends = [{"x": place, "y": 0.0}, {"x": place, "y": weight}]
        head = {"shape": _HEAD, "angle": 0 if weight > 0 else 180, "filled": True, "size": 340, "opacity": 1}
        strokes.append(("mass", "line", ends, {**look, "strokeWidth": 1.6}))
        strokes.append(("head", "point", ends[1:], {"color": line.colour, **head}))
    return strokes


def _legend(lines: Sequence[Line], note: str, wide: float) -> Chart:
    """Marks that nothing is seen of but their legend, in as many lines of text as it needs."""
    named = [line for line in lines if line.label]
    words = [line.label for line in named] + [note] * bool(note)
    longest, total = max(map(len, words), default=0), sum(map(len, words))
    fits = total * _LETTER + len(words) * _HANDLE < wide
    columns = len(words) if fits else max(1, int(wide / (longest * _LETTER + _HANDLE)))
    keys = [str(place) for place in range(len(words))]
    legend = lines_legend(
        orient="top",
        columns=columns,
        labelExpr=f"{json.dumps(words, ensure_ascii=False)}[+datum.value]",
        symbolSize=500,
        symbolStrokeWidth=2.3,
        labelFontSize=12,
    )
    colours = [line.colour for line in named] + ["transparent"] * bool(note)
    dashes = [_DOTS if line.dotted else [1, 0] for line in named] + [[1, 0]] * bool(note)
    channels = {"color": by_name(keys, colours, legend=legend), "strokeDash": by_name(keys, dashes, legend=legend)}
    return marks("line", [{"name": key} for key in keys], channels, color=INK) if words else rule_at(y=0.0)


# -- all functions on one sheet ---------------------------------------------------------------------------

_COLUMNS = 8
_SIDE = 94  # pixels of a panel
_X, _Y = (-4.0, 4.0), (-1.5, 4.0)
_SLOPE = "#e69f00"


def poster(shown: Mapping[str, tuple[Definition, Mapping[str, Any]]]) -> Chart:
    """Small panels of one scale, with f (blue) and f' (orange) of every definition, under the names they are given."""
    x = number("x", domain=_X, axis=ticks((-2, 2), labels=False))
    y = number("y", domain=_Y, axis=ticks((2,), labels=False))
    charts = []
    for name, (act, values) in shown.items():
        layers = [rule_at(y=0.0), rule_at(x=0.0)]
        curve = lines_of(act, [values])[0].between(*_X)
        for order, colour in ((1, _SLOPE), (0, DISTINCT[0])):
            for part, run in enumerate(curve.runs[order]):
                kept = thin(run, scale_x=12.0, scale_y=17.0, tolerance=0.11)
                stroke = marks("line", points(kept.xs, kept.ys), {"x": x, "y": y}, color=colour, clip=True)
                layers.append({**stroke, "name": f"line_{name}_{order}_{part}"})
        title = {"text": name, "fontSize": 9.5, "offset": 3}
        charts.append({**sized({"layer": layers}, _SIDE, _SIDE), "title": title})
    return {"concat": charts, "columns": _COLUMNS, "spacing": {"row": 10, "column": 14}}
