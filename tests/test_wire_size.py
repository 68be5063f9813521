"""The length of messages against the entropy of the symbols in them, from the real counts and the real bytes."""

import math

import pytest
import torch

from softknee.wire import encode, entropy, huffman, message, rans, sizes

COUNT = 1 << 16
SHAPES = {
    "bell": lambda x: torch.exp(-0.5 * (x - 16) ** 2 / 16),
    "narrow bell": lambda x: torch.exp(-0.5 * (x - 16) ** 2 / 0.5),
    "even": torch.ones_like,
    "halves": lambda x: 0.5 ** (x + 1),
    "one in three": lambda x: torch.where(x == 7, 0.66, 0.34 / 32),
    "one in twenty": lambda x: torch.where(x == 7, 0.95, 0.05 / 32),
    "one in fifty": lambda x: torch.where(x == 0, 0.98, 0.02 * 0.5**x),
    "two": lambda x: torch.where(x == 0, 0.99, torch.where(x == 5, 0.01, 0.0)),
}


def drawn(name: str, count: int, levels: int = 33) -> torch.Tensor:
    chance = SHAPES[name](torch.arange(levels, dtype=torch.float64))
    share = torch.rand(count, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.searchsorted(chance.cumsum(0) / chance.sum(), share).clamp(max=levels - 1)


def entropy_by_hand(symbols: torch.Tensor) -> float:
    result: dict[int, int] = {}
    for symbol in symbols.tolist():
        result[symbol] = result.get(symbol, 0) + 1
    return -sum(n / len(symbols) * math.log2(n / len(symbols)) for n in result.values())


def payload_bits(data: bytes) -> int:
    return 8 * len(message.read_message(data, most=2**24).payload)


@pytest.mark.parametrize("name", SHAPES)
def test_a_range_coded_payload_is_within_one_percent_of_the_entropy(name: str) -> None:
    symbols = drawn(name, COUNT)
    bound = COUNT * entropy_by_hand(symbols)
    bits = payload_bits(encode(symbols, levels=33, coder="rans"))
    # A message has at least one state of 32 bits, the cost of which is fixed; all further lanes are in the 1 %.
    assert bound - 32 < bits <= 1.01 * bound + rans.LANE_BITS + 8


@pytest.mark.parametrize("name", ["bell", "even", "halves", "one in twenty"])
def test_a_whole_range_coded_message_is_within_one_percent(name: str) -> None:
    symbols = drawn(name, 16 * COUNT)
    assert 8 * len(encode(symbols, levels=33, coder="rans")) <= 1.01 * 16 * COUNT * entropy(symbols, levels=33)


@pytest.mark.parametrize("others", [1, 2, 32])
def test_a_hundredth_of_a_bit_per_symbol(others: int) -> None:
    """Where a symbol costs far less than a bit: the payload is within 1 % and the fixed state, the table within 100."""
    count = 1 << 20
    generator = torch.Generator().manual_seed(0)
    rare = torch.rand(count, generator=generator) < {1: 0.0008, 2: 0.0007, 32: 0.0005}[others]
    symbols = torch.where(rare, torch.randint(1, others + 1, (count,), generator=generator), 0)
    bound = count * entropy(symbols, levels=33)
    assert 0.008 < bound / count < 0.012
    data = encode(symbols, levels=33, coder="rans")
    assert payload_bits(data) <= 1.01 * bound + rans.LANE_BITS + 8
    assert len(data) - payload_bits(data) // 8 < 100


@pytest.mark.parametrize("levels", [256, 4096])
def test_many_levels(levels: int) -> None:
    centre = torch.randn(COUNT, generator=torch.Generator().manual_seed(2)) * levels / 12 + levels / 2
    symbols = centre.round().clamp(0, levels - 1).long()
    bound = COUNT * entropy(symbols, levels=levels)
    assert payload_bits(encode(symbols, levels=levels, coder="rans")) <= 1.01 * bound + rans.LANE_BITS
    assert encode(symbols, levels=levels) == encode(symbols, levels=levels, coder="rans")


@pytest.mark.parametrize("name", SHAPES)
def test_huffman_codes_keep_their_bound(name: str) -> None:
    symbols = drawn(name, COUNT)
    counts = torch.bincount(symbols, minlength=33)
    bound = entropy_by_hand(symbols)
    redundancy = min(1.0, int(counts.max()) / COUNT + 0.086)
    words = huffman.bits_of(counts.tolist(), huffman.lengths(counts.tolist())) / COUNT
    assert bound <= words <= bound + redundancy
    # The bits in the message are those words, whole bytes, and an index of at most 0.7 %.
    bits = payload_bits(encode(symbols, levels=33, coder="huffman")) / COUNT
    assert words <= bits <= 1.007 * words + 64 / COUNT


def test_known_probabilities_cost_their_cross_entropy() -> None:
    symbols = drawn("bell", COUNT)
    given = SHAPES["bell"](torch.arange(33, dtype=torch.float64) + 1)
    share = torch.bincount(symbols, minlength=33) / COUNT
    expected = -float((share * (given / given.sum()).log2()).sum()) * COUNT
    data = encode(symbols, levels=33, coder="rans", probabilities=given)
    assert expected * 0.999 < payload_bits(data) < expected * 1.01
    assert expected > 1.01 * COUNT * entropy(symbols, levels=33)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("count", [5, 300, 20_000])
def test_auto_is_the_shortest(count: int, name: str) -> None:
    symbols = drawn(name, count)
    lengths = [len(encode(symbols, levels=33, coder=coder)) for coder in ("huffman", "rans", "packed")]
    # From the counts alone, so up to the rounding of states and bytes.
    assert len(encode(symbols, levels=33)) <= 1.001 * min(lengths) + 4


def test_entropy_of_closed_forms() -> None:
    assert entropy(torch.arange(32).repeat(3), levels=33) == pytest.approx(5.0, abs=1e-12)
    assert entropy(torch.arange(32)) == pytest.approx(5.0, abs=1e-12)
    assert entropy(torch.zeros(10, dtype=torch.uint8), levels=1) == 0.0
    assert entropy(torch.empty(0, dtype=torch.uint8), levels=7) == 0.0
    assert entropy(torch.tensor([0, 1, 1, 1]), levels=2) == pytest.approx(2 - 0.75 * math.log2(3), abs=1e-12)
    bell = drawn("bell", COUNT)
    assert entropy(bell.view(256, 256).to(torch.uint16), levels=40) == pytest.approx(entropy_by_hand(bell), abs=1e-9)


def test_sizes_are_those_of_the_messages() -> None:
    symbols = drawn("bell", COUNT)
    result = sizes(symbols, levels=33)
    for coder in ("huffman", "rans", "packed"):
        assert getattr(result, coder) == 8 * len(encode(symbols, levels=33, coder=coder)) / COUNT
    assert result.entropy < result.rans < result.huffman < result.packed < result.bfloat16 < result.float32 == 32
    assert result.packed < 5.34
    assert result.smallest == "rans"
    assert "rans" in str(result)
    assert sizes(symbols) == sizes(symbols, levels=int(symbols.max()) + 1)
    empty = sizes(symbols[:0], levels=33)
    assert (empty.count, empty.entropy, empty.rans, empty.huffman, empty.packed) == (0, 0, 0, 0, 0)
    assert str(empty) == "no symbols, and so no bits per symbol"


def test_a_table_takes_one_spelling() -> None:
    for table in ([0], [0, 0, 0], [1, 0, 0, 5], [0, 0, 300, 0], list(range(200))):
        data = message.write_table(table)
        assert message.Reader(data).table(len(table), "it", most=300) == table
