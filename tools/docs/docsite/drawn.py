"""Small pictures of a function as SVG in the colours of the page, and the sliders that bend them.

A slider holds nothing but paths that were computed here, one for each of its places: the page needs no network and no
mathematics of its own. Without a script the picture stands still at the default.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from softknee.lab.figures import Curve, Definition, Line, bounds, lines_of, orders_of, seams_of, sign, thin
from softknee.lab.gallery import exhibit, settings
from softknee.spec import Param

WIDTH, HEIGHT = 300.0, 210.0
_ROOM = 0.06  # above and below what is drawn, as a share of its height
_FINE = 0.25  # how far a drawn line may be from the curve, in units of the picture
_PLACES = 25
_TITLES = ("f", "f′", "f″")


@dataclass(frozen=True)
class Frame:
    """A stretch of the plane, and where its points are in the picture."""

    low: float
    high: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        return WIDTH * (value - self.low) / (self.high - self.low)

    def y(self, value: float) -> float:
        return HEIGHT * (self.top - value) / (self.top - self.bottom)


def path(curve: Curve, order: int, frame: Frame) -> str:
    """One of f, f' and f'' as the path of an SVG; a point mass is a vertical stroke from 0."""
    wide, tall = WIDTH / (frame.high - frame.low), HEIGHT / (frame.top - frame.bottom)
    parts = []
    for run in curve.runs[order] if order < len(curve.runs) else ():
        few = thin(run, scale_x=wide, scale_y=tall, tolerance=_FINE)
        points = [f"{frame.x(a):.1f} {frame.y(b):.1f}" for a, b in zip(few.xs, few.ys, strict=True)]
        parts.append("M" + "L".join(points))
    for place, mass in curve.masses[order]:
        if frame.low < place < frame.high:
            parts.append(f"M{frame.x(place):.1f} {frame.y(0):.1f}V{frame.y(mass):.1f}")
    return "".join(parts)


def _frames(curves: Sequence[Curve], low: float, high: float) -> list[Frame]:
    frames = []
    for order in range(3):
        heights = [y for curve in curves if order < len(curve.runs) for run in curve.runs[order] for y in run.ys]
        heights += [mass for curve in curves for _, mass in curve.masses[order]] + [0.0]
        bottom, top = min(heights), max(heights)
        room = _ROOM * (top - bottom or 1.0)
        frames.append(Frame(low, high, bottom - room, top + room))
    return frames


def _axes(frame: Frame) -> str:
    lines = []
    for value in _ticks(frame.low, frame.high):
        kind = "zero" if value == 0 else "grid"
        lines.append(f'<line class="{kind}" x1="{frame.x(value):.1f}" x2="{frame.x(value):.1f}" y1="0" y2="{HEIGHT}"/>')
        lines.append(f'<text class="below" x="{frame.x(value):.1f}" y="{HEIGHT + 14}">{_number(value)}</text>')
    for value in _ticks(frame.bottom, frame.top):
        kind = "zero" if value == 0 else "grid"
        lines.append(f'<line class="{kind}" x1="0" x2="{WIDTH}" y1="{frame.y(value):.1f}" y2="{frame.y(value):.1f}"/>')
        lines.append(f'<text class="left" x="-5" y="{frame.y(value) + 4:.1f}">{_number(value)}</text>')
    return "".join(lines)


def _ticks(low: float, high: float) -> list[float]:
    size = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(size))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= size)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


# -- the slider -------------------------------------------------------------------------------------------


def slider(act: Definition) -> str:
    """Three panels and a slider over the knob (all knobs together, where there are several), as HTML; or nothing."""
    shown = settings(act)
    names = _moved(act, shown)
    if not names:
        return ""
    values = _places(act, names, shown)
    fixed = {name: value for name, value in shown[0].items() if name not in names}
    settings_of_places = [{**fixed, **dict.fromkeys(names, value)} for value in values]
    lines = lines_of(act, shown)
    low, high = bounds(lines, *(exhibit(act.name).span or (None, None)))
    curves = [
        Line("", orders_of(act, setting), seams_of(act, setting)).between(low, high) for setting in settings_of_places
    ]
    limits = [line.between(low, high) for line in lines if line.dotted] if len(names) == len(act.knobs) else []
    frames = _frames([*curves, *limits], low, high)
    start = _start(act, names, values)
    panels = "".join(
        f'<svg viewBox="-34 -6 {WIDTH + 44} {HEIGHT + 26}" role="img" aria-label="{_TITLES[order]}">{_axes(frame)}'
        + "".join(f'<path class="hard" d="{path(limit, order, frame)}"/>' for limit in limits[:1])
        + f'<path class="soft" d="{path(curves[start], order, frame)}"/>'
        + f'<text class="title" x="8" y="18">{_TITLES[order]}</text></svg>'
        for order, frame in enumerate(frames)
    )
    label = " = ".join(map(sign, names))
    data = {
        "label": label,
        "values": [float(f"{value:.4g}") for value in values],
        "paths": [[path(curve, order, frame) for order, frame in enumerate(frames)] for curve in curves],
    }
    numbers = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    hard = " Dotted: the hard limit." if limits else ""
    return (
        f'<figure class="knob"><label>{escape(label)} = <output>{values[start]:.4g}</output>'
        f'<input type="range" min="0" max="{len(values) - 1}" value="{start}" step="1" '
        f'aria-label="{escape(label)}"/></label><div class="panels">{panels}</div>'
        f"<figcaption>Move the slider: f, f′ and f″ are drawn again.{hard}</figcaption>"
        f'<script type="application/json">{numbers}</script></figure>'
    )


def _moved(act: Definition, shown: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the slider moves: the knobs, or the one parameter that the figure varies."""
    varied = [name for name in shown[0] if len({str(setting.get(name)) for setting in shown}) > 1]
    names = varied[:1] if len(varied) == 1 else list(act.knobs)
    return [name for name in names if isinstance(act.param(name), Param)]


def _places(act: Definition, names: Sequence[str], shown: Sequence[Mapping[str, Any]]) -> list[float]:
    drawn = [float(setting[name]) for setting in shown for name in names if name in setting] or [0.25, 2.0]
    low, high = min(drawn), max(drawn)
    steps = [i / (_PLACES - 1) for i in range(_PLACES)]
    places = [low * (high / low) ** step if low > 0 else low + (high - low) * step for step in steps]
    # The values of the figure below, to the last digit: the nearest places move there.
    for value in sorted({*drawn}):
        places[min(range(_PLACES), key=lambda i: abs(places[i] - value))] = value
    return places


def _start(act: Definition, names: Sequence[str], values: Sequence[float]) -> int:
    first = act.param(names[0])
    assert isinstance(first, Param), "a slider moves numbers"
    if not values[0] <= first.default <= values[-1]:
        return len(values) // 2
    return min(range(len(values)), key=lambda i: abs(values[i] - first.default))


# -- small pictures ---------------------------------------------------------------------------------------


def thumbnail(act: Definition) -> str:
    """f and f' in one small picture, as HTML."""
    shown = settings(act)
    chosen = shown[len(shown) // 2]
    orders = [act, act.derivative(1)]
    line = Line("", [lambda x, order=order: order(x, **chosen) for order in orders], seams_of(act, chosen))
    low, high = -3.0, 3.0
    curve = line.between(low, high)
    frame = Frame(low, high, -1.35, 2.5)
    paths = "".join(
        f'<path class="{kind}" d="{path(curve, order, frame)}"/>' for order, kind in ((1, "slope"), (0, "soft"))
    )
    zero = (
        f'<line class="zero" x1="0" x2="{WIDTH}" y1="{frame.y(0):.1f}" y2="{frame.y(0):.1f}"/>'
        f'<line class="zero" x1="{frame.x(0):.1f}" x2="{frame.x(0):.1f}" y1="0" y2="{HEIGHT}"/>'
    )
    return f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" aria-hidden="true" class="thumb">{zero}{paths}</svg>'
