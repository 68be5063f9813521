"""Frames between two processes, sent and received within a time limit; errors name the other rank."""

from __future__ import annotations

import contextlib
import math
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import InputError, MissingToolError, ParameterError, PeerError, WireError, require_number
from .message import MOST_ELEMENTS, MOST_LEVELS, Reader, write_varints
from .packed import from_bytes, to_bytes
from .sockets import Connection

HEADER_BYTES = 96
CHECK_BYTES = 8
KINDS = ("coded", "packed", "plain", "gradient")
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_MAGIC, _VERSION, _CRC_BYTES = b"SKNB", 2, 4
FAREWELL = (_MAGIC + bytes([_VERSION]) + b" farewell").ljust(HEADER_BYTES, b"\0")
_MOST_DIMENSIONS = 16
_SYMBOL_BYTES = 4  # of a coded symbol, at most: a code word of Huffman has up to 24 bits
_MOST_OVERHEAD = 2**20  # bytes of a coded message beyond those: its header and model


@dataclass(frozen=True)
class Frame:
    """The content of a header."""

    kind: str
    number: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    body: int  # bytes
    gradient: torch.dtype | None = None  # the type in which the gradient is wanted
    table_dtype: torch.dtype = torch.float32
    table_shape: tuple[int, ...] = ()  # empty: as in the message before

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def table_bytes(self) -> int:
        return math.prod(self.table_shape) * self.table_dtype.itemsize if self.table_shape else 0

    def to_bytes(self) -> bytes:
        gradient_type = 0 if self.gradient is None else 1 + TYPES.index(self.gradient)
        numbers = write_varints(
            *(KINDS.index(self.kind), self.number, TYPES.index(self.dtype), gradient_type),
            *(len(self.shape), *self.shape),
            *(TYPES.index(self.table_dtype), len(self.table_shape), *self.table_shape),
            self.body,
        )
        start = _MAGIC + bytes([_VERSION]) + numbers
        if len(start) > HEADER_BYTES - _CRC_BYTES:
            raise InputError(
                f"A tensor of shape {self.shape} has too many dimensions for the wire; flatten some of them."
            )
        start = start.ljust(HEADER_BYTES - _CRC_BYTES, b"\0")
        return start + zlib.crc32(start).to_bytes(_CRC_BYTES, "little")


def read_header(data: bytes, *, most: int) -> Frame:
    """The header in these bytes, if it is whole and asks for no more than `most` activations.

    >>> frame = Frame("gradient", 7, torch.float32, (2, 3), 32)
    >>> read_header(frame.to_bytes(), most=100) == frame
    True
    """
    start = data[:-_CRC_BYTES]
    if len(data) != HEADER_BYTES or not data.startswith(_MAGIC):
        raise WireError("These bytes are no header of a Boundary: something else was sent in its group.")
    if data[len(_MAGIC)] != _VERSION:
        raise WireError(
            f"The other end speaks version {data[len(_MAGIC)]} and this one {_VERSION}; use the same softknee on both."
        )
    if zlib.crc32(start).to_bytes(_CRC_BYTES, "little") != data[-_CRC_BYTES:]:
        raise WireError("The header was altered on its way: its checksum is wrong.")
    reader = Reader(start[len(_MAGIC) + 1 :])
    kind = KINDS[reader.number("the kind", most=len(KINDS) - 1)]
    number = reader.number("the number")
    dtype = TYPES[reader.number("the type", most=len(TYPES) - 1)]
    gradient_type = reader.number("the type of the gradient", most=len(TYPES))
    shape = _shape(reader, "the shape")
    table_dtype = TYPES[reader.number("the type of the table", most=len(TYPES) - 1)]
    table_shape = _shape(reader, "the shape of the table")
    body = reader.number("the length of the body")
    if reader.rest().strip(b"\0"):
        raise WireError("The header is damaged: something follows its last number.")
    frame = Frame(
        kind, number, dtype, shape, body, TYPES[gradient_type - 1] if gradient_type else None, table_dtype, table_shape
    )
    _check_lengths(frame, most)
    return frame


def _shape(reader: Reader, what: str) -> tuple[int, ...]:
    shape = tuple(reader.number(what) for _ in range(reader.number(what, most=_MOST_DIMENSIONS)))
    if math.prod(size for size in shape if size) > MOST_ELEMENTS:
        raise WireError(f"The header is damaged: {what} is {shape}.")
    return shape


def _check_lengths(frame: Frame, most: int) -> None:
    """Before memory is taken for the body, hold its length against what it should have."""
    if frame.count > most:
        raise WireError(
            f"The header announces {frame.count:,} activations, and at most {most:,} are accepted. "
            "If that many are expected, allow them with Boundary(..., most=...)."
        )
    fixed = frame.table_bytes + CHECK_BYTES
    if frame.kind in ("plain", "gradient"):
        valid = frame.body == frame.count * frame.dtype.itemsize + CHECK_BYTES and not frame.table_shape
    else:
        valid = fixed <= frame.body <= fixed + _SYMBOL_BYTES * frame.count + _MOST_OVERHEAD
    if frame.table_shape:
        _check_table(frame, most)
    if not valid:
        raise WireError(
            f"The header is damaged: {frame.body:,} bytes are no body of {frame.kind} activations of shape "
            f"{frame.shape}."
        )


def _check_table(frame: Frame, most: int) -> None:
    """A table has (points,) behind the shape of the layer's parameters, which broadcasts against the activations."""
    *rows, points = frame.table_shape
    if not (1 <= points <= MOST_LEVELS and math.prod(rows) and (math.prod(rows) == 1 or broadcasts(rows, frame.shape))):
        raise WireError(
            f"The header is damaged: a table of shape {frame.table_shape} is none of activations of shape "
            f"{frame.shape}."
        )
    if math.prod(frame.table_shape) > max(most, MOST_LEVELS):
        raise WireError(
            f"The header announces a table of {math.prod(frame.table_shape):,} numbers, and at most "
            f"{max(most, MOST_LEVELS):,} are accepted. If that many are expected, allow them with "
            "Boundary(..., most=...)."
        )


def broadcasts(rows: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a shape of parameters broadcasts against that of activations without changing it."""
    pairs = zip(reversed(rows), reversed(shape), strict=False)
    return len(rows) <= len(shape) and all(row in (1, size) for row, size in pairs)


def bytes_of(tensor: Tensor) -> Tensor:
    """The memory of a tensor as uint8, in one row."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def body_of(*parts: Tensor, device: torch.device) -> Tensor:
    """The parts, one after the other, and their check."""
    whole = torch.cat([part.to(device) for part in parts])
    return torch.cat([whole, _check(whole)])


def open_body(frame: Frame, body: Tensor) -> tuple[Tensor, Tensor]:
    """The table's bytes and the payload's, after the check."""
    content = body[:-CHECK_BYTES]
    if not torch.equal(_check(content), body[-CHECK_BYTES:]):
        raise WireError(f"The {frame.kind} activations of message {frame.number} were altered on their way.")
    return content[: frame.table_bytes], content[frame.table_bytes :]


def _check(content: Tensor) -> Tensor:
    if content.is_cuda:
        return bytes_of(content.sum(dtype=torch.int64))
    return from_bytes(zlib.crc32(to_bytes(content)).to_bytes(CHECK_BYTES, "little"), content.device)


DEPTH = 32  # messages that may be on their way before the sender waits for the oldest

_boundary_counts: Counter[tuple[int, int]] = Counter()  # boundaries from one rank to another so far


class Channel:
    """Frames to and from one rank of a group.

    The connection is made by the two ends alone: so the messages never meet those of others (a pipeline's, DDP's).
    On a CPU it is a socket, and on GPUs two groups of NCCL.
    """

    def __init__(self, peer: int, *, sends: bool, group: Any, timeout: float, most: int) -> None:
        if not dist.is_available():
            raise MissingToolError("A Boundary needs torch.distributed, which this torch was built without.")
        if not dist.is_initialized():
            raise ParameterError(
                "A Boundary needs a process group: call torch.distributed.init_process_group in both processes first."
            )
        require_number("Boundary", "timeout", timeout)
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        if isinstance(peer, bool) or not isinstance(peer, int) or not 0 <= peer < size or peer == rank:
            raise ParameterError(
                f"Boundary: the other end is a rank from 0 to {size - 1} and not this one ({rank}), and {peer!r} was "
                "given."
            )
        self.peer, self.timeout, self.most = peer, timeout, most
        world: Any = group if group is not None else dist.group.WORLD
        own_rank, peer_rank = (dist.get_global_rank(world, group_rank) for group_rank in (rank, peer))
        route = (own_rank, peer_rank) if sends else (peer_rank, own_rank)
        on_gpu = "cuda:nccl" in dist.get_backend_config(group)
        self.device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
        name = f"softknee/boundary/{route[0]}-{route[1]}/{_boundary_counts[route]}"
        _boundary_counts[route] += 1
        store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())  # pyright: ignore
        try:
            connection = (
                _Nccl(store, sends=sends, timeout=timeout, device=self.device)
                if on_gpu
                else Connection(store, listens=sends, timeout=timeout)
            )
        except (RuntimeError, OSError) as error:  # a store that waits in vain raises a RuntimeError
            raise PeerError(
                f"Rank {peer} did not make its end of the Boundary within {timeout:g} seconds. Both ends make theirs, "
                "in the same order if there are several."
            ) from error
        self._connection: Any = connection
        self._failure = ""

    def send(self, frame: Frame, body: Tensor) -> None:
        """Put a frame on its way; waits only if many are on their way already."""
        for tensor in (from_bytes(frame.to_bytes(), self.device), body.to(self.device)):
            self._enqueue(tensor)
        self.flush(2 * DEPTH)

    def receive(
        self, what: str, *, require: Callable[[Frame], None] | None = None, hint: str = ""
    ) -> tuple[Frame, Tensor]:
        """The next frame, whose number of activations is not above the limit, and its body.

        require: raises WireError for a header that announces what this end did not agree to; memory for the body is
            taken after it.
        hint: what else may be the cause, for the error that says that nothing came.
        """
        header = to_bytes(self._receive_bytes(HEADER_BYTES, what, hint))
        if header == FAREWELL:
            with contextlib.suppress(PeerError):
                self._enqueue(from_bytes(FAREWELL, self.device))  # the other end waits for it
                self.flush()
            self._failure = (
                f"Rank {self.peer} closed its end of the Boundary when it should send {what}. If it met an error, its "
                "own output says which; else both ends do not take the same steps."
            )
            raise PeerError(self._failure)
        frame = self._read(header, require)
        return frame, self._receive_bytes(frame.body, what)

    def _read(self, header: bytes, require: Callable[[Frame], None] | None = None) -> Frame:
        try:
            frame = read_header(header, most=self.most)
            if require is not None:
                require(frame)
            return frame
        except WireError as error:
            self._failure = str(error)  # how long the body is, which is the next to come, is not known
            raise

    def flush(self, most: int = 0) -> None:
        """Wait until all that was sent is taken, up to so many tensors."""
        self._attempt(lambda: self._connection.wait_for_sent(most, self.timeout), "take a message")

    def close(self) -> None:
        """Both ends: let the last messages arrive, and end the connection, which could lose what it still holds.

        Messages that nobody asked for (the gradient of a step that was left out) are read and dropped.
        """
        try:
            if not self._failure:
                self._exchange_farewells()
        finally:
            self._failure = self._failure or "It was closed."
            self._connection.close()

    def _exchange_farewells(self) -> None:
        self._enqueue(from_bytes(FAREWELL, self.device))
        end, what = time.monotonic() + self.timeout, "a last word"
        while (header := to_bytes(self._receive_bytes(HEADER_BYTES, what))) != FAREWELL:
            count = self._read(header).body
            self._attempt(lambda count=count: self._connection.drop(count, self.timeout), f"send {what}")
            if time.monotonic() > end:
                self._failure = (
                    f"Rank {self.peer} went on sending for {self.timeout:g} seconds after this end closed the "
                    "Boundary; both ends close theirs after the same steps."
                )
                raise PeerError(self._failure)
        self.flush()

    def _enqueue(self, tensor: Tensor) -> None:
        self._attempt(lambda: self._connection.send(tensor), "take a message")

    def _receive_bytes(self, count: int, what: str, hint: str = "") -> Tensor:
        return self._attempt(lambda: self._connection.receive(count, self.timeout), f"send {what}", hint)

    def _attempt(self, operation: Callable[[], Any], what: str, hint: str = "") -> Any:
        if self._failure:
            raise PeerError(f"The Boundary to rank {self.peer} can no longer be used: {self._failure}")
        try:
            return operation()
        except TimeoutError as error:
            self._failure = (
                f"Rank {self.peer} did not {what} within {self.timeout:g} seconds. If it is only slow, give both "
                "ends a longer timeout=; if it waits for something else, both ends do not take the same steps."
                + (hint and f" {hint}")
            )
            raise PeerError(self._failure) from error
        except OSError as error:
            self._failure = (
                f"Rank {self.peer} ended or closed the connection when it should {what}. Its own output says why."
            )
            raise PeerError(self._failure) from error


class _Nccl:
    """The same between GPUs. Each direction has a group of its own: NCCL works off the messages of a group in the
    order they were asked for, so the two directions could wait for each other in one.

    NCCL wants equal lengths on both sides and calls anything else undefined: it moves memory between processes that
    trust each other.
    """

    def __init__(self, store: Any, *, sends: bool, timeout: float, device: torch.device) -> None:
        self._peer_index, self._device, self._timeout = int(sends), device, timedelta(seconds=timeout)
        options = dist.ProcessGroupNCCL.Options()  # pyright: ignore
        options._timeout = self._timeout
        pair: list[Any] = [
            # `dist.new_group` would have every rank of the job take part.
            dist.ProcessGroupNCCL(dist.PrefixStore(which, store), 1 - self._peer_index, 2, options)  # pyright: ignore
            for which in ("activations", "gradients")
        ]
        self._out: Any = pair[0] if sends else pair[1]
        self._in: Any = pair[1] if sends else pair[0]
        self._sent: deque[tuple[Any, Tensor]] = deque()

    def send(self, tensor: Tensor) -> None:
        self._sent.append((self._run(lambda: self._out.send([tensor], self._peer_index, 0)), tensor))

    def wait_for_sent(self, most: int, timeout: float) -> None:
        while len(self._sent) > most:
            self._run(lambda: self._sent[0][0].wait(timedelta(seconds=timeout)))
            self._sent.popleft()

    def receive(self, count: int, timeout: float) -> Tensor:
        buffer = torch.empty(count, dtype=torch.uint8, device=self._device)
        self._run(lambda: self._in.recv([buffer], self._peer_index, 0).wait(timedelta(seconds=timeout)))
        return buffer

    def drop(self, count: int, timeout: float) -> None:
        self.receive(count, timeout)

    def close(self) -> None:
        self._out = self._in = None

    @staticmethod
    def _run(operation: Callable[[], Any]) -> Any:
        try:
            return operation()
        except RuntimeError as error:  # torch has no kinds of its own for NCCL's
            text = str(error).lower()
            late = "timed out" in text or "timeout" in text
            raise (TimeoutError if late else ConnectionError)(str(error)) from error
