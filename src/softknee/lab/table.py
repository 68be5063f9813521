"""The text of a table, whatever its record is of: shown on a screen or written as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..measure.record import Quantity, Record


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """The text of one table: its title, header, lines of cells, and the remarks below it."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    remarks: tuple[str, ...]

    def markdown(self) -> str:
        """The table as Markdown, for a README."""
        rule = ["---", *("---:" for _ in self.header[1:])]
        body = "\n".join("| " + " | ".join(line) + " |" for line in (self.header, rule, *self.lines))
        return f"**{self.title}**\n\n{body}\n\n" + "\n".join(f"- {remark}" for remark in self.remarks) + "\n"


# -- lays a record of softknee bench kernels out as a table -----------------------------------------------
#
# One line per function, one column per variant.
#
# A cell reads "forward / forward+backward", both as multiples of a copy of the same tensor.


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


# -- the record of softknee bench wire as tables ----------------------------------------------------------
#
# What was sent, how long symbols are, how quick, for which links.


def wire_tables(record: Record) -> list[ResultTable]:
    """Four tables, in the order of the work."""
    settings = record.settings
    rows = {part: [row for row in record.rows if row["part"] == part] for part in ("training", "speed", "crossover")}
    where = record.hardware.gpu if settings["device"] == "cuda" else f"CPU, {settings['threads']} thread(s)"
    steps = rows["training"][0]["steps"]
    sent = ResultTable(
        title=f"The digits over two processes, SQUAF-P at the cut, {steps} steps",
        header=(
            "rate penalty", "accuracy", "in one process", "bits sent", "entropy", "less than bf16", "than float32"
        ),
        lines=tuple(_sent(row) for row in rows["training"]),
        remarks=(
            "bits sent per activation, with tables and headers, by the coder that is shortest; mean over training",
            f"largest difference of a loss from that in one process: {_largest(rows['training']):.1g}",
        ),
    )  # fmt: skip
    bits = ResultTable(
        title="Bits per activation after training (test images, whole messages)",
        header=("rate penalty", "entropy", "rans", "huffman", "packed"),
        lines=tuple(
            (_rate(row), *(f"{row['bits'][name]:.2f}" for name in ("entropy", "rans", "huffman", "packed")))
            for row in rows["training"]
        ),
        remarks=(),
    )
    speed = ResultTable(
        title=f"Coding {settings['elements']:,} activations on {where or settings['device']}, million per second",
        header=("form", "rate penalty", "bits", "encode", "decode"),
        lines=tuple(
            (row["form"], _rate(row), f"{row['bits_per_activation']:.2f}", _speed(row, "encode"), _speed(row, "decode"))
            for row in rows["speed"]
        ),
        remarks=tuple(f"{row['form']}: {row['not_run']}" for row in rows["speed"] if "not_run" in row),
    )
    crossover = ResultTable(
        title="The quicker form by the speed of the link (bytes / bandwidth + coding, nothing overlapped)",
        header=("forms", "rate penalty", "the first is quicker on links below"),
        lines=tuple(
            (f"{row['shorter']} or {row['longer']}", _rate(row), row.get("verdict") or _bandwidth(row["below"]))
            for row in rows["crossover"]
        ),
        remarks=(),
    )
    return [sent, bits, speed, crossover]


def wire_markdown(record: Record) -> str:
    """The tables as Markdown."""
    return "\n".join(one.markdown().rstrip() + "\n" for one in wire_tables(record))


def _sent(row: Mapping[str, Any]) -> tuple[str, ...]:
    sent = row["sent"]
    return (
        _rate(row),
        f"{row['accuracy_two_processes']:.1%}",
        f"{row['accuracy_one_process']:.1%}",
        f"{sent['bits_per_activation']:.2f}",
        f"{sent['entropy']:.2f}",
        f"{sent['less_than_bfloat16']:.1f}x",
        f"{sent['less_than_float32']:.1f}x",
    )


def _largest(rows: list[Mapping[str, Any]]) -> float:
    return max(row["largest_difference_of_losses"] for row in rows)


def _rate(row: Mapping[str, Any]) -> str:
    return f"{row['rate_weight']:g}"


def _speed(row: Mapping[str, Any], way: str) -> str:
    found = row.get(f"{way}_speed")
    return "not run" if found is None else f"{found.value:,.3g}" if found.value < 1000 else f"{found.value:,.0f}"


def _bandwidth(found: Quantity) -> str:
    value = found.value
    return f"{value / 1000:.3g} Gbit/s" if value >= 1000 else f"{value:.3g} Mbit/s"
