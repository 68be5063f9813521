"""The table and the figures of SQUAF-P's rate curve, from a record with a row for each weight of the rate.

The record is of a command that the recipe figure-3.yaml has replaced, `softknee study rate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch

import softknee as sk
from softknee.lab.chart import (
    INK,
    Chart,
    line_styles,
    marks,
    number,
    points,
    rule_at,
    side_by_side,
    sized,
    write_figure,
)
from softknee.lab.figures import DISTINCT
from softknee.lab.table import COLONS, Table
from softknee.measure.record import Quantity, Record

# -- bits and accuracy --------------------------------------------------------------------------------------

_HEADS = (
    "activation", "weight of the rate", "accuracy, %", "switched to SQUAF (32 bits)", "switched to SQUAF-S",
    "rate (eq. 12)", "Huffman", "range coder", "SQUAF-S, Huffman",
)  # fmt: skip


def rate_markdown(record: Record) -> str:
    """A row for each training: accuracies in percent, bits per activation, mean and spread over the seeds."""
    rows = []
    for row in record.rows:
        accuracy, bits = row.get("accuracy", {}), row.get("bits", {})
        own = "sampled" if row["weight"] is not None else "soft"
        cells = [row["activation"], "" if row["weight"] is None else f"{row['weight']:g}"]
        if "not_run" in row:
            cells += [row["not_run"], *[""] * (len(_HEADS) - 3)]
        else:
            switched = ("soft", "step") if own == "sampled" else ("", "")
            cells += [_text(accuracy.get(mode), 2) for mode in (own, *switched)]
            full = "" if bits else "32"
            cells += [_text(bits.get(name), 3) or full for name in ("rate", "huffman", "rans", "step_huffman")]
        rows.append(cells)
    return Table(head=_HEADS, rows=rows, markup=True).markdown(COLONS)


def _text(quantity: Quantity | None, digits: int) -> str:
    return "" if quantity is None else quantity.text(digits)


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
    coded = sorted((row for row in record.rows if "bits" in row), key=lambda row: row["weight"])
    plain = [row for row in record.rows if row["weight"] is None and "accuracy" in row]
    return side_by_side([_accuracies(coded, plain, record), _weights(coded)], columns=2)


def _accuracies(coded: Sequence[Mapping[str, Any]], plain: Sequence[Any], record: Record) -> Chart:
    bits = [row["bits"]["huffman"] for row in coded]
    dots = [
        point
        for mode, title in _CURVES
        for point in _with_spread(title, bits, [row["accuracy"][mode] for row in coded])
    ]
    levels = [(f"{row['activation']}, 32 bits", row["accuracy"]["soft"]) for row in plain[: len(_DASHES)]]
    low, high = min(quantity.low for quantity in bits), max(quantity.high for quantity in bits)
    room = 0.06 * (high - low) or 0.1
    left, right = low - room, high + room
    every = [row["accuracy"][mode] for row in coded for mode, _ in _CURVES] + [level for _, level in levels]
    bottom, top = min(quantity.low for quantity in every), max(quantity.high for quantity in every)
    tall = (top - bottom) or 1.0
    x = number("x", title="bits per activation, Huffman", domain=(left, right))
    y = number("y", domain=(bottom - 0.22 * tall, top + 0.05 * tall))
    names = [title for _, title in _CURVES] + [name for name, _ in levels]
    across = [
        {"name": name, "x": end, "y": level.value, "low": level.low, "high": level.high}
        for name, level in levels
        for end in (left, right)
    ]
    looks = [(colour, [1, 0]) for colour in DISTINCT[: len(_CURVES)]] + [(INK, dash) for dash in _DASHES[: len(levels)]]
    lines = line_styles(dict(zip(names, looks, strict=True)), columns=2)
    detail = {"field": "name", "type": "nominal"}
    layers = [
        marks(
            "area", across, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "detail": detail}, **_SHADE
        ),
        marks("line", across, {"x": x, "y": y, **lines}),
        *_joined(dots, x, y, lines),
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
    dots = [
        point for name, title in _BITS for point in _with_spread(title, weights, [row["bits"][name] for row in coded])
    ]
    values = [row["bits"][name] for row in coded for name, _ in _BITS]
    low, high = min(quantity.low for quantity in values), max(quantity.high for quantity in values)
    room = 0.08 * (high - low) or 0.1
    most = max(quantity.value for quantity in weights) or 0.001
    x = number("x", title="weight λ of the rate", domain=(-0.05 * most, 1.05 * most))
    y = number("y", domain=(low - room, high + room))
    looks = {title: (colour, [1, 0]) for (_, title), colour in zip(_BITS, DISTINCT, strict=False)}
    lines = line_styles(looks, columns=3)
    return sized({"title": "bits per activation", "layer": _joined(dots, x, y, lines)}, 280, 270)


def _with_spread(title: str, across: Sequence[Quantity], up: Sequence[Quantity]) -> list[dict[str, Any]]:
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


def _joined(dots: list[dict[str, Any]], x: Chart, y: Chart, lines: Chart) -> list[Chart]:
    """Points joined in their order, with a spread to each side."""
    order = {"field": "place", "type": "ordinal"}
    rows = [{**point, "place": place} for place, point in enumerate(dots)]
    colour = {"color": lines["color"]}
    upright = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **colour}
    level = {"x": {**x, "field": "left"}, "x2": {"field": "right"}, "y": y, **colour}
    return [
        marks("line", rows, {"x": x, "y": y, "order": order, **lines}),
        marks("rule", rows, upright),
        marks("rule", rows, level),
        marks("circle", rows, {"x": x, "y": y, **colour}, size=28, opacity=1),
    ]


# -- what SQUAF layers became -------------------------------------------------------------------------------

Shape = Mapping[str, Sequence[float]]
_PANEL, _ACROSS = (165, 130), 4  # pixels; panels in a row
_POINTS = 401
_FARTHEST = 6.0  # beyond which pre-activations hardly go


def draw_shapes(record: Record, path: str | PathLike[str]) -> Path:
    """Every learned SQUAF of the record: dotted as it began, a line a seed."""
    several = any(len(row.get("start", {})) > 1 for row in record.rows)
    panels = [
        (
            f"{_title(row)}, {layer}" if several else _title(row),
            row["start"][layer],
            [shapes[layer] for shapes in row["learned"] if layer in shapes],
        )
        for row in record.rows
        for layer in row.get("start", {})
    ]
    charts = [_panel(title, start, ends) for title, start, ends in panels]
    figure = side_by_side(charts, columns=min(_ACROSS, len(panels)), spacing=18)
    return write_figure(figure, path, label="learned SQUAFs, dotted as they began")


def _panel(title: str, start: Shape, ends: Sequence[Shape]) -> Chart:
    reach = min(_FARTHEST, (len(start["z"]) // 2 + 1) * max(shape["q"][0] for shape in (start, *ends)))
    x = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
    where = {"x": number("x", title="x", domain=(-reach, reach)), "y": number("y", title="f(x)")}
    looks = [{"color": colour, "strokeWidth": 1.6} for _, colour in zip(ends, DISTINCT * 9, strict=False)]
    looks.append({"color": INK, "strokeWidth": 1.6, "strokeDash": [2, 3]})
    layers = [rule_at(x=0.0), rule_at(y=0.0)]
    for shape, look in zip((*ends, start), looks, strict=False):
        layers.append(marks("line", points(x.tolist(), values_of(shape, x).tolist()), where, **look))
    return sized({"title": {"text": title, "fontSize": 11}, "layer": layers}, *_PANEL)


def values_of(shape: Shape, x: torch.Tensor) -> torch.Tensor:
    """A SQUAF with these parameters at x, in float64."""
    z = torch.tensor(shape["z"], dtype=torch.float64)
    return sk.get("squaf")(x, k=len(z) // 2, q=shape["q"][0], alpha=shape["alpha"][0], z=z, window=5)


def _title(row: Mapping[str, Any]) -> str:
    weight = row.get("weight")
    return row["activation"] if weight is None else f"{row['activation']} λ = {weight:g}"
