"""The record of a distillation as a table beside the paper's, and its curves as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from ...errors import ParameterError
from ...measure.record import Record
from ..chart import INK, Chart, by_name, lines_legend, marks, number, sized, write_figure
from ..figure_lines import DISTINCT
from .paper import PAPER, Reported
from .study import KIND, TEACHER

_HEADS = ("activation", "parameters", "paper's", "accuracy, %", "paper's", "gap", "paper's gap")
_DASHES = ([1, 0], [6, 3], [2, 3])


def distil_markdown(record: Record) -> str:
    """A row for the teacher and for each activation of the student, mean and spread over the seeds."""
    if record.kind != KIND:
        raise ParameterError(
            f"This table is made of a record of 'softknee study distil', and this one is of {record.kind!r}; name "
            "another file."
        )
    reported = reported_of(record)
    lines = [f"| {' | '.join(_HEADS)} |", "|:--" + "|--:" * (len(_HEADS) - 1) + "|"]
    for row in record.rows:
        name = row["activation"]
        if "not_run" in row:
            found, gap = row["not_run"], ""
        else:
            found, gap = row["accuracy"].text(2), row["gap"].text(2)
        count, quoted, quoted_gap = "", "", ""
        if reported is not None:
            is_teacher = name.startswith(TEACHER)
            known = reported.parameters.get(TEACHER if is_teacher else name)
            count = "" if known is None else f"{known:,}"
            quoted = _number({name: reported.teacher_accuracy} if is_teacher else reported.accuracy, name)
            quoted_gap = _number(reported.gap, name)
        cells = [name, f"{row['trained']:,}", count, found, quoted, gap, quoted_gap]
        lines.append(f"| {' | '.join(cells)} |")
    note = "" if reported is None else f"\nThe paper's: {reported.source}, {reported.data}; here {_here(record)}.\n"
    return "\n".join(lines) + "\n" + note


def reported_of(record: Record) -> Reported | None:
    """The paper's numbers for this pair of networks, where it has any."""
    return PAPER.get((record.settings["teacher"], record.settings["student"]))


def draw_distil(record: Record, path: str | PathLike[str]) -> Path:
    """Test accuracy and generalisation gap over the epochs, one line for each activation, means over the seeds."""
    rows = [row for row in record.rows if "accuracy" in row and not row["activation"].startswith(TEACHER)]
    if record.kind != KIND or not rows:
        raise ParameterError(
            f"These curves are drawn from a record of 'softknee study distil', and this one is of {record.kind!r} or "
            "has no student."
        )
    teachers = [row for row in record.rows if row["activation"].startswith(TEACHER) and "accuracy" in row]
    left = _curves(rows, _tests, f"test accuracy, %: {_here(record)}", [row["accuracy"].value for row in teachers])
    right = _curves(rows, _gaps, "generalisation gap, percentage points", [])
    figure = {"hconcat": [left, right], "spacing": 28}
    return write_figure(figure, path, label="test accuracy and generalisation gap over the epochs")


def _curves(rows: list[Any], means: Any, title: str, teachers: list[float]) -> Chart:
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
    looks = [(DISTINCT[i % len(DISTINCT)], _DASHES[i // len(DISTINCT) % len(_DASHES)]) for i in range(len(names))]
    legend = lines_legend(columns=1, orient="right")
    channels = {
        "color": by_name(names, [colour for colour, _ in looks], legend=legend),
        "strokeDash": by_name(names, [dash for _, dash in looks], legend=legend),
    }
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
    found = numbers.get(name)
    return "" if found is None else f"{found:.2f}"
