"""Builds the site: `python -m docsite.build [--out FOLDER] [--no-run]`, or `make docs`.

run      every python block of docs/ and every `softknee` command is read; a block that does not run ends the build
stage    pages, pictures and records; pages that follow from the code: zoo, papers, reference, architecture
sphinx   with warnings as errors
check    every link, every anchor, and that nothing is fetched from outside
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from .blocks import SHOWN, BlockError, blocks_of, check_command, commands_of, run_blocks_of
from .follow import copy_package, follow
from .links import problems
from .papers import write_papers
from .places import DOCS, ROOT, TOOLS
from .reference import UndocumentedError, write_reference
from .rooms import fill
from .staging import stage
from .zoo import write_zoo

EXTEND = DOCS / "extend"


class BuildError(Exception):
    """What is wrong with the site, a sentence each."""


def pages() -> tuple[Path, ...]:
    """Every committed page of docs/: what is written by hand, and the zoo."""
    return tuple(sorted(DOCS.rglob("*.md")))


def run_blocks() -> dict[str, tuple[str, ...]]:
    """Run the code of every page, in two processes; what each block printed, by page."""
    for page in pages():
        for line, place in commands_of(page):
            check_command(line, place)
    with_code = [page for page in pages() if page.parent != EXTEND and any(b.kind in SHOWN for b in blocks_of(page))]
    # A block may change the process (names, threads, Ray): each process begins anew and takes one page after the other.
    with ProcessPoolExecutor(max_workers=2, mp_context=get_context("spawn")) as pool:
        added = pool.submit(_follow_all)
        pending = {str(page.relative_to(DOCS)): pool.submit(run_blocks_of, page) for page in with_code}
        printed = {name: result.result() for name, result in pending.items()}
        return printed | {f"{EXTEND.name}/{name}": texts for name, texts in added.result().items()}


def _follow_all() -> dict[str, tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        return follow(sorted(EXTEND.glob("*.md")), copy_package(Path(folder)))


def write_sources(out: Path, printed: dict[str, tuple[str, ...]], *, bent: Collection[str] | None = None) -> None:
    """Everything that Sphinx reads; `bent` names the functions that have a slider, None all."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    stage(out, printed)
    write_zoo(out, bent=bent)
    write_papers(out)
    write_reference(out)
    fill(out / "architecture.md")


def make_html(source: Path, html: Path) -> None:
    """Run Sphinx with warnings as errors."""
    from sphinx.cmd.build import build_main

    shutil.rmtree(html, ignore_errors=True)
    arguments = ["-b", "html", "-c", str(TOOLS), "-d", str(html.parent / "doctrees"), "-W", "--keep-going", "-q"]
    with warnings.catch_warnings():
        # What Sphinx and its extensions will change in themselves is theirs to see to.
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        failed = build_main([*arguments, str(source), str(html)])
    if failed:
        raise BuildError("Sphinx had complaints; they stand above.")


def build(out: Path, *, run: bool = True) -> Path:
    """Build the site below a folder and return where its pages are."""
    printed = run_blocks() if run else {}
    source, html = out / "source", out / "html"
    write_sources(source, printed)
    make_html(source, html)
    if complaints := problems(html):
        raise BuildError("\n".join(complaints))
    return html


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where something is wrong with the site."""
    parser = argparse.ArgumentParser(description="Build the documentation.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="the folder to build in")
    parser.add_argument("--no-run", action="store_true", help="do not run the blocks of the pages")
    options = parser.parse_args(arguments)
    begun = time.perf_counter()
    try:
        html = build(options.out.resolve(), run=not options.no_run)
    except (BuildError, BlockError, UndocumentedError) as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    sys.stdout.write(f"{html / 'index.html'} ({time.perf_counter() - begun:.0f} s)\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
