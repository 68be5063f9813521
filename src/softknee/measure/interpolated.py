"""A table of a slow function, made only where it is asked for often."""

from __future__ import annotations

import math
from collections.abc import Callable


class Interpolated:
    """A positive function of a positive number, with a table of it where it is asked for often.

    log f is a polynomial in log x, of degree 19 through Chebyshev points, on intervals that are halved until it is
    right to 1e-12 at points between. An interval costs 25 values of f; while x moves so fast that fewer would be asked
    for in it, f itself is called.
    """

    NODES, TOLERANCE = 20, 1e-12
    WIDTH = 4 * math.log(16.0)
    # The first intervals tried below 3e-5, where the map of 1 - c is nearly straight, and above.
    FIRST_LEVEL, FIRST_LEVEL_ABOVE, LAST_LEVEL = 0, 2, 8

    def __init__(self, function: Callable[[float], float]) -> None:
        self.function = function
        self.tables: dict[tuple[int, int], list[float] | None] = {}
        self.last = math.nan

    def __call__(self, x: float) -> float:
        moved, self.last = abs(math.log(x) - self.last), math.log(x)
        if not moved < self.WIDTH / 128:  # also at the first call
            return self.function(x)
        # Intervals are counted downwards from 2, the largest 1 - c there is.
        place = (math.log(2.0) - math.log(x)) / self.WIDTH
        for level in range(self.FIRST_LEVEL_ABOVE if place < 1 else self.FIRST_LEVEL, self.LAST_LEVEL + 1):
            index = math.floor(place * 2**level)
            if (level, index) not in self.tables:
                self.tables[level, index] = self._table(level, index)
            if (table := self.tables[level, index]) is not None:
                return math.exp(self._between(table, 2 * (place * 2**level - index) - 1))
        return self.function(x)

    def _at(self, level: int, index: int, t: float) -> float:
        """log f at the place t in [-1, 1] of an interval."""
        place = (index + (t + 1) / 2) / 2**level
        return math.log(self.function(math.exp(math.log(2.0) - place * self.WIDTH)))

    def _table(self, level: int, index: int) -> list[float] | None:
        table = [self._at(level, index, t) for t in self._nodes()]
        checks = (-0.98, -0.51, 0.03, 0.55, 0.97)
        good = all(abs(self._between(table, t) - self._at(level, index, t)) <= self.TOLERANCE for t in checks)
        return table if good else None

    def _nodes(self) -> list[float]:
        return [math.cos(math.pi * (k + 0.5) / self.NODES) for k in range(self.NODES)]

    def _between(self, table: list[float], t: float) -> float:
        """The polynomial through the table, by the barycentric formula."""
        above = below = 0.0
        for k, (node, value) in enumerate(zip(self._nodes(), table, strict=True)):
            if t == node:
                return value
            share = (-1) ** k * math.sin(math.pi * (k + 0.5) / self.NODES) / (t - node)
            above += share * value
            below += share
        return above / below
