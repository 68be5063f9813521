"""A cost trial: every activation in turns against the baseline."""

from dataclasses import replace

import pytest

from softknee.lab.studies.running import run_trial
from softknee.lab.studies.trial import Chosen
from trial_models import examples, trial

DATA = examples()


@pytest.fixture(scope="module")
def costs():
    labels = {"relu": "relu", "gelu": "our gelu", "smelu": "smelu, beta 2"}
    asked = trial(kind="cost", optimizer="sgd", momentum=0.9, batch=48)
    asked = replace(asked, activations=tuple(Chosen(name=name, label=label) for name, label in labels.items()))
    return asked, {row["label"]: row for row in run_trial(asked, examples=DATA).outcome.cost}


def test_times_and_ratios_come_with_their_spread(costs):
    asked, rows = costs
    assert list(rows) == [activation.label for activation in asked.activations]
    for row in rows.values():
        assert row.keys() == {"label", "train", "infer", "train_ratio", "infer_ratio", "peak_memory"}
        for name in ("train", "infer", "train_ratio", "infer_ratio"):
            assert 0 < row[name].low <= row[name].value <= row[name].high
            assert row[name].repeats >= 3
        assert (row["train"].unit, row["train_ratio"].unit) == ("ms", "x")
        assert row["train"].value > row["infer"].value  # forward, backward and a step against forward alone
        assert row["peak_memory"] is None  # a CPU keeps no count


def test_the_baseline_is_found_by_label_or_name_or_measured_beside(costs):
    asked, rows = costs
    assert (rows["our gelu"]["train_ratio"].low, rows["our gelu"]["train_ratio"].high) == (1.0, 1.0)
    # Two times may be equal by chance, down to the last digit of the clock; half of all turns are not.
    assert (rows["relu"]["train_ratio"].low, rows["relu"]["train_ratio"].high) != (1.0, 1.0)
    only = replace(asked, activations=asked.activations[:1])
    (row,) = run_trial(only, examples=DATA).outcome.cost
    assert row["label"] == "relu"
    assert (row["infer_ratio"].low, row["infer_ratio"].high) != (1.0, 1.0)


@pytest.mark.parametrize("loss", ["mse", "bce_with_logits"])
def test_a_regression_and_two_classes_have_costs_too(loss):
    data = examples(classes=0 if loss == "mse" else 2)
    (row,) = run_trial(trial("relu", kind="cost", loss=loss, cost_baseline="relu"), examples=data).outcome.cost
    assert row["train_ratio"].value == 1.0
