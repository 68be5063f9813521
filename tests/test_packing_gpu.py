"""The kernels that pack and unpack symbols on a real device: the bytes and symbols of the CPU, and damage is seen."""

import pytest
import torch

import softknee as sk
from softknee.errors import ParameterError
from softknee.wire import WireError, decode, encode, packed

pytestmark = [
    pytest.mark.gpu,
]


def drawn(levels: int, count: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    symbols = torch.randint(levels, (count,), generator=torch.Generator().manual_seed(levels + count))
    symbols[: min(count, 30)] = levels - 1
    return symbols.to(dtype)


@pytest.mark.parametrize("levels", [1, 2, 5, 9, 17, 32, 33, 100, 256, 257, 1000, 4096, 65536])
def test_bytes_and_symbols_are_those_of_the_cpu(levels: int):
    for count in (1, 2, 50, 100_003):
        symbols = drawn(levels, count)
        payload = packed.pack_checked(symbols.cuda(), levels)
        assert payload.is_cuda
        assert torch.equal(payload.cpu(), packed.pack(symbols, levels))
        again = packed.unpack(payload, count, levels, torch.int32)
        assert again.is_cuda
        assert torch.equal(again.cpu(), symbols)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_types_slices_and_whole_messages(dtype: torch.dtype):
    symbols = drawn(33, 3000, dtype).view(30, 100).cuda()
    payload = packed.pack(symbols.t(), 33)
    assert torch.equal(payload.cpu(), packed.pack(symbols.cpu().t(), 33))
    held = torch.zeros(len(payload) + 1, dtype=torch.uint8, device="cuda")
    held[1:] = payload  # at an odd address
    assert torch.equal(packed.unpack(held[1:], 3000, 33, dtype), symbols.t().reshape(-1))
    assert torch.equal(decode(encode(symbols, levels=33, coder="packed"), device="cuda"), symbols)


def test_damage_and_strange_symbols_are_seen():
    symbols = drawn(33, 100_001).cuda()
    payload = packed.pack(symbols, 33)
    payload[2000:2002] = 255
    with pytest.raises(WireError, match="more than its symbols"):
        packed.unpack(payload, len(symbols), 33)
    for strange in (-1, 33):
        symbols[77_777] = strange
        with pytest.raises(ParameterError, match="symbols are 0 to 32"):
            packed.pack_checked(symbols, 33)


def test_the_symbols_of_a_layer_come_back():
    layer = sk.nn.SQUAFP(k=16, q=0.25, device="cuda")
    values, symbols = layer.with_symbols(torch.randn(64, 1000, device="cuda"))
    again = packed.unpack(packed.pack_checked(symbols, 33), symbols.numel(), 33, torch.int32)
    assert torch.equal(layer.from_symbols(again.view_as(symbols)), values)
    assert packed.pack(symbols, 33).numel() * 8 / symbols.numel() <= 5.34
