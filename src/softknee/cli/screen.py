"""Puts records on the terminal with rich: progress while they are made, tables when they are done."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from ..measure.record import Record
from ..measure.result_table import ResultTable
from ..measure.speed_table import speed_tables

# A file or a pipe has no width of its own; 100 characters is what the tables are made for.
_WIDTH_WITHOUT_TERMINAL = 100
_BETWEEN_LINES = 15.0  # seconds


def console_of(*, for_errors: bool = False) -> Console:
    """The terminal, or what stands in for one, with its width."""
    console = Console(stderr=for_errors, highlight=False)
    return (
        console if console.is_terminal else Console(stderr=for_errors, highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    )


@contextmanager
def progress_line(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner with the name of what is going on; it goes to stderr, so that stdout can be piped."""
    console = console_of(for_errors=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as progress:
        task = progress.add_task(what, total=None)
        yield lambda name: progress.update(task, description=f"{what} {name}")


@contextmanager
def progress_bar(what: str, *, total: int) -> Iterator[Callable[[str], None]]:
    """A bar that moves by one with each call, which also says what is being done; lines where there is no terminal."""
    if not sys.stderr.isatty():
        yield _lines(what, total)
        return
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console_of(for_errors=True)) as progress:
        task = progress.add_task(what, total=total)
        yield lambda name: progress.update(task, description=f"{what} {name}", advance=1)
        progress.update(task, description=f"{what} done")


def _lines(what: str, total: int) -> Callable[[str], None]:
    """A line on stderr now and then: in the log of a long run a bar would be seen when it is over."""
    from ..lab.studies.progress import clock

    begun = said = time.monotonic()
    done = 0

    def advance(name: str) -> None:
        nonlocal said, done
        done, now = done + 1, time.monotonic()
        if now - said >= _BETWEEN_LINES or (done == total and said > begun):
            said, left = now, (now - begun) / done * (total - done)
            times = f"{clock(now - begun)} so far, about {clock(left)} left"
            typer.echo(f"{what} {name}: {done} of {total}, {times}", err=True)

    return advance


def print_speed(record: Record, *, markdown: bool) -> None:
    """The tables of a kernel benchmark."""
    console = console_of()
    for table in speed_tables(record):
        if markdown:
            console.print(table.markdown(), soft_wrap=True, markup=False)
        else:
            _print_speed_table(console, table)


def _print_speed_table(console: Console, table: ResultTable) -> None:
    drawn = Table(title=table.title, box=box.SIMPLE_HEAD, padding=(0, 1), title_justify="left", pad_edge=False)
    for index, name in enumerate(table.header):
        drawn.add_column(name, justify="left" if index == 0 else "right", no_wrap=index == 0)
    for line in table.lines:
        drawn.add_row(*line)
    console.print(drawn)
    for remark in table.remarks:
        console.print(remark, style="dim", markup=False)
