"""Finds every claim of the ledger, runs the checks, and makes the one record of what came out.

    entries = run(find_claims())
    record(entries, command="python -m papers").write("claims.json")

A check that raises is an entry like the others, with the verdict "crashed" and the reason; the rest run on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from softknee.app.screen import console_of
from softknee.errors import DefinitionError
from softknee.measure import Quantity, Record, without_paths

from . import preferences
from .claim import CRASHED, FAILS, HOLDS, PAPERS, PARTLY, VERDICTS, Claim, Finding, paper
from .eafo import claims as eafo
from .eafo import findings as eafo_findings
from .lambda_gelu import claims as lambda_gelu
from .lambda_gelu import findings as lambda_gelu_findings
from .mollification import claims as mollification
from .mollification import findings as mollification_findings
from .smelu import claims as smelu
from .smelu import findings as smelu_findings
from .squaf import claims as squaf
from .squaf import findings as squaf_findings
from .statement import CANNOT_TELL, NOT_THERE, Judged, Statement, in_words
from .text import cell, plain

KIND = "claims"
_CLAIMS = {
    "mollification": mollification,
    "smelu": smelu,
    "lambda_gelu": lambda_gelu,
    "eafo": eafo,
    "squaf": squaf,
}
_FINDINGS = (mollification_findings, smelu_findings, lambda_gelu_findings, eafo_findings, squaf_findings)


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


def find_claims(papers: Sequence[str] = ()) -> tuple[Claim, ...]:
    """Every claim of the papers, as they stand in their files; or those of some papers."""
    wanted = [paper(stem) for stem in papers] or list(PAPERS)
    found: dict[str, Claim] = {}
    for of, module in _CLAIMS.items():
        for value in vars(module).values():
            if isinstance(value, Claim) and paper(of) in wanted and found.setdefault(value.id, value) is not value:
                raise DefinitionError(f"Two claims are called {value.id}; rename the function of one of them.")
    return tuple(found.values())


def find_statements(papers: Sequence[str] = ()) -> tuple[Statement, ...]:
    """Every statement about training, or those of some papers."""
    wanted = [paper(stem) for stem in papers] or list(PAPERS)
    values = [value for module in (*_FINDINGS, preferences) for value in vars(module).values()]
    groups = [value if isinstance(value, list | tuple) else [value] for value in values]
    every = {one.id: one for group in groups for one in group if isinstance(one, Statement)}
    return tuple(one for source in wanted for one in every.values() if one.paper == source)


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
    """Run the checks in order; `advance` is told the name of each when it is done."""
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
    counts = {verdict: sum(one.verdict == verdict for one in entries) for verdict in {e.verdict for e in entries}}
    return Record.now(
        KIND,
        command=command,
        rows=[one.row() for one in entries],
        settings={"claims": len(entries), "verdicts": dict(sorted(counts.items()))},
        notes=("The verdict of a row follows from its parts; 'expected' is the verdict on record in the ledger.",),
    )


STYLES = {HOLDS: "green", PARTLY: "yellow", FAILS: "red", CANNOT_TELL: "cyan", NOT_THERE: "dim", CRASHED: "bold red"}


def print_claims(entries: Sequence[Entry]) -> None:
    """Every entry: where it stands, what it says, what was measured, the verdict."""
    console = console_of()
    for source in PAPERS:
        if of := [one for one in entries if one.claim.paper == source]:
            drawn = Table(
                title=f"{source.name}: {source.title}",
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
