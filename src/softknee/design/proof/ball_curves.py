"""A smooth function with its derivatives, enclosed on boxes and half-lines by every form that is known of it."""

from __future__ import annotations

from collections.abc import Iterator

from ...spec.algebra import Expr, Symbol, sympy
from .ball_algebra import tidy
from .ball_programs import Polynomial, Program, polynomial
from .ball_tail_functions import Tail, unfolded
from .balls import INFINITY, MINUS_INFINITY, Span


class Curve:
    """A smooth function of one symbol with its derivatives, on spans of any kind."""

    def __init__(self, expr: Expr, symbol: Symbol, *, turned: Curve | None = None) -> None:
        self.expr, self.symbol, self._turned = expr, symbol, turned
        self._orders: list[Expr] = [tidy(expr)] if turned is None else []
        self._sided: dict[tuple[int, int], Expr | None] = {}
        self._programs: dict[Expr, tuple[Program, Polynomial | None]] = {}
        self._tails: dict[tuple[str, int], Tail] = {}

    def turned(self) -> Curve:
        """Minus the function."""
        return Curve(-self.expr, self.symbol, turned=self)

    def derivative(self, order: int) -> Expr:
        while len(self._orders) <= order:
            self._orders.append(tidy(sympy.diff(self._orders[-1], self.symbol)))
        return self._orders[order]

    def at(self, box: Span, order: int = 0) -> Span:
        """An enclosure of the derivative of that order on a box."""
        if self._turned is not None:
            return -self._turned.at(box, order)
        tail = self._tail(box)
        found = None
        for expr in self._forms(box, order):
            program, poly = self._compiled(expr)
            several = [program(box)]
            if poly is not None and box.is_finite and not box.is_point:
                several.append(poly(box))
            seen = None if tail is None else tail.range(expr)
            if seen is not None:
                several.append(seen)
            for one in several:
                found = one if found is None else found.meet(one)
        assert found is not None
        return found

    def sign_on(self, box: Span, order: int = 0) -> int | None:
        """The sign that the function keeps on a box, 0 being none; also where it only tends to 0 at infinity."""
        sign = self.at(box, order).sign
        tail = self._tail(box)
        if sign is not None or tail is None:
            return sign
        signs = (tail.sign(expr) for expr in self._forms(box, order))
        return next((one for one in signs if one is not None), None)

    def limit(self, box: Span, order: int = 0) -> Span | None:
        """The limit at the infinite end of a half-line."""
        if self._turned is not None:
            end = self._turned.limit(box, order)
            return None if end is None else -end
        tail = self._tail(box)
        if tail is None:
            return None
        limits = (tail.limit(expr) for expr in self._forms(box, order))
        return next((one for one in limits if one is not None), None)

    def _forms(self, box: Span, order: int) -> Iterator[Expr]:
        """The derivative as it is, and in the form that does not cancel on the box's side of 0."""
        expr = self.derivative(order)
        yield expr
        side = 1 if box.lo >= 0 else -1 if box.hi <= 0 else 0
        if side:
            if (order, side) not in self._sided:
                self._sided[order, side] = unfolded(expr, self.symbol, side)
            other = self._sided[order, side]
            if other is not None:
                yield other

    def _compiled(self, expr: Expr) -> tuple[Program, Polynomial | None]:
        if expr not in self._programs:
            self._programs[expr] = Program(expr, self.symbol), polynomial(expr, self.symbol)
        return self._programs[expr]

    def _tail(self, box: Span) -> Tail | None:
        """The half-line of a box that is one, far enough from 0."""
        if box.hi == INFINITY and box.lo >= 1:
            start, side = box.lo, 1
        elif box.lo == MINUS_INFINITY and box.hi <= -1:
            start, side = -box.hi, -1
        else:
            return None
        key = (start.str(60, radius=False), side)
        if key not in self._tails:
            self._tails[key] = Tail(self.symbol, start, side)
        return self._tails[key]
