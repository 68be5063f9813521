"""An optimiser of their own for the parameters of activations: two plain torch optimisers, in every way to train."""

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import softknee as sk
from replica_models import X, Y
from softknee.errors import InputError, ParameterError
from softknee.lab.studies import reporting
from softknee.lab.studies.recipe import Training
from softknee.lab.studies.running import run_trial
from softknee.lab.studies.running.training import fit_settings
from softknee.train import OneByOne, Replicas
from softknee.train.optimizers import parts_of
from softknee.train.streamed import Streamed
from trial_models import examples, trial

SEEDS = [3, 0, 2**40 + 7]
BATCH, EPOCHS, RATE, MOMENTUM, DECAY, OWN = 20, 4, 0.05, 0.9, 0.01, 3e-3  # 70 examples: four steps an epoch
SCHEDULE = sk.train.step(milestones=[0.5], factor=0.1)
FIT: dict[str, Any] = {
    "batch": BATCH, "lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY, "schedule": SCHEDULE,
    "total_epochs": EPOCHS, "activation_optimizer": "adam", "activation_lr": OWN,
}  # fmt: skip
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "together": (Replicas, {}), "apart": (Replicas, {"compiled": True}), "loop": (OneByOne, {}),
}  # fmt: skip
KNOBS = ("1.raw_beta", "1.g_minus", "3.raw_delta")


def net() -> nn.Module:
    """Two learned parameters in the first activation and one in the second."""
    return nn.Sequential(
        nn.Linear(6, 8), sk.nn.LeakySmeLU(beta=0.5, learn=True), nn.Linear(8, 8),
        sk.nn.SReLU(delta=0.3, learn=True), nn.Linear(8, 3),
    )  # fmt: skip


def precise() -> nn.Module:
    return net().double()


@functools.cache
def by_hand(
    seed: int,
    *,
    own: Any = torch.optim.Adam,
    rate: float = RATE,
    clip: float | None = None,
    frozen: tuple[str, ...] = (),
) -> nn.Module:
    """What one would write without softknee.train: SGD for the weights, and another optimiser for the activations.

    frozen: what stays as it is from the second epoch on.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = precise()
    parameters = dict(model.named_parameters())
    knobs = [parameters[name] for name in KNOBS]
    plain = [item for name, item in parameters.items() if name.endswith("bias")]
    decaying = [value for name, value in parameters.items() if name.endswith("weight")]
    assert len(decaying) + len(plain) + len(knobs) == len(parameters)
    groups = [{"params": decaying, "weight_decay": DECAY}, {"params": plain}]
    weights, activations = torch.optim.SGD(groups, lr=rate, momentum=MOMENTUM), own(knobs, lr=OWN, weight_decay=0.0)
    for epoch in range(EPOCHS):
        for name in frozen if epoch == 1 else ():
            parameters[name].requires_grad_(False).grad = None
        for group in weights.param_groups:
            group["lr"] = rate * (1 if epoch < EPOCHS // 2 else 0.1)
        for chosen in sk.train.order(seeds=[seed], epoch=epoch, length=len(X))[0].split(BATCH):
            weights.zero_grad()
            activations.zero_grad()
            F.cross_entropy(model(X.double()[chosen]), Y[chosen]).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            weights.step()
            activations.step()
    return model


def assert_same(found: nn.Module, wanted: nn.Module, way: str) -> None:
    # In double precision; models that run apart take the loss in float32.
    relative, absolute = (1e-5, 1e-7) if way == "apart" else (1e-9, 1e-11)
    for name, value in wanted.state_dict().items():
        one = found.state_dict()[name]
        torch.testing.assert_close(one, value, rtol=relative, atol=absolute, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("own", ["adam", "adamw", "rmsprop"])
@pytest.mark.parametrize("way", WAYS)
def test_each_model_is_moved_as_by_two_optimisers_of_torch(way: str, own: str):
    """The weights' rate falls to a tenth half-way, and that of the activations stays as it is."""
    kind, how = WAYS[way]
    clip = 0.4 if own == "adam" else None
    given = {**FIT, **how, "clip": clip, "activation_optimizer": own}
    result = kind(precise, count=3, seeds=SEEDS).fit(X.double(), Y, epochs=EPOCHS, **given)
    theirs = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}[own]
    for index, seed in enumerate(SEEDS):
        assert_same(result.model(index), by_hand(seed, own=theirs, clip=clip), way)
    start = precise().state_dict()["1.raw_beta"]
    assert (result.weights()["1.raw_beta"] - start).abs().min() > OWN


@pytest.mark.parametrize("way", WAYS)
def test_a_rate_for_each_model_is_the_weights_alone(way: str):
    kind, how = WAYS[way]
    rates = [0.05, 0.02, 0.1]
    result = kind(precise, count=3, seeds=SEEDS).fit(X.double(), Y, epochs=EPOCHS, **{**FIT, **how, "lr": rates})
    for index, (seed, rate) in enumerate(zip(SEEDS, rates, strict=True)):
        assert_same(result.model(index), by_hand(seed, rate=rate), way)


def test_warm_up_and_schedule_leave_the_rate_of_activations_as_it_is():
    """With a share of 0 the weights stand still, and Adam's first step is its rate."""
    for kind, how in WAYS.values():
        result = kind(net, count=2)
        before = result.weights()
        result.fit(X, Y, epochs=1, **{**FIT, **how, "batch": 70, "schedule": lambda progress: 0.0})
        after = result.weights()
        for name, item in before.items():
            if name in KNOBS:
                torch.testing.assert_close((after[name] - item).abs(), torch.full_like(item, OWN), rtol=1e-3, atol=0)
            else:
                assert torch.equal(after[name], item), name


@pytest.mark.parametrize("way", WAYS)
def test_going_on_from_a_state_gives_the_same_bits(way: str):
    kind, how = WAYS[way]
    fit = {**FIT, **how}
    whole = kind(net, count=2).fit(X, Y, epochs=EPOCHS, **fit)
    first = kind(net, count=2).fit(X, Y, epochs=1, **fit)
    state = first.state_dict()
    first.fit(X, Y, epochs=1, **fit)  # the state is a copy, and does not follow
    again = kind(net, count=2).load_state_dict(state).fit(X, Y, epochs=EPOCHS - 1, **fit)
    assert torch.equal(again.losses, whole.losses)
    for name, one in whole.weights().items():
        assert torch.equal(again.weights()[name], one), name
    assert json.loads(json.dumps(state["optimizer"], default=lambda one: "tensor"))["activation_optimizer"] == "adam"
    # Nothing is kept for another optimiser, another rate or the weights' own: each begins anew.
    for changed in ({**fit, "activation_optimizer": "adamw"}, {**fit, "activation_lr": 1e-3}, _without_own(fit)):
        went_on = kind(net, count=2).load_state_dict(state).fit(X, Y, epochs=1, **changed)
        began = kind(net, count=2).load_state_dict({**state, "optimizer": None}).fit(X, Y, epochs=1, **changed)
        assert torch.equal(went_on.losses, began.losses)


@pytest.mark.parametrize("way", WAYS)
def test_a_state_without_it_is_what_it_was_and_a_wrong_one_changes_nothing(way: str):
    kind, how = WAYS[way]
    plain = kind(net, count=2).fit(X, Y, epochs=1, **_without_own({**FIT, **how})).state_dict()
    assert set(plain["optimizer"]) == {"name", "options", "lr_scale", "tensors"}
    state = kind(net, count=2).fit(X, Y, epochs=1, **{**FIT, **how}).state_dict()
    fresh = kind(net, count=2)
    before = fresh.weights()
    for wrong, says in (
        ({"activation_optimizer": "adma"}, "Did you mean 'adam'"),
        ({"activation_lr": None}, "activation_optimizer needs activation_lr"),
    ):
        with pytest.raises((ParameterError, InputError), match=says):
            fresh.load_state_dict({**state, "optimizer": {**state["optimizer"], **wrong}})
    for name, item in before.items():
        assert torch.equal(fresh.weights()[name], item)
    assert fresh.state_dict()["optimizer"] is None


def _without_own(fit: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fit.items() if not key.startswith("activation_")}


@pytest.mark.parametrize(
    ("knobs", "frozen"),
    [(None, KNOBS), ("beta", ("1.raw_beta",)), (["g_minus", "delta"], ("1.g_minus", "3.raw_delta"))],
)
@pytest.mark.parametrize("way", WAYS)
def test_freezing_leaves_what_both_keep_of_the_rest(way: str, knobs: Any, frozen: Sequence[str]):
    kind, how = WAYS[way]
    x, fit = X.double(), {**FIT, **how}
    result = kind(precise, count=3, seeds=SEEDS).fit(x, Y, epochs=1, **fit).freeze_knobs(knobs)
    again = kind(precise, count=3, seeds=SEEDS).load_state_dict(result.state_dict())
    for item in (result, again):
        item.fit(x, Y, epochs=EPOCHS - 1, **fit)
        for index, seed in enumerate(SEEDS):
            assert_same(item.model(index), by_hand(seed, frozen=tuple(frozen)), way)


@pytest.mark.parametrize("way", WAYS)
def test_models_without_learned_activations_and_with_nothing_else(way: str):
    kind, how = WAYS[way]
    fixed = lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))  # noqa: E731
    fit = {**FIT, **how}
    with_own, without = (kind(fixed, count=2).fit(X, Y, epochs=2, **item) for item in (fit, _without_own(fit)))
    assert torch.equal(with_own.losses, without.losses)
    alone = kind(lambda: sk.nn.SReLU(delta=0.3, learn=True), count=1)
    before = alone.weights()["raw_delta"]
    alone.fit(X[:, :1], X[:, 1:2], epochs=1, **{**fit, "batch": 70, "loss": "mse"})
    torch.testing.assert_close(
        (alone.weights()["raw_delta"] - before).abs(), torch.full((1, 1), OWN), rtol=1e-3, atol=0
    )


def test_examples_from_a_disk_are_trained_on_as_in_memory(tmp_path: Path):
    levels = torch.randint(256, (40, 1, 2, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    (tmp_path / "some.bytes").write_bytes(levels.numpy().tobytes())
    streamed = Streamed(
        path=tmp_path / "some.bytes", image=(1, 2, 3), places=torch.arange(40), mean=(128.0,), spread=(64.0,), flat=True
    )
    item, other = (Replicas(net, count=2).fit(x, Y[:40], epochs=2, **FIT) for x in (streamed, streamed[:]))
    assert torch.equal(item.losses, other.losses)
    for name, weight in item.weights().items():
        assert torch.equal(weight, other.weights()[name]), name


@pytest.mark.parametrize("kind", [Replicas, OneByOne])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"activation_optimizer": "adma", "activation_lr": 1e-3}, "Did you mean 'adam'"),
        ({"activation_optimizer": "adam"}, "activation_optimizer needs activation_lr, too"),
        ({"activation_lr": 1e-3}, "activation_lr needs activation_optimizer, too"),
        ({"activation_optimizer": "adam", "activation_lr": -1.0}, "activation_lr must be a finite number"),
        ({"activation_optimizer": "adam", "activation_lr": float("nan")}, "activation_lr must be a finite number"),
        ({"activation_optimizer": "adam", "activation_lr": [1e-3]}, "activation_lr must be a finite number"),
        ({"activation_optimizer": "adam", "activation_lr": 1e-3, "lr_scale": 2.0}, "leave one of them out"),
    ],
)
def test_what_cannot_be_an_optimiser_of_their_own_is_refused(kind, given: dict, says: str):
    with pytest.raises(ParameterError, match=says):
        kind(net, count=2).fit(X, Y, epochs=1, batch=16, lr=0.1, **given)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lr", [RATE, [0.05, 0.02]], ids=["one rate", "a rate each"])
def test_a_captured_step_moves_them_as_a_cpu_does(way: str, lr: Any):
    kind, how = WAYS[way]
    fit = {**FIT, **how, "lr": lr}
    here, there = (kind(net, count=2, device=value).fit(X, Y, epochs=EPOCHS, **fit) for value in ("cpu", "cuda"))
    for name, item in here.weights().items():
        torch.testing.assert_close(there.weights()[name].cpu(), item, rtol=1e-3, atol=1e-4)
    again = kind(net, count=2, device="cuda").fit(X, Y, epochs=1, **fit).state_dict()
    rest = kind(net, count=2, device="cuda").load_state_dict(again).fit(X, Y, epochs=EPOCHS - 1, **fit)
    torch.testing.assert_close(rest.losses, there.losses, rtol=1e-4, atol=1e-5)


# -- in a recipe --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["replicas", "compiled", "loop"])
def test_a_study_trains_with_both(engine: str):
    """With next to no rate of the weights, which the schedule also takes away, an optimiser of their own moves them."""
    data = examples()
    asked = {"optimizer": "sgd", "learning_rate": 1e-9, "schedule": "linear", "engine": engine, "epochs": 2, "count": 2}
    asked |= {"learn": True, "measures": ("hardness",), "keep": ()}
    own = {"activation_optimizer": "adam", "activation_learning_rate": 0.01}
    for more, moves in (({}, False), (own, True)):
        outcome = run_trial(trial("srelu", **asked, **more), examples=data).outcome
        assert len(outcome.hardness) == 2
        for site in outcome.hardness:
            for start, end in zip(site["start"], site["end"], strict=True):
                assert (abs(end / start - 1) > 0.01) == moves


def test_a_recipe_says_both_and_its_trials_are_others():
    usual = Training(optimizer="sgd")
    assert fit_settings(usual, task="classification", gradients=False)["activation_optimizer"] is None
    own = Training(optimizer="sgd", activation_optimizer="adam", activation_learning_rate=1)
    settings = fit_settings(own, task="classification", gradients=False)
    assert (settings["activation_optimizer"], settings["activation_lr"]) == ("adam", 1.0)
    adam = {"activation_optimizer": "adam", "activation_learning_rate": 0.01}
    said: list[dict[str, Any]] = [{}, {"activation_optimizer": None}, adam, {**adam, "activation_learning_rate": 0.1}]
    keys = {trial("smelu", optimizer="sgd", **more).key for more in said}
    assert len(keys) == 3  # what is not said is as it was before there was such a key
    assert {key for key in trial().plain()["training"] if key.startswith("activation_")} == {"activation_rate"}


def test_the_cost_is_that_of_both(monkeypatch: pytest.MonkeyPatch):
    made: list[torch.optim.Optimizer] = []
    real = reporting.make_optimizer
    monkeypatch.setattr(reporting, "make_optimizer", lambda *given: made.append(real(*given)) or made[-1])
    asked = trial("srelu", learn=True, optimizer="sgd", activation_optimizer="adam", activation_learning_rate=0.01)
    asked = replace(asked, kind="cost", cost_baseline="relu")
    reporting.measure_cost(asked, examples())
    learned, fixed = made
    assert [type(item) for item in parts_of(learned)] == [torch.optim.SGD, torch.optim.Adam]
    assert type(fixed) is torch.optim.SGD
