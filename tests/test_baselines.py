"""The baselines of SQUAF's tables: values, gradients, states, groups, and what they have in common as modules."""

import numpy as np
import pytest
import torch
from torch import nn

import softknee as sk
from helpers import F64
from softknee.errors import ParameterError

MAKERS = {
    "polyrelu": lambda **given: sk.nn.PolyReLU(**given),
    "polynorm": lambda **given: sk.nn.PolyNorm(**given),
    "kaf": lambda **given: sk.nn.KAF("gelu", points=7, **given),
    "ditac": lambda **given: sk.nn.DiTAC([0.4, -0.3, 1.2, 0.8, -2.0], cells=6, **given),
}
# Trained numbers per layer by table 3 of the SQUAF paper: 197, 197, 200 and 202, of which a plain MLP has 193.
COUNTS = {"polyrelu": 4, "polynorm": 4, "kaf": 7, "ditac": 9}
every_baseline = pytest.mark.parametrize("name", MAKERS)


def some_values(*shape: int) -> torch.Tensor:
    return 4 * torch.rand(*shape, dtype=F64, generator=torch.Generator().manual_seed(1)) - 2


def test_polyrelu_is_the_polynomial():
    act = sk.nn.PolyReLU([0.5, -1.0, 2.0, 0.25], dtype=F64)
    x = some_values(50)
    ramp = x.clamp(min=0).numpy()
    np.testing.assert_allclose(act(x).detach().numpy(), np.polyval([0.25, 2.0, -1.0, 0.5], ramp), rtol=1e-14)
    assert sk.nn.PolyReLU().a[0].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3])
    assert sk.nn.PolyReLU(order=2).a.tolist() == [[0, 0.5, 0.5]]


@pytest.mark.parametrize("row_dim", [-1, 1])
def test_polynorm_is_a_plain_loop(row_dim: int):
    weights, eps = [0.5, -1.0, 2.0, 0.25], 1e-2
    act = sk.nn.PolyNorm(weights, eps=eps, row_dim=row_dim, dtype=F64)
    x = some_values(3, 4, 5)
    rows = x.movedim(row_dim, -1).numpy()
    wanted = np.empty_like(rows)
    for at in np.ndindex(rows.shape[:-1]):
        row = rows[at]
        wanted[at] = weights[0] + sum(
            weight * row**i / np.sqrt(np.mean(row ** (2 * i)) + eps) for i, weight in enumerate(weights[1:], start=1)
        )
    np.testing.assert_allclose(act(x).detach().movedim(row_dim, -1).numpy(), wanted, rtol=1e-12)


def test_polynorm_survives_large_small_and_dead_rows():
    act = sk.nn.PolyNorm()
    row = torch.tensor([1.0, -2.0, 3.0])
    torch.testing.assert_close(act(row * 1e15), act(row * 1e3), rtol=1e-5, atol=1e-6)
    dead = torch.zeros(2, 3, requires_grad=True)
    assert act(dead).eq(0).all()
    act(dead).sum().backward()
    assert dead.grad is not None
    torch.testing.assert_close(dead.grad, torch.full((2, 3), 1e3 / 3))  # a_1/sqrt(eps)


@pytest.mark.parametrize("name", ["elu", "tanh", "gelu"])
def test_kaf_starts_as_the_function(name: str):
    act = sk.nn.KAF(name, dtype=F64)
    x = torch.linspace(-3, 3, 301, dtype=F64)
    assert (act(x) - sk.get(name)(x)).abs().max() < 0.02
    # Against the definition, term by term.
    d = np.linspace(-3, 3, 20)
    gamma = 1 / (6 * (d[1] - d[0]) ** 2)
    a = act.a.detach().numpy()[0]
    kernel = np.exp(-gamma * (d[:, None] - d) ** 2)
    np.testing.assert_allclose((kernel + 1e-5 * np.eye(20)) @ a, sk.get(name)(torch.tensor(d)), atol=1e-10)
    np.testing.assert_allclose(
        act(x).detach().numpy(), np.exp(-gamma * (x.numpy()[:, None] - d) ** 2) @ a, rtol=0, atol=1e-11
    )
    assert act(torch.tensor([50.0], dtype=F64)).item() == 0


def test_kaf_starts_random_or_as_given():
    torch.manual_seed(0)
    item, other = sk.nn.KAF("random", points=1000), sk.nn.KAF("random", points=1000)
    assert not item.a.equal(other.a)
    assert float(item.a.detach().std()) == pytest.approx(0.3, rel=0.1)
    assert sk.nn.KAF([1.0, 2.0, 3.0], points=3).a.tolist() == [[1.0, 2.0, 3.0]]


@every_baseline
def test_a_channel_has_its_own(name: str):
    together = MAKERS[name](per="channel", size=3, dim=1, dtype=F64)
    vector = next(together.parameters())
    with torch.no_grad():
        vector.mul_(torch.tensor([[1.0], [0.5], [-1.0]], dtype=F64))
    x = some_values(2, 3, 4)
    for channel in range(3):
        alone = MAKERS[name](dtype=F64)
        with torch.no_grad():
            next(alone.parameters()).copy_(vector[channel : channel + 1])
        torch.testing.assert_close(together(x)[:, channel], alone(x[:, channel]), rtol=1e-12, atol=1e-12)


@every_baseline
def test_state_copies_and_learning(name: str):
    act, other = MAKERS[name](), sk.nn.make(name, **({"points": 7} if name == "kaf" else {}))
    assert type(act) is type(other)
    assert not MAKERS[name](learn=False).state_dict().keys() ^ act.state_dict().keys()
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    if name == "ditac":
        other = MAKERS[name]()
    with torch.no_grad():
        next(act.parameters()).add_(0.125)
    other.load_state_dict(act.state_dict())
    assert other(x).equal(act(x))
    act.reset_parameters()
    assert act(x).equal(MAKERS[name]()(x))
    before = act(x)
    loss = (act(x) - 1).square().mean()
    loss.backward()
    torch.optim.SGD(act.parameters(), lr=1e-4).step()
    assert (act(x) - 1).square().mean() < loss
    assert not act(x).equal(before)


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_the_counts_of_the_paper(name: str, count: int):
    act = sk.nn.make(name, **({"points": 7} if name == "kaf" else {}))
    net = nn.Sequential(nn.Linear(1, 64), act, nn.Linear(64, 1))
    assert sum(p.numel() for p in net.parameters()) == 193 + count
    groups = {group["name"]: group for group in sk.param_groups(net, lr=0.1, weight_decay=0.01)}
    assert [p.numel() for p in groups["activations"]["params"]] == [count]
    assert groups["activations"]["weight_decay"] == 0
    assert [site.activation for site in sk.sites(net, example=torch.zeros(2, 1))] == [name]


@pytest.mark.parametrize("name", ["kaf", "polyrelu", "ditac"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 1, 5), (3, 4, 1)], ids=str)
def test_neurons_that_the_input_does_not_have_are_refused(name: str, shape: tuple[int, ...]):
    act = MAKERS[name](per="neuron", size=(4, 5))
    assert act(torch.zeros(3, 4, 5)).shape == (3, 4, 5)
    with pytest.raises(ParameterError, match="shape"):
        act(torch.zeros(shape))


def test_the_others_have_their_names():
    x = torch.tensor([-2.0, 3.0])
    assert sk.nn.LReLU()(x).equal(sk.get("lrelu")(x))
    assert sk.get("lrelu") is sk.get("leaky_relu")
    assert sk.nn.PReLU(learn=True).slope.item() == 0.25
    assert sk.nn.Swish(learn=True)(x).shape == x.shape


@every_baseline
def test_surgery_knows_them_as_what_they_are(name: str):
    net = nn.Sequential(nn.Linear(2, 8), nn.GELU(), nn.Linear(8, 8), MAKERS[name](), nn.Linear(8, 1))
    x = torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    sk.swap_(net, "relu", replacing="gelu", example=x)
    assert isinstance(net[3], type(MAKERS[name]()))
    with pytest.raises(ParameterError, match=f"{name} cannot be replaced by a hard limit: it has none"):
        sk.relu_ize_(net)
    sk.swap_(
        net, "squaf", replacing=name, example=x, **({} if name == "polynorm" else {"k": 12, "q": 0.25, "z": "fit"})
    )
    inside = torch.linspace(-2.5, 2.5, 101)
    if name != "polynorm":  # the others are functions of one number, which SQUAF can stand for
        assert (net[3](inside) - MAKERS[name]()(inside)).abs().max() < 0.1


@every_baseline
def test_replicas_train_them(name: str):
    x = torch.linspace(-1, 1, 32)[:, None]
    replicas = sk.train.Replicas(lambda: nn.Sequential(nn.Linear(1, 6), MAKERS[name](), nn.Linear(6, 1)), count=2)
    replicas.fit(x, x.sin(), epochs=2, batch=16, lr=0.01, loss="mse")
    together = replicas.predict(x)
    for at in range(2):
        alone = replicas.model(at)
        torch.testing.assert_close(alone(x).detach(), together[at], rtol=1e-5, atol=1e-5)
        start = MAKERS[name]()
        assert not next(alone[1].parameters()).equal(next(start.parameters()))
