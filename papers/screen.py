"""Claims and statements as tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from softknee.app.screen import console_of

from .claim import CRASHED, FAILS, HOLDS, PAPERS, PARTLY, VERDICTS
from .ledger import Entry
from .statement import CANNOT_TELL, NOT_THERE, Judged, in_words
from .text import plain

STYLES = {HOLDS: "green", PARTLY: "yellow", FAILS: "red", CANNOT_TELL: "cyan", NOT_THERE: "dim", CRASHED: "bold red"}


def print_claims(entries: Sequence[Entry]) -> None:
    """Every entry: where it stands, what it says, what was measured, the verdict."""
    console = console_of()
    for paper in PAPERS:
        if of := [one for one in entries if one.claim.paper == paper]:
            drawn = Table(
                title=f"{paper.name}: {paper.title}",
                title_justify="left",
                box=box.SIMPLE_HEAD,
                pad_edge=False,
                show_lines=True,
                expand=True,
            )
            for name, ratio in (("place", 6), ("claim", 10), ("measured", 14)):
                drawn.add_column(name, ratio=ratio)
            drawn.add_column("verdict", no_wrap=True)
            for one in of:
                texts = (one.claim.place, one.claim.says, one.measured)
                # Text and not str: square brackets of intervals would be read as markup.
                drawn.add_row(*(Text(plain(text)) for text in texts), Text(one.verdict, STYLES.get(one.verdict, "")))
            console.print(drawn)
    for one in entries:
        if not one.as_expected:
            found = f"{one.claim.id}: {one.verdict}, where the ledger has {one.claim.expect!r} on record."
            console.print(found, style="bold red", markup=False)
    counts = {verdict: sum(one.verdict == verdict for one in entries) for verdict in (*VERDICTS, CRASHED)}
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    seconds = sum(one.seconds for one in entries)
    console.print(f"{len(entries)} claims in {seconds:.1f} s: {said}.", markup=False)


def print_statements(judged: Sequence[Judged]) -> None:
    """Every statement: where it stands, what it says, what was found, the verdict."""
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
            Text(verdict, STYLES.get(one.verdict, "")),
        )
    console.print(drawn)
    counts = {verdict: sum(one.verdict == verdict for one in judged) for verdict in STYLES if verdict != CRASHED}
    console.print(f"{len(judged)} statements: {in_words(counts)}.", markup=False)


def _found(one: Judged) -> Text:
    """What was found, and below it what was different from the paper, which concerns only what was found."""
    found = Text(plain(one.measured))
    if one.evidence is not None:
        found.append(plain(f"\nDifferent from the paper: {one.statement.different}."), style="dim")
    return found
