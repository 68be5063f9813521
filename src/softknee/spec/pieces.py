"""A formula as pieces on the line: where they meet, in order, and the smooth expression of each.

    relu6  ->  seams (0, 6), parts (0, x, 6)

Everything with a corner (Piecewise, relu, abs, max, min, sign, clipping) is resolved, however it is nested. Seams may
contain parameters as long as their signs decide the order: -alpha < beta for positive ones. What cannot be decided is
refused, never guessed; numbers for the parameters (`deciding`) may decide it, and then what they decided is said.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from sympy.core.relational import Eq, Ne, Relational
from sympy.logic.boolalg import Boolean, BooleanFalse, BooleanTrue

from ..errors import DefinitionError
from .algebra import Abs, Add, Expr, Piecewise, sympy
from .precision import to_digits
from .primitives import Clip, FiniteLeft, Line, Ramp, Unit, x

MOST_PIECES = 256


@dataclass(frozen=True)
class Pieces:
    """`parts[i]` is the function between `seams[i - 1]` and `seams[i]`; a seam itself belongs to either side."""

    seams: tuple[Expr, ...]
    parts: tuple[Expr, ...]

    def part_of(self, sample: Expr) -> Expr:
        """The part that a point lies in; the point must not be a seam."""
        return self.parts[sum(sign_of(sample - seam) > 0 for seam in self.seams)]


def split(expr: Expr, *, tidy: bool = True) -> Pieces:
    """The pieces of an expression in x, from left to right; with `tidy`, sums of polynomials are written out.

    >>> from softknee.spec import Ramp, x
    >>> from softknee.spec.pieces import split
    >>> split(Ramp(x) - Ramp(x - 6))
    Pieces(seams=(0, 6), parts=(0, x, 6))
    """
    return _joined(_split(sympy.sympify(expr)), _plain if tidy else lambda part: part)


_decider: ContextVar[tuple[Mapping[Expr, Expr], dict[Expr, int]] | None] = ContextVar("decider", default=None)


@contextmanager
def deciding(numbers: Mapping[Expr, Expr]) -> Iterator[dict[Expr, int]]:
    """Inside, numbers for the parameters decide an order that their constraints leave open; gives the signs decided."""
    decided: dict[Expr, int] = {}
    token = _decider.set((numbers, decided))
    try:
        yield decided
    finally:
        _decider.reset(token)


def sign_of(expr: Expr) -> int:
    """-1, 0 or 1, whatever the parameters are; an error where they decide."""
    result = _sign(sympy.sympify(expr))
    if result is None and (decider := _decider.get()) is not None:
        numbers, decided = decider
        result = _sign(sympy.sympify(expr).xreplace(numbers))
        if result is not None:
            decided[expr] = result
    if result is None:
        raise DefinitionError(
            f"The order of two seams hangs on the sign of {expr}, which the parameters' constraints leave open. "
            f"Make the parameters positive, write the later seam as the earlier one plus a positive width, or put "
            f"numbers in."
        )
    return result


@functools.lru_cache(maxsize=4096)
def _sign(expr: Expr) -> int | None:
    for form in (lambda e: e, sympy.expand, sympy.factor):
        seen = form(expr)
        if seen.is_zero:
            return 0
        if seen.is_positive:
            return 1
        if seen.is_negative:
            return -1
    if expr.is_number and expr.is_real is not False:
        if sympy.simplify(expr) == 0:
            return 0
        value = to_digits(expr, 60)
        return None if value.is_number is False or not value.is_real else (1 if value > 0 else -1)
    return None


# -- corners as pieces ------------------------------------------------------------------------------------


def _clipped(low: int) -> Callable[[Expr], Expr]:
    return lambda arg: Piecewise((low, arg < low), (1, arg > 1), (arg, True), evaluate=False)


def _largest(*args: Expr) -> Expr:
    return functools.reduce(lambda a, b: Piecewise((a, a - b > 0), (b, True), evaluate=False), args)


def _smallest(*args: Expr) -> Expr:
    return functools.reduce(lambda a, b: Piecewise((a, a - b < 0), (b, True), evaluate=False), args)


_CORNERS: dict[type, Callable[..., Expr]] = {
    Ramp: lambda e: Piecewise((e, e > 0), (0, True), evaluate=False),
    Unit: _clipped(0),
    Clip: _clipped(-1),
    Abs: lambda e: Piecewise((-e, e < 0), (e, True), evaluate=False),
    sympy.Max: _largest,
    sympy.Min: _smallest,
    sympy.sign: lambda e: Piecewise((-1, e < 0), (1, True), evaluate=False),
    sympy.Heaviside: lambda e, *at: Piecewise((0, e < 0), (1, True), evaluate=False),
}


def _split(expr: Expr) -> Pieces:
    if not expr.has(x) or not expr.args:
        return Pieces((), (expr,))
    if isinstance(expr, FiniteLeft):
        return _split(expr.args[0])
    if isinstance(expr, Line):
        return _split(expr.args[0] * expr.args[1])
    if isinstance(expr, Piecewise):
        return _split_piecewise(expr)
    if type(expr) in _CORNERS:
        # A corner of something with corners: its pieces first, so that each comparison is one of smooth expressions.
        inner = [_split(arg) for arg in expr.args]
        return _together(inner, lambda args: _cornered(expr, args))
    return _together([_split(arg) for arg in expr.args], lambda args: expr.func(*args))


def _cornered(expr: Expr, args: Sequence[Expr]) -> Expr:
    if any(arg.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo) for arg in args):
        raise DefinitionError(f"{expr} divides by 0 on a whole piece of the line; give that piece a value of its own.")
    return _CORNERS[type(expr)](*args)


def _together(several: Sequence[Pieces], build: Callable[[Sequence[Expr]], Expr]) -> Pieces:
    """Build something from the parts of several split expressions, cell by cell."""
    seams = _sorted([seam for part in several for seam in part.seams])
    cells = []
    for low, high in _cells(seams):
        sample = _inside(low, high)
        made = build([part.part_of(sample) for part in several])
        cells.append(within(_split_piecewise(made), low, high) if isinstance(made, Piecewise) else Pieces((), (made,)))
    return _chain(seams, cells)


def _split_piecewise(expr: Expr) -> Pieces:
    conditions = [when for _, when in expr.args]
    relations = {relation for when in conditions for relation in _relations(when) if relation.has(x)}
    values = [_split(value) for value, _ in expr.args]
    gaps = {relation: _split(relation.lhs - relation.rhs) for relation in relations}
    seams = _sorted(
        [
            *(seam for value in [*values, *gaps.values()] for seam in value.seams),
            *(root for gap in gaps.values() for root in _crossings(gap)),
        ]
    )
    parts = []
    for low, high in _cells(seams):
        sample = _inside(low, high)
        truth = {comparison: _holds(comparison, gap.part_of(sample), sample) for comparison, gap in gaps.items()}
        parts.append(_chosen(expr, values, truth, sample))
    return Pieces(tuple(seams), tuple(parts))


def _relations(when: Expr) -> list[Expr]:
    if isinstance(when, (BooleanTrue, BooleanFalse)):
        return []
    return sorted(when.atoms(Relational), key=sympy.default_sort_key)


def _crossings(gap: Pieces) -> list[Expr]:
    """Where the difference of the two sides of a comparison is 0, within the part it belongs to."""
    roots = []
    for part, (low, high) in zip(gap.parts, _cells(gap.seams), strict=True):
        for root in _roots(part):
            if (low is None or sign_of(root - low) > 0) and (high is None or sign_of(high - root) > 0):
                roots.append(root)
    return roots


def _roots(part: Expr) -> list[Expr]:
    if not part.has(x) or part.is_positive or part.is_negative:
        return []
    if not part.is_polynomial(x):
        raise DefinitionError(f"A seam lies where {part} is 0, and only polynomials in x are solved for one.")
    poly = sympy.Poly(part, x)
    if poly.degree() == 1:
        slope, offset = poly.all_coeffs()
        return [sympy.cancel(-offset / slope)]
    if part.free_symbols - {x}:
        raise DefinitionError(f"A seam lies where {part} is 0; with a parameter in it, it must be linear in x.")
    return list(dict.fromkeys(sympy.real_roots(poly)))


def _holds(relation: Expr, gap: Expr, sample: Expr) -> Boolean:
    if isinstance(relation, (Eq, Ne)):
        return sympy.false if isinstance(relation, Eq) else sympy.true  # a single point has no width
    positive = sign_of(gap.subs(x, sample)) > 0
    return sympy.true if positive == (relation.rel_op in (">", ">=")) else sympy.false


def _chosen(expr: Expr, values: Sequence[Pieces], truth: dict[Expr, Boolean], sample: Expr) -> Expr:
    for (_, when), value in zip(expr.args, values, strict=True):
        decided = when if when in (True, False) else when.xreplace(truth)
        if decided == sympy.true:
            return value.part_of(sample)
        if decided != sympy.false:
            raise DefinitionError(f"The piece where {when} holds cannot be placed on the line without numbers.")
    raise DefinitionError(f"The piecewise formula {expr} leaves some x without a value; end it with True.")


# -- cells of the line ------------------------------------------------------------------------------------


def _sorted(seams: Sequence[Expr]) -> list[Expr]:
    ordered: list[Expr] = []
    for seam in dict.fromkeys(seams):
        if len(ordered) >= MOST_PIECES:
            raise DefinitionError(f"The formula has more than {MOST_PIECES} pieces.")
        orders = [sign_of(seam - other) for other in ordered]
        if 0 not in orders:
            ordered.insert(sum(order > 0 for order in orders), seam)
    return ordered


def _cells(seams: Sequence[Expr]) -> list[tuple[Expr | None, Expr | None]]:
    ends = [None, *seams, None]
    return list(itertools.pairwise(ends))


def _inside(low: Expr | None, high: Expr | None) -> Expr:
    if low is None:
        return sympy.Integer(0) if high is None else high - 1
    return low + 1 if high is None else (low + high) / 2


def within(pieces: Pieces, low: Expr | None, high: Expr | None) -> Pieces:
    """The pieces between two points."""
    inner = [
        seam
        for seam in pieces.seams
        if (low is None or sign_of(seam - low) > 0) and (high is None or sign_of(high - seam) > 0)
    ]
    ends = [low, *inner, high]
    return Pieces(tuple(inner), tuple(pieces.part_of(_inside(a, b)) for a, b in itertools.pairwise(ends)))


def _chain(seams: Sequence[Expr], cells: Sequence[Pieces]) -> Pieces:
    all_seams: list[Expr] = []
    parts: list[Expr] = []
    for place, cell in enumerate(cells):
        all_seams += [*cell.seams, *([seams[place]] if place < len(seams) else [])]
        parts += cell.parts
    return Pieces(tuple(all_seams), tuple(parts))


def _joined(pieces: Pieces, tidied: Callable[[Expr], Expr]) -> Pieces:
    """Without the seams across which nothing changes."""
    seams, parts = [], [tidied(pieces.parts[0])]
    for seam, part in zip(pieces.seams, pieces.parts[1:], strict=True):
        part = tidied(part)
        if sympy.expand(part - parts[-1]) != 0:
            seams.append(seam)
            parts.append(part)
    return Pieces(tuple(seams), tuple(parts))


def _plain(part: Expr) -> Expr:
    """A sum that comes from adding and taking away the same thing is written without it."""
    return sympy.expand(part) if isinstance(part, Add) and part.is_polynomial(x) else part
