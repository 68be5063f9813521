"""The curve of an activation as its parameters were learned, computed from its definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ...registry import get
from .numbers import plain
from .parts import Shape

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
