"""The curve of an activation as its parameters were learned, computed from its definition."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...registry import get
from ..chart import Chart, number, pdf_of, png_of, ticks
from .drawing import COLOURS, DASHES, Look, looks
from .figures import STROKES, Entry, Figure, after_epochs, epoch_axis, log_axis, on_paper, series
from .parts import Band, Profile, Shape, Summary, Trajectory, fixed, plain
from .plane import plane

CURVES = {
    "validation_accuracy": ("Validation accuracy", "validation accuracy, %", 100.0),
    "validation_loss": ("Validation loss", "validation loss", 1.0),
    "train_loss": ("Training loss", "training loss", 1.0),
    "gradient_norm": ("Gradient norm", "gradient norm", 1.0),
}
_SHOWN_AT_FIRST = 8  # curves; the rest is shown by a click on the legend
MOST_BANDS = 6  # more of them cover each other: then the interval stands at the end of each line alone


def curves(summary: Summary) -> list[Figure]:
    """Validation accuracy (or loss) and training loss after every epoch, each with its band."""
    had = {band.curve for band in summary.bands}
    wanted = ["validation_accuracy" if "validation_accuracy" in had else "validation_loss", "train_loss"]
    return [_curves(summary, name) for name in wanted if name in had]


def _curves(summary: Summary, name: str) -> Figure:
    title, axis, scale = CURVES[name]
    first = first_shown(summary)
    bands = [band for band in summary.bands if band.curve == name]
    filled = len([band for band in bands if band.label in first]) <= MOST_BANDS
    caption = (
        f"{title} {after_epochs(bands[0].epochs)}: mean over seeds, with its 95 % interval "
        + ("as a band" if filled else "at the end")
        + ("; where that would reach below 0, down to the lowest seed." if any(band.cut for band in bands) else ".")
        + (" Where a seed diverged, every seed has a thin line of its own." if any(band.each for band in bands) else "")
    )
    entries = legend_of(bands, looks(summary), first)
    return Figure(
        name=f"curve-{name}",
        caption=caption,
        label=f"{title} over epochs, a line for each activation",
        chart=chart_of(bands, entries, axis, scale, filled=filled),
        legend=entries,
        height=380,
        file=name.replace("_", "-"),
    )


def first_shown(summary: Summary) -> set[str]:
    """Everything if it is little; else the baseline, what stands alone, and the best value of each knob."""
    if len(summary.rows) <= _SHOWN_AT_FIRST:
        return {row.label for row in summary.rows}
    sign = 1 if summary.metric.larger_is_better else -1
    on_path = {row.label for knob in summary.knobs for row in knob.rows}
    shown = {row.label for row in summary.rows if row.label not in on_path or row.baseline}
    for knob in summary.knobs:
        able = [(sign * found.value, row.label) for row in knob.rows if (found := row.found(summary.metric))]
        shown |= {max(able)[1]} if able else set()
    return shown


def legend_of(bands: Sequence[Band], look: Mapping[str, Look], first: set[str]) -> tuple[Entry, ...]:
    return tuple(
        Entry(name=_name(band), colour=style.colour, dash=style.dash, shown=band.label in first)
        for band in bands
        for style in [look[band.label]]
    )


def _name(band: Band) -> str:
    return f"{band.label}, each seed" if band.each else band.label


def chart_of(bands: Sequence[Band], entries: Sequence[Entry], axis: str, scale: float, *, filled: bool) -> Chart:
    """A line for each band with its interval; thin lines for the seeds of one that has no mean."""
    every = [scale * one for band in bands for one in (*band.low, *band.high)]
    numbers = log_axis(min(every), max(every)) if axis.endswith("loss") and min(every, default=0.0) > 0 else {}
    across, upright = number("epoch", title="epoch", **epoch_axis(bands[0].epochs)), number("y", title=axis, **numbers)
    tips = [{"field": field, "type": kind, "format": "~g"} for field, kind in _TIPS]
    lines = [row for band in bands if not band.each for row in _rows(band, scale)]
    seeds = [
        {"name": _name(band), "seed": seed, "epoch": epoch, "y": None if value is None else scale * value}
        for band in bands
        for seed, each in enumerate(band.each, start=1)
        for epoch, value in zip(band.epochs, each, strict=True)
    ]
    edges = {"x": across, "y": number("low", title=axis, **numbers), "y2": {"field": "high"}}
    ends = [
        {**_rows(band, scale)[-1], "epoch": beside_the_end(band, place)}
        for place, band in enumerate(bands)
        if not band.each
    ]
    where = {"x": across, "y": upright}
    layers = [
        series("line", None, entries, where),
        # Points that cannot be seen: what is near a line says which it is.
        series("circle", [*lines, *seeds], entries, {**where, "tooltip": tips}, opacity=0, size=90),
    ]
    if seeds:
        seed = {**where, "detail": {"field": "seed", "type": "nominal"}}
        layers.append(series("line", seeds, entries, seed, strokeWidth=0.8))
    if filled:
        layers.insert(0, series("area", None, entries, edges, opacity=0.16))
    else:
        layers.append(series("rule", ends, entries, edges, strokeWidth=1.2))
        layers.append(series("circle", ends, entries, where, size=22, opacity=1))
    return {"data": {"values": lines}, "layer": layers}


_TIPS = (("name", "nominal"), ("epoch", "quantitative"), ("y", "quantitative"))


def _rows(band: Band, scale: float) -> list[dict[str, Any]]:
    numbers = zip(band.epochs, band.middle, band.low, band.high, strict=True)
    return [
        {"name": band.label, "epoch": epoch, "y": scale * middle, "low": scale * low, "high": scale * high}
        for epoch, middle, low, high in numbers
    ]


def beside_the_end(band: Band, place: int) -> float:
    """Where the interval of the last epoch stands: to the right of the lines, each beside that of the one before."""
    return band.epochs[-1] + (place + 1) * 0.012 * (band.epochs[-1] - band.epochs[0] or 1)


_LOGARITHMIC = 10.0  # the ratio from which on equal steps would hide the small values
_MOST_NAMES = 24  # of sites, beside each other
_START = "#8a8983"


def learned(summary: Summary) -> list[Figure]:
    """For each activation that learned: the function before and after, and beside it its parameters over the epochs."""
    found = []
    for label in dict.fromkeys(one.label for one in (*summary.shapes, *summary.trajectories)):
        before_and_after = [one for one in summary.shapes if one.label == label]
        over_time = [one for one in summary.trajectories if one.label == label]
        found += [_shape(label, before_and_after)] if before_and_after else []
        # A vector has a figure of its own, beside one of all single numbers.
        kinds: dict[str, list[Trajectory]] = {}
        for one in over_time:
            kinds.setdefault(one.parameter.partition("[")[0] if "[" in one.parameter else "", []).append(one)
        found += [_trajectory(label, lines, vector) for vector, lines in kinds.items()]
    return found


def _shape(label: str, sites: Sequence[Shape]) -> Figure:
    reach = reach_of(sites)
    starts = {tuple(site.start.items()): site for site in sites}
    lines = [(curve_of(site, reach), f"{site_name(site.path)}: ") for site in sites]
    dashed = [(curve_of(site, reach, at_start=True), "start: ") for site in starts.values()]
    entries = tuple(
        [Entry(name=f"{place}{line.words}", colour=COLOURS[i % len(COLOURS)]) for i, (line, place) in enumerate(lines)]
        + [Entry(name=f"{place}{line.words}", colour=_START, dash="dash") for line, place in dashed]
    )
    rows = [
        {"name": f"{place}{line.words}", "x": x, "y": y, "low": low, "high": high}
        for line, place in (*lines, *dashed)
        for x, y, low, high in zip(line.xs, line.middle, line.low, line.high, strict=True)
    ]
    return Figure(
        name=f"shape-{label}",
        caption="Dashed: at the start. Lines: mean of the learned parameters; bands: from the lowest to the highest "
        "seed.",
        label=f"{label} before and after training",
        chart=_bands(rows, entries, label, number("x", title="x"), {}),
        legend=entries,
        height=330,
        wide=False,
        file="shapes",
    )


def _bands(rows: list[Chart], entries: Sequence[Entry], title: str, across: Chart, upright: Chart) -> Chart:
    """Lines within their bands."""
    tips = [{"field": "name", "type": "nominal"}]
    tips += [{"field": field, "type": "quantitative", "format": ".4~g"} for field in ("x", "y")]
    where = {"x": across, "y": number("y", **upright)}
    edges = {"x": across, "y": number("low", **upright), "y2": {"field": "high"}}
    layers = [
        series("area", None, entries, edges, opacity=0.16),
        series("line", None, entries, where),
        series("circle", None, entries, {**where, "tooltip": tips}, opacity=0, size=60),
    ]
    return {"title": title, "data": {"values": rows}, "layer": layers}


def _trajectory(label: str, lines: Sequence[Trajectory], vector: str) -> Figure:
    """vector: the name of the one whose entries the lines are; empty for single numbers."""
    names = list(dict.fromkeys(line.parameter for line in lines))
    sites = list(dict.fromkeys(line.path for line in lines))
    titles = [f"{site_name(one.path)}, {one.parameter}" if len(names) > 1 else site_name(one.path) for one in lines]
    entries = tuple(
        Entry(
            name=title,
            colour=COLOURS[sites.index(line.path) % len(COLOURS)],
            dash=DASHES[names.index(line.parameter) % len(DASHES)],
        )
        for line, title in zip(lines, titles, strict=True)
    )
    rows = [
        {"name": title, "x": epoch, "y": y, "low": low, "high": high}
        for line, title in zip(lines, titles, strict=True)
        for epoch, y, low, high in zip(line.epochs, line.middle, line.low, line.high, strict=True)
    ]
    every = [one for line in lines for one in (*line.low, *line.high)]
    after = after_epochs(lines[0].epochs)
    across = number("x", title="epoch", **epoch_axis(lines[0].epochs))
    return Figure(
        name=f"trajectory-{label}-{vector}" if vector else f"trajectory-{label}",
        caption=f"{after[0].upper()}{after[1:]}, epoch 0 being the start: mean over seeds, from the lowest to the "
        "highest.",
        label=f"Learned parameters of {label} over epochs",
        chart=_bands(rows, entries, f"{label}: {vector or ', '.join(names)}", across, _scale(every)),
        legend=entries,
        height=330,
        wide=False,
    )


def _scale(values: Sequence[float]) -> Chart:
    low, high = min(values), max(values)
    return log_axis(low, high) if low > 0 and high / low > _LOGARITHMIC else {}


def site_name(path: str) -> str:
    """A path of numbers alone says nothing by itself."""
    return f"site {path}" if path.replace(".", "").isdigit() else path


def knob_name(knob: str) -> str:
    """The name of a knob on an axis: lam, which is no word, as its letter."""
    return {"lam": "λ"}.get(knob, knob)


def at_start(profile: Profile) -> tuple[list[float], list[float]]:
    """The line of a profile before training; of a single site a short one, because a point has no line to be seen."""
    start = [sum(site) / len(site) for site in profile.start]
    return ([0.85, 1.15], start * 2) if len(start) == 1 else ([1.0 + place for place in range(len(start))], start)


def hardness(summary: Summary) -> list[Figure]:
    """For each knob: its value at every site, from the input to the output, before and after training."""
    names = list(dict.fromkeys((one.knob, len(one.paths)) for one in summary.profiles))
    return [
        _hardness(summary, knob, [one for one in summary.profiles if (one.knob, len(one.paths)) == (knob, sites)])
        for knob, sites in names
    ]


def _hardness(summary: Summary, knob: str, profiles: Sequence[Profile]) -> Figure:
    look, paths = looks(summary), profiles[0].paths
    every = [value for one in profiles for site in (*one.start, *one.end) for value in site]
    entries = tuple(
        Entry(name=one.label, colour=style.colour, symbol=style.symbol)
        for one in profiles
        for style in [look[one.label]]
    )
    ends, starts = [], []
    for one in profiles:
        middle = [sum(site) / len(site) for site in one.end]
        if [sum(site) / len(site) for site in one.start] != middle:
            starts += [{"name": one.label, "x": x, "y": y} for x, y in zip(*at_start(one), strict=True)]
        for place, (path, site, mean) in enumerate(zip(one.paths, one.end, middle, strict=True)):
            far = one.distance[place] if place < len(one.distance) else ()
            words = f"{fixed(mean, 3)}, at most {max(far):.3g} from its limit" if far else fixed(mean, 3)
            ends.append(
                {
                    "name": one.label,
                    "site": site_name(path),
                    "value": words,
                    "x": place + 1,
                    "y": mean,
                    "low": min(site),
                    "high": max(site),
                }
            )
    across = number("x", title="from the input to the output", domain=(0.6, len(paths) + 0.4), axis=_sites(paths))
    scale = _scale(every)
    where = {"x": across, "y": number("y", **scale)}
    reach = {"x": across, "y": number("low", **scale), "y2": {"field": "high"}}
    tips = [{"field": field, "type": "nominal"} for field in ("name", "site", "value")]
    layers = [
        series("line", starts, entries, where, strokeDash=STROKES["dot"], strokeWidth=1.4),
        series("rule", None, entries, reach, strokeWidth=1),
        series("line", None, entries, where),
        series("point", None, entries, {**where, "tooltip": tips}, filled=True, opacity=1, size=70),
    ]
    return Figure(
        name=f"hardness-{knob}-{len(paths)}",
        caption=f"{knob} by depth after training: mean over seeds, from the lowest to the highest. Dotted: at the "
        "start.",
        label=f"{knob} of every activation that has it, by depth",
        chart={
            "title": f"{profiles[0].label}: {knob_name(knob)}" if len(profiles) == 1 else knob_name(knob),
            "data": {"values": ends},
            "layer": layers,
        },
        legend=entries,
        height=330,
        wide=False,
        file="hardness",
    )


def _sites(paths: Sequence[str]) -> Chart:
    """The names of the sites below the axis, slanted where they are long; of very many, every second or third."""
    names = [site_name(path) for path in paths]
    places = range(1, len(paths) + 1, math.ceil(len(paths) / _MOST_NAMES))
    slanted = {"labelAngle": -30} if len(paths) > 4 or any(len(name) > 13 for name in names) else {}
    words = json.dumps(names, ensure_ascii=False)
    return ticks(places, labelExpr=f"{words}[datum.value - 1]", **slanted)


_FARTHEST, _NEAREST, _POINTS = 3.0, 0.25, 121
_SAME = 0.05  # of the largest difference: what is less, far out, is nothing to see


@dataclass(frozen=True)
class Line:
    """x; f with the mean of the parameters; the lowest and the highest f over seeds; the parameters in words."""

    xs: list[float]
    middle: list[float]
    low: list[float]
    high: list[float]
    words: str


def reach_of(shapes: Sequence[Shape]) -> float:
    """How far from 0 there is something to see: where what was learned differs from the start."""
    reach = _FARTHEST
    while reach > _NEAREST and not any(_differs_beyond(shape, reach / 2) for shape in shapes):
        reach /= 2
    return reach


def _differs_beyond(shape: Shape, where: float) -> bool:
    act = get(shape.name)
    x = torch.linspace(-_FARTHEST, _FARTHEST, 8 * _POINTS, dtype=torch.float64)
    off = torch.stack([(act(x, **one) - act(x, **shape.start)).abs() for one in shape.ends]).amax(dim=0)
    return bool(off.max() == 0) or bool(off[x.abs() > where].max() > _SAME * off.max())


def curve_of(shape: Shape, reach: float, *, at_start: bool = False) -> Line:
    """The function at a site after training, or before."""
    act = get(shape.name)
    x = torch.linspace(-reach, reach, _POINTS, dtype=torch.float64)
    every: tuple[Mapping[str, float], ...] = (shape.start,) if at_start else shape.ends
    mean = {name: sum(one[name] for one in every) / len(every) for name in shape.start}
    values = torch.stack([act(x, **one) for one in every])
    rounded = [[float(f"{one:.5g}") for one in row.tolist()] for row in (act(x, **mean), *values.aminmax(dim=0))]
    words = ", ".join(f"{name} {plain(value)}" for name, value in mean.items())
    return Line([float(f"{one:.5g}") for one in x.tolist()], rounded[0], rounded[1], rounded[2], words)


def pdf_figures(summary: Summary, *, png: bool = False) -> dict[str, tuple[bytes, str]]:
    """Content and caption of each figure that there is something to show in, by name; as PNG where asked for."""
    drawn = plane(summary)
    files: dict[str, list[Figure]] = {}
    for figure in (*([drawn] if drawn else []), *curves(summary), *learned(summary), *hardness(summary)):
        if figure.file:
            files.setdefault(figure.file, []).append(figure)
    picture = png_of if png else pdf_of
    return {name: (picture(on_paper(figures)), figures[0].caption) for name, figures in files.items()}


def bands_png(look: Mapping[str, Look], bands: Sequence[Band], axis: str) -> bytes:
    """Curves of one's own over the epochs, drawn as those of a report."""
    entries = legend_of(bands, look, {band.label for band in bands})
    chart = chart_of(bands, entries, axis, 1.0, filled=True)
    return png_of(on_paper([Figure(name="", caption="", label="", chart=chart, legend=entries, height=0)]))
