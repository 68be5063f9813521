"""The figures for a paper, by matplotlib, as PDF or PNG: numbers and colours as on the page, always the same bytes."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..figure_panels import drawing, png_of
from .curves import CURVES, first_shown
from .drawn import curve_of, reach_of
from .figures import after_epochs
from .numbers import plain
from .palette import COLOURS, DASHES, SYMBOLS, looks
from .parts import Band, Measure, Profile, Row, Shape, Summary
from .plane import axis_title, interval_of, middle_of
from .shapes import site_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SYMBOLS: dict[str, str] = dict(zip(SYMBOLS, ("o", "s", "D", "^", "P", "*", "p", "h", "v", "X"), strict=True))
_STROKES: Any = dict(zip(DASHES, ("-", "--", ":", "-.", (0, (8, 3))), strict=True))
_INK, _SOFT, _HAIR = "#22221f", "#6a6963", "#e4e3de"
_WIDE, _TALL = 6.2, 2.9  # inches; a line of text in a paper is about 6


def pdf_figures(summary: Summary, *, png: bool = False) -> dict[str, tuple[bytes, str]]:
    """Content and caption of each figure that there is something to show in, by name; as PNG where asked for."""
    with _as_png(png):
        return _figures(summary)


def _figures(summary: Summary) -> dict[str, tuple[bytes, str]]:
    found: dict[str, tuple[bytes, str]] = {}
    metric, spread = summary.metric, summary.spread
    if spread is not None and any(row.found(spread) for row in summary.judged):
        words = f"{metric.title} against {spread.title}; bars are 95 % intervals"
        joined = "; a line joins the values of a knob in their order" if summary.knobs else ""
        found["plane"] = plane_pdf(summary, metric, spread), f"{words}{joined}."
    for name, (title, axis, scale) in CURVES.items():
        bands = [band for band in summary.bands if band.curve == name and band.label in first_shown(summary)]
        if bands and name in ("validation_accuracy", "train_loss"):
            words = f"{title} {after_epochs(bands[0].epochs)}: mean over seeds with its 95 % interval"
            gone = "; every seed where one diverged" if any(band.each for band in bands) else ""
            found[name.replace("_", "-")] = _curves(summary, bands, axis, scale), f"{words}{gone}."
    if summary.shapes:
        words = "What activations learned: dashed the start, lines the mean of the learned parameters at each site"
        found["shapes"] = _shapes(summary.shapes), f"{words}."
    if summary.profiles:
        words = "The knob by depth after training: mean over seeds, from the lowest to the highest; dotted the start"
        found["hardness"] = _hardness(summary), f"{words}."
    return found


# -- each figure ------------------------------------------------------------------------------------------


def plane_pdf(summary: Summary, metric: Measure, spread: Measure) -> bytes:
    """The metric against the prediction difference, as on the page."""
    look = looks(summary)
    rows = [row for row in summary.judged if row.found(metric) and row.found(spread)]
    names = {row.label: knob.name for knob in summary.knobs for row in knob.rows}
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: _knob_value(summary, row)):
        groups.setdefault(names.get(row.label, row.label), []).append(row)
    below = _legend_height(len(groups))
    with _page(_WIDE, 3.5 + below) as (figure, content):
        axes = figure.add_axes(_above(below, 3.5))
        _furnish(axes, axis_title(metric), axis_title(spread))
        order = [row.label for row in rows]
        for name, members in sorted(groups.items(), key=lambda pair: min(order.index(row.label) for row in pair[1])):
            style = look[members[0].label]
            xs, ys = zip(*(middle_of(row, metric, spread) for row in members), strict=True)
            bars = [
                [_sides(x, interval_of(row, one)) for row, x in zip(members, at, strict=True)]
                for one, at in ((metric, xs), (spread, ys))
            ]
            axes.errorbar(
                xs,
                ys,
                xerr=list(zip(*bars[0], strict=True)),
                yerr=list(zip(*bars[1], strict=True)),
                color=style.colour,
                marker=_SYMBOLS[style.symbol],
                markersize=5.5,
                linewidth=1.3,
                elinewidth=0.7,
                capsize=2,
                linestyle="-" if len(members) > 1 else "none",
                label=_safe(name),
            )
            for row, x, y in zip(members, xs, ys, strict=True):
                if len(members) > 1:
                    value = plain(_knob_value(summary, row)[1])
                    _write(axes, x, y, value)
        _legend(figure, axes)
    return content()


def _knob_value(summary: Summary, row: Row) -> tuple[str, float]:
    for knob in summary.knobs:
        if row.label in {one.label for one in knob.rows}:
            return knob.name, row.number(knob.parameter)
    return row.label, 0.0


def _sides(value: float, interval: tuple[float, float] | None) -> tuple[float, float]:
    return (0.0, 0.0) if interval is None else (max(0.0, value - interval[0]), max(0.0, interval[1] - value))


def _curves(summary: Summary, bands: Sequence[Band], axis: str, scale: float) -> bytes:
    look = looks(summary)
    below = _legend_height(len(bands))
    with _page(_WIDE, _TALL + below) as (figure, content):
        axes = figure.add_axes(_above(below, _TALL))
        _furnish(axes, "epoch", axis)
        for band in bands:
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
            low, high = ([scale * one for one in edge] for edge in (band.low, band.high))
            axes.fill_between(epochs, low, high, color=style.colour, alpha=0.16, linewidth=0)
        if axis.endswith("loss") and all(one > 0 for band in bands for one in band.low):
            _logarithmic(axes)
        _legend(figure, axes)
    return content()


def _shapes(shapes: Sequence[Shape]) -> bytes:
    labels = list(dict.fromkeys(shape.label for shape in shapes))
    rows = math.ceil(len(labels) / 2)
    with _page(_WIDE, 2.7 * rows) as (figure, content):
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
    below = _legend_height(len(summary.profiles))
    with _page(_WIDE, _TALL + below if alone else 2.7 * rows) as (figure, content):
        for place, (knob, paths) in enumerate(knobs):
            axes = figure.add_axes(_above(below, _TALL) if alone else _panel(place, rows))
            _furnish(axes, "", knob if alone else "")
            if not alone:
                _title(axes, knob)
            profiles = [one for one in summary.profiles if (one.knob, one.paths) == (knob, paths)]
            for one in profiles:
                _profile(axes, one, look[one.label])
            every = [value for one in profiles for site in (*one.start, *one.end) for value in site]
            if min(every) > 0 and max(every) / min(every) > 10:
                _logarithmic(axes)
            axes.set_xticks(range(1, len(paths) + 1))
            for tick, path in zip(axes.set_xticklabels([site_name(path) for path in paths]), paths, strict=True):
                tick.set_parse_math(False)
                tick.set_rotation(0 if len(paths) < 5 and len(path) < 14 else 30)
            if alone:
                _legend(figure, axes)
            else:
                _inner_legend(axes)
    return content()


def _profile(axes: Axes, one: Profile, style: Any) -> None:
    sites = range(1, len(one.paths) + 1)
    middle = [sum(site) / len(site) for site in one.end]
    start = [sum(site) / len(site) for site in one.start]
    axes.plot(sites, start, color=style.colour, linewidth=1.0, linestyle=":")
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


def _panel(place: int, rows: int) -> tuple[float, float, float, float]:
    """Two beside each other, from the top."""
    row = place // 2
    return 0.08 + 0.5 * (place % 2), (rows - row - 1 + 0.2) / rows, 0.4, 0.66 / rows


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


def _write(axes: Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=7, color=_INK).set_parse_math(False)


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
