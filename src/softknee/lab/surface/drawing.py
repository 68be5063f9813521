"""Surfaces to a figure: a relief seen from above the corner, or a map with contours, lit from the side either way.

Each surface has its own scale of heights, whose ends stand beside it: smoothness is a matter of shape. Light shows what
colour does not: a kink is an edge between two shades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, grid_sample, interpolate

from ...errors import ParameterError, did_you_mean
from ..chart import INK, SOFT, Chart
from ..pixels import coloured, rgb
from ..sheet import Page
from .layouts import Rows
from .network import REACH
from .roughness import Roughness
from .words import titles

VIEWS = ("relief", "map")
_HAIR = "#d9d8d2"
_TURN, _TILT, _RISE = math.radians(35), math.radians(32), 8.0  # of the relief; its height, where the floor has side 12
_SIDE, _LABEL, _TITLE, _CAPTION = 2.35, 0.55, 0.42, 0.34  # inches
_FINE = 300  # pixels of a picture to the inch
_LEVELS = 13
_MOST_EXTREMA = 200  # more than that, and contours hide the picture


def draw(
    rows: Rows, surfaces: Sequence[Sequence[Tensor]], measures: Sequence[Sequence[Roughness]], *, view: str
) -> Chart:
    """A figure of the surfaces, [n, n] each, in these rows."""
    check_view(view)
    caption, labels, names = titles(rows)
    columns = max(len(row) for row in rows)
    left = _LABEL if any(labels) else 0.2
    side = _SIDE if columns > 2 else 3.2
    tall = side * (0.79 if view == "relief" else 1.0) + _TITLE
    sheet = Page(left + columns * side + 0.08, len(rows) * tall + _CAPTION)
    for line, row in enumerate(rows):
        top = line * tall
        sheet.write(0.2, top + tall / 2, labels[line], size=9, angle=270, baseline="middle")
        for column in range(len(row)):
            measured, start = measures[line][column], left + column * side
            heights = (surfaces[line][column] - measured.low) / ((measured.high - measured.low) or 1.0)
            (_relief if view == "relief" else _map)(sheet, (start, top + _TITLE, side), heights.float(), measured)
            note = f"kink {_short(measured.kink)}, bending {_short(measured.bending)}, extrema {measured.extrema}"
            sheet.write(start + side / 2, top + 0.09, names[line][column], size=9)
            sheet.write(start + side / 2, top + 0.27, note, size=6.5, colour=SOFT)
    sheet.write(
        0.12, sheet.tall - 0.1, f"{caption[:1].upper()}{caption[1:]}", colour=SOFT, align="left", baseline="bottom"
    )
    return sheet.figure


def check_view(view: str) -> None:
    """Refuse a view that is none."""
    if view not in VIEWS:
        near = did_you_mean(view, VIEWS) or f" Known are {', '.join(VIEWS)}."
        raise ParameterError(f"There is no view called {view!r}.{near}")


def _shaded(heights: Tensor) -> Tensor:
    """Colours [n, n, 3] of heights in [0, 1], lit from the left."""
    step = 2 * REACH / (heights.shape[0] - 1)
    first, second = torch.gradient(heights * _RISE, spacing=step)
    normal = torch.nn.functional.normalize(torch.stack([-first, -second, torch.ones_like(first)], dim=2), dim=2)
    light = torch.nn.functional.normalize(torch.tensor([-0.62, 0.18, 0.76]), dim=0)
    shade = (normal @ light).clamp(0, 1).unsqueeze(2)
    return (coloured(heights, "viridis") * (0.45 + 0.65 * shade) + 0.1 * shade**6).clamp(0, 1)


def _short(value: float) -> str:
    """Three digits, thousands as k, with the sign that typographers use."""
    if abs(value) < 1e-6:
        return "0"
    size = abs(value)
    text = f"{value:.3g}" if size < 999.5 else f"{value / 1000:.3g}k" if size < 999_500 else f"{value:.1e}"
    return text.replace("-", "−")


# -- the relief -------------------------------------------------------------------------------------------


def _seen(x: float, y: float, z: float) -> tuple[float, float]:
    """Where a point is seen, to the right and upwards; z in [0, 1]."""
    right = x * math.cos(_TURN) - y * math.sin(_TURN)
    away = x * math.sin(_TURN) + y * math.cos(_TURN)
    return right, away * math.sin(_TILT) + z * _RISE * math.cos(_TILT)


def _relief(sheet: Page, place: tuple[float, float, float], heights: Tensor, measured: Roughness) -> None:
    """The surface over its floor, the two inputs along the front edges, the heights beside the left corner."""
    edge = _seen(-REACH, REACH, 0.0)[0] - 1.5
    left, right = edge - 3.4, _seen(REACH, -REACH, 0.0)[0] + 0.9
    bottom, top = _seen(-REACH, -REACH, 0.0)[1] - 1.3, _seen(REACH, REACH, 1.0)[1]
    inch = place[2] / (right - left)

    def at(seen: tuple[float, float]) -> tuple[float, float]:
        return place[0] + (seen[0] - left) * inch, place[1] + (top - seen[1]) * inch

    for value in (-REACH, -REACH / 2, 0.0, REACH / 2, REACH):
        sheet.line([at(_seen(value, -REACH, 0.0)), at(_seen(value, REACH, 0.0))], color=_HAIR, strokeWidth=0.8)
        sheet.line([at(_seen(-REACH, value, 0.0)), at(_seen(REACH, value, 0.0))], color=_HAIR, strokeWidth=0.8)
    picture = _painted(heights, (left, right, bottom, top), round(_FINE * place[2]))
    sheet.image(place[0], place[1], place[2], (top - bottom) * inch, picture, framed=False)
    for value in (-REACH, 0.0, REACH):
        for seen, name in ((_seen(value, -REACH - 1.2, 0.0), "x₁"), (_seen(-REACH - 1.2, value, 0.0), "x₂")):
            sheet.write(*at(seen), name if value == 0 else _short(value), size=6.5, colour=SOFT, baseline="middle")
    ends = _seen(-REACH, REACH, 0.0)[1], _seen(-REACH, REACH, 1.0)[1]
    sheet.line([at((edge, ends[0])), at((edge, ends[1]))], color=SOFT, strokeWidth=1)
    for height, value in zip(ends, (measured.low, measured.high), strict=True):
        sheet.line([at((edge - 0.2, height)), at((edge, height))], color=SOFT, strokeWidth=1)
        text = at((edge - 0.35, height))
        sheet.write(*text, _short(value), size=6.5, colour=SOFT, align="right", baseline="middle")


def _painted(heights: Tensor, view: tuple[float, float, float, float], columns: int) -> Tensor:
    """The relief as pixels [rows, columns, 4]: in each column of the picture the surface is followed from the front to
    the back, and a pixel shows what first rises to it. Twice as fine, and averaged.
    """
    left, right, bottom, top = view
    rows = round(columns * (top - bottom) / (right - left))
    across = torch.linspace(left, right, 2 * columns)
    upright = torch.linspace(top, bottom, 2 * rows)
    far = math.hypot(REACH, REACH)
    away = torch.linspace(-far, far, 4 * columns)
    x = across[:, None] * math.cos(_TURN) + away * math.sin(_TURN)
    y = away * math.cos(_TURN) - across[:, None] * math.sin(_TURN)
    inside = (x.abs() <= REACH) & (y.abs() <= REACH)
    z = _sampled(heights.unsqueeze(2), x, y)[..., 0]
    rises = torch.where(inside, away * math.sin(_TILT) + z * _RISE * math.cos(_TILT), -math.inf)
    highest, _ = rises.cummax(dim=1)
    first = torch.searchsorted(highest.contiguous(), upright.expand(2 * columns, -1).contiguous())
    nearest = rises.gather(1, inside.int().argmax(dim=1, keepdim=True))
    there = (first < len(away)) & (upright >= nearest) & inside.any(dim=1, keepdim=True)
    first = first.clamp(max=len(away) - 1)
    colours = _sampled(_shaded(heights), x.gather(1, first), y.gather(1, first))
    picture = torch.cat([colours * there.unsqueeze(2), there.unsqueeze(2)], dim=2).transpose(0, 1)
    coarse = avg_pool2d(picture.permute(2, 0, 1), 2).permute(1, 2, 0)
    return torch.cat([coarse[..., :3] / coarse[..., 3:].clamp_min(1e-6), coarse[..., 3:]], dim=2)


def _sampled(grid: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Values [..., c] of a grid [n, n, c] over the floor, at these places."""
    places = torch.stack([y, x], dim=-1).unsqueeze(0) / REACH
    values = grid_sample(grid.permute(2, 0, 1).unsqueeze(0), places, padding_mode="border", align_corners=True)
    return values[0].permute(1, 2, 0)


# -- the map ----------------------------------------------------------------------------------------------


def _map(sheet: Page, place: tuple[float, float, float], heights: Tensor, measured: Roughness) -> None:
    """The surface from above, the first input to the right and the second upwards."""
    inch = place[2] / (2 * REACH + 1.6)
    left, top, side = place[0] + 1.1 * inch, place[1] + 0.3 * inch, 2 * REACH * inch
    pixels = round(_FINE * side)

    def upwards(values: Tensor) -> Tensor:
        wide = interpolate(
            values.permute(2, 1, 0).unsqueeze(0), size=(pixels, pixels), mode="bilinear", align_corners=True
        )
        return wide[0].permute(1, 2, 0).flip(0)

    picture = upwards(_shaded(heights))
    if measured.high > measured.low and measured.extrema < _MOST_EXTREMA:
        levels = (upwards(heights.unsqueeze(2))[..., 0] * _LEVELS).floor()
        edges = torch.zeros_like(levels, dtype=torch.bool)
        for half in (slice(1, None), slice(None, -1)):
            edges[:, half] |= levels.diff(dim=1) != 0
            edges[half] |= levels.diff(dim=0) != 0
        picture = torch.where(edges.unsqueeze(2), 0.6 * picture + 0.4 * torch.tensor(rgb(INK)), picture)
    sheet.image(left, top, side, side, picture, framed=False)
    for value in (-REACH, 0.0, REACH):
        along = (value + REACH) * inch
        words = "x₁" if value == 0 else _short(value), "x₂" if value == 0 else _short(value)
        sheet.write(left + along, top + side + 0.25 * inch, words[0], size=6.5, colour=SOFT)
        where = left - 0.25 * inch, top + side - along
        sheet.write(*where, words[1], size=6.5, colour=SOFT, align="right", baseline="middle")
