"""Clipped activations: the function min(max(f, -c), c), the same tensors, and everything undone."""

import copy
import io

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from softknee.errors import InputError, ParameterError
from softknee.surgery import clip_activations_
from softknee.surgery.clipping import Clipped

X = torch.linspace(-20.0, 20.0, 161, dtype=torch.float64)


class Foreign(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


def network(*activations: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(3, 3) for _ in activations]
    return nn.Sequential(*[item for pair in zip(layers, activations, strict=True) for item in pair])


ACTIVATIONS = {
    "smelu": lambda: sk.nn.SmeLU(beta=2.0, learn=True),
    "squaf": lambda: sk.nn.make("squaf", k=4, q=5.0, z="gelu"),
    "torch_relu": nn.ReLU,
    "torch_gelu": nn.GELU,
    "prelu": lambda: nn.PReLU(1),
    "foreign": Foreign,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("limit", [6.0, 0.5])
def test_the_function_is_the_clamped_one_and_comes_back(name: str, limit: float) -> None:
    made = ACTIVATIONS[name]().double()
    net = network(made).double()
    plain, keys = made(X).detach(), list(net.state_dict())
    done = clip_activations_(net, limit=limit)
    assert done.paths == ("1",)
    assert made(X).equal(plain.clamp(-limit, limit))
    assert not made(X).equal(plain)
    assert list(net.state_dict()) == keys
    assert isinstance(made, Clipped)
    done.remove_()
    done.remove_()
    assert made(X).equal(plain)
    assert not isinstance(made, Clipped)
    assert "clip_limit" not in vars(made)


@pytest.mark.parametrize("made", [sk.nn.ReLU(), sk.nn.SmeLU(beta=3.0), sk.nn.SReLU(delta=3.0)], ids=lambda m: m.title)
def test_for_functions_that_end_as_relu_both_sides_are_one_function(made: nn.Module) -> None:
    net, other = network(made), network(copy.deepcopy(made))
    clip_activations_(net, limit=6.0, side="output")
    clip_activations_(other, limit=6.0, side="input")
    assert net[1](X).equal(other[1](X))
    assert net[1](X).max() == 6


def test_relu_becomes_relu6_and_linear_parts_stay() -> None:
    made = network(nn.ReLU(), nn.ReLU())
    clip_activations_(made, where="1")
    x = 30 * torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    assert made(x).equal(torch.relu(made[2](nn.functional.relu6(made[0](x)))))


def test_the_gradient_is_that_of_the_clamp() -> None:
    net = network(sk.nn.SmeLU(beta=1.0))
    clip_activations_(net)
    x = torch.tensor([-2.0, 0.0, 5.0, 7.0], requires_grad=True)
    net[1](x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.5, 1.0, 0.0]


def test_one_module_in_two_places_is_clipped_once() -> None:
    shared = nn.ReLU()
    done = clip_activations_(network(shared, shared))
    assert done.paths == ("1", "3")
    assert len(done.modules) == 1
    done.remove_()
    assert type(shared) is nn.ReLU


def test_copies_and_pickles_are_clipped_alike() -> None:
    net = network(sk.nn.SmeLU(beta=1.0), nn.ReLU())
    clip_activations_(net, limit=2.0)
    x = 30 * torch.randn(20, 3)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    for again in (copy.deepcopy(net), torch.load(file, weights_only=False)):
        assert again(x).equal(net(x))
        assert "[-2, 2]" in repr(again[1])


def test_compiled_code_notices_clipping_and_its_end() -> None:
    net = network(sk.nn.SmeLU(beta=1.0))
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    x = 30 * torch.randn(20, 3)
    plain = net(x)
    assert compiled(x).equal(plain)
    done = clip_activations_(net)
    assert compiled(x).equal(plain.clamp(-6, 6))
    done.remove_()
    assert compiled(x).equal(plain)


def test_replicas_train_clipped_networks() -> None:
    def make() -> nn.Module:
        net = nn.Sequential(nn.Linear(3, 8), sk.nn.SmeLU(beta=1.0), nn.Linear(8, 2))
        clip_activations_(net, limit=0.5)
        return net

    x = 3 * torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
    replicas = sk.train.Replicas(make, count=2, knobs={"beta": [0.5, 2.0]})
    replicas.fit(x, (x[:, 0] > 0).long(), epochs=2, batch=8, lr=0.1)
    for index in range(2):
        net = replicas.model(index)
        hidden = net[1](net[0](x))  # type: ignore[index]
        assert hidden.max() == 0.5
        torch.testing.assert_close(replicas.predict(x)[index], net(x))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(3, 3), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(self.act(self.linear(x)))


def test_what_cannot_be_clipped_is_refused_and_nothing_is_changed() -> None:
    net = Functional()
    with pytest.raises(InputError, match=r"sk.swap_"):
        clip_activations_(net, example=torch.randn(2, 3))
    assert type(net.act) is nn.ReLU
    with pytest.raises(InputError, match="no activation"):
        clip_activations_(nn.Linear(2, 2))
    with pytest.raises(InputError, match="no activation"):
        clip_activations_(network(nn.Sigmoid()))
    assert clip_activations_(network(nn.Sigmoid(), nn.ReLU())).paths == ("3",)
    with pytest.raises(InputError, match="Did you mean '1'"):
        clip_activations_(network(nn.ReLU()), where="2")
    clip_activations_(net)
    with pytest.raises(InputError, match="already"):
        clip_activations_(net)
    for limit in (0, -1.0, float("nan"), float("inf"), True, "6"):
        with pytest.raises(ParameterError, match="limit"):
            clip_activations_(network(nn.ReLU()), limit=limit)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="side"):
        clip_activations_(network(nn.ReLU()), side="both")
