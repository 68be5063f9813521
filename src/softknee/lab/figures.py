"""Figures of f, f' and f'' side by side, for several settings of the knob, with the hard limit dotted.

    draw(sk.get("smelu"), "smelu.svg")                                   # the knob at several values
    draw(sk.get("smelu"), "smelu.png", beta=0.5)                         # one setting
    draw(act, "mine.html", settings=[{"beta": 1.0}, {"beta": 2.0}])      # settings of your own

Lines are broken where the function jumps: the second derivative of SmeLU is a step and no ramp. A kink of f is a jump
of f' and a point mass of f'', drawn as an arrow as high as the mass. The same call writes the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import DefinitionError, ParameterError, need_package
from ..files import write_whole
from ..registry import get
from ..spec import Activation, Param, SoftTable
from ..spec.algebra import sympy
from ..spec.pieces import split
from .chart import (
    INK,
    Chart,
    asset,
    check_ending,
    line_styles,
    marks,
    number,
    points,
    rule_at,
    sized,
    svg_of,
    ticks,
    write_figure,
)
from .typeset import closed_form, formula

ORDERS = 3  # f, f', f''
_POINTS = 1600
_ASIDE = 1e-9  # a one-sided value is taken this far from its seam, in spans of the view
_SLIVER = 1e-6  # a piece narrower than this, in spans, is nothing to see
_JUMP = 1e-4  # what counts as a jump at a seam, as a share of the largest value
_FAR = 0.02  # what may be one elsewhere
_HALVINGS = 40  # from a step of the grid down to the spacing of float64
_QUIET = 0.02  # a tail begins where f'' stays below this share of its largest value
_USUAL = (-3.0, 3.0)  # the view of a function that no seam and no bend gives a scale

Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Polyline:
    """Neighbouring points of a line with no jump between them."""

    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Curve:
    """f, f' and f'' (the index is the order) as runs of points, as far as sampled, and the point masses in each."""

    runs: tuple[tuple[Polyline, ...], ...]
    masses: tuple[tuple[tuple[float, float], ...], ...]


def orders_of(act: Definition, values: Mapping[str, Any]) -> list[Function]:
    """f, f' and f'' as functions of a tensor, for parameters that are these numbers; no slope where f has no value."""

    def value(x: Tensor) -> Tensor:
        return act(x, **values)

    def masked(derivative: Any) -> Function:
        if isinstance(act, SoftTable):  # has a value everywhere
            return lambda x: derivative(x, **values)
        return lambda x: derivative(x, **values).masked_fill(value(x).isnan(), math.nan)

    return [value, *(masked(act.derivative(order)) for order in range(1, ORDERS))]


def seams_of(act: Definition, values: Mapping[str, Any]) -> list[float] | None:
    """Where the pieces of the formula meet, for parameters that are these numbers; None where that is not known.

    >>> import softknee as sk
    >>> seams_of(sk.get("asymmetric_smelu"), {"alpha": 0.5, "beta": 2.0})
    [-0.5, 2.0]
    """
    if isinstance(act, SoftTable):
        return None
    numbers = {p.symbol: sympy.Rational(str(values.get(p.name, p.default))) for p in act.params}
    try:
        return [float(seam) for seam in split(act.formula.xreplace(numbers)).seams]
    except DefinitionError:
        return None  # such as a seam at the root of a transcendental equation


def sample(
    orders: Sequence[Function], *, low: float, high: float, seams: Sequence[float] | None, points: int = _POINTS
) -> Curve:
    """The curve between two places, of about so many points; without known seams its jumps are looked for."""
    span = high - low
    if seams is None:
        seams = [place for order in orders for place in _jumps(order, low, high)]
    ends = [low, *sorted(seam for seam in {*seams} if low + _SLIVER * span < seam < high - _SLIVER * span), high]
    pieces = [_grid(a, b, span, points) for a, b in pairwise(ends) if b - a > _SLIVER * span]
    runs: list[tuple[Polyline, ...]] = []
    masses: list[tuple[tuple[float, float], ...]] = [()]
    for order in orders:
        # All pieces in one call, and a list for each.
        flat = order(torch.tensor([x for grid in pieces for x in grid], dtype=torch.float64))
        values = [part.tolist() for part in flat.split([len(grid) for grid in pieces])]
        joined, jumps = _joined(pieces, values)
        runs.append(joined)
        masses.append(jumps)
    masses += [()] * (ORDERS - len(masses))
    return Curve(runs=tuple(runs), masses=tuple(masses[:ORDERS]))


def _grid(low: float, high: float, span: float, points: int) -> list[float]:
    """Points from a seam to the next, the first and the last just inside."""
    count = max(8, math.ceil(points * (high - low) / span))
    aside = _ASIDE * span
    inner = [low + (high - low) * i / count for i in range(1, count)]
    return [low + aside, *inner, high - aside]


def _joined(
    grids: Sequence[list[float]], values: Sequence[list[float]]
) -> tuple[tuple[Polyline, ...], tuple[Any, ...]]:
    """Pieces that meet are joined to one run; elsewhere the jump is recorded."""
    tolerance = _JUMP * max((abs(y) for ys in values for y in ys), default=0.0)
    runs, jumps = [(list(grids[0]), list(values[0]))], []
    for xs, ys in zip(grids[1:], values[1:], strict=True):
        last_xs, last_ys = runs[-1]
        gap = ys[0] - last_ys[-1]
        if abs(gap) <= tolerance:
            last_xs += xs
            last_ys += ys
        else:
            jumps.append(((last_xs[-1] + xs[0]) / 2, gap))
            runs.append((list(xs), list(ys)))
    return tuple(Polyline(tuple(xs), tuple(ys)) for xs, ys in runs), tuple(jumps)


def _jumps(function: Function, low: float, high: float) -> list[float]:
    """Places around which the function moves far, however often the interval is halved."""
    xs = torch.linspace(low, high, _POINTS + 1, dtype=torch.float64)
    ys = function(xs)
    # A pole at a point of the grid is a jump to a height beyond all others.
    size = ys.nan_to_num(0.0, 0.0, 0.0).abs().max()
    ys = ys.nan_to_num(math.nan, 1e300, -1e300)
    far = ys.diff().abs() > _FAR * size
    a, b, left, right = xs[:-1][far], xs[1:][far], ys[:-1][far], ys[1:][far]
    first = (right - left).abs()
    for _ in range(_HALVINGS if len(a) else 0):
        middle = (a + b) / 2
        here = function(middle)
        go_left = (here - left).abs() > (right - here).abs()
        a, left = torch.where(go_left, a, middle), torch.where(go_left, left, here)
        b, right = torch.where(go_left, middle, b), torch.where(go_left, here, right)
    return ((a + b) / 2)[(right - left).abs() > 0.5 * first].tolist()


# -- what to show -----------------------------------------------------------------------------------------


def view(curvatures: Sequence[Function], seams: Sequence[float]) -> tuple[float, float]:
    """The stretch of x that has every seam and every bend in it, the tails beyond left to go on; round numbers."""
    places = [0.0, *seams]
    grid = torch.logspace(-4, 3, 701, dtype=torch.float64)
    xs = torch.cat([-grid.flip(0), grid])
    for curvature in curvatures:
        size = curvature(xs).abs().nan_to_num(0.0)
        loud = xs[size > _QUIET * size.max()] if float(size.max()) > 0 else xs[:0]
        if len(loud) and max(-float(loud[0]), float(loud[-1])) > 300:
            places += _USUAL  # it bends for ever: there is no tail to wait for
        elif len(loud):
            places += [float(loud[0]), float(loud[-1])]
    low, high = min(places), max(places)
    if low == high:
        return low + _USUAL[0], high + _USUAL[1]
    room = 0.25 * (high - low)
    # Something of the other side of 0 belongs in the picture, also where all that bends is on one.
    low, high = min(low - room, -0.5 * high), max(high + room, -0.5 * low)
    step = _round_step((high - low) / 6)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _round_step(size: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above."""
    power = 10.0 ** math.floor(math.log10(size))
    return max(factor * power for factor in (1, 2, 5) if factor * power <= size * (1 + 1e-9))


def thin(run: Polyline, *, scale_x: float, scale_y: float, tolerance: float) -> Polyline:
    """The run without the points that lie, drawn, within `tolerance` of the line through those that stay.

    The halving of Ramer, Douglas and Peucker: of every stretch the farthest point stays, as long as it is too far.
    """
    np = need_package("numpy", "Curves are thinned with NumPy", "lab")  # on a dozen numbers far quicker than torch
    xs, ys = np.asarray(run.xs, dtype=np.float64) * scale_x, np.asarray(run.ys, dtype=np.float64) * scale_y
    keep, waiting = {0, len(run.xs) - 1}, [(0, len(run.xs) - 1)]
    while waiting:
        first, last = waiting.pop()
        if last - first < 2:
            continue
        dx, dy = xs[last] - xs[first], ys[last] - ys[first]
        away = np.abs(dx * (ys[first:last] - ys[first]) - dy * (xs[first:last] - xs[first])) / np.hypot(dx, dy)
        far = first + int(away.argmax())
        if float(away[far - first]) > tolerance:
            keep.add(far)
            waiting += [(first, far), (far, last)]
    places = sorted(keep)
    return Polyline(tuple(run.xs[i] for i in places), tuple(run.ys[i] for i in places))


Definition = Activation | SoftTable
Settings = Sequence[Mapping[str, Any]]
# From soft to hard along one ramp whose lightness falls all the way, so that the order is seen without its hues too.
RAMP = ("#f2a13c", "#e0654f", "#b23a7f", "#6b2c91", "#1f2a7a")
# For lines that have no order: hues of Okabe and Ito's palette, told apart with any colour vision.
DISTINCT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_GREEK = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi chi psi omega"
_SIGNS: dict[str, str] = dict(zip(_GREEK.split(), "αβγδεζηθικλμνξπρστφχψω", strict=True))
_SIGNS |= {"eps": "ε", "lam": "λ", "slope": "a", "shift": "s"}
_LOWERED = {"minus": "₋", "plus": "₊", "n": "ₙ", "p": "ₚ"}
_ALL_BUT_ZERO = 1e-18  # a knob at its end, as far as float64 and a drawing can tell
_FARTHEST_SEAM = 20.0  # a seam beyond guards against overflow and is nothing to see


@dataclass(frozen=True)
class Line:
    """One line of a figure: what it is called, what it computes, and how it is drawn.

    shown: how many of f, f', f'' are drawn; the point masses of f'' follow from f'.
    """

    label: str
    orders: Sequence[Function]
    seams: Sequence[float] | None = None
    colour: str = INK
    dotted: bool = False
    shown: int = 3

    def between(self, low: float, high: float) -> Curve:
        return sample(self.orders[: self.shown], low=low, high=high, seams=self.seams)


def settings_of(act: Definition, params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings to draw by default: the knob at its default and at multiples, most of them harder."""
    if not act.knobs or any(name in params for name in act.knobs):
        return [dict(params)]
    knobs: list[Any] = [act.param(name) for name in act.knobs]
    return [
        {**params, **{knob.name: factor * knob.default for knob in knobs}}
        for factor in ((0.25, 0.5, 1.0, 2.0) if act.toward == 0 else (0.5, 1.0, 2.0, 4.0))
        if all(knob.constraint.allows(factor * knob.default) for knob in knobs)
    ]


def lines_of(act: Definition, settings: Settings) -> list[Line]:
    """A line for each setting, and the hard limits dotted; a limit that several settings share is drawn once."""
    if not 1 <= len(settings) <= len(DISTINCT):
        raise ParameterError(f"A figure has 1 to {len(DISTINCT)} lines, and {len(settings)} were given.")
    for values in settings:
        act.check(values)
    lines = [
        Line(label(act, values, settings), orders_of(act, values), seams_of(act, values), colour)
        for values, colour in zip(settings, colours(act, settings), strict=True)
    ]
    limits = {str(limit): limit for values in settings if (limit := limit_of(act, values)) is not None}
    for index, (name, hard, values) in enumerate(limits.values()):
        seams, shown = seams_of(hard, values), 3
        if hard is act:
            # Joined pieces have shrunk to a kink, whose slope can be drawn; of anything else only its jumps are left.
            seams, shown = (seams, 2) if seams else (None, 1)
        lines.append(Line("" if index else name, orders_of(hard, values), seams, dotted=True, shown=shown))
    return lines


def limit_of(act: Definition, values: Mapping[str, Any]) -> tuple[str, Definition, dict[str, Any]] | None:
    """What the hard limit is called, its definition and its parameters."""
    if not act.knobs:
        return None
    if isinstance(act, Activation) and act.limit is not None:
        numbers = {p.name: p.default for p in act.params} | dict(values)
        return act.limit, get(act.limit), {theirs: numbers[ours] for theirs, ours in act.limit_params.items()}
    letters = ", ".join(map(sign, act.knobs))
    if act.toward == 0:
        end, words = _ALL_BUT_ZERO, f"{letters} → 0"
    elif act.toward == math.inf:
        end, words = 1 / _ALL_BUT_ZERO, f"{letters} → ∞"
    else:
        return None
    return words, act, {**values, **dict.fromkeys(act.knobs, end)}


def bounds(lines: Sequence[Line], low: float | None, high: float | None) -> tuple[float, float]:
    """The stretch of x to draw."""
    if low is None or high is None:
        soft = [line for line in lines if not line.dotted]
        seams = [seam for line in soft for seam in line.seams or () if abs(seam) <= _FARTHEST_SEAM]
        seen = view([line.orders[2] for line in soft], seams)
        low, high = seen[0] if low is None else low, seen[1] if high is None else high
    if not -math.inf < low < high < math.inf:
        raise ParameterError(f"A figure goes from low to high, and {low:g} is not below {high:g}.")
    return float(low), float(high)


# -- colours and words ------------------------------------------------------------------------------------


def colours(act: Definition, settings: Settings) -> list[str]:
    """Darker as the function hardens, where the lines have that order; hues that have no order otherwise."""
    place = _hardness(act, settings)
    if place is None:
        return [*DISTINCT[: len(settings)]]
    shades = {2: (1, 4), 3: (0, 2, 4), 4: (0, 1, 3, 4), 5: (0, 1, 2, 3, 4)}[len(settings)]
    return [RAMP[shades[rank]] for rank in place]


def _hardness(act: Definition, settings: Settings) -> list[int] | None:
    """The place of each line from soft to hard, if what varies rises and falls together, on one side of 0."""
    varying = _varying(settings)
    if not varying or not 2 <= len(settings) <= len(RAMP):
        return None
    orders: list[list[int]] = []
    for name in varying:
        numbers: list[Any] = [setting.get(name) for setting in settings]
        if not all(isinstance(value, int | float) for value in numbers) or min(numbers) * max(numbers) <= 0:
            return None
        orders.append(sorted(range(len(numbers)), key=lambda i, n=numbers: abs(n[i])))
        if len(set(numbers)) < len(numbers) or orders[-1] != orders[0]:
            return None
    hardens_at_zero = act.toward == 0 and set(varying) <= set(act.knobs)
    order = orders[0][::-1] if hardens_at_zero else orders[0]
    return [order.index(i) for i in range(len(settings))]


def _varying(settings: Settings) -> list[str]:
    names = dict.fromkeys(name for setting in settings for name in setting)
    return [name for name in names if len({str(setting.get(name)) for setting in settings}) > 1]


def label(act: Definition, values: Mapping[str, Any], settings: Settings) -> str:
    """What tells a line from the others: the parameters that vary."""
    names = [name for name in values if len(settings) == 1 or name in _varying(settings)]
    words = ", ".join(equation(name, values[name]) for name in names)
    return words or (act.name if len(settings) == 1 else "default")


def shared(settings: Settings) -> str:
    """The parameters that are given and the same for all lines."""
    if len(settings) == 1:
        return ""
    same = {name: value for setting in settings for name, value in setting.items() if name not in _varying(settings)}
    return ", ".join(equation(name, value) for name, value in same.items() if value is not None)


def equation(name: str, value: Any) -> str:
    number = f"{value:.4g}".replace("-", "−") if isinstance(value, int | float) else value
    return f"{sign(name)} = {number}"


def sign(name: str) -> str:
    """A parameter as it is written in a figure.

    >>> sign("beta"), sign("g_minus"), sign("lam"), sign("scale")
    ('β', 'g₋', 'λ', 'scale')
    """
    stem, _, low = name.partition("_")
    return _SIGNS.get(name) or _SIGNS.get(stem, stem) + (_LOWERED.get(low, f"_{low}") if low else "")


def letter(act: Definition, name: str) -> str:
    """A parameter as mathematics."""
    return next((p.letter for p in act.params if p.name == name and isinstance(p, Param)), name)


NAMES = ("f(x)", "f′(x)", "f″(x)")
WIDE, TALL = (244, 200), (360, 190)  # pixels of a panel: of three side by side, and of three below each other
_DOTS = [1.7, 2.4]
_HEAD = "M0,0L-0.45,1L0.45,1Z"  # of an arrow that points up, its tip at the place
_TOLERANCE = 0.08  # pixels that a point which is left out may lie off the line
_LETTER, _HANDLE = 7.0, 46.0  # pixels of a letter of the legend, and of its line with the room around it
_EXTENT = 30  # pixels for the numbers beside a panel, the same in every figure, so that pages look alike


def panels(
    rows: Sequence[Sequence[Line]],
    *,
    low: float | None = None,
    high: float | None = None,
    stacked: bool = False,
    note: str = "",
) -> Chart:
    """f, f' and f'' of the lines side by side, a row for each group of lines, with a legend above each row."""
    low, high = bounds([line for lines in rows for line in lines], low, high)
    groups = []
    for place, lines in enumerate(rows):
        curves = [line.between(low, high) for line in lines]
        three = [_panel(order, lines, curves, (low, high), f"{place}_{order}", stacked) for order in range(3)]
        three[0]["layer"].append(_legend(lines, note, TALL[0] if stacked else 3 * WIDE[0]))
        common = {"scale": {"color": "shared", "strokeDash": "shared"}}
        groups.append({"vconcat" if stacked else "hconcat": three, "spacing": 14, "resolve": common})
    apart = {"scale": {"color": "independent", "strokeDash": "independent"}}
    return groups[0] if len(groups) == 1 else {"vconcat": groups, "resolve": apart}


def _panel(
    order: int, lines: Sequence[Line], curves: Sequence[Curve], reach: tuple[float, float], name: str, stacked: bool
) -> Chart:
    heights = [0.0]
    for curve in curves:
        heights += [y for run in curve.runs[order : order + 1] for part in run for y in part.ys]
        heights += [weight for _, weight in curve.masses[order]] if order == 2 else []
    room = 0.07 * ((max(heights) - min(heights)) or 1.0)
    bottom, top = min(heights) - room, max(heights) + room
    wide, tall = TALL if stacked else WIDE
    axis = {"format": ".4~g", "minExtent": _EXTENT}
    x, y = number("x", domain=reach, axis={"format": ".4~g"}), number("y", domain=(bottom, top), axis=axis)
    layers = [rule_at(y=0.0)] + [rule_at(x=0.0)] * (reach[0] <= 0 <= reach[1])
    for index, (line, curve) in enumerate(zip(lines, curves, strict=True)):
        strokes = _strokes(order, line, curve, (wide / (reach[1] - reach[0]), tall / (top - bottom)))
        layers += [
            {**marks(kind, rows, {"x": x, "y": y}, **look), "name": f"{part}_{name}_{index}_{place}"}
            for place, (part, kind, rows, look) in enumerate(strokes)
        ]
    words = f"{NAMES[order]}, x {reach[0]:.6g} to {reach[1]:.6g}, y {bottom:.6g} to {top:.6g}"
    title = {"text": NAMES[order], "fontStyle": "italic"}
    return {**sized({"layer": layers}, wide, tall), "name": f"panel_{name}", "title": title, "description": words}


def _strokes(order: int, line: Line, curve: Curve, scale: tuple[float, float]) -> list[Any]:
    """Each stroke of a line: what it is, its kind of mark, its points and its look."""
    look = {"color": line.colour, **({"strokeDash": _DOTS} if line.dotted else {})}
    strokes = []
    for run in curve.runs[order] if order < len(curve.runs) else ():
        thinned = thin(run, scale_x=scale[0], scale_y=scale[1], tolerance=_TOLERANCE)
        strokes.append(("line", "line", points(thinned.xs, thinned.ys), {**look, "strokeWidth": 2.3}))
    for place, weight in curve.masses[order] if order == 2 else ():
        ends = [{"x": place, "y": 0.0}, {"x": place, "y": weight}]
        head = {"shape": _HEAD, "angle": 0 if weight > 0 else 180, "filled": True, "size": 340, "opacity": 1}
        strokes.append(("mass", "line", ends, {**look, "strokeWidth": 1.6}))
        strokes.append(("head", "point", ends[1:], {"color": line.colour, **head}))
    return strokes


def _legend(lines: Sequence[Line], note: str, wide: float) -> Chart:
    """Marks that nothing is seen of but their legend, in as many lines of text as it needs."""
    named = [line for line in lines if line.label]
    words = [line.label for line in named] + [note] * bool(note)
    longest, total = max(map(len, words), default=0), sum(map(len, words))
    fits = total * _LETTER + len(words) * _HANDLE < wide
    columns = len(words) if fits else max(1, int(wide / (longest * _LETTER + _HANDLE)))
    if not words:
        return rule_at(y=0.0)
    looks = [(line.colour, _DOTS if line.dotted else [1, 0]) for line in named] + [("transparent", [1, 0])] * bool(note)
    channels = line_styles(
        {str(place): look for place, look in enumerate(looks)},
        orient="top",
        columns=columns,
        labelExpr=f"{json.dumps(words, ensure_ascii=False)}[+datum.value]",
        symbolSize=500,
        symbolStrokeWidth=2.3,
        labelFontSize=12,
    )
    return marks("line", [{"name": str(place)} for place in range(len(words))], channels, color=INK)


# -- all functions on one sheet ---------------------------------------------------------------------------

_COLUMNS = 8
_SIDE = 94  # pixels of a panel
_X, _Y = (-4.0, 4.0), (-1.5, 4.0)
_SLOPE = "#e69f00"


def poster(shown: Mapping[str, tuple[Definition, Mapping[str, Any]]]) -> Chart:
    """Small panels of one scale, with f (blue) and f' (orange) of every definition, under the names they are given."""
    x = number("x", domain=_X, axis=ticks((-2, 2), labels=False))
    y = number("y", domain=_Y, axis=ticks((2,), labels=False))
    charts = []
    for name, (act, values) in shown.items():
        layers = [rule_at(y=0.0), rule_at(x=0.0)]
        curve = lines_of(act, [values])[0].between(*_X)
        for order, colour in ((1, _SLOPE), (0, DISTINCT[0])):
            for part, run in enumerate(curve.runs[order]):
                thinned = thin(run, scale_x=12.0, scale_y=17.0, tolerance=0.11)
                stroke = marks("line", points(thinned.xs, thinned.ys), {"x": x, "y": y}, color=colour, clip=True)
                layers.append({**stroke, "name": f"line_{name}_{order}_{part}"})
        title = {"text": name, "fontSize": 9.5, "offset": 3}
        charts.append({**sized({"layer": layers}, _SIDE, _SIDE), "title": title})
    return {"concat": charts, "columns": _COLUMNS, "spacing": {"row": 10, "column": 14}}


_PRIMES = ("f(x)", "f'(x)", "f''(x)")


def page(act: Definition, picture: str, settings: Sequence[Mapping[str, Any]]) -> str:
    """The page of one definition, drawn with these settings."""
    title = escape(act.name)
    rows = "".join(f"<dt>{left}</dt><dd><pre>{escape(text)}</pre></dd>" for left, text in _formulas(act))
    params = "".join(
        f"<dt>{escape(p.name)}</dt><dd>{escape(p.about)}; {escape(p.constraint.words)}, {escape(str(p.default))} by "
        "default</dd>"
        for p in act.params
    )
    each = ["; ".join(f"{name} = {value}" for name, value in setting.items()) or "the defaults" for setting in settings]
    limit = " Dotted: the hard limit." if act.knobs else ""
    drawn = f"Drawn for {' | '.join(each)}.{limit} An arrow is a point mass, as high as it is heavy."
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{title}</title>
<style>
{asset("page.css")}</style>
</head>
<body>
<main>
<h1>{title}</h1>
<p class="lead">{escape(act.about)}</p>
<figure>
{picture.strip()}
<figcaption>{escape(drawn)}</figcaption>
</figure>
<h2>Formula</h2>
<dl class="facts">{rows}</dl>
{f'<h2>Parameters</h2><dl class="facts">{params}</dl>' if params else ""}
</main>
</body>
</html>
"""


def _formulas(act: Definition) -> list[tuple[str, str]]:
    """Each derivative as text and as LaTeX."""
    if isinstance(act, SoftTable):
        return [(left, act.derivative(order).latex()) for order, left in enumerate(_PRIMES)]
    rows = []
    for order, left in enumerate(_PRIMES):
        typeset = formula(act, order)
        where = "".join(rf",\quad {words}" for words in typeset.where)
        rows += [(left, closed_form(act, order)), (f"{left}, LaTeX", typeset.latex + where)]
    return rows


SUFFIXES = (".png", ".svg", ".html")


def draw(
    act: Definition,
    path: str | PathLike[str],
    *,
    settings: Sequence[Mapping[str, Any]] | None = None,
    low: float | None = None,
    high: float | None = None,
    stacked: bool = False,
    **params: Any,
) -> Path:
    """Draw f, f' and f'' of a definition into a .png, an .svg or an .html file, and return where it is.

    settings: parameters of each line; without it the knob takes several values, unless `params` fixes it.
    low, high: the stretch of x; by default one that has every seam and every bend in it.
    stacked: one panel below the other, for a narrow column.
    params: parameters that all lines share.

    >>> import softknee as sk, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(sk.get("smelu"), folder + "/smelu.svg", beta=0.5).name
    'smelu.svg'
    """
    kind = check_ending(path, SUFFIXES)
    chosen = settings_of(act, params) if settings is None else [{**params, **setting} for setting in settings]
    figure = panels([lines_of(act, chosen)], low=low, high=high, stacked=stacked, note=shared(chosen))
    label = f"{act.name}, its first and its second derivative"
    if kind != ".html":
        return write_figure(figure, path, label=label)
    return write_whole(path, page(act, svg_of(figure, label=label), chosen), what="figure")
