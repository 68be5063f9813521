"""Statements of the EAFO paper about CRReLU in vision transformers, and about entropy."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..mollification.findings import TRAINING
from ..runs import Study
from ..statement import (
    CANNOT_TELL,
    IN_VISION,
    Evidence,
    Part,
    accuracies,
    against,
    best_in_vision,
    better,
    bound,
    corrected,
    mean,
    rank_correlation_of_groups,
    statements_of,
    wins,
)

statement = statements_of("eafo")

CIFAR_10, CIFAR_100 = "eafo-table-1", "eafo-table-2"
ALL = "mollification-table-1"  # the same network and data, with the functions of the other papers, too
_TWINS = ("elu", "celu", "relu", "srelu")  # two and two that are one function, or nearly
_RESOLUTION = (
    "the outputs of ReLU have no density, so that entropy is that of cells of 1/64, on validation images (`sk.measure."
    "entropies`)"
)


@statement(
    place="Table 1, ViT-Tiny",
    says="On CIFAR-10 CRReLU is best with 80.2 %, before PReLU with 78.6 % and GELU with 70.6 %.",
    needs=[CIFAR_10],
    different=TRAINING,
)
def crrelu_is_best_on_cifar_10(study: Study) -> Evidence:
    """CRReLU against each of the six by test accuracy."""
    return best_in_vision(study, "crrelu", "CRReLU")


@statement(
    place="Table 2, ViT-Tiny",
    says="On CIFAR-100 CRReLU is best with 45.9 %, before PReLU with 42.1 % and GELU with 32.2 %.",
    needs=[CIFAR_100],
    different=TRAINING,
)
def crrelu_is_best_on_cifar_100(study: Study) -> Evidence:
    """CRReLU against each of the six by test accuracy."""
    return best_in_vision(study, "crrelu", "CRReLU")


@statement(
    place="Sections 2 and 3",
    says="The correction improves ReLU.",
    needs=[CIFAR_10],
    labels=["crrelu", "relu"],
    different=f"{TRAINING}; the paper has no plain ReLU beside CRReLU",
)
def the_correction_helps(study: Study) -> Evidence:
    """CRReLU, its eps trained, against plain ReLU by test accuracy."""
    return against(study, "crrelu", "relu")


@statement(
    place="Table 1, ViT-Tiny",
    says="PReLU is better than every activation without a trained parameter.",
    needs=[CIFAR_10],
    different=TRAINING,
)
def prelu_is_next(study: Study) -> Evidence:
    """PReLU against GELU, ELU, CELU, SiLU and Mish by test accuracy."""
    others = tuple(label for label in IN_VISION if label != "prelu")
    parts = corrected(wins(study, "prelu", others, "accuracy", larger=True))
    return Evidence(accuracies(study, ("prelu", *others)), parts=parts)


@statement(
    place="Tables 1 to 3",
    says="ELU and CELU, which at 1 are one function, have the same accuracy to three digits.",
    needs=[CIFAR_10],
    labels=["elu", "celu"],
    different=f"{TRAINING}; that three digits are asked for, and not only one point, was added with records at hand",
)
def elu_and_celu_are_one(study: Study) -> Evidence:
    """Whether their mean test accuracies are within one point (rounding alone tells the two apart, and training makes
    more of it), and whether they are the same to three digits."""
    elu, celu = (study.mean(label, "accuracy") for label in ("elu", "celu"))
    gap = abs(elu - celu)
    return Evidence(
        f"{accuracies(study, ('elu', 'celu'))}: {100 * gap:.2f} points apart",
        parts=[
            bound("within one point", gap <= 0.01),
            bound("the same to three digits", f"{100 * elu:.1f}" == f"{100 * celu:.1f}"),
        ],
        numbers={"gap": gap},
    )


@statement(
    place="Section 2.1",
    says="An activation whose outputs have less entropy lets a network classify better.",
    needs=[ALL],
    different=f"{TRAINING}; {_RESOLUTION}; a correlation over activations, of which ELU and CELU are one function "
    "and ReLU and S-ReLU nearly so, and no change of the entropy alone",
)
def less_entropy_goes_with_accuracy(study: Study) -> Evidence:
    """Spearman's correlation, over all runs, of test accuracy with the entropy of the outputs after training (the mean
    over the layers), as it is and divided by their spread; it holds if the 95 % interval of a bootstrap over the
    activations lies below 0, and fails if it lies above."""
    labels = list(study.outcomes)
    fitted = [label for label in labels if mean(study.outcomes[label].train.get("accuracy", ())) >= 0.99]
    single = [label for label in labels if label not in _TWINS]
    correlations = {way: _correlation(study, way, labels) for way in ("output", "shape")}
    words = {"output": "the entropy of the outputs", "shape": "that of the outputs divided by their spread"}
    before, after = (
        {label: mean(_entropies(study, label, when, "output")) for label in labels} for when in ("start", "end")
    )
    measured = (
        f"Spearman's correlation of accuracy over {sum(map(len, _points(study, 'output', labels)))} runs of "
        f"{len(labels)} activations: "
        + "; ".join(f"with {words[way]} {_interval(*triple)}" for way, triple in correlations.items())
    )
    if 2 < len(fitted) < len(labels):
        measured += f"; over the {len(fitted)} that get 99 % of the training images right, which decides nothing, "
        measured += _interval(*_correlation(study, "output", fitted))
    if len(single) > 2:
        measured += f"; without {', '.join(_TWINS)}, {_interval(*_correlation(study, 'output', single))}"
    nats = ", ".join(f"{label} {before[label]:.2f} and {after[label]:.2f}" for label in labels)
    return Evidence(
        f"{measured}. Nats before and after training: {nats}",
        parts=[
            _negative(f"accuracy falls with {words[way]}", low, high) for way, (_, low, high) in correlations.items()
        ],
        numbers={
            "correlations": {way: list(triple) for way, triple in correlations.items()},
            "before": before,
            "after": after,
        },
    )


@statement(
    place="Section 2.4",
    says="The correction lowers the entropy of what comes out of ReLU.",
    needs=[CIFAR_10],
    labels=["crrelu", "relu"],
    different=f"{TRAINING}; {_RESOLUTION}; that of all outputs, where the paper's derivation is about inputs above 0 "
    "(judged among the mathematical claims): ReLU's many zeros are one cell, and CRReLU has none; after training the "
    "networks and their inputs differ, and eps is what was learned; that networks before training are compared, too, "
    "was added with records at hand",
)
def the_correction_lowers_entropy(study: Study) -> Evidence:
    """The entropy of the outputs of networks with CRReLU against those with ReLU, the mean over the layers, seed by
    seed: before training, with the same weights and eps = 0.01, and after it."""
    parts, nats = [], []
    for when, words in (("start", "before training"), ("end", "after it")):
        ours, plain = (_entropies(study, label, when, "output") for label in ("crrelu", "relu"))
        parts.append(better(f"CRReLU's outputs have less entropy than ReLU's {words}", ours, plain, larger=False))
        nats.append(f"{words} {mean(ours):.3f} nats with CRReLU, {mean(plain):.3f} with ReLU")
    return Evidence(f"{'; '.join(nats)}{_learned_eps(study)}", parts=corrected(parts))


def _learned_eps(study: Study) -> str:
    """What became of CRReLU's eps in all layers and seeds, as words."""
    ways = study.outcomes["crrelu"].parameters.values()
    ends = [eps for way in ways for eps in way["end"] if eps is not None]
    if not ends:
        return ""
    below = sum(eps < 0 for eps in ends)
    return f"; eps is {min(ends):.2f} to {max(ends):.2f} by then, below 0 in {below} of {len(ends)} layers and seeds"


def _correlation(study: Study, way: str, labels: Iterable[str]) -> tuple[float, float, float]:
    """Of entropy and accuracy over the seeds of these activations, with its interval."""
    return rank_correlation_of_groups(_points(study, way, labels))


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _points(study: Study, way: str, labels: Iterable[str]) -> list[list[tuple[float, float]]]:
    """For each of the labels the (entropy, accuracy) of its seeds that have both."""
    groups = []
    for label in labels:
        pairs = zip(_entropies(study, label, "end", way), study.values(label, "accuracy"), strict=False)
        groups.append([(a, b) for a, b in pairs if a is not None and b is not None])
    return [group for group in groups if group]


def _entropies(study: Study, label: str, when: str, way: str) -> list[float | None]:
    """The mean over the layers for each seed; None where a layer has none. `way`: "input", "output" or "shape"."""
    sites, layers = study.outcomes[label].entropy, []
    # Of the function that is compared; the tanh before the head of ViT-Tiny is in every model.
    for site in (site for site in sites if site["activation"] == sites[0]["activation"]):
        each = site[when]["output" if way == "shape" else way]
        if way == "shape":  # 0 where there is no spread, which is no shape either
            both = zip(each, site[when]["spread"], strict=True)
            each = [a - math.log(b) if a is not None and b else None for a, b in both]
        layers.append(each)
    return [None if None in seed else math.fsum(seed) / len(seed) for seed in zip(*layers, strict=True)]


def _negative(says: str, low: float, high: float) -> Part:
    if math.isnan(low) or low <= 0 <= high:
        return Part(says, CANNOT_TELL)
    return bound(says, high < 0)
