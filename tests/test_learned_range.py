"""Learned parameters have a range, it is kept, and inside of it no gradient is NaN or infinite without need."""

from __future__ import annotations

import math

import pytest
import torch

import softknee as sk
from helpers import LEARNED, every_learned
from softknee.spec import Activation, Between, Param, Positive, Real
from softknee.spec.constraints import NARROWEST, WIDEST

HALVES = (torch.bfloat16, torch.float16)
SIZES = (0.0, *(10.0**k for k in range(-45, 39)), 3.4e38)
REALS = (-1e30, -1e4, -1.0, -1e-30, 0.0, 1e-30, 1.0, 1e4, 1e30)


def inputs(dtype: torch.dtype) -> torch.Tensor:
    """Finite numbers of every size and both signs."""
    result = torch.tensor([sign * size for size in SIZES for sign in (-1, 1, -3, 3)], dtype=torch.float64)
    result = result[result.abs() <= torch.finfo(dtype).max].to(dtype)
    return result[result.isfinite()]


def choices(p: Param) -> list[float]:
    """Both ends of the learned range and what lies between."""
    low, high = p.constraint.learned_range
    if isinstance(p.constraint, Real):
        return list(REALS)
    if isinstance(p.constraint, Between):
        return [low, *(low + share * (high - low) for share in (0.001, 0.5, 0.999)), high]
    return [low, *(10.0**k for k in range(-12, 13, 2) if low < 10.0**k < high), p.default, high]


def results(act: Activation, name: str, value: float, x: torch.Tensor, work: torch.dtype) -> list[torch.Tensor]:
    """The value and the derivatives by x and by the parameter, at each x by itself."""
    x = x.detach().clone().requires_grad_()
    held = torch.full(x.shape, value, dtype=work, requires_grad=True)
    result = act(x, **{name: held})
    return [result.detach(), *torch.autograd.grad(result.double().sum(), (x, held))]


@every_learned
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_gradients_are_finite_in_the_whole_range(act: Activation, dtype: torch.dtype):
    """Infinite only where the exact number, in float64, is beyond the type; and NaN never."""
    x = inputs(dtype)
    for p in act.params:
        for value in choices(p):
            value = float(torch.tensor(value, dtype=torch.float32).clamp(*p.constraint.learned_range))
            result = results(act, p.name, value, x, torch.float32)
            exact = results(act, p.name, value, x.double(), torch.float64)
            for what, item, truth in zip(("value", "d/dx", f"d/d {p.name}"), result, exact, strict=True):
                assert not item.isnan().any(), (what, p.name, value, x[item.isnan()])
                lost = item.isinf() & (truth.abs() < 0.99 * torch.finfo(item.dtype).max)
                assert not lost.any(), (what, p.name, value, x[lost], truth[lost])


@every_learned
def test_a_learned_tensor_outside_of_its_range_counts_as_the_end_of_it(act: Activation):
    """tanhexp's derivative by beta was NaN at 1e-30."""
    x = torch.tensor([-3.0, -0.5, 0.0, 0.5, 3.0])
    for p in act.params:
        low, high = p.constraint.learned_range
        outside = [low / 1e18, -1.0, high * 1e18] if isinstance(p.constraint, Positive) else [low - 0.5, high + 0.5]
        for value in outside if math.isfinite(low) else []:
            held = torch.tensor([value], requires_grad=True)
            actual = act(x, **{p.name: held})
            end = torch.tensor([low if value < low else high], dtype=torch.float32)
            there = act(x, **{p.name: end.requires_grad_()})
            assert torch.equal(actual, there)
            (gradient,), (expected,) = (torch.autograd.grad(f.sum(), at) for f, at in ((actual, held), (there, end)))
            assert torch.equal(gradient, expected), (p.name, value)
            assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(("name", "key", "value"), [("tanhexp", "beta", 1e-30), ("lambda_gelu", "lam", 1e-21)])
def test_the_derivatives_that_were_nan(name: str, key: str, value: float):
    held = torch.tensor([value], requires_grad=True)
    sk.get(name)(torch.linspace(-3, 3, 7), **{key: held}).sum().backward()
    assert torch.isfinite(held.grad).all()


@pytest.mark.parametrize("raw", [-1e30, -1e4, 1e4, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_no_raw_number_leaves_the_range(raw: float, dtype: torch.dtype):
    for name, act in LEARNED.items():
        module = sk.nn.make(act, learn=True).to(dtype)
        with torch.no_grad():
            for key, held in module.named_parameters():
                if key.startswith("raw_"):
                    held.fill_(max(min(raw, torch.finfo(dtype).max), torch.finfo(dtype).min))
        for p in act.params:
            low, high = p.constraint.learned_range
            effective = getattr(module, p.name).double()
            if not isinstance(p.constraint, Real):
                assert (effective >= low * (1 - 1e-6)).all(), (name, p.name)
                assert (effective <= high + 1e-6 * abs(high)).all(), (name, p.name)
        module(torch.linspace(-3, 3, 7, dtype=dtype)).float().sum().backward()
        assert not any(parameter.grad.isnan().any() for parameter in module.parameters()), name
        if dtype != torch.float16:  # in which a width of 1e5 and gradients of that size are infinite
            assert all(torch.isfinite(item.grad).all() for item in module.parameters()), name


def test_a_start_outside_is_refused_with_the_range():
    for value in (NARROWEST / 2, WIDEST * 2):
        with pytest.raises(sk.ParameterError, match=r"to be learned, beta must be a number between 2\^-40 and 2\^40"):
            sk.nn.make("tanhexp", beta=value, learn=True)
    assert sk.nn.make("tanhexp", beta=NARROWEST / 2).beta.item() == NARROWEST / 2  # fixed, it may be anything above 0


def test_a_tensor_that_is_not_learned_is_taken_as_it_is():
    x = torch.tensor([1e30])
    fixed = sk.get("swish")(x, beta=torch.tensor([1e-30]))
    assert fixed.item() == pytest.approx(1e30 / (1 + math.exp(-1)), rel=1e-6)


def test_halves_have_a_least_width_too():
    held = torch.zeros(1, dtype=torch.float16, requires_grad=True)
    sk.get("tanhexp")(torch.linspace(-3, 3, 7, dtype=torch.float16), beta=held).float().sum().backward()
    assert held.grad.dtype == torch.float16
    assert torch.isfinite(held.grad).all()
