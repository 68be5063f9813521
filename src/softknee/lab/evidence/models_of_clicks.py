"""Comparing models of clicks: those that learned nothing agree with each other, and neither win nor lose."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .compared import agrees_more, difference
from .runs import Study
from .statement import CANNOT_TELL, Part, wins

RELATIVE = "binary"  # the paper's relative difference of two labels
_NOTHING = 0.02  # an AUC so near to one half is of a model that gives all examples the same, or nearly
_FEW = 0.1  # of the models may have learned nothing where a row counts
BLIND = (
    "an activation with which more than a tenth of the models learned nothing (an AUC within 0.02 of one half) can "
    "neither win nor lose, which was added with records at hand"
)


def _blind(study: Study, label: str) -> int:
    """How many of its models learned nothing."""
    return sum(one is not None and abs(one - 0.5) < _NOTHING for one in study.values(label, "auc"))


def _learned(study: Study, label: str) -> bool:
    """Whether enough of its models learned something for it to count."""
    return _blind(study, label) <= _FEW * len(study.values(label, "auc"))


def counting(study: Study, labels: Sequence[str]) -> list[str]:
    """Those that count, or all where none does: what is compared is then found to be without a verdict."""
    return [one for one in labels if _learned(study, one)] or list(labels)


def agree(study: Study, winner: str, others: Sequence[str], measure: str = "delta_1") -> list[Part]:
    """`agrees_more`, without a verdict where too many models learned nothing."""
    return _where_both_count(study, winner, others, lambda other: agrees_more(study, winner, [other], measure))


def beat(study: Study, winner: str, others: Sequence[str], measure: str, *, larger: bool) -> list[Part]:
    """`wins`, without a verdict where too many models learned nothing."""
    return _where_both_count(study, winner, others, lambda other: wins(study, winner, [other], measure, larger=larger))


def _where_both_count(
    study: Study, winner: str, others: Sequence[str], compared: Callable[[str], list[Part]]
) -> list[Part]:
    found = []
    for other in others:
        both = _learned(study, winner) and _learned(study, other)
        found += [one if both else Part(one.says, CANNOT_TELL) for one in compared(other)]
    return found


def agreeing(study: Study, labels: Sequence[str], measure: str) -> str:
    """The label with the lowest prediction difference, of those that count."""
    labels = counting(study, labels)
    found = {label: difference(study, label, measure) for label in labels}
    return min(labels, key=lambda label: (math.isnan(found[label]), found[label]))


def who_learned_nothing(study: Study, label: str) -> str:
    """How many of its models learned nothing, as words, where any did."""
    blind = _blind(study, label)
    return f" ({blind} of {len(study.values(label, 'auc'))} models learned nothing)" if blind else ""


def numbers(study: Study) -> dict[str, dict[str, float]]:
    """The means and differences of every activation, for the record of a judgement."""
    return {
        label: {
            "auc": study.mean(label, "auc"),
            "log_loss": study.mean(label, "log_loss"),
            "delta_1": difference(study, label),
            RELATIVE: difference(study, label, RELATIVE),
        }
        for label in study.outcomes
    }
