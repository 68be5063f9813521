"""Statements of the SmeLU paper about MNIST: accuracy against reproducibility, with each of its two optimizers.

What the paper says of both is two statements here, one for each study, so that one does not wait for the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from ..ledger.entry import FAILS, HOLDS
from .compared import agrees_more, difference, labels_of, percent
from .runs import Runs, Study
from .statement import ADDED, Evidence, Part, bound, corrected, counted, statements_of, wins

statement = statements_of("smelu")

SGD, ADAGRAD = "smelu-figure-4", "smelu-figure-13"
FAMILIES = ("smelu", "swish", "gelu", "mish", "tanhexp", "softplus")
OTHER_MEASURES = {"delta_2": "Δ₂", "true_label": "Δ₁ of the true label", "hamming": "Hamming"}
_DIFFERENT = (
    "weights and biases begin as torch draws them; whether the paper normalises weights with SGD is not known, and "
    "here they are not; 1,200 training images are kept for validation; with SGD products are of TF32; the paper's "
    "values of beta are not printed, and of each family the best of ours is taken"
)
_FAMILIES = f"{_DIFFERENT}; the one legend that is legible, that of figure 14, names ReLU, SmeLU and Swish alone"


def _best(study: Study, labels: list[str]) -> str:
    """The label with the lowest prediction difference."""
    return min(labels, key=lambda label: (math.isnan(difference(study, label)), difference(study, label)))


def _said(study: Study, label: str) -> str:
    error = percent(1 - study.mean(label, "accuracy"))
    return f"{label} {difference(study, label):.5f} (error {error})"


def _shown(part: Part) -> str:
    """The verdict on a part as what was found of it, the part being that something is lower."""
    return {HOLDS: "lower", FAILS: "higher"}.get(part.verdict, "not told apart")


def _each(study: Study, labels: Sequence[str], parts: Sequence[Part]) -> str:
    return "; ".join(f"{_said(study, one)}: {_shown(part)}" for one, part in zip(labels, parts, strict=True))


# -- smooth activations against ReLU ------------------------------------------------------------------------


def _reproducible(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    best = [_best(study, labels_of(study, family)) for family in FAMILIES]
    parts = corrected([part for label in best for part in agrees_more(study, label, ["relu"])])
    return Evidence(
        f"prediction difference Δ₁ of {_said(study, 'relu')}; of each family the value of beta with the lowest, "
        f"against ReLU's: {_each(study, best, parts)}",
        parts=parts,
        numbers={label: difference(study, label) for label in study.outcomes},
    )


@statement(
    place="Figure 4 (right) and section 5, MNIST",
    says="With SGD, ReLU's models differ from each other much more than those of smooth activations can.",
    needs=[SGD],
    different=_FAMILIES,
)
def smooth_models_agree_more_with_sgd(runs: Runs) -> Evidence:
    """Of each family the value of beta whose models agree most, against ReLU, by the jackknife pairs of delta 1."""
    return _reproducible(runs, SGD)


@statement(
    place="Figure 4 (left) and section 5, MNIST",
    says="With Adagrad, ReLU's models differ from each other much more than those of smooth activations can.",
    needs=[ADAGRAD],
    different=_FAMILIES,
)
def smooth_models_agree_more_with_adagrad(runs: Runs) -> Evidence:
    """As with SGD."""
    return _reproducible(runs, ADAGRAD)


# -- how much depends on the activation -----------------------------------------------------------------------


def _dependence(runs: Runs, name: str, least: float) -> Evidence:
    study = runs.study(name)
    found = {label: one for label in study.outcomes if not math.isnan(one := difference(study, label))}
    share = _change(found)
    # What is said beside the verdict and does not enter it: one function alone could make the share.
    others = {label: one for label, one in found.items() if label not in labels_of(study, "selu")}
    return Evidence(
        f"Δ₁ goes from {_ends(found)}: by {percent(share)} of its lowest value; without SELU from {_ends(others)}, by "
        f"{percent(_change(others))}",
        parts=[bound(f"over {percent(least)}", share > least)],
        numbers={"change": share, "change_without_selu": _change(others)},
    )


def _change(found: dict[str, float]) -> float:
    return max(found.values()) / min(found.values()) - 1 if found else math.nan


def _ends(found: dict[str, float]) -> str:
    low, high = (choose(found, key=found.__getitem__, default="") for choose in (min, max))
    return f"{found[low]:.5f} ({low}) to {found[high]:.5f} ({high})" if found else "nothing to nothing"


@statement(
    place="Section 5, MNIST",
    says="With SGD, prediction difference changes from activation to activation by over 30 % of its lowest value.",
    needs=[SGD],
    different=_FAMILIES,
)
def difference_depends_on_the_activation_with_sgd(runs: Runs) -> Evidence:
    """The largest delta 1 of all less the lowest, as a share of the lowest, against the paper's share."""
    return _dependence(runs, SGD, 0.3)


@statement(
    place="Section 5, MNIST",
    says="With Adagrad, prediction difference changes from activation to activation by over 10 % of its lowest value.",
    needs=[ADAGRAD],
    different=_FAMILIES,
)
def difference_depends_on_the_activation_with_adagrad(runs: Runs) -> Evidence:
    """As with SGD."""
    return _dependence(runs, ADAGRAD, 0.1)


# -- accuracy and reproducibility together ---------------------------------------------------------------------


def _trade_off(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    least = study.mean("relu", "accuracy")
    fit = [label for label in labels_of(study, "smelu") if study.mean(label, "accuracy") >= least]
    if not fit:
        none = f"no SmeLU has an error as low as {_said(study, 'relu')}"
        return Evidence(none, parts=[Part(f"{name}: a SmeLU as accurate as ReLU", FAILS)])
    best = _best(study, fit)
    parts = corrected(agrees_more(study, best, ["relu"]))
    return Evidence(
        f"{len(fit)} of {len(labels_of(study, 'smelu'))} values of beta have no higher error than ReLU; of these the "
        f"one with the lowest Δ₁, {_each(study, [best], parts)} than {_said(study, 'relu')}",
        parts=parts,
    )


@statement(
    place="Figure 4 (right), sections 5 and 6",
    says="With SGD a SmeLU is both more reproducible than ReLU and as accurate: it has the better trade-off.",
    needs=[SGD],
    different=_DIFFERENT,
)
def smelu_has_the_better_trade_off_with_sgd(runs: Runs) -> Evidence:
    """Of the SmeLUs whose mean error is no higher than ReLU's, the one whose models agree most, against ReLU."""
    return _trade_off(runs, SGD)


@statement(
    place="Figure 4 (left), sections 5 and 6",
    says="With Adagrad a SmeLU is both more reproducible than ReLU and as accurate: it has the better trade-off.",
    needs=[ADAGRAD],
    different=_DIFFERENT,
)
def smelu_has_the_better_trade_off_with_adagrad(runs: Runs) -> Evidence:
    """As with SGD."""
    return _trade_off(runs, ADAGRAD)


def _more_accurate(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    best = [
        max(
            labels_of(study, family),
            key=lambda label: (not math.isnan(study.mean(label, "accuracy")), study.mean(label, "accuracy")),
        )
        for family in FAMILIES
    ]
    parts = corrected([part for label in best for part in wins(study, label, ["relu"], "accuracy", larger=True)])
    told = ", ".join(f"{label} {percent(1 - study.mean(label, 'accuracy'))}" for label in ("relu", *best))
    return Evidence(f"error of {told}; {counted(parts)} are shown to be more accurate than ReLU", parts=parts)


@statement(
    place="Abstract and section 3",
    says="With SGD, activations smoother than ReLU can also be more accurate.",
    needs=[SGD],
    different=f"{_FAMILIES}; every family is asked, where the paper says that some can; {ADDED}",
)
def smooth_activations_can_be_more_accurate_with_sgd(runs: Runs) -> Evidence:
    """Of each family the value of beta with the lowest mean error, against ReLU by test accuracy."""
    return _more_accurate(runs, SGD)


@statement(
    place="Abstract and section 3",
    says="With Adagrad, activations smoother than ReLU can also be more accurate.",
    needs=[ADAGRAD],
    different=_FAMILIES,
)
def smooth_activations_can_be_more_accurate_with_adagrad(runs: Runs) -> Evidence:
    """As with SGD."""
    return _more_accurate(runs, ADAGRAD)


def _widening(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    labels = sorted(
        labels_of(study, "smelu"), key=lambda label: float(study.outcomes[label].trial.activation.values["beta"])
    )
    parts = corrected([part for a, b in pairwise(labels) for part in agrees_more(study, b, [a])])
    told = ", ".join(f"{label} {difference(study, label):.5f}" for label in labels)
    return Evidence(f"Δ₁ of {told}; {counted(parts)} steps are shown to lower it", parts=parts)


@statement(
    place="Sections 3 and 4",
    says="With SGD, SmeLU's models mostly differ less from each other the wider its knee.",
    needs=[SGD],
    different=f"{_DIFFERENT}; the paper adds that the best may lie between, and every step counts here; {ADDED}",
)
def wider_knees_agree_more_with_sgd(runs: Runs) -> Evidence:
    """SmeLU with each beta against the next smaller one, by the jackknife pairs of delta 1."""
    return _widening(runs, SGD)


@statement(
    place="Sections 3 and 4",
    says="With Adagrad, SmeLU's models mostly differ less from each other the wider its knee.",
    needs=[ADAGRAD],
    different=_DIFFERENT,
)
def wider_knees_agree_more_with_adagrad(runs: Runs) -> Evidence:
    """As with SGD."""
    return _widening(runs, ADAGRAD)


# -- Swish, and the other measures -----------------------------------------------------------------------------


@statement(
    place="Figure 4 (right) and section 5, MNIST",
    says="With SGD, Swish appears inferior in prediction difference to the other smooth activations.",
    needs=[SGD],
    different=f"{_FAMILIES}; without SoftPlus, whose best differs less than Swish's",
)
def swish_agrees_less_with_sgd(runs: Runs) -> Evidence:
    """The best SmeLU, GELU, Mish and TanhExp each against the best Swish."""
    study = runs.study(SGD)
    swish = _best(study, labels_of(study, "swish"))
    others = [_best(study, labels_of(study, family)) for family in ("smelu", "gelu", "mish", "tanhexp")]
    parts = corrected([part for label in others for part in agrees_more(study, label, [swish])])
    rest = sorted(difference(study, one) for one in labels_of(study, "swish") if one != swish)
    wide = f" (other values of beta: {rest[0]:.5f} to {rest[-1]:.5f})" if rest else ""
    return Evidence(
        f"prediction difference Δ₁ of {_said(study, swish)}, the lowest of Swish{wide}; of each other family the value "
        f"of beta with the lowest, against it: {_each(study, others, parts)}",
        parts=parts,
    )


def _other_measures(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    best = _best(study, labels_of(study, "smelu"))
    parts = corrected([part for one in OTHER_MEASURES for part in agrees_more(study, best, ["relu"], one)])
    each = [
        f"{words} {difference(study, best, one):.5f} against {difference(study, 'relu', one):.5f}: {_shown(part)}"
        for (one, words), part in zip(OTHER_MEASURES.items(), parts, strict=True)
    ]
    return Evidence(f"{best}, the SmeLU with the lowest Δ₁, against ReLU: {'; '.join(each)}", parts=parts)


@statement(
    place="Figures 13 to 15 (right), appendix F",
    says="With SGD the other measures of prediction difference (delta 2, of the true label, Hamming) behave like "
    "delta 1.",
    needs=[SGD],
    different=_DIFFERENT,
)
def other_measures_say_the_same_with_sgd(runs: Runs) -> Evidence:
    """The SmeLU with the lowest delta 1 against ReLU, by each of the other measures."""
    return _other_measures(runs, SGD)


@statement(
    place="Figures 13 to 15 (left), appendix F",
    says="With Adagrad the other measures of prediction difference (delta 2, of the true label, Hamming) behave like "
    "delta 1.",
    needs=[ADAGRAD],
    different=_DIFFERENT,
)
def other_measures_say_the_same_with_adagrad(runs: Runs) -> Evidence:
    """As with SGD."""
    return _other_measures(runs, ADAGRAD)
