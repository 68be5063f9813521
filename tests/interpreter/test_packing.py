"""The kernels that pack and unpack symbols, run by Triton's interpreter and held to Python's whole numbers.

Run with TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported.
"""

import os

import pytest
import torch

from softknee.errors import ParameterError, WireError
from softknee.wire import decode, encode, packed

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is asked for with TRITON_INTERPRET=1.", allow_module_level=True)

from softknee.kernels import packing

# Every number of bytes that a group can have, odd ones and pairs among them.
LEVELS = [2, 3, 5, 6, 7, 9, 17, 32, 33, 100, 256, 257, 1000, 4096, 65536]


def drawn(levels: int, count: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    symbols = torch.randint(levels, (count,), generator=torch.Generator().manual_seed(levels + count))
    symbols[: min(count, 30)] = levels - 1  # the largest value that a group can have
    return symbols.to(dtype)


def expected(symbols: torch.Tensor, levels: int) -> bytes:
    """By the definition, in Python's numbers of any length."""
    group, size = packed.grouping(levels)
    row = symbols.tolist()
    parts = [row[start : start + group] for start in range(0, len(row), group)]
    values = [sum(symbol * levels**place for place, symbol in enumerate(part)) for part in parts]
    return b"".join(value.to_bytes(size, "little") for value in values)


def test_these_levels_have_groups_of_every_size():
    assert {packed.grouping(levels)[1] for levels in LEVELS} >= {1, 2, 3, 5}


def test_the_kernels_are_what_runs(monkeypatch: pytest.MonkeyPatch):
    calls = []
    for name in ("pack", "unpack"):
        own = getattr(packing, name)
        monkeypatch.setattr(packing, name, lambda *a, own=own, name=name, **k: calls.append(name) or own(*a, **k))
    assert torch.equal(packed.unpack(packed.pack(drawn(33, 10), 33), 10, 33), drawn(33, 10).long())
    assert calls == ["pack", "unpack"]


@pytest.mark.parametrize("levels", LEVELS)
def test_bytes_are_those_of_the_definition_and_come_apart_again(levels: int):
    for count in (1, 2, 3, 50, 1699):  # more than one program for 33 levels
        symbols = drawn(levels, count)
        payload = packed.pack_checked(symbols, levels)
        assert bytes(payload.tolist()) == expected(symbols, levels)
        assert torch.equal(packed.unpack(payload, count, levels, torch.int32), symbols)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16])
def test_types_and_layouts(dtype: torch.dtype):
    symbols = drawn(33, 60, dtype).view(3, 20)
    payload = packed.pack(symbols.t(), 33)
    assert bytes(payload.tolist()) == expected(symbols.t().reshape(-1), 33)
    again = packed.unpack(payload, 60, 33, dtype)
    assert again.dtype == dtype
    assert again.tolist() == symbols.t().reshape(-1).tolist()


def test_a_slice_at_an_odd_address():
    symbols = drawn(33, 100)
    payload = packed.pack(symbols, 33)
    held = torch.zeros(len(payload) + 1, dtype=torch.uint8)
    held[1:] = payload
    assert held[1:].data_ptr() % 2 == 1
    assert torch.equal(packed.unpack(held[1:], 100, 33, torch.int32), symbols)


def test_whole_messages_and_an_empty_one():
    for count in (0, 1, 100):
        symbols = drawn(33, count)
        assert torch.equal(decode(encode(symbols, levels=33, coder="packed")), symbols)
    assert packed.pack(drawn(33, 0), 33).numel() == 0


@pytest.mark.parametrize("symbol", [-1, 33, 2**40, -(2**40)])
def test_symbols_beyond_the_levels_are_refused(symbol: int):
    symbols = drawn(33, 2000, torch.int64)
    packed.pack_checked(symbols, 33)
    symbols[1500] = symbol
    with pytest.raises(ParameterError, match="symbols are 0 to 32"):
        packed.pack_checked(symbols, 33)


def test_damage_is_seen():
    payload = packed.pack(drawn(33, 2000), 33)
    altered = payload.clone()
    altered[2 * 600 : 2 * 600 + 2] = 255  # 65,535 >= 33^3
    with pytest.raises(WireError, match="more than its symbols"):
        packed.unpack(altered, 2000, 33)
    filled = payload.clone()
    filled[-2:] = torch.tensor([33**2 & 255, 33**2 >> 8])  # the last group has two symbols: a third one of 1
    with pytest.raises(WireError, match="more than its symbols"):
        packed.unpack(filled, 2000, 33)
    assert packed.unpack(filled, 2001, 33)[-1] == 1
