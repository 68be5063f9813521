r"""Where SQUAF's start is good: PSNR over the spacing q and the sharpness h = alpha q^2, the paper's table and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import DataError
from ...measure.estimate import score
from .page import INK, Drawn, page
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
    with page(width, _TOP + tall + _FOOT) as sheet:
        image: Any = None
        for place, (title, values) in enumerate(panels):
            left = _LEFT + place * (wide + _GAP)
            axes = sheet.axes(left, _TOP, wide, tall)
            image = axes.imshow(
                [[values.get((q, h), float("nan")) for h in grid.h] for q in grid.q],
                vmin=ends[0],
                vmax=ends[1],
                cmap="viridis",
                aspect="auto",
            )
            axes.set_facecolor("#efeeea")
            axes.tick_params(length=0, labelsize=8, labelcolor=INK, top=True, labeltop=True, bottom=False)
            axes.tick_params(labelbottom=False, labelleft=place == 0)
            axes.set_xticks(range(columns), [f"{h:g}" for h in grid.h])
            axes.set_yticks(range(rows), [f"{q:g}" for q in grid.q])
            for spine in axes.spines.values():
                spine.set_visible(False)
            for row, q in enumerate(grid.q):
                for column, h in enumerate(grid.h):
                    words = _words(grid, (q, h), values, mine=values is ours)
                    if words:
                        dark = (values.get((q, h), ends[1]) - ends[0]) < 0.55 * (ends[1] - ends[0])
                        axes.text(
                            column,
                            row,
                            words,
                            ha="center",
                            va="center",
                            size=7.5,
                            linespacing=1.25,
                            color="white" if dark else INK,
                        )
            sheet.write(left, 0.12, title, size=10, ha="left", weight="bold")
            sheet.write(left + wide / 2, 0.4, "h = αq²", size=8, soft=True)
        sheet.write(0.2, _TOP + tall / 2, "q", size=8, soft=True, va="center")
        bar = sheet.axes(width - 0.72, _TOP, 0.13, tall)
        made = sheet.figure.colorbar(image, cax=bar)
        made.outline.set_visible(False)  # type: ignore[operator]
        bar.tick_params(length=0, labelsize=7)
        bar.set_title("dB", size=8)
        for line, words in enumerate(_footnote(run)):
            sheet.write(0.12, _TOP + tall + 0.2 + 0.17 * line, words, size=7, soft=True, ha="left")
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
