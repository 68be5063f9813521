"""Where the name of a point is written, so that names neither cover points nor each other; and which are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_PLACES = (
    "top right",
    "top left",
    "bottom right",
    "bottom left",
    "top center",
    "bottom center",
    "middle right",
    "middle left",
)
_OF_TEXTS, _OF_MARKS = 0.02, 0.1  # shares of a name that may lie on other names, and on points
_STEPS = 12  # points of a line between two of its values, as something that a name may cover
_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Room:
    """How large the plane is, in any unit: between its edges, a letter's width, a line's height, half a point."""

    wide: float
    tall: float
    letter: float
    line: float
    mark: float


SCREEN = Room(560.0, 336.0, 6.6, 14.0, 8.0)  # pixels of the figure on paper; on a wide page there is more room


@dataclass(frozen=True)
class Spot:
    """A point in the units of the data, what is written beside it, and how far its bars go.

    rank: those with a smaller one are written first; 0 is written whatever it covers, the others only where they fit.
    """

    x: float
    y: float
    text: str
    across: tuple[float, float] | None = None
    upright: tuple[float, float] | None = None
    rank: int = 0


def places_for(
    spots: Sequence[Spot],
    *,
    room: Room = SCREEN,
    spans: tuple[tuple[float, float], tuple[float, float]] | None = None,
    lines: Sequence[Sequence[int]] = (),
) -> list[str | None]:
    """A position for each text, such as "top right": one after the other, each where it covers least.

    None is of a text that would lie on others wherever it is put, unless its rank is 0.

    Args:
        spans: what the axes go from and to; default from the first bar to the last.
        lines: the numbers of the spots that a line joins, for each line.

    >>> places_for([Spot(0, 0, "left"), Spot(1, 1, "right")])
    ['top right', 'bottom left']
    >>> crowd = [Spot(0, 0, "more", rank=1)] * 9
    >>> places_for([Spot(0, 0, "first"), Spot(1, 1, "far"), *crowd])[-1] is None
    True
    """
    wide, tall = spans or (
        _span([one.x for one in spots], [one.across for one in spots]),
        _span([one.y for one in spots], [one.upright for one in spots]),
    )
    at = [(_scaled(one.x, wide) * room.wide, _scaled(one.y, tall) * room.tall) for one in spots]
    marks = [_around(point, room.mark) for point in at]
    bars: list[_Box] = []
    for one, (x, y) in zip(spots, at, strict=True):
        if one.across:
            low, high = (_scaled(end, wide) * room.wide for end in one.across)
            bars.append((low, y - 1, high, y + 1))
        if one.upright:
            low, high = (_scaled(end, tall) * room.tall for end in one.upright)
            bars.append((x - 1, low, x + 1, high))
    bars += [_around(point, 1.0) for line in lines for point in _along([at[number] for number in line])]
    written: list[_Box] = []
    found: list[str | None] = [None] * len(spots)
    for place in sorted(range(len(spots)), key=lambda place: spots[place].rank):
        spot = spots[place]
        others = [mark for other, mark in enumerate(marks) if other != place]
        boxes = {name: _box(at[place], name, len(spot.text), room) for name in _PLACES}
        best = min(_PLACES, key=lambda name: _covered(boxes[name], [*others, *bars], written, room))
        box = boxes[best]
        fits = _on(box, written) <= _OF_TEXTS * _area(box) and _on(box, others) <= _OF_MARKS * _area(box)
        if spot.rank == 0 or fits:
            written.append(box)
            found[place] = best
    return found


def _span(middles: Sequence[float], reaches: Sequence[tuple[float, float] | None]) -> tuple[float, float]:
    every = [*middles, *(end for reach in reaches if reach for end in reach)]
    return min(every), max(every)


def _scaled(value: float, span: tuple[float, float]) -> float:
    return (value - span[0]) / (span[1] - span[0]) if span[1] > span[0] else 0.5


def _around(point: tuple[float, float], reach: float) -> _Box:
    return point[0] - reach, point[1] - reach, point[0] + reach, point[1] + reach


def _along(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Points of the way from the first to the last."""
    return [
        (x + (u - x) * step / _STEPS, y + (v - y) * step / _STEPS)
        for (x, y), (u, v) in pairwise(points)
        for step in range(1, _STEPS)
    ]


def _box(at: tuple[float, float], name: str, letters: int, room: Room) -> _Box:
    """The rectangle of the text; y points up."""
    upright, side = name.split()
    wide, mark, line = letters * room.letter, room.mark, room.line
    left = at[0] + {"center": -wide / 2, "right": mark, "left": -mark - wide}[side]
    low = at[1] + {"top": mark, "middle": -line / 2, "bottom": -mark - line}[upright]
    return left, low, left + wide, low + line


def _covered(box: _Box, marks: Sequence[_Box], written: Sequence[_Box], room: Room) -> float:
    """How much this would cover of other texts (these weigh most), of points, and of what lies outside the plane."""
    outside = _area(box) - _shared(box, (0.0, -room.line, room.wide, room.tall + room.line))
    return 4 * _on(box, written) + _on(box, marks) + outside


def _on(box: _Box, others: Sequence[_Box]) -> float:
    return sum(_shared(box, one) for one in others)


def _area(box: _Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _shared(one: _Box, other: _Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, tall)
