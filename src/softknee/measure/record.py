"""The one record of the project: what was measured, on what, with what, how often.

A table in a report, a benchmark's file and a study's result are all a `Record`. Its rows are plain mappings,
so that every kind of measurement fits; a measured number in a row is a `Quantity`, which cannot be written
without its spread and its number of repeats. A row that could not be measured says so under "not_run".

    record = Record.now("bench kernels", command="softknee bench kernels", rows=rows)
    record.write("kernels.json")
    assert Record.read("kernels.json") == record
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import InputError, SoftkneeError, did_you_mean
from ..files import write_whole
from .machine import Hardware, Versions

# -- dataclasses from JSON, strictly: every field present, none unknown, each of its declared type ----------

T = TypeVar("T")


def build(cls: type[T], data: Mapping[str, Any], *, where: str, parts: tuple[type, ...] = ()) -> T:
    """An instance of the dataclass `cls` from `data`.

    Inside fields of type `Any`, an object whose keys are exactly the fields of one of `parts` becomes that
    part. Raises KeyError for a missing or unknown key and TypeError for a wrong type, with a sentence.
    """
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    missing = [name for name in names if name not in data]
    if missing:
        raise KeyError(f"{where} lacks {', '.join(repr(name) for name in missing)}.")
    for key in data:
        if key not in names:
            raise KeyError(f"{where} has the unknown key {key!r}.{did_you_mean(key, names)}")
    hints = get_type_hints(cls)
    return cls(**{name: _fit(data[name], hints[name], f"{where}.{name}", parts) for name in names})


def _fit(value: Any, hint: Any, where: str, parts: tuple[type, ...]) -> Any:
    """The value, converted from JSON's types to the type that `hint` asks for."""
    if hint is Any:
        return _fit_free(value, where, parts)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return _fit(value, inner, where, parts)
    if origin is tuple and isinstance(value, list):
        return tuple(_fit(item, arguments[0], f"{where}[{index}]", parts) for index, item in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: _fit(item, arguments[1], f"{where}.{key}", parts) for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return build(hint, value, where=where, parts=parts)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if origin is None and not is_dataclass(hint) and type(value) is hint:
        return value
    wanted = getattr(hint, "__name__", str(hint))
    raise TypeError(f"{where} should be {_PLAIN_NAMES.get(wanted, wanted)}, and is {value!r}.")


_PLAIN_NAMES = {"int": "a whole number", "float": "a number", "str": "text", "tuple": "a list", "Mapping": "an object"}


def _fit_free(value: Any, where: str, parts: tuple[type, ...]) -> Any:
    if isinstance(value, list):
        return tuple(_fit_free(item, f"{where}[{index}]", parts) for index, item in enumerate(value))
    if not isinstance(value, dict):
        return value
    for part in parts:
        if value.keys() == {field.name for field in fields(part)}:
            return build(part, value, where=where, parts=parts)
    return {key: _fit_free(item, f"{where}.{key}", parts) for key, item in value.items()}


# -- the record -------------------------------------------------------------------------------------------

SCHEMA = 1

# An absolute path of at least two parts; a lone "/" or a URL is none. Its last part is captured.
_PATH = re.compile(r"(?<![\w.:/\\])(?:~|[A-Za-z]:)?[\\/](?:[^\s'\"\\/:,]+[\\/])+([^\s'\"\\/:,]*)")


class RecordError(SoftkneeError, ValueError):
    """A record is incomplete, holds what a record must not hold, or cannot be read or written."""


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A measured number: its value, the interval its repeats spread over, and how it was summarised."""

    value: float
    low: float
    high: float
    repeats: int
    unit: str
    statistic: str

    @classmethod
    def median(cls, samples: Sequence[float], *, unit: str) -> Quantity:
        """Median and quartiles: for times, whose outliers are all on one side."""
        ordered = _samples(samples)
        quartiles = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
        return cls(
            value=statistics.median(ordered),
            low=quartiles[0],
            high=quartiles[2],
            repeats=len(ordered),
            unit=unit,
            statistic="median, quartiles",
        )

    @classmethod
    def mean(cls, samples: Sequence[float], *, unit: str) -> Quantity:
        """Mean and one standard deviation of the samples to either side: for results over seeds."""
        ordered = _samples(samples)
        value = statistics.fmean(ordered)
        spread = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
        return cls(
            value=value,
            low=value - spread,
            high=value + spread,
            repeats=len(ordered),
            unit=unit,
            statistic="mean, standard deviation",
        )

    @property
    def spread(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    def text(self, digits: int = 2) -> str:
        """The value with its spread, as a table shows it; a single sample has none to show."""
        spread = f" ± {self.spread:.{digits}f}" if self.repeats > 1 else ""
        return f"{self.value:.{digits}f}{spread}"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A measurement with everything one needs to judge it and to run it again."""

    schema: int
    kind: str
    created: str
    command: str
    hardware: Hardware
    versions: Versions
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]
    rows: tuple[Mapping[str, Any], ...]
    baseline: str | None
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("seeds", "settings", "rows", "notes"):
            # Lists become tuples, so that a record read from a file equals the one that was written.
            object.__setattr__(self, name, _immutable(getattr(self, name), name))
        _refuse_unfit(self)

    @classmethod
    def now(
        cls,
        kind: str,
        *,
        command: str,
        rows: Sequence[Mapping[str, Any]],
        seeds: Sequence[int] = (),
        settings: Mapping[str, Any] | None = None,
        baseline: str | None = None,
        notes: Sequence[str] = (),
    ) -> Record:
        """A record of something measured just now on this machine."""
        return cls(
            schema=SCHEMA,
            kind=kind,
            created=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            command=without_paths(command),
            hardware=Hardware.here(),
            versions=Versions.here(),
            seeds=tuple(seeds),
            settings=dict(settings or {}),
            rows=tuple(rows),
            baseline=baseline,
            notes=tuple(notes),
        )

    def to_json(self) -> str:
        """The record as JSON text, readable line by line."""
        return json.dumps(_plain(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, source: str = "The text") -> Record:
        """The record that `to_json` wrote; anything else is refused with the reason, naming `source`."""
        if not isinstance(text, str):
            raise RecordError(f"{source} is no record: JSON text is read, and {type(text).__name__} was given.")
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            ending = "ends too early" if error.pos >= len(text.rstrip()) - 1 else "is damaged"
            raise RecordError(
                f"{source} is not a whole record: its JSON {ending} at line {error.lineno} ({error.msg}). "
                "Take it again from where it was measured, or measure anew."
            ) from error
        except RecursionError as error:
            raise RecordError(f"{source} is no record: its JSON is nested without an end.") from error
        if not isinstance(data, dict):
            raise RecordError(f"{source} is no record: a record is a JSON object, and this is a {type(data).__name__}.")
        if data.get("schema") != SCHEMA:
            raise RecordError(
                f"{source} has record schema {data.get('schema')!r}; this softknee reads schema {SCHEMA}. "
                "Read it with the version of softknee that wrote it."
            )
        try:
            return build(cls, data, where="record", parts=(Quantity,))
        except (KeyError, TypeError) as error:
            raise RecordError(f"{source} is no valid record: {error.args[0]}") from error

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write to a file at once or not at all: a failure leaves the file as it was."""
        return write_whole(path, self.to_json(), what="record")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Record:
        """The record in a file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise RecordError(f"No record could be read from '{path}': {reason}. Check the path.") from error
        return cls.from_json(text, source=f"'{path}'")


def without_paths(text: str) -> str:
    """The text with every absolute path cut down to its last part: a record names no place on a disk."""
    if not isinstance(text, str):
        raise InputError(f"without_paths takes text, and {type(text).__name__} was given; pass str(...) of it.")
    return _PATH.sub(r"\1", text)


def _samples(samples: Sequence[float]) -> list[float]:
    try:
        ordered = sorted(float(sample) for sample in samples)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecordError(f"The samples of a quantity are a list of numbers: {error}.") from error
    if not ordered:
        raise RecordError("A quantity needs at least one sample; report what was not measured as 'not_run'.")
    return ordered


def _immutable(value: Any, where: str) -> Any:
    """The value with its lists made tuples, after checking that JSON can hold it and that it is finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise RecordError(
            f"The record's {where} is {value}: a record holds finite numbers only. "
            "Leave the number out and give the reason under 'not_run'."
        )
    if isinstance(value, Quantity):
        for field in fields(value):
            _immutable(getattr(value, field.name), f"{where}.{field.name}")
        return value
    if isinstance(value, Mapping):
        return {str(key): _immutable(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return tuple(_immutable(item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(value, str):
        _refuse_path(value, where)
    elif value is not None and not isinstance(value, bool | int | float):
        raise RecordError(
            f"The record's {where} is a {type(value).__name__}, which a record cannot hold. "
            "Use text, numbers, None, lists, mappings with text keys, or a Quantity."
        )
    return value


def _refuse_unfit(record: Record) -> None:
    for name in ("kind", "command", "baseline"):
        _refuse_path(getattr(record, name) or "", name)
    if record.schema != SCHEMA:
        raise RecordError(f"A record made here has schema {SCHEMA}, not {record.schema!r}.")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", record.created):
        raise RecordError(f"The record's created is {record.created!r}: write it in UTC like '2026-01-31T12:00:00Z'.")


def _refuse_path(text: str, where: str) -> None:
    if match := _PATH.search(text):
        raise RecordError(
            f"The record's {where} holds the path '{match.group(0)}': a record names no place on a disk. "
            "Pass the text through without_paths() first."
        )


def _refuse_constant(name: str) -> float:
    raise RecordError(f"The record holds {name}, and a record holds finite numbers only: it is not softknee's.")


def _plain(value: Any) -> Any:
    """The value as JSON's own types."""
    if isinstance(value, Record | Hardware | Versions | Quantity):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
