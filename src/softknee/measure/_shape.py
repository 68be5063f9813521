"""Builds dataclasses from JSON, strictly: every field present, none unknown, each of its declared type."""

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import did_you_mean

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
        (inner,) = (one for one in arguments if one is not type(None))
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


_PLAIN_NAMES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "tuple": "a list",
    "Mapping": "an object",
}


def _fit_free(value: Any, where: str, parts: tuple[type, ...]) -> Any:
    if isinstance(value, list):
        return tuple(_fit_free(item, f"{where}[{index}]", parts) for index, item in enumerate(value))
    if not isinstance(value, dict):
        return value
    for part in parts:
        if value.keys() == {field.name for field in fields(part)}:
            return build(part, value, where=where, parts=parts)
    return {key: _fit_free(item, f"{where}.{key}", parts) for key, item in value.items()}
