"""Paired tests, Holm's correction, effect sizes, equivalence: against SciPy, all signs by hand, and drawn data."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from softknee.errors import ParameterError
from softknee.measure import prediction_difference
from softknee.measure.estimate import Estimate, t_within
from softknee.measure.significance import Comparison, compare_each, compare_sets, holm, seeds_needed, sign_flips

F64 = torch.float64


def drawn(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 11, 30, 199])
def test_the_t_distribution_is_scipys(freedom: int) -> None:
    for t in (0.0, 0.1, 1.0, 2.2, 5.0, 40.0):
        assert math.isclose(t_within(t, freedom), 1 - 2 * stats.t.sf(t, freedom), abs_tol=2e-14)


@pytest.mark.parametrize("seeds", [2, 3, 4, 12, 40])
@pytest.mark.parametrize("shift", [0.0, 0.4, -3.0])
def test_the_paired_t_test_is_scipys(seeds: int, shift: float) -> None:
    first, second = (drawn(seeds, seeds) + shift).tolist(), drawn(seeds + 99, seeds).tolist()
    result, truth = compare_each(first, second, margin=0.7), stats.ttest_rel(first, second)
    assert result.p == pytest.approx(truth.pvalue, rel=1e-9, abs=1e-14)
    assert result.interval == pytest.approx(tuple(truth.confidence_interval(0.95)), rel=1e-9)
    sides = (
        stats.ttest_1samp([a - b for a, b in zip(first, second, strict=True)], side, alternative=where).pvalue
        for side, where in ((-0.7, "greater"), (0.7, "less"))
    )
    assert result.equivalence == pytest.approx(max(sides), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("seeds", [1, 2, 5, 9])
def test_sign_flips_are_scipys_permutations_and_a_plain_loop(seeds: int) -> None:
    differences = drawn(seeds, seeds).add(0.5).tolist()
    reached = abs(sum(differences)) - 1e-12
    signs = list(itertools.product((-1, 1), repeat=seeds))
    loop = sum(abs(sum(s * d for s, d in zip(sign, differences, strict=True))) >= reached for sign in signs) / len(
        signs
    )
    assert sign_flips(differences) == loop
    if seeds > 1:
        truth = stats.permutation_test(
            (differences,), lambda x, axis: abs(x.mean(axis)), permutation_type="samples", alternative="greater"
        )
        assert sign_flips(differences) == pytest.approx(truth.pvalue)


def test_sign_flips_count_equal_sums_as_equal() -> None:
    assert sign_flips([0.1, 0.2, -0.3]) == 1.0  # 0.1 + 0.2 - 0.3 is 5.6e-17 in floating point, and not 0
    assert sign_flips([0.1] * 12) == 2 / 2**12


def test_holm_is_the_step_down_by_hand() -> None:
    given = [0.011, 0.02, 0.0004, 0.3, 0.04, 0.02]
    # sorted: 0.0004*6, 0.011*5, 0.02*4, 0.02*3 (not below the last), 0.04*2, 0.3
    assert holm(given) == pytest.approx((0.055, 0.08, 0.0024, 0.3, 0.08, 0.08))
    assert holm([0.5, None, 0.6]) == (1.0, None, 1.0)
    assert holm([]) == ()


def test_holm_keeps_the_chance_of_any_false_alarm() -> None:
    draws = torch.rand(4000, 6, dtype=F64, generator=torch.Generator().manual_seed(1)).tolist()
    alarms = sum(min(item for item in holm(row) if item is not None) <= 0.05 for row in draws) / 4000
    assert abs(alarms - (1 - (1 - 0.05 / 6) ** 6)) < 4 * math.sqrt(0.05 * 0.95 / 4000)


def test_the_effect_size_is_free_of_bias_where_cohens_is_not() -> None:
    truth, seeds = 0.8, 6
    rows = drawn(2, 2500, seeds) + truth
    corrected = [compare_each(row, [0.0] * seeds).effect for row in rows.tolist()]
    mean = sum(item for item in corrected if item is not None) / len(corrected)
    plain = float((rows.mean(1) / rows.std(1)).mean())
    spread = 4 * float(torch.tensor(corrected, dtype=F64).std()) / math.sqrt(len(corrected))
    assert abs(mean - truth) < spread
    assert plain - truth > 2 * spread  # so the test can tell the two apart


def test_the_level_of_the_paired_t_test_and_the_coverage_of_its_interval() -> None:
    shared = drawn(3, 1200, 1)  # what a seed does to both
    first, second = (shared + 0.3 * drawn(seed, 1200, 12) for seed in (4, 5))
    results = [compare_each(a, b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
    for alarms in (
        sum(result.p is not None and result.p <= 0.05 for result in results),
        sum(item.interval is not None and not item.interval[0] <= 0 <= item.interval[1] for item in results),
        sum(value.p_flips is not None and value.p_flips <= 0.05 for value in results),
    ):
        assert abs(alarms / 1200 - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 1200)


def models(draw: int, *, size: float, count: int, shared: torch.Tensor) -> Estimate:
    """The prediction difference of models whose logits are the truth and noise, half of it that of the seed."""
    own = drawn(draw, count, *shared.shape[1:])
    noise = math.sqrt(0.5) * shared + math.sqrt(0.5) * own
    truth = 2 * drawn(7, 1, *shared.shape[1:])
    return prediction_difference(torch.softmax(truth + size * noise, 2)).delta_1


def compared(draw: int, sizes: tuple[float, float], count: int = 8) -> Comparison:
    shared = drawn(10**6 + draw, count, 12, 3)
    # Each model has a noise level of its own: sets of models then differ by more than the examples average out.
    scale = torch.exp(0.4 * drawn(2 * 10**6 + draw, count, 1, 1))
    first, second = (
        models(2 * draw + side, size=size, count=count, shared=scale * shared) for side, size in enumerate(sizes)
    )
    return compare_sets(first, second, margin=0.1)


@pytest.mark.slow
def test_the_level_of_the_jackknife_pairs_on_drawn_models() -> None:
    results = [compared(draw, (0.7, 0.7)) for draw in range(200)]
    alarms = sum(result.p is not None and result.p <= 0.05 for result in results) / len(results)
    assert 0.005 < alarms < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_jackknife_pairs_see_a_difference_and_pairing_narrows_the_interval() -> None:
    results = [compared(draw, (0.5, 1.0)) for draw in range(40)]
    assert sum(result.p is not None and result.p <= 0.05 and result.difference < 0 for result in results) > 32
    shared = drawn(8, 8, 12, 3)
    first, second = (models(draw, size=0.7, count=8, shared=shared) for draw in (1, 2))
    paired = compare_sets(first, second)
    assert paired.interval is not None
    assert first.stdev is not None
    assert second.stdev is not None
    turned = Estimate(second.value, second.stdev, second.interval, second.without and second.without[::-1])
    other = compare_sets(first, turned)
    assert other.interval is not None
    assert paired.interval[1] - paired.interval[0] < other.interval[1] - other.interval[0]


def test_jackknife_pairs_of_a_mean_are_the_paired_t_test() -> None:
    def leave_one_out(each: torch.Tensor) -> Estimate:
        without = (each.sum() - each) / (len(each) - 1)
        return Estimate(float(each.mean()), 0.0, (0.0, 0.0), tuple(without.tolist()))

    first, second = drawn(11, 9) + 0.5, drawn(12, 9)
    sets = compare_sets(leave_one_out(first), leave_one_out(second), margin=0.3)
    each = compare_each(first.tolist(), second.tolist(), margin=0.3)
    assert sets.p == pytest.approx(each.p)
    assert sets.interval == pytest.approx(each.interval)
    assert sets.effect == pytest.approx(each.effect)
    assert sets.equivalence == pytest.approx(each.equivalence)
    assert sets.p_flips is None


def test_what_cannot_be_said_is_none() -> None:
    assert compare_each([1.0], [0.5]) == Comparison(seeds=1, difference=0.5)
    assert compare_sets(Estimate(1.0), Estimate(0.25), margin=0.5) == Comparison(seeds=0, difference=0.75, margin=0.5)
    assert compare_each([1.0, 2.0], [0.0, 4.0]).effect is None


def test_arrays_and_tensors_are_numbers_for_each_seed() -> None:
    first, second = [0.5, 0.75, 0.25], [0.25, 0.25, 0.125]
    for kind in (torch.tensor, np.array):
        assert compare_each(kind(first), kind(second)) == compare_each(first, second)
    with pytest.raises(ParameterError, match="same seeds"):
        compare_each(np.array([]), np.array([]))


def test_differences_without_spread_are_judged_by_signs_alone() -> None:
    same = compare_each([0.9, 0.8, 0.7], [0.9, 0.8, 0.7], margin=0.01)
    assert (same.p, same.effect, same.interval, same.equivalence) == (1.0, 0.0, None, 1 / 8)
    moved = compare_each([0.9, 0.8, 0.7], [0.8, 0.7, 0.6], margin=0.01)  # 0.1 each, but for rounding
    assert (moved.p, moved.p_flips, moved.effect, moved.interval, moved.equivalence) == (0.25, 0.25, None, None, 1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: compare_each([1.0], [1.0, 2.0]), "same seeds"),
        (lambda: compare_each([], []), "same seeds"),
        (lambda: compare_each([1.0, math.nan], [1.0, 2.0]), "finite"),
        (lambda: compare_each([1.0, 3.0], [1.0, 2.0], margin=0.0), "margin"),
        (lambda: compare_each([1.0, 3.0], [1.0, 2.0], level=1.0), "level"),
        (lambda: compare_sets(Estimate(1.0, without=(1.0,) * 4), Estimate(1.0, without=(1.0,) * 5)), "the same seeds"),
        (lambda: sign_flips([]), "up to 20"),
        (lambda: compare_each(["good"], ["bad"]), "one number for each seed"),
        (lambda: compare_each(torch.ones(2, 2), torch.ones(2, 2)), "one number for each seed"),
        (lambda: holm([0.1, math.nan]), "between 0 and 1"),
    ],
    ids=["lengths", "empty", "nan", "margin", "level", "sets", "signs", "words", "table", "no probability"],
)
def test_refusals(call, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        call()


def test_without_pairs_it_is_welchs_test():
    first, second = [0.91, 0.93, 0.92, 0.95, 0.9], [0.90, 0.87, 0.91]
    result, truth = compare_each(first, second, paired=False), stats.ttest_ind(first, second, equal_var=False)
    assert result.p == pytest.approx(truth.pvalue, rel=1e-6)
    assert result.interval == pytest.approx(tuple(truth.confidence_interval()), rel=1e-6)
    assert result.seeds == 3
    assert compare_each([1.0] * 4, [1.0] * 4, paired=False).p == 1.0
    assert compare_each([1.0] * 4, [2.0] * 4, paired=False).p == pytest.approx(2 / 70)
    with pytest.raises(ParameterError, match="finite numbers on both sides"):
        compare_each([1.0], [], paired=False)


def test_the_seeds_that_an_effect_needs():
    assert seeds_needed(1.0, 1.0, 1.0) == 17  # the textbook's number for a standardised effect of 1 at 80 %
    assert seeds_needed(1e-6, 1.0, 1.0) is None
    with pytest.raises(ParameterError, match="above one half"):
        seeds_needed(1.0, 1.0, 1.0, power=0.5)
