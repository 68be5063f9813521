r"""A TCP connection between two ranks, from which no more bytes are read than the receiver has memory for.

gloo cannot be used here. Where a message is longer than the receive buffer it aborts the whole process
(`gloo::EnforceNotMet`, exit -6) on a thread of its own, where nothing can be caught, and only the sender knows the
length. From a TCP stream the receiving end reads as many bytes as it expects; further bytes stay in the kernel.

The two ends find each other through the store of the process group, which only the job's own ranks can read:

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
_MOST_RECORD_BYTES = 4096  # what the sending end leaves in the store
_MOST_ADDRESSES = 16
_MOST_CLIENTS = 16  # that may be in the handshake at once
_HANDSHAKE_SECONDS = 5.0  # that an address may take to answer before the next is tried
_PIECE = 1 << 20  # bytes of one read or write


class Connection:
    """Bytes to and from the other end. A thread of its own sends, so that both ends may send at the same time.

    Every method raises TimeoutError when its time is over, and ConnectionError when the other end is gone.
    """

    def __init__(self, store: Any, *, listens: bool, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._in = _accept(store, deadline) if listens else _connect(store, deadline, timeout)
        self._in.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._outbox = _Outbox(self._in.dup())
        threading.Thread(target=self._outbox.run, name="softknee-boundary", daemon=True).start()
        # The thread holds the outbox alone, so a boundary that nobody closed is collected, and this ends the thread.
        self._finalizer = weakref.finalize(self, _shut_down, self._in, self._outbox)

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
        deadline, piece = time.monotonic() + timeout, memoryview(bytearray(min(count, _PIECE)))
        while count:
            self._read_into(piece[:count], deadline)
            count -= min(count, len(piece))

    def _read_into(self, view: memoryview, deadline: float) -> None:
        offset = 0
        while offset < len(view):
            self._in.settimeout(_seconds_left(deadline))
            count = self._in.recv_into(view[offset : offset + _PIECE])
            if not count:
                raise ConnectionError("The connection has ended.")
            offset += count

    def close(self) -> None:
        self._finalizer()


class _Outbox:
    """The queue of tensors to send, and the loop of the thread that sends them."""

    def __init__(self, out: socket.socket) -> None:
        self._socket = out
        # Not None: the two objects share one description, which must not go back to blocking reads.
        self._socket.settimeout(_HANDSHAKE_SECONDS)
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
        offset = 0
        while offset < len(view):
            try:
                offset += self._socket.send(view[offset : offset + _PIECE])
            except TimeoutError:  # how long is too long is for `wait` to say; `close` shuts the socket down
                continue

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _shut_down(connection: socket.socket, outbox: _Outbox) -> None:
    outbox.close()
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _memory(tensor: Tensor) -> memoryview:
    """The bytes of a tensor, not a copy; without NumPy, which coding does not need."""
    count = tensor.numel()
    if not count:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * count).from_address(tensor.data_ptr())).cast("B")


def _seconds_left(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("The time is over.")
    return seconds


def _accept(store: Any, deadline: float) -> socket.socket:
    """The end that listens. It reads from all clients side by side, so that a stranger does not delay the right one."""
    keys = [secrets.token_bytes(_KEY_BYTES) for _ in range(2)]
    received: dict[socket.socket, bytes] = {}
    with _listen() as listener, selectors.DefaultSelector() as selector:
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        record = {"hosts": _addresses(), "port": listener.getsockname()[1], "keys": [key.hex() for key in keys]}
        store.set("card", json.dumps(record))

        def drop_client(client: socket.socket) -> None:
            selector.unregister(client)
            del received[client]
            client.close()

        try:
            while True:
                for client in [key.fileobj for key, _ in selector.select(_seconds_left(deadline))]:
                    assert isinstance(client, socket.socket)
                    with contextlib.suppress(BlockingIOError):
                        if client is listener:
                            if len(received) == _MOST_CLIENTS:
                                drop_client(next(iter(received)))
                            accepted, _ = listener.accept()
                            accepted.setblocking(False)
                            received[accepted] = b""
                            selector.register(accepted, selectors.EVENT_READ)
                        elif not _check_client(client, received, keys):
                            drop_client(client)
                        elif len(received[client]) > _KEY_BYTES:
                            del received[client]  # so that it stays open
                            return client
        finally:
            for client in received:
                client.close()


def _check_client(client: socket.socket, received: dict[socket.socket, bytes], keys: list[bytes]) -> bool:
    """Read what a client sends next: the first key, then, after the second key was sent to it, one byte.

    False if it is not the other end.
    """
    try:
        part = client.recv(_KEY_BYTES + 1 - len(received[client]))
        if not part:
            return False
        before, received[client] = len(received[client]), received[client] + part
        if len(received[client]) < _KEY_BYTES:
            return True
        if not hmac.compare_digest(received[client][:_KEY_BYTES], keys[0]):
            return False
        if before < _KEY_BYTES:
            client.sendall(keys[1])
    except BlockingIOError:
        raise
    except OSError:
        return False
    return True


def _listen() -> socket.socket:
    """On every address of this machine, of both families where there are both."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _connect(store: Any, deadline: float, timeout: float) -> socket.socket:
    """The end that connects."""
    store.wait(["card"], timedelta(seconds=timeout))
    hosts, port, keys = _read_record(bytes(store.get("card")))
    while True:
        for host in hosts:
            try:
                client = socket.create_connection(
                    (host, port), timeout=min(_HANDSHAKE_SECONDS, _seconds_left(deadline))
                )
            except OSError:
                _seconds_left(deadline)
                continue
            try:
                client.sendall(keys[0])
                if hmac.compare_digest(_read_key(client), keys[1]):
                    client.sendall(b"\n")  # ends the handshake: a client that gave up is not accepted
                    return client
            except OSError:
                pass  # another process answers at this address, or the right process was too slow and is tried again
            client.close()
        time.sleep(min(0.05, _seconds_left(deadline)))


def _read_key(client: socket.socket) -> bytes:
    key = b""
    while len(key) < _KEY_BYTES:
        part = client.recv(_KEY_BYTES - len(key))
        if not part:
            raise ConnectionError("No key.")
        key += part
    return key


def _read_record(text: bytes) -> tuple[list[str], int, list[bytes]]:
    try:
        if len(text) > _MOST_RECORD_BYTES:
            raise ValueError(f"{len(text):,} bytes")
        record = json.loads(text)
        hosts, port, keys = record["hosts"], record["port"], [bytes.fromhex(key) for key in record["keys"]]
        if not all(isinstance(host, str) for host in hosts) or len(hosts) > _MOST_ADDRESSES:
            raise ValueError("hosts")
        if type(port) is not int or not 0 < port < 2**16 or [len(key) for key in keys] != [_KEY_BYTES] * 2:
            raise ValueError("port or keys")
    except (ValueError, KeyError, TypeError) as error:
        raise ConnectionError("What the other end left in the store is no address.") from error
    return hosts, port, keys


def _addresses() -> list[str]:
    """Addresses of this machine, the likeliest first; the keys show whether the right process answered."""
    addresses: list[str] = []
    if name := os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]:
        addresses += _interface_address(name)
    if master := os.environ.get("MASTER_ADDR"):
        addresses += _local_address_to(master)
    with contextlib.suppress(OSError):
        addresses += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)]
    addresses += _local_address_to("192.0.2.1")  # reserved for documentation: the default route; nothing is sent
    loopback = ["127.0.0.1", "::1"]
    others = list(dict.fromkeys(host for host in addresses if host not in loopback))
    return others[: _MOST_ADDRESSES - len(loopback)] + loopback


def _local_address_to(host: str) -> list[str]:
    """The local address of packets to this host; connecting a datagram socket sends none."""
    with contextlib.suppress(OSError):
        family, _, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            return [str(probe.getsockname()[0])]
    return []


def _interface_address(name: str) -> list[str]:
    """The IPv4 address of a network interface, on Linux."""
    try:
        import fcntl
    except ImportError:
        return []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", name.encode()[:15])
        return [socket.inet_ntoa(fcntl.ioctl(probe.fileno(), 0x8915, request)[20:24])]  # SIOCGIFADDR
    return []
