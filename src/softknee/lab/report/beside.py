"""The numbers of a paper beside ours: what they are, whether ours are better, and who is best there and here.

A paper's number is rounded, to as many digits as the longest of its column shows. It is "as in the paper" where some
number that would be rounded to it lies inside our interval.

Seeds of a quantity that is seen by its order, such as the mean squared error, may spread over decades, and their mean
is then that of the worst: the geometric mean exp(mean log) stands in its place, for the whole column, with the t
interval of the logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

from ...measure.estimate import Estimate, Score, score
from ..studies.paper import PAPER_MEASURES, Paper
from .measures import PARAMETERS, score_called
from .numbers import counted, decimals, listed
from .parts import BETTER, WORSE, Beside, BesidePaper, Measure, Row

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
