"""Figures as Vega-Lite: described once as plain data, drawn as SVG, PNG or PDF, and on a page by Vega itself.

    lines = marks("line", rows, {"x": number("epoch"), "y": number("loss")}, color=INK)
    write_figure(sized({"layer": [lines]}, 400, 240), "loss.svg", label="loss over the epochs")

vl-convert draws: no browser, no display, no network, the same picture each time.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..errors import ParameterError, need_package
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
# What stands for paper, ink, hairlines and dark curves on a dark page; other colours are seen on both.
_NIGHT_COLOURS = {
    "white": "#181817",
    INK: "#f4f3ef",
    SOFT: "#b3b2aa",
    HAIR: "#31312e",
    ZERO: "#5b5a55",
    "#1f2a7a": "#8f9df5",
    "#6b2c91": "#b884dd",
    "#b23a7f": "#dd6aa9",
    "#0072b2": "#3f9fe0",
}
_NIGHT = " ".join(
    f'[{paint}="{day}"] {{ {paint}: {night} }}' for day, night in _NIGHT_COLOURS.items() for paint in ("fill", "stroke")
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


def log_axis(low: float, high: float) -> Chart:
    """A logarithmic axis with numbers at 1, 2 and 5 of each decade, or at the decades where there are many.

    Empty (a linear axis) where fewer than two such numbers lie in the range.

    >>> log_axis(0.3, 2.5)["axis"]["values"], log_axis(0.44, 0.49)
    ([0.5, 1.0, 2.0], {})
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    places = [place for decade in decades for step in steps if low <= (place := step * 10.0**decade) <= high]
    return {"scale": {"type": "log"}, "axis": ticks(places, format="~g")} if len(places) > 1 else {}


def by_name(names: Sequence[str], values: Sequence[Any], **more: Any) -> Chart:
    """A channel that tells the series apart: the value of each name, in this order."""
    scale = {"domain": list(names), "range": list(values)}
    return {"field": "name", "type": "nominal", "title": None, "scale": scale, "sort": None, **more}


def lines_legend(**more: Any) -> Chart:
    """A legend of short lines, whatever else is drawn of each name."""
    return {"symbolType": "stroke", "symbolSize": 400, "symbolOpacity": 1, **more}


def line_styles(looks: Mapping[str, tuple[str, list[Any]]], **legend: Any) -> Chart:
    """The channels of lines by name, each with its colour and its dashes, and their legend."""
    names, (colours, dashes) = list(looks), zip(*looks.values(), strict=True)
    shown = lines_legend(**legend)
    return {"color": by_name(names, colours, legend=shown), "strokeDash": by_name(names, dashes, legend=shown)}


def scale_of(values: Iterable[float]) -> Chart:
    """A logarithmic axis where the values lie above 0 and more than a decade apart; else what a linear one has."""
    every = list(values)
    return log_axis(min(every), max(every)) if 0 < 10 * min(every) < max(every) else {}


def sized(chart: Chart, wide: float | str, tall: float) -> Chart:
    """The chart with its panel of that many pixels."""
    return {"width": wide, "height": tall, **chart}


def side_by_side(charts: Sequence[Chart], *, columns: int, spacing: float = 24.0) -> Chart:
    """Charts side by side, each with its own scales and legend."""
    apart = dict.fromkeys(("x", "y", "color", "fill", "stroke", "strokeDash", "shape"), "independent")
    return {"concat": list(charts), "columns": columns, "spacing": spacing, "resolve": {"scale": apart}}


def footnote(*lines: str) -> Chart:
    """Small print below a chart, as its title."""
    return {"text": list(lines), "orient": "bottom", "fontSize": 9.5, "color": SOFT}


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


def svg_of(chart: Chart, *, label: str, dark: bool = False) -> str:
    """The figure as SVG text, the same text every time; `label` says what is to be seen.

    dark: for a page on a screen: it turns dark with the page, or where the reader's screen is dark.
    """
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
    text = text.replace("<svg ", f'<svg role="img" aria-label={named} ', 1).replace("><", ">\n<") + "\n"
    return (
        text.replace(">\n", f">\n<style>@media (prefers-color-scheme: dark) {{ {_NIGHT} }}</style>\n", 1)
        if dark
        else text
    )


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
    return need_package("vl_convert", "Figures are drawn by vl-convert", "lab")


def asset(name: str) -> str:
    """A file of a page that is written in another language than Python."""
    return resources.files("softknee.lab").joinpath(name).read_text(encoding="utf-8")


@cache
def page_script() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, for pages that draw their figures themselves."""
    return _converter().javascript_bundle().replace("</script", "<\\/script")


def check_ending(path: str | PathLike[str], endings: Sequence[str] = ENDINGS) -> str:
    """The ending of a figure's file; another is refused before anything is trained or drawn."""
    kind = Path(path).suffix.lower()
    if kind not in endings:
        raise ParameterError(
            f"A figure is written as {', '.join(endings[:-1])} or {endings[-1]}, and {os.fspath(path)!r} ends in "
            f"{kind or 'none'}; choose one of these endings."
        )
    return kind


def write_figure(
    chart: Chart, path: str | PathLike[str], *, label: str, endings: Sequence[str] = ENDINGS, scale: float = _SHARP
) -> Path:
    """Write it, and return where it is; `label` says in a .svg what is to be seen, `scale` is as in `png_of`."""
    kind = check_ending(path, endings)
    picture = (
        svg_of(chart, label=label)
        if kind == ".svg"
        else pdf_of(chart)
        if kind == ".pdf"
        else png_of(chart, scale=scale)
    )
    return write_whole(path, picture, what="figure")


# Colours at equal distances: viridis and magma of matplotlib (CC0), RdBu of ColorBrewer from blue to red.
RAMPS = {
    "gray": "#000000 #ffffff",
    "viridis": "#440154 #482878 #3e4a89 #31688e #26828e #1f9e89 #35b779 #6dcd59 #b4de2c #fde725",
    "magma_r": "#fcfdbf #fec98d #fd9567 #f1605d #cd3f71 #9e2f7f #721f81 #440f76 #180f3d #000004",
    "RdBu_r": "#053061 #2166ac #4393c3 #92c5de #d1e5f0 #f7f7f7 #fddbc7 #f4a582 #d6604d #b2182b #67001f",
}


def rgb(colour: str) -> tuple[float, float, float]:
    """A colour such as #d55e00 as three numbers from 0 to 1."""
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return red, green, blue


def coloured(values: Tensor, ramp: str, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Colours [..., 3] from 0 to 1 of values, those outside of `low` and `high` as the ends of the ramp.

    >>> coloured(torch.tensor([0.0, 0.5, 2.0]), "gray")
    tensor([[0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.5000],
            [1.0000, 1.0000, 1.0000]])
    """
    stops = torch.tensor([rgb(colour) for colour in RAMPS[ramp].split()])
    share = ((values.float() - low) / ((high - low) or 1.0)).clamp(0, 1) * (len(stops) - 1)
    below = share.floor().long().clamp(max=len(stops) - 2)
    return torch.lerp(stops[below], stops[below + 1], (share - below).unsqueeze(-1))


def address(picture: Tensor) -> str:
    """Colours [rows, columns, 3 or 4] from 0 to 1 as a PNG in a data address, which a figure shows as an image."""
    rows, columns, channels = picture.shape
    values = (picture.clamp(0, 1) * 255).round().to(torch.uint8)
    lines = torch.cat([torch.zeros(rows, 1, dtype=torch.uint8), values.reshape(rows, -1)], dim=1)  # 0: not filtered
    head = struct.pack(">2I5B", columns, rows, 8, {3: 2, 4: 6}[channels], 0, 0, 0)
    body = zlib.compress(lines.numpy().tobytes(), 9)
    parts = ((b"IHDR", head), (b"IDAT", body), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
    return "data:image/png;base64," + base64.b64encode(png).decode()


_INCH = 96  # pixels


class Page:
    """A figure that is laid out in inches from its upper left corner."""

    def __init__(self, wide: float, tall: float) -> None:
        self.wide, self.tall = wide, tall
        self._layers: list[Chart] = []
        self._texts: dict[tuple[Any, ...], list[Row]] = {}

    @property
    def figure(self) -> Chart:
        """The chart; words lie over everything else."""
        texts = [
            marks("text", rows, {**self.where, "text": {"field": "text"}}, **dict(look))
            for look, rows in self._texts.items()
        ]
        return sized({"layer": [*self._layers, *texts], "padding": 0}, _INCH * self.wide, _INCH * self.tall)

    @property
    def where(self) -> Chart:
        """Places on the page, from its upper left corner to its lower right one."""
        return {
            "x": number("x", domain=(0, self.wide), axis=None),
            "y": number("y", domain=(self.tall, 0), axis=None),
        }

    def write(
        self,
        left: float,
        top: float,
        text: str,
        *,
        size: float = 8,
        colour: str = INK,
        align: str = "center",
        baseline: str = "top",
        weight: str = "normal",
        angle: float = 0,
    ) -> None:
        """Words, in points; lines are broken where the text is."""
        look = {"fontSize": size * _INCH / 72, "color": colour, "align": align, "baseline": baseline}
        look |= {"fontWeight": weight, "angle": angle}
        row = {"x": left, "y": top, "text": text.split("\n") if "\n" in text else text}
        self._texts.setdefault(tuple(look.items()), []).append(row)

    def footnote(self, text: str, *, left: float = 0.12) -> None:
        """A line of small print at the foot of the page."""
        self.write(left, self.tall - 0.08, text, size=7, colour=SOFT, align="left", baseline="bottom")

    def box(self, left: float, top: float, wide: float, tall: float, **look: Any) -> None:
        """A rectangle."""
        row = {"x": left, "y": top, "right": left + wide, "bottom": top + tall}
        sides = {"x2": {"field": "right"}, "y2": {"field": "bottom"}}
        self._layers.append(marks("rect", [row], {**self.where, **sides}, **look))

    def image(self, left: float, top: float, wide: float, tall: float, picture: Tensor, *, framed: bool = True) -> None:
        """Colours [rows, columns, 3 or 4], in a thin frame."""
        size = {"width": _INCH * wide, "height": _INCH * tall, "aspect": False}
        look = {**size, "align": "left", "baseline": "top", "url": address(picture), "smooth": False}
        self._layers.append(marks("image", [{"x": left, "y": top}], self.where, **look))
        if framed:
            self.box(left, top, wide, tall, filled=False, stroke=SOFT, strokeWidth=0.5)

    def line(self, points: Iterable[tuple[float, float]], **look: Any) -> None:
        """A line through these places."""
        rows = [{"x": x, "y": y, "place": place} for place, (x, y) in enumerate(points)]
        order = {"order": {"field": "place", "type": "quantitative"}}
        self._layers.append(marks("line", rows, {**self.where, **order}, **look))

    def points(self, rows: Iterable[Row], **look: Any) -> None:
        """Marks at places x and y of the page."""
        self._layers.append(marks("point", rows, self.where, opacity=1, **look))
