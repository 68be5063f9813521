"""Figures as Vega-Lite: described once as plain data, drawn as SVG, PNG or PDF, and on a page by Vega itself.

    lines = marks("line", rows, {"x": number("epoch"), "y": number("loss")}, color=INK)
    write_figure(sized({"layer": [lines]}, 400, 240), "loss.svg", label="loss over the epochs")

vl-convert draws: no browser, no display, no network, the same picture each time.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from ..errors import MissingToolError, ParameterError
from ..files import write_whole

Chart: TypeAlias = dict[str, Any]
Row: TypeAlias = Mapping[str, Any]

INK, SOFT, HAIR, ZERO = "#22221f", "#6a6963", "#e8e7e2", "#b9b8b1"
FONT = "DejaVu Sans, Liberation Sans, Arial, sans-serif"  # the second comes with vl-convert
ENDINGS = (".png", ".svg")
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
# Attributes of an SVG that only a page with a script makes use of, and outlines that nothing is drawn with.
_NOISE = (
    r' (?:aria-hidden|aria-roledescription|pointer-events|stroke-miterlimit)="[^"]*"|<path class="foreground"[^>]*/>'
)
_SHARP = 2.0  # pixels of a .png for each of the figure
_CORNERS = {"square": 4, "diamond": 4, "triangle-up": 3, "triangle-down": 3, "pentagon": 5, "hexagon": 6}
_TURNED = {"square": 0.125, "triangle-down": 0.5, "x": 0.125}


def config(
    *,
    ink: str = INK,
    soft: str = SOFT,
    hair: str = HAIR,
    font: str = FONT,
    paper: str = "white",
    size: float = 11,
    columns: int = 4,
) -> Chart:
    """How every figure looks: hairlines instead of a frame, small grey numbers, titles above and to the left."""
    return {
        "font": font,
        "background": paper,
        "view": {"stroke": None},
        "axis": {
            "grid": True,
            "gridColor": hair,
            "gridWidth": 0.8,
            "domain": False,
            "ticks": False,
            "tickCount": 6,
            "labelColor": soft,
            "labelFontSize": size,
            "labelPadding": 5,
            "labelLimit": 320,
            "titleColor": soft,
            "titleFontSize": size + 1,
            "titleFontWeight": "normal",
            "titlePadding": 8,
        },
        "title": {"anchor": "start", "color": ink, "fontSize": size + 2, "fontWeight": "normal", "offset": 8},
        "legend": {
            "orient": "bottom",
            "offset": 12,
            "direction": "horizontal",
            "columns": columns,
            "columnPadding": 18,
            "title": None,
            "labelColor": ink,
            "labelFontSize": size,
            "labelLimit": 0,
            "symbolStrokeWidth": 1.8,
            "symbolSize": 90,
        },
        "mark": {"aria": False},
        "line": {"strokeWidth": 1.8, "strokeCap": "butt", "strokeJoin": "round"},
        "text": {"fontSize": size, "color": ink},
        "style": {"remark": {"color": soft}},
    }


# -- description ------------------------------------------------------------------------------------------


def marks(kind: str, rows: Iterable[Row] | None, encoding: Chart, **look: Any) -> Chart:
    """One layer: marks of a kind at the places of the rows, or of the rows that all layers share."""
    own = {} if rows is None else {"data": {"values": list(rows)}}
    return {**own, "mark": {"type": kind, **look}, "encoding": encoding}


def points(xs: Iterable[float], ys: Iterable[float], **same: Any) -> list[Row]:
    """Rows x and y of a line, with what all of them have in common."""
    return [{"x": x, "y": y, **same} for x, y in zip(xs, ys, strict=True)]


def number(field: str, *, title: str | None = None, **more: Any) -> Chart:
    """A channel that shows a number; `domain` says from where to where, without rounding."""
    reach = {"domain": list(more.pop("domain"))} if "domain" in more else {"padding": 8}
    kind = more.pop("scale", {"zero": False})
    scale = {"nice": False, **reach, **kind}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, **more}


def ticks(values: Iterable[float], **more: Any) -> Chart:
    """An axis with numbers at these places, and all of them."""
    places = list(values)
    return {"values": places, "tickCount": len(places), "labelOverlap": False, **more}


def by_name(names: Sequence[str], values: Sequence[Any], **more: Any) -> Chart:
    """A channel that tells the series apart: the value of each name, in this order."""
    scale = {"domain": list(names), "range": list(values)}
    return {"field": "name", "type": "nominal", "title": None, "scale": scale, "sort": None, **more}


def lines_legend(**more: Any) -> Chart:
    """A legend of short lines, whatever else is drawn of each name."""
    return {"symbolType": "stroke", "symbolSize": 400, "symbolOpacity": 1, **more}


def sized(chart: Chart, wide: float | str, tall: float) -> Chart:
    """The chart with its panel of that many pixels."""
    return {"width": wide, "height": tall, **chart}


def side_by_side(charts: Sequence[Chart], *, columns: int, spacing: float = 24.0) -> Chart:
    """Charts side by side, each with its own scales and legend."""
    apart = dict.fromkeys(("x", "y", "color", "fill", "stroke", "strokeDash", "shape"), "independent")
    return {"concat": list(charts), "columns": columns, "spacing": spacing, "resolve": {"scale": apart}}


def footnote(text: str) -> Chart:
    """A line of small print below a chart, as its title."""
    return {"text": text, "orient": "bottom", "fontSize": 9.5, "color": SOFT}


def rule_at(**places: float) -> Chart:
    """A line across the panel at x=... or y=..."""
    return {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "color": ZERO, "strokeWidth": 1},
        "encoding": {name: {"datum": value} for name, value in places.items()},
    }


def outline(symbol: str) -> str:
    """A symbol as the path of a polygon that reaches from -1 to 1; angles are from the top, in turns."""
    if symbol in _CORNERS:
        points = [(1.0, place / _CORNERS[symbol]) for place in range(_CORNERS[symbol])]
    elif symbol == "star":
        points = [(1.0 if place % 2 == 0 else 0.4, place / 10) for place in range(10)]
    elif symbol in ("cross", "x"):
        # Four arms, each two corners far out and one near the middle.
        arms = [(1.0, -0.06), (1.0, 0.06), (0.5, 0.125)]
        points = [(far, arm / 4 + turn) for arm in range(4) for far, turn in arms]
    else:
        return "M-1,0A1,1 0 1 0 1,0A1,1 0 1 0 -1,0Z"
    turned = [(far, 2 * math.pi * (turn + _TURNED.get(symbol, 0.0))) for far, turn in points]
    return "M" + "L".join(f"{far * math.sin(turn):.3f},{-far * math.cos(turn):.3f}" for far, turn in turned) + "Z"


# -- pictures ---------------------------------------------------------------------------------------------


def svg_of(chart: Chart, *, label: str) -> str:
    """The figure as SVG text, the same text every time; `label` says what is to be seen."""
    text: str = _converter().vegalite_to_svg(_whole(chart))
    text = re.sub(_NOISE, "", text)
    text = re.sub(r' (?:d|transform|[xy][12]?)="[^"]*"', lambda match: _short(match[0]), text)
    counted: dict[str, int] = {}  # Vega counts on from figure to figure
    text = re.sub(
        r'(id="|url\(#)(gradient_|clip)(\d+)',
        lambda match: f"{match[1]}{match[2]}{counted.setdefault(match[2] + match[3], len(counted))}",
        text,
    )
    named = json.dumps(label, ensure_ascii=False).replace("&", "&amp;").replace("<", "&lt;")
    return text.replace("<svg ", f'<svg role="img" aria-label={named} ', 1).replace("><", ">\n<") + "\n"


def _short(places: str) -> str:
    """Places of a picture to a hundredth of a pixel."""
    return re.sub(r"\d+\.\d{3,}", lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), places)


def png_of(chart: Chart, *, scale: float = _SHARP) -> bytes:
    """The figure as PNG, at twice the pixels of a common screen."""
    return _converter().vegalite_to_png(_whole(chart), scale=scale)


def pdf_of(chart: Chart) -> bytes:
    """The figure as PDF, its fonts inside."""
    return _converter().vegalite_to_pdf(_whole(chart))


def _whole(chart: Chart) -> Chart:
    return {"$schema": _SCHEMA, "padding": 6, "config": config(), **chart}


def _converter() -> Any:
    try:
        import vl_convert
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Figures are drawn by vl-convert, which is not installed. Install it with: pip install 'softknee[lab]'"
        ) from error
    return vl_convert


@cache
def page_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, for pages that draw their figures themselves."""
    return _converter().javascript_bundle().replace("</script", "<\\/script")


def check_ending(path: str | PathLike[str], endings: Sequence[str] = ENDINGS) -> str:
    """The ending, if it is one that the figure can have: asked before anything is trained or drawn."""
    kind = Path(path).suffix.lower()
    if kind not in endings:
        raise ParameterError(
            f"A figure is written as {', '.join(endings[:-1])} or {endings[-1]}, and {os.fspath(path)!r} ends in "
            f"{kind or 'none'}; choose one of these endings."
        )
    return kind


def write_figure(chart: Chart, path: str | PathLike[str], *, label: str) -> Path:
    """Write it, and return where it is; `label` says in a .svg what is to be seen."""
    picture = svg_of(chart, label=label) if check_ending(path) == ".svg" else png_of(chart)
    return write_whole(path, picture, what="figure")
