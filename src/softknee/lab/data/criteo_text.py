"""Criteo's rows as text: a label, 13 whole numbers, 26 categories of eight hex digits; tabs between, empty if missing.

A category is a number below 2^32, and a missing one counts as 2^32. It goes into bucket

    mix(category + (k + 1) * 0x9E3779B97F4A7C15 mod 2^64) mod N_k

of its column k = 0..25, where mix is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014): the same buckets on
every machine. N_k are those of equation 22 of "Smooth activations and reproducibility in deep networks".
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DataError
from .reading import numpy

if TYPE_CHECKING:
    import numpy as np

BUCKETS = (1373, 2148, 4847, 9781, 396, 28, 3591, 2798, 14, 7403, 2511, 5598, 9501)
BUCKETS += (46, 4753, 4056, 23, 3828, 5856, 12, 4226, 23, 61, 3098, 494, 5087)  # equation 22
NUMBERS, CATEGORIES = 13, len(BUCKETS)
FIELDS = 1 + NUMBERS + CATEGORIES
MISSING = -(2**31)  # among the numbers; the smallest that occurs is -3
_MISSING_CATEGORY = 2**32
_BLOCK = 8192  # lines that are worked on at once: about 8 MB
_LONGEST = 1024  # bytes of a line: 40 fields of at most 11 have 480
_NUMBER = re.compile(rb"(?:-?[0-9]{1,10})?")
_CATEGORY = re.compile(rb"(?:[0-9a-fA-F]{8})?")
_NUMBER_COLUMN = re.compile(b"(?:" + _NUMBER.pattern + rb"\t)*")
_MOST = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows as columns: labels (rows,) uint8, numbers (13, rows) int32 with `MISSING`, buckets (26, rows) int16."""

    labels: np.ndarray
    numbers: np.ndarray
    buckets: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


class _DamagedError(Exception):
    """Some line of a block is not as it should be; which one is looked for afterwards."""


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
        while len(lines) < _BLOCK and (line := stream.readline(_LONGEST)):
            lines.append(line.rstrip(b"\r\n"))
            if len(lines[-1]) == _LONGEST:
                raise DataError(
                    f"'{path}', line {done + len(lines)}: it has more than {_LONGEST - 1} bytes; {_WANTED}. {_CURE}"
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
        found = np.array([int(one) if one else MISSING for one in column], dtype=np.int64)
        if (found < MISSING).any() or (found > _MOST).any() or (found == MISSING).sum() != column.count(b""):
            raise _DamagedError
        numbers[row] = found
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
        content = binascii.unhexlify(b"".join([one or b"00000000" for one in column]))
    except binascii.Error as error:
        raise _DamagedError from error
    found = np.frombuffer(content, dtype=">u4").astype(np.uint64)
    found[[at for at, one in enumerate(column) if not one]] = _MISSING_CATEGORY
    return found


_WANTED = f"a row has {FIELDS} fields with tabs between: a label, {NUMBERS} whole numbers, {CATEGORIES} categories"
_CURE = "Take the file anew, or take the line out."


def _sentence(lines: Sequence[bytes], done: int, path: Path) -> str:
    for number, line in enumerate(lines, start=done + 1):
        if said := _damage(line):
            return f"'{path}', line {number}: {said}. {_CURE}"
    raise AssertionError("a block was refused and each of its lines is whole")


def _damage(line: bytes) -> str:
    """What is wrong with a line; nothing if it is whole."""
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
