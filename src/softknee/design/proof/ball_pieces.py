"""A formula with its numbers put in, as smooth patches: x = place(t), f(x) = value(t) for t in [lo, hi].

Mostly t is x itself. Where an end is no binary number the patch is moved onto [0, 1] or a half-line from 0, so that its
ends are exact; where the formula is given by an inverse, t is the value v that the inverse is written in.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from sympy.calculus.util import continuous_domain

from ...errors import DefinitionError, ParameterError, require_count
from ...registry import get
from ...spec import Activation, Implicit, Param, Sigmoid, SoftTable, elementary
from ...spec import primitives as p
from ...spec.algebra import Add, Expr, Pow, Symbol, exp, is_longer, log, oo, sympy
from ...spec.calculus import derivative
from ...spec.pieces import Pieces, split
from ...spec.soft_table import read_window
from .balls import (
    INFINITY,
    MINUS_INFINITY,
    NOTHING,
    Arb,
    Program,
    Span,
    as_rational,
    as_sympy,
    collected,
    constant,
    proves_zero,
    rational,
    stable,
    tidy,
)
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
            by_t = derivative(self._orders[-1], self.symbol)
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
        return as_sympy(self.hi if side > 0 else self.lo)

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
    places.sort(key=lambda pair: as_rational(pair[1].lo))
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
            sign_word = "nonzero" if why == "denominator" else "positive"
            raise Unsettled(f"It is not proved that {needed}, a {why}, is {sign_word} {_stretch(patch)}.")


def _stretch(patch: Patch) -> str:
    ends = patch.start == -oo, patch.end == oo
    if any(ends):
        return "for every x" if all(ends) else f"for x below {patch.end}" if ends[0] else f"for x above {patch.start}"
    return f"between {patch.start} and {patch.end}"


def domain(pieces: Pieces) -> str:
    """Where the function has a value, such as "x > 0"; empty where that is everywhere or the algebra does not tell."""
    ends = [-oo, *pieces.seams, oo]
    parts = [elementary(part) for part in pieces.parts]
    if any(needed.has(sympy.sin, sympy.cos) for part in parts for needed, _ in _needs(part, x)):
        return ""  # SymPy looks at one period only
    try:
        stretches = [
            continuous_domain(part, x, sympy.Interval(*pair))
            for part, pair in zip(parts, itertools.pairwise(ends), strict=True)
        ]
        whole = sympy.Union(*stretches)
    except (NotImplementedError, TypeError, ValueError):
        return ""
    missing = whole.complement(sympy.S.Reals)
    if isinstance(missing, sympy.FiniteSet) and missing:
        return " and ".join(f"x != {_decimal(point)}" for point in sorted(missing, key=float))
    intervals = whole.args if isinstance(whole, sympy.Union) else (whole,)
    if whole == sympy.S.Reals or not all(isinstance(interval, sympy.Interval) for interval in intervals):
        return ""
    return " or ".join(_inside(interval) for interval in intervals)


def _inside(interval: Any) -> str:
    signs = ["<" if is_open else "<=" for is_open in (interval.left_open, interval.right_open)]
    if interval.start == -oo:
        return f"x {signs[1]} {_decimal(interval.end)}"
    if interval.end == oo:
        return f"x {signs[0].replace('<', '>')} {_decimal(interval.start)}"
    return f"{_decimal(interval.start)} {signs[0]} x {signs[1]} {_decimal(interval.end)}"


def _decimal(value: Expr) -> str:
    short = f"{float(value):.9g}"
    return short if value == sympy.Rational(short) else f"{short}..."


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
LONGEST_DIFFERENTIATED = 10_000  # parts of a derivative of which the next is taken to see how smooth a seam is


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
        if any(is_longer(patch.derivative(order - 1), LONGEST_DIFFERENTIATED) for patch in (left, right)):
            return Meeting(left.end, value, order - 1, False)
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
        implicit = Implicit(
            *(numbers_in(value, act, values) for value in (implicit.inverse, implicit.low, implicit.high))
        )
    return Subject(act.name, dict(values), split_exact(formula), formula, implicit)


# -- the hard limit of a definition with its numbers put in -----------------------------------------------
#
# The one it names, or the one its knob leads to.


LONGEST = 120  # an expression with more operations is not given to SymPy's limits


def hard_limit(act: Activation, values: Mapping[str, Fraction]) -> tuple[str, Pieces] | None:
    """(name, pieces) of the hard limit; None for a definition without a knob."""
    if act.index or not (act.limit or act.knobs):
        return None
    if act.limit is None:
        return _followed(act, values)
    hard = get(act.limit)
    if not isinstance(hard, Activation):
        raise Unsettled(f"The hard limit {act.limit!r} is no formula.")
    numbers = {p.name: Fraction(p.default) for p in hard.params}
    numbers |= {theirs: values[ours] for theirs, ours in act.limit_params.items()}
    return act.limit, split_exact(numbers_in(hard.formula, hard, numbers))


def _followed(act: Activation, values: Mapping[str, Fraction]) -> tuple[str, Pieces]:
    """Seams and parts as the knobs go where they harden it; pieces whose seams run together are gone."""
    others = {name: value for name, value in values.items() if name not in act.knobs}
    knobs = [act.param(name).symbol for name in act.knobs]
    words = " and ".join(act.knobs)
    open_words = f"The hard limit for {words} -> {act.toward:g} is not known in closed form."
    if act.implicit is not None:
        raise Unsettled(open_words)
    try:
        pieces = split(numbers_in(act.formula, act, others))
    except DefinitionError:
        raise Unsettled(open_words) from None
    toward = oo if act.toward == float("inf") else sympy.Rational(*float(act.toward).as_integer_ratio())
    follow = functools.partial(_limit, knobs=knobs, toward=toward, words=open_words)
    distinct: list[tuple[Expr, Expr]] = []
    for seam, part in zip((follow(seam, -oo, oo) for seam in pieces.seams), pieces.parts[1:], strict=True):
        if distinct and proves_zero(seam - distinct[-1][0]):
            distinct.pop()
        distinct.append((seam, part))
    ends = [-oo, *(seam for seam, _ in distinct), oo]
    parts = [pieces.parts[0], *(part for _, part in distinct)]
    hard = [follow(part, low, high) for part, low, high in zip(parts, ends[:-1], ends[1:], strict=True)]
    return f"its limit for {words} -> {act.toward:g}", Pieces(tuple(ends[1:-1]), tuple(hard))


def _limit(expr: Expr, low: Expr, high: Expr, knobs: list[Symbol], toward: Expr, words: str) -> Expr:
    """The limit of an expression in x between two seams."""
    plain = elementary(expr)
    away = sympy.Dummy("away", positive=True)
    back = {}
    if plain.has(x) and not all(plain.is_rational_function(knob) for knob in knobs):
        # SymPy must know on which side of the knee x lies: log(1 + e^(beta x))/beta has two limits.
        if (low == -oo) == (high == oo):
            raise Unsettled(words)
        plain = plain.xreplace({x: high - away if low == -oo else low + away})
        back = {away: high - x if low == -oo else x - low}
    for knob in knobs:
        if not plain.has(knob):
            continue
        if plain.count_ops() > LONGEST:
            raise Unsettled(words)
        try:
            plain = sympy.limit(plain, knob, toward, "-" if toward == oo else "+")
        except (NotImplementedError, ValueError, TypeError):
            raise Unsettled(words) from None
    if plain.has(sympy.Limit, oo, -oo, sympy.zoo, sympy.nan, sympy.AccumBounds):
        raise Unsettled(words)
    return plain.xreplace(back)


# -- SQUAF as a subject of certificates -------------------------------------------------------------------
#
# The mean of a table under Gaussian or Laplacian weights, piece by piece.
#
# A window slides at the midpoints of the grid, and the function jumps there. Between them, relative to one weight of
# the piece, the Gaussian weights are exponentials of lines in x, and
#
#     phi' = sum over i < j of (z_j - z_i)(s_j - s_i) w_i w_j / (sum w)^2,    s_i = 2 alpha y_i,
#
# every term of which has the sign of z_j - z_i. With Laplacian weights phi between two grid points is a sigmoid.


SOFTNESS = Fraction(3, 2)


def of_table(act: SoftTable, arguments: Mapping[str, Any], exact: Any) -> Subject:
    """The subject of SQUAF with these arguments; `exact` turns one of them into a fraction."""
    act.check({name: value for name, value in arguments.items() if isinstance(value, int | float)})
    weights = act.with_weights(arguments.get("weights", act.weights)).weights
    if act.order:
        raise ParameterError(f"{act.name}: a certificate is made of the function itself, which tells of its slope.")
    points, alpha, k, params = _grid(act, arguments, weights, exact)
    z = _table(act.name, arguments.get("z", "relu"), points, exact)
    half = (
        None if arguments.get("grid") is not None else _half_window(act, arguments, params.get("q"), alpha, k, weights)
    )
    params |= {"alpha": alpha, "z": z, "window": None if half is None else 2 * half + 1, "weights": weights}
    make = _laplacian if weights == "laplacian" else _gaussian
    pieces, slopes, values, invisible = make([_number(y) for y in points], _number(alpha), list(map(_number, z)), half)
    return Subject(act.name, params, pieces, None, None, values, slopes, invisible)


# -- arguments --------------------------------------------------------------------------------------------


def _grid(
    act: SoftTable, arguments: Mapping[str, Any], weights: str, exact: Any
) -> tuple[list[Fraction], Fraction, int, dict[str, Any]]:
    usual = {p.name: Fraction(p.default) for p in act.params if isinstance(p, Param)}
    alpha = None if arguments.get("alpha") in (None, "auto") else exact(act.name, "alpha", arguments["alpha"])
    if arguments.get("grid") is not None:
        points = [exact(act.name, "grid", y) for y in arguments["grid"]]
        if points != sorted(set(points)) or len(points) < 2:
            raise ParameterError(f"{act.name}: grid must be two or more increasing numbers.")
        return points, usual["alpha"] if alpha is None else alpha, 0, {"grid": tuple(points)}
    q = exact(act.name, "q", arguments.get("q", usual["q"]))
    if alpha is None:
        spread = SOFTNESS / (q if weights == "laplacian" else q * q)
        alpha = usual["alpha"] if arguments.get("q") is None and arguments.get("alpha") is None else spread
    z = arguments.get("z")
    k = arguments.get("k", len(z) // 2 if isinstance(z, list | tuple) else act.options["k"])
    require_count(act.name, "k", k)
    return [q * i for i in range(-k, k + 1)], alpha, k, {"k": k, "q": q}


def _table(title: str, z: Any, points: Sequence[Fraction], exact: Any) -> tuple[Fraction, ...]:
    if isinstance(z, str) and z == "relu":
        return tuple(max(y, Fraction(0)) for y in points)
    if not isinstance(z, list | tuple) or len(z) != len(points):
        raise ParameterError(f"{title}: a certificate needs z as a list of {len(points)} numbers, one for each point.")
    return tuple(exact(title, "z", value) for value in z)


def _half_window(
    act: SoftTable, arguments: Mapping[str, Any], q: Any, alpha: Fraction, k: int, weights: str
) -> int | None:
    window = arguments.get("window", act.options["window"])
    if window == "auto":
        laplacian = weights == "laplacian"
        needed = -math.log(arguments.get("tolerance", act.options["tolerance"])) / float(
            alpha * (q if laplacian else q * q)
        )
        steps = (m for m in itertools.count(1) if (m if laplacian else m * (m + 1)) >= needed)
        window = 2 * next(steps) + 1
        return None if window // 2 >= k else window // 2
    window = read_window(window, title=act.name, auto=True)
    return None if window is None else window // 2


def _number(value: Fraction) -> Expr:
    return sympy.Rational(value.numerator, value.denominator)


# -- pieces -----------------------------------------------------------------------------------------------

_Made = tuple[Pieces, tuple[Expr, ...], dict[Expr, Expr], frozenset[Expr]]


def _kept(place: int, count: int, half: int | None) -> range:
    return range(count) if half is None else range(max(0, place - half), min(count, place + half + 1))


def _assembled(cells: list[tuple[Any, Expr, Expr]], seams: list[Expr], wins: list[int], invisible: set[Expr]) -> _Made:
    """Cells (what they keep, value, slope) and seams; `wins` says whether the value at a seam is the cell's before."""
    values = {}
    for place, seam in enumerate(seams):
        owner = cells[place if wins[place] else place + 1]
        values[seam] = owner[1].xreplace({x: seam})
    pieces = Pieces(tuple(seams), tuple(value for _, value, _ in cells))
    return pieces, tuple(slope for _, _, slope in cells), values, frozenset(invisible)


def _gaussian(points: list[Expr], alpha: Expr, z: list[Expr], half: int | None) -> _Made:
    count = len(points)
    if half is None:  # one function, in the form that settles at the end nearest to each half
        middle = (points[0] + points[-1]) / 2
        cells = [_mean(range(count), points, alpha, z, place) for place in (0, count - 1)]
        return _assembled(cells, [middle], [1], {middle})
    cells, seams, wins, invisible = [], [], [], set()
    for place in range(count):
        members = _kept(place, count, half)
        cells.append(_mean(members, points, alpha, z, place))
        if place + 1 < count:
            seam = (points[place] + points[place + 1]) / 2
            seams.append(seam)
            wins.append((place - count // 2) % 2 == 0)  # halves are rounded to the even neighbour
            if members == _kept(place + 1, count, half):
                invisible.add(seam)
    return _assembled(cells, seams, wins, invisible)


def _mean(members: range, points: list[Expr], alpha: Expr, z: list[Expr], place: int) -> tuple[range, Expr, Expr]:
    """The mean of z over the kept points, with the weights relative to one of them."""
    if len({z[i] for i in members}) == 1:
        return members, z[members[0]], sympy.Integer(0)
    y = points[place]
    weights = {i: exp(2 * alpha * (points[i] - y) * x - alpha * (points[i] ** 2 - y**2)) for i in members}
    total = Add(*weights.values())
    pairs = [
        (z[j] - z[i]) * 2 * alpha * (points[j] - points[i]) * weights[i] * weights[j]
        for i, j in itertools.combinations(members, 2)
    ]
    return members, Add(*(z[i] * w for i, w in weights.items())) / total, Add(*pairs) / total**2


def _laplacian(points: list[Expr], alpha: Expr, z: list[Expr], half: int | None) -> _Made:
    count = len(points)
    edges = [(seam, None) for seam in points]
    if half is not None:
        edges += [((a + b) / 2, i) for i, (a, b) in enumerate(itertools.pairwise(points))]
    edges.sort(key=lambda pair: pair[0])
    seams = [seam for seam, _ in edges]
    cells, wins, invisible = [], [], set()
    for low, high in zip([None, *seams], [*seams, None], strict=True):
        inside = points[0] - 1 if low is None else points[-1] + 1 if high is None else (low + high) / 2
        nearest = min(range(count), key=lambda i: abs(points[i] - inside))
        cells.append(_logistic(_kept(nearest, count, half), points, alpha, z, inside))
    for place, (seam, slides) in enumerate(edges):
        wins.append(slides is not None and (slides - count // 2) % 2 == 0)
        if slides is not None and cells[place][0] == cells[place + 1][0]:
            invisible.add(seam)
    return _assembled(cells, seams, wins, invisible)


def _logistic(window: range, points: list[Expr], alpha: Expr, z: list[Expr], inside: Expr) -> tuple[range, Expr, Expr]:
    """(A_z + B_z e^(2 alpha x))/(A + B e^(2 alpha x)), A and B the weights of the points below and above."""
    sides = [[i for i in window if (points[i] < inside) == below] for below in (True, False)]
    totals, means = [], []
    for members, sign in zip(sides, (1, -1), strict=True):
        weights = [exp(sign * alpha * points[i]) for i in members]
        totals.append(Add(*weights))
        means.append(Add(*(z[i] * w for i, w in zip(members, weights, strict=True))) / totals[-1] if members else None)
    if means[0] is None or means[1] is None:
        constant = means[1] if means[0] is None else means[0]
        return window, constant, sympy.Integer(0)
    gate = Sigmoid(2 * alpha * x + log(totals[1] / totals[0]))
    rise = means[1] - means[0]
    return window, means[0] + rise * gate, sympy.diff(rise * gate, x)
