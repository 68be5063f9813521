"""What was typed: the command line for a record, and options that hold several values."""

import shlex
import sys


def command_line() -> str:
    """The command line as typed, for the record."""
    return shlex.join(["softknee", *sys.argv[1:]])


def several(text: str) -> tuple[str, ...]:
    """The parts of an option with commas between."""
    return tuple(part.strip() for part in text.split(",") if part.strip())
