"""Statements of the SQUAF paper about image networks: its table 6, its distillation.

They are judged by records of `softknee study distil` and by a study of ViT-Tiny. The paper has CIFAR-100; where that is
not at hand the records are of CIFAR-10, and what is compared are directions, not the accuracies themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DataError
from ...measure.record import Record
from ..distilling import reported_of
from .compared import accuracies, best_in_vision, mean
from .runs import Runs, Study
from .statement import ADDED, CANNOT_TELL, Evidence, Part, better, bound, corrected, counted, statements_of, wins

statement = statements_of("squaf")

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
    """Accuracies in percent as fractions, which is how all comparisons are told."""
    return [None if one is None else one / 100 for one in percent]


def _leads(runs: Runs, name: str) -> Evidence:
    """SQUAF against every other activation of a record of `study distil`, by accuracy."""
    record = runs.benchmark(name)
    parts, shown = _against_each(record, "accuracy_by_seed", "SQUAF better than {}", larger=True)
    squaf, best = row_of(record, "SQUAF"), max(_others(record), key=lambda row: row["accuracy"].value)
    told = f"SQUAF {squaf['accuracy'].text(2)} %, next {best['activation']} {best['accuracy'].text(2)} %"
    return Evidence(f"{told}. SQUAF is shown to be better than {shown}", parts=parts)


def _against_each(record: Record, column: str, says: str, *, larger: bool) -> tuple[list[Part], str]:
    """SQUAF against each other activation, seed by seed, and how many of those that were run it is shown for.

    Of what the paper has an accuracy of and the record no row nothing can be told.
    """
    mine = shares(row_of(record, "SQUAF")[column])
    others, left = _others(record, column), _left_out(record, column)
    tried = [better(says.format(row["activation"]), mine, shares(row[column]), larger=larger) for row in others]
    parts = corrected([*tried, *(Part(says.format(name), CANNOT_TELL) for name in left)])
    return parts, counted(parts[: len(tried)]) + _not_run(left)


def _in_the_paper(record: Record, column: str) -> Mapping[str, float]:
    """What the paper's table of this column has beside SQUAF."""
    reported = reported_of(record)
    if reported is None:
        return {}
    found = reported.gap if column == "gap_by_seed" else reported.accuracy
    return {name: one for name, one in found.items() if name != "SQUAF"}


def _others(record: Record, column: str = "accuracy_by_seed") -> list[Row]:
    """The rows of the record that the paper's table has, too, and that came to their end."""
    rivals = _in_the_paper(record, column)
    return [row for row in record.rows if "accuracy" in row and row["activation"] in rivals]


def _left_out(record: Record, column: str = "accuracy_by_seed") -> list[str]:
    """What the paper's table has and the record no row of."""
    there = {row["activation"] for row in record.rows}
    return [name for name in _in_the_paper(record, column) if name not in there]


def _not_run(left: Sequence[str]) -> str:
    return f"; not run: {', '.join(left)}" if left else ""


@statement(
    place="Table 6, VGG-8",
    says="In VGG-8 SQUAF is more accurate than all ten other activations, 1.54 points above the next (DiTAC) and 2.21 "
    "above ReLU.",
    needs=[ALONE],
    different=TRAINED,
)
def best_in_a_small_network(runs: Runs) -> Evidence:
    """SQUAF against each other activation that did not diverge, by test accuracy."""
    return _leads(runs, ALONE)


@statement(
    place="Table 6, VGG-8",
    says="PolyReLU does not converge in VGG-8.",
    needs=[ALONE],
    different=f"{TRAINED}; {ADDED}",
)
def polyrelu_does_not_converge(runs: Runs) -> Evidence:
    """Whether the loss of every seed stops being a number."""
    record = runs.benchmark(ALONE)
    found = [row for row in record.rows if row["activation"] == "PolyReLU"]
    if not found:
        return Evidence("PolyReLU was not run", parts=[Part("PolyReLU does not converge", CANNOT_TELL)])
    lost = len(found[0]["diverged"])
    return Evidence(
        f"the loss stops being a number with {lost} of {len(record.seeds)} seeds",
        parts=[bound("PolyReLU does not converge with any seed", lost == len(record.seeds))],
    )


_TAUGHT = (
    f"{TRAINED}; one teacher, of one seed; of the paper's ten students four were "
    "not run with VGG-8 (DiTAC, LReLU, CRReLU, PolyNorm), nor PolyReLU, which does not converge there; those of its "
    "ReLU are from the literature"
)
_SPLIT = "that the students are judged apart from their teacher was added with records at hand"


def _surpasses(runs: Runs, name: str) -> Evidence:
    """The seeds of the student with SQUAF against the one number of its teacher."""
    record = runs.benchmark(name)
    teacher = next(row for row in record.rows if row["activation"].startswith("teacher"))["accuracy"].value
    squaf, others, left = row_of(record, "SQUAF"), _others(record), _left_out(record)
    mine = shares(squaf["accuracy_by_seed"])
    part = better("the student with SQUAF surpasses its teacher", mine, [teacher / 100] * len(mine))
    each = ", ".join(f"{row['activation']} {row['accuracy'].text(2)} %" for row in (squaf, *others))
    return Evidence(
        f"the teacher has {teacher:.2f} %, its students {each}{_not_run(left)}",
        parts=corrected([part]),
        numbers={"teacher": teacher, "squaf": squaf["accuracy"].value},
    )


@statement(
    place="Table 7, VGG-13 to VGG-8",
    says="The student with SQUAF is more accurate than those with other activations (74.95 %, next GELU 73.51 %).",
    needs=[VGG],
    different=f"{_TAUGHT}; {_SPLIT}",
)
def best_student(runs: Runs) -> Evidence:
    """SQUAF against each other student of the paper's table by accuracy."""
    return _leads(runs, VGG)


@statement(
    place="Table 7, VGG-13 to VGG-8",
    says="The student with SQUAF surpasses its teacher (74.95 against 74.64 %), which no other does.",
    needs=[VGG],
    different=f"{_TAUGHT}; {_SPLIT}",
)
def student_surpasses_its_teacher(runs: Runs) -> Evidence:
    """The seeds of the student with SQUAF against the accuracy of the teacher, a single number; the others are told."""
    return _surpasses(runs, VGG)


@statement(
    place="Table 7, WRN-40-2 to WRN-16-2",
    says="The student with SQUAF is more accurate than those with other activations (75.93 %, next DiTAC 75.45 %).",
    needs=[WRN],
    different=TRAINED,
)
def best_wide_student(runs: Runs) -> Evidence:
    """As for VGG-8."""
    return _leads(runs, WRN)


@statement(
    place="Table 7, WRN-40-2 to WRN-16-2",
    says="The student with SQUAF surpasses its teacher (75.93 against 75.61 %), which no other does.",
    needs=[WRN],
    different=TRAINED,
)
def wide_student_surpasses_its_teacher(runs: Runs) -> Evidence:
    """As for VGG-8."""
    return _surpasses(runs, WRN)


@statement(
    place="Table 14 and figure 5",
    says="At the end of distillation SQUAF has the smallest gap between training and validation accuracy.",
    needs=[VGG],
    different=f"{_TAUGHT}; the training accuracy is that of the images as they were changed, during the last epoch",
)
def smallest_gap(runs: Runs) -> Evidence:
    """SQUAF's gap against that of each other student of the paper's table 14, seed by seed."""
    record = runs.benchmark(VGG)
    squaf, others = row_of(record, "SQUAF"), _others(record, "gap_by_seed")
    parts, shown = _against_each(record, "gap_by_seed", "SQUAF's gap smaller than {}'s", larger=False)
    told = ", ".join(f"{row['activation']} {row['gap'].text(2)}" for row in others)
    return Evidence(
        f"SQUAF {squaf['gap'].text(2)} points; {told}. It is shown to be smaller than {shown}",
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
def best_in_a_transformer(runs: Runs) -> Evidence:
    """SQUAF against each of the ten by test accuracy."""
    return best_in_vision(runs.study(SHORT), FIRST, "SQUAF", _IN_TABLE_6)


@statement(
    place="Appendix A.3.2, CIFAR-100",
    says="Training all SQUAFs of a network tends to overfit, so that on CIFAR-100 the first alone is trained.",
    needs=[SHORT],
    labels=[FIRST, EVERY],
    different=f"{_VIT}; the paper says it of all its networks; both get nearly all training images right, so that the "
    "gap says little more than the accuracy",
)
def training_every_squaf_overfits(runs: Runs) -> Evidence:
    """Test accuracy with the first SQUAF trained against that with all of them trained, and the gap between training
    and test accuracy the other way round."""
    study = runs.study(SHORT)
    gaps = {label: _gaps(study, label) for label in (FIRST, EVERY)}
    told = ", ".join(f"{label} {100 * mean(each):.2f}" for label, each in gaps.items())
    accuracy = wins(study, FIRST, [EVERY], "accuracy", larger=True)
    return Evidence(
        f"{accuracies(study, gaps)}; gap between training and test accuracy, in points: {told}",
        parts=corrected([*accuracy, better("the gap is larger where all are trained", gaps[EVERY], gaps[FIRST])]),
    )


def _gaps(study: Study, label: str) -> list[float | None]:
    """Training accuracy less test accuracy, for each seed."""
    pairs = zip(study.outcomes[label].train["accuracy"], study.values(label, "accuracy"), strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]
