"""Puts the ledger of claims on the terminal: one table per paper, and the count at the end."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from ..lab.ledger import PAPERS, Entry
from ..lab.ledger.entry import CRASHED, FAILS, HOLDS, PARTLY, VERDICTS
from ..lab.ledger.text import plain
from .screen import console_of

_STYLES = {HOLDS: "green", PARTLY: "yellow", FAILS: "red", CRASHED: "bold red"}


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
                drawn.add_row(*(Text(plain(text)) for text in texts), Text(one.verdict, _STYLES.get(one.verdict, "")))
            console.print(drawn)
    for one in entries:
        if not one.as_expected:
            found = f"{one.claim.id}: {one.verdict}, where the ledger has {one.claim.expect!r} on record."
            console.print(found, style="bold red", markup=False)
    counts = {verdict: sum(one.verdict == verdict for one in entries) for verdict in (*VERDICTS, CRASHED)}
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    seconds = sum(one.seconds for one in entries)
    console.print(f"{len(entries)} claims in {seconds:.1f} s: {said}.", markup=False)
