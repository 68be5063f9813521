"""Brings the batches of an epoch from the disk to where they are trained on, while the ones before are trained on.

    disk  --threads-->  three slots in (pinned) host memory  --own stream-->  two on the device  -->  `room`

A captured step reads `room`, whose place stays the same. The threads only read files: another thread's call of CUDA
would break a recording. All copies are issued by the thread that trains, and ordered by events:

    a slot is read into again      when its copy to the device has arrived (the host waits for it)
    a copy to the device begins    when what lay there before has gone to `room`
    `room` is written to           when the copy has arrived, and, on the stream of the steps, after the step before
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from .streamed import READERS, Streamed, normalised

_SLOTS = 3  # batches in host memory: one that is on its way to the device, and two that are read


class Feed:
    """The batches of `x`; to be used as a context, which ends its threads.

    Args:
        orders: how many replicas see the examples in an order of their own; 1 where all share one.
        batch: the largest number of examples of a replica in a step.

    room: [orders, batch, *image] in uint8 on the device: the batch that `take` brought.
    """

    def __init__(self, x: Streamed, *, orders: int, batch: int, device: torch.device) -> None:
        self.x, self.batch = x, batch
        shape, on_gpu = (orders, batch, *x.image), device.type == "cuda"
        self.room = torch.zeros(shape, dtype=torch.uint8, device=device)
        # Made once: a captured step must not bring anything from the host.
        self._constants = x.constants(device)
        self._slots = [torch.empty(shape, dtype=torch.uint8, pin_memory=on_gpu) for _ in range(_SLOTS)]
        self._bridge = _Bridge(self.room) if on_gpu else None
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="softknee-feed")
        self._order = torch.zeros(orders, 0, dtype=torch.int64)
        self._free: list[Tensor] = []
        self._coming: deque[tuple[Tensor, list[Future[None]]]] = deque()
        self._begun = 0  # examples of this epoch that are read or being read, of each order

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: Any) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def begin(self, order: Tensor) -> None:
        """An epoch in this order, [orders, n]: its first batches are read from now on."""
        assert not self._coming, "the epoch before was not taken to its end"
        self._order, self._begun = order.cpu(), 0
        if self._bridge is not None:
            self._bridge.wait()
        self._free = list(self._slots)
        self._read_ahead()

    def take(self) -> None:
        """The next batch into `room`; of the last of an epoch there may be fewer than `batch`."""
        if self._bridge is not None:
            self._bridge.wait()
        self._read_ahead()
        slot, reading = self._coming.popleft()
        for one in reading:
            one.result()
        if self._bridge is None:
            self.room.copy_(slot)
        else:
            self._bridge.bring(slot)
        self._free.append(slot)

    def images(self, size: int, *, ready: bool) -> Tensor:
        """The first `size` of each order, [orders, size, ...]: as examples where they are to be ready, or as bytes."""
        found = self.room[:, :size]
        return self.x.shaped(normalised(found, *self._constants) if ready else found)

    def _read_ahead(self) -> None:
        while self._free and self._begun < self._order.shape[1]:
            slot = self._free.pop()
            which = self._order[:, self._begun : self._begun + self.batch]
            rows = [self.x.submit(one, slot[index, : len(one)], self._pool) for index, one in enumerate(which)]
            self._coming.append((slot, [one for each in rows for one in each]))
            self._begun += which.shape[1]


class _Bridge:
    """From pinned host memory to `room` on a GPU, on a stream of its own, so that a step can run meanwhile."""

    def __init__(self, room: Tensor) -> None:
        self.room, self.stream = room, torch.cuda.Stream(room.device)
        self.staged = [torch.zeros_like(room) for _ in range(2)]
        # `blocking`: who waits for them sleeps, and leaves the processor to the threads that read.
        self.arrived = [torch.cuda.Event(blocking=True) for _ in range(2)]
        self.used = [torch.cuda.Event() for _ in range(2)]
        self.turn = 0
        self.stream.wait_stream(torch.cuda.current_stream(room.device))  # which has made `staged`

    def bring(self, slot: Tensor) -> None:
        """Begin to copy; the current stream waits for it, and the host does not."""
        staged, arrived, used = self.staged[self.turn], self.arrived[self.turn], self.used[self.turn]
        with torch.cuda.stream(self.stream):
            self.stream.wait_event(used)  # nothing to wait for where it was never recorded
            staged.copy_(slot, non_blocking=True)
            arrived.record(self.stream)
        current = torch.cuda.current_stream(self.room.device)
        current.wait_event(arrived)
        self.room.copy_(staged)
        used.record(current)
        self.turn = 1 - self.turn

    def wait(self) -> None:
        """Until the last slot has left host memory."""
        self.arrived[1 - self.turn].synchronize()
