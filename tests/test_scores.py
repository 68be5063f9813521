"""Scores and calibration against scikit-learn, scipy and numbers worked out by hand."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import sklearn.metrics
import torch
from torch import Tensor

import softknee as sk
from softknee.measure import (  # fmt: skip
    Score,
    accuracy,
    auc,
    expected_calibration_error,
    generalisation_gap,
    log_loss,
    ranking_loss,
    reliability,
)
from softknee.measure.estimate import t_quantile

F64 = torch.float64


def draw(models: int, examples: int, labels: int, *, seed: int = 0, steps: int | None = None) -> tuple[Tensor, Tensor]:
    """Logits, rounded to `steps` per unit so that some are equal, and labels that they know something about."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(models, examples, labels, generator=generator, dtype=F64)
    logits = logits if steps is None else (logits * steps).round() / steps
    noise = 3 * torch.randn(examples, labels, generator=generator, dtype=F64)
    return logits, (logits.mean(0) + noise).argmax(1)


@pytest.mark.parametrize("labels", [2, 5])
@pytest.mark.parametrize("steps", [None, 1])
def test_every_score_against_scikit_learn(labels: int, steps: int | None):
    logits, truth = draw(4, 200, labels, seed=labels, steps=steps)
    probs = torch.softmax(logits, 2)
    y, names = truth.numpy(), list(range(labels))
    hot = np.eye(labels)[y]
    # Of equal numbers softmax makes equal numbers only to rounding; scikit-learn is asked about the same bits.
    for index, item in enumerate(probs.numpy()):
        scored = item[:, 1] if labels == 2 else item
        area = sklearn.metrics.roc_auc_score(y, scored, multi_class="ovr", average="macro")
        assert auc(probs, truth).each[index] == pytest.approx(area, abs=1e-13)
        assert ranking_loss(probs, truth).each[index] == pytest.approx(1 - area, abs=1e-13)
        assert accuracy(probs, truth).each[index] == sklearn.metrics.accuracy_score(y, item.argmax(1))
        loss = sklearn.metrics.log_loss(y, item, labels=names)
        assert log_loss(probs, truth).each[index] == pytest.approx(loss, rel=1e-13)
        assert log_loss(logits, truth, logits=True).each[index] == pytest.approx(loss, rel=1e-12)
        if steps is None:  # scikit-learn counts an equal score as wrong there; here it counts half
            ranks = sklearn.metrics.label_ranking_loss(hot, item)
            assert ranking_loss(probs, truth, over="labels").each[index] == pytest.approx(ranks, rel=1e-13)


def test_auc_from_logits_is_that_of_probabilities():
    for labels in (2, 4):
        logits, truth = draw(3, 300, labels, seed=7)
        expected = auc(torch.softmax(logits, 2), truth)
        assert auc(logits, truth, logits=True).each == pytest.approx(expected.each, abs=1e-13)


def test_auc_of_equal_scores_by_counting_pairs():
    generator = torch.Generator().manual_seed(3)
    positive = torch.randint(0, 5, (120,), generator=generator).double() / 4
    truth = torch.randint(0, 2, (120,), generator=generator)
    above, below = positive[truth == 1], positive[truth == 0]
    pairs = above[:, None] - below[None]
    expected = float(((pairs > 0).double() + (pairs == 0).double() / 2).mean())
    assert auc(torch.stack([1 - positive, positive], 1), truth).value == pytest.approx(expected, abs=1e-14)
    assert auc(torch.full((6, 2), 0.5), [0, 1, 0, 1, 1, 1]).value == 0.5


def test_ranking_over_labels_counts_equal_ones_half():
    table = torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]], dtype=F64)
    assert ranking_loss(table, [0, 0], over="labels").value == (0.25 + 1.0) / 2


def test_saturated_models_keep_their_order_and_their_loss():
    """Logits of 50 and 60: both probabilities are 1 in float64, and only the logits know which is larger."""
    logits = torch.tensor([[0.0, 60.0], [0.0, 50.0], [0.0, 55.0]], dtype=F64)
    truth = [1, 0, 0]
    assert auc(logits, truth, logits=True).value == 1.0
    assert auc(torch.softmax(logits, 1), truth).value == 0.5
    expected = np.mean([np.log1p(np.exp(-60.0)), 50 + np.log1p(np.exp(-50.0)), 55 + np.log1p(np.exp(-55.0))])
    assert log_loss(logits, truth, logits=True).value == pytest.approx(expected, rel=1e-15)
    assert log_loss(torch.tensor([[0.0, 1e4]]), [0], logits=True).value == 1e4
    assert log_loss(torch.tensor([[0.0, 1.0]]), [0]).value == pytest.approx(-math.log(np.finfo(np.float32).tiny))
    small = torch.tensor([[1e-30, 1.0]])
    assert log_loss(small, [0]).value == pytest.approx(30 * math.log(10), rel=1e-6)


def test_log_loss_from_logits_against_scipy():
    logits, truth = draw(1, 100, 6, seed=2)
    expected = -scipy.special.log_softmax(100 * logits[0].numpy(), axis=1)[np.arange(100), truth.numpy()].mean()
    assert log_loss(100 * logits[0], truth, logits=True).value == pytest.approx(expected, rel=1e-14)


# -- spread -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_the_spread_is_that_of_a_mean(level: float):
    logits, truth = draw(6, 80, 3, seed=5)
    actual = log_loss(logits, truth, logits=True, level=level)
    each = np.array(actual.each)
    assert actual.value == pytest.approx(each.mean(), rel=1e-14)
    assert actual.stdev == pytest.approx(each.std(ddof=1), rel=1e-12)
    expected = scipy.stats.t.interval(level, 5, each.mean(), scipy.stats.sem(each))
    assert actual.interval == pytest.approx(expected, rel=1e-10)


def test_one_model_has_no_spread():
    logits, truth = draw(1, 50, 3)
    for given in (logits, logits[0]):
        result = accuracy(given, truth, logits=True)
        assert (result.stdev, result.interval, len(result.each)) == (None, None, 1)
        assert float(result) == result.value


def test_intervals_stay_among_what_a_score_can_be():
    table = torch.tensor([[[0.9, 0.1], [0.9, 0.1]], [[0.9, 0.1], [0.1, 0.9]]])
    result = accuracy(table, [0, 0])
    assert result.each == (1.0, 0.5)
    assert result.interval == (0.0, 1.0)


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 7, 11, 30, 239])
def test_students_t_against_scipy(freedom: int):
    for level in (0.5, 0.9, 0.95, 0.999):
        assert t_quantile(freedom, level) == pytest.approx(scipy.stats.t.ppf((1 + level) / 2, freedom), rel=1e-11)


def test_the_gap_pairs_the_models():
    logits, truth = draw(5, 60, 3)
    seen, unseen = accuracy(logits[:, :30], truth[:30], logits=True), accuracy(logits[:, 30:], truth[30:], logits=True)
    gap = generalisation_gap(seen, unseen)
    each = np.array(seen.each) - np.array(unseen.each)
    assert gap.each == pytest.approx(tuple(each))
    assert gap.stdev == pytest.approx(each.std(ddof=1))
    low, high = (log_loss(logits[:, part], truth[part], logits=True) for part in (slice(30), slice(30, None)))
    assert generalisation_gap(low, high).value == pytest.approx(high.value - low.value)
    with pytest.raises(sk.InputError, match="same score of the same models"):
        generalisation_gap(seen, low)
    with pytest.raises(sk.InputError, match="of 5 and 1 models"):
        generalisation_gap(seen, accuracy(logits[0], truth, logits=True))


# -- calibration ------------------------------------------------------------------------------------------


def by_loops(table: np.ndarray, truth: np.ndarray, bins: int) -> float:
    """Equal widths, one example at a time; a border belongs to the bin below it."""
    members: dict[int, list[int]] = {}
    for n, row in enumerate(table):
        confidence = max(row)
        members.setdefault(next(b for b in range(bins) if confidence <= (b + 1) / bins or b == bins - 1), []).append(n)
    total = 0.0
    for inside in members.values():
        right = sum(int(np.argmax(table[n]) == truth[n]) for n in inside) / len(inside)
        total += len(inside) / len(table) * abs(right - sum(max(table[n]) for n in inside) / len(inside))
    return total


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_calibration_by_width_as_a_loop(bins: int):
    logits, truth = draw(3, 150, 4, seed=bins)
    probs = torch.softmax(logits, 2)
    result = expected_calibration_error(probs, truth, bins=bins)
    assert result.each == pytest.approx([by_loops(prob.numpy(), truth.numpy(), bins) for prob in probs], rel=1e-12)
    again = expected_calibration_error(logits, truth, bins=bins, logits=True)
    assert again.each == pytest.approx(result.each, rel=1e-12)


def test_a_border_belongs_to_the_bin_below():
    """0.8 is 4/5: with 0.7 it lies in the fourth of five bins, with 0.9 it would lie in the fifth."""
    table = torch.tensor([[0.8, 0.2], [0.7, 0.3], [0.9, 0.1]], dtype=F64)
    [result] = reliability(table, [0, 1, 0], bins=5)
    assert [item.count for item in result] == [2, 1]
    assert result[0].confidence == pytest.approx(0.75)
    assert result[0].accuracy == 0.5


def test_calibration_by_mass_against_numpy():
    logits, truth = draw(2, 103, 4, seed=9)
    probs = torch.softmax(logits, 2)
    each = expected_calibration_error(probs, truth, bins=10, scheme="mass").each
    for item, actual in zip(probs.numpy(), each, strict=True):
        sure, right = item.max(1), (item.argmax(1) == truth.numpy()).astype(float)
        order = np.argsort(sure)
        edges = [math.ceil(103 * b / 10) for b in range(11)]
        parts = [order[a:b] for a, b in pairwise(edges)]
        assert {len(part) for part in parts} == {10, 11}
        expected = sum(len(part) / 103 * abs(right[part].mean() - sure[part].mean()) for part in parts)
        assert actual == pytest.approx(expected, rel=1e-12)


def test_by_mass_the_order_of_equal_confidences_does_not_matter():
    sure = torch.tensor([0.6] * 7 + [0.9] * 6, dtype=F64)
    table, truth = torch.stack([sure, 1 - sure], 1), torch.tensor([0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0])
    values = set()
    for seed in range(5):
        order = torch.randperm(13, generator=torch.Generator().manual_seed(seed))
        values.add(round(expected_calibration_error(table[order], truth[order], bins=4, scheme="mass").value, 13))
    assert len(values) == 1


def test_calibrated_models_have_no_error():
    """Labels drawn with the very probabilities: the error falls to the noise of 20 000 examples."""
    logits, _ = draw(1, 20_000, 3, seed=4)
    probs = torch.softmax(logits[0], 1)
    truth = torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(0)).squeeze(1)
    for scheme in ("width", "mass"):
        assert expected_calibration_error(probs, truth, scheme=scheme).value < 0.015
        assert expected_calibration_error(3 * logits[0], truth, logits=True, scheme=scheme).value > 0.1


# -- what is refused --------------------------------------------------------------------------------------

GOOD = torch.tensor([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize("measured", [accuracy, auc, ranking_loss, log_loss, expected_calibration_error])
@pytest.mark.parametrize(
    ("probs", "labels", "more", "words"),
    [
        (GOOD[0], [0, 1], {}, "have shape"),
        (GOOD[:, :1], [0, 0], {}, "two labels or more"),
        (GOOD[:0], [], {}, "have shape"),
        (GOOD, [0, 1, 1], {}, "Labels are whole numbers|each of 2 examples"),
        (GOOD, [0.0, 1.0], {}, "Labels are whole numbers|each of 2 examples"),
        (GOOD, [0j, 1j], {}, "Labels are whole numbers|each of 2 examples"),
        (GOOD, [0, 2], {}, "between 0 and 1"),
        (GOOD, [-1, 0], {}, "between 0 and 1"),
        (GOOD * torch.nan, [0, 1], {}, "diverged"),
        (GOOD * torch.inf, [0, 1], {"logits": True}, "diverged"),
        (GOOD * 5, [0, 1], {}, "logits=True"),
        ("predictions", [0, 1], {}, "tensor or an array"),
    ],
)
def test_refusals(measured: Any, probs: Any, labels: Any, more: dict[str, Any], words: str):
    with pytest.raises(sk.InputError, match=words):
        measured(probs, labels, **more)


def test_other_refusals():
    for measured in (log_loss, expected_calibration_error, reliability):
        with pytest.raises(sk.InputError, match=r"sum is off by 0\.5; pass logits=True"):
            measured(GOOD / 2, [0, 1])
    with pytest.raises(sk.InputError, match="between two scores"):
        generalisation_gap(0.9, accuracy(GOOD, [0, 1]))  # type: ignore[arg-type]
    with pytest.raises(sk.InputError, match="all of 2 have it"):
        auc(GOOD, [1, 1])
    with pytest.raises(sk.InputError, match="label 2 and without, and here none"):
        auc(torch.eye(3)[:2], [0, 1])
    with pytest.raises(sk.ParameterError, match="'examples' or 'labels'"):
        ranking_loss(GOOD, [0, 1], over="models")  # type: ignore[arg-type]
    with pytest.raises(sk.ParameterError, match="'width' or 'mass'"):
        expected_calibration_error(GOOD, [0, 1], scheme="size")  # type: ignore[arg-type]
    for bins in (0, 2.5, True):
        with pytest.raises(sk.ParameterError, match="from 1 to"):
            reliability(GOOD, [0, 1], bins=bins)  # type: ignore[arg-type]
    for measured in (accuracy, auc, log_loss, expected_calibration_error):
        with pytest.raises(sk.ParameterError, match="such as"):
            measured(GOOD, [0, 1], level=95)


def test_arrays_halves_and_gradients_are_taken():
    expected = accuracy(GOOD, [0, 0])
    assert isinstance(expected, Score)
    assert accuracy(GOOD.numpy(), np.array([0, 0], dtype=np.int32)) == expected
    assert accuracy(GOOD.bfloat16().requires_grad_(), torch.tensor([0, 0])) == expected
    assert accuracy(GOOD.tolist(), [0, 0]) == expected


def test_a_list_with_the_predictions_of_each_model():
    both = torch.stack([GOOD, GOOD.flip(1)])
    for measured in (accuracy, auc, log_loss, expected_calibration_error):
        assert measured(list(both), [0, 1]) == measured([GOOD.numpy(), both[1].numpy()], [0, 1])
        assert measured(list(both), [0, 1]) == measured(both, [0, 1])


def test_what_is_infinite_has_no_spread():
    result = sk.measure.psnr(torch.tensor([[0.0, 1.0], [0.5, 1.0]]), [0.0, 1.0])
    assert (result.value, result.stdev, result.interval) == (math.inf, None, None)
