"""A function, its slope and its curvature as points to draw: broken where they jump, thinned where they are straight.

    seams    where pieces of the formula meet, from `spec.pieces`, with the numbers put in
    runs     points between two jumps; a line is drawn through each run and none from run to run
    masses   what a jump of f' is in f'': a point mass as heavy as the jump

Points are values of the definition itself (float64). Thinning leaves some of them out and moves none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ..errors import DefinitionError
from ..spec import Activation, SoftTable
from ..spec.algebra import sympy
from ..spec.pieces import split

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
class Run:
    """Neighbouring points of a line with no jump between them."""

    xs: tuple[float, ...]
    ys: tuple[float, ...]


@dataclass(frozen=True)
class Curve:
    """f, f' and f'' (the index is the order) as runs of points, as far as sampled, and the point masses in each."""

    runs: tuple[tuple[Run, ...], ...]
    masses: tuple[tuple[tuple[float, float], ...], ...]


def orders_of(act: Activation | SoftTable, values: Mapping[str, Any]) -> list[Function]:
    """f, f' and f'' as functions of a tensor, for parameters that are these numbers."""
    derivatives = [act.derivative(order) for order in range(ORDERS)]
    return [lambda x, one=one: one(x, **values) for one in derivatives]


def seams_of(act: Activation | SoftTable, values: Mapping[str, Any]) -> list[float] | None:
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
    runs: list[tuple[Run, ...]] = []
    masses: list[tuple[tuple[float, float], ...]] = [()]
    for order in orders:
        # All pieces in one call, and a list for each.
        together = order(torch.tensor([x for grid in pieces for x in grid], dtype=torch.float64))
        values = [part.tolist() for part in together.split([len(grid) for grid in pieces])]
        found, jumps = _joined(pieces, values)
        runs.append(found)
        masses.append(jumps)
    masses += [()] * (ORDERS - len(masses))
    return Curve(runs=tuple(runs), masses=tuple(masses[:ORDERS]))


def _grid(low: float, high: float, span: float, points: int) -> list[float]:
    """Points from a seam to the next, the first and the last just inside."""
    count = max(8, math.ceil(points * (high - low) / span))
    aside = _ASIDE * span
    inner = [low + (high - low) * i / count for i in range(1, count)]
    return [low + aside, *inner, high - aside]


def _joined(grids: Sequence[list[float]], values: Sequence[list[float]]) -> tuple[tuple[Run, ...], tuple[Any, ...]]:
    """Pieces that meet become one run; where they do not, the jump is noted."""
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
    return tuple(Run(tuple(xs), tuple(ys)) for xs, ys in runs), tuple(jumps)


def _jumps(function: Function, low: float, high: float) -> list[float]:
    """Places around which the function moves far, however often the interval is halved."""
    xs = torch.linspace(low, high, _POINTS + 1, dtype=torch.float64)
    ys = function(xs)
    far = ys.diff().abs() > _FAR * ys.abs().max()
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
    return max(one * power for one in (1, 2, 5) if one * power <= size * (1 + 1e-9))


def thin(run: Run, *, scale_x: float, scale_y: float, tolerance: float) -> Run:
    """The run without the points that lie, drawn, within `tolerance` of the line through those that stay.

    The halving of Ramer, Douglas and Peucker: of every stretch the farthest point stays, as long as it is too far.
    """
    xs = torch.tensor(run.xs, dtype=torch.float64) * scale_x
    ys = torch.tensor(run.ys, dtype=torch.float64) * scale_y
    keep, waiting = {0, len(run.xs) - 1}, [(0, len(run.xs) - 1)]
    while waiting:
        first, last = waiting.pop()
        if last - first < 2:
            continue
        dx, dy = xs[last] - xs[first], ys[last] - ys[first]
        away = (dx * (ys[first:last] - ys[first]) - dy * (xs[first:last] - xs[first])).abs() / torch.hypot(dx, dy)
        far = first + int(away.argmax())
        if float(away[far - first]) > tolerance:
            keep.add(far)
            waiting += [(first, far), (far, last)]
    kept = sorted(keep)
    return Run(tuple(run.xs[i] for i in kept), tuple(run.ys[i] for i in kept))
