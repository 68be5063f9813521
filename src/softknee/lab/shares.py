"""Shares of examples and what other examples of the same kind would give in their place: intervals and a test.

References: Wilson, JASA 22 (1927); McNemar, Psychometrika 12 (1947); Agresti and Min, Statistics in Medicine 24 (2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from ..measure.estimate import t_quantile

_FEW = 1000  # changes up to which the test is summed in whole numbers
_MANY = 1000  # degrees of freedom from which the t distribution is the normal one to three digits


@dataclass(frozen=True)
class Rate:
    """A number over examples, with the interval in which it lies for other examples of the same kind."""

    value: float
    interval: tuple[float, float]


def wilson(count: int, examples: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share: all p for which `count` of `examples` is no surprise.

    >>> tuple(round(one, 6) for one in wilson(0, 10))
    (0.0, 0.277533)
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, weight = count / examples, z * z / examples
    middle = (share + weight / 2) / (1 + weight)
    reach = z * math.sqrt(share * (1 - share) / examples + weight / (4 * examples)) / (1 + weight)
    return (0.0 if count == 0 else middle - reach), (1.0 if count == examples else middle + reach)


def mcnemar(spoiled: int, mended: int) -> float:
    """The exact two-sided McNemar test: how likely a split as uneven is where both ways are as likely.

    >>> mcnemar(1, 9)
    0.021484375
    """
    count, fewer = spoiled + mended, min(spoiled, mended)
    if count == 2 * fewer:
        return 1.0
    if count <= _FEW:
        return min(1.0, 2 * sum(math.comb(count, k) for k in range(fewer + 1)) / 2**count)
    largest = math.lgamma(count + 1) - count * math.log(2)
    terms = (math.exp(largest - math.lgamma(k + 1) - math.lgamma(count - k + 1)) for k in range(fewer + 1))
    return min(1.0, 2 * math.fsum(terms))


def gain_interval(spoiled: float, mended: float, examples: int, *, level: float = 0.95) -> tuple[float, float]:
    """The interval of (mended - spoiled) / examples, by Agresti and Min: half an example more in each of four cells.

    >>> tuple(round(one, 6) for one in gain_interval(0, 0, 98))
    (-0.0196, 0.0196)
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    worse, better, count = spoiled + 0.5, mended + 0.5, examples + 2
    middle = (better - worse) / count
    reach = z * math.sqrt(worse + better - (better - worse) ** 2 / count) / count
    return max(middle - reach, -1.0), min(middle + reach, 1.0)


def over_examples(each: Tensor, *, level: float = 0.95, low: float = 0.0) -> Rate:
    """The mean of a number that lies between `low` and 1 for each example, with its t interval."""
    count, mean = len(each), float(each.mean())
    if count < 2:
        return Rate(mean, (low, 1.0))
    t = t_quantile(count - 1, level) if count <= _MANY else NormalDist().inv_cdf((1 + level) / 2)
    reach = t * float(each.std()) / math.sqrt(count)
    return Rate(mean, (max(mean - reach, low), min(mean + reach, 1.0)))
