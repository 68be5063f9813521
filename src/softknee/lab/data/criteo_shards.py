"""Criteo's rows, hashed once and kept as plain arrays (.npy) that are mapped into memory, not read into it.

A folder of shards has, for every 2^20 rows, three files: labels (rows,) in uint8, numbers (13, rows) in int32 and
buckets (26, rows) in int16, so that a column lies in one piece: 105 bytes a row, 4.8 GB for Kaggle's 45,840,617 rows.
meta.json says how many rows each shard has, the numbers of buckets, and the SHA-256 of the text they were made from.
Numbers are kept as they were; what a model takes is made when rows are read (`features`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from ...errors import DataError, ParameterError
from ...files import WriteError
from ..compressed import opened, read_bytes
from ..whole_folder import sync_folder
from .criteo_text import BUCKETS, CATEGORIES, NUMBERS, Block, read_blocks
from .reading import numpy

ROWS = 2**20
_FORMAT = "softknee criteo shards 1"
_KINDS = {"labels": ("uint8", ()), "numbers": ("int32", (NUMBERS,)), "buckets": ("int16", (CATEGORIES,))}


def convert(
    raw: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    rows: int = ROWS,
    report: Callable[[str], object] = lambda _: None,
) -> Shards:
    """Make shards of Criteo's text, plain or gzipped: the folder is there whole afterwards, or not at all.

    The text is read line by line; memory is taken for one shard (110 MB), whatever the length of the text.

    Args:
        rows: of a shard; the last has fewer.
        report: is told now and then how far it is.
    """
    if rows < 1:
        raise ParameterError(f"A shard has at least one row, and rows={rows} was given.")
    path, target = Path(raw), Path(out).resolve()
    if not path.is_file():
        raise DataError(
            f"There is no file '{path}'. Criteo's text is usually had as train.txt from the Criteo Display Advertising "
            "Challenge (Kaggle) or from ailab.criteo.com; softknee downloads nothing."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WriteError(f"'{target}' is there already and not empty. Give the shards a folder of their own.")
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        fresh.mkdir(parents=True)
        with opened(path, what="text of Criteo") as stream:
            _write(_Summed(stream), path, fresh, rows, report)
        if target.is_dir():
            target.rmdir()
        fresh.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise _unwritten(target, error) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return Shards(target)


def _unwritten(folder: Path, error: OSError) -> WriteError:
    return WriteError(
        f"The shards could not be written to '{folder}' ({error.strerror or error}). Choose a folder that can be "
        "written to and has space: about 105 bytes for each row."
    )


class _Summed:
    """A stream that keeps the checksum of what was read from it."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self._stream, self._digest = stream, hashlib.sha256()

    def readline(self, limit: int = -1) -> bytes:
        line = self._stream.readline(limit)
        self._digest.update(line)
        return line

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def _write(stream: Any, path: Path, folder: Path, rows: int, report: Callable[[str], object]) -> None:
    np = numpy()
    room = {kind: np.empty((*lead, rows), dtype=dtype) for kind, (dtype, lead) in _KINDS.items()}
    counts: list[int] = []
    filled = 0

    def close_shard() -> None:
        try:
            for kind, array in room.items():
                np.save(folder / _file(len(counts), kind), array[..., :filled], allow_pickle=False)
        except OSError as error:
            raise _unwritten(folder, error) from error
        counts.append(filled)

    for block in read_blocks(stream, path):
        at = 0
        while at < len(block):
            take = min(rows - filled, len(block) - at)
            for kind, array in room.items():
                array[..., filled : filled + take] = getattr(block, kind)[..., at : at + take]
            at, filled = at + take, filled + take
            if filled == rows:
                close_shard()
                filled = 0
        report(f"{sum(counts) + filled:,} rows")
    if filled:
        close_shard()
    if not counts:
        raise DataError(f"'{path}' is empty. Take it anew.")
    meta = {"format": _FORMAT, "rows": counts, "buckets": list(BUCKETS), "sha256": stream.hexdigest()}
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")


class Shards:
    """The rows of a folder of shards, in the order of the text. Opening reads meta.json alone."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        meta = _meta(self.folder)
        self.counts: tuple[int, ...] = tuple(meta["rows"])
        self.sha256: str = str(meta.get("sha256", ""))
        self._arrays = lru_cache(maxsize=6)(self._open)

    def __len__(self) -> int:
        return sum(self.counts)

    def blocks(self, *, size: int, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        """The rows from `start` to before `stop` in their order, `size` at a time; the last may have fewer.

        Memory is taken for one block, so that a single pass over all rows needs no more.
        """
        np = numpy()
        stop = len(self) if stop is None else min(stop, len(self))
        for first in range(start, stop, size):
            pieces = list(self._pieces(first, min(first + size, stop)))
            joined = {kind: np.concatenate([one[kind] for one in pieces], axis=-1) for kind in _KINDS}
            if (joined["buckets"].max(axis=1) >= np.array(BUCKETS)).any() or joined["buckets"].min() < 0:
                raise DataError(f"'{self.folder}' has buckets beyond their number. Make the shards anew.")
            if joined["labels"].max() > 1:
                raise DataError(f"'{self.folder}' has a label that is neither 0 nor 1. Make the shards anew.")
            yield Block(**joined)

    def _pieces(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        begin = 0
        for number, count in enumerate(self.counts):
            low, high = max(start - begin, 0), min(stop - begin, count)
            if low < high:
                yield {kind: self._arrays(number, kind)[..., low:high] for kind in _KINDS}
            begin += count

    def _open(self, number: int, kind: str) -> Any:
        np = numpy()
        path, (dtype, lead) = self.folder / _file(number, kind), _KINDS[kind]
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"'{path}' could not be read ({error}). Make the shards anew.") from error
        if array.dtype != dtype or array.shape != (*lead, self.counts[number]):
            raise DataError(
                f"'{path}' holds {array.shape} in {array.dtype}, not what its meta.json says. Make the shards anew."
            )
        return array


def _file(number: int, kind: str) -> str:
    return f"{number:05d}-{kind}.npy"


def _meta(folder: Path) -> dict[str, Any]:
    path = folder / "meta.json"
    if not path.is_file():
        raise DataError(f"'{folder}' is no folder of Criteo's shards: it has no meta.json. Make them with: {COMMAND}")
    try:
        meta = json.loads(read_bytes(path, what="description of shards", most_bytes=2**16))
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"'{path}' is not JSON ({error}). Make the shards anew.") from error
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT or meta.get("buckets") != list(BUCKETS):
        raise DataError(f"'{path}' is not of the format '{_FORMAT}', or of other numbers of buckets. Make them anew.")
    rows = meta.get("rows")
    if not isinstance(rows, list) or not rows or not all(type(one) is int and one > 0 for one in rows):
        raise DataError(f"'{path}' does not say how many rows each shard has. Make the shards anew.")
    return meta


COMMAND = "softknee data criteo RAW OUT"
