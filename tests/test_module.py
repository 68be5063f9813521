"""Modules: parameters that are learned or fixed, their granularity, and everything torch does to a module."""

import copy
import io
import math
import pickle

import pytest
import torch
from torch import Tensor, nn

import softknee as sk
from helpers import F16, F32, F64, every_learned, every_subject, ordinary_values, tolerance
from softknee.spec import Activation, AtLeastOne, Between, Param, Positive

GRANULARITIES = {
    "layer": {},
    "channel": {"per": "channel", "size": 4},
    "channel_last": {"per": "channel", "size": 5, "dim": -1},
    "neuron": {"per": "neuron", "size": (4, 5)},
}
X = torch.linspace(-3, 3, 60).reshape(3, 4, 5)


def units(found: Tensor, wanted: Tensor) -> float:
    """How many float32 units in the last place lie between, at most."""
    unit = torch.nextafter(wanted.abs(), torch.tensor(math.inf)) - wanted.abs()
    return ((found - wanted).abs() / unit).max().item()


@pytest.mark.parametrize("granularity", GRANULARITIES)
@every_learned
def test_every_parameter_learns_at_each_granularity(act: Activation, granularity: str):
    options = GRANULARITIES[granularity]
    module = sk.nn.make(act.name, learn=True, **options, **ordinary_values(act))
    assert len(list(module.parameters())) == len(act.params)
    (module(X).square() + module(X)).sum().backward()
    shape = {"layer": (1,), "channel": (4,), "channel_last": (5,), "neuron": (4, 5)}[granularity]
    for label, p in module.named_parameters():
        assert p.shape == shape
        assert p.grad is not None, label
        assert p.grad.isfinite().all(), label
    before = module(X).detach()
    with torch.no_grad():
        for p in module.parameters():
            p += 0.25
    assert not torch.equal(module(X), before)


@every_learned
def test_only_what_is_named_is_learned(act: Activation):
    names = [p.name for p in act.params]
    for name in names:
        module = sk.nn.make(act.name, learn=name)
        assert module.learned == (name,)
        assert len(list(module.parameters())) == 1
        fixed = [other for other in names if other != name]
        assert set(fixed) <= {label for label, _ in module.named_buffers()}
    assert not list(sk.nn.make(act.name).parameters())
    assert sk.nn.make(act.name, learn=names).learned == tuple(names)


@every_subject
def test_a_module_computes_its_definition(act: Activation):
    values = ordinary_values(act)
    module = sk.nn.make(act.name, **values)
    assert torch.equal(module(X), act(X, **values))
    assert type(module).__name__ in dir(sk.nn)
    for name, value in values.items():
        assert isinstance(getattr(module, name), Tensor)
        assert units(getattr(module, name), torch.tensor([value])) == 0


# -- start values and constraints -------------------------------------------------------------------------

MAGNITUDES = [s * 10.0**e for e in range(-6, 7) for s in (1.0, 1.7, 2.9999)]


def starts(p: Param) -> list[float]:
    if isinstance(p.constraint, Positive):
        return MAGNITUDES
    if isinstance(p.constraint, AtLeastOne):
        return [1 + m for m in MAGNITUDES] + [1.01]
    if isinstance(p.constraint, Between):
        low, high = p.constraint.low, p.constraint.high
        return [low + (high - low) * share for share in (0.01, 0.2, 0.5, 0.8, 0.99)] + [0.01]
    return [0.0, *MAGNITUDES, *(-m for m in MAGNITUDES)]


@every_learned
def test_the_start_value_comes_back(act: Activation):
    for p in act.params:
        for start in starts(p):
            wanted = torch.tensor([start])
            module = sk.nn.make(act.name, learn=p.name, **{p.name: wanted.item()})
            assert units(getattr(module, p.name).detach(), wanted) <= tolerance(F32, "start"), (p.name, start)


def test_a_start_value_per_channel_comes_back():
    wanted = torch.tensor([1e-6, 0.5, 1.0, 1e6])
    module = sk.nn.make("smelu", learn=True, per="channel", size=4, beta=wanted)
    assert units(module.beta.detach(), wanted) <= tolerance(F32, "start")
    assert torch.equal(sk.nn.make("smelu", per="channel", size=4, beta=wanted).beta, wanted)


@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0, 7.0])
def test_lambda_comes_back_at_any_temperature(temperature: float):
    for lam in (1.0001, 1.01, 2.0, 159.5769):
        module = sk.nn.make("lambda_gelu", learn=True, lam=lam, temperature=temperature)
        assert units(module.lam.detach(), torch.tensor([lam])) <= tolerance(F32, "start"), lam
    assert sk.nn.make("lambda_gelu", learn=True).lam.item() == pytest.approx(1.01, rel=1e-6)
    assert sk.nn.make("lambda_gelu").lam.item() == 1.0


@every_learned
def test_no_step_leaves_the_constraint(act: Activation):
    bound = [p for p in act.params if isinstance(p.constraint, Positive | AtLeastOne | Between)]
    for step in (1.0, -1.0, 1e3, -1e3, 1e8, -1e8, 1e30, -1e30):
        module = sk.nn.make(act.name, learn=[p.name for p in bound])
        optimiser = torch.optim.SGD(module.parameters(), lr=abs(step)) if bound else None
        for _ in range(3 if optimiser else 0):
            for p in module.parameters():
                p.grad = torch.full_like(p, math.copysign(1.0, -step))
            optimiser.step()
        for p in bound:
            value = getattr(module, p.name).item()
            assert p.constraint.allows(value), (p.name, step, value)
        assert not module(X).isnan().any()


# -- settings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learn", [False, True], ids=["fixed", "learned"])
@every_learned
def test_set_and_reset(act: Activation, learn: bool):
    module = sk.nn.make(act.name, learn=learn, dtype=F64)
    before, addresses = module(X.double()).detach(), [t.data_ptr() for t in module.state_dict().values()]
    values = ordinary_values(act)
    assert module.set_(**values) is module
    torch.testing.assert_close(module(X.double()).detach(), act(X.double(), **values), rtol=1e-12, atol=1e-12)
    assert addresses == [t.data_ptr() for t in module.state_dict().values()]
    module.reset_parameters()
    assert torch.equal(module(X.double()), before)


@pytest.mark.parametrize("dtype", [F64, F32, F16], ids=str)
@every_subject
def test_the_type_of_the_parameters(act: Activation, dtype: torch.dtype):
    module = sk.nn.make(act.name, learn=True, dtype=dtype)
    assert all(t.dtype == dtype for t in module.state_dict().values())
    assert module(X).dtype == F32


@every_learned
def test_a_float64_module_keeps_all_digits(act: Activation):
    values = ordinary_values(act)
    for learn in (False, True):
        module = sk.nn.make(act.name, learn=learn, dtype=F64, **values)
        for name, value in values.items():
            assert getattr(module, name).item() == pytest.approx(value, rel=1e-15), (name, learn)


@every_learned
def test_to_a_type_rounds_once(act: Activation):
    module = sk.nn.make(act.name, learn=True, **ordinary_values(act))
    rounded = {name: t.half() for name, t in module.state_dict().items()}
    moved = copy.deepcopy(module).to(F16)
    assert all(torch.equal(t, rounded[name]) for name, t in moved.state_dict().items())


@pytest.mark.parametrize("granularity", GRANULARITIES)
@every_subject
def test_built_on_the_meta_device(act: Activation, granularity: str):
    options = {"learn": True, **GRANULARITIES[granularity]}
    module = sk.nn.make(act.name, device="meta", **options)
    assert all(t.is_meta for t in module.state_dict().values())
    assert repr(module)
    module.to_empty(device="cpu")
    module.reset_parameters()
    assert torch.equal(module(X), sk.nn.make(act.name, **options)(X))


# -- copies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("granularity", GRANULARITIES)
@every_subject
def test_copies_are_the_same_function(act: Activation, granularity: str):
    options = {"learn": True, **GRANULARITIES[granularity]}
    module = sk.nn.make(act.name, **options, **ordinary_values(act))
    with torch.no_grad():
        for p in module.parameters():
            p += 0.125  # as after training
    expected = module(X)
    assert torch.equal(copy.deepcopy(module)(X), expected)
    assert torch.equal(pickle.loads(pickle.dumps(module))(X), expected)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other = sk.nn.make(act.name, **options)
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


def test_a_module_inside_a_model():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), sk.nn.SmeLU(learn="beta", per="channel", size=4), nn.Flatten())
    model(torch.randn(2, 1, 6, 6)).square().mean().backward()
    assert dict(model.named_parameters())["1.raw_beta"].grad.abs().sum() > 0


# -- explain ----------------------------------------------------------------------------------------------


@every_subject
def test_explain_names_a_path_and_a_reason(act: Activation):
    small, large = torch.zeros(3), torch.zeros(200_000)
    for what in (act, sk.nn.make(act.name)):
        assert sk.explain(what, small).path == "plain"
        assert sk.explain(what, large).path == "blocks"
        assert len(sk.explain(what, small).reason.split()) > 5
    assert sk.explain(act, torch.zeros(3, device="meta")).path == "plain"


def test_explain_knows_a_transform():
    seen = []
    torch.func.vmap(lambda x: seen.append(sk.explain(sk.get("srelu"), x)) or x)(torch.zeros(2, 3))
    assert seen[0].path == "plain"
    assert "transform" in seen[0].reason
