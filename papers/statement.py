"""What an empirical statement is, and the rules by which it is judged. They were fixed before the studies were run.

A statement of a paper is cut into parts, each a comparison of two activations in one study ("SQUAF has a lower error
than ReLU"), or a number with a bound. Seeds are paired: seed i gave both the same weights and order of examples.

    comparison   the paired t-test over the seeds, of logarithms where the score spans decades (mean squared errors);
                 Holm's correction over all comparisons of one statement, those that could not be made (a row that
                 was not run, too few seeds) among them, level 5 %
    holds        the part's p is below the level and the difference has the direction the paper states
    fails        the p is below the level and the direction is the other one; or all seeds of what should win diverged
    cannot tell  neither; also with fewer than three pairs of seeds that came to their end
    effect size  Hedges' g_z of the pairs, as in the reports: it stands beside the p and decides nothing
    a bound      a number of ours against a number of the paper's; holds or fails

A statement holds if all its parts do, fails if one fails and none holds, cannot be told if no part can, and holds
partly otherwise. (Two rules were added when records were there: a statement of which no part holds is not called
`partly`, and comparisons that could not be made count in the correction, which makes it stricter.)
"""

from __future__ import annotations

import inspect
import math
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from softknee.lab.report.summary import estimate_of
from softknee.measure.estimate import Estimate
from softknee.measure.hardness import spearman
from softknee.measure.record import Record
from softknee.measure.significance import Comparison, compare_each, compare_sets, holm

from .claim import FAILS, HOLDS, PARTLY, Paper, paper
from .runs import Runs, Study

CANNOT_TELL, NOT_THERE = "cannot tell", "no records"
# The words for one statement or part with that verdict, and for several.
WORDS = {
    HOLDS: ("holds", "hold"),
    PARTLY: ("holds partly", "hold partly"),
    FAILS: ("fails", "fail"),
    CANNOT_TELL: ("cannot be told", "cannot be told"),
    NOT_THERE: ("has no records yet", "have no records yet"),
}
LEVEL = 0.05
FEWEST_PAIRS = 3
ADDED = "this statement was added with records at hand"  # stands under `different` where that is so


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
    def compared(cls, says: str, comparison: Comparison, *, larger: bool) -> Part:
        """A comparison that the paper says the first wins; `larger` says whether more is better."""
        sign = 1.0 if larger else -1.0
        interval = None
        if comparison.interval is not None:
            low, high = sorted(sign * end for end in comparison.interval)
            interval = (low, high)
        return cls(
            says,
            p=comparison.p,
            direction=sign * comparison.difference,
            effect=None if comparison.effect is None else sign * comparison.effect,
            interval=interval,
            pairs=comparison.seeds,
        )


@dataclass(frozen=True)
class Evidence:
    """What a statement was judged by: a sentence or two with the numbers, and the parts."""

    measured: str
    parts: Sequence[Part]
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        verdicts = {part.verdict for part in self.parts}
        if len(verdicts) == 1:
            return verdicts.pop()
        return PARTLY if HOLDS in verdicts else FAILS


@dataclass(frozen=True)
class Statement:
    """One statement of a paper that only training can test.

    needs:     the studies and records that it is judged by; `decide` takes them in this order.
    different: what was different from the paper.
    how:       how it is judged, in one line.
    labels:    the activations of each of these studies that it is judged by; empty for all.
    """

    paper: Paper
    name: str
    place: str
    says: str
    needs: tuple[str, ...]
    different: str
    decide: Callable[..., Evidence]
    how: str
    labels: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Its place in the ledger, the same for as long as it keeps its name."""
        return f"{self.paper.stem}.{self.name}"


@dataclass(frozen=True)
class Judged:
    """A statement with its evidence; None where its records are not there.

    unfinished: which of its studies were run in part: "mine (3 of 8 activations)".
    missing:    which of its records are not there, or not whole.
    """

    statement: Statement
    evidence: Evidence | None
    unfinished: str = ""
    missing: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Holds, partly, fails, cannot tell, or no records."""
        return NOT_THERE if self.evidence is None else self.evidence.verdict

    @property
    def counts(self) -> str:
        """How many parts have each verdict, where they differ: "9 hold, 1 fails"."""
        verdicts = [] if self.evidence is None else [part.verdict for part in self.evidence.parts]
        if len(set(verdicts)) < 2:
            return ""
        return in_words({verdict: verdicts.count(verdict) for verdict in WORDS})

    @property
    def measured(self) -> str:
        """What was found, in a sentence or two."""
        if self.evidence is not None:
            return self.evidence.measured
        begun = f"; begun: {self.unfinished}" if self.unfinished else ""
        return f"there are no records of it yet: {', '.join(self.statement.needs)}{begun}"


def in_words(counts: Mapping[str, int]) -> str:
    """How many have each verdict, without those that none has: "9 hold, 1 fails"."""
    return ", ".join(f"{count} {WORDS[verdict][count > 1]}" for verdict, count in counts.items() if count)


def statements_of(stem: str) -> Callable[..., Callable[[Callable[..., Evidence]], Statement]]:
    """The decorator for the statements of one paper; a statement has the name of its function unless one is given."""
    source = paper(stem)

    def statement(
        *, place: str, says: str, needs: Iterable[str], different: str, labels: Iterable[str] = (), name: str = ""
    ) -> Callable[[Callable[..., Evidence]], Statement]:
        def made(decide: Callable[..., Evidence]) -> Statement:
            how = " ".join((inspect.getdoc(decide) or "").split())
            called = name or decide.__name__
            return Statement(source, called, place, says, tuple(needs), different, decide, how, tuple(labels))

        return made

    return statement


def judge(statements: Iterable[Statement], runs: Runs) -> tuple[Judged, ...]:
    """Each statement with its verdict, as far as its records are there."""
    return tuple(_judged(statement, runs) for statement in statements)


def _judged(statement: Statement, runs: Runs) -> Judged:
    if missing := tuple(name for name in statement.needs if not runs.has(name, statement.labels)):
        begun = {name: runs.unfinished[name] for name in statement.needs if name in runs.unfinished}
        words = ", ".join(f"{name} ({done} of {whole} activations)" for name, (done, whole) in begun.items())
        return Judged(statement, None, words, missing)
    read = (runs.benchmark(name) if name.endswith(".json") else runs.study(name) for name in statement.needs)
    return Judged(statement, statement.decide(*read))


def record(judged: Sequence[Judged], *, command: str) -> Record:
    """The record of a judgement: one row for each statement."""
    rows = [
        {
            "id": entry.statement.id,
            "paper": entry.statement.paper.title,
            "place": entry.statement.place,
            "statement": entry.statement.says,
            "check": entry.statement.how,
            "different": entry.statement.different,
            "measured": entry.measured,
            "verdict": entry.verdict,
            "parts": [] if entry.evidence is None else [vars(part) for part in entry.evidence.parts],
            "numbers": {} if entry.evidence is None else dict(entry.evidence.numbers),
            "records": list(entry.statement.needs),
        }
        for entry in judged
    ]
    return Record.now("evidence", command=command, rows=rows, settings={"level": LEVEL, "fewest_pairs": FEWEST_PAIRS})


# -- parts ------------------------------------------------------------------------------------------------


def bound(says: str, holds: bool) -> Part:
    """A number of ours against one of the paper's."""
    return Part(says, HOLDS if holds else FAILS)


def better(says: str, first: Sequence[float | None], second: Sequence[float | None], *, larger: bool = True) -> Part:
    """Seed by seed: is the first better? A pair of which one is None, or not there, is left out."""
    pairs = [(a, b) for a, b in zip(first, second, strict=False) if a is not None and b is not None]
    if len(pairs) < FEWEST_PAIRS:
        return Part(says, CANNOT_TELL)
    return Part.compared(says, compare_each([a for a, _ in pairs], [b for _, b in pairs]), larger=larger)


def wins(
    study: Study, winner: str, others: Iterable[str], measure: str, *, larger: bool, logarithmic: bool = False
) -> list[Part]:
    """For each of the others: is the winner's score better? See the rules above."""
    scale = math.log10 if logarithmic else float

    def scores(label: str) -> list[float | None]:
        return [None if value is None else scale(max(value, 1e-300)) for value in study.values(label, measure)]

    mine, parts = scores(winner), []
    for other in others:
        says = f"{study.name}: {winner} better than {other} in {measure}"
        diverged = all(value is None for value in mine)
        parts.append(Part(says, FAILS) if diverged else better(says, mine, scores(other), larger=larger))
    return parts


def agrees_more(study: Study, winner: str, others: Iterable[str], measure: str = "delta_1") -> list[Part]:
    """For each of the others: do the winner's models differ less from each other?

    A prediction difference is one number of all seeds, so that the pairs of the t-test are its values without each of
    them (the jackknife), as in the reports.
    """
    parts = []
    mine = _estimate(study, winner, measure)
    for other in others:
        says = f"{study.name}: {winner} lower than {other} in {measure}"
        theirs = _estimate(study, other, measure)
        if mine is None:
            parts.append(Part(says, FAILS))
        elif theirs is None or _seeds(mine) != _seeds(theirs) or _seeds(mine) < FEWEST_PAIRS:
            parts.append(Part(says, CANNOT_TELL))
        else:
            parts.append(Part.compared(says, compare_sets(mine, theirs), larger=False))
    return parts


def _seeds(estimate: Estimate) -> int:
    return len(estimate.without or ())


def _estimate(study: Study, label: str, measure: str) -> Estimate | None:
    stored = study.outcomes[label].difference.get(measure)
    return None if stored is None else estimate_of(stored)


def drops_less(study: Study, winner: str, other: str) -> Part:
    """Does replacing the winner cost less than replacing the other, seed by seed?"""
    says = f"{study.name}: replacing {winner} costs less than replacing {other}"
    return better(says, drops(study, winner), drops(study, other), larger=False)


def corrected(parts: Sequence[Part]) -> list[Part]:
    """All comparisons of one statement with Holm's correction, and the verdicts that follow.

    Those that could not be made count, too: what was not run must not make the rest easier to show.

    >>> part = Part("it was compared", p=0.03, direction=1.0)
    >>> [part.verdict for part in corrected([part])]
    ['holds']
    >>> [part.verdict for part in corrected([part, Part("it was not run", CANNOT_TELL)])]
    ['cannot tell', 'cannot tell']
    """
    adjusted = holm([1.0 if part.p is None else part.p for part in parts])
    judged = []
    for part, p in zip(parts, adjusted, strict=True):
        shown = HOLDS if part.direction > 0 else FAILS
        verdict = part.verdict or (shown if p is not None and p < LEVEL else CANNOT_TELL)
        judged.append(replace(part, verdict=verdict, p=None if part.p is None else p))
    return judged


def counted(parts: Sequence[Part]) -> str:
    """How many parts hold, as words: "7 of 10"."""
    return f"{sum(part.verdict == HOLDS for part in parts)} of {len(parts)}"


# -- what several papers compare --------------------------------------------------------------------------

# Beside their own function both vision papers have these.
IN_VISION = ("gelu", "elu", "prelu", "celu", "silu", "mish")


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def mean(values: Iterable[float | None]) -> float:
    """The mean of the numbers that are there; NaN where none is."""
    there = [value for value in values if value is not None]
    return statistics.fmean(there) if there else math.nan


def labels_of(study: Study, name: str) -> list[str]:
    """The labels of one function of the zoo: it may have been run with several values of its parameters."""
    return [label for label, outcome in study.outcomes.items() if outcome.trial.activation.name == name]


def accuracies(study: Study, labels: Iterable[str]) -> str:
    """The mean test accuracies as words: "relu 91.20 %, gelu 91.40 %"."""
    return ", ".join(f"{label} {percent(study.mean(label, 'accuracy'))}" for label in labels)


def against(study: Study, first: str, second: str) -> Evidence:
    """The first by test accuracy against the second: both means, and the mean difference of the pairs in points."""
    parts = corrected(wins(study, first, [second], "accuracy", larger=True))
    (part,) = parts
    ends = "" if part.interval is None else " [{:z.2f}, {:z.2f}]".format(*(100 * end for end in part.interval))
    return Evidence(
        f"{accuracies(study, (first, second))}: {100 * part.direction:+z.2f} points{ends}",
        parts=parts,
        numbers={label: study.mean(label, "accuracy") for label in (first, second)},
    )


def best_in_vision(study: Study, winner: str, title: str, others: Sequence[str] = IN_VISION) -> Evidence:
    """The winner by test accuracy against each of the others; comparisons that were not run have no verdict."""
    run = tuple(label for label in others if label in study.outcomes)
    missing = [label for label in others if label not in run]
    untried = [Part(f"{study.name}: {winner} better than {label} in accuracy", CANNOT_TELL) for label in missing]
    parts = corrected([*wins(study, winner, run, "accuracy", larger=True), *untried])
    return Evidence(
        f"{accuracies(study, (winner, *run))}; {title} is shown to be better than {counted(parts[: len(run)])}"
        + (f"; not run: {', '.join(missing)}" if missing else ""),
        parts=parts,
        numbers={label: study.mean(label, "accuracy") for label in (winner, *run)},
    )


def difference(study: Study, label: str, measure: str = "delta_1") -> float:
    """A prediction difference of the models of one activation; NaN where fewer than two came to their end."""
    stored = study.outcomes[label].difference.get(measure)
    return math.nan if stored is None else float(stored["value"])


def drops(study: Study, label: str, measure: str = "accuracy") -> list[float | None]:
    """What each seed loses of a score when its activations are replaced by their hard limit."""
    replacement = study.outcomes[label].replacement
    after: Sequence[float | None] = () if replacement is None else replacement["test"].get(measure, ())
    before = study.values(label, measure)
    return [None if a is None or b is None else b - a for a, b in zip(after, before, strict=True)] if after else []


def rank_correlation_of_groups(
    groups: Sequence[Sequence[tuple[float, float]]], *, draws: int = 2000, level: float = 0.95
) -> tuple[float, float, float]:
    """Spearman's correlation of all points of all groups, and an interval of it: (correlation, low, high).

    Points of one group (the seeds of one activation) are not independent, so the interval is that of the bootstrap
    over groups: as many groups as there are, drawn with repetition and each with all its points. It is widened to hold
    the correlation itself. The draws are the same each time.
    """

    def correlation(chosen: Iterable[Sequence[tuple[float, float]]]) -> float:
        points = [point for group in chosen for point in group]
        return spearman([a for a, _ in points], [b for _, b in points]) if len(points) > 1 else math.nan

    chance = random.Random(0)
    drawn = [correlation(chance.choices(groups, k=len(groups)) if groups else ()) for _ in range(draws)]
    drawn = sorted(value for value in drawn if not math.isnan(value))
    if not drawn:
        return math.nan, math.nan, math.nan
    whole, tail = correlation(groups), (1 - level) / 2
    low, high = drawn[int(tail * len(drawn))], drawn[min(len(drawn) - 1, int((1 - tail) * len(drawn)))]
    return whole, min(low, whole), max(high, whole)
