"""The exceptions of softknee: one root, and kinds that are also Python's own.

Each message is a full sentence that names the cause and the cure. Catch `SoftkneeError` for everything
that softknee raises on purpose, or the built-in kind (`ValueError`, `KeyError`, `TypeError`) as usual.
"""

import math
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from numbers import Integral, Real
from typing import Any


class SoftkneeError(Exception):
    """Root of everything softknee raises on purpose."""


class ParameterError(SoftkneeError, ValueError):
    """A parameter of an activation has a value, a name or a shape that is not allowed."""


class DefinitionError(SoftkneeError, ValueError):
    """An activation is defined in a way that cannot be computed."""


class FormulaError(SoftkneeError, ValueError):
    """The text of a formula is not in the language, or beyond its limits.

    span: the cause, as the places of its first character and of the one behind its last, in the text without the blanks
          around it; None where no single place is to blame.
    """

    span: tuple[int, int] | None = None
    unknown: str | None = None  # a name in the formula that nobody declared, and that could be a parameter


class InputError(SoftkneeError, TypeError):
    """A tensor was given that no activation can work on."""


class UnknownActivationError(SoftkneeError, KeyError):
    """No activation has the name that was asked for."""

    # KeyError prints the repr of its argument; a sentence should be readable as it is.
    __str__ = Exception.__str__


class DataError(SoftkneeError, ValueError):
    """A file of a data set is missing, damaged, or another one than it should be."""


class RecipeError(SoftkneeError, ValueError):
    """The recipe of a study asks for something that there is not, or for a value that is not allowed."""


class WireError(SoftkneeError, ValueError):
    """Bytes that should hold coded symbols are cut off, altered, not such a message, or beyond a limit."""


class PeerError(SoftkneeError, TimeoutError):
    """Another process that should send or receive something ended, or did not answer in time."""


class MissingToolError(SoftkneeError, RuntimeError):
    """Something outside the package (an extra, a compiler, a device) is needed and not there."""


def first_line(error: BaseException) -> str:
    """The first line of an error's message, as part of a sentence about it."""
    return (str(error).strip().splitlines() or ["no message"])[0]


def same_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that a name is but for capitals and underscores: GELU is gelu, LeakyReLU is leaky_relu."""
    wanted = name.lower().replace("_", "")
    return next((other for other in known if other == name or other.replace("_", "") == wanted), None)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """A half sentence with the nearest known names, or an empty string when none is near."""
    near = get_close_matches(str(name).lower(), list(dict.fromkeys(known)), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(match) for match in near)}?" if near else ""


def _named(title: str, name: str) -> str:
    return f"{title}: {name}" if title else name


def require_count(title: str, name: str, value: Any, *, least: int = 1, most: int | None = None) -> None:
    """Raise unless this is a whole number of at least `least`, and at most `most` where that is given."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or int(value) < least or (most is not None and int(value) > most):
        words = f"of at least {least}" if most is None else f"from {least} to {most:,}"
        raise ParameterError(f"{_named(title, name)} must be a whole number {words}, and {value!r} was given.")


def require_number(title: str, name: str, value: Any, *, zero: bool = False, most: float = math.inf) -> None:
    """Raise unless this is a finite number above 0, or of at least 0 with `zero`, and at most `most`."""
    number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not (0 < number < math.inf or (zero and number == 0)) or number > most:
        words = ("of at least 0" if zero else "above 0") + (f" and at most {most:g}" if most < math.inf else "")
        raise ParameterError(f"{_named(title, name)} must be a finite number {words}, and {value!r} was given.")


def require_choice(title: str, name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise unless this is one of two words or more."""
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        *others, last = map(repr, known)
        words, near = f"{', '.join(others)} or {last}", did_you_mean(value, known)
        raise ParameterError(f"{_named(title, name)} must be {words}, and {value!r} was given.{near}")


def need_package(name: str, purpose: str, extra: str, otherwise: str = "") -> Any:
    """A module of an optional package, or an error that says which extra brings it, or what to do `otherwise`."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or name).partition(".")[0] != name.partition(".")[0]:
            raise  # the package is there, and something that it imports is not
        raise MissingToolError(
            f"{purpose}, which is not installed. Install it with: pip install 'softknee[{extra}]'{otherwise}"
        ) from error
