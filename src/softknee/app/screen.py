"""The terminal: progress while a command works, tables when it is done, and options that several commands share."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..errors import ParameterError
from ..lab.table import Table

# A file or a pipe has no width of its own; 100 characters is what the tables are made for.
_WIDTH_WITHOUT_TERMINAL = 100
_BETWEEN_LINES = 15.0  # seconds
T = TypeVar("T", int, float)


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
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, transient=True
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
    from ..lab.table import duration

    begun = last_line = time.monotonic()
    done = 0

    def advance(name: str) -> None:
        nonlocal last_line, done
        done, now = done + 1, time.monotonic()
        if now - last_line >= _BETWEEN_LINES or (done == total and last_line > begun):
            last_line, left = now, (now - begun) / done * (total - done)
            times = f"{duration(now - begun)} so far, about {duration(left)} left"
            typer.echo(f"{what} {name}: {done} of {total}, {times}", err=True)

    return advance


def print_table(table: Table, *, markdown: bool = False, **column: Any) -> None:
    """A table with its caption and remarks, or the same as Markdown; `column` is as in `Table.terminal`."""
    console = console_of()
    if markdown:
        console.print(table.markdown(), soft_wrap=True, markup=False)
        return
    console.print(table.terminal(**column))
    for sentence in (*[table.caption] * bool(table.caption), *table.remarks):
        console.print(sentence, style="dim", markup=False)


STOPPED = 130  # the exit code of a command that Ctrl-C has ended


def command_line(program: str = "softknee") -> str:
    """The command line as typed, for the record."""
    return shlex.join([*shlex.split(program), *sys.argv[1:]])


def several(text: str) -> tuple[str, ...]:
    """The parts of an option with commas between."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def several_numbers(option: str, text: str, kind: type[T]) -> tuple[T, ...]:
    """The numbers of an option with commas between."""
    try:
        return tuple(kind(part) for part in several(text))
    except ValueError:
        what, example = ("whole numbers", "1,12") if kind is int else ("numbers", "0.1,2")
        raise ParameterError(f"{option} takes {what} with commas between, such as {example}, not {text!r}.") from None


def _place(path: Path | None) -> Path | None:
    """Refuse a path that cannot be written to before hours are spent on the record."""
    from ..files import check_place

    if path is not None:
        check_place(path, what="record")
    return path


RecordFile = Annotated[Path | None, typer.Option(help="write the record to this file", callback=_place)]
Name = Annotated[str, typer.Argument(metavar="NAME_OR_FILE", help="a recipe of `study list`, or a .yaml file")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="such as training.epochs=3; may be given again")
]
