"""From outcomes to what a report shows: averages with intervals, verdicts, paths, bands. Nothing is drawn here.

A trial with a diverged seed has no averages at all: the survivors alone would make it look better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from ...errors import DataError
from ...measure.estimate import Estimate, Score, score
from ...measure.record import Quantity
from ...measure.significance import Comparison, compare_each, compare_sets, holm, may_be_best
from ...registry import get
from ...spec import Activation
from ..compare import wilson
from ..studies.recipe import PAPER_MEASURES, Code, LanguageTask, Paper, Preference, Recipe
from ..studies.trials import Outcome
from ..table import BETTER, SLIGHTLY, WORSE
from .parts import (
    EQUIVALENT,
    PARAMETERS,
    UNDECIDED,
    Answer,
    Band,
    Cost,
    Inside,
    Knob,
    Measure,
    PaperRow,
    PaperTable,
    Profile,
    Replacement,
    Row,
    Shape,
    Summary,
    Trajectory,
    Verdict,
    column_places,
    counted,
    decimals,
    fixed,
    listed,
    measured,
    score_called,
    with_margin,
    with_reach,
)

_ALPHA = 0.05  # of tests; intervals are of 95 %
_NAMED = 4  # rivals that a sentence lists; more are counted


def sentences_of(
    rows: Sequence[Row], metric: Measure, spread: Measure | None, cost_baseline: str
) -> tuple[Answer, ...]:
    """The most accurate, the most reproducible and the cheapest, a sentence each."""
    able = [row for row in rows if not row.diverged]
    answers: list[Answer] = []
    title = "Most accurate" if metric.name == "accuracy" else f"Best by {metric.title}"
    second = "Most reproducible" if spread is None or spread.of_sets else f"Best by {spread.title}"
    for question, measure in ((title, metric), (second, spread)):
        if measure is not None and (answer := _by_measure(able, question, measure)):
            answers.append(answer)
    if answer := _by_cost(able, cost_baseline):
        answers.append(answer)
    return tuple(answers)


def _by_measure(rows: Sequence[Row], question: str, measure: Measure) -> Answer | None:
    ranking = best_and_rivals(rows, measure)
    if ranking is None:
        return None
    best, rivals = ranking
    had = [result for row in rows if (result := row.result(measure)) is not None]
    places = column_places(had, scale=measure.scale, logarithmic=measure.logarithmic)
    unit = f"\u00a0{measure.unit}" if measure.unit else ""
    number = with_reach(best.result(measure), places, scale=measure.scale).replace(" ", "\u00a0")
    lead = f", with {measure.title} {number}{unit}"
    others = sum(row.result(measure) is not None for row in rows) - 1
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
    notes = []
    for row in rows:
        if row.diverged:
            gone = listed(f"seed {seed} in epoch {epoch}" for seed, epoch in row.diverged)
            share = f"{len(row.diverged)} of {counted(len(row.seeds), 'seed')}"
            notes.append(
                f"{row.label} diverged with {share} ({gone}). It has a dash in place of averages: those of the "
                "other seeds alone would flatter it."
            )
    if baseline is None:
        notes.append(f"The baseline {wanted} is not among the activations, so there is nothing to test against.")
    elif baseline.diverged:
        notes.append(f"The baseline {wanted} diverged, so there is nothing to test against.")
    return tuple(notes)


def compare(row: Row, other: Row, measure: Measure) -> Comparison | None:
    """Row minus other by a measure, seed by seed over the seeds that both have; None where one has no such number."""
    if measure.of_sets:
        first, second = row.differences.get(measure.name), other.differences.get(measure.name)
        if first is None or second is None or row.seeds != other.seeds:
            return None
        return compare_sets(first, second, margin=measure.margin)
    mine, theirs = (_by_seed(side, measure.name) for side in (row, other))
    seeds = [seed for seed in mine if seed in theirs]
    if not seeds:
        return None
    pairs = [mine[seed] for seed in seeds], [theirs[seed] for seed in seeds]
    return compare_each(*pairs, margin=measure.margin)


def _by_seed(row: Row, name: str) -> dict[int, float]:
    score = row.scores.get(name)
    return {} if score is None else dict(zip(row.seeds, score.each, strict=True))


def against_baseline(rows: Sequence[Row], baseline: Row, measure: Measure) -> Mapping[str, Verdict]:
    """The verdict on every other row that can be compared, by its label; the tests of one measure are one family."""
    others = [row for row in rows if row is not baseline]
    comparisons = {row.label: compared for row in others if (compared := compare(row, baseline, measure))}
    adjusted = holm([comparison.p for comparison in comparisons.values()])
    equivalent = holm([comparison.equivalence for comparison in comparisons.values()])
    return {
        label: Verdict(
            comparison=comparison,
            adjusted=p,
            equivalence=same,
            words=_words(comparison, p, same, measure),
        )
        for (label, comparison), p, same in zip(comparisons.items(), adjusted, equivalent, strict=True)
    }


def _words(comparison: Comparison, p: float | None, same: float | None, measure: Measure) -> str:
    small = same is not None and same <= _ALPHA
    if p is not None and p <= _ALPHA:
        words = BETTER if (comparison.difference > 0) == measure.larger_is_better else WORSE
        return SLIGHTLY + words if small else words
    return EQUIVALENT if small else UNDECIDED


def best_and_rivals(rows: Sequence[Row], measure: Measure) -> tuple[Row, tuple[Row, ...]] | None:
    """The best row by a measure, and the others that are not shown to be worse; None where no row has the measure.

    Where the best is the baseline its tests were planned; see `may_be_best`.
    """
    had = {row.label: result.value for row in rows if (result := row.result(measure)) is not None}
    if not had:
        return None
    sign = 1 if measure.larger_is_better else -1
    able = [row for row in rows if row.label in had]
    best = max(able, key=lambda row: sign * had[row.label])
    others = [row for row in able if row is not best]
    tested = [None if (comparison := compare(row, best, measure)) is None else comparison.p for row in others]
    rivals = may_be_best(tested, planned=best.baseline)
    return best, tuple(row for row, may in zip(others, rivals, strict=True) if may)


SAME, SAME_INTERVAL = "as in the paper", "as in the paper (inside our interval)"
_MEAN, _GEOMETRIC, TOGETHER = "mean", "geometric mean", "all models together"
_SPREAD = 10.0  # from the smallest seed to the largest: a decade
_FEWEST_DIGITS = 2  # that a paper shows of a quantity in powers of ten
_MORE_PLACES = 2  # decimals that ours may have beyond the paper's


def compare_with_paper(paper: Paper | None, rows: Sequence[Row]) -> tuple[PaperTable, ...]:
    """A table for each measure of the paper, in the order of the report; empty where there is none."""
    if paper is None:
        return ()
    by_label = {row.label: row for row in rows}
    tables = []
    printed = dict.fromkeys(name for values in paper.values.values() for name in values)
    for name in sorted(printed, key=lambda name: PAPER_MEASURES.index(name.partition(" beta=")[0])):
        numbers = {label: values[name] for label, values in paper.values.items() if name in values}
        if numbers and name == PARAMETERS.name:
            tables.append(_counts(numbers, by_label))
        elif numbers:
            tables.append(_scores(score_called(name), numbers, by_label))
    return tuple(tables)


def _scores(measure: Measure, numbers: Mapping[str, float], rows: Mapping[str, Row]) -> PaperTable:
    had = {label: result for label in numbers if label in rows and (result := rows[label].result(measure))}
    logs = measure.logarithmic and _over_decades([result for result in had.values() if isinstance(result, Score)])
    shown = {label: _shown(result, measure, logs=logs) for label, result in had.items()}
    places = None if measure.logarithmic else max(_decimals(number) for number in numbers.values())
    own = None if places is None else min(max(places, decimals(shown.values())), places + _MORE_PLACES)
    half = _half_units(list(numbers.values()), places)
    compared = [
        _score_row(label, number, rows.get(label), shown.get(label), measure, half[place])
        for place, (label, number) in enumerate(numbers.items())
    ]
    values = {label: result.value for label, result in shown.items()}
    return PaperTable(
        measure=measure,
        average=TOGETHER if measure.of_sets else _GEOMETRIC if logs else _MEAN,
        rows=tuple(compared),
        paper_places=places,
        places=own,
        best=f"Best by {measure.title}: {_best(numbers, measure)} in the paper, {_best(values, measure)} here.",
    )


def _counts(numbers: Mapping[str, float], rows: Mapping[str, Row]) -> PaperTable:
    """How many parameters are trained, which every seed has alike."""
    compared = []
    for label, number in numbers.items():
        row = rows.get(label)
        ours = None if row is None else row.trained
        verdict = "not known" if ours is None else SAME if ours == number else "more" if ours > number else "fewer"
        compared.append(_paper_row(label, number, row, verdict, value=ours))
    return PaperTable(measure=PARAMETERS, average="", rows=tuple(compared), paper_places=0, places=0, best="")


def _score_row(
    label: str, number: float, row: Row | None, ours: Score | None, measure: Measure, half: float
) -> PaperRow:
    gone = 0 if row is None else len(row.diverged)
    if ours is not None:
        verdict = _verdict(number, ours, measure, half)
        return _paper_row(label, number, row, verdict, value=ours.value, interval=ours.interval, diverged=gone)
    if row is None:
        verdict = "not run"
    else:
        verdict = f"{gone} of {counted(len(row.seeds), 'seed')} diverged" if gone else "not measured"
    return _paper_row(label, number, row, verdict, diverged=gone)


def _paper_row(
    label: str,
    number: float,
    row: Row | None,
    verdict: str,
    *,
    value: float | None = None,
    interval: tuple[float, float] | None = None,
    diverged: int = 0,
) -> PaperRow:
    return PaperRow(
        label=label,
        key=None if row is None else row.key,
        paper=number,
        value=value,
        interval=interval,
        seeds=0 if row is None else len(row.seeds),
        diverged=diverged,
        verdict=verdict,
    )


def _verdict(number: float, ours: Score, measure: Measure, half: float) -> str:
    low, high = ours.interval or (ours.value, ours.value)
    slack = 1e-9 * abs(number)  # what a decimal number and its float differ by
    if low - half - slack <= number <= high + half + slack:
        return SAME if ours.interval is None else SAME_INTERVAL
    return BETTER if (ours.value > number) == measure.larger_is_better else WORSE


def _shown(result: Score | Estimate, measure: Measure, *, logs: bool) -> Score:
    """The average, or the difference of all models together, with its interval, in the unit that is shown."""
    if not logs or not isinstance(result, Score):
        ends = None if result.interval is None else (result.interval[0], result.interval[1])
        scaled = None if ends is None else (measure.scale * ends[0], measure.scale * ends[1])
        each = result.each if isinstance(result, Score) else ()
        return Score(measure.scale * result.value, None, scaled, each, measure.larger_is_better)
    over = score([math.log(measure.scale * value) for value in result.each], larger_is_better=False)
    ends = None if over.interval is None else (math.exp(over.interval[0]), math.exp(over.interval[1]))
    return Score(math.exp(over.value), None, ends, result.each, result.larger_is_better)


def _over_decades(scores: Sequence[Score]) -> bool:
    """Whether the seeds of any activation spread so far, and all have a logarithm."""
    return all(min(score.each) > 0 for score in scores) and any(
        max(score.each) > _SPREAD * min(score.each) for score in scores
    )


def _decimals(number: float) -> int:
    exponent = Decimal(repr(number)).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _half_units(numbers: Sequence[float], places: int | None) -> list[float]:
    """Half of the last digit of each number: as far as rounding may have moved it."""
    if places is not None:
        return [0.5 * 10.0**-places] * len(numbers)
    digits = max(_FEWEST_DIGITS, *(len(Decimal(repr(number)).normalize().as_tuple().digits) for number in numbers))
    return [0.5 * 10.0 ** (math.floor(math.log10(abs(number))) + 1 - digits) if number else 0.0 for number in numbers]


def _best(values: Mapping[str, float], measure: Measure) -> str:
    if not values:
        return "none"
    best = (max if measure.larger_is_better else min)(values.values())
    return listed(label for label, value in values.items() if value == best)


_INSIDE = {
    "zero_fraction": "outputs exactly 0",
    "dead_fraction": "dead units",
    "entropy": "entropy of inputs",
}


def has_diverged(outcome: Outcome) -> bool:
    return any(epoch is not None for epoch in outcome.diverged)


def bands_of(outcome: Outcome) -> list[Band]:
    """Each training curve: mean and interval over seeds; every seed for itself where one diverged."""
    label = outcome.trial.activation.label
    bands = []
    for name, curve in outcome.curves.items():
        if has_diverged(outcome):
            each = tuple(tuple(row[seed] for row in curve) for seed in range(len(outcome.diverged)))
            bands.append(Band(label=label, curve=name, epochs=outcome.noted, each=each))
        elif curve:
            points = [score([_number(value) for value in row], larger_is_better=False) for row in curve]
            middle = tuple(point.value for point in points)
            ends = [point.interval or (point.value, point.value) for point in points]
            low, high = [end[0] for end in ends], tuple(end[1] for end in ends)
            below = [place for place, value in enumerate(low) if name.endswith("loss") and value <= 0]
            for place in below:
                low[place] = min(points[place].each)
            bands.append(
                Band(
                    label=label,
                    curve=name,
                    epochs=outcome.noted,
                    middle=middle,
                    low=tuple(low),
                    high=high,
                    cut=bool(below),
                )
            )
    return bands


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def shapes_of(outcome: Outcome) -> list[Shape]:
    """The activation at each site whose parameters moved, where these are all that its formula needs."""
    activation = outcome.trial.activation
    try:
        act = get(activation.name)
    except KeyError:  # of a package that is not installed here, or a module without a definition
        return []
    if not isinstance(act, Activation):  # a table of many numbers, of which the outcome keeps only means
        return []
    known = {p.name: p.start for p in act.params}
    known |= {name: float(value) for name, value in activation.values.items() if name in known}
    sites: dict[str, dict[str, str]] = {}
    for key in outcome.parameters:
        path, _, name = key.rpartition(".")
        if name in known:
            sites.setdefault(path, {})[name] = key
    shapes = []
    for path, names in sites.items():
        start = known | {name: float(outcome.parameters[key]["start"]) for name, key in names.items()}
        ends = {name: outcome.parameters[key]["end"] for name, key in names.items()}
        each = [
            start | {name: float(values[seed]) for name, values in ends.items()}
            for seed in range(min(len(values) for values in ends.values()))
            if all(values[seed] is not None for values in ends.values())
        ]
        if each:
            shapes.append(Shape(label=activation.label, name=activation.name, path=path, start=start, ends=tuple(each)))
    return shapes


def trajectories_of(outcome: Outcome) -> list[Trajectory]:
    """Every parameter that moved, epoch by epoch."""
    trajectories = []
    for key, moved in outcome.parameters.items():
        path, _, name = key.rpartition(".")
        starts = moved.get("starts") or [moved["start"]]
        epochs = [
            [float(start) for start in starts],
            *([value for value in row if value is not None] for row in moved["curve"]),
        ]
        if all(epochs) and len(epochs) > 1:
            trajectories.append(
                Trajectory(
                    label=outcome.trial.activation.label,
                    path=path,
                    parameter=name,
                    epochs=(0, *outcome.noted),
                    middle=tuple(sum(row) / len(row) for row in epochs),
                    low=tuple(map(min, epochs)),
                    high=tuple(map(max, epochs)),
                )
            )
    return trajectories


def profile_of(outcome: Outcome) -> Profile | None:
    """The knob over depth, where it was measured and moved."""
    if all(site["start"] == site["end"] for site in outcome.hardness):
        return None

    def column(name: str) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(value for value in site.get(name) or () if value is not None) for site in outcome.hardness)

    return Profile(
        label=outcome.trial.activation.label,
        knob=str(outcome.hardness[0]["knob"]),
        paths=tuple(str(site["path"]) for site in outcome.hardness),
        start=column("start"),
        end=column("end"),
        distance=column("distance"),
    )


def replacement_of(outcome: Outcome, row: Row, metric: Measure) -> Replacement | None:
    """Before and after the limit took the activation's place, by the metric; None where seeds diverged."""
    replaced, before = outcome.replacement, row.scores.get(metric.name)
    after = None if replaced is None else replaced["test"].get(metric.name)
    if replaced is None or before is None or after is None or None in after:
        return None
    changed = replaced.get("changed")
    return Replacement(
        label=row.label,
        key=row.key,
        limit=str(replaced["limit"]),
        measure=metric,
        before=before,
        after=score(after, larger_is_better=metric.larger_is_better),
        change=compare_each(after, before.each, margin=metric.margin),
        changed=None if changed is None or None in changed else score(changed, larger_is_better=False),
    )


def inside_of(outcome: Outcome) -> Inside | None:
    """Activity over all sites, and the gradient norm over all steps; empty where seeds diverged."""
    scores: dict[str, Score] = {}
    activation = outcome.trial.activation
    if not has_diverged(outcome):
        for name, title in _INSIDE.items():
            columns = [site[name] for site in outcome.activity if site.get(name) is not None]
            if columns and not any(value is None for column in columns for value in column):
                scores[title] = _mean_over(columns)
        for name, title in (("mean", "gradient norm"), ("variance", "its variance over steps")):
            each = outcome.gradients.get(name)
            if each and None not in each:
                scores[title] = _mean_over([each])
        gap = _gap(outcome)
        if gap is not None:
            scores["generalisation gap"] = score(gap, larger_is_better=False)
    elif not outcome.activity and not outcome.gradients:
        return None
    return (
        Inside(label=activation.label, key=outcome.trial.key, scores=scores)
        if scores or has_diverged(outcome)
        else None
    )


def _mean_over(columns: Sequence[Sequence[float | None]]) -> Score:
    """The mean over the columns of each seed, over the seeds."""
    each = [sum(_number(value) for value in row) / len(row) for row in zip(*columns, strict=True)]
    return score(each, larger_is_better=False, bounds=(0.0, float("inf")))


def _gap(outcome: Outcome) -> list[float] | None:
    """By how much accuracy falls from the training examples to the test."""
    seen, unseen = outcome.train.get("accuracy"), outcome.test.get("accuracy")
    if not seen or not unseen or None in seen or None in unseen:
        return None
    return [_number(trained) - _number(other) for trained, other in zip(seen, unseen, strict=True)]


# What a score can be: an interval does not reach beyond.
_INFINITY = float("inf")
_BOUNDS = {
    **dict.fromkeys(("accuracy", "auc", "calibration_error"), (0.0, 1.0)),
    "r2": (-_INFINITY, 1.0),
    "psnr": (-_INFINITY, _INFINITY),
    "ssim": (-1.0, 1.0),
    "reward_accuracy": (0.0, 1.0),
    **dict.fromkeys(("reward_margin", "chosen_reward", "rejected_reward"), (-_INFINITY, _INFINITY)),
}
_POSITIVE = (0.0, _INFINITY)


_CLICKS = "criteo"
RELATIVE = "binary"


def first_measures(recipe: Recipe) -> tuple[str, ...]:
    """The two measures that a report is about, where they are not accuracy and prediction difference."""
    if recipe.training.progressive is not None:
        return "log_loss", RELATIVE
    if isinstance(recipe.task, Code):
        return "accuracy", "bits"
    if isinstance(recipe.task, Preference):
        first = recipe.task.betas[0]
        return tuple(recipe.task.measure(name, first) for name in ("reward_accuracy", "reward_margin"))
    if isinstance(recipe.task, LanguageTask):
        name = "perplexity" if recipe.data.set == "wikitext-2" or recipe.task.kind == "perplexity" else "loss"
        return name, f"{name}_replaced"
    return ("auc", "delta_1") if recipe.data.set == _CLICKS else ()


def _teachers(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """How good the network is that students learned from."""
    for outcome in outcomes:
        if outcome.trial.kind == "teacher" and (accuracy := outcome.test["accuracy"][0]) is not None:
            yield f"The teacher, {outcome.trial.model.build}, has a test accuracy of {100 * accuracy:.2f} %."


def progressive_note(recipe: Recipe) -> tuple[str, ...]:
    """What the scores of a progressive study are of."""
    share = recipe.training.progressive
    if share is None:
        return ()
    which = "all" if share == 1 else f"the last {100 * share:g} % of the"
    return (
        f"Progressive validation: the scores and differences are of {which} training examples, each predicted before "
        "it was trained on, in a single pass; no test example was read.",
    )


def preference_note(recipe: Recipe, rows: Sequence[Row]) -> tuple[str, ...]:
    """How much an accuracy of so few pairs says: Wilson's interval of a single run."""
    if not isinstance(recipe.task, Preference):
        return ()
    pairs, (name, _) = recipe.task.evaluation_pairs, first_measures(recipe)
    row = next((row for row in rows if name in row.scores), None)
    if row is None:
        return ()
    right = round(pairs * row.scores[name].each[0])
    low, high = (100 * end for end in wilson(right, pairs))
    return (
        f"Reward accuracies are shares of {pairs} pairs: {row.label} with seed {row.seeds[0]} prefers {right} of them, "
        f"of which Wilson's 95 % interval goes from {low:.1f} to {high:.1f} %.",
    )


def summarise(recipe: Recipe, outcomes: Sequence[Outcome]) -> Summary:
    """All that a report of these outcomes shows; the order of activations is that of the recipe."""
    trained = _ordered(recipe, [outcome for outcome in outcomes if outcome.trial.kind == "train"])
    if not trained:
        raise DataError("A report needs at least one trained activation, and there is none; run the study first.")
    measures = measured(trained)
    rows = _rows(recipe, trained, measures, _costs(outcomes))
    baseline = next((row for row in rows if row.baseline), None)
    if baseline is not None and not baseline.diverged:
        had = {measure.name: baseline.result(measure) for measure in measures}
        measures = tuple(
            measure if (found := had[measure.name]) is None else with_margin(measure, found.value)
            for measure in measures
        )
    rows = _judged(rows, measures)
    baseline = next((row for row in rows if row.baseline), None)
    first = first_measures(recipe)
    measures = _in_order(measures, first)
    metric = next((measure for measure in measures if not measure.of_sets), None)
    if metric is None:
        raise DataError("The outcomes hold no test score; a report needs one for each trained activation.")
    spread = next((other for other in measures if other is not metric and (other.of_sets or other.name in first)), None)
    whole = [outcome for outcome in trained if not has_diverged(outcome)]
    return Summary(
        recipe=recipe,
        metric=metric,
        spread=spread,
        measures=measures,
        rows=rows,
        baseline=baseline,
        knobs=_knobs(rows),
        bands=tuple(band for outcome in trained for band in bands_of(outcome)),
        shapes=tuple(shape for outcome in whole for shape in shapes_of(outcome)),
        trajectories=tuple(one for outcome in whole for one in trajectories_of(outcome)),
        profiles=tuple(profile for outcome in whole if (profile := profile_of(outcome))),
        replacements=tuple(
            found for row, outcome in zip(rows, trained, strict=True) if (found := replacement_of(outcome, row, metric))
        ),
        inside=tuple(found for outcome in trained if (found := inside_of(outcome))),
        sentences=sentences_of(rows, metric, spread, recipe.cost_baseline),
        notes=(
            *_teachers(outcomes),
            *progressive_note(recipe),
            *preference_note(recipe, rows),
            *notes_of(rows, baseline, recipe.baseline),
        ),
        seconds=sum(outcome.seconds for outcome in outcomes),
        paper_tables=compare_with_paper(recipe.paper, rows),
    )


def _in_order(measures: Sequence[Measure], first: Sequence[str]) -> tuple[Measure, ...]:
    return tuple(sorted(measures, key=lambda measure: measure.name not in first))


def _ordered(recipe: Recipe, trained: Sequence[Outcome]) -> list[Outcome]:
    """In the order of the recipe's activations; the values of one in rising order."""
    first: dict[str, int] = {}
    for place, choice in enumerate(recipe.activations):
        first.setdefault(choice.name, place)

    def order(outcome: Outcome) -> tuple[int, str, tuple[tuple[float, str], ...]]:
        activation = outcome.trial.activation
        values = tuple(
            (0.0, value) if isinstance(value, str) else (float(value), "") for value in activation.values.values()
        )
        return first.get(activation.name, len(first)), f"{activation.learn}{activation.harden}{activation.per}", values

    return sorted(trained, key=order)


def _rows(
    recipe: Recipe, trained: Sequence[Outcome], measures: Sequence[Measure], costs: Mapping[str, Cost]
) -> tuple[Row, ...]:
    labels = [outcome.trial.activation.label for outcome in trained]
    if doubled := sorted({label for label in labels if labels.count(label) > 1}):
        raise DataError(
            f"Two outcomes have the label {doubled[0]!r}; every activation of a report has a label of its own. If they "
            "are of two versions of the recipe, give only those of one."
        )
    # A label is exact; a name may stand for several rows, of which the first is taken.
    names = [outcome.trial.activation.name for outcome in trained]
    every = labels if recipe.baseline in labels else names
    basis = every.index(recipe.baseline) if recipe.baseline in every else None
    return tuple(_row(outcome, measures, costs, baseline=place == basis) for place, outcome in enumerate(trained))


def _row(outcome: Outcome, measures: Sequence[Measure], costs: Mapping[str, Cost], *, baseline: bool) -> Row:
    trial, activation = outcome.trial, outcome.trial.activation
    gone = tuple(
        (seed, epoch) for seed, epoch in zip(trial.seeds.numbers, outcome.diverged, strict=False) if epoch is not None
    )
    scores, differences = {}, {}
    for measure in () if gone else measures:
        if measure.of_sets:
            if (difference := outcome.difference.get(measure.name)) is not None:
                differences[measure.name] = _estimate(difference)
        elif (each := outcome.test.get(measure.name)) is not None and not _never_varies(measure, each):
            scores[measure.name] = score(
                _whole(each, activation.label, measure.name),
                larger_is_better=measure.larger_is_better,
                bounds=_BOUNDS.get(measure.name.partition(" beta=")[0], _POSITIVE),
            )
    return Row(
        label=activation.label,
        name=activation.name,
        values={**activation.values, **({} if activation.price is None else {"price": activation.price})},
        variant=(
            activation.learn if isinstance(activation.learn, bool | str) else tuple(activation.learn),
            activation.harden,
            activation.select,
            tuple((activation.last or {}).items()),
        ),
        key=trial.key,
        seeds=trial.seeds.numbers,
        baseline=baseline,
        diverged=gone,
        scores=scores,
        differences=differences,
        cost=costs.get(activation.label),
        learning_rate=trial.training.learning_rate,
        weight_decay=trial.training.weight_decay,
        seconds=outcome.seconds,
        trained=outcome.trained,
    )


def _never_varies(measure: Measure, each: Sequence[float | None]) -> bool:
    """Of a truth that is the same for every example there is no R^2."""
    return measure.name == "r2" and all(value is None for value in each)


def _whole(each: Sequence[float | None], label: str, name: str) -> list[float]:
    values = [value for value in each if value is not None]
    if len(values) < len(each):
        raise DataError(
            f"{label!r} lacks {name} of {len(each) - len(values)} of {len(each)} seeds, and none of them diverged; its "
            "record is incomplete. Run that trial again."
        )
    return values


def _estimate(difference: Mapping[str, Any]) -> Estimate:
    interval, without = difference.get("interval"), difference.get("without")
    return Estimate(
        difference["value"],
        difference.get("stdev"),
        None if interval is None else (interval[0], interval[1]),
        None if without is None else tuple(without),
    )


def _costs(outcomes: Sequence[Outcome]) -> dict[str, Cost]:
    costs = {}
    for outcome in outcomes:
        for entry in outcome.cost:
            names = ("train", "infer", "train_ratio", "infer_ratio")
            numbers = {name: _quantity(entry[name]) for name in names}
            costs[entry["label"]] = Cost(key=outcome.trial.key, peak_memory=entry.get("peak_memory"), **numbers)
    return costs


def _quantity(value: Any) -> Quantity:
    return value if isinstance(value, Quantity) else Quantity(**value)


def _judged(rows: tuple[Row, ...], measures: Sequence[Measure]) -> tuple[Row, ...]:
    """The rows with their verdicts, and with the measures by which nothing is shown to be better."""
    able = [row for row in rows if not row.diverged]
    baseline = next((row for row in able if row.baseline), None)
    verdicts = {measure.name: against_baseline(able, baseline, measure) if baseline else {} for measure in measures}
    best: dict[str, set[str]] = {row.label: set() for row in rows}
    for measure in measures:
        if ranking := best_and_rivals(able, measure):
            for row in (ranking[0], *ranking[1]):
                best[row.label].add(measure.name)
    return tuple(
        replace(
            row,
            verdicts={name: verdict[row.label] for name, verdict in verdicts.items() if row.label in verdict},
            best=frozenset(best[row.label]),
        )
        for row in rows
    )


def _knobs(rows: Sequence[Row]) -> tuple[Knob, ...]:
    """Rows that differ in one parameter alone, for each activation that has two of them or more."""
    knobs = []
    for name, variant in dict.fromkeys((row.name, row.variant) for row in rows):
        mine = [row for row in rows if (row.name, row.variant) == (name, variant) and row.values]
        moving = [name for name in dict.fromkeys(p for row in mine for p in row.values) if _varies(mine, name)]
        if len(mine) > 1 and len(moving) == 1 and all(_is_number(row.values.get(moving[0])) for row in mine):
            ordered = sorted(mine, key=lambda row, parameter=moving[0]: row.number(parameter))
            knobs.append(Knob(name=name, parameter=moving[0], rows=tuple(ordered)))
    return tuple(knobs)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _varies(rows: Sequence[Row], parameter: str) -> bool:
    return len({row.values.get(parameter) for row in rows}) > 1
