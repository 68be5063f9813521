"""Products of something that vanishes and something that grows, written so that they have their limit far out.

x^2 sigmoid(x) sigmoid(-x) is infinity times 0 at infinity, and in float32 already at 1e30. `Line(gate, rest)` is their
product with 0 where the gate is 0, whatever the rest has become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...spec import (
    Activation,
    Expm1,
    Line,
    MishGate,
    NormalCdf,
    NormalPdf,
    SechSquared,
    Sigmoid,
    Softplus,
    x,
)
from ...spec.algebra import Add, Expr, Mul, Piecewise, Pow, sympy

_MOST_TERMS, _MOST_PRODUCTS = 12, 100
Index = tuple[str, ...]
_VANISHING = (Sigmoid, NormalPdf, NormalCdf, SechSquared, MishGate, Softplus, sympy.exp, sympy.erfc)
_TAME = (*_VANISHING, Expm1, sympy.tanh, sympy.erf)


def guard(expr: Expr) -> Expr:
    """The same function, with every product of a gate and something that grows made safe far out."""
    return _Guarding().made(expr)


class _Guarding:
    """One formula's work. Equal parts are done once, and products of sums are written out while the budget lasts: they
    grow with the power of their number, and k sums of 12 terms would have 12^k.
    """

    def __init__(self) -> None:
        self._made: dict[Expr, Expr] = {}
        self._left = _MOST_PRODUCTS

    def made(self, expr: Expr) -> Expr:
        if not expr.args or not expr.has(x) or isinstance(expr, Line):
            return expr
        if expr not in self._made:
            self._made[expr] = self._product(expr) if isinstance(expr, Mul) else self._other(expr)
        return self._made[expr]

    def _other(self, expr: Expr) -> Expr:
        if isinstance(expr, Piecewise):
            return Piecewise(*((self.made(piece), when) for piece, when in expr.args), evaluate=False)
        return expr.func(*(self.made(arg) for arg in expr.args))

    def _product(self, expr: Expr) -> Expr:
        gates = [f for f in expr.args if _vanishes(f)]
        growing = [f for f in expr.args if f not in gates and f.has(x) and not isinstance(f, _TAME)]
        if not gates or not growing:
            return Mul(*(self.made(f) for f in expr.args))
        for factor in growing:
            if not isinstance(factor, Add) or factor.is_polynomial(x):
                continue
            if len(factor.args) <= min(_MOST_TERMS, self._left):
                # Terms that grow at different paces would be infinity less infinity: each gets the gate for itself.
                self._left -= len(factor.args)
                others = Mul(*(f for f in expr.args if f is not factor))
                return Add(*(self.made(others * term) for term in factor.args))
        rest = [self.made(f) for f in expr.args if f not in gates and f not in growing]
        return Mul(*rest, Line(Mul(*gates), Mul(*(_nested(self.made(f)) for f in growing))))


def _nested(factor: Expr) -> Expr:
    """A polynomial by Horner's rule: x^4 - 9 x^2 would be infinity less infinity."""
    return sympy.horner(factor, x) if isinstance(factor, Add) and factor.is_polynomial(x) else factor


def _vanishes(factor: Expr) -> bool:
    """Whether a factor can become 0 far out, faster than any power grows."""
    if isinstance(factor, Pow) and factor.exp.is_positive and factor.base != sympy.E:
        factor = factor.base
    return isinstance(factor, _VANISHING) and factor.has(x)


def guarded(
    name: str, formula: Expr, *, better: Callable[[Index], Expr | None] | None = None, **fields: Any
) -> Activation:
    """A definition whose value and derivatives of every order are computed in their guarded form.

    `better` is an engine's own form of a derivative, asked first; it answers None where it has none.
    """
    bare = Activation(f"{name}_unguarded", formula, params=fields.get("params", ()))
    return Activation(name, formula, stable=Guarded(bare, better), **fields)


@dataclass(frozen=True)
class Guarded(Mapping[Index, Expr]):
    """What is computed for the value and each derivative, made when asked for."""

    bare: Activation
    better: Callable[[Index], Expr | None] | None = None

    def __getitem__(self, index: Index) -> Expr:
        found = self.better(index) if self.better else None
        return guard(self.bare.partial(*index).bound_formula) if found is None else found

    def __iter__(self) -> Iterator[Index]:
        return iter([()])

    def __len__(self) -> int:
        return 1
