"""A seed that diverges is recorded as such, with its epoch, and leaves the other seeds alone."""

from dataclasses import replace

import torch
from safetensors.torch import load

from softknee.lab.studies.running import run_trial
from softknee.lab.studies.trials import Outcome
from softknee.measure import Record, prediction_difference
from trial_models import examples, trial

DATA = examples()


def test_one_seed_diverges_and_the_others_have_the_same_bits_as_without_it():
    calm = trial(learn=True, count=5)
    wild = replace(calm, model=replace(calm.model, build="trial_models:explosive"))
    ours, theirs = (run_trial(item, examples=DATA) for item in (wild, calm))
    actual, other = ours.outcome, theirs.outcome
    assert actual.diverged == (None, 1, None, None, None)
    assert actual.selected == (4, None, 4, 4, 4)
    for part in ("test", "validation", "train"):
        for name, each in getattr(actual, part).items():
            assert each[1] is None
            expected = getattr(other, part)[name]
            assert [each[seed] for seed in (0, 2, 3, 4)] == [expected[seed] for seed in (0, 2, 3, 4)]
    for name, curve in actual.curves.items():
        assert all(epoch[1] is None for epoch in curve)
        assert [epoch[3] for epoch in curve] == [epoch[3] for epoch in other.curves[name]]
    assert actual.parameters["1.beta"]["end"][1] is None
    assert actual.activity[0]["zero_fraction"][1] is None
    assert actual.hardness[0]["end"][1] is actual.gradients["mean"][1] is None
    # The difference is over the four others.
    kept = load(theirs.files[f"{calm.key}.predictions.safetensors"])["probabilities"][[0, 2, 3, 4]]
    assert actual.difference["delta_1"]["value"] == prediction_difference(kept).delta_1.value
    said = load(ours.files[f"{wild.key}.predictions.safetensors"])["probabilities"]
    assert said[1].isnan().all()
    assert torch.equal(said[[0, 2, 3, 4]], kept)


def test_a_seed_that_diverges_later_keeps_its_curve_until_then():
    # One step in each epoch, of gradient descent on squares: what begins too large grows from step to step.
    asked = trial(
        build="trial_models:explosive", arguments={"factor": 1e3}, optimizer="sgd", batch=60, epochs=8,
        select="best_val", measures=(), keep=(),
    )  # fmt: skip
    result = run_trial(asked, examples=examples(classes=0)).outcome
    assert result.diverged[0] is result.diverged[2] is None
    assert 1 < result.diverged[1] < 8
    for seed, epoch in enumerate(result.diverged):
        ended = len(result.curves["train_loss"]) if epoch is None else epoch - 1
        curve = [row[seed] for row in result.curves["train_loss"]]
        assert all(loss is not None for loss in curve[:ended])
        assert all(loss is None for loss in curve[ended:])
        assert (result.test["mse"][seed] is None) == (epoch is not None)


def test_where_all_diverge_there_is_a_record_without_numbers():
    asked = trial("smelu", learn=True, optimizer="sgd", learning_rate=1e30, harden=True)
    done = run_trial(asked, examples=DATA)
    result = done.outcome
    assert None not in result.diverged
    assert result.selected == (None,) * 3
    assert set(result.test) == {"accuracy", "log_loss"}
    assert all(each == (None,) * 3 for part in (result.test, result.train, result.validation) for each in part.values())
    assert (result.difference, result.activity, result.replacement) == ({}, (), None)
    assert len(result.curves["train_loss"]) == max(result.diverged)  # nothing is left to train
    text = result.record(command="softknee study own.yaml", git=None).to_json()
    assert Outcome.read(Record.from_json(text)) == result
    assert load(done.files[f"{asked.key}.predictions.safetensors"])["probabilities"].isnan().all()
