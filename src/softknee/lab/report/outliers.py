"""Points that lie so far from all others that a picture with them would show nothing of the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence

FAR = 2.0
"""Further from the rest than this many times the width of the rest, which would have a third of the picture."""
_MOST = 0.2  # of the points may be left out
_FEWEST = 5  # have to stay


def outside(values: Sequence[float]) -> set[int]:
    """The places of the values that are too far from the rest, at one end or at both: a fifth of them at most.

    >>> outside([1.0, 2.0, 3.0, 4.0, 5.0, 60.0])
    {5}
    >>> outside([1.0, 2.0, 3.0, 4.0, 5.0, 12.0])
    set()
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    most = min(int(_MOST * len(order)), len(order) - _FEWEST)
    for gone in range(most, 0, -1):
        for below in range(gone, -1, -1):
            first, last = below, len(order) - (gone - below) - 1
            low, high = values[order[first]], values[order[last]]
            under = low - values[order[first - 1]] if below else math.inf
            over = values[order[last + 1]] - high if below < gone else math.inf
            if 0 < FAR * (high - low) < min(under, over):
                return {*order[:first], *order[last + 1 :]}
    return set()
