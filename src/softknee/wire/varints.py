r"""Whole numbers as few bytes, and tables of them: the alphabet the header of a message is written in.

    varint:  7 bits per byte, the lowest first; the high bit says that another byte follows (LEB128, below 2^63)
    table:   its entries as varints; a 0 is followed by how many further zeros it stands for

Every number has one spelling: the shortest.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import WireError

_MOST_BYTES = 9  # 9 * 7 = 63 bits: what a signed 64-bit number can hold


def write(*numbers: int) -> bytes:
    """The numbers as varints, one after the other.

    >>> write(5, 300).hex()
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
    return write(*out)


class Reader:
    """Takes bytes from the front, and never more than there are.

    >>> reader = Reader(bytes.fromhex("05ac02"))
    >>> reader.number("one"), reader.number("another"), reader.left
    (5, 300, 0)
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int, what: str) -> bytes:
        if count > self.left:
            raise WireError(
                f"The message is damaged: {what} should have {count:,} bytes, and {self.left:,} are left. "
                "Ask the sender for it again."
            )
        self._at += count
        return self._data[self._at - count : self._at]

    def rest(self) -> bytes:
        return self.take(self.left, "the rest")

    def number(self, what: str, *, most: int = 2**63 - 1) -> int:
        value = 0
        for place in range(_MOST_BYTES):
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
