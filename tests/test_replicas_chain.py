"""A chain of known modules gives, without vmap, what the same model gives with it."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import softknee as sk
from softknee.train.chain import chain_of


class Wrapped(nn.Module):
    """The same model, but no chain: it runs under vmap."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def knees() -> nn.Sequential:
    first = nn.Sequential(nn.Linear(6, 12), sk.nn.SmeLU(beta=0.7), nn.Dropout(0.3))
    second = nn.Sequential(nn.Linear(12, 8, bias=False), nn.BatchNorm1d(8), sk.nn.SReLU(delta=0.5, learn=True))
    return nn.Sequential(nn.Flatten(), first, second, nn.Identity(), nn.GELU(), nn.Linear(8, 3))


def images() -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout2d(0.5), nn.Flatten(1, -1), nn.Linear(6, 3))


def data(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(40, *shape, generator=draw), torch.randint(3, (40,), generator=draw)


@pytest.mark.parametrize(("make", "shape"), [(knees, (2, 3)), (images, (2, 1, 3))], ids=["knees", "images"])
def test_a_chain_trains_as_under_vmap(make, shape):
    x, y = data(shape)
    options = {"epochs": 3, "batch": 16, "lr": 0.05, "momentum": 0.9, "clip": 1.0}
    # The paths are keys of the dropout: "inner." in front of them would draw other masks.
    chain = sk.train.Replicas(lambda: nn.Sequential(Wrapped(make())), count=3)
    assert chain_of(chain._skeleton, chain._stack.tensors) is None
    under_vmap = chain.fit(x, y, **options)
    direct = sk.train.Replicas(lambda: nn.Sequential(nn.Sequential(make())), count=3)
    for path, module in direct._skeleton.named_modules():
        if hasattr(module, "draws"):
            module.path = path.replace("0.0", "0.inner", 1)
    assert chain_of(direct._skeleton, direct._stack.tensors) is not None
    direct.fit(x, y, **options)
    # Two programs for one computation: the same to rounding, nine steps of it.
    torch.testing.assert_close(direct.losses, under_vmap.losses, rtol=1e-5, atol=1e-6)
    for name, tensor in direct._stack.tensors.items():
        theirs = under_vmap._stack.tensors[name.replace("0.0", "0.inner", 1)]
        torch.testing.assert_close(tensor, theirs, rtol=1e-4, atol=1e-6, msg=lambda text, name=name: f"{name}: {text}")


def test_what_is_no_chain_is_left_to_vmap():
    def found(make) -> object:
        replicas = sk.train.Replicas(make, count=2)
        return chain_of(replicas._skeleton, replicas._stack.tensors)

    twice = nn.Linear(4, 4)
    hooked = nn.Linear(4, 4)
    hooked.register_forward_hook(lambda module, inputs, output: output + 1)
    per_channel = sk.nn.SmeLU(beta=0.5, learn=True, per="channel", size=4)
    assert found(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())) is not None
    for extra in (nn.LayerNorm(4), nn.Softmax(1), per_channel, nn.Flatten(0)):
        assert found(lambda extra=extra: nn.Sequential(nn.Linear(4, 4), extra)) is None
    shared = sk.train.Replicas(lambda: nn.Sequential(twice, nn.ReLU(), twice), count=2, share_init=True)
    assert chain_of(shared._skeleton, shared._stack.tensors) is None
    with_hook = sk.train.Replicas(lambda: nn.Sequential(hooked), count=2, share_init=True)
    assert chain_of(with_hook._skeleton, with_hook._stack.tensors) is None


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch has no rule for its own norm under vmap
@pytest.mark.parametrize("norm", [sk.nn.row_norm, lambda model: weight_norm(model[0])], ids=["rows", "torch"])
def test_normed_weights_train_in_a_stack_as_alone(norm):
    x, y = data((6,))

    def make() -> nn.Module:
        model = nn.Sequential(nn.Linear(6, 8), sk.nn.SmeLU(), nn.Linear(8, 3))
        norm(model)
        return model

    options = {"epochs": 2, "batch": 16, "lr": 0.05}
    many = sk.train.Replicas(make, count=2).fit(x, y, **options)
    torch.testing.assert_close(many.losses, sk.train.OneByOne(make, count=2).fit(x, y, **options).losses)


@pytest.mark.slow
@pytest.mark.parametrize("name", sk.names())
def test_every_function_of_the_zoo_trains_in_a_stack_as_alone(name):
    """Also those that run under vmap alone, such as squaf with its table of values."""
    x, y = data((6,))

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 8), sk.nn.make(name, learn=True), nn.Linear(8, 3))

    options = {"epochs": 2, "batch": 16, "lr": 0.05, "momentum": 0.9}
    many = sk.train.Replicas(make, count=3).fit(x, y, **options)
    alone = sk.train.Replicas(make, count=1, seeds=[2]).fit(x, y, **options)
    torch.testing.assert_close(many.losses[:, 2:], alone.losses, rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(many.model(2)(x), alone.predict(x)[0], rtol=1e-5, atol=1e-6)
