"""What activations learned: their shapes against their start, and their hardness by depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .drawn import curve_of, reach_of
from .figures import Figure, after_epochs, epoch_axis, faint, figure, log_axis, safe
from .numbers import fixed
from .palette import COLOURS, DASHES, looks
from .parts import Profile, Shape, Summary, Trajectory

_LOGARITHMIC = 10.0  # the ratio from which on equal steps would hide the small values


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
    traces: list[dict[str, Any]] = []
    reach = reach_of(sites)
    for place, site in enumerate(sites):
        colour = COLOURS[place % len(COLOURS)]
        line = curve_of(site, reach)
        edge = {"type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        edge |= {"x": line.xs, "legendgroup": safe(site.path)}
        traces += [
            edge | {"y": line.low},
            edge | {"y": line.high, "fill": "tonexty", "fillcolor": faint(colour)},
            {
                "type": "scatter",
                "mode": "lines",
                "name": safe(f"{site_name(site.path)}: {line.words}"),
                "legendgroup": safe(site.path),
                "x": line.xs,
                "y": line.middle,
                "line": {"color": colour, "width": 2},
                "hovertemplate": "%{x:.2f}: %{y:.3f}<extra></extra>",
            },
        ]
    for start in dict.fromkeys(tuple(site.start.items()) for site in sites):
        line = curve_of(next(site for site in sites if tuple(site.start.items()) == start), reach, at_start=True)
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": safe(f"start: {line.words}"),
                "x": line.xs,
                "y": line.middle,
                "line": {"color": "#8a8983", "width": 1.8, "dash": "dash"},
                "hovertemplate": "%{x:.2f}: %{y:.3f}<extra></extra>",
            }
        )
    layout = {
        "title": {"text": safe(label)},
        "xaxis": {"title": {"text": "x"}, "automargin": True},
        "yaxis": {"automargin": True},
        "hovermode": "closest",
        "height": 400,
    }
    caption = "Dashed: at the start. Lines: mean of the learned parameters; bands: from the lowest to the highest seed."
    return figure(
        f"shape-{label}", traces, layout, caption=caption, label=f"{label} before and after training", wide=False
    )


def _trajectory(label: str, lines: Sequence[Trajectory], vector: str) -> Figure:
    """vector: the name of the one whose entries the lines are; empty for single numbers."""
    names = list(dict.fromkeys(line.parameter for line in lines))
    sites = list(dict.fromkeys(line.path for line in lines))
    traces: list[dict[str, Any]] = []
    for line in lines:
        colour = COLOURS[sites.index(line.path) % len(COLOURS)]
        name = f"{site_name(line.path)}, {line.parameter}" if len(names) > 1 else site_name(line.path)
        dash = DASHES[names.index(line.parameter) % len(DASHES)]
        group = {"type": "scatter", "mode": "lines", "legendgroup": safe(name), "x": list(line.epochs)}
        edge = group | {"line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        traces += [
            edge | {"y": list(line.low)},
            edge | {"y": list(line.high), "fill": "tonexty", "fillcolor": faint(colour)},
            group
            | {
                "name": safe(name),
                "y": list(line.middle),
                "line": {"color": colour, "width": 2, "dash": dash},
                "hovertemplate": "epoch %{x}: %{y:.4~g}<extra></extra>",
            },
        ]
    every = [one for line in lines for one in (*line.low, *line.high)]
    layout: dict[str, Any] = {
        "title": {"text": safe(f"{label}: {vector or ', '.join(names)}")},
        "xaxis": epoch_axis(lines[0].epochs),
        "yaxis": {"automargin": True},
        "hovermode": "closest",
        "height": 400,
    }
    if min(every) > 0 and max(every) / min(every) > _LOGARITHMIC:
        layout["yaxis"] |= log_axis(min(every), max(every))
    after = after_epochs(lines[0].epochs)
    caption = (
        f"{after[0].upper()}{after[1:]}, epoch 0 being the start: mean over seeds, from the lowest to the highest."
    )
    words = f"Learned parameters of {label} over epochs"
    name = f"trajectory-{label}-{vector}" if vector else f"trajectory-{label}"
    return figure(name, traces, layout, caption=caption, label=words, wide=False)


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
    look = looks(summary)
    every = [value for one in profiles for site in (*one.start, *one.end) for value in site]
    logarithmic = min(every) > 0 and max(every) / min(every) > _LOGARITHMIC
    traces: list[dict[str, Any]] = []
    for one in profiles:
        style, sites = look[one.label], list(range(1, len(one.paths) + 1))
        middle = [sum(site) / len(site) for site in one.end]
        places, start = at_start(one)
        moved = [sum(site) / len(site) for site in one.start] != middle
        group = {"type": "scatter", "legendgroup": safe(one.label), "x": sites}
        if moved:
            traces.append(
                group
                | {
                    "mode": "lines",
                    "x": places,
                    "y": start,
                    "line": {"color": style.colour, "dash": "dot", "width": 1.4},
                    "showlegend": False,
                    "hoverinfo": "skip",
                }
            )
        far = [f", at most {max(site):.3g} from its limit" if site else "" for site in one.distance]
        traces.append(
            group
            | {
                "mode": "lines+markers",
                "name": safe(one.label),
                "y": middle,
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [max(site) - mean for site, mean in zip(one.end, middle, strict=True)],
                    "arrayminus": [mean - min(site) for site, mean in zip(one.end, middle, strict=True)],
                    "color": style.colour,
                    "thickness": 1,
                    "width": 3,
                },
                "line": {"color": style.colour, "width": 1.8},
                "marker": {"color": style.colour, "symbol": style.symbol, "size": 8},
                "customdata": [
                    [safe(f"{one.label}, {site_name(path)}"), fixed(mean, 3), words]
                    for path, mean, words in zip(one.paths, middle, far, strict=True)
                ],
                "hovertemplate": "%{customdata[0]}: %{customdata[1]}%{customdata[2]}<extra></extra>",
            }
        )
    paths = profiles[0].paths
    layout = {
        "xaxis": {
            "tickvals": list(range(1, len(paths) + 1)),
            "ticktext": [safe(site_name(path)) for path in paths],
            "range": [0.6, len(paths) + 0.4],
            "title": {"text": "from the input to the output"},
            "automargin": True,
        },
        "title": {"text": safe(f"{profiles[0].label}: {knob_name(knob)}" if len(profiles) == 1 else knob_name(knob))},
        "yaxis": {"automargin": True},
        "hovermode": "closest",
        "height": 400,
    }
    if logarithmic:
        layout["yaxis"] |= log_axis(min(every), max(every))
    caption = f"{knob} by depth after training: mean over seeds, from the lowest to the highest. Dotted: at the start."
    label = f"{knob} of every activation that has it, by depth"
    return figure(f"hardness-{knob}-{len(paths)}", traces, layout, caption=caption, label=label, wide=False)
