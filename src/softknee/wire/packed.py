"""Fixed length: k symbols of n levels are one number of b bytes, in the number system of base n.

    value = s_0 + n (s_1 + n (s_2 + ...)) < n^k <= 2^(8 b),    8 b / k bits per symbol

With 33 levels 3 symbols fit into 2 bytes (33^3 = 35,937 <= 65,536): 5.33 bits per symbol, where log2 33 is 5.04 and a
whole number of bits is 6. No model is sent and nothing is searched: the same torch operations run on any device, and on
an NVIDIA GPU one kernel each way (`softknee.kernels.packing`) gives the same bytes at the speed of memory.

model:    varint k, varint b
payload:  ceil(count / k) numbers of b bytes, the lowest byte first; the last group is filled up with 0
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from ..errors import ParameterError, WireError
from .message import write_varints

_MOST_BYTES = 7  # so that a value is below 2^56, and no sign bit is in the way
_WASTE_FOR_SHORTER = 1.05  # a group of fewer bytes is taken if it costs no more than this: it is quicker to take apart


@lru_cache
def grouping(levels: int) -> tuple[int, int]:
    """The symbols in a group, and its bytes.

    >>> grouping(33), grouping(32), grouping(2), grouping(4096)
    ((3, 2), (8, 5), (8, 1), (2, 3))
    """
    if levels == 1:
        return 1, 0
    choices = [(_symbols_in(size, levels), size) for size in range(1, _MOST_BYTES + 1)]
    choices = [(symbols, size) for symbols, size in choices if symbols]
    best = min(size / symbols for symbols, size in choices)
    # No more than a whole number of bits per symbol would take, where that can be had in groups of whole bytes.
    accepted = max(best, min(best * _WASTE_FOR_SHORTER, (levels - 1).bit_length() / 8))
    return next((k, b) for k, b in choices if b / k <= accepted)


def _symbols_in(size: int, levels: int) -> int:
    symbols = 0
    while levels ** (symbols + 1) <= 256**size:
        symbols += 1
    return symbols


def bits_of(count: int, levels: int) -> int:
    """The length of the payload."""
    symbols, size = grouping(levels)
    return 8 * size * -(-count // symbols)


def wide(symbols: Tensor) -> Tensor:
    """Symbols in a type that torch can calculate with (it cannot with most unsigned ones)."""
    if symbols.dtype in (torch.uint16, torch.uint32):
        return symbols.to(torch.int64)
    if symbols.dtype == torch.uint64:
        # Above 2^63 a value becomes negative in int64, and is refused as such.
        return symbols.view(torch.int64)
    return symbols


def pack(symbols: Tensor, levels: int) -> Tensor:
    """The payload as a uint8 tensor, on the device of the symbols.

    >>> pack(torch.tensor([1, 2, 0, 32]), 33)
    tensor([67,  0, 32,  0], dtype=torch.uint8)
    """
    group, size = grouping(levels)
    if size and (kernels := _kernels(symbols)):
        return kernels.pack(symbols.detach().reshape(-1), levels=levels, group=group, size=size)[0]
    row = wide(symbols.detach()).reshape(-1)
    row = torch.nn.functional.pad(row, (0, -len(row) % group)).view(-1, group)
    if not size:
        return row.new_empty(0, dtype=torch.uint8)
    # 32-bit arithmetic where it is enough: half the traffic.
    row = row.to(torch.int32 if size < 4 else torch.int64)
    value = row[:, -1].clone(memory_format=torch.contiguous_format)  # seen as bytes below
    for place in range(group - 2, -1, -1):
        value.mul_(levels).add_(row[:, place])
    return _bytes_of(value, size).reshape(-1)


def pack_checked(symbols: Tensor, levels: int) -> Tensor:
    """`pack`, which also refuses symbols outside [0, levels); one pass and one look at a flag on a GPU.

    >>> pack_checked(torch.tensor([1, 2, -1]), 33)
    Traceback (most recent call last):
    softknee.errors.ParameterError: With levels=33 symbols are 0 to 32, and some are not.
    """
    group, size = grouping(levels)
    if size and (kernels := _kernels(symbols)):
        payload, flag = kernels.pack(symbols.detach().reshape(-1), levels=levels, group=group, size=size)
        invalid = bool(flag)
    else:
        extremes = wide(symbols).aminmax() if symbols.numel() else None
        invalid = extremes is not None and (int(extremes.min) < 0 or int(extremes.max) >= levels)
        payload = symbols.new_empty(0, dtype=torch.uint8) if invalid else pack(symbols, levels)
    if invalid:
        raise ParameterError(f"With levels={levels} symbols are 0 to {levels - 1}, and some are not.")
    return payload


def _kernels(x: Tensor) -> ModuleType | None:
    """The kernels, where they run: on an NVIDIA GPU, and in the tests by Triton's interpreter."""
    if not x.is_cuda and (x.device.type != "cpu" or os.environ.get("TRITON_INTERPRET") != "1"):
        return None
    # Not at the top: they need SymPy and Triton, which coding on a CPU does not.
    from ..kernels.dispatch import triton_works

    if triton_works():
        return None
    from ..kernels import packing

    return packing


def _bytes_of(value: Tensor, size: int) -> Tensor:
    if sys.byteorder == "little":  # the bytes of the number are in memory as they go onto the wire
        return value.view(torch.uint8).view(len(value), value.element_size())[:, :size]
    return torch.stack([(value >> 8 * place & 0xFF).to(torch.uint8) for place in range(size)], dim=1)


def unpack(payload: Tensor, count: int, levels: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """The symbols of a payload, on its device.

    >>> unpack(pack(torch.tensor([1, 2, 0, 32]), 33), 4, 33)
    tensor([ 1,  2,  0, 32])
    """
    group, size = grouping(levels)
    if not size:
        return torch.zeros(count, dtype=dtype, device=payload.device)
    if kernels := _kernels(payload):
        symbols, flag = kernels.unpack(payload, count, levels=levels, group=group, size=size, dtype=dtype)
        return _require_no_rest(symbols, flag)
    parts = payload.view(-1, size).to(torch.int32 if size < 4 else torch.int64)
    value = parts[:, 0].clone()
    for place in range(1, size):
        value.add_(parts[:, place] << 8 * place)
    out = torch.empty(len(value), group, dtype=dtype, device=payload.device)
    for place in range(group):
        rest = value // levels
        out[:, place] = value - rest * levels
        value = rest
    symbols = out.view(-1)
    return _require_no_rest(symbols[:count], value.any() | symbols[count:].to(torch.int64).any())


def _require_no_rest(symbols: Tensor, flag: Tensor) -> Tensor:
    """The symbols, unless the flag is set, which waits for the GPU."""
    if bool(flag):
        raise WireError("The message is damaged: a group holds more than its symbols.")
    return symbols


def to_bytes(payload: Tensor) -> bytes:
    """A uint8 tensor as bytes, without a copy through a list."""
    host = payload.contiguous().cpu()
    return ctypes.string_at(host.data_ptr(), host.numel()) if host.numel() else b""


def from_bytes(payload: bytes, device: torch.device | str) -> Tensor:
    """Bytes as a uint8 tensor."""
    if not payload:
        return torch.empty(0, dtype=torch.uint8, device=device)
    return torch.frombuffer(bytearray(payload), dtype=torch.uint8).to(device)


def encode(symbols: Tensor, levels: int) -> tuple[bytes, bytes]:
    """Model and payload."""
    return write_varints(*grouping(levels)), to_bytes(pack(symbols, levels))


def decode(
    model: bytes, payload: bytes, count: int, levels: int, *, dtype: torch.dtype, device: torch.device | str
) -> Tensor:
    if model != write_varints(*grouping(levels)) or 8 * len(payload) != bits_of(count, levels):
        raise WireError(f"The message is damaged: its groups are not those of {count:,} symbols of {levels} levels.")
    return unpack(from_bytes(payload, device), count, levels, dtype)
