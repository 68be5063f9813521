r"""Which parts a range coder is given: the symbols themselves, or the gaps between the rare ones.

Where one symbol m has at least 80 % of the places, coding every place is slow and, near 0 bits per symbol, coarse: a
frequency is a whole number of 2^-S. There the places of the k others are coded by the gaps between them. With a chance
of q = k/count for "not m" at each place, a gap g has the geometric distribution (1 - q)^g q, which needs no table:

    g = a 2^b + r:   a with its exact probabilities, r as b plain bits,   2^b the largest power of two <= 1/(8 q)

and then which of the others it is. Taking r for uniform costs (q 2^b)^2 / 24 nats per gap at most, below 0.001 bits.
A gap of 63 blocks or more sends "63 blocks, and on" first; as the geometric distribution forgets, that costs nothing.

model:    varint 1 (every place), scale S, lanes, then the table of weights
          varint 2 (gaps), scale S, lanes, m, k, count of a's, then the table of weights of the others

The weights are the counts where those sum to at most 2^S, else frequencies of that sum; both sides make the
frequencies from them. A table that both sides know is replaced by the CRC-32 of its weights (4 bytes).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import WireError
from . import frequencies, rans, varints
from .symbols import numpy_for

EVERY_PLACE, GAPS = 1, 2
_COMMON = 0.8  # share of the commonest symbol from which on gaps are coded
_GAP_SCALE = 14
_BLOCKS = 63  # so many blocks without a rare symbol have a sign of their own
_MOST_DOUBLINGS = 12


@dataclass(frozen=True)
class GapModel:
    """How gaps are coded: the chance of a rare symbol as a fraction, and the size of a block as a power of two."""

    chance: tuple[int, int]
    scale: int

    @property
    def doublings(self) -> int:
        return max(0, min(_MOST_DOUBLINGS, (self.chance[1] // (8 * self.chance[0])).bit_length() - 1))

    def blocks(self) -> list[int]:
        return frequencies.geometric(self.chance, self.doublings, _BLOCKS + 1, self.scale)

    def remainders(self) -> list[int]:
        return [1 << self.scale - self.doublings] * (1 << self.doublings)


def fingerprint(weights: Sequence[int]) -> bytes:
    """By which a receiver sees that it has the sender's probabilities."""
    return zlib.crc32(repr(list(weights)).encode()).to_bytes(4, "little")


def require_fingerprint(reader: varints.Reader, weights: Sequence[int]) -> None:
    if reader.take(4, "the mark of the probabilities") != fingerprint(weights):
        raise WireError("The message was coded with other probabilities than those given. Use the sender's.")


def _common_of(known: Sequence[int]) -> int | None:
    """The symbol that is common enough for gaps, if one is."""
    common = max(range(len(known)), key=known.__getitem__)
    return common if known[common] >= _COMMON * sum(known) else None


def _without(common: int | None, numbers: Sequence[int]) -> list[int]:
    return [0 if level == common else number for level, number in enumerate(numbers)]


def _sent(known: Sequence[int], scale: int) -> Sequence[int]:
    """The weights that are sent: short ones, from which the same frequencies follow."""
    return known if sum(known) <= 1 << scale else frequencies.quantised(known, scale)


def estimate(counts: Sequence[int], weights: Sequence[int] | None) -> float:
    """About the bits of model and payload, from the counts alone."""
    known = counts if weights is None else weights
    bits = frequencies.bits_of(counts, known)
    table = (
        b""
        if weights is not None
        else varints.write_table(_sent(_without(_common_of(known), known), frequencies.scale_for(known)))
    )
    return bits + rans.LANE_BITS * rans.lanes_for(bits, sum(counts)) + 8 * len(table)


def encode(symbols: Any, counts: Sequence[int], weights: Sequence[int] | None) -> tuple[bytes, bytes]:
    """Model and payload of symbols of which at least two kinds occur (or may, by the known weights)."""
    known = counts if weights is None else weights
    common = _common_of(known)
    if common is not None:
        return _encode_gaps(symbols, counts, weights, common)
    scale = frequencies.scale_for(known)
    table = frequencies.quantised(known, scale)
    lanes = rans.lanes_for(frequencies.bits_of(counts, table), len(symbols))
    sent = varints.write_table(_sent(known, scale)) if weights is None else fingerprint(weights)
    payload = rans.encode([rans.Part(table, symbols)], scale=scale, lanes=lanes)
    return varints.write(EVERY_PLACE, scale, lanes) + sent, payload


def _encode_gaps(
    symbols: Any, counts: Sequence[int], weights: Sequence[int] | None, common: int
) -> tuple[bytes, bytes]:
    np = numpy_for("Range coding")
    known = counts if weights is None else weights
    others = _without(common, known)
    scale = max(_GAP_SCALE, frequencies.scale_for(others))
    table = frequencies.quantised(others, scale)
    model = GapModel((sum(others), sum(known)), scale)
    places = np.flatnonzero(symbols != common)
    gaps = np.diff(places, prepend=-1) - 1
    whole = gaps >> model.doublings
    signs = whole // _BLOCKS + 1  # of each gap
    blocks = np.full(int(signs.sum()), _BLOCKS)
    blocks[np.cumsum(signs) - 1] = whole % _BLOCKS
    parts = [rans.Part(model.blocks(), blocks)]
    bits = frequencies.bits_of(np.bincount(blocks, minlength=_BLOCKS + 1).tolist(), parts[0].frequencies)
    if model.doublings:
        parts.append(rans.Part(model.remainders(), gaps & (1 << model.doublings) - 1))
        bits += len(gaps) * model.doublings
    if max(table) < 1 << scale:
        parts.append(rans.Part(table, symbols[places]))
        bits += frequencies.bits_of(_without(common, counts), table)
    lanes = rans.lanes_for(bits, len(blocks))
    sent = varints.write_table(_sent(others, scale)) if weights is None else fingerprint(weights)
    head = varints.write(GAPS, scale, lanes, common, len(gaps), len(blocks))
    return head + sent, rans.encode(parts, scale=scale, lanes=lanes)


def decode(model: bytes, payload: bytes, count: int, levels: int, weights: Sequence[int] | None) -> Any:
    """The symbols as a NumPy array of uint16."""
    reader = varints.Reader(model)
    form = reader.number("the form of the model", most=GAPS)
    scale = reader.number("the scale of the frequencies", most=frequencies.MOST_SCALE)
    lanes = reader.number("the number of lanes", most=len(payload) // 4)
    if form not in (EVERY_PLACE, GAPS) or scale < frequencies.LEAST_SCALE or not lanes:
        raise WireError("The message is damaged: the model of its range coder is none.")
    if form == GAPS:
        return _decode_gaps(reader, payload, count, levels, weights, scale, lanes)
    table = _read_table(reader, weights, levels, scale)
    if max(table) == 1 << scale:
        raise WireError("The message is damaged: a table of frequencies has one symbol only.")
    return rans.decode(payload, [rans.Part(table, count)], scale=scale, lanes=lanes)[0]


def _read_table(
    reader: varints.Reader, weights: Sequence[int] | None, levels: int, scale: int, common: int | None = None
) -> list[int]:
    if weights is None:
        known = reader.table(levels, "the table of weights", most=1 << scale)
        if not 0 < sum(known) <= 1 << scale or (common is not None and known[common]):
            raise WireError(
                f"The message is damaged: its weights do not sum to at most 2^{scale}, or not as they should."
            )
    else:
        require_fingerprint(reader, weights)
        known = _without(common, weights)
        if sum(weight > 0 for weight in known) > 1 << scale:
            raise WireError(f"The message is damaged: frequencies of sum 2^{scale} are too coarse for its levels.")
    reader.end("the model")
    return frequencies.quantised(known, scale)


def _decode_gaps(
    reader: varints.Reader,
    payload: bytes,
    count: int,
    levels: int,
    weights: Sequence[int] | None,
    scale: int,
    lanes: int,
) -> Any:
    np = numpy_for("Range coding")
    common = reader.number("the commonest symbol", most=levels - 1)
    rare = reader.number("the number of rare symbols", most=count)
    if weights is None:
        chance = (rare, count)
    else:
        chance = (sum(weights) - weights[common], sum(weights))
    if not 0 < chance[0] < chance[1]:
        raise WireError("The message is damaged: nothing, or everything, is rare in it.")
    model = GapModel(chance, scale)
    # Each sign that is not the last of its gap stands for 63 blocks of places.
    signs = reader.number("the number of gaps", most=rare + count // (_BLOCKS << model.doublings))
    table = _read_table(reader, weights, levels, scale, common)
    parts = [rans.Part(model.blocks(), signs)]
    if model.doublings:
        parts.append(rans.Part(model.remainders(), rare))
    if max(table) < 1 << scale:
        parts.append(rans.Part(table, rare))
    found = rans.decode(payload, parts, scale=scale, lanes=lanes)
    blocks = found[0].astype(np.int64)
    last = np.flatnonzero(blocks != _BLOCKS)
    if len(last) != rare or (len(blocks) and last[-1:].tolist() != [len(blocks) - 1]):
        raise WireError("The message is damaged: its gaps are not as many as its rare symbols.")
    gaps = ((np.diff(last, prepend=-1) - 1) * _BLOCKS + blocks[last]) << model.doublings
    if model.doublings:
        gaps |= found[1].astype(np.int64)
    # The sum of floats first: it cannot overflow, and whole numbers could.
    if len(gaps) and (gaps.sum(dtype=np.float64) > 2.0 * count or gaps.sum() + len(gaps) > count):
        raise WireError("The message is damaged: a rare symbol lies behind its end.")
    symbols = np.full(count, common, dtype=np.uint16)
    symbols[np.cumsum(gaps + 1) - 1] = found[-1] if max(table) < 1 << scale else table.index(1 << scale)
    return symbols
