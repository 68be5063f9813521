"""Prediction differences: the definitions as loops, identities, and what is refused."""

import itertools
import json
import math
import weakref
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import softknee as sk
from softknee.measure import PredictionDifference, prediction

difference = sk.measure.prediction_difference
METRICS = ("delta_1", "delta_2", "delta_p", "relative", "binary", "true_label", "hamming")


def draw(models: int, examples: int, labels: int, seed: int = 0, sharp: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(sharp * torch.randn(models, examples, labels, generator=generator, dtype=torch.float64), 2)


def by_loops(table: list[list[list[float]]], truth: list[int], p: float) -> dict[str, float | None]:
    """The definitions, one summand at a time, in exact fractions where there is no root."""
    models, examples, labels = len(table), len(table[0]), len(table[0][0])
    exact = [[[Fraction(value) for value in row] for row in model] for model in table]
    sums: dict[str, Any] = dict.fromkeys(METRICS, Fraction(0))
    for n in range(examples):
        mean = [sum(exact[m][n][k] for m in range(models)) / models for k in range(labels)]
        for m in range(models):
            off = [abs(exact[m][n][k] - mean[k]) for k in range(labels)]
            sums["delta_1"] += sum(off)
            sums["delta_2"] += Fraction(math.sqrt(sum(d * d for d in off)))
            sums["delta_p"] += Fraction(sum(float(d) ** p for d in off) ** (1 / p))
            sums["relative"] += sum(d / mean[k] for k, d in enumerate(off) if mean[k])
            sums["binary"] += sum(off) / mean[1] if mean[1] else 0
            t = truth[n]
            sums["true_label"] += off[t] / mean[t] if mean[t] else 0
    result: dict[str, float | None] = {name: float(total / models / examples) for name, total in sums.items()}
    pairs = list(itertools.combinations(range(models), 2))
    predicted = [[row.index(max(row)) for row in model] for model in table]
    differ = sum(predicted[a][n] != predicted[b][n] for a, b in pairs for n in range(examples))
    result["hamming"] = differ / len(pairs) / examples
    if labels != 2:
        result["binary"] = None
    return result


def value(found: PredictionDifference, name: str) -> float | None:
    estimate = getattr(found, name)
    return None if estimate is None else estimate.value


@st.composite
def cases(draw: Callable[..., Any]) -> tuple[list[list[list[float]]], list[int], float]:
    models, examples, labels = draw(st.integers(2, 5)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    weights = st.lists(st.integers(0, 8), min_size=labels, max_size=labels).filter(any)
    raw = [[draw(weights) for _ in range(examples)] for _ in range(models)]
    table = [[[w / sum(row) for w in row] for row in model] for model in raw]
    truth = draw(st.lists(st.integers(0, labels - 1), min_size=examples, max_size=examples))
    return table, truth, draw(st.sampled_from([1.0, 1.5, 3.0, 7.0]))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(cases())
def test_the_definitions_as_loops(case: tuple[list[list[list[float]]], list[int], float]):
    table, truth, p = case
    actual = difference(torch.tensor(table, dtype=torch.float64), truth, p=p)
    for name, expected in by_loops(table, truth, p).items():
        got = value(actual, name)
        if expected is None:
            assert got is None, name
        else:
            assert got == pytest.approx(expected, rel=1e-12, abs=1e-14), name


# -- identities -------------------------------------------------------------------------------------------


def test_two_models_and_two_labels():
    table = draw(2, 500, 2)
    expected = (table[0, :, 1] - table[1, :, 1]).abs().mean()
    assert difference(table).delta_1.value == pytest.approx(float(expected), rel=1e-13)


def test_the_probability_of_label_one_is_enough():
    table, truth = draw(4, 60, 2), torch.arange(60) % 2
    whole, short = difference(table, truth, p=3), difference(table[:, :, 1], truth, p=3)
    for name in METRICS:
        assert value(short, name) == pytest.approx(value(whole, name), rel=1e-12), name
    assert (short.labels, short.models, short.examples) == (2, 4, 60)


def test_the_positive_label_version_by_hand():
    """Predictions 0.2 and 0.4 of label 1: mean 0.3, |off| = 0.1 on both labels, over 0.3."""
    result = difference(torch.tensor([[0.2], [0.4]], dtype=torch.float64), [0])
    assert result.binary.value == pytest.approx(0.2 / 0.3)
    assert result.relative.value == pytest.approx(0.1 / 0.3 + 0.1 / 0.7)
    assert result.true_label.value == pytest.approx(0.1 / 0.7)


def test_the_same_model_twice_makes_no_difference():
    table = draw(1, 40, 5).expand(3, -1, -1)
    result = difference(table, torch.zeros(40, dtype=torch.long), p=math.inf)
    for name in METRICS:
        assert value(result, name) in (None, pytest.approx(0.0, abs=1e-15)), name


@pytest.mark.parametrize("labels", [2, 5])
def test_the_order_of_models_examples_and_labels_does_not_matter(labels: int):
    table, truth = draw(4, 80, labels, seed=3), torch.arange(80) % labels
    generator = torch.Generator().manual_seed(1)
    models, examples, names = (torch.randperm(n, generator=generator) for n in (4, 80, labels))
    other = table[models][:, examples][:, :, names]
    result = difference(table, truth, p=3)
    moved = difference(other, names.argsort()[truth[examples]], p=3)
    for name in METRICS:
        if name != "binary":  # which label is the positive one does matter
            assert value(moved, name) == pytest.approx(value(result, name), rel=1e-12), name


def test_higher_orders_are_smaller_and_bounded_below():
    table = draw(6, 200, 7)
    values = [difference(table, p=p).delta_p.value for p in (1, 1.3, 2, 4, 20, math.inf)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 6
    result = difference(table, p=2)
    assert result.delta_p.value == pytest.approx(result.delta_2.value, rel=1e-13)
    assert result.delta_1.value <= math.sqrt(7) * result.delta_2.value
    assert result.delta_2.value <= math.sqrt(7) * values[-1]
    assert result.delta_1.value <= result.relative.value


@pytest.mark.parametrize("models", [2, 3, 7])
def test_certain_models_tie_hamming_to_delta_1(models: int):
    """One-hot predictions: Delta_1 = 2 (M - 1)/M times the Hamming difference."""
    labels = torch.randint(0, 4, (models, 300), generator=torch.Generator().manual_seed(models))
    result = difference(torch.nn.functional.one_hot(labels, 4))
    assert result.hamming.value > 0.5
    assert result.delta_1.value == pytest.approx(2 * (models - 1) / models * result.hamming.value, rel=1e-12)


def test_hamming_counts_pairs():
    table = draw(5, 400, 3, seed=9)
    predicted = table.argmax(2)
    pairs = [(predicted[a] != predicted[b]).double().mean() for a, b in itertools.combinations(range(5), 2)]
    assert difference(table).hamming.value == pytest.approx(float(torch.stack(pairs).mean()), rel=1e-12)


def test_a_label_nobody_predicts_counts_nothing():
    table = torch.tensor([[[1.0, 0.0, 0.0]], [[0.5, 0.5, 0.0]]], dtype=torch.float64)
    result = difference(table, [2])
    assert result.true_label.value == 0.0
    assert result.relative.value == pytest.approx(0.25 / 0.75 + 1.0)


# -- spread over models -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("models", "labels"), [(4, 2), (7, 3)])
def test_the_jackknife_as_a_loop(models: int, labels: int):
    """Each model left out in turn, the whole function asked again, and scipy's t."""
    table, truth = draw(models, 40, labels, seed=models), torch.arange(40) % labels
    result = difference(table, truth, p=3, level=0.9)
    kept = [torch.tensor([m for m in range(models) if m != j]) for j in range(models)]
    without = [by_loops(table[item].tolist(), truth.tolist(), 3) for item in kept]
    for name in METRICS:
        estimate = getattr(result, name)
        if estimate is None:
            assert labels != 2
            assert name == "binary"
            continue
        each = np.array([value[name] for value in without])
        stdev = math.sqrt((models - 1) * each.var())
        low, high = scipy.stats.t.interval(0.9, models - 1, estimate.value, stdev)
        assert estimate.stdev == pytest.approx(stdev, rel=1e-9), name
        assert estimate.interval == pytest.approx((max(low, 0), min(high, 1) if name == "hamming" else high), rel=1e-9)


def test_below_four_models_there_is_no_interval():
    for models in (2, 3):
        result = difference(draw(models, 20, 2), torch.zeros(20, dtype=torch.long), p=3)
        assert all(getattr(result, name).stdev is None and getattr(result, name).interval is None for name in METRICS)
    assert all(getattr(difference(draw(4, 20, 2), p=3), name).stdev > 0 for name in ("delta_1", "delta_p", "binary"))


def test_equal_models_differ_by_nothing():
    drawn = torch.softmax(torch.randn(1, 200, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), 2)
    result = difference(drawn.expand(7, -1, -1), p=3)
    for item in (result.delta_1, result.delta_2, result.delta_p, result.relative, result.hamming):
        assert item is not None
        assert (item.value, item.interval) == (0.0, (0.0, 0.0))


def test_intervals_stay_among_what_the_numbers_can_be():
    """Three models agree and one is wide of them: the jackknife reaches below 0."""
    table = torch.cat([draw(1, 30, 2).expand(3, -1, -1), draw(1, 30, 2, seed=1)])
    result = difference(table)
    reach = result.delta_1.interval[1] - result.delta_1.value
    assert result.delta_1.value - reach < 0
    assert result.delta_1.interval[0] == 0.0
    assert result.hamming.interval[1] <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("models", [4, 6])
def test_intervals_cover_the_mean_of_such_models(models: int):
    """Models with a bias and a noise of their own: 95 % intervals hold the mean difference 95 times in 100.

    200 sets of models (standard error 0.015); the truth is the mean over 2000 other sets. A bootstrap, with its models
    drawn twice, covers far less (0.6 to 0.8), and so does a normal quantile at four models.
    """
    generator = torch.Generator().manual_seed(models)
    base = torch.randn(25, 3, generator=generator, dtype=torch.float64)

    def trained(sets: int) -> Tensor:
        bias = torch.randn(sets, models, 1, 3, generator=generator, dtype=torch.float64)
        scale = torch.randn(sets, models, 1, 1, generator=generator, dtype=torch.float64)
        noise = torch.randn(sets, models, 25, 3, generator=generator, dtype=torch.float64)
        return torch.softmax(2 * base + 0.5 * bias + 0.6 * torch.exp(0.4 * scale) * noise, -1)

    def delta_1(table: Tensor) -> Tensor:
        return (table - table.mean(-3, keepdim=True)).abs().sum(-1).mean((-1, -2))

    truth = float(delta_1(trained(2000)).mean())
    sets = trained(200)
    results = [difference(item).delta_1 for item in sets]
    held = sum(result.interval[0] <= truth <= result.interval[1] for result in results) / len(results)
    assert 0.9 <= held <= 0.985
    narrow = sum(abs(entry.value - truth) <= 1.96 * entry.stdev for entry in results) / len(results)
    drawn = torch.randint(0, models, (400, models), generator=generator)
    boots = [delta_1(value[drawn]).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)) for value in sets]
    assert sum(bool(low <= truth <= high) for low, high in boots) / len(boots) < held - 0.1
    assert models > 4 or narrow < 0.9


# -- what comes in, what comes out ------------------------------------------------------------------------


def test_arrays_sequences_and_types_are_the_same_numbers():
    table = draw(3, 50, 4)
    expected = difference(table)
    for form in (table.numpy(), list(table), tuple(item.numpy() for item in table), table.clone().requires_grad_()):
        assert difference(form) == expected
    assert difference(table.float()).delta_1.value == pytest.approx(expected.delta_1.value, rel=1e-6)
    assert difference(table.bfloat16()).delta_1.value == pytest.approx(expected.delta_1.value, rel=1e-2)
    assert difference(np.asfortranarray(table.numpy()), np.zeros(50, dtype=np.int32)).true_label is not None


def assert_equal(one: PredictionDifference, other: PredictionDifference) -> None:
    """Equal to rounding in everything."""
    assert (one.models, one.examples, one.labels, one.p) == (other.models, other.examples, other.labels, other.p)
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-11)
    for name in METRICS:
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None)
        if a is not None:
            assert a.value == pytest.approx(b.value, rel=1e-12), name
            assert a.stdev == pytest.approx(b.stdev, rel=1e-9), name
            assert a.interval == pytest.approx(b.interval, rel=1e-9, abs=1e-15), name


@pytest.mark.parametrize("labels", [2, 5])
def test_batches_of_examples_are_the_same_numbers(labels: int):
    table, truth = draw(5, 100, labels), torch.arange(100) % labels
    whole = difference(table, truth, p=3)
    cuts = [7, 50, 1, 42]
    assert_equal(difference(iter(table.split(cuts, 1)), truth, p=3), whole)
    assert_equal(difference((b for b in table.split(cuts, 1)), iter(truth.split(cuts)), p=3), whole)
    assert_equal(difference((list(b) for b in table.numpy().swapaxes(0, 1).reshape(10, 10, 5, labels).swapaxes(1, 2)),
                            truth.tolist(), p=3), whole)  # fmt: skip


def test_batches_are_held_one_at_a_time():
    """A batch that was worked on is free before the next but one is asked for."""
    born: list[weakref.ref[Tensor]] = []

    def stream() -> Iterator[Tensor]:
        for seed in range(6):
            assert sum(item() is not None for item in born) <= 1
            batch = draw(4, 10, 3, seed=seed)
            born.append(weakref.ref(batch))
            yield batch
            del batch

    assert difference(stream()).examples == 60


def test_sums_are_in_float64():
    """A difference of 1e-7 on one example in a million is seen although the predictions are float32."""
    table = torch.full((2, 1_000_000), 0.25)
    table[1, 7] = torch.nextafter(table[1, 7], torch.tensor(1.0))
    assert difference(table).delta_1.value == pytest.approx(float(table[1, 7].double() - 0.25) / 1e6, rel=1e-12)


def test_working_in_runs_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    table, truth = draw(5, 101, 4), torch.arange(101) % 4
    whole = difference(table, truth, p=3)
    monkeypatch.setattr(prediction, "_CHUNK", 100)
    assert_equal(difference(table, truth, p=3), whole)


def test_the_standard_error_is_that_of_a_mean():
    table = draw(2, 300, 2)
    each = (table[0, :, 1] - table[1, :, 1]).abs()
    assert difference(table).standard_error["delta_1"] == pytest.approx(float(each.std()) / math.sqrt(300), rel=1e-12)
    assert difference(table[:, :1]).standard_error["delta_1"] is None


def test_the_result_as_text_and_as_data():
    result = difference(draw(2, 30, 3), p=3)
    assert isinstance(result, PredictionDifference)
    assert "delta_3" in str(result)
    assert "2 models, 30 examples, 3 labels" in str(result)
    assert "true_label" not in str(result)
    assert json.loads(json.dumps(result.to_dict()))["delta_1"]["value"] == result.delta_1.value


GOOD = draw(2, 4, 3)


@pytest.mark.parametrize(
    ("predictions", "more", "words"),
    [
        (GOOD[:1], {}, "at least 2 models"),
        (GOOD[0, 0], {}, "have shape"),
        (GOOD[:, :0], {}, "at least 1 example"),
        (GOOD[:, :, :1], {}, "2 labels"),
        (torch.randn(2, 30, 3, generator=torch.Generator().manual_seed(0)) * 4, {}, "softmax over the labels first"),
        (torch.tensor([[3.0, -2.0], [1.0, 0.5]]), {}, "sigmoid"),
        (GOOD.log(), {}, "take exp first"),
        (torch.tensor([[-1.0, -2.0], [-0.1, -0.5]]), {}, "take exp first"),
        (GOOD / 2, {}, "sum to 1"),
        (torch.where(GOOD.max() == GOOD, torch.nan, GOOD), {}, "NaN"),
        (GOOD * 1j, {}, "complex"),
        ([[0.5, 0.5], [0.5]], {}, "one array of numbers"),
        ("probabilities", {}, "one array of numbers"),
        (GOOD, {"labels": [0, 1, 2]}, "each of 4 examples"),
        (GOOD, {"labels": iter([0, 1, 2, 0])}, "array of whole numbers"),
        (GOOD, {"labels": "0120"}, "array of whole numbers"),
        (iter([GOOD]), {"labels": "0120"}, "array of whole numbers"),
        (GOOD, {"labels": [0, 1, 2, 3]}, "between 0 and 2"),
        (GOOD, {"labels": [0, 1, 2, -1]}, "between 0 and 2"),
        (GOOD, {"labels": [0.0, 1.0, 2.0, 0.0]}, "whole numbers"),
        (GOOD, {"p": 0.5}, "at least 1"),
        (iter([]), {}, "was empty"),
        (iter([GOOD, GOOD[:, :, :2] * 0 + 0.5]), {}, "same models and labels"),
        (iter([GOOD, torch.cat([GOOD, GOOD])]), {}, "same models and labels"),
        (iter([GOOD, GOOD]), {"labels": [0, 1, 2, 0, 1, 2, 0]}, "each of 4 examples"),
        (iter([GOOD, GOOD]), {"labels": [0] * 9}, "more examples than the 8"),
        (iter([GOOD, GOOD]), {"labels": iter([[0, 1, 2, 0]])}, "ended after 4 examples"),
        (iter([GOOD]), {"labels": iter([[0, 1, 2, 0], [1]])}, "more examples than the 4"),
        ({"a": GOOD}, {}, "one array of numbers"),
    ],
)
def test_refusals(predictions: Any, more: dict[str, Any], words: str):
    with pytest.raises(sk.InputError, match=words):
        difference(predictions, **more)


def test_an_interval_has_a_level_between_0_and_1():
    for level in (0, 1, 95, True, "0.95"):
        with pytest.raises(sk.ParameterError, match="such as"):
            difference(GOOD, level=level)


def test_rounded_probabilities_pass_with_a_tolerance():
    rounded = (GOOD * 100).round() / 100
    with pytest.raises(sk.InputError, match="tolerance"):
        difference(rounded + 0.01)
    for wrong in (-1.0, math.nan, "0.05", True):  # nothing is larger than NaN: everything would pass
        with pytest.raises(sk.InputError, match="tolerance must be a finite number of at least 0"):
            difference(rounded, tolerance=wrong)  # type: ignore[arg-type]
    assert difference(rounded, tolerance=0.05).delta_1.value == pytest.approx(difference(GOOD).delta_1.value, abs=0.05)
    shifted = difference(GOOD - torch.tensor([0.0, 0.0, 1e-9]))
    assert shifted.delta_1.value == pytest.approx(difference(GOOD).delta_1.value)
