"""One parameter of a definition, and the checks that every kind of definition makes of its parameters.

A default shows what the function is, on inputs that are about standard normal:

- Where the field has a usual value it is that one: what torch, Keras or timm compute under the name (GELU, SiLU, ELU at
  1, LeakyReLU at 0.01, Squareplus at b = 4), or what defines the function (SELU, StarReLU).
- A width is 1: the knee reaches one standard deviation of the input to either side, so that two of three inputs fall in
  it.
- A size that is no width (the eps of CRReLU) has the value, to one digit, at which the function is as far from its hard
  limit as an S-ReLU of width 1 is: 3/16.
- A parameter that generalises another function starts where it is that function: a shift at 0, a second slope at 1.

What a paper used instead is a preset of the definition (`presets={"paper": {"delta": 0.01}}`). `calibrate_` scales the
default by the spread of a layer's own inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ParameterError, did_you_mean
from .algebra import Symbol, sympy
from .constraints import AtLeastOne, Between, Constraint, Positive, Real

# Words that stand beside the parameters in calls and modules.
RESERVED = {
    "x",
    "u",
    "v",
    "input",
    "learn",
    "per",
    "size",
    "dim",
    "inplace",
    "save",
    "device",
    "dtype",
    "preset",
    "temperature",
}

# How parameters are typeset that SymPy does not know the letters of.
_LETTERS = {"eps": r"\varepsilon", "lam": r"\lambda", "g_minus": "g_{-}", "g_plus": "g_{+}", "slope": "a", "shift": "s"}
_LETTERS |= {word: rf"\mathrm{{{word}}}" for word in ("low", "high", "lower", "upper", "value", "scale", "bias")}


@dataclass(frozen=True)
class Param:
    """One parameter: its name, constraint, default, and where it starts when it is learned."""

    name: str
    default: float
    constraint: Constraint = field(default_factory=Positive)
    learned_default: float | None = None
    about: str = ""

    @property
    def symbol(self) -> Symbol:
        """The parameter in a formula."""
        limits = self.constraint
        positive = isinstance(limits, (Positive, AtLeastOne)) or (isinstance(limits, Between) and limits.low >= 0)
        return sympy.Symbol(self.name, positive=True) if positive else sympy.Symbol(self.name, real=True)

    @property
    def letter(self) -> str:
        """The parameter as LaTeX."""
        return _LETTERS.get(self.name) or sympy.latex(self.symbol)

    @property
    def start(self) -> float:
        """The default start value of a learned parameter."""
        return self.default if self.learned_default is None else self.learned_default


def positive(name: str, default: float, about: str = "") -> Param:
    """A parameter above 0, such as a width.

    >>> positive("width", 1.0).constraint.words
    'a finite number above 0'
    """
    return Param(name, default, Positive(), about=about)


def real(name: str, default: float, about: str = "") -> Param:
    """A parameter that may be any finite number."""
    return Param(name, default, Real(), about=about)


def find_param(title: str, params: Sequence[Any], name: str) -> Any:
    """The parameter of that name, or an error with a did-you-mean."""
    check_name(title, [p.name for p in params], name)
    return next(param for param in params if param.name == name)


def check_name(title: str, known: Sequence[str], name: str) -> None:
    """Refuse the name of a parameter that is not there, with a did-you-mean."""
    if name not in known:
        has = f"its parameters are {', '.join(known)}" if known else "it has no parameters"
        raise ParameterError(f"{title} has no parameter {name!r}; {has}.{did_you_mean(name, known)}")


def check_values(title: str, params: Sequence[Param], values: Mapping[str, Any]) -> None:
    """Refuse names that do not exist, what is no number, and numbers that are not allowed. (Tensors are not read: that
    would wait for the device.)"""
    from torch import Tensor

    for name, value in values.items():
        constraint = find_param(title, params, name).constraint
        if not isinstance(value, Tensor) and not constraint.allows(read_number(title, name, value)):
            raise ParameterError(f"{title}: {name} must be {constraint.words}, and {value!r} was given.")


def read_number(title: str, name: str, value: Any) -> float:
    """What was given for a parameter as a number (Python's or NumPy's), or a sentence that says it is none."""
    if not isinstance(value, (bool, str, bytes)):
        try:
            return float(value)
        except OverflowError:
            return math.inf
        except (TypeError, ValueError):
            pass
    kind = type(value).__name__
    cure = "; give a torch.Tensor for several" if kind in ("list", "tuple", "ndarray") else ""
    raise ParameterError(f"{title}: {name} must be a number or a tensor, and {kind} was given{cure}.")


def check_order(order: Any) -> None:
    """Refuse what is not the order of a derivative."""
    if isinstance(order, bool) or not isinstance(order, int):
        raise ParameterError(
            f"The order of a derivative must be a whole number, 0 or more, and {type(order).__name__} was given."
        )
    if order < 0:
        raise ParameterError(f"The order of a derivative must be 0 or more, and {order} was given.")
