"""Puts the benchmark of the wire on the terminal."""

from rich import box
from rich.table import Table

from ..measure.record import Record
from ..measure.wire_tables import wire_tables
from .screen import console_of


def print_wire(record: Record) -> None:
    """What was sent while training, how long symbols are, how quick each form is, and the links that each is for."""
    console = console_of()
    for table in wire_tables(record):
        drawn = Table(title=table.title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for index, name in enumerate(table.header):
            drawn.add_column(name, justify="left" if index == 0 else "right")
        for line in table.lines:
            drawn.add_row(*line)
        console.print(drawn)
        for remark in table.remarks:
            console.print(remark, style="dim", markup=False)
