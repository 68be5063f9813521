"""Tables and figures of the records of SQUAF's image networks: the rate curve, table 6, the distillation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...measure.record import Record
from ..distilling import PAPER, distil_markdown, draw_distil
from ..image_training import draw_shapes
from ..rates import draw_rate, rate_markdown
from .runs import Runs
from .squaf_networks import ALONE, RATE, VGG, WRN


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


def write_record_figures(runs: Runs) -> list[Path]:
    """Draw the figures of the records that are there."""
    return [
        one.draw(record, runs.folder / one.file)
        for name, record in ((name, runs.benchmark(name)) for name in FIGURES if runs.has(name))
        for one in FIGURES[name]
        if any(one.needs in row for row in record.rows)
    ]


def record_tables(runs: Runs) -> Iterator[str]:
    """A section of the evidence page for each of these records that is there."""
    for name, heading in _HEADINGS.items():
        if not runs.has(name):
            continue
        record = runs.benchmark(name)
        yield f"\n### {heading}\n\n"
        yield rate_markdown(record) if name == RATE else distil_markdown(record)
        given = record.settings
        yield (
            f"\n{len(record.seeds)} seeds of {given['network' if name == RATE else 'student']} on {given['data']}, "
            f"{given['epochs']} epochs with batches of {given['batch']}, {record.hardware.gpu or record.hardware.cpu}: "
            f"mean and standard deviation. Again: `{record.command}`. [Record](evidence/{name}).\n"
        )
        yield _of_the_paper() if name == RATE else _of_the_training(record)
        for one in FIGURES.get(name, ()):
            if (runs.folder / one.file).is_file():
                yield f"\n![{one.caption}](evidence/{one.file})\n"


def _of_the_training(record: Record) -> str:
    """What the command does that neither its options nor the table say."""
    given = record.settings
    taught = f" The teacher's share of the loss is {given['share']:g} at temperature {given['temperature']:g}."
    return (
        "\nCounts of parameters differ from the paper's by the classes of the data set; those that it prints are of "
        f"its table 7.{taught if given['teacher'] else ''} Accuracy is that after the last epoch; the gap is the "
        "accuracy of the training images, as they were changed, during that epoch, less it. SQUAF's Adam has a rate of "
        "0.001 that does not fall; PolyNorm goes along the channels, LReLU has a slope of 0.01, DiTAC begins as GELU.\n"
    )


def _of_the_paper() -> str:
    accuracy = PAPER[None, "vgg8"].accuracy
    return (
        "\nThe paper has, on CIFAR-100: down to 3.4 bits (figure 3, which our copy does not have); "
        f"{accuracy['ReLU']} % with ReLU, {accuracy['GELU']} % with GELU, {accuracy['SQUAF']} % with SQUAF (table 6).\n"
    )
