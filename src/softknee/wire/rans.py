r"""Asymmetric numeral systems with many states in lock-step: a range coder whose inner loop is over positions.

A state is a number x in [2^16, 2^32). With frequencies f_s of sum 2^S and c_s = f_0 + ... + f_{s-1}:

    encode s:   x -> floor(x / f_s) 2^S + c_s + (x mod f_s)       first, if x >= f_s 2^(32-S): emit x mod 2^16, x >>= 16
    decode:     t = x mod 2^S,  s is the symbol with c_s <= t < c_s + f_s
                x -> f_s floor(x / 2^S) + t - c_s                 then, if x < 2^16: x = 2^16 x + next word

Each step grows x by the factor 2^S / f_s up to rounding: log2(2^S / f_s) bits. The encoder runs from the last symbol to
the first, so that the decoder runs forwards. Symbol j belongs to lane j mod L; all L lanes take a step at once, and
their words go into one common list in the order in which the decoder asks for them. A lane costs about 24 bits (its
first state, 2^16, says nothing), so the number of lanes is chosen as a share of the length that does not matter.

payload:  L states of 32 bits, then words of 16 bits, all with the lowest byte first

Written here because the libraries that do this are compiled ones without builds for every platform; NumPy is all it
needs. References: J. Duda, "Asymmetric numeral systems: entropy coding combining speed of Huffman coding with
compression rate of arithmetic coding" (2013); F. Giesen, "Interleaved entropy coders" (2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import WireError
from .symbols import numpy_for

LOWEST = 1 << 16  # the least state, and the value every lane starts from
LANE_BITS = 24  # what a lane costs: 16 as above, and its last state is on average 8 short of the 32 it is sent with
_SHARE_OF_LANES = 0.005  # of the length in bits
_MOST_LANES = 4096  # beyond, the working set leaves the first cache and nothing is gained
_BLOCK = 1 << 15  # symbols whose frequencies are looked up together: they stay in the second cache
MOST_STEPS = 1 << 16  # positions that a lane may have: bounds the time of a decoder, whatever the message says


@dataclass(frozen=True)
class Part:
    """Symbols that share one table of frequencies; a payload holds one part after the other."""

    frequencies: Sequence[int]
    symbols: Any  # a NumPy array when encoding, the count when decoding


def lanes_for(bits: float, count: int) -> int:
    """As many lanes as cost 0.5 % of the length, and at least so many that none has too many steps."""
    return max(1, -(-count // MOST_STEPS), min(_MOST_LANES, count, int(bits * _SHARE_OF_LANES / LANE_BITS)))


def encode(parts: Sequence[Part], *, scale: int, lanes: int) -> bytes:
    """The payload of these parts."""
    np = numpy_for("Range coding")
    state = np.full(lanes, LOWEST, dtype=np.uint32)
    pieces: list[Any] = []  # of words, the last of the message first
    for part in reversed(parts):
        frequency = np.asarray(part.frequencies, dtype=np.uint32)
        start = np.cumsum(frequency, dtype=np.uint32) - frequency
        full = len(part.symbols) // lanes * lanes
        if full < len(part.symbols):
            tail = part.symbols[None, full:]
            pieces.append(_encode_rows(np, state[: tail.size], frequency.take(tail), start.take(tail), scale))
        body = part.symbols[:full].reshape(-1, lanes)
        block = max(1, _BLOCK // lanes)
        for last in range(len(body), 0, -block):
            rows = body[max(0, last - block) : last]
            pieces.append(_encode_rows(np, state, frequency.take(rows), start.take(rows), scale))
    words = np.concatenate([np.empty(0, np.uint16), *reversed(pieces)])
    return state.astype("<u4").tobytes() + words.astype("<u2").tobytes()


def _encode_rows(np: Any, state: Any, frequency: Any, start: Any, scale: int) -> Any:
    """Take the rows from the last to the first into the states, in place; give the words in the decoder's order."""
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


def decode(payload: bytes, parts: Sequence[Part], *, scale: int, lanes: int) -> list[Any]:
    """The symbols of each part, as arrays of uint16."""
    np = numpy_for("Range coding")
    if len(payload) < 4 * lanes or len(payload) % 2:
        raise WireError(f"The message is damaged: {len(payload):,} bytes are not {lanes:,} states and whole words.")
    if any(part.symbols > lanes * MOST_STEPS for part in parts):
        raise WireError(f"The message is damaged: {lanes:,} lanes are too few for its symbols.")
    # 64 bits, because NumPy looks up in a table by such numbers; a state stays below 2^32.
    state = np.frombuffer(payload, dtype="<u4", count=lanes).astype(np.int64)
    words = np.frombuffer(payload, dtype="<u2", offset=4 * lanes).astype(np.int64)
    if (state < LOWEST).any():
        raise WireError("The message is damaged: a state of the coder is below its least value.")
    found, taken = [], 0
    for part in parts:
        frequency = np.asarray(part.frequencies, dtype=np.int64)
        # For each t < 2^S the f_s, t - c_s and s that it belongs to.
        factor = np.repeat(frequency, frequency)
        offset = np.arange(1 << scale) - np.repeat(np.cumsum(frequency) - frequency, frequency)
        owner = np.repeat(np.arange(len(frequency), dtype=np.uint16), frequency)
        symbols = np.empty(part.symbols, dtype=np.uint16)
        full = part.symbols // lanes * lanes
        body = symbols[:full].reshape(-1, lanes)
        block = max(1, _BLOCK // lanes)
        for rows in [*(body[first : first + block] for first in range(0, len(body), block)), symbols[None, full:]]:
            slots = np.empty(rows.shape, dtype=np.int64)
            taken = _decode_rows(np, state[: rows.shape[1]], slots, words, taken, factor, offset, scale)
            rows[...] = owner.take(slots)
        found.append(symbols)
    if taken != len(words) or (state != LOWEST).any():
        raise WireError("The message is damaged: the coder does not end in the state that it began in.")
    return found


def _decode_rows(np: Any, state: Any, rows: Any, words: Any, taken: int, factor: Any, offset: Any, scale: int) -> int:
    """Fill the rows with t from the states, which move on in place; give the number of words used up."""
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
        which = short.nonzero()[0]
        if len(which):
            given = words[taken : taken + len(which)]
            if len(given) < len(which):
                raise WireError("The message is damaged: it has fewer words than its symbols need.")
            taken += len(which)
            state[which] = (state[which] << 16) | given
    return taken
