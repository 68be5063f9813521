"""The grammar of a search: from the choices of a sampler to a candidate, which is a text of the formula language.

>>> class Fixed(dict):
...     def suggest_categorical(self, name, choices):
...         return self[name]
...     def suggest_float(self, name, low, high, *, log=False):
...         return self[name]
>>> trial = Fixed({"form": "mollify", "mollify.hard": "relu", "mollify.kernel": "box", "mollify.width": 0.71234})
>>> candidate = draw(trial, Search())
>>> candidate.formula, candidate.text
('mollify(relu, box, width=w)', 'let(mollify(relu, box, width=w), w=0.712)')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import softknee as sk

from ...spec import Activation
from ...spec.constraints import AtLeastOne, Between, Constraint, Positive
from ..studies.recipe import Choice, Search
from ..studies.trial import Chosen

# Gates from 0 to 1 of a number z, as formulas; each has the slope 1/4 to 1/2 at 0.
GATES = {
    "sigmoid": "sigmoid({z})",
    "normal": "normal_cdf({z})",
    "algebraic": "(0.5 + 0.5 * ({z}) / sqrt(1 + ({z})**2))",
    "arctan": "(0.5 + atan({z}) / pi)",
    "hard": "unit(0.5 + 0.25 * ({z}))",
}
_DIGITS = 3  # of a number that is chosen: a text that a person can read, and a proof of exactly that number


class Sampler(Protocol):
    """What a trial of Optuna offers."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any: ...

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float: ...


@dataclass(frozen=True)
class Candidate:
    """A function with numbers.

    form:    the rule of the grammar that made it, or "baseline".
    formula: a name or a text with names for the numbers; candidates with one formula train as one program.
    values:  the numbers, by name.
    real:    those that may be of either sign.
    """

    form: str
    formula: str
    values: Mapping[str, float] = field(default_factory=dict)
    real: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What works wherever a name works."""
        if not self.values:
            return self.formula
        kinds = {name: f"'{value!r}:real'" if name in self.real else value for name, value in self.values.items()}
        given = ", ".join(f"{name}={number}" for name, number in kinds.items())
        return f"{self.formula}({given})" if self.formula.isidentifier() else f"let({self.formula}, {given})"

    def definition(self) -> Activation:
        return sk.get(self.text)

    def chosen(self, *, learn: bool) -> Chosen:
        """As a trial has it."""
        return Chosen(name=self._name, label=self.text, values=self._values, learn=learn and bool(self.values))

    def choice(self, label: str, *, learn: bool) -> Choice:
        """As a recipe has it."""
        return Choice(name=self._name, label=label, values=self._values, learn=learn and bool(self.values))

    @property
    def _name(self) -> str:
        return self.formula if self.formula.isidentifier() else self.text

    @property
    def _values(self) -> Mapping[str, float]:
        return self.values if self.formula.isidentifier() else {}


def draw(trial: Sampler, search: Search, *, density: str = "normal") -> Candidate:
    """The candidate that a sampler chooses; `density` is what "data" stands for."""
    form = trial.suggest_categorical("form", list(search.forms))
    return RULES[form](_Draw(trial, search, form, density))


class _Draw:
    """One candidate while it is drawn: the choices, and the numbers so far."""

    def __init__(self, trial: Sampler, search: Search, form: str, density: str) -> None:
        self.trial, self.search, self.form, self.density = trial, search, form, density
        self.values: dict[str, float] = {}
        self.real: list[str] = []

    def among(self, name: str, choices: Sequence[Any]) -> Any:
        return self.trial.suggest_categorical(f"{self.form}.{name}", list(choices))

    def number(self, letter: str, name: str, low: float, high: float) -> str:
        """A number between two ends: of sizes where both are above 0, of either sign otherwise."""
        value = self.trial.suggest_float(f"{self.form}.{name}", low, high, log=low > 0)
        self.values[letter] = float(f"{value:.{_DIGITS}g}")
        if low <= 0:
            self.real.append(letter)
        return letter

    def candidate(self, formula: str) -> Candidate:
        return Candidate(self.form, formula, self.values, tuple(self.real))


def _function(drawn: _Draw) -> Candidate:
    name = drawn.among("function", drawn.search.functions)
    for param in sk.get(name).params:
        drawn.number(param.name, f"{name}.{param.name}", *_range(param.constraint, param.default))
    return Candidate("function", name, drawn.values)


def _range(constraint: Constraint, default: float) -> tuple[float, float]:
    """Where the number of a function's own parameter is looked for."""
    if isinstance(constraint, Positive):
        return default / 8, default * 4
    if isinstance(constraint, AtLeastOne):
        return 1.0, 8.0
    if isinstance(constraint, Between):
        room = (constraint.high - constraint.low) / 16
        return constraint.low + room, constraint.high - room
    return default - 0.5, default + 0.5


def _mollify(drawn: _Draw) -> Candidate:
    hard, kernel = drawn.among("hard", drawn.search.hard), drawn.among("kernel", drawn.search.kernels)
    return drawn.candidate(f"mollify({hard}, {kernel}, width={drawn.number('w', 'width', 0.05, 4.0)})")


def _join(drawn: _Draw) -> Candidate:
    left = f"{drawn.number('g', 'slope', -0.25, 0.5)} * x" if drawn.among("left", ["0", "line"]) == "line" else "0"
    ends = f"-{drawn.number('a', 'left end', 0.1, 3.0)}, {drawn.number('b', 'right end', 0.1, 3.0)}"
    joined = f"join({left}, x, between=({ends}), smoothness={drawn.among('smoothness', [1, 2, 3])})"
    return drawn.candidate(f"with_limit({joined}, relu, knob=(a, b))" if left == "0" else joined)


def _gate(drawn: _Draw) -> Candidate:
    z = f"{drawn.number('b', 'scale', 0.25, 4.0)} * x + {drawn.number('c', 'shift', -1.0, 1.0)}"
    gate = GATES[drawn.among("gate", drawn.search.gates)].format(z=z)
    return drawn.candidate(f"with_limit(x * {gate}, relu, knob=b)")


def _sum(drawn: _Draw) -> Candidate:
    functions = drawn.search.functions
    first, second = sorted(drawn.among(place, functions) for place in ("first", "second"))
    share = drawn.number("a", "share", -0.5, 1.5)
    if first == second:
        return Candidate("function", first)
    return drawn.candidate(f"{share} * {first}(x) + (1 - {share}) * {second}(x)")


def _product(drawn: _Draw) -> Candidate:
    gate = GATES[drawn.among("gate", drawn.search.gates)].format(z=f"{drawn.number('b', 'scale', 0.25, 4.0)} * x")
    return drawn.candidate(f"{drawn.among('function', drawn.search.functions)}(x) * {gate}")


def _eafo(drawn: _Draw) -> Candidate:
    hard, density = drawn.among("hard", drawn.search.hard), drawn.among("density", drawn.search.densities)
    drawn.number("eps", "eps", -1.0, 1.0)
    return drawn.candidate(f"eafo({hard}, density={drawn.density if density == 'data' else density})")


RULES: dict[str, Callable[[_Draw], Candidate]] = {
    "function": _function,
    "mollify": _mollify,
    "join": _join,
    "gate": _gate,
    "sum": _sum,
    "product": _product,
    "eafo": _eafo,
}
