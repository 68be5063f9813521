"""What activations learned: their shapes against their start, and their hardness by depth."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from ..chart import Chart, number, ticks
from .drawn import curve_of, reach_of
from .figures import STROKES, Entry, Figure, after_epochs, epoch_axis, log_axis, series
from .numbers import fixed
from .palette import COLOURS, DASHES, looks
from .parts import Profile, Shape, Summary, Trajectory

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
