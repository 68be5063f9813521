"""Training curves with bands."""

from __future__ import annotations

from typing import Any

from .figures import Figure, after_epochs, epoch_axis, faint, figure, log_axis, safe
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
    look, first = looks(summary), first_shown(summary)
    bands = [band for band in summary.bands if band.curve == name]
    filled = len([band for band in bands if band.label in first]) <= MOST_BANDS
    traces = []
    for number, band in enumerate(bands):
        traces += _band(band, look[band.label], scale, band.label in first, None if filled else number)
    every = [scale * one for band in bands for one in (*band.low, *band.high)]
    logarithmic = name.endswith("loss") and min(every, default=0.0) > 0
    layout = {
        "xaxis": epoch_axis(bands[0].epochs),
        "yaxis": {"title": {"text": axis}, "automargin": True},
        "hovermode": "closest",
        "height": 440,
    }
    if logarithmic:
        layout["yaxis"] |= log_axis(min(every), max(every))
    gone = any(band.each for band in bands)
    caption = (
        f"{title} {after_epochs(bands[0].epochs)}: mean over seeds, with its 95 % interval "
        + ("as a band" if filled else "at the end")
        + ("; where that would reach below 0, down to the lowest seed." if any(band.cut for band in bands) else ".")
        + (" Where a seed diverged, every seed has a thin line of its own." if gone else "")
        + (" Names in the legend show and hide their lines." if len(summary.rows) > 1 else "")
    )
    return figure(
        f"curve-{name}", traces, layout, caption=caption, label=f"{title} over epochs, a line for each activation"
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


def _band(band: Band, look: Look, scale: float, shown: bool, place: int | None) -> list[dict[str, Any]]:
    """The traces of one activation; at `place` beside the others' its interval stands, and is a band if it is None."""
    visible = True if shown else "legendonly"
    line = {"color": look.colour, "dash": look.dash, "width": 2}
    base = {"type": "scatter", "legendgroup": safe(band.label), "visible": visible}
    if band.each:
        return [
            base
            | {
                "name": safe(f"{band.label}, each seed"),
                "mode": "lines",
                "x": list(band.epochs),
                "y": [None if one is None else scale * one for one in each],
                "line": line | {"width": 0.8},
                "showlegend": nth == 0,
                "hovertemplate": f"{safe(band.label)}, seed {nth + 1}: %{{y:.4~g}}<extra></extra>",
            }
            for nth, each in enumerate(band.each)
        ]
    epochs = list(band.epochs)
    middle = base | {
        "name": safe(band.label),
        "mode": "lines",
        "x": epochs,
        "y": [scale * one for one in band.middle],
        "line": line,
        "customdata": [safe(band.label)] * len(epochs),
        "hovertemplate": "%{customdata}<br>epoch %{x}: %{y:.4~g}<extra></extra>",
    }
    if place is not None:
        above, below = ends_of(band)
        bar = {"type": "data", "array": [scale * above], "arrayminus": [scale * below], "symmetric": False}
        end = {
            "mode": "markers",
            "marker": {"color": look.colour, "size": 5},
            "x": [beside_the_end(band, place)],
            "y": [scale * band.middle[-1]],
            "error_y": bar | {"color": look.colour, "thickness": 1.2, "width": 2},
        }
        return [middle, base | end | {"showlegend": False, "hoverinfo": "skip"}]
    edge = base | {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "x": epochs}
    return [
        edge | {"y": [scale * one for one in band.low]},
        edge | {"y": [scale * one for one in band.high], "fill": "tonexty", "fillcolor": faint(look.colour)},
        middle,
    ]


def ends_of(band: Band) -> tuple[float, float]:
    """How far the interval of the last epoch reaches above the mean, and below it."""
    return max(0.0, band.high[-1] - band.middle[-1]), max(0.0, band.middle[-1] - band.low[-1])


def beside_the_end(band: Band, place: int) -> float:
    """Where the interval of the last epoch stands: to the right of the lines, each beside that of the one before."""
    return band.epochs[-1] + (place + 1) * 0.012 * (band.epochs[-1] - band.epochs[0] or 1)
