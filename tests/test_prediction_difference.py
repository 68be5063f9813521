"""Prediction differences: the definitions as loops, identities, and what is refused."""

import doctest
import itertools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import softknee as sk
from softknee.measure import PredictionDifference, prediction

difference = sk.measure.prediction_difference
METRICS = ("delta_1", "delta_2", "delta_p", "relative", "relative_positive", "true_label", "hamming")


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
            sums["relative_positive"] += sum(off) / mean[1] if mean[1] else 0
            t = truth[n]
            sums["true_label"] += off[t] / mean[t] if mean[t] else 0
    found: dict[str, float | None] = {name: float(total / models / examples) for name, total in sums.items()}
    pairs = list(itertools.combinations(range(models), 2))
    predicted = [[row.index(max(row)) for row in model] for model in table]
    differ = sum(predicted[a][n] != predicted[b][n] for a, b in pairs for n in range(examples))
    found["hamming"] = differ / len(pairs) / examples
    if labels != 2:
        found["relative_positive"] = None
    return found


@st.composite
def cases(draw: Callable[..., Any]) -> tuple[list[list[list[float]]], list[int], float]:
    models, examples, labels = draw(st.integers(2, 5)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    weights = st.lists(st.integers(0, 8), min_size=labels, max_size=labels).filter(any)
    raw = [[draw(weights) for _ in range(examples)] for _ in range(models)]
    table = [[[w / sum(row) for w in row] for row in model] for model in raw]
    truth = draw(st.lists(st.integers(0, labels - 1), min_size=examples, max_size=examples))
    return table, truth, draw(st.sampled_from([1.0, 1.5, 3.0, 7.0]))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_the_definitions_as_loops(case: tuple[list[list[list[float]]], list[int], float]):
    table, truth, p = case
    found = difference(torch.tensor(table, dtype=torch.float64), truth, p=p)
    for name, expected in by_loops(table, truth, p).items():
        got = getattr(found, name)
        if expected is None:
            assert got is None, name
        else:
            assert got == pytest.approx(expected, rel=1e-12, abs=1e-14), name


def test_the_example_runs():
    result = doctest.testmod(prediction, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


# -- identities -------------------------------------------------------------------------------------------


def test_two_models_and_two_labels():
    table = draw(2, 500, 2)
    expected = (table[0, :, 1] - table[1, :, 1]).abs().mean()
    assert difference(table).delta_1 == pytest.approx(float(expected), rel=1e-13)


def test_the_probability_of_label_one_is_enough():
    table, truth = draw(4, 60, 2), torch.arange(60) % 2
    whole, short = difference(table, truth, p=3), difference(table[:, :, 1], truth, p=3)
    for name in METRICS:
        assert getattr(short, name) == pytest.approx(getattr(whole, name), rel=1e-12), name
    assert (short.labels, short.models, short.examples) == (2, 4, 60)


def test_the_positive_label_version_by_hand():
    """Predictions 0.2 and 0.4 of label 1: mean 0.3, |off| = 0.1 on both labels, over 0.3."""
    found = difference(torch.tensor([[0.2], [0.4]], dtype=torch.float64), [0])
    assert found.relative_positive == pytest.approx(0.2 / 0.3)
    assert found.relative == pytest.approx(0.1 / 0.3 + 0.1 / 0.7)
    assert found.true_label == pytest.approx(0.1 / 0.7)


def test_the_same_model_twice_makes_no_difference():
    table = draw(1, 40, 5).expand(3, -1, -1)
    found = difference(table, torch.zeros(40, dtype=torch.long), p=math.inf)
    for name in METRICS:
        assert getattr(found, name) in (None, pytest.approx(0.0, abs=1e-15)), name


@pytest.mark.parametrize("labels", [2, 5])
def test_the_order_of_models_examples_and_labels_does_not_matter(labels: int):
    table, truth = draw(4, 80, labels, seed=3), torch.arange(80) % labels
    generator = torch.Generator().manual_seed(1)
    models, examples, names = (torch.randperm(n, generator=generator) for n in (4, 80, labels))
    other = table[models][:, examples][:, :, names]
    found = difference(table, truth, p=3)
    moved = difference(other, names.argsort()[truth[examples]], p=3)
    for name in METRICS:
        if name != "relative_positive":  # which label is the positive one does matter
            assert getattr(moved, name) == pytest.approx(getattr(found, name), rel=1e-12), name


def test_higher_orders_are_smaller_and_bounded_below():
    table = draw(6, 200, 7)
    values = [difference(table, p=p).delta_p for p in (1, 1.3, 2, 4, 20, math.inf)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 6
    found = difference(table, p=2)
    assert found.delta_p == pytest.approx(found.delta_2, rel=1e-13)
    assert found.delta_1 <= math.sqrt(7) * found.delta_2
    assert found.delta_2 <= math.sqrt(7) * values[-1]
    assert found.delta_1 <= found.relative


@pytest.mark.parametrize("models", [2, 3, 7])
def test_certain_models_tie_hamming_to_delta_1(models: int):
    """One-hot predictions: Delta_1 = 2 (M - 1)/M times the Hamming difference."""
    labels = torch.randint(0, 4, (models, 300), generator=torch.Generator().manual_seed(models))
    found = difference(torch.nn.functional.one_hot(labels, 4))
    assert found.hamming > 0.5
    assert found.delta_1 == pytest.approx(2 * (models - 1) / models * found.hamming, rel=1e-12)


def test_hamming_counts_pairs():
    table = draw(5, 400, 3, seed=9)
    predicted = table.argmax(2)
    pairs = [(predicted[a] != predicted[b]).double().mean() for a, b in itertools.combinations(range(5), 2)]
    assert difference(table).hamming == pytest.approx(float(torch.stack(pairs).mean()), rel=1e-12)


def test_a_label_nobody_predicts_counts_nothing():
    table = torch.tensor([[[1.0, 0.0, 0.0]], [[0.5, 0.5, 0.0]]], dtype=torch.float64)
    found = difference(table, [2])
    assert found.true_label == 0.0
    assert found.relative == pytest.approx(0.25 / 0.75 + 1.0)


# -- what comes in, what comes out ------------------------------------------------------------------------


def test_arrays_sequences_and_types_are_the_same_numbers():
    table = draw(3, 50, 4)
    expected = difference(table)
    for form in (table.numpy(), list(table), tuple(one.numpy() for one in table), table.clone().requires_grad_()):
        assert difference(form) == expected
    assert difference(table.float()).delta_1 == pytest.approx(expected.delta_1, rel=1e-6)
    assert difference(table.bfloat16()).delta_1 == pytest.approx(expected.delta_1, rel=1e-2)
    assert difference(np.asfortranarray(table.numpy()), np.zeros(50, dtype=np.int32)).true_label is not None


def test_sums_are_in_float64():
    """A difference of 1e-7 on one example in a million is seen although the predictions are float32."""
    table = torch.full((2, 1_000_000), 0.25)
    table[1, 7] = torch.nextafter(table[1, 7], torch.tensor(1.0))
    assert difference(table).delta_1 == pytest.approx(float(table[1, 7].double() - 0.25) / 1e6, rel=1e-12)


def test_working_in_runs_changes_nothing(monkeypatch: pytest.MonkeyPatch):
    table, truth = draw(3, 101, 4), torch.arange(101) % 4
    whole = difference(table, truth, p=3)
    monkeypatch.setattr(prediction, "_CHUNK", 100)
    assert difference(table, truth, p=3) == whole


def test_the_standard_error_is_that_of_a_mean():
    table = draw(2, 300, 2)
    each = (table[0, :, 1] - table[1, :, 1]).abs()
    assert difference(table).standard_error["delta_1"] == pytest.approx(float(each.std()) / math.sqrt(300), rel=1e-12)
    assert difference(table[:, :1]).standard_error["delta_1"] is None


def test_the_result_as_text_and_as_data():
    found = difference(draw(2, 30, 3), p=3)
    assert isinstance(found, PredictionDifference)
    assert "delta_3" in str(found)
    assert "2 models, 30 examples, 3 labels" in str(found)
    assert "true_label" not in str(found)
    assert json.loads(json.dumps(found.to_dict()))["delta_1"] == found.delta_1


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
        (GOOD, {"labels": [0, 1, 2, 3]}, "between 0 and 2"),
        (GOOD, {"labels": [0, 1, 2, -1]}, "between 0 and 2"),
        (GOOD, {"labels": [0.0, 1.0, 2.0, 0.0]}, "whole numbers"),
        (GOOD, {"p": 0.5}, "at least 1"),
    ],
)
def test_refusals(predictions: Any, more: dict[str, Any], words: str):
    with pytest.raises(sk.InputError, match=words):
        difference(predictions, **more)


def test_rounded_probabilities_pass_with_a_tolerance():
    rounded = (GOOD * 100).round() / 100
    with pytest.raises(sk.InputError, match="tolerance"):
        difference(rounded + 0.01)
    assert difference(rounded, tolerance=0.05).delta_1 == pytest.approx(difference(GOOD).delta_1, abs=0.05)
    assert difference(GOOD - torch.tensor([0.0, 0.0, 1e-9])).delta_1 == pytest.approx(difference(GOOD).delta_1)
