"""Puts the table of the hardening study on the terminal."""

from rich import box
from rich.table import Table

from ..lab.hardening_table import hardening_tables
from ..measure.record import Record
from .screen import console_of


def print_hardening(record: Record) -> None:
    """A table for each data set, with its knobs and costs below."""
    console = console_of()
    for table in hardening_tables(record):
        drawn = Table(
            title=table.title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False, collapse_padding=True
        )
        for index, name in enumerate(table.header):
            # Room for "96.37 ± 0.32" on one line; headings may take two.
            drawn.add_column(name, justify="left" if index == 0 else "right", min_width=12 if index else None)
        for line in table.lines:
            drawn.add_row(*line)
        console.print(drawn)
        for remark in table.remarks:
            console.print(remark, style="dim", markup=False)
