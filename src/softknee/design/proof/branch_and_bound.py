"""The largest value of a smooth function on an interval, finite or not, between two proven ends.

Boxes are examined with the function, its slope and its second derivative as enclosures. A box where the slope keeps
its sign is settled by one of its ends (by the limit, where that end is infinite); a box where the function bends
downward by the tangent at its top; a box that lies below the best value found is dropped; the others are cut in two.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...spec.algebra import Expr, Symbol
from ...spec.calculus import derivative
from .ball_tails import Tail, unfolded
from .balls import (
    INFINITY,
    MINUS_INFINITY,
    ONE,
    ZERO,
    Arb,
    Polynomial,
    Program,
    Span,
    above,
    arb,
    below,
    larger,
    polynomial,
    smaller,
    tidy,
)

# -- a smooth function with its derivatives, enclosed on boxes and half-lines by every form known of it ---


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
            self._orders.append(tidy(derivative(self._orders[-1], self.symbol)))
        return self._orders[order]

    def at(self, box: Span, order: int = 0) -> Span:
        """An enclosure of the derivative of that order on a box."""
        if self._turned is not None:
            return -self._turned.at(box, order)
        tail = self._tail(box)
        enclosure = None
        for expr in self._forms(box, order):
            program, poly = self._compiled(expr)
            several = [program(box)]
            if poly is not None and box.is_finite and not box.is_point:
                several.append(poly(box))
            seen = None if tail is None else tail.range(expr)
            if seen is not None:
                several.append(seen)
            for part in several:
                enclosure = part if enclosure is None else enclosure.meet(part)
        assert enclosure is not None
        return enclosure

    def sign_on(self, box: Span, order: int = 0) -> int | None:
        """The sign that the function keeps on a box, 0 being none; also where it only tends to 0 at infinity."""
        sign = self.at(box, order).sign
        tail = self._tail(box)
        if sign is not None or tail is None:
            return sign
        signs = (tail.sign(expr) for expr in self._forms(box, order))
        return next((sign for sign in signs if sign is not None), None)

    def limit(self, box: Span, order: int = 0) -> Span | None:
        """The limit at the infinite end of a half-line."""
        if self._turned is not None:
            end = self._turned.limit(box, order)
            return None if end is None else -end
        tail = self._tail(box)
        if tail is None:
            return None
        limits = (tail.limit(expr) for expr in self._forms(box, order))
        return next((limit for limit in limits if limit is not None), None)

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


# -- the largest value of a smooth function on an interval, finite or not, between two proven ends --------


WIDTH = 1e-12
"""The promise: no settled interval is wider, relative to its number where that is above 1."""
_AIM = arb(2) ** -96  # what is worked for: 28 digits
_NARROWEST = arb(2) ** -170
_FARTHEST = arb(2) ** 900


@dataclass
class Budget:
    """How much work may be done before a question stays open."""

    boxes: int = 1000
    until: float = field(default_factory=lambda: time.monotonic() + 20.0)

    def spend(self) -> bool:
        """Take one box; False when there is none left."""
        self.boxes -= 1
        return self.boxes >= 0 and time.monotonic() < self.until


@dataclass(frozen=True)
class Peak:
    """The supremum: between `lower` and `upper`, reached or approached at each of `places` (of any kind)."""

    lower: Arb
    upper: Arb
    places: tuple[Any, ...] = ()
    attained: bool | None = None

    @property
    def settled(self) -> bool:
        if not self.lower.is_finite() or not self.upper.is_finite():
            return bool(self.lower == self.upper)
        return bool(self.upper - self.lower <= arb(WIDTH) * larger(ONE, abs(self.lower)))

    def turned(self) -> Peak:
        """The same of an infimum, found as the supremum of minus the function."""
        return Peak(-self.upper, -self.lower, self.places, self.attained)


def highest(peaks: list[Peak]) -> Peak:
    """The supremum over several intervals."""
    lower, upper = peaks[0].lower, peaks[0].upper
    for peak in peaks[1:]:
        lower, upper = larger(lower, peak.lower), larger(upper, peak.upper)
    rivals = [peak for peak in peaks if peak.upper >= lower]
    # Among several that cannot be told apart the answer holds for all, or for one that surely reaches the top.
    certain = any(rival.attained and rival.lower == upper for rival in rivals)
    answers = {rival.attained for rival in rivals}
    attained = True if certain else answers.pop() if len(answers) == 1 else None
    # Where some places are proved, the stretches that could not be ruled out are left unnamed.
    named = [rival for rival in rivals if rival.attained is not None] or rivals
    return Peak(lower, upper, tuple(place for peak in named for place in peak.places), attained)


def supremum(curve: Curve, lo: Arb, hi: Arb, budget: Budget | None = None) -> Peak:
    """The supremum of a curve on [lo, hi], where it is smooth up to both ends."""
    return _Search(curve, budget or Budget()).run(Span(lo, hi))


def infimum(curve: Curve, lo: Arb, hi: Arb, budget: Budget | None = None) -> Peak:
    """The infimum of a curve on [lo, hi]."""
    return supremum(curve.turned(), lo, hi, budget).turned()


def search(curve: Curve, lo: Arb, hi: Arb, side: int, budget: Budget) -> Peak:
    """The supremum (side 1) or infimum (side -1) on an interval; of a constant it is everywhere."""
    find = supremum if side > 0 else infimum
    if curve.symbol not in curve.expr.free_symbols:
        peak = find(curve, ZERO, ZERO, budget)
        return Peak(peak.lower, peak.upper, (Span(lo, hi),), True)
    return find(curve, lo, hi, budget)


class _Search:
    def __init__(self, curve: Curve, budget: Budget) -> None:
        self.curve, self.budget = curve, budget
        self.best = MINUS_INFINITY
        self.witness = Peak(MINUS_INFINITY, MINUS_INFINITY)  # where the best value was found
        self.done: list[Peak] = []
        self.open: list[tuple[float, int, Arb, Span]] = []
        self.numbers = itertools.count()
        self.dropped = MINUS_INFINITY  # the highest upper end of a box that was dropped

    def run(self, box: Span) -> Peak:
        if box.is_point:
            self._settle_at(box.lo)
            return self._result()
        self._examine(box)
        while self.open and self.best != INFINITY:
            upper, box = heapq.heappop(self.open)[2:]
            # A half-line that only ties is looked at a few times more: its limit may be the supremum itself.
            if upper < self.best or (upper == self.best and not _is_near_half_line(box)):
                self._drop(upper)
            elif (box.is_finite and upper - self.best <= self._aim()) or not self.budget.spend():
                self._leave(upper, box)
                break
            else:
                cut = halves(box)
                if cut is None:
                    self._leave(upper, box)
                for half in cut or ():
                    self._examine(half, upper)
        return self._result()

    def _aim(self) -> Arb:
        return _AIM * larger(ONE, abs(self.best))

    def _raise(self, value: Span, place: Arb, *, attained: bool = True) -> None:
        """The function takes (or tends to) a value in this span at a place."""
        if value.lo > self.best:
            self.best = value.lo
            self.witness = Peak(value.lo, value.hi, (Span(place, place),), attained)

    def _drop(self, upper: Arb) -> None:
        self.dropped = larger(self.dropped, upper)

    def _leave(self, upper: Arb, box: Span) -> None:
        self.done.append(Peak(self.best if self.best <= upper else upper, upper, (box,), None))

    def _settle_at(self, point: Arb) -> None:
        value = self.curve.at(Span(point, point))
        self._raise(value, point)
        self.done.append(Peak(value.lo, value.hi, (Span(point, point),), True))

    def _settle_end(self, box: Span, side: int) -> bool:
        """The top is at the upper (side 1) or lower end of the box; False where its limit is not known."""
        end = box.hi if side > 0 else box.lo
        if end.is_finite():
            self._settle_at(end)
            return True
        limit = self.curve.limit(box)
        if limit is None:
            return False
        self._raise(limit, end, attained=False)
        self.done.append(Peak(limit.lo, limit.hi, (Span(end, end),), False))
        return True

    def _examine(self, box: Span, known: Arb = INFINITY) -> None:
        """Settle a box, drop it, or keep it for later; it is known not to rise above `known`."""
        curve = self.curve
        upper = smaller(curve.at(box).hi, known)
        if upper < self.best:
            return None
        slope = curve.at(box, 1)
        if box.is_finite:
            middle = Span(box.middle, box.middle)
            at_middle = curve.at(middle)
            self._raise(at_middle, box.middle)
            upper = smaller(upper, (at_middle + slope * (box - middle)).hi)
        else:
            limit = curve.limit(box)
            if limit is not None:
                self._raise(limit, INFINITY if box.hi == INFINITY else MINUS_INFINITY, attained=False)
                if limit.lo == INFINITY:
                    return None
        if (slope.lo >= 0 and self._settle_end(box, 1)) or (slope.hi <= 0 and self._settle_end(box, -1)):
            return None
        if box.is_finite:
            bend = curve.at(box, 2)
            if bend.lo >= 0:
                self._settle_at(box.lo)
                return self._settle_at(box.hi)
            if bend.hi <= 0 and self._settle_top(box, upper):
                return None
        if upper < self.best:
            return None
        heapq.heappush(self.open, (-float(upper), next(self.numbers), upper, box))
        return None

    def _settle_top(self, box: Span, known: Arb) -> bool:
        """A box where the function bends downward lies below each of its tangents."""
        point = self._top(box)
        here = Span(point, point)
        value, slope = self.curve.at(here), self.curve.at(here, 1)
        tangent = larger((value + slope * Span(box.lo - point, box.hi - point)).hi, value.hi)
        upper = smaller(tangent, known)
        self._raise(value, point)
        if upper - self.best > self._aim() and upper - value.lo > self._aim():
            return False
        self.done.append(Peak(value.lo, upper, (self._around(point, box),), True))
        return True

    def _top(self, box: Span) -> Arb:
        """About where the slope is 0, by Newton's method held inside a shrinking bracket."""
        lo, hi = box.lo, box.hi
        if self.curve.at(Span(lo, lo), 1).hi <= 0:
            return lo
        if self.curve.at(Span(hi, hi), 1).lo >= 0:
            return hi
        point = box.middle
        for _ in range(200):
            here = Span(point, point)
            slope = self.curve.at(here, 1)
            if slope.lo > 0:
                lo = point
            elif slope.hi < 0:
                hi = point
            else:
                return point
            bend = self.curve.at(here, 2)
            step = (point - slope.middle / bend.middle).mid() if bend.is_finite and bend.middle != 0 else lo
            after = below(step) if lo < step < hi else Span(lo, hi).middle
            if not lo < after < hi or abs(after - point) <= _NARROWEST * larger(ONE, abs(point)):
                return point
            point = after
        return point

    def _around(self, point: Arb, box: Span) -> Span:
        """A small span around a top, as the signs of the slope prove it; the whole box where they do not."""
        for bits in range(150, 0, -10):
            reach = arb(2) ** -bits * larger(ONE, abs(point))
            lo, hi = larger(below(point - reach), box.lo), smaller(above(point + reach), box.hi)
            rises = lo == box.lo or self.curve.at(Span(lo, lo), 1).lo > 0
            falls = hi == box.hi or self.curve.at(Span(hi, hi), 1).hi < 0
            if rises and falls:
                return Span(lo, hi)
        return box

    def _result(self) -> Peak:
        for _, _, upper, box in self.open:
            if upper > self.best:
                self._leave(upper, box)
        self.open = []
        peak = highest([*self.done, self.witness])
        if self.dropped >= peak.upper and not peak.attained:
            # A dropped box may reach the same height.
            return Peak(peak.lower, peak.upper, peak.places, None)
        return peak


def _is_near_half_line(box: Span) -> bool:
    return not box.is_finite and not (box.lo > 64 or box.hi < -64)


def halves(box: Span) -> tuple[Span, Span] | None:
    """A box in two: around 0 and towards infinity by factors, elsewhere in the middle."""
    lo, hi = box.lo, box.hi
    if not lo.is_finite() and not hi.is_finite():
        cut = ZERO
    elif not hi.is_finite():
        cut = _outward(lo)
    elif not lo.is_finite():
        cut = -_outward(-hi)
    elif lo >= 1 and hi > 4 * lo:
        cut = below((lo * hi).sqrt())
    elif hi <= -1 and lo < 4 * hi:
        cut = -below((lo * hi).sqrt())
    else:
        if hi - lo <= _NARROWEST * larger(ONE, abs(lo)):
            return None
        cut = box.middle
    if not cut.is_finite() or abs(cut) > _FARTHEST or not lo < cut < hi:
        return None
    return Span(lo, cut), Span(cut, hi)


def _outward(start: Arb) -> Arb:
    if start < 0:
        return ZERO
    if start < 1:
        return ONE
    return below(start * 4 if start < 2**20 else start * start)
