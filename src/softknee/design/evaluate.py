"""Expressions in x on float64 tensors, by walking their tree: for the many that an engine looks at once and drops.

A definition would be printed, compiled and kept; here nothing is kept. Not for training: there is no gradient.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from sympy.core.relational import Relational
from sympy.logic.boolalg import And, BooleanFalse, BooleanTrue, Not, Or
from torch import Tensor

from .. import zoo  # noqa: F401 - importing the zoo announces its names
from ..errors import DefinitionError
from ..registry import resolve
from ..spec import Activation, x
from ..spec import primitives as p
from ..spec.algebra import Add, Expr, Mul, Piecewise, Pow, sympy
from .texts.given import exact, is_finite_real


def definition_of(f: Any, *, needed_by: str) -> Activation:
    """The element-wise definition that is meant; a formula that comes alone has x alone in it."""
    definition = resolve(f).as_definition()
    if isinstance(definition, Activation):
        return definition
    what = getattr(definition, "name", None) or type(definition).__name__
    raise DefinitionError(
        f"{needed_by} takes an element-wise function with a formula, by name, as a definition or as a formula in "
        f"softknee.spec.x, and {what} was given; functions of whole rows and tables have no such formula."
    )


def from_expression(f: Any) -> Activation:
    """The definition of a SymPy expression in x, or of a number."""
    formula = exact(sympy.sympify(f))
    formula = formula.xreplace({s: x for s in formula.free_symbols if s.name == "x"})
    if strange := formula.free_symbols - {x}:
        names = ", ".join(sorted(map(str, strange)))
        raise DefinitionError(
            f"The formula {f} uses {names} without saying what values it may take; make a definition of it first: "
            f"softknee.Activation('mine', formula, params=(softknee.spec.positive('a', 1.0),))."
        )
    if not is_finite_real(formula):
        raise DefinitionError(f"The formula {f} is not a finite real number everywhere; an activation has to be.")
    return Activation("formula", formula)


Curve = Callable[[Tensor], Tensor]


def _sech_squared(u: Tensor) -> Tensor:
    w = torch.exp(-2 * u.abs())
    return 4 * w / (1 + w) ** 2


# The primitives whose textbook forms would cancel or overflow; the others are computed by their textbook forms.
_FUNCTIONS: dict[type, Callable[..., Tensor]] = {
    p.Sigmoid: torch.sigmoid,
    p.Softplus: lambda u: torch.relu(u) + torch.log1p(torch.exp(-u.abs())),
    p.Tanh: torch.tanh,
    p.SechSquared: _sech_squared,
    p.NormalPdf: lambda u: torch.exp(-0.5 * u * u) / math.sqrt(2 * math.pi),
    p.NormalCdf: lambda u: 0.5 * torch.special.erfc(-u * math.sqrt(0.5)),
    p.Expm1: torch.expm1,
    p.Log1p: torch.log1p,
    p.Log1pUnit: torch.log1p,
    sympy.exp: torch.exp,
    sympy.log: torch.log,
    sympy.sin: torch.sin,
    sympy.cos: torch.cos,
    sympy.atan: torch.atan,
    sympy.tanh: torch.tanh,
    sympy.sinh: torch.sinh,
    sympy.cosh: torch.cosh,
    sympy.asinh: torch.asinh,
    sympy.erf: torch.special.erf,
    sympy.erfc: torch.special.erfc,
    sympy.Abs: torch.abs,
    sympy.sign: torch.sign,
    sympy.Max: lambda *args: reduce(torch.maximum, args),
    sympy.Min: lambda *args: reduce(torch.minimum, args),
}
_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def curve(expr: Expr) -> Curve:
    """An expression in x as a function of float64 tensors.

    >>> import torch
    >>> from softknee.design.evaluate import curve
    >>> from softknee.spec import Sigmoid, x
    >>> curve(x * Sigmoid(x))(torch.tensor([0.0, 1.0], dtype=torch.float64))
    tensor([0.0000, 0.7311], dtype=torch.float64)
    """
    expression = sympy.sympify(expr)

    def compute(at: Tensor) -> Tensor:
        with torch.no_grad():
            return _Walk(at).value(expression).expand(at.shape)

    return compute


class _Walk:
    def __init__(self, at: Tensor) -> None:
        self.at = at
        self.known: dict[Any, Tensor] = {p.x: at}

    def value(self, expr: Expr) -> Tensor:
        if expr not in self.known:
            self.known[expr] = self._compute(expr)
        return self.known[expr]

    def _compute(self, expr: Expr) -> Tensor:
        if expr.is_number:
            return torch.tensor(float(expr), dtype=self.at.dtype, device=self.at.device)
        if isinstance(expr, Add):
            return reduce(operator.add, map(self.value, expr.args))
        if isinstance(expr, Mul):
            return reduce(operator.mul, map(self.value, expr.args))
        if isinstance(expr, Pow):
            power = float(expr.exp) if expr.exp.is_number else self.value(expr.exp)
            return torch.pow(self.value(expr.base), power)
        if isinstance(expr, Piecewise):
            return self._choose(expr)
        if (function := _FUNCTIONS.get(expr.func)) is not None:
            return function(*map(self.value, expr.args))
        if isinstance(expr, p.Primitive):
            return self.value(expr.elementary(*expr.args))
        raise DefinitionError(f"{expr.func} has no meaning on numbers here; use a function of the formula language.")

    def _choose(self, expr: Expr) -> Tensor:
        result = torch.full((), math.nan, dtype=self.at.dtype, device=self.at.device)
        for value, when in reversed(expr.args):
            result = torch.where(self._holds(when), self.value(value), result)
        return result

    def _holds(self, when: Any) -> Tensor:
        if isinstance(when, BooleanTrue | BooleanFalse):
            return torch.tensor(bool(when), device=self.at.device)
        if isinstance(when, Relational):
            relation: Any = when
            return _COMPARE[relation.rel_op](self.value(relation.lhs), self.value(relation.rhs))
        if isinstance(when, And | Or):
            join = operator.and_ if isinstance(when, And) else operator.or_
            return reduce(join, map(self._holds, when.args))
        if isinstance(when, Not):
            return ~self._holds(when.args[0])
        raise DefinitionError(f"The condition {when} is not a comparison.")
