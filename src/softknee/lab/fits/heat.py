r"""Where SQUAF's start is good: PSNR over the spacing q and the sharpness h = alpha q^2, the paper's table and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ...errors import DataError
from ...measure.estimate import score
from ..chart import INK, SOFT
from ..pixels import coloured
from ..sheet import Page
from .page import Drawn
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
