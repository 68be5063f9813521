"""The SQUAF of every layer as it started and as it was learned, over the pre-activations that it sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...errors import DataError
from ...nn import SQUAF
from ...surgery.modules import activation_modules
from .names import written
from .page import COLOURS, INK, SOFT, Drawn, Page, furnish, page
from .runs import Fit, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS, _WIDE, _TALL, _LEFT, _GAP, _TITLE, _FOOT, _HEAD = 4, 2.1, 1.75, 0.42, 0.42, 0.3, 0.32, 0.34  # inches
_POINTS, _SEEN = 1201, 4096
_MOST_SEEDS = 12  # thin lines of other seeds
_MANY_POINTS = 33  # more than that, and a panel is drawn wide
_SEEN_COLOUR = "#c9c8c2"
_DASHED: Any = (0, (4, 2))


@dataclass(frozen=True)
class Site:
    """One layer: its function over x at the start and after training, of the median seed and of others; the points of
    its grid and its values there; and which share of pre-activations falls between two edges (empty where not known).
    """

    path: str
    x: Tensor
    start: Tensor
    end: Tensor
    others: tuple[Tensor, ...]
    points: Tensor
    at_points: Tensor
    edges: Tensor
    shares: Tensor


def learned_fits(run: Run) -> list[Fit]:
    """The fits of a run whose SQUAFs were trained and can be drawn."""
    return [
        fit
        for fit in run.fits
        if fit.name == "squaf"
        and fit.outcome.trial.activation.learn
        and fit.outcome.trial.activation.per == "layer"
        and (fit.weights or fit.outcome.parameters)
        and any(epoch is None for epoch in fit.outcome.diverged)
    ]


def sites_of(fit: Fit, measure: str) -> list[Site]:
    """Every SQUAF of a fit in order of depth, of the median seed by a test score."""
    chosen = fit.seed(measure)
    alive = [place for place, epoch in enumerate(fit.outcome.diverged) if epoch is None and place != chosen]
    before, after = _squafs(fit.model(chosen, trained=False)), _after(fit, chosen)
    others = [_after(fit, place) for place in alive[: _MOST_SEEDS - 1]]
    alone = fit.outcome.trial.model.build == "alone"  # what comes in is the data itself
    seen = _seen(fit, chosen) if fit.weights and not alone else {}
    found = []
    for path, module in after.items():
        reach = max(_reach(module), _reach(before[path]))
        x = torch.linspace(-reach, reach, _POINTS)
        edges, shares = _histogram(seen[path], reach) if path in seen else (torch.empty(0), torch.empty(0))
        with torch.inference_mode():
            found.append(
                Site(
                    path=path,
                    x=x,
                    start=before[path](x),
                    end=module(x),
                    others=tuple(one[path](x) for one in others),
                    points=_grid(module),
                    at_points=module(_grid(module)),
                    edges=edges,
                    shares=shares,
                )
            )
    return found


def _squafs(model: nn.Module) -> dict[str, SQUAF]:
    return {path: one for path, one in activation_modules(model).items() if isinstance(one, SQUAF)}


def _after(fit: Fit, place: int) -> dict[str, SQUAF]:
    """The trained SQUAFs of a seed: from its kept model, or from the ends that the record has."""
    if fit.weights:
        return _squafs(fit.model(place))
    found = _squafs(fit.model(place, trained=False))
    for path, module in found.items():
        for p in module.params:
            name = f"{path}.{p.name}" if path else p.name
            value = module.effective(p).detach().double()
            width = value.shape[-1] if value.dim() and p.name in ("z", "grid") else 1
            names = [name] if width == 1 else [f"{name}[{entry}]" for entry in range(width)]
            ends = [
                fit.outcome.parameters[one]["end"][place] if one in fit.outcome.parameters else None for one in names
            ]
            if any(one is not None for one in ends):
                flat = value.flatten()
                new = [float(flat[entry]) if one is None else one for entry, one in enumerate(ends)]
                with torch.no_grad():
                    module._write(p, torch.tensor(new, dtype=torch.float64).reshape(value.shape))
    return found


def _grid(module: SQUAF) -> Tensor:
    if module.k is None:
        return module.grid.detach().flatten()
    return torch.arange(-module.k, module.k + 1) * module.q.detach().float().cpu().reshape(())


def _reach(module: SQUAF) -> float:
    """To the last point and half a step beyond, where SQUAF is all but constant."""
    points = _grid(module)
    return float(points.abs().max()) + float(points.diff().max())


@torch.inference_mode()
def _seen(fit: Fit, place: int) -> dict[str, Tensor]:
    """What comes into each SQUAF for some of the training examples."""
    model, found = fit.model(place), {}
    handles = [
        module.register_forward_pre_hook(lambda _, args, path=path: found.__setitem__(path, args[0].flatten()))
        for path, module in _squafs(model).items()
    ]
    x = fit.run.examples.train_x
    model(x[:: max(1, len(x) // _SEEN)])
    for handle in handles:
        handle.remove()
    return found


def _histogram(values: Tensor, reach: float) -> tuple[Tensor, Tensor]:
    """60 equal parts of [-reach, reach] and the share of values in each; those outside are in none."""
    counts, edges = torch.histogram(values.float().cpu(), bins=60, range=(-reach, reach))
    return edges, counts / values.numel()


# -- the figure --------------------------------------------------------------------------------------------


def shapes(run: Run, *, measure: str) -> Drawn:
    """A panel for each layer of each trained SQUAF."""
    fits = learned_fits(run)
    if not fits:
        raise DataError(f"'{run.url}' has no SQUAF with learned parameters to draw.")
    sites = {fit.label: sites_of(fit, measure) for fit in fits}
    several = len(fits) > 1
    panels = [
        (_title(fit, depth, several=several, many=len(sites[fit.label]) > 1), site)
        for fit in fits
        for depth, site in enumerate(sites[fit.label], start=1)
    ]
    fine = any(len(site.points) > _MANY_POINTS for _, site in panels)
    panel, most = (_WIDE * 2, 2) if fine else (_WIDE, _COLUMNS)
    columns = min(most, max(len(one) for one in sites.values())) if not fine else min(most, len(panels))
    panel = max(panel, (5.4 - _LEFT - 0.15 - (columns - 1) * _GAP) / columns)  # the legend needs as much
    row = _TITLE + _TALL + 0.22
    wide = _LEFT + columns * panel + (columns - 1) * _GAP + 0.15
    with page(wide, _HEAD + math.ceil(len(panels) / columns) * row + _FOOT) as sheet:
        every = [site for _, site in panels]
        _legend(sheet, others=any(one.others for one in every), seen=any(len(one.shares) for one in every))
        for index, (title, site) in enumerate(panels):
            left, top = _LEFT + index % columns * (panel + _GAP), _HEAD + index // columns * row
            sheet.write(left, top + 0.1, title, size=8.5, ha="left")
            _panel(sheet.axes(left, top + _TITLE, panel, _TALL), site)
        sheet.footnote(f"In colour the seed with the median {written(measure)}{_numbers(fits, measure)}.")
    words = "SQUAF of every layer before and after training; dots are the points of its grid"
    return Drawn(sheet.figure, f"{run.data}: {words}.")


def _title(fit: Fit, depth: int, *, several: bool, many: bool) -> str:
    layer = f"layer {depth}" if many else ""
    return ", ".join(one for one in (fit.title if several or not many else "", layer) if one)


def _numbers(fits: Sequence[Fit], measure: str) -> str:
    each = dict.fromkeys(fit.number(fit.seed(measure)) for fit in fits)
    return f" (seed {next(iter(each))})" if len(each) == 1 else ""


def _panel(axes: Axes, site: Site) -> None:
    furnish(axes)
    heights = torch.cat([site.start, site.end, *site.others])
    low, high = float(heights.min()), float(heights.max())
    room = 0.08 * ((high - low) or 1.0)
    floor = low - (3 * room if len(site.shares) else room)
    axes.set(xlim=(float(site.x[0]), float(site.x[-1])), ylim=(floor, high + room))
    axes.locator_params(nbins=5)
    if len(site.shares):
        tallest = float(site.shares.max()) or 1.0
        axes.stairs(
            (floor + 3.5 * room * site.shares / tallest).numpy(),
            site.edges.numpy(),
            baseline=floor,
            fill=True,
            color=_SEEN_COLOUR,
            linewidth=0,
            zorder=1,
        )
    fine = len(site.points) > _MANY_POINTS
    for other in site.others:
        axes.plot(site.x, other, color=COLOURS[0], linewidth=0.5, alpha=0.3, zorder=2)
    axes.plot(
        site.x, site.start, color=SOFT if fine else INK, linewidth=0.6 if fine else 1.1, linestyle=_DASHED, zorder=3
    )
    axes.plot(site.x, site.end, color=COLOURS[1], linewidth=1.2 if fine else 1.7, zorder=4)
    dots: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 1.8 if fine else 2.8}
    axes.plot(site.points, site.at_points, color=COLOURS[1], zorder=5, **dots)


def _legend(sheet: Page, *, others: bool, seen: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [
        Line2D([], [], color=INK, linewidth=1.1, linestyle=_DASHED),
        Line2D([], [], color=COLOURS[1], linewidth=1.7, marker="o", markersize=2.8),
    ]
    words = ["start", "learned"]
    if others:
        handles.append(Line2D([], [], color=COLOURS[0], linewidth=0.8, alpha=0.5))
        words.append("other seeds")
    if seen:
        handles.append(Patch(color=_SEEN_COLOUR))
        words.append("pre-activations")
    sheet.figure.legend(
        handles,
        words,
        loc="upper left",
        bbox_to_anchor=(0.1 / sheet.wide, 1.0),
        ncols=len(words),
        frameon=False,
        fontsize=8,
        handlelength=1.8,
        columnspacing=1.4,
    )
