r"""Whether two activations differ: paired and unpaired tests, their correction, effect sizes, equivalence, and power.

Seed i starts every activation from the same draw of weights and shows it the same order of examples, so what seed i
does to one it does in part to the other: differences are taken seed by seed, d_i, and judged over the M seeds.

    paired t-test   t = mean d / (s_d / sqrt(M)), with M - 1 degrees of freedom: the main test, because the interval and
                    the equivalence test follow from the same t, and so never contradict it
    sign flips      of all 2^M ways to flip the signs of d, the share with a mean at least as far from 0: exact without
                    a normal distribution, shown beside it up to M = 16; it cannot come below 2 / 2^M
    effect size     g_z = J mean d / s_d with J = Gamma(m/2) / (sqrt(m/2) Gamma((m-1)/2)), m = M - 1: Cohen's d_z with
                    Hedges' correction for few seeds (0.93 at M = 12); none of two seeds
    Welch's test    with `paired=False`: t = difference / sqrt(s_1^2 / M_1 + s_2^2 / M_2), with Satterthwaite's
                    degrees of freedom. Where the seeds of two activations hardly correlate, pairing halves the degrees
                    of freedom and gains nothing
    equivalence     two one-sided t-tests (TOST): is the mean both above -margin and below +margin?
    Holm            of k tests, the i-th smallest p times k - i + 1, never falling: the chance of any false alarm among
                    them stays at the level, whatever depends on what

A prediction difference belongs to a set of models and not to one. Two sets with the same seeds are compared by what
each is without seed j: with D = A - B, D_{-j} = A_{-j} - B_{-j} and the mean D' of these, the pseudo-differences
d_j = D - (M - 1)(D_{-j} - D') have the mean D and the standard error of the jackknife, so that the same tests apply.

(Student 1908; Fisher 1935; Welch 1947; Holm 1979; Hedges 1981; Schuirmann 1987; Tukey 1958 and Efron and Stein 1981:
jackknife.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..errors import ParameterError
from .estimate import FEWEST, Estimate, Score, check_level, t_quantile, t_within
from .inputs import as_number

MOST_FLIPPED = 16  # seeds: 2^16 sums take a millisecond, and beyond that the t-test says the same


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The difference of two activations, first minus second; None where it cannot be said.

    seeds:       how many pairs there were, or seeds on the smaller side.
    difference:  the mean difference.
    interval:    where the mean of all such differences lies; None below 2 seeds, or where all differences are the same.
    p:           of the t-test, two-sided; of the sign flips (or permutations) where nothing varies.
    p_flips:     of the exact sign-flip test; None of sets, without pairs, and above 16 seeds.
    effect:      g_z (without pairs Hedges' g); None of two seeds, of sets without pairs, or where nothing varies.
    margin:      what counts as no difference; None if it was not asked for.
    equivalence: p of the equivalence test within the margin.
    """

    seeds: int
    difference: float
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_flips: float | None = None
    effect: float | None = None
    margin: float | None = None
    equivalence: float | None = None


def compare_each(
    first: Sequence[float],
    second: Sequence[float],
    *,
    margin: float | None = None,
    level: float = 0.95,
    paired: bool = True,
) -> Comparison:
    """Compare a number that each model has for itself, such as accuracy; paired, the i-th of both have the same seed.

    >>> result = compare_each([0.91, 0.93, 0.92, 0.95], [0.90, 0.91, 0.91, 0.92], margin=0.05)
    >>> round(result.difference, 12), round(result.p, 4), result.p_flips, round(result.equivalence, 5)
    (0.0175, 0.0354, 0.125, 0.00327)
    >>> round(compare_each([0.91, 0.93, 0.92, 0.95], [0.90, 0.91, 0.91, 0.92], paired=False).p, 4)
    0.1331
    """
    first, second = _numbers(first), _numbers(second)
    if paired is False:
        return _unpaired(first, second, margin=margin, level=level)
    if len(first) != len(second) or not first:
        raise ParameterError(
            f"A paired comparison needs the same seeds on both sides, and there are {len(first)} and {len(second)} "
            f"numbers; leave out the seeds that one side does not have."
        )
    differences = [a - b for a, b in zip(first, second, strict=True)]
    if not all(map(math.isfinite, differences)):
        raise ParameterError("A comparison is of finite numbers; leave out what diverged, and say so.")
    return _judge(differences, margin=margin, level=level, flips=True)


def compare_sets(
    first: Estimate, second: Estimate, *, margin: float | None = None, level: float = 0.95, paired: bool = True
) -> Comparison:
    """Compare a number that a set of models has together, such as a prediction difference, by the jackknife.

    >>> import softknee as sk, torch
    >>> noise = torch.randn(8, 200, 3, generator=torch.Generator().manual_seed(0))
    >>> calm, wild = (sk.measure.prediction_difference(torch.softmax(size * noise, 2)).delta_1 for size in (0.5, 1.0))
    >>> result = compare_sets(calm, wild)
    >>> result.difference == calm.value - wild.value, result.interval[1] < 0, result.p < 0.001
    (True, True, True)
    """
    for estimate in (first, second):
        if not isinstance(estimate, Estimate):
            cure = "; of a number that each model has for itself, compare the `each` of both with compare_each"
            raise ParameterError(
                f"compare_sets takes two estimates, such as the delta_1 of two prediction differences, and "
                f"{type(estimate).__name__} was given{cure if isinstance(estimate, Score) else ''}."
            )
    check_level(level)
    _check_margin(margin)
    difference = first.value - second.value
    if first.without is None or second.without is None:
        return Comparison(seeds=0, difference=difference, margin=margin)
    if paired is False and first.stdev is not None and second.stdev is not None:
        sides = [(first.stdev**2, len(first.without) - 1), (second.stdev**2, len(second.without) - 1)]
        return _welch(difference, sides, margin=margin, level=level)
    if len(first.without) != len(second.without):
        raise ParameterError(f"Sets of models have the same seeds, not {len(first.without)} and {len(second.without)}.")
    models = len(first.without)
    if models < FEWEST:
        return Comparison(seeds=models, difference=difference, margin=margin)
    without = [a - b for a, b in zip(first.without, second.without, strict=True)]
    middle = statistics.fmean(without)
    pseudo = [difference - (models - 1) * (value - middle) for value in without]
    return _judge(pseudo, margin=margin, level=level, flips=False, mean=difference)


def _numbers(values: Sequence[float]) -> list[float]:
    """One number for each seed, also of an array or a tensor."""
    try:
        return [float(value) for value in values]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ParameterError(f"A paired comparison takes one number for each seed on both sides: {error}.") from error


def _check_margin(margin: float | None) -> None:
    if margin is not None and not 0 < as_number(margin) < math.inf:
        raise ParameterError(f"margin is the largest difference that does not matter, above 0, not {margin!r}.")


def _judge(
    differences: Sequence[float], *, margin: float | None, level: float, flips: bool, mean: float | None = None
) -> Comparison:
    check_level(level)
    _check_margin(margin)
    seeds = len(differences)
    mean = statistics.fmean(differences) if mean is None else mean
    if seeds < 2:
        return Comparison(seeds=seeds, difference=mean, margin=margin)
    spread = statistics.stdev(differences)
    # Differences of equal numbers may come out as unequal rounding errors: no spread to judge anything by.
    if spread <= 1e-12 * max(abs(difference) for difference in differences):
        inside = margin is not None and abs(mean) < margin
        return Comparison(
            seeds=seeds,
            difference=mean,
            p=1.0 if mean == 0 else 2.0 ** (1 - seeds),
            p_flips=sign_flips(differences) if flips and seeds <= MOST_FLIPPED else None,
            effect=0.0 if mean == 0 else None,
            margin=margin,
            equivalence=None if margin is None else 2.0**-seeds if inside else 1.0,
        )
    return replace(
        _t_test(mean, spread / math.sqrt(seeds), seeds - 1, seeds=seeds, margin=margin, level=level),
        p_flips=sign_flips(differences) if flips and seeds <= MOST_FLIPPED else None,
        effect=_hedges(seeds - 1) * mean / spread if seeds > 2 else None,
    )


def _t_test(
    difference: float, error: float, freedom: float, *, seeds: int, margin: float | None, level: float
) -> Comparison:
    """The t-test, interval and equivalence test of a difference with this standard error."""
    reach = t_quantile(freedom, level) * error
    return Comparison(
        seeds=seeds,
        difference=difference,
        interval=(difference - reach, difference + reach),
        p=2 * _above(abs(difference) / error, freedom),
        margin=margin,
        equivalence=None if margin is None else _above((margin - abs(difference)) / error, freedom),
    )


def _unpaired(first: Sequence[float], second: Sequence[float], *, margin: float | None, level: float) -> Comparison:
    check_level(level)
    _check_margin(margin)
    if not first or not second or not all(map(math.isfinite, (*first, *second))):
        raise ParameterError("A comparison is of finite numbers on both sides; leave out what diverged, and say so.")
    difference = statistics.fmean(first) - statistics.fmean(second)
    if min(len(first), len(second)) < 2:
        return Comparison(seeds=min(len(first), len(second)), difference=difference, margin=margin)
    spreads = [statistics.variance(side) for side in (first, second)]
    sides = [(spread / len(side), len(side) - 1) for spread, side in zip(spreads, (first, second), strict=True)]
    result = _welch(difference, sides, margin=margin, level=level)
    freedom, pooled = len(first) + len(second) - 2, math.sqrt(statistics.fmean(spreads))
    return replace(result, effect=_hedges(freedom) * difference / pooled) if result.interval is not None else result


def _welch(difference: float, sides: Sequence[tuple[float, int]], *, margin: float | None, level: float) -> Comparison:
    """Welch's test of a difference; of each side the squared standard error and its degrees of freedom."""
    seeds = min(freedom for _, freedom in sides) + 1
    squared = math.fsum(error for error, _ in sides)
    if math.sqrt(squared) <= 1e-12 * abs(difference) or squared == 0:
        ways = math.comb(sum(freedom + 1 for _, freedom in sides), seeds)
        return Comparison(seeds=seeds, difference=difference, p=1.0 if difference == 0 else 2 / ways, margin=margin)
    freedom = squared**2 / math.fsum(error**2 / own for error, own in sides)
    return _t_test(difference, math.sqrt(squared), freedom, seeds=seeds, margin=margin, level=level)


def seeds_needed(
    effect: float, first: float, second: float, *, power: float = 0.8, level: float = 0.95, most: int = 1000
) -> int | None:
    """How many seeds on each side show an effect with this probability; None above `most`.

    first, second: the standard deviations of the two sides, such as those of a first run with three seeds.

    >>> seeds_needed(5.0, 1.0, 1.0), seeds_needed(0.5, 1.0, 1.0)
    (3, 64)
    """
    if not 0.5 < as_number(power) < 1:
        raise ParameterError(f"power is a probability above one half, such as 0.8, not {power!r}.")
    normal = statistics.NormalDist()
    reach = normal.inv_cdf((1 + level) / 2) + normal.inv_cdf(power)  # below that of every t
    fewest = reach**2 * (first**2 + second**2) / effect**2 if effect else math.inf
    for seeds in range(max(2, math.ceil(min(fewest, most + 1))), most + 1):
        freedom = 2 * (seeds - 1)
        reach = t_quantile(freedom, level) + t_quantile(freedom, 2 * power - 1)
        if abs(effect) >= reach * math.sqrt((first**2 + second**2) / seeds):
            return seeds
    return None


def _above(t: float, freedom: float) -> float:
    """P(T > t)."""
    half = max(0.0, 1 - t_within(abs(t), freedom)) / 2
    return half if t >= 0 else 1 - half


def _hedges(freedom: int) -> float:
    """What d_z is multiplied by: of few seeds the spread comes out too small, and the effect too large."""
    half = freedom / 2
    return math.exp(math.lgamma(half) - math.lgamma(half - 0.5)) / math.sqrt(half)


def sign_flips(differences: Sequence[float]) -> float:
    """The share of all 2^M choices of signs whose sum is at least as far from 0 as that of the differences.

    >>> sign_flips([1.0, 2.0, 3.0])                      # only + + + and - - - reach 6
    0.25
    """
    if not 1 <= len(differences) <= 20:
        raise ParameterError(f"All signs are tried for up to 20 differences, and there are {len(differences)}.")
    sums = torch.zeros(1, dtype=torch.float64)
    for difference in differences:
        sums = torch.cat([sums + abs(difference), sums - abs(difference)])
    reached = abs(math.fsum(differences))
    # Equal sums may differ by rounding, and must count as equal.
    slack = 1e-12 * math.fsum(abs(difference) for difference in differences)
    return float((sums.abs() >= reached - slack).double().mean())


def holm(p_values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Holm's adjusted p of each of a family of tests; None, where there was no test, stays None and is not counted.

    >>> holm([0.01, 0.04, None, 0.03])
    (0.03, 0.06, None, 0.06)
    """
    try:
        p_values = list(p_values)
    except TypeError:
        raise ParameterError(f"holm takes a list of probabilities, and {type(p_values).__name__} was given.") from None
    for p in p_values:
        if p is not None and not 0 <= as_number(p) <= 1:
            raise ParameterError(f"holm takes probabilities between 0 and 1, or None for no test, and {p!r} was given.")
    order = sorted((as_number(p), index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        adjusted[index] = largest
    return tuple(adjusted)


def may_be_best(p_values: Sequence[float | None], *, planned: bool = False, level: float = 0.95) -> tuple[bool, ...]:
    """Which rows are not shown to be worse than the best, by the p of each against it; None is no test.

    Which row comes out best is known only after looking. So a row is ruled out only if its p, times the number of rows
    that might have been the best instead (Bonferroni), is small: then the truly best is not ruled out in at least 95 %
    of studies (multiple comparisons with the best, Hsu 1984). Where the tests were planned, as against a baseline,
    Holm's correction is enough.

    >>> may_be_best([0.001, 0.02, None, 0.4])
    (False, True, True, True)
    """
    adjusted = holm(p_values) if planned else [None if p is None else len(p_values) * p for p in p_values]
    return tuple(p is None or p > 1 - level for p in adjusted)
