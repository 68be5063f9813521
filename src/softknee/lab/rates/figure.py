"""The rate-accuracy curve drawn from its record: accuracy against coded bits, and the bits against the weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError
from ...measure.record import Quantity, Record
from ..figure_files import write_figure
from ..figure_lines import DISTINCT, INK
from ..figure_panels import drawing, furnish
from .study import KIND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (9.2, 3.7)
_LEFT, _RIGHT = (0.065, 0.14, 0.545, 0.74), (0.68, 0.14, 0.3, 0.74)
_SOFT = "#6a6963"
_WIDE = 0.1  # of the panel: the name of a weight
_LABEL: Any = {"fontsize": 8.5, "color": _SOFT}
_CURVES = (
    ("sampled", "SQUAF-P, as trained"),
    ("soft", "switched to SQUAF, then 32 bits"),
    ("step", "switched to SQUAF-S"),
)
_BITS = (("rate", "equation 12"), ("huffman", "Huffman"), ("rans", "range coder"))


def draw_rate(record: Record, path: str | PathLike[str]) -> Path:
    """Draw the record of `softknee study rate` into a .png or .svg file, and return where it is."""
    return write_figure(rate_figure(record), path, label="accuracy against bits per activation")


def rate_figure(record: Record) -> Figure:
    """The figure itself: means over the seeds, with a standard deviation to either side."""
    coded = [row for row in record.rows if "bits" in row]
    if record.kind != KIND or not coded:
        raise ParameterError(
            f"A rate curve is drawn from a record of 'softknee study rate', and this one is of {record.kind!r} or has "
            "no coded row."
        )
    coded.sort(key=lambda row: row["weight"])
    plain = [row for row in record.rows if row["weight"] is None and "accuracy" in row]
    with drawing(_SIZE) as figure:
        _accuracies(figure.add_axes(_LEFT), coded, plain, record)
        _weights(figure.add_axes(_RIGHT), coded)
    return figure


def _accuracies(axes: Axes, coded: Sequence[Mapping[str, Any]], plain: Sequence[Any], record: Record) -> None:
    furnish(axes)
    bits = [row["bits"]["huffman"] for row in coded]
    for (mode, title), colour in zip(_CURVES, DISTINCT, strict=False):
        _line(axes, bits, [row["accuracy"][mode] for row in coded], title, colour)
    low, high = min(one.low for one in bits), max(one.high for one in bits)
    room = 0.06 * (high - low) or 0.1
    every = [row["accuracy"][mode] for row in coded for mode, _ in _CURVES] + [row["accuracy"]["soft"] for row in plain]
    bottom, top = min(one.low for one in every), max(one.high for one in every)
    tall = (top - bottom) or 1.0
    axes.set(xlim=(low - room, high + room), ylim=(bottom - 0.16 * tall, top + 0.3 * tall))
    for row, style in zip(plain, ("-", "--", ":", "-."), strict=False):
        found = row["accuracy"]["soft"]
        axes.axhline(found.value, color=INK, linewidth=1.1, linestyle=style, label=f"{row['activation']}, 32 bits")
        axes.axhspan(found.low, found.high, color=INK, alpha=0.06, linewidth=0)
    _name_weights(axes, coded)
    axes.set_xlabel("bits per activation, Huffman", **_LABEL)
    data, epochs = record.settings["data"], record.settings["epochs"]
    title = f"test accuracy, %, of {record.settings['network']} on {data}, {epochs} epochs"
    axes.set_title(title, loc="left", fontsize=10, color=INK, pad=7)
    axes.legend(loc="upper left", ncols=2, fontsize=7.5, frameon=False, labelcolor=INK, handlelength=1.8)


def _name_weights(axes: Axes, coded: Sequence[Mapping[str, Any]]) -> None:
    """Each weight below its points, in the lowest line that has room for it."""
    low, high = axes.get_xlim()
    taken: list[float] = []  # where each line ends so far
    for row in sorted(coded, key=lambda row: row["bits"]["huffman"].value):
        at = row["bits"]["huffman"].value
        line = next((place for place, end in enumerate(taken) if at - end > _WIDE * (high - low)), len(taken))
        taken[line : line + 1] = [at]
        name, where = f"λ = {row['weight']:g}", axes.get_xaxis_transform()
        axes.text(at, 0.02 + 0.05 * line, name, transform=where, ha="center", fontsize=6.5, color=_SOFT)


def _weights(axes: Axes, coded: Sequence[Mapping[str, Any]]) -> None:
    furnish(axes)
    weights = [Quantity.mean([row["weight"]], unit="") for row in coded]
    for (name, title), colour in zip(_BITS, DISTINCT, strict=False):
        _line(axes, weights, [row["bits"][name] for row in coded], title, colour)
    values = [row["bits"][name] for row in coded for name, _ in _BITS]
    low, high = min(one.low for one in values), max(one.high for one in values)
    room = 0.08 * (high - low) or 0.1
    axes.set_ylim(low - room, high + room)
    most = max(one.value for one in weights) or 0.001
    axes.set_xlim(-0.05 * most, 1.05 * most)
    axes.set_xlabel("weight λ of the rate", **_LABEL)
    axes.set_title("bits per activation", loc="left", fontsize=10, color=INK, pad=7)
    axes.legend(loc="upper right", fontsize=7.5, frameon=False, labelcolor=INK)


def _line(axes: Axes, across: Sequence[Quantity], up: Sequence[Quantity], title: str, colour: str) -> None:
    axes.errorbar(
        [one.value for one in across],
        [one.value for one in up],
        xerr=[one.spread for one in across],
        yerr=[one.spread for one in up],
        color=colour,
        linewidth=1.5,
        elinewidth=0.7,
        marker="o",
        markersize=3.6,
        label=title,
    )
