"""The coders against plain references: a heap, a loop over single symbols, the arithmetic of whole numbers."""

import heapq
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from softknee.wire import huffman, packed, rans


def heap_lengths(weights: list[int]) -> list[int]:
    """Huffman's own construction: join the two lightest until one is left."""
    heap = [(weight, symbol, (symbol,)) for symbol, weight in enumerate(weights) if weight]
    heapq.heapify(heap)
    result = [0] * len(weights)
    for order in itertools.count(len(weights)):
        if len(heap) < 2:
            return result
        (first, _, left), (second, _, right) = heapq.heappop(heap), heapq.heappop(heap)
        for symbol in left + right:
            result[symbol] += 1
        heapq.heappush(heap, (first + second, order, left + right))
    raise AssertionError


def kraft(lengths: list[int]) -> Fraction:
    return sum((Fraction(1, 1 << length) for length in lengths if length), Fraction(0))


def some_weights(seed: int) -> list[int]:
    draw = random.Random(seed)
    weights = [int(draw.expovariate(1.0) ** 3 * 1000) for _ in range(draw.choice([2, 3, 10, 33, 300]))]
    return [*weights, 1, 5]


@pytest.mark.parametrize("seed", range(12))
def test_code_lengths_are_as_short_as_those_of_a_heap(seed: int) -> None:
    weights = some_weights(seed)
    result, reference = huffman.lengths(weights), heap_lengths(weights)
    assert max(reference) <= huffman.LONGEST
    assert huffman.bits_of(weights, result) == huffman.bits_of(weights, reference)
    assert kraft(result) == 1
    assert [length > 0 for length in result] == [weight > 0 for weight in weights]


def test_limited_code_lengths_are_the_shortest_there_are() -> None:
    """Every way to choose lengths for six symbols is tried."""
    for seed, longest in itertools.product(range(4), (3, 4)):
        weights = sorted(random.Random(seed).choices(range(1, 200), k=6))
        choices = itertools.product(range(1, longest + 1), repeat=6)
        least = min(huffman.bits_of(weights, choice) for choice in choices if kraft(list(choice)) <= 1)
        result = huffman.lengths(weights, longest=longest)
        assert huffman.bits_of(weights, result) == least
        assert max(result) <= longest
        assert kraft(result) == 1


def test_fibonacci_weights_would_need_longer_codes_and_are_limited() -> None:
    weights = [1, 1]
    while len(weights) < 40:
        weights.append(weights[-1] + weights[-2])
    assert max(heap_lengths(weights)) == 39
    result = huffman.lengths(weights)
    assert max(result) == huffman.LONGEST
    assert kraft(result) == 1
    # All of them at once, so that words of every length up to 24 occur next to each other.
    symbols = np.array([*range(40), *range(39, -1, -1)], dtype=np.uint8)
    model, payload = huffman.encode(symbols, [2] * 40, weights)
    assert huffman.decode(model, payload, 80, 40, weights).tolist() == symbols.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_huffman_stream_is_its_code_words_one_after_the_other(seed: int) -> None:
    weights = some_weights(seed)
    symbols = random.Random(seed).choices(range(len(weights)), weights, k=777)
    counts = np.bincount(symbols, minlength=len(weights)).tolist()
    _, payload = huffman.encode(np.array(symbols), counts, weights)
    lengths = huffman.lengths(weights)
    words = [
        f"{code:0{length}b}" if length else "" for code, length in zip(huffman.codes(lengths), lengths, strict=True)
    ]
    # No word begins another.
    for first, second in itertools.pairwise(sorted(word for word in words if word)):
        assert not second.startswith(first)
    stream = "".join(words[symbol] for symbol in symbols)
    coded = bytes(int(stream[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(stream), 8))
    assert payload.endswith(coded)


@pytest.mark.parametrize("scale", [12, 14, 16])
@pytest.mark.parametrize("seed", range(4))
def test_frequencies_sum_to_a_power_of_two_and_no_exchange_betters_them(seed: int, scale: int) -> None:
    weights = some_weights(seed)
    result = rans.quantised(weights, scale)
    assert sum(result) == 1 << scale
    assert [f > 0 for f in result] == [weight > 0 for weight in weights]
    best = rans.code_bits(weights, result)
    for give, take in itertools.permutations(random.Random(seed).sample(range(len(weights)), min(8, len(weights))), 2):
        if result[give] > 1 and weights[take]:
            other = list(result)
            other[give], other[take] = other[give] - 1, other[take] + 1
            assert rans.code_bits(weights, other) > best * (1 - 1e-9)


def test_geometric_frequencies_are_those_of_waiting() -> None:
    actual = rans.geometric((1, 100), 3, 20, 16)
    stay = 0.99**8
    expected = [65536 * stay**a * (1 - stay) for a in range(19)] + [65536 * stay**19]
    assert all(abs(f - e) < 1.5 for f, e in zip(actual, expected, strict=True))
    assert sum(actual) == 65536


def scalar_decode(payload: bytes, table: list[int], scale: int, lanes: int, count: int) -> list[int]:
    """The decoder of the module's docstring, one symbol at a time in whole numbers of Python."""
    states = [int.from_bytes(payload[4 * lane : 4 * lane + 4], "little") for lane in range(lanes)]
    words = [int.from_bytes(payload[at : at + 2], "little") for at in range(4 * lanes, len(payload), 2)]
    starts = [0, *itertools.accumulate(table)]
    results = []
    for place in range(count):
        x = states[place % lanes]
        t = x % 2**scale
        symbol = next(s for s in range(len(table)) if starts[s] <= t < starts[s + 1])
        x = table[symbol] * (x // 2**scale) + t - starts[symbol]
        if x < 2**16:
            x = 2**16 * x + words.pop(0)
        states[place % lanes] = x
        results.append(symbol)
    assert not words
    assert states == [2**16] * lanes
    return results


@pytest.mark.parametrize("scale", [12, 16])
@pytest.mark.parametrize("lanes", [1, 7, 64])
def test_a_range_coded_payload_is_read_by_a_plain_loop(lanes: int, scale: int) -> None:
    weights = some_weights(lanes)[:40]
    symbols = random.Random(lanes).choices(range(len(weights)), weights, k=500)
    table = rans.quantised(weights, scale)
    payload = rans.encode_parts([(table, np.array(symbols))], scale=scale, lanes=lanes)
    assert scalar_decode(payload, table, scale, lanes, 500) == symbols
    assert rans.decode_parts(payload, [(table, 500)], scale=scale, lanes=lanes)[0].tolist() == symbols
    ideal = -sum(math.log2(table[symbol] / 2**scale) for symbol in symbols)
    assert ideal - 1 < 8 * len(payload) - 16 * lanes < ideal + 32 * lanes + 0.01 * ideal


def test_gaps_longer_than_a_sign_can_say_and_at_both_ends() -> None:
    for places in ([0], [9_999], [0, 1, 2, 9_999], [5_000], list(range(0, 10_000, 100)), [*range(50), 9_000]):
        symbols = np.full(10_000, 3, dtype=np.uint8)
        symbols[places] = [1 + (place % 2) for place in places]
        counts = np.bincount(symbols, minlength=6).tolist()
        # Once with the true chance of a rare symbol and once with one far too large, which makes long runs of signs.
        for weights in (None, [0, 10**9, 10**9, 10**10, 0, 0]):
            model, payload = rans.encode(symbols, counts, weights)
            assert model[0] == rans.GAPS
            assert rans.decode(model, payload, 10_000, 6, weights).tolist() == symbols.tolist()


@pytest.mark.parametrize("levels", [2, 3, 5, 8, 10, 32, 33, 100, 256, 257, 4096, 5000, 65536])
def test_packed_groups_are_numbers_in_the_base_of_the_levels(levels: int) -> None:
    group, size = packed.grouping(levels)
    assert levels**group <= 256**size < levels ** (group + 1) or levels**group == 256**size
    symbols = torch.randint(0, levels, (group * 5 + 1,), generator=torch.Generator().manual_seed(levels))
    symbols[:group] = levels - 1  # the largest value there is
    data = packed.to_bytes(packed.pack(symbols, levels))
    rows = [*symbols.tolist(), *[0] * (group - 1)]
    for number in range(6):
        value = sum(s * levels**place for place, s in enumerate(rows[group * number : group * (number + 1)]))
        assert int.from_bytes(data[size * number : size * (number + 1)], "little") == value
    assert len(data) == 6 * size == packed.bits_of(len(symbols), levels) // 8


def test_packed_lengths_are_near_the_bound() -> None:
    for levels in [*range(2, 300), *range(300, 65536, 997), *(2**bits for bits in range(1, 17))]:
        group, size = packed.grouping(levels)
        # Up to 256 levels never more than whole bits; above, 15 bits (in 2 bytes) are the worst.
        assert 8 * size / group <= (levels - 1).bit_length() * (1 if levels <= 256 else 16 / 15)
    group, size = packed.grouping(33)
    assert 8 * size / group <= 5.34
