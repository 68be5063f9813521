"""The SQUAF of every layer as it started and as it was learned, over the pre-activations that it sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import DataError
from ...nn import SQUAF
from ...surgery.modules import activation_modules
from ..chart import INK, Chart, by_name, footnote, lines_legend, marks, number, points, sized
from .names import written
from .page import COLOURS, Drawn
from .runs import Fit, Run

_COLUMNS, _TALL = 4, 168  # panels in a row; pixels
_POINTS, _SEEN = 1201, 4096
_MOST_SEEDS = 12  # thin lines of other seeds
_MANY_POINTS = 33  # more than that, and a panel is drawn wide
_LOOKS: dict[str, tuple[str, list[int]]] = {
    "start": (INK, [5, 3]),
    "learned": (COLOURS[1], [1, 0]),
    "other seeds": (COLOURS[0], [1, 0]),
    "pre-activations": ("#c9c8c2", [1, 0]),
}


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
    columns = min(2, len(panels)) if fine else min(_COLUMNS, max(len(layers) for layers in sites.values()))
    wide = max(400 if fine else 200, 440 // columns)  # the legend needs as much
    every = [site for _, site in panels]
    names = ["start", "learned"] + ["other seeds"] * any(site.others for site in every)
    names += ["pre-activations"] * any(len(site.shares) for site in every)
    figure = {
        "concat": [sized(_panel(title, site, names), wide, _TALL) for title, site in panels],
        "columns": columns,
        "resolve": {"scale": {"color": "shared", "strokeDash": "shared"}},
        "title": footnote(f"In colour the seed with the median {written(measure)}{_numbers(fits, measure)}."),
    }
    words = "SQUAF of every layer before and after training; dots are the points of its grid"
    return Drawn(figure, f"{run.data}: {words}.")


def _title(fit: Fit, depth: int, *, several: bool, many: bool) -> str:
    layer = f"layer {depth}" if many else ""
    return ", ".join(one for one in (fit.title if several or not many else "", layer) if one)


def _numbers(fits: Sequence[Fit], measure: str) -> str:
    each = dict.fromkeys(fit.number(fit.seed(measure)) for fit in fits)
    return f" (seed {next(iter(each))})" if len(each) == 1 else ""


def _panel(title: str, site: Site, names: Sequence[str]) -> Chart:
    heights = torch.cat([site.start, site.end, *site.others])
    low, high = float(heights.min()), float(heights.max())
    room = 0.08 * ((high - low) or 1.0)
    floor = low - (3 * room if len(site.shares) else room)
    x = number("x", domain=(float(site.x[0]), float(site.x[-1])), axis={"tickCount": 5})
    y = number("y", domain=(floor, high + room), axis={"tickCount": 5})
    fine = len(site.points) > _MANY_POINTS
    legend = lines_legend(orient="top")
    looks = {name: _LOOKS[name] for name in names}
    colour = by_name(names, [look[0] for look in looks.values()], legend=legend)
    where = {"x": x, "y": y, "color": colour}
    where["strokeDash"] = by_name(names, [look[1] for look in looks.values()], legend=legend)
    tallest = float(site.shares.max()) or 1.0 if len(site.shares) else 1.0
    bars = [
        {"name": "pre-activations", "x": a, "to": b, "y": floor, "top": floor + 3.5 * room * share / tallest}
        for a, b, share in zip(site.edges.tolist(), site.edges.tolist()[1:], site.shares.tolist(), strict=False)
    ]
    bar_sides = {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"field": "top"}, "color": colour}
    layers = [marks("rect", bars, bar_sides)] if bars else []
    layers += [
        marks(
            "line",
            points(site.x[::3].tolist(), other[::3].tolist(), name="other seeds"),
            where,
            strokeWidth=0.7,
            opacity=0.4,
        )
        for other in site.others
    ]
    layers += [
        marks(
            "line", points(site.x.tolist(), site.start.tolist(), name="start"), where, strokeWidth=0.8 if fine else 1.5
        ),
        marks(
            "line", points(site.x.tolist(), site.end.tolist(), name="learned"), where, strokeWidth=1.6 if fine else 2.2
        ),
        marks(
            "circle",
            points(site.points.tolist(), site.at_points.tolist(), name="learned"),
            where,
            size=10 if fine else 20,
            opacity=1,
        ),
    ]
    return {"title": {"text": title, "fontSize": 11.5}, "layer": layers}
