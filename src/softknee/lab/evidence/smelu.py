"""Statements of the SmeLU paper about MNIST: accuracy against reproducibility."""

from __future__ import annotations

import math

from ..ledger.entry import FAILS
from .compared import agrees_more, difference, percent
from .runs import Runs, Study
from .statement import Evidence, Part, bound, corrected, statements_of

statement = statements_of("smelu")

SGD, ADAGRAD = "smelu-figure-4", "smelu-figure-13"
FAMILIES = ("smelu", "swish", "gelu", "mish", "tanhexp", "softplus")
OTHER_MEASURES = ("delta_2", "true_label", "hamming")
_DIFFERENT = (
    "weights and biases begin as torch draws them; the paper's values of beta are not printed, and "
    "of each family the best of ours is taken"
)


def _family(study: Study, name: str) -> list[str]:
    return [label for label, one in study.outcomes.items() if one.trial.activation.name == name]


def _best(study: Study, labels: list[str]) -> str:
    """The label with the lowest prediction difference."""
    return min(labels, key=lambda label: (math.isnan(difference(study, label)), difference(study, label)))


def _said(study: Study, label: str) -> str:
    error = percent(1 - study.mean(label, "accuracy"))
    return f"{label} {difference(study, label):.5f} at an error of {error}"


def _reproducible(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    best = [_best(study, _family(study, family)) for family in FAMILIES]
    parts = corrected([part for label in best for part in agrees_more(study, label, ["relu"])])
    return Evidence(
        "prediction difference (delta 1) of " + "; ".join(_said(study, label) for label in ("relu", *best)),
        parts=parts,
        numbers={label: difference(study, label) for label in study.outcomes},
    )


@statement(
    place="Figure 4 (right) and section 5, MNIST",
    says="With SGD, ReLU's models differ from each other much more than those of smooth activations can.",
    needs=[SGD],
    different=_DIFFERENT,
)
def smooth_models_agree_more_with_sgd(runs: Runs) -> Evidence:
    """Of each family the value of beta whose models agree most, against ReLU, by the jackknife pairs of delta 1."""
    return _reproducible(runs, SGD)


@statement(
    place="Figure 4 (left) and section 5, MNIST",
    says="With Adagrad, ReLU's models differ from each other much more than those of smooth activations can.",
    needs=[ADAGRAD],
    different=_DIFFERENT,
)
def smooth_models_agree_more_with_adagrad(runs: Runs) -> Evidence:
    """As with SGD."""
    return _reproducible(runs, ADAGRAD)


@statement(
    place="Section 5, MNIST",
    says="Between activations, prediction difference changes by over 30 % of its lowest value with SGD, and by over "
    "10 % with Adagrad.",
    needs=[SGD, ADAGRAD],
    different=_DIFFERENT,
)
def difference_depends_on_the_activation(runs: Runs) -> Evidence:
    """The largest delta 1 of all less the lowest, as a share of the lowest, against the paper's shares."""
    shares = {}
    for name in (SGD, ADAGRAD):
        study = runs.study(name)
        found = [one for label in study.outcomes if not math.isnan(one := difference(study, label))]
        shares[name] = max(found) / min(found) - 1 if found else math.nan
    return Evidence(
        f"delta 1 changes by {percent(shares[SGD])} of its lowest value with SGD, by {percent(shares[ADAGRAD])} with "
        "Adagrad",
        parts=[bound("over 30 % with SGD", shares[SGD] > 0.3), bound("over 10 % with Adagrad", shares[ADAGRAD] > 0.1)],
        numbers=shares,
    )


@statement(
    place="Sections 5 and 6",
    says="A smooth activation can be both more reproducible than ReLU and as accurate: SmeLU has the better trade-off.",
    needs=[SGD, ADAGRAD],
    different=_DIFFERENT,
)
def smelu_has_the_better_trade_off(runs: Runs) -> Evidence:
    """Of the SmeLUs whose mean error is no higher than ReLU's, the one whose models agree most, against ReLU."""
    parts: list[Part] = []
    told = []
    for name in (SGD, ADAGRAD):
        study = runs.study(name)
        least = study.mean("relu", "accuracy")
        fit = [label for label in _family(study, "smelu") if study.mean(label, "accuracy") >= least]
        if not fit:
            parts.append(Part(f"{name}: a SmeLU as accurate as ReLU", FAILS))
            told.append(f"{name}: no SmeLU is as accurate as {_said(study, 'relu')}")
            continue
        best = _best(study, fit)
        parts += agrees_more(study, best, ["relu"])
        told.append(f"{name}: {_said(study, best)}, {_said(study, 'relu')}")
    return Evidence("; ".join(told), parts=corrected(parts))


@statement(
    place="Section 5, MNIST",
    says="With SGD, Swish appears inferior in prediction difference to the other smooth activations.",
    needs=[SGD],
    different=_DIFFERENT,
)
def swish_agrees_less_with_sgd(runs: Runs) -> Evidence:
    """The best SmeLU, GELU, Mish and TanhExp each against the best Swish."""
    study = runs.study(SGD)
    swish = _best(study, _family(study, "swish"))
    others = [_best(study, _family(study, family)) for family in ("smelu", "gelu", "mish", "tanhexp")]
    parts = corrected([part for label in others for part in agrees_more(study, label, [swish])])
    return Evidence("; ".join(_said(study, label) for label in (swish, *others)), parts=parts)


@statement(
    place="Figures 13 to 15, appendix F",
    says="The other measures of prediction difference (delta 2, of the true label, Hamming) behave like delta 1.",
    needs=[SGD, ADAGRAD],
    different=_DIFFERENT,
)
def other_measures_say_the_same(runs: Runs) -> Evidence:
    """The SmeLU with the lowest delta 1 against ReLU, by each of the other measures."""
    parts: list[Part] = []
    told = []
    for name in (SGD, ADAGRAD):
        study = runs.study(name)
        best = _best(study, _family(study, "smelu"))
        for measure in OTHER_MEASURES:
            parts += agrees_more(study, best, ["relu"], measure)
        each = [
            f"{one} {difference(study, best, one):.5f} against {difference(study, 'relu', one):.5f}"
            for one in OTHER_MEASURES
        ]
        told.append(f"{name}: {best} and ReLU, {', '.join(each)}")
    return Evidence("; ".join(told), parts=corrected(parts))
