"""Derivatives of a definition, with its helper symbols followed through the chain rule.

For u = a x + b the total derivative by x is d/dx + a d/du; for v with inverse(v) = x it is d/dx +
(1/inverse'(v)) d/dv, and by a parameter -(d inverse/dp / inverse') d/dv. Afterwards every free x is written
in u, so that a derivative is a function of the clipped u and has its limit at infinity.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from .algebra import Add, Expr, Function, Mul, Piecewise, Pow, Symbol, is_longer, rewrite, sympy
from .primitives import FiniteLeft, u, v, x

# Factoring is exponential in the worst case. In the zoo it helps expressions of up to 58 operations, 6 unknowns and a
# few dozen terms; beyond these bounds it takes seconds, or all memory, and finds nothing.
LONGEST_FACTORED, MOST_UNKNOWNS, MOST_TERMS = 160, 8, 1000
MOST_POWER = 64  # of an exponential
MOST_SUM_POWER = 8  # of a sum: the time for factoring (a + b)**16 is seconds, though it has few terms
MOST_BITS = 200  # of a number in what is factored: SymPy looks for primes as large as all of them together

if TYPE_CHECKING:
    from .activation import Activation, Implicit, Inner


def partial(act: Activation, index: tuple[str, ...]) -> Expr:
    """The expression of the derivative of `act` by everything in `index`, one at a time."""
    before, last = index[:-1], index[-1]
    symbol = x if last == "x" else act.param(last).symbol
    return _partial(act.partial(*before).bound_formula, symbol, act.inner, act.implicit)


@functools.lru_cache(maxsize=256)  # a definition and its guarded form ask for the same derivatives
def _partial(formula: Expr, symbol: Symbol, inner: Inner | None, implicit: Implicit | None) -> Expr:
    along: dict[Symbol, Expr] = {symbol: sympy.Integer(1)}
    if inner is not None:
        along[u] = sympy.diff(inner.value, symbol)
    if implicit is not None:
        slope = sympy.diff(implicit.inverse, v)
        along[v] = (1 if symbol is x else -sympy.diff(implicit.inverse, symbol)) / slope
    as_x = inner.as_x if inner is not None else x

    def total(piece: Expr) -> Expr:
        result = Add(*(derivative(piece, variable) * rate for variable, rate in along.items()))
        result = without_jumps(result)
        return _tidy(result if as_x is x else _outside_seams(result, lambda part: part.xreplace({x: as_x})))

    return each_piece(formula, total)


def derivative(expr: Expr, symbol: Symbol) -> Expr:
    """SymPy's `diff`, with the derivative of each part taken once and no Piecewise evaluated."""
    zero, results = sympy.Integer(0), {}

    def slope(part: Expr) -> Expr:
        if part not in results:
            results[part] = by_rule(part)
        return results[part]

    def by_rule(part: Expr) -> Expr:
        if not part.args:
            return sympy.Integer(part == symbol)
        if isinstance(part, Piecewise):
            pieces = [(slope(piece), when) for piece, when in part.args]
            alike = all(piece == pieces[0][0] for piece, _ in pieces)
            return pieces[0][0] if alike else Piecewise(*pieces, evaluate=False)
        slopes = [slope(arg) for arg in part.args]
        if not any(slopes):
            return zero
        if isinstance(part, Add):
            return Add(*slopes)
        if isinstance(part, Mul):
            return Add(*(Mul(*part.args[:i], rate, *part.args[i + 1 :]) for i, rate in enumerate(slopes) if rate))
        if isinstance(part, Pow) and slopes[1] == 0:
            return part * (slopes[0] * part.exp / part.base)
        if type(part)._eval_derivative is Function._eval_derivative:
            return Add(*(part.fdiff(i) * rate for i, rate in enumerate(slopes, 1) if rate))
        return sympy.diff(part, symbol)

    return slope(expr)


def each_piece(expr: Expr, do: Callable[[Expr], Expr]) -> Expr:
    """Do something inside each piece, and leave the seams as they are: a jump has no derivative."""
    if isinstance(expr, Piecewise):
        return Piecewise(*((each_piece(piece, do), when) for piece, when in expr.args), evaluate=False)
    return do(expr)


def without_jumps(expr: Expr) -> Expr:
    """SymPy's derivatives of abs, sign, Max and Min with their point masses left out and their steps as pieces.

    As everywhere in this field the derivative at a kink is that of one side, and a jump adds nothing.
    """

    def change(part: Expr) -> Expr:
        if isinstance(part, FiniteLeft):
            return part.args[0]
        if isinstance(part, sympy.DiracDelta):
            return sympy.Integer(0)
        return Piecewise((1, part.args[0] > 0), (0, True)) if isinstance(part, sympy.Heaviside) else part

    return rewrite(expr, change)


def _outside_seams(expr: Expr, do: Callable[[Expr], Expr]) -> Expr:
    """Do something everywhere but in the conditions of pieces inside the expression."""
    inner = {p: sympy.Dummy(real=True) for p in expr.atoms(Piecewise)}
    if not inner:
        return do(expr)
    back = {dummy: each_piece(piece, do) for piece, dummy in inner.items()}
    return do(expr.xreplace(inner)).xreplace(back)


def _tidy(expr: Expr) -> Expr:
    """Factor where that makes it shorter (and so, mostly, better conditioned) and brings no new function in."""
    if not _quickly_factored(expr):
        return expr
    factored = sympy.factor(expr)
    same = factored.atoms(Function) <= expr.atoms(Function)
    return factored if same and factored.count_ops() <= expr.count_ops() else expr


def _quickly_factored(expr: Expr) -> bool:
    # Counting operations takes long where there are thousands; each has eight parts at most.
    if is_longer(expr, 8 * LONGEST_FACTORED) or expr.count_ops() > LONGEST_FACTORED:
        return False
    plain = _with_unknowns(expr, {})
    if len(plain.free_symbols) > MOST_UNKNOWNS or any(map(_wide, plain.atoms(sympy.Number))):
        return False
    # e^(99 x) is to SymPy the power 99 of e^x, and e^x + e^(0.99999999999 x) a polynomial of degree 10^11.
    numbers = {number for power in expr.atoms(sympy.exp) for number in power.exp.atoms(sympy.Number)}
    if any(not number.is_Rational or max(abs(number.p), number.q) > MOST_POWER for number in numbers):
        return False
    if any(not power.exp.is_Integer and power.base.free_symbols for power in expr.atoms(Pow)):
        return False  # a root and what is under it are not independent
    return has_few_terms(plain)


def has_few_terms(expr: Expr) -> bool:
    """Whether a fraction of polynomials can be brought over one denominator and written out in little time."""
    return _terms(expr) * _terms(_common_denominator(expr)) <= MOST_TERMS


def _with_unknowns(expr: Expr, names: dict[Expr, Symbol]) -> Expr:
    """The expression with a symbol for every outermost part that is no sum, product, whole power or number."""
    if not expr.args or (expr.is_number and not expr.has(Function)):
        return expr
    if isinstance(expr, (Add, Mul)):
        return expr.func(*(_with_unknowns(arg, names) for arg in expr.args))
    if isinstance(expr, Pow) and expr.exp.is_Integer:
        return _with_unknowns(expr.base, names) ** expr.exp
    return names.setdefault(expr, sympy.Dummy(real=True))


def _terms(expr: Expr) -> int:
    """How many terms the expression has at most when it is written out."""
    if isinstance(expr, Add):
        return sum(map(_terms, expr.args))
    if isinstance(expr, Mul):
        return math.prod(map(_terms, expr.args))
    if isinstance(expr, Pow) and expr.exp.is_Integer:
        count, power = _terms(expr.base), abs(int(expr.exp))
        most = MOST_POWER if count == 1 else MOST_SUM_POWER
        return math.comb(count + power - 1, power) if power <= most else MOST_TERMS + 1
    return 1


def _common_denominator(expr: Expr) -> Expr:
    """A product that every denominator divides."""
    powers: dict[Expr, int] = {}
    for part in expr.atoms(Pow):
        if part.exp.is_negative and isinstance(part.base, Add):
            base = part.base.as_content_primitive()[1]
            powers[base] = max(powers.get(base, 0), -int(part.exp)) if part.exp.is_Integer else 1
    return Mul(*(base**power for base, power in powers.items()))


def _wide(number: Expr) -> bool:
    """Whether a constant, written as a fraction of whole numbers, has too many bits for factoring."""
    if number.is_Float:
        _, mantissa, exponent, bits = number._mpf_
        return bool(mantissa) and max(bits + exponent, -exponent) > MOST_BITS
    return bool(number.is_Rational) and max(abs(number.p), number.q).bit_length() > MOST_BITS
