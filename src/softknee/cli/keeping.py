"""Long commands that keep what each network finds, so that one that was stopped goes on (`lab.kept`)."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .typed import STOPPED

if TYPE_CHECKING:
    from ..measure.record import Record

Keep = Annotated[
    Path | None,
    typer.Option(
        help="a folder for what each network finds, as it comes: runs that name it go on from there and share the "
        "work; default FILE.parts beside --json FILE, until that is written"
    ),
]


@contextmanager
def kept_in(keep: Path | None, json: Path | None) -> Iterator[Path | None]:
    """The folder for findings, None where there is none; Ctrl-C ends the command with a word on what is kept."""
    place = _beside(json) if keep is None and json is not None else keep
    try:
        yield place
    except KeyboardInterrupt:
        lost = "Nothing was kept: name a file with --json, or a folder with --keep."
        kept = f"What was trained to its end is kept in '{place}'. The same command goes on from there."
        typer.echo(f"Stopped. {lost if place is None else kept}", err=True)
        raise typer.Exit(STOPPED) from None


def write_record(record: "Record", json: Path | None, *, keep: Path | None) -> None:
    """Write what was found; the folder beside it, all of whose findings it holds, goes."""
    if json is not None:
        record.write(json)
        if keep is None:
            shutil.rmtree(_beside(json), ignore_errors=True)


def _beside(json: Path) -> Path:
    return json.with_name(f"{json.name}.parts")
