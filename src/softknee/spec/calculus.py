"""Derivatives of a definition, with its helper symbols followed through the chain rule.

For u = a x + b the total derivative by x is d/dx + a d/du; for v with inverse(v) = x it is d/dx +
(1/inverse'(v)) d/dv, and by a parameter -(d inverse/dp / inverse') d/dv. Afterwards every free x is written
in u, so that a derivative is a function of the clipped u and has its limit at infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .algebra import Add, Expr, Function, Piecewise, Symbol, sympy
from .primitives import FiniteLeft, u, v, x

LONGEST_FACTORED = 300

if TYPE_CHECKING:
    from .activation import Activation


def partial(act: Activation, index: tuple[str, ...]) -> Expr:
    """The expression of the derivative of `act` by everything in `index`, one at a time."""
    before, last = index[:-1], index[-1]
    symbol = x if last == "x" else act.param(last).symbol
    along: dict[Symbol, Expr] = {symbol: sympy.Integer(1)}
    if act.inner is not None:
        along[u] = sympy.diff(act.inner.value, symbol)
    if act.implicit is not None:
        slope = sympy.diff(act.implicit.inverse, v)
        along[v] = (1 if symbol is x else -sympy.diff(act.implicit.inverse, symbol)) / slope
    as_x = act.inner.as_x if act.inner is not None else x

    def total(piece: Expr) -> Expr:
        result = Add(*(sympy.diff(piece, one) * rate for one, rate in along.items()))
        result = without_jumps(result.replace(FiniteLeft, lambda arg: arg))
        return _tidy(_outside_seams(result, lambda part: part.xreplace({x: as_x})))

    return each_piece(act.partial(*before).bound_formula, total)


def each_piece(expr: Expr, do: Callable[[Expr], Expr]) -> Expr:
    """Do something inside each piece, and leave the seams as they are: a jump has no derivative."""
    if isinstance(expr, Piecewise):
        return Piecewise(*((each_piece(piece, do), when) for piece, when in expr.args), evaluate=False)
    return do(expr)


def without_jumps(expr: Expr) -> Expr:
    """SymPy's derivatives of abs, sign, Max and Min with their point masses left out and their steps as pieces.

    As everywhere in this field the derivative at a kink is that of one side, and a jump adds nothing.
    """
    expr = expr.replace(sympy.DiracDelta, lambda *args: sympy.Integer(0))
    return expr.replace(sympy.Heaviside, lambda arg, *value: Piecewise((1, arg > 0), (0, True)))


def _outside_seams(expr: Expr, do: Callable[[Expr], Expr]) -> Expr:
    """Do something everywhere but in the conditions of pieces inside the expression."""
    inner = {p: sympy.Dummy(real=True) for p in expr.atoms(Piecewise)}
    if not inner:
        return do(expr)
    back = {dummy: each_piece(piece, do) for piece, dummy in inner.items()}
    return do(expr.xreplace(inner)).xreplace(back)


def _tidy(expr: Expr) -> Expr:
    """Factor where that makes it shorter (and so, mostly, better conditioned) and brings no new function in."""
    if expr.has(Piecewise) and expr.count_ops() > LONGEST_FACTORED:
        return expr  # many joined pieces: factoring them takes seconds and finds nothing
    factored = sympy.factor(expr)
    same = factored.atoms(Function) <= expr.atoms(Function)
    return factored if same and factored.count_ops() <= expr.count_ops() else expr
