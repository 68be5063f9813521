"""Figures of a study's report, as PNG beside its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from softknee.files import write_whole
from softknee.lab.report import summarise
from softknee.lab.report.drawing import FEWEST_DRAWN, pdf_figures

from .lambda_gelu.findings import CAPTION, FIGURE, order_figure
from .runs import Runs
from .tables import TABLE_I

# Which figures of a report the page shows, by study.
DRAWN: dict[str, Sequence[str]] = {
    "smelu-figure-4": ("plane",),
    "smelu-figure-13": ("plane",),
    "smelu-figure-3": ("plane",),
    "smelu-figure-3-twelve": ("plane",),
    **dict.fromkeys(TABLE_I, ("hardness", "validation-accuracy", FIGURE)),
    "mollification-table-1": ("plane", "validation-accuracy"),
    "mollification-table-2": ("plane", "validation-accuracy"),
    "mollification-table-2-augmented": ("validation-accuracy",),
}


_INTERVALS = ", 95 % intervals (of the difference where there are four models or more)"


def file_of(study: str, figure: str) -> str:
    """The name of the file beside the records of the study."""
    return f"{study}-{figure}.png"


def write_figures(runs: Runs) -> list[Path]:
    """Draw the figures of the studies that are there, whole or in part."""
    written = []
    for name, wanted in DRAWN.items():
        if name not in runs.names:
            continue
        study = runs.study(name)
        report = pdf_figures(summarise(runs.recipe(name), list(study.outcomes.values())), png=True)
        found = {figure: content for figure, (content, _) in report.items()}
        if FIGURE in wanted and (drawn := order_figure(study)) is not None:
            found[FIGURE] = drawn
        for figure in wanted:
            if figure in found:
                path = runs.paths[name].with_name(file_of(name, figure))
                written.append(write_whole(path, found[figure], what="figure"))
    return written


def figures_of(runs: Runs) -> list[tuple[str, str, str]]:
    """(study, file, caption) of the figures that are there."""
    captions = {
        "plane": f"Accuracy or loss against prediction difference{_INTERVALS}; a line joins the values of a knob",
        "hardness": "The learned knob by depth, mean over seeds from the lowest to the highest; dotted the start",
        "validation-accuracy": "Validation accuracy over the epochs, mean over seeds with its 95 % interval, which "
        "stands at the end where many lines would hide it",
        FIGURE: CAPTION,
    }

    def caption(name: str, figure: str) -> str:
        few = all(len(one.diverged) < FEWEST_DRAWN for one in runs.study(name).outcomes.values())
        without = captions[figure].replace(_INTERVALS, " of two models each, which have no interval")
        return without if few else captions[figure]

    return [
        (name, file_of(name, figure), caption(name, figure))
        for name, wanted in DRAWN.items()
        for figure in wanted
        if name in runs.paths and runs.paths[name].with_name(file_of(name, figure)).is_file()
    ]
