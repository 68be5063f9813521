"""Packing with a check of the symbols, in plain torch operations; the kernels are in interpreter/test_packing.py."""

import pytest
import torch

from softknee.errors import ParameterError
from softknee.wire import packed


@pytest.mark.parametrize("levels", [1, 2, 33, 4096])
def test_checked_packing_is_packing(levels: int):
    symbols = torch.randint(levels, (7, 11), generator=torch.Generator().manual_seed(levels))
    assert torch.equal(packed.pack_checked(symbols, levels), packed.pack(symbols, levels))
    assert packed.pack_checked(symbols[:0], levels).numel() == 0


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_symbols_beyond_the_levels_are_refused(dtype: torch.dtype):
    for strange in (-1, 33):
        symbols = torch.tensor([0, strange, 32], dtype=torch.int64).to(dtype)
        with pytest.raises(ParameterError, match="symbols are 0 to 32, and some are not"):
            packed.pack_checked(symbols, 33)
    with pytest.raises(ParameterError):
        packed.pack_checked(torch.ones(3, dtype=dtype), 1)


def test_33_levels_take_less_than_5_34_bits():
    assert packed.bits_of(3_000_000, 33) / 3_000_000 < 5.34
