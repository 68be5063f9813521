r"""A connection of two ranks over TCP that hands out bytes, and never more of them than the caller has room for.

gloo cannot be used here. It ends the whole process (`gloo::EnforceNotMet`, exit -6) where a message is longer than the
buffer that waits for it, on a thread of its own, where nothing can be caught; only the sender knows the length. So no
size of the buffer, and no order of the messages, protects a receiver. A stream has no such lengths: the receiving end
reads the bytes that it asked for, and what else may follow stays with the kernel.

How two ends meet, through the store of the process group, which only the job's own ranks can read:

    sending end      listens, and puts its addresses, its port and two random keys into the store
    receiving end    connects to the first address that answers the first key with the second
"""

from __future__ import annotations

import contextlib
import ctypes
import hmac
import json
import os
import secrets
import selectors
import socket
import struct
import threading
import time
import weakref
from collections import deque
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

_KEY_BYTES = 32
_MOST_CARD_BYTES = 4096  # what the sending end leaves in the store
_MOST_ADDRESSES = 16
_MOST_GUESTS = 16  # at the door at once
_GREETING_SECONDS = 5.0  # that an address may take to answer before the next is tried
_PIECE = 1 << 20  # bytes of one read or write


class Connection:
    """Bytes to and from the other end. A thread of its own sends, so that both ends may send at the same time.

    Every method raises TimeoutError when its time is over, and ConnectionError when the other end is gone.
    """

    def __init__(self, store: Any, *, listens: bool, timeout: float) -> None:
        end = time.monotonic() + timeout
        self._in = _accepted(store, end) if listens else _connected(store, end, timeout)
        self._in.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._outbox = _Outbox(self._in.dup())
        threading.Thread(target=self._outbox.run, name="softknee-boundary", daemon=True).start()
        # The thread holds the outbox alone, so a boundary that nobody closed is collected, and this ends the thread.
        self._end = weakref.finalize(self, _shut, self._in, self._outbox)

    def send(self, tensor: Tensor) -> None:
        """Put the bytes of a contiguous uint8 tensor on their way; it must not change until they are sent."""
        self._outbox.put(tensor)

    def wait_for_sent(self, most: int, timeout: float) -> None:
        """Until at most so many tensors are on their way."""
        self._outbox.wait(most, timeout)

    def receive(self, count: int, timeout: float) -> Tensor:
        """The next `count` bytes. The caller has held their number against what it agreed to."""
        buffer = torch.empty(count, dtype=torch.uint8)
        self._read_into(_memory(buffer), time.monotonic() + timeout)
        return buffer

    def drop(self, count: int, timeout: float) -> None:
        """Read so many bytes and keep none."""
        end, piece = time.monotonic() + timeout, memoryview(bytearray(min(count, _PIECE)))
        while count:
            self._read_into(piece[:count], end)
            count -= min(count, len(piece))

    def _read_into(self, view: memoryview, end: float) -> None:
        at = 0
        while at < len(view):
            self._in.settimeout(_left(end))
            count = self._in.recv_into(view[at : at + _PIECE])
            if not count:
                raise ConnectionError("The connection has ended.")
            at += count

    def close(self) -> None:
        self._end()


class _Outbox:
    """What is on its way, and the thread that sends it."""

    def __init__(self, out: socket.socket) -> None:
        self._socket = out
        # Not None: the two objects share one description, which must not go back to blocking reads.
        self._socket.settimeout(_GREETING_SECONDS)
        self._waiting: deque[Tensor] = deque()
        self._changed = threading.Condition()
        self._error: OSError | None = None
        self._closed = False

    def put(self, tensor: Tensor) -> None:
        with self._changed:
            self._require_open()
            self._waiting.append(tensor)
            self._changed.notify_all()

    def wait(self, most: int, timeout: float) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: len(self._waiting) <= most or self._error or self._closed, timeout)
            self._require_open()
            if not done:
                raise TimeoutError("The other end does not read.")

    def _require_open(self) -> None:
        if self._error is not None:
            raise ConnectionError(str(self._error)) from self._error
        if self._closed:
            raise ConnectionError("The connection was closed.")

    def run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    break
                tensor = self._waiting[0]  # it stays in the list until it is sent, which keeps its memory
            try:
                self._write(_memory(tensor))
            except OSError as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                break
            with self._changed:
                self._waiting.popleft()
                self._changed.notify_all()
        self._socket.close()

    def _write(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            try:
                at += self._socket.send(view[at : at + _PIECE])
            except TimeoutError:  # how long is too long is for `wait` to say; `close` shuts the socket down
                continue

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _shut(own: socket.socket, outbox: _Outbox) -> None:
    outbox.close()
    with contextlib.suppress(OSError):
        own.shutdown(socket.SHUT_RDWR)
    own.close()


def _memory(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, not a copy; without NumPy, which coding does not need."""
    count = tensor.numel()
    if not count:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * count).from_address(tensor.data_ptr())).cast("B")


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("The time is over.")
    return left


def _accepted(store: Any, end: float) -> socket.socket:
    """The end that listens. Strangers at the door are heard side by side, so that none holds up the right one."""
    keys = [secrets.token_bytes(_KEY_BYTES) for _ in range(2)]
    heard: dict[socket.socket, bytes] = {}
    with _listening() as door, selectors.DefaultSelector() as ready:
        door.setblocking(False)
        ready.register(door, selectors.EVENT_READ)
        card = {"hosts": _addresses(), "port": door.getsockname()[1], "keys": [key.hex() for key in keys]}
        store.set("card", json.dumps(card))

        def dismiss(guest: socket.socket) -> None:
            ready.unregister(guest)
            del heard[guest]
            guest.close()

        try:
            while True:
                for guest in [one.fileobj for one, _ in ready.select(_left(end))]:
                    assert isinstance(guest, socket.socket)
                    with contextlib.suppress(BlockingIOError):
                        if guest is door:
                            if len(heard) == _MOST_GUESTS:
                                dismiss(next(iter(heard)))
                            newest, _ = door.accept()
                            newest.setblocking(False)
                            heard[newest] = b""
                            ready.register(newest, selectors.EVENT_READ)
                        elif not _greeted(guest, heard, keys):
                            dismiss(guest)
                        elif len(heard[guest]) > _KEY_BYTES:
                            del heard[guest]  # so that it stays open
                            return guest
        finally:
            for guest in heard:
                guest.close()


def _greeted(guest: socket.socket, heard: dict[socket.socket, bytes], keys: list[bytes]) -> bool:
    """Take what a guest says next: the first key, and after the answer, the second, one byte. False: a stranger."""
    try:
        part = guest.recv(_KEY_BYTES + 1 - len(heard[guest]))
        if not part:
            return False
        before, heard[guest] = len(heard[guest]), heard[guest] + part
        if len(heard[guest]) < _KEY_BYTES:
            return True
        if not hmac.compare_digest(heard[guest][:_KEY_BYTES], keys[0]):
            return False
        if before < _KEY_BYTES:
            guest.sendall(keys[1])
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _listening() -> socket.socket:
    """On every address of this machine, of both families where there are both."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _connected(store: Any, end: float, timeout: float) -> socket.socket:
    """The end that connects."""
    store.wait(["card"], timedelta(seconds=timeout))
    hosts, port, keys = _read_card(bytes(store.get("card")))
    while True:
        for host in hosts:
            try:
                guest = socket.create_connection((host, port), timeout=min(_GREETING_SECONDS, _left(end)))
            except OSError:
                _left(end)
                continue
            try:
                guest.sendall(keys[0])
                if hmac.compare_digest(_read_key(guest), keys[1]):
                    guest.sendall(b"\n")  # the other end goes on when it has this: a guest who gave up is not taken
                    return guest
            except OSError:
                pass  # another process answers at this address, or the right one was too slow and is tried again
            guest.close()
        time.sleep(min(0.05, _left(end)))


def _read_key(own: socket.socket) -> bytes:
    key = b""
    while len(key) < _KEY_BYTES:
        part = own.recv(_KEY_BYTES - len(key))
        if not part:
            raise ConnectionError("No key.")
        key += part
    return key


def _read_card(text: bytes) -> tuple[list[str], int, list[bytes]]:
    try:
        if len(text) > _MOST_CARD_BYTES:
            raise ValueError(f"{len(text):,} bytes")
        card = json.loads(text)
        hosts, port, keys = card["hosts"], card["port"], [bytes.fromhex(key) for key in card["keys"]]
        if not all(isinstance(host, str) for host in hosts) or len(hosts) > _MOST_ADDRESSES:
            raise ValueError("hosts")
        if type(port) is not int or not 0 < port < 2**16 or [len(key) for key in keys] != [_KEY_BYTES] * 2:
            raise ValueError("port or keys")
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError("What the other end left in the store is no address.") from error
    return hosts, port, keys


def _addresses() -> list[str]:
    """Where this machine may be reached, the likeliest first; the key tells whether it was."""
    found: list[str] = []
    if name := os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]:
        found += _of_interface(name)
    if master := os.environ.get("MASTER_ADDR"):
        found += _towards(master)
    with contextlib.suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)]
    found += _towards("192.0.2.1")  # an address for documentation: the way out of this machine; nothing is sent
    here = ["127.0.0.1", "::1"]
    return [*dict.fromkeys(host for host in found if host not in here)][: _MOST_ADDRESSES - len(here)] + here


def _towards(host: str) -> list[str]:
    """The own address of packets to this host; connecting a datagram socket sends none."""
    with contextlib.suppress(OSError):
        family, _, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.connect(target)
            return [str(own.getsockname()[0])]
    return []


def _of_interface(name: str) -> list[str]:
    """The IPv4 address of a network interface, on Linux."""
    try:
        import fcntl
    except ImportError:
        return []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        request = struct.pack("256s", name.encode()[:15])
        return [socket.inet_ntoa(fcntl.ioctl(own.fileno(), 0x8915, request)[20:24])]  # SIOCGIFADDR
    return []
