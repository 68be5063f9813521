"""What is handed to an engine: functions in any form, points, and the parameters that stand in them.

A function may be a SymPy expression in x, a number, a definition, the name of one, a file that holds one, or a text of
the formula language. Symbols are matched by name, so that `sympy.Symbol("beta")` means the parameter beta.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...errors import DefinitionError, FormulaError, ParameterError, did_you_mean
from ...registry import resolve, ships
from ...spec import Activation, AtLeastOne, Between, Constraint, Param, Positive, Real, u, v, x
from ...spec.algebra import Expr, Float, Rational, sympy
from ...spec.param import RESERVED
from ...spec.parse import FUNCTIONS, LONGEST, parse
from ...spec.text import write

_WORDS = ("positive", "real", "at_least_one", "between")
_CALL = re.compile(r"([a-z_]{1,20})(?:\(([-+.,0-9eE ]{1,80})\))?")
LONGEST_NAME = 64
# Words of the language, which a parameter cannot take from it.
_TAKEN = {"pi", "e", "where", "piecewise", "max", "min", "line", *FUNCTIONS, *RESERVED}


def read_constraint(text: str) -> Constraint:
    """The constraint that a word stands for."""
    match = _CALL.fullmatch(text.strip()) if isinstance(text, str) else None
    word, inside = match.groups() if match else (text, None)
    numbers = [_number(word, f"the constraint {text!r}") for word in inside.split(",")] if inside else []
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


def read_param(name: str, value: Any) -> Param:
    """A parameter from its name and a number, a text such as "0.1:real", or a parameter as it is."""
    if isinstance(value, Param):
        return value
    check_param_name(name)
    if isinstance(value, str):
        number, colon, word = value.partition(":")
        default = _number(number, f"the parameter {name!r}")
        constraint = read_constraint(word) if colon else None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        default, constraint = float(value), None
    else:
        raise ParameterError(
            f"The parameter {name!r} is given as a number, a text such as '1.0:real' or a Param, and "
            f"{type(value).__name__} was given."
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


def read_params(declared: Sequence[Param] | Mapping[str, Any]) -> tuple[Param, ...]:
    """Parameters from a mapping of names to numbers and texts, or from parameters as they are."""
    if isinstance(declared, Mapping):
        return tuple(read_param(name, value) for name, value in declared.items())
    if isinstance(declared, str) or not isinstance(declared, Sequence):
        raise ParameterError("params is a mapping such as {'beta': 1.0} or several softknee.spec.Param.")
    for value in declared:
        if not isinstance(value, Param):
            raise ParameterError(
                f"params is a mapping such as {{'beta': 1.0}} or several softknee.spec.Param, and "
                f"{type(value).__name__} was given."
            )
    return tuple(declared)


def merged_params(own: Sequence[Param], declared: Sequence[Param], params: Any) -> tuple[Param, ...]:
    """The parameters that a definition has, with what was declared of them.

    A number alone (no constraint beside it) sets the default of a parameter that a name or an engine brought along, and
    leaves its constraint.
    """
    by_name = {param.name: param for param in declared}
    merged = []
    for param in own:
        declaration = by_name.get(param.name, param)
        if declaration != param and isinstance(params, Mapping) and not _says_constraint(params[param.name]):
            declaration = checked(replace(param, default=declaration.default, learned_default=None))
        if declaration.symbol != param.symbol:
            raise ParameterError(
                f"The parameter {param.name!r} is {param.constraint.words} where it comes from, and was declared as "
                f"{declaration.constraint.words}; leave its constraint out, or rename one of them."
            )
        merged.append(declaration)
    return tuple(merged)


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


class Given:
    """The arguments of one call of an engine; `params` grows with what definitions bring along."""

    def __init__(self, engine: str, params: Sequence[Param] | Mapping[str, Any]) -> None:
        self.engine = engine
        self._declared: dict[str, Param] = {}
        self._brought: dict[str, Param] = {}
        self._texts: dict[Expr, str] = {}
        for param in read_params(params) if isinstance(params, Mapping) else params:
            if not isinstance(param, Param):
                raise DefinitionError(
                    f"{engine} takes its parameters as softknee.spec.Param, such as positive('beta', 1.0), or as a "
                    f"mapping such as {{'beta': 1.0}}, and {type(param).__name__} was given."
                )
            self._declared[param.name] = param

    def function(self, f: Any) -> Expr:
        """The expression in x that a function of any form stands for."""
        if isinstance(f, str | os.PathLike):
            f = resolve(f, params=tuple(self._declared.values())).as_definition()
        if isinstance(f, Activation):
            return self._definition(f)
        return self._expression(f, "a function")

    def point(self, value: Any) -> Expr:
        """A place on the line, which may hang on parameters but not on x."""
        place = self.function(value) if isinstance(value, str) else self._expression(value, "a point")
        if place.has(x):
            raise DefinitionError(f"{self.engine} takes points that do not contain x, and {place} was given.")
        return place

    def recipe(self, *arguments: Any, **options: Any) -> str:
        """The text of the call with these arguments, or an empty one where the language cannot say it."""
        try:
            parts = [self._text(argument) for argument in arguments]
            parts += [f"{name}={self._text(value)}" for name, value in options.items()]
        except FormulaError:
            return ""
        text = f"{self.engine}({', '.join(parts)})"
        return text if len(text) <= LONGEST else ""

    def _text(self, value: Any) -> str:
        if isinstance(value, tuple):
            return f"({', '.join(self._text(part) for part in value)})"
        if isinstance(value, bool | int):
            return repr(value)
        return self._texts.get(value) or write(value)

    def params_of(self, *expressions: Expr) -> tuple[Param, ...]:
        """The parameters that occur, the declared ones first; one that was declared and does not occur is refused."""
        used = set().union(*(expression.free_symbols for expression in expressions))
        known = self._brought | self._declared
        for name in self._declared:
            if known[name].symbol not in used:
                raise DefinitionError(f"{self.engine} was given the parameter {name!r}, which nothing in it contains.")
        order = [*self._declared, *(name for name in self._brought if name not in self._declared)]
        return tuple(known[name] for name in order if known[name].symbol in used)

    def _definition(self, act: Activation) -> Expr:
        if act.implicit is not None:
            raise DefinitionError(
                f"{act.name!r} is given by its inverse and has no closed form, which {self.engine} needs."
            )
        for param in act.params:
            other = (self._declared | self._brought).get(param.name)
            if other is not None and other.symbol != param.symbol:
                raise DefinitionError(
                    f"{self.engine} was given two parameters called {param.name!r}, one {other.constraint.words} and "
                    f"one {param.constraint.words}; rename one of them."
                )
            self._brought.setdefault(param.name, param)
        with suppress(DefinitionError):
            self._texts[act.formula] = text_of(act)
        return act.formula

    def _expression(self, value: Any, what: str) -> Expr:
        if isinstance(value, bool) or not isinstance(value, int | float | sympy.Expr):
            raise DefinitionError(
                f"{self.engine} takes {what} as a number, a SymPy expression or a text, and {type(value).__name__} was "
                f"given."
            )
        expr = exact(sympy.sympify(value))
        known = {"x": x} | {item.name: item.symbol for item in (self._brought | self._declared).values()}
        expr = expr.xreplace({s: known[s.name] for s in expr.free_symbols if s.name in known})
        if strange := expr.free_symbols - {*known.values()} | (expr.free_symbols & {u, v}):
            names = ", ".join(sorted(map(str, strange)))
            raise DefinitionError(
                f"{self.engine} was given {expr}, which contains {names}; declare each parameter, as in "
                f"params=(softknee.spec.positive({min(map(str, strange))!r}, 1.0),)."
            )
        if not is_finite_real(expr):
            raise DefinitionError(f"{self.engine} was given {expr}, which is not a finite real number everywhere.")
        return expr


def is_finite_real(expr: Expr) -> bool:
    """Whether nothing infinite, undefined or imaginary stands in the expression."""
    return not expr.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo, sympy.I)


def exact(expr: Expr) -> Expr:
    """The expression with decimal fractions as fractions: 0.1 means 1/10, as in a text."""
    return expr.replace(lambda e: isinstance(e, Float), lambda e: Rational(repr(float(e))))


def text_of(act: Any) -> str:
    """The text that makes a definition again, or an error that says why there is none."""
    if not isinstance(act, Activation):
        name = getattr(act, "name", type(act).__name__)
        raise DefinitionError(f"{name!r} is not an element-wise formula, and the text language has no other kind.")
    if act.index:
        raise DefinitionError(f"{act.name!r} is a derivative; save {act.root.name!r} and differentiate what is loaded.")
    if ships(act):
        return act.name
    if act.recipe:
        return act.recipe
    if act.implicit is not None or act.inner is not None or act.worked is not None or act.stable:
        raise DefinitionError(
            f"{act.name!r} has numerics of its own (inner, worked, implicit or stable forms), which the text language "
            f"cannot say; so has what an engine made from samples, or with arguments that no text has. Keep it in "
            f"Python and register it, or make it from a formula or by an engine with arguments that a text can say."
        )
    try:
        text = write(act.formula)
        again = parse(text, params=act.params)
    except FormulaError as error:
        raise DefinitionError(f"{act.name!r} cannot be saved: {error}") from error
    if again.free_symbols != act.formula.free_symbols:
        raise DefinitionError(f"{act.name!r} cannot be saved: its text {text!r} would be read as something else.")
    return text
