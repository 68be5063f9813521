"""Every number of a 16-bit type, and whether a result in one is rounded well."""

import pytest
import torch
from torch import Tensor

from helpers import BF16, F16, REACH, tolerance

HALF_TYPES = pytest.mark.parametrize("dtype", [BF16, F16], ids=["bfloat16", "float16"])


# bfloat16 reaches as far down as float32, in which it is computed: a gate such as sigmoid(-89) is already 0 there,
# and 89 times it is missing from a slope. Below this size one unit is this size.
UNDERFLOW = 2.0**-120


def every_number(dtype: torch.dtype, step: int = 1) -> Tensor:
    """The finite numbers of a 16-bit type in [-50, 50] (or every third, ...), in the order of their bits."""
    all_bits = torch.arange(-(1 << 15), 1 << 15, step, dtype=torch.int32).to(torch.int16)
    numbers = all_bits.view(dtype)
    return numbers[numbers.abs() <= REACH]


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
