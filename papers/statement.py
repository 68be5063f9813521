"""What an empirical statement is, and the rules by which it is judged. They were fixed before the studies were run.

A statement of a paper is cut into parts, each a comparison of two activations in one study ("SQUAF has a lower error
than ReLU"), or a number with a bound. Seeds are paired: seed i gave both the same weights and order of examples.

    comparison   the paired t-test over the seeds, of logarithms where the score spans decades (mean squared errors);
                 Holm's correction over all comparisons of one statement, those that could not be made (a row that
                 was not run, too few seeds) among them, level 5 %
    holds        the part's p is below the level and the difference has the direction the paper states
    fails        the p is below the level and the direction is the other one; or all seeds of what should win diverged
    cannot tell  neither; also with fewer than three pairs of seeds that came to their end
    effect size  Hedges' g_z of the pairs, as in the reports: it is told beside the p and decides nothing
    a bound      a number of ours against a number of the paper's; holds or fails

A statement holds if all its parts do, fails if one fails and none holds, cannot be told if no part can, and holds
partly otherwise. (That none may hold was added when records were there: `partly` had been said where no part held. So
was that comparisons that could not be made count in the correction, which makes it stricter.)
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from softknee.measure.record import Record
from softknee.measure.significance import Comparison, compare_each, holm

from .claim import FAILS, HOLDS, PARTLY, Paper, paper
from .runs import Runs, Study

CANNOT_TELL, NOT_THERE = "cannot tell", "no records"
# What is said of one statement or part with that verdict, and of several.
SAID = {
    HOLDS: ("holds", "hold"),
    PARTLY: ("holds partly", "hold partly"),
    FAILS: ("fails", "fail"),
    CANNOT_TELL: ("cannot be told", "cannot be told"),
    NOT_THERE: ("has no records yet", "have no records yet"),
}
LEVEL = 0.05
FEWEST_PAIRS = 3
ADDED = "this statement was added with records at hand"  # said under `different` where that is so


@dataclass(frozen=True)
class Part:
    """One comparison or bound of a statement.

    p, direction: of a comparison: its p, and the difference with the sign that the paper states; `corrected` turns them
                  into a verdict.
    effect:       its effect size g_z (`measure.significance`), with the sign that the paper states.
    interval:     the 95 % interval of the difference, likewise.
    pairs:        how many pairs of seeds it is of.
    """

    says: str
    verdict: str = ""
    p: float | None = None
    direction: float = 0.0
    effect: float | None = None
    interval: tuple[float, float] | None = None
    pairs: int | None = None

    @classmethod
    def compared(cls, says: str, found: Comparison, *, larger: bool) -> Part:
        """A comparison that the paper says the first wins; `larger` says whether more is better."""
        sign = 1.0 if larger else -1.0
        effect = None if found.effect is None else sign * found.effect
        ends = None if found.interval is None else sorted(sign * one for one in found.interval)
        return cls(
            says,
            p=found.p,
            direction=sign * found.difference,
            effect=effect,
            interval=None if ends is None else (ends[0], ends[1]),
            pairs=found.seeds,
        )


@dataclass(frozen=True)
class Evidence:
    """What a statement was judged by: a sentence or two with the numbers, and the parts."""

    measured: str
    parts: Sequence[Part]
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        found = {one.verdict for one in self.parts}
        if len(found) == 1:
            return found.pop()
        return PARTLY if HOLDS in found else FAILS


@dataclass(frozen=True)
class Statement:
    """One statement of a paper that only training can test.

    needs:     the studies whose records it is judged by.
    different: what was different from the paper.
    labels:    the activations of each of these studies that it is judged by; empty for all.
    """

    paper: Paper
    place: str
    says: str
    needs: tuple[str, ...]
    different: str
    decide: Callable[[Runs], Evidence]
    labels: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its place in the ledger, the same for as long as the function keeps its name."""
        return f"{self.paper.stem}.{self.decide.__name__}"

    @property
    def how(self) -> str:
        """How it is judged: the docstring in one line."""
        return " ".join((inspect.getdoc(self.decide) or "").split())


@dataclass(frozen=True)
class Judged:
    """A statement with its evidence; None where its records are not there."""

    statement: Statement
    evidence: Evidence | None
    unfinished: str = ""
    """Which of its studies were run in part: "mine (3 of 8 activations)"."""
    missing: tuple[str, ...] = ()
    """Which of its records are not there, or not whole."""

    @property
    def verdict(self) -> str:
        """Holds, partly, fails, cannot tell, or no records."""
        return NOT_THERE if self.evidence is None else self.evidence.verdict

    @property
    def counts(self) -> str:
        """How many parts have each verdict, where they differ: "9 hold, 1 fails"."""
        each = [] if self.evidence is None else [one.verdict for one in self.evidence.parts]
        if len(set(each)) < 2:
            return ""
        return in_words({verdict: each.count(verdict) for verdict in SAID})

    @property
    def measured(self) -> str:
        """What was found, in a sentence or two."""
        if self.evidence is not None:
            return self.evidence.measured
        begun = f"; begun: {self.unfinished}" if self.unfinished else ""
        return f"there are no records of it yet: {', '.join(self.statement.needs)}{begun}"


def in_words(counts: Mapping[str, int]) -> str:
    """How many have each verdict, without those that none has: "9 hold, 1 fails"."""
    return ", ".join(f"{count} {SAID[verdict][count > 1]}" for verdict, count in counts.items() if count)


def statements_of(stem: str) -> Callable[..., Callable[[Callable[[Runs], Evidence]], Statement]]:
    """The decorator for the statements of one paper."""
    of = paper(stem)

    def statement(
        *, place: str, says: str, needs: Iterable[str], different: str, labels: Iterable[str] = ()
    ) -> Callable[[Callable[[Runs], Evidence]], Statement]:
        return lambda decide: Statement(of, place, says, tuple(needs), different, decide, tuple(labels))

    return statement


def wins(
    study: Study, winner: str, others: Iterable[str], measure: str, *, larger: bool, logarithmic: bool = False
) -> list[Part]:
    """For each of the others: is the winner's score better? See the rules above."""
    scale = math.log10 if logarithmic else float
    mine = study.values(winner, measure)
    parts = []
    for other in others:
        says = f"{study.name}: {winner} better than {other} in {measure}"
        if all(one is None for one in mine):
            parts.append(Part(says, FAILS))
            continue
        first, second = (
            [None if one is None else scale(max(one, 1e-300)) for one in each]
            for each in (mine, study.values(other, measure))
        )
        parts.append(better(says, first, second, larger=larger))
    return parts


def better(says: str, first: Sequence[float | None], second: Sequence[float | None], *, larger: bool = True) -> Part:
    """Seed by seed: is the first better? A pair of which one is None, or not there, is left out."""
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a is not None and b is not None]
    if len(pairs) < FEWEST_PAIRS:
        return Part(says, CANNOT_TELL)
    found = compare_each([a for a, _ in pairs], [b for _, b in pairs])
    return Part.compared(says, found, larger=larger)


def corrected(parts: Sequence[Part]) -> list[Part]:
    """All comparisons of one statement with Holm's correction, and the verdicts that follow.

    Those that could not be made count, too: what was not run must not make the rest easier to show.

    >>> one = Part("it was compared", p=0.03, direction=1.0)
    >>> [part.verdict for part in corrected([one])]
    ['holds']
    >>> [part.verdict for part in corrected([one, Part("it was not run", CANNOT_TELL)])]
    ['cannot tell', 'cannot tell']
    """
    adjusted = holm([1.0 if one.p is None else one.p for one in parts])
    settled = []
    for part, p in zip(parts, adjusted, strict=True):
        shown = HOLDS if part.direction > 0 else FAILS
        verdict = part.verdict or (shown if p is not None and p < LEVEL else CANNOT_TELL)
        settled.append(replace(part, verdict=verdict, p=None if part.p is None else p))
    return settled


def bound(says: str, holds: bool) -> Part:
    """A number of ours against one of the paper's."""
    return Part(says, HOLDS if holds else FAILS)


def counted(parts: Sequence[Part]) -> str:
    """How many parts hold, as words: "7 of 10"."""
    return f"{sum(one.verdict == HOLDS for one in parts)} of {len(parts)}"


def judge(statements: Iterable[Statement], runs: Runs) -> tuple[Judged, ...]:
    """Each statement with its verdict, as far as its records are there."""
    return tuple(_judged(one, runs) for one in statements)


def _judged(one: Statement, runs: Runs) -> Judged:
    if missing := tuple(name for name in one.needs if not runs.has(name, one.labels)):
        return Judged(one, None, _unfinished(one, runs), missing)
    return Judged(one, one.decide(runs))


def _unfinished(one: Statement, runs: Runs) -> str:
    begun = {name: runs.unfinished[name] for name in one.needs if name in runs.unfinished}
    return ", ".join(f"{name} ({done} of {all_} activations)" for name, (done, all_) in begun.items())


def record(judged: Sequence[Judged], *, command: str) -> Record:
    """The record of a judgement: one row for each statement."""
    rows = [
        {
            "id": one.statement.id,
            "paper": one.statement.paper.title,
            "place": one.statement.place,
            "statement": one.statement.says,
            "check": one.statement.how,
            "different": one.statement.different,
            "measured": one.measured,
            "verdict": one.verdict,
            "parts": [] if one.evidence is None else [vars(part) for part in one.evidence.parts],
            "numbers": {} if one.evidence is None else dict(one.evidence.numbers),
            "records": list(one.statement.needs),
        }
        for one in judged
    ]
    return Record.now("evidence", command=command, rows=rows, settings={"level": LEVEL, "fewest_pairs": FEWEST_PAIRS})
