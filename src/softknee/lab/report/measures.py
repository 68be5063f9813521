"""Which numbers a report compares, what they are called, and how large a difference matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..studies.outcome import Outcome
from .parts import Measure

# What does not matter: half a point of accuracy, 0.1 dB; of losses and differences a share of the baseline's.
MARGINS: Mapping[str, float] = {
    **dict.fromkeys(("accuracy", "auc", "calibration_error", "hamming", "r2", "ssim"), 0.005),
    "psnr": 0.1,
}
RELATIVE_MARGINS: Mapping[str, float] = {"log_loss": 0.05, "mse": 0.05}
SHARE_OF_DIFFERENCE = 0.10

_PERCENT = {"scale": 100.0, "unit": "%"}
_SCORES = (
    Measure(name="accuracy", title="test accuracy", larger_is_better=True, **_PERCENT),
    Measure(name="psnr", title="PSNR", larger_is_better=True, unit="dB"),
    Measure(name="mse", title="mean squared error", larger_is_better=False, logarithmic=True),
    Measure(name="r2", title="R²", larger_is_better=True, **_PERCENT),
    Measure(name="ssim", title="SSIM", larger_is_better=True),
    Measure(name="log_loss", title="log loss", larger_is_better=False, unit="nats"),
    Measure(name="auc", title="AUC", larger_is_better=True, **_PERCENT),
    Measure(name="calibration_error", title="calibration error", larger_is_better=False, **_PERCENT),
)
_DIFFERENCES = (
    Measure(name="delta_1", title="prediction difference Δ₁", larger_is_better=False, of_sets=True),
    Measure(name="delta_2", title="Δ₂", larger_is_better=False, of_sets=True),
    Measure(name="relative", title="relative Δ₁", larger_is_better=False, of_sets=True),
    Measure(name="binary", title="Δ₁ relative to the positive label", larger_is_better=False, of_sets=True),
    Measure(name="true_label", title="Δ₁ of the true label", larger_is_better=False, of_sets=True),
    Measure(name="hamming", title="labels that differ", larger_is_better=False, of_sets=True, **_PERCENT),
)


# How many numbers of one model are trained: no score of a seed, but what a paper reports beside its scores.
PARAMETERS = Measure(name="parameters", title="trained parameters", larger_is_better=False)


def score_called(name: str) -> Measure:
    """The score or the prediction difference of that name, as an outcome has it."""
    return next(one for one in (*_SCORES, *_DIFFERENCES) if one.name == name)


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
        unit = "points" if measure.unit in ("%", "") else measure.unit
        return f"{measure.scale * MARGINS[measure.name]:g} {unit}"
    share = RELATIVE_MARGINS.get(measure.name, SHARE_OF_DIFFERENCE if measure.of_sets else None)
    return "" if share is None else f"{100 * share:g} % of the baseline's"
