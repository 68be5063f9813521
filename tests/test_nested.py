"""Jagged nested tensors, and torch.fx on a bare module."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from helpers import F64, LEARNED_KINDS, ZOO, each_kind, ordinary_values
from softknee.errors import InputError, ParameterError
from softknee.spec import Activation

CHANNELS = 4
WAYS = {
    "fixed": {},
    "per layer": {"learn": True},
    "per channel": {"learn": True, "per": "channel", "size": CHANNELS, "dim": -1},
}


def rows() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [2 * torch.randn(length, CHANNELS, generator=generator, dtype=F64) for length in (3, 1, 5)]


def jagged() -> Tensor:
    return torch.nested.nested_tensor(rows(), layout=torch.jagged, requires_grad=True)


def gradients(module: nn.Module, x: Tensor, flat) -> tuple[Tensor, list[Tensor]]:
    y = flat(module(x))
    grads = torch.autograd.grad((torch.linspace(0.5, 2, y.numel(), dtype=F64).reshape(y.shape) * y).sum(),
                                [x, *module.parameters()])  # fmt: skip
    return y.detach(), [flat(grads[0]), *grads[1:]]


@pytest.mark.parametrize("way", WAYS)
@each_kind
def test_a_jagged_tensor_gives_what_its_rows_give(act: Activation, way: str):
    module = sk.nn.make(act, dtype=F64, **WAYS[way], **ordinary_values(act))
    x, dense = jagged(), torch.cat(rows()).requires_grad_()
    assert module(x).shape == x.shape
    (module(x) + x).sum()  # of the same ragged dimension, so that both can be added
    y, got = gradients(module, x, lambda t: t.values())
    expected, wanted = gradients(module, dense, lambda t: t)
    torch.testing.assert_close(y, expected, rtol=1e-14, atol=1e-14)
    for item, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(item, other, rtol=1e-12, atol=1e-12)


def test_the_ragged_dimension_may_be_the_last():
    module = sk.nn.SmeLU(learn=True, per="channel", size=CHANNELS, dim=1, dtype=F64)
    x = jagged()
    turned = module(x.transpose(1, 2)).transpose(1, 2)
    other = sk.nn.SmeLU(learn=True, per="channel", size=CHANNELS, dim=-1, dtype=F64)
    assert torch.equal(turned.values(), other(x).values())


def test_a_definition_takes_them_too():
    x = jagged().detach()
    slopes = torch.nested.nested_tensor_from_jagged(torch.rand_like(x.values()), offsets=x.offsets())
    for slope in (0.5, torch.tensor([0.5], dtype=F64), torch.rand(CHANNELS, dtype=F64), slopes):
        got = sk.get("leaky_relu")(x, slope=slope)
        values = slope.values() if isinstance(slope, Tensor) and slope.is_nested else slope
        assert torch.equal(got.values(), sk.get("leaky_relu")(x.values(), slope=values))
    drawn = sk.nn.RReLU()(x)
    assert drawn.shape == x.shape
    assert sk.explain(sk.nn.SmeLU(), x).path == "plain"


@pytest.mark.slow
def test_inside_torch_compile():
    module = sk.nn.SmeLU(learn=True, dtype=F64)
    compiled, x = torch.compile(module, backend="aot_eager"), jagged()
    y, got = gradients(compiled, x, lambda t: t.values())
    expected, wanted = gradients(module, torch.cat(rows()).requires_grad_(), lambda t: t)
    torch.testing.assert_close(y, expected)
    for item, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(item, other)


def test_what_cannot_work_says_so():
    x = jagged()
    with pytest.raises(ParameterError, match="dimension 1"):
        sk.nn.SmeLU(learn=True, per="channel", size=CHANNELS)(x)
    with pytest.raises(ParameterError, match="does not broadcast"):
        sk.nn.SmeLU(learn=True, per="neuron", size=(5, CHANNELS))(x)
    with pytest.raises(ParameterError, match="for each row of a jagged tensor"):
        sk.get("leaky_relu")(x, slope=torch.rand(3, 1, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the older layout itself
        older = torch.nested.nested_tensor(rows())
    with pytest.raises(InputError, match=r"layout=torch\.jagged"):
        sk.nn.SmeLU()(older)


# -- torch.fx ---------------------------------------------------------------------------------------------


@each_kind
def test_a_bare_module_is_traced(act: Activation):
    module = sk.nn.make(act, learn=True, **ordinary_values(act))
    traced = torch.fx.symbolic_trace(module)
    x = torch.linspace(-3, 3, 24).reshape(4, 6)
    assert torch.equal(traced(x), module(x))
    assert list(traced.state_dict()) == list(module.state_dict())
    assert torch.equal(copy.deepcopy(traced)(x), module(x))
    big = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(6, 6), module))
    assert [node.op for node in big.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]


# A trace is pickled with its definition's name.
NAMED = {name: act for name, act in LEARNED_KINDS.items() if name in ZOO}


@pytest.mark.parametrize("act", NAMED.values(), ids=NAMED)
def test_a_traced_module_is_trained_and_saved(act: Activation):
    module = sk.nn.make(act, learn=True, per="channel", size=6)
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    traced = torch.fx.symbolic_trace(module)
    traced(x).square().sum().backward()
    wanted = {name: p.grad.clone() for name, p in traced.named_parameters()}
    assert wanted
    module.zero_grad()
    module(x).square().sum().backward()
    assert all(torch.equal(p.grad, wanted[name]) for name, p in module.named_parameters())
    assert torch.equal(pickle.loads(pickle.dumps(traced))(x), module(x))
    torch.save(traced.state_dict(), file := io.BytesIO())
    file.seek(0)
    other = sk.nn.make(act, learn=True, per="channel", size=6)
    other.load_state_dict(torch.load(file, weights_only=True))


def test_a_traced_rrelu_draws_where_it_was_traced_in_training():
    x = -torch.ones(64)
    random, mean = torch.fx.symbolic_trace(sk.nn.RReLU().train()), torch.fx.symbolic_trace(sk.nn.RReLU().eval())
    assert random(x).unique().numel() > 32
    assert mean(x).unique().numel() == 1


def test_what_has_no_counterpart_in_torch_says_so():
    with pytest.raises(InputError, match=r"SQUAF cannot be traced by itself.*torch\.nn\.Sequential"):
        torch.fx.symbolic_trace(sk.nn.SQUAF())
