"""A picture, or a function of two inputs, beside what each activation made of it, and the errors below.

Drawn is the seed with the median score; PSNR and SSIM beneath it are means over all seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import DataError
from ..chart import SOFT
from ..pixels import coloured
from ..sheet import Page
from .page import ERRORS, Drawn, power_of_ten, written
from .runs import Fit, Run, mean_of

PAPER = ("relu", "polynorm", "squaf")  # what figure 1 of the SQUAF paper shows beside the original
_COLUMNS, _SIDE, _GAP, _TITLE, _WORDS, _FOOT = 6, 1.5, 0.1, 0.26, 0.36, 0.3  # inches


@dataclass(frozen=True)
class Look:
    """How values are coloured: a ramp of colours and its ends; and which score says how good a fit is."""

    colours: str
    low: float
    high: float
    measure: str


def shape_of(run: Run) -> tuple[int, int] | None:
    """Height and width of what the test part is laid out as; None where it is no picture and no even grid."""
    examples = run.examples
    if examples.picture is not None:
        return examples.picture
    x = examples.test_x
    if examples.task != "regression" or examples.outputs != 1 or x.dim() != 2 or x.shape[1] != 2:
        return None
    sides = [one.unique() for one in x.T]
    if len(sides[0]) * len(sides[1]) != len(x) or not torch.equal(torch.cartesian_prod(*sides), x):
        return None
    return len(sides[0]), len(sides[1])


def truth_of(run: Run) -> Tensor:
    """The target as rows of pixels. A function's first input runs to the right and its second upwards."""
    return _laid_out(run, run.examples.test_y)


def _laid_out(run: Run, values: Tensor) -> Tensor:
    shape = shape_of(run)
    if shape is None:
        raise DataError(f"'{run.url}': its test part is neither a picture nor an even grid of two inputs.")
    found = values.detach().reshape(shape)
    return found if run.examples.picture is not None else found.T.flip(0)


def fitted(fit: Fit, measure: str) -> tuple[Tensor, int] | None:
    """What the median seed gives at every pixel, and that seed's place; None where every seed diverged."""
    if fit.predictions is None or all(value is None for value in fit.each(measure)):
        return None
    place = fit.seed(measure)
    return _laid_out(fit.run, fit.predictions[place]), place


def look_of(run: Run) -> Look:
    if run.examples.picture is not None:
        return Look("gray", 0.0, 1.0, "psnr")
    reach = float(run.examples.test_y.abs().max())
    return Look("RdBu_r", -reach, reach, "mse")


def words_of(fit: Fit, place: int) -> str:
    """The scores beneath a picture, as means over seeds; of a function the MSE of the seed at `place`."""
    if fit.diverged:
        return f"{fit.diverged} of {len(fit.outcome.diverged)} seeds diverged"
    test = fit.outcome.test
    if "psnr" in test and "ssim" in test:
        return f"{mean_of(test['psnr']):.2f} dB, SSIM {mean_of(test['ssim']):.4f}"
    # Errors of seeds may differ by powers of ten, and their mean would be that of the worst.
    return f"MSE {power_of_ten(test['mse'][place] or 0.0)}"


# -- one run: every fit, and its errors --------------------------------------------------------------------


def gallery(run: Run) -> Drawn:
    """Target and fits of one run with a map of errors below each, in as many rows as they need."""
    fits = run.with_predictions()
    if not fits:
        raise DataError(f"'{run.url}' kept no predictions, so that there is no picture to show.")
    look, truth = look_of(run), truth_of(run)
    panels = len(fits) + 1
    # As few empty places in the last row as can be, and rather wide than tall.
    columns = panels if panels <= _COLUMNS else min((6, 5, 4), key=lambda many: -panels % many)
    block = _TITLE + 2 * _SIDE + _GAP + _WORDS
    found = {fit.label: fitted(fit, look.measure) for fit in fits}
    errors = Look(ERRORS, 0.0, _largest([one[0] - truth for one in found.values() if one is not None]), "")
    tall = math.ceil(panels / columns) * block + _FOOT
    sheet = Page(_GAP + columns * (_SIDE + _GAP), tall)
    below = _TITLE + _SIDE + _GAP  # where the errors are in a block
    original = "original" if _is_picture(run) else "target"
    sheet.write(_GAP + _SIDE / 2, 0.08, original, size=9)
    _image(sheet, _GAP, _TITLE, truth, look)
    for place, fit in enumerate(fits, start=1):
        left, top = _GAP + place % columns * (_SIDE + _GAP), place // columns * block
        sheet.write(left + _SIDE / 2, top + 0.08, fit.title, size=9)
        one = found[fit.label]
        if one is None:
            _absent(sheet, left, top + _TITLE, _SIDE, "every seed diverged")
            continue
        _image(sheet, left, top + _TITLE, one[0], look)
        _image(sheet, left, top + below, (one[0] - truth).abs(), errors)
        _scores(sheet, left + _SIDE / 2, top + below + _SIDE, fit, one[1])
    scales = [(look, "target and fits")] * (not _is_picture(run)) + [(errors, f"|fit − {original}|")]
    for place, (scale, words) in enumerate(scales):
        _colour_bar(sheet, below + 0.35 + 0.55 * place, scale, words)
    sheet.footnote(_footnote(run, look))
    words = "Below each fit the size of its error at every place, in one scale."
    return Drawn(sheet.figure, f"{run.data}: target and fits. {words} {_footnote(run, look)}")


def _colour_bar(sheet: Page, top: float, look: Look, words: str) -> None:
    """A level scale of colours, with what it means above and its ends below."""
    left, wide = _GAP + 0.15, _SIDE - 0.3
    sheet.write(left + wide / 2, top - 0.06, words, size=7.5, colour=SOFT, baseline="bottom")
    sheet.image(left, top, wide, 0.1, coloured(torch.linspace(0, 1, 256).expand(2, -1), look.colours))
    for share, value in ((0.0, look.low), (0.5, (look.low + look.high) / 2), (1.0, look.high)):
        sheet.write(left + share * wide, top + 0.13, f"{value:.2g}".replace("-", "−"), size=7, colour=SOFT)


def _largest(errors: Sequence[Tensor]) -> float:
    """The upper end of the scale of errors: all but the largest hundredth lie within it, for every fit."""
    found = max((float(torch.quantile(one.abs().flatten().double(), 0.99)) for one in errors), default=1.0)
    return found or 1.0


# -- several runs: as in the paper -------------------------------------------------------------------------


def side_by_side(runs: Sequence[Run], *, names: Sequence[str] | None = None) -> Drawn:
    """A row for each run: the original and what each activation made of it; `names` are those that are shown."""
    fits = [{fit.label: fit for fit in run.with_predictions()} for run in runs]
    every = dict.fromkeys(label for row in fits for label in row)
    chosen = [
        label for label in every if names is None or any(label in row and row[label].name in names for row in fits)
    ]
    if not chosen:
        asked = "" if names is None else f" of {', '.join(names)}"
        raise DataError(f"{', '.join(repr(run.url) for run in runs)}: no predictions{asked} were kept to show.")
    side, edge = 1.9 if len(chosen) < _COLUMNS else _SIDE, 0.3
    row = side + _WORDS
    sheet = Page(edge + (len(chosen) + 1) * (side + _GAP), _TITLE + len(runs) * row + _FOOT)
    sheet.write(edge + side / 2, 0.08, "original" if _is_picture(runs[0]) else "target", size=9)
    for line, run in enumerate(runs):
        look, top = look_of(run), _TITLE + line * row
        sheet.write(0.17, top + side / 2, run.data, size=9, angle=270, baseline="middle")
        _image(sheet, edge, top, truth_of(run), look, side=side)
        for column, label in enumerate(chosen, start=1):
            left, fit = edge + column * (side + _GAP), fits[line].get(label)
            one = None if fit is None else fitted(fit, look.measure)
            if fit is None or one is None:
                _absent(sheet, left, top, side, "not trained" if fit is None else "every seed diverged")
                continue
            _image(sheet, left, top, one[0], look, side=side)
            _scores(sheet, left + side / 2, top + side, fit, one[1])
    for column, label in enumerate(chosen, start=1):
        title = next(row[label].title for row in fits if label in row)
        sheet.write(edge + column * (side + _GAP) + side / 2, 0.08, title, size=9)
    sheet.footnote(_footnote(runs[0], look_of(runs[0])), left=edge)
    named = ", ".join(run.data for run in runs)
    return Drawn(sheet.figure, f"{named}: originals and fits side by side. {_footnote(runs[0], look_of(runs[0]))}")


# -- pieces ------------------------------------------------------------------------------------------------


def _is_picture(run: Run) -> bool:
    return run.examples.picture is not None


def _image(sheet: Page, left: float, top: float, values: Tensor, look: Look, *, side: float = _SIDE) -> None:
    sheet.image(left, top, side, side, coloured(values, look.colours, look.low, look.high))


def _absent(sheet: Page, left: float, top: float, side: float, why: str) -> None:
    sheet.box(left, top, side, side, color="#f3f2ee", stroke=SOFT, strokeWidth=0.5)
    sheet.write(left + side / 2, top + side / 2, why, size=7.5, colour=SOFT, baseline="middle")


def _scores(sheet: Page, middle: float, top: float, fit: Fit, place: int) -> None:
    """The means over seeds beneath a picture, and which seed the picture is of."""
    sheet.write(middle, top + 0.05, words_of(fit, place), size=7.5)
    sheet.write(middle, top + 0.19, f"seed {fit.number(place)}", size=6.5, colour=SOFT)


def _footnote(run: Run, look: Look) -> str:
    sides = "" if _is_picture(run) else " The first input runs to the right, the second upwards."
    count = run.recipe.seeds.count
    if count == 1:
        return f"One seed was trained.{sides}"
    scores = f"PSNR and SSIM are means over {count} seeds." if _is_picture(run) else "The MSE is its own."
    return f"Shown is the seed with the median {written(look.measure)} of {count}. {scores}{sides}"
