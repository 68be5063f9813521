"""Puts a deploy check on the terminal."""

from rich import box
from rich.table import Table
from rich.text import Text

from ..measure.result_table import ResultTable
from .screen import console_of


def print_deploy(table: ResultTable, *, markdown: bool) -> None:
    """A table of deploy checks, and below it why something did not run."""
    console = console_of()
    if markdown:
        console.print(table.markdown(), soft_wrap=True, markup=False)
        return
    drawn = Table(title=table.title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, name in enumerate(table.header):
        drawn.add_column(name, justify="left" if index == 0 else "right", no_wrap=index == 0)
    for line in table.lines:
        # Text and not str: the number of a remark in square brackets would be read as markup.
        drawn.add_row(*(Text(cell) for cell in line))
    console.print(drawn)
    for remark in table.remarks:
        console.print(remark, style="dim", markup=False)
