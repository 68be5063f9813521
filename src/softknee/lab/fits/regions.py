"""Points of a plane in several classes, and which class a network gives to every place around them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError
from ..chart import INK, SOFT, outline
from ..pixels import rgb
from ..sheet import Page
from .page import COLOURS, MARKS, Drawn
from .runs import Fit, Run, mean_of

_SIDE, _GAP, _TITLE, _FOOT, _LEGEND = 1.95, 0.12, 0.42, 0.3, 0.26  # inches
_POINTS = 320  # of the grid along each side
_LIGHT = 0.62  # how much white is in the colour of a region


def is_plane(run: Run) -> bool:
    """Whether a run tells classes apart by two numbers, and there are colours for them."""
    examples = run.examples
    return examples.task == "classification" and examples.input_shape == (2,) and examples.classes <= len(COLOURS)


def bounds_of(run: Run) -> tuple[float, float, float, float]:
    """Left, right, bottom and top: all test points, and a little more."""
    x = run.examples.test_x.double()
    low, high = x.amin(dim=0), x.amax(dim=0)
    room = 0.08 * (high - low)
    (left, bottom), (right, top) = (low - room).tolist(), (high + room).tolist()
    return left, right, bottom, top


@torch.inference_mode()
def classes_at(fit: Fit, place: int, x: Tensor) -> Tensor:
    """The class that the kept model of a seed gives to each row of x."""
    outputs: Any = fit.model(place)(x.float())
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(dim=1)


def decided(fit: Fit, place: int, *, points: int = _POINTS) -> Tensor:
    """The class at every place of a grid, the first row at the top."""
    left, right, bottom, top = bounds_of(fit.run)
    across = torch.linspace(left, right, points, dtype=torch.float64)
    upright = torch.linspace(top, bottom, points, dtype=torch.float64)
    rows, columns = torch.meshgrid(upright, across, indexing="ij")
    return classes_at(fit, place, torch.stack([columns.flatten(), rows.flatten()], dim=1)).reshape(points, points)


def regions(run: Run, *, names: Sequence[str] | None = None) -> Drawn:
    """A panel for each activation: the regions of the median seed by accuracy, the test points, and those it missed.

    names: the activations that are shown; all if it is left out.
    """
    kept = [fit for fit in run.with_models() if any(value is not None for value in fit.each("accuracy"))]
    fits = [fit for fit in kept if names is None or fit.name in names]
    if not fits:
        raise DataError(f"'{run.url}' kept no models, so that no regions can be drawn; train with keep: [models].")
    # As few empty places in the last row as can be, and rather wide than tall.
    columns = len(fits) if len(fits) < 5 else min((5, 4, 3), key=lambda many: -len(fits) % many)
    rows = math.ceil(len(fits) / columns)
    wide = _GAP + columns * (_SIDE + _GAP)
    sheet = Page(wide, rows * (_SIDE + _TITLE) + _LEGEND + _FOOT)
    for index, fit in enumerate(fits):
        left = _GAP + index % columns * (_SIDE + _GAP)
        _panel(sheet, left, index // columns * (_SIDE + _TITLE), fit)
    _legend(sheet, run, rows * (_SIDE + _TITLE) + 0.16)
    sheet.footnote(_footnote(run))
    words = f"{run.data}: the class that a network gives to every place, with the test points"
    return Drawn(sheet.figure, f"{words}; a black rim is a point that it misses. {_footnote(run)}")


def _panel(sheet: Page, left: float, top: float, fit: Fit) -> None:
    place = fit.seed("accuracy")
    mean, own = mean_of(fit.each("accuracy")), fit.each("accuracy")[place]
    title = f"{fit.diverged} seeds diverged" if mean is None else f"{100 * mean:.1f} %"
    own_words = f"seed {fit.number(place)}: {100 * (own or 0.0):.1f} %"
    sheet.write(left, top + 0.1, fit.title, size=9.5, align="left", weight="bold")
    sheet.write(left + _SIDE, top + 0.1, title, size=9.5, align="right")
    sheet.write(left, top + 0.27, own_words, size=7, colour=SOFT, align="left")
    examples = fit.run.examples
    colours = torch.tensor([rgb(colour) for colour in COLOURS[: examples.classes]])
    sheet.image(left, top + _TITLE, _SIDE, _SIDE, (colours * (1 - _LIGHT) + _LIGHT)[decided(fit, place)])
    missed = classes_at(fit, place, examples.test_x) != examples.test_y
    low_x, high_x, low_y, high_y = bounds_of(fit.run)
    for kind in range(examples.classes):
        for wrong in (False, True):
            points = examples.test_x[(examples.test_y == kind) & (missed == wrong)].tolist()
            rows = [
                {
                    "x": left + _SIDE * (x - low_x) / (high_x - low_x),
                    "y": top + _TITLE + _SIDE * (high_y - y) / (high_y - low_y),
                }
                for x, y in points
            ]
            sheet.points(rows, **_mark(kind, wrong))


def _mark(kind: int, wrong: bool) -> dict[str, Any]:
    rim = {"stroke": INK, "strokeWidth": 1.2} if wrong else {"stroke": "white", "strokeWidth": 0.4}
    return {"shape": outline(MARKS[kind]), "fill": COLOURS[kind], "size": 30 if wrong else 20, **rim}


def _legend(sheet: Page, run: Run, top: float) -> None:
    left = 0.2
    for kind, label in enumerate(run.examples.labels):
        sheet.points([{"x": left, "y": top}], **{**_mark(kind, False), "size": 40})
        sheet.write(left + 0.1, top, f"class {label}", size=7.5, align="left", baseline="middle")
        left += 0.32 + 0.07 * len(f"class {label}")
    sheet.points([{"x": left, "y": top}], **{**_mark(0, True), "fill": "white", "size": 40})
    sheet.write(left + 0.1, top, "missed", size=7.5, align="left", baseline="middle")


def _footnote(run: Run) -> str:
    count = run.recipe.seeds.count
    return (
        "One seed was trained."
        if count == 1
        else (f"Shown is the seed with the median accuracy; above each panel the mean over {count} seeds.")
    )
