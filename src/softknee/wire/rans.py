r"""Range coding by asymmetric numeral systems (rANS), with many states in lock-step.

It needs NumPy alone, and decodes large messages in half the time that a compiled coder with one state takes (see
docs/design.md).

Coder
-----
A state is a number x in [2^16, 2^32). With frequencies f_s of sum 2^S and c_s = f_0 + ... + f_{s-1}:

    encode s:   x -> floor(x / f_s) 2^S + c_s + (x mod f_s)       first, if x >= f_s 2^(32-S): emit x mod 2^16, x >>= 16
    decode:     t = x mod 2^S,  s is the symbol with c_s <= t < c_s + f_s
                x -> f_s floor(x / 2^S) + t - c_s                 then, if x < 2^16: x = 2^16 x + next word

A step multiplies x by 2^S / f_s up to rounding, which is log2(2^S / f_s) bits. The encoder runs from the last symbol to
the first, and the decoder from the first to the last. Symbol j belongs to lane j mod L. All L lanes take a step at
once, and their words form one list in the order in which the decoder reads them. A lane costs about 24 bits, so there
are as many lanes as make up a small share of the length.

payload:  L states of 32 bits, then words of 16 bits, all with the lowest byte first

Frequencies
-----------
Weights w_s become whole frequencies whose sum is a power of two:

    f_s >= 1 where w_s > 0,   sum_s f_s = 2^S,   minimal cost -sum_s w_s log2(f_s / 2^S)

Each starts from its share rounded down, at least 1. Missing units go to the largest gain w/(f + 1/2), excess units are
removed at the smallest loss w/(f - 1/2), one at a time. All comparisons are between correctly rounded quotients of
whole numbers, so the same weights give the same frequencies on every machine.

Gaps
----
Where one symbol m makes up at least 80 %, coding every symbol is slow and, near 0 bits per symbol, imprecise, because a
frequency is a multiple of 2^-S. There the positions of the k other symbols are coded by the gaps between them. With the
probability q = k/count of "not m", a gap g has the geometric distribution (1 - q)^g q, which needs no table:

    g = a 2^b + r:   a with its exact probabilities, r as b plain bits,   2^b the largest power of two <= 1/(8 q)

and then the other symbol itself. The uniform distribution of r costs at most (q 2^b)^2 / 24 nats per gap, below 0.001
bits. A gap of 63 blocks or more is preceded by an escape symbol for 63 blocks; as the geometric distribution has no
memory, this costs nothing.

model:    varint 1 (every symbol), scale S, lanes, then the table of weights
          varint 2 (gaps), scale S, lanes, m, k, count of a's, then the table of weights of the other symbols

The weights are the counts where those sum to at most 2^S, else frequencies of that sum; both sides compute the
frequencies from them. A table that both sides know is replaced by the CRC-32 of its weights (4 bytes).

References: J. Duda, "Asymmetric numeral systems: entropy coding combining speed of Huffman coding with compression rate
of arithmetic coding" (2013); F. Giesen, "Interleaved entropy coders" (2014).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import WireError
from .message import Reader, fingerprint, require_fingerprint, write_table, write_varints

LEAST_SCALE, MOST_SCALE = 12, 16  # log2 of the sum
_WASTE_FOR_COARSER = 1.0005  # a smaller sum is taken if it costs no more than this: its tables stay in the cache
LOWEST = 1 << 16  # the least state, and the value every lane starts from
LANE_BITS = 24  # what a lane costs: 16 as above, and its last state is on average 8 short of the 32 it is sent with
_SHARE_OF_LANES = 0.005  # of the length in bits
_MOST_LANES = 4096  # beyond, the working set leaves the first cache and nothing is gained
_BLOCK = 1 << 15  # symbols whose frequencies are looked up together: they stay in the second cache
MOST_STEPS = 1 << 16  # positions that a lane may have: bounds the time of a decoder, whatever the message says
EVERY_SYMBOL, GAPS = 1, 2
_DOMINANT_SHARE = 0.8  # share of the commonest symbol from which on gaps are coded
_GAP_SCALE = 14
_BLOCKS = 63  # so many blocks without a rare symbol have a sign of their own
_MOST_DOUBLINGS = 12


# -- frequencies ----------------------------------------------------------------------------------------


def quantised(weights: Sequence[int], scale: int) -> list[int]:
    """Frequencies of sum 2^scale, in proportion to the weights; at least 1 where the weight is not 0.

    >>> quantised([3, 0, 1], 4)
    [12, 0, 4]
    >>> quantised([10**9, 1, 1], 4)
    [14, 1, 1]
    """
    total, scale_sum = sum(weights), 1 << scale
    frequencies = [max(1, weight * scale_sum // total) if weight else 0 for weight in weights]
    missing = scale_sum - sum(frequencies)
    sign = 1 if missing > 0 else -1
    # A heap of (what the next unit costs, level): adding takes the greatest gain first, removing the least loss.
    movable = [level for level, f in enumerate(frequencies) if f and (sign > 0 or f > 1)]
    heap = [(_price(weights[level], frequencies[level], sign), level) for level in movable]
    heapq.heapify(heap)
    for _ in range(abs(missing)):
        _, level = heapq.heappop(heap)
        frequencies[level] += sign
        if sign > 0 or frequencies[level] > 1:
            heapq.heappush(heap, (_price(weights[level], frequencies[level], sign), level))
    return frequencies


def _price(weight: int, frequency: int, sign: int) -> float:
    return -sign * (2 * weight) / (2 * frequency + sign)


def code_bits(counts: Sequence[int], frequencies: Sequence[int]) -> float:
    """The cross-entropy in bits: the length of symbols with these counts under a code for these frequencies."""
    total = sum(frequencies)
    return -sum(n * math.log2(f / total) for n, f in zip(counts, frequencies, strict=True) if n)


def scale_for(weights: Sequence[int]) -> int:
    """The smallest scale with which the code is at most 0.05 % longer than the entropy of the weights."""
    present = [weight for weight in weights if weight]
    own = code_bits(present, present)
    for scale in range(LEAST_SCALE, MOST_SCALE):
        if len(present) <= 1 << scale and code_bits(present, quantised(present, scale)) <= own * _WASTE_FOR_COARSER:
            return scale
    return MOST_SCALE


def geometric(stop: tuple[int, int], doublings: int, length: int, scale: int) -> list[int]:
    """Frequencies of the number of blocks of 2^doublings trials without success, for a chance of n/d at each trial.

        P(a) = r^a (1 - r)  for a < length - 1,  P(length - 1) = r^(length - 1),  r = (1 - n/d)^(2^doublings)

    The last is the escape symbol for length - 1 blocks without success. Fixed-point arithmetic of 40 bits throughout.
    """
    bits = 40
    stay = ((stop[1] - stop[0]) << bits) // stop[1]
    for _ in range(doublings):
        stay = stay * stay >> bits
    left, weights = 1 << bits, []
    for _ in range(length - 1):
        weights.append(max(1, left - (left * stay >> bits)))
        left = left * stay >> bits
    return quantised([*weights, max(1, left)], scale)


# -- the coder ------------------------------------------------------------------------------------------


def lanes_for(bits: float, count: int) -> int:
    """As many lanes as cost 0.5 % of the length, but enough that no lane has more than MOST_STEPS steps."""
    return max(1, -(-count // MOST_STEPS), min(_MOST_LANES, count, int(bits * _SHARE_OF_LANES / LANE_BITS)))


def encode_parts(parts: Sequence[tuple[Sequence[int], Any]], *, scale: int, lanes: int) -> bytes:
    """The payload of these parts, one after the other: frequencies, and the symbols that are coded with them."""
    state = np.full(lanes, LOWEST, dtype=np.uint32)
    pieces: list[Any] = []  # of words, the last of the message first
    for frequencies, symbols in reversed(parts):
        frequency = np.asarray(frequencies, dtype=np.uint32)
        start = np.cumsum(frequency, dtype=np.uint32) - frequency
        for rows in reversed(_blocks(symbols, lanes)):
            pieces.append(_encode_rows(state[: rows.shape[1]], frequency.take(rows), start.take(rows), scale))
    words = np.concatenate([np.empty(0, np.uint16), *reversed(pieces)])
    return state.astype("<u4").tobytes() + words.astype("<u2").tobytes()


def _blocks(symbols: Any, lanes: int) -> list[Any]:
    """Views of the symbols in their order, one column per lane; the last row, which may be shorter, by itself."""
    full_count = len(symbols) // lanes * lanes
    body, block = symbols[:full_count].reshape(-1, lanes), max(1, _BLOCK // lanes)
    return [*(body[first : first + block] for first in range(0, len(body), block)), symbols[None, full_count:]]


def _encode_rows(state: Any, frequency: Any, start: Any, scale: int) -> Any:
    """Encode the rows from the last to the first, updating the states in place; the words in the decoder's order."""
    # f < 2^S (a lone symbol is not coded at all), so nothing here leaves 32 bits.
    least = frequency << np.uint32(32 - scale)  # the least state that gives a word away before it takes the symbol in
    factor = np.uint32(1 << scale) - frequency  # floor(x/f) 2^S + x mod f = x + floor(x/f) (2^S - f)
    before = np.empty_like(frequency)
    full = np.empty(frequency.shape, dtype=bool)
    work = np.empty_like(state)
    for row in range(len(frequency) - 1, -1, -1):
        before[row] = state
        np.greater_equal(state, least[row], out=full[row])
        np.multiply(full[row], np.uint32(16), out=work, dtype=np.uint32)
        np.right_shift(state, work, out=state)
        np.floor_divide(state, frequency[row], out=work)
        np.multiply(work, factor[row], out=work)
        np.add(state, work, out=state)
        np.add(state, start[row], out=state)
    return before[full].astype(np.uint16)


def decode_parts(payload: bytes, parts: Sequence[tuple[Sequence[int], int]], *, scale: int, lanes: int) -> list[Any]:
    """The symbols of each part (frequencies, and how many there are), as arrays of uint16."""
    if len(payload) < 4 * lanes or len(payload) % 2:
        raise WireError(f"The message is damaged: {len(payload):,} bytes are not {lanes:,} states and whole words.")
    if any(count > lanes * MOST_STEPS for _, count in parts):
        raise WireError(f"The message is damaged: {lanes:,} lanes are too few for its symbols.")
    # 64 bits, because NumPy looks up in a table by such numbers; a state stays below 2^32.
    state = np.frombuffer(payload, dtype="<u4", count=lanes).astype(np.int64)
    words = np.frombuffer(payload, dtype="<u2", offset=4 * lanes).astype(np.int64)
    if (state < LOWEST).any():
        raise WireError("The message is damaged: a state of the coder is below its least value.")
    decoded, used = [], 0
    for frequencies, count in parts:
        frequency = np.asarray(frequencies, dtype=np.int64)
        # For each t < 2^S the f_s, t - c_s and s that it belongs to.
        factor = np.repeat(frequency, frequency)
        offset = np.arange(1 << scale) - np.repeat(np.cumsum(frequency) - frequency, frequency)
        symbol_of_slot = np.repeat(np.arange(len(frequency), dtype=np.uint16), frequency)
        symbols = np.empty(count, dtype=np.uint16)
        for rows in _blocks(symbols, lanes):
            slots = np.empty(rows.shape, dtype=np.int64)
            used = _decode_rows(state[: rows.shape[1]], slots, words, used, factor, offset, scale)
            rows[...] = symbol_of_slot.take(slots)
        decoded.append(symbols)
    if used != len(words) or (state != LOWEST).any():
        raise WireError("The message is damaged: the coder does not end in the state that it began in.")
    return decoded


def _decode_rows(state: Any, rows: Any, words: Any, used: int, factor: Any, offset: Any, scale: int) -> int:
    """Fill the rows with the slots t, updating the states in place; the number of words used so far."""
    work = np.empty_like(state)
    short = np.empty(state.shape, dtype=bool)
    for slot in rows:
        np.bitwise_and(state, (1 << scale) - 1, out=slot)
        np.right_shift(state, scale, out=state)
        factor.take(slot, out=work, mode="clip")  # never out of range; "clip" spares a copy that "raise" makes
        np.multiply(state, work, out=state)
        offset.take(slot, out=work, mode="clip")
        np.add(state, work, out=state)
        np.less(state, LOWEST, out=short)
        refilled = short.nonzero()[0]
        if len(refilled):
            next_words = words[used : used + len(refilled)]
            if len(next_words) < len(refilled):
                raise WireError("The message is damaged: it has fewer words than its symbols need.")
            used += len(refilled)
            state[refilled] = (state[refilled] << 16) | next_words
    return used


# -- model and payload of a message -----------------------------------------------------------------------


def _gap_tables(rare: int, total: int, scale: int) -> tuple[int, list[int], list[int]]:
    """log2 of the size of a block, and the frequencies of the blocks in a gap and of the rest within a block."""
    doublings = max(0, min(_MOST_DOUBLINGS, (total // (8 * rare)).bit_length() - 1))
    blocks = geometric((rare, total), doublings, _BLOCKS + 1, scale)
    return doublings, blocks, [1 << scale - doublings] * (1 << doublings)


def _dominant_symbol(weights: Sequence[int]) -> int | None:
    """The symbol with at least 80 % of the weight, which is coded by gaps; None if there is none."""
    common = max(range(len(weights)), key=weights.__getitem__)
    return common if weights[common] >= _DOMINANT_SHARE * sum(weights) else None


def _without(common: int | None, numbers: Sequence[int]) -> list[int]:
    return [0 if level == common else number for level, number in enumerate(numbers)]


def _weights_to_send(weights: Sequence[int], scale: int) -> Sequence[int]:
    """The weights to write into the message: small numbers that give the same frequencies."""
    return weights if sum(weights) <= 1 << scale else quantised(weights, scale)


def estimate(counts: Sequence[int], weights: Sequence[int] | None) -> float:
    """An estimate of the bits of model and payload, from the counts alone."""
    bits = code_bits(counts, counts if weights is None else weights)
    bits += LANE_BITS * lanes_for(bits, sum(counts))
    if weights is not None:
        return bits
    others = _without(_dominant_symbol(counts), counts)
    return bits + 8 * len(write_table(_weights_to_send(others, scale_for(counts))))


def encode(symbols: Any, counts: Sequence[int], weights: Sequence[int] | None) -> tuple[bytes, bytes]:
    """Model and payload of symbols of which at least two kinds occur (or may, by the known weights)."""
    model_weights = counts if weights is None else weights
    common = _dominant_symbol(model_weights)
    if common is not None:
        return _encode_gaps(symbols, counts, weights, common)
    scale = scale_for(model_weights)
    table = quantised(model_weights, scale)
    lanes = lanes_for(code_bits(counts, table), len(symbols))
    table_bytes = write_table(_weights_to_send(model_weights, scale)) if weights is None else fingerprint(weights)
    payload = encode_parts([(table, symbols)], scale=scale, lanes=lanes)
    return write_varints(EVERY_SYMBOL, scale, lanes) + table_bytes, payload


def _encode_gaps(
    symbols: Any, counts: Sequence[int], weights: Sequence[int] | None, common: int
) -> tuple[bytes, bytes]:
    model_weights = counts if weights is None else weights
    others = _without(common, model_weights)
    scale = max(_GAP_SCALE, scale_for(others))
    table = quantised(others, scale)
    doublings, block_table, rest_table = _gap_tables(sum(others), sum(model_weights), scale)
    positions = np.flatnonzero(symbols != common)
    gaps = np.diff(positions, prepend=-1) - 1
    block_counts = gaps >> doublings
    token_counts = block_counts // _BLOCKS + 1  # of each gap
    blocks = np.full(int(token_counts.sum()), _BLOCKS)
    blocks[np.cumsum(token_counts) - 1] = block_counts % _BLOCKS
    parts = [(block_table, blocks)]
    bits = code_bits(np.bincount(blocks, minlength=_BLOCKS + 1).tolist(), block_table)
    if doublings:
        parts.append((rest_table, gaps & (1 << doublings) - 1))
        bits += len(gaps) * doublings
    if max(table) < 1 << scale:
        parts.append((table, symbols[positions]))
        bits += code_bits(_without(common, counts), table)
    lanes = lanes_for(bits, len(blocks))
    table_bytes = write_table(_weights_to_send(others, scale)) if weights is None else fingerprint(weights)
    head = write_varints(GAPS, scale, lanes, common, len(gaps), len(blocks))
    return head + table_bytes, encode_parts(parts, scale=scale, lanes=lanes)


def decode(model: bytes, payload: bytes, count: int, levels: int, weights: Sequence[int] | None) -> Any:
    """The symbols as a NumPy array of uint16."""
    reader = Reader(model)
    form = reader.number("the form of the model", most=GAPS)
    scale = reader.number("the scale of the frequencies", most=MOST_SCALE)
    lanes = reader.number("the number of lanes", most=len(payload) // 4)
    if form not in (EVERY_SYMBOL, GAPS) or scale < LEAST_SCALE or not lanes:
        raise WireError("The message is damaged: the model of its range coder is none.")
    if form == GAPS:
        return _decode_gaps(reader, payload, count, levels, weights, scale, lanes)
    table = _read_table(reader, weights, levels, scale)
    if max(table) == 1 << scale:
        raise WireError("The message is damaged: a table of frequencies has one symbol only.")
    return decode_parts(payload, [(table, count)], scale=scale, lanes=lanes)[0]


def _read_table(
    reader: Reader, weights: Sequence[int] | None, levels: int, scale: int, common: int | None = None
) -> list[int]:
    if weights is None:
        model_weights = reader.table(levels, "the table of weights", most=1 << scale)
        if not 0 < sum(model_weights) <= 1 << scale or (common is not None and model_weights[common]):
            raise WireError(
                f"The message is damaged: its weights do not sum to at most 2^{scale}, or not as they should."
            )
    else:
        require_fingerprint(reader, weights)
        model_weights = _without(common, weights)
        if sum(weight > 0 for weight in model_weights) > 1 << scale:
            raise WireError(f"The message is damaged: frequencies of sum 2^{scale} are too coarse for its levels.")
    reader.end("the model")
    return quantised(model_weights, scale)


def _decode_gaps(
    reader: Reader,
    payload: bytes,
    count: int,
    levels: int,
    weights: Sequence[int] | None,
    scale: int,
    lanes: int,
) -> Any:
    common = reader.number("the commonest symbol", most=levels - 1)
    rare_count = reader.number("the number of rare symbols", most=count)
    if weights is None:
        chance = (rare_count, count)
    else:
        chance = (sum(weights) - weights[common], sum(weights))
    if not 0 < chance[0] < chance[1]:
        raise WireError("The message is damaged: nothing, or everything, is rare in it.")
    doublings, block_table, rest_table = _gap_tables(*chance, scale)
    # Each sign that is not the last of its gap stands for 63 blocks of places.
    tokens = reader.number("the number of gaps", most=rare_count + count // (_BLOCKS << doublings))
    table = _read_table(reader, weights, levels, scale, common)
    parts = [(block_table, tokens)]
    if doublings:
        parts.append((rest_table, rare_count))
    if max(table) < 1 << scale:
        parts.append((table, rare_count))
    decoded = decode_parts(payload, parts, scale=scale, lanes=lanes)
    blocks = decoded[0].astype(np.int64)
    last = np.flatnonzero(blocks != _BLOCKS)
    if len(last) != rare_count or (len(blocks) and last[-1:].tolist() != [len(blocks) - 1]):
        raise WireError("The message is damaged: its gaps are not as many as its rare symbols.")
    gaps = ((np.diff(last, prepend=-1) - 1) * _BLOCKS + blocks[last]) << doublings
    if doublings:
        gaps |= decoded[1].astype(np.int64)
    # The sum of floats first: it cannot overflow, and whole numbers could.
    if len(gaps) and (gaps.sum(dtype=np.float64) > 2.0 * count or gaps.sum() + len(gaps) > count):
        raise WireError("The message is damaged: a rare symbol lies behind its end.")
    symbols = np.full(count, common, dtype=np.uint16)
    symbols[np.cumsum(gaps + 1) - 1] = decoded[-1] if max(table) < 1 << scale else table.index(1 << scale)
    return symbols
