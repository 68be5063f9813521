"""Where SQUAF's start is good: PSNR over the spacing q and the sharpness h = alpha q^2, the paper's table and ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ... import design
from ...design import Fitted
from ...errors import DataError
from ...measure.estimate import score
from ...registry import get
from ..chart import INK, SOFT, Chart, by_name, footnote, lines_legend, marks, number, points, side_by_side, sized, ticks
from ..curves import Run as Points
from ..curves import thin
from ..pixels import coloured
from ..sheet import Page
from .page import COLOURS, Drawn, power_of_ten
from .runs import Fit, Run, mean_of

_CELL_WIDE, _CELL_TALL, _LEFT, _TOP, _GAP, _FOOT = 0.78, 0.52, 0.62, 0.85, 0.3, 0.85  # inches
_FEWEST = 2  # values along each side that make a grid


@dataclass(frozen=True)
class Grid:
    """Cells by (q, h). of: the fit of each; ours: mean PSNR over seeds, None where a seed diverged; paper: its PSNR."""

    q: tuple[float, ...]
    h: tuple[float, ...]
    of: Mapping[tuple[float, float], Fit]
    paper: Mapping[tuple[float, float], float]

    def ours(self, cell: tuple[float, float]) -> float | None:
        return mean_of(self.of[cell].each("psnr")) if cell in self.of else None


def grid_of(run: Run) -> Grid | None:
    """The cells of a run that trains SQUAF from several q and alpha; None of another run."""
    cells: dict[tuple[float, float], Fit] = {}
    for fit in run.fits:
        values = fit.outcome.trial.activation.values
        q, alpha = values.get("q"), values.get("alpha")
        if fit.name == "squaf" and isinstance(q, int | float) and isinstance(alpha, int | float):
            # alpha is written with few digits, and h is a round number.
            cells[float(q), float(f"{alpha * q * q:.3g}")] = fit
    q, h = (tuple(sorted({cell[side] for cell in cells})) for side in (0, 1))
    if len(q) < _FEWEST or len(h) < _FEWEST or not all("psnr" in fit.outcome.test for fit in cells.values()):
        return None
    said = run.recipe.paper.values if run.recipe.paper is not None else {}
    paper = {cell: said[fit.label]["psnr"] for cell, fit in cells.items() if "psnr" in said.get(fit.label, {})}
    return Grid(q, h, cells, paper)


def heat_map(run: Run) -> Drawn:
    """PSNR in every cell, the paper's beside ours, in one scale of colours."""
    grid = grid_of(run)
    if grid is None:
        raise DataError(f"'{run.url}' is no grid of SQUAF's q and alpha with a PSNR in each cell.")
    ours = {cell: value for cell in grid.of if (value := grid.ours(cell)) is not None}
    every = [*ours.values(), *grid.paper.values()]
    if not every:
        raise DataError(f"'{run.url}': in every cell a seed diverged, so that there are no means to show.")
    ends = min(every), max(every)
    columns, rows = len(grid.h), len(grid.q)
    wide, tall = columns * _CELL_WIDE, rows * _CELL_TALL
    panels = [("SQUAF paper", grid.paper)] * bool(grid.paper) + [("softknee", ours)]
    width = _LEFT + len(panels) * wide + (len(panels) - 1) * _GAP + 0.95
    sheet = Page(width, _TOP + tall + _FOOT)
    for place, (title, values) in enumerate(panels):
        left = _LEFT + place * (wide + _GAP)
        sheet.write(left, 0.12, title, size=10, align="left", weight="bold")
        sheet.write(left + wide / 2, 0.4, "h = αq²", colour=SOFT)
        for column, h in enumerate(grid.h):
            sheet.write(left + (column + 0.5) * _CELL_WIDE, _TOP - 0.06, f"{h:g}", baseline="bottom")
        for row, q in enumerate(grid.q):
            if place == 0:
                sheet.write(left - 0.06, _TOP + (row + 0.5) * _CELL_TALL, f"{q:g}", align="right", baseline="middle")
            for column, h in enumerate(grid.h):
                value = values.get((q, h))
                shade = coloured(torch.tensor(value or 0.0), "viridis", *ends).tolist()
                colour = "#efeeea" if value is None else "#" + "".join(f"{round(255 * part):02x}" for part in shade)
                corner = left + column * _CELL_WIDE, _TOP + row * _CELL_TALL
                sheet.box(*corner, _CELL_WIDE, _CELL_TALL, color=colour)
                if words := _words(grid, (q, h), values, mine=values is ours):
                    dark = (ends[1] if value is None else value) - ends[0] < 0.55 * (ends[1] - ends[0])
                    middle = corner[0] + _CELL_WIDE / 2, corner[1] + _CELL_TALL / 2 - 0.07 * words.count("\n")
                    sheet.write(*middle, words, size=7.5, colour="white" if dark else INK, baseline="middle")
    sheet.write(0.2, _TOP + tall / 2, "q", colour=SOFT, baseline="middle")
    for part in range(100):
        shade = coloured(torch.tensor(1 - part / 99), "viridis").tolist()
        colour = "#" + "".join(f"{round(255 * part):02x}" for part in shade)
        sheet.box(width - 0.72, _TOP + part * tall / 100, 0.13, tall / 99, color=colour)
    sheet.write(width - 0.65, _TOP - 0.06, "dB", baseline="bottom")
    for share in (0.0, 0.5, 1.0):
        level = f"{ends[1] - share * (ends[1] - ends[0]):.0f}"
        sheet.write(width - 0.54, _TOP + share * tall, level, size=7, align="left", baseline="middle")
    for line, words in enumerate(_footnote(run)):
        sheet.write(0.12, _TOP + tall + 0.2 + 0.17 * line, words, size=7, colour=SOFT, align="left")
    return Drawn(sheet.figure, f"{run.data}: PSNR of networks that start with this q and h. {' '.join(_footnote(run))}")


def _words(grid: Grid, cell: tuple[float, float], values: Mapping[tuple[float, float], float], *, mine: bool) -> str:
    if cell in values and not mine:
        return f"{values[cell]:.2f}"
    if not mine or cell not in grid.of:
        return ""
    if cell not in values:
        return f"{grid.of[cell].diverged} seeds\ndiverged"
    found = score([one for one in grid.of[cell].each("psnr") if one is not None], larger_is_better=True)
    if found.interval is None:
        return f"{found.value:.2f}"
    return f"{found.value:.2f}\n±{(found.interval[1] - found.interval[0]) / 2:.2f}"


def _footnote(run: Run) -> list[str]:
    count = run.recipe.seeds.count
    words = f"PSNR in dB of {run.data}, stored by a network whose SQUAFs all start with this q and alpha = h/q²."
    if count == 1:
        return [words, "One seed was trained in each cell."]
    return [words, f"softknee: mean over {count} seeds, ± half of its 95 % interval. The paper has one number."]


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
        "subtitle": _line_footnote(runs),
        "subtitleColor": SOFT,
        "offset": 14,
    }
    figure = {"vconcat": rows, "spacing": 10, "title": title}
    return Drawn(figure, f"{runs[0].data}: grey the target, in colour the fits. {_line_footnote(runs)}")


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


def _line_footnote(runs: Sequence[Run]) -> str:
    count = runs[0].recipe.seeds.count
    seeds = "One seed was trained." if count == 1 else f"Shown is the seed with the median MSE of {count}, and its MSE."
    return f"{seeds} Errors are on a logarithmic scale, the same in every row."


TOLERANCES = (0.4, 0.2, 0.1, 0.05, 0.025)
_SHARPNESS = 8.0  # h of the proof's SQUAF: what is not of the two nearest points weighs e^-8
_TERMS = 30  # the rest is below 1e-9
_LOOKS = 2**14  # places on [-1, 1] where errors are looked at


def takagi(x: Tensor) -> Tensor:
    """The function above.

    >>> takagi(torch.tensor([0.0, 0.25, 1 / 3, 0.5], dtype=torch.float64))
    tensor([0.0000, 0.5000, 0.6667, 0.5000], dtype=torch.float64)
    """
    far = x.double().unsqueeze(-1) * 2.0 ** torch.arange(_TERMS, dtype=torch.float64)
    return ((far - far.round()).abs() * 2.0 ** -torch.arange(_TERMS, dtype=torch.float64)).sum(dim=-1)


def modulus(q: float) -> float:
    """omega(q) of Takagi's function: its largest change over a distance of at most q.

    d is even and d(x + y) <= d(x) + d(y), hence so is g: |g(x + h) - g(x)| <= g(h), which is met at x = 0, and
    omega(q) is the largest g on [0, q]. That lies at a third of a dyadic number for q = 2^-m, and these are looked at.

    >>> round(modulus(1.0), 6), round(modulus(0.25), 6)
    (0.666667, 0.541667)
    """
    return float(takagi(torch.linspace(0.0, min(q, 1.0), 3 * 2**11 + 1, dtype=torch.float64)).max())


@dataclass(frozen=True)
class Constructed:
    """The SQUAF of the proof with 2k+1 points on [-1, 1]: its largest error as looked at, and the proof's bound."""

    k: int
    sup: float
    bound: float


def constructed(k: int) -> Constructed:
    """Take the table from the function itself, as the proof does.

    >>> found = constructed(16)
    >>> found.sup <= found.bound
    True
    """
    q = 1 / k
    z = takagi(torch.arange(-k, k + 1, dtype=torch.float64) * q)
    x = torch.linspace(-1.0, 1.0, _LOOKS + 1, dtype=torch.float64)
    values = get("squaf")(x, k=k, q=q, alpha=_SHARPNESS / q**2, z=z, window=None)
    rest = math.exp(-_SHARPNESS) / -math.expm1(-_SHARPNESS)
    return Constructed(k, float((values - takagi(x)).abs().max()), modulus(q) + 4 * float(z.abs().max()) * rest)


def fitted_to(tolerances: Sequence[float] = TOLERANCES) -> list[Fitted]:
    """The smallest SQUAF within each tolerance of Takagi's function on [-1, 1]; all points are summed, so that it is
    smooth."""
    return [design.fit(takagi, low=-1.0, high=1.0, tolerance=one, window=None) for one in tolerances]


def theorem_figure(fits: Sequence[Fitted] | None = None) -> Drawn:
    """The function with some of the fits (left out, those of TOLERANCES), and errors against the number of points."""
    found = fitted_to() if fits is None else fits
    proof = [constructed(2**power) for power in range(9)]
    shown = found[1::2] if len(found) > 3 else found
    x = torch.linspace(-1.0, 1.0, 1501, dtype=torch.float64)
    lines = [("g, continuous and nowhere smooth", "#b5b4ae", 3.0, takagi(x))]
    for near, colour in zip(shown, (COLOURS[1], COLOURS[0], COLOURS[2]), strict=False):
        lines.append((f"k = {near.k}, error {near.sup:.2g}", colour, 1.5, near(x)))
    across = number("x", domain=(-1, 1))
    colours = by_name([line[0] for line in lines], [line[1] for line in lines], legend=lines_legend(columns=2))
    left = [
        marks(
            "line",
            points(x.tolist(), y.tolist(), name=name),
            {"x": across, "y": number("y"), "color": colours},
            strokeWidth=wide,
        )
        for name, _, wide, y in lines
    ]
    counts = [2 * squaf.k + 1 for squaf in proof]
    series = {
        "bound of the proof": (INK, [5, 3], counts, [squaf.bound for squaf in proof]),
        "SQUAF of the proof": (COLOURS[0], [1, 0], counts, [squaf.sup for squaf in proof]),
        "sk.design.fit": (COLOURS[1], [1, 0], [2 * near.k + 1 for near in found], [near.sup for near in found]),
    }
    legend = lines_legend(columns=2)
    where = {
        "x": number("x", title="points of the grid, 2k + 1", axis=ticks((3, 10, 30, 100, 300)), scale={"type": "log"}),
        "y": number("y", axis=ticks((0.01, 0.03, 0.1, 0.3, 1), format="~g"), scale={"type": "log"}),
        "color": by_name([*series], [look[0] for look in series.values()], legend=legend),
        "strokeDash": by_name([*series], [look[1] for look in series.values()], legend=legend),
    }
    right = [
        marks("line", points(xs, ys, name=name), where, point={"size": 26} if dash == [1, 0] else False)
        for name, (_, dash, xs, ys) in series.items()
    ]
    note = "g is Takagi's function. Every fit is the smallest that reaches its tolerance, as found by sk.design.fit."
    figure = side_by_side(
        [
            sized({"title": "SQUAF near a function that has no slope anywhere", "layer": left}, 440, 235),
            sized({"title": "largest error on [−1, 1]", "layer": right}, 280, 235),
        ],
        columns=2,
    )
    figure["title"] = footnote(note)
    words = "Takagi's function and SQUAFs near it; the largest error against the number of points"
    return Drawn(figure, f"{words}, beside the SQUAF of the theorem's proof and its bound.")
