"""The record of a distillation as a table beside the paper's, and its curves as a figure."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ParameterError
from ...measure.record import Record
from ..figure_files import write_figure
from ..figure_lines import DISTINCT, INK
from ..figure_panels import drawing, furnish
from .paper import PAPER, Reported
from .study import KIND, TEACHER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEADS = ("activation", "parameters", "paper's", "accuracy, %", "paper's", "gap", "paper's gap")
_LABEL: Any = {"fontsize": 8.5, "color": "#6a6963"}
_STYLES = ("-", "--", ":")


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
    with drawing((9.2, 3.7)) as figure:
        left, right = figure.add_axes((0.065, 0.13, 0.36, 0.75)), figure.add_axes((0.49, 0.13, 0.36, 0.75))
        for axes, what, title in (
            (left, _tests, f"test accuracy, %: {_here(record)}"),
            (right, _gaps, "generalisation gap, percentage points"),
        ):
            _curves(axes, rows, what, title)
        for row in record.rows:
            if row["activation"].startswith(TEACHER) and "accuracy" in row:
                _mark_teacher(left, row["accuracy"].value)
        right.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0), fontsize=7.5, frameon=False, labelcolor=INK)
    return write_figure(figure, path, label="test accuracy and generalisation gap over the epochs")


def _curves(axes: Axes, rows: list[Any], what: Any, title: str) -> None:
    furnish(axes)
    lowest, highest = [], []
    for place, row in enumerate(rows):
        means = what(row)
        style, colour = _STYLES[place // len(DISTINCT) % len(_STYLES)], DISTINCT[place % len(DISTINCT)]
        axes.plot(row["curve"]["epochs"], means, color=colour, linestyle=style, linewidth=1.4, label=row["activation"])
        lowest.append(min(means))
        highest.append(max(means))
    low, high = min(lowest), max(highest)
    room = 0.06 * (high - low) or 1.0
    last = max(row["curve"]["epochs"][-1] for row in rows)
    axes.set(xlim=(0, last), ylim=(low - room, high + room))
    axes.set_xlabel("epoch", **_LABEL)
    axes.set_title(title, loc="left", fontsize=9.5, color=INK, pad=7)


def _mark_teacher(axes: Axes, teacher: float) -> None:
    """A line at the accuracy of the teacher, within the axes."""
    axes.axhline(teacher, color=INK, linestyle=":", linewidth=1.2)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, teacher - 0.04 * (high - low)), max(high, teacher + 0.08 * (high - low)))
    axes.annotate(TEACHER, (0, teacher), xytext=(4, 3), textcoords="offset points", fontsize=7.5, color=INK)


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
