"""The record of the rate study as a table."""

from __future__ import annotations

from ...errors import ParameterError
from ...measure.record import Quantity, Record
from .study import KIND

_HEADS = (
    "activation", "weight of the rate", "accuracy, %", "switched to SQUAF (32 bits)", "switched to SQUAF-S",
    "rate (eq. 12)", "Huffman", "range coder", "SQUAF-S, Huffman",
)  # fmt: skip


def rate_markdown(record: Record) -> str:
    """A row for each training: accuracies in percent, bits per activation, mean and spread over the seeds."""
    if record.kind != KIND:
        raise ParameterError(
            f"This table is made of a record of 'softknee study rate', and this one is of {record.kind!r}; name "
            "another file."
        )
    lines = [f"| {' | '.join(_HEADS)} |", "|:--" + "|--:" * (len(_HEADS) - 1) + "|"]
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
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _text(found: Quantity | None, digits: int) -> str:
    return "" if found is None else found.text(digits)
