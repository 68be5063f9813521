r"""Canonical Huffman codes of at most 24 bits, written as one stream and read by many readers in lock-step.

    shortest lengths:   minimise sum_s w_s l_s  subject to  sum_s 2^-l_s = 1 (Kraft),  l_s <= 24   (package-merge)
    canonical code:     symbols in the order of (length, symbol) take the next free code of their length
    redundancy:         mean length - H < 1,  and <= p_max + 0.086  (Gallager 1978)

The lengths alone give the code, so they are all that is sent. All code words stand one after the other in one stream of
bits, the first in the highest bit of a byte. So that several readers can work at once, the length in bits of each of
the L equal sections (the last may be shorter) is sent as well, as the excess over the shortest one.

model:    varint 1, lanes, then the table of code lengths, or 4 bytes of CRC-32 of the weights if both sides know them
payload:  varint (shortest section), varint (bits w of an excess), L - 1 excesses of w bits (without the last section),
          then the stream; both filled up with 0 to whole bytes

References: D. A. Huffman, "A method for the construction of minimum-redundancy codes" (1952); L. L. Larmore and
D. S. Hirschberg, "A fast algorithm for optimal length-limited Huffman codes" (1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..errors import WireError
from .message import Reader, fingerprint, require_fingerprint, write_table, write_varints

LONGEST = 24  # a reader sees 32 bits from the byte on that its place is in: at least 25 of them are its own
_TABLE_BITS = 14  # codes up to this length are found in one table; the few longer ones by their order
_SHARE_OF_LANES = 0.005  # of the length in bits
_LANE_BITS = 10  # what the excess of a section takes, about
_MOST_LANES = 4096
MOST_STEPS = 1 << 16  # symbols that a section may have: bounds the time of a decoder, whatever the message says


def lengths(weights: Sequence[int], *, longest: int = LONGEST) -> list[int]:
    """Code lengths of least mean, none above `longest`; 0 where the weight is 0. By package-merge.

    >>> lengths([8, 4, 2, 1, 1])
    [1, 2, 3, 4, 4]
    >>> lengths([8, 4, 2, 1, 1], longest=3)
    [1, 3, 3, 3, 3]
    """
    weight_array = np.asarray(weights, dtype=np.int64)
    order = np.argsort(weight_array, kind="stable")[np.count_nonzero(weight_array == 0) :]
    leaves = weight_array[order]
    code_lengths = np.zeros(len(weight_array), dtype=np.int64)
    if len(leaves) < 2:
        code_lengths[order] = 1
        return code_lengths.tolist()
    # Level by level: the pairs of the level below as packages, merged with the leaves in the order of weight.
    packages, leaf_flags = leaves[:0], []
    for _ in range(longest):
        merged = np.concatenate([leaves, packages])
        ascending = np.argsort(merged, kind="stable")
        leaf_flags.append(ascending < len(leaves))
        pairs = merged[ascending][: len(ascending) // 2 * 2]
        packages = pairs[::2] + pairs[1::2]
    # The 2n - 2 lightest of the last level; each package opens two of the level below; each leaf adds one bit.
    selected = 2 * len(leaves) - 2
    for is_leaf in reversed(leaf_flags):
        leaf_count = int(np.count_nonzero(is_leaf[:selected]))
        code_lengths[order[:leaf_count]] += 1
        selected = 2 * (selected - leaf_count)
    return code_lengths.tolist()


def codes(code_lengths: Sequence[int]) -> list[int]:
    """The canonical code of each symbol, from the lengths.

    >>> [f"{code:0{length}b}" for code, length in zip(codes([1, 3, 3, 2]), [1, 3, 3, 2])]
    ['0', '110', '111', '10']
    """
    result, code, previous = [0] * len(code_lengths), 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(code_lengths) if length):
        code <<= length - previous
        result[symbol], previous = code, length
        code += 1
    return result


def bits_of(counts: Sequence[int], code_lengths: Sequence[int]) -> int:
    return sum(count * length for count, length in zip(counts, code_lengths, strict=True))


def estimate(counts: Sequence[int], weights: Sequence[int] | None) -> float:
    """An estimate of the bits of model and payload, from the counts alone."""
    code_lengths = lengths(counts if weights is None else weights)
    bits = bits_of(counts, code_lengths)
    table = b"" if weights is not None else write_table(code_lengths)
    return bits + _LANE_BITS * lanes_for(bits, sum(counts)) + 8 * len(table)


def lanes_for(bits: int, count: int) -> int:
    return max(1, -(-count // MOST_STEPS), min(_MOST_LANES, count, int(bits * _SHARE_OF_LANES / _LANE_BITS)))


def write_bits(values: Any, widths: Any) -> bytes:
    """Numbers of at most 31 bits, one after the other, the highest bit first."""
    end = np.cumsum(widths)
    if not len(end) or not end[-1]:
        return b""
    begin = end - widths
    # Each value stands in the 64 bits that begin with the 32-bit word it starts in. A word in which no value starts
    # would break the sums below; none is longer than 31 bits, so there is none.
    placed = values.astype(np.uint64) << (64 - (begin & 31) - widths).astype(np.uint64)
    word = begin >> 5
    first = np.flatnonzero(np.concatenate([[True], word[1:] != word[:-1]]))
    sums = np.add.reduceat(placed, first)
    out = np.zeros(len(sums) + 1, dtype=np.uint64)
    out[:-1] = sums >> np.uint64(32)
    out[1:] += sums & np.uint64(0xFFFFFFFF)
    return out.astype(">u4").tobytes()[: -(-int(end[-1]) // 8)]


def encode(symbols: Any, counts: Sequence[int], weights: Sequence[int] | None) -> tuple[bytes, bytes]:
    """Model and payload of symbols of which at least two kinds occur (or may, by the known weights)."""
    code_lengths = lengths(counts if weights is None else weights)
    width = np.asarray(code_lengths, dtype=np.int64).take(symbols)
    stream = write_bits(np.asarray(codes(code_lengths), dtype=np.int64).take(symbols), width)
    lanes = lanes_for(bits_of(counts, code_lengths), len(symbols))
    steps = -(-len(symbols) // lanes)
    lanes = -(-len(symbols) // steps)
    sections = np.add.reduceat(width, np.arange(0, len(symbols), steps))[:-1]
    least = int(sections.min()) if lanes > 1 else 0
    excess = sections - least
    size = int(excess.max()).bit_length() if lanes > 1 else 0
    index = write_varints(least, size) + write_bits(excess, np.full(len(excess), size))
    table = write_table(code_lengths) if weights is None else fingerprint(weights)
    return write_varints(1, lanes) + table, index + stream


def decode(model: bytes, payload: bytes, count: int, levels: int, weights: Sequence[int] | None) -> Any:
    """The symbols as a NumPy array of uint16."""
    reader = Reader(model)
    form = reader.number("the form of the model", most=1)
    lanes = reader.number("the number of sections", most=max(_MOST_LANES, -(-count // MOST_STEPS)))
    if weights is None:
        code_lengths = reader.table(levels, "the table of code lengths", most=LONGEST)
    else:
        require_fingerprint(reader, weights)
        code_lengths = lengths(weights)
    reader.end("the model")
    if not form or not lanes or sum(1 << LONGEST - length for length in code_lengths if length) != 1 << LONGEST:
        raise WireError("The message is damaged: the lengths of its code words are not those of a code.")
    # Every symbol has at least one bit, so this bounds what is taken for them by the length of the message.
    steps = -(-count // lanes)
    if count > 8 * len(payload) or steps > MOST_STEPS or -(-count // steps) != lanes:
        raise WireError(f"The message is damaged: {len(payload):,} bytes in {lanes:,} sections for {count:,} symbols.")
    return _read_sections(Reader(payload), count, code_lengths, lanes, steps)


def _read_sections(reader: Reader, count: int, code_lengths: Sequence[int], lanes: int, steps: int) -> Any:
    least = reader.number("the shortest section", most=steps * LONGEST)
    size = reader.number("the bits of an excess", most=31)
    packed = np.frombuffer(reader.take(-(-(lanes - 1) * size // 8), "the lengths of sections"), dtype=np.uint8)
    bits = np.unpackbits(packed, count=(lanes - 1) * size).reshape(lanes - 1, size)
    section_bits = least + bits.astype(np.int64) @ (1 << np.arange(size - 1, -1, -1, dtype=np.int64))
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(section_bits)])
    stream = np.frombuffer(reader.rest() + bytes(4), dtype=np.uint8).astype(np.uint32)
    # From each byte on, the 32 bits that begin there.
    window = stream[:-3] << np.uint32(24) | stream[1:-2] << np.uint32(16) | stream[2:-1] << np.uint32(8) | stream[3:]
    position = begin.copy()
    symbols = np.zeros((steps, lanes), dtype=np.uint16)
    last = count - (lanes - 1) * steps  # symbols of the last section, which may be shorter
    lookup = _Lookup(code_lengths)
    for rows, positions in ((symbols[:last], position), (symbols[last:], position[:-1])):
        lookup.read(window, positions, rows[:, : len(positions)])
    end = int(position[-1])
    padding = int(stream[-5]) & (1 << -end % 8) - 1 if len(stream) > 4 else 0
    if (position[:-1] != begin[1:]).any() or -(-end // 8) != len(stream) - 4 or padding:
        raise WireError("The message is damaged: a section of it does not end where the next begins.")
    # torch turns a table round four times as quickly as NumPy.
    return torch.from_numpy(symbols).T.reshape(-1)[:count].numpy()


class _Lookup:
    """Finds the symbol and the length of the code word that 32 bits begin with."""

    def __init__(self, code_lengths: Sequence[int]) -> None:
        order = sorted((length, symbol) for symbol, length in enumerate(code_lengths) if length)
        size = np.asarray([length for length, _ in order], dtype=np.int64)
        self._symbol = np.asarray([symbol for _, symbol in order], dtype=np.int64)
        self._size = size
        # Canonical codes grow with their place in the order: each owns the 24-bit numbers from its start to the next.
        self._start = np.cumsum(1 << LONGEST - size) - (1 << LONGEST - size)
        self.bits = min(_TABLE_BITS, int(size[-1]))
        tabulated = size <= self.bits
        self.has_long_codes = not tabulated.all()
        # One entry per number of `bits` bits: symbol and length in one; length 0 says that the code word is longer.
        entries = (self._symbol << 8 | size)[tabulated].repeat(1 << self.bits - size[tabulated])
        self._table = np.zeros(1 << self.bits, dtype=np.int64)
        self._table[: len(entries)] = entries

    def read(self, window: Any, position: Any, rows: Any) -> None:
        """Take one code word per place and row; the places move on."""
        byte, shift, entry = np.empty_like(position), np.empty_like(position), np.empty_like(position)
        bits = np.empty(position.shape, dtype=np.uint32)
        for row in rows:
            np.right_shift(position, 3, out=byte)
            window.take(byte, out=bits, mode="clip")  # a place behind the end is found out by the caller
            np.bitwise_and(position, 7, out=shift)
            np.left_shift(bits, shift.astype(np.uint32), out=bits)
            np.right_shift(bits, np.uint32(32 - self.bits), out=byte, casting="unsafe")
            self._table.take(byte, out=entry, mode="clip")
            if self.has_long_codes:
                self._find_long(bits, entry)
            np.right_shift(entry, 8, out=row, casting="unsafe")
            np.bitwise_and(entry, 0xFF, out=entry)
            np.add(position, entry, out=position)

    def _find_long(self, bits: Any, entry: Any) -> None:
        missing = (entry == 0).nonzero()[0]
        if len(missing):
            index = np.searchsorted(self._start, bits[missing] >> np.uint32(32 - LONGEST), side="right") - 1
            entry[missing] = self._symbol[index] << 8 | self._size[index]
