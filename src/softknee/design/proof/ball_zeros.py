"""Where a smooth patch is 0: every zero isolated between two proven ends, and none missed."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ...spec import elementary
from ...spec.algebra import Expr, Mul, Pow, Symbol, sympy
from .ball_algebra import LONGEST_FACTORED, factored, proves_zero
from .ball_curves import Curve
from .ball_functions import ODD_LIKE, POSITIVE
from .ball_pieces import Patch, Unsettled
from .ball_programs import Program, rational
from .balls import Arb, Span, as_fraction
from .branch_and_bound import Budget, halves

_FINE = sympy.Rational(1, 2**150)
MOST_ZEROS = 32
SIMPLE = 1000  # a zero is tried to be a fraction with a denominator up to this


def is_zero(expr: Expr) -> bool:
    """Whether an expression is 0 wherever it is, as algebra shows it."""
    return expr == 0 or (expr.count_ops() < 300 and sympy.expand(expr) == 0)


def zeros(patch: Patch, budget: Budget) -> list[Span]:
    """The places in t where the patch is 0, in order; its ends belong to it."""
    roots = [
        root
        for factor in _factors(patch.value, patch.symbol)
        for root in _roots(factor, patch.symbol, patch.lo, patch.hi, budget)
    ]
    found: list[Span] = []
    for root in sorted(roots, key=lambda span: span.lo.fmpq()):
        if found and root.lo <= found[-1].hi:
            found[-1] = found[-1].join(root)
        else:
            found.append(root)
    return found


def _factors(expr: Expr, symbol: Symbol) -> Iterator[Expr]:
    """Expressions of which one is 0 wherever the given one is."""
    whole = factored(expr) if expr.count_ops() <= LONGEST_FACTORED else expr
    for one in Mul.make_args(whole):
        if symbol not in one.free_symbols or isinstance(one, POSITIVE):
            continue
        if isinstance(one, Pow):
            power = rational(one.exp)
            if power is None or power < 0:
                continue  # what has a power of this kind is not 0, or the patch would not be smooth
            yield from _factors(one.base, symbol)
        elif isinstance(one, sympy.log):
            yield from _factors(one.args[0] - 1, symbol)
        elif isinstance(one, ODD_LIKE):
            yield from _factors(one.args[0], symbol)
        else:
            yield one


def _roots(expr: Expr, symbol: Symbol, lo: Arb, hi: Arb, budget: Budget) -> Iterator[Span]:
    if expr.is_polynomial(symbol) and sympy.Poly(expr, symbol).domain in (sympy.ZZ, sympy.QQ):
        yield from _polynomial_roots(sympy.Poly(expr, symbol), lo, hi)
        return
    curve = Curve(expr, symbol)
    boxes = [Span(lo, hi)]
    found = 0
    while boxes:
        box = boxes.pop()
        if curve.sign_on(box) in (1, -1):
            continue
        if found > MOST_ZEROS or not budget.spend():
            raise Unsettled("There may be more zeros than can be listed.")
        if curve.sign_on(box, 1) in (1, -1) or _one_way(curve, box):
            settled = _single(curve, box)
            if settled is not None:
                found += len(settled)
                yield from settled
                continue
        cut = halves(box)
        if cut is None and not box.is_finite:
            raise Unsettled("There may be more zeros than can be listed.")
        if cut is None:
            raise Unsettled(f"It is not settled whether the function is 0 near {float(box.lo):.6g}.")
        boxes += cut


def _polynomial_roots(poly: Expr, lo: Arb, hi: Arb) -> Iterator[Span]:
    """The real roots of a polynomial with rational coefficients, isolated exactly."""
    for (low, high), _ in poly.intervals(eps=_FINE):
        ends = [Span.exact(Fraction(int(end.p), int(end.q))) for end in (low, high)]
        root = ends[0].join(ends[1])
        if root.hi < lo or root.lo > hi:
            continue
        if not (root.lo >= lo and root.hi <= hi):
            raise Unsettled(f"It is not settled on which side of a seam the zero near {float(root.lo):.6g} lies.")
        yield root


def _one_way(curve: Curve, box: Span) -> bool:
    """Whether it rises or falls all along: a smooth function that is not constant is then strictly monotone."""
    slope = curve.at(box, 1)
    if not (slope.lo >= 0 or slope.hi <= 0):
        return False
    somewhere = box.middle if box.is_finite else box.lo if box.lo.is_finite() else box.hi
    return somewhere.is_finite() and curve.at(Span(somewhere, somewhere), 1).sign in (1, -1)


def _single(curve: Curve, box: Span) -> list[Span] | None:
    """The zero of a strictly monotone function on a box, if there is one; None where its ends do not tell."""
    signs = []
    for end in (box.lo, box.hi):
        if end.is_finite():
            if exact_zero(curve.expr, curve.symbol, end):
                return [Span(end, end)]
            sign = curve.at(Span(end, end)).sign
        else:
            limit = curve.limit(box)
            # A limit of 0 is not reached: the other end's sign is that of the whole box.
            sign = None if limit is None else 0 if limit.lo == 0 == limit.hi else limit.sign
        if sign is None:
            return None
        signs.append(sign)
    if signs[0] * signs[1] >= 0:
        return [] if any(signs) else None
    return [_refined(curve, box)] if box.is_finite else None


def _refined(curve: Curve, box: Span) -> Span:
    lo, hi = box.lo, box.hi
    rising = curve.at(Span(hi, hi)).lo > 0
    for _ in range(180):
        middle = Span(lo, hi).middle
        if not lo < middle < hi:
            break
        value = curve.at(Span(middle, middle))
        if exact_zero(curve.expr, curve.symbol, middle):
            return Span(middle, middle)
        if value.sign is None:
            break
        lo, hi = (middle, hi) if (value.lo < 0) == rising else (lo, middle)
    return _simple(curve, Span(lo, hi))


def _simple(curve: Curve, root: Span) -> Span:
    """A zero that is a simple fraction, as that fraction."""
    near = as_fraction(root.middle)
    assert isinstance(near, Fraction)
    guess = near.limit_denominator(SIMPLE)
    exact = Span.exact(guess)
    inside = root.lo <= exact.lo and exact.hi <= root.hi
    place = sympy.Rational(guess.numerator, guess.denominator)
    return exact if inside and proves_zero(elementary(curve.expr).xreplace({curve.symbol: place})) else root


def exact_zero(expr: Expr, symbol: Symbol, point: Arb) -> bool:
    """Whether it is proved to be 0 at a binary number."""
    value = Program(expr, symbol)(Span(point, point))
    if value.sign is not None:
        return value.sign == 0
    exact = point.fmpq()
    place = sympy.Rational(int(exact.p), int(exact.q))
    return proves_zero(elementary(expr).xreplace({symbol: place}))
