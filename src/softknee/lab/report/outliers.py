"""Points that lie so far from all others that a picture with them would show nothing of the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence

FAR = 2.0
"""Further from the rest than this many times the width of the rest: the rest would have a third of the picture."""
_MOST = 0.2  # of the points may be left out
_FEWEST = 5  # have to stay


def outside(values: Sequence[float]) -> set[int]:
    """The places of the values that are too far from the rest: a fifth of them at most, at one end or at both.

    >>> outside([1.0, 2.0, 3.0, 4.0, 5.0, 60.0])
    {5}
    >>> outside([1.0, 2.0, 3.0, 4.0, 5.0, 12.0])
    set()
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    count = len(order)
    best: set[int] = set()
    for below in range(count):
        for above in range(count - below):
            gone, rest = below + above, order[below : count - above]
            if not gone or gone > _MOST * count or len(rest) < _FEWEST or 0 < len(best) <= gone:
                continue
            low, high = values[rest[0]], values[rest[-1]]
            apart = FAR * (high - low)
            under = low - values[order[below - 1]] if below else math.inf
            over = values[order[count - above]] - high if above else math.inf
            if 0 < apart < min(under, over):
                best = {*order[:below], *order[count - above :]}
    return best
