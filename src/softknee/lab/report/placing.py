"""Where the name of a point is written, so that names neither cover points nor each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_WIDE, _TALL = 540.0, 360.0  # pixels between the outermost bars on paper; on a screen there is more room
_LETTER, _LINE, _MARK = 7.3, 16.0, 9.0
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
_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Spot:
    """A point in the units of the data, what is written beside it, and how far its bars go."""

    x: float
    y: float
    text: str
    across: tuple[float, float] | None = None
    upright: tuple[float, float] | None = None


def places_for(spots: Sequence[Spot]) -> list[str]:
    """A position for each text, as Plotly names them: one after the other, each where it covers least.

    >>> places_for([Spot(0, 0, "left"), Spot(1, 1, "right")])
    ['top right', 'bottom left']
    """
    wide = _span([one.x for one in spots], [one.across for one in spots])
    tall = _span([one.y for one in spots], [one.upright for one in spots])
    at = [(_scaled(one.x, wide) * _WIDE, _scaled(one.y, tall) * _TALL) for one in spots]
    marks = [(x - _MARK, y - _MARK, x + _MARK, y + _MARK) for x, y in at]
    bars: list[_Box] = []
    for one, (x, y) in zip(spots, at, strict=True):
        if one.across:
            bars.append((_scaled(one.across[0], wide) * _WIDE, y - 1, _scaled(one.across[1], wide) * _WIDE, y + 1))
        if one.upright:
            bars.append((x - 1, _scaled(one.upright[0], tall) * _TALL, x + 1, _scaled(one.upright[1], tall) * _TALL))
    written: list[_Box] = []
    found = []
    for place, spot in enumerate(spots):
        others = [mark for other, mark in enumerate(marks) if other != place]
        boxes = {name: _box(at[place], name, len(spot.text)) for name in _PLACES}
        best = min(_PLACES, key=lambda name: _covered(boxes[name], [*others, *bars], written))
        written.append(boxes[best])
        found.append(best)
    return found


def _span(middles: Sequence[float], reaches: Sequence[tuple[float, float] | None]) -> tuple[float, float]:
    every = [*middles, *(end for reach in reaches if reach for end in reach)]
    return min(every), max(every)


def _scaled(value: float, span: tuple[float, float]) -> float:
    return (value - span[0]) / (span[1] - span[0]) if span[1] > span[0] else 0.5


def _box(at: tuple[float, float], name: str, letters: int) -> _Box:
    """The rectangle of the text; y points up."""
    upright, side = name.split()
    wide = letters * _LETTER
    left = at[0] + {"center": -wide / 2, "right": _MARK, "left": -_MARK - wide}[side]
    low = at[1] + {"top": _MARK, "middle": -_LINE / 2, "bottom": -_MARK - _LINE}[upright]
    return left, low, left + wide, low + _LINE


def _covered(box: _Box, marks: Sequence[_Box], written: Sequence[_Box]) -> float:
    """How much this would cover of other texts (these weigh most), of points, and of what lies outside the plane."""
    outside = _area(box) - _shared(box, (0.0, -_LINE, _WIDE, _TALL + _LINE))
    return 4 * sum(_shared(box, one) for one in written) + sum(_shared(box, one) for one in marks) + outside


def _area(box: _Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _shared(one: _Box, other: _Box) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    tall = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, tall)
