"""A function of one input, what each activation made of it, and how far off that is at every place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import DataError
from ..chart import SOFT, Chart, marks, number, points, sized
from ..curves import Run as Points
from ..curves import thin
from .names import power_of_ten
from .page import COLOURS, Drawn
from .runs import Fit, Run

CHOSEN = ("relu", "gelu", "ditac", "squaf")  # what is drawn of many; a larger figure has all
_LONG, _TALL = 490, 72  # pixels of a panel with fit and target


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
    errors = [(one[2] - one[1]).abs().clamp_min(1e-12) for _, one in found]
    low = max(1e-9, min(float(torch.quantile(error, 0.05)) for error in errors))
    reach = low / 2, 2 * max(float(error.max()) for error in errors)
    rows = []
    for line, ((fit, (x, target, y, place)), error) in enumerate(zip(found, errors, strict=True)):
        colour, last = COLOURS[line % len(COLOURS)], line == len(found) - 1
        across = number("x", domain=(float(x[0]), float(x[-1])), axis={"labels": last})
        most = 1.12 * float(target.abs().max())
        gone = f"{fit.diverged} of {len(fit.outcome.diverged)} seeds diverged, " if fit.diverged else ""
        score = f"{gone}MSE {power_of_ten(fit.each('mse')[place] or 0.0)}"
        upright = number("y", domain=(-most, most), axis={"tickCount": 3, "minExtent": 24})
        layers = [
            _line(*_thinned(x, target, most), across, upright, color="#b5b4ae", strokeWidth=3.4),
            _line(*_thinned(x, y, most), across, upright, color=colour, strokeWidth=1.5),
            _at_the_right(score, 10.5),
        ]
        title = {"text": fit.title, "fontSize": 11.5, "fontWeight": "bold"}
        left = sized({"title": title, "layer": layers}, _LONG, _TALL)
        scale = number("y", domain=reach, scale={"type": "log"}, axis={"tickCount": 3, "format": "~e"})
        seed = _at_the_right(f"seed {fit.number(place)}", 9.5)
        stroke = _line(x.tolist(), error.tolist(), across, scale, color=colour, strokeWidth=0.9, clip=True)
        right = sized({"title": {"text": "|fit − target|", "fontSize": 11}, "layer": [stroke, seed]}, 260, _TALL)
        rows.append({"hconcat": [left, right], "spacing": 18})
    title = {
        "text": f"{runs[0].data}: target and fit",
        "subtitle": _footnote(runs),
        "subtitleColor": SOFT,
        "offset": 14,
    }
    figure = {"vconcat": rows, "spacing": 10, "title": title}
    return Drawn(figure, f"{runs[0].data}: grey the target, in colour the fits. {_footnote(runs)}")


def _thinned(x: Tensor, y: Tensor, most: float) -> tuple[Sequence[float], Sequence[float]]:
    """The points that are seen to make a difference."""
    kept = thin(
        Points(tuple(x.tolist()), tuple(y.tolist())), scale_x=_LONG / 2, scale_y=_TALL / (2 * most), tolerance=0.05
    )
    return kept.xs, kept.ys


def _line(x: Sequence[float], y: Sequence[float], across: Chart, upright: Chart, **look: Any) -> Chart:
    return marks("line", points(x, y), {"x": across, "y": upright}, **look)


def _at_the_right(text: str, size: float) -> Chart:
    """Words above the right end of a panel."""
    where = {"x": {"value": "width"}, "y": {"value": 0}, "text": {"field": "text"}}
    return marks("text", [{"text": text}], where, align="right", baseline="bottom", dy=-6, fontSize=size)


def _footnote(runs: Sequence[Run]) -> str:
    count = runs[0].recipe.seeds.count
    seeds = "One seed was trained." if count == 1 else f"Shown is the seed with the median MSE of {count}, and its MSE."
    return f"{seeds} Errors are on a logarithmic scale, the same in every row."
