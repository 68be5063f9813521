"""Freezing activation parameters half-way, and weights out of replicas and in again."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import softknee as sk
from softknee.errors import InputError, ParameterError

X = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] ** 2 > 0.8).long() + (X[:, 2] > 0.5).long()
BATCH, RATE = 12, 0.02
NEAR = {"rtol": 2e-4, "atol": 2e-5}  # two ways to sum a product differ in the last bits, and training lets them grow
TORCH = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}


def net() -> nn.Module:
    """Two learned parameters in the first activation, of which one is frozen by name; one in the second."""
    return nn.Sequential(
        nn.Linear(5, 8), sk.nn.LeakySmeLU(beta=0.5, learn=True), nn.Linear(8, 8),
        sk.nn.SReLU(delta=0.3, learn=True), nn.Linear(8, 3),
    )  # fmt: skip


def by_hand(seed: int, optimizer: str, options: dict, *, frozen: tuple[str, ...], clip: float) -> nn.Module:
    """Two epochs of a plain loop, and two more with some parameters frozen as torch does it."""
    torch.manual_seed(seed)
    model = net()
    moved = TORCH[optimizer](sk.param_groups(model, lr=RATE, weight_decay=0.01), **options)
    for epoch in range(4):
        for name, parameter in model.named_parameters():
            if epoch == 2 and name in frozen:
                parameter.requires_grad_(False)
                parameter.grad = None
        for chosen in sk.train.order(seeds=[seed], epoch=epoch, length=len(X))[0].split(BATCH):
            moved.zero_grad()
            F.cross_entropy(model(X[chosen]), Y[chosen]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            moved.step()
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "options"), [("sgd", {"momentum": 0.9}), ("adamw", {})])
@pytest.mark.parametrize(
    ("knobs", "frozen"),
    [("beta", ("1.raw_beta",)), (["1.beta", "delta"], ("1.raw_beta", "3.raw_delta")), (None, None)],
    ids=["one", "two", "all"],
)
def test_freezing_is_what_torch_does_without_a_gradient(optimizer, options, knobs, frozen):
    every = tuple(name for name, _ in net().named_parameters() if name.startswith(("1.", "3.")))
    frozen = every if frozen is None else frozen
    settings = {"batch": BATCH, "lr": RATE, "optimizer": optimizer, "weight_decay": 0.01, "clip": 0.4, **options}
    with torch.random.fork_rng():
        replicas = sk.train.Replicas(net, count=2, seeds=[4, 9]).fit(X, Y, epochs=2, **settings)
        then = replicas.knobs()
        replicas.freeze_knobs(knobs).fit(X, Y, epochs=2, **settings, gradient_norms=True)
        for index, seed in enumerate((4, 9)):
            alone = by_hand(seed, optimizer, options, frozen=frozen, clip=0.4)
            for name, parameter in alone.named_parameters():
                torch.testing.assert_close(dict(replicas.model(index).named_parameters())[name], parameter, **NEAR)
    moved = {name for name, value in replicas.knobs().items() if not torch.equal(value, then[name])}
    assert moved == {"1.g_minus", "1.beta", "3.delta"} - {name.replace("raw_", "") for name in frozen}
    # Of the gradient at a fixed point (no rate), the frozen part is no part of the norm.
    replicas.fit(X, Y, epochs=1, batch=48, lr=0.0, gradient_norms=True)
    model = replicas.model(0)
    F.cross_entropy(model(X), Y).backward()
    kept = [p.grad.square().sum().item() for name, p in model.named_parameters() if name not in frozen]
    assert replicas.gradient_norms[-1, 0].item() == pytest.approx(math.sqrt(sum(kept)), rel=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_frozen_replicas_go_on_from_their_state_with_the_same_bits(optimizer):
    settings = {"batch": BATCH, "lr": RATE, "optimizer": optimizer, "total_epochs": 4, "schedule": sk.train.cosine()}
    settings |= {"momentum": 0.9} if optimizer == "sgd" else {}
    whole = sk.train.Replicas(net, count=2).fit(X, Y, epochs=2, **settings).freeze_knobs("beta")
    whole.set_knobs({"beta": [0.3, 0.2]}).fit(X, Y, epochs=2, **settings)
    assert whole.knobs()["1.beta"].flatten().tolist() == pytest.approx([0.3, 0.2])
    first = sk.train.Replicas(net, count=2).fit(X, Y, epochs=2, **settings).freeze_knobs("beta")
    first.set_knobs({"beta": [0.3, 0.2]}).fit(X, Y, epochs=1, **settings)
    second = sk.train.Replicas(net, count=2).load_state_dict(first.state_dict()).fit(X, Y, epochs=1, **settings)
    assert all(torch.equal(item, second.weights()[name]) for name, item in whole.weights().items())
    assert torch.equal(whole.losses, second.losses)


def test_weights_go_out_as_copies_and_come_in_whole_or_not_at_all():
    replicas = sk.train.Replicas(net, count=2).fit(X, Y, epochs=1, batch=BATCH, lr=RATE)
    kept, outputs = replicas.weights(), replicas.predict(X)
    assert kept["0.weight"].shape == (2, 8, 5)
    replicas.fit(X, Y, epochs=1, batch=BATCH, lr=RATE)
    changed = replicas.predict(X)
    assert not torch.equal(changed, outputs)
    with pytest.raises(InputError, match=r"weights are of another model.*'4\.bias'"):
        replicas.load_weights({name: item for name, item in kept.items() if name != "4.bias"})
    with pytest.raises(InputError, match="has shape"):
        replicas.load_weights({**kept, "4.bias": kept["4.bias"][:1]})
    assert torch.equal(replicas.predict(X), changed)
    assert torch.equal(replicas.load_weights(kept).predict(X), outputs)
    assert replicas.epoch == 2


def test_what_cannot_be_frozen_is_refused():
    replicas = sk.train.Replicas(net, count=2)
    with pytest.raises(ParameterError, match="Did you mean 'beta'"):
        replicas.freeze_knobs("bta")
    alone = sk.train.Replicas(lambda: sk.nn.SReLU(learn=True), count=2, share_init=True)
    with pytest.raises(ParameterError, match="nothing would be left"):
        alone.freeze_knobs()
