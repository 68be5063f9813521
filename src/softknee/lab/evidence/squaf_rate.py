"""Statements of the SQUAF paper that the rate curve of VGG-8 decides (`softknee study rate`): bits, modes, shapes.

The paper has CIFAR-100 and the record CIFAR-10, so that what is compared are directions and bits, not the accuracies
themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from ...measure.record import Record
from ..image_training import values_of
from .compared import mean
from .runs import Runs
from .squaf_networks import RATE, TRAINED, Row, row_of, shares
from .statement import ADDED, CANNOT_TELL, Evidence, Part, better, bound, corrected, counted, statements_of

statement = statements_of("squaf")

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
def few_bits_cost_no_accuracy(runs: Runs) -> Evidence:
    """The bits of Huffman's code at the largest weight against 3.4, and SQUAF-P's accuracy there against ReLU's."""
    record = runs.benchmark(RATE)
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
def price_lowers_the_rate(runs: Runs) -> Evidence:
    """The bits of Huffman's code at each weight against those at the next smaller one, and at the largest against
    those at the smallest, seed by seed."""
    rows = _priced(runs.benchmark(RATE))
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
    told = ", ".join(f"{row['weight']:g}: {row['bits']['huffman'].text(3)}" for row in rows)
    return Evidence(f"bits by weight: {told}. {counted(parts)} comparisons are shown", parts=parts)


@statement(
    place="Figure 3 and section 4.4",
    says="Switching SQUAF-P to SQUAF after training generally improves the accuracy, up to that of SQUAF trained as "
    "such.",
    needs=[RATE],
    different=f"{TRAINED}; {_DRAWS}; that the best of them is compared with "
    "SQUAF by a test, and not by its mean, was added with records at hand",
)
def switching_to_the_mean_helps(runs: Runs) -> Evidence:
    """Switched against unswitched at every weight, seed by seed; and the best switched one against SQUAF trained as
    such, which would hold if it were shown to be better and fail if it were shown to be worse."""
    record = runs.benchmark(RATE)
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
    told = ", ".join(f"{weight:g}: {gain:+.2f}" for weight, gain in gains.items())
    return Evidence(
        f"points gained by switching, by weight: {told}; best switched {best['accuracy']['soft'].text(2)} %, trained "
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
def staircase_costs_little(runs: Runs) -> Evidence:
    """At every weight: the mean accuracy of SQUAF-S is at most half a point below that of SQUAF-P."""
    rows = _priced(runs.benchmark(RATE))
    gained = {row["weight"]: row["accuracy"]["step"].value - row["accuracy"]["sampled"].value for row in rows}
    told = ", ".join(f"{weight:g}: {points:+.2f}" for weight, points in gained.items())
    return Evidence(
        f"points of SQUAF-S above SQUAF-P, by weight: {told}",
        parts=[bound(f"at most half a point lost with {weight:g}", one >= -0.5) for weight, one in gained.items()],
        numbers={f"gained_{weight:g}": points for weight, points in gained.items()},
    )


@statement(
    place="Section 3.3, below equation 12",
    says="The entropy R is close to the number of bits that an entropy coder, such as Huffman's, really takes.",
    needs=[RATE],
    different=f"{TRAINED}; {_CODED}, R is over all 10,000, which is part of the difference",
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


@statement(
    place="Appendix A.10, figures 6 to 9",
    says="A dent near the origin, as SiLU and GELU have it, is a very common pattern in learned SQUAFs.",
    needs=[RATE],
    different=f"{TRAINED}; the first layer of VGG-8, begun as ReLU, in place of four networks on ImageNet-1K, whose "
    f"figures are not in our copy of the paper; {ADDED}",
)
def a_dent_near_the_origin(runs: Runs) -> Evidence:
    """Whether with every seed the lowest value in [-4, 4] lies within 1.5 of the origin, and 0.1 or more below the
    highest on either side of it; so it is with GELU and SiLU, not with ReLU, and also with |x|. And whether it is a
    dent as these two have it: left of it nothing rises above 0.1. How deep it is decides nothing."""
    rows = [row for row in runs.benchmark(RATE).rows if row.get("start")]
    dents = {_title(row): [_dent(one) for seed in row["learned"] for one in seed.values()] for row in rows}
    if not any(dents.values()):
        return Evidence("the record has no learned function", parts=[Part("a dent", CANNOT_TELL)])
    told = (
        f"{title} {mean(low for _, low, _ in found):.2f} ({mean(left for *_, left in found):.2f})"
        for title, found in dents.items()
    )
    return Evidence(
        "the lowest value of the learned function (and the highest to the left of it), in the mean over the seeds: "
        f"{', '.join(told)}; GELU has -0.17 (0.00)",
        parts=[
            *(bound(f"{title}: a dent with every seed", all(has for has, *_ in one)) for title, one in dents.items()),
            *(
                bound(f"{title}: as GELU has it", all(has and left <= 0.1 for has, _, left in one))
                for title, one in dents.items()
            ),
        ],
        numbers={title: [low for _, low, _ in found] for title, found in dents.items()},
    )


def _priced(record: Record) -> list[Row]:
    """The rows of SQUAF-P by their weight, those alone that did not diverge with every seed."""
    found = [row for row in record.rows if row["weight"] is not None and "bits" in row]
    return sorted(found, key=lambda row: row["weight"])


def _title(row: Row) -> str:
    return row["activation"] if row["weight"] is None else f"{row['activation']} with weight {row['weight']:g}"


def _dent(shape: Mapping[str, Sequence[float]]) -> tuple[bool, float, float]:
    """Whether a learned SQUAF has a dent, its lowest value there, and the highest to the left of it."""
    return dent_of(values_of(shape, _PLACES))


_PLACES = torch.linspace(-4, 4, 801, dtype=torch.float64)


def dent_of(values: torch.Tensor) -> tuple[bool, float, float]:
    """The same of a function by its values at 801 places of [-4, 4].

    >>> dent_of(torch.nn.functional.silu(_PLACES))[0], dent_of(_PLACES.relu())[0]
    (True, False)
    """
    place = int(values.argmin())
    lowest, left, right = values[place], values[: place + 1].max(), values[place:].max()
    deep = float(min(left, right) - lowest)
    return bool(_PLACES[place].abs() <= 1.5) and deep >= 0.1, float(lowest), float(left)
