"""What goes between the ends of a boundary, without processes: headers and bodies, whole and damaged; misuse."""

import copy
import pickle
import zlib

import pytest
import torch

import softknee as sk
from softknee.errors import InputError, ParameterError, PeerError, SoftkneeError
from softknee.wire import Traffic, WireError
from softknee.wire.boundary import _look_up
from softknee.wire.channel import HEADER_BYTES, KINDS, TYPES, Frame, body_of, bytes_of, open_body, read_header

CPU = torch.device("cpu")
FRAME = Frame("coded", 300, torch.bfloat16, (4, 6, 8, 8), 900, torch.float32, torch.float32, (6, 1, 1, 9))


def test_a_header_comes_back():
    frames = [FRAME]
    for kind in KINDS:
        for dtype in TYPES:
            body = 6 * dtype.itemsize + 8 if kind in ("plain", "gradient") else 100
            frames.append(Frame(kind, 2**40, dtype, (2, 3), body, None if kind == "gradient" else dtype))
    frames.append(Frame("packed", 0, torch.float32, (), 148, None, torch.float32, (1, 33)))
    for frame in frames:
        data = frame.to_bytes()
        assert len(data) == HEADER_BYTES
        assert read_header(data, most=10_000) == frame


def test_any_change_of_a_header_is_seen():
    data = FRAME.to_bytes()
    for place in range(len(data)):
        for change in (1, 128, 255):
            altered = bytearray(data)
            altered[place] ^= change
            with pytest.raises(WireError):
                read_header(bytes(altered), most=10_000)
    for length in range(len(data)):
        with pytest.raises(WireError):
            read_header(data[:length], most=10_000)


def test_a_header_with_a_right_checksum_may_still_ask_too_much():
    generator = torch.Generator().manual_seed(0)
    for _ in range(2000):
        noise = bytes(torch.randint(256, (HEADER_BYTES - 9,), generator=generator).tolist())
        noise = b"SKNB\x02" + bytes(byte % 6 for byte in noise[:20]) + noise[20:]
        with pytest.raises(WireError):
            read_header(noise + zlib.crc32(noise).to_bytes(4, "little"), most=10_000)
    for frame, says in (
        (Frame("plain", 0, torch.float32, (2**20, 2**20), 2**42 + 8), "at most 10,000 are accepted"),
        (Frame("packed", 0, torch.float32, (10,), 2**40), "no body of packed activations"),
        (Frame("packed", 0, torch.float32, (10,), 7), "no body"),
        (Frame("plain", 0, torch.float32, (10,), 40), "no body"),
        (Frame("gradient", 0, torch.float32, (10,), 48, None, torch.float32, (1, 33)), "no body"),
        (Frame("packed", 0, torch.float32, (10,), 400, None, torch.float32, (1, 2, 3, 4, 5)), "a table of shape"),
        (Frame("packed", 0, torch.float32, (10,), 2**20, None, torch.float32, (1, 100_000)), "a table of shape"),
        (Frame("packed", 0, torch.float32, (10,), 2**20, None, torch.float32, (0, 33)), "a table of shape"),
        (Frame("packed", 0, torch.float32, (10,), 2**20, None, torch.float32, (10, 33, 5)), "a table of shape"),
        (
            Frame("coded", 0, torch.float32, (100, 10), 2**30, None, torch.float64, (100, 10, 2**16)),
            "65,536,000 numbers",
        ),
        (Frame("coded", 0, torch.float32, (10,), 4 * 10 + 2**20 + 9), "no body of coded"),
        (Frame("packed", 0, torch.float32, (2**40,) * 3, 100), "the shape"),
    ):
        with pytest.raises(WireError, match=says):
            read_header(frame.to_bytes(), most=10_000)


def test_a_shape_that_no_header_holds_is_refused():
    with pytest.raises(InputError, match="too many dimensions"):
        Frame("plain", 0, torch.float32, (2**20,) * 40, 8).to_bytes()


def test_bodies_come_apart_and_damage_is_seen():
    table, payload = bytes_of(torch.randn(6, 1, 1, 9)), torch.arange(100, dtype=torch.uint8)
    body = body_of(table, payload, device=CPU)
    assert all(torch.equal(a, b) for a, b in zip(open_body(FRAME, body), (table, payload), strict=True))
    for place in range(len(body)):
        altered = body.clone()
        altered[place] ^= 1
        with pytest.raises(WireError, match="altered"):
            open_body(FRAME, altered)
    for length in (*range(8, 40), len(body) - 1):
        with pytest.raises(WireError, match="altered"):
            open_body(FRAME, body[:length])


@pytest.mark.parametrize("shape", [(1,), (3, 1), (3, 4), (4,)])
def test_values_are_those_of_the_layer(shape: tuple[int, ...]):
    symbols = torch.randint(5, (2, 3, 4), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    table = torch.randn(*shape, 5)
    expected = table.expand(2, 3, 4, 5).gather(-1, symbols.long()[..., None])[..., 0]
    assert torch.equal(_look_up(table, symbols, torch.float32), expected)
    assert _look_up(table, symbols, torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(WireError, match="none of its symbols"):
        _look_up(torch.randn(7, 5), symbols, torch.float32)


def test_misuse_is_told():
    layer = sk.nn.SQUAFP(k=16, q=0.25)
    for given in ({}, {"layer": layer}, {"to": 1}, {"layer": layer, "frm": 0}, {"layer": layer, "to": 1, "frm": 0}):
        with pytest.raises(ParameterError, match=r"Boundary\(layer, to=rank\)"):
            sk.wire.Boundary(**given)
    with pytest.raises(ParameterError, match="as_sampled"):
        sk.wire.Boundary(layer.as_soft(), to=1)  # pyright: ignore
    with pytest.raises(ParameterError, match="Did you mean 'huffman'"):
        sk.wire.Boundary(layer, to=1, coder="hufman")
    with pytest.raises(ParameterError, match="float32 or bfloat16"):
        sk.wire.Boundary(layer, to=1, gradients=torch.float16)
    with pytest.raises(ParameterError, match="Boundary: most must be a whole number of at least 0, and 'a'"):
        sk.wire.Boundary(frm=0, most="a")  # pyright: ignore
    with pytest.raises(ParameterError, match="init_process_group"):
        sk.wire.Boundary(layer, to=1)
    for taken in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(ParameterError, match="neither copied nor stored"):
            taken(sk.wire.Boundary.__new__(sk.wire.Boundary))
    assert issubclass(PeerError, SoftkneeError)
    assert issubclass(PeerError, TimeoutError)


def test_traffic_adds_up():
    traffic = Traffic(messages=1, activations=100, payload=50, tables=10, headers=20, gradients=400, gradient_headers=8)
    assert (traffic.forward, traffic.backward, traffic.bits) == (80, 408, 6.4)
    assert (traffic.float32, traffic.bfloat16, traffic.reduction) == (400, 200, 5.0)
    assert (Traffic().bits, Traffic().reduction) == (0.0, 1.0)
