"""Lines to panels with matplotlib: its objects alone, no global state and no display."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import MissingToolError
from .curves import Curve, thin
from .figure_lines import INK, Line, bounds
from .figure_svg import tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = (r"$f\,(x)$", r"$f\,'(x)$", r"$f\,''(x)$")
# Inches; 9.2 are 883 pixels, the width of a page of documentation.
WIDE, TALL = (9.2, 3.0), (4.4, 8.6)
_LABELS, _TICKS, _TITLE, _EDGE, _HANDLE, _LETTER = 0.44, 0.27, 0.29, 0.12, 0.6, 0.077
_SOFT, _HAIR, _ZERO = "#6a6963", "#e8e7e2", "#b9b8b1"
_DOTS: Any = (0, (0.01, 2.1))  # round caps make each dash a dot
_STYLE: Any = {
    "svg.hashsalt": "softknee",
    "svg.fonttype": "path",  # glyphs travel along: the same picture on every machine
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "mathtext.fontset": "dejavusans",
    "font.size": 9,
    "path.simplify": False,  # thinned already, to points that are values
}
_LONG_TICK = 5  # more signs than that, and six numbers do not fit beside a panel
_TOLERANCE = 0.06  # how far a point that is left out may lie off the line, in 1/72 inch
_DPI = 160


_Box: TypeAlias = tuple[float, float, float, float]


@contextmanager
def _style() -> Iterator[None]:
    """Our settings of matplotlib, whatever the user's are."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "Figures are drawn by matplotlib, which is not installed. Install it with: pip install 'softknee[lab]'"
        ) from error
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


@contextmanager
def drawing(size: tuple[float, float]) -> Iterator[Figure]:
    """An empty figure of that many inches, to be furnished."""
    with _style():
        from matplotlib.figure import Figure

        yield Figure(figsize=size, facecolor="white")


def panels(
    rows: Sequence[Sequence[Line]],
    *,
    low: float | None = None,
    high: float | None = None,
    stacked: bool = False,
    note: str = "",
) -> Figure:
    """f, f' and f'' of the lines beside each other, a row for each group of lines, with a legend above each row."""
    low, high = bounds([line for lines in rows for line in lines], low, high)
    size = TALL if stacked else (WIDE[0], WIDE[1] * len(rows))
    with drawing(size) as figure:
        for place, lines in enumerate(rows):
            curves = [line.between(low, high) for line in lines]
            top = size[1] - place * WIDE[1]
            head = _legend(figure, lines, note, size, top)
            for order in range(3):
                one = figure.add_axes(_box(order, size, top, head, stacked))
                _panel(one, order, lines, curves, (low, high), f"{place}-{order}")
    return figure


def _box(order: int, size: tuple[float, float], top: float, head: float, stacked: bool) -> _Box:
    """Where a panel stands, in shares of the figure; the same in every figure, so that pages look alike."""
    across, down = (1, 3) if stacked else (3, 1)
    wide = (size[0] - _EDGE - across * _LABELS) / across
    tall = ((size[1] if stacked else WIDE[1]) - head - down * (_TITLE + _TICKS)) / down
    left = _LABELS + (0 if stacked else order * (wide + _LABELS))
    bottom = top - head - (order + 1 if stacked else 1) * (tall + _TITLE + _TICKS) + _TICKS
    return left / size[0], bottom / size[1], wide / size[0], tall / size[1]


def _panel(
    axes: Axes, order: int, lines: Sequence[Line], curves: Sequence[Curve], reach: tuple[float, float], name: str
) -> None:
    heights = [0.0]
    for curve in curves:
        heights += [y for run in curve.runs[order : order + 1] for part in run for y in part.ys]
        heights += [weight for _, weight in curve.masses[order]] if order == 2 else []
    bottom, top = min(heights), max(heights)
    room = 0.07 * ((top - bottom) or 1.0)
    axes.set(xlim=reach, ylim=(bottom - room, top + room))
    furnish(axes)
    axes.set_title(NAMES[order], loc="left", fontsize=10.5, color=INK, pad=5)
    axes.patch.set_gid(f"panel-{name}")
    # Thinning needs the scale of the drawing to a few percent: a panel is about 2.7 by 2.1 inches.
    scale = 2.7 * 72 / (reach[1] - reach[0]), 2.1 * 72 / (top - bottom + 2 * room)
    for index, (line, curve) in enumerate(zip(lines, curves, strict=True)):
        _strokes(axes, order, line, curve, scale, name=f"{name}-{index}")


def furnish(axes: Axes) -> None:
    """Hairlines instead of a frame, and the lines through zero a little stronger."""
    axes.grid(color=_HAIR, linewidth=0.7, clip_on=False)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8, labelcolor=_SOFT, pad=4)
    axes.locator_params(nbins=6)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: _tick(value))
        if max(len(_tick(value)) for value in axis.get_majorticklocs()) > _LONG_TICK:
            locator: Any = axis.get_major_locator()
            locator.set_params(nbins=3)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for rule in (axes.axhline, axes.axvline):
        rule(0, color=_ZERO, linewidth=0.9, zorder=0.9)


def _tick(value: float) -> str:
    """A number beside an axis, with a true minus sign: 0.25, −3, 5e−7."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.4g}").replace("-", "−")


def _look(line: Line) -> dict[str, Any]:
    if line.dotted:
        return {"color": line.colour, "linewidth": 1.7, "linestyle": _DOTS, "dash_capstyle": "round", "zorder": 3}
    return {"color": line.colour, "linewidth": 1.9, "solid_capstyle": "butt", "solid_joinstyle": "round"}


def _strokes(axes: Axes, order: int, line: Line, curve: Curve, scale: tuple[float, float], *, name: str) -> None:
    from matplotlib.path import Path as Outline

    look = _look(line)
    for part, run in enumerate(curve.runs[order] if order < len(curve.runs) else ()):
        kept = thin(run, scale_x=scale[0], scale_y=scale[1], tolerance=_TOLERANCE)
        axes.plot(kept.xs, kept.ys, gid=f"line-{name}-{part}", **look)
    if order == 2:
        for place, weight in curve.masses[order]:
            below = -1.0 if weight > 0 else 1.0
            head: Any = Outline([(-0.45, below), (0.0, 0.0), (0.45, below), (-0.45, below)])
            axes.plot([place, place], [0, weight], gid=f"mass-{name}", **{**look, "linewidth": 1.3})
            axes.plot([place], [weight], marker=head, markersize=13, markeredgewidth=0, color=line.colour, zorder=3.1)


def _legend(figure: Figure, lines: Sequence[Line], note: str, size: tuple[float, float], top: float) -> float:
    """The legend above a row, in as many lines of text as it needs; returns how many inches it takes."""
    from matplotlib.lines import Line2D

    named = [line for line in lines if line.label]
    handles: list[Any] = [Line2D([], [], **_look(line)) for line in named]
    words = [line.label for line in named]
    if note:
        handles, words = [*handles, Line2D([], [], linewidth=0)], [*words, note]
    widths = [_HANDLE + _LETTER * len(re.sub(r"[${}_^]", "", re.sub(r"\\[A-Za-z]+", "c", one))) for one in words]
    free = size[0] - _LABELS - _EDGE
    columns = len(words) if sum(widths) < free else max(1, int(free / max(widths)))
    figure.legend(
        handles,
        words,
        loc="upper left",
        bbox_to_anchor=((_LABELS - 0.1) / size[0], top / size[1]),
        ncols=columns,
        frameon=False,
        handlelength=2.0,
        columnspacing=1.8,
        borderaxespad=0.3,
        labelcolor=INK,
    )
    return 0.1 + 0.19 * math.ceil(len(words) / columns)


# -- pictures ---------------------------------------------------------------------------------------------


def svg_of(figure: Figure, *, label: str) -> str:
    """The figure as SVG text, the same text every time: no date, no version, numbers of two decimals."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer: Any = io.StringIO()
    with _style():
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)
    named = {one.patch.get_gid(): one for one in figure.axes}
    views = {name: (*one.get_xlim(), *one.get_ylim()) for name, one in named.items() if name}
    return tidy(buffer.getvalue(), label=label, views=views)


def png_of(figure: Figure) -> bytes:
    """The figure as PNG, at twice the pixels of a common screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    with _style():
        figure.set_dpi(_DPI)
        FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})
    return buffer.getvalue()
