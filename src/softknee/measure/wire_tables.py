"""The record of `softknee bench wire` as tables: what was sent, how long symbols are, how quick, for which links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .record import Quantity, Record
from .result_table import ResultTable


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
