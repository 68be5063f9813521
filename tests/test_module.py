"""Modules: what they compute, how they are set, moved, copied and shown."""

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from helpers import (
    F16,
    F32,
    F64,
    GRANULARITIES,
    KINDS,
    SUBJECTS,
    X,
    each_granularity,
    each_kind,
    each_learned_kind,
    every_subject,
    ordinary_values,
)
from softknee.spec import Activation


@every_subject
def test_a_module_computes_its_definition(act: Activation):
    values = ordinary_values(act)
    module = sk.nn.make(act, **values)
    assert torch.equal(module(X), act(X, **values))
    assert type(module).__name__ in dir(sk.nn)
    for name, value in values.items():
        assert isinstance(getattr(module, name), Tensor)
        assert getattr(module, name).item() == torch.tensor(value).item()


# -- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learn", [False, True], ids=["fixed", "learned"])
@each_learned_kind
def test_set_and_reset(act: Activation, learn: bool):
    module = sk.nn.make(act, learn=learn, dtype=F64)
    before, addresses = module(X.double()).detach(), [t.data_ptr() for t in module.state_dict().values()]
    values = ordinary_values(act)
    assert module.set_(**values) is module
    torch.testing.assert_close(module(X.double()).detach(), act(X.double(), **values), rtol=1e-12, atol=1e-12)
    assert addresses == [t.data_ptr() for t in module.state_dict().values()]
    module.reset_parameters()
    assert torch.equal(module(X.double()), before)


@pytest.mark.parametrize("dtype", [F64, F32, F16], ids=str)
@each_kind
def test_the_type_of_the_parameters(act: Activation, dtype: torch.dtype):
    module = sk.nn.make(act, learn=True, dtype=dtype)
    assert all(t.dtype == dtype for t in module.state_dict().values())
    assert module(X).dtype == F32


@each_learned_kind
def test_a_float64_module_keeps_all_digits(act: Activation):
    values = ordinary_values(act)
    for learn in (False, True):
        module = sk.nn.make(act, learn=learn, dtype=F64, **values)
        for name, value in values.items():
            assert getattr(module, name).item() == pytest.approx(value, rel=1e-15), (name, learn)


@each_learned_kind
def test_to_a_type_rounds_once(act: Activation):
    module = sk.nn.make(act, learn=True, **ordinary_values(act))
    rounded = {name: t.half() for name, t in module.state_dict().items()}
    moved = copy.deepcopy(module).to(F16)
    assert all(torch.equal(t, rounded[name]) for name, t in moved.state_dict().items())


@each_granularity(KINDS)
def test_built_on_the_meta_device(act: Activation, granularity: str):
    options = {"learn": True, **GRANULARITIES[granularity]}
    module = sk.nn.make(act, device="meta", **options)
    assert all(t.is_meta for t in module.state_dict().values())
    assert repr(module)
    module.to_empty(device="cpu")
    module.reset_parameters()
    assert torch.equal(module(X), sk.nn.make(act, **options)(X))


@pytest.mark.parametrize("name", ["smelu", "lambda_gelu", "squaf"])
def test_written_where_meta_is_the_device_of_all_tensors(name: str):
    with torch.device("meta"):
        module = sk.nn.make(name, learn=True, device="cpu")
        module.reset_parameters()
        module.set_(**{p.name: p.start for p in module.params if p.name != "z"})
    assert torch.equal(module(X), sk.nn.make(name, learn=True)(X))


# -- copies -----------------------------------------------------------------------------------------------


@each_granularity(SUBJECTS)
def test_copies_are_the_same_function(act: Activation, granularity: str):
    options = {"learn": True, **GRANULARITIES[granularity]}
    module = sk.nn.make(act, **options, **ordinary_values(act))
    with torch.no_grad():
        for p in module.parameters():
            p += 0.125  # as after training
    expected = module(X)
    assert torch.equal(copy.deepcopy(module)(X), expected)
    assert torch.equal(pickle.loads(pickle.dumps(module))(X), expected)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = sk.nn.make(act, **options)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(X), expected)


def test_repr_says_it_all():
    assert repr(sk.nn.SReLU(delta=0.5)) == "SReLU(delta=0.5)"
    learned = repr(sk.nn.make("generalized_smelu", learn=["alpha", "t"], per="channel", size=3, inplace=True))
    for part in (
        "GeneralizedSmeLU(",
        "alpha=1 (learned)",
        "beta=1,",
        "t=0 (learned)",
        "per='channel'",
        "size=3",
        "inplace=True",
    ):
        assert part in learned
    assert "per='neuron', size=(2, 3)" in repr(sk.nn.make("smelu", per="neuron", size=(2, 3)))
    assert repr(sk.nn.GELU()) == "GELU(beta=1)"
    assert repr(sk.nn.GELU(approximate="tanh")) == "GELU('gelu_tanh', beta=1)"


def test_a_size_may_be_any_whole_number():
    """NumPy's and torch's too, which shapes are often computed with."""
    assert repr(sk.nn.SmeLU(per="channel", size=torch.tensor(3))) == "SmeLU(beta=1, per='channel', size=3, dim=1)"


def test_a_module_inside_a_model():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), sk.nn.SmeLU(learn="beta", per="channel", size=4), nn.Flatten())
    model(torch.randn(2, 1, 6, 6)).square().mean().backward()
    assert dict(model.named_parameters())["1.raw_beta"].grad.abs().sum() > 0


# -- explain ----------------------------------------------------------------------------------------------


@each_kind
def test_explain_names_a_path_and_a_reason(act: Activation):
    small, large = torch.zeros(3), torch.zeros(600_000, dtype=torch.float64)
    for what in (act, sk.nn.make(act)):
        assert sk.explain(what, small).path == "plain"
        assert sk.explain(what, large).path == "blocks"
        assert len(sk.explain(what, small).reason.split()) > 5
    assert sk.explain(act, torch.zeros(3, device="meta")).path == "plain"


def test_explain_knows_a_transform():
    seen = []
    torch.func.vmap(lambda x: seen.append(sk.explain(sk.get("srelu"), x)) or x)(torch.zeros(2, 3))
    assert seen[0].path == "plain"
    assert "transform" in seen[0].reason


@pytest.mark.parametrize("name", ["srelu", "smelu", "squaf"])
def test_symbolic_tracing_sees_one_node(name: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), sk.nn.make(name, learn=True))
    traced = torch.fx.symbolic_trace(model)
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_module", "call_module", "output"]
    x = torch.randn(4, 3)
    assert torch.equal(traced(x), model(x))
