"""What an empirical statement is, and the rules by which all of them are judged.

A statement is cut into comparisons of two activations in one study. Each answers two questions.

    direction    shown       the difference has the sign that the paper states, at 5 % after Holm's correction over all
                             comparisons of the statement that were run; where each of them has it at 5 % without
                             any correction, all are (that all hold at once needs none: Berger 1982)
                 reversed    the same for the other sign; or all seeds of what should win diverged
                 not shown   neither, or fewer than three seeds on a side
                 left open   it was run and decides nothing, for a reason that it names; it counts for nothing
    size         as printed  direction shown, and the 95 % interval of ours holds the paper's effect or lies above it
                 smaller     direction shown, and the paper's effect lies above our interval
                 excluded    direction not shown, and the paper's effect lies above our interval
                 open        direction not shown, and our interval holds the paper's effect: more seeds are needed
                 none        the paper prints no effect, or the setting is a stand-in

A comparison that was not run is listed, blocks nothing and counts for nothing. A statement is shown where every
comparison is, reversed where more than half are and none is shown, and not shown otherwise. A stand-in (other data,
fewer epochs, another model than the paper's) supports or doubts a statement; it neither shows nor reverses it.

These rules took the place of the first ones (paired tests, one verdict of four words) when the records up to 2026-11-17
were there; they are fixed for the records to come. A statement whose own comparisons were changed then says so.

Paired or not is no matter of choice: a test is paired only where both sides share initial weights and batches and the
record says so, which is the case for two readings of one trained model (before and after a replacement, SQUAF-P and
SQUAF). Two activations are compared without pairs (Welch), since nothing in a record says that seed i did the same to
both; where the same seed does share them, as on a CPU, Welch's test is the more careful one.

Scores that span decades (mean squared errors) are compared by their decimal logarithms. `needed` is how many seeds on
each side show the printed effect with a probability of 80 %, from the spread of the records.
"""

from __future__ import annotations

import functools
import inspect
import math
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from softknee.lab.report.summary import estimate_of
from softknee.measure.estimate import Estimate
from softknee.measure.hardness import spearman
from softknee.measure.record import Record
from softknee.measure.significance import Comparison, compare_each, compare_sets, holm, seeds_needed

from .claim import Paper, paper
from .runs import Runs, Study, printed_of

SHOWN, NOT_SHOWN, REVERSED, NOT_RUN, NOT_THERE = "shown", "not shown", "reversed", "not run", "no records"
LEFT_OPEN = "left open"
SUPPORTED, DOUBTED = "supported", "doubted"  # what a stand-in does in the place of showing and reversing
AS_PRINTED, SMALLER_THAN_PRINTED, EXCLUDED, OPEN = "as printed", "smaller", "excluded", "open"
DIRECTIONS = (SHOWN, SUPPORTED, NOT_SHOWN, REVERSED, DOUBTED, LEFT_OPEN, NOT_RUN, NOT_THERE)
SIZES = (AS_PRINTED, SMALLER_THAN_PRINTED, EXCLUDED, OPEN)
LEVEL = 0.05
FEWEST_SEEDS = 3
ADDED = "this statement was added with records at hand"  # stands under `different` where that is so
CHANGED = "its comparisons were changed with records at hand"

# What a measure is called, what it is multiplied by to be shown, how, and the unit of a difference.
MEASURES = {
    "mse": ("mean squared error", 1.0, "{:.1e}", "decades"),
    "r2": ("R², %", 100.0, "{:.1f}", "points"),
    "psnr": ("PSNR, dB", 1.0, "{:.2f}", "dB"),
    "ssim": ("SSIM", 1.0, "{:.4f}", ""),
    "accuracy": ("accuracy, %", 100.0, "{:.2f}", "points"),
    "log_loss": ("log loss, nats", 1.0, "{:.4f}", "nats"),
    "auc": ("AUC, %", 100.0, "{:.2f}", "points"),
    "perplexity": ("perplexity", 1.0, "{:.2f}", ""),
    "bits": ("bits an activation", 1.0, "{:.3f}", "bits"),
}
SMALLER = ("mse", "log_loss", "perplexity", "bits")  # is better


@dataclass(frozen=True)
class Part:
    """One comparison or bound of a statement; differences are positive where they go the way that the paper says.

    direction: as above; `corrected` fills it in where there is a p.
    printed:   the paper's effect in the unit of the difference; None where it prints none.
    seeds:     on the smaller side.
    needed:    on each side, for the printed effect.
    """

    says: str
    direction: str = ""
    difference: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    printed: float | None = None
    unit: str = ""
    seeds: int = 0
    needed: int | None = None

    @property
    def size(self) -> str:
        """The answer to the second question; empty where the paper prints no effect or there is no interval."""
        if self.printed is None or self.interval is None:
            return ""
        if self.printed > self.interval[1]:
            return SMALLER_THAN_PRINTED if self.direction == SHOWN else EXCLUDED
        return AS_PRINTED if self.direction == SHOWN else OPEN

    def ours(self) -> str:
        """The difference with its interval and unit: "+1.48 [0.43, 2.54] points"."""
        if self.difference is None:
            return ""
        if self.interval is None:
            return f"{self.difference:+.3g} {self.unit}".rstrip()
        low, high = self.interval
        places = max(0, 2 - math.floor(math.log10(high - low))) if high > low else 4
        places = min(places, 2) if self.unit in ("points", "dB", "decades") else places
        return f"{self.difference:+z.{places}f} [{low:z.{places}f}, {high:z.{places}f}] {self.unit}".rstrip()


@dataclass(frozen=True)
class Evidence:
    """What a statement was judged by: the parts, `corrected`, and a sentence where differences do not say it all."""

    parts: Sequence[Part]
    measured: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", corrected(self.parts))

    @property
    def direction(self) -> str:
        """Of the statement, as the rules have it."""
        directions = [part.direction for part in self.parts]
        decided = [direction for direction in directions if direction not in (NOT_RUN, LEFT_OPEN)]
        if not decided:
            return NOT_SHOWN if LEFT_OPEN in directions else NOT_THERE
        if set(decided) == {SHOWN}:
            return SHOWN
        most = decided.count(REVERSED) > len(decided) / 2
        return REVERSED if most and SHOWN not in decided else NOT_SHOWN


@dataclass(frozen=True)
class Statement:
    """One statement of a paper that only training can test.

    needs:     the studies and records that it is judged by; `decide` takes them in this order.
    instead:   by the name of one of these: what stands in for it as long as it is not there as a whole.
    stand_in:  in which way the records, or those that stand in, are not of the paper's setting; empty where they are.
    different: what else was different from the paper.
    how:       how it is judged, in one line.
    labels:    the activations of each of these studies that it cannot do without; empty for all.
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
    stand_in: str = ""
    instead: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its place in the ledger, the same for as long as it keeps its name."""
        return f"{self.paper.stem}.{self.name}"


@dataclass(frozen=True)
class Judged:
    """A statement with its evidence; None where its records are not there.

    unfinished: which of its studies were run in part: "mine (3 of 8 activations)".
    missing:    which of its records are not there, or not whole.
    stand_in:   in which way the records that it was judged by are not of the paper's setting.
    records:    the names of these.
    """

    statement: Statement
    evidence: Evidence | None
    unfinished: str = ""
    missing: tuple[str, ...] = ()
    stand_in: str = ""
    records: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """The direction; of a stand-in supported, doubted or not shown."""
        return NOT_THERE if self.evidence is None else self.word(self.evidence.direction)

    def word(self, direction: str) -> str:
        """A direction as this statement has it."""
        return {SHOWN: SUPPORTED, REVERSED: DOUBTED}.get(direction, direction) if self.stand_in else direction

    @property
    def counts(self) -> str:
        """How many comparisons have each direction, where they differ: "2 shown, 4 not shown"."""
        directions = [] if self.evidence is None else [self.word(part.direction) for part in self.evidence.parts]
        return counted(directions, DIRECTIONS) if len(set(directions)) > 1 else ""

    @property
    def size(self) -> str:
        """The answer to the second question, with counts where the comparisons differ; empty where there is none.

        A stand-in has none: how large an effect is there says nothing of how large it is elsewhere.
        """
        parts = () if self.evidence is None or self.stand_in else self.evidence.parts
        sizes = [part.size for part in parts if part.size]
        return sizes[0] if len(set(sizes)) == 1 else counted(sizes, SIZES)

    @property
    def measured(self) -> str:
        """What was found: the sentence of the evidence, or the differences."""
        if self.evidence is None:
            begun = f"; begun: {self.unfinished}" if self.unfinished else ""
            return f"there are no records of it yet: {', '.join(self.statement.needs)}{begun}"
        if self.evidence.measured:
            return self.evidence.measured
        return ranges(self.evidence.parts)


def ranges(parts: Iterable[Part]) -> str:
    """The differences of the comparisons that count, from the lowest to the highest, those of each unit together."""
    by_unit: dict[str, list[Part]] = {}
    for part in parts:
        if part.difference is not None and part.direction not in (NOT_RUN, LEFT_OPEN):
            by_unit.setdefault(part.unit, []).append(part)
    return "; ".join(map(_range, by_unit.values()))


def _range(parts: Sequence[Part]) -> str:
    low, high = (choose(parts, key=lambda part: part.difference or 0.0) for choose in (min, max))
    return low.ours() if len(parts) == 1 else f"{len(parts)} differences, from {low.ours()} to {high.ours()}"


def counted(words: Iterable[str], order: Sequence[str]) -> str:
    """How often each word stands there: "9 shown, 1 reversed"."""
    counts = Counter(words)
    return ", ".join(f"{counts[word]} {word}" for word in order if counts[word])


def statements_of(stem: str) -> Callable[..., Callable[[Callable[..., Evidence]], Statement]]:
    """The decorator for the statements of one paper; a statement has the name of its function unless one is given."""
    source = paper(stem)

    def statement(
        *,
        place: str,
        says: str,
        needs: Iterable[str],
        different: str,
        labels: Iterable[str] = (),
        name: str = "",
        stand_in: str = "",
        instead: Mapping[str, str] | None = None,
    ) -> Callable[[Callable[..., Evidence]], Statement]:
        def made(decide: Callable[..., Evidence]) -> Statement:
            function = decide.func if isinstance(decide, functools.partial) else decide
            how = " ".join((inspect.getdoc(function) or "").split())
            called = name or getattr(decide, "__name__", "")
            return Statement(
                source,
                called,
                place,
                says,
                tuple(needs),
                different,
                decide,
                how,
                tuple(labels),
                stand_in,
                instead or {},
            )

        return made

    return statement


def judge(statements: Iterable[Statement], runs: Runs) -> tuple[Judged, ...]:
    """Each statement with its verdict, as far as its records are there; by the same runs it is judged once."""
    statements = tuple(statements)
    for statement in statements:
        if id(statement) not in runs.judged:  # the verdict holds the statement, whose id stays its own
            runs.judged[id(statement)] = _judged(statement, runs)
    return tuple(runs.judged[id(statement)] for statement in statements)


def _judged(statement: Statement, runs: Runs) -> Judged:
    names = [name if runs.has(name) else _stand_in(statement, name, runs) for name in statement.needs]
    if missing := tuple(name for name in names if not runs.has(name, statement.labels)):
        begun = {name: runs.unfinished[name] for name in names if name in runs.unfinished}
        words = ", ".join(f"{name} ({done} of {whole} activations)" for name, (done, whole) in begun.items())
        return Judged(statement, None, words, missing)
    read = [runs.benchmark(name) if name.endswith(".json") else runs.study(name) for name in names]
    for place, (needed, name) in enumerate(zip(statement.needs, names, strict=True)):
        if name != needed and (printed := printed_of(needed)):  # the paper's effect is that of its own study
            read[place] = replace(read[place], printed=printed)
    own = bool(statement.instead) and names == list(statement.needs)
    return Judged(statement, statement.decide(*read), stand_in="" if own else statement.stand_in, records=tuple(names))


def _stand_in(statement: Statement, name: str, runs: Runs) -> str:
    """What is there in the place of these records, or their own name."""
    other = statement.instead.get(name, name)
    return other if runs.has(other, statement.labels) else name


def record(judged: Sequence[Judged], *, command: str) -> Record:
    """The record of a judgement: one row for each statement."""
    rows = []
    for entry in judged:
        parts = entry.evidence.parts if entry.evidence is not None else ()
        row = {
            "id": entry.statement.id,
            "paper": entry.statement.paper.title,
            "place": entry.statement.place,
            "statement": entry.statement.says,
            "check": entry.statement.how,
            "stand_in": entry.stand_in,
            "different": entry.statement.different,
            "measured": entry.measured,
            "direction": entry.verdict,
            "size": entry.size,
            "parts": [
                vars(part) | {"direction": entry.word(part.direction), "size": "" if entry.stand_in else part.size}
                for part in parts
            ],
            "numbers": {} if entry.evidence is None else _finite(entry.evidence.numbers),
            "records": list(entry.records or entry.statement.needs),
        }
        rows.append(row)
    return Record.now("evidence", command=command, rows=rows, settings={"level": LEVEL, "fewest_seeds": FEWEST_SEEDS})


def _finite(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """What a record can hold: a mean of seeds that all diverged is no number."""
    return {name: value for name, value in numbers.items() if not (isinstance(value, float) and math.isnan(value))}


# -- parts ------------------------------------------------------------------------------------------------


def bound(says: str, shown: bool) -> Part:
    """A number of ours, which has no interval, against one of the paper's."""
    return Part(says, SHOWN if shown else NOT_SHOWN)


def better(
    says: str,
    first: Sequence[float | None],
    second: Sequence[float | None] | float,
    *,
    larger: bool = True,
    printed: float | None = None,
    unit: str = "",
    paired: bool = False,
) -> Part:
    """Is the first better, by its seeds? What is None is left out; the second may be one number, without a spread."""
    sign = 1.0 if larger else -1.0
    if not isinstance(second, Sequence):
        paired, second = True, [second] * len(first)
    if paired:
        pairs = [(a, b) for a, b in zip(first, second, strict=False) if a is not None and b is not None]
        mine, theirs = [sign * a for a, _ in pairs], [sign * b for _, b in pairs]
    else:
        mine, theirs = ([sign * value for value in side if value is not None] for side in (first, second))
    if min(len(mine), len(theirs)) < FEWEST_SEEDS:
        return Part(says, NOT_SHOWN, printed=printed, unit=unit, seeds=min(len(mine), len(theirs)))
    part = _compared(says, compare_each(mine, theirs, paired=paired), printed, unit)
    result = part.difference or 0.0
    if part.interval is None:  # nothing varies: every seed says the same
        direction = SHOWN if result > 0 else REVERSED if result < 0 else NOT_SHOWN
        return replace(part, direction=direction, p=None)
    spreads = statistics.stdev(mine), statistics.stdev(theirs)
    return replace(part, needed=None if printed is None else seeds_needed(printed, *spreads))


def alike(
    says: str, first: Sequence[float | None], second: Sequence[float | None], *, margin: float, unit: str = ""
) -> Part:
    """Are both within the margin of each other? Two one-sided tests; reversed where the interval lies outside it.

    All comparisons of such a statement have to be shown, which needs no correction.
    """
    sides = [[value for value in side if value is not None] for side in (first, second)]
    if min(map(len, sides)) < FEWEST_SEEDS:
        return Part(says, NOT_SHOWN, unit=unit, seeds=min(map(len, sides)))
    result = compare_each(*sides, paired=False, margin=margin)
    part = _compared(says, result, None, unit)
    if result.interval is None:
        return replace(part, direction=SHOWN if abs(result.difference) < margin else REVERSED)
    low, high = result.interval
    inside = result.equivalence is not None and result.equivalence < LEVEL
    outside = low > margin or high < -margin
    return replace(part, direction=SHOWN if inside else REVERSED if outside else NOT_SHOWN)


def _compared(says: str, result: Comparison, printed: float | None, unit: str) -> Part:
    return Part(
        says,
        difference=result.difference,
        interval=result.interval,
        p=result.p,
        printed=printed,
        unit=unit,
        seeds=result.seeds,
    )


def wins(
    study: Study,
    winner: str,
    others: Iterable[str],
    measure: str,
    *,
    printed: Mapping[str, float] | None = None,
) -> list[Part]:
    """For each of the others: is the winner's score better? The paper's effect is that of the study's own table, or of
    the scores in `printed`."""
    larger, unit = measure not in SMALLER, MEASURES[measure][3]
    parts = []
    for other in others:
        says = f"{study.name}: {winner} better than {other} in {measure}"
        effect = printed_effect(printed or study.printed_scores(measure), winner, other, measure)
        if winner not in study.outcomes or other not in study.outcomes:
            parts.append(Part(says, NOT_RUN, printed=effect, unit=unit))
        elif not any(value is not None for value in study.values(winner, measure)):
            parts.append(Part(says, REVERSED, printed=effect, unit=unit))
        else:
            mine, theirs = (scores(study, label, measure) for label in (winner, other))
            parts.append(better(says, mine, theirs, larger=larger, printed=effect, unit=unit))
    return parts


def scores(study: Study, label: str, measure: str = "accuracy") -> list[float | None]:
    """Of every seed, in the unit that it is shown in: accuracies in percent, mean squared errors as logarithms."""
    values, scale = study.values(label, measure), MEASURES[measure][1]
    if measure == "mse":
        return [None if value is None else math.log10(max(value, 1e-300)) for value in values]
    return [None if value is None else scale * value for value in values]


def differences(first: Sequence[float | None], second: Sequence[float | None]) -> list[float | None]:
    """Seed by seed, None where one of the two is not there."""
    return [None if a is None or b is None else a - b for a, b in zip(first, second, strict=True)]


def printed_effect(printed: Mapping[str, float], winner: str, other: str, measure: str) -> float | None:
    """By how much the paper has the winner before the other; None where it does not, or does not print it."""
    if winner not in printed or other not in printed:
        return None
    mine, theirs = printed[winner], printed[other]
    if measure == "mse":
        effect = math.log10(theirs / mine)
    else:
        effect = theirs - mine if measure in SMALLER or measure in ("delta_1", "binary") else mine - theirs
    return effect if effect > 0 else None


def agrees_more(
    study: Study, winner: str, others: Iterable[str], measure: str = "delta_1", *, printed: float | None = None
) -> list[Part]:
    """For each of the others: do the winner's models differ less from each other?

    A prediction difference is one number of all seeds, whose spread is that of the jackknife.
    """
    parts = []
    mine = _estimate(study, winner, measure)
    for other in others:
        says = f"{study.name}: {winner} lower than {other} in {measure}"
        effect = printed or printed_effect(study.printed_scores(measure), winner, other, measure)
        theirs = _estimate(study, other, measure)
        if mine is None:
            parts.append(Part(says, REVERSED, printed=effect))
        elif theirs is None or min(_seeds(mine), _seeds(theirs)) < FEWEST_SEEDS:
            parts.append(Part(says, NOT_SHOWN, printed=effect))
        else:
            part = _compared(says, compare_sets(theirs, mine, paired=False), effect, "")
            parts.append(part if part.p is not None else replace(part, direction=NOT_SHOWN))
    return parts


def exceeds(study: Study, label: str, measure: str, bound: float) -> Part:
    """Is a prediction difference above a bound of the paper's, by the interval of the jackknife?"""
    estimate = _estimate(study, label, measure)
    says = f"{study.name}: {measure} of {label} above {bound:g}"
    if estimate is None:
        return Part(says, NOT_SHOWN)
    if estimate.interval is None:
        return Part(says, SHOWN if estimate.value > bound else NOT_SHOWN, difference=estimate.value - bound)
    low, high = (end - bound for end in estimate.interval)
    direction = SHOWN if low > 0 else REVERSED if high < 0 else NOT_SHOWN
    return Part(says, direction, difference=estimate.value - bound, interval=(low, high), seeds=_seeds(estimate))


def _seeds(estimate: Estimate) -> int:
    return len(estimate.without or ())


def _estimate(study: Study, label: str, measure: str) -> Estimate | None:
    stored = study.outcomes[label].difference.get(measure)
    return None if stored is None else estimate_of(stored)


def stands_in(study: str, instead: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The arguments of a statement that say which study stands in for this one, perhaps itself, and how it differs."""
    other, how = instead.get(study, ("", ""))
    return {"instead": {study: other} if other not in ("", study) else {}, "stand_in": how}


def fewer_dead(study: Study, label: str, other: str = "relu") -> Evidence:
    """Of the units of all layers the share whose output is 0 for every validation image: less than with the other?"""
    dead, zeros = (
        {name: _share(study, name, f"{kind}_fraction") for name in (label, other)} for kind in ("dead", "zero")
    )
    part = better(
        f"{study.name}: fewer dead units with {label} than with {other}", *dead.values(), larger=False, unit="points"
    )
    words = [
        f"{name}: {mean(dead[name]):.2f} % of the units dead, {mean(zeros[name]):.0f} % of the outputs 0"
        for name in dead
    ]
    return Evidence([part], "; ".join(words), {name: mean(shares) for name, shares in dead.items()})


def _share(study: Study, label: str, measure: str) -> list[float]:
    """By seed in percent, the mean over the layers that have this activation."""
    sites = study.outcomes[label].activity
    layers = [site[measure] for site in sites if site["activation"] == sites[0]["activation"]]
    return [100 * statistics.fmean(seed) for seed in zip(*layers, strict=True) if None not in seed]


def drops_less(study: Study, winner: str, other: str) -> Part:
    """Does replacing the winner cost less than replacing the other? What it costs is taken model by model."""
    says = f"{study.name}: replacing {winner} costs less than replacing {other}"
    return better(says, drops(study, winner), drops(study, other), larger=False, unit="points")


def corrected(parts: Sequence[Part]) -> list[Part]:
    """The comparisons of one statement with Holm's correction over those that were run, and their directions.

    >>> part = Part("it was compared", p=0.03, difference=1.0)
    >>> [part.direction for part in corrected([part, Part("it was not run", NOT_RUN)])]
    ['shown', 'not run']
    >>> [part.direction for part in corrected([part, Part("it was not", p=0.5, difference=1.0)])]
    ['not shown', 'not shown']
    """
    values = [None if part.direction else part.p for part in parts]
    tested = [part for part, p in zip(parts, values, strict=True) if p is not None]
    whole = all((part.p or 0.0) < LEVEL and (part.difference or 0.0) > 0 for part in tested)
    adjusted = values if whole else holm(values)
    judged = []
    for part, p in zip(parts, adjusted, strict=True):
        shown = SHOWN if (part.difference or 0.0) > 0 else REVERSED
        direction = part.direction or (shown if p is not None and p < LEVEL else NOT_SHOWN)
        judged.append(replace(part, direction=direction, p=part.p if p is None else p))
    return judged


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


def best_of(
    study: Study,
    winner: str,
    others: Iterable[str] = (),
    *,
    measure: str = "accuracy",
    printed: Mapping[str, float] | None = None,
) -> Evidence:
    """The winner against each of the others, or of those in the paper's table."""
    rivals = tuple(others) or tuple(label for label in study.printed_scores(measure) if label != winner)
    parts = wins(study, winner, rivals, measure, printed=printed)
    there = [label for label in (winner, *rivals) if label in study.outcomes]
    means = {label: study.mean(label, measure, logarithmic=measure == "mse") for label in there}
    return Evidence(parts, numbers=means)


def difference(study: Study, label: str, measure: str = "delta_1") -> float:
    """A prediction difference of the models of one activation; NaN where fewer than two came to their end."""
    stored = study.outcomes[label].difference.get(measure)
    return math.nan if stored is None else float(stored["value"])


def drops(study: Study, label: str) -> list[float | None]:
    """How many points of accuracy each model loses when its activations are replaced by their hard limit."""
    replacement = study.outcomes[label].replacement
    after: Sequence[float | None] = () if replacement is None else replacement["test"].get("accuracy", ())
    before = study.values(label, "accuracy")
    pairs = zip(after, before, strict=True) if after else ()
    return [None if a is None or b is None else 100 * (b - a) for a, b in pairs]


_DRAWS = 2000


def rank_correlation_of_groups(groups: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float, float]:
    """Spearman's correlation of all points of all groups, and an interval of it: (correlation, low, high).

    Points of one group (the seeds of one activation) are not independent, so the interval is that of the bootstrap
    over groups: as many groups as there are, drawn with repetition and each with all its points. It is widened to hold
    the correlation itself. The draws are the same each time.
    """

    def correlation(chosen: Iterable[Sequence[tuple[float, float]]]) -> float:
        points = [point for group in chosen for point in group]
        return spearman([a for a, _ in points], [b for _, b in points]) if len(points) > 1 else math.nan

    chance = random.Random(0)
    drawn = [correlation(chance.choices(groups, k=len(groups)) if groups else ()) for _ in range(_DRAWS)]
    drawn = sorted(value for value in drawn if not math.isnan(value))
    if not drawn:
        return math.nan, math.nan, math.nan
    whole, tail = correlation(groups), LEVEL / 2
    low, high = drawn[int(tail * len(drawn))], drawn[min(len(drawn) - 1, int((1 - tail) * len(drawn)))]
    return whole, min(low, whole), max(high, whole)
