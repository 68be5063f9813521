"""Bytes that are no message, or no longer one: WireError, never wrong data, a crash or a large allocation."""

import dataclasses
import resource
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from softknee.wire import WireError, decode, encode, message

QUICK = settings(max_examples=120, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
SHARE = [0.1, 0.1, 0.5, 0.1, 0.2]


def some(levels: int, count: int, rare: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    symbols = torch.randint(0, levels, (count,), generator=generator)
    return torch.where(torch.rand(count, generator=generator) < rare, symbols, 2)


MESSAGES = [
    encode(some(levels, count, rare).view(2, -1).to(torch.int16), levels=levels, coder=coder, probabilities=shared)
    for coder in ("huffman", "rans", "packed")
    for levels, count, rare, shared in [
        (5, 2, 1.0, None),
        (33, 400, 1.0, None),
        (33, 2000, 0.02, None),
        (5, 90, 0.5, SHARE),
    ]
] + [encode(torch.full((3, 3), 4), levels=5), encode(torch.empty(0, 4, dtype=torch.uint8), levels=5, coder="huffman")]
LIMIT = 10_000


def sealed(body: bytes) -> bytes:
    """With a right checksum, as one would be made to get past it."""
    return body + zlib.crc32(body).to_bytes(4, "little")


def outcome(data: bytes) -> torch.Tensor | None:
    """A tensor within the limits, or None after a WireError; anything else is a failure."""
    try:
        result = decode(data, most=LIMIT, probabilities=SHARE)
    except WireError:
        return None
    assert result.numel() <= LIMIT
    if result.numel():
        levels = message.read_message(data, most=LIMIT).levels
        assert 0 <= int(result.to(torch.int64).min()) <= int(result.to(torch.int64).max()) < levels
    return result


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_every_message_is_right_before_it_is_harmed(number: int) -> None:
    assert outcome(MESSAGES[number]) is not None


@QUICK
@given(st.binary(max_size=200))
@example(b"")
@example(b"SKNW")
@example(b"SKNW\x01")
def test_random_bytes(data: bytes) -> None:
    assert outcome(data) is None
    assert outcome(b"SKNW\x01" + data) is None
    outcome(sealed(b"SKNW\x01" + data))


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_every_truncation_and_every_extension(number: int) -> None:
    data = MESSAGES[number]
    for length in range(len(data)):
        assert outcome(data[:length]) is None
    assert outcome(data + b"\0") is None
    assert outcome(data + data) is None
    assert outcome(sealed(data[:-4] + b"\0")) is None


@pytest.mark.parametrize("number", range(len(MESSAGES)))
def test_every_bit_in_turn(number: int) -> None:
    data = bytearray(MESSAGES[number])
    for bit in range(0, 8 * len(data), 1 if len(data) < 100 else 7):
        data[bit // 8] ^= 1 << bit % 8
        assert outcome(bytes(data)) is None
        data[bit // 8] ^= 1 << bit % 8


@QUICK
@given(st.sampled_from(MESSAGES), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4))
def test_altered_bytes_with_a_right_checksum(data: bytes, changes: list[tuple[int, int]]) -> None:
    """They may be another message, but then a sound one."""
    body = bytearray(data[:-4])
    for place, value in changes:
        # Half of the changes go into the first 24 bytes: header and model.
        body[place % len(body) if place % 2 else place // 2 % min(24, len(body))] = value
    outcome(sealed(bytes(body)))


@QUICK
@given(st.sampled_from(MESSAGES), st.sampled_from(MESSAGES), st.floats(0, 1), st.floats(0, 1))
def test_spliced_messages(first: bytes, second: bytes, cut: float, start: float) -> None:
    spliced = first[: int(cut * len(first))] + second[int(start * len(second)) :]
    assert spliced in MESSAGES or outcome(spliced) is None
    outcome(sealed(spliced[:-4]))


numbers = st.one_of(st.integers(0, 70), st.sampled_from([2**12, 2**16, 2**31, 2**32, 2**60, 2**62, 2**63 - 1]))


@QUICK
@given(
    coder=st.integers(1, 3),
    shared=st.integers(0, 1),
    levels=st.sampled_from([1, 2, 5, 33, 65536]),
    shape=st.lists(numbers, max_size=4),
    model=st.lists(numbers, max_size=12),
    payload=st.binary(max_size=64),
)
def test_absurd_numbers_with_a_right_checksum(
    coder: int, shared: int, levels: int, shape: list[int], model: list[int], payload: bytes
) -> None:
    count = 1
    for size in shape:
        count *= size
    table = message.write_varints(*model)
    head = message.write_varints(levels, len(shape), *shape, min(count, 2**63 - 1), len(table))
    body = b"SKNW" + bytes([1, coder, 4, shared]) + head + table + message.write_varints(len(payload)) + payload
    outcome(sealed(body))


def raw(*, count: int, coder: int, model: bytes, payload: bytes = b"", levels: int = 33) -> bytes:
    head = message.write_varints(levels, 1, count, count, len(model))
    return sealed(b"SKNW" + bytes([1, coder, 4, 0]) + head + model + message.write_varints(len(payload)) + payload)


HUGE = {
    "equal symbols": raw(count=2**60, coder=2, model=bytes([0, 3])),
    "packed": raw(count=2**60, coder=3, model=bytes([3, 2])),
    "packed, one level": raw(count=2**60, coder=3, model=bytes([1, 0]), levels=1),
    "huffman": raw(count=2**60, coder=1, model=bytes([1, 1, 1, 1, 0, 30]), payload=bytes(10)),
    "gaps": raw(count=2**60, coder=2, model=message.write_varints(2, 14, 1, 0, 1, 1, 0, 0, 1, 0, 30), payload=bytes(8)),
    "lanes": raw(count=100, coder=2, model=message.write_varints(1, 12, 2**40, 2048, 2048, 0, 30), payload=bytes(8)),
    "long model": sealed(b"SKNW" + bytes([1, 2, 4, 0]) + message.write_varints(33, 1, 5, 5, 2**50)),
    "many dimensions": sealed(b"SKNW" + bytes([1, 2, 4, 0]) + message.write_varints(33, 2**40)),
}


@pytest.mark.parametrize("name", HUGE)
def test_a_claim_of_huge_size_is_refused_before_anything_is_taken(name: str) -> None:
    # The most memory ever taken is told: a test before this one may have taken so much that nothing would show here.
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: count the most from now on
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for most in (2**26, 2**62):
        if name in ("equal symbols", "packed, one level") and most > 2**26:
            continue  # it is within what was asked for: as many equal symbols as one likes need no bytes
        with pytest.raises(WireError):
            decode(HUGE[name], most=most)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


def test_few_lanes_do_not_make_a_decoder_run_for_ever() -> None:
    """Symbols that cost next to nothing in one lane: 2^26 steps would take minutes."""
    cheap = message.write_varints(1, 16, 1, 65535, 1, 0, 30)
    with pytest.raises(WireError, match="too few"):
        decode(raw(count=2**26, coder=2, model=cheap, payload=bytes([255] * 8)))
    with pytest.raises(WireError, match="sections"):
        decode(raw(count=2**20, coder=1, model=message.write_varints(1, 1, 1, 1, 0, 30), payload=bytes(2**17 + 2)))


def altered(data: bytes, **changes: object) -> bytes:
    return dataclasses.replace(message.read_message(data, most=LIMIT), **changes).to_bytes()  # type: ignore[arg-type]


def test_a_range_coder_ends_where_it_began() -> None:
    """It notices most changes by itself: a wrong state seldom finds back to 2^16."""
    for data in (MESSAGES[5], MESSAGES[7]):
        payload = message.read_message(data, most=LIMIT).payload
        refused = []
        for bit in range(0, 8 * len(payload), 1 + len(payload) // 5):
            harmed = bytearray(payload)
            harmed[bit // 8] ^= 1 << bit % 8
            refused.append(outcome(altered(data, payload=bytes(harmed))) is None)
        assert sum(refused) > 0.9 * len(refused)
        assert outcome(altered(data, payload=payload + bytes(2))) is None
        assert outcome(altered(data, payload=payload[:-2])) is None


def test_a_huffman_stream_ends_where_its_index_says() -> None:
    symbols = some(33, 9000, 1.0)
    data = encode(symbols, levels=33, coder="huffman")
    sound = message.read_message(data, most=LIMIT)
    reader = message.Reader(sound.payload)
    least, size, rest = reader.number("least"), reader.number("size"), reader.rest()
    assert sound.model[1] > 5  # sections
    assert torch.equal(decode(altered(data, payload=message.write_varints(least, size) + rest)), symbols)
    for payload in (
        message.write_varints(least + 1, size) + rest,
        message.write_varints(least, size) + bytes([rest[0] ^ 1]) + rest[1:],
        message.write_varints(least, size) + rest + bytes(1),
        message.write_varints(least, size) + rest[:-1],
    ):
        assert outcome(altered(data, payload=payload)) is None
    one_section = encode(torch.tensor([0, 1, 2, 0]), levels=3, coder="huffman")
    payload = message.read_message(one_section, most=4).payload
    with pytest.raises(WireError, match="does not end"):
        decode(altered(one_section, payload=payload[:-1] + bytes([payload[-1] | 1])))


def test_rare_symbols_behind_the_end() -> None:
    share = [0.02, 0.9, 0.08]
    symbols = torch.ones(2000, dtype=torch.int64)
    symbols[[5, 700, 1999]] = 2
    data = encode(symbols, levels=3, coder="rans", probabilities=share)
    assert torch.equal(decode(altered(data, shape=(2500,)), probabilities=share)[:2000], symbols)
    for count in (1999, 1990, 1960):
        with pytest.raises(WireError, match="behind its end"):
            decode(altered(data, shape=(count,)), probabilities=share)


def test_packed_groups_hold_their_symbols_and_no_more() -> None:
    data = encode(torch.tensor([32, 32, 32, 32]), levels=33, coder="packed")
    for payload in (b"\xff\xff\x20\0", (33**3).to_bytes(2, "little") + b"\x20\0", b"\0\0" + (33).to_bytes(2, "little")):
        with pytest.raises(WireError, match="more than its symbols"):
            decode(altered(data, payload=payload))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((0, b"X"), "no message"),
        ((4, b"\x02"), "version 2 .* reads version 1"),
        ((-1, None), "cut off or was altered"),
    ],
)
def test_the_reason_is_named(change: tuple[int, bytes | None], words: str) -> None:
    data = bytearray(MESSAGES[1])
    place, value = change
    data[place] = value[0] if value else data[place] ^ 1
    with pytest.raises(WireError, match=words):
        decode(bytes(data))
