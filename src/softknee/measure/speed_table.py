"""Lays a record of `softknee bench kernels` out as a table: one line per function, one column per variant.

A cell reads "forward / forward+backward", both as multiples of a copy of the same tensor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .record import Quantity, Record
from .result_table import ResultTable

_COLUMNS = {
    "softknee eager": "softknee",
    "softknee compiled": "compiled",
    "pseudocode eager": "pseudocode",
    "pseudocode compiled": "pseudocode compiled",
}


def speed_tables(record: Record) -> list[ResultTable]:
    """One table for each dtype of the record, in the order in which they were measured."""
    dtypes = dict.fromkeys(row["dtype"] for row in record.rows)
    return [_table(record, dtype, [row for row in record.rows if row["dtype"] == dtype]) for dtype in dtypes]


def _table(record: Record, dtype: str, rows: Sequence[Mapping[str, Any]]) -> ResultTable:
    cells = {(row["function"], row["variant"]): row for row in rows}
    functions = dict.fromkeys(row["function"] for row in rows if row["variant"] in _COLUMNS)
    columns = [name for name in _COLUMNS if any(row["variant"] == name for row in rows)]
    lines = []
    for function in functions:
        found = [cells.get((function, column), {}) for column in columns]
        held = "/".join(f"{row['held']:.0f}" if "held" in row else "-" for row in found)
        lines.append((function, *(_pair(row) for row in found), held, _widest_spread(found)))
    short = [_COLUMNS[column] for column in columns]
    where = record.hardware.gpu if record.settings["device"] == "cuda" else record.hardware.cpu
    return ResultTable(
        title=f"{dtype}, {_count(record.settings['elements'])} elements, {where}",
        header=("function", *short, "bytes held", "spread"),
        lines=tuple(lines),
        remarks=tuple(_remarks(record, rows)),
    )


def _remarks(record: Record, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    remarks = [
        "Cells are forward / forward+backward with all parameter gradients, as multiples of a copy of "
        "the same tensor; bytes held for backward are per element, in the order of the columns; spread "
        "is the widest half interquartile range of the line.",
    ]
    own = [f"{row['function']} {_pair(row)}" for row in rows if row["variant"] == "torch"]
    copies = [row["time"] for row in rows if row["variant"] == "copy"]
    if own:
        remarks.append("torch's own: " + ", ".join(own) + ".")
    for copy in copies:
        low, middle, high = (f"{1e6 * seconds:.1f}" for seconds in (copy.low, copy.value, copy.high))
        remarks.append(f"The copy takes {middle} us (quartiles {low} to {high}).")
    missing: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if "not_run" in row:
            missing.setdefault((row["variant"], row["not_run"]), []).append(row["function"])
    for (variant, reason), functions in missing.items():
        remarks.append(f"Did not run as {variant}: {', '.join(functions)}. {reason}")
    remarks.append(f"{record.hardware.sentence()}; {record.versions.sentence()}; {record.created}.")
    return remarks


def _pair(row: Mapping[str, Any]) -> str:
    if not row:
        return "-"
    if "forward" not in row and "forward_backward" not in row:
        return "not run"
    return " / ".join(_ratio(row.get(name)) for name in ("forward", "forward_backward"))


def _ratio(quantity: Quantity | None) -> str:
    if quantity is None:
        return "not run"
    return f"{quantity.value:,.{2 if quantity.value < 10 else 1 if quantity.value < 100 else 0}f}"


def _widest_spread(rows: Sequence[Mapping[str, Any]]) -> str:
    measured = [row[name] for row in rows for name in ("forward", "forward_backward") if name in row]
    spreads = [quantity.spread / quantity.value for quantity in measured if quantity.value > 0]
    return f"{100 * max(spreads):.1f}%" if spreads else "-"


def _count(elements: int) -> str:
    for size, letter in ((2**30, "G"), (2**20, "M"), (2**10, "K")):
        if elements % size == 0:
            return f"{elements // size}{letter}"
    return str(elements)
