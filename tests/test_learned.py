"""Learned parameters: at each granularity, from the start value asked for, inside their constraint for ever."""

import math

import pytest
import torch
from torch import Tensor

import softknee as sk
from helpers import (
    F32,
    GRANULARITIES,
    LEARNED_KINDS,
    X,
    each_granularity,
    each_learned_kind,
    ordinary_values,
    tolerance,
)
from softknee.spec import Activation, AtLeastOne, Between, Param, Positive


def units(found: Tensor, wanted: Tensor) -> float:
    """How many float32 units in the last place lie between, at most."""
    unit = torch.nextafter(wanted.abs(), torch.tensor(math.inf)) - wanted.abs()
    return ((found - wanted).abs() / unit).max().item()


@each_granularity(LEARNED_KINDS)
def test_every_parameter_learns_at_each_granularity(act: Activation, granularity: str):
    options = GRANULARITIES[granularity]
    module = sk.nn.make(act, learn=True, **options, **ordinary_values(act))
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@each_learned_kind
def test_a_start_is_kept_in_types_of_few_digits(act: Activation, dtype: torch.dtype):
    """No further from what was asked than the nearest number of the type, though anchors are rounded too."""
    values = ordinary_values(act)
    module = sk.nn.make(act, learn=True, dtype=dtype, **values)
    for p in act.params:
        asked = torch.tensor(float(values[p.name]), dtype=torch.float64)
        rounded = (asked.to(dtype).double() - asked).abs()
        off = (module.effective(p).double() - asked).abs().max()
        assert off <= torch.maximum(rounded, 1e-4 * asked.abs()), f"{p.name}: {off} of {asked}"


@each_learned_kind
def test_only_what_is_named_is_learned(act: Activation):
    names = [p.name for p in act.params]
    for name in names:
        module = sk.nn.make(act, learn=name)
        assert module.learned == (name,)
        assert len(list(module.parameters())) == 1
        fixed = [other for other in names if other != name]
        assert set(fixed) <= {label for label, _ in module.named_buffers()}
    assert not list(sk.nn.make(act).parameters())
    assert sk.nn.make(act, learn=names).learned == tuple(names)


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


@each_learned_kind
def test_the_start_value_comes_back(act: Activation):
    for p in act.params:
        for start in starts(p):
            wanted = torch.tensor([start])
            module = sk.nn.make(act, learn=p.name, **{p.name: wanted.item()})
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


@each_learned_kind
def test_no_step_leaves_the_constraint(act: Activation):
    bound = [p for p in act.params if isinstance(p.constraint, Positive | AtLeastOne | Between)]
    for step in (1.0, -1.0, 1e3, -1e3, 1e8, -1e8, 1e30, -1e30):
        module = sk.nn.make(act, learn=[p.name for p in bound])
        optimiser = torch.optim.SGD(module.parameters(), lr=abs(step)) if bound else None
        for _ in range(3 if optimiser else 0):
            for p in module.parameters():
                p.grad = torch.full_like(p, math.copysign(1.0, -step))
            optimiser.step()
        for p in bound:
            value = getattr(module, p.name).item()
            assert p.constraint.allows(value), (p.name, step, value)
        assert not module(X).isnan().any()


def test_a_state_carries_the_temperature_of_its_raw_value() -> None:
    trained = sk.nn.LambdaGELU(lam=2.5, learn=True, temperature=0.5)
    other = sk.nn.LambdaGELU(learn=True)
    other.load_state_dict(trained.state_dict())
    assert torch.equal(other.lam, trained.lam)
