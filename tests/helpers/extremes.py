"""Infinities, zeros, subnormals and huge numbers, and the limit that a function has there."""

import math

import pytest
import torch
from torch import Tensor

from helpers import F64, error, reference, tolerance
from softknee.spec import Activation

TRUSTED = 1e60  # beyond it the reference's 140 digits no longer cover the cancellation in a textbook formula


def extreme_points(dtype: torch.dtype) -> list[float]:
    info = torch.finfo(dtype)
    sizes = [0.0, info.smallest_normal * info.eps, info.smallest_normal, info.max / 4, 1e38, math.inf]
    sizes += [1e300] if dtype == F64 else []
    return [sign * size for size in sizes for sign in (1.0, -1.0)]


def derivatives(act: Activation) -> dict[tuple[str, ...], Activation]:
    names = ["x", *(p.name for p in act.params)]
    return {(): act} | {(name,): act.partial(name) for name in names}


def computed(act: Activation, x: Tensor, values: dict[str, Tensor]) -> dict[tuple[str, ...], Tensor]:
    """The value, and the gradients per element as autograd gives them."""
    inputs = [t.expand(x.shape).clone().requires_grad_() for t in (x, *values.values())]
    value = act(inputs[0], **dict(zip(values, inputs[1:], strict=True)))
    grads = torch.autograd.grad(value, inputs, torch.ones_like(value))
    return {(): value.detach()} | {(n,): g for n, g in zip(("x", *values), grads, strict=True)}


def limit(quantity: Activation, side: float, values: dict[str, float]) -> float:
    """What the reference tends to, from two far points a factor of ten apart; infinite where it still moves there.

    A thousand widths (or inverse widths) are far for every function here. 1e60 is tried first, because a rational
    function needs it; the reference of a function with an exponential inside an exponential cannot be evaluated there.
    """
    widths = [max(abs(v), 1 / abs(v)) for v in values.values() if v]
    widest = max([1.0, *widths])
    for far in (1e60, 1e3 * widest, 1e3 / widest):
        try:
            near, here = (reference(quantity, side * far * factor, values) for factor in (1, 10))
        except (MemoryError, OverflowError):
            continue
        moving = abs(here) > 1e-30 and abs(here - near) > 1e-3 * abs(here)
        return math.copysign(math.inf, here) if moving else float(here)
    raise AssertionError(f"{quantity.name} has no reference far out")


def truth_at(quantity: Activation, at: float, values: dict[str, float]) -> float | None:
    """The reference, or the limit at infinity; None for a finite x where the reference itself cannot be evaluated."""
    if math.isinf(at):
        return limit(quantity, math.copysign(1.0, at), values)
    if abs(at) > TRUSTED:
        return None
    try:
        return float(reference(quantity, at, values))
    except (MemoryError, OverflowError):
        return None


def assert_is_the_limit(quantity: Activation, got: float, at: float, values: dict[str, float], dtype) -> None:
    truth = truth_at(quantity, at, values)
    where = (quantity.name, at, values, got, truth)
    assert not math.isnan(got), where
    if truth is None:
        truth = limit(quantity, math.copysign(1.0, at), values)
        if math.isfinite(truth):
            assert got == pytest.approx(truth, rel=1e-6, abs=1e-6), where
        else:
            assert got * math.copysign(1.0, truth) > 0, where
    elif abs(truth) > torch.finfo(dtype).max:
        assert got == math.copysign(math.inf, truth), where
    elif math.isinf(at):
        assert abs(got - truth) <= 4 * tolerance(dtype, "reference") * torch.finfo(dtype).eps * max(1, abs(truth)), (
            where
        )
    else:
        assert error(quantity, got, at, values, dtype) <= tolerance(dtype, "reference"), where
