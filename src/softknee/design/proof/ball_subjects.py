"""What is certified: a function as pieces on the line, whatever kind of definition it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ...spec import Activation, Implicit, elementary
from ...spec.algebra import Expr, sympy
from ...spec.pieces import Pieces
from .ball_algebra import stable
from .ball_pieces import Patch, split_exact, v, with_exact_numbers, x


@dataclass(frozen=True)
class Subject:
    """A function with its numbers put in.

    pieces:    its seams and the smooth expressions between them.
    formula:   the whole, for its values at the seams themselves; None where `values` has them.
    values:    the value at each seam.
    slopes:    the derivative of each part, where it is known in a better form than SymPy would find.
    invisible: seams across which it is one analytic function: the parts are two forms of it.
    """

    name: str
    params: Mapping[str, Any]
    pieces: Pieces
    formula: Expr | None = None
    implicit: Implicit | None = None
    values: Mapping[Expr, Expr] = field(default_factory=dict)
    slopes: tuple[Expr, ...] | None = None
    invisible: frozenset[Expr] = frozenset()

    def value_at(self, left: Patch, right: Patch) -> Expr:
        """The exact value at the seam between two patches, in textbook functions."""
        if self.formula is None:
            return self.values[left.end]
        place = {x: left.end}
        for patch, side in ((left, 1), (right, -1)):
            if patch.symbol == v:
                place[v] = patch.end_point(side)
        return elementary(self.formula).xreplace(place)


def numbers_in(expr: Expr, act: Activation, values: Mapping[str, Fraction]) -> Expr:
    """A formula with those of its parameters that have values replaced by exact numbers."""
    exact = {
        p.symbol: sympy.Rational(values[p.name].numerator, values[p.name].denominator)
        for p in act.params
        if p.name in values
    }
    return stable(with_exact_numbers(expr.xreplace(exact)))


def of_activation(act: Activation, values: Mapping[str, Fraction]) -> Subject:
    """The subject of an element-wise definition."""
    formula = numbers_in(act.formula, act, values)
    implicit = act.implicit
    if implicit is not None:
        implicit = Implicit(*(numbers_in(one, act, values) for one in (implicit.inverse, implicit.low, implicit.high)))
    return Subject(act.name, dict(values), split_exact(formula), formula, implicit)
