"""Training curves with bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..chart import Chart, number
from .figures import Entry, Figure, after_epochs, epoch_axis, log_axis, series
from .palette import Look, looks
from .parts import Band, Summary

CURVES = {
    "validation_accuracy": ("Validation accuracy", "validation accuracy, %", 100.0),
    "validation_loss": ("Validation loss", "validation loss", 1.0),
    "train_loss": ("Training loss", "training loss", 1.0),
    "gradient_norm": ("Gradient norm", "gradient norm", 1.0),
}
_SHOWN_AT_FIRST = 8  # curves; the rest is shown by a click on the legend
MOST_BANDS = 6  # more of them cover each other: then the interval stands at the end of each line alone


def curves(summary: Summary) -> list[Figure]:
    """Validation accuracy (or loss) and training loss after every epoch, each with its band."""
    had = {band.curve for band in summary.bands}
    wanted = ["validation_accuracy" if "validation_accuracy" in had else "validation_loss", "train_loss"]
    return [_curves(summary, name) for name in wanted if name in had]


def _curves(summary: Summary, name: str) -> Figure:
    title, axis, scale = CURVES[name]
    first = first_shown(summary)
    bands = [band for band in summary.bands if band.curve == name]
    filled = len([band for band in bands if band.label in first]) <= MOST_BANDS
    caption = (
        f"{title} {after_epochs(bands[0].epochs)}: mean over seeds, with its 95 % interval "
        + ("as a band" if filled else "at the end")
        + ("; where that would reach below 0, down to the lowest seed." if any(band.cut for band in bands) else ".")
        + (" Where a seed diverged, every seed has a thin line of its own." if any(band.each for band in bands) else "")
    )
    entries = legend_of(bands, looks(summary), first)
    return Figure(
        name=f"curve-{name}",
        caption=caption,
        label=f"{title} over epochs, a line for each activation",
        chart=chart_of(bands, entries, axis, scale, filled=filled),
        legend=entries,
        height=380,
        file=name.replace("_", "-"),
    )


def first_shown(summary: Summary) -> set[str]:
    """Everything if it is little; else the baseline, what stands alone, and the best value of each knob."""
    if len(summary.rows) <= _SHOWN_AT_FIRST:
        return {row.label for row in summary.rows}
    sign = 1 if summary.metric.larger_is_better else -1
    on_path = {row.label for knob in summary.knobs for row in knob.rows}
    shown = {row.label for row in summary.rows if row.label not in on_path or row.baseline}
    for knob in summary.knobs:
        able = [(sign * found.value, row.label) for row in knob.rows if (found := row.found(summary.metric))]
        shown |= {max(able)[1]} if able else set()
    return shown


def legend_of(bands: Sequence[Band], look: Mapping[str, Look], first: set[str]) -> tuple[Entry, ...]:
    return tuple(
        Entry(name=_name(band), colour=style.colour, dash=style.dash, shown=band.label in first)
        for band in bands
        for style in [look[band.label]]
    )


def _name(band: Band) -> str:
    return f"{band.label}, each seed" if band.each else band.label


def chart_of(bands: Sequence[Band], entries: Sequence[Entry], axis: str, scale: float, *, filled: bool) -> Chart:
    """A line for each band with its interval; thin lines for the seeds of one that has no mean."""
    every = [scale * one for band in bands for one in (*band.low, *band.high)]
    numbers = log_axis(min(every), max(every)) if axis.endswith("loss") and min(every, default=0.0) > 0 else {}
    across, upright = number("epoch", title="epoch", **epoch_axis(bands[0].epochs)), number("y", title=axis, **numbers)
    tips = [{"field": field, "type": kind, "format": "~g"} for field, kind in _TIPS]
    lines = [row for band in bands if not band.each for row in _rows(band, scale)]
    seeds = [
        {"name": _name(band), "seed": seed, "epoch": epoch, "y": None if value is None else scale * value}
        for band in bands
        for seed, each in enumerate(band.each, start=1)
        for epoch, value in zip(band.epochs, each, strict=True)
    ]
    edges = {"x": across, "y": number("low", title=axis, **numbers), "y2": {"field": "high"}}
    ends = [
        {**_rows(band, scale)[-1], "epoch": beside_the_end(band, place)}
        for place, band in enumerate(bands)
        if not band.each
    ]
    where = {"x": across, "y": upright}
    layers = [
        series("line", None, entries, where),
        # Points that cannot be seen: what is near a line says which it is.
        series("circle", [*lines, *seeds], entries, {**where, "tooltip": tips}, opacity=0, size=90),
    ]
    if seeds:
        seed = {**where, "detail": {"field": "seed", "type": "nominal"}}
        layers.append(series("line", seeds, entries, seed, strokeWidth=0.8))
    if filled:
        layers.insert(0, series("area", None, entries, edges, opacity=0.16))
    else:
        layers.append(series("rule", ends, entries, edges, strokeWidth=1.2))
        layers.append(series("circle", ends, entries, where, size=22, opacity=1))
    return {"data": {"values": lines}, "layer": layers}


_TIPS = (("name", "nominal"), ("epoch", "quantitative"), ("y", "quantitative"))


def _rows(band: Band, scale: float) -> list[dict[str, Any]]:
    numbers = zip(band.epochs, band.middle, band.low, band.high, strict=True)
    return [
        {"name": band.label, "epoch": epoch, "y": scale * middle, "low": scale * low, "high": scale * high}
        for epoch, middle, low, high in numbers
    ]


def beside_the_end(band: Band, place: int) -> float:
    """Where the interval of the last epoch stands: to the right of the lines, each beside that of the one before."""
    return band.epochs[-1] + (place + 1) * 0.012 * (band.epochs[-1] - band.epochs[0] or 1)
