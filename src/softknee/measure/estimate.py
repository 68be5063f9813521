r"""A number that depends on which models were trained, and how far other models would move it.

    t interval   of a mean:       mean ± t(M - 1) s / sqrt(M)
    jackknife    of anything:     value ± t(M - 1) s_J,   s_J^2 = (M - 1)/M sum_j (value_{-j} - mean_j value_{-j})^2

value_{-j} is what comes out without model j. A bootstrap would draw some models twice, and a model does not differ from
itself: every difference between models would come out too small. (Efron and Stein 1981: s_J^2 is on average no less
than the variance.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from ..errors import ParameterError

FEWEST = 4  # models that a jackknife is taken over: of three, two remain, and they say next to nothing


@dataclass(frozen=True)
class Estimate:
    """A number found from a set of models together.

    value:    the number itself, by its definition.
    stdev:    its standard deviation over draws of as many models, from the delete-one jackknife; None below 4 models.
    interval: where its expectation lies (95 % unless another level was asked for); None below 4 models.
    without:  what the number is without each of the models: two sets of models with the same seeds are compared by
              these, seed by seed (`significance.compare_sets`); None below 4 models.
    """

    value: float
    stdev: float | None = None
    interval: tuple[float, float] | None = None
    without: tuple[float, ...] | None = field(default=None, repr=False)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return _shown(self.value, self.interval)


@dataclass(frozen=True)
class Score:
    """A number that each model has for itself, over the models.

    value:            the mean over the models.
    stdev:            the standard deviation of the models, s; None of a single one, and where a model's is infinite.
    interval:         where the mean of all such models lies: the t interval; None where there is no stdev.
    each:             the number of every model.
    larger_is_better: True of accuracy and AUC, False of losses.
    """

    value: float
    stdev: float | None
    interval: tuple[float, float] | None
    each: tuple[float, ...]
    larger_is_better: bool

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return _shown(self.value, self.interval)


def _shown(value: float, interval: tuple[float, float] | None) -> str:
    return f"{value:.6g}" if interval is None else f"{value:.6g} [{interval[0]:.6g}, {interval[1]:.6g}]"


def score(
    each: Sequence[float] | Tensor,
    *,
    larger_is_better: bool,
    level: float = 0.95,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> Score:
    """The mean of one number for each model, with spread and interval; `bounds` are what the number can be.

    >>> result = score([0.8, 0.9, 1.0], larger_is_better=True)
    >>> round(result.value, 12), round(result.stdev, 12)
    (0.9, 0.1)
    """
    check_level(level)
    values = torch.as_tensor(each, dtype=torch.float64).cpu()
    models, mean = len(values), statistics.fmean(values.tolist())  # exact, so that it is the same on every processor
    # A perfect prediction has an infinite PSNR, and distances to it say nothing.
    stdev = float(values.std()) if models > 1 and bool(values.isfinite().all()) else None
    interval = None
    if stdev is not None:
        interval = _around(mean, stdev / math.sqrt(models), models - 1, level=level, bounds=bounds)
    return Score(mean, stdev, interval, tuple(values.tolist()), larger_is_better)


def jackknife(
    value: float, without: Tensor, *, level: float = 0.95, bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Estimate:
    """A number with its spread over models, from what it is `without` each of them (none below 4 models).

    >>> import torch
    >>> each = torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64)     # of a mean it is the usual standard error
    >>> result = jackknife(3.0, (each.sum() - each) / 3)
    >>> abs(result.stdev - float(each.std()) / 2) < 1e-15
    True
    """
    models = len(without)
    if models < FEWEST:
        return Estimate(value)
    stdev = math.sqrt((models - 1) / models * float((without - statistics.fmean(without.tolist())).square().sum()))
    interval = _around(value, stdev, models - 1, level=level, bounds=bounds)
    return Estimate(value, stdev, interval, tuple(without.tolist()))


def _around(
    middle: float, stdev: float, freedom: int, *, level: float, bounds: tuple[float, float]
) -> tuple[float, float]:
    reach = t_quantile(freedom, level) * stdev
    return max(middle - reach, bounds[0]), min(middle + reach, bounds[1])


@lru_cache(maxsize=4096)
def t_quantile(freedom: float, level: float = 0.95) -> float:
    """The t with P(|T| <= t) = level, for Student's T.

    With theta = arctan(t / sqrt(freedom)) that probability is a finite sum (Abramowitz and Stegun 26.7.3, 26.7.4), or
    an integral where the degrees of freedom are no whole number. Its slope is cos(theta)^(freedom - 1) over the
    integral of that from 0 to pi/2, so that a few of Newton's steps find theta.

    >>> round(t_quantile(3), 6), round(t_quantile(11), 6)
    (3.182446, 2.200985)
    """
    check_level(level)
    whole = _whole(freedom)
    theta = level * whole  # the slope falls from its value at 0: this is not beyond, and neither is a step from there
    for _ in range(60):
        step = (level - _inside(theta, freedom)) * whole / math.cos(theta) ** (freedom - 1)
        theta += step if theta + step < math.pi / 2 else (math.pi / 2 - theta) / 2
        if abs(step) <= 1e-12 * theta:  # the next one would be the square of that
            break
    return math.sqrt(freedom) * math.tan(theta)


def t_within(t: float, freedom: float) -> float:
    """P(|T| <= t) for Student's T with at least one degree of freedom, by the same sums.

    >>> round(t_within(3.182446, 3), 6)
    0.95
    """
    return _inside(math.atan(t / math.sqrt(freedom)), freedom)


def _inside(theta: float, freedom: float) -> float:
    if freedom != int(freedom):  # Simpson's rule for the integral of cos^(freedom - 1) from 0 to theta
        steps = 400
        heights = [math.cos(theta * i / steps) ** (freedom - 1) for i in range(steps + 1)]
        area = theta / (3 * steps) * (heights[0] + 4 * sum(heights[1::2]) + 2 * sum(heights[2:-1:2]) + heights[-1])
        return min(1.0, area / _whole(freedom))
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(2 if odd else 1, int(freedom), 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    return 2 / math.pi * (theta + sine * total) if odd else sine * total


def _whole(freedom: float) -> float:
    """The integral of cos^(freedom - 1) from 0 to pi/2."""
    return math.sqrt(math.pi) / 2 * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))


def check_level(level: float) -> None:
    """Refuse what is no probability strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float) or not 0 < level < 1:
        raise ParameterError(f"level is the probability that an interval holds the truth, such as 0.95, not {level!r}.")
