"""The figures for a paper, by matplotlib, as PDF or PNG: numbers and colours as on the page, always the same bytes."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..figure_panels import drawing, png_of
from .curves import CURVES, MOST_BANDS, beside_the_end, ends_of, first_shown
from .drawn import curve_of, reach_of
from .figures import after_epochs
from .numbers import few_epochs, log_ticks, plain
from .palette import COLOURS, DASHES, SYMBOLS, Look, looks
from .parts import Band, Profile, Shape, Summary
from .placing import Room
from .shapes import at_start, knob_name, site_name
from .view import Group, View, Written, axis_title, interval_of, middle_of, view_of, written_at

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SYMBOLS: dict[str, str] = dict(zip(SYMBOLS, ("o", "s", "D", "^", "P", "*", "p", "h", "v", "X"), strict=True))
_STROKES: Any = dict(zip(DASHES, ("-", "--", ":", "-.", (0, (8, 3))), strict=True))
_INK, _SOFT, _HAIR = "#22221f", "#6a6963", "#e4e3de"
_WIDE, _TALL = 6.2, 2.9  # inches; a line of text in a paper is about 6
_ROW = 2.7  # inches of a row of panels
_MOST_NAMES = 24  # of sites, beside each other


def pdf_figures(summary: Summary, *, png: bool = False) -> dict[str, tuple[bytes, str]]:
    """Content and caption of each figure that there is something to show in, by name; as PNG where asked for."""
    with _as_png(png):
        return _figures(summary)


def _figures(summary: Summary) -> dict[str, tuple[bytes, str]]:
    found: dict[str, tuple[bytes, str]] = {}
    view = view_of(summary)
    if view is not None:
        words = f"{view.metric.title} against {view.spread.title}; bars are 95 % intervals"
        joined = "; a line joins the values of a knob in their order" if summary.knobs else ""
        found["plane"] = plane_pdf(summary, view), f"{words}{joined}. {view.caption}".strip()
    for name, (title, axis, scale) in CURVES.items():
        bands = [band for band in summary.bands if band.curve == name and band.label in first_shown(summary)]
        if bands and name in ("validation_accuracy", "train_loss"):
            words = f"{title} {after_epochs(bands[0].epochs)}: mean over seeds with its 95 % interval"
            words += " at the end" if len(bands) > MOST_BANDS else ""
            gone = "; every seed where one diverged" if any(band.each for band in bands) else ""
            found[name.replace("_", "-")] = _curves(looks(summary), bands, axis, scale), f"{words}{gone}."
    if summary.shapes:
        words = "What activations learned: dashed the start, lines the mean of the learned parameters at each site"
        found["shapes"] = _shapes(summary.shapes), f"{words}."
    if summary.profiles:
        words = "The knob by depth after training: mean over seeds, from the lowest to the highest; dotted the start"
        found["hardness"] = _hardness(summary), f"{words}."
    return found


# -- each figure ------------------------------------------------------------------------------------------


def plane_pdf(summary: Summary, view: View) -> bytes:
    """The metric against the prediction difference, as on the page."""
    look = looks(summary)
    note = textwrap.fill(view.note, 84, max_lines=3, placeholder=" ...")
    named = [group for group in view.groups if any(row in view.shown for row in group.rows)]
    below, above = _legend_height(len(named)), 0.08 + 0.13 * (note.count("\n") + 1)
    height = 3.5 + below + above
    with _page(_WIDE, height) as (figure, content):
        left, bottom, wide, tall = 0.12, below / height, 0.85, 3.4 / height
        axes = figure.add_axes((left, bottom, wide, tall))
        _furnish(axes, axis_title(view.metric), axis_title(view.spread))
        axes.set_xlim(*view.spans[0])
        axes.set_ylim(*view.spans[1])
        for place, group in enumerate(view.groups):
            _path(axes, view, group, look[group.rows[0].label], name=group in named, height=3 + place / 100)
        letters = Room(72 * _WIDE * wide, 72 * height * tall, letter=4.3, line=8.5, mark=4.0)
        beside = written_at(view, room=letters)
        for row in view.shown:
            if row.label in beside:
                at = middle_of(row, view.metric, view.spread)
                _write_beside(axes, at, beside[row.label], look[row.label].colour)
        better = "better ↘" if view.metric.larger_is_better else "↙ better"
        for at, side, text in ((0.0, "left", note), (1.0, "right", better)):
            remark = axes.text(
                at, 1.01, text, transform=axes.transAxes, ha=side, va="bottom", fontsize=7.5, color=_SOFT
            )
            remark.set_parse_math(False)
        _legend(figure, axes)
    return content()


def _path(axes: Axes, view: View, group: Group, style: Look, *, name: bool, height: float) -> None:
    """The points of one activation with their intervals, and the line that joins the values of a knob."""
    metric, spread = view.metric, view.spread
    xs, ys = zip(*(middle_of(row, metric, spread) for row in group.rows), strict=True)
    bars = [
        [_sides(x, interval_of(row, one)) for row, x in zip(group.rows, at, strict=True)]
        for one, at in ((metric, xs), (spread, ys))
    ]
    axes.errorbar(
        xs,
        ys,
        xerr=list(zip(*bars[0], strict=True)),
        yerr=list(zip(*bars[1], strict=True)),
        fmt="none",
        ecolor=style.colour,
        elinewidth=0.7,
        capsize=1.5,
        alpha=0.45,  # many of them cross, and the points matter more
        zorder=2,
    )
    axes.plot(
        xs,
        ys,
        color=style.colour,
        marker=_SYMBOLS[style.symbol],
        markersize=5,
        linewidth=1.2,
        linestyle="-" if group.joined else "none",
        label=_safe(group.name) if name else "_",
        zorder=height,
    )


def _sides(value: float, interval: tuple[float, float] | None) -> tuple[float, float]:
    return (0.0, 0.0) if interval is None else (max(0.0, value - interval[0]), max(0.0, interval[1] - value))


def bands_png(look: Mapping[str, Look], bands: Sequence[Band], axis: str) -> bytes:
    """Curves of one's own over the epochs, drawn as those of a report."""
    with _as_png(True):
        return _curves(look, bands, axis, 1.0)


def _curves(look: Mapping[str, Look], bands: Sequence[Band], axis: str, scale: float) -> bytes:
    below = _legend_height(len(bands))
    with _page(_WIDE, _TALL + below) as (figure, content):
        axes = figure.add_axes(_above(below, _TALL))
        _furnish(axes, "epoch", axis)
        if bands and few_epochs(bands[0].epochs):
            axes.locator_params(axis="x", integer=True)
        for number, band in enumerate(bands):
            style = look[band.label]
            line: Any = {"color": style.colour, "linestyle": _STROKES[style.dash]}
            if band.each:
                for place, each in enumerate(band.each):
                    values = [math.nan if one is None else scale * one for one in each]
                    name = _safe(f"{band.label}, each seed") if place == 0 else None
                    axes.plot(band.epochs, values, linewidth=0.6, label=name, **line)
                continue
            epochs = band.epochs
            axes.plot(epochs, [scale * one for one in band.middle], linewidth=1.4, label=_safe(band.label), **line)
            if len(bands) > MOST_BANDS:
                _bar_at_the_end(axes, band, scale, style.colour, number)
                continue
            low, high = ([scale * one for one in edge] for edge in (band.low, band.high))
            axes.fill_between(epochs, low, high, color=style.colour, alpha=0.16, linewidth=0)
        every = [scale * one for band in bands for one in (*band.low, *band.high)]
        if axis.endswith("loss") and min(every, default=1.0) > 0 and (not every or log_ticks(min(every), max(every))):
            _logarithmic(axes)
        _legend(figure, axes)
    return content()


def _bar_at_the_end(axes: Any, band: Band, scale: float, colour: str, number: int) -> None:
    """The interval of the last epoch, to the right of the lines and beside those of the others."""
    above, below = ends_of(band)
    at, sides = beside_the_end(band, number), [[scale * below], [scale * above]]
    axes.errorbar([at], [scale * band.middle[-1]], yerr=sides, color=colour, fmt=".", ms=4, lw=1, capsize=1.5)


def _shapes(shapes: Sequence[Shape]) -> bytes:
    labels = list(dict.fromkeys(shape.label for shape in shapes))
    rows = math.ceil(len(labels) / 2)
    with _page(_WIDE, _ROW * rows) as (figure, content):
        for place, label in enumerate(labels):
            sites = [shape for shape in shapes if shape.label == label]
            axes = figure.add_axes(_panel(place, rows))
            _furnish(axes, "x", "")
            _title(axes, label)
            reach = reach_of(sites)
            for number, site in enumerate(sites):
                line = curve_of(site, reach)
                colour = COLOURS[number % len(COLOURS)]
                axes.plot(
                    line.xs,
                    line.middle,
                    color=colour,
                    linewidth=1.3,
                    label=_safe(f"{site_name(site.path)}: {line.words}"),
                )
                axes.fill_between(line.xs, line.low, line.high, color=colour, alpha=0.16, linewidth=0)
            start = curve_of(sites[0], reach, at_start=True)
            axes.plot(
                start.xs,
                start.middle,
                color="#8a8983",
                linewidth=1.1,
                linestyle="--",
                label=_safe(f"start: {start.words}"),
            )
            _inner_legend(axes)
    return content()


def _hardness(summary: Summary) -> bytes:
    look = looks(summary)
    knobs = list(dict.fromkeys((one.knob, one.paths) for one in summary.profiles))
    rows, alone = math.ceil(len(knobs) / 2), len(knobs) == 1
    names = max(_names_height(paths) for _, paths in knobs)
    below = _legend_height(len(summary.profiles)) + names
    with _page(_WIDE, _TALL + below if alone else (_ROW + names) * rows) as (figure, content):
        for place, (knob, paths) in enumerate(knobs):
            axes = figure.add_axes(_above(below, _TALL) if alone else _panel(place, rows, names))
            _furnish(axes, "from the input to the output" if alone else "", knob_name(knob) if alone else "")
            if not alone:
                _title(axes, knob_name(knob))
            profiles = [one for one in summary.profiles if (one.knob, one.paths) == (knob, paths)]
            for one in profiles:
                _profile(axes, one, look[one.label])
            every = [value for one in profiles for site in (*one.start, *one.end) for value in site]
            if min(every) > 0 and max(every) / min(every) > 10:
                _logarithmic(axes)
            _name_sites(axes, paths)
            if alone:
                _legend(figure, axes)
            else:
                _inner_legend(axes)
    return content()


def _slanted(paths: Sequence[str]) -> bool:
    return len(paths) > 4 or any(len(site_name(path)) > 13 for path in paths)


def _names_height(paths: Sequence[str]) -> float:
    """Inches that slanted names of sites take below the axes, beyond what upright ones do."""
    return 0.032 * max(len(site_name(path)) for path in paths) if _slanted(paths) else 0.0


def _name_sites(axes: Axes, paths: Sequence[str]) -> None:
    """The names of the sites below the axes; of very many, every second or third."""
    named = range(0, len(paths), math.ceil(len(paths) / _MOST_NAMES))
    axes.set_xticks([place + 1 for place in named])
    slanted = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if _slanted(paths) else {}
    for tick in axes.set_xticklabels([site_name(paths[place]) for place in named], **slanted):
        tick.set_parse_math(False)


def _profile(axes: Axes, one: Profile, style: Any) -> None:
    sites = range(1, len(one.paths) + 1)
    middle = [sum(site) / len(site) for site in one.end]
    axes.plot(*at_start(one), color=style.colour, linewidth=1.0, linestyle=":")
    axes.errorbar(
        sites,
        middle,
        yerr=[
            [max(0.0, mean - min(site)) for site, mean in zip(one.end, middle, strict=True)],
            [max(0.0, max(site) - mean) for site, mean in zip(one.end, middle, strict=True)],
        ],
        color=style.colour,
        marker=_SYMBOLS[style.symbol],
        markersize=4.5,
        linewidth=1.3,
        elinewidth=0.7,
        capsize=2,
        label=_safe(one.label),
    )


# -- pieces -----------------------------------------------------------------------------------------------


_wants_png: ContextVar[bool] = ContextVar("wants_png", default=False)


@contextmanager
def _as_png(wanted: bool) -> Iterator[None]:
    token = _wants_png.set(wanted)
    try:
        yield
    finally:
        _wants_png.reset(token)


@contextmanager
def _page(wide: float, tall: float) -> Iterator[tuple[Figure, Any]]:
    """A figure, and a function that gives its file once it is drawn: fonts inside, no date and no version."""
    kept: list[bytes] = []
    with drawing((wide, tall)) as figure, warnings.catch_warnings():
        # A label may have signs that the font does not; they are drawn as boxes.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        import matplotlib

        matplotlib.rcParams["pdf.fonttype"] = 42
        yield figure, lambda: kept[0]
        if _wants_png.get():
            kept.append(png_of(figure))
            return
        from matplotlib.backends.backend_pdf import FigureCanvasPdf

        file = io.BytesIO()
        FigureCanvasPdf(figure).print_pdf(file, metadata=dict.fromkeys(("Creator", "Producer", "CreationDate")))
        kept.append(file.getvalue())


_COLUMNS = 4  # names beside each other in a legend


def _legend_height(names: int) -> float:
    """Inches below the axes: their numbers and title, and the lines of the legend."""
    return 0.5 + 0.165 * math.ceil(names / _COLUMNS)


def _above(below: float, tall: float) -> tuple[float, float, float, float]:
    return 0.12, below / (below + tall), 0.85, (tall - 0.1) / (below + tall)


def _panel(place: int, rows: int, names: float = 0.0) -> tuple[float, float, float, float]:
    """Two beside each other, from the top; `names`: inches that the names below each take."""
    tall, above = _ROW + names, rows - place // 2 - 1
    return 0.08 + 0.5 * (place % 2), (above + (0.2 * _ROW + names) / tall) / rows, 0.4, 0.66 * _ROW / tall / rows


def _furnish(axes: Axes, across: str, upright: str) -> None:
    axes.grid(color=_HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=7.5, labelcolor=_SOFT)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for label in (
        axes.set_xlabel(across, fontsize=8.5, color=_SOFT),
        axes.set_ylabel(upright, fontsize=8.5, color=_SOFT),
    ):
        label.set_parse_math(False)


def _logarithmic(axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: plain(value))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=9, color=_INK).set_parse_math(False)


def _write_beside(axes: Axes, at: tuple[float, float], what: Written, colour: str) -> None:
    """A text with a light edge, so that lines that it crosses do not cut it."""
    from matplotlib.patheffects import withStroke

    upright, side = what.place.split()
    made = axes.annotate(
        what.text,
        at,
        xytext=(
            {"left": -4.0, "center": 0.0, "right": 4.0}[side],
            {"bottom": -3.5, "middle": 0.0, "top": 3.5}[upright],
        ),
        textcoords="offset points",
        ha={"left": "right", "right": "left"}.get(side, "center"),
        va={"bottom": "top", "top": "bottom"}.get(upright, "center"),
        fontsize=7,
        color=colour,
        path_effects=[withStroke(linewidth=1.6, foreground="white")],
        zorder=5,
    )
    made.set_parse_math(False)


def _safe(label: str) -> str:
    """matplotlib leaves out a label that starts with an underscore."""
    return f" {label}" if label.startswith("_") else label


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    made = figure.legend(
        handles, labels, loc="lower left", bbox_to_anchor=(0.1, 0.0), ncols=_COLUMNS, frameon=False, fontsize=7.5
    )
    for text in made.get_texts():
        text.set_parse_math(False)


def _inner_legend(axes: Axes) -> None:
    for text in axes.legend(frameon=False, fontsize=6.5, loc="best").get_texts():
        text.set_parse_math(False)
