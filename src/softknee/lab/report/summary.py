"""From outcomes to what a report shows: averages with intervals, verdicts, paths, bands. Nothing is drawn here.

A trial with a diverged seed has no averages at all: the survivors alone would make it look better than it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import DataError
from ...measure.estimate import Estimate, Score, score
from ...measure.record import Quantity
from ...measure.significance import compare_each
from ...registry import get
from ...spec import Activation
from ..studies.recipe import Recipe
from ..studies.trials import Outcome
from .parts import (
    Band,
    Cost,
    Inside,
    Knob,
    Measure,
    Profile,
    Replacement,
    Row,
    Shape,
    Summary,
    Trajectory,
    measured,
    with_margin,
)
from .tables import first_measures, progressive_note
from .verdicts import against_baseline, beside_paper, best_and_rivals, notes_of, sentences_of

_INSIDE = {
    "zero_fraction": "outputs exactly 0",
    "dead_fraction": "dead units",
    "entropy": "entropy of inputs",
}


def has_diverged(outcome: Outcome) -> bool:
    return any(epoch is not None for epoch in outcome.diverged)


def bands_of(outcome: Outcome, *, level: float) -> list[Band]:
    """Each training curve: mean and interval over seeds; every seed for itself where one diverged."""
    label = outcome.trial.activation.label
    found = []
    for name, curve in outcome.curves.items():
        if has_diverged(outcome):
            each = tuple(tuple(row[seed] for row in curve) for seed in range(len(outcome.diverged)))
            found.append(Band(label=label, curve=name, epochs=outcome.noted, each=each))
        elif curve:
            points = [score([_number(one) for one in row], larger_is_better=False, level=level) for row in curve]
            middle = tuple(one.value for one in points)
            ends = [one.interval or (one.value, one.value) for one in points]
            low, high = [one[0] for one in ends], tuple(one[1] for one in ends)
            below = [place for place, one in enumerate(low) if name.endswith("loss") and one <= 0]
            for place in below:
                low[place] = min(points[place].each)
            found.append(
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
    return found


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def shapes_of(outcome: Outcome) -> list[Shape]:
    """The activation at each site whose parameters moved, where these are all that its formula needs."""
    one = outcome.trial.activation
    try:
        act = get(one.name)
    except KeyError:  # of a package that is not installed here, or a module without a definition
        return []
    if not isinstance(act, Activation):  # a table of many numbers, of which the outcome keeps only means
        return []
    known = {p.name: p.start for p in act.params}
    known |= {name: float(value) for name, value in one.values.items() if name in known}
    sites: dict[str, dict[str, str]] = {}
    for key in outcome.parameters:
        path, _, name = key.rpartition(".")
        if name in known:
            sites.setdefault(path, {})[name] = key
    found = []
    for path, names in sites.items():
        start = known | {name: float(outcome.parameters[key]["start"]) for name, key in names.items()}
        ends = {name: outcome.parameters[key]["end"] for name, key in names.items()}
        each = [
            start | {name: float(values[seed]) for name, values in ends.items()}
            for seed in range(min(len(values) for values in ends.values()))
            if all(values[seed] is not None for values in ends.values())
        ]
        if each:
            found.append(Shape(label=one.label, name=one.name, path=path, start=start, ends=tuple(each)))
    return found


def trajectories_of(outcome: Outcome) -> list[Trajectory]:
    """Every parameter that moved, epoch by epoch."""
    found = []
    for key, moved in outcome.parameters.items():
        path, _, name = key.rpartition(".")
        starts = moved.get("starts") or [moved["start"]]
        epochs = [[float(one) for one in starts], *([one for one in row if one is not None] for row in moved["curve"])]
        if all(epochs):
            found.append(
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
    return found


def profile_of(outcome: Outcome) -> Profile | None:
    """The knob over depth, where it was measured and moved."""
    if all(site["start"] == site["end"] for site in outcome.hardness):
        return None

    def column(name: str) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(one for one in site.get(name) or () if one is not None) for site in outcome.hardness)

    return Profile(
        label=outcome.trial.activation.label,
        knob=str(outcome.hardness[0]["knob"]),
        paths=tuple(str(site["path"]) for site in outcome.hardness),
        start=column("start"),
        end=column("end"),
        distance=column("distance"),
    )


def replacement_of(outcome: Outcome, row: Row, metric: Measure, *, level: float) -> Replacement | None:
    """Before and after the limit took the activation's place, by the metric; None where seeds diverged."""
    found, before = outcome.replacement, row.scores.get(metric.name)
    after = None if found is None else found["test"].get(metric.name)
    if found is None or before is None or after is None or None in after:
        return None
    changed = found.get("changed")
    return Replacement(
        label=row.label,
        key=row.key,
        limit=str(found["limit"]),
        measure=metric,
        before=before,
        after=score(after, larger_is_better=metric.larger_is_better, level=level),
        change=compare_each(after, before.each, margin=metric.margin, level=level),
        changed=None if changed is None or None in changed else score(changed, larger_is_better=False, level=level),
    )


def inside_of(outcome: Outcome, *, level: float) -> Inside | None:
    """Activity over all sites, and the gradient norm over all steps; empty where seeds diverged."""
    scores: dict[str, Score] = {}
    one = outcome.trial.activation
    if not has_diverged(outcome):
        for name, title in _INSIDE.items():
            columns = [site[name] for site in outcome.activity if site.get(name) is not None]
            if columns and not any(value is None for column in columns for value in column):
                scores[title] = _mean_over(columns, level=level)
        for name, title in (("mean", "gradient norm"), ("variance", "its variance over steps")):
            each = outcome.gradients.get(name)
            if each and None not in each:
                scores[title] = _mean_over([each], level=level)
        gap = _gap(outcome)
        if gap is not None:
            scores["generalisation gap"] = score(gap, larger_is_better=False, level=level)
    elif not outcome.activity and not outcome.gradients:
        return None
    return Inside(label=one.label, key=outcome.trial.key, scores=scores) if scores or has_diverged(outcome) else None


def _mean_over(columns: Sequence[Sequence[float | None]], *, level: float) -> Score:
    """The mean over the columns of each seed, over the seeds."""
    each = [sum(_number(one) for one in row) / len(row) for row in zip(*columns, strict=True)]
    return score(each, larger_is_better=False, level=level, bounds=(0.0, float("inf")))


def _gap(outcome: Outcome) -> list[float] | None:
    """By how much accuracy falls from the training examples to the test."""
    seen, unseen = outcome.train.get("accuracy"), outcome.test.get("accuracy")
    if not seen or not unseen or None in seen or None in unseen:
        return None
    return [_number(one) - _number(other) for one, other in zip(seen, unseen, strict=True)]


LEVEL = 0.95
# What a score can be: an interval does not reach beyond.
_INFINITY = float("inf")
_BOUNDS = {
    **dict.fromkeys(("accuracy", "auc", "calibration_error"), (0.0, 1.0)),
    "r2": (-_INFINITY, 1.0),
    "psnr": (-_INFINITY, _INFINITY),
    "ssim": (-1.0, 1.0),
}
_POSITIVE = (0.0, _INFINITY)


def summarise(recipe: Recipe, outcomes: Sequence[Outcome]) -> Summary:
    """All that a report of these outcomes shows; the order of activations is that of the recipe."""
    trained = _ordered(recipe, [outcome for outcome in outcomes if outcome.trial.kind == "train"])
    if not trained:
        raise DataError("A report needs at least one trained activation, and there is none; run the study first.")
    measures = measured(trained)
    rows = _rows(recipe, trained, measures, _costs(outcomes))
    baseline = next((row for row in rows if row.baseline), None)
    if baseline is not None and not baseline.diverged:
        had = {measure.name: baseline.found(measure) for measure in measures}
        measures = tuple(
            measure if (found := had[measure.name]) is None else with_margin(measure, found.value)
            for measure in measures
        )
    rows = _judged(rows, measures)
    baseline = next((row for row in rows if row.baseline), None)
    measures = _in_order(measures, first_measures(recipe))
    metric = next((one for one in measures if not one.of_sets), None)
    if metric is None:
        raise DataError("The outcomes hold no test score; a report needs one for each trained activation.")
    spread = next((one for one in measures if one.of_sets), None)
    whole = [outcome for outcome in trained if not has_diverged(outcome)]
    return Summary(
        recipe=recipe,
        metric=metric,
        spread=spread,
        measures=measures,
        rows=rows,
        baseline=baseline,
        knobs=_knobs(rows),
        bands=tuple(band for outcome in trained for band in bands_of(outcome, level=LEVEL)),
        shapes=tuple(shape for outcome in whole for shape in shapes_of(outcome)),
        trajectories=tuple(one for outcome in whole for one in trajectories_of(outcome)),
        profiles=tuple(profile for outcome in whole if (profile := profile_of(outcome))),
        replacements=tuple(
            found
            for row, outcome in zip(rows, trained, strict=True)
            if (found := replacement_of(outcome, row, metric, level=LEVEL))
        ),
        inside=tuple(found for outcome in trained if (found := inside_of(outcome, level=LEVEL))),
        sentences=sentences_of(rows, metric, spread, recipe.cost_baseline, level=LEVEL),
        notes=(*progressive_note(recipe), *notes_of(rows, baseline, recipe.baseline)),
        seconds=sum(outcome.seconds for outcome in outcomes),
        level=LEVEL,
        beside=beside_paper(recipe.paper, rows, level=LEVEL),
    )


def _in_order(measures: Sequence[Measure], first: Sequence[str]) -> tuple[Measure, ...]:
    return tuple(sorted(measures, key=lambda one: one.name not in first))


def _ordered(recipe: Recipe, trained: Sequence[Outcome]) -> list[Outcome]:
    """In the order of the recipe's activations; the values of one in rising order."""
    first: dict[str, int] = {}
    for place, choice in enumerate(recipe.activations):
        first.setdefault(choice.name, place)

    def order(outcome: Outcome) -> tuple[int, str, tuple[tuple[float, str], ...]]:
        one = outcome.trial.activation
        values = tuple((0.0, value) if isinstance(value, str) else (float(value), "") for value in one.values.values())
        return first.get(one.name, len(first)), f"{one.learn}{one.harden}{one.per}", values

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
    trial, one = outcome.trial, outcome.trial.activation
    gone = tuple(
        (seed, epoch) for seed, epoch in zip(trial.seeds.numbers, outcome.diverged, strict=False) if epoch is not None
    )
    scores, differences = {}, {}
    for measure in () if gone else measures:
        if measure.of_sets:
            if (found := outcome.difference.get(measure.name)) is not None:
                differences[measure.name] = _estimate(found)
        elif (each := outcome.test.get(measure.name)) is not None and not _never_varies(measure, each):
            scores[measure.name] = score(
                _whole(each, one.label, measure.name),
                larger_is_better=measure.larger_is_better,
                level=LEVEL,
                bounds=_BOUNDS.get(measure.name, _POSITIVE),
            )
    return Row(
        label=one.label,
        name=one.name,
        values=dict(one.values),
        variant=(
            one.learn if isinstance(one.learn, bool | str) else tuple(one.learn),
            one.harden,
            one.select,
            tuple((one.last or {}).items()),
        ),
        key=trial.key,
        seeds=trial.seeds.numbers,
        baseline=baseline,
        diverged=gone,
        scores=scores,
        differences=differences,
        cost=costs.get(one.label),
        learning_rate=trial.training.learning_rate,
        weight_decay=trial.training.weight_decay,
        seconds=outcome.seconds,
        trained=outcome.trained,
    )


def _never_varies(measure: Measure, each: Sequence[float | None]) -> bool:
    """Of a truth that is the same for every example there is no R^2."""
    return measure.name == "r2" and all(one is None for one in each)


def _whole(each: Sequence[float | None], label: str, name: str) -> list[float]:
    found = [one for one in each if one is not None]
    if len(found) < len(each):
        raise DataError(
            f"{label!r} lacks {name} of {len(each) - len(found)} of {len(each)} seeds, and none of them diverged; its "
            "record is incomplete. Run that trial again."
        )
    return found


def _estimate(found: Mapping[str, Any]) -> Estimate:
    interval, without = found.get("interval"), found.get("without")
    return Estimate(
        found["value"],
        found.get("stdev"),
        None if interval is None else (interval[0], interval[1]),
        None if without is None else tuple(without),
    )


def _costs(outcomes: Sequence[Outcome]) -> dict[str, Cost]:
    found = {}
    for outcome in outcomes:
        for entry in outcome.cost:
            names = ("train", "infer", "train_ratio", "infer_ratio")
            numbers = {name: _quantity(entry[name]) for name in names}
            found[entry["label"]] = Cost(key=outcome.trial.key, peak_memory=entry.get("peak_memory"), **numbers)
    return found


def _quantity(found: Any) -> Quantity:
    return found if isinstance(found, Quantity) else Quantity(**found)


def _judged(rows: tuple[Row, ...], measures: Sequence[Measure]) -> tuple[Row, ...]:
    """The rows with their verdicts, and with the measures by which nothing is shown to be better."""
    able = [row for row in rows if not row.diverged]
    baseline = next((row for row in able if row.baseline), None)
    verdicts = {one.name: against_baseline(able, baseline, one, level=LEVEL) if baseline else {} for one in measures}
    best: dict[str, set[str]] = {row.label: set() for row in rows}
    for measure in measures:
        if found := best_and_rivals(able, measure, level=LEVEL):
            for row in (found[0], *found[1]):
                best[row.label].add(measure.name)
    return tuple(
        replace(
            row,
            verdicts={name: of[row.label] for name, of in verdicts.items() if row.label in of},
            best=frozenset(best[row.label]),
        )
        for row in rows
    )


def _knobs(rows: Sequence[Row]) -> tuple[Knob, ...]:
    """Rows that differ in one parameter alone, for each activation that has two of them or more."""
    found = []
    for name, variant in dict.fromkeys((row.name, row.variant) for row in rows):
        mine = [row for row in rows if (row.name, row.variant) == (name, variant) and row.values]
        moving = [one for one in dict.fromkeys(p for row in mine for p in row.values) if _varies(mine, one)]
        if len(mine) > 1 and len(moving) == 1 and all(_is_number(row.values.get(moving[0])) for row in mine):
            ordered = sorted(mine, key=lambda row, parameter=moving[0]: row.number(parameter))
            found.append(Knob(name=name, parameter=moving[0], rows=tuple(ordered)))
    return tuple(found)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _varies(rows: Sequence[Row], parameter: str) -> bool:
    return len({row.values.get(parameter) for row in rows}) > 1
