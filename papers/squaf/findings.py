"""Statements of the SQUAF paper: fitting, pictures, classification, cost, distillation, bits."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from softknee.errors import DataError
from softknee.measure.record import Record

from ..runs import Runs, Study, command_of_recipe, printed_of
from ..statement import (
    ADDED,
    CHANGED,
    NOT_RUN,
    Evidence,
    Part,
    Statement,
    alike,
    best_of,
    better,
    bound,
    mean,
    printed_effect,
    scores,
    stands_in,
    statements_of,
    wins,
)
from .networks import (
    NAMES,
    PAPER,
    Reported,
    distil_markdown,
    draw_distil,
    draw_rate,
    draw_shapes,
    rate_markdown,
    reported_of,
    values_of,
)

statement = statements_of("squaf")

OTHERS = ("relu", "gelu", "leaky_relu", "prelu", "swish", "crrelu", "polyrelu", "polynorm", "ditac")
FITTING = (*OTHERS, "kaf")
FIT_1D, FIT_2D, FIT_ALONE = "squaf-table-3-1d", "squaf-table-3-2d", "squaf-table-3-1d-alone"
PICTURES = tuple(f"squaf-table-1-{picture}" for picture in ("camera", "grass", "page"))
_SEEDS = "several seeds where the paper has one number; its points and its starts of the other functions are not known"
_FOUR_SEEDS = "four seeds where the paper has one number"


def _best(study: Study, labels: Sequence[str], measure: str) -> str:
    """The label with the best mean; one that diverged with every seed comes last."""

    def rank(label: str) -> float:
        value = _error(study, label) if measure == "mse" else -study.mean(label, measure)
        return math.inf if math.isnan(value) else value

    return min(labels, key=rank)


def _error(study: Study, label: str) -> float:
    """The geometric mean of the mean squared error."""
    return study.mean(label, "mse", logarithmic=True)


def fits_best(study: Study) -> Evidence:
    """SQUAF against each of the ten others by the logarithm of the error."""
    return best_of(study, "squaf", FITTING, measure="mse")


_FIT = (
    f"{_SEEDS}; in one dimension our ReLU, leaky ReLU, CRReLU and Swish end 4 to 35 times above the paper's and our "
    "DiTAC 18 times below, in two dimensions within a factor of 4: with a rate of 0.01, "
    "which the paper prints for two dimensions, Swish comes to its number and ReLU to twice its own in a check of four "
    "seeds, so that the paper's rivals seem to have had it (--set training.learning_rate=0.01)"
)
fits_one_dimension_best = statement(
    name="fits_one_dimension_best",
    place="Table 3, 1D function",
    says="With SQUAF the network [1, 64, 1] has a mean squared error of 4.0e-5, 1 to 4 orders of magnitude below every "
    "other activation (1.0e-3 for the next, DiTAC).",
    needs=[FIT_1D],
    labels=["squaf"],
    different=_FIT,
)(fits_best)
fits_two_dimensions_best = statement(
    name="fits_two_dimensions_best",
    place="Table 3, 2D function",
    says="With SQUAF the network [2, 50, 1] has a mean squared error of 4.0e-4, an order of magnitude below every "
    "other activation (4.0e-3 for the next, DiTAC).",
    needs=[FIT_2D],
    labels=["squaf"],
    different=_SEEDS,
)(fits_best)


@statement(
    place="Table 3, last two rows, and section 4.1",
    says="A SQUAF alone (k = 95) fits 200 times better than the network with SQUAF; one with 28 numbers (k = 13) does "
    "as well as the network with DiTAC, which has 7.2 times as many.",
    needs=[FIT_1D, FIT_ALONE],
    different=f"{_FIT}; the small one is held against the paper's DiTAC, 1.0e-3, and not against ours; {CHANGED}",
)
def alone_it_fits_better(inside: Study, alone: Study) -> Evidence:
    """The logarithms of the errors: of the large one against the network with SQUAF, and of the small one against the
    paper's number."""
    large, small = (scores(alone, f"SQUAF k={k}", "mse") for k in (95, 13))
    network = scores(inside, "squaf", "mse")
    parts = [
        better(
            "k = 95 alone better than the network",
            large,
            network,
            larger=False,
            printed=math.log10(200),
            unit="decades",
        ),
        better("k = 13 alone as good as the paper's DiTAC", small, -3.0, larger=False, unit="decades"),
    ]
    return Evidence(parts)


@statement(
    place="Section 1, with table 3",
    says="In function fitting the gain over the other activations is up to 5000 times (2.0e-7 with a SQUAF alone, "
    "1.0e-3 with the network of the next, DiTAC).",
    needs=[FIT_1D, FIT_ALONE],
    different=f"{_FIT}; over the paper's own 1.0e-3 our SQUAF alone gains 5,500 times; {ADDED}",
)
def gains_in_function_fitting(inside: Study, alone: Study) -> Evidence:
    """The lone SQUAF with k = 95 and 5 points against the best network with another activation, by the logarithm."""
    best = _best(inside, FITTING, "mse")
    squaf, network = scores(alone, "SQUAF k=95", "mse"), scores(inside, best, "mse")
    says = f"SQUAF alone better than the network with {best}"
    part = better(says, squaf, network, larger=False, printed=math.log10(5000), unit="decades")
    return Evidence([part], numbers={"gain": _error(inside, best) / _error(alone, "SQUAF k=95")})


@statement(
    place="Section 4.1, on KAF",
    says="KAF with one set of parameters for the layer is generally the worst of the compared activations; in the "
    "paper's table Swish alone has a higher error, in two dimensions.",
    needs=[FIT_1D, FIT_2D],
    different=_SEEDS + "; the paper gives neither KAF's points nor its start",
)
def kaf_is_worst(*studies: Study) -> Evidence:
    """Each of the other nine against KAF by the logarithm of the error."""
    return Evidence([part for study in studies for other in OTHERS for part in wins(study, other, ["kaf"], "mse")])


def _name(picture: Study) -> str:
    return picture.name.removeprefix("squaf-table-1-")


@statement(
    place="Table 1",
    says="SQUAF stores all three pictures better than each of nine other activations, in PSNR and in SSIM.",
    needs=PICTURES,
    labels=["squaf"],
    different=f"{_FOUR_SEEDS}; {CHANGED}",
)
def stores_pictures_best(*pictures: Study) -> Evidence:
    """SQUAF against each of the nine others, PSNR and SSIM, for each picture."""
    measures = ("psnr", "ssim")
    parts = [part for study in pictures for measure in measures for part in wins(study, "squaf", OTHERS, measure)]
    return Evidence(parts)


@statement(
    place="Table 1 and the abstract",
    says="The gain over the next activation is up to 25.27 dB (grass), and more than 11 dB for every picture.",
    needs=PICTURES,
    different=f"{_FOUR_SEEDS}; {CHANGED}",
)
def gains_in_decibels(*pictures: Study) -> Evidence:
    """SQUAF by PSNR against the best other activation; printed is the paper's lead over its best other."""
    parts, leads = [], {}
    for study in pictures:
        best, printed = _best(study, OTHERS, "psnr"), study.printed_scores("psnr")
        effect = printed["squaf"] - max(printed[label] for label in OTHERS if label in printed)
        squaf, other = (scores(study, label, "psnr") for label in ("squaf", best))
        parts.append(
            better(f"{_name(study)}: squaf better than {best} in psnr", squaf, other, printed=effect, unit="dB")
        )
        leads[_name(study)] = study.mean("squaf", "psnr") - study.mean(best, "psnr")
    return Evidence(parts, numbers=leads)


@statement(
    place="Table 1, runner-up",
    says="In PSNR PolyNorm is the best of the other activations for every picture.",
    needs=PICTURES,
    different=_FOUR_SEEDS,
)
def polynorm_is_next(*pictures: Study) -> Evidence:
    """PolyNorm against each of the other eight by PSNR."""
    rivals = [label for label in OTHERS if label != "polynorm"]
    return Evidence([part for study in pictures for part in wins(study, "polynorm", rivals, "psnr")])


@statement(
    place="Table 2",
    says="In toy classification SQUAF is best: by little with 3 classes (97.22 %), by 8.75 points with 4 (93.75 %).",
    needs=["squaf-table-2-c3", "squaf-table-2-c4"],
    labels=["squaf"],
    different="with 4 classes one of the eight SQUAFs collapsed (64 %), and the mean and its interval hold it",
    stand_in="clusters of our own, since the paper does not give the places of its",
)
def classifies_clusters_best(*studies: Study) -> Evidence:
    """SQUAF against each of the nine others by test accuracy."""
    parts = [part for study in studies for part in wins(study, "squaf", OTHERS, "accuracy")]
    return Evidence(parts, numbers={study.name: study.mean("squaf", "accuracy") for study in studies})


@statement(
    place="Table 12 and appendix A.6",
    says="Unless q or the sharpness h = alpha q^2 is too large, SQUAF stores the picture better than every other "
    "activation: in 18 of 20 starts, all but (q 0.1, h 10) and (q 1, h 0.5).",
    needs=["squaf-table-12", "squaf-table-1-camera"],
    different=f"{_FOUR_SEEDS}; compared with our own best baseline; that the other two starts do better than the "
    f"paper's counts for nothing; {CHANGED}",
)
def start_of_q_and_alpha_matters_little(grid: Study, camera: Study) -> Evidence:
    """Each of the 18 starts by PSNR against the best other activation on the same picture."""
    best, level = (
        _best(camera, OTHERS, "psnr"),
        max(value for label, value in camera.printed_scores("psnr").items() if label in OTHERS),
    )
    parts = [
        better(
            f"{label} better than {best} in psnr",
            scores(grid, label, "psnr"),
            scores(camera, best, "psnr"),
            printed=printed_effect({**grid.printed_scores("psnr"), best: level}, label, best, "psnr"),
            unit="dB",
        )
        for label in grid.outcomes
        if label not in ("q=0.1 h=10", "q=1 h=0.5")
    ]
    return Evidence(parts, numbers={label: grid.mean(label, "psnr") for label in grid.outcomes})


TIMES, MODES = "h200-model-vit-table-10.json", "h200-model-vit-squaf-bf16.json"


def _times(record: Record, what: str) -> dict[str, float]:
    """Milliseconds of every variant of a benchmark, by the first word of its text, or the mode of a SQUAF."""
    times = {}
    for row in record.rows:
        text = row["variant"]
        mode = next((mode for mode in ("sampled", "step") if f"mode={mode}" in text), "")
        times[" ".join([text.partition("(")[0], mode]).strip()] = row[what].value
    return times


@statement(
    place="Table 10 and appendix A.4",
    says="In ViT-Tiny SQUAF is quicker at inference than PolyNorm and DiTAC and takes 1.42 times as long as GELU, 1.22 "
    "times in training; SQUAF-P is slower than SQUAF, SQUAF-S about as quick as CRReLU.",
    needs=[TIMES, MODES],
    different="float32, but SQUAF-P in bfloat16; SQUAF and CRReLU run in one fused kernel each, PolyReLU and PolyNorm "
    "as plain torch operations, DiTAC in a fused kernel that is no longer here: implementations are compared as much "
    "as functions; less time than the paper's counts as no more; its comparisons were changed with records at hand",
    stand_in="one H200 in place of A6000s, batches of 256, our own kernels",
)
def costs_of_a_transformer(single: Record, half: Record) -> Evidence:
    """Medians of an inference and of a training step of vit_tiny_patch16_224, all variants in turns in one run."""
    inference, training, modes = _times(single, "forward"), _times(single, "step"), _times(half, "forward")
    ratio, slower = inference["squaf"] / inference["before"], training["squaf"] / training["before"]
    sampled, step = modes["squaf sampled"] / modes["squaf"], inference["squaf step"] / inference["crrelu"]
    return Evidence(
        [
            bound("quicker than PolyNorm", inference["squaf"] < inference["polynorm"]),
            bound("quicker than DiTAC", inference["squaf"] < inference["ditac"]),
            bound("at most 1.42 times GELU at inference", ratio <= 1.42),
            bound("at most 1.22 times GELU in training", slower <= 1.22),
            bound("SQUAF-P slower than SQUAF", sampled > 1),
            bound("SQUAF-S within 5 % of CRReLU", step < 1.05),
        ],
        f"SQUAF takes {ratio:.2f} of GELU's time at inference and {slower:.2f} in training, SQUAF-P {sampled:.2f} of "
        f"SQUAF's, SQUAF-S {step:.2f} of CRReLU's",
        {"inference": ratio, "training": slower, "sampled": sampled, "step": step},
    )


# -- Statements of the SQUAF paper about image networks: its table 6, its distillation.


RATE = "h200-squaf-rate-cifar-10.json"
ALONE = "h200-squaf-vgg8-cifar-10.json"
VGG = "h200-squaf-distil-vgg-cifar-10.json"
SHORT = "squaf-table-6-vit-short"
FIRST, EVERY = "squaf first", "squaf"  # which of its SQUAFs are trained
RECIPES = {
    RATE: "squaf-figure-3",
    ALONE: "squaf-table-6-vgg8",
    VGG: "squaf-table-7-vgg",
}
"""The recipes that have taken the place of the commands which made these records."""
_IN_TABLE_6 = (
    "relu", "gelu", "leaky_relu", "prelu", "silu", "swish", "crrelu", "polyrelu", "polynorm", "ditac",
)  # fmt: skip
TRAINED = (
    "bfloat16; q and alpha are learned through a softplus, which the paper does not mention: with the same Adam alpha "
    "moves faster than by itself, and q more slowly; z begins as a least-squares fit"
)
_CIFAR_10 = "CIFAR-10 in place of CIFAR-100, 40 epochs in place of 240"
_FEWER = "{} epochs in place of 240, batches of 256 in place of 64"
_VIT = (
    "where this is of 32 x 32 images: clipped gradients, crops and mirror images in place of RandAugment, mixup, "
    "CutMix, erasing and smoothing, bfloat16, a layer more before the head, SQUAF begun with GELU's values; all rows "
    "but 'squaf first' were known when this was written"
)
_VIT_SHORT = "CIFAR-10 in place of CIFAR-100, images of 32 x 32 in place of 224 x 224, 100 epochs in place of 300"

Row = Mapping[str, Any]


def row_of(record: Record, activation: str) -> Row:
    """The row of an activation that came to its end."""
    for row in record.rows:
        if row["activation"] == activation and "accuracy" in row:
            return row
    raise DataError(f"The record of {record.kind!r} has no {activation} that came to its end; run it whole.")


def reported_by(source: Study | Record) -> Reported:
    """The paper's numbers for the networks of a study or record."""
    if isinstance(source, Study):
        return next(paper for paper in PAPER.values() if paper.recipe == source.name.removesuffix("-short"))
    reported = reported_of(source)
    assert reported is not None
    return reported


def by_seed(source: Study | Record, title: str, what: str = "accuracy") -> list[float | None]:
    """Test accuracies, or gaps to the training accuracy, of each seed in percent; empty where it was not run."""
    if isinstance(source, Study):
        label = NAMES[title]
        if label not in source.outcomes:
            return []
        return scores(source, label) if what == "accuracy" else [_percent(gap) for gap in _gaps(source, label)]
    rows = [row for row in source.rows if row["activation"] == title and "accuracy" in row]
    return list(rows[0][f"{what}_by_seed"]) if rows else []


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _against_each(source: Study | Record, what: str, says: str, *, larger: bool) -> Evidence:
    """SQUAF against each other activation that the paper's table has."""
    reported = reported_by(source)
    printed, mine = reported.accuracy if what == "accuracy" else reported.gap, by_seed(source, "SQUAF", what)
    parts, sign = [], 1.0 if larger else -1.0
    for title, value in printed.items():
        if title == "SQUAF":
            continue
        effect, theirs = sign * (printed["SQUAF"] - value), by_seed(source, title, what)
        words, effect = says.format(title), effect if effect > 0 else None
        missing = Part(words, NOT_RUN, printed=effect, unit="points")
        compared = better(words, mine, theirs, larger=larger, printed=effect, unit="points") if theirs else missing
        parts.append(compared)
    return Evidence(parts, numbers={title: mean(by_seed(source, title, what)) for title in printed})


def _leads(source: Study | Record) -> Evidence:
    """SQUAF against each other activation of the paper's table by test accuracy."""
    return _against_each(source, "accuracy", "SQUAF better than {}", larger=True)


def _surpasses(source: Study | Record) -> Evidence:
    """The seeds of the student with SQUAF against the accuracy of the teacher, a single number."""
    reported = reported_by(source)
    if isinstance(source, Study):
        teacher = math.nan if source.teacher is None else 100 * mean(source.teacher.test["accuracy"])
    else:
        teacher = next(row for row in source.rows if row["activation"].startswith("teacher"))["accuracy"].value
    effect = reported.accuracy["SQUAF"] - (reported.teacher_accuracy or math.nan)
    says, mine = "the student with SQUAF surpasses its teacher", by_seed(source, "SQUAF")
    missing = Part(says, NOT_RUN, printed=effect, unit="points")
    part = missing if math.isnan(teacher) else better(says, mine, teacher, printed=effect, unit="points")
    return Evidence([part], numbers={"teacher": teacher, "squaf": mean(by_seed(source, "SQUAF"))})


best_in_a_small_network = statement(
    name="best_in_a_small_network",
    place="Table 6, VGG-8",
    says="In VGG-8 SQUAF is more accurate than all ten other activations, 1.54 points above the next (DiTAC) and 2.21 "
    "above ReLU.",
    needs=["squaf-table-6-vgg8"],
    instead={"squaf-table-6-vgg8": "squaf-table-6-vgg8-short"},
    labels=["squaf"],
    stand_in=_FEWER.format(40),
    different=TRAINED,
)(_leads)


@statement(
    place="Table 6, VGG-8",
    says="PolyReLU does not converge in VGG-8.",
    needs=["squaf-table-6-vgg8"],
    instead={"squaf-table-6-vgg8": ALONE},
    labels=["polyrelu"],
    different=f"{TRAINED}; {ADDED}",
    stand_in=_CIFAR_10,
)
def polyrelu_does_not_converge(source: Study | Record) -> Evidence:
    """Whether the loss of every seed stops being a number."""
    if isinstance(source, Study):
        lost, seeds = source.outcomes["polyrelu"].diverged, len(source.outcomes["polyrelu"].diverged)
        gone = sum(epoch is not None for epoch in lost)
    else:
        rows = [row for row in source.rows if row["activation"] == "PolyReLU"]
        gone, seeds = (len(rows[0]["diverged"]), len(source.seeds)) if rows else (0, 0)
    part = bound("PolyReLU does not converge with any seed", gone == seeds)
    return Evidence([part if seeds else Part(part.says, NOT_RUN)], f"{gone} of {seeds} seeds diverged")


def smallest_gap(source: Study | Record) -> Evidence:
    """SQUAF's gap against that of each other student of the paper's table 14."""
    return _against_each(source, "gap", "SQUAF's gap smaller than {}'s", larger=False)


_TAUGHT = f"{TRAINED}; one teacher, of one seed; the paper's student with ReLU is from the literature"
_CHANGED_IMAGES = f"{_TAUGHT}; of CIFAR-10 the training accuracy is that of changed images during the last epoch"
_VGG, _WRN = ("squaf-table-7-vgg", VGG), ("squaf-table-7-wrn", "squaf-table-7-wrn-short")
_GAP = "At the end of distillation SQUAF has the smallest gap between training and validation accuracy."
# Name, place, recipe and what is there instead, what was different, how it is judged, and what the paper says.
STUDENTS = [
    statement(
        name=name,
        place=place,
        says=says,
        needs=[recipe],
        instead={recipe: instead},
        labels=["squaf"],
        stand_in=_CIFAR_10 if instead == VGG else _FEWER.format(24),
        different=different,
    )(decide)
    for name, place, (recipe, instead), different, decide, says in (
        (
            *("best_student", "Table 7, VGG-13 to VGG-8", _VGG, _TAUGHT, _leads),
            "The student with SQUAF is more accurate than those with other activations (74.95 %, next GELU 73.51 %).",
        ),
        (
            *("student_surpasses_its_teacher", "Table 7, VGG-13 to VGG-8", _VGG, _TAUGHT, _surpasses),
            "The student with SQUAF surpasses its teacher (74.95 against 74.64 %), which no other does.",
        ),
        (
            *("best_wide_student", "Table 7, WRN-40-2 to WRN-16-2", _WRN, TRAINED, _leads),
            "The student with SQUAF is more accurate than those with other activations (75.93 %, next DiTAC 75.45 %).",
        ),
        (
            *("wide_student_surpasses_its_teacher", "Table 7, WRN-40-2 to WRN-16-2", _WRN, TRAINED, _surpasses),
            "The student with SQUAF surpasses its teacher (75.93 against 75.61 %), which no other does.",
        ),
        ("smallest_gap", "Table 14 and figure 5, VGG-8", _VGG, _CHANGED_IMAGES, smallest_gap, _GAP),
        (
            *("smallest_gap_of_a_wide_student", "Table 14 and figure 5, WRN-16-2"),
            *(_WRN, _TAUGHT, smallest_gap, _GAP),
        ),
    )
]


@statement(
    place="Table 6, ViT-T",
    says="In ViT-T SQUAF, of which the first is trained, is more accurate than all ten other activations, 1.09 points "
    "above the next (ReLU and PReLU) and 1.31 above GELU.",
    needs=["squaf-table-6-vit"],
    instead={"squaf-table-6-vit": SHORT},
    labels=["gelu"],
    different=_VIT,
    stand_in=_VIT_SHORT,
)
def best_in_a_transformer(study: Study) -> Evidence:
    """SQUAF against each of the ten by test accuracy."""
    winner = FIRST if FIRST in study.outcomes else EVERY
    printed = {label: values["accuracy"] for label, values in printed_of("squaf-table-6-vit").items()}
    return best_of(study, winner, _IN_TABLE_6, printed=printed | {winner: printed["squaf"]})


def squaf_is_best(study: Study) -> Evidence:
    """SQUAF against each other activation of the paper's table by test accuracy."""
    return best_of(study, "squaf")


# By study: what is there in its place as long as it was not run, and how that differs.
_INSTEAD = {
    f"squaf-table-6-{name}": (f"squaf-table-6-{name}-short", _FEWER.format(24))
    for name in ("resnet56", "shufflenetv1", "vgg13")
}
BEST = [
    statement(
        name=f"best_in_{name}",
        place=place,
        says=f"SQUAF is more accurate than the other activations in {network}.",
        needs=[study],
        labels=["squaf"],
        different=TRAINED,
        **stands_in(study, _INSTEAD),
    )(squaf_is_best)
    for study, name, place, network in (
        ("squaf-table-4-resnet18", "resnet18", "Table 4", "ResNet-18 on ImageNet-1K"),
        ("squaf-table-4-resnet34", "resnet34", "Table 4", "ResNet-34 on ImageNet-1K"),
        ("squaf-table-4-swin", "swin", "Table 4", "Swin-Tiny on ImageNet-1K"),
        ("squaf-table-4-vit", "vit_on_imagenet", "Table 4", "ViT-Tiny on ImageNet-1K"),
        ("squaf-table-6-efficientformer", "efficientformer", "Table 6", "EfficientFormer-L1 on CIFAR-100"),
        ("squaf-table-6-resnet56", "resnet56", "Table 6", "ResNet-56 on CIFAR-100"),
        ("squaf-table-6-shufflenetv1", "shufflenetv1", "Table 6", "ShuffleNetV1 on CIFAR-100"),
        ("squaf-table-6-vgg13", "vgg13", "Table 6", "VGG-13 on CIFAR-100"),
        ("squaf-table-15", "mobilenet", "Table 15", "MobileNet taught by ResNet-18 on ImageNet-1K"),
    )
]


@statement(
    place="Appendix A.3.2, CIFAR-100",
    says="Training all SQUAFs of a network tends to overfit, so that on CIFAR-100 the first alone is trained.",
    needs=[SHORT],
    labels=[FIRST, EVERY],
    different=f"{_VIT}; the paper says it of all its networks; both get nearly all training images right, so that the "
    "gap says little more than the accuracy",
    stand_in=_VIT_SHORT,
)
def training_every_squaf_overfits(study: Study) -> Evidence:
    """Test accuracy with the first SQUAF trained against that with all of them trained, and the gap between training
    and test accuracy the other way round."""
    every, first = ([_percent(gap) for gap in _gaps(study, label)] for label in (EVERY, FIRST))
    gap = better("the gap is larger where all are trained", every, first, unit="points")
    return Evidence([*wins(study, FIRST, [EVERY], "accuracy"), gap])


def _gaps(study: Study, label: str) -> list[float | None]:
    """Training accuracy less test accuracy, for each seed."""
    pairs = zip(study.outcomes[label].train["accuracy"], study.values(label, "accuracy"), strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]


# -- the rate curve of VGG-8: bits, modes, shapes --------------------------------------------------------

_DRAWS = "the accuracy of SQUAF-P is the mean of 8 draws, where the paper does not say how many it takes"
_CODED = "bits are those of the symbols of 16 test images"
_MODES = ("sampled", "soft", "step")
_BITS = {"huffman": "bits_huffman", "rate": "bits", "rans": "bits_rans"}  # as records and studies call them


@dataclass(frozen=True)
class Priced:
    """One weight of the rate: accuracies of each seed by mode, in percent, and bits by coder."""

    weight: float
    accuracy: Mapping[str, Sequence[float | None]]
    bits: Mapping[str, Sequence[float | None]]


def priced(source: Study | Record) -> list[Priced]:
    """The rows of SQUAF-P by their weight, those alone that did not diverge with every seed."""
    if isinstance(source, Study):
        rows = [
            Priced(
                outcome.trial.activation.price or 0.0,
                {mode: [_percent(value) for value in outcome.test[f"accuracy_{mode}"]] for mode in _MODES},
                {name: outcome.test[measure] for name, measure in _BITS.items()},
            )
            for outcome in source.outcomes.values()
            if "accuracy_sampled" in outcome.test
        ]
    else:
        coded = (row for row in source.rows if row["weight"] is not None and "bits" in row)
        rows = [Priced(row["weight"], row["accuracy_by_seed"], row["bits_by_seed"]) for row in coded]
    return sorted(rows, key=lambda row: row.weight)


def _unpriced(source: Study | Record, title: str) -> list[float | None]:
    """Accuracies of an activation that has no price."""
    if isinstance(source, Study):
        return by_seed(source, title)
    return list(row_of(source, title)["accuracy_by_seed"]["soft"])


def _differences(first: Sequence[float | None], second: Sequence[float | None]) -> list[float | None]:
    return [None if a is None or b is None else a - b for a, b in zip(first, second, strict=True)]


def of_the_rate(
    *, place: str, says: str, different: str
) -> Callable[[Callable[[Study | Record], Evidence]], Statement]:
    """A statement about the rate curve, of CIFAR-100 as soon as its record is there."""
    return statement(
        place=place,
        says=says,
        needs=[RECIPES[RATE]],
        instead={RECIPES[RATE]: RATE},
        labels=["relu", "squaf"],
        different=f"{TRAINED}; {different}; {CHANGED}",
        stand_in=_CIFAR_10,
    )


@of_the_rate(
    place="Figure 3 and section 4.4",
    says="With SQUAF-P the activations of VGG-8 take down to 3.4 bits in place of 32, and the accuracy is still above "
    "that with ReLU.",
    different=f"{_CODED}; {_DRAWS}; the figure is not in our copy of the paper: 3.4 is taken for the largest weight",
)
def few_bits_cost_no_accuracy(source: Study | Record) -> Evidence:
    """The bits of Huffman's code at the largest weight against 3.4, and SQUAF-P's accuracy there against ReLU's."""
    row, relu = priced(source)[-1], _unpriced(source, "ReLU")
    bits, accuracy = row.bits["huffman"], row.accuracy["sampled"]
    parts = [
        better("at most 3.4 bits", bits, 3.4, larger=False, unit="bits"),
        better("SQUAF-P more accurate than ReLU at the largest weight", accuracy, relu, unit="points"),
    ]
    words = f"{mean(bits):.2f} bits at {mean(accuracy):.2f} %, ReLU {mean(relu):.2f} %"
    return Evidence(parts, words, {"bits": mean(bits), "sampled": mean(accuracy), "relu": mean(relu)})


@of_the_rate(
    place="Figure 3 and section 3.3",
    says="A weight of the rate above 0 gives fewer bits.",
    different=f"{_CODED}; the figure is not in our copy of the paper: its text is taken",
)
def price_lowers_the_rate(source: Study | Record) -> Evidence:
    """The bits of Huffman's code at each weight against those without a price."""
    free, *rows = priced(source)
    parts = [
        better(
            f"fewer bits with {row.weight:g} than with {free.weight:g}",
            row.bits["huffman"],
            free.bits["huffman"],
            larger=False,
            unit="bits",
        )
        for row in rows
    ]
    return Evidence(parts)


@of_the_rate(
    place="Figure 3 and section 4.4",
    says="Switching SQUAF-P to SQUAF after training generally improves the accuracy, up to that of SQUAF trained as "
    "such.",
    different=f"{_DRAWS}; up to is taken as within half a point",
)
def switching_to_the_mean_helps(source: Study | Record) -> Evidence:
    """Switched against unswitched at every weight, paired: both are readings of one model; and the best switched one
    within half a point of SQUAF trained as such."""
    rows = priced(source)
    gained = [
        better(
            f"SQUAF better than SQUAF-P with weight {row.weight:g}",
            row.accuracy["soft"],
            row.accuracy["sampled"],
            unit="points",
            paired=True,
        )
        for row in rows
    ]
    best = max(rows, key=lambda row: mean(row.accuracy["soft"]))
    says = f"switched with weight {best.weight:g} within half a point of SQUAF itself"
    level = alike(says, best.accuracy["soft"], _unpriced(source, "SQUAF"), margin=0.5, unit="points")
    return Evidence([*gained, level])


@of_the_rate(
    place="Appendix A.4, SQUAF-S",
    says="Switching SQUAF-P to the staircase SQUAF-S after training does not degrade the accuracy much where alpha is "
    "large enough (ViT-T: not at all).",
    different=f"{_DRAWS}; VGG-8 in place of ViT-T; alpha, 1.5 / q^2 = 96 at the start, is trained in the first layer "
    "alone; much is taken as half a point",
)
def staircase_costs_little(source: Study | Record) -> Evidence:
    """What SQUAF-S gains over SQUAF-P at every weight, model by model, against a loss of half a point."""
    parts = [
        better(
            f"less than half a point lost with {row.weight:g}",
            _differences(row.accuracy["step"], row.accuracy["sampled"]),
            -0.5,
            unit="points",
        )
        for row in priced(source)
    ]
    return Evidence(parts)


@of_the_rate(
    place="Section 3.3, below equation 12",
    says="The entropy R is close to the number of bits that an entropy coder, such as Huffman's, really takes.",
    different=f"{_CODED}, R is over all 10,000, which is part of the difference; close is taken as 0.1 bits",
)
def entropy_is_what_is_coded(source: Study | Record) -> Evidence:
    """Huffman's bits with tables and headers less R over the test images, model by model, against 0.1 bits."""
    parts = [
        better(
            f"within 0.1 bits with {row.weight:g}",
            _differences(row.bits["huffman"], row.bits["rate"]),
            0.1,
            larger=False,
            unit="bits",
        )
        for row in priced(source)
    ]
    return Evidence(parts)


@statement(
    place="Appendix A.10, figures 6 to 9",
    says="A dent near the origin, as SiLU and GELU have it, is a very common pattern in learned SQUAFs.",
    needs=[RATE],
    different=f"{TRAINED}; the figures are not in our copy of the paper; {ADDED}",
    stand_in="the first layer of VGG-8 on CIFAR-10, begun as ReLU, in place of four networks on ImageNet-1K",
)
def a_dent_near_the_origin(record: Record) -> Evidence:
    """Whether with every seed the lowest value in [-4, 4] lies within 1.5 of the origin, and 0.1 or more below the
    highest on either side of it; so it is with GELU and SiLU, not with ReLU, and also with |x|. And whether it is a
    dent as these two have it: left of it nothing rises above 0.1. How deep it is decides nothing."""
    rows = [row for row in record.rows if row.get("start")]
    dents = {
        _title(row): [dent_of(values_of(shape, _PLACES)) for seed in row["learned"] for shape in seed.values()]
        for row in rows
    }
    if not any(dents.values()):
        return Evidence([Part("a dent", NOT_RUN)])
    lows = [low for seeds in dents.values() for _, low, _ in seeds]
    return Evidence(
        [
            *(bound(f"{title}: a dent with every seed", all(s[0] for s in seeds)) for title, seeds in dents.items()),
            *(
                bound(f"{title}: as GELU has it", all(dent and left <= 0.1 for dent, _, left in seeds))
                for title, seeds in dents.items()
            ),
        ],
        f"lowest values from {min(lows):.2f} to {max(lows):.2f}, where GELU has -0.17, and rising again to the left",
        {title: [mean(low for _, low, _ in seeds), mean(left for *_, left in seeds)] for title, seeds in dents.items()},
    )


def _title(row: Row) -> str:
    return row["activation"] if row["weight"] is None else f"{row['activation']} with weight {row['weight']:g}"


_PLACES = torch.linspace(-4, 4, 801, dtype=torch.float64)


def dent_of(values: torch.Tensor) -> tuple[bool, float, float]:
    """Whether a function has a dent, its lowest value there, and the highest to the left of it.

    values: at 801 places of [-4, 4].

    >>> dent_of(torch.nn.functional.silu(_PLACES))[0], dent_of(_PLACES.relu())[0]
    (True, False)
    """
    place = int(values.argmin())
    lowest, left, right = values[place], values[: place + 1].max(), values[place:].max()
    deep = float(min(left, right) - lowest)
    return bool(_PLACES[place].abs() <= 1.5) and deep >= 0.1, float(lowest), float(left)


# -- Tables and figures of the records of SQUAF's image networks: the rate curve, table 6, the distillation.


@dataclass(frozen=True)
class Drawn:
    """A figure that is drawn from a record, into a file in the folder of the evidence.

    needs: something of a row; a record in which no row has it has no such figure.
    """

    file: str
    caption: str
    draw: Callable[[Record, Path], Path]
    needs: str = "accuracy"


_STUDENTS = (
    "Test accuracy and generalisation gap of students with different activations, means over the seeds; the teacher is "
    "a single network"
)
FIGURES: Mapping[str, Sequence[Drawn]] = {
    RATE: (
        Drawn(
            "squaf-rate.png",
            "Accuracy against the bits per activation of SQUAF-P, and these bits against the weight λ of the rate: "
            "means over the seeds, with a standard deviation to either side; switched to SQUAF the activations take 32 "
            "bits",
            draw_rate,
        ),
        Drawn(
            "squaf-rate-shapes.png",
            "What the first layer's SQUAF has become after training, a line for each seed; dotted the ReLU that it "
            "began as. The paper's figures 6 to 9, which our copy does not have, show such functions of other networks",
            draw_shapes,
            needs="start",
        ),
    ),
    ALONE: (
        Drawn(
            "squaf-vgg8.png",
            "Test accuracy and generalisation gap of VGG-8 with different activations, means over the seeds",
            draw_distil,
            needs="curve",
        ),
    ),
    VGG: (Drawn("squaf-distil-vgg.png", _STUDENTS, draw_distil, needs="curve"),),
}
_HEADINGS = {
    RATE: "SQUAF, figure 3: bits and accuracy of VGG-8 with SQUAF-P",
    ALONE: "SQUAF, table 6: VGG-8",
    VGG: "SQUAF, tables 7 and 14: VGG-13 teaches VGG-8",
}


def command_on(recipe: str, settings: Mapping[str, Any]) -> str:
    """The command of a recipe with the data, epochs, batch and rate of a record."""
    milestones = [round(share * settings["epochs"]) for share in settings["milestones"]]
    changes = {
        "name": f"{recipe}-{settings['data']}",
        "data.set": settings["data"],
        "training.epochs": settings["epochs"],
        "training.batch": settings["batch"],
        "training.learning_rate": settings["learning_rate"],
        "training.milestones": milestones,
    }
    words = [word for key, value in changes.items() for word in ("--set", shlex.quote(f"{key}={value}"))]
    return " ".join([command_of_recipe(recipe), *words])


def write_record_figures(runs: Runs) -> list[Path]:
    """Draw the figures of the records that are there."""
    return [
        figure.draw(runs.benchmark(name), runs.paths[name].with_name(figure.file))
        for name in FIGURES
        if runs.has(name)
        for figure in FIGURES[name]
        if any(figure.needs in row for row in runs.benchmark(name).rows)
    ]


def record_tables(runs: Runs, stand_ins: Mapping[str, str]) -> Iterator[str]:
    """A section of the paper's page for each of these records that is there; `stand_ins` as for a study."""
    for name, heading in _HEADINGS.items():
        if not runs.has(name):
            continue
        record = runs.benchmark(name)
        yield f"\n### {heading}\n\n"
        yield rate_markdown(record) if name == RATE else distil_markdown(record)
        settings = record.settings
        again = command_on(RECIPES[name], settings)
        stand_in = f"**Stand-in:** {stand_ins[name]}. " if name in stand_ins else ""
        network = settings["network" if name == RATE else "student"]
        yield (
            f"\n{len(record.seeds)} seeds of {network} on {settings['data']}, {settings['epochs']} epochs with batches "
            f"of {settings['batch']}, {record.hardware.gpu or record.hardware.cpu}: "
            f"mean and standard deviation. {stand_in}Again: `{again}`, one row of it with `--only LABEL`. "
            f"[Record](records/{name}).\n"
        )
        yield _of_the_paper() if name == RATE else _of_the_training(record)
        for figure in FIGURES.get(name, ()):
            if runs.paths[name].with_name(figure.file).is_file():
                yield f"\n![{figure.caption}](records/{figure.file})\n"


def _of_the_training(record: Record) -> str:
    """What the command does that neither its options nor the table say."""
    settings = record.settings
    taught = f" The teacher's share of the loss is {settings['share']:g} at temperature {settings['temperature']:g}."
    return (
        "\nCounts of parameters differ from the paper's by the classes of the data set; those that it prints are of "
        f"its table 7.{taught if settings['teacher'] else ''} Accuracy is that after the last epoch; the gap is the "
        "accuracy of the training images, as they were changed, during that epoch, less it. SQUAF's Adam has a rate of "
        "0.001 that does not fall; PolyNorm goes along the channels, LReLU has a slope of 0.01, DiTAC begins as GELU.\n"
    )


def _of_the_paper() -> str:
    accuracy = PAPER[None, "vgg8"].accuracy
    return (
        "\nThe paper has, on CIFAR-100: down to 3.4 bits (figure 3, which our copy does not have); "
        f"{accuracy['ReLU']} % with ReLU, {accuracy['GELU']} % with GELU, {accuracy['SQUAF']} % with SQUAF (table 6).\n"
    )
