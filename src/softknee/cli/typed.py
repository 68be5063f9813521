"""What was typed: the command line for a record, and options that hold several values."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

STOPPED = 130  # the exit code of a command that Ctrl-C has ended


def command_line() -> str:
    """The command line as typed, for the record; without --keep, with which a repetition would train nothing."""
    words, typed = ["softknee"], iter(sys.argv[1:])
    for word in typed:
        if word == "--keep":
            next(typed, None)
        elif not word.startswith("--keep="):
            words.append(word)
    return shlex.join(words)


def several(text: str) -> tuple[str, ...]:
    """The parts of an option with commas between."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _place(path: Path | None) -> Path | None:
    """Refuse a place that no record can be written to before hours are spent on it."""
    from ..files import check_place

    if path is not None:
        check_place(path, what="record")
    return path


RecordFile = Annotated[Path | None, typer.Option(help="write the record to this file", callback=_place)]


def announce_smoke(smoke: bool) -> None:
    """Say at the start of a smoke run what it is for."""
    if smoke:
        typer.echo("Smoke run: it shows that everything works, and its numbers mean nothing.", err=True)
