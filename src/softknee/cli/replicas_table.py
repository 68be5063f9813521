"""Puts the benchmark of replicas on the terminal."""

from rich import box
from rich.table import Table

from ..measure.record import Record
from .screen import console_of


def print_replicas(record: Record) -> None:
    """One line for each number of replicas: a step of all, the same models in a row, and the gain."""
    console = console_of()
    settings = record.settings
    network = "-".join(str(width) for width in settings["widths"])
    where = record.hardware.gpu if settings["device"] == "cuda" else f"CPU, {settings['threads']} threads"
    title = f"{network}, {settings['activation']}, batch {settings['batch']}, on {where or settings['device']}"
    drawn = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for name in ("replicas", "one step of all, ms", "plain loop, in a row, ms", "gain"):
        drawn.add_column(name, justify="right")
    for row in record.rows:
        if "not_run" in row:
            drawn.add_row(str(row["count"]), "not run", row["in_a_row"].text(2), "")
        else:
            drawn.add_row(str(row["count"]), row["step"].text(3), row["in_a_row"].text(2), f"{row['gain'].value:.1f}x")
    console.print(drawn)
    for row in record.rows:
        if "not_run" in row:
            console.print(f"{row['count']} replicas: {row['not_run']}", style="red", markup=False)
    one = record.rows[0]["one_eager"].text(3)
    console.print(f"One model in a plain loop: {one} ms a step.", markup=False)
