"""Pickles of arrays of bytes, bytes, text, whole numbers, lists, tuples and dicts, and of nothing else.

A pickle is a program. Here it may only put such values together: each instruction is compared with a list before any
runs, and the four names that arrays are pickled by are answered with stand-ins of this file. No function of NumPy or of
any other package is called with what a pickle says, and an array is made only after its claimed shape was compared with
the bytes that are there.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from typing import TYPE_CHECKING, Any

from ...errors import DataError
from .reading import numpy

if TYPE_CHECKING:
    import numpy as np

_ADMITTED = (
    "PROTO FRAME STOP MARK POP POP_MARK PUT GET BINPUT LONG_BINPUT BINGET LONG_BINGET MEMOIZE "
    "NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 "
    "STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES UNICODE BINUNICODE SHORT_BINUNICODE "
    "EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS "
    "GLOBAL STACK_GLOBAL REDUCE BUILD"
)
_MOST_INSTRUCTIONS = 2_000_000  # the largest file of CIFAR has 260,000
_BYTES = ("u1", b"u1")


def read_pickle(content: bytes, *, what: str) -> Any:
    """The value of a pickle of plain values; `what` is the file, for the sentence that refuses it.

    >>> read_pickle(pickle.dumps({"labels": [3, 1], "data": b"xyz"}, protocol=2), what="A file")
    {'labels': [3, 1], 'data': b'xyz'}
    >>> read_pickle(pickle.dumps(eval), what="A file")
    Traceback (most recent call last):
    softknee.errors.DataError: A file asks for builtins.eval, and only arrays, bytes, text, whole numbers, ...
    """
    _refuse_instructions(content, what)
    try:
        found = _Reader(content, what).load()
    except DataError:
        raise
    except Exception as error:  # the unpickler raises what the bytes make it raise
        raise DataError(f"{what} is no pickle of plain values ({type(error).__name__}: {error}).") from error
    return _unwrapped(found, what)


def _refuse_instructions(content: bytes, what: str) -> None:
    stopped = False
    try:
        for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
            name = instruction.name
            if name not in _ADMITTED.split():
                raise DataError(f"{what} has the pickle instruction {name}, {_ONLY}")
            # A place of the memory that is far out would make room for all before it.
            if max(count, argument if "PUT" in name and isinstance(argument, int) else 0) > _MOST_INSTRUCTIONS:
                raise DataError(f"{what} has more than {_MOST_INSTRUCTIONS:,} values, which is more than it can have.")
            stopped = name == "STOP"
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{what} is no pickle, or was cut short ({error}). Take it anew.") from error
    if not stopped:
        raise DataError(f"{what} is a pickle that was cut short. Take it anew.")


_ONLY = (
    "and only arrays, bytes, text, whole numbers, lists and dicts are read: a pickle that holds anything else may run "
    "code. Take the file anew from its authors."
)


class _Kind:
    """Stands for `numpy.dtype(name)`: keeps the name."""

    __slots__ = ("name",)

    def __init__(self, name: Any) -> None:
        self.name = name

    def __setstate__(self, state: Any) -> None:
        pass  # the order of bytes, which one byte has not


class _Array:
    """Stands for an array whose shape, type and bytes come later, in one tuple."""

    __slots__ = ("content", "shape")

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.content: bytes | None = None

    def __setstate__(self, state: Any) -> None:
        match state:
            case (int(), tuple() as shape, _Kind(name=name), bool() | int() as columns_first, bytes() as content):
                if name not in _BYTES or columns_first:
                    raise DataError(f"The pickle holds an array of {name!r:.20}, where arrays of bytes are expected.")
                if not all(isinstance(one, int) and one >= 0 for one in shape) or math.prod(shape) != len(content):
                    raise DataError(
                        f"The pickle claims an array of shape {shape} and has {len(content):,} bytes of it."
                    )
                self.shape, self.content = shape, content
            case _:
                raise DataError("The pickle holds an array that is not written as NumPy writes one.")


class _Call:
    """What a pickle may call by name. All that a pickle could change of it is that name, to another of these."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *given: Any) -> Any:
        match self._name, given:
            case "_reconstruct", (_Call(), (0,), b"b" | "b"):
                return _Array()
            case "dtype", (name, *_):
                return _Kind(name)
            case "encode", (str() as text, "latin1" | b"latin1"):
                return text.encode("latin1")
        raise DataError(f"The pickle calls {self._name} with other values than NumPy writes.")


_NAMES = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): "_reconstruct" for core in ("core", "_core")},
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",
}


class _Reader(pickle.Unpickler):
    def __init__(self, content: bytes, what: str) -> None:
        # Text that Python 2 wrote comes as bytes.
        super().__init__(io.BytesIO(content), fix_imports=False, encoding="bytes")
        self._what = what

    def find_class(self, module: str, name: str, /) -> Any:
        if (module, name) not in _NAMES:
            raise DataError(f"{self._what} asks for {module}.{name}, {_ONLY}")
        return _Call(_NAMES[module, name])

    def persistent_load(self, pid: Any) -> Any:
        raise DataError(f"{self._what} refers to something outside of it, {_ONLY}")


def _unwrapped(found: Any, what: str) -> Any:
    """The arrays in a dict or list as NumPy's; a stand-in elsewhere is refused."""
    if isinstance(found, dict):
        return {key: _unwrapped_leaf(value, what) for key, value in found.items()}
    return _unwrapped_leaf(found, what)


def _unwrapped_leaf(found: Any, what: str) -> Any:
    if isinstance(found, _Array):
        return _array(found, what)
    if isinstance(found, _Kind | _Call):
        raise DataError(f"{what} holds something that is no array, bytes, text, whole number, list or dict.")
    return found


def _array(found: _Array, what: str) -> np.ndarray:
    np = numpy()
    if found.content is None:
        raise DataError(f"{what} holds an array without its bytes. It was damaged; take it anew.")
    return np.frombuffer(found.content, dtype=np.uint8).reshape(found.shape)
