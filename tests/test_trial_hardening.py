"""Seeds hardened together are models hardened one by one by sk.Hardener in a plain loop; then ReLU replaces them."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load
from torch import nn
from torch.nn import functional as F

import softknee as sk
from softknee.errors import ParameterError
from softknee.lab.studies.building import model_maker
from softknee.lab.studies.running import run_trial
from trial_models import examples, trial

DATA = examples()
EPOCHS = 6
NEAR = {"rtol": 1e-3, "atol": 1e-4}  # float32, after 30 steps in which the last bits of two ways to sum have grown


def alone(asked, seed: int) -> tuple[nn.Module, list[dict[str, float]]]:
    """One model in the loop of a user, and its knobs in every epoch."""
    model = model_maker(asked.model, asked.activation, DATA)(seed)
    training = asked.training
    groups = sk.param_groups(model, lr=training.learning_rate, weight_decay=0.01)
    optimizer = torch.optim.AdamW(groups) if training.optimizer == "adamw" else torch.optim.SGD(groups, momentum=0.9)
    hardener = sk.Hardener(model, total=EPOCHS, start=asked.hardening.start, tolerance=asked.hardening.tolerance)
    knobs = []
    for epoch in range(EPOCHS):
        hardener.step(epoch + 1)
        for chosen in sk.train.order(seeds=[seed], epoch=epoch, length=60)[0].split(12):
            optimizer.zero_grad()
            F.cross_entropy(model(DATA.train_x[chosen]), DATA.train_y[chosen]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        knobs.append({site.path: site.value for site in sk.measure.hardness_profile(model).sites})
    return model, knobs


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("lambda_gelu", {"learn": True, "optimizer": "adamw"}),
        ("leaky_smelu", {"learn": True, "optimizer": "sgd", "momentum": 0.9}),  # its leak goes on being learned
        ("srelu", {"values": {"delta": 0.4}, "optimizer": "adamw"}),  # a knob that was never learned
        ("smelu", {"learn": True, "per": "channel", "optimizer": "adamw"}),
    ],
    ids=["lambda_gelu", "leaky_smelu", "srelu", "smelu by channel"],
)
def test_hardened_together_is_hardened_alone(name, changes):
    asked = trial(name, harden=True, epochs=EPOCHS, weight_decay=0.01, clip=1.0, **changes)
    done = run_trial(asked, examples=DATA)
    result = done.outcome
    weights = load(done.files[f"{asked.key}.models.safetensors"])
    said = load(done.files[f"{asked.key}.predictions.safetensors"])["probabilities"]
    knob = sk.get(name).knobs[0]
    for seed in asked.seeds.numbers:
        model, knobs = alone(asked, seed)
        for parameter, value in model.state_dict().items():
            torch.testing.assert_close(weights[parameter][seed], value, **NEAR)
        for path in ("1", "4"):
            way = [epoch[seed] for epoch in result.parameters[f"{path}.{knob}"]["curve"]]
            assert way == pytest.approx([epoch[path] for epoch in knobs], rel=1e-3)
        # The limit in its place, and what that does to the predictions of this very model.
        theirs = copy.deepcopy(model)
        theirs.load_state_dict({parameter: item[seed] for parameter, item in weights.items()})
        before = theirs.eval()(DATA.test_x)
        torch.testing.assert_close(said[seed], before.softmax(1), rtol=1e-4, atol=1e-6)
        sk.relu_ize_(theirs, tolerance=math.inf)
        after = theirs(DATA.test_x)
        assert result.replacement["changed"][seed] == (before.argmax(1) != after.argmax(1)).double().mean().item()
        loss = F.cross_entropy(after.double(), DATA.test_y).item()
        assert result.replacement["test"]["log_loss"][seed] == pytest.approx(loss, rel=1e-5)
    assert result.replacement["limit"] == ("LeakyReLU" if name == "leaky_smelu" else "ReLU")
    # The tolerance of lambda-GELU is the paper's distance between gates; a leak moves the distance after the freeze.
    if name in ("srelu", "smelu"):
        assert result.hardness[0]["distance"] == pytest.approx([5e-3] * 3, rel=1e-4)


def test_a_hardened_trial_ends_in_its_last_epoch_whatever_is_best():
    result = run_trial(trial(harden=True, select="best_val", epochs=5), examples=DATA).outcome
    assert result.selected == (5, 5, 5)


def test_an_activation_may_be_reported_at_its_best_epoch_after_the_freeze():
    last = trial(harden=True, learn=True, epochs=8, learning_rate=0.05)
    best = replace(last, activations=(replace(last.activation, select="best_val"),))
    ours, theirs = (run_trial(item, examples=DATA).outcome for item in (best, last))
    assert ours.curves == theirs.curves
    assert theirs.selected == (8, 8, 8)
    assert any(epoch < 8 for epoch in ours.selected)
    accuracy, loss = (list(zip(*ours.curves[f"validation_{name}"], strict=True)) for name in ("accuracy", "loss"))
    ranks = [[(a, -b) for a, b in zip(*both, strict=True)] for both in zip(accuracy, loss, strict=True)]
    # Of the two free epochs none is taken, however good: its knobs were never moved.
    assert ours.selected == tuple(3 + max(range(6), key=rank[2:].__getitem__) for rank in ranks)
    for seed, epoch in enumerate(ours.selected):
        assert ours.validation["accuracy"][seed] == accuracy[seed][epoch - 1]
        moved = ours.parameters["1.beta"]
        assert moved["end"][seed] == moved["curve"][epoch - 1][seed]
    assert ours.replacement["limit"] == "ReLU"


def test_a_seed_that_diverged_before_the_freeze_does_not_stop_the_others():
    calm = trial(harden=True, learn=True)
    wild = replace(calm, model=replace(calm.model, build="trial_models:explosive"))
    ours, theirs = (run_trial(item, examples=DATA).outcome for item in (wild, calm))
    assert ours.diverged == (None, 1, None)
    for seed in (0, 2):
        assert ours.test["log_loss"][seed] == theirs.test["log_loss"][seed]
        assert ours.replacement["changed"][seed] == theirs.replacement["changed"][seed]
        assert [value[seed] for value in ours.parameters["1.beta"]["curve"]] == [
            entry[seed] for entry in theirs.parameters["1.beta"]["curve"]
        ]
    assert ours.replacement["changed"][1] is None


def test_a_limit_that_was_left_by_learning_is_said_and_no_number_is_given():
    asked = trial("generalized_smelu", harden=True, learn=True, epochs=1)
    result = run_trial(asked, examples=DATA).outcome
    assert result.replacement["changed"] == result.replacement["test"]["accuracy"] == (None,) * 3
    assert "g_plus" in result.replacement["not_run"]
    assert None not in result.test["accuracy"]


def test_what_cannot_be_hardened_is_refused_before_any_training():
    with pytest.raises(ParameterError, match="hard already"):
        run_trial(trial("relu", harden=True), examples=DATA)
    with pytest.raises(ParameterError, match="torch has modules for g_plus=1 alone"):
        run_trial(trial("generalized_smelu", harden=True, values={"g_plus": 2.0}), examples=DATA)
    with pytest.raises(ParameterError, match="stands in the way"):
        run_trial(trial("tanh", harden=True), examples=DATA)
