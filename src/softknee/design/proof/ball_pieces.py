"""A formula with its numbers put in, as smooth patches: x = place(t), f(x) = value(t) for t in [lo, hi].

Mostly t is x itself. Where an end is no binary number the patch is moved onto [0, 1] or a half-line from 0, so that its
ends are exact; where the formula is given by an inverse, t is the value v that the inverse is written in.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from ...errors import DefinitionError
from ...spec import Implicit, elementary
from ...spec import primitives as p
from ...spec.algebra import Expr, Pow, Symbol, oo, sympy
from ...spec.pieces import Pieces, split
from .ball_programs import Program, collected, constant, proves_zero, rational, tidy
from .balls import INFINITY, MINUS_INFINITY, NOTHING, Arb, Span
from .branch_and_bound import Budget, Curve, halves

x, v = p.x, p.v
CORNERED = (p.Ramp, p.Unit, p.Clip, sympy.Abs, sympy.Max, sympy.Min, sympy.sign, sympy.Heaviside, sympy.Piecewise)


class Unsettled(Exception):
    """Something was neither proved nor refuted; the message is a sentence for the certificate."""


@dataclass(frozen=True)
class Patch:
    """One smooth piece between the seams `start` and `end` (which may be infinite)."""

    lo: Arb
    hi: Arb
    symbol: Symbol
    place: Expr
    value: Expr
    start: Expr
    end: Expr
    slope: Expr | None = None

    @functools.cached_property
    def _orders(self) -> list[Expr]:
        return [self.value] if self.slope is None else [self.value, self.slope]

    def derivative(self, order: int) -> Expr:
        """The derivative by x of that order, written in t."""
        while len(self._orders) <= order:
            by_t = sympy.diff(self._orders[-1], self.symbol)
            self._orders.append(tidy(by_t / sympy.diff(self.place, self.symbol)))
        return self._orders[order]

    @functools.cached_property
    def _curves(self) -> dict[int, Curve]:
        return {}

    def curve(self, order: int) -> Curve:
        """The derivative of that order, ready to be enclosed."""
        if order not in self._curves:
            self._curves[order] = Curve(self.derivative(order), self.symbol)
        return self._curves[order]

    def end_point(self, side: int) -> Expr:
        """t at the lower (-1) or upper (1) end as an exact SymPy number."""
        end = self.hi if side > 0 else self.lo
        if not end.is_finite():
            return oo if end > 0 else -oo
        exact = end.fmpq()
        return sympy.Rational(int(exact.p), int(exact.q))

    def at_end(self, side: int, order: int) -> Expr:
        """The one-sided derivative at an end as an exact SymPy number, in textbook functions."""
        return elementary(self.derivative(order)).xreplace({self.symbol: self.end_point(side)})

    def end_value(self, side: int, order: int) -> Span:
        """The same as a span."""
        end = self.hi if side > 0 else self.lo
        return self.curve(order).at(Span(end, end))

    @property
    def is_constant(self) -> bool:
        """Whether the function is a line of slope 0 here."""
        return self.symbol not in self.value.free_symbols


def with_exact_numbers(expr: Expr) -> Expr:
    """Every Float as the binary fraction that it is."""
    floats = {number: sympy.Rational(number) for number in expr.atoms(sympy.Float)}
    return expr.xreplace(floats)


def split_exact(expr: Expr) -> Pieces:
    """The pieces of a formula whose parameters are numbers, the order of the seams proved."""
    relations = expr.atoms(sympy.Eq, sympy.Ne)
    if any(relation.has(x) for relation in relations):
        raise Unsettled("The formula gives single points a value of their own, which is not followed.")
    try:
        pieces = split(expr)
        _check_single_points(expr, pieces)
    except DefinitionError as error:
        raise Unsettled(f"The pieces of the formula cannot be laid out: {error}") from None
    places = [Program(seam)() for seam in pieces.seams]
    if not all(left.hi < right.lo for left, right in itertools.pairwise(places)):
        raise Unsettled(f"The order of the seams {', '.join(map(str, pieces.seams))} is not proved.")
    return pieces


def _check_single_points(expr: Expr, pieces: Pieces) -> None:
    """Where pieces were joined again the points between them must not have a value of their own."""
    for relation in expr.atoms(sympy.core.relational.Relational):
        gap = relation.lhs - relation.rhs
        if not gap.has(x):
            continue
        cut = split(gap)
        for point in dict.fromkeys([*cut.seams, *(root for part in cut.parts for root in _crossings(part))]):
            if any(proves_zero(point - seam) for seam in pieces.seams):
                continue
            values = (elementary(value).xreplace({x: point}) for value in (expr, pieces.part_of(point)))
            if not proves_zero(next(values) - next(values)):
                raise Unsettled(f"At {point} the formula has a value of its own, which is not followed.")


def _crossings(gap: Expr) -> list[Expr]:
    """Where a polynomial is 0."""
    if not gap.has(x):
        return []
    poly = sympy.Poly(gap, x) if gap.is_polynomial(x) else None
    if poly is not None and poly.degree() == 1:
        slope, offset = poly.all_coeffs()
        return [-offset / slope]
    if poly is None or poly.domain not in (sympy.ZZ, sympy.QQ):
        raise Unsettled(f"The formula compares {gap} with 0, which is not followed.")
    return list(dict.fromkeys(sympy.real_roots(poly)))


def merged(first: Pieces, second: Pieces) -> tuple[list[Expr], list[tuple[Expr, Expr]]]:
    """The seams of both, and the pair of parts between each two of them."""
    places: list[tuple[Expr, Span]] = []
    for seam in dict.fromkeys((*first.seams, *second.seams)):
        where = Program(seam)()
        for known, span in places:
            if span.lo <= where.hi and where.lo <= span.hi:
                if not proves_zero(known - seam):
                    raise Unsettled(f"The seams {known} and {seam} are too near to be told apart.")
                break
        else:
            places.append((seam, where))
    places.sort(key=lambda pair: pair[1].lo.fmpq())
    parts = []
    for index in range(len(places) + 1):
        cell = [_part(pieces, places, index) for pieces in (first, second)]
        parts.append((cell[0], cell[1]))
    return [seam for seam, _ in places], parts


def _part(pieces: Pieces, places: Sequence[tuple[Expr, Span]], index: int) -> Expr:
    """The part of one function in the cell that begins with the seam number index - 1."""
    if index == 0:
        return pieces.parts[0]
    start = places[index - 1][1]
    return pieces.parts[sum(bool(Program(seam)().lo <= start.hi) for seam in pieces.seams)]


def patches(
    seams: Sequence[Expr],
    parts: Sequence[Expr],
    implicit: Implicit | None,
    budget: Budget,
    slopes: Sequence[Expr] | None = None,
) -> list[Patch]:
    """The smooth patches of a function, each proved to be smooth up to both of its ends."""
    ends = [-oo, *seams, oo]
    smooth = []
    for place, part in enumerate(parts):
        start, end = ends[place : place + 2]
        patch = smooth_patch(start, end, part, implicit, budget)
        if slopes is not None:
            patch = replace(patch, slope=slopes[place].xreplace({x: patch.place}))
        smooth.append(patch)
    return smooth


def smooth_patch(start: Expr, end: Expr, part: Expr, implicit: Implicit | None, budget: Budget) -> Patch:
    """One patch, proved to be smooth."""
    patch = _patch(start, end, part, implicit, budget)
    _check_smooth(patch, budget)
    return patch


def _binary(seam: Expr) -> Arb | None:
    """A seam as an exact end, where it is one."""
    if seam in (oo, -oo):
        return INFINITY if seam == oo else MINUS_INFINITY
    number = rational(seam)
    span = None if number is None else Span.exact(number)
    return span.lo if span is not None and span.is_point else None


def _patch(start: Expr, end: Expr, part: Expr, implicit: Implicit | None, budget: Budget) -> Patch:
    if implicit is not None and part.has(v):
        return _implicit_patch(start, end, part, implicit, budget)
    lo, hi = _binary(start), _binary(end)
    if lo is not None and hi is not None:
        return Patch(lo, hi, x, x, part if part.count_ops() < 60 else collected(part, x), start, end)
    if start == -oo:
        place, lo, hi = end + x, MINUS_INFINITY, Span.exact(0).lo
    elif end == oo:
        place, lo, hi = start + x, Span.exact(0).lo, INFINITY
    else:
        place, lo, hi = start + (end - start) * x, Span.exact(0).lo, Span.exact(1).lo
    return Patch(lo, hi, x, place, collected(part.xreplace({x: place}), x), start, end)


def _implicit_patch(start: Expr, end: Expr, part: Expr, implicit: Implicit, budget: Budget) -> Patch:
    inverse = implicit.inverse
    lo, hi = (_solved(inverse, seam) for seam in (start, end))
    patch = Patch(lo, hi, v, inverse, part.xreplace({x: inverse}), start, end)
    if keeps_sign(Curve(sympy.diff(inverse, v), v), lo, hi, budget) != 1:
        raise Unsettled(f"It is not proved that {inverse} increases, as the inverse of the function must.")
    return patch


def _solved(inverse: Expr, seam: Expr) -> Arb:
    """The exact v with inverse(v) = seam."""
    if seam in (oo, -oo):
        side = INFINITY if seam == oo else MINUS_INFINITY
        box = Span(Span.exact(2**20).lo, side) if seam == oo else Span(side, Span.exact(-(2**20)).lo)
        limit = Curve(inverse, v).limit(box)
        if limit is None or limit.lo != side:
            raise Unsettled(f"It is not proved that {inverse} goes to {seam} with v.")
        return side
    for guess in (seam, sympy.Integer(0)):
        exact = _binary(guess)
        if exact is not None and proves_zero(inverse.xreplace({v: guess}) - seam):
            return exact
    raise Unsettled(f"The v that belongs to the seam at {seam} is not known exactly.")


# -- smoothness inside a patch ----------------------------------------------------------------------------


def keeps_sign(curve: Curve, lo: Arb, hi: Arb, budget: Budget) -> int | None:
    """The one sign, 1 or -1, that a function has on a whole interval with its ends; None where that is not proved."""
    signs = set()
    boxes = [Span(lo, hi)]
    while boxes:
        box = boxes.pop()
        sign = curve.sign_on(box)
        if sign == 0 or not budget.spend():
            return None
        if sign is not None:
            signs.add(sign)
        else:
            cut = halves(box)
            if cut is None or len(signs) > 1:
                return None
            boxes += cut
    return signs.pop() if len(signs) == 1 else None


def _check_smooth(patch: Patch, budget: Budget) -> None:
    """Every function is a known one, and each denominator, root and logarithm keeps away from 0: it is analytic."""
    Program(patch.value, patch.symbol)
    if patch.value.has(*CORNERED):
        raise Unsettled(f"The corners of {patch.value} are not resolved.")
    for needed, why in (*_needs(patch.value, patch.symbol), *_needs(patch.place, patch.symbol)):
        limited = Budget(min(budget.boxes, 400), budget.until)
        sign = keeps_sign(Curve(needed, patch.symbol), patch.lo, patch.hi, limited)
        if sign is None or (sign < 0 and why != "denominator"):
            between = f"between {patch.start} and {patch.end}"
            raise Unsettled(f"It is not proved that {needed}, a {why}, stays away from 0 {between}.")


def _needs(expr: Expr, symbol: Symbol) -> Iterator[tuple[Expr, str]]:
    seen = set()
    for node in sympy.preorder_traversal(expr):
        if node in seen or symbol not in node.free_symbols:
            continue
        seen.add(node)
        if isinstance(node, Pow):
            power = rational(node.exp)
            if power is None or power.denominator != 1:
                yield node.base, "root"
            elif power < Fraction(0):
                yield node.base, "denominator"
        elif isinstance(node, sympy.log):
            yield node.args[0], "logarithm"
        elif isinstance(node, p.Log1p | p.Log1pMinus):
            yield 1 + node.args[0], "logarithm"


# -- how smoothly two patches meet ------------------------------------------------------------------------
#
# The first derivative that jumps, each equality proved by algebra.


HIGHEST_ORDER = 24


@dataclass(frozen=True)
class Meeting:
    """Two patches meet at `seam`, where the function has the value `value`.

    order:   the number of continuous derivatives; -1 where the value jumps.
    settled: whether that is all, or at least that many.
    jumps:   how far it jumps before and after the seam.
    """

    seam: Expr
    value: Expr
    order: int
    settled: bool
    jumps: tuple[Span, Span] = (NOTHING, NOTHING)

    @property
    def is_continuous(self) -> bool | None:
        if self.order >= 0:
            return True
        return False if self.settled else None

    @property
    def is_zero(self) -> bool:
        """Whether the function is 0 at the seam."""
        if constant(self.value).sign in (1, -1):
            return False
        if not proves_zero(self.value):
            raise Unsettled(f"It is not settled whether the function is 0 at the seam {self.seam}.")
        return True


def meet(left: Patch, right: Patch, value: Expr) -> Meeting:
    """The meeting of two neighbours, the function having that exact value at their seam."""
    jumps = (_gap(value, left.at_end(1, 0)), -_gap(value, right.at_end(-1, 0)))
    if any(jump.sign != 0 for jump in jumps):
        certain = any(jump.sign in (1, -1) for jump in jumps)
        return Meeting(left.end, value, -1, certain, jumps)
    for order in range(1, HIGHEST_ORDER):
        gap = right.end_value(-1, order) - left.end_value(1, order)
        if gap.sign in (1, -1):
            return Meeting(left.end, value, order - 1, True)
        if not proves_zero(right.at_end(-1, order) - left.at_end(1, order)):
            return Meeting(left.end, value, order - 1, False)
    return Meeting(left.end, value, HIGHEST_ORDER - 1, False)


def _gap(first: Expr, second: Expr) -> Span:
    """The difference of two exact numbers: 0 where algebra shows it."""
    gap = constant(first) - constant(second)
    return NOTHING if gap.sign is None and proves_zero(first - second) else gap


def smoothness(meetings: list[Meeting]) -> tuple[float | None, Meeting | None]:
    """The number of continuous derivatives of the whole, and the meeting that leaves it open where one does."""
    if not meetings:
        return math.inf, None
    least = min((meeting.order for meeting in meetings if meeting.settled), default=math.inf)
    doubtful = [meeting for meeting in meetings if not meeting.settled and meeting.order < least]
    return (None, doubtful[0]) if doubtful else (least, None)
