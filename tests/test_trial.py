"""What run_trial reports is what one finds by hand: by training the same models and computing every number anew."""

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load
from torch import nn
from torch.nn import functional as F

import softknee as sk
from helpers import rounding
from softknee.errors import DataError, ParameterError
from softknee.lab.studies.building import model_maker
from softknee.lab.studies.recipe import Data
from softknee.lab.studies.running import run_trial
from softknee.lab.studies.running.training import Followed, Progress
from softknee.measure import RecordError
from trial_models import WithoutTest, examples, trial

DATA = examples()


def by_hand(asked, data=DATA, *, epochs: int | None = None) -> sk.train.Replicas:
    """The models of a trial, trained without it."""
    maker = model_maker(asked.model, asked.activation, data)
    replicas = sk.train.Replicas(lambda seed: maker(seed), count=3, seeds=asked.seeds.numbers)
    settings = {"batch": 12, "lr": 0.02, "optimizer": "adamw", "weight_decay": 0.0, "gradient_norms": True}
    return replicas.fit(data.train_x, data.train_y, epochs=epochs or 4, **settings)


@pytest.fixture(scope="module")
def finished():
    asked = trial(values={"beta": 0.5}, learn="beta")
    return asked, run_trial(asked, examples=DATA), by_hand(asked)


def test_every_score_is_the_one_computed_from_the_models(finished):
    _, done, replicas = finished
    result = done.outcome
    for part in ("train", "validation", "test"):
        x, y = getattr(DATA, f"{part}_x"), getattr(DATA, f"{part}_y")
        scores = getattr(result, part)
        for seed, model in enumerate(replicas.models()):
            logits = model.eval()(x).detach().double()
            assert scores["accuracy"][seed] == (logits.argmax(1) == y).double().mean().item()
            assert scores["log_loss"][seed] == pytest.approx(F.cross_entropy(logits, y).item(), rel=1e-5)
    assert set(result.test) == {"accuracy", "log_loss", "calibration_error"}
    assert (result.diverged, result.selected) == ((None,) * 3, (4, 4, 4))
    assert result.seconds > 0


def test_curves_gradients_and_parameters_are_those_of_the_training(finished):
    _, done, replicas = finished
    result = done.outcome
    losses, norms = (item.double().view(4, 5, 3) for item in (replicas.losses, replicas.gradient_norms))
    for name, steps in (("train_loss", losses), ("gradient_norm", norms)):
        curve = torch.tensor(result.curves[name], dtype=torch.float64)
        torch.testing.assert_close(curve, steps.mean(1), rtol=rounding(torch.float64), atol=0)
    assert result.gradients["mean"] == pytest.approx(norms.view(20, 3).mean(0).tolist(), rel=1e-12)
    assert result.gradients["variance"] == pytest.approx(norms.view(20, 3).var(0).tolist(), rel=1e-12)
    assert result.curves["validation_accuracy"][-1] == result.validation["accuracy"]
    assert result.curves["validation_loss"][-1] == result.validation["log_loss"]
    assert list(result.parameters) == ["1.beta", "4.beta"]
    for name, way in result.parameters.items():
        assert way["start"] == 0.5
        assert way["end"] == tuple(replicas.knobs()[name].flatten().tolist()) == way["curve"][-1]
        assert len(way["curve"]) == 4
        assert way["curve"][0] != way["end"]
    assert [(site["path"], site["knob"]) for site in result.hardness] == [("1", "beta"), ("4", "beta")]
    for site in result.hardness:
        assert site["start"] == (0.5, 0.5, 0.5)
        assert site["end"] == result.parameters[f"{site['path']}.beta"]["end"]
        assert site["distance"] == pytest.approx([beta / 4 for beta in site["end"]])  # SmeLU: beta/4 from ReLU


def test_activity_is_counted_on_the_validation_examples(finished):
    _, done, replicas = finished
    for seed, model in enumerate(replicas.models()):
        before = model[0](DATA.validation_x)
        after = model[1](before)
        site = done.outcome.activity[0]
        assert (site["path"], site["activation"]) == ("1", "smelu")
        assert site["zero_fraction"][seed] == (after == 0).double().mean().item()
        assert site["dead_fraction"][seed] == (after == 0).all(0).double().mean().item()
        assert math.isfinite(site["entropy"][seed])


def test_prediction_difference_and_the_files(finished):
    asked, done, replicas = finished
    assert set(done.files) == {f"{asked.key}.predictions.safetensors", f"{asked.key}.models.safetensors"}
    kept = load(done.files[f"{asked.key}.predictions.safetensors"])
    assert kept["probabilities"].dtype == torch.float32
    torch.testing.assert_close(kept["probabilities"], replicas.predict(DATA.test_x, probabilities=True))
    assert torch.equal(kept["labels"], DATA.test_y)
    models = load(done.files[f"{asked.key}.models.safetensors"])
    assert all(torch.equal(models[name], item) for name, item in replicas.weights().items())
    off = (kept["probabilities"] - kept["probabilities"].mean(0)).abs()
    assert done.outcome.difference["delta_1"]["value"] == pytest.approx(off.sum(2).mean().item(), rel=1e-5)
    assert set(done.outcome.difference) == {"delta_1", "delta_2", "relative", "hamming", "true_label"}


def test_best_val_takes_each_seed_where_its_validation_was_best():
    asked = trial("relu", select="best_val", epochs=6, learning_rate=0.1)
    result = run_trial(asked, examples=DATA).outcome
    ranks = [
        [(right, -loss) for right, loss in zip(*curves, strict=True)]
        for curves in zip(
            zip(*result.curves["validation_accuracy"], strict=True),
            zip(*result.curves["validation_loss"], strict=True),
            strict=True,
        )
    ]
    assert result.selected == tuple(1 + rank.index(max(rank)) for rank in ranks)
    assert len(set(result.selected)) > 1  # otherwise nothing is tried here
    for epoch in set(result.selected):
        stopped = run_trial(
            replace(asked, training=replace(asked.training, epochs=epoch), select="last"), examples=DATA
        )
        for seed, chosen in enumerate(result.selected):
            if chosen == epoch:
                assert result.test["log_loss"][seed] == stopped.outcome.test["log_loss"][seed]


def test_of_equal_accuracies_the_lower_loss_is_the_better_one():
    model = nn.Linear(1, 2)
    progress = Progress(
        count=2, task="classification", best_from=1, followed=Followed(model), gradients=False, start={}
    )
    truth = torch.tensor([0, 1, 1])
    right = F.one_hot(truth, 2).float()
    wrong = right.clone()
    wrong[2] = 1 - wrong[2]
    # Margins of seed 0 and seed 1 in four epochs; in the third, seed 1 is sure and once wrong.
    margins = [(1.0, 2.0), (3.0, 2.0), (2.0, 9.0), (3.0, 1.0)]
    for epoch, (first, second) in enumerate(margins, start=1):
        outputs = torch.stack([first * right, second * (wrong if epoch == 3 else right)])
        progress._judge(outputs, truth, [0, 1], {"w": torch.full((2, 1), float(epoch))}, epoch)
    assert [rank[2] for rank in progress.best] == [2, 1]
    assert progress.best_weights["w"].flatten().tolist() == [2.0, 1.0]


def test_tuning_and_costs_never_read_the_test_set():
    unread = WithoutTest(DATA)
    result = run_trial(trial(kind="tune", keep=(), measures=()), examples=unread).outcome
    assert (result.test, result.difference, result.activity) == ({}, {}, ())
    assert set(result.validation) == {"accuracy", "log_loss"}
    run_trial(trial(kind="cost"), examples=unread)
    with pytest.raises(AssertionError, match="the test set was read"):
        run_trial(trial(epochs=1), examples=unread)


def test_two_classes_have_an_auc_and_one_output_is_their_log_odds():
    two = examples(classes=2)
    result = run_trial(trial(loss="bce_with_logits", epochs=2), examples=two)
    assert set(result.outcome.test) == {"accuracy", "log_loss", "auc", "calibration_error"}
    assert "binary" in result.outcome.difference
    asked = trial(loss="bce_with_logits", epochs=2)
    said = load(result.files[f"{asked.key}.predictions.safetensors"])["probabilities"]
    assert said.shape == (3, 30, 2)
    right = ((said[:, :, 1] > 0.5).long() == two.test_y).double().mean(1)
    assert result.outcome.test["accuracy"] == tuple(right.tolist())
    loss = F.binary_cross_entropy(said[0, :, 1].double(), two.test_y.double())
    assert result.outcome.test["log_loss"][0] == pytest.approx(loss.item(), rel=1e-5)


def test_a_regression_has_errors_and_no_classes():
    asked = trial(epochs=2, select="best_val", harden=True)
    result = run_trial(asked, examples=examples(classes=0))
    assert set(result.outcome.test) == set(result.outcome.train) == {"mse", "r2"}
    said = load(result.files[f"{asked.key}.predictions.safetensors"])["predictions"]
    off = said - examples(classes=0).test_y
    assert result.outcome.test["mse"] == pytest.approx(off.square().mean((1, 2)).tolist(), rel=1e-5)
    assert result.outcome.difference == {}
    assert set(result.outcome.curves) == {"train_loss", "validation_loss", "gradient_norm"}
    assert set(result.outcome.replacement) == {"limit", "test"}


def test_only_what_is_asked_for_is_measured():
    result = run_trial(trial(measures=(), keep=(), epochs=1), examples=DATA)
    assert set(result.outcome.test) == {"accuracy", "log_loss"}
    assert set(result.outcome.curves) == {"train_loss", "validation_loss", "validation_accuracy"}
    numbers = result.outcome
    assert (numbers.difference, numbers.activity, numbers.hardness, numbers.gradients) == ({}, (), (), {})
    assert result.files == {}


def test_one_by_one_gives_the_same_numbers():
    together, apart = (run_trial(trial(engine=engine, learn=True), examples=DATA) for engine in ("replicas", "loop"))
    for part in ("test", "validation", "train"):
        ours, theirs = (getattr(item.outcome, part)["log_loss"] for item in (together, apart))
        assert ours == pytest.approx(theirs, rel=1e-3)
    assert together.outcome.parameters["1.beta"]["end"] == pytest.approx(
        apart.outcome.parameters["1.beta"]["end"], rel=1e-3
    )


def test_what_cannot_be_run_is_said_before_any_training():
    with pytest.raises(DataError, match="other examples"):
        run_trial(replace(trial(), fingerprint="6" * 64), examples=DATA)
    with pytest.raises(RecordError, match="names no place on a disk"):
        run_trial(trial(data=Data(file="/home/somebody/own.csv")), examples=DATA)
    none = replace(DATA, validation_x=DATA.validation_x[:0], validation_y=DATA.validation_y[:0])
    with pytest.raises(ParameterError, match="select: best_val"):
        run_trial(trial(select="best_val"), examples=none)
    assert set(run_trial(trial(epochs=1), examples=none).outcome.curves) == {"train_loss", "gradient_norm"}
