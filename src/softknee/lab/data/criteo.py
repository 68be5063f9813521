"""Criteo's display advertising data for a study: was an advertisement clicked, by 13 numbers and 26 categories.

What a model takes is one row of 39 floats: the numbers v as

    log(v)^2 where v > 2,   v where v <= 2,   0 where it is missing

(the transform of the winners of Criteo's challenge; the paper says "log-square-transformed" and no more), then the
bucket of each category as a whole number. `EMBEDDINGS` are the sizes d_k of equation 23, 0 for a category that is taken
one-hot: then a model's first layer has 13 + 701 + 328 = 1042 inputs. (The rule "embedded from 110 buckets on" would
embed the column of 494 buckets, whose printed size is 0. The printed sizes are taken.)

"Smooth activations and reproducibility in deep networks", appendix E.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ...errors import DataError, ParameterError
from ...files import WriteError, new_folder
from .files import data_folder, not_found, numpy, opened, read_bytes

if TYPE_CHECKING:
    import numpy as np


BUCKETS = (1373, 2148, 4847, 9781, 396, 28, 3591, 2798, 14, 7403, 2511, 5598, 9501)
BUCKETS += (46, 4753, 4056, 23, 3828, 5856, 12, 4226, 23, 61, 3098, 494, 5087)  # equation 22
NUMBERS, CATEGORIES = 13, len(BUCKETS)
FIELDS = 1 + NUMBERS + CATEGORIES
MISSING = -(2**31)  # among the numbers; the smallest that occurs is -3
_MISSING_CATEGORY = 2**32
_SHARD_BLOCK = 8192  # lines that are worked on at once: about 8 MB
_LONGEST = 1024  # bytes of a line: 40 fields of at most 11 have 480
_NUMBER = re.compile(rb"(?:-?[0-9]{1,10})?")
_CATEGORY = re.compile(rb"(?:[0-9a-fA-F]{8})?")
_NUMBER_COLUMN = re.compile(b"(?:" + _NUMBER.pattern + rb"\t)*")
_MOST = 2**31 - 1
ROWS = 2**20
_FORMAT = "softknee criteo shards 1"
_KINDS = {"labels": ("uint8", ()), "numbers": ("int32", (NUMBERS,)), "buckets": ("int16", (CATEGORIES,))}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows as columns: labels (rows,) uint8, numbers (13, rows) int32 with `MISSING`, buckets (26, rows) int16."""

    labels: np.ndarray
    numbers: np.ndarray
    buckets: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


class _DamagedError(Exception):
    """Some line of a block is damaged; which one is found out afterwards."""


def read_blocks(stream: BufferedIOBase, path: Path) -> Iterator[Block]:
    """The rows of an opened text, some thousands at a time; a damaged line is refused with its number.

    >>> import io
    >>> line = b"1" + 13 * b"\\t5" + 26 * b"\\t0000002a" + b"\\n"
    >>> block = next(read_blocks(io.BytesIO(2 * line), Path("rows.txt")))
    >>> block.labels.tolist(), block.numbers.shape, block.buckets[:2].tolist()
    ([1, 1], (13, 2), [[105, 105], [619, 619]])
    """
    done = 0
    while True:
        lines: list[bytes] = []
        while len(lines) < _SHARD_BLOCK and (line := stream.readline(_LONGEST)):
            lines.append(line.rstrip(b"\r\n"))
            if len(lines[-1]) == _LONGEST:
                raise DataError(
                    f"'{path}', line {done + len(lines)}: more than {_LONGEST - 1} bytes; {_WANTED}. {_CURE}"
                )
        if not lines:
            return
        try:
            yield _parsed(lines)
        except _DamagedError:
            raise DataError(_sentence(lines, done, path)) from None
        done += len(lines)


def bucket_of(categories: np.ndarray, column: int) -> np.ndarray:
    """The buckets of categories (numbers up to 2^32, in uint64) of one column, counted from 0."""
    np = numpy()

    def multiplied(a: np.ndarray, factor: int) -> np.ndarray:
        return a * np.uint64(factor)  # modulo 2^64, as arrays of NumPy do

    z = categories + np.uint64((column + 1) * 0x9E3779B97F4A7C15 % 2**64)
    z = multiplied(z ^ (z >> np.uint64(30)), 0xBF58476D1CE4E5B9)
    z = multiplied(z ^ (z >> np.uint64(27)), 0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) % np.uint64(BUCKETS[column])).astype(np.int16)


def _parsed(lines: Sequence[bytes]) -> Block:
    np = numpy()
    if any(line.count(b"\t") != FIELDS - 1 for line in lines):
        raise _DamagedError
    fields = b"\t".join(lines).split(b"\t")
    labels = fields[0::FIELDS]
    if not set(labels) <= {b"0", b"1"}:
        raise _DamagedError
    numbers = np.empty((NUMBERS, len(lines)), dtype=np.int32)
    for row in range(NUMBERS):
        column = fields[1 + row :: FIELDS]
        if _NUMBER_COLUMN.fullmatch(b"\t".join([*column, b""])) is None:
            raise _DamagedError
        values = np.array([int(field) if field else MISSING for field in column], dtype=np.int64)
        if (values < MISSING).any() or (values > _MOST).any() or (values == MISSING).sum() != column.count(b""):
            raise _DamagedError
        numbers[row] = values
    buckets = np.empty((CATEGORIES, len(lines)), dtype=np.int16)
    for row in range(CATEGORIES):
        buckets[row] = bucket_of(_categories(fields[1 + NUMBERS + row :: FIELDS]), row)
    return Block(labels=(np.array(labels) == b"1").astype(np.uint8), numbers=numbers, buckets=buckets)


def _categories(column: Sequence[bytes]) -> np.ndarray:
    """Eight hex digits each as a number; nothing as 2^32."""
    np = numpy()
    if not set(map(len, column)) <= {0, 8}:
        raise _DamagedError
    try:
        content = binascii.unhexlify(b"".join([field or b"00000000" for field in column]))
    except binascii.Error as error:
        raise _DamagedError from error
    values = np.frombuffer(content, dtype=">u4").astype(np.uint64)
    values[[at for at, field in enumerate(column) if not field]] = _MISSING_CATEGORY
    return values


_WANTED = f"a row has {FIELDS} fields with tabs between: a label, {NUMBERS} whole numbers, {CATEGORIES} categories"
_CURE = "Get the file again, or take the line out."


def _sentence(lines: Sequence[bytes], done: int, path: Path) -> str:
    for number, line in enumerate(lines, start=done + 1):
        if damage := _damage(line):
            return f"'{path}', line {number}: {damage}. {_CURE}"
    raise AssertionError("a block was refused and each of its lines is whole")


def _damage(line: bytes) -> str:
    """What is wrong with a line; empty for a whole one."""
    fields = line.split(b"\t")
    if len(fields) == FIELDS - 1:
        return f"it has {len(fields)} fields, as Kaggle's test.txt has, which is without labels; {_WANTED}"
    if len(fields) != FIELDS:
        return f"it has {len(fields)} field{'s' * (len(fields) != 1)}; {_WANTED}"
    if fields[0] not in (b"0", b"1"):
        return f"its label is {_shown(fields[0])}, where it is 0 or 1"
    for place, field in enumerate(fields[1:], start=2):
        if place < 2 + NUMBERS:
            if _NUMBER.fullmatch(field) is None or (field and not MISSING < int(field) <= _MOST):
                return f"field {place} is {_shown(field)}, where it is a whole number of 32 bits, or empty"
        elif _CATEGORY.fullmatch(field) is None:
            return f"field {place} is {_shown(field)}, where it is eight hex digits, or empty"
    return ""


def _shown(field: bytes) -> str:
    return repr(field[:40].decode("ascii", "replace"))


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
        report: called now and then with the progress.
    """
    if rows < 1:
        raise ParameterError(f"A shard has at least one row, and rows={rows} was given.")
    path, target = Path(raw), Path(out).resolve()
    if not path.is_file():
        raise DataError(
            f"There is no file '{path}'. Criteo's text is usually obtained as train.txt from {_SOURCE}; softknee "
            "downloads nothing."
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise WriteError(f"'{target}' is there already and not empty. Give the shards a folder of their own.")
    fresh = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with new_folder(target, fresh), opened(path, what="text of Criteo") as stream:
            _write(_Summed(stream), path, fresh, rows, report)
    except OSError as error:
        if isinstance(error, WriteError):
            raise
        raise _unwritten(target, error) from error
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
    arrays = {kind: np.empty((*lead, rows), dtype=dtype) for kind, (dtype, lead) in _KINDS.items()}
    counts: list[int] = []
    filled = 0

    def close_shard() -> None:
        try:
            for kind, array in arrays.items():
                np.save(folder / _file(len(counts), kind), array[..., :filled], allow_pickle=False)
        except OSError as error:
            raise _unwritten(folder, error) from error
        counts.append(filled)

    for block in read_blocks(stream, path):
        at = 0
        while at < len(block):
            count = min(rows - filled, len(block) - at)
            for kind, array in arrays.items():
                array[..., filled : filled + count] = getattr(block, kind)[..., at : at + count]
            at, filled = at + count, filled + count
            if filled == rows:
                close_shard()
                filled = 0
        report(f"{sum(counts) + filled:,} rows")
    if filled:
        close_shard()
    if not counts:
        raise DataError(f"'{path}' is empty. Get it again.")
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
            columns = {kind: np.concatenate([piece[kind] for piece in pieces], axis=-1) for kind in _KINDS}
            if (columns["buckets"].max(axis=1) >= np.array(BUCKETS)).any() or columns["buckets"].min() < 0:
                raise DataError(f"'{self.folder}' has buckets beyond their number. Make the shards again.")
            if columns["labels"].max() > 1:
                raise DataError(f"'{self.folder}' has a label that is neither 0 nor 1. Make the shards again.")
            yield Block(**columns)

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
            raise DataError(f"'{path}' could not be read ({error}). Make the shards again.") from error
        if array.dtype != dtype or array.shape != (*lead, self.counts[number]):
            raise DataError(f"'{path}' holds {array.shape} in {array.dtype}, unlike meta.json. Make the shards again.")
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
        raise DataError(f"'{path}' is not JSON ({error}). Make the shards again.") from error
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT or meta.get("buckets") != list(BUCKETS):
        raise DataError(f"'{path}' is not of the format '{_FORMAT}', or of other numbers of buckets. Make them again.")
    rows = meta.get("rows")
    if not isinstance(rows, list) or not rows or not all(type(count) is int and count > 0 for count in rows):
        raise DataError(f"'{path}' does not say how many rows each shard has. Make the shards again.")
    return meta


COMMAND = "softknee data criteo RAW OUT"
_SOURCE = "the Criteo Display Advertising Challenge (Kaggle) or ailab.criteo.com"


EMBEDDINGS = (3, 9, 29, 11, 17, 0, 14, 4, 0, 12, 19, 24, 29, 0, 13, 25, 0, 8, 29, 0, 22, 0, 0, 31, 0, 29)  # equation 23
INPUTS = NUMBERS + sum(EMBEDDINGS) + sum(n for n, d in zip(BUCKETS, EMBEDDINGS, strict=True) if d == 0)
LABELS = ("no click", "click")
_SHARDS = ("criteo/shards", "criteo-shards", "criteo")
_TEXTS = {"train": "dac8k_train.tsv", "validation": "dac8k_dev.tsv", "test": "dac8k_test.tsv"}
_BLOCK = 2**16
# 37, 4 and 4 million of 45 million, in the order of time: what is predicted comes after what was learned from.
_SHARE = {"validation": 4 / 45, "test": 4 / 45}

Parts = dict[str, tuple[Tensor, Tensor]]


def log_square(numbers: np.ndarray) -> np.ndarray:
    """log(v)^2 where v > 2, else v itself, and 0 where it is missing; in float32.

    >>> import numpy as np
    >>> log_square(np.array([MISSING, -2, 0, 2, 3], dtype=np.int32)).tolist()
    [0.0, -2.0, 0.0, 2.0, 1.206948...]
    """
    np = numpy()
    values = np.where(numbers == MISSING, 0, numbers).astype(np.float64)
    return np.where(values > 2, np.log(np.maximum(values, 1.0)) ** 2, values).astype(np.float32)


def features(block: Block) -> tuple[Tensor, Tensor]:
    """Rows as a model takes them: 13 transformed numbers and 26 buckets in float32, and classes in int64."""
    x = torch.empty(len(block), NUMBERS + CATEGORIES)
    x[:, :NUMBERS] = torch.from_numpy(log_square(block.numbers)).T
    x[:, NUMBERS:] = torch.from_numpy(block.buckets).T
    return x, torch.from_numpy(block.labels).long()


def load_criteo(folder: str | os.PathLike[str] | None = None) -> Parts:
    """Inputs and classes of "train", "validation" and "test", from shards or from the small files of dac8k.

    Shards are divided in their order, the last 4/45 for the test, the 4/45 before them for validation. All of Kaggle's
    rows take 7.5 GB; for a single pass that takes little, see `Shards.blocks`.
    """
    root = data_folder(folder)
    for place in _SHARDS:
        if (root / place / "meta.json").is_file():
            return _of_shards(Shards(root / place))
    texts = {part: _text(root, name) for part, name in _TEXTS.items()}
    if all(texts.values()):
        return {part: _of_text(path) for part, path in texts.items() if path}
    raw = _text(root, "train.txt")
    if raw is not None:
        command = COMMAND.replace("RAW", str(raw)).replace("OUT", str(root / _SHARDS[0]))
        raise DataError(f"'{raw}' is Criteo's text, which studies read as shards. Make them once with: {command}")
    names = ", ".join(f"'criteo/{name}'" for name in _TEXTS.values())
    searched = (
        f"'{_SHARDS[0]}/meta.json' (shards that `{COMMAND}` makes of Kaggle's train.txt), 'criteo/train.txt', and "
        f"{names}, plain or .gz"
    )
    raise not_found("Criteo has no files", root, searched, _SOURCE)


def _text(root: Path, name: str) -> Path | None:
    places = [root / above / f"{name}{ending}" for above in ("criteo", ".") for ending in ("", ".gz")]
    return next(filter(Path.is_file, places), None)


def _of_text(path: Path) -> tuple[Tensor, Tensor]:
    with opened(path, what="rows of Criteo") as stream:
        pieces = [features(block) for block in read_blocks(stream, path)]
    if not pieces:
        raise DataError(f"'{path}' is empty. Get it again.")
    x, y = zip(*pieces, strict=True)
    return torch.cat(x), torch.cat(y)


def _of_shards(shards: Shards) -> Parts:
    counts = {part: round(len(shards) * share) for part, share in _SHARE.items()}
    if min(counts.values()) == 0:
        raise DataError(f"'{shards.folder}' has {len(shards)} rows, too few to divide them 37 : 4 : 4.")
    parts, start = {}, 0
    for part, count in {"train": len(shards) - sum(counts.values()), **counts}.items():
        # Room is taken once: rows that were joined afterwards would take it twice.
        x, y = torch.empty(count, NUMBERS + CATEGORIES), torch.empty(count, dtype=torch.int64)
        at = 0
        for block in shards.blocks(size=_BLOCK, start=start, stop=start + count):
            x[at : at + len(block)], y[at : at + len(block)] = features(block)
            at += len(block)
        parts[part] = x, y
        start += count
    return parts
