"""Surfaces to a figure: a relief seen from above the corner, or a map with contours, lit from the side either way.

Each surface has its own scale of heights, whose ends stand beside it: smoothness is a matter of shape. Light shows what
colour does not: a kink is an edge between two shades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError, did_you_mean
from ..figure_panels import drawing
from .layouts import Rows
from .network import REACH
from .roughness import Roughness
from .words import titles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VIEWS = ("relief", "map")
_INK, _SOFT, _HAIR = "#22221f", "#6a6963", "#d9d8d2"
_COLOURS = "viridis"
_TURN, _TILT, _RISE = math.radians(35), math.radians(32), 8.0  # of the relief; its height, where the floor has side 12
_SIDE, _LABEL, _TITLE, _CAPTION = 2.35, 0.55, 0.42, 0.34  # inches


def draw(
    rows: Rows, surfaces: Sequence[Sequence[Any]], measures: Sequence[Sequence[Roughness]], *, view: str, dpi: int
) -> Figure:
    """A figure of the surfaces, arrays [n, n], in these rows."""
    check_view(view)
    caption, labels, names = titles(rows)
    columns = max(len(row) for row in rows)
    left = _LABEL if any(labels) else 0.2
    side = _SIDE if columns > 2 else 3.2
    tall = side * (0.79 if view == "relief" else 1.0) + _TITLE
    wide, high = left + columns * side + 0.08, len(rows) * tall + _CAPTION
    with drawing((wide, high)) as figure:
        figure.set_dpi(dpi)

        def write(x: float, y: float, text: str, **how: Any) -> None:
            """At so many inches from the left and from the foot of the page."""
            figure.text(x / wide, y / high, text, **how)

        for line, row in enumerate(rows):
            top = high - line * tall
            write(0.2, top - tall / 2, labels[line], rotation=90, ha="center", va="center", size=9, color=_INK)
            for column in range(len(row)):
                found, start = measures[line][column], left + column * side
                box = (start / wide, (top - tall) / high, side / wide, (tall - _TITLE) / high)
                _panel(figure.add_axes(box), surfaces[line][column], found, view)
                note = f"kink {_short(found.kink)}   bending {_short(found.bending)}   extrema {found.extrema}"
                middle: dict[str, Any] = {"ha": "center", "va": "top"}
                write(start + side / 2, top - 0.09, names[line][column], size=9, color=_INK, **middle)
                write(start + side / 2, top - 0.27, note, size=6.5, color=_SOFT, **middle)
        write(0.12, 0.1, f"{caption[:1].upper()}{caption[1:]}", size=8, color=_SOFT)
    return figure


def check_view(view: str) -> None:
    """Refuse a view that is none."""
    if view not in VIEWS:
        near = did_you_mean(view, VIEWS) or f" Known are {', '.join(VIEWS)}."
        raise ParameterError(f"There is no view called {view!r}.{near}")


def _panel(axes: Axes, surface: Any, found: Roughness, view: str) -> None:
    axes.set_axis_off()
    span = found.high - found.low
    flat = span <= 0
    heights = (surface - found.low) / (1.0 if flat else span)
    _relief(axes, heights, found) if view == "relief" else _map(axes, heights, found)


def _shaded(heights: Any) -> Any:
    """Colours [n, n, 4] of heights in [0, 1], lit from the left."""
    import matplotlib
    import numpy as np

    step = 2 * REACH / (heights.shape[0] - 1)
    first, second = np.gradient(heights * _RISE, step)
    normal = np.stack([-first, -second, np.ones_like(first)], axis=2)
    normal /= np.linalg.norm(normal, axis=2, keepdims=True)
    light = np.array([-0.62, 0.18, 0.76])
    shade = (normal @ (light / np.linalg.norm(light))).clip(0.0, 1.0)[..., None]
    colours = matplotlib.colormaps[_COLOURS](heights)
    colours[..., :3] = (colours[..., :3] * (0.45 + 0.65 * shade) + 0.1 * shade**6).clip(0.0, 1.0)
    return colours


def _seen(x: Any, y: Any, z: Any) -> tuple[Any, Any]:
    """Where a point stands on the page; z in [0, 1]."""
    right = x * math.cos(_TURN) - y * math.sin(_TURN)
    away = x * math.sin(_TURN) + y * math.cos(_TURN)
    return right, away * math.sin(_TILT) + z * _RISE * math.cos(_TILT)


def _relief(axes: Axes, heights: Any, found: Roughness) -> None:
    import numpy as np

    for value in np.linspace(-REACH, REACH, 5):
        axes.plot(*_seen(np.array([value, value]), np.array([-REACH, REACH]), 0.0), color=_HAIR, lw=0.6, zorder=0)
        axes.plot(*_seen(np.array([-REACH, REACH]), np.array([value, value]), 0.0), color=_HAIR, lw=0.6, zorder=0)
    _furnish_relief(axes, found)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    axes.imshow(_painted(heights, axes), extent=(left, right, bottom, top), zorder=2, interpolation="antialiased")


def _painted(heights: Any, axes: Axes) -> Any:
    """The relief as pixels [rows, columns, 4], cell by cell from the back to the front.

    Smoothed edges of cells would let the page shine through their seams, so that they are painted sharp, three times
    finer than the page, and averaged.
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    along = np.linspace(-REACH, REACH, heights.shape[0])
    x, y = np.meshgrid(along, along, indexing="ij")
    points = np.stack(_seen(x, y, heights), axis=2)
    corners = np.stack([points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]], axis=2).reshape(-1, 4, 2)
    colours = _shaded(heights)
    faces = (colours[:-1, :-1] + colours[1:, :-1] + colours[1:, 1:] + colours[:-1, 1:]).reshape(-1, 4) / 4
    away = (x * math.sin(_TURN) + y * math.cos(_TURN))[:-1, :-1].ravel()
    far_first = np.argsort(-away, kind="stable")
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    wide = 3 * axes.bbox.width
    figure = Figure(figsize=(wide / 100, wide / 100 * (top - bottom) / (right - left)), dpi=100, facecolor="none")
    inner = figure.add_axes((0, 0, 1, 1))
    inner.set_axis_off()
    inner.set(xlim=(left, right), ylim=(bottom, top))
    cells = PolyCollection(list(corners[far_first]), facecolors=faces[far_first], edgecolors="none", antialiaseds=False)
    inner.add_collection(cells, autolim=False)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    fine = np.asarray(canvas.buffer_rgba(), dtype=np.float64) / 255
    fine = fine[: fine.shape[0] // 2 * 2, : fine.shape[1] // 2 * 2]
    opaque = fine[..., 3:]
    blocks = np.concatenate([fine[..., :3] * opaque, opaque], axis=2).reshape(
        fine.shape[0] // 2, 2, fine.shape[1] // 2, 2, 4
    )
    coarse = blocks.mean(axis=(1, 3))
    coarse[..., :3] /= np.maximum(coarse[..., 3:], 1e-9)
    return coarse.clip(0.0, 1.0)


def _furnish_relief(axes: Axes, found: Roughness) -> None:
    """The two inputs along the front edges, the heights beside the left corner."""
    small: dict[str, Any] = {"size": 6.5, "color": _SOFT}
    for value in (-REACH, 0.0, REACH):
        across, deep = _seen(value, -REACH - 1.2, 0.0), _seen(-REACH - 1.2, value, 0.0)
        axes.text(*across, "$x_1$" if value == 0 else _short(value), ha="center", va="center", **small)
        axes.text(*deep, "$x_2$" if value == 0 else _short(value), ha="center", va="center", **small)
    (left, foot), (_, head) = _seen(-REACH, REACH, 0.0), _seen(-REACH, REACH, 1.0)
    left -= 1.5
    axes.plot([left, left], [foot, head], color=_SOFT, lw=0.8, zorder=0)
    for height, value in ((foot, found.low), (head, found.high)):
        axes.plot([left - 0.2, left], [height, height], color=_SOFT, lw=0.8, zorder=0)
        axes.text(left - 0.35, height, _short(value), ha="right", va="center", **small)
    right, _ = _seen(REACH, -REACH, 0.0)
    _, bottom = _seen(-REACH, -REACH, 0.0)
    _, top = _seen(REACH, REACH, 1.0)
    axes.set_xlim(left - 3.4, right + 0.9)
    axes.set_ylim(bottom - 1.3, top)
    axes.set_aspect("equal")


def _map(axes: Axes, heights: Any, found: Roughness) -> None:
    import numpy as np

    extent = (-REACH, REACH, -REACH, REACH)
    axes.imshow(_shaded(heights).swapaxes(0, 1), extent=extent, origin="lower", interpolation="bilinear")
    along = np.linspace(-REACH, REACH, heights.shape[0])
    if found.high > found.low and found.extrema < 200:  # more than that, and the lines hide the picture
        levels = np.linspace(0, 1, 14)[1:-1].tolist()
        axes.contour(along, along, heights.T, levels=levels, colors=_INK, linewidths=0.35, alpha=0.55)
    small: dict[str, Any] = {"size": 6.5, "color": _SOFT}
    for value in (-REACH, 0.0, REACH):
        axes.text(value, -REACH - 0.25, "$x_1$" if value == 0 else _short(value), ha="center", va="top", **small)
        axes.text(-REACH - 0.25, value, "$x_2$" if value == 0 else _short(value), ha="right", va="center", **small)
    axes.set_xlim(-REACH - 1.1, REACH + 0.5)
    axes.set_ylim(-REACH - 1.3, REACH + 0.3)
    axes.set_aspect("equal")


def _short(value: float) -> str:
    """Three digits, thousands as k, with the sign that typographers use."""
    if abs(value) < 1e-6:
        return "0"
    size = abs(value)
    text = f"{value:.3g}" if size < 999.5 else f"{value / 1000:.3g}k" if size < 999_500 else f"{value:.1e}"
    return text.replace("-", "−")
