"""Reproducibility as a training aim: which loss reaches what, against plain loops; and what comes of it."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.train import Ensemble, dissimilarity, widths_by_depth
from softknee.train.reproducing import falling, log_odds


def make(beta: float = 0.3) -> nn.Sequential:
    act = sk.nn.SmeLU
    return nn.Sequential(nn.Linear(5, 12), act(beta=beta), nn.Linear(12, 8), act(beta=beta), nn.Linear(8, 3))


def task(examples: int = 192, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Labels of a random teacher, a tenth of them wrong."""
    drawn = torch.Generator().manual_seed(seed)
    x = torch.randn(examples, 5, generator=drawn)
    teacher = torch.randn(5, 6, generator=torch.Generator().manual_seed(7))
    y = (x @ teacher).relu().unflatten(1, (3, 2)).sum(2).argmax(1)
    wrong = torch.rand(examples, generator=drawn) < 0.1
    return x, torch.where(wrong, torch.randint(3, (examples,), generator=drawn), y)


X, Y = task()
BATCH = X[:32].expand(3, 32, 5), Y[:32].expand(3, 32)


# -- the loss ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["probabilities", "log_odds"])
def test_the_loss_is_the_mean_over_pairs_of_models(of: str) -> None:
    logits = torch.randn(4, 9, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = logits.softmax(2)
    scores = p if of == "probabilities" else torch.log(p / (1 - p))
    pairs = [(scores[m] - scores[k]).square().sum(1).mean() for m in range(4) for k in range(m)]
    torch.testing.assert_close(dissimilarity(logits, of=of), sum(pairs) / 16, rtol=1e-12, atol=0)


def test_it_is_the_square_inside_the_measured_difference() -> None:
    logits = torch.randn(5, 1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p = logits.softmax(2)
    per_model = (p - p.mean(0)).norm(dim=2)
    measured = sk.measure.prediction_difference(p).delta_2.value
    assert measured == pytest.approx(per_model.mean().item(), rel=1e-12)
    assert dissimilarity(logits).item() == pytest.approx(per_model.square().mean().item(), rel=1e-12)


@pytest.mark.parametrize("of", ["probabilities", "log_odds"])
@pytest.mark.parametrize("shape", [(3, 6), (3, 6, 1)], ids=str)
def test_one_output_is_two_labels(of: str, shape: tuple[int, ...]) -> None:
    one = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    two = torch.stack([torch.zeros(3, 6, dtype=torch.float64), one.reshape(3, 6)], dim=2)
    torch.testing.assert_close(dissimilarity(one, of=of), dissimilarity(two, of=of), rtol=1e-12, atol=0)


def test_log_odds_are_finite_and_right_where_a_probability_rounds_to_one() -> None:
    logits = torch.tensor([[0.0, 60.0, 1.0], [2.0, 2.0, -3.0], [500.0, 0.0, 0.0]], requires_grad=True)
    actual = log_odds(logits)
    exact = logits.detach().double()
    wanted = torch.stack([exact[:, i] - exact[:, [k for k in range(3) if k != i]].logsumexp(1) for i in range(3)], 1)
    torch.testing.assert_close(actual.double(), wanted, rtol=2e-6, atol=1e-6)
    actual.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert torch.autograd.gradcheck(log_odds, torch.randn(4, 5, dtype=torch.float64, requires_grad=True))


# -- which loss reaches what --------------------------------------------------------------------------------


def smelu(x: Tensor, beta: Tensor) -> Tensor:
    return torch.where(x <= -beta, 0.0, torch.where(x >= beta, x, (x + beta) ** 2 / (4 * beta)))


def reference(ensemble: Ensemble, of: str) -> tuple[list[dict[str, nn.Parameter]], list[Tensor], Tensor, Tensor]:
    """The same models in plain torch: their weights, the log widths, the task losses and D."""
    nets = [copy.deepcopy(ensemble.model(m)) for m in range(ensemble.count)]
    weights = [dict(net.named_parameters()) for net in nets]
    logs = [item.log().requires_grad_() for item in ensemble.learned().values()]
    outs = []
    for w1, b1, w2, b2, w3, b3 in (model.values() for model in weights):
        h = smelu(F.linear(BATCH[0][0], w1, b1), logs[0].exp())
        outs.append(F.linear(smelu(F.linear(h, w2, b2), logs[1].exp()), w3, b3))
    out = torch.stack(outs)
    losses = torch.stack([F.cross_entropy(value, BATCH[1][0]) for value in out])
    p = out.softmax(2)
    s = p if of == "probabilities" else p.log() - (1 - p).log()
    return weights, logs, losses, (s - s.mean(0)).square().sum(2).mean()


@pytest.mark.parametrize("of", ["probabilities", "log_odds"])
@pytest.mark.parametrize("objective", ["separate", "combined", "joint"])
def test_gradients_are_those_of_plain_models(objective: str, of: str) -> None:
    ensemble = Ensemble(make, count=3, of=of, weight=2.5, objective=objective)
    weights, widths = ensemble.gradients(*BATCH)
    own, logs, losses, apart = reference(ensemble, of)
    flat = [value for model in own for value in model.values()]
    for_weights = losses.sum() + (3 * 2.5 * apart if objective == "joint" else 0)
    for_widths = 2.5 * apart + (losses.mean() if objective != "separate" else 0)
    wanted = iter(torch.autograd.grad(for_weights, flat, retain_graph=True))
    for m, model in enumerate(own):
        for name in model:
            torch.testing.assert_close(weights[name][m], next(wanted), rtol=1e-4, atol=1e-6)
    for item, want in zip(widths.values(), torch.autograd.grad(for_widths, logs), strict=True):
        assert want.abs() > 1e-5
        torch.testing.assert_close(item, want, rtol=1e-4, atol=1e-7)


def test_separately_neither_loss_reaches_the_other_group_in_a_single_bit() -> None:
    def gradients(weight: float, scale: float) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        ensemble = Ensemble(make, count=3, weight=weight)
        return ensemble.gradients(*BATCH, loss=lambda out, y: scale * F.cross_entropy(out, y))

    weights, widths = gradients(1.0, 1.0)
    more_alike, _ = gradients(1000.0, 1.0)
    _, other_task = gradients(1.0, -1000.0)
    assert all(weights[name].equal(more_alike[name]) for name in weights)
    assert all(widths[key].equal(other_task[key]) for key in widths)
    # And a loss without weight leaves its own group where it is.
    none, zero = gradients(0.0, 0.0)
    assert all((item == 0).all() for item in (*none.values(), *zero.values()))
    assert all((value != 0).any() for value in (*weights.values(), *widths.values()))


@pytest.mark.parametrize("share_order", [True, False])
def test_with_fixed_widths_it_trains_as_replicas_do(share_order: bool) -> None:
    ensemble = Ensemble(make, count=3, share_order=share_order)
    ensemble.fit(X, Y, epochs=2, batch=32, lr=0.1, width_lr=0.0, momentum=0.9, weight_decay=1e-3)
    replicas = sk.train.Replicas(make, count=3, share_order=share_order)
    replicas.fit(X, Y, epochs=2, batch=32, lr=0.1, momentum=0.9, weight_decay=1e-3)
    torch.testing.assert_close(ensemble.losses, replicas.losses, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ensemble.predict(X), replicas.predict(X), rtol=1e-4, atol=1e-5)
    assert all(item.equal(torch.tensor([0.3])) for item in ensemble.learned().values())


# -- what comes of it ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_widths_grow_from_a_small_start_the_same_in_every_run() -> None:
    def run(epochs: int) -> Ensemble:
        return Ensemble(lambda: make(0.05), count=3).fit(
            X, Y, epochs=epochs, batch=32, lr=0.1, width_lr=0.03, momentum=0.9
        )

    ensemble = run(12)
    assert all(float(item) > 0.08 for item in ensemble.learned().values())
    assert ensemble.losses[-6:].mean() < 0.7 * ensemble.losses[:3].mean()
    again = run(2)
    assert ensemble.dissimilarities[:12].equal(again.dissimilarities)
    for key, path in ensemble.path.items():
        assert path.shape == (73, 1)
        assert path[0] == torch.tensor(0.05)
        assert path[:13].equal(again.path[key])
        assert path[-1] == ensemble.learned()[key]


@pytest.mark.parametrize("of", ["probabilities", "log_odds"])
def test_the_widths_go_down_the_dissimilarity(of: str) -> None:
    """With the weights held, learning widths is plain descent on D."""
    ensemble = Ensemble(make, count=3, of=of).fit(X, Y, epochs=4, batch=32, lr=0.1, width_lr=0.0, momentum=0.9)
    before, weights = ensemble.predict(X), ensemble.model(0)[0].weight.clone()  # type: ignore[index]
    ensemble.fit(X, Y, epochs=25, batch=192, lr=0.0, width_lr=0.05)
    assert dissimilarity(ensemble.predict(X), of=of) < 0.98 * dissimilarity(before, of=of)
    assert (ensemble.dissimilarities[24:].diff()[:10] < 0).all()
    assert ensemble.model(0)[0].weight.equal(weights)  # type: ignore[index]


def test_fresh_models_have_the_learned_widths_and_keep_them() -> None:
    ensemble = Ensemble(lambda: make(0.05), count=2).fit(X, Y, epochs=5, batch=32, lr=0.1, width_lr=0.05)
    fresh = ensemble.fresh(count=4)
    assert fresh.seeds == [2, 3, 4, 5]
    fresh.fit(X, Y, epochs=5, batch=32, lr=0.1)
    for key, item in ensemble.learned().items():
        assert fresh.knobs()[key].equal(item.expand(4, 1))
        assert item != torch.tensor(0.05)
    test_x, _ = task(seed=1)
    result = sk.measure.prediction_difference(fresh.predict(test_x, probabilities=True))
    assert 0 < result.delta_1.value < 2
    model = ensemble.model(1)
    torch.testing.assert_close(model(X), ensemble.predict(X)[1])
    assert float(model[1].beta) == float(ensemble.learned()["1.beta"])  # type: ignore[index]


# -- widths along depth -------------------------------------------------------------------------------------


def test_the_nearest_falling_sequence_against_a_search() -> None:
    values = [0.3, 1.2, -0.4, 0.1, 0.0]
    result = torch.tensor(falling(values), dtype=torch.float64)
    assert (result.diff() <= 0).all()
    distance = (result - torch.tensor(values, dtype=torch.float64)).square().sum()
    # Projected differently: the last value and falls of at least 0, found by a slow descent.
    raw = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    descent = torch.optim.LBFGS([raw], max_iter=400, tolerance_grad=1e-12, tolerance_change=1e-14)

    def other() -> Tensor:
        falls = torch.cat([raw[:4].square(), raw[4:]])
        return falls.flip(0).cumsum(0).flip(0)

    def closure() -> Tensor:
        descent.zero_grad()
        loss = (other() - torch.tensor(values, dtype=torch.float64)).square().sum()
        loss.backward()
        return loss

    with torch.no_grad():
        raw.fill_(0.5)
    descent.step(closure)
    torch.testing.assert_close(closure().detach(), distance, rtol=1e-6, atol=0)
    assert falling([3.0, 2.0, 2.0, -1.0]) == [3.0, 2.0, 2.0, -1.0]


@pytest.mark.parametrize(("name", "start", "widens"), [("smelu", [0.1, 0.4], 1), ("swish", [4.0, 1.0], -1)])
def test_wider_first_keeps_the_order_at_every_step(name: str, start: list[float], widens: int) -> None:
    def build() -> nn.Sequential:
        acts = [sk.nn.make(name, beta=item) for item in start]  # narrower at the input: the wrong way round
        return nn.Sequential(nn.Linear(5, 12), acts[0], nn.Linear(12, 8), acts[1], nn.Linear(8, 3))

    settings = {"epochs": 4, "batch": 32, "lr": 0.1, "width_lr": 0.05}
    ordered = Ensemble(build, count=2, wider_first=True).fit(X, Y, **settings)  # type: ignore[arg-type]
    first, second = ordered.path["1.beta"], ordered.path["3.beta"]
    assert float(first[0]) == pytest.approx((start[0] * start[1]) ** 0.5, rel=1e-6)  # their mean, on a log scale
    assert (widens * (first - second) >= -1e-6 * first).all()
    free = Ensemble(build, count=2).fit(X, Y, **settings)  # type: ignore[arg-type]
    assert free.path["1.beta"][0] == torch.tensor(start[0])
    assert not (widens * (free.path["1.beta"] - free.path["3.beta"]) >= 0).all()


def test_lambda_gelu_and_learned_names() -> None:
    def build() -> nn.Sequential:
        return nn.Sequential(nn.Linear(5, 8), sk.nn.LambdaGELU(lam=2.0), nn.Linear(8, 8), sk.nn.LambdaGELU(lam=3.0))

    ensemble = Ensemble(build, count=2, wider_first=True).fit(X, Y, epochs=2, batch=32, lr=0.05)
    path = torch.stack(list(ensemble.path.values()))[..., 0]
    torch.testing.assert_close(path[:, 0], torch.tensor([2.0, 3.0]))
    assert (path > 1).all()
    assert (path[0] <= path[1]).all()

    def general() -> nn.Sequential:
        return nn.Sequential(nn.Linear(5, 8), sk.nn.GeneralizedSmeLU(), nn.Linear(8, 3))

    assert list(Ensemble(general).learned()) == ["1.alpha", "1.beta"]
    assert list(Ensemble(general, learn=["g_minus", "t"]).learned()) == ["1.g_minus", "1.t"]
    assert widths_by_depth(general(), first=2.0, last=1.0) == {"1.alpha": 2.0, "1.beta": 2.0}
    assert widths_by_depth(make(), first=2.0, last=0.5, name="beta") == {"1.beta": 2.0, "3.beta": 0.5}


def test_dropout_and_shared_starts() -> None:
    def dropping() -> nn.Sequential:
        return nn.Sequential(nn.Linear(5, 16), sk.nn.SmeLU(), nn.Dropout(0.3), nn.Linear(16, 3))

    for ensemble in (
        Ensemble(dropping, share_init=True),
        Ensemble(make, share_init=True, share_order=False),
    ):
        ensemble.fit(X, Y, epochs=1, batch=32, lr=0.1, optimizer="adam", schedule=sk.train.cosine())
        assert (ensemble.dissimilarities[1:] > 0).all()
    assert ensemble.dissimilarities[0] == 0  # the last one has no dropout: its models part at the first step


def test_refusals() -> None:
    def learning() -> nn.Sequential:
        return nn.Sequential(nn.Linear(5, 8), sk.nn.SmeLU(learn=True), nn.Linear(8, 3))

    cases: list[tuple[type[Exception], str, dict]] = [
        (ParameterError, "at least 2", {"count": 1}),
        (ParameterError, "Did you mean 'log_odds'", {"of": "logodds"}),
        (ParameterError, "Did you mean 'separate'", {"objective": "seperate"}),
        (ParameterError, "weight", {"weight": -1.0}),
        (ParameterError, "stay equal", {"share_init": True}),
        (ParameterError, "has a parameter 'betta'", {"learn": "betta"}),
        (InputError, "without learn=", {"make_model": learning}),
        (InputError, "PReLU", {"make_model": lambda: nn.Sequential(make(), nn.PReLU())}),
        (ParameterError, "width to learn", {"make_model": lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU())}),
        (ParameterError, "no two", {"make_model": lambda: make()[:2], "wider_first": True}),
    ]
    for kind, words, settings in cases:
        with pytest.raises(kind, match=words):
            Ensemble(settings.pop("make_model", make), **settings)
    with pytest.raises(ParameterError, match="width_lr"):
        Ensemble(make).fit(X, Y, epochs=1, batch=8, lr=0.1, width_lr=float("nan"))
    with pytest.raises(InputError, match="one number"):
        Ensemble(make).fit(X, Y, epochs=1, batch=8, lr=0.1, loss=lambda a, b: F.cross_entropy(a, b, reduction="none"))
    with pytest.raises(InputError, match="floating point"):
        dissimilarity(torch.zeros(3, dtype=torch.float64))
    with pytest.raises(ParameterError, match="above 0"):
        widths_by_depth(make(), first=0.0, last=1.0)
