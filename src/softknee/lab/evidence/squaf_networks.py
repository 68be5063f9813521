"""Statements of the SQUAF paper about image networks: its rate curve, its table 6, its distillation.

They are judged by records of `softknee study rate` and `softknee study distil`. The paper has CIFAR-100; where that is
not at hand the records are of CIFAR-10, and what is compared are directions and bits, not the accuracies themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from ...errors import DataError
from ...measure.record import Record
from ...measure.significance import compare_each
from ..image_training import values_of
from .compared import against, best_in_vision, mean
from .runs import Runs
from .statement import ADDED, CANNOT_TELL, FEWEST_PAIRS, Evidence, Part, bound, corrected, counted, statements_of

statement = statements_of("squaf")

RATE = "h200-squaf-rate-cifar-10.json"
ALONE = "h200-squaf-vgg8-cifar-10.json"
VGG, WRN = "h200-squaf-distil-vgg-cifar-10.json", "h200-squaf-distil-wrn-cifar-10.json"
SHORT = "squaf-table-6-vit-short"
FIRST, EVERY = "squaf first", "squaf"  # which of its SQUAFs are trained
_IN_TABLE_6 = (
    "relu", "gelu", "leaky_relu", "prelu", "silu", "swish", "crrelu", "polyrelu", "polynorm", "ditac",
)  # fmt: skip
_OTHER = "CIFAR-10 in place of CIFAR-100, fewer epochs and larger batches than the paper's 240 of 64"
_TAUGHT = "CIFAR-10 in place of CIFAR-100; epochs and batches as below the table, where the paper has 240 of 64"

_VIT = (
    "CIFAR-10 in place of CIFAR-100, 100 epochs of images of 32 x 32 in place of 300 of 224 x 224, crops and mirror "
    "images in place of RandAugment, mixup, CutMix and erasing"
)

Row = Mapping[str, Any]


def _priced(record: Record) -> list[Row]:
    """The rows of SQUAF-P by their weight, those alone that did not diverge with every seed."""
    found = [row for row in record.rows if row["weight"] is not None and "bits" in row]
    return sorted(found, key=lambda row: row["weight"])


def _row(record: Record, activation: str) -> Row:
    for row in record.rows:
        if row["activation"] == activation and "accuracy" in row:
            return row
    raise DataError(f"The record of {record.kind!r} has no {activation} that came to its end; run it whole.")


def _better(says: str, first: Sequence[float | None], second: Sequence[float | None], *, larger: bool = True) -> Part:
    """Seed by seed: is the first better? The rules are those of `statement.py`."""
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if len(pairs) < FEWEST_PAIRS:
        return Part(says, CANNOT_TELL)
    found = compare_each([a for a, _ in pairs], [b for _, b in pairs])
    return Part.compared(says, found, larger=larger)


@statement(
    place="Figure 3 and section 4.4",
    says="With SQUAF-P the activations of VGG-8 take down to 3.4 bits in place of 32, and the accuracy is still above "
    "that with ReLU.",
    needs=[RATE],
    different=_OTHER,
)
def few_bits_cost_no_accuracy(runs: Runs) -> Evidence:
    """The bits of Huffman's code at the largest weight against 3.4, and SQUAF-P's accuracy there against ReLU's."""
    record = runs.benchmark(RATE)
    row, relu = _priced(record)[-1], _row(record, "ReLU")
    bits = row["bits"]["huffman"].value
    mine, theirs = row["accuracy_by_seed"]["sampled"], relu["accuracy_by_seed"]["soft"]
    (part,) = corrected([_better("SQUAF-P more accurate than ReLU at the largest weight", mine, theirs)])
    return Evidence(
        f"weight {row['weight']:g}: {bits:.3f} bits per activation (Huffman), {row['accuracy']['sampled'].text(2)} %; "
        f"ReLU with 32 bits {relu['accuracy']['soft'].text(2)} %",
        parts=[bound("at most 3.4 bits", bits <= 3.4), part],
        numbers={"bits": bits, "sampled": row["accuracy"]["sampled"].value, "relu": relu["accuracy"]["soft"].value},
    )


@statement(
    place="Figure 3",
    says="A larger weight of the rate gives fewer bits, from weight to weight.",
    needs=[RATE],
    different=_OTHER,
)
def price_lowers_the_rate(runs: Runs) -> Evidence:
    """The bits of Huffman's code at each weight against those at the next smaller one, seed by seed."""
    rows = _priced(runs.benchmark(RATE))
    parts = corrected(
        [
            _better(
                f"fewer bits with {after['weight']:g} than with {before['weight']:g}",
                after["bits_by_seed"]["huffman"],
                before["bits_by_seed"]["huffman"],
                larger=False,
            )
            for before, after in pairwise(rows)
        ]
    )
    told = ", ".join(f"{row['weight']:g}: {row['bits']['huffman'].text(3)}" for row in rows)
    return Evidence(f"bits by weight: {told}. {counted(parts)} steps are shown", parts=parts)


@statement(
    place="Figure 3 and section 4.4",
    says="Switching SQUAF-P to SQUAF after training generally improves the accuracy, up to that of SQUAF trained as "
    "such.",
    needs=[RATE],
    different=_OTHER,
)
def switching_to_the_mean_helps(runs: Runs) -> Evidence:
    """Switched against unswitched at every weight, seed by seed; and the best switched mean against SQUAF's."""
    record = runs.benchmark(RATE)
    rows, trained = _priced(record), _row(record, "SQUAF")
    parts = corrected(
        [
            _better(
                f"SQUAF better than SQUAF-P with weight {row['weight']:g}",
                row["accuracy_by_seed"]["soft"],
                row["accuracy_by_seed"]["sampled"],
            )
            for row in rows
        ]
    )
    gains = {row["weight"]: row["accuracy"]["soft"].value - row["accuracy"]["sampled"].value for row in rows}
    best = max(row["accuracy"]["soft"].value for row in rows)
    told = ", ".join(f"{weight:g}: {gain:+.2f}" for weight, gain in gains.items())
    return Evidence(
        f"points gained by switching, by weight: {told}; best switched {best:.2f} %, trained with SQUAF "
        f"{trained['accuracy']['soft'].text(2)} %. {counted(parts)} gains are shown",
        parts=[*parts, bound("as accurate as SQUAF itself", best >= trained["accuracy"]["soft"].value)],
        numbers={f"gain_{weight:g}": gain for weight, gain in gains.items()},
    )


@statement(
    place="Appendix A.4, SQUAF-S",
    says="Switching SQUAF-P to the staircase SQUAF-S after training does not degrade the accuracy much where alpha is "
    "large enough (ViT-T: not at all).",
    needs=[RATE],
    different=_OTHER + "; VGG-8 in place of ViT-T",
)
def staircase_costs_little(runs: Runs) -> Evidence:
    """At every weight: the mean accuracy of SQUAF-S is at most half a point below that of SQUAF-P."""
    rows = _priced(runs.benchmark(RATE))
    lost = {row["weight"]: row["accuracy"]["sampled"].value - row["accuracy"]["step"].value for row in rows}
    told = ", ".join(f"{weight:g}: {points:+.2f}" for weight, points in lost.items())
    return Evidence(
        f"points lost by switching to SQUAF-S, by weight: {told}",
        parts=[bound(f"at most half a point with {weight:g}", points <= 0.5) for weight, points in lost.items()],
        numbers={f"lost_{weight:g}": points for weight, points in lost.items()},
    )


@statement(
    place="Section 3.3, below equation 12",
    says="The entropy R is close to the number of bits that an entropy coder, such as Huffman's, really takes.",
    needs=[RATE],
    different=_OTHER,
)
def entropy_is_what_is_coded(runs: Runs) -> Evidence:
    """At every weight: Huffman's bits with tables and headers are within 0.1 bits of R over the test images."""
    rows = _priced(runs.benchmark(RATE))
    away = {row["weight"]: row["bits"]["huffman"].value - row["bits"]["rate"].value for row in rows}
    ranged = {row["weight"]: row["bits"]["rans"].value - row["bits"]["rate"].value for row in rows}
    told = ", ".join(f"{weight:g}: {one:+.3f} ({ranged[weight]:+.3f})" for weight, one in away.items())
    return Evidence(
        f"Huffman's bits (a range coder's) less R, by weight: {told}",
        parts=[bound(f"within 0.1 bits with {weight:g}", abs(one) <= 0.1) for weight, one in away.items()],
        numbers={f"huffman_{weight:g}": one for weight, one in away.items()},
    )


def _leads(record: Record) -> tuple[list[Part], str]:
    """SQUAF against every other activation of a record of `study distil`, by accuracy."""
    squaf, others = _row(record, "SQUAF"), _others(record)
    parts = corrected(
        [
            _better(f"SQUAF better than {row['activation']}", squaf["accuracy_by_seed"], row["accuracy_by_seed"])
            for row in others
        ]
    )
    best = max(others, key=lambda row: row["accuracy"].value)
    told = f"SQUAF {squaf['accuracy'].text(2)} %, next {best['activation']} {best['accuracy'].text(2)} %"
    return parts, f"{told}. SQUAF is shown to be better than {counted(parts)}"


def _others(record: Record) -> list[Row]:
    return [row for row in record.rows if "accuracy" in row and not row["activation"].startswith(("teacher", "SQUAF"))]


@statement(
    place="Table 6, VGG-8",
    says="In VGG-8 SQUAF is more accurate than all ten other activations, 1.54 points above the next (DiTAC) and 2.21 "
    "above ReLU.",
    needs=[ALONE],
    different=_TAUGHT,
)
def best_in_a_small_network(runs: Runs) -> Evidence:
    """SQUAF against each other activation that did not diverge, by test accuracy."""
    parts, told = _leads(runs.benchmark(ALONE))
    return Evidence(told, parts=parts)


def _surpasses(runs: Runs, name: str) -> Evidence:
    record = runs.benchmark(name)
    parts, told = _leads(record)
    teacher = next(row for row in record.rows if row["activation"].startswith("teacher"))["accuracy"].value
    squaf, others = _row(record, "SQUAF")["accuracy"].value, _others(record)
    return Evidence(
        f"{told}; the teacher has {teacher:.2f} %",
        parts=[
            *parts,
            bound("the student with SQUAF surpasses its teacher", squaf > teacher),
            bound("no other student does", all(row["accuracy"].value <= teacher for row in others)),
        ],
        numbers={"teacher": teacher, "squaf": squaf},
    )


@statement(
    place="Table 7, VGG-13 to VGG-8",
    says="The student with SQUAF is more accurate than those with other activations, and, it alone, than its teacher "
    "(74.95 against 74.64 %).",
    needs=[VGG],
    different=_TAUGHT,
)
def student_surpasses_its_teacher(runs: Runs) -> Evidence:
    """SQUAF against each other student by accuracy; the means of the students against the teacher."""
    return _surpasses(runs, VGG)


@statement(
    place="Table 7, WRN-40-2 to WRN-16-2",
    says="The student with SQUAF is more accurate than those with other activations, and, it alone, than its teacher "
    "(75.93 against 75.61 %).",
    needs=[WRN],
    different=_TAUGHT,
)
def wide_student_surpasses_its_teacher(runs: Runs) -> Evidence:
    """As for VGG-8."""
    return _surpasses(runs, WRN)


@statement(
    place="Table 14 and figure 5",
    says="At the end of distillation SQUAF has the smallest gap between training and validation accuracy.",
    needs=[VGG],
    different=_TAUGHT,
)
def smallest_gap(runs: Runs) -> Evidence:
    """SQUAF's gap against that of each other student, seed by seed."""
    record = runs.benchmark(VGG)
    squaf, others = _row(record, "SQUAF"), _others(record)
    parts = corrected(
        [
            _better(
                f"SQUAF's gap smaller than {row['activation']}'s",
                squaf["gap_by_seed"],
                row["gap_by_seed"],
                larger=False,
            )
            for row in others
        ]
    )
    told = ", ".join(f"{row['activation']} {row['gap'].text(2)}" for row in others)
    return Evidence(
        f"SQUAF {squaf['gap'].text(2)} points; {told}. It is shown to be smaller than {counted(parts)}",
        parts=parts,
        numbers={row["activation"]: row["gap"].value for row in (squaf, *others)},
    )


@statement(
    place="Table 6, VGG-8",
    says="In VGG-8 SQUAF is more accurate than ReLU, by 2.21 points, and than GELU, by 2.63.",
    needs=[RATE],
    different=f"{_OTHER}; {ADDED}",
)
def better_than_relu_and_gelu(runs: Runs) -> Evidence:
    """SQUAF of the rate curve against ReLU and GELU beside it, seed by seed."""
    record = runs.benchmark(RATE)
    soft, *others = (_row(record, name) for name in ("SQUAF", "ReLU", "GELU"))
    mine = soft["accuracy_by_seed"]["soft"]
    parts = [
        _better(f"SQUAF more accurate than {row['activation']}", mine, row["accuracy_by_seed"]["soft"])
        for row in others
    ]
    told = ", ".join(f"{row['activation']} {row['accuracy']['soft'].text(2)} %" for row in (soft, *others))
    return Evidence(told, parts=corrected(parts))


@statement(
    place="Table 6, ViT-T",
    says="In ViT-T SQUAF, of which the first is trained, is more accurate than all ten other activations, 1.09 points "
    "above the next (ReLU and PReLU) and 1.31 above GELU.",
    needs=[SHORT],
    different=_VIT,
)
def best_in_a_transformer(runs: Runs) -> Evidence:
    """SQUAF against each of the ten by test accuracy."""
    return best_in_vision(runs.study(SHORT), FIRST, "SQUAF", _IN_TABLE_6)


@statement(
    place="Appendix A.3.2, CIFAR-100",
    says="Training all SQUAFs of a network tends to overfit, so that on CIFAR-100 the first alone is trained.",
    needs=[SHORT],
    labels=[FIRST, EVERY],
    different=_VIT,
)
def training_every_squaf_overfits(runs: Runs) -> Evidence:
    """Test accuracy with the first SQUAF trained against that with all of them trained."""
    return against(runs.study(SHORT), FIRST, EVERY)


@statement(
    place="Appendix A.10, figures 6 to 9",
    says="A dent near the origin, as SiLU and GELU have it, is a very common pattern in learned SQUAFs.",
    needs=[RATE],
    different=f"{_OTHER}; the first layer of VGG-8, begun as ReLU, in place of four networks on ImageNet-1K; {ADDED}",
)
def a_dent_near_the_origin(runs: Runs) -> Evidence:
    """Whether with every seed the lowest value in [-2, 2] lies within 1 of the origin, and 0.1 or more below the
    highest on either side of it; so it is with GELU, and not with ReLU."""
    rows = [row for row in runs.benchmark(RATE).rows if row.get("start")]
    dents = {_title(row): [_dent(one) for seed in row["learned"] for one in seed.values()] for row in rows}
    if not any(dents.values()):
        return Evidence("the record has no learned function", parts=[Part("a dent", CANNOT_TELL)])
    return Evidence(
        "the lowest value of the learned function, in the mean over the seeds: "
        + ", ".join(f"{title} {mean(low for _, low in found):.2f}" for title, found in dents.items()),
        parts=[bound(f"{title}: a dent with every seed", all(has for has, _ in one)) for title, one in dents.items()],
        numbers={title: [low for _, low in found] for title, found in dents.items()},
    )


def _title(row: Row) -> str:
    return row["activation"] if row["weight"] is None else f"{row['activation']} with weight {row['weight']:g}"


def _dent(shape: Mapping[str, Sequence[float]]) -> tuple[bool, float]:
    """Whether a learned SQUAF has a dent, and its lowest value there."""
    x = torch.linspace(-2, 2, 401, dtype=torch.float64)
    found = values_of(shape, x)
    place = int(found.argmin())
    deep = min(float(side.max() - found[place]) for side in (found[: place + 1], found[place:]))
    return bool(x[place].abs() <= 1) and deep >= 0.1, float(found[place])
