"""Statements of the SQUAF paper: fitting, pictures, classification, cost, distillation, bits."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from softknee.errors import DataError
from softknee.measure.record import Record

from ..runs import Runs, Study, command_of_recipe
from ..statement import (
    ADDED,
    CANNOT_TELL,
    Evidence,
    Part,
    accuracies,
    best_in_vision,
    better,
    bound,
    corrected,
    counted,
    mean,
    statements_of,
    wins,
)
from .networks import (
    PAPER,
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


def _shown(texts: Sequence[str], parts: Sequence[Part], words: str = "comparisons are shown") -> str:
    return f"{'; '.join(texts)}. {counted(parts)} {words}"


def fits_best(study: Study) -> Evidence:
    """SQUAF against each of the ten others by the logarithm of the error, and the ratio to the best of them."""
    parts = corrected(wins(study, "squaf", FITTING, "mse", larger=False, logarithmic=True))
    best, squaf = _best(study, FITTING, "mse"), _error(study, "squaf")
    ratio = _error(study, best) / squaf
    return Evidence(
        f"mean squared error (geometric mean of {study.seeds('squaf')} seeds): SQUAF {squaf:.1e}; the best other is "
        f"{best} with {_error(study, best):.1e}, {ratio:.2g} times SQUAF's; ReLU {_error(study, 'relu'):.1e}. SQUAF is "
        f"shown to be better than {counted(parts)}",
        parts=[*parts, bound("at least 10 times lower than every other", ratio >= 10)],
        numbers={label: _error(study, label) for label in (*FITTING, "squaf")},
    )


fits_one_dimension_best = statement(
    name="fits_one_dimension_best",
    place="Table 3, 1D function",
    says="With SQUAF the network [1, 64, 1] has a mean squared error of 4.0e-5, 1 to 4 orders of magnitude below every "
    "other activation (1.0e-3 for the next, DiTAC).",
    needs=[FIT_1D],
    different=_SEEDS,
)(fits_best)
fits_two_dimensions_best = statement(
    name="fits_two_dimensions_best",
    place="Table 3, 2D function",
    says="With SQUAF the network [2, 50, 1] has a mean squared error of 4.0e-4, an order of magnitude below every "
    "other activation (4.0e-3 for the next, DiTAC).",
    needs=[FIT_2D],
    different=_SEEDS,
)(fits_best)


@statement(
    place="Table 3, last two rows, and section 4.1",
    says="A SQUAF alone (k = 95) fits 200 times better than the network with SQUAF; one with 28 numbers (k = 13) does "
    "as well as the network with DiTAC, which has 7.2 times as many.",
    needs=[FIT_1D, FIT_ALONE],
    different=_SEEDS,
)
def alone_it_fits_better(inside: Study, alone: Study) -> Evidence:
    """The errors of the lone SQUAFs against those of the networks, as ratios of geometric means; 5 points each, as the
    paper says, and 21 beside it."""
    large, small, wide = (_error(alone, f"SQUAF k={setting}") for setting in ("95", "13", "95, 21 points"))
    squaf, ditac = _error(inside, "squaf"), _error(inside, "ditac")
    gain, wider, against = squaf / large, squaf / wide, small / ditac
    return Evidence(
        f"k = 95: {large:.1e}, {gain:.3g} times below the network with SQUAF ({squaf:.1e}); with 21 points in place of "
        f"5 {wide:.1e}, {wider:.3g} times below. k = 13: {small:.1e}, {against:.2g} times the error of the network "
        f"with DiTAC ({ditac:.1e})",
        parts=[
            bound("alone at least 200 times better", gain >= 200),
            bound("28 numbers as good as DiTAC", against <= 1.1),
        ],
        numbers={"gain": gain, "gain_with_21_points": wider, "against_ditac": against},
    )


@statement(
    place="Section 1, with table 3",
    says="In function fitting the gain over the other activations is up to 5000 times (2.0e-7 with a SQUAF alone, "
    "1.0e-3 with the network of the next, DiTAC).",
    needs=[FIT_1D, FIT_ALONE],
    different=f"{_SEEDS}; {ADDED}",
)
def gains_in_function_fitting(inside: Study, alone: Study) -> Evidence:
    """The error of the best network with another activation divided by that of the lone SQUAF with k = 95 and 5 points,
    geometric means both."""
    best = _best(inside, FITTING, "mse")
    network, squaf = _error(inside, best), _error(alone, "SQUAF k=95")
    gain = network / squaf
    return Evidence(
        f"{network:.1e} with {best}, {squaf:.1e} with a SQUAF alone: {gain:.3g} times",
        parts=[bound("at least 5000 times", gain >= 5000)],
        numbers={"gain": gain},
    )


@statement(
    place="Section 4.1, on KAF",
    says="KAF with one set of parameters for the layer is generally the worst of the compared activations; in the "
    "paper's table Swish alone has a higher error, in two dimensions.",
    needs=[FIT_1D, FIT_2D],
    different=_SEEDS + "; the paper gives neither KAF's points nor its start",
)
def kaf_is_worst(*studies: Study) -> Evidence:
    """Each of the other nine against KAF by the logarithm of the error."""
    parts, places = [], []
    for study in studies:
        for other in OTHERS:
            parts += wins(study, other, ["kaf"], "mse", larger=False, logarithmic=True)
        kaf = _error(study, "kaf")
        place = 1 + sum(_error(study, other) <= kaf for other in OTHERS) if not math.isnan(kaf) else len(FITTING)
        places.append(f"{study.name[-2:]}: KAF {kaf:.1e}, place {place} of {len(FITTING)}")
    parts = corrected(parts)
    return Evidence(_shown(places, parts, "others are shown to be better than it"), parts=parts)


def _name(picture: Study) -> str:
    return picture.name.removeprefix("squaf-table-1-")


def _lead(picture: Study) -> float:
    """The mean PSNR of SQUAF less that of the best other activation."""
    return picture.mean("squaf", "psnr") - picture.mean(_best(picture, OTHERS, "psnr"), "psnr")


@statement(
    place="Table 1",
    says="SQUAF stores all three pictures best, in PSNR and in SSIM, 11.4 to 25.3 dB above the next activation.",
    needs=PICTURES,
    different=_FOUR_SEEDS,
)
def stores_pictures_best(*pictures: Study) -> Evidence:
    """SQUAF against each of the nine others, PSNR and SSIM, for each picture; and the lead over the best of them."""
    parts, texts = [], []
    for study in pictures:
        best = _best(study, OTHERS, "psnr")
        parts += wins(study, "squaf", OTHERS, "psnr", larger=True) + wins(study, "squaf", OTHERS, "ssim", larger=True)
        ours, next_best = (
            f"{study.mean(label, 'psnr'):.2f} dB, SSIM {study.mean(label, 'ssim'):.4f}" for label in ("squaf", best)
        )
        texts.append(f"{_name(study)} {ours} (next: {best}, {next_best})")
    parts = corrected(parts)
    numbers = {f"lead_{_name(study)}": _lead(study) for study in pictures}
    return Evidence(_shown(texts, parts), parts=parts, numbers=numbers)


@statement(
    place="Table 1 and the abstract",
    says="The gain over the next activation is up to 25.27 dB (grass), and more than 11 dB for every picture.",
    needs=PICTURES,
    different=_FOUR_SEEDS,
)
def gains_in_decibels(*pictures: Study) -> Evidence:
    """The difference of the mean PSNR of SQUAF and of the best other activation."""
    leads = {_name(study): _lead(study) for study in pictures}
    text = ", ".join(f"{picture} {lead:.2f} dB" for picture, lead in leads.items())
    parts = [bound(f"{picture} more than 11 dB", lead > 11) for picture, lead in leads.items()]
    return Evidence(text, parts=[*parts, bound("25.27 dB for one", max(leads.values()) >= 25.27)], numbers=leads)


@statement(
    place="Table 1, runner-up",
    says="In PSNR PolyNorm is the best of the other activations for every picture.",
    needs=PICTURES,
    different=_FOUR_SEEDS,
)
def polynorm_is_next(*pictures: Study) -> Evidence:
    """PolyNorm against each of the other eight by PSNR."""
    parts, texts = [], []
    for study in pictures:
        parts += wins(study, "polynorm", [label for label in OTHERS if label != "polynorm"], "psnr", larger=True)
        best, decibels = _best(study, OTHERS, "psnr"), study.mean("polynorm", "psnr")
        texts.append(f"{_name(study)}: {best} leads, PolyNorm {decibels:.2f} dB")
    parts = corrected(parts)
    return Evidence(_shown(texts, parts), parts=parts)


@statement(
    place="Table 2",
    says="In toy classification SQUAF is best: by little with 3 classes (97.22 %), by 8.75 points with 4 (93.75 %).",
    needs=["squaf-table-2-c3", "squaf-table-2-c4"],
    different="clusters of our own: the paper does not give the places of its; eight seeds",
)
def classifies_clusters_best(*studies: Study) -> Evidence:
    """SQUAF against each of the nine others by test accuracy; the lead over the best of them."""
    parts, texts, leads = [], [], {}
    for count, study in zip((3, 4), studies, strict=True):
        parts += wins(study, "squaf", OTHERS, "accuracy", larger=True)
        best = _best(study, OTHERS, "accuracy")
        ours, theirs = (100 * study.mean(label, "accuracy") for label in ("squaf", best))
        leads[count] = ours - theirs
        texts.append(f"{count} classes: SQUAF {ours:.2f} %, {best} {theirs:.2f} %")
    parts = corrected(parts)
    return Evidence(
        _shown(texts, parts),
        parts=[*parts, bound("8.75 points ahead with 4 classes", leads[4] >= 8.75)],
        numbers={f"lead_{count}": lead for count, lead in leads.items()},
    )


@statement(
    place="Table 12 and appendix A.6",
    says="Unless q or the sharpness h = alpha q^2 is too large, SQUAF stores the picture better than every other "
    "activation: in 18 of 20 starts, all but (q 0.1, h 10) and (q 1, h 0.5).",
    needs=["squaf-table-12", "squaf-table-1-camera"],
    different=f"{_FOUR_SEEDS}; compared with our own best baseline",
)
def start_of_q_and_alpha_matters_little(grid: Study, camera: Study) -> Evidence:
    """The mean PSNR of each start against the best mean of the other activations on the same picture."""
    best = _best(camera, OTHERS, "psnr")
    level = camera.mean(best, "psnr")
    means = {label: grid.mean(label, "psnr") for label in grid.outcomes}
    below = [f"{label} ({value:.1f} dB)" for label, value in means.items() if not value > level]
    exceptions = {"q=0.1 h=10", "q=1 h=0.5"}
    finite = [value for value in means.values() if not math.isnan(value)]
    return Evidence(
        f"{len(means) - len(below)} of {len(means)} starts are above the {level:.2f} dB of {best}; below: "
        f"{', '.join(below) or 'none'}. From {min(finite):.1f} to {max(finite):.1f} dB",
        parts=[
            bound(f"{label} {'not ' if label in exceptions else ''}above", (value > level) != (label in exceptions))
            for label, value in means.items()
        ],
        numbers=means,
    )


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
    says="In ViT-Tiny SQUAF is quicker at inference than PolyNorm and DiTAC, but takes 1.42 times as long as GELU, and "
    "1.22 times in training; SQUAF-P is slower than SQUAF, SQUAF-S about as quick as CRReLU.",
    needs=[TIMES, MODES],
    different="one H200 in place of A6000s, batches of 256, our kernels; float32, but SQUAF-P in bfloat16; that "
    "SQUAF-S is held against CRReLU and no longer against ReLU in bfloat16 was changed with records at hand: both hold",
)
def costs_of_a_transformer(single: Record, half: Record) -> Evidence:
    """Medians of an inference and of a training step of vit_tiny_patch16_224, all variants in turns in one run."""
    inference, training, modes = _times(single, "forward"), _times(single, "step"), _times(half, "forward")
    ratio, slower = inference["squaf"] / inference["before"], training["squaf"] / training["before"]
    sampled, step = modes["squaf sampled"] / modes["squaf"], inference["squaf step"] / inference["crrelu"]
    others = ", ".join(
        f"{name} {inference[name] / inference['before']:.2f}" for name in ("crrelu", "ditac", "polynorm")
    )
    return Evidence(
        f"relative to GELU: SQUAF {ratio:.3f} at inference and {slower:.3f} in a training step with all its "
        f"parameters; {others} at inference. SQUAF-P takes {sampled:.2f} times as long as SQUAF, SQUAF-S {step:.2f} "
        "times as long as CRReLU",
        parts=[
            bound("quicker than PolyNorm", inference["squaf"] < inference["polynorm"]),
            bound("quicker than DiTAC", inference["squaf"] < inference["ditac"]),
            bound("at least 1.42 times GELU at inference", ratio >= 1.42),
            bound("at least 1.22 times GELU in training", slower >= 1.22),
            bound("SQUAF-P slower than SQUAF", sampled > 1),
            bound("SQUAF-S within 5 % of CRReLU", step < 1.05),
        ],
        numbers={"inference": ratio, "training": slower, "sampled": sampled, "step": step},
    )


# -- Statements of the SQUAF paper about image networks: its table 6, its distillation.


RATE = "h200-squaf-rate-cifar-10.json"
ALONE = "h200-squaf-vgg8-cifar-10.json"
VGG, WRN = "h200-squaf-distil-vgg-cifar-10.json", "h200-squaf-distil-wrn-cifar-10.json"
SHORT = "squaf-table-6-vit-short"
FIRST, EVERY = "squaf first", "squaf"  # which of its SQUAFs are trained
_IN_TABLE_6 = (
    "relu", "gelu", "leaky_relu", "prelu", "silu", "swish", "crrelu", "polyrelu", "polynorm", "ditac",
)  # fmt: skip
TRAINED = (
    "CIFAR-10 in place of CIFAR-100, 40 epochs with batches of 256 and rate 0.1 in place of 240, 64 and 0.05, in "
    "bfloat16; q and alpha are learned through a softplus, which the paper does not mention: with the same Adam alpha "
    "moves faster than by itself, and q more slowly; z begins as a least-squares fit"
)

_VIT = (
    "CIFAR-10 in place of CIFAR-100, images of 32 x 32 in place of (as the count of parameters says) 224 x 224, 100 "
    "epochs, 20 of them warm-up, with batches of 256 and rate 2.5e-4 in place of 300, 50, 512 and 2e-3, clipped "
    "gradients, crops and mirror images in place of RandAugment, mixup, CutMix, erasing and smoothing, bfloat16, a "
    "layer more before the head, SQUAF begun with GELU's values in place of a fit; all rows but 'squaf first' "
    "were known when this was written"
)

Row = Mapping[str, Any]


def row_of(record: Record, activation: str) -> Row:
    """The row of an activation that came to its end."""
    for row in record.rows:
        if row["activation"] == activation and "accuracy" in row:
            return row
    raise DataError(f"The record of {record.kind!r} has no {activation} that came to its end; run it whole.")


def shares(percent: Sequence[float | None]) -> list[float | None]:
    """Accuracies in percent as fractions, which is how all comparisons are given."""
    return [None if value is None else value / 100 for value in percent]


def _leads(record: Record) -> Evidence:
    """SQUAF against each other activation of the paper's table that came to its end, by test accuracy."""
    parts, shown = _against_each(record, "accuracy_by_seed", "SQUAF better than {}", larger=True)
    squaf, best = row_of(record, "SQUAF"), max(_others(record), key=lambda row: row["accuracy"].value)
    words = f"SQUAF {squaf['accuracy'].text(2)} %, next {best['activation']} {best['accuracy'].text(2)} %"
    return Evidence(f"{words}. SQUAF is shown to be better than {shown}", parts=parts)


def _against_each(record: Record, column: str, says: str, *, larger: bool) -> tuple[list[Part], str]:
    """SQUAF against each other activation, seed by seed, and how many of those that were run it is shown for.

    Of what the paper has an accuracy of and the record no row nothing can be told.
    """
    mine = shares(row_of(record, "SQUAF")[column])
    others, missing = _others(record, column), _left_out(record, column)
    compared = [better(says.format(row["activation"]), mine, shares(row[column]), larger=larger) for row in others]
    parts = corrected([*compared, *(Part(says.format(name), CANNOT_TELL) for name in missing)])
    return parts, counted(parts[: len(compared)]) + _not_run(missing)


def _in_the_paper(record: Record, column: str) -> Mapping[str, float]:
    """What the paper's table of this column has beside SQUAF."""
    reported = reported_of(record)
    if reported is None:
        return {}
    values = reported.gap if column == "gap_by_seed" else reported.accuracy
    return {name: value for name, value in values.items() if name != "SQUAF"}


def _others(record: Record, column: str = "accuracy_by_seed") -> list[Row]:
    """The rows of the record that the paper's table has, too, and that came to their end."""
    rivals = _in_the_paper(record, column)
    return [row for row in record.rows if "accuracy" in row and row["activation"] in rivals]


def _left_out(record: Record, column: str = "accuracy_by_seed") -> list[str]:
    """What the paper's table has and the record no row of."""
    there = {row["activation"] for row in record.rows}
    return [name for name in _in_the_paper(record, column) if name not in there]


def _not_run(missing: Sequence[str]) -> str:
    return f"; not run: {', '.join(missing)}" if missing else ""


def _surpasses(record: Record) -> Evidence:
    """The seeds of the student with SQUAF against the accuracy of the teacher, a single number; the others stand
    beside it."""
    teacher = next(row for row in record.rows if row["activation"].startswith("teacher"))["accuracy"].value
    squaf = row_of(record, "SQUAF")
    mine = shares(squaf["accuracy_by_seed"])
    part = better("the student with SQUAF surpasses its teacher", mine, [teacher / 100] * len(mine))
    each = ", ".join(f"{row['activation']} {row['accuracy'].text(2)} %" for row in (squaf, *_others(record)))
    return Evidence(
        f"the teacher has {teacher:.2f} %, its students {each}{_not_run(_left_out(record))}",
        parts=corrected([part]),
        numbers={"teacher": teacher, "squaf": squaf["accuracy"].value},
    )


best_in_a_small_network = statement(
    name="best_in_a_small_network",
    place="Table 6, VGG-8",
    says="In VGG-8 SQUAF is more accurate than all ten other activations, 1.54 points above the next (DiTAC) and 2.21 "
    "above ReLU.",
    needs=[ALONE],
    different=TRAINED,
)(_leads)


@statement(
    place="Table 6, VGG-8", says="PolyReLU does not converge in VGG-8.", needs=[ALONE], different=f"{TRAINED}; {ADDED}"
)
def polyrelu_does_not_converge(record: Record) -> Evidence:
    """Whether the loss of every seed stops being a number."""
    rows = [row for row in record.rows if row["activation"] == "PolyReLU"]
    if not rows:
        return Evidence("PolyReLU was not run", parts=[Part("PolyReLU does not converge", CANNOT_TELL)])
    lost = len(rows[0]["diverged"])
    return Evidence(
        f"the loss stops being a number with {lost} of {len(record.seeds)} seeds",
        parts=[bound("PolyReLU does not converge with any seed", lost == len(record.seeds))],
    )


_TAUGHT = (
    f"{TRAINED}; one teacher, of one seed; of the paper's ten students four were not run with VGG-8 (DiTAC, LReLU, "
    "CRReLU, PolyNorm), nor PolyReLU, which does not converge there; those of its ReLU are from the literature"
)
_SPLIT = f"{_TAUGHT}; that the students are judged apart from their teacher was added with records at hand"
best_student = statement(
    name="best_student",
    place="Table 7, VGG-13 to VGG-8",
    says="The student with SQUAF is more accurate than those with other activations (74.95 %, next GELU 73.51 %).",
    needs=[VGG],
    different=_SPLIT,
)(_leads)
student_surpasses_its_teacher = statement(
    name="student_surpasses_its_teacher",
    place="Table 7, VGG-13 to VGG-8",
    says="The student with SQUAF surpasses its teacher (74.95 against 74.64 %), which no other does.",
    needs=[VGG],
    different=_SPLIT,
)(_surpasses)
best_wide_student = statement(
    name="best_wide_student",
    place="Table 7, WRN-40-2 to WRN-16-2",
    says="The student with SQUAF is more accurate than those with other activations (75.93 %, next DiTAC 75.45 %).",
    needs=[WRN],
    different=TRAINED,
)(_leads)
wide_student_surpasses_its_teacher = statement(
    name="wide_student_surpasses_its_teacher",
    place="Table 7, WRN-40-2 to WRN-16-2",
    says="The student with SQUAF surpasses its teacher (75.93 against 75.61 %), which no other does.",
    needs=[WRN],
    different=TRAINED,
)(_surpasses)


@statement(
    place="Table 14 and figure 5",
    says="At the end of distillation SQUAF has the smallest gap between training and validation accuracy.",
    needs=[VGG],
    different=f"{_TAUGHT}; the training accuracy is that of the images as they were changed, during the last epoch",
)
def smallest_gap(record: Record) -> Evidence:
    """SQUAF's gap against that of each other student of the paper's table 14, seed by seed."""
    squaf, others = row_of(record, "SQUAF"), _others(record, "gap_by_seed")
    parts, shown = _against_each(record, "gap_by_seed", "SQUAF's gap smaller than {}'s", larger=False)
    gaps = ", ".join(f"{row['activation']} {row['gap'].text(2)}" for row in others)
    return Evidence(
        f"SQUAF {squaf['gap'].text(2)} points; {gaps}. It is shown to be smaller than {shown}",
        parts=parts,
        numbers={row["activation"]: row["gap"].value for row in (squaf, *others)},
    )


@statement(
    place="Table 6, ViT-T",
    says="In ViT-T SQUAF, of which the first is trained, is more accurate than all ten other activations, 1.09 points "
    "above the next (ReLU and PReLU) and 1.31 above GELU.",
    needs=[SHORT],
    different=f"{_VIT}; five of the ten are not in the recipe, so that it cannot hold whole",
)
def best_in_a_transformer(study: Study) -> Evidence:
    """SQUAF against each of the ten by test accuracy."""
    return best_in_vision(study, FIRST, "SQUAF", _IN_TABLE_6)


@statement(
    place="Appendix A.3.2, CIFAR-100",
    says="Training all SQUAFs of a network tends to overfit, so that on CIFAR-100 the first alone is trained.",
    needs=[SHORT],
    labels=[FIRST, EVERY],
    different=f"{_VIT}; the paper says it of all its networks; both get nearly all training images right, so that the "
    "gap says little more than the accuracy",
)
def training_every_squaf_overfits(study: Study) -> Evidence:
    """Test accuracy with the first SQUAF trained against that with all of them trained, and the gap between training
    and test accuracy the other way round."""
    gaps = {label: _gaps(study, label) for label in (FIRST, EVERY)}
    points = ", ".join(f"{label} {100 * mean(gap):.2f}" for label, gap in gaps.items())
    accuracy = wins(study, FIRST, [EVERY], "accuracy", larger=True)
    return Evidence(
        f"{accuracies(study, gaps)}; gap between training and test accuracy, in points: {points}",
        parts=corrected([*accuracy, better("the gap is larger where all are trained", gaps[EVERY], gaps[FIRST])]),
    )


def _gaps(study: Study, label: str) -> list[float | None]:
    """Training accuracy less test accuracy, for each seed."""
    pairs = zip(study.outcomes[label].train["accuracy"], study.values(label, "accuracy"), strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]


# -- the rate curve of VGG-8: bits, modes, shapes --------------------------------------------------------

_DRAWS = (
    "the accuracy of SQUAF-P is the mean of 8 draws, where the paper does not say how many it takes; that it is not of "
    "one draw, by which 1 of 7 gains of switching was shown, was added with records at hand"
)
_CODED = "bits are those of the symbols of 16 test images"


@statement(
    place="Figure 3 and section 4.4",
    says="With SQUAF-P the activations of VGG-8 take down to 3.4 bits in place of 32, and the accuracy is still above "
    "that with ReLU.",
    needs=[RATE],
    different=f"{TRAINED}; {_CODED}; {_DRAWS}; the figure is not in our copy of the paper: 3.4 is taken for the "
    "largest weight",
)
def few_bits_cost_no_accuracy(record: Record) -> Evidence:
    """The bits of Huffman's code at the largest weight against 3.4, and SQUAF-P's accuracy there against ReLU's."""
    row, relu = _priced(record)[-1], row_of(record, "ReLU")
    bits = row["bits"]["huffman"].value
    mine, theirs = shares(row["accuracy_by_seed"]["sampled"]), shares(relu["accuracy_by_seed"]["soft"])
    (part,) = corrected([better("SQUAF-P more accurate than ReLU at the largest weight", mine, theirs)])
    return Evidence(
        f"weight {row['weight']:g}: {bits:.3f} bits per activation (Huffman), {row['accuracy']['sampled'].text(2)} %; "
        f"ReLU with 32 bits {relu['accuracy']['soft'].text(2)} %",
        parts=[bound("at most 3.4 bits", bits <= 3.4), part],
        numbers={"bits": bits, "sampled": row["accuracy"]["sampled"].value, "relu": relu["accuracy"]["soft"].value},
    )


@statement(
    place="Figure 3 and section 3.3",
    says="A larger weight of the rate gives fewer bits, from weight to weight and from none to the largest.",
    needs=[RATE],
    different=f"{TRAINED}; {_CODED}; the figure is not in our copy of the paper, whose text says that a weight above "
    "0 improves the compression; that the ends are compared, too, was added with records at hand",
)
def price_lowers_the_rate(record: Record) -> Evidence:
    """The bits of Huffman's code at each weight against those at the next smaller one, and at the largest against
    those at the smallest, seed by seed."""
    rows = _priced(record)
    ends = [(rows[0], rows[-1])] if len(rows) > 2 else []
    parts = corrected(
        [
            better(
                f"fewer bits with {after['weight']:g} than with {before['weight']:g}",
                after["bits_by_seed"]["huffman"],
                before["bits_by_seed"]["huffman"],
                larger=False,
            )
            for before, after in [*pairwise(rows), *ends]
        ]
    )
    bits = ", ".join(f"{row['weight']:g}: {row['bits']['huffman'].text(3)}" for row in rows)
    return Evidence(f"bits by weight: {_shown([bits], parts)}", parts=parts)


@statement(
    place="Figure 3 and section 4.4",
    says="Switching SQUAF-P to SQUAF after training generally improves the accuracy, up to that of SQUAF trained as "
    "such.",
    needs=[RATE],
    different=f"{TRAINED}; {_DRAWS}; that the best of them is compared with "
    "SQUAF by a test, and not by its mean, was added with records at hand",
)
def switching_to_the_mean_helps(record: Record) -> Evidence:
    """Switched against unswitched at every weight, seed by seed; and the best switched one against SQUAF trained as
    such, which would hold if it were shown to be better and fail if it were shown to be worse."""
    rows, trained = _priced(record), row_of(record, "SQUAF")
    gained = [
        better(
            f"SQUAF better than SQUAF-P with weight {row['weight']:g}",
            shares(row["accuracy_by_seed"]["soft"]),
            shares(row["accuracy_by_seed"]["sampled"]),
        )
        for row in rows
    ]
    best = max(rows, key=lambda row: row["accuracy"]["soft"].value)
    level = better(
        f"switched with weight {best['weight']:g} better than SQUAF itself",
        shares(best["accuracy_by_seed"]["soft"]),
        shares(trained["accuracy_by_seed"]["soft"]),
    )
    parts = corrected([*gained, level])
    gains = {row["weight"]: row["accuracy"]["soft"].value - row["accuracy"]["sampled"].value for row in rows}
    points = ", ".join(f"{weight:g}: {gain:+.2f}" for weight, gain in gains.items())
    return Evidence(
        f"points gained by switching, by weight: {points}; best switched {best['accuracy']['soft'].text(2)} %, trained "
        f"with SQUAF {trained['accuracy']['soft'].text(2)} %. {counted(parts[:-1])} gains are shown",
        parts=parts,
        numbers={f"gain_{weight:g}": gain for weight, gain in gains.items()},
    )


@statement(
    place="Appendix A.4, SQUAF-S",
    says="Switching SQUAF-P to the staircase SQUAF-S after training does not degrade the accuracy much where alpha is "
    "large enough (ViT-T: not at all).",
    needs=[RATE],
    different=f"{TRAINED}; {_DRAWS}; VGG-8 in place of ViT-T; alpha, 1.5 / q^2 = 96 at the start, is trained in "
    "the first layer alone",
)
def staircase_costs_little(record: Record) -> Evidence:
    """At every weight: the mean accuracy of SQUAF-S is at most half a point below that of SQUAF-P."""
    rows = _priced(record)
    gained = {row["weight"]: row["accuracy"]["step"].value - row["accuracy"]["sampled"].value for row in rows}
    words = ", ".join(f"{weight:g}: {points:+.2f}" for weight, points in gained.items())
    return Evidence(
        f"points of SQUAF-S above SQUAF-P, by weight: {words}",
        parts=[
            bound(f"at most half a point lost with {weight:g}", points >= -0.5) for weight, points in gained.items()
        ],
        numbers={f"gained_{weight:g}": points for weight, points in gained.items()},
    )


@statement(
    place="Section 3.3, below equation 12",
    says="The entropy R is close to the number of bits that an entropy coder, such as Huffman's, really takes.",
    needs=[RATE],
    different=f"{TRAINED}; {_CODED}, R is over all 10,000, which is part of the difference",
)
def entropy_is_what_is_coded(record: Record) -> Evidence:
    """At every weight: Huffman's bits with tables and headers are within 0.1 bits of R over the test images."""
    rows = _priced(record)
    away = {row["weight"]: row["bits"]["huffman"].value - row["bits"]["rate"].value for row in rows}
    ranged = {row["weight"]: row["bits"]["rans"].value - row["bits"]["rate"].value for row in rows}
    words = ", ".join(f"{weight:g}: {bits:+.3f} ({ranged[weight]:+.3f})" for weight, bits in away.items())
    return Evidence(
        f"Huffman's bits (a range coder's) less R, by weight: {words}",
        parts=[bound(f"within 0.1 bits with {weight:g}", abs(bits) <= 0.1) for weight, bits in away.items()],
        numbers={f"huffman_{weight:g}": bits for weight, bits in away.items()},
    )


@statement(
    place="Appendix A.10, figures 6 to 9",
    says="A dent near the origin, as SiLU and GELU have it, is a very common pattern in learned SQUAFs.",
    needs=[RATE],
    different=f"{TRAINED}; the first layer of VGG-8, begun as ReLU, in place of four networks on ImageNet-1K, whose "
    f"figures are not in our copy of the paper; {ADDED}",
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
        return Evidence("the record has no learned function", parts=[Part("a dent", CANNOT_TELL)])
    lowest = ", ".join(
        f"{title} {mean(low for _, low, _ in seeds):.2f} ({mean(left for *_, left in seeds):.2f})"
        for title, seeds in dents.items()
    )
    return Evidence(
        "the lowest value of the learned function (and the highest to the left of it), in the mean over the seeds: "
        f"{lowest}; GELU has -0.17 (0.00)",
        parts=[
            *(bound(f"{title}: a dent with every seed", all(s[0] for s in seeds)) for title, seeds in dents.items()),
            *(
                bound(f"{title}: as GELU has it", all(dent and left <= 0.1 for dent, _, left in seeds))
                for title, seeds in dents.items()
            ),
        ],
        numbers={title: [low for _, low, _ in seeds] for title, seeds in dents.items()},
    )


def _priced(record: Record) -> list[Row]:
    """The rows of SQUAF-P by their weight, those alone that did not diverge with every seed."""
    priced = [row for row in record.rows if row["weight"] is not None and "bits" in row]
    return sorted(priced, key=lambda row: row["weight"])


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
    WRN: (Drawn("squaf-distil-wrn.png", _STUDENTS, draw_distil, needs="curve"),),
}
_HEADINGS = {
    RATE: "SQUAF, figure 3: bits and accuracy of VGG-8 with SQUAF-P",
    ALONE: "SQUAF, table 6: VGG-8",
    VGG: "SQUAF, tables 7 and 14: VGG-13 teaches VGG-8",
    WRN: "SQUAF, tables 7 and 14: WRN-40-2 teaches WRN-16-2",
}


RECIPES = {
    RATE: "squaf-figure-3",
    ALONE: "squaf-table-6-vgg8",
    VGG: "squaf-table-7-vgg",
    WRN: "squaf-table-7-wrn",
}
"""The recipes that have taken the place of the commands which made these records."""


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


def record_tables(runs: Runs) -> Iterator[str]:
    """A section of the paper's page for each of these records that is there."""
    for name, heading in _HEADINGS.items():
        if not runs.has(name):
            continue
        record = runs.benchmark(name)
        yield f"\n### {heading}\n\n"
        yield rate_markdown(record) if name == RATE else distil_markdown(record)
        settings = record.settings
        again = command_on(RECIPES[name], settings)
        network = settings["network" if name == RATE else "student"]
        yield (
            f"\n{len(record.seeds)} seeds of {network} on {settings['data']}, {settings['epochs']} epochs with batches "
            f"of {settings['batch']}, {record.hardware.gpu or record.hardware.cpu}: "
            f"mean and standard deviation. Again: `{again}`, one row of it with `--only LABEL`. "
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
