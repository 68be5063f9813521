r"""The form of a message: what stands in which byte, and the checks that come before anything is believed.

    bytes       content
    4           "SKNW"
    1           version of this form: 1
    1           coder: 1 huffman, 2 rans, 3 packed
    1           type of the symbols: the place of its name in TYPES
    1           1 if the probabilities are known to both sides and not in the message, else 0
    varint      levels
    varint      number of dimensions, then each dimension
    varint      count of the symbols: the product of the dimensions
    varint      bytes of the model, then the model (frequencies, code lengths or the grouping; see each coder)
    varint      bytes of the payload, then the payload
    4           CRC-32 of all bytes before, lowest byte first

    varint:  7 bits per byte, the lowest first; the high bit says that another byte follows (LEB128, below 2^63)
    table:   its entries as varints; a 0 is followed by how many further zeros it stands for

Every number has one spelling, the shortest, and nothing may follow the checksum, so equal tensors coded in the same way
are equal bytes.

A CRC-32 sees every change of up to 32 neighbouring bits and misses other damage once in 2^32 times. It is no
signature: a message that was made to do harm can carry a right one. So every number is held against its limits
before memory is taken for it, and each coder checks that it ends where it should.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..errors import WireError

MAGIC = b"SKNW"
VERSION = 1
CODERS = {"huffman": 1, "rans": 2, "packed": 3}
_NAMES = {number: name for name, number in CODERS.items()}
TYPES = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
MOST_LEVELS = 2**16
MOST_DIMENSIONS = 64
MOST_ELEMENTS = 2**62  # the product of all dimensions that are not 0: beyond, torch cannot describe the shape
_CHECKSUM_BYTES = 4
_MOST_VARINT_BYTES = 9  # 9 * 7 = 63 bits: what a signed 64-bit number can hold


def write_varints(*numbers: int) -> bytes:
    """The numbers as varints, one after the other.

    >>> write_varints(5, 300).hex()
    '05ac02'
    """
    out = bytearray()
    for number in numbers:
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def write_table(entries: Sequence[int]) -> bytes:
    """The entries of a table, zeros as runs.

    >>> write_table([7, 0, 0, 0, 1]).hex()
    '07000201'
    """
    out: list[int] = []
    zeros = 0
    for entry in [*entries, None]:
        if entry == 0:
            zeros += 1
            continue
        if zeros:
            out += [0, zeros - 1]
            zeros = 0
        if entry is not None:
            out.append(entry)
    return write_varints(*out)


class Reader:
    """Takes bytes from the front, and never more than there are.

    >>> reader = Reader(bytes.fromhex("05ac02"))
    >>> reader.number("one"), reader.number("another"), reader.left
    (5, 300, 0)
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._offset

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise WireError(
                f"The message is damaged: {what} should have {count:,} bytes, and {self.left:,} are left. "
                "Ask the sender for it again."
            )
        self._offset += count
        return self._data[self._offset - count : self._offset]

    def rest(self) -> bytes:
        return self.take(self.left, "the rest")

    def number(self, what: str, *, most: int = 2**63 - 1) -> int:
        value = 0
        for place in range(_MOST_VARINT_BYTES):
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                break
        else:
            raise WireError(f"The message is damaged: {what} is no number below 2^63. Ask the sender for it again.")
        if place and not byte:
            raise WireError(f"The message is damaged: {what} is not spelled in the shortest way.")
        if value > most:
            raise WireError(f"The message is damaged or of another kind: {what} is {value:,}, and at most {most:,}.")
        return value

    def table(self, length: int, what: str, *, most: int) -> list[int]:
        entries: list[int] = []
        after_zeros = False
        while len(entries) < length:
            entry = self.number(what, most=most)
            if entry:
                entries.append(entry)
            elif after_zeros:
                raise WireError(f"The message is damaged: {what} has two runs of zeros side by side.")
            else:
                entries += [0] * (1 + self.number(what, most=length - len(entries) - 1))
            after_zeros = not entry
        return entries

    def end(self, what: str) -> None:
        if self.left:
            raise WireError(f"The message is damaged: {self.left:,} bytes follow the end of {what}.")


def fingerprint(weights: Sequence[int]) -> bytes:
    """A checksum of the weights that both sides know: the receiver compares it with that of its own."""
    return zlib.crc32(repr(list(weights)).encode()).to_bytes(4, "little")


def require_fingerprint(reader: Reader, weights: Sequence[int]) -> None:
    if reader.take(4, "the mark of the probabilities") != fingerprint(weights):
        raise WireError("The message was coded with other probabilities than those given. Use the sender's.")


@dataclass(frozen=True)
class Message:
    """One coded tensor: the header's content, the model and the payload."""

    coder: str
    levels: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    shared: bool  # the probabilities are known to both sides
    model: bytes
    payload: bytes

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def to_bytes(self) -> bytes:
        fixed = bytes((VERSION, CODERS[self.coder], TYPES.index(self.dtype), int(self.shared)))
        numbers = write_varints(self.levels, len(self.shape), *self.shape, self.count, len(self.model))
        body = b"".join((MAGIC, fixed, numbers, self.model, write_varints(len(self.payload)), self.payload))
        return body + _checksum(body)


def _checksum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECKSUM_BYTES, "little")


def read_message(data: bytes, *, most: int) -> Message:
    """The message in these bytes, if it is whole and within the limits."""
    if not data.startswith(MAGIC):
        raise WireError("These bytes are no message of coded symbols: they do not begin with 'SKNW'.")
    if len(data) > len(MAGIC) and data[len(MAGIC)] != VERSION:
        raise WireError(
            f"The message has version {data[len(MAGIC)]} of the form, and this softknee reads version {VERSION}. "
            "If it is not damaged, use the same softknee on both sides."
        )
    body = data[:-_CHECKSUM_BYTES]
    if _checksum(body) != data[-_CHECKSUM_BYTES:]:
        raise WireError("The message is cut off or was altered: its checksum is wrong. Ask for it again.")
    reader = Reader(body)
    reader.take(len(MAGIC) + 1, "the beginning")
    coder, kind, shared = reader.take(3, "the kinds")
    if coder not in _NAMES or kind >= len(TYPES) or shared > 1:
        raise WireError(f"The message names a coder, type or model that there is not: {coder}, {kind}, {shared}.")
    levels = reader.number("the number of levels", most=MOST_LEVELS)
    if not levels:
        raise WireError("The message is damaged: it has symbols of 0 levels.")
    dimensions = reader.number("the number of dimensions", most=MOST_DIMENSIONS)
    shape = tuple(reader.number("a dimension") for _ in range(dimensions))
    count = reader.number("the count of the symbols")
    if count != math.prod(shape) or math.prod(size for size in shape if size) > MOST_ELEMENTS:
        raise WireError(f"The message is damaged: the shape {shape} does not have {count:,} symbols.")
    if count > most:
        raise WireError(
            f"The message says that it has {count:,} symbols, and at most {most:,} are accepted. "
            "If that many are expected, allow them with decode(..., most=...)."
        )
    model = reader.take(reader.number("the length of the model"), "the model")
    payload = reader.take(reader.number("the length of the payload"), "the payload")
    reader.end("the payload")
    return Message(_NAMES[coder], levels, shape, TYPES[kind], bool(shared), model, payload)
