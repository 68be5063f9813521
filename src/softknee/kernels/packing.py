r"""Symbols of n levels packed k to a number of b bytes, and taken apart again, each in one pass of a Triton kernel.

    value = s_0 + n (s_1 + n (s_2 + ...)) < n^k <= 2^(8 b),    the lowest byte first

One program works on `BLOCK` numbers; every symbol and every byte goes through memory once. For 33 levels (k = 3, b = 2)
and int32 symbols that is 4 bytes in and 0.67 out for each. What does not fit is reported through one flag for the whole
tensor, which stays on the device until somebody looks at it. `softknee.wire.packed` has the same in torch operations.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .dispatch import interpreting
from .launch import divide_up

BLOCK = 512


@triton.jit
def _pack(
    symbols_ptr, out_ptr, flag_ptr, count, numbers,
    LEVELS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, PAIR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = number < numbers
    value = tl.zeros((BLOCK,), tl.int64 if SIZE > 3 else tl.int32)
    strange = tl.zeros((BLOCK,), tl.int32)
    for step in tl.static_range(GROUP):
        at = number * GROUP + (GROUP - 1 - step)
        # Unsigned numbers from 2^63 on become negative, and are refused as such.
        symbol = tl.load(symbols_ptr + at, mask=at < count, other=0).to(tl.int64)
        strange |= ((symbol < 0) | (symbol >= LEVELS)).to(tl.int32)
        value = value * LEVELS + symbol.to(value.dtype)
    if PAIR:
        tl.store(out_ptr.to(tl.pointer_type(tl.uint16)) + number, value.to(tl.uint16), mask=inside)
    else:
        for place in tl.static_range(SIZE):
            byte = (value >> (8 * place)) & 0xFF
            tl.store(out_ptr + number * SIZE + place, byte.to(tl.uint8), mask=inside)
    tl.store(flag_ptr, 1, mask=tl.max(strange, 0) > 0)


@triton.jit
def _number(payload_ptr, number, inside, SIZE: tl.constexpr, PAIR: tl.constexpr):
    """The numbers of SIZE bytes at these places."""
    kind: tl.constexpr = tl.int64 if SIZE > 3 else tl.int32  # pyright: ignore
    if PAIR:
        return tl.load(payload_ptr.to(tl.pointer_type(tl.uint16)) + number, mask=inside, other=0).to(kind)
    value = tl.load(payload_ptr + number * SIZE, mask=inside, other=0).to(kind)
    for place in tl.static_range(1, SIZE):  # pyright: ignore
        byte = tl.load(payload_ptr + number * SIZE + place, mask=inside, other=0).to(kind)
        value |= byte << (8 * place)
    return value


@triton.jit
def _unpack(
    payload_ptr, out_ptr, flag_ptr, count, numbers,
    LEVELS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, PAIR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * BLOCK
    if SIZE < 4:
        # One lane for each symbol, so that neighbours store side by side; a number is read from the cache again.
        for part in tl.static_range(GROUP):  # pyright: ignore
            at = start * GROUP + part * BLOCK + tl.arange(0, BLOCK)
            number = at // GROUP
            left = _number(payload_ptr, number, number < numbers, SIZE, PAIR)  # pyright: ignore
            symbol = tl.zeros((BLOCK,), tl.int32)
            for place in tl.static_range(GROUP):
                rest = left // LEVELS
                symbol = tl.where(at - number * GROUP == place, left - rest * LEVELS, symbol)
                left = rest
            tl.store(out_ptr + at, symbol.to(out_ptr.dtype.element_ty), mask=at < count)
            # What fills the last number up is 0.
            strange = (left != 0) | ((at >= count) & (symbol != 0))
            tl.store(flag_ptr, 1, mask=tl.max(strange.to(tl.int32), 0) > 0)
    else:
        # One lane for each number: divisions of 64 bits cost more than scattered stores.
        number = start + tl.arange(0, BLOCK)
        left = _number(payload_ptr, number, number < numbers, SIZE, PAIR)  # pyright: ignore
        strange = tl.zeros((BLOCK,), tl.int32)
        for place in tl.static_range(GROUP):
            at = number * GROUP + place
            rest = left // LEVELS
            symbol = left - rest * LEVELS
            left = rest
            tl.store(out_ptr + at, symbol.to(out_ptr.dtype.element_ty), mask=at < count)
            strange |= ((at >= count) & (symbol != 0)).to(tl.int32)
        strange |= (left != 0).to(tl.int32)
        tl.store(flag_ptr, 1, mask=tl.max(strange, 0) > 0)


# Triton's kernels are launched by indexing, and take plain numbers for their constants; no type says so.
_pack_kernel: Any = _pack
_unpack_kernel: Any = _unpack


def pack(symbols: Tensor, *, levels: int, group: int, size: int) -> tuple[Tensor, Tensor]:
    """The bytes of a row of symbols, and a flag: not 0 if a symbol is outside [0, levels)."""
    numbers = divide_up(symbols.numel(), group)
    out = torch.empty(numbers * size, dtype=torch.uint8, device=symbols.device)
    return out, _launch(_pack_kernel, symbols.contiguous(), out, out, symbols.numel(), numbers, levels, group, size)


def unpack(
    payload: Tensor, count: int, *, levels: int, group: int, size: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """`count` symbols of a payload, and a flag: not 0 if its numbers hold more than these symbols."""
    out = torch.empty(count, dtype=dtype, device=payload.device)
    numbers = divide_up(count, group)
    return out, _launch(_unpack_kernel, payload.contiguous(), out, payload, count, numbers, levels, group, size)


def _launch(
    kernel: Any,
    source: Tensor,
    out: Tensor,
    packed: Tensor,
    count: int,
    numbers: int,
    levels: int,
    group: int,
    size: int,
) -> Tensor:
    flag = torch.zeros(1, dtype=torch.int32, device=out.device)
    if count:
        # Two bytes at once where they lie at an even address; a slice of a message may not.
        pair = size == 2 and packed.data_ptr() % 2 == 0
        with nullcontext() if interpreting() else torch.cuda.device(out.device):
            kernel[(divide_up(numbers, BLOCK),)](
                source, out, flag, count, numbers, LEVELS=levels, GROUP=group, SIZE=size, PAIR=pair, BLOCK=BLOCK
            )
    return flag
