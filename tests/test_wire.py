"""Symbols on the wire: what goes in comes out, in every coder, shape and type; what cannot be coded is refused."""

import struct
import sys
import zlib

import pytest
import torch

import softknee as sk
from softknee.errors import InputError, MissingToolError, ParameterError, SoftkneeError
from softknee.wire import WireError, decode, encode

CODERS = ("huffman", "rans", "packed", "auto")
MODULES = ("message", "packed", "rans", "huffman", "coding")


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
    return alike and torch.equal(one.to(torch.int64), other.to(torch.int64))


def drawn(kind: str, levels: int, count: int) -> torch.Tensor:
    """Symbols of a distribution: even, one side, nearly all equal (one of the others), nearly all equal (any)."""
    generator = torch.Generator().manual_seed(levels + count)
    share = torch.rand(count, generator=generator, dtype=torch.float64)
    if kind == "even":
        result = share * levels
    elif kind == "leaning":
        result = share**8 * levels
    elif kind == "two":
        result = torch.where(share < 0.01, levels - 1, levels // 2)
    else:
        result = torch.where(torch.rand(count, generator=generator) < 0.02, share * levels, levels / 2)
    return result.long().clamp(0, levels - 1)


@pytest.mark.slow
@pytest.mark.parametrize("coder", CODERS)
@pytest.mark.parametrize("kind", ["even", "leaning", "two", "rare"])
@pytest.mark.parametrize("levels", [1, 2, 3, 33, 4096])
def test_what_goes_in_comes_out(levels: int, kind: str, coder: str) -> None:
    for count in (1, 2, 100, 2001):
        symbols = drawn(kind, levels, count)
        assert same(decode(encode(symbols, levels=levels, coder=coder)), symbols)


@pytest.mark.parametrize("coder", ["huffman", "rans", "packed"])
def test_as_many_levels_as_there_may_be(coder: str) -> None:
    # Every level occurs, so no frequency can be above 1 of 2^16, and every code word has 16 bits.
    symbols = torch.randperm(65536, generator=torch.Generator().manual_seed(0))
    data = encode(symbols, levels=65536, coder=coder)
    assert same(decode(data), symbols)
    assert same(decode(encode(symbols[:9], levels=65536, coder=coder)), symbols[:9])


@pytest.mark.parametrize("coder", CODERS)
def test_a_large_tensor_with_many_lanes(coder: str) -> None:
    for kind in ("even", "rare"):
        symbols = drawn(kind, 33, 150_001)
        assert same(decode(encode(symbols, levels=33, coder=coder)), symbols)


@pytest.mark.parametrize("coder", CODERS)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 4), (1, 1, 5, 1), (2,) * 12], ids=str)
def test_the_shape_comes_back(shape: tuple[int, ...], coder: str) -> None:
    symbols = torch.randint(0, 33, shape, generator=torch.Generator().manual_seed(0))
    assert same(decode(encode(symbols, levels=33, coder=coder)), symbols)


@pytest.mark.parametrize("coder", CODERS)
@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"])
def test_the_type_comes_back(name: str, coder: str) -> None:
    symbols = drawn("even", 100, 500).to(getattr(torch, name))
    assert same(decode(encode(symbols, levels=100, coder=coder)), symbols)
    # More levels than the type has values are allowed, as long as the symbols themselves fit.
    assert same(decode(encode(symbols, levels=1000, coder=coder)), symbols)


@pytest.mark.parametrize("coder", CODERS)
def test_a_tensor_in_another_order_of_memory(coder: str) -> None:
    symbols = drawn("leaning", 33, 600).view(20, 30).T[::2, 1:]
    assert same(decode(encode(symbols, levels=33, coder=coder)), symbols.contiguous())


@pytest.mark.parametrize("coder", CODERS)
def test_equal_symbols_need_no_payload_and_equal_tensors_are_equal_bytes(coder: str) -> None:
    symbols = torch.full((1000, 1000), 7)
    data = encode(symbols, levels=33, coder=coder)
    assert same(decode(data), symbols)
    assert coder == "packed" or len(data) < 32
    other = drawn("leaning", 33, 999)
    assert encode(other, levels=33, coder=coder) == encode(other.clone(), levels=33, coder=coder)


@pytest.mark.parametrize("coder", ["huffman", "rans"])
@pytest.mark.parametrize("kind", ["even", "leaning", "rare"])
def test_probabilities_that_both_sides_know_are_not_sent(kind: str, coder: str) -> None:
    symbols = drawn(kind, 33, 5000)
    share = torch.bincount(symbols, minlength=33) / 5000 + 1e-4
    data = encode(symbols, levels=33, coder=coder, probabilities=share)
    assert same(decode(data, probabilities=share), symbols)
    assert same(decode(data, probabilities=share.double().tolist()), symbols)
    assert len(data) < len(encode(symbols, levels=33, coder=coder)) - 15
    with pytest.raises(WireError, match="both sides know"):
        decode(data)
    with pytest.raises(WireError, match="other probabilities"):
        decode(data, probabilities=share.flip(0))
    with pytest.raises(WireError, match="33 levels, and 4 probabilities"):
        decode(data, probabilities=[0.25] * 4)
    with pytest.raises(ParameterError, match="list of numbers"):
        decode(data, probabilities=5)  # type: ignore[arg-type]
    # A message that has its own table does not need them.
    assert same(decode(encode(symbols, levels=33, coder=coder), probabilities=share), symbols)


def test_probabilities_of_which_one_is_almost_one() -> None:
    symbols = drawn("even", 5, 300)
    data = encode(symbols, levels=5, coder="rans", probabilities=[1e-12, 1, 1e-12, 1e-30, 1e-3])
    assert same(decode(data, probabilities=[1e-12, 1, 1e-12, 1e-30, 1e-3]), symbols)


def test_the_header_is_as_described() -> None:
    symbols = torch.tensor([[1, 2, 0], [32, 5, 6]], dtype=torch.int16)
    data = encode(symbols, levels=33, coder="packed")
    head = b"SKNW" + bytes([1, 3, 2, 0]) + bytes([33, 2, 2, 3, 6]) + bytes([2, 3, 2]) + bytes([4])
    body = head + struct.pack("<HH", 1 + 33 * 2, 32 + 33 * (5 + 33 * 6))
    assert data == body + struct.pack("<I", zlib.crc32(body))


def test_bytes_of_any_kind_and_an_expected_length() -> None:
    data = encode(torch.arange(8), levels=8)
    assert same(decode(bytearray(data)), torch.arange(8))
    assert same(decode(memoryview(data), most=8), torch.arange(8))
    with pytest.raises(WireError, match=r"8 symbols.*at most 7.*most="):
        decode(data, most=7)
    with pytest.raises(InputError, match="bytes"):
        decode("SKNW")  # type: ignore[arg-type]
    for wrong in ("a", None, True, 8.0, -1):
        with pytest.raises(ParameterError, match="decode: most must be a whole number"):
            decode(data, most=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("coder", CODERS)
def test_levels_left_out_end_at_the_largest_symbol(coder: str) -> None:
    symbols = torch.tensor([[0, 1, 3, 3], [3, 0, 4, 0]], dtype=torch.uint8)
    assert encode(symbols, coder=coder) == encode(symbols, levels=5, coder=coder)
    assert same(decode(encode(symbols, coder=coder)), symbols)
    assert same(decode(encode(symbols[:0], coder=coder)), symbols[:0])
    shares = [3.0, 1.0, 0.5, 2.0, 1.0, 0.25]  # known shares say how many levels there are
    data = encode(symbols, coder=coder, probabilities=shares)
    assert data == encode(symbols, levels=6, coder=coder, probabilities=shares)
    assert same(decode(data, probabilities=shares), symbols)
    for wrong in ([-1, 2], [0, 65536]):
        with pytest.raises(ParameterError, match="Symbols are 0 to 65,535, and these go from"):
            encode(torch.tensor(wrong), coder=coder)


def one(levels: int = 4, **options: object):
    return lambda: encode(torch.tensor([0, 1, 3]), levels=levels, **options)


REFUSED = {
    "floats": (lambda: encode(torch.zeros(3), levels=2), InputError, "whole numbers.*float32.*torch.uint8"),
    "a list": (lambda: encode([0, 1], levels=2), InputError, "this is a list"),  # type: ignore[arg-type]
    "bool": (lambda: encode(torch.ones(2, dtype=torch.bool), levels=2), InputError, "torch.bool"),
    "meta": (lambda: encode(torch.ones(2, dtype=torch.int8, device="meta"), levels=2), InputError, "meta"),
    "negative": (lambda: encode(torch.tensor([-1, 1]), levels=2), ParameterError, "go from -1 to 1"),
    "too large": (one(3), ParameterError, "0 to 2, and these go from 0 to 3"),
    "huge": (lambda: encode(torch.tensor([2**64 - 1], dtype=torch.uint64), levels=2), ParameterError, "0 to 1"),
    "no levels": (one(0), ParameterError, "from 1 to 65,536"),
    "too many levels": (one(65537), ParameterError, "from 1 to 65,536"),
    "levels as a float": (one(4.0), ParameterError, "4.0"),  # type: ignore[arg-type]
    "coder": (one(coder="hufman"), ParameterError, "Did you mean 'huffman'"),
    "few probabilities": (one(probabilities=[1.0]), ParameterError, "4 levels and 1 prob"),
    "negative probability": (one(probabilities=[1, 1, -1, 1]), ParameterError, "not negative"),
    "nan probability": (one(probabilities=[1, 1, float("nan"), 1]), ParameterError, "finite"),
    "zero probabilities": (one(probabilities=[0.0] * 4), ParameterError, "not all zero"),
    "no probabilities": (one(probabilities=3), ParameterError, "list of numbers"),
    "words for probabilities": (one(probabilities=["a"] * 4), ParameterError, "list of numbers"),
    "impossible": (one(coder="rans", probabilities=[1, 1, 1, 0]), ParameterError, "Symbol 3 occurs.*as 0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_coded_is_refused(case: str) -> None:
    action, kind, words = REFUSED[case]
    with pytest.raises(kind, match=words):
        action()


def test_without_numpy_there_is_the_packed_form(monkeypatch: pytest.MonkeyPatch) -> None:
    coded = encode(torch.arange(33), levels=33, coder="rans")
    monkeypatch.setitem(sys.modules, "numpy", None)
    for name in ("rans", "huffman"):
        monkeypatch.delitem(sys.modules, f"softknee.wire.{name}")
        monkeypatch.delattr(sk.wire, name)
    assert same(decode(encode(torch.arange(33), levels=33)), torch.arange(33))
    for coder in ("rans", "huffman"):
        with pytest.raises(MissingToolError, match=r"pip install 'softknee\[lab\]'"):
            encode(torch.arange(33), levels=33, coder=coder)
    with pytest.raises(MissingToolError, match="NumPy"):
        decode(coded)


def test_the_error_is_a_value_error_of_this_package() -> None:
    assert issubclass(WireError, SoftkneeError)
    assert issubclass(WireError, ValueError)
    assert sk.wire.WireError is WireError
