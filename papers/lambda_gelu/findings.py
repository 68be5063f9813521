"""Statements of the λ-GELU paper: learned hardness, hardening, and the replacement by ReLU."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product
from typing import Any

from softknee.errors import DataError
from softknee.lab.report.drawing import COLOURS, DASHES, SYMBOLS, Look, bands_png
from softknee.lab.report.summary import Band
from softknee.measure import Record
from softknee.measure.hardness import spearman

from ..claim import OURS
from ..runs import Runs, Study, command_of_recipe, command_of_row, folded
from ..statement import (
    ADDED,
    CHANGED,
    Evidence,
    Part,
    Statement,
    alike,
    better,
    bound,
    drops,
    drops_less,
    mean,
    scores,
    statements_of,
)
from .language import language_markdown

statement = statements_of("lambda_gelu")

FASHION, ADULT, CIFAR_10 = "lambda-gelu-fashion", "lambda-gelu-adult", "lambda-gelu-cifar-10"
CIFAR_100, TINY_IMAGENET = "lambda-gelu-cifar-100", "lambda-gelu-tiny-imagenet"
SMALL_RESNET = f"{CIFAR_100}-small"
VISION = "mollification-table-1"  # ViT-Tiny with the functions of all papers
GRID, SWEEP = "lambda-gelu-figure-1", "lambda-gelu-figure-2"
SMALL_SWEEP = f"{SWEEP}-small"
MODES = ("uniform", "increasing", "decreasing")
LEARNED = tuple(f"λ-GELU {mode}" for mode in MODES)
HARDENED = "λ-GELU hardened"

# Table I of the λ-GELU paper: best validation accuracy in percent, its epoch, the mean of λ, its drift.
_Row = tuple[int, int] | tuple[int, int, float, float]
_UNIFORM, _INCREASING, _DECREASING = LEARNED
TABLE_I: dict[str, Mapping[str, _Row]] = {
    ADULT: {
        "gelu": (85, 41), "relu": (86, 40),
        _UNIFORM: (86, 46, 2.45, 3.23), _INCREASING: (86, 46, 8.67, 11.63), _DECREASING: (87, 32, 6.66, 8.10),
    },
    FASHION: {
        "gelu": (86, 49), "relu": (86, 48),
        _UNIFORM: (87, 48, 3.09, 6.48), _INCREASING: (87, 50, 3.41, 6.85), _DECREASING: (87, 49, 3.40, 6.34),
    },
    CIFAR_10: {
        "gelu": (95, 72), "relu": (95, 70),
        _UNIFORM: (95, 75, 1.75, 3.22), _INCREASING: (95, 70, 1.68, 3.51), _DECREASING: (95, 75, 2.43, 4.55),
    },
    CIFAR_100: {
        "gelu": (74, 74), "relu": (73, 72),
        _UNIFORM: (74, 71, 1.89, 3.39), _INCREASING: (74, 69, 1.65, 3.18), _DECREASING: (74, 64, 2.64, 4.23),
    },
    TINY_IMAGENET: {
        "gelu": (72, 90), "relu": (71, 85),
        _UNIFORM: (72, 90, 1.19, 1.36), _INCREASING: (72, 87, 1.21, 1.43), _DECREASING: (72, 90, 1.21, 1.39),
    },
}  # fmt: skip
# Table II: accuracy in percent before the replacement by ReLU and after it.
TABLE_II: dict[str, Mapping[str, tuple[float, float]]] = {
    ADULT: {"gelu": (85, 80), HARDENED: (81, 81)},
    FASHION: {"gelu": (86, 83), HARDENED: (86, 85)},
    CIFAR_10: {"gelu": (95, 92), HARDENED: (95, 95)},
    CIFAR_100: {"gelu": (74, 67), HARDENED: (74, 72)},
    TINY_IMAGENET: {"gelu": (71, 68), HARDENED: (71, 72)},
}
# What stands in for a study stands beside the same printed numbers.
TABLE_I[SMALL_RESNET], TABLE_II[SMALL_RESNET] = TABLE_I[CIFAR_100], TABLE_II[CIFAR_100]
_DIFFERENT = (
    "test accuracy at the epoch of the best validation, where the paper has the best validation accuracy itself, with "
    f"two digits; batch, momentum and epochs are not published; {CHANGED}"
)
_UNPUBLISHED = f"batch, momentum and epochs are not published; {CHANGED}"
_LAST_EPOCH = (
    "; the hardened network is that of the last epoch, where λ is 160 and λ-GELU within 0.001 of ReLU; the paper takes "
    "that with the best validation, which may be less hard"
)
_RESNET = "timm's ResNet-18 as it is for large images, with crops and mirror images, in bfloat16"
_FOUR_BLOCKS = "a ResNet of four blocks of widths 16 to 128, 10,800 images, 8 epochs without augmentation"


def profiles_of(study: Study, label: str) -> list[list[float]]:
    """The hardness of each layer at the end, in order of depth, for each seed that came to its end."""
    return [profile for profile in _profile_of_each_seed(study, label) if profile is not None]


def _profile_of_each_seed(study: Study, label: str) -> list[list[float] | None]:
    """The same for every seed, None of one that diverged; from the learned parameters where hardness is no measure."""
    outcome = study.outcomes[label]
    sites = [site["end"] for site in outcome.hardness]
    sites = sites or [way["end"] for name, way in outcome.parameters.items() if name.endswith(".lam")]
    if not sites:
        raise DataError(f"'{study.folder.name}' has no hardness of {label!r}, measured or learned; run it again.")
    return [None if None in profile else list(profile) for profile in zip(*sites, strict=True)]


def mean_hardness(study: Study, label: str) -> float:
    """The mean λ over layers and seeds, at the selected epoch."""
    return mean(hardness for profile in profiles_of(study, label) for hardness in profile)


def drift_of(study: Study, label: str) -> float:
    """The paper's V: the mean over layers and seeds of how far λ goes from epoch to epoch, all steps summed."""
    return mean(
        sum(abs(b - a) for a, b in pairwise(seed) if a is not None and b is not None)
        for way in study.outcomes[label].parameters.values()
        for seed in zip(*way["curve"], strict=True)
    )


def cells_of(study: Study) -> dict[tuple[float, float], list[str]]:
    """The activations of each cell, one for every start, by the temperature t and the multiple c of the rate."""
    cells: dict[tuple[float, float], list[str]] = {}
    for label, outcome in study.outcomes.items():
        if "temperature" in (values := outcome.trial.activation.values):
            cell = float(values["temperature"]), float(outcome.trial.training.activation_rate)
            cells.setdefault(cell, []).append(label)
    return dict(sorted(cells.items()))


def best_validations(study: Study, label: str) -> list[float | None]:
    """The paper's BVS: the highest validation accuracy of each run, in percent; None of one that has none."""
    curve = study.outcomes[label].curves.get("validation_accuracy", ())
    seeds = ([value for value in seed if value is not None] for seed in zip(*curve, strict=True))
    return [100 * max(seed) if seed else None for seed in seeds]


def _close_to_gelu(studies: Iterable[Study], margin: float, labels: Sequence[str] = LEARNED) -> Evidence:
    """Each label within so many points of GELU by test accuracy."""
    return Evidence(
        [
            alike(
                f"{study.name}: {label} within {margin:g} points of gelu",
                scores(study, label),
                scores(study, "gelu"),
                margin=margin,
                unit="points",
            )
            for study in studies
            for label in labels
        ]
    )


@statement(
    place="Table I",
    says="With learned hardness, from any of three starts, the network is about as good as with GELU: within 2 points, "
    "the largest difference in the rows of Fashion-MNIST and Adult.",
    needs=[FASHION, ADULT],
    different=_DIFFERENT,
)
def learning_hardness_costs_nothing(*studies: Study) -> Evidence:
    """An equivalence test of the test accuracy of each start and of GELU with a margin of 2 points."""
    return _close_to_gelu(studies, 2.0)


@statement(
    place="Table I",
    says="The learned hardness leaves its start for harder gates: its mean over the layers of these MLPs is 2.45 to "
    "8.67.",
    needs=[FASHION, ADULT],
    different=_DIFFERENT,
)
def learned_gates_become_harder(*studies: Study) -> Evidence:
    """Whether the mean λ over the layers of each start, at the selected epoch, is above 2, the largest value that any
    layer begins with; the printed effect is what the paper's mean is above 2."""
    parts, means = [], {}
    for study in studies:
        for label in LEARNED:
            seeds = [mean(profile) for profile in profiles_of(study, label)]
            printed = TABLE_I[study.name][label][2] - 2  # type: ignore[misc]
            parts.append(better(f"{study.name}: mean λ of {label} above 2", seeds, 2.0, printed=printed))
            means[f"{study.name}: {label}"] = mean(seeds)
    low, high = min(means.values()), max(means.values())
    return Evidence(parts, f"mean λ from {low:.2f} to {high:.2f}", means)


def _orders(study: Study) -> list[float]:
    """Spearman's correlation of the profiles of two starts, for each seed the mean over pairs of starts."""
    profiles = [_profile_of_each_seed(study, label) for label in LEARNED]
    seeds = []
    for seed in zip(*profiles, strict=False):
        pairs = [spearman(a, b) for a, b in combinations(seed, 2) if a is not None and b is not None]
        seeds += [mean(pairs)] if pairs else []
    return seeds


@statement(
    place="Figure 3 and section IV-B",
    says="On Fashion-MNIST the order of the layers by hardness does not depend on the start (high rank correlation); "
    "on Adult it does more.",
    needs=[FASHION, ADULT],
    different=f"{_DIFFERENT}; the paper prints no number: high is taken as above 0.8",
)
def order_of_layers_is_robust(*studies: Study) -> Evidence:
    """Spearman's correlation of the profiles of two starts, by seed: above 0.8 on Fashion-MNIST, and lower on Adult."""
    fashion, adult = (_orders(study) for study in studies)
    high = better("above 0.8 on Fashion-MNIST", fashion, 0.8)
    means = {FASHION: mean(fashion), ADULT: mean(adult)}
    return Evidence(
        [high, better("lower on Adult", adult, fashion, larger=False)],
        f"mean rank correlation {means[FASHION]:.2f} on Fashion-MNIST, {means[ADULT]:.2f} on Adult",
        means,
    )


@statement(
    place="Table I, CIFAR-10",
    says="In ResNet-18 on CIFAR-10 learned hardness, from any of three starts, is as good as GELU (95 % each), to a "
    "point.",
    needs=[CIFAR_10],
    different=f"{_DIFFERENT}; {ADDED}",
    stand_in=_RESNET,
)
def learning_hardness_costs_nothing_in_resnet(study: Study) -> Evidence:
    """An equivalence test of the test accuracy of each start and of GELU with a margin of 1 point."""
    return _close_to_gelu([study], 1.0)


def order_of_layers(study: Study) -> Evidence:
    """Spearman's correlation of the profiles of two starts, by seed in the mean over pairs of starts, against 0.8."""
    seeds = _orders(study)
    words = f"mean rank correlation {mean(seeds):.2f}"
    return Evidence([better("above 0.8", seeds, 0.8)], words, {study.name: mean(seeds)})


ORDERS = [
    statement(
        name=f"order_of_layers_is_robust_{where}",
        place="Figure 3 and section IV-B",
        says=f"In ResNet-18 on {data}, too, the order of the layers by hardness does not depend on the start (high "
        "rank correlation).",
        needs=[study],
        labels=LEARNED,
        different=f"{_DIFFERENT}; high is taken as above 0.8; {ADDED}",
        stand_in=stand_in,
        instead=instead,
    )(order_of_layers)
    for where, data, study, stand_in, instead in (
        ("in_resnet", "CIFAR-10", CIFAR_10, _RESNET, {}),
        ("on_cifar_100", "CIFAR-100", CIFAR_100, _FOUR_BLOCKS, {CIFAR_100: SMALL_RESNET}),
    )
]


@statement(
    place="Table I, CIFAR-100",
    says="In ResNet-18 on CIFAR-100 learned hardness, from any of three starts, is as good as GELU (74 % each), to a "
    "point.",
    needs=[CIFAR_100],
    instead={CIFAR_100: SMALL_RESNET},
    labels=["gelu", *LEARNED],
    different=_DIFFERENT,
    stand_in=_FOUR_BLOCKS,
)
def learning_hardness_costs_nothing_on_cifar_100(study: Study) -> Evidence:
    """An equivalence test of the test accuracy of each start and of GELU with a margin of 1 point."""
    return _close_to_gelu([study], 1.0)


@statement(
    place="Table I, Tiny-ImageNet",
    says="In DeiT-Tiny learned hardness is as good as GELU (72 % each), to a point; its mean over the layers is 1.19 "
    "to 1.21.",
    needs=[TINY_IMAGENET],
    instead={TINY_IMAGENET: VISION},
    labels=["gelu"],
    different=f"the last of 100 epochs, from the uniform start alone; {ADDED}",
    stand_in="ViT-Tiny on CIFAR-10, trained from scratch, in place of DeiT-Tiny on Tiny-ImageNet",
)
def learning_hardness_in_a_vision_transformer(study: Study) -> Evidence:
    """An equivalence test of the test accuracies with a margin of 1 point; and the mean of λ over the layers below
    1.24, the largest that the paper has for a transformer."""
    learned = [label for label in (*LEARNED, "lambda_gelu") if label in study.outcomes]
    seeds = [mean(profile) for label in learned for profile in profiles_of(study, label)]
    hardness = better("mean λ below 1.24", seeds, 1.24, larger=False)
    close = _close_to_gelu([study], 1.0, learned).parts
    words = f"λ-GELU less GELU {close[0].ours()}; mean λ {mean(seeds):.2f}, where at most 1.24 is printed"
    return Evidence([*close, hardness], words, {"mean": mean(seeds)})


@statement(
    place="Table II",
    says="After hardening, putting ReLU in the place of λ-GELU costs at most a point (Fashion-MNIST: 86 to 85 %, "
    "Adult: 81 to 81 %).",
    needs=[FASHION, ADULT],
    different=_DIFFERENT + _LAST_EPOCH,
)
def replacing_after_hardening_costs_little(*studies: Study) -> Evidence:
    """What each hardened model loses of its test accuracy, against one point."""
    parts = [
        better(f"{study.name}: less than a point lost", drops(study, HARDENED), 1.0, larger=False, unit="points")
        for study in studies
    ]
    lost = {study.name: mean(drops(study, HARDENED)) for study in studies}
    words = ", ".join(f"{value:z.2f} points ({name.removeprefix('lambda-gelu-')})" for name, value in lost.items())
    return Evidence(parts, f"lost: {words}", lost)


@statement(
    place="Table II",
    says="Putting ReLU in the place of GELU without hardening costs more (Fashion-MNIST: 86 to 83 %, Adult: 85 to "
    "80 %).",
    needs=[FASHION, ADULT],
    different=_DIFFERENT + _LAST_EPOCH,
)
def the_bare_swap_costs_more(*studies: Study) -> Evidence:
    """What each model of hardened λ-GELU loses against what each of GELU does; printed is the paper's difference."""
    parts = [replace(drops_less(study, HARDENED, "gelu"), printed=_swap(study)) for study in studies]
    return Evidence(parts, "; ".join(f"{study.name}: {_swap_losses(study)}" for study in studies))


def _swap_losses(study: Study) -> str:
    """What the replacement costs with GELU and after hardening."""
    bare, hardened = (mean(drops(study, label)) for label in ("gelu", HARDENED))
    return f"{hardened:z.2f} points lost after hardening, {bare:z.2f} with GELU"


def _swap(study: Study) -> float:
    """By how many points the paper's bare swap costs more than the swap after hardening."""
    table = TABLE_II[study.name]
    bare, hardened = (table[label][0] - table[label][1] for label in ("gelu", HARDENED))
    return bare - hardened


def _replacing(
    name: str,
    points: int,
    *,
    place: str,
    says: str,
    needs: Iterable[str],
    different: str,
    stand_in: str = "",
    instead: Mapping[str, str] | None = None,
) -> Statement:
    """What the replacement costs after hardening, less than so many points, and that it costs less than with GELU."""

    def decide(study: Study) -> Evidence:
        lost = drops(study, HARDENED)
        little = better(f"less than {points} points after hardening", lost, float(points), larger=False, unit="points")
        less = replace(drops_less(study, HARDENED, "gelu"), printed=_swap(study))
        numbers = {"hardened": mean(lost), "gelu": mean(drops(study, "gelu"))}
        return Evidence([little, less], _swap_losses(study), numbers)

    decide.__doc__ = (
        f"What each hardened model loses of its test accuracy against {points} point{'s' * (points > 1)}, and against "
        "what models with GELU lose."
    )
    return statement(
        name=name,
        place=place,
        says=says,
        needs=needs,
        different=different,
        labels=["gelu", HARDENED],
        stand_in=stand_in,
        instead=instead,
    )(decide)


REPLACING = (
    _replacing(
        "replacing_in_resnet",
        1,
        place="Table II, CIFAR-10",
        says="In ResNet-18 on CIFAR-10 the replacement costs nothing after hardening (95 to 95 %; less than a point), "
        "and 3 points without (95 to 92 %).",
        needs=[CIFAR_10],
        different=f"{_DIFFERENT}{_LAST_EPOCH}",
        stand_in=_RESNET,
    ),
    _replacing(
        "replacing_in_resnet_on_cifar_100",
        3,
        place="Table II, CIFAR-100",
        says="In ResNet-18 on CIFAR-100 the replacement costs 2 points after hardening (74 to 72 %; less than 3), and "
        "7 without (74 to 67 %).",
        needs=[CIFAR_100],
        different=f"{_DIFFERENT}{_LAST_EPOCH}",
        stand_in=_FOUR_BLOCKS,
        instead={CIFAR_100: SMALL_RESNET},
    ),
    _replacing(
        "replacing_in_deit",
        1,
        place="Table II, Tiny-ImageNet",
        says="In DeiT-Tiny on Tiny-ImageNet the replacement costs nothing after hardening (71 to 72 %; less than a "
        "point), and 3 points without (71 to 68 %).",
        needs=[TINY_IMAGENET],
        different=f"{_DIFFERENT}{_LAST_EPOCH}",
        stand_in="20 of the 200 classes, trained from scratch, with crops and mirror images, in bfloat16",
    ),
)


@statement(
    place="Table II",
    says="On Adult the hardened network is less accurate than GELU before any replacement (81 and 85 %; the paper says "
    "nothing of it).",
    needs=[ADULT],
    different=f"{_UNPUBLISHED}; the best epoch may be one in which λ is still small",
)
def hardening_costs_accuracy_on_adult(study: Study) -> Evidence:
    """GELU against hardened λ-GELU by the best validation accuracy of each run, as the paper counts."""
    printed = {label: before for label, (before, _) in TABLE_II[ADULT].items()}
    gelu, hardened = (best_validations(study, label) for label in ("gelu", HARDENED))
    effect = printed["gelu"] - printed[HARDENED]
    part = better("gelu better than λ-GELU hardened", gelu, hardened, printed=effect, unit="points")
    return Evidence([part], numbers={"gelu": mean(gelu), HARDENED: mean(hardened)})


def _drift_of_cells(study: Study) -> dict[tuple[float, float], float]:
    """The paper's drift of each cell, a mean over starts and seeds."""
    return {cell: mean(drift_of(study, label) for label in labels) for cell, labels in cells_of(study).items()}


def _grows_with_the_rate(drift: Mapping[tuple[float, float], float]) -> list[Part]:
    """At each temperature, from one multiple of the rate to the next."""
    return [
        bound(f"t={t:g}: c={a:g} to {b:g}", drift[t, a] < drift[t, b])
        for t in dict.fromkeys(t for t, _ in drift)
        for a, b in pairwise(c for other, c in drift if other == t)
    ]


def _numbers(drift: Mapping[tuple[float, float], float]) -> dict[str, float]:
    return {f"t={t:g} c={c:g}": value for (t, c), value in drift.items()}


@statement(
    place="Figure 1 and section IV-A",
    says="Hardness moves more the lower the temperature t and the larger the multiple c of its learning rate.",
    needs=[GRID],
    different=_UNPUBLISHED,
)
def drift_follows_temperature_and_rate(study: Study) -> Evidence:
    """From neighbour to neighbour the drift must grow with c and fall with t."""
    drift = _drift_of_cells(study)
    falls = [
        bound(f"c={c:g}: t={a:g} to {b:g}", drift[a, c] > drift[b, c])
        for c in dict.fromkeys(c for _, c in drift)
        for a, b in pairwise(t for t, other in drift if other == c)
    ]
    return Evidence(
        [*_grows_with_the_rate(drift), *falls],
        f"drift of λ from {drift[0.9, 1]:.2f} (t = 0.9, c = 1) to {drift[0.1, 9]:.2f} (t = 0.1, c = 9)",
        _numbers(drift),
    )


@statement(
    place=f"{OURS} remark on section III, with figure 1",
    says="A temperature is a learning rate: λ depends on its parameter over t, so that with SGD t and c act through "
    "c / t² alone.",
    needs=[GRID],
    different=f"{_UNPUBLISHED}; with Adam they act through c / t; {ADDED}",
)
def a_temperature_is_a_learning_rate(study: Study) -> Evidence:
    """Whether the two pairs of cells of the grid that have the same c / t² have the same drift from every start, to
    5 %, which is what training makes of rounding."""
    cells, parts, words = cells_of(study), [], []
    for one, other in (((0.1, 1), (0.3, 9)), ((0.3, 1), (0.9, 9))):
        names = [f"t={t:g} c={c}" for t, c in (one, other)]
        drifts = [[drift_of(study, label) for label in cells[cell]] for cell in (one, other)]
        apart = max(abs(a / b - 1) for a, b in zip(*drifts, strict=True))
        parts.append(bound(f"{names[0]} moves as {names[1]}", apart <= 0.05))
        words.append(f"{' and '.join(names)} differ by {100 * apart:.2g} %")
    return Evidence(parts, "drifts of λ: " + "; ".join(words))


def _cells_close_to_gelu(study: Study, cells: Mapping[tuple[float, float], Sequence[str]]) -> Evidence:
    """An equivalence test of the best validation accuracies of each cell, each seed's mean over the starts, and of GELU
    with a margin of 1 point."""
    gelu = best_validations(study, "gelu")
    parts = [
        alike(f"t={t:g} c={c:g} within 1 point of gelu", _over_starts(study, labels), gelu, margin=1.0, unit="points")
        for (t, c), labels in cells.items()
    ]
    return Evidence(parts, numbers={part.says: part.difference for part in parts})


def _over_starts(study: Study, labels: Sequence[str]) -> list[float | None]:
    """The best validation accuracy of each seed, the mean over the starts; None where one start has none."""
    seeds = zip(*(best_validations(study, label) for label in labels), strict=True)
    return [None if None in starts else mean(starts) for starts in seeds]


@statement(
    place="Figure 1 and section IV-A",
    says="With t = 0.1 and c = 9 the best validation accuracy stays close to GELU's: within a point.",
    needs=[GRID],
    different=_UNPUBLISHED,
)
def the_chosen_cell_is_as_good_as_gelu(study: Study) -> Evidence:
    """An equivalence test of the best validation accuracies with a margin of 1 point."""
    return _cells_close_to_gelu(study, {(0.1, 9): cells_of(study)[0.1, 9]})


@statement(
    place="Section IV-A, last paragraph, and section V",
    says="Over the whole grid of t and c, learning the hardness leaves the best validation accuracy close to GELU's: "
    "within a point.",
    needs=[GRID],
    different=f"{_UNPUBLISHED}; {ADDED}",
)
def every_cell_is_as_good_as_gelu(study: Study) -> Evidence:
    """An equivalence test for each cell."""
    return _cells_close_to_gelu(study, cells_of(study))


_SWEEP: Any = {
    "place": "Figure 2 and section IV-A",
    "needs": [SWEEP],
    "instead": {SWEEP: SMALL_SWEEP},
    "stand_in": _FOUR_BLOCKS,
    "different": _UNPUBLISHED,
}


@statement(
    says="In ResNet-18 on CIFAR-100, with AdamW, hardness moves more the larger the multiple c of its learning rate.",
    **_SWEEP,
)
def drift_follows_the_rate_with_adamw(study: Study) -> Evidence:
    """From neighbour to neighbour the drift must grow with c."""
    drift = _drift_of_cells(study)
    words = ", ".join(f"{value:.2f} with c = {c:g}" for (_, c), value in drift.items())
    return Evidence(_grows_with_the_rate(drift), f"drift of λ {words}", _numbers(drift))


@statement(
    says="In ResNet-18 on CIFAR-100, with AdamW, the best validation accuracy stays close to GELU's for c from 1 to 9: "
    "within a point.",
    **_SWEEP,
)
def every_rate_is_as_good_as_gelu_with_adamw(study: Study) -> Evidence:
    """An equivalence test for each c."""
    return _cells_close_to_gelu(study, cells_of(study))


@statement(
    says="In ResNet-18 on CIFAR-100, with AdamW, the lowest multiple, c = 1, has the best validation accuracy.",
    **{**_SWEEP, "different": f"{_UNPUBLISHED}; {ADDED}"},
)
def the_lowest_rate_is_best_with_adamw(study: Study) -> Evidence:
    """c = 1 against each other c by the best validation accuracy, each seed's mean over the starts."""
    means = {c: _over_starts(study, labels) for (_, c), labels in cells_of(study).items()}
    first = min(means)
    parts = [
        better(f"c={first:g} better than c={c:g}", means[first], means[c], unit="points") for c in means if c != first
    ]
    words = ", ".join(f"{mean(seeds):.2f} % with c = {c:g}" for c, seeds in means.items())
    return Evidence(parts, words, {f"c={c:g}": mean(seeds) for c, seeds in means.items()})


# -- Statements of the λ-GELU paper about GPT-2 on WikiText-2, judged by records of `softknee study wikitext`, whose
# place recipes have taken.


SMALL, LARGE = "lambda-gelu-wikitext-small.json", "lambda-gelu-wikitext-124m.json"
RECIPES = {SMALL: "lambda-gelu-wikitext-small", LARGE: "lambda-gelu-wikitext-124m"}
"""The recipes that have taken the place of the commands which made these records."""
_GELU, _LAMBDA, _RELU = "GELU", "lambda-GELU, hardened", "ReLU from scratch"
_LABELS = {_GELU: "gelu", _LAMBDA: "lambda_gelu", "S-ReLU, hardened": "srelu", _RELU: "relu"}  # as `--only` takes them
_SCRATCH = "models trained from scratch on a part of WikiText-2, where the paper seems to have GPT-2's weights"
_WIKITEXT = (
    "the validation part is trained on, too; the raw training text has words that valid and "
    "test have as `<unk>`; λ-GELU from the uniform start alone, where the paper has three; it does not say whether "
    "GPT-2 begins with published weights, as its numbers suggest; judged by the test part at the end of the training, "
    "where the paper has the best epoch by the validation part; rates of 1e-3 and 6e-4 and a decay "
    "of 0.1, as for a training from scratch, where the paper has 5e-5 and 0.01; "
    f"{CHANGED}"
)


def language_tables(runs: Runs) -> Iterator[str]:
    """A table for each record that is there, with what the paper has beside it."""
    for name in (SMALL, LARGE):
        if not runs.has(name):
            continue
        record = runs.benchmark(name)
        settings, machine = record.settings, record.hardware.gpu or record.hardware.cpu
        yield f"\n### λ-GELU, WikiText-2: a GPT-2 of {settings['parameters']:,} parameters from scratch\n\n"
        yield language_markdown(record)
        sizes = f"{settings['layers']} layers of width {settings['width']}"
        batches = f"{settings['steps']} steps of {settings['batch']} x {settings['context']} tokens"
        yield (
            f"\nPerplexity of the test part, {len(record.seeds)} seeds on {machine}: mean and standard deviation. "
            f"{sizes}, {batches}, trained on {settings['train']} ({settings['tokens']:,} tokens). *free*: as it was "
            "trained, λ learned; *bare*: ReLU in its place; *hardened*: λ driven hard; *replaced*: ReLU in the place "
            f"of that, or of GELU; *together*: the same and {settings['recover']} steps of training; *went on*: as "
            "many steps without a replacement. S-ReLU is not the paper's. λ begins uniformly alone, where the paper "
            "has three starts, and models are those of the last step. The paper's GPT-2, with the whole training part: "
            "GELU 28.46, ReLU 30.48, λ-GELU 28.45 to 28.71; it prints no number after the replacement. Again: "
            f"`{command_of_recipe(RECIPES[name])}`. [Record](records/{name}).\n"
        )
        yield folded(command_of_row(RECIPES[name], _LABELS[row["row"]]) for row in record.rows)


def _by_size(records: Iterable[Record]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The rows of each record by their names, by the size of the model."""
    return {
        f"{record.settings['parameters'] / 1e6:.0f}M parameters": {row["row"]: row for row in record.rows}
        for record in records
    }


def _losses(row: Mapping[str, Any], column: str) -> list[float]:
    """Nats of a token for each seed."""
    return list(row["loss_by_seed"][column])


@statement(
    place="Table I, WikiText-2",
    says="GPT-2 with ReLU is worse than with GELU (perplexity 30.48 against 28.46); with learned hardness it is as "
    "good (28.45 to 28.71).",
    needs=[SMALL, LARGE],
    different=_WIKITEXT,
    stand_in=_SCRATCH,
)
def relu_is_worse_in_language_models(*records: Record) -> Evidence:
    """GELU against ReLU by the loss of a token; and learned λ-GELU within 1 % (0.01 nats) of GELU, which is what the
    paper's rows differ by at most."""
    compared, close = [], []
    for size, rows in _by_size(records).items():
        gelu, relu, learned = (_losses(rows[name], "free") for name in (_GELU, _RELU, _LAMBDA))
        printed = math.log(30.48 / 28.46)
        compared.append(
            better(f"{size}: GELU better than ReLU", gelu, relu, larger=False, printed=printed, unit="nats")
        )
        close.append(alike(f"{size}: learned λ-GELU within 1 % of GELU", learned, gelu, margin=0.01, unit="nats"))
    return Evidence([*compared, *close])


def _added(row: Mapping[str, Any], before: str) -> list[float]:
    """What the replacement adds to the loss of each model."""
    return [after - loss for loss, after in zip(_losses(row, before), _losses(row, "replaced"), strict=True)]


def _perplexity_increase(row: Mapping[str, Any], before: str) -> str:
    """By how much the replacement raises the perplexity."""
    return f"{100 * math.expm1(mean(_added(row, before))):+z.0f} %"


@statement(
    place="Section IV-C, WikiText-2",
    says="Putting ReLU in the place of the activations deteriorates GPT-2 severely, with GELU and with hardened λ-GELU "
    "alike (taken as a perplexity 10 % higher).",
    needs=[SMALL, LARGE],
    different=f"{_WIKITEXT}; the paper has no number for it",
    stand_in=_SCRATCH,
)
def replacing_breaks_language_models(*records: Record) -> Evidence:
    """What the replacement adds to the loss of each model, against 10 % of the perplexity."""
    parts = [
        better(f"{size}: {name} more than 10 % worse", _added(rows[name], before), math.log(1.1), unit="nats")
        for size, rows in _by_size(records).items()
        for name, before in ((_GELU, "free"), (_LAMBDA, "hardened"))
    ]
    words = [
        f"{size}: {_perplexity_increase(rows[_GELU], 'free')} with GELU, "
        f"{_perplexity_increase(rows[_LAMBDA], 'hardened')} after hardening"
        for size, rows in _by_size(records).items()
    ]
    return Evidence(parts, f"perplexity {'; '.join(words)}")


@statement(
    place="Section V",
    says="In GPT-2 hardening lessens the shock of a direct swap.",
    needs=[SMALL, LARGE],
    different=f"{_WIKITEXT}; by what the swap costs, and not by what hardening costs before it, which the tables show",
    stand_in=_SCRATCH,
)
def hardening_lessens_the_shock(*records: Record) -> Evidence:
    """What the replacement adds to the loss of hardened λ-GELU against what it adds to GELU's."""
    parts = [
        better(
            f"{size}: hardened λ-GELU loses less than GELU",
            _added(rows[_LAMBDA], "hardened"),
            _added(rows[_GELU], "free"),
            larger=False,
            unit="nats",
        )
        for size, rows in _by_size(records).items()
    ]
    return Evidence(parts)


def _learned(records: Iterable[Record]) -> dict[str, list[float]]:
    """The mean λ over the layers of each seed, by the size of the model."""
    return {size: [mean(seed) for seed in rows[_LAMBDA]["learned_knobs"]] for size, rows in _by_size(records).items()}


@statement(
    place="Table I, WikiText-2",
    says="From the uniform start GPT-2's λ stays where it is: its mean over the layers ends at 1.00, with a drift of "
    "0.002.",
    needs=[SMALL, LARGE],
    different=f"{_WIKITEXT}; staying is taken as a mean within 0.1 of the start; {CHANGED}",
    stand_in=_SCRATCH,
)
def language_models_keep_soft_gates(*records: Record) -> Evidence:
    """Whether the mean λ over the layers, which begins at 1.01, ends below 1.11."""
    seeds = _learned(records)
    parts = [better(f"{size}: below 1.11", means, 1.11, larger=False) for size, means in seeds.items()]
    means = {size: mean(values) for size, values in seeds.items()}
    words = ", ".join(f"{value:.2f} ({size})" for size, value in means.items())
    return Evidence(parts, f"mean λ {words}", means)


@statement(
    place="Section IV-B, below figure 3",
    says="As a mild trend, networks that are commonly trained with ReLU (MLP, ResNet-18) learn harder gates than those "
    "that are commonly trained with GELU (in the paper 1.65 to 8.67 against 1.00 to 1.24 in the mean over the layers).",
    needs=[FASHION, ADULT, CIFAR_10, SMALL, LARGE, VISION],
    different="from the uniform start; how far hardness goes depends on how long it is trained: GPT-2 for 500 and 400 "
    f"steps, ResNet-18 for 14,000, ViT-Tiny for 19,000; {ADDED}",
    stand_in="ViT-Tiny on CIFAR-10 and GPT-2s from scratch in place of the paper's",
)
def networks_made_for_relu_learn_harder_gates(*needed: Any) -> Evidence:
    """The mean λ of each seed of the MLPs and of ResNet-18 from the uniform start against those of each GPT-2 and of
    ViT-Tiny."""
    *mlps_and_resnet, small, large, vision = needed
    soft = {f"GPT-2 of {size}": means for size, means in _learned([small, large]).items()}
    soft["ViT-Tiny"] = [mean(profile) for profile in profiles_of(vision, "lambda_gelu")]
    hard = {
        study.name: [mean(profile) for profile in profiles_of(study, "λ-GELU uniform")] for study in mlps_and_resnet
    }
    parts = [better(f"{a} harder than {b}", hard[a], soft[b]) for a, b in product(hard, soft)]
    return Evidence(parts, numbers={name: mean(means) for name, means in (hard | soft).items()})


# -- Whether λ-GELU orders the layers by hardness alike from all starts, epoch by epoch: figure 3 (right) of its paper.


FIGURE = "order-of-layers"
CAPTION = (
    "Rank correlation of the layers' hardness between two starts after each epoch: mean over seeds, with its standard "
    "deviation; 1 where both order the layers alike"
)


def order_figure(study: Study) -> bytes | None:
    """The figure as a PNG; None where fewer than two starts were run, or the hardness was not followed."""
    bands = [_band(name, seeds) for name, seeds in correlations(study).items() if seeds]
    look = {band.label: Look(COLOURS[place], SYMBOLS[place], DASHES[place]) for place, band in enumerate(bands)}
    return bands_png(look, bands, "Spearman's correlation") if bands else None


def correlations(study: Study) -> dict[str, list[list[float]]]:
    """[seed][epoch] of the correlation between the profiles of two starts, by the names of the two.

    Seeds are paired, as everywhere; one that diverged from either start is left out. Not a number where all layers of
    a profile are equally hard.
    """
    profiles = {
        label.removeprefix("λ-GELU "): _profile_of_each_epoch(study, label)
        for label in LEARNED
        if label in study.outcomes
    }
    return {
        f"{start} and {other}": [
            [spearman(a, b) for a, b in zip(first, second, strict=True)]
            for first, second in zip(profiles[start], profiles[other], strict=True)
            if first and second
        ]
        for start, other in combinations(profiles, 2)
    }


def _profile_of_each_epoch(study: Study, label: str) -> list[list[tuple[float, ...]]]:
    """[seed][epoch][layer]; empty for a seed that diverged, and if a layer's hardness was not followed."""
    outcome = study.outcomes[label]
    ways = [outcome.parameters.get(f"{site['path']}.{site['knob']}") for site in outcome.hardness]
    curves = [list(zip(*way["curve"], strict=True)) for way in ways if way is not None]
    if len(curves) < len(ways) or not curves:
        return [[] for _ in outcome.diverged]
    seeds = [list(zip(*(curve[seed] for curve in curves), strict=True)) for seed in range(len(outcome.diverged))]
    return [[] if any(None in epoch for epoch in seed) else seed for seed in seeds]


def _band(name: str, seeds: Sequence[Sequence[float]]) -> Band:
    """Mean and standard deviation over the seeds, of the epochs that have a correlation."""
    points = []
    for epoch, values in enumerate(zip(*seeds, strict=True), start=1):
        there = [value for value in values if not math.isnan(value)]
        if there:
            points.append((epoch, statistics.fmean(there), statistics.pstdev(there)))
    return Band(
        label=name,
        curve=FIGURE,
        epochs=tuple(epoch for epoch, _, _ in points),
        middle=tuple(middle for _, middle, _ in points),
        low=tuple(max(-1.0, middle - spread) for _, middle, spread in points),
        high=tuple(min(1.0, middle + spread) for _, middle, spread in points),
    )
