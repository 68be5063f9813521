"""An uploaded file of pre-activations: a .npy array or a .csv of numbers, read with care, never unpickled."""

from __future__ import annotations

import io
import math
from typing import Any

import torch

from ...design.entropic.sample_density import FEWEST, sorted_samples
from ...errors import InputError
from .inputs import sketch

_MAGIC = b"\x93NUMPY"


def uploaded(asked: dict[str, Any]) -> dict[str, Any]:
    """{"name", "content"} as a sketch and what can be said of all its numbers."""
    import numpy

    name, content = str(asked.get("name", ""))[:120], asked.get("content", b"")
    values = _array(content) if content.startswith(_MAGIC) else _table(content)
    finite = values[numpy.isfinite(values)]
    left_out = values.size - finite.size
    if finite.size < FEWEST:
        raise InputError(f"The file has {finite.size} finite numbers, and at least {FEWEST} are needed.")
    samples = sorted_samples(torch.from_numpy(finite.astype("float64")), "The page")
    return {
        "sketch": sketch(samples),
        "name": name,
        "count": int(finite.size),
        "left_out": int(left_out),
        "mean": float(samples.mean()),
        "deviation": float(samples.std()),
        "low": float(samples[0]),
        "high": float(samples[-1]),
    }


def _array(content: bytes) -> Any:
    """The numbers of a .npy file; one that holds Python objects is refused, and one that claims more than it has."""
    import numpy

    stream = io.BytesIO(content)
    heads = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}
    try:
        version = numpy.lib.format.read_magic(stream)
        shape, _, dtype = heads[version](stream)
    except Exception as error:  # a header is a literal of Python, whose readers raise many kinds
        raise InputError("The file begins like a .npy file and is none that is read here; use numpy.save.") from error
    if dtype.hasobject:
        raise InputError("The .npy file holds Python objects, which are never unpickled here; save plain numbers.")
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise InputError(f"The .npy file holds {dtype}, and real numbers of at most 64 bits are read here.")
    if math.prod(shape) * dtype.itemsize > len(content) - stream.tell():
        raise InputError("The .npy file is cut off: it has fewer numbers than it says.")
    stream.seek(0)
    return numpy.load(stream, allow_pickle=False).reshape(-1).astype("float64")


def _table(content: bytes) -> Any:
    """The numbers of a .csv file, whatever its shape; a first line of names is left out.

    Numbers stand between commas, semicolons, tabs or blanks. Beside a semicolon or a tab a comma is that of a fraction,
    as the spreadsheets of half the world write it.

    >>> _table(b"a;b\\n0,5;1\\n2,5;3\\n").tolist()
    [0.5, 1.0, 2.5, 3.0]
    """
    import numpy

    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("The file is neither a .npy array nor a .csv text.") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if ";" in text or "\t" in text:
        between, fraction = ";", ","
    else:
        between, fraction = ",", "."
    found: list[float] = []
    for number, line in lines:
        parts = line.replace("\t", between).replace(between, " ").replace(fraction, ".").split()
        try:
            found += [float(part) for part in parts]
        except ValueError as error:
            if number != lines[0][0]:
                raise InputError(f"Line {number} of the .csv file is not numbers: {line[:40]!r}.") from error
    return numpy.array(found)
