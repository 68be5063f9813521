"""Examples that stay on a disk as bytes, for data that no memory holds: rows of a file, read when they are needed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import DataError, InputError

READERS = 16  # threads: they wait for the disk most of the time, and a disk is quickest with many questions at once
_TASK = 16  # rows that one of them reads in a turn


@dataclass(frozen=True, kw_only=True, eq=False)
class Streamed:
    """Images in a file of bytes, row after row; as examples they are floats, (level - mean) / spread.

    It has as much of a tensor as training and judging need: `len`, `shape`, and `[...]`, which reads. `Replicas.fit`
    and `Replicas.predict` take it in the place of a tensor, and read ahead of what they compute.

    Args:
        path: the file, [rows, *image] in uint8 and nothing else.
        image: channels, height and width of a row.
        places: the rows that the examples are, in their order, [n].
        mean, spread: of each channel, in levels of 0 to 255.
        flat: each example is one row of numbers.
        sha256: of the file, as it was recorded when it was made.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(bytes([10, 30, 50, 70, 90, 110])); file.flush()
    ...     scale = {"mean": (20.0,), "spread": (10.0,)}
    ...     x = Streamed(path=Path(file.name), image=(1, 1, 2), places=torch.tensor([2, 0]), **scale)
    ...     (tuple(x.shape), x[:].flatten().tolist(), x.levels(torch.tensor([1])).flatten().tolist())
    ((2, 1, 1, 2), [7.0, 9.0, -1.0, 1.0], [10, 30])
    """

    path: Path
    image: tuple[int, int, int]
    places: Tensor
    mean: tuple[float, ...]
    spread: tuple[float, ...]
    flat: bool = False
    sha256: str = ""

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> torch.Size:
        channels, height, width = self.image
        return torch.Size((len(self), channels * height * width) if self.flat else (len(self), *self.image))

    def __getitem__(self, which: slice | Tensor) -> Tensor:
        """Some of the examples as floats, in memory."""
        return self.ready(self.levels(torch.arange(len(self))[which]))

    def part(self, which: slice) -> Streamed:
        """Some of the examples, still on the disk."""
        return replace(self, places=self.places[which])

    def ready(self, levels: Tensor) -> Tensor:
        """Bytes [..., *image] as examples, where they are; to the bit what `ImageSet.ready` makes of them."""
        return self.shaped(normalised(levels, *self.constants(levels.device)))

    def constants(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Mean and spread on the device."""
        mean, spread = (torch.tensor(values, device=device).reshape(-1, 1, 1) for values in (self.mean, self.spread))
        return mean, spread

    def shaped(self, images: Tensor) -> Tensor:
        """Images [..., *image] in the shape of examples."""
        return images.flatten(-3) if self.flat else images

    def levels(self, which: Tensor) -> Tensor:
        """The bytes of these examples, [k, *image], in memory."""
        with ThreadPoolExecutor(READERS) as pool:
            room, reading = self._begin(which, pool)
            _wait(reading)
        return room

    def batches(self, size: int, device: torch.device | str) -> Iterator[Tensor]:
        """All examples in their order on the device, `size` at a time; the next ones are read meanwhile."""
        parts = torch.arange(len(self)).split(size)
        with ThreadPoolExecutor(READERS) as pool:
            ahead = self._begin(parts[0], pool)
            for place in range(len(parts)):
                room, reading = ahead
                _wait(reading)
                if place + 1 < len(parts):
                    ahead = self._begin(parts[place + 1], pool)
                yield self.ready(room.to(device))

    def submit(self, which: Tensor, room: Tensor, pool: ThreadPoolExecutor) -> list[Future[None]]:
        """Have these examples read into `room`, uint8 [k, *image], by the threads of a pool."""
        rows = self.places[which].split(_TASK)
        return [pool.submit(self._read, *task) for task in zip(rows, room.split(_TASK), strict=True)]

    def _begin(self, which: Tensor, pool: ThreadPoolExecutor) -> tuple[Tensor, list[Future[None]]]:
        room = torch.empty(len(which), *self.image, dtype=torch.uint8)
        return room, self.submit(which, room, pool)

    def _read(self, rows: Tensor, room: Tensor) -> None:
        # Not mapped: a file that is cut while it is mapped ends the process, and here it is a sentence.
        lines: Any = room.flatten(1).numpy()
        try:
            with self.path.open("rb", buffering=0) as file:
                if hasattr(os, "posix_fadvise"):  # the row after this one is hardly ever the next
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                for row, line in zip(rows.tolist(), lines, strict=True):
                    file.seek(row * line.nbytes)
                    if not _filled(file.readinto, line):
                        raise DataError(f"'{self.path}' ends before its row {row:,}: it was cut. Make it again.")
        except OSError as error:
            raise DataError(f"'{self.path}' could not be read ({error.strerror or error}).") from error

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse a function of torch that needs all examples at once."""
        name = getattr(func, "__name__", "this")
        raise InputError(
            f"torch's {name} needs all examples in memory, and these are read from a disk. Take a part of them: "
            "x[:1000], or a study's --set data.limit=N."
        )


def normalised(levels: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """(level - mean) / spread of each channel, in float32."""
    return levels.float().sub_(mean).div_(spread)


def _filled(read: Callable[[Any], int | None], line: Any) -> bool:
    """Whether so many bytes came; a read may give a part of them."""
    view, done = memoryview(line), 0
    while done < len(view):
        came = read(view[done:])
        if not came:
            return False
        done += came
    return True


def _wait(reading: Sequence[Future[None]]) -> None:
    for task in reading:
        task.result()


# -- batches on their way to the device -------------------------------------------------------------------
#
#     disk  --threads-->  three slots in (pinned) host memory  --own stream-->  two on the device  -->  `room`
#
# A captured step reads `room`, whose place stays the same. The threads only read files: another thread's call of CUDA
# would break a recording. All copies are issued by the thread that trains, and ordered by events:
#
#     a slot is read into again      when its copy to the device has arrived (the host waits for it)
#     a copy to the device begins    when what lay there before has gone to `room`
#     `room` is written to           when the copy has arrived, and, on the stream of the steps, after the step before


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
        _wait(reading)
        if self._bridge is None:
            self.room.copy_(slot)
        else:
            self._bridge.bring(slot)
        self._free.append(slot)

    def images(self, size: int, *, ready: bool) -> Tensor:
        """The first `size` of each order, [orders, size, ...]: as examples where they are to be ready, or as bytes."""
        images = self.room[:, :size]
        return self.x.shaped(normalised(images, *self._constants) if ready else images)

    def _read_ahead(self) -> None:
        while self._free and self._begun < self._order.shape[1]:
            slot = self._free.pop()
            which = self._order[:, self._begun : self._begun + self.batch]
            rows = [self.x.submit(places, slot[index, : len(places)], self._pool) for index, places in enumerate(which)]
            self._coming.append((slot, [task for each in rows for task in each]))
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
