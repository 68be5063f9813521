"""The range of an expression on an interval, between proven ends."""

from __future__ import annotations

from fractions import Fraction

from ...spec.algebra import Expr, oo, sympy
from .ball_algebra import proves_zero, stable
from .ball_pieces import Unsettled, smooth_patch, split_exact, with_exact_numbers
from .ball_places import extremum, placed
from .ball_programs import constant
from .balls import working_precision
from .branch_and_bound import Budget, highest, search
from .certificate import Extremum


def prove_range(expr: Expr, low: Fraction | float, high: Fraction | float) -> tuple[Extremum, Extremum]:
    """Infimum and supremum of an expression in x on [low, high]; at a jump both one-sided limits count."""
    with working_precision():
        pieces = split_exact(stable(with_exact_numbers(expr)))
        first, last = _end(low), _end(high)
        lows, highs = [], []
        for part, start, end in zip(pieces.parts, [-oo, *pieces.seams], [*pieces.seams, oo], strict=True):
            start, end = (first if _order(start, first) < 0 else start), (last if _order(end, last) > 0 else end)
            if _order(start, end) < 0 or (low == high and _order(start, end) == 0):
                patch = smooth_patch(start, end, part, None, Budget())
                lows.append(placed(patch, search(patch.curve(0), patch.lo, patch.hi, -1, Budget())))
                highs.append(placed(patch, search(patch.curve(0), patch.lo, patch.hi, 1, Budget())))
        return extremum(highest([one.turned() for one in lows]).turned()), extremum(highest(highs))


def _end(value: Fraction | float) -> Expr:
    if value in (float("inf"), float("-inf")):
        return oo if value > 0 else -oo
    exact = Fraction(value)
    return sympy.Rational(exact.numerator, exact.denominator)


def _order(one: Expr, other: Expr) -> int:
    """-1, 0 or 1 as one number is below, at or above another."""
    if one == other:
        return 0
    a, b = constant(one), constant(other)
    if a.hi < b.lo:
        return -1
    if a.lo > b.hi:
        return 1
    if proves_zero(one - other):
        return 0
    raise Unsettled(f"{one} and {other} are too near to be told apart.")
