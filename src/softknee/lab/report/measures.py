"""Which numbers a report compares, what they are called, and how large a difference matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..studies.outcome import Outcome
from .parts import Measure

# What does not matter: half a point of accuracy; of losses and differences a share of the baseline's.
MARGINS: Mapping[str, float] = {"accuracy": 0.005, "auc": 0.005, "calibration_error": 0.005, "hamming": 0.005}
RELATIVE_MARGINS: Mapping[str, float] = {"log_loss": 0.05, "mse": 0.05}
SHARE_OF_DIFFERENCE = 0.10

_PERCENT = {"scale": 100.0, "unit": "%"}
_SCORES = (
    Measure(name="accuracy", title="test accuracy", larger_is_better=True, **_PERCENT),
    Measure(name="mse", title="mean squared error", larger_is_better=False),
    Measure(name="log_loss", title="log loss", larger_is_better=False, unit="nats"),
    Measure(name="auc", title="AUC", larger_is_better=True, **_PERCENT),
    Measure(name="calibration_error", title="calibration error", larger_is_better=False, **_PERCENT),
)
_DIFFERENCES = (
    Measure(name="delta_1", title="prediction difference Δ₁", larger_is_better=False, of_sets=True),
    Measure(name="delta_2", title="Δ₂", larger_is_better=False, of_sets=True),
    Measure(name="relative", title="relative Δ₁", larger_is_better=False, of_sets=True),
    Measure(name="binary", title="Δ₁ of the positive label", larger_is_better=False, of_sets=True),
    Measure(name="true_label", title="Δ₁ of the true label", larger_is_better=False, of_sets=True),
    Measure(name="hamming", title="labels that differ", larger_is_better=False, of_sets=True, **_PERCENT),
)


def measured(outcomes: Iterable[Outcome]) -> tuple[Measure, ...]:
    """The measures that any of the outcomes has, in the order they are shown; unknown ones come last."""
    scores: dict[str, None] = {}
    differences: dict[str, None] = {}
    for outcome in outcomes:
        scores |= dict.fromkeys(outcome.test)
        differences |= dict.fromkeys(outcome.difference)
    return (*_named(_SCORES, scores, False), *_named(_DIFFERENCES, differences, True))


def _named(known: Sequence[Measure], names: Mapping[str, None], of_sets: bool) -> list[Measure]:
    found = [measure for measure in known if measure.name in names]
    others = [name for name in names if name not in {measure.name for measure in known}]
    return found + [
        Measure(name=name, title=name.replace("_", " "), larger_is_better=False, of_sets=of_sets) for name in others
    ]


def with_margin(measure: Measure, baseline: float) -> Measure:
    """The measure with what does not matter in it, given what the baseline has."""
    share = RELATIVE_MARGINS.get(measure.name, SHARE_OF_DIFFERENCE if measure.of_sets else None)
    margin = MARGINS.get(measure.name, None if share is None else share * abs(baseline))
    return replace(measure, margin=margin) if margin else measure


def margin_words(measure: Measure) -> str:
    """The margin in words, for a caption."""
    if measure.name in MARGINS:
        return f"{measure.scale * MARGINS[measure.name]:g} points"
    share = RELATIVE_MARGINS.get(measure.name, SHARE_OF_DIFFERENCE if measure.of_sets else None)
    return "" if share is None else f"{100 * share:g} % of the baseline's"
