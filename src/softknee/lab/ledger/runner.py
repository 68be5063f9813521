"""Finds every claim of the ledger, runs the checks, and makes the one record of what came out.

    entries = run(find())
    record(entries, command="softknee claims").write("claims.json")

A check that raises is an entry like the others, with the verdict "crashed" and the reason; the rest run on.
"""

from __future__ import annotations

import pkgutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...errors import DefinitionError
from ...measure import Quantity, Record, without_paths
from .entry import CRASHED, PAPERS, Claim, Finding, paper
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


def find(papers: Sequence[str] = ()) -> tuple[Claim, ...]:
    """Every claim in the files of this folder, by paper and then as they stand there; or those of some papers."""
    wanted = [paper(stem) for stem in papers] or list(PAPERS)
    package = import_module(__package__ or "")
    found: dict[str, Claim] = {}
    for module in sorted(one.name for one in pkgutil.iter_modules(package.__path__)):
        for value in vars(import_module(f"{package.__name__}.{module}")).values():
            if isinstance(value, Claim) and found.setdefault(value.id, value) is not value:
                raise DefinitionError(f"Two claims are called {value.id}; rename the function of one of them.")
    return tuple(one for of in PAPERS if of in wanted for one in found.values() if one.paper == of)


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
