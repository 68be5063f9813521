"""Rows against the baseline and against the best, with Holm's correction over everything that was compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...measure.significance import Comparison, compare_each, compare_sets, holm, may_be_best
from .parts import BETTER, EQUIVALENT, SLIGHTLY, UNDECIDED, WORSE, Measure, Row, Verdict


def compare(row: Row, other: Row, measure: Measure, *, level: float) -> Comparison | None:
    """Row minus other by a measure, seed by seed over the seeds that both have; None where one has no such number."""
    if measure.of_sets:
        first, second = row.differences.get(measure.name), other.differences.get(measure.name)
        if first is None or second is None or row.seeds != other.seeds:
            return None
        return compare_sets(first, second, margin=measure.margin, level=level)
    mine, theirs = (_by_seed(one, measure.name) for one in (row, other))
    seeds = [seed for seed in mine if seed in theirs]
    if not seeds:
        return None
    pairs = [mine[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    return compare_each(*pairs, margin=measure.margin, level=level)


def _by_seed(row: Row, name: str) -> dict[int, float]:
    score = row.scores.get(name)
    return {} if score is None else dict(zip(row.seeds, score.each, strict=True))


def against_baseline(
    rows: Sequence[Row], baseline: Row, measure: Measure, *, level: float = 0.95
) -> Mapping[str, Verdict]:
    """The verdict on every other row that can be compared, by its label; the tests of one measure are one family."""
    others = [row for row in rows if row is not baseline]
    found = {row.label: compared for row in others if (compared := compare(row, baseline, measure, level=level))}
    adjusted = holm([one.p for one in found.values()])
    equivalent = holm([one.equivalence for one in found.values()])
    return {
        label: Verdict(
            comparison=one, adjusted=p, equivalence=same, words=_words(one, p, same, measure, alpha=1 - level)
        )
        for (label, one), p, same in zip(found.items(), adjusted, equivalent, strict=True)
    }


def _words(one: Comparison, p: float | None, same: float | None, measure: Measure, *, alpha: float) -> str:
    small = same is not None and same <= alpha
    if p is not None and p <= alpha:
        words = BETTER if (one.difference > 0) == measure.larger_is_better else WORSE
        return SLIGHTLY + words if small else words
    return EQUIVALENT if small else UNDECIDED


def best_and_rivals(
    rows: Sequence[Row], measure: Measure, *, level: float = 0.95
) -> tuple[Row, tuple[Row, ...]] | None:
    """The best row by a measure, and the others that are not shown to be worse; None where no row has the measure.

    Where the best is the baseline its tests were planned; see `may_be_best`.
    """
    had = {row.label: found.value for row in rows if (found := row.found(measure)) is not None}
    if not had:
        return None
    sign = 1 if measure.larger_is_better else -1
    able = [row for row in rows if row.label in had]
    best = max(able, key=lambda row: sign * had[row.label])
    others = [row for row in able if row is not best]
    found = [None if (one := compare(row, best, measure, level=level)) is None else one.p for row in others]
    rivals = may_be_best(found, planned=best.baseline, level=level)
    return best, tuple(row for row, may in zip(others, rivals, strict=True) if may)
