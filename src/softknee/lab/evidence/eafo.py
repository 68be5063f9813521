"""Statements of the EAFO paper about CRReLU in vision transformers, and about entropy."""

from __future__ import annotations

import math

from .compared import mean, percent, rank_correlation
from .runs import Runs, Study
from .statement import Evidence, bound, corrected, counted, statements_of, wins

statement = statements_of("eafo")

CIFAR_10, CIFAR_100 = "eafo-table-1", "eafo-table-2"
OTHERS = ("gelu", "elu", "prelu", "celu", "silu", "mish")
_DIFFERENT = "no augmentation; ViT-Tiny is timm's, without the further layer before the head that the paper's count has"


def _accuracies(study: Study, labels: tuple[str, ...]) -> str:
    return ", ".join(f"{label} {percent(study.mean(label, 'accuracy'))}" for label in labels)


def _best(runs: Runs, name: str) -> Evidence:
    study = runs.study(name)
    parts = corrected(wins(study, "crrelu", OTHERS, "accuracy", larger=True))
    return Evidence(
        f"{_accuracies(study, ('crrelu', *OTHERS))}; CRReLU is shown to be better than {counted(parts)}",
        parts=parts,
        numbers={label: study.mean(label, "accuracy") for label in ("crrelu", *OTHERS)},
    )


@statement(
    place="Table 1, ViT-Tiny",
    says="On CIFAR-10 CRReLU is best with 80.2 %, before PReLU with 78.6 % and GELU with 70.6 %.",
    needs=[CIFAR_10],
    different=_DIFFERENT,
)
def crrelu_is_best_on_cifar_10(runs: Runs) -> Evidence:
    """CRReLU against each of the six by test accuracy."""
    return _best(runs, CIFAR_10)


@statement(
    place="Table 2, ViT-Tiny",
    says="On CIFAR-100 CRReLU is best with 45.9 %, before PReLU with 42.1 % and GELU with 32.2 %.",
    needs=[CIFAR_100],
    different=_DIFFERENT,
)
def crrelu_is_best_on_cifar_100(runs: Runs) -> Evidence:
    """CRReLU against each of the six by test accuracy."""
    return _best(runs, CIFAR_100)


@statement(
    place="Sections 2 and 3",
    says="The correction improves ReLU.",
    needs=[CIFAR_10],
    different=f"{_DIFFERENT}; the paper has no plain ReLU beside CRReLU",
)
def the_correction_helps(runs: Runs) -> Evidence:
    """CRReLU, its eps trained, against plain ReLU by test accuracy."""
    study = runs.study(CIFAR_10)
    parts = corrected(wins(study, "crrelu", ["relu"], "accuracy", larger=True))
    return Evidence(_accuracies(study, ("crrelu", "relu")), parts=parts)


@statement(
    place="Table 1, ViT-Tiny",
    says="PReLU is better than every activation without a trained parameter.",
    needs=[CIFAR_10],
    different=_DIFFERENT,
)
def prelu_is_next(runs: Runs) -> Evidence:
    """PReLU against GELU, ELU, CELU, SiLU and Mish by test accuracy."""
    study = runs.study(CIFAR_10)
    others = tuple(one for one in OTHERS if one != "prelu")
    parts = corrected(wins(study, "prelu", others, "accuracy", larger=True))
    return Evidence(_accuracies(study, ("prelu", *others)), parts=parts)


@statement(
    place="Tables 1 to 3",
    says="ELU and CELU, which at 1 are one function, have the same accuracy to three digits.",
    needs=[CIFAR_10],
    different=_DIFFERENT,
)
def elu_and_celu_are_one(runs: Runs) -> Evidence:
    """Whether their mean test accuracies are within one point: rounding alone tells them apart."""
    study = runs.study(CIFAR_10)
    gap = abs(study.mean("elu", "accuracy") - study.mean("celu", "accuracy"))
    return Evidence(
        _accuracies(study, ("elu", "celu")), parts=[bound("within one point", gap <= 0.01)], numbers={"gap": gap}
    )


@statement(
    place="Section 2",
    says="An activation whose outputs have less entropy lets a network classify better.",
    needs=[CIFAR_10],
    different=f"{_DIFFERENT}; entropy is that of the outputs of trained networks, on validation images",
)
def less_entropy_goes_with_accuracy(runs: Runs) -> Evidence:
    """Spearman's correlation, over the activations, of test accuracy with the mean entropy of all places."""
    study = runs.study(CIFAR_10)
    entropies = {label: mean(_entropies(study, label)) for label in study.outcomes}
    there = [label for label, one in entropies.items() if not math.isnan(one)]
    ranks = rank_correlation([entropies[one] for one in there], [study.mean(one, "accuracy") for one in there])
    return Evidence(
        f"Spearman's correlation of entropy and accuracy over {len(there)} activations is {ranks:.2f}",
        parts=[bound("the correlation is negative", ranks < 0)],
        numbers={"correlation": ranks, **entropies},
    )


def _entropies(study: Study, label: str) -> list[float | None]:
    sites = study.outcomes[label].activity
    return [one for site in sites for one in site.get("entropy") or () if one is None or math.isfinite(one)]
