"""The arguments of measurements, read in one place: numbers, yes or no, and one of a few words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ..errors import ParameterError, did_you_mean


def as_number(value: Any) -> float:
    """The number that was given; NaN for what is none, so that every comparison with it says no.

    >>> as_number(2), as_number("2"), 0 < as_number(None)
    (2.0, nan, False)
    """
    if isinstance(value, bool | str | bytes):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError, RuntimeError):
        return math.nan


def is_count(value: Any, *, least: int, most: int | None = None) -> bool:
    """Whether this is a whole number of at least the one and, where it is given, at most the other."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    return whole and value >= least and (most is None or value <= most)


def check_later(step: Any, last: float | None) -> None:
    """Refuse what is no number, or does not come after the last one of a trace (None: there is none yet)."""
    if math.isnan(as_number(step)):
        raise ParameterError(f"A trace is recorded under numbers, such as epochs, and {step!r} was given.")
    if last is not None and not step > last:
        raise ParameterError(f"A trace is recorded in the order of time, and {step:g} does not come after {last:g}.")


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise ParameterError(f"{name} is True or False, and {type(value).__name__} was given.")


def check_word(name: str, value: Any, words: Iterable[str]) -> None:
    """Refuse what is none of these words."""
    known = list(words)
    if not isinstance(value, str) or value not in known:
        shown = repr(value) if isinstance(value, str) else type(value).__name__
        near = did_you_mean(value, known) if isinstance(value, str) else ""
        raise ParameterError(f"{name} is {' or '.join(map(repr, known))}, and {shown} was given.{near}")
