"""The speed table of the README, made from the records: `python tests/readme_table.py` prints it."""

import sys
from pathlib import Path
from typing import Any

from softknee.measure import Quantity, Record

ROOT = Path(__file__).parent.parent
RECORDS = {"bf16": ROOT / "benchmarks/records/h200-bf16.json", "f32": ROOT / "benchmarks/records/h200-f32.json"}
SHOWN = ("srelu", "smelu", "generalized_smelu", "crrelu", "lambda_gelu", "swish", "mish", "softplus", "squaf")
VARIANTS = ("softknee eager", "pseudocode eager", "pseudocode compiled")


def _cell(row: dict[str, Any]) -> str:
    return " / ".join(_short(row[name]) for name in ("forward", "forward_backward"))


def _short(quantity: Quantity) -> str:
    value = quantity.value
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table() -> list[str]:
    """The lines of the table."""
    header = ["function", *(f"{v.removesuffix(' eager')}, {d}" for d in RECORDS for v in VARIANTS), "bytes held, bf16"]
    lines = [f"| {' | '.join(header)} |", f"| --- |{' ---: |' * (len(header) - 1)}"]
    rows = {
        (dtype, row["function"], row["variant"]): row
        for dtype, path in RECORDS.items()
        for row in Record.from_json(path.read_text(encoding="utf-8")).rows
    }
    for name in SHOWN:
        cells = [_cell(rows[dtype, name, variant]) for dtype in RECORDS for variant in VARIANTS]
        held = ", ".join(f"{rows['bf16', name, variant]['held']:.0f}" for variant in VARIANTS)
        lines.append(f"| {name} | {' | '.join(cells)} | {held} |")
    for name in ("relu", "gelu", "silu"):
        cells = [cell for dtype in RECORDS for cell in (_cell(rows[dtype, name, "torch"]), "", "")]
        held = f"{rows['bf16', name, 'torch']['held']:.0f}"
        lines.append(f"| torch's own {name} | {' | '.join(cells)} | {held} |")
    return lines


if __name__ == "__main__":
    sys.stdout.write("\n".join(table()) + "\n")
