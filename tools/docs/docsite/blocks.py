"""The blocks of code on a page: found, run one after the other as a reader would, and what they print.

All `python` blocks of a page share one namespace and one empty folder. A block with `if __name__ == "__main__":` is a
program and runs as one, in a process of its own. A block that begins with `# mine.yaml`, the name of a file, is written
to that file. In a `console` block the lines that begin with `$ ` are commands and are run. What a page needs but need
not show stands in a comment:

    <!-- prepare
    from language_files import write_gpt2
    write_gpt2(Path("gpt2"))
    -->

Lines that begin with `softknee ` in a block of another kind are read by the command's own parser: a command or an
option that does not exist is an error.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import shlex
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .places import ROOT

_PARTS = re.compile(r"^<!-- prepare\n(?P<prepare>.*?)^-->$|^```(?P<kind>[\w{}-]*)\n(?P<body>.*?)^```$", re.M | re.S)
_INDENTED = re.compile(r"(?:^ {4}.*\n|^\n(?= {4}))+", re.M)
_COMMAND = re.compile(r"^(?:\$ )?softknee(?= |$)")
_FILE = re.compile(r"# ([\w./-]+\.(?:yaml|py|csv))\n")
_SOURCE = "SOFTKNEE_DOCS_SOURCE"  # where the package is, if not in this tree: docsite.follow works on a copy
SHOWN = ("python", "console", "yaml")
SCRIPT = 'if __name__ == "__main__":'
_SECONDS = 300


class BlockError(Exception):
    """A block that does not run, with the page, the line and the end of the traceback."""


@dataclass(frozen=True)
class Block:
    """One block of a page: `kind` is python, prepare (hidden) or the language of another fence."""

    page: Path
    line: int
    kind: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page.name}, line {self.line}"


def blocks_of(page: Path) -> tuple[Block, ...]:
    """Every fenced block and every hidden preparation of a page, in order."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in _PARTS.finditer(text):
        hidden = match["prepare"] is not None
        kind, code = ("prepare", match["prepare"]) if hidden else (match["kind"], match["body"])
        blocks.append(Block(page, text.count("\n", 0, match.start()) + 2, kind, code))
    return tuple(blocks)


def run_blocks_of(page: Path) -> tuple[str, ...]:
    """Run a page's python in an empty folder; return what each shown block printed, in order.

    The first block that fails ends the page with a `BlockError`.
    """
    printed: list[str] = []
    name = f"<{page.name}>"
    room: dict[str, object] = {"__name__": "guide"}
    before, path = Path.cwd(), os.environ.get("PYTHONPATH")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        # For the processes that a block starts, which begin in that folder: the package of this tree.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            [os.environ.get(_SOURCE, str(ROOT / "src")), *([path] if path else [])]
        )
        try:
            for block in blocks_of(page):
                output = _run_block(block, name, room)
                if block.kind in SHOWN:
                    printed.append(output)
        finally:
            os.chdir(before)
            os.environ.pop("PYTHONPATH") if path is None else os.environ.update(PYTHONPATH=path)
            linecache.cache.pop(name, None)
    return tuple(printed)


def _run_block(block: Block, name: str, room: dict[str, object]) -> str:
    if file := _FILE.match(block.code):
        place = Path(file[1])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(block.code, encoding="utf-8")
    elif block.kind == "console":
        return "".join(_run_command(line, block) for line in block.code.splitlines() if line.startswith("$ "))
    elif block.kind in ("python", "prepare"):
        return _run_script(block) if SCRIPT in block.code else _run_here(block, name, room)
    return ""


def _run_command(line: str, block: Block) -> str:
    words = shlex.split(line.removeprefix("$ "), comments=True)
    if words[0] == "softknee":
        return _run_softknee(words[1:], block)
    if words[0] != "torchrun":
        raise BlockError(f"A command is softknee or torchrun, and {words[0]!r} stands in {block.place}.")
    return _process(["-m", "torch.distributed.run", *words[1:]], block)


def _run_softknee(words: list[str], block: Block) -> str:
    from softknee.app.commands import app

    out, before = io.StringIO(), sys.argv
    sys.argv = ["softknee", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            app(args=words, prog_name="softknee", standalone_mode=False)
    except (Exception, SystemExit) as problem:
        raise BlockError(f"The command {' '.join(words)!r} of {block.place} does not run: {problem}") from problem
    finally:
        sys.argv = before
    return out.getvalue()


def _run_here(block: Block, name: str, room: dict[str, object]) -> str:
    # Empty lines first, so that a traceback names the line of the page; the cache of sources lets surgery read
    # what it changes, as in a notebook.
    known = linecache.cache.get(name)
    lines = [*(known[2] if known is not None and len(known) == 4 else [])]
    lines += ["\n"] * (block.line - 1 - len(lines)) + block.code.splitlines(keepends=True)
    linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()), warnings.catch_warnings():
            exec(compile("\n" * (block.line - 1) + block.code, name, "exec"), room)
    except (Exception, SystemExit) as problem:
        lines = "".join(traceback.format_exception(problem)[-4:])
        raise BlockError(f"The block of {block.place} does not run:\n{lines}") from problem
    return out.getvalue()


def _run_script(block: Block) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "example.py"
        file.write_text(block.code, encoding="utf-8")
        return _process([str(file)], block)


def _process(arguments: list[str], block: Block) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        errors = done.stderr
        # torchrun repeats at length that a process failed; the output of that process comes before it.
        shown = errors if len(errors) <= 8000 else f"{errors[:4000]}\n...\n{errors[-4000:]}"
        raise BlockError(f"The program of {block.place} ends with {done.returncode}:\n{shown}")
    return done.stdout


# -- commands ---------------------------------------------------------------------------------------------


def commands_of(page: Path) -> Iterator[tuple[str, str]]:
    """Every line of a page that is a `softknee` command, with its place; continued lines are joined."""
    text = page.read_text(encoding="utf-8")
    shown = [match["body"] for match in _PARTS.finditer(text) if match["kind"] in ("", "sh", "bash", "console", "text")]
    shown += _INDENTED.findall(_PARTS.sub("", text))
    for body in shown:
        for line in body.replace("\\\n", " ").splitlines():
            if _COMMAND.match(line.strip()):
                yield line.strip().removeprefix("$ "), f"{page.name}: {line.strip()}"


def check_command(line: str, place: str) -> None:
    """Read a command line as `softknee` would, without doing anything: commands and options must exist."""
    import typer

    from softknee.app.commands import app

    words = shlex.split(line, comments=True)[1:]
    # Any: newer versions of typer have a click of their own.
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="softknee")
    try:
        while words and hasattr(command, "get_command"):
            _, words = _options(command, context, words)
            if not words:
                break
            _, chosen, words = command.resolve_command(context, words)
            context = chosen.context_class(chosen, info_name=chosen.name, parent=context)
            command = chosen
        _options(command, context, words)
    except Exception as problem:
        if isinstance(problem, BlockError):
            raise
        raise BlockError(
            f"The command is not understood ({place}): {getattr(problem, 'message', problem)}"
        ) from problem


def _options(command: Any, context: Any, words: Sequence[str]) -> tuple[dict[str, object], list[str]]:
    options, rest, _ = command.make_parser(context).parse_args(args=list(words))
    return options, rest
