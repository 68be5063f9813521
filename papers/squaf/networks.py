"""The SQUAF paper's numbers of its image networks, and the tables and figures of our records of them.

The records are of commands that recipes have replaced, `softknee study rate` and `softknee study distil`. Each has a
row for every activation, with the numbers of all seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import torch

import softknee as sk
from softknee.errors import ParameterError
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

from ..runs import recipe_named

RATE_KIND, DISTIL_KIND = "study rate", "study distil"
TEACHER = "teacher"
NAMES = {
    "ReLU": "relu", "GELU": "gelu", "LReLU": "leaky_relu", "PReLU": "prelu", "SiLU": "silu", "Swish": "swish",
    "CRReLU": "crrelu", "PolyReLU": "polyrelu", "PolyNorm": "polynorm", "DiTAC": "ditac", "SQUAF": "squaf",
}  # fmt: skip
"""The activations of the paper's tables by their titles there, as recipes name them."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """One student of one teacher, or of none.

    recipe:     that runs it, which has the accuracies of the test (validation) images, in percent.
    gap:        training less test accuracy at the end, in percent.
    parameters: how many are trained; PolyReLU, which does not converge there, has no accuracy.
    """

    recipe: str
    data: str = "cifar-100"
    teacher_accuracy: float | None = None
    gap: Mapping[str, float] = field(default_factory=dict)
    parameters: Mapping[str, int] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The table of the paper."""
        paper = recipe_named(self.recipe).paper
        return "" if paper is None else paper.source.removeprefix("SQUAF, ")

    @property
    def accuracy(self) -> Mapping[str, float]:
        """By the titles of the activations."""
        paper = recipe_named(self.recipe).paper
        values = {} if paper is None else paper.values
        return {title: values[name]["accuracy"] for title, name in NAMES.items() if "accuracy" in values.get(name, {})}


_VGG_8 = {
    "ReLU": 3_965_028, "GELU": 3_965_028, "LReLU": 3_965_028, "PReLU": 3_965_033, "Swish": 3_965_033,
    "CRReLU": 3_965_033, "PolyReLU": 3_965_048, "PolyNorm": 3_965_048, "DiTAC": 3_965_073, "SQUAF": 3_965_063,
}  # fmt: skip
PAPER: dict[tuple[str | None, str], Reported] = {
    (None, "vgg8"): Reported(recipe="squaf-table-6-vgg8", parameters=_VGG_8),
    ("vgg13", "vgg8"): Reported(
        recipe="squaf-table-7-vgg",
        teacher_accuracy=74.64,
        gap={
            "GELU": 22.57, "LReLU": 21.52, "PReLU": 23.43, "Swish": 22.52, "CRReLU": 24.78, "PolyNorm": 24.23,
            "DiTAC": 22.53, "SQUAF": 20.68,
        },
        parameters={"teacher": 9_462_180, **_VGG_8},
    ),
    ("wrn40_2", "wrn16_2"): Reported(
        recipe="squaf-table-7-wrn",
        teacher_accuracy=75.61,
        gap={
            "GELU": 14.87, "LReLU": 13.76, "PReLU": 14.31, "Swish": 14.95, "CRReLU": 15.61, "PolyNorm": 16.50,
            "DiTAC": 15.54, "SQUAF": 13.12,
        },
        parameters={
            "teacher": 2_255_156, "ReLU": 703_284, "GELU": 703_284, "LReLU": 703_284, "PReLU": 703_297,
            "Swish": 703_297, "CRReLU": 703_297, "PolyReLU": 703_336, "PolyNorm": 703_336, "DiTAC": 703_401,
            "SQUAF": 703_319,
        },
    ),
    ("timm:resnet18", "timm:mobilenetv1_100"): Reported(
        recipe="squaf-table-15",
        data="imagenet-1k",
        teacher_accuracy=69.76,
        parameters={"teacher": 11_689_512, "SQUAF": 4_232_781},  # the teacher's stands in table 13
    ),
}  # fmt: skip


# -- students of one teacher -------------------------------------------------------------------------------

_STUDENT_HEADS = ("activation", "parameters", "paper's", "accuracy, %", "paper's", "gap", "paper's gap")
_STUDENT_DASHES = ([1, 0], [6, 3], [2, 3])


def distil_markdown(record: Record) -> str:
    """A row for the teacher and for each activation of the student, mean and spread over the seeds."""
    _need(record, DISTIL_KIND)
    reported, rows = reported_of(record), []
    for row in record.rows:
        name = row["activation"]
        if "not_run" in row:
            accuracy, gap = row["not_run"], ""
        else:
            accuracy, gap = row["accuracy"].text(2), row["gap"].text(2)
        count, quoted, quoted_gap = "", "", ""
        if reported is not None:
            is_teacher = name.startswith(TEACHER)
            known = reported.parameters.get(TEACHER if is_teacher else name)
            count = "" if known is None else f"{known:,}"
            quoted = _number({name: reported.teacher_accuracy} if is_teacher else reported.accuracy, name)
            quoted_gap = _number(reported.gap, name)
        rows.append([name, f"{row['trained']:,}", count, accuracy, quoted, gap, quoted_gap])
    note = "" if reported is None else f"\nThe paper's: {reported.source}, {reported.data}; here {_here(record)}.\n"
    return Table(head=_STUDENT_HEADS, rows=rows, markup=True).markdown(COLONS) + note


def _need(record: Record, kind: str) -> None:
    """Refuse a record of another kind, or of nothing that came to its end."""
    if record.kind != kind or not any("accuracy" in row for row in record.rows):
        raise ParameterError(
            f"This is made of a record of 'softknee {kind}', and this one is of {record.kind!r} or has nothing in it "
            "that came to its end; name another file."
        )


def reported_of(record: Record) -> Reported | None:
    """The paper's numbers for this pair of networks, where it has any."""
    return PAPER.get((record.settings["teacher"], record.settings["student"]))


def draw_distil(record: Record, path: str | PathLike[str]) -> Path:
    """Test accuracy and generalisation gap over the epochs, one line for each activation, means over the seeds."""
    _need(record, DISTIL_KIND)
    rows = [row for row in record.rows if "accuracy" in row and not row["activation"].startswith(TEACHER)]
    teachers = [row for row in record.rows if row["activation"].startswith(TEACHER) and "accuracy" in row]
    left = _student_curves(
        rows, _tests, f"test accuracy, %: {_here(record)}", [row["accuracy"].value for row in teachers]
    )
    right = _student_curves(rows, _gaps, "generalisation gap, percentage points", [])
    figure = {"hconcat": [left, right], "spacing": 28}
    return write_figure(figure, path, label="test accuracy and generalisation gap over the epochs")


def _student_curves(rows: list[Any], means: Any, title: str, teachers: list[float]) -> Chart:
    """A line for each activation; and one across at the accuracy of each teacher."""
    names = [row["activation"] for row in rows]
    points = [
        {"name": row["activation"], "epoch": epoch, "y": value}
        for row in rows
        for epoch, value in zip(row["curve"]["epochs"], means(row), strict=True)
    ]
    every = [point["y"] for point in points] + teachers
    room = 0.06 * (max(every) - min(every)) or 1.0
    last = max(row["curve"]["epochs"][-1] for row in rows)
    x = number("epoch", title="epoch", domain=(0, last))
    y = number("y", domain=(min(every) - room, max(every) + room))
    looks = [
        (DISTINCT[i % len(DISTINCT)], _STUDENT_DASHES[i // len(DISTINCT) % len(_STUDENT_DASHES)])
        for i in range(len(names))
    ]
    channels = line_styles(dict(zip(names, looks, strict=True)), columns=1, orient="right")
    levels = [{"y": value, "text": TEACHER} for value in teachers]
    layers = [
        marks("line", points, {"x": x, "y": y, **channels}),
        marks("rule", levels, {"y": y}, color=INK, strokeDash=[2, 3]),
        marks("text", levels, {"x": {"value": 4}, "y": y, "text": {"field": "text"}}, align="left", dy=-7),
    ]
    return sized({"title": title, "layer": layers}, 330, 270)


def _tests(row: Mapping[str, Any]) -> list[float]:
    return [sum(column) / len(column) for column in zip(*row["curve"]["test"], strict=True)]


def _gaps(row: Mapping[str, Any]) -> list[float]:
    trained = [sum(column) / len(column) for column in zip(*row["curve"]["train"], strict=True)]
    return [before - after for before, after in zip(trained, _tests(row), strict=True)]


def _here(record: Record) -> str:
    given = record.settings
    taught = f"{given['teacher']} → {given['student']}" if given["teacher"] else given["student"]
    epochs = f"{given['epochs']} epoch" + "s" * (given["epochs"] != 1)
    return f"{taught}, {given['data']}, {epochs}"


def _number(numbers: Mapping[str, float | None], name: str) -> str:
    value = numbers.get(name)
    return "" if value is None else f"{value:.2f}"


# -- bits and accuracy --------------------------------------------------------------------------------------

_HEADS = (
    "activation", "weight of the rate", "accuracy, %", "switched to SQUAF (32 bits)", "switched to SQUAF-S",
    "rate (eq. 12)", "Huffman", "range coder", "SQUAF-S, Huffman",
)  # fmt: skip


def rate_markdown(record: Record) -> str:
    """A row for each training: accuracies in percent, bits per activation, mean and spread over the seeds."""
    _need(record, RATE_KIND)
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
    _need(record, RATE_KIND)
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
    """Every learned SQUAF of a record of `softknee study rate` or `distil`: dotted as it began, a line a seed."""
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
    if not panels:
        raise ParameterError(f"The record of {record.kind!r} has no SQUAF that was trained, and no shape to draw.")
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
