"""Finds every claim of the ledger, runs the checks, and makes the one record of what came out.

    entries = run(find_claims())
    record(entries, command="python -m papers").write("claims.json")

A check that raises is an entry like the others, with the verdict "crashed" and the reason; the rest run on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from softknee.app.screen import console_of
from softknee.errors import DefinitionError
from softknee.measure import Quantity, Record, without_paths

from . import preferences
from .claim import CRASHED, FAILS, HOLDS, PAPERS, PARTLY, VERDICTS, Claim, Finding, paper
from .statement import DIRECTIONS, DOUBTED, NOT_SHOWN, NOT_THERE, REVERSED, SHOWN, SUPPORTED, Judged, Statement, counted
from .text import cell, plain

KIND = "claims"


@dataclass(frozen=True)
class Entry:
    """A claim that was checked: the finding, or the error that stopped the check."""

    claim: Claim
    finding: Finding | None
    error: str | None
    seconds: float

    @property
    def verdict(self) -> str:
        """Holds, partly, fails, or crashed."""
        return CRASHED if self.finding is None else self.finding.verdict

    @property
    def measured(self) -> str:
        """What the check measured, or the error that stopped it."""
        return self.error or "" if self.finding is None else self.finding.measured

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is the one on record."""
        return self.verdict == self.claim.expect

    def row(self) -> dict[str, Any]:
        """The entry as a row of the record."""
        return {
            "id": self.claim.id,
            "paper": self.claim.paper.title,
            "place": plain(self.claim.place),
            "claim": plain(self.claim.says),
            "check": plain(self.claim.how),
            "measured": plain(self.measured),
            "verdict": self.verdict,
            "expected": self.claim.expect,
            "parts": {} if self.finding is None else {plain(name): bool(ok) for name, ok in self.finding.parts.items()},
            "numbers": {} if self.finding is None else dict(self.finding.numbers),
            "seconds": Quantity.mean([self.seconds], unit="s"),
        }


def _modules(papers: Sequence[str], name: str) -> list[ModuleType]:
    """`claims` or `findings` of some papers, or of all."""
    stems = [paper(stem).stem for stem in papers] or [source.stem for source in PAPERS]
    return [import_module(f".{source.stem}.{name}", __package__) for source in PAPERS if source.stem in stems]


def find_claims(papers: Sequence[str] = ()) -> tuple[Claim, ...]:
    """Every claim of the papers, as they stand in their files; or those of some papers."""
    claims: dict[str, Claim] = {}
    for module in _modules(papers, "claims"):
        for value in vars(module).values():
            if isinstance(value, Claim) and claims.setdefault(value.id, value) is not value:
                raise DefinitionError(f"Two claims are called {value.id}; rename the function of one of them.")
    return tuple(claims.values())


def find_statements(papers: Sequence[str] = ()) -> tuple[Statement, ...]:
    """Every statement about training, or those of some papers."""
    values = [value for module in _modules(papers, "findings") for value in vars(module).values()]
    groups = [value if isinstance(value, list | tuple) else [value] for value in (*values, preferences.STATEMENTS)]
    statements = {
        statement.id: statement for group in groups for statement in group if isinstance(statement, Statement)
    }
    wanted = [paper(stem) for stem in papers] or PAPERS
    return tuple(
        statement
        for source in PAPERS
        if source in wanted
        for statement in statements.values()
        if statement.paper == source
    )


def check(claim: Claim) -> Entry:
    """Run one check."""
    start = time.perf_counter()
    finding, error = None, None
    try:
        finding = claim.check()
        plain(cell(finding.measured))  # what no terminal or table can show is an error of the check
    except Exception as problem:  # whatever a check does, the ledger goes on and says so
        finding, error = None, without_paths(f"{type(problem).__name__}: {problem}")
    return Entry(claim, finding, error, time.perf_counter() - start)


def run(claims: Iterable[Claim], *, advance: Callable[[str], None] = lambda name: None) -> tuple[Entry, ...]:
    """Run the checks in order; `advance` gets the name of each when it is done."""
    entries = []
    for claim in claims:
        entries.append(check(claim))
        advance(claim.name)
    return tuple(entries)


def record(entries: Sequence[Entry], *, command: str) -> Record:
    """The record of a run: schema 1 as for every measurement, one row per claim.

    A row has id, paper, place, claim, check, measured, verdict, expected, parts, numbers and seconds; the record around
    it the versions and the hardware.
    """
    counts = Counter(entry.verdict for entry in entries)
    return Record.now(
        KIND,
        command=command,
        rows=[entry.row() for entry in entries],
        settings={"claims": len(entries), "verdicts": dict(sorted(counts.items()))},
        notes=("The verdict of a row follows from its parts; 'expected' is the verdict on record in the ledger.",),
    )


STYLES = {HOLDS: "green", PARTLY: "yellow", FAILS: "red", CRASHED: "bold red"}
STYLES |= {SHOWN: "green", SUPPORTED: "green", NOT_SHOWN: "cyan", REVERSED: "red", DOUBTED: "yellow", NOT_THERE: "dim"}


def _screen_table(heads: tuple[str, str, str], rows: Iterable[tuple[str, str, Text, Text]], title: str = "") -> Table:
    """A table with the verdict as its last column."""
    table = Table(
        title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, show_lines=True, expand=True
    )
    for name, ratio in zip(heads, (6, 10, 14), strict=True):
        table.add_column(name, ratio=ratio)
    table.add_column("verdict", no_wrap=True)
    for place, says, measured, verdict in rows:
        # Text and not str: square brackets of intervals would be read as markup.
        table.add_row(Text(plain(place)), Text(plain(says)), measured, verdict)
    return table


def print_claims(entries: Sequence[Entry]) -> None:
    """Every entry: where it stands, what it says, what was measured, the verdict."""
    console = console_of()
    for source in PAPERS:
        rows = [
            (
                entry.claim.place,
                entry.claim.says,
                Text(plain(entry.measured)),
                Text(entry.verdict, STYLES.get(entry.verdict, "")),
            )
            for entry in entries
            if entry.claim.paper == source
        ]
        if rows:
            console.print(_screen_table(("place", "claim", "measured"), rows, f"{source.name}: {source.title}"))
    for entry in entries:
        if not entry.as_expected:
            words = f"{entry.claim.id}: {entry.verdict}, where the ledger has {entry.claim.expect!r} on record."
            console.print(words, style="bold red", markup=False)
    counts = Counter(entry.verdict for entry in entries)
    words = ", ".join(f"{counts[verdict]} {verdict}" for verdict in (*VERDICTS, CRASHED) if counts[verdict])
    seconds = sum(entry.seconds for entry in entries)
    console.print(f"{len(entries)} claims in {seconds:.1f} s: {words}.", markup=False)


def print_statements(judged: Sequence[Judged]) -> None:
    """Every statement: where it stands, what it says, what was found, the verdict."""
    console = console_of()
    rows = [
        (
            f"{entry.statement.paper.name}, {entry.statement.place}",
            entry.statement.says,
            _measured(entry),
            Text(_verdict(entry), STYLES.get(entry.verdict, "")),
        )
        for entry in judged
    ]
    console.print(_screen_table(("paper and place", "statement", "found"), rows))
    words = counted([entry.verdict for entry in judged], DIRECTIONS)
    console.print(f"{len(judged)} statements: {words}.", markup=False)


def _verdict(entry: Judged) -> str:
    """The direction, its counts, the size, and whether it is of a stand-in."""
    size = f"size: {entry.size}" if entry.size else ""
    lines = [entry.verdict, *entry.counts.split(", "), *size.split(", "), "stand-in" if entry.stand_in else ""]
    return "\n".join(filter(None, lines))


def _measured(entry: Judged) -> Text:
    """What was found, and below it what was different from the paper, which concerns only what was found."""
    text = Text(plain(entry.measured))
    if entry.evidence is not None:
        different = "; ".join(filter(None, (entry.stand_in, entry.statement.different)))
        text.append(plain(f"\nDifferent from the paper: {different}."), style="dim")
    return text
