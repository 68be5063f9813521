"""Judges the papers' empirical statements by stored records, and puts the verdicts on the terminal."""

from collections.abc import Sequence
from pathlib import Path

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from ..lab import evidence
from ..lab.evidence.statement import CANNOT_TELL, NOT_THERE, Judged, in_words
from ..lab.ledger.entry import FAILS, HOLDS, PARTLY
from ..lab.ledger.text import plain
from .screen import console_of

_STYLES = {HOLDS: "green", PARTLY: "yellow", FAILS: "red", CANNOT_TELL: "cyan", NOT_THERE: "dim"}


def judge_records(
    results: Path, *, papers: Sequence[str], file: Path | None, json: bool, docs: Path | None, command: str
) -> None:
    """Judge, and write or print what was asked for."""
    runs = evidence.Runs(results)
    judged = evidence.judge(evidence.find(papers), runs)
    if docs is not None:
        evidence.write_page(judged, runs, docs)
    if json and file is not None:
        evidence.record(judged, command=command).write(file)
    if json and file is None:
        typer.echo(evidence.record(judged, command=command).to_json(), nl=False)
    else:
        _print(judged)


def _print(judged: Sequence[Judged]) -> None:
    console = console_of()
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=True, expand=True)
    for name, ratio in (("paper and place", 6), ("statement", 10), ("found", 14)):
        drawn.add_column(name, ratio=ratio)
    drawn.add_column("verdict", no_wrap=True)
    for one in judged:
        where = f"{one.statement.paper.name}, {one.statement.place}"
        verdict = "\n".join([one.verdict, *one.counts.split(", ")]).rstrip()
        drawn.add_row(
            *(Text(plain(text)) for text in (where, one.statement.says)),
            _found(one),
            Text(verdict, _STYLES.get(one.verdict, "")),
        )
    console.print(drawn)
    counts = {verdict: sum(one.verdict == verdict for one in judged) for verdict in _STYLES}
    console.print(f"{len(judged)} statements: {in_words(counts)}.", markup=False)


def _found(one: Judged) -> Text:
    """What was found, and below it what was different from the paper, which concerns only what was found."""
    found = Text(plain(one.measured))
    if one.evidence is not None:
        found.append(plain(f"\nDifferent from the paper: {one.statement.different}."), style="dim")
    return found
