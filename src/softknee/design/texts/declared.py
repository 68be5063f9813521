"""Parameters as words: `beta=1.0`, `g=0.1:real`, `lam=2:at_least_one`, `eps=0.01:between(-2, 1)`.

The word after the colon is what values the parameter may take. Without one a number above 0 makes a positive parameter
and any other a real one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import ParameterError, did_you_mean
from ...spec import AtLeastOne, Between, Constraint, Param, Positive, Real
from ...spec.param import RESERVED
from ...spec.parse import FUNCTIONS

_WORDS = ("positive", "real", "at_least_one", "between")
_CALL = re.compile(r"([a-z_]{1,20})(?:\(([-+.,0-9eE ]{1,80})\))?")
LONGEST_NAME = 64
# Words of the language, which a parameter cannot take from it.
_TAKEN = {"pi", "e", "where", "piecewise", "max", "min", "line", *FUNCTIONS, *RESERVED}


def read_constraint(text: str) -> Constraint:
    """The constraint that a word stands for."""
    found = _CALL.fullmatch(text.strip()) if isinstance(text, str) else None
    word, inside = found.groups() if found else (text, None)
    numbers = [_number(one, f"the constraint {text!r}") for one in inside.split(",")] if inside else []
    if word in ("positive", "real") and inside is None:
        return Positive() if word == "positive" else Real()
    if word == "at_least_one" and len(numbers) <= 1:
        if numbers and numbers[0] <= 0:
            raise ParameterError(f"The temperature of {text!r} must be above 0.")
        return AtLeastOne(*numbers)
    if word == "between" and len(numbers) == 2 and numbers[0] < numbers[1]:
        return Between(*numbers)
    raise ParameterError(
        f"{text!r} is no constraint; write positive, real, at_least_one, at_least_one(temperature) or "
        f"between(low, high).{did_you_mean(word, _WORDS)}"
    )


def write_constraint(constraint: Constraint) -> str:
    """The word of a constraint."""
    if isinstance(constraint, Between):
        return f"between({constraint.low!r}, {constraint.high!r})"
    if isinstance(constraint, AtLeastOne):
        return f"at_least_one({constraint.temperature!r})"
    if type(constraint) in (Positive, Real, Constraint):
        return "positive" if isinstance(constraint, Positive) else "real"
    raise ParameterError(f"The constraint {constraint!r} is of your own making and has no word.")


def read_param(name: str, given: Any) -> Param:
    """A parameter from its name and a number, a text such as "0.1:real", or a parameter as it is."""
    if isinstance(given, Param):
        return given
    check_param_name(name)
    if isinstance(given, str):
        number, colon, word = given.partition(":")
        default = _number(number, f"the parameter {name!r}")
        constraint = read_constraint(word) if colon else None
    elif isinstance(given, int | float) and not isinstance(given, bool):
        default, constraint = float(given), None
    else:
        raise ParameterError(
            f"The parameter {name!r} is given as a number, a text such as '1.0:real' or a Param, and "
            f"{type(given).__name__} was given."
        )
    if constraint is None:
        constraint = Positive() if default > 0 else Real()
    return checked(Param(name, default, constraint))


def checked(param: Param) -> Param:
    """The parameter, refused where its own constraint does not allow its default."""
    if not param.constraint.allows(param.default):
        raise ParameterError(
            f"The parameter {param.name!r} must be {param.constraint.words}; {param.default!r} is not."
        )
    return param


def check_param_name(name: Any) -> None:
    """Refuse a name that is no identifier or means something else."""
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or len(name) > LONGEST_NAME:
        raise ParameterError(f"A parameter's name is a word of at most {LONGEST_NAME} plain letters; {name!r} is not.")
    if name in _TAKEN or name.startswith("__"):
        raise ParameterError(f"The name {name!r} means something else in the language; choose another.")


def read_params(given: Sequence[Param] | Mapping[str, Any]) -> tuple[Param, ...]:
    """Parameters from a mapping of names to numbers and texts, or from parameters as they are."""
    if isinstance(given, Mapping):
        return tuple(read_param(name, value) for name, value in given.items())
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ParameterError("params is a mapping such as {'beta': 1.0} or several softknee.spec.Param.")
    for one in given:
        if not isinstance(one, Param):
            raise ParameterError(
                f"params is a mapping such as {{'beta': 1.0}} or several softknee.spec.Param, and "
                f"{type(one).__name__} was given."
            )
    return tuple(given)


def merged_params(own: Sequence[Param], declared: Sequence[Param], given: Any) -> tuple[Param, ...]:
    """The parameters that a definition has, with what was declared of them.

    A number alone (no constraint beside it) sets the default of a parameter that a name or an engine brought along, and
    leaves its constraint.
    """
    by_name = {one.name: one for one in declared}
    found = []
    for one in own:
        wanted = by_name.get(one.name, one)
        if wanted != one and isinstance(given, Mapping) and not _says_constraint(given[one.name]):
            wanted = checked(replace(one, default=wanted.default, learned_default=None))
        if wanted.symbol != one.symbol:
            raise ParameterError(
                f"The parameter {one.name!r} is {one.constraint.words} where it comes from, and was declared as "
                f"{wanted.constraint.words}; leave its constraint out, or rename one of them."
            )
        found.append(wanted)
    return tuple(found)


def _says_constraint(value: Any) -> bool:
    return isinstance(value, Param) or (isinstance(value, str) and ":" in value)


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ParameterError(f"{text.strip()!r} in {where} is not a finite number.")
    return value
