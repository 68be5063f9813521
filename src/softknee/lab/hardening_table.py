"""The table of the hardening study from its record, as lines of text and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..measure.record import Quantity, Record, RecordError
from ..measure.result_table import ResultTable

KIND = "study hardening"
# The columns by their name in the record, with their heading.
HEADINGS = {
    "free": "free",
    "hardened": "hardened",
    "replaced": "replaced",
    "chosen": "replaced, best epoch",
    "swapped": "swapped directly",
    "relu": "ReLU from scratch",
}
_NETWORKS = {"mlp": "MLP", "cnn": "CNN"}
_NONE = "–"


def hardening_tables(record: Record) -> list[ResultTable]:
    """A table for each data set of a record of the study."""
    if record.kind != KIND:
        raise RecordError(f"The record is of {record.kind!r}, and the table is made from one of {KIND!r}.")
    names = list(dict.fromkeys(row["data"] for row in record.rows))
    return [_table(record, name) for name in names]


def hardening_markdown(record: Record) -> str:
    """All tables of a record of the study, in Markdown."""
    return "\n".join(table.markdown() for table in hardening_tables(record))


def _table(record: Record, name: str) -> ResultTable:
    rows = [row for row in record.rows if row["data"] == name]
    task = record.settings["tasks"][name]
    seeds = len(record.seeds)
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    network = _NETWORKS.get(task["network"], task["network"])
    return ResultTable(
        title=f"{network} on {name}, {task['epochs']} epochs: test accuracy in %, {over}",
        header=("activation", *HEADINGS.values()),
        lines=tuple((row["function"], *(_text(row["accuracy"], column) for column in HEADINGS)) for row in rows),
        remarks=tuple(_remark(row) for row in rows if row["hardness_profile"]),
    )


def _text(accuracy: Mapping[str, Quantity], column: str) -> str:
    return accuracy[column].text(2) if column in accuracy else _NONE


def _remark(row: Mapping[str, Any]) -> str:
    """Knobs by layer when they were frozen and at the end, and what each step cost."""
    knobs = [one for one in row["hardness_profile"] if one["run"] == "hardened"]
    frozen, end = (", ".join(_knob(one["knob"]) for one in knobs if one["when"] == when) for when in ("freeze", "end"))
    costs = (("hardening", "cost_of_hardening"), ("replacing", "cost_of_replacement"), ("swapping", "cost_of_swap"))
    said = ", ".join(f"{what} {row[name].text(2)}" for what, name in costs)
    epochs = ", ".join(map(str, row["best_epoch_by_seed"]["hardened"]))
    return (
        f"{row['function']}: knobs by layer {frozen} when frozen, {end} at the end; percentage points lost by {said}; "
        f"best epochs {epochs}."
    )


def _knob(found: Quantity) -> str:
    spread = f" ± {found.spread:.2g}" if found.spread > 1e-6 * abs(found.value) else ""
    return f"{found.value:.3g}{spread}"
