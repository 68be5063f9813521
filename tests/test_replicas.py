"""Replica i of M is the model that would have been trained alone: by Replicas(count=1), and by a plain loop."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import softknee as sk
from replica_models import NEAR, SEEDS, X, Y, mlp
from softknee.errors import InputError, ParameterError
from softknee.train import random_keys


def with_dropout() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), sk.nn.SReLU(delta=0.1), nn.Dropout(0.2), nn.Linear(16, 16), nn.ReLU(), nn.Dropout(0.5),
        nn.Linear(16, 3),
    )  # fmt: skip


class ConvNet(nn.Module):
    """Batch norm, a channel-wise dropout, an activation with one value per channel, and a weight used twice."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 2, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.act = sk.nn.make("srelu", learn=True, per="channel", size=4, delta=0.3)
        self.drop = nn.Dropout2d(p)
        self.tied = nn.Linear(8, 8)
        self.last_norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.act(self.norm(self.first(x.view(-1, 1, 2, 3))))).flatten(1)
        return self.out(self.last_norm(self.tied(F.gelu(self.tied(x)))))


def plain_loop(make, seed: int, *, steps: int, batch: int, lr: float, order_seed: int | None = None, clip=None):
    """What one would write without softknee.train: SGD with momentum over the documented order of the examples."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = make()
    optimizer = torch.optim.SGD(sk.param_groups(model, lr=lr, weight_decay=0.01), momentum=0.9)
    losses: list[float] = []
    epoch = 0
    while len(losses) < steps:
        order = sk.train.order(seeds=[seed if order_seed is None else order_seed], epoch=epoch, length=len(X))[0]
        for chosen in order.split(batch):
            loss = F.cross_entropy(model(X[chosen]), Y[chosen])
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            losses.append(loss.item())
        epoch += 1
    return model, torch.tensor(losses)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "clip"), [(mlp, None), (ConvNet, 0.5)])
def test_without_dropout_each_replica_is_a_plain_loop_over_100_steps(make, clip):
    replicas = sk.train.Replicas(make, count=3, seeds=SEEDS)
    replicas.fit(X, Y, epochs=25, batch=20, lr=0.02, momentum=0.9, weight_decay=0.01, clip=clip)  # 20 + 20 + 20 + 10
    assert replicas.step == 100
    for index, seed in enumerate(SEEDS):
        model, losses = plain_loop(make, seed, steps=100, batch=20, lr=0.02, clip=clip)
        torch.testing.assert_close(replicas.losses[:, index], losses, **NEAR)
        result = replicas.model(index)
        assert type(result) is type(model)
        for name, value in model.state_dict().items():
            torch.testing.assert_close(
                result.state_dict()[name], value, **NEAR, msg=lambda m, name=name: f"{name}: {m}"
            )
        torch.testing.assert_close(replicas.predict(X)[index], model.eval()(X).detach(), **NEAR)
    assert replicas.losses[-4:].mean() < 0.7 * replicas.losses[:4].mean()


@pytest.mark.slow
@pytest.mark.parametrize("make", [with_dropout, lambda: ConvNet(0.3)])
def test_with_dropout_each_replica_is_the_same_alone_over_100_steps(make):
    settings = {"epochs": 25, "batch": 20, "optimizer": "adam", "lr": 0.003}
    together = sk.train.Replicas(make, count=3, seeds=SEEDS).fit(X, Y, **settings)
    alone = sk.train.Replicas(make, count=1, seeds=SEEDS[2:]).fit(X, Y, **settings)
    torch.testing.assert_close(together.losses[:, 2], alone.losses[:, 0], **NEAR)
    torch.testing.assert_close(together.predict(X)[2], alone.predict(X)[0], **NEAR)
    assert (together.losses[:, 0] - together.losses[:, 1]).abs().min() > 0


def test_what_is_shared_is_equal_and_the_rest_is_not():
    def first_losses(**shares: bool) -> torch.Tensor:
        return sk.train.Replicas(with_dropout, count=2, **shares).fit(X, Y, epochs=2, batch=35, lr=0.1).losses

    every = first_losses(share_init=True, share_order=True, share_dropout=True)
    torch.testing.assert_close(every[:, 0], every[:, 1])
    for missing in ("share_init", "share_order", "share_dropout"):
        shares = {name: name != missing for name in ("share_init", "share_order", "share_dropout")}
        losses = first_losses(**shares)
        assert (losses[:, 0] - losses[:, 1]).abs().max() > 1e-3, missing
    shared = sk.train.Replicas(mlp, count=3, seeds=SEEDS, share_init=True)
    assert all(torch.equal(model[0].weight, shared.model(0)[0].weight) for model in shared.models())
    shared.fit(X, Y, epochs=1, batch=20, lr=0.02, momentum=0.9, weight_decay=0.01)
    _, losses = plain_loop(mlp, SEEDS[0], steps=4, batch=20, lr=0.02, order_seed=SEEDS[2])
    torch.testing.assert_close(shared.losses[:, 2], losses, **NEAR)


def test_a_whole_sweep_of_a_knob_in_one_program():
    betas = [0.1, 0.7, 2.0]
    replicas = sk.train.Replicas(mlp, count=3, share_init=True, share_order=True, knobs={"beta": betas})
    assert [round(b, 5) for b in replicas.knobs()["1.beta"].flatten().tolist()] == betas
    replicas.fit(X, Y, epochs=5, batch=20, lr=0.02, momentum=0.9, weight_decay=0.01)
    assert replicas.knobs()["3.beta"].flatten().tolist() == pytest.approx(betas)  # not learned
    assert (replicas.knobs()["1.beta"].flatten() - torch.tensor(betas)).abs().min() > 1e-5  # learned
    for index, beta in enumerate(betas):

        def make(beta: float = beta) -> nn.Module:
            model = mlp()
            for layer in (1, 3):
                model[layer].set_(beta=beta)
            return model

        _, losses = plain_loop(make, 0, steps=20, batch=20, lr=0.02)
        torch.testing.assert_close(replicas.losses[:, index], losses, **NEAR)
    replicas.set_knobs({"3.beta": [1.0, 1.5, 2.5]})
    assert replicas.knobs()["3.beta"].flatten().tolist() == [1.0, 1.5, 2.5]
    before = replicas.knobs()
    with pytest.raises(ParameterError, match="beta"):
        replicas.set_knobs({"3.beta": [1.0, 1.5, -1.0]})
    assert all(torch.equal(value, before[key]) for key, value in replicas.knobs().items())


def test_a_rate_for_each_replica_and_a_schedule():
    rates = [0.01, 0.05]
    replicas = sk.train.Replicas(mlp, count=2, seeds=[0, 1])
    replicas.fit(X, Y, epochs=3, batch=35, lr=rates, optimizer="adamw", schedule=sk.train.cosine())
    for index, rate in enumerate(rates):
        alone = sk.train.Replicas(mlp, count=1, seeds=[index])
        alone.fit(X, Y, epochs=3, batch=35, lr=rate, optimizer="adamw", schedule=sk.train.cosine())
        torch.testing.assert_close(replicas.losses[:, index], alone.losses[:, 0], **NEAR)
    wild = sk.train.Replicas(mlp, count=2).fit(X, Y, epochs=3, batch=35, lr=[1e30, 0.01], clip=1e30)
    calm = sk.train.Replicas(mlp, count=1, seeds=[1]).fit(X, Y, epochs=3, batch=35, lr=0.01, clip=1e30)
    assert not wild.losses[-1, 0].isfinite()  # a replica that diverges leaves the others alone
    torch.testing.assert_close(wild.losses[:, 1], calm.losses[:, 0], **NEAR)
    still = sk.train.Replicas(mlp, count=1)
    before = still.predict(X)
    still.fit(X, Y, epochs=1, batch=35, lr=0.5, schedule=lambda progress: 0.0)
    assert torch.equal(still.predict(X), before)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "rmsprop"])
def test_resuming_gives_the_same_bits(optimizer: str):
    make = lambda: ConvNet(0.3)  # noqa: E731
    settings = {"batch": 20, "optimizer": optimizer, "lr": 0.01, "schedule": sk.train.cosine(), "total_epochs": 4}
    settings |= {"momentum": 0.9} if optimizer != "adam" else {}
    whole = sk.train.Replicas(make, count=2).fit(X, Y, epochs=4, **settings)
    first = sk.train.Replicas(make, count=2).fit(X, Y, epochs=1, **settings)
    state = first.state_dict()
    first.fit(X, Y, epochs=1, **settings)  # what the state holds must not move with the replicas
    second = sk.train.Replicas(make, count=2).load_state_dict(state)
    second.fit(X, Y, epochs=3, **settings)
    assert torch.equal(whole.losses, second.losses)
    ours, theirs = whole.state_dict(), second.state_dict()
    assert all(torch.equal(item, theirs["tensors"][name]) for name, item in ours["tensors"].items())
    kept, again = ours["optimizer"]["tensors"], theirs["optimizer"]["tensors"]
    assert kept.keys() == again.keys()
    assert all(torch.equal(value, again[name]) for name, value in kept.items())
    assert (second.epoch, second.step) == (4, 16)


def test_a_state_of_others_is_refused_and_changes_nothing():
    replicas = sk.train.Replicas(mlp, count=2).fit(X, Y, epochs=1, batch=35, lr=0.1)
    before = replicas.predict(X)
    with pytest.raises(InputError, match="no state of replicas"):
        replicas.load_state_dict({"weights": 1})
    with pytest.raises(InputError, match="seeds"):
        replicas.load_state_dict(sk.train.Replicas(mlp, count=2, seeds=[5, 6]).state_dict())
    with pytest.raises(InputError, match="another model"):
        replicas.load_state_dict(sk.train.Replicas(with_dropout, count=2).state_dict())
    assert torch.equal(replicas.predict(X), before)


def test_statistics_and_outputs():
    replicas = sk.train.Replicas(mlp, count=2).fit(X, Y, epochs=1, batch=70, lr=0.0, gradient_norms=True)
    for index, model in enumerate(replicas.models()):
        F.cross_entropy(model(X), Y).backward()
        norm = math.sqrt(sum(p.grad.square().sum().item() for p in model.parameters()))
        assert replicas.gradient_norms[0, index].item() == pytest.approx(norm, rel=1e-5)
        weights = math.sqrt(sum(p.square().sum().item() for p in model.parameters()))
        assert replicas.weight_norms()[index].item() == pytest.approx(weights, rel=1e-5)
    replicas.fit(X, Y, epochs=1, batch=70, lr=0.0)
    assert replicas.gradient_norms[1].isnan().all()
    probabilities = replicas.predict(X, probabilities=True, batch=16)
    torch.testing.assert_close(probabilities, replicas.predict(X).softmax(2))
    assert sk.measure.prediction_difference(probabilities, Y).delta_1.value > 0


@pytest.mark.parametrize("loss", ["mse", F.mse_loss])
def test_a_loss_by_name_or_as_a_function(loss):
    make = lambda: nn.Sequential(nn.Linear(6, 4), sk.nn.Swish(), nn.Linear(4, 1))  # noqa: E731
    target = X[:, :1] if callable(loss) else X[:, 0]
    replicas = sk.train.Replicas(make, count=2)
    replicas.fit(X, target, epochs=1, batch=70, lr=0.0, loss=loss)
    for index, model in enumerate(replicas.models()):
        assert replicas.losses[0, index].item() == pytest.approx(F.mse_loss(model(X), X[:, :1]).item(), rel=1e-5)


def test_the_keyed_numbers_are_uniform_and_independent():
    keys = random_keys.fold(random_keys.seed_keys([0, 1]), torch.arange(2).view(2, 1))  # [step, seed]
    drawn = torch.cat([random_keys.bits(keys[step], 40_000) for step in range(2)]).double() / 2**32
    assert (drawn.mean(1) - 0.5).abs().max() < 5 * math.sqrt(1 / 12 / 40_000)
    assert (torch.corrcoef(drawn) - torch.eye(4)).abs().max() < 5 / math.sqrt(40_000)
    assert (torch.corrcoef(torch.stack([drawn[0, 1:], drawn[0, :-1]]))[0, 1]).abs() < 5 / math.sqrt(40_000)
    counts = torch.histc(drawn[0], bins=64, min=0, max=1)
    assert ((counts - 625) ** 2 / 625).sum() < 63 + 5 * math.sqrt(2 * 63)  # chi-squared
    both = sk.train.order(seeds=[4, 5], epoch=1, length=1000)
    assert torch.equal(both.sort(dim=1).values, torch.arange(1000).expand(2, 1000))
    assert torch.equal(both[1:], sk.train.order(seeds=[5], epoch=1, length=1000))
    assert not torch.equal(both[1:], sk.train.order(seeds=[5], epoch=2, length=1000))


def test_dropout_keeps_the_share_and_the_mean():
    from softknee.train.stacked_modules import Draws, stack_modules_

    model = nn.Sequential(nn.Dropout(0.3)).train()
    draws = Draws(random_keys.seed_keys([0, 1]), torch.zeros(1, dtype=torch.int64))
    stack_modules_(model, draws)
    dropped = torch.func.vmap(model)(torch.ones(2, 100, 500))
    assert ((dropped == 0).double().mean((1, 2)) - 0.3).abs().max() < 5 * math.sqrt(0.21 / 50_000)
    assert dropped.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
    again = torch.func.vmap(model)(torch.ones(2, 100, 500))  # passed a second time in the same step
    assert not torch.equal(dropped, again)


def test_looking_on_while_training_changes_nothing():
    seen: list[tuple[int, int]] = []
    steps: list[int] = []
    settings = {"epochs": 2, "batch": 35, "lr": 0.1}

    def look(replicas: sk.train.Replicas) -> None:
        seen.append((replicas.epoch, replicas.predict(X).shape[0]))
        replicas.set_knobs(replicas.knobs())

    watched = sk.train.Replicas(lambda: ConvNet(0.3), count=2)
    watched.fit(X, Y, **settings, on_step=steps.append, on_epoch=look)
    alone = sk.train.Replicas(lambda: ConvNet(0.3), count=2).fit(X, Y, **settings)
    torch.testing.assert_close(watched.losses, alone.losses, **NEAR)
    assert seen == [(1, 2), (2, 2)]
    assert steps == [1, 2, 3, 4]


def test_the_global_random_state_is_left_alone():
    state = torch.get_rng_state()
    sk.train.Replicas(with_dropout, count=2).fit(X, Y, epochs=1, batch=35, lr=0.1)
    assert torch.equal(torch.get_rng_state(), state)


class Attribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(6, 3), torch.rand(3)

    def forward(self, x):
        return self.layer(x) * self.scale


class Noisy(nn.Linear):
    def forward(self, input):
        return F.dropout(super().forward(input), 0.5)


def widths() -> nn.Module:
    return nn.Linear(6, 3 + int(torch.randint(100, (1,))))


@pytest.mark.parametrize(
    ("make", "settings", "says"),
    [
        (mlp, {"count": 0}, "at least 1"),
        (mlp, {"count": 2, "seeds": [1]}, "1 seeds were given for 2"),
        (mlp, {"count": 2, "seeds": [1, 1]}, "given twice"),
        (mlp, {"count": 1, "seeds": [-1]}, "whole number"),
        (widths, {"count": 2}, "another architecture for model 1"),
        (lambda: 3, {"count": 1}, "must return an nn.Module"),
        (Attribute, {"count": 2}, "register it as a buffer"),
        (lambda: nn.LazyLinear(3), {"count": 1}, "no values yet"),
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3, momentum=None)), {"count": 1}, "give it a momentum"),
        (lambda: nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 3).double()), {"count": 1}, "several types"),
        (lambda: sk_mlp(seed=0), {"count": 2}, "same weights for two seeds"),
        (mlp, {"count": 2, "knobs": {"bta": [1, 2]}}, "Did you mean 'beta'"),
        (mlp, {"count": 2, "knobs": {"beta": [1]}}, "1 values for 2 replicas"),
        (mlp, {"count": 2, "seeds": 5}, "seeds must be a list"),
    ],
)
def test_replicas_that_cannot_be_made_are_refused(make, settings: dict, says: str):
    with pytest.raises((ParameterError, InputError), match=says):
        sk.train.Replicas(make, **settings)


def sk_mlp(seed: int) -> nn.Module:
    from softknee.lab.networks import mlp

    return mlp((6, 8, 3), activation="srelu", seed=seed)


def test_a_builder_that_takes_the_seed():
    replicas = sk.train.Replicas(sk_mlp, count=2, seeds=[4, 5])
    assert torch.equal(replicas.model(1)[0].weight, sk_mlp(5)[0].weight)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"y": Y[:-1]}, "70 examples and y has 69"),
        ({"x": [1, 2]}, "x must be a tensor"),
        ({"epochs": 0}, "epochs must be"),
        ({"batch": 71, "drop_last": True}, "more than the 70 examples"),
        ({"optimizer": "adan"}, "Did you mean 'adam'"),
        ({"loss": "crossentropy"}, "Did you mean 'cross_entropy'"),
        ({"loss": lambda output, target: output}, "one number for each replica"),
        ({"lr": -1.0}, "lr must be"),
        ({"lr": [0.1]}, "or 2 of them"),
        ({"clip": 0.0}, "clip must be"),
        ({"total_epochs": 0}, "total_epochs=0 is less"),
        ({"schedule": lambda progress: -1.0}, "schedule gives -1.0"),
        ({"lr_scale": -1.0}, "lr_scale"),
        ({"x": X[:, :5]}, r"cannot be run on x, .* examples of shape \(5,\)"),
        ({"x": X.double()}, r"cannot be run on x, which has torch\.float64"),
        ({"y": Y.double()}, r"convert labels with y\.long\(\)"),
        ({"y": Y + 1}, "from 1 to 3, and the model has 3 outputs"),
        ({"y": Y - 1}, "from -1 to 1"),
    ],
)
def test_what_cannot_be_fitted_is_refused(changes: dict, says: str):
    replicas = sk.train.Replicas(mlp, count=2)
    before = replicas.predict(X)
    given = {"x": X, "y": Y, "epochs": 1, "batch": 35, "lr": 0.1} | changes
    with pytest.raises((ParameterError, InputError), match=says):
        replicas.fit(given.pop("x"), given.pop("y"), **given)
    assert replicas.step == 0
    assert torch.equal(replicas.predict(X), before)


@pytest.mark.parametrize("way", [sk.train.Replicas, sk.train.OneByOne])
def test_labels_of_any_whole_type_are_taken(way):
    options = {"epochs": 1, "batch": 35, "lr": 0.1}
    expected = way(mlp, count=2).fit(X, Y, **options)
    for kind in (torch.int32, torch.uint8):
        assert torch.equal(way(mlp, count=2).fit(X, Y.to(kind), **options).losses, expected.losses)
    left_out = Y.index_fill(0, torch.tensor([3]), -100)
    assert way(mlp, count=2).fit(X, left_out, **options).losses.isfinite().all()


def test_what_only_one_by_one_can_train_is_said():
    class Branching(nn.Linear):
        def forward(self, input):
            return super().forward(input) if input.sum() > 0 else super().forward(-input)

    with pytest.raises(InputError, match=r"sk\.train\.OneByOne; in a recipe `engine: loop`"):
        sk.train.Replicas(lambda: Branching(6, 3), count=2).fit(X, Y, epochs=1, batch=35, lr=0.1)


def test_random_numbers_without_a_key_are_refused():
    with pytest.raises(InputError, match=r"outside of nn\.Dropout"):
        sk.train.Replicas(lambda: Noisy(6, 3), count=2).fit(X, Y, epochs=1, batch=35, lr=0.1)
    with pytest.raises(ParameterError, match="no model 2"):
        sk.train.Replicas(mlp, count=2).model(2)


def test_one_seed_for_several_replicas_that_differ_in_a_knob() -> None:
    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(2, 4), sk.nn.SmeLU(), nn.Linear(4, 2))

    x = torch.randn(32, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    several = sk.train.Replicas(make, count=4, seeds=[5, 6, 5, 6], knobs={"beta": [0.2, 0.2, 2.0, 2.0]})
    several.fit(x, y, epochs=2, batch=8, lr=0.1)
    alone = sk.train.Replicas(make, count=2, seeds=[5, 6], knobs={"beta": [2.0, 2.0]})
    alone.fit(x, y, epochs=2, batch=8, lr=0.1)
    torch.testing.assert_close(several.predict(x)[2:], alone.predict(x))
    with pytest.raises(ParameterError, match="given twice"):
        sk.train.Replicas(make, count=2, seeds=[5, 5])
