"""Examples that stay on a disk as bytes, for data that no memory holds: rows of a file, read when they are needed."""

from __future__ import annotations

import os
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
        mean, spread = (torch.tensor(one, device=device).reshape(-1, 1, 1) for one in (self.mean, self.spread))
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
        return [pool.submit(self._read, *one) for one in zip(rows, room.split(_TASK), strict=True)]

    def _begin(self, which: Tensor, pool: ThreadPoolExecutor) -> tuple[Tensor, list[Future[None]]]:
        room = torch.empty(len(which), *self.image, dtype=torch.uint8)
        return room, self.submit(which, room, pool)

    def _read(self, rows: Tensor, room: Tensor) -> None:
        # Not mapped: a file that is cut while it is mapped ends the process, and here it is a sentence.
        lines: Any = room.flatten(1).numpy()
        try:
            with self.path.open("rb", buffering=0) as file:
                if hasattr(os, "posix_fadvise"):  # what follows a row on the disk is hardly ever asked for next
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                for row, line in zip(rows.tolist(), lines, strict=True):
                    file.seek(row * line.nbytes)
                    if not _filled(file.readinto, line):
                        raise DataError(f"'{self.path}' ends before its row {row:,}: it was cut. Make it anew.")
        except OSError as error:
            raise DataError(f"'{self.path}' could not be read ({error.strerror or error}).") from error

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What would need all examples at once is told that they are not there."""
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
    for one in reading:
        one.result()
