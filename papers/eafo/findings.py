"""Statements of the EAFO paper about CRReLU in vision transformers, and about entropy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial

from ..claim import OURS
from ..mollification.findings import AUGMENTATION, PLAIN, SHORT_VIT, SMALL_DEIT, SMALL_TNT, TRAINING, otherwise
from ..runs import Study, printed_of
from ..statement import (
    ADDED,
    CHANGED,
    IN_VISION,
    NOT_SHOWN,
    REVERSED,
    SHOWN,
    Evidence,
    Part,
    alike,
    best_of,
    better,
    differences,
    fewer_dead,
    mean,
    rank_correlation_of_groups,
    scores,
    stands_in,
    statements_of,
    wins,
)

statement = statements_of("eafo")

CIFAR_10 = "eafo-table-1"
SPLINES = "eafo-entropic-spline"
AUGMENTED = "mollification-table-1-augmented"  # has CRReLU and its rivals, too
# Every study in which CRReLU was trained, but for those whose runs stand in another one.
LEARNED_EPS = (
    *(CIFAR_10, AUGMENTED, SHORT_VIT[0], SMALL_DEIT[0], "eafo-appendix-i-small", SMALL_TNT[0], SPLINES),
    *("squaf-table-6-vgg8-short", "squaf-table-1-camera", "squaf-table-1-grass", "squaf-table-1-page"),
    *("squaf-table-2-c3", "squaf-table-2-c4", "squaf-table-3-1d", "squaf-table-3-2d", "eafo-table-4-stories"),
)
ALL = "mollification-table-1"  # the same network and data, with the functions of the other papers, too
_TWINS = ("celu", "srelu")  # ELU and ReLU again, or nearly
_RESOLUTION = (
    "the outputs of ReLU have no density, so that entropy is that of cells of 1/64, on validation images (`sk.measure."
    "entropies`)"
)


def crrelu_is_best(study: Study, printed: Mapping[str, float] | None = None) -> Evidence:
    """CRReLU against each of the six by test accuracy."""
    return best_of(study, "crrelu", IN_VISION, printed=printed)


# By study: what is there in its place as long as it was not run, and how that differs; or how it differs itself.
_INSTEAD = {
    CIFAR_10: (CIFAR_10, PLAIN),
    "eafo-table-1-deit": SMALL_DEIT,
    "eafo-table-1-tnt": SMALL_TNT,
    "eafo-table-2": SHORT_VIT,
}


_TABLE_1 = {label: values["accuracy"] for label, values in printed_of(CIFAR_10).items()}
BEST = [
    statement(
        name=f"crrelu_is_best_{name}",
        place=f"Table {table}, {network}",
        says=f"CRReLU is better than GELU, ELU, PReLU, CELU, SiLU and Mish in {network}.",
        needs=[study],
        labels=["crrelu"],
        different=otherwise(study, _INSTEAD),
        **stands_in(study, _INSTEAD),
    )(partial(crrelu_is_best, printed=_TABLE_1 if study == AUGMENTED else None))
    for study, name, table, network in (
        (CIFAR_10, "on_cifar_10", 1, "ViT-Tiny on CIFAR-10"),
        (AUGMENTED, "on_cifar_10_augmented", 1, "ViT-Tiny on CIFAR-10 with timm's augmentation"),
        ("eafo-table-1-deit", "in_deit_on_cifar_10", 1, "DeiT-Tiny on CIFAR-10"),
        ("eafo-table-1-tnt", "in_tnt_on_cifar_10", 1, "TNT-Small on CIFAR-10"),
        ("eafo-table-2", "on_cifar_100", 2, "ViT-Tiny on CIFAR-100"),
        ("eafo-table-2-deit", "in_deit_on_cifar_100", 2, "DeiT-Tiny on CIFAR-100"),
        ("eafo-table-2-tnt", "in_tnt_on_cifar_100", 2, "TNT-Small on CIFAR-100"),
        ("eafo-table-3-vit", "on_imagenet", 3, "ViT-Tiny on ImageNet-1K"),
        ("eafo-table-3-deit", "in_deit_on_imagenet", 3, "DeiT-Tiny on ImageNet-1K"),
    )
]


@statement(
    place="Appendix I, DeiT",
    says="Where the teacher has GELU, as DeiT-Tiny's on ImageNet-1K, it favours a student with GELU: that is why "
    "CRReLU is 0.4 points behind there.",
    needs=["eafo-appendix-i-small", SMALL_DEIT[0]],
    labels=["gelu", "crrelu"],
    different="the teacher is a larger DeiT trained here, and its probabilities are learned from, by the mean of both "
    "heads, where DeiT's distillation token learns from the labels of a published model; the leads without a teacher "
    f"were known; {CHANGED}",
    stand_in=SMALL_DEIT[1],
)
def a_teacher_with_gelu_favours_gelu(taught: Study, alone: Study) -> Evidence:
    """GELU's lead over CRReLU by test accuracy with the teacher against its lead without one, seed by seed, which share
    nothing."""
    leads = [differences(scores(study, "gelu"), scores(study, "crrelu")) for study in (taught, alone)]
    says = "GELU's lead over CRReLU with the teacher larger than without"
    means = {"taught": mean(leads[0]), "alone": mean(leads[1])}
    words = f"GELU's lead is {means['taught']:+.2f} points with the teacher and {means['alone']:+.2f} without"
    part = better(says, *leads, unit="points")
    return Evidence([part], f"{words}: {part.ours()}", means)


def the_correction_helps(study: Study) -> Evidence:
    """CRReLU, its eps trained, against plain ReLU by test accuracy."""
    return best_of(study, "crrelu", ["relu"])


HELPS = [
    statement(
        name=name,
        place="Section 2.4",
        says=f"The correction improves ReLU{where}.",
        needs=[study],
        labels=["crrelu", "relu"],
        different=f"{otherwise(study, _INSTEAD)}; the paper has no plain ReLU beside CRReLU{added}",
        **stands_in(study, _INSTEAD),
    )(the_correction_helps)
    for study, name, where, added in (
        (CIFAR_10, "the_correction_helps", "", ""),
        (AUGMENTED, "the_correction_helps_augmented", " with timm's augmentation", f"; {ADDED}"),
    )
]


@statement(
    place="Table 1, ViT-Tiny",
    says="PReLU is better than every activation without a trained parameter.",
    needs=[CIFAR_10],
    labels=["prelu"],
    different=TRAINING,
    stand_in=PLAIN,
)
def prelu_is_next(study: Study) -> Evidence:
    """PReLU against GELU, ELU, CELU, SiLU and Mish by test accuracy."""
    return best_of(study, "prelu", [label for label in IN_VISION if label != "prelu"])


@statement(
    place="Tables 1 to 3",
    says="ELU and CELU, which at 1 are one function, have the same accuracy.",
    needs=[CIFAR_10],
    labels=["elu", "celu"],
    different=f"{TRAINING}; the paper prints the same three digits, where one point is asked for; {CHANGED}",
    stand_in=PLAIN,
)
def elu_and_celu_are_one(study: Study) -> Evidence:
    """An equivalence test of the test accuracies with a margin of one point."""
    sides = (scores(study, label) for label in ("elu", "celu"))
    return Evidence([alike("elu within one point of celu", *sides, margin=1.0, unit="points")])


@statement(
    place="Section 2.1",
    says="Activations whose outputs have less entropy go with better accuracy.",
    needs=[ALL],
    different=f"{TRAINING}; {_RESOLUTION}; a correlation over activations, and no change of the entropy alone; of two "
    "that are one function, or nearly (ELU and CELU, ReLU and S-ReLU), one counts; "
    f"{CHANGED}",
    stand_in=PLAIN,
)
def less_entropy_goes_with_accuracy(study: Study) -> Evidence:
    """Spearman's correlation, over the runs of activations that are not the same, of test accuracy with the entropy of
    the outputs after training (the mean over the layers), with the 95 % interval of a bootstrap over the activations.
    That one function makes no correlation, it is judged by the interval without the one that matters most."""
    every = list(study.outcomes)
    labels = [label for label in every if label not in _TWINS]
    whole, twins = _correlation(study, labels), _correlation(study, every)
    without = {label: _correlation(study, [other for other in labels if other != label]) for label in labels}
    weakest = max(without, key=lambda label: without[label][2] if whole[0] < 0 else -without[label][1])
    before, after = ({label: mean(_entropies(study, label, when)) for label in every} for when in ("start", "end"))
    return Evidence(
        [_negative(f"accuracy falls with the entropy of the outputs, without {weakest}", without[weakest])],
        f"Spearman's correlation over {sum(map(len, _points(study, labels)))} runs of {len(labels)} activations "
        f"{_interval(*whole)}, without {weakest} {_interval(*without[weakest])}; with {' and '.join(_TWINS)}, which "
        f"count two functions twice, {_interval(*twins)}",
        {"correlation": list(whole), "before": before, "after": after},
    )


@statement(
    place=f"{OURS} prediction from equation 6, with the claim `the_sign_of_the_correction`",
    says="With its sign corrected, the method wants a negative eps: training turns CRReLU's eps below 0.",
    needs=LEARNED_EPS,
    labels=["crrelu"],
    different="eps is moved by the loss, and the method is about entropy; the paper has eps learned because a step "
    f"along the correction need not improve ReLU; every network in which CRReLU was trained here; {CHANGED}",
)
def eps_turns_negative(*studies: Study) -> Evidence:
    """Of each layer and seed of every study whether the learned eps, which begins at 0.01, ends below 0; shown where
    all do."""
    words, below, every = [], 0, 0
    for study in studies:
        learned = study.outcomes["crrelu"].parameters.items()
        ends = [eps for name, way in learned if name.endswith("eps") for eps in way["end"] if eps is not None]
        negative = sum(eps < 0 for eps in ends)
        below, every = below + negative, every + len(ends)
        words.append(f"{negative} of {len(ends)} ({study.name})")
    direction = SHOWN if 0 < below == every else REVERSED if every and not below else NOT_SHOWN
    says = f"below 0 in {below} of {every} layers and seeds: {', '.join(words)}"
    return Evidence([Part("eps ends below 0 everywhere", direction)], says, {"below": below, "all": every})


@statement(
    place="Section 1 and appendix F",
    says="CRReLU, which lets a gradient through below 0, avoids the death of neurons that ReLU has.",
    needs=[AUGMENTED],
    labels=["crrelu", "relu"],
    different=f"{AUGMENTATION}; {ADDED}",
)
def crrelu_leaves_fewer_dead_units(study: Study) -> Evidence:
    """The share of dead units after training, with CRReLU and with ReLU."""
    return fewer_dead(study, "crrelu")


# -- what the paper leaves to later work: the activation is optimised while the network trains ------------

_LATER = {
    "place": "Appendices E and J",
    "needs": [SPLINES],
    "different": "the paper leaves it to later work and prints nothing of it; the steps are those of "
    "`sk.nn.EntropicSpline`, at fixed mean and variance of the outputs, and begin at softplus; how often they come and "
    "the learning rate of learned slopes are those with the lowest validation loss; the comparisons were fixed before "
    "the study ran, after a look at five of its rows with two other seeds and a larger network",
    "stand_in": "a small network and 5,000 images of Fashion-MNIST",
}


_OWN_LATER = {**_LATER, "place": f"{OURS} question on appendices E and J"}


@statement(
    says="EAFO steps while a network trains lower the entropy of its activations' outputs at one spread.", **_LATER
)
def steps_lower_entropy(study: Study) -> Evidence:
    """The entropy of the outputs less the logarithm of their standard deviation (at one spread) after training, the
    mean over the layers, with EAFO steps against the spline that stays and against learned slopes."""
    ours = chosen(study, "entropic")
    parts = [
        better(
            f"{SPLINES}: {ours} has less entropy at one spread than {other}",
            _at_one_spread(study, ours),
            _at_one_spread(study, other),
            larger=False,
            unit="nats",
        )
        for other in ("fixed", chosen(study, "learned"))
    ]
    means = {label: mean(_at_one_spread(study, label)) for label in study.outcomes}
    return Evidence(parts, numbers=means)


@statement(says="A spline that takes EAFO steps while the network trains is better than one that stays.", **_LATER)
def steps_improve_their_start(study: Study) -> Evidence:
    """By test accuracy."""
    return best_of(study, chosen(study, "entropic"), ["fixed"])


@statement(says="Lowering the entropy gains more than learning the same spline from the loss.", **_OWN_LATER)
def entropy_does_more_than_the_loss(study: Study) -> Evidence:
    """By test accuracy: EAFO steps against the same spline whose slopes are learned from the loss, and both together
    against learned slopes alone."""
    learned = chosen(study, "learned")
    parts = [
        part for label in ("entropic", "both") for part in wins(study, chosen(study, label), [learned], "accuracy")
    ]
    return Evidence(parts, numbers={label: study.mean(label, "accuracy") for label in study.outcomes})


@statement(says="A spline that takes EAFO steps is better than functions that are there already.", **_OWN_LATER)
def steps_beat_known_functions(study: Study) -> Evidence:
    """By test accuracy, against ReLU, GELU, LeakyReLU and CRReLU with a learned eps."""
    return best_of(study, chosen(study, "entropic"), ["relu", "gelu", "leaky_relu", "crrelu"])


def chosen(study: Study, name: str) -> str:
    """Of the rows of this name that with the lowest mean validation loss."""
    losses = {
        label: mean(outcome.validation["log_loss"])
        for label, outcome in study.outcomes.items()
        if label.partition(" ")[0] == name
    }
    return min(losses, key=losses.__getitem__)


def _at_one_spread(study: Study, label: str) -> list[float | None]:
    """The entropy of the outputs at a standard deviation of 1 after training, the mean over the layers."""
    layers = [
        [
            None if entropy is None or not spread else entropy - math.log(spread)
            for entropy, spread in zip(site["end"]["output"], site["end"]["spread"], strict=True)
        ]
        for site in study.outcomes[label].entropy
    ]
    return [None if None in seed else math.fsum(seed) / len(seed) for seed in zip(*layers, strict=True)]


def _correlation(study: Study, labels: Iterable[str]) -> tuple[float, float, float]:
    """Of entropy and accuracy over the seeds of these activations, with its interval."""
    return rank_correlation_of_groups(_points(study, labels))


def _interval(value: float, low: float, high: float) -> str:
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def _points(study: Study, labels: Iterable[str]) -> list[list[tuple[float, float]]]:
    """For each of the labels the (entropy, accuracy) of its seeds that have both."""
    groups = []
    for label in labels:
        pairs = zip(_entropies(study, label, "end"), study.values(label, "accuracy"), strict=False)
        groups.append([(a, b) for a, b in pairs if a is not None and b is not None])
    return [group for group in groups if group]


def _entropies(study: Study, label: str, when: str) -> list[float | None]:
    """The mean over the layers for each seed; None where a layer has none."""
    sites = study.outcomes[label].entropy
    # Of the function that is compared; the tanh before the head of ViT-Tiny is in every model.
    layers = [site[when]["output"] for site in sites if site["activation"] == sites[0]["activation"]]
    return [None if None in seed else math.fsum(seed) / len(seed) for seed in zip(*layers, strict=True)]


def _negative(says: str, triple: tuple[float, float, float]) -> Part:
    """Positive where the correlation is negative, as the paper says."""
    value, low, high = triple
    direction = NOT_SHOWN if math.isnan(low) or low <= 0 <= high else SHOWN if high < 0 else REVERSED
    return Part(says, direction, difference=-value, interval=(-high, -low))
