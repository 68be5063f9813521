"""Rows against the baseline and against the best, with Holm's correction over everything that was compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

from ...measure.estimate import Estimate, Score, score
from ...measure.significance import Comparison, compare_each, compare_sets, holm, may_be_best
from ..studies.recipe import PAPER_MEASURES, Paper
from ..table import BETTER, SLIGHTLY, WORSE
from .parts import (
    EQUIVALENT,
    PARAMETERS,
    UNDECIDED,
    Answer,
    Beside,
    BesidePaper,
    Measure,
    Row,
    Verdict,
    column_places,
    counted,
    decimals,
    fixed,
    listed,
    score_called,
    with_reach,
)

_NAMED = 4  # rivals that a sentence lists; more are counted


def sentences_of(
    rows: Sequence[Row], metric: Measure, spread: Measure | None, cost_baseline: str, *, level: float
) -> tuple[Answer, ...]:
    """The most accurate, the most reproducible and the cheapest, a sentence each."""
    able = [row for row in rows if not row.diverged]
    found: list[Answer] = []
    title = "Most accurate" if metric.name == "accuracy" else f"Best by {metric.title}"
    for question, measure in ((title, metric), ("Most reproducible", spread)):
        if measure is not None and (answer := _by_measure(able, question, measure, level=level)):
            found.append(answer)
    if answer := _by_cost(able, cost_baseline):
        found.append(answer)
    return tuple(found)


def _by_measure(rows: Sequence[Row], question: str, measure: Measure, *, level: float) -> Answer | None:
    found = best_and_rivals(rows, measure, level=level)
    if found is None:
        return None
    best, rivals = found
    had = [one for row in rows if (one := row.found(measure)) is not None]
    places = column_places(had, scale=measure.scale, logarithmic=measure.logarithmic)
    unit = f"\u00a0{measure.unit}" if measure.unit else ""
    number = with_reach(best.found(measure), places, scale=measure.scale).replace(" ", "\u00a0")
    lead = f", with {measure.title} {number}{unit}"
    others = sum(row.found(measure) is not None for row in rows) - 1
    seeds = len(best.seeds)
    if not others:
        rest = "; nothing was there to compare it with."
    elif seeds < (4 if measure.of_sets else 2):
        rest = f"; {counted(seeds, 'seed')} {'is' if seeds == 1 else 'are'} too few to tell activations apart."
    elif not rivals:
        rest = "; every other activation is shown to be worse."
    elif len(rivals) == others:
        rest = ", but these seeds do not tell it apart from any other activation."
    else:
        rest = f", but these seeds do not tell it apart from {_named(rivals)}."
    return Answer(question=question, label=best.label, words=lead + rest)


def _by_cost(rows: Sequence[Row], cost_baseline: str) -> Answer | None:
    timed = [(row, row.cost.train_ratio) for row in rows if row.cost is not None]
    if not timed:
        return None
    best, ratio = min(timed, key=lambda pair: pair[1].value)
    near = [row for row, other in timed if row is not best and other.low <= ratio.high]
    lead = f", whose training step takes {fixed(ratio.value, 2)} times that of {cost_baseline}"
    if not near:
        rest = "; the quartiles of all others lie above." if len(timed) > 1 else "."
    elif len(near) == len(timed) - 1:
        rest = ", but the quartiles of all others overlap with its own."
    else:
        rest = f", but its quartiles overlap with those of {_named(near)}."
    return Answer(question="Cheapest", label=best.label, words=lead + rest)


def _named(rows: Sequence[Row]) -> str:
    names = [row.label for row in rows[:_NAMED]]
    more = len(rows) - len(names)
    return listed([*names, counted(more, "other")] if more else names)


def notes_of(rows: Sequence[Row], baseline: Row | None, wanted: str) -> tuple[str, ...]:
    """Diverged trials, and what could not be compared."""
    found = []
    for row in rows:
        if row.diverged:
            gone = listed(f"seed {seed} in epoch {epoch}" for seed, epoch in row.diverged)
            share = f"{len(row.diverged)} of {counted(len(row.seeds), 'seed')}"
            found.append(
                f"{row.label} diverged with {share} ({gone}). It has a dash in place of averages: those of the "
                "other seeds alone would flatter it."
            )
    if baseline is None:
        found.append(f"The baseline {wanted} is not among the activations, so there is nothing to test against.")
    elif baseline.diverged:
        found.append(f"The baseline {wanted} diverged, so there is nothing to test against.")
    return tuple(found)


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


SAME, SAME_INTERVAL = "as in the paper", "as in the paper (inside our interval)"
_MEAN, _GEOMETRIC, TOGETHER = "mean", "geometric mean", "all models together"
_SPREAD = 10.0  # from the smallest seed to the largest: a decade
_FEWEST_DIGITS = 2  # that a paper shows of a quantity in powers of ten
_MORE_PLACES = 2  # decimals that ours may have beyond the paper's


def beside_paper(paper: Paper | None, rows: Sequence[Row], *, level: float) -> tuple[BesidePaper, ...]:
    """A table for each measure of the paper, in the order of the report; empty where there is none."""
    if paper is None:
        return ()
    by_label = {row.label: row for row in rows}
    found = []
    for name in PAPER_MEASURES:
        numbers = {label: values[name] for label, values in paper.values.items() if name in values}
        if numbers and name == PARAMETERS.name:
            found.append(_counts(numbers, by_label))
        elif numbers:
            found.append(_scores(score_called(name), numbers, by_label, level=level))
    return tuple(found)


def _scores(measure: Measure, numbers: Mapping[str, float], rows: Mapping[str, Row], *, level: float) -> BesidePaper:
    had = {label: one for label in numbers if label in rows and (one := rows[label].found(measure))}
    logs = measure.logarithmic and _over_decades([one for one in had.values() if isinstance(one, Score)])
    shown = {label: _shown(one, measure, logs=logs, level=level) for label, one in had.items()}
    places = None if measure.logarithmic else max(_decimals(one) for one in numbers.values())
    own = None if places is None else min(max(places, decimals(shown.values())), places + _MORE_PLACES)
    half = _half_units(list(numbers.values()), places)
    found = [
        _beside(label, number, rows.get(label), shown.get(label), measure, half[place])
        for place, (label, number) in enumerate(numbers.items())
    ]
    values = {label: one.value for label, one in shown.items()}
    return BesidePaper(
        measure=measure,
        average=TOGETHER if measure.of_sets else _GEOMETRIC if logs else _MEAN,
        rows=tuple(found),
        paper_places=places,
        places=own,
        best=f"Best by {measure.title}: {_best(numbers, measure)} in the paper, {_best(values, measure)} here.",
    )


def _counts(numbers: Mapping[str, float], rows: Mapping[str, Row]) -> BesidePaper:
    """How many parameters are trained, which every seed has alike."""
    found = []
    for label, number in numbers.items():
        row = rows.get(label)
        ours = None if row is None else row.trained
        words = "not known" if ours is None else SAME if ours == number else "more" if ours > number else "fewer"
        found.append(
            Beside(
                label=label,
                key=None if row is None else row.key,
                paper=number,
                value=ours,
                interval=None,
                seeds=0 if row is None else len(row.seeds),
                diverged=0,
                verdict=words,
            )
        )
    return BesidePaper(measure=PARAMETERS, average="", rows=tuple(found), paper_places=0, places=0, best="")


def _beside(label: str, number: float, row: Row | None, ours: Score | None, measure: Measure, half: float) -> Beside:
    gone = 0 if row is None else len(row.diverged)
    return Beside(
        label=label,
        key=None if row is None else row.key,
        paper=number,
        value=None if ours is None else ours.value,
        interval=None if ours is None else ours.interval,
        seeds=0 if row is None else len(row.seeds),
        diverged=gone,
        verdict=_verdict(number, ours, measure, half)
        if ours is not None
        else "not run"
        if row is None
        else f"{gone} of {counted(len(row.seeds), 'seed')} diverged"
        if gone
        else "not measured",
    )


def _verdict(number: float, ours: Score, measure: Measure, half: float) -> str:
    low, high = ours.interval or (ours.value, ours.value)
    slack = 1e-9 * abs(number)  # what a decimal number and its float differ by
    if low - half - slack <= number <= high + half + slack:
        return SAME if ours.interval is None else SAME_INTERVAL
    return BETTER if (ours.value > number) == measure.larger_is_better else WORSE


def _shown(found: Score | Estimate, measure: Measure, *, logs: bool, level: float) -> Score:
    """The average, or the difference of all models together, with its interval, in the unit that is shown."""
    if not logs or not isinstance(found, Score):
        ends = None if found.interval is None else (found.interval[0], found.interval[1])
        scaled = None if ends is None else (measure.scale * ends[0], measure.scale * ends[1])
        each = found.each if isinstance(found, Score) else ()
        return Score(measure.scale * found.value, None, scaled, each, measure.larger_is_better)
    over = score([math.log(measure.scale * one) for one in found.each], larger_is_better=False, level=level)
    ends = None if over.interval is None else (math.exp(over.interval[0]), math.exp(over.interval[1]))
    return Score(math.exp(over.value), None, ends, found.each, found.larger_is_better)


def _over_decades(found: Sequence[Score]) -> bool:
    """Whether the seeds of any activation spread so far, and all have a logarithm."""
    return all(min(one.each) > 0 for one in found) and any(max(one.each) > _SPREAD * min(one.each) for one in found)


def _decimals(number: float) -> int:
    exponent = Decimal(repr(number)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _half_units(numbers: Sequence[float], places: int | None) -> list[float]:
    """Half of the last digit of each number: as far as rounding may have moved it."""
    if places is not None:
        return [0.5 * 10.0**-places] * len(numbers)
    digits = max(_FEWEST_DIGITS, *(len(Decimal(repr(one)).normalize().as_tuple().digits) for one in numbers))
    return [0.5 * 10.0 ** (math.floor(math.log10(abs(one))) + 1 - digits) if one else 0.0 for one in numbers]


def _best(values: Mapping[str, float], measure: Measure) -> str:
    if not values:
        return "none"
    best = (max if measure.larger_is_better else min)(values.values())
    return listed(label for label, one in values.items() if one == best)
