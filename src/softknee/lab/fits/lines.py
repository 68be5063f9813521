"""A function of one input, what each activation made of it, and how far off that is at every place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import DataError
from .names import power_of_ten
from .page import COLOURS, Drawn, furnish, page
from .runs import Fit, Run

CHOSEN = ("relu", "gelu", "ditac", "squaf")  # what is drawn of many; a larger figure has all
_WIDE, _ROW, _LEFT, _GAP, _ERRORS, _TOP, _FOOT = 9.2, 1.05, 0.45, 0.62, 2.9, 0.52, 0.3  # inches


def is_curve(run: Run) -> bool:
    """Whether a run is about one quantity that depends on one number."""
    examples = run.examples
    return examples.task == "regression" and examples.outputs == 1 and examples.input_shape == (1,)


def curve_of(fit: Fit) -> tuple[Tensor, Tensor, Tensor, int] | None:
    """x in rising order, target, fit of the median seed by MSE, and that seed's place; None where all diverged."""
    if fit.predictions is None or all(value is None for value in fit.each("mse")):
        return None
    place, examples = fit.seed("mse"), fit.run.examples
    x, order = examples.test_x.flatten().double().sort()
    return x, examples.test_y.flatten().double()[order], fit.predictions[place].flatten().double()[order], place


def curves(runs: Sequence[Run], *, names: Sequence[str] | None = None) -> Drawn:
    """A row for each fit of these runs, all of one function: fit over target, and beside them the error."""
    networks_first = sorted(runs, key=lambda run: run.recipe.model.build == "alone")
    fits = [fit for run in networks_first for fit in run.with_predictions() if names is None or fit.name in names]
    found = [(fit, one) for fit in fits if (one := curve_of(fit)) is not None]
    if not found:
        raise DataError(f"{', '.join(repr(run.url) for run in runs)}: there are no predictions of curves to show.")
    with page(_WIDE, _TOP + len(found) * _ROW + _FOOT) as sheet:
        wide = _WIDE - _LEFT - _GAP - _ERRORS - 0.15
        errors = [(one[2] - one[1]).abs().clamp_min(1e-12) for _, one in found]
        low = max(1e-9, min(float(torch.quantile(one, 0.05)) for one in errors))
        sheet.write(_LEFT, 0.08, f"{runs[0].data}: target and fit", size=9, ha="left")
        sheet.write(_LEFT + wide + _GAP, 0.08, "|fit − target|", size=9, ha="left")
        for line, ((fit, (x, target, y, place)), error) in enumerate(zip(found, errors, strict=True)):
            top, colour = _TOP + line * _ROW, COLOURS[line % len(COLOURS)]
            left = sheet.axes(_LEFT, top, wide, _ROW - 0.3)
            right = sheet.axes(_LEFT + wide + _GAP, top, _ERRORS, _ROW - 0.3)
            for axes in (left, right):
                furnish(axes)
                axes.set_xlim(float(x[0]), float(x[-1]))
                axes.set_xticks([-1, -0.5, 0, 0.5, 1] if (float(x[0]), float(x[-1])) == (-1, 1) else axes.get_xticks())
                axes.tick_params(labelbottom=line == len(found) - 1)
            left.plot(x, target, color="#b5b4ae", linewidth=2.6, label="target")
            left.plot(x, y, color=colour, linewidth=1.1, label=fit.title)
            reach = 1.12 * float(target.abs().max())
            left.set_ylim(-reach, reach)
            left.locator_params(axis="y", nbins=3)
            right.plot(x, error, color=colour, linewidth=0.7)
            right.set_yscale("log")
            right.set_ylim(low / 2, 2 * max(float(one.max()) for one in errors))
            gone = f"{fit.diverged} of {len(fit.outcome.diverged)} seeds diverged   " if fit.diverged else ""
            score = f"{gone}MSE {power_of_ten(fit.each('mse')[place] or 0.0)}"
            sheet.write(_LEFT + 0.06, top - 0.02, f"{fit.title}", size=8.5, ha="left", va="bottom", weight="bold")
            sheet.write(_LEFT + wide, top - 0.02, score, size=8, ha="right", va="bottom")
            sheet.write(
                _LEFT + wide + _GAP + _ERRORS,
                top - 0.02,
                f"seed {fit.number(place)}",
                size=7,
                soft=True,
                ha="right",
                va="bottom",
            )
        sheet.footnote(_footnote(runs))
    return Drawn(sheet.figure, f"{runs[0].data}: grey the target, in colour the fits. {_footnote(runs)}")


def _footnote(runs: Sequence[Run]) -> str:
    count = runs[0].recipe.seeds.count
    seeds = "One seed was trained." if count == 1 else f"Shown is the seed with the median MSE of {count}, and its MSE."
    return f"{seeds} Errors are on a logarithmic scale, the same in every row."
