"""Where x lies in its cell, to the last digit of x.

Where the velocity is small near a border, the slope of the flow changes within a small fraction of a cell; to take the
fraction from (x - low)/width would round it to the digits of that quotient. From the cell's own border x is subtracted
without an error: low and the width are each split into a number of 12 bits, of which small multiples and their sums are
exact in float32, and a rest.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Scale(NamedTuple):
    """The cells of an interval: border j lies at low + j width."""

    low: float
    high: float
    width: float
    low_head: float
    low_rest: float
    width_head: float
    width_rest: float


def scale_of(low: float, high: float, cells: int) -> Scale:
    """The numbers for `cells` equal cells on [low, high].

    >>> scale = scale_of(-3.0, 3.0, 10)
    >>> scale.width, scale.width_head, scale.width_head + scale.width_rest
    (0.6, 0.60009765625, 0.6)
    """
    width = (high - low) / cells
    return Scale(low, high, width, *_split(low), *_split(width))


def _split(value: float) -> tuple[float, float]:
    mantissa, exponent = math.frexp(value)
    head = math.ldexp(round(mantissa * 4096), exponent - 12)
    return head, value - head
