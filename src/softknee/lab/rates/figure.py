"""The rate-accuracy curve drawn from its record: accuracy against coded bits, and the bits against the weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ...errors import ParameterError
from ...measure.record import Quantity, Record
from ..chart import INK, Chart, by_name, lines_legend, marks, number, side_by_side, sized, write_figure
from ..figure_lines import DISTINCT
from .study import KIND

_WIDE = 0.1  # of the panel: the name of a weight
_CURVES = (
    ("sampled", "SQUAF-P, as trained"),
    ("soft", "switched to SQUAF, then 32 bits"),
    ("step", "switched to SQUAF-S"),
)
_BITS = (("rate", "equation 12"), ("huffman", "Huffman"), ("rans", "range coder"))
_DASHES = ([1, 0], [6, 3], [2, 3], [6, 3, 2, 3])


def draw_rate(record: Record, path: str | PathLike[str]) -> Path:
    """Draw the record of `softknee study rate` into a .png or .svg file, and return where it is."""
    return write_figure(rate_figure(record), path, label="accuracy against bits per activation")


def rate_figure(record: Record) -> Chart:
    """The figure itself: means over the seeds, with a standard deviation to either side."""
    coded = [row for row in record.rows if "bits" in row]
    if record.kind != KIND or not coded:
        raise ParameterError(
            f"A rate curve is drawn from a record of 'softknee study rate', and this one is of {record.kind!r} or has "
            "no coded row."
        )
    coded.sort(key=lambda row: row["weight"])
    plain = [row for row in record.rows if row["weight"] is None and "accuracy" in row]
    return side_by_side([_accuracies(coded, plain, record), _weights(coded)], columns=2)


def _accuracies(coded: Sequence[Mapping[str, Any]], plain: Sequence[Any], record: Record) -> Chart:
    bits = [row["bits"]["huffman"] for row in coded]
    points = [
        point for mode, title in _CURVES for point in _points(title, bits, [row["accuracy"][mode] for row in coded])
    ]
    levels = [(f"{row['activation']}, 32 bits", row["accuracy"]["soft"]) for row in plain[: len(_DASHES)]]
    low, high = min(one.low for one in bits), max(one.high for one in bits)
    room = 0.06 * (high - low) or 0.1
    left, right = low - room, high + room
    every = [row["accuracy"][mode] for row in coded for mode, _ in _CURVES] + [level for _, level in levels]
    bottom, top = min(one.low for one in every), max(one.high for one in every)
    tall = (top - bottom) or 1.0
    x = number("x", title="bits per activation, Huffman", domain=(left, right))
    y = number("y", domain=(bottom - 0.22 * tall, top + 0.05 * tall))
    names = [title for _, title in _CURVES] + [name for name, _ in levels]
    across = [
        {"name": name, "x": end, "y": level.value, "low": level.low, "high": level.high}
        for name, level in levels
        for end in (left, right)
    ]
    colours = by_name(names, [*DISTINCT[: len(_CURVES)], *[INK] * len(levels)], legend=lines_legend(columns=2))
    dashes = by_name(names, [*[[1, 0]] * len(_CURVES), *_DASHES[: len(levels)]], legend=lines_legend(columns=2))
    detail = {"field": "name", "type": "nominal"}
    layers = [
        marks(
            "area", across, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "detail": detail}, **_SHADE
        ),
        marks("line", across, {"x": x, "y": y, "color": colours, "strokeDash": dashes}),
        *_curves(points, x, y, colours, dashes),
        marks(
            "text",
            _weight_names(coded, left, right),
            {"x": x, "y": {"value": "height"}, "text": {"field": "text"}},
            **_BELOW,
        ),
    ]
    data, epochs = record.settings["data"], record.settings["epochs"]
    title = f"test accuracy, %, of {record.settings['network']} on {data}, {epochs} epochs"
    return sized({"title": title, "layer": layers}, 480, 270)


_SHADE = {"color": INK, "opacity": 0.06}
_BELOW = {"dy": {"expr": "-13 * datum.line - 8"}, "fontSize": 9, "style": "remark"}


def _weight_names(coded: Sequence[Mapping[str, Any]], low: float, high: float) -> list[dict[str, Any]]:
    """Each weight below its points, in the lowest line that has room for it."""
    names, taken = [], []  # taken: where each line ends so far
    for row in sorted(coded, key=lambda row: row["bits"]["huffman"].value):
        at = row["bits"]["huffman"].value
        line = next((place for place, end in enumerate(taken) if at - end > _WIDE * (high - low)), len(taken))
        taken[line : line + 1] = [at]
        names.append({"x": at, "line": line, "text": f"λ = {row['weight']:g}"})
    return names


def _weights(coded: Sequence[Mapping[str, Any]]) -> Chart:
    weights = [Quantity.mean([row["weight"]], unit="") for row in coded]
    points = [point for name, title in _BITS for point in _points(title, weights, [row["bits"][name] for row in coded])]
    values = [row["bits"][name] for row in coded for name, _ in _BITS]
    low, high = min(one.low for one in values), max(one.high for one in values)
    room = 0.08 * (high - low) or 0.1
    most = max(one.value for one in weights) or 0.001
    x = number("x", title="weight λ of the rate", domain=(-0.05 * most, 1.05 * most))
    y = number("y", domain=(low - room, high + room))
    legend = lines_legend(columns=3)
    names = [title for _, title in _BITS]
    colours = by_name(names, DISTINCT[: len(names)], legend=legend)
    dashes = by_name(names, [[1, 0]] * len(names), legend=legend)
    return sized({"title": "bits per activation", "layer": _curves(points, x, y, colours, dashes)}, 280, 270)


def _points(title: str, across: Sequence[Quantity], up: Sequence[Quantity]) -> list[dict[str, Any]]:
    return [
        {
            "name": title,
            "x": a.value,
            "y": b.value,
            "left": a.value - a.spread,
            "right": a.value + a.spread,
            "low": b.value - b.spread,
            "high": b.value + b.spread,
        }
        for a, b in zip(across, up, strict=True)
    ]


def _curves(points: list[dict[str, Any]], x: Chart, y: Chart, colours: Chart, dashes: Chart) -> list[Chart]:
    """Points joined in their order, with a spread to each side."""
    order = {"field": "place", "type": "ordinal"}
    rows = [{**point, "place": place} for place, point in enumerate(points)]
    upright = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colours}
    level = {"x": {**x, "field": "left"}, "x2": {"field": "right"}, "y": y, "color": colours}
    return [
        marks("line", rows, {"x": x, "y": y, "order": order, "color": colours, "strokeDash": dashes}),
        marks("rule", rows, upright),
        marks("rule", rows, level),
        marks("circle", rows, {"x": x, "y": y, "color": colours}, size=28, opacity=1),
    ]
