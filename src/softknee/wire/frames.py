r"""What goes between the two ends of a `Boundary`: a header of 96 bytes, then a body whose length it names.

    header   "SKNB", version 2, then varints: kind, number, type, whether a gradient is wanted and in which type, shape,
             type and shape of the table, bytes of the body; filled up with 0, and a CRC-32 of all before
    body     the table (if it is new), the payload, and a check of 8 bytes

The last word of an end that closes, FAREWELL, is as long as a header: what waits for a header can take it.

    kind      payload
    coded     a message of `softknee.wire.encode` (Huffman or rANS)
    packed    symbols of fixed length, `softknee.wire.packed`, made and read on the device
    plain     the activations as they are
    gradient  the gradient of the activations with the same number

The check is a CRC-32 on a CPU, which sees every change of up to 32 neighbouring bits, and the sum of all bytes on a
GPU, which sees every change of one byte and costs no copy to the host. Each coder then checks what it reads.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError, WireError
from .message import MOST_ELEMENTS, MOST_LEVELS, Reader, write_varints
from .packed import from_bytes, to_bytes

HEADER_BYTES = 96
CHECK_BYTES = 8
KINDS = ("coded", "packed", "plain", "gradient")
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_MAGIC, _VERSION, _CRC_BYTES = b"SKNB", 2, 4
FAREWELL = (_MAGIC + bytes([_VERSION]) + b" farewell").ljust(HEADER_BYTES, b"\0")
_MOST_DIMENSIONS = 16
_SYMBOL_BYTES = 4  # of a coded symbol, at most: a code word of Huffman has up to 24 bits
_MOST_OVERHEAD = 2**20  # bytes of a coded message beyond those: its header and model


@dataclass(frozen=True)
class Frame:
    """The content of a header."""

    kind: str
    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    body: int  # bytes
    gradient: torch.dtype | None = None  # the type in which the gradient is wanted
    table_dtype: torch.dtype = torch.float32
    table_shape: tuple[int, ...] = ()  # empty: as in the message before

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def table_bytes(self) -> int:
        return math.prod(self.table_shape) * self.table_dtype.itemsize if self.table_shape else 0

    def to_bytes(self) -> bytes:
        gradient_type = 0 if self.gradient is None else 1 + TYPES.index(self.gradient)
        numbers = write_varints(
            *(KINDS.index(self.kind), self.number, TYPES.index(self.dtype), gradient_type),
            *(len(self.shape), *self.shape),
            *(TYPES.index(self.table_dtype), len(self.table_shape), *self.table_shape),
            self.body,
        )
        start = _MAGIC + bytes([_VERSION]) + numbers
        if len(start) > HEADER_BYTES - _CRC_BYTES:
            raise InputError(
                f"A tensor of shape {self.shape} has too many dimensions for the wire; flatten some of them."
            )
        start = start.ljust(HEADER_BYTES - _CRC_BYTES, b"\0")
        return start + zlib.crc32(start).to_bytes(_CRC_BYTES, "little")


def read_header(data: bytes, *, most: int) -> Frame:
    """The header in these bytes, if it is whole and asks for no more than `most` activations.

    >>> frame = Frame("gradient", 7, torch.float32, (2, 3), 32)
    >>> read_header(frame.to_bytes(), most=100) == frame
    True
    """
    start = data[:-_CRC_BYTES]
    if len(data) != HEADER_BYTES or not data.startswith(_MAGIC):
        raise WireError("These bytes are no header of a Boundary: something else was sent in its group.")
    if data[len(_MAGIC)] != _VERSION:
        raise WireError(
            f"The other end speaks version {data[len(_MAGIC)]} and this one {_VERSION}; use the same softknee on both."
        )
    if zlib.crc32(start).to_bytes(_CRC_BYTES, "little") != data[-_CRC_BYTES:]:
        raise WireError("The header was altered on its way: its checksum is wrong.")
    reader = Reader(start[len(_MAGIC) + 1 :])
    kind = KINDS[reader.number("the kind", most=len(KINDS) - 1)]
    number = reader.number("the number")
    dtype = TYPES[reader.number("the type", most=len(TYPES) - 1)]
    gradient_type = reader.number("the type of the gradient", most=len(TYPES))
    shape = _shape(reader, "the shape")
    table_dtype = TYPES[reader.number("the type of the table", most=len(TYPES) - 1)]
    table_shape = _shape(reader, "the shape of the table")
    body = reader.number("the length of the body")
    if reader.rest().strip(b"\0"):
        raise WireError("The header is damaged: something follows its last number.")
    frame = Frame(
        kind, number, dtype, shape, body, TYPES[gradient_type - 1] if gradient_type else None, table_dtype, table_shape
    )
    _check_lengths(frame, most)
    return frame


def _shape(reader: Reader, what: str) -> tuple[int, ...]:
    shape = tuple(reader.number(what) for _ in range(reader.number(what, most=_MOST_DIMENSIONS)))
    if math.prod(size for size in shape if size) > MOST_ELEMENTS:
        raise WireError(f"The header is damaged: {what} is {shape}.")
    return shape


def _check_lengths(frame: Frame, most: int) -> None:
    """Before memory is taken for the body, hold its length against what it should have."""
    if frame.count > most:
        raise WireError(
            f"The header announces {frame.count:,} activations, and at most {most:,} are accepted. "
            "If that many are expected, allow them with Boundary(..., most=...)."
        )
    fixed = frame.table_bytes + CHECK_BYTES
    if frame.kind in ("plain", "gradient"):
        valid = frame.body == frame.count * frame.dtype.itemsize + CHECK_BYTES and not frame.table_shape
    else:
        valid = fixed <= frame.body <= fixed + _SYMBOL_BYTES * frame.count + _MOST_OVERHEAD
    if frame.table_shape:
        _check_table(frame, most)
    if not valid:
        raise WireError(
            f"The header is damaged: {frame.body:,} bytes are no body of {frame.kind} activations of shape "
            f"{frame.shape}."
        )


def _check_table(frame: Frame, most: int) -> None:
    """A table has (points,) behind the shape of the layer's parameters, which broadcasts against the activations."""
    *rows, points = frame.table_shape
    broadcasts = len(rows) <= len(frame.shape) and all(
        table_size in (1, size) for table_size, size in zip(reversed(rows), reversed(frame.shape), strict=False)
    )
    if not (1 <= points <= MOST_LEVELS and math.prod(rows) and (broadcasts or math.prod(rows) == 1)):
        raise WireError(
            f"The header is damaged: a table of shape {frame.table_shape} is none of activations of shape "
            f"{frame.shape}."
        )
    if math.prod(frame.table_shape) > max(most, MOST_LEVELS):
        raise WireError(
            f"The header announces a table of {math.prod(frame.table_shape):,} numbers, and at most "
            f"{max(most, MOST_LEVELS):,} are accepted. If that many are expected, allow them with "
            "Boundary(..., most=...)."
        )


def bytes_of(tensor: Tensor) -> Tensor:
    """The memory of a tensor as uint8, in one row."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def body_of(*parts: Tensor, device: torch.device) -> Tensor:
    """The parts, one after the other, and their check."""
    whole = torch.cat([part.to(device) for part in parts])
    return torch.cat([whole, _check(whole)])


def open_body(frame: Frame, body: Tensor) -> tuple[Tensor, Tensor]:
    """The table's bytes and the payload's, after the check."""
    content = body[:-CHECK_BYTES]
    if not torch.equal(_check(content), body[-CHECK_BYTES:]):
        raise WireError(f"The {frame.kind} activations of message {frame.number} were altered on their way.")
    return content[: frame.table_bytes], content[frame.table_bytes :]


def _check(content: Tensor) -> Tensor:
    if content.is_cuda:
        return bytes_of(content.sum(dtype=torch.int64))
    return from_bytes(zlib.crc32(to_bytes(content)).to_bytes(CHECK_BYTES, "little"), content.device)
