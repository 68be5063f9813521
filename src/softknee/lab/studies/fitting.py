"""Values of a YAML or JSON text into dataclasses, by the dataclasses' own type hints; every refusal is a sentence.

>>> from softknee.lab.studies.recipe import Seeds
>>> fit({"count": 3}, Seeds, "seeds")
Seeds(count=3, first=0, share_init=False, share_order=False, share_dropout=False)
>>> fit({"cuont": 3}, Seeds, "seeds")  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
softknee.errors.RecipeError: seeds.cuont is no key of a recipe. Did you mean 'count'? 'seeds' has the keys count, ...
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from ...errors import RecipeError, SoftkneeError, did_you_mean

_WORDS = {float: "a number", int: "a whole number", str: "text", bool: "true or false", type(None): "nothing"}
_MOST_SHOWN = 60  # characters of what was given


@dataclass(frozen=True)
class Limits:
    """What the values of a field are, beyond their type: the metadata of an `Annotated` hint."""

    words: str
    hold: Callable[[Any], object]


def at_least(least: int) -> Limits:
    """Whole numbers from `least` on."""
    return Limits(f"a whole number of at least {least}", lambda value: value >= least)


@dataclass(frozen=True)
class OneOf:
    """The texts that a field may be, where they are too many for a `Literal`."""

    known: tuple[str, ...]


class Section:
    """A frozen dataclass that brings its fields into their declared types when it is made.

    where: the place of the section in a recipe, for the sentence of a RecipeError.
    """

    _place: ClassVar[str] = ""

    def __init_subclass__(cls, *, where: str = "") -> None:
        cls._place = where

    def __post_init__(self) -> None:
        hints = hints_of(type(self))
        for item in fields(self):  # pyright: ignore[reportArgumentType] - every section is a dataclass
            place = f"{self._place}.{item.name}" if self._place else item.name
            object.__setattr__(self, item.name, fit(getattr(self, item.name), hints[item.name], place))


def fit(value: Any, hint: Any, where: str) -> Any:
    """The value as the type that `hint` asks for: lists become tuples, whole numbers floats, mappings dataclasses.

    where: the dotted place in the recipe, for the sentence of a RecipeError.
    """
    if hint is Any:
        return _free(value, where)
    if type(value) is hint and hint in (str, int, bool):
        return value
    origin, arguments = parts_of(hint)
    if origin in (Union, types.UnionType):
        return _one_of(value, hint, where)
    if origin is Annotated:
        fitted = fit(value, arguments[0], where)
        for limits in arguments[1:]:
            _refuse_beyond(fitted, limits, where)
        return fitted
    if origin is Literal:
        if type(value) is str and value in arguments:
            return value
        raise refusal(where, words(hint), value, near=did_you_mean(value, map(str, arguments)))
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(fit(item, arguments[0], f"{where}[{index}]") for index, item in enumerate(value))
    if origin is Mapping and isinstance(value, Mapping):
        return {_key(key, where): fit(item, arguments[1], f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return _section(value, hint, where)
    if hint is float and type(value) in (int, float) and _is_finite(value):
        return float(value)
    raise refusal(where, words(hint), value)


@contextmanager
def located(where: str, kinds: tuple[type[Exception], ...] = (SoftkneeError,)) -> Iterator[None]:
    """An error of these kinds inside becomes one of the recipe, with its place in front."""
    try:
        yield
    except kinds as error:
        raise RecipeError(f"{where}: {error}") from error


def later(default: Any) -> Any:
    """A field that came when there were records already: written only where it is not its default, so that the trials
    and recipes of before keep their names and their text."""
    return field(default=default, metadata={"later": True})


def is_omitted(item: Field[Any], value: Any) -> bool:
    """Whether a field is left out when it is written: one that came later, and has its default."""
    return bool(item.metadata.get("later")) and value == item.default


def to_plain(section: Any) -> Any:
    """The way back from `fit`: dataclasses as mappings, without what `is_omitted`."""
    if is_dataclass(section):
        values = {item.name: getattr(section, item.name) for item in fields(section)}
        return {
            item.name: to_plain(values[item.name])
            for item in fields(section)
            if not is_omitted(item, values[item.name])
        }
    return [to_plain(item) for item in section] if isinstance(section, list | tuple) else section


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


def _refuse_beyond(value: Any, limits: Limits | OneOf, where: str) -> None:
    if isinstance(limits, Limits) and not limits.hold(value):
        raise refusal(where, limits.words, value)
    if isinstance(limits, OneOf) and value not in limits.known:
        near = did_you_mean(value, limits.known)
        raise refusal(where, f"one of {', '.join(map(repr, limits.known))}", value, near=near)


@functools.cache
def parts_of(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type and what stands in its brackets: `dict` and `(str, int)` of `dict[str, int]`."""
    return get_origin(hint), get_args(hint)


def refusal(where: str, wanted: str, value: Any, *, near: str = "") -> RecipeError:
    """What must be there, what was given, and what may have been meant."""
    return RecipeError(f"{where or 'A recipe'} must be {wanted}, and {shown(value)} was given.{near}")


def shown(value: Any) -> str:
    """What was given, as YAML's own words where they differ from Python's, and cut where it is long."""
    yaml_words = {"None": "nothing", "True": "true", "False": "false"}
    text = yaml_words.get(repr(value), repr(value))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def words(hint: Any) -> str:
    """A type in plain English."""
    origin, arguments = parts_of(hint)
    if origin is Annotated:
        return words(arguments[0])
    if origin is Literal:
        return _either([repr(argument) for argument in arguments])
    if origin in (Union, types.UnionType):
        return _either([words(argument) for argument in arguments if argument is not type(None)])
    if origin is tuple:
        return f"a list in which each is {words(arguments[0])}" if arguments[0] is not Any else "a list"
    if origin is Mapping or is_dataclass(hint):
        return "a section with keys of its own"
    return _WORDS.get(hint, "text, a number, a list or a section")


def _one_of(value: Any, hint: Any, where: str) -> Any:
    arguments = parts_of(hint)[1]
    if value is None and type(None) in arguments:
        return None
    kinds = [kind for kind in arguments if kind is not type(None)]
    if isinstance(value, Mapping) and len(kinds) > 1 and all(is_dataclass(kind) for kind in kinds):
        return fit(value, _kind_of(value, kinds, where), where)
    for kind in kinds:
        try:
            return fit(value, kind, where)
        except RecipeError:
            if len(kinds) == 1:
                raise  # it says more than that none of the kinds fits
    raise refusal(where, words(hint), value)


def _kind_of(value: Mapping[str, Any], kinds: list[Any], where: str) -> Any:
    """Of several sections the one whose `kind` is given."""
    names = {hints_of(kind)["kind"].__args__[0]: kind for kind in kinds if "kind" in hints_of(kind)}
    given = value.get("kind", next(iter(names)) if len(names) == 1 else None)
    if given in names:
        return names[given]
    near = did_you_mean(given, names) if isinstance(given, str) else ""
    raise refusal(f"{where}.kind", _either([repr(name) for name in names]), given, near=near)


def _section(value: Any, cls: type, where: str) -> Any:
    if isinstance(value, cls):
        return value
    if not isinstance(value, Mapping):
        raise refusal(where, words(cls), value)
    known = {item.name: item for item in fields(cls)}
    hints = hints_of(cls)
    for key in value:
        if key not in known:
            place, whole = f"{where}.{key}" if where else key, repr(where) if where else "A recipe"
            raise RecipeError(
                f"{place} is no key of a recipe.{did_you_mean(key, known)} {whole} has the keys {', '.join(known)}."
            )
    for name, item in known.items():
        if name not in value and item.default is item.default_factory is MISSING:
            raise RecipeError(f"{where or 'The recipe'} lacks the key {name!r}, which must be {words(hints[name])}.")
    return cls(
        **{name: fit(content, hints[name], f"{where}.{name}" if where else name) for name, content in value.items()}
    )


def _free(value: Any, where: str) -> Any:
    """What nothing is declared of: whatever YAML can hold, with lists as tuples."""
    if isinstance(value, list | tuple):
        return tuple(_free(item, f"{where}[{index}]") for index, item in enumerate(value))
    if isinstance(value, Mapping):
        return {_key(key, where): _free(item, f"{where}.{key}") for key, item in value.items()}
    if value is None or type(value) in (bool, str, int) or (type(value) is float and _is_finite(value)):
        return value
    raise refusal(where, words(Any), value)


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise RecipeError(f"The keys of {where or 'a recipe'} must be text, and {shown(key)} was given.")
    return key


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _either(options: list[str]) -> str:
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"
