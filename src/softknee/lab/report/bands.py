"""Curves, shapes, hardness, replacement and activity of one outcome, ready to be drawn."""

from __future__ import annotations

from collections.abc import Sequence

from ...measure.estimate import Score, score
from ...measure.significance import compare_each
from ...registry import get
from ...spec import Activation
from ..studies.outcome import Outcome
from .parts import Band, Inside, Measure, Profile, Replacement, Row, Shape, Trajectory

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
