"""Puts the benchmark of a model before and after a swap on the terminal."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from ..measure.record import Quantity, Record
from .screen import console_of

_MOST_PATHS = 3  # all of them are in the record


def print_model(record: Record) -> None:
    """Times, memory and parameters before and after, then the sites."""
    console = console_of()
    rows = list(record.rows)
    if len(rows) > 2:
        _print_several(console, record)
        return
    before, after = rows
    drawn = Table(title=_title(record), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in ("", "before", "after", "ratio"):
        drawn.add_column(name, justify="right" if name else "left")
    for label, key in (("inference, ms", "forward"), ("training step, ms", "step")):
        first, second = before.get(key), after.get(key)
        drawn.add_row(label, _time(first), _time(second), _ratio(_value(first), _value(second)))
    for label, key in (("held for backward, MiB", "held"), ("peak of a step, MiB", "peak")):
        first, second = before.get(key), after.get(key)
        if key == "peak" and first is None and second is None:
            drawn.add_row(label, "not measured", "not measured", "")
        else:
            drawn.add_row(label, _mib(first), _mib(second), _ratio(first, second))
    added = after["parameters"] - before["parameters"]
    drawn.add_row(
        "parameters", f"{before['parameters']:,}", f"{after['parameters']:,}", f"{added:+,}" if added else "same"
    )
    console.print(drawn)
    if "peak" not in before and record.settings["device"] != "cuda":
        console.print("Peak memory is counted by CUDA's allocator; a CPU's keeps no such count.", style="dim")
    if "output_change" in after:
        console.print(
            f"Largest change of an output before any training: {after['output_change']:.3g}, "
            f"{after['relative_change']:.2%} of the largest output (random weights)."
        )
    for row in (before, after):
        if "not_run" in row:
            console.print(f"{row['variant']}: {row['not_run']}", style="red", markup=False)
    _print_sites(console, after)


def _print_several(console: Console, record: Record) -> None:
    """One line for each swap, with ratios to the model as it is built."""
    before = record.rows[0]
    drawn = Table(title=_title(record), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in ("", "inference, ms", "ratio", "training step, ms", "ratio", "peak, MiB", "ratio", "parameters"):
        drawn.add_column(name, justify="right" if name else "left")
    for row in record.rows:
        times = [
            text
            for key in ("forward", "step")
            for text in (_time(row.get(key)), _ratio(_value(before.get(key)), _value(row.get(key))))
        ]
        memory = [_mib(row.get("peak")), _ratio(before.get("peak"), row.get("peak"))]
        added = row["parameters"] - before["parameters"]
        drawn.add_row(row["variant"], *times, *memory, f"{added:+,}" if added else f"{row['parameters']:,}")
    console.print(drawn)
    for row in record.rows:
        if "not_run" in row:
            console.print(f"{row['variant']}: {row['not_run']}", style="red", markup=False)


def _print_sites(console: Console, after: Mapping[str, Any]) -> None:
    changed, skipped = after.get("changed", ()), after.get("skipped", ())
    console.print(f"{len(changed)} sites changed, {len(skipped)} left as they were.")
    alike: dict[str, list[str]] = {}
    for one in changed:
        alike.setdefault(f"{one['was']} → {one['now']}", []).append(one["path"])
    for one in skipped:
        alike.setdefault(f"left, because {one['reason']}", []).append(f"{one['path']} ({one['activation']})")
    for what, paths in alike.items():
        more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
        console.print(f"  {what}: {', '.join(paths[:_MOST_PATHS])}{more}", markup=False)
    for note in after.get("notes", ()):
        console.print(note, markup=False)


def _title(record: Record) -> str:
    settings = record.settings
    shapes = ", ".join("x".join(map(str, shape)) for shape in settings["inputs"].values())
    how = ", compiled" if settings["compile"] else ""
    what = f"{1 + len(settings['others'])} swaps" if settings.get("others") else settings["swap"]
    return f"{settings['model']}, {what}: {shapes} in {settings['dtype']} on {settings['device']}{how}"


def _time(found: Quantity | None) -> str:
    return "-" if found is None else found.text(2)


def _value(found: Quantity | None) -> float | None:
    return None if found is None else found.value


def _mib(count: int | None) -> str:
    return "-" if count is None else f"{count / 2**20:,.1f}"


def _ratio(before: float | None, after: float | None) -> str:
    return "" if not before or after is None else f"{after / before:.3f}"
