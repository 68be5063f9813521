"""Hardness over depth and time as a figure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path

from ..errors import ParameterError
from ..measure.hardness import HardnessTrace
from .chart import (
    Chart,
    by_name,
    check_ending,
    lines_legend,
    marks,
    number,
    scale_of,
    side_by_side,
    sized,
    ticks,
    write_figure,
)
from .figures import RAMP, sign

_TALL = 240  # pixels
_NAMED = 14  # rows that still have room for their names
_LETTERS = 26  # of a path; its end tells more than its beginning


def draw_hardness(trace: HardnessTrace, path: str | PathLike[str]) -> Path:
    """Draw a trace into a .png or an .svg file, and return where it is.

    >>> import softknee as sk, tempfile, torch
    >>> net = torch.nn.Sequential(sk.nn.LambdaGELU(lam=1.5), torch.nn.Linear(2, 2), sk.nn.LambdaGELU(lam=2.0))
    >>> trace = sk.measure.HardnessTrace(net)
    >>> for epoch in range(3):
    ...     _ = trace.record(epoch), net[0].set_(lam=2.0 + epoch)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_hardness(trace, folder + "/hardness.svg").name
    'hardness.svg'
    """
    check_ending(path)
    return write_figure(hardness_figure(trace), path, label="hardness of the activations over depth and time")


def hardness_figure(trace: HardnessTrace) -> Chart:
    """The figure itself; widths are drawn as they are, and coloured darker where they are smaller."""
    if len(trace.profiles) < 2:
        raise ParameterError(
            f"A figure over time needs a trace of two epochs or more, and this one has {len(trace.profiles)}; call "
            "record(epoch) while the model trains."
        )
    values = [value for profile in trace.profiles for value in profile.values]
    low, high = min(values), max(values)
    scale = scale_of(values)
    return side_by_side([_map(trace, (low, high), scale), _profiles(trace, (low, high), scale)], columns=2)


def _map(trace: HardnessTrace, reach: tuple[float, float], scale: Chart) -> Chart:
    """A row for each activation, a column for each epoch."""
    low, high = reach if reach[0] < reach[1] else (reach[0] - 0.5, reach[1] + 0.5)
    hardens_upward = math.isinf(trace.profiles[0].sites[0].toward)
    ramp = ("#fdf1dd", *RAMP) if hardens_upward else ("#fdf1dd", *RAMP)[::-1]
    names, epochs = _short(trace.profiles[0].paths), trace.epochs
    between = [(first + second) / 2 for first, second in pairwise(epochs)]  # where the columns meet
    edges = [2 * epochs[0] - between[0], *between, 2 * epochs[-1] - between[-1]]
    cells = [
        {"epoch": edges[column], "to": edges[column + 1], "row": row + 0.5, "above": row + 1.5, "value": value}
        for column, profile in enumerate(trace.profiles)
        for row, value in enumerate(profile.values)
    ]
    step = math.ceil(len(names) / _NAMED)
    labels = f"{json.dumps(names, ensure_ascii=False)}[datum.value - 1]"
    colours = {
        "domain": [low, high],
        "range": list(ramp),
        "interpolate": "rgb",
        "nice": False,
        **scale.get("scale", {}),
    }
    bar = {"orient": "right", "gradientLength": _TALL, "gradientThickness": 9, "direction": "vertical"}
    if scale:
        bar |= {"values": scale["axis"]["values"], "format": "~g"}
    encoding = {
        "x": number("epoch", title="epoch", domain=(edges[0], edges[-1]), axis={"grid": False}),
        "x2": {"field": "to"},
        "y": number(
            "row",
            domain=(0.5, len(names) + 0.5),
            axis=ticks(range(1, len(names) + 1, step), labelExpr=labels, grid=False),
        ),
        "y2": {"field": "above"},
        "color": {"field": "value", "type": "quantitative", "title": None, "scale": colours, "legend": bar},
    }
    look = {"stroke": "white", "strokeWidth": 0.4 if len(trace.epochs) <= 60 else 0.0}
    return sized(
        {"title": f"{_knob_title(trace)} over depth and time", **marks("rect", cells, encoding, **look)}, 340, _TALL
    )


def _profiles(trace: HardnessTrace, reach: tuple[float, float], scale: Chart) -> Chart:
    """The profile at the first epoch, at the last, and at some between."""
    count, sites = len(trace.profiles), len(trace.profiles[0].sites)
    chosen = sorted({round(i * (count - 1) / (len(RAMP) - 1)) for i in range(len(RAMP))})
    names = [f"epoch {trace.epochs[index]:g}" for index in chosen]
    rows = [
        {"name": name, "place": place, "value": value}
        for index, name in zip(chosen, names, strict=True)
        for place, value in enumerate(trace.profiles[index].values, start=1)
    ]
    room = 0.07 * ((reach[1] - reach[0]) or 1.0)
    upright = scale or {"domain": (reach[0] - room, reach[1] + room)}
    places = ticks(range(1, sites + 1, math.ceil(sites / 8)), format="d")
    legend = lines_legend(columns=1, orient="right")
    encoding = {
        "x": number("place", title="activation, counted from the input", domain=(0.6, sites + 0.4), axis=places),
        "y": number("value", **upright),
        "color": by_name(names, RAMP[-len(names) :], legend=legend),
    }
    look = {"point": {"size": 28, "filled": True}, "strokeWidth": 2}
    return sized({"title": f"{_knob_title(trace)} over depth", **marks("line", rows, encoding, **look)}, 240, _TALL)


# -- words and numbers ------------------------------------------------------------------------------------


def _knob_title(trace: HardnessTrace) -> str:
    """The name of the knob, if all activations have the same one."""
    sites = trace.profiles[0].sites
    if len({(site.activation, site.knob) for site in sites}) > 1:
        return "Knob"
    return ", ".join(map(sign, sites[0].knob.split(", ")))


def _short(paths: Sequence[str]) -> list[str]:
    """Paths without what all of them begin with, and the end of those that are still long."""
    parts = [path.split(".") for path in paths]
    shared = 0
    while len(paths) > 1 and all(len(path) > shared + 1 and path[shared] == parts[0][shared] for path in parts):
        shared += 1
    names = [".".join(path[shared:]) for path in parts]
    return [name if len(name) <= _LETTERS else "…" + name[1 - _LETTERS :] for name in names]
