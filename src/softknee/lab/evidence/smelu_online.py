"""Statements of the SmeLU paper about clicks online: its figure 3."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from ..ledger.entry import FAILS
from .compared import difference, labels_of, percent
from .models_of_clicks import BLIND, RELATIVE, agree, agreeing, beat, counting, numbers, who_learned_nothing
from .runs import Runs, Study
from .statement import ADDED, Evidence, Part, bound, corrected, statements_of

statement = statements_of("smelu")

ONLINE, PAIR = "smelu-figure-3-twelve", "smelu-figure-3"
FAMILIES = ("smelu", "swish", "gelu", "mish", "tanhexp", "softplus")
_ONLINE = (
    "one pass over 7,200 rows of Criteo, the second half of them judged, and not over hundreds of billions of the "
    "paper's own; five columns, rate, batch and values of beta are ours, and of each family the best of ours is taken; "
    f"{BLIND}"
)


def _online(study: Study, label: str) -> str:
    basis = study.mean("relu", "log_loss")
    change = 100 * (study.mean(label, "log_loss") / basis - 1)
    blind = who_learned_nothing(study, label)
    return f"{label}{blind} {percent(difference(study, label, RELATIVE))} at a log loss {change:+.2f} % from ReLU's"


@statement(
    place="Section 5, real data",
    says="Two ReLU models of clicks with the same start differ by over 10 % of the predicted share of clicks.",
    needs=[PAIR],
    different=_ONLINE,
)
def two_online_relu_models_differ(runs: Runs) -> Evidence:
    """The relative delta 1 of their progressive predictions, against 10 %."""
    found = difference(runs.study(PAIR), "relu", RELATIVE)
    return Evidence(f"{percent(found)}", parts=[bound("over 10 %", found > 0.1)], numbers={"relu": found})


@statement(
    place="Figure 3 and section 5, real data",
    says="Online, smooth activations are substantially better than ReLU in prediction difference.",
    needs=[ONLINE],
    different=_ONLINE,
)
def smooth_online_models_agree_more(runs: Runs) -> Evidence:
    """Of each family the value of beta whose models agree most, against ReLU, by the relative delta 1."""
    study = runs.study(ONLINE)
    best = [agreeing(study, labels_of(study, family), RELATIVE) for family in FAMILIES]
    parts = corrected([part for label in best for part in agree(study, label, ["relu"], RELATIVE)])
    told = "; ".join(_online(study, label) for label in ("relu", *best))
    return Evidence(f"relative difference of {told}", parts=parts, numbers=numbers(study))


def _acceptable(study: Study, family: str) -> str | None:
    """Of the values of a family whose mean progressive log loss is no higher than ReLU's, the one whose models agree
    most; None where there is none."""
    most = study.mean("relu", "log_loss")
    fit = [one for one in counting(study, labels_of(study, family)) if study.mean(one, "log_loss") <= most]
    return agreeing(study, fit, RELATIVE) if fit else None


def _agreeing_families(study: Study, first: Sequence[str], second: Sequence[str]) -> tuple[list[Part], list[str]]:
    """Each of the first families against each of the second, by the acceptable value of each; and their labels."""
    best = {family: _acceptable(study, family) for family in (*first, *second)}
    parts: list[Part] = []
    for one, other in product(first, second):
        mine, theirs = best[one], best[other]
        if mine is None:
            parts.append(Part(f"{study.name}: a {one} with a loss as low as ReLU's", FAILS))
        elif theirs is None:
            parts.append(bound(f"{study.name}: {mine} has a loss as low as ReLU's, and no {other}", True))
        else:
            parts += agree(study, mine, [theirs], RELATIVE)
    return parts, [label for label in best.values() if label is not None]


@statement(
    place="Figure 3 and section 5, real data",
    says="Online, smooth activations have better trade-offs than ReLU: they agree more without a higher loss.",
    needs=[ONLINE],
    different=f"{_ONLINE}; without SoftPlus, of which the paper says that it pays in accuracy",
)
def smooth_online_models_have_better_trade_offs(runs: Runs) -> Evidence:
    """Of each family but SoftPlus, and of its values whose mean progressive log loss is no higher than ReLU's, the one
    whose models agree most, against ReLU."""
    study = runs.study(ONLINE)
    parts: list[Part] = []
    told = [_online(study, "relu")]
    for family in FAMILIES[:-1]:
        best = _acceptable(study, family)
        if best is None:
            parts.append(Part(f"{study.name}: a {family} with a loss as low as ReLU's", FAILS))
            told.append(f"no {family} has a loss as low")
            continue
        parts += agree(study, best, ["relu"], RELATIVE)
        told.append(_online(study, best))
    return Evidence(f"relative difference of {'; '.join(told)}", parts=corrected(parts))


@statement(
    place="Figure 3 and section 5, real data",
    says="SoftPlus pushes towards a better prediction difference at the expense of accuracy.",
    needs=[ONLINE],
    different=_ONLINE,
)
def softplus_agrees_at_the_expense_of_accuracy(runs: Runs) -> Evidence:
    """The SoftPlus whose models agree most: it agrees more than ReLU, and ReLU's log loss is lower."""
    study = runs.study(ONLINE)
    best = agreeing(study, labels_of(study, "softplus"), RELATIVE)
    parts = corrected([*agree(study, best, ["relu"], RELATIVE), *beat(study, "relu", [best], "log_loss", larger=False)])
    return Evidence(f"relative difference of {_online(study, best)}; {_online(study, 'relu')}", parts=parts)


@statement(
    place="Figure 3 and section 5, real data",
    says="A continuously differentiable SELU is inferior to SmeLU in accuracy and in prediction difference.",
    needs=[ONLINE],
    different=f"{_ONLINE}; the paper does not say to which it is inferior: SmeLU is taken",
)
def selu_is_inferior_online(runs: Runs) -> Evidence:
    """The SmeLU with the lowest mean log loss against SELU with beta = 1, by log loss and by the relative delta 1."""
    study = runs.study(ONLINE)
    best = min(counting(study, labels_of(study, "smelu")), key=lambda label: study.mean(label, "log_loss"))
    parts = corrected([*beat(study, best, ["selu"], "log_loss", larger=False), *agree(study, best, ["selu"], RELATIVE)])
    return Evidence(f"relative difference of {_online(study, best)}; {_online(study, 'selu')}", parts=parts)


@statement(
    place="Figure 3 and section 5, real data",
    says="Online, the trade-offs of SmeLU, GELU and Swish are slightly better than those of Mish and TanhExp.",
    needs=[ONLINE],
    different=f"{_ONLINE}; {ADDED}",
)
def three_families_trade_best_online(runs: Runs) -> Evidence:
    """Of each family's values whose mean progressive log loss is no higher than ReLU's the one whose models agree most:
    each of the three against each of the two, by the relative delta 1."""
    study = runs.study(ONLINE)
    parts, labels = _agreeing_families(study, ("smelu", "gelu", "swish"), ("mish", "tanhexp"))
    told = "; ".join(_online(study, label) for label in labels)
    return Evidence(f"relative difference of {told}", parts=corrected(parts))


@statement(
    place="Figure 3 and section 5, real data",
    says="Online, SmeLU seems to be stronger in prediction difference, and Swish in accuracy.",
    needs=[ONLINE],
    different=f"{_ONLINE}; {ADDED}",
)
def smelu_agrees_and_swish_predicts_better_online(runs: Runs) -> Evidence:
    """Of the values whose mean progressive log loss is no higher than ReLU's the SmeLU and the Swish whose models agree
    most, by the relative delta 1; and the Swish and the SmeLU with the lowest mean log loss, by that."""
    study = runs.study(ONLINE)
    parts, labels = _agreeing_families(study, ("smelu",), ("swish",))
    swish, smelu = (
        min(counting(study, labels_of(study, one)), key=lambda label: study.mean(label, "log_loss"))
        for one in ("swish", "smelu")
    )
    parts += beat(study, swish, [smelu], "log_loss", larger=False)
    told = "; ".join(_online(study, label) for label in dict.fromkeys((*labels, swish, smelu)))
    return Evidence(f"relative difference of {told}", parts=corrected(parts))
