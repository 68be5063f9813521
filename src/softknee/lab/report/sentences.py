"""The answers in a sentence each, and what a reader must be told; no claim that the seeds do not bear."""

from __future__ import annotations

from collections.abc import Sequence

from .numbers import column_places, counted, fixed, listed, with_reach
from .parts import Answer, Measure, Row
from .verdicts import best_and_rivals

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
