"""One run of the hardening study: true to Algorithm 1; what it calls replaced is a ReLU network."""

import copy
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from hardening_networks import KNOBS, RECIPE, network
from softknee.lab import hardening
from softknee.lab.data.images import Split, load_split
from softknee.lab.hardening import ENTRIES, Metric, Recipe, evaluate, profile, repeatable, train, with_relu
from softknee.lab.networks import build
from softknee.surgery.hardening import Hardener

pytest.importorskip("sklearn", reason="scikit-learn is not installed; it brings the digits")

HARDENING = [entry.name for entry in ENTRIES if entry.hardens]


@pytest.fixture(scope="module")
def digits() -> Split:
    return load_split("digits", flat=True)


def states(name: str, data: Split, recipe: Recipe, *, harden: bool) -> tuple[Any, list[dict[str, torch.Tensor]]]:
    """A run, and the state of its network after every epoch."""
    seen: list[dict[str, torch.Tensor]] = []
    watch = lambda epoch, net: seen.append(copy.deepcopy(net.state_dict()))  # noqa: E731
    return train(network(name), data, recipe, seed=3, harden=harden, watch=watch), seen


# -- one run --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HARDENING)
def test_free_and_hardened_are_one_run_until_the_knobs_freeze(name: str, digits: Split) -> None:
    recipe = replace(RECIPE, epochs=5, start=0.45)
    assert recipe.freeze_epoch == 2
    assert Hardener(network(name), total=5, start=0.45).last_free == 2
    free, free_states = states(name, digits, recipe, harden=False)
    hardened, hard_states = states(name, digits, recipe, harden=True)
    for epoch in (1, 2):
        for key, value in free_states[epoch - 1].items():
            assert torch.equal(value, hard_states[epoch - 1][key])
    assert not torch.equal(free_states[2]["0.weight"], hard_states[2]["0.weight"])
    assert free.profiles["start"] == hardened.profiles["start"]
    assert free.profiles["freeze"] == hardened.profiles["freeze"] != free.profiles["start"]
    # The free one goes on learning.
    assert free.profiles["end"] != free.profiles["freeze"]


def test_the_knobs_follow_algorithm_1(digits: Split) -> None:
    recipe = replace(RECIPE, epochs=5, start=0.45)
    seen: list[dict[str, float]] = []
    done = train(
        network("lambda_gelu"), digits, recipe, seed=0, harden=True, watch=lambda _, net: seen.append(profile(net))
    )
    assert list(seen[0]) == ["1", "3"]
    target = 2 / (5e-3 * math.sqrt(2 * math.pi))
    for path, begin in seen[1].items():
        for epoch in (3, 4, 5):
            expected = begin + (epoch - 2) / (5 - 2) * (target - begin)
            assert seen[epoch - 1][path] == pytest.approx(expected, rel=1e-6)
    assert done.profiles["end"] == seen[-1]


def test_training_is_the_plain_loop(digits: Split) -> None:
    """AdamW on three groups, cosine by epoch, batches in the generator's order: written out, the same bits."""
    done = train(network("srelu"), digits, RECIPE, seed=3, harden=False)
    net = network("srelu")
    knees = [net[at].raw_delta for at in (1, 3)]
    linears = [net[at] for at in (0, 2, 4)]
    adam = torch.optim.AdamW(
        [
            {"params": [one.weight for one in linears], "weight_decay": 0.01},
            {"params": [one.bias for one in linears], "weight_decay": 0.0},
            {"params": knees, "weight_decay": 0.0},
        ]
    )
    random = torch.Generator().manual_seed(3)
    for rate in (0.01, 0.005):
        for group, factor in zip(adam.param_groups, (1, 1, 9), strict=True):
            group["lr"] = rate * factor
        order = torch.randperm(len(digits.train_labels), generator=random)
        for at in range(0, len(order), 64):
            some = order[at : at + 64]
            adam.zero_grad()
            nn.functional.cross_entropy(net(digits.train_images[some]), digits.train_labels[some]).backward()
            adam.step()
    for key, value in net.state_dict().items():
        torch.testing.assert_close(value, done.network.state_dict()[key], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("harden", [False, True])
def test_the_best_epoch_is_the_best_by_validation(digits: Split, monkeypatch: pytest.MonkeyPatch, harden: bool) -> None:
    """With metrics as we give them: of equal accuracies the smaller loss is chosen, and of equal losses the first."""
    given = [(60.0, 0.1), (80.0, 0.5), (80.0, 0.4), (80.0, 0.4), (70.0, 0.2)]
    metrics = [Metric(accuracy=accuracy, loss=loss) for accuracy, loss in given]
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(
        hardening, "evaluate", lambda net, images, labels: asked.append(images) or metrics[len(asked) - 1]
    )
    done, seen = states("srelu", digits, replace(RECIPE, epochs=5, start=0.4), harden=harden)
    assert all(images is digits.validation_images for images in asked)
    assert (done.best_epoch, done.validation) == (3, tuple(metrics))
    for key, value in done.at_best().state_dict().items():
        assert torch.equal(value, seen[2][key])
    for key, value in done.network.state_dict().items():
        assert torch.equal(value, seen[4][key])
    assert not torch.equal(seen[2]["0.weight"], seen[4]["0.weight"])


def test_evaluation_is_a_count_and_a_mean(digits: Split, monkeypatch: pytest.MonkeyPatch) -> None:
    net = network("gelu")
    logits = net(digits.test_images)
    right = sum(int(row.argmax()) == label for row, label in zip(logits, digits.test_labels.tolist(), strict=True))
    each = logits.double().log_softmax(1).gather(1, digits.test_labels[:, None])
    found = evaluate(net, digits.test_images, digits.test_labels)
    assert found.accuracy == 100 * right / 899
    assert found.loss == pytest.approx(-each.mean().item(), rel=1e-6)
    monkeypatch.setattr(hardening, "_EVALUATED_AT_ONCE", 100)
    assert evaluate(net, digits.test_images, digits.test_labels).accuracy == found.accuracy


def test_the_settings_of_the_backend_are_put_back() -> None:
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark

    @repeatable()
    def fails() -> None:
        assert torch.backends.cudnn.deterministic
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert before == (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)


@pytest.mark.gpu
def test_on_a_gpu_runs_share_their_bits_too() -> None:
    """A convolutional network, free, hardened, and free again: one run until the knobs freeze, and twice the same."""
    random = torch.Generator().manual_seed(0)
    images, labels = torch.randn(600, 1, 28, 28, generator=random), torch.randint(10, (600,), generator=random)
    parts = {f"{part}_images": images for part in ("train", "validation", "test")}
    parts |= {f"{part}_labels": labels for part in ("train", "validation", "test")}
    data = Split(name="noise", normalisation="none", **parts).to("cuda")
    recipe = replace(RECIPE, epochs=4)
    seen: dict[str, list[dict[str, torch.Tensor]]] = {}
    for run_name, harden in (("free", False), ("hardened", True), ("again", False)):
        net = build("cnn", activation="srelu", learn=True, delta=1.0).to("cuda")
        kept = seen.setdefault(run_name, [])
        watch = lambda epoch, one, kept=kept: kept.append(copy.deepcopy(one.state_dict()))  # noqa: E731
        train(net, data, recipe, seed=0, harden=harden, watch=watch)
    for epoch, states_then in enumerate(seen["free"], start=1):
        for key, value in states_then.items():
            assert torch.equal(value, seen["again"][epoch - 1][key])
            assert epoch > recipe.freeze_epoch or torch.equal(value, seen["hardened"][epoch - 1][key])


# -- replacement ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOBS)
def test_a_replaced_network_is_plain_torch_and_computes_relu(name: str, digits: Split) -> None:
    net = network(name, seed=4)
    before = copy.deepcopy(net.state_dict())
    plain = with_relu(net)
    assert all(type(module).__module__.startswith("torch.nn.") for module in plain.modules())
    assert [type(module) for module in plain] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU, nn.Linear]
    y = digits.test_images
    for at in (0, 2, 4):
        layer = net[at]
        assert isinstance(layer, nn.Linear)
        y = layer(y if at == 0 else y.clamp(min=0))
    assert torch.equal(plain(digits.test_images), y)
    # The network itself is as it was.
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
    assert not torch.equal(net(digits.test_images), y)


@pytest.mark.parametrize("name", HARDENING)
def test_at_no_distance_nothing_is_lost_by_replacing(name: str, digits: Split) -> None:
    exact = train(network(name), digits, replace(RECIPE, tolerance=1e-12), seed=0, harden=True).network
    loose = train(network(name), digits, replace(RECIPE, tolerance=0.02), seed=0, harden=True).network
    images, labels = digits.test_images, digits.test_labels
    assert evaluate(exact, images, labels) == evaluate(with_relu(exact), images, labels)
    assert evaluate(loose, images, labels) != evaluate(with_relu(loose), images, labels)
