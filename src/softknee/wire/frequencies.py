r"""Weights as whole frequencies that sum to a power of two, which is what a range coder divides its range by.

    f_s >= 1 where w_s > 0,   sum_s f_s = 2^S,   cost = -sum_s w_s log2(f_s / 2^S)   as small as can be

Start from the rounded-down share, at least 1; what is missing goes to the largest gain w/(f + 1/2), what is too much is
taken from the smallest loss w/(f - 1/2), one unit at a time. All comparisons are between correctly rounded quotients
of whole numbers, so two machines that start from the same weights end with the same frequencies.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

LEAST_SCALE, MOST_SCALE = 12, 16  # log2 of the sum
_WASTE_FOR_COARSER = 1.0005  # a smaller sum is taken if it costs no more than this: its tables stay in the cache


def quantised(weights: Sequence[int], scale: int) -> list[int]:
    """Frequencies of sum 2^scale; one level of all the weight gets all of it.

    >>> quantised([3, 0, 1], 4)
    [12, 0, 4]
    >>> quantised([10**9, 1, 1], 4)
    [14, 1, 1]
    """
    total, whole = sum(weights), 1 << scale
    found = [max(1, weight * whole // total) if weight else 0 for weight in weights]
    missing = whole - sum(found)
    sign = 1 if missing > 0 else -1
    # A heap of (what the next unit costs, level): adding takes the greatest gain first, removing the least loss.
    heap = [(_price(weights[s], found[s], sign), s) for s, f in enumerate(found) if f and (sign > 0 or f > 1)]
    heapq.heapify(heap)
    for _ in range(abs(missing)):
        _, level = heapq.heappop(heap)
        found[level] += sign
        if sign > 0 or found[level] > 1:
            heapq.heappush(heap, (_price(weights[level], found[level], sign), level))
    return found


def _price(weight: int, frequency: int, sign: int) -> float:
    return -sign * (2 * weight) / (2 * frequency + sign)


def bits_of(counts: Sequence[int], frequencies: Sequence[int]) -> float:
    """Bits that symbols of these counts take when coded with these frequencies."""
    total = sum(frequencies)
    return -sum(n * math.log2(f / total) for n, f in zip(counts, frequencies, strict=True) if n)


def scale_for(weights: Sequence[int]) -> int:
    """The smallest scale whose rounding does not matter: within 0.05 % of the weights' own entropy."""
    present = [weight for weight in weights if weight]
    own = bits_of(present, present)
    for scale in range(LEAST_SCALE, MOST_SCALE):
        if len(present) <= 1 << scale and bits_of(present, quantised(present, scale)) <= own * _WASTE_FOR_COARSER:
            return scale
    return MOST_SCALE


def geometric(stop: tuple[int, int], doublings: int, length: int, scale: int) -> list[int]:
    """Frequencies of the number of blocks of 2^doublings trials without success, for a chance of n/d at each trial.

        P(a) = r^a (1 - r)  for a < length - 1,  P(length - 1) = r^(length - 1),  r = (1 - n/d)^(2^doublings)

    The last one stands for "none in length - 1 blocks, and it goes on". Fixed-point arithmetic of 40 bits throughout.
    """
    bits = 40
    stay = ((stop[1] - stop[0]) << bits) // stop[1]
    for _ in range(doublings):
        stay = stay * stay >> bits
    left, weights = 1 << bits, []
    for _ in range(length - 1):
        weights.append(max(1, left - (left * stay >> bits)))
        left = left * stay >> bits
    return quantised([*weights, max(1, left)], scale)
