"""The small networks: weights from the seed alone, and plain modules only where plain ones are asked for."""

import json
from itertools import pairwise

import pytest
import torch
from torch import nn

import softknee as sk
from softknee.errors import ParameterError, UnknownActivationError
from softknee.lab.builders import build
from softknee.lab.networks import PLAIN, SMALL, alone, cnn, kan, mlp
from softknee.nn.parameters import Parameterised
from softknee.surgery.modules import activation_modules

ACTIVATIONS = [
    ("relu", {}),
    ("lambda_gelu", {"learn": True}),
    ("srelu", {"learn": "delta", "delta": 0.5, "per": "channel"}),
    ("torch:gelu", {}),
]


def weights(network: nn.Module) -> list[torch.Tensor]:
    layers = [module for module in network.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return [tensor for layer in layers for tensor in (layer.weight, layer.bias) if tensor is not None]


@pytest.mark.parametrize("builder", ["mlp", "cnn"])
def test_the_weights_depend_on_the_seed_alone(builder: str) -> None:
    first = weights(build(builder, seed=5))
    for activation, knobs in ACTIVATIONS:
        torch.manual_seed(99)
        for item, other in zip(first, weights(build(builder, activation=activation, seed=5, **knobs)), strict=True):
            assert torch.equal(item, other)
    assert not torch.equal(first[0], weights(build(builder, seed=6))[0])


@pytest.mark.parametrize("builder", SMALL)
def test_the_global_random_state_is_left_alone(builder: str) -> None:
    before = torch.random.get_rng_state()
    build(builder, seed=1)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("builder", SMALL)
def test_a_random_start_is_drawn_from_the_seed_after_the_weights(builder: str) -> None:
    plain = build(builder, seed=5)

    def made(seed: int) -> nn.Module:
        torch.manual_seed(17 * seed)
        before = torch.random.get_rng_state()
        network = build(builder, activation="squaf", z="random", learn=True, seed=seed)
        assert torch.equal(before, torch.random.get_rng_state())
        return network

    def tables(network: nn.Module) -> torch.Tensor:
        return torch.cat([module.z.flatten() for module in activation_modules(network).values()])

    first = made(5)
    assert torch.equal(tables(first), tables(made(5)))
    assert len(tables(first).unique()) == len(tables(first))  # every place has its own
    assert not torch.isin(tables(made(6)), tables(first)).any()
    assert all(torch.equal(item, other) for item, other in zip(weights(plain), weights(first), strict=True))


@pytest.mark.parametrize("name", ["polyrelu", "polynorm", "kaf", "ditac"])
def test_activations_of_other_papers_can_be_built_into_every_network(name: str) -> None:
    inputs = {"mlp": torch.randn(3, 784), "cnn": torch.randn(3, 1, 28, 28), "alone": torch.randn(3, 1)}
    for builder, x in inputs.items():
        network = build(builder, activation=name, learn=True)
        network(x).square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())


def test_a_kan_has_edges_of_the_activation() -> None:
    network = kan((4, 3, 2), activation="smelu", beta=0.5, learn="beta", grid=7, seed=3)
    assert [(layer.n_in, layer.n_out, layer.grid) for layer in network] == [(4, 3, 7), (3, 2, 7)]
    assert all(layer.knee.beta.item() == 0.5 and layer.knee.learned == ("beta",) for layer in network)
    assert network(torch.randn(5, 4)).shape == (5, 2)
    same = kan((4, 3, 2), activation="smelu", beta=0.5, learn="beta", grid=7, seed=3)
    assert torch.equal(network[0].table, same[0].table)
    for arguments, words in (({"activation": "squaf", "k": 3}, "leave out k"), ({"per": "channel"}, "must be 'layer'")):
        with pytest.raises(ParameterError, match=words):
            kan((4, 2), **arguments)


def test_alone_is_the_activation() -> None:
    network = alone(activation="squaf", k=13, q=1 / 13, z="tanh")
    x = torch.linspace(-1, 1, 50).unsqueeze(1)
    assert torch.equal(network(x), sk.nn.SQUAF(k=13, q=1 / 13, z="tanh")(x))
    assert not list(network.parameters())


def test_an_mlp_is_what_it_says() -> None:
    widths = (7, 5, 4, 3)
    network = mlp(widths, activation="torch:relu", seed=2)
    x = torch.randn(6, 7)
    y = x
    for index, (wide, narrow) in enumerate(pairwise(widths)):
        layer = network[2 * index]
        assert isinstance(layer, nn.Linear)
        assert layer.weight.shape == (narrow, wide)
        y = y @ layer.weight.T + layer.bias
        y = y.clamp(min=0) if index < 2 else y
    torch.testing.assert_close(network(x), y)


def test_a_cnn_is_what_it_says() -> None:
    network = cnn((3, 5), classes=4, image=(2, 9, 8), activation="torch:relu")
    x = torch.randn(2, 2, 9, 8)
    y = x
    for at in (0, 3):
        layer = network[at]
        assert isinstance(layer, nn.Conv2d)
        # The convolution as a sum over the shifted image, and the maximum over the four of each square.
        padded = nn.functional.pad(y, (1, 1, 1, 1))
        h, w = y.shape[2:]
        y = sum(
            torch.einsum("nchw,oc->nohw", padded[:, :, i : i + h, j : j + w], layer.weight[:, :, i, j])
            for i in range(3)
            for j in range(3)
        ) + layer.bias.reshape(1, -1, 1, 1)
        y = y.clamp(min=0)[:, :, : h // 2 * 2, : w // 2 * 2]
        y = y.unflatten(2, (-1, 2)).unflatten(4, (-1, 2)).amax(dim=(3, 5))
    head = network[-1]
    assert isinstance(head, nn.Linear)
    torch.testing.assert_close(network(x), y.flatten(1) @ head.weight.T + head.bias)
    assert network(x).shape == (2, 4)


@pytest.mark.parametrize("builder", SMALL)
def test_every_place_has_an_activation_of_its_own(builder: str) -> None:
    network = build(builder, activation="srelu", learn=True)
    result = activation_modules(network)
    assert len(result) == {"mlp": 2, "cnn": 3, "alone": 1}[builder]
    assert len({id(p) for module in result.values() for p in module.parameters()}) == len(result)


def test_one_value_per_channel_fits_every_layer() -> None:
    network = cnn((4, 6), image=(1, 8, 8), activation="srelu", learn=True, per="channel")
    assert [tuple(module.raw_delta.shape) for module in activation_modules(network).values()] == [(4,), (6,)]
    network(torch.randn(2, 1, 8, 8)).sum().backward()
    network = mlp((5, 4, 6, 3), activation="srelu", learn=True, per="channel")
    assert [tuple(module.raw_delta.shape) for module in activation_modules(network).values()] == [(4,), (6,)]
    assert network(torch.randn(2, 5)).shape == (2, 3)


@pytest.mark.parametrize("builder", SMALL)
@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_network_has_nothing_of_softknee(builder: str, name: str) -> None:
    network = build(builder, activation=f"torch:{name}")
    assert not any(isinstance(module, Parameterised) for module in network.modules())
    assert all(type(module).__module__.startswith("torch.nn.") for module in network.modules())


@pytest.mark.parametrize("builder", SMALL)
def test_arguments_may_come_from_json(builder: str) -> None:
    arguments = {
        "mlp": {"widths": [4, 3, 2], "activation": "srelu", "delta": 0.5},
        "cnn": {"channels": [2], "image": [1, 4, 4], "classes": 3},
        "alone": {"activation": "squaf", "z": [0.5, 0.25, 1.0], "learn": ["z"]},
    }[builder]
    network, same = build(builder, **json.loads(json.dumps(arguments))), build(builder, **arguments)
    assert network.state_dict().keys() == same.state_dict().keys()
    for item, other in zip(network.state_dict().values(), same.state_dict().values(), strict=True):
        assert torch.equal(item, other)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: mlp((3, 2)), "at least 3 whole numbers above 0"),
        (lambda: mlp((3, 0, 2)), "at least 3 whole numbers above 0"),
        (lambda: mlp("784"), "whole numbers above 0"),  # type: ignore[arg-type]
        (lambda: mlp((3, 2.5, 2)), "whole numbers above 0"),  # type: ignore[arg-type]
        (lambda: cnn(()), "channels must be whole numbers above 0"),
        (lambda: cnn(image=(28, 28)), "must be 3 whole numbers"),
        (lambda: cnn(image=(1, 7, 28)), "one of 7 x 28 is gone before.*at least 8 x 8"),
        (lambda: mlp(activation="torch:gelue"), r"Did you mean 'gelu'"),
        (lambda: mlp(activation="torch:relu", delta=1.0), "does not take delta"),
        (lambda: build("mlpp"), "Did you mean 'mlp'"),
        (lambda: build("mlp", channels=(3,)), "no parameter 'channels'"),
        (lambda: build("alone", widths=(3,)), "no parameter 'widths'"),
        (lambda: build("cnn", widths=(3,)), "no parameter 'widths'"),
    ],
)
def test_what_cannot_be_built_is_a_sentence(make, sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        make()


def test_an_unknown_activation_is_named() -> None:
    with pytest.raises(UnknownActivationError, match="Did you mean 'srelu'"):
        mlp(activation="sreluu")
