"""bfloat16 and float16: as near to the float64 truth as a correctly rounded result, or one unit further."""

import pytest
import torch
from torch import Tensor

from helpers import BF16, F16, F32, F64, REACH, every_subject, settings, tolerance
from softknee.spec import Activation

HALF_TYPES = pytest.mark.parametrize("dtype", [BF16, F16], ids=["bfloat16", "float16"])
# bfloat16 reaches as far down as float32, in which it is computed: a gate such as sigmoid(-89) is already 0 there,
# and 89 times it is missing from a slope. Below this size one unit is this size.
UNDERFLOW = 2.0**-120


def every_number(dtype: torch.dtype, step: int = 1) -> Tensor:
    """The finite numbers of a 16-bit type in [-50, 50] (or every third, ...), in the order of their bits."""
    all_bits = torch.arange(-(1 << 15), 1 << 15, step, dtype=torch.int32).to(torch.int16)
    numbers = all_bits.view(dtype)
    return numbers[numbers.abs() <= REACH]


# The tails of the bump kernel are known to 1e-14 of the width and not relative to their size, and computed in float32.
BUMP = 1e-12


def unit(truth: Tensor, dtype: torch.dtype, floor: float = UNDERFLOW) -> Tensor:
    """The distance between neighbouring numbers of the type at this size."""
    info = torch.finfo(dtype)
    _, exponent = torch.frexp(truth)
    one = torch.ldexp(torch.full_like(truth, info.eps), exponent - 1)
    return one.clamp(min=max(info.smallest_normal * info.eps, floor))


def assert_rounds_well(got: Tensor, truth: Tensor, where: Tensor, floor: float = UNDERFLOW) -> None:
    dtype = got.dtype
    nearest = truth.to(dtype).double()
    over = nearest.isinf()
    assert torch.equal(got.double()[over], nearest[over])
    assert not got.isnan().any()
    excess = (got.double() - truth).abs() - (nearest - truth).abs()
    excess = torch.where(over, 0.0, excess / unit(truth, dtype, floor))
    worst = int(excess.argmax())
    assert excess[worst] <= tolerance(dtype, "half"), (
        f"{excess[worst]:.3g} units at x = {where[worst].item()}: {got[worst].item()}, truth {truth[worst].item()}"
    )


def test_the_numbers_are_many():
    for dtype in (BF16, F16):
        numbers = every_number(dtype)
        assert len(numbers) > 30_000
        assert numbers.min() < -49
        assert numbers.max() > 49


def test_the_rule_sees_a_wrong_bit():
    truth = torch.tensor([1.0 + 2**-10], dtype=F64)
    assert_rounds_well(torch.tensor([1.0 + 2**-7], dtype=BF16), truth, truth)
    with pytest.raises(AssertionError, match="units"):
        assert_rounds_well(torch.tensor([1.0 + 2**-6], dtype=BF16), truth, truth)


@HALF_TYPES
@every_subject
def test_value_and_slope_round_well(act: Activation, dtype: torch.dtype):
    numbers = every_number(dtype, 3 if act.implicit is not None else 1)
    for values in settings(act):
        exact = numbers.double().requires_grad_()
        truth = act(exact, **values)
        (slope,) = torch.autograd.grad(truth.sum(), exact)
        x = numbers.clone().requires_grad_()
        got = act(x, **{name: value.to(F32) for name, value in values.items()})
        (gradient,) = torch.autograd.grad(got.sum(), x)
        assert got.dtype == gradient.dtype == dtype
        floor = BUMP * max(1.0, values["delta"].item()) if act.name.endswith("_bump") else UNDERFLOW
        assert_rounds_well(got.detach(), truth.detach(), numbers, floor)
        assert_rounds_well(gradient, slope, numbers, floor)


@HALF_TYPES
@every_subject
def test_parameters_of_a_half_type_are_read_as_they_are(act: Activation, dtype: torch.dtype):
    """A parameter in bfloat16 is the number it is, not rounded again and not promoted in the result."""
    x = every_number(dtype, 7)
    values = {name: value.to(dtype) for name, value in settings(act)[0].items()}
    got = act(x, **values)
    truth = act(x.double(), **{name: value.double() for name, value in values.items()})
    assert_rounds_well(got, truth, x)
