"""Infinities, zeros, subnormals, huge numbers and NaN: the limit where it exists, NaN for NaN alone."""

import math

import pytest
import torch
from torch import Tensor

from helpers import BF16, F16, F32, F64, error, every_subject, reference, settings, tolerance
from softknee.spec import Activation

TRUSTED = 1e60  # beyond it the reference's 140 digits no longer cover the cancellation in a textbook formula
TYPES = pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])


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


@TYPES
@every_subject
def test_the_limit_where_it_exists(act: Activation, dtype: torch.dtype):
    points = extreme_points(dtype)
    for values in settings(act):
        got = computed(act, torch.tensor(points, dtype=dtype), {n: v.to(dtype) for n, v in values.items()})
        numbers = {name: value.item() for name, value in values.items()}
        for index, quantity in derivatives(act).items():
            for at, value in zip(points, got[index].tolist(), strict=True):
                assert_is_the_limit(quantity, value, at, numbers, dtype)


@pytest.mark.parametrize("dtype", [F64, F32, BF16, F16], ids=lambda dtype: str(dtype).removeprefix("torch."))
@every_subject
def test_nan_out_exactly_for_nan_in(act: Activation, dtype: torch.dtype):
    """In the value and in every gradient; an infinite result is no NaN."""
    points = [math.nan, *extreme_points(dtype), 1.0, -1.0, math.nan]
    x = torch.tensor(points, dtype=F64).to(dtype)
    for values in settings(act):
        for index, got in computed(act, x, {n: v.to(F32 if dtype != F64 else F64) for n, v in values.items()}).items():
            assert torch.equal(got.isnan(), x.isnan()), (index, values)


@every_subject
def test_a_nan_parameter_is_not_hidden(act: Activation):
    x = torch.tensor([-0.5, 0.25, 0.5], dtype=F64)
    for p in act.params:
        values = {q.name: torch.full((1,), q.start, dtype=F64) for q in act.params}
        values[p.name] = torch.full((1,), math.nan, dtype=F64)
        assert act(x, **values).isnan().any(), p.name
