"""Comparisons that several papers' statements share: prediction differences, drops of a score, ranks."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Sequence

from softknee.measure.estimate import Estimate
from softknee.measure.hardness import spearman
from softknee.measure.significance import compare_sets

from .claim import FAILS
from .runs import Study
from .statement import CANNOT_TELL, FEWEST_PAIRS, Evidence, Part, better, corrected, counted, wins

# Beside their own function both vision papers have these.
IN_VISION = ("gelu", "elu", "prelu", "celu", "silu", "mish")


def labels_of(study: Study, name: str) -> list[str]:
    """The labels of one function of the zoo: it may have been run with several values of its parameters."""
    return [label for label, one in study.outcomes.items() if one.trial.activation.name == name]


def accuracies(study: Study, labels: Iterable[str]) -> str:
    """The mean test accuracies as words: "relu 91.20 %, gelu 91.40 %"."""
    return ", ".join(f"{label} {percent(study.mean(label, 'accuracy'))}" for label in labels)


def against(study: Study, first: str, second: str) -> Evidence:
    """The first by test accuracy against the second: both means, and the mean difference of the pairs in points."""
    parts = corrected(wins(study, first, [second], "accuracy", larger=True))
    (part,) = parts
    ends = "" if part.interval is None else " [{:z.2f}, {:z.2f}]".format(*(100 * one for one in part.interval))
    return Evidence(
        f"{accuracies(study, (first, second))}: {100 * part.direction:+z.2f} points{ends}",
        parts=parts,
        numbers={label: study.mean(label, "accuracy") for label in (first, second)},
    )


def best_in_vision(study: Study, winner: str, title: str, others: Sequence[str] = IN_VISION) -> Evidence:
    """The winner by test accuracy against each of the others; against those that were not run it cannot be told."""
    there = tuple(one for one in others if one in study.outcomes)
    left = [one for one in others if one not in there]
    untried = [Part(f"{study.name}: {winner} better than {one} in accuracy", CANNOT_TELL) for one in left]
    parts = corrected([*wins(study, winner, there, "accuracy", larger=True), *untried])
    return Evidence(
        f"{accuracies(study, (winner, *there))}; {title} is shown to be better than {counted(parts[: len(there)])}"
        + (f"; not run: {', '.join(left)}" if left else ""),
        parts=parts,
        numbers={label: study.mean(label, "accuracy") for label in (winner, *there)},
    )


def difference(study: Study, label: str, measure: str = "delta_1") -> float:
    """A prediction difference of the models of one activation; NaN where fewer than two came to their end."""
    found = study.outcomes[label].difference.get(measure)
    return math.nan if found is None else float(found["value"])


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
            found = compare_sets(mine, theirs)
            parts.append(Part.compared(says, found, larger=False))
    return parts


def _seeds(found: Estimate) -> int:
    return len(found.without or ())


def _estimate(study: Study, label: str, measure: str) -> Estimate | None:
    found = study.outcomes[label].difference.get(measure)
    if found is None:
        return None
    interval, without = found.get("interval"), found.get("without")
    return Estimate(
        value=found["value"],
        stdev=found["stdev"],
        interval=None if interval is None else tuple(interval),
        without=None if without is None else tuple(without),
    )


def drops(study: Study, label: str, measure: str = "accuracy") -> list[float | None]:
    """What each seed loses of a score when its activations are replaced by their hard limit."""
    found = study.outcomes[label].replacement
    after: Sequence[float | None] = () if found is None else found["test"].get(measure, ())
    before = study.values(label, measure)
    return [None if a is None or b is None else b - a for a, b in zip(after, before, strict=True)] if after else []


def drops_less(study: Study, winner: str, other: str) -> Part:
    """Does replacing the winner cost less than replacing the other, seed by seed?"""
    says = f"{study.name}: replacing {winner} costs less than replacing {other}"
    return better(says, drops(study, winner), drops(study, other), larger=False)


def mean(values: Iterable[float | None]) -> float:
    """The mean of the numbers that are there."""
    there = [one for one in values if one is not None]
    return statistics.fmean(there) if there else math.nan


def rank_correlation_of_groups(
    groups: Sequence[Sequence[tuple[float, float]]], *, draws: int = 2000, level: float = 0.95
) -> tuple[float, float, float]:
    """Spearman's correlation of all points of all groups, and an interval of it: (correlation, low, high).

    Points of one group (the seeds of one activation) are no independent ones. So the interval is that of the bootstrap
    over groups: as many groups as there are, drawn with repetition and each with all its points; the middle of what
    comes of it, as far as to the correlation itself. The draws are the same each time.
    """

    def of(chosen: Iterable[Sequence[tuple[float, float]]]) -> float:
        points = [point for group in chosen for point in group]
        return spearman([a for a, _ in points], [b for _, b in points]) if len(points) > 1 else math.nan

    chance = random.Random(0)
    drawn = sorted(
        one for _ in range(draws) if not math.isnan(one := of(chance.choices(groups, k=len(groups)) if groups else ()))
    )
    if not drawn:
        return math.nan, math.nan, math.nan
    whole, tail = of(groups), (1 - level) / 2
    low, high = drawn[int(tail * len(drawn))], drawn[min(len(drawn) - 1, int((1 - tail) * len(drawn)))]
    return whole, min(low, whole), max(high, whole)


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"
