"""The loop trains what Replicas trains, and what a plain PyTorch loop would; it goes on from a state to the bit."""

import json
import math
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import softknee as sk
from replica_models import NEAR, SEEDS, X, Y, mlp
from softknee.errors import InputError, MissingToolError, ParameterError
from softknee.train import OneByOne, Replicas


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), sk.nn.SReLU(delta=0.1, learn=True), nn.Dropout(0.5), nn.Linear(16, 3))


class Output:
    """As transformers gives it."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


class Anything(nn.Module):
    """What vmap cannot run: a branch on values, a loop over the batch, a plain tensor, an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 3)])
        self.norm = nn.BatchNorm1d(8, momentum=None)
        self.unused = nn.Parameter(torch.ones(2, 2))
        self.scale = torch.tensor(2.0)

    def forward(self, x: torch.Tensor) -> Output:
        x = self.norm(self.layers[0](x)) * self.scale
        x = F.gelu(x) if x.mean().item() > 0 else torch.stack([F.relu(item) for item in x])
        return Output(self.layers[1](x))


def equal(a: dict, b: dict) -> None:
    assert a.keys() == b.keys()
    for name, item in a.items():
        assert torch.equal(item, b[name]), name


# -- the same models as Replicas --------------------------------------------------------------------------

WAYS = {
    "adamw": {"optimizer": "adamw", "lr": 1e-2, "weight_decay": 0.1, "schedule": sk.train.cosine(warmup=0.1)},
    "sgd": {"optimizer": "sgd", "lr": [0.05, 0.1], "momentum": 0.9, "weight_decay": 0.01, "clip": 0.5},
    "rmsprop": {"optimizer": "rmsprop", "lr": 1e-3, "momentum": 0.5, "centered": True, "epochs": 5},
    "adagrad": {"optimizer": "adagrad", "lr": 0.02, "lr_decay": 0.01, "drop_last": True, "epochs": 5},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_loop_trains_what_replicas_train(way: str):
    options = {"epochs": 20, "batch": 16, "gradient_norms": True, "lr_scale": 5.0, **WAYS[way]}
    given = {"count": 2, "seeds": SEEDS[1:], "share_order": way == "sgd", "share_init": way == "adamw"}
    loop, together = (kind(mlp, **given).fit(X, Y, **options) for kind in (OneByOne, Replicas))
    assert loop.step == together.step == {"adagrad": 20, "rmsprop": 25}.get(way, 100)
    torch.testing.assert_close(loop.losses, together.losses, **NEAR)
    torch.testing.assert_close(loop.gradient_norms, together.gradient_norms, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(loop.predict(X), together.predict(X), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(loop.weight_norms(), together.weight_norms(), **NEAR)
    start = mlp()[1].beta
    assert all((loop.knobs()["1.beta"] - start).abs() > 1e-3)
    for name, item in loop.knobs().items():
        torch.testing.assert_close(item, together.knobs()[name], **NEAR)
    assert loop.losses[-4:].mean() < 0.9 * loop.losses[:4].mean()


def test_a_plain_loop_trains_the_same_to_the_bit():
    """With nothing of softknee.train but the documented order of the examples."""
    loop = OneByOne(mlp, count=2, seeds=[5, 6]).fit(
        X, Y, epochs=4, batch=16, lr=0.05, momentum=0.9, weight_decay=0.01, loss=F.cross_entropy
    )
    with torch.random.fork_rng():
        torch.manual_seed(6)
        model = mlp()
    optimizer = torch.optim.SGD(sk.param_groups(model, lr=0.05, weight_decay=0.01), momentum=0.9)
    for epoch in range(4):
        for row in sk.train.order(seeds=[6], epoch=epoch, length=70)[0].split(16):
            optimizer.zero_grad()
            F.cross_entropy(model(X[row]), Y[row]).backward()
            optimizer.step()
    equal(dict(loop.model(1).state_dict()), dict(model.state_dict()))


def test_any_model_and_any_loss_will_do():
    seen = []
    x = X.clone().requires_grad_()
    loop = OneByOne(Anything, count=2).fit(
        x, Y, epochs=3, batch=16, lr=0.1, weight_decay=0.5, on_step=seen.append, loss=F.cross_entropy,
        on_epoch=lambda now: seen.append((now.epoch, tuple(now.losses.shape), now.predict(X).argmax(2).shape)),
    )  # fmt: skip
    assert seen[:6] == [1, 2, 3, 4, 5, (1, (5, 2), (2, 70))]
    assert seen[-1] == (3, (15, 2), (2, 70))
    assert loop.predict(X, probabilities=True).sum(2).allclose(torch.ones(2, 70))
    # What the loss does not depend on decays and does nothing else, as in Replicas.
    torch.testing.assert_close(loop.weights()["unused"], torch.full((2, 2, 2), 0.95**15))
    model = loop.model(1)
    assert type(model) is Anything
    assert int(model.norm.num_batches_tracked) == 15
    assert torch.equal(model.eval()(X).logits, loop.predict(X)[1])


def test_binary_outputs_become_probabilities_by_the_sigmoid():
    loop = OneByOne(lambda: nn.Linear(6, 1), count=2)
    loop.fit(X, Y > 0, epochs=1, batch=70, lr=0.1, loss="bce_with_logits")
    torch.testing.assert_close(loop.predict(X, probabilities=True), loop.predict(X).sigmoid())
    first = OneByOne(lambda: nn.Linear(6, 1), count=2).predict(X)[..., 0]
    expected = F.binary_cross_entropy_with_logits(first, (Y > 0).float().expand(2, 70), reduction="none").mean(1)
    torch.testing.assert_close(loop.losses[0], expected)


# -- random numbers ---------------------------------------------------------------------------------------


def test_dropout_is_that_of_seed_and_step_whatever_the_other_models_are():
    options = {"epochs": 2, "batch": 16, "lr": 0.05}
    before = torch.get_rng_state()
    three = OneByOne(with_dropout, count=3, seeds=SEEDS).fit(X, Y, **options)
    one = OneByOne(with_dropout, count=1, seeds=SEEDS[2:]).fit(X, Y, **options)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(three.losses[:, 2:], one.losses)
    shared = OneByOne(with_dropout, count=2, share_init=True, share_order=True, share_dropout=True)
    assert torch.equal(*shared.fit(X, Y, **options).losses.unbind(1))
    own = OneByOne(with_dropout, count=2, share_init=True, share_order=True).fit(X, Y, **options)
    assert not torch.equal(*own.losses.unbind(1))
    assert own.losses[0].sub(own.losses[1]).abs().max() > 0


# -- going on ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "adagrad"])
def test_going_on_from_a_state_is_going_on_to_the_bit(optimizer: str):
    options = {"batch": 16, "lr": 0.02, "optimizer": optimizer, "total_epochs": 4, "schedule": sk.train.linear()}
    options |= {"momentum": 0.9} if optimizer == "sgd" else {}
    whole = OneByOne(with_dropout, count=2).fit(X, Y, epochs=4, **options)
    half = OneByOne(with_dropout, count=2).fit(X, Y, epochs=2, **options)
    state = half.state_dict()
    half.fit(X, Y, epochs=1, **options)  # the state is a copy, and does not follow
    again = OneByOne(with_dropout, count=2).load_state_dict(state).fit(X, Y, epochs=2, **options)
    assert torch.equal(again.losses, whole.losses)
    equal(again.weights(), whole.weights())
    plain = json.dumps(state, default=lambda one: "tensor" if isinstance(one, torch.Tensor) else 1 / 0)
    assert '"tensor"' in plain
    assert again.epoch == 4
    assert again.step == 20


def test_a_state_of_others_changes_nothing():
    state = OneByOne(mlp, count=2).fit(X, Y, epochs=1, batch=35, lr=0.1, momentum=0.9).state_dict()
    for wrong, says in (
        (Replicas(mlp, count=2).state_dict(), "no state of such a loop"),
        ({**state, "seeds": [7, 8]}, "build them alike"),
        ({**state, "tensors": {**state["tensors"], "0.bias": torch.zeros(2, 5)}}, "'0.bias' has shape"),
        ({**state, "optimizer": {**state["optimizer"], "tensors": {"0.bias:x": torch.zeros(2, 5)}}}, "'0.bias:x'"),
        ({**state, "optimizer": {**state["optimizer"], "name": "adamv"}}, "Did you mean"),
        ({**state, "frozen": ["nothing"]}, "frozen"),
    ):
        loop = OneByOne(mlp, count=2)
        before = loop.weights()
        with pytest.raises((InputError, ParameterError), match=says):
            loop.load_state_dict(wrong)
        equal(loop.weights(), before)
        assert loop.epoch == 0
        assert loop.state_dict()["optimizer"] is None


def test_weights_go_out_and_back():
    loop = OneByOne(mlp, count=2)
    start = loop.weights()
    loop.fit(X, Y, epochs=1, batch=16, lr=0.1)
    assert not torch.equal(loop.weights()["0.weight"], start["0.weight"])
    equal(loop.load_weights(start).weights(), start)
    assert loop.step == 5
    assert start.keys() == Replicas(mlp, count=2).weights().keys()
    with pytest.raises(InputError, match="weights are of another model"):
        loop.load_weights({"0.weight": start["0.weight"]})


# -- knobs ------------------------------------------------------------------------------------------------


def test_knobs_are_set_for_each_model_or_for_none():
    loop = OneByOne(mlp, count=2, knobs={"beta": [0.25, 1.5]})
    assert loop.knobs()["3.beta"].flatten().tolist() == [0.25, 1.5]
    loop.set_knobs({"1.beta": [0.5, 2.0]})
    torch.testing.assert_close(loop.knobs()["1.beta"].flatten(), torch.tensor([0.5, 2.0]))
    assert loop.knobs()["3.beta"].flatten().tolist() == [0.25, 1.5]
    torch.testing.assert_close(loop.model(1)[1].beta.detach(), torch.tensor([2.0]))
    before = loop.weights()
    with pytest.raises(ParameterError, match="beta"):
        loop.set_knobs({"1.beta": [0.7, -1.0]})
    equal(loop.weights(), before)


def test_frozen_knobs_stay_and_the_rest_goes_on_as_in_replicas():
    loop, together = (kind(mlp, count=2) for kind in (OneByOne, Replicas))
    for item in (loop, together):
        item.fit(X, Y, epochs=2, batch=16, lr=0.01, optimizer="adamw")
        held = item.knobs()["1.beta"]
        item.freeze_knobs().fit(X, Y, epochs=3, batch=16, lr=0.01, optimizer="adamw", gradient_norms=True)
        assert torch.equal(item.knobs()["1.beta"], held)
    torch.testing.assert_close(loop.losses, together.losses, **NEAR)
    torch.testing.assert_close(loop.gradient_norms[10:], together.gradient_norms[10:], rtol=1e-3, atol=1e-4)
    state = loop.state_dict()
    again = OneByOne(mlp, count=2).load_state_dict(state).fit(X, Y, epochs=1, batch=16, lr=0.01, optimizer="adamw")
    equal(again.knobs(), loop.knobs())
    with pytest.raises(ParameterError, match="beta"):
        loop.freeze_knobs("bete")


# -- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"count": 0}, "count must be a whole number"),
        ({"count": 2, "seeds": [1]}, "1 seeds were given for 2 models"),
        ({"count": 2, "seeds": [1, 1]}, "given twice"),
        ({"count": 1, "seeds": [-1]}, "a seed must be"),
        ({"count": 1, "strategy": "dpp"}, "Did you mean 'ddp'"),
        ({"count": 1, "strategy": "fsdp2"}, "torchrun --nproc-per-node"),
        ({"count": 1, "knobs": {"bete": [1.0]}}, "Did you mean 'beta'"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_what_cannot_be_built_is_refused(given: dict, says: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ParameterError, match=says):
        OneByOne(mlp, **given)


def test_without_fabric_the_extra_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    for name in ("lightning", "lightning.fabric"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingToolError, match=r"pip install 'softknee\[parallel\]'"):
        OneByOne(mlp, count=1, strategy="ddp")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"epochs": 0}, "epochs must be"),
        ({"batch": 71, "drop_last": True, "epochs": 5}, "more than the 70 examples"),
        ({"lr": -1.0}, "lr must be"),
        ({"lr": [0.1, 0.2, 0.3]}, "or 2 of them"),
        ({"clip": 0.0}, "clip must be"),
        ({"optimizer": "adamm"}, "Did you mean"),
        ({"momentun": 0.9}, "Did you mean 'momentum'"),
        ({"loss": "crossentropy"}, "Did you mean 'cross_entropy'"),
        ({"loss": lambda output, target: (output - 1).square().mean(1)}, "must be one number"),
        ({"total_epochs": 0}, "total_epochs=0"),
        ({"lr_scale": math.inf}, "lr_scale"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_what_cannot_be_trained_is_refused(given: dict, says: str):
    with pytest.raises((ParameterError, InputError), match=says):
        OneByOne(mlp, count=2).fit(X, Y, **{"epochs": 1, "batch": 16, "lr": 0.1, **given})


def test_models_that_are_none_are_refused():
    fixed = mlp()
    with pytest.raises(ParameterError, match="same weights for two seeds"):
        OneByOne(lambda: fixed, count=2)
    widths = iter([8, 9])
    with pytest.raises(InputError, match="another architecture for model 1"):
        OneByOne(lambda: nn.Linear(6, next(widths)), count=2)
    with pytest.raises(InputError, match="no values yet"):
        OneByOne(lambda: nn.LazyLinear(3), count=1)
    pair = OneByOne(lambda: nn.LSTM(6, 3), count=1)
    with pytest.raises(InputError, match="returned a tuple"):
        pair.fit(X, Y, epochs=1, batch=16, lr=0.1)
    with pytest.raises(InputError, match="at least one example"):
        pair.predict(X[:0])
    with pytest.raises(ParameterError, match="no model 5"):
        pair.model(5)
