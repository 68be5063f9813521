"""Infinities, zeros, subnormals, huge numbers and NaN: the limit where it exists, NaN for NaN alone."""

import math

import pytest
import torch

from extremes import assert_is_the_limit, computed, derivatives, extreme_points
from helpers import BF16, F16, F32, F64, each_kind, settings
from joined import every_formula
from softknee.spec import Activation

TYPES = pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])


@pytest.mark.slow
@TYPES
@every_formula
def test_the_limit_where_it_exists(act: Activation, dtype: torch.dtype):
    points = extreme_points(dtype)
    for values in settings(act):
        got = computed(act, torch.tensor(points, dtype=dtype), {n: v.to(dtype) for n, v in values.items()})
        numbers = {name: value.item() for name, value in values.items()}
        for index, quantity in derivatives(act).items():
            for at, value in zip(points, got[index].tolist(), strict=True):
                assert_is_the_limit(quantity, value, at, numbers, dtype)


def assert_nan_only_for_nan(act: Activation, dtype: torch.dtype) -> None:
    points = [math.nan, *extreme_points(dtype), 1.0, -1.0, math.nan]
    x = torch.tensor(points, dtype=F64).to(dtype)
    for values in settings(act):
        for index, got in computed(act, x, {n: v.to(F32 if dtype != F64 else F64) for n, v in values.items()}).items():
            assert torch.equal(got.isnan(), x.isnan()), (index, values)


@pytest.mark.slow
@TYPES
@every_formula
def test_nan_out_exactly_for_nan_in(act: Activation, dtype: torch.dtype):
    """In the value and in every gradient; an infinite result is no NaN."""
    assert_nan_only_for_nan(act, dtype)


@pytest.mark.parametrize("dtype", [BF16, F16], ids=["bfloat16", "float16"])
@each_kind
def test_nan_in_half_types(act: Activation, dtype: torch.dtype):
    """What is computed in float32 and rounded."""
    assert_nan_only_for_nan(act, dtype)


@every_formula
def test_a_nan_parameter_is_not_hidden(act: Activation):
    x = torch.tensor([-0.5, 0.25, 0.5], dtype=F64)
    for p in act.params:
        values = {q.name: torch.full((1,), q.start, dtype=F64) for q in act.params}
        values[p.name] = torch.full((1,), math.nan, dtype=F64)
        assert act(x, **values).isnan().any(), p.name
