"""Intervals with proven ends: real numbers as `Span`, whose ends python-flint rounds outward.

A span is [lo, hi] with exact binary ends, either of which may be infinite: a half-line is a span like any other, and an
increasing function of a span is the function of its two ends. Every operation returns a span that contains every result
for every choice of points in its arguments; what cannot be bounded becomes the whole line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import Any, TypeAlias

import flint as _flint
from sympy.simplify.fu import TR8 as _TR8

from ...errors import DefinitionError
from ...spec import elementary
from ...spec import primitives as p
from ...spec.algebra import Add, Expr, Mul, Pow, Symbol, exp, log, sympy
from ...spec.calculus import has_few_terms

flint: Any = _flint
Arb: TypeAlias = Any

PRECISION = 192
"""Bits of every number: 57 digits, of which branch and bound keeps 25 and more."""

arb = flint.arb
INFINITY, MINUS_INFINITY = arb.pos_inf(), arb.neg_inf()
ZERO, ONE = arb(0), arb(1)


def working_precision() -> AbstractContextManager[None]:
    """Every enclosure is computed inside this; flint keeps its precision in one place for the whole process."""
    return flint.ctx.workprec(PRECISION)


def below(value: Arb) -> Arb:
    """An exact number that is surely not above a ball."""
    return MINUS_INFINITY if value.is_nan() else value.lower()


def above(value: Arb) -> Arb:
    """An exact number that is surely not below a ball."""
    return INFINITY if value.is_nan() else value.upper()


class Span:
    """All real numbers from `lo` to `hi`; the ends are exact, or infinite (and then no member)."""

    __slots__ = ("hi", "lo")

    def __init__(self, lo: Arb, hi: Arb) -> None:
        self.lo, self.hi = lo, hi

    # -- what it is -------------------------------------------------------------------------------------

    @classmethod
    def ball(cls, value: Arb) -> Span:
        """The span that a ball covers."""
        return cls(below(value), above(value))

    @classmethod
    def exact(cls, value: int | float | Fraction) -> Span:
        """The span of one number: of no width where it is a binary number of this precision."""
        if value in (float("inf"), float("-inf")):
            end = INFINITY if value > 0 else MINUS_INFINITY
            return cls(end, end)
        fraction = Fraction(value)
        return cls.ball(arb(flint.fmpq(fraction.numerator, fraction.denominator)))

    @property
    def is_finite(self) -> bool:
        return self.lo.is_finite() and self.hi.is_finite()

    @property
    def is_point(self) -> bool:
        return self.lo == self.hi

    @property
    def width(self) -> Arb:
        return above(self.hi - self.lo) if self.is_finite else INFINITY

    @property
    def middle(self) -> Arb:
        """An exact number between the ends of a finite span."""
        return below(((self.lo + self.hi) / 2).mid())

    @property
    def size(self) -> Span:
        """The span of absolute values."""
        if self.lo >= 0:
            return self
        if self.hi <= 0:
            return -self
        return Span(ZERO, larger(-self.lo, self.hi))

    @property
    def sign(self) -> int | None:
        """1 or -1 where every member is above or below 0, 0 for the number 0, None where it is open."""
        if self.lo > 0:
            return 1
        if self.hi < 0:
            return -1
        return 0 if self.lo == 0 and self.hi == 0 else None

    def holds(self, value: Arb) -> bool:
        return bool(self.lo <= value) and bool(value <= self.hi)

    def within(self, lo: Arb, hi: Arb) -> Span:
        """The same where the truth is known to lie between lo and hi."""
        low, high = larger(self.lo, lo), smaller(self.hi, hi)
        return Span(low, high) if low <= high else Span(lo, hi)

    def meet(self, other: Span) -> Span:
        """What two enclosures of one truth have in common."""
        low, high = larger(self.lo, other.lo), smaller(self.hi, other.hi)
        assert low <= high, "two enclosures of one number have nothing in common"
        return Span(low, high)

    def join(self, other: Span) -> Span:
        """The smallest span that holds both."""
        return Span(smaller(self.lo, other.lo), larger(self.hi, other.hi))

    def __repr__(self) -> str:
        return f"Span({self.lo.str(12, radius=False)}, {self.hi.str(12, radius=False)})"

    # -- arithmetic -------------------------------------------------------------------------------------

    def __neg__(self) -> Span:
        return Span(-self.hi, -self.lo)

    def __add__(self, other: Span) -> Span:
        return Span(below(self.lo + other.lo), above(self.hi + other.hi))

    def __sub__(self, other: Span) -> Span:
        return Span(below(self.lo - other.hi), above(self.hi - other.lo))

    def __mul__(self, other: Span) -> Span:
        a, b = self, other
        if a.lo >= 0 and b.lo >= 0:
            return Span(below(_times(a.lo, b.lo)), above(_times(a.hi, b.hi)))
        if a is b:
            return a.power(2)
        products = [_times(value, two) for value in (a.lo, a.hi) for two in (b.lo, b.hi)]
        low = functools.reduce(smaller, map(below, products))
        return Span(low, functools.reduce(larger, map(above, products)))

    def reciprocal(self) -> Span:
        """1 over it; a 0 inside makes it the whole line, a 0 at an end a half-line."""
        if self.lo > 0 or self.hi < 0:
            return Span(below(1 / self.hi), above(1 / self.lo))
        if self.lo == 0 and self.hi > 0:
            return Span(below(1 / self.hi), INFINITY)
        if self.hi == 0 and self.lo < 0:
            return Span(MINUS_INFINITY, above(1 / self.lo))
        return WHOLE

    def power(self, exponent: int) -> Span:
        """A whole power."""
        if exponent < 0:
            return self.power(-exponent).reciprocal()
        if exponent == 0:
            return Span(ONE, ONE)
        base = self.size if exponent % 2 == 0 else self
        return Span(below(base.lo**exponent), above(base.hi**exponent))

    def root_power(self, exponent: Fraction) -> Span:
        """A fractional power of what is known not to be negative."""
        base = self.within(ZERO, INFINITY)
        if exponent < 0:
            return base.root_power(-exponent).reciprocal()

        def at(value: Arb) -> Arb:
            if value == 0 or not value.is_finite():
                return value
            root = value.sqrt() if exponent.denominator == 2 else value.root(exponent.denominator)
            return root**exponent.numerator

        return Span(below(at(base.lo)), above(at(base.hi)))


WHOLE = Span(MINUS_INFINITY, INFINITY)
NOTHING = Span(ZERO, ZERO)


def smaller(a: Arb, b: Arb) -> Arb:
    """The smaller of two exact numbers."""
    return b if b < a else a


def larger(a: Arb, b: Arb) -> Arb:
    """The larger of two exact numbers."""
    return b if b > a else a


def _times(a: Arb, b: Arb) -> Arb:
    # An infinite end is no member: 0 times it bounds products that are all 0.
    return ZERO if a == 0 or b == 0 else a * b


def as_fraction(value: Arb, side: int) -> Fraction | float:
    """An exact end as a Python number: a Fraction, or an infinite float.

    One that no float comes near goes outward, to a number that bounds it: down for a lower end (side -1), up for an
    upper one (1). FLINT ends the process where it is asked for a fraction with an exponent of many digits.
    """
    if not value.is_finite():
        return float("inf") if value > 0 else float("-inf")
    if value == 0:
        return Fraction(0)
    size = abs(value)
    if size > _HUGE:
        bound = float("inf") if (value > 0) == (side > 0) else Fraction(2**1000)
        return bound if value > 0 else -bound
    if size < _TINY:
        return Fraction(side, 2**4000) if (value > 0) == (side > 0) else Fraction(0)
    number = value.fmpq()
    return Fraction(int(number.p), int(number.q))


_HUGE, _TINY = flint.arb(2) ** 1000, flint.arb(2) ** -4000


class OutOfRange(DefinitionError):
    """A number of a proof that is too large or too small to be written as a fraction."""


def as_rational(value: Arb) -> Any:
    """An exact finite number as a fraction of FLINT's, where it is one that a computer can write."""
    size = abs(value)
    if not value.is_finite() or size > _HUGE**20 or 0 < size < _TINY**20:
        raise OutOfRange("A number of the proof is too large or too small to be computed with.")
    return value.fmpq()


def as_sympy(value: Arb) -> Expr:
    """An exact number, finite or not, as SymPy's."""
    if not value.is_finite():
        return sympy.oo if value > 0 else -sympy.oo
    exact = as_rational(value)
    return sympy.Rational(int(exact.p), int(exact.q))


# -- every function of the formula language on spans ------------------------------------------------------
#
# Nearly all of them are monotone, so that a span goes to the values at its two ends and a half-line is as good as any
# other; each is written so that neither end loses its digits in a tail, and held to the range it is known to have.


Point = Callable[[Arb], Arb]
Rule = Callable[..., Span]


# -- values at one exact finite number -------------------------------------------------------------------


def _sigmoid(a: Arb) -> Arb:
    if a > 0:
        return 1 / (1 + (-a).exp())
    e = a.exp()
    return e / (1 + e)


def _softplus(a: Arb) -> Arb:
    return a + (-a).exp().log1p() if a > 0 else a.exp().log1p()


def _sech_squared(a: Arb) -> Arb:
    e = (-2 * abs(a)).exp()
    return 4 * e / (1 + e) ** 2


def _mish_gate(a: Arb) -> Arb:
    e = (-abs(a)).exp()
    return 1 - 2 * e * e / (1 + 2 * e * (1 + e)) if a > 0 else e * (e + 2) / (e * (e + 2) + 2)


def _normal_pdf(a: Arb) -> Arb:
    return (-(a * a) / 2).exp() / (2 * arb.pi()).sqrt()


def _normal_cdf(a: Arb) -> Arb:
    return (-a / arb(2).sqrt()).erfc() / 2


def _log1p_minus(a: Arb) -> Arb:
    # log(1+a) - a is about -a^2/2: as many more bits as it cancels.
    if a == 0:
        return ZERO
    extra = max(0, -2 * int(float(abs(a).log() / arb(2).log()) if abs(a) < 1 else 0)) + 8
    with flint.ctx.extraprec(min(extra, 4000)):
        return a.log1p() - a


# -- from points to spans ---------------------------------------------------------------------------------


def increasing(at: Point, left: Arb = MINUS_INFINITY, right: Arb = INFINITY, start: Arb = MINUS_INFINITY) -> Rule:
    """An increasing function on [start, infinity) with the limits `left` and `right`, which are also its range."""

    def rule(a: Span) -> Span:
        lo = left if not a.lo > start else right if a.lo == INFINITY else below(at(a.lo))
        hi = right if a.hi == INFINITY else left if not a.hi > start else above(at(a.hi))
        return Span(lo, hi).within(left, right)

    return rule


def even_decreasing(at: Point, top: Arb) -> Rule:
    """An even function that falls from its value at 0 to 0."""

    def rule(a: Span) -> Span:
        size = a.size
        lo = ZERO if size.hi == INFINITY else below(at(size.hi))
        hi = ZERO if size.lo == INFINITY else above(at(size.lo))
        return Span(lo, hi).within(ZERO, top)

    return rule


def _wave(at: Point) -> Rule:
    return lambda a: Span.ball(at(_as_ball(a))).within(-ONE, ONE) if a.is_finite else Span(-ONE, ONE)


def _cosh(a: Span) -> Span:
    return increasing(lambda t: t.cosh(), ONE, INFINITY, ZERO)(a.size)


def _log1p_minus_span(a: Span) -> Span:
    """Rises to 0 at 0 and falls after it."""
    lo = MINUS_INFINITY
    if a.lo > -1 and a.is_finite:
        ends = [below(_log1p_minus(a.lo)), below(_log1p_minus(a.hi))]
        lo = ends[0] if ends[0] < ends[1] else ends[1]
    if a.holds(ZERO):
        return Span(lo, ZERO)
    near = a.lo if a.lo > 0 else a.hi
    return Span(lo, above(_log1p_minus(near)) if near > -1 and near.is_finite() else ZERO).within(MINUS_INFINITY, ZERO)


def _ramp(a: Span) -> Span:
    return Span(larger(a.lo, ZERO), larger(a.hi, ZERO))


def _largest(*several: Span) -> Span:
    return functools.reduce(lambda a, b: Span(larger(a.lo, b.lo), larger(a.hi, b.hi)), several)


def _smallest(*several: Span) -> Span:
    return -_largest(*(-part for part in several))


def _sign(a: Span) -> Span:
    return Span(-ONE if a.lo < 0 else ZERO if a.lo == 0 else ONE, ONE if a.hi > 0 else ZERO if a.hi == 0 else -ONE)


def _clip(low: Arb) -> Rule:
    return lambda a: _smallest(_largest(a, Span(low, low)), Span(ONE, ONE))


# A density is at most 0.3989423; a number safely above its top costs nothing.
_PDF_TOP = arb(0.3989423)

FUNCTIONS: dict[Any, Rule] = {
    p.Sigmoid: increasing(_sigmoid, ZERO, ONE),
    p.Softplus: increasing(_softplus, ZERO),
    p.Tanh: increasing(lambda a: a.tanh(), -ONE, ONE),
    p.SechSquared: even_decreasing(_sech_squared, ONE),
    p.MishGate: increasing(_mish_gate, ZERO, ONE),
    p.NormalPdf: even_decreasing(_normal_pdf, _PDF_TOP),
    p.NormalCdf: increasing(_normal_cdf, ZERO, ONE),
    p.Expm1: increasing(lambda a: a.expm1(), -ONE),
    p.Log1p: increasing(lambda a: a.log1p(), MINUS_INFINITY, INFINITY, -ONE),
    p.Log1pMinus: _log1p_minus_span,
    p.Ramp: _ramp,
    p.Unit: _clip(ZERO),
    p.Clip: _clip(-ONE),
    p.Line: lambda g, a: g * a,
    p.FiniteLeft: lambda a: a,
    sympy.exp: increasing(lambda a: a.exp(), ZERO),
    sympy.log: increasing(lambda a: a.log(), MINUS_INFINITY, INFINITY, ZERO),
    sympy.tanh: increasing(lambda a: a.tanh(), -ONE, ONE),
    sympy.sinh: increasing(lambda a: a.sinh()),
    sympy.cosh: _cosh,
    sympy.asinh: increasing(lambda a: a.asinh()),
    sympy.atan: increasing(lambda a: a.atan(), -above(arb.pi() / 2), above(arb.pi() / 2)),
    sympy.erf: increasing(lambda a: a.erf(), -ONE, ONE),
    sympy.erfc: lambda a: increasing(lambda b: (-b).erfc(), ZERO, ONE + ONE)(-a),
    sympy.sin: _wave(lambda a: a.sin()),
    sympy.cos: _wave(lambda a: a.cos()),
    sympy.Abs: lambda a: a.size,
    sympy.sign: _sign,
    sympy.Max: _largest,
    sympy.Min: _smallest,
}
FUNCTIONS |= {p.Log1pUnit: FUNCTIONS[p.Log1p], p.Log1pMinusNear: FUNCTIONS[p.Log1pMinus]}

POSITIVE = (p.Sigmoid, p.Softplus, p.SechSquared, p.MishGate, p.NormalPdf, p.NormalCdf, sympy.exp, sympy.cosh)
"""Functions without a zero."""

ODD_LIKE = (p.Tanh, p.Expm1, p.Log1p, p.Log1pMinus, sympy.tanh, sympy.sinh, sympy.asinh, sympy.atan, sympy.erf)
"""Functions that are 0 where their argument is 0 and nowhere else."""


# -- better forms of an expression ------------------------------------------------------------------------


TR8: Any = _TR8  # products of sines and cosines as sums
MOST_LETTERS = 5  # of a polynomial: SymPy's factors of one in seven took more than ten minutes
LONGEST_FACTORED = 300
SIMPLIFIED = 250  # a number with more operations is not given to SymPy's simplification


def masked(expr: Expr, *, numbers: bool = False) -> tuple[Expr, dict[Expr, Expr]]:
    """The expression with a letter for each function and root in it, and what each letter stands for.

    With `numbers` every number that is no fraction gets a letter too. SymPy's polynomials take e^(p x/q) for a power of
    e^(x/q), with p of sixteen digits where x has a float before it.
    """
    letters: dict[Expr, Expr] = {}

    def hide(node: Expr) -> Expr:
        number = numbers and not node.is_Rational and not node.free_symbols
        if number or node.is_Function or (node.is_Pow and not node.exp.is_Integer):
            return letters.setdefault(node, sympy.Dummy(real=True))
        return node.func(*map(hide, node.args)) if node.args else node

    return hide(expr), {letter: node for node, letter in letters.items()}


def is_quickly_expanded(expr: Expr) -> bool:
    """Whether the expression, with what stands inside its functions, can be written out in little time."""
    inside = (arg for function in expr.atoms(sympy.Function) for arg in function.args)
    return all(has_few_terms(masked(part)[0]) for part in (expr, *inside))


def factored(expr: Expr) -> Expr:
    """The expression in factors, its functions and roots untouched; as it is where that would take long."""
    plain, back = masked(expr, numbers=True)
    quick = len(plain.free_symbols) <= MOST_LETTERS and has_few_terms(plain)
    return sympy.factor(plain).xreplace(back) if quick else expr


@functools.lru_cache(maxsize=4096)
def tidy(expr: Expr) -> Expr:
    """In factors where that is no longer: a product of one-signed factors shows its sign."""
    if expr.count_ops() > LONGEST_FACTORED:
        return expr
    if expr.has(sympy.sin, sympy.cos) and is_quickly_expanded(expr):
        # sin a cos a as sin(2a)/2: the range of one wave is known, that of a product of two is not.
        waves = TR8(sympy.expand(expr))
        expr = waves if waves.count(_is_wave) < expr.count(_is_wave) else expr
    forms = dict.fromkeys((factored(expr), _without_roots_squared(expr), expr))
    return min(forms, key=lambda form: form.count_ops()) if len(forms) > 1 else expr  # to count takes a while


def _without_roots_squared(expr: Expr) -> Expr:
    """Squares of roots cancel only when a numerator is multiplied out: 1/r - w^2/r^3 is 1/r^3 for r^2 = 1 + w^2."""
    rooted = [term for term in Add.make_args(expr) if any(map(_is_root, sympy.preorder_traversal(term)))]
    if not rooted:
        return expr
    top, bottom = sympy.fraction(sympy.together(Add(*rooted)))
    return Add(factored(sympy.expand(top)) / bottom, *(term for term in Add.make_args(expr) if term not in rooted))


def _is_root(node: Expr) -> bool:
    return node.is_Pow and node.exp.is_Rational and not node.exp.is_Integer and bool(node.free_symbols)


def _is_wave(node: Expr) -> bool:
    return isinstance(node, sympy.sin | sympy.cos)


def stable(expr: Expr) -> Expr:
    """With log(1 + e^u) as softplus and 1/(1 + e^u) as a sigmoid, which keep their digits and limits in the tails."""

    def gate(node: Expr) -> Expr | None:
        """u, where the node is 1 + e^u."""
        if not isinstance(node, Add) or len(node.args) != 2 or node.args[0] != 1:
            return None
        return node.args[1].args[0] if isinstance(node.args[1], exp) else None

    def is_spelled_out(node: Expr) -> bool:
        if isinstance(node, log):
            return gate(node.args[0]) is not None
        return isinstance(node, Pow) and node.exp.is_Integer and node.exp < 0 and gate(node.base) is not None

    def rewritten(node: Expr) -> Expr:
        if isinstance(node, log):
            return p.Softplus(gate(node.args[0]))
        return p.Sigmoid(-sympy.sympify(gate(node.base))) ** -node.exp

    return expr.replace(is_spelled_out, rewritten).replace(sympy.tanh, p.Tanh)


def collected(expr: Expr, symbol: Symbol) -> Expr:
    """A polynomial with one coefficient for each power; anything else as it is."""
    if not expr.is_polynomial(symbol):
        return expr
    powers = sympy.collect(sympy.expand(expr), symbol, evaluate=False)
    return Add(*(power * coefficient for power, coefficient in powers.items()))


# -- numbers that are 0 -----------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def proves_zero(expr: Expr) -> bool:
    """Whether an exact number is shown to be 0 by algebra; False means only that it was not.

    A search for zeros asks it of one end of a box as often as it halves the box.
    """
    if expr.is_Rational:
        return bool(expr == 0)
    plain = elementary(expr)
    if sympy.expand(plain) == 0:
        return True
    if plain.count_ops() > SIMPLIFIED:
        return False
    if not plain.atoms(sympy.Function):
        return sympy.simplify(plain) == 0
    if sympy.cancel(masked(_one_base(plain))[0]) == 0:
        return True
    return plain.has(log) and _logarithms_cancel(plain)


def _one_base(expr: Expr) -> Expr:
    """Every e^r with a rational r as a power of one letter, so that e^r e^-r is 1."""
    powers = {node: node.args[0] for node in expr.atoms(exp) if node.args[0].is_Rational}
    if expr.has(sympy.E):
        powers[sympy.E] = sympy.Integer(1)
    if not powers:
        return expr
    unit = functools.reduce(sympy.gcd, powers.values())
    whole = {node: int(power / unit) for node, power in powers.items()}
    if max(map(abs, whole.values())) > 64:
        return expr
    letter = sympy.Dummy(positive=True)
    return expr.xreplace({node: letter**power for node, power in whole.items()})


def _logarithms_cancel(expr: Expr) -> bool:
    """Whether r + sum n_i log a_i is 0 because e^r times the product of a_i^(n_i) is 1."""
    total, product = sympy.Integer(0), sympy.Integer(1)
    for term in Add.make_args(sympy.expand(expr)):
        factor, others = term.as_coeff_mul()
        if not others:
            total += factor
        elif len(others) == 1 and isinstance(others[0], log) and factor.is_Integer and abs(factor) <= 8:
            product *= others[0].args[0] ** factor
        else:
            return False
    return total.is_Rational and sympy.cancel(masked(_one_base(product * exp(total) - 1))[0]) == 0


# -- programs ---------------------------------------------------------------------------------------------


Step = tuple[Callable[..., Span], tuple[int, ...]]


class UnknownFunction(DefinitionError):
    """A formula uses something that has no enclosure."""


def rational(expr: Expr) -> Fraction | None:
    """The exact value of a SymPy number, where it is a fraction; a Float is the binary number that it holds."""
    if not (expr.is_Rational or expr.is_Float):
        return None
    exact = sympy.Rational(expr)
    return Fraction(int(exact.p), int(exact.q))


def _constant(expr: Expr) -> Span | None:
    number = rational(expr)
    if number is not None:
        return Span.exact(number)
    if expr is sympy.oo:
        return Span(INFINITY, INFINITY)
    if expr is -sympy.oo:
        return Span(MINUS_INFINITY, MINUS_INFINITY)
    if expr is sympy.pi:
        return Span.ball(arb.pi())
    return Span.ball(arb(1).exp()) if expr is sympy.E else None


def _add(*parts: Span) -> Span:
    return functools.reduce(lambda a, b: a + b, parts)


def _multiply_all(*parts: Span) -> Span:
    return functools.reduce(lambda a, b: a * b, parts)


def _divided(span: Span, positive: Arb) -> Span:
    return Span(below(span.lo / positive), above(span.hi / positive))


class Program:
    """One expression in one symbol (or none), to be run on spans."""

    def __init__(self, expr: Expr, symbol: Symbol | None = None) -> None:
        self.symbol = symbol
        self.steps: list[Step] = []
        self._found: dict[Expr, int] = {}
        self._place(sympy.sympify(expr))

    def __call__(self, at: Span = WHOLE) -> Span:
        values: list[Span] = []
        for do, where in self.steps:
            values.append(do(*[values[i] for i in where]) if where else do(at))
        return values[-1]

    def _place(self, expr: Expr) -> int:
        if expr not in self._found:
            step = self._step(expr)
            self.steps.append(step)
            self._found[expr] = len(self.steps) - 1
        return self._found[expr]

    def _step(self, expr: Expr) -> Step:
        if expr == self.symbol:
            return (lambda at: at), ()
        fixed = _constant(expr)
        if fixed is None and self.symbol is not None and self.symbol not in expr.free_symbols:
            fixed = constant(expr)
        if fixed is not None:
            return (lambda at: fixed), ()
        if isinstance(expr, Pow):
            return self._power(expr)
        if isinstance(expr, Mul):
            return self._multiply(expr)
        where = tuple(self._place(arg) for arg in expr.args)
        if isinstance(expr, Add):
            return _add, where
        rule = FUNCTIONS.get(type(expr))
        if rule is None or not where:
            raise UnknownFunction(f"The ball arithmetic has no enclosure of {expr.func.__name__}, in {expr}.")
        return rule, where

    def _multiply(self, expr: Expr) -> Step:
        factor, others = expr.as_coeff_mul()
        number = rational(factor)
        if number is None or number.denominator == 1:
            return _multiply_all, tuple(self._place(arg) for arg in expr.args)
        # Divided by the denominator at the end: 9/6 is a binary number, 9 times a rounded 1/6 is not.
        top, bottom = Span.exact(number.numerator), arb(number.denominator)
        where = tuple(self._place(arg) for arg in others)
        return (lambda *parts: _divided(_multiply_all(top, *parts), bottom)), where

    def _power(self, expr: Expr) -> Step:
        base, exponent = expr.args
        number = rational(exponent)
        if number is None:  # b^e = exp(e log b)
            where = (self._place(sympy.exp(exponent * sympy.log(base), evaluate=False)),)
            return (lambda a: a), where
        where = (self._place(base),)
        if number.denominator == 1:
            return (lambda a: a.power(number.numerator)), where
        return (lambda a: a.root_power(number)), where


def _as_ball(span: Span) -> Arb:
    middle = span.middle
    return arb(middle, larger(above(span.hi - middle), above(middle - span.lo)))


class Polynomial:
    """A polynomial on finite boxes, written anew around the middle of each: what is large there does not cancel."""

    def __init__(self, expr: Expr, symbol: Symbol) -> None:
        plain, back = masked(expr, numbers=True)
        coefficients = [constant(c.xreplace(back)) for c in reversed(sympy.Poly(plain, symbol).all_coeffs())]
        self.poly = flint.arb_poly([_as_ball(c) for c in coefficients])

    def __call__(self, box: Span) -> Span:
        middle = box.middle
        reach = Span.ball(box.lo - middle).join(Span.ball(box.hi - middle))
        shifted = self.poly(flint.arb_poly([middle, 1]))
        total = NOTHING
        for power in range(len(shifted)):
            total = total + Span.ball(shifted[power]) * reach.power(power)
        return total


def polynomial(expr: Expr, symbol: Symbol) -> Polynomial | None:
    """The expression as a polynomial of degree 2 or more, where it is one of moderate degree."""
    if not expr.is_polynomial(symbol):
        return None
    degree = sympy.degree(masked(expr, numbers=True)[0], symbol)
    return Polynomial(expr, symbol) if 2 <= degree <= 64 else None


def constant(expr: Expr) -> Span:
    """The enclosure of an expression without symbols."""
    return Program(expr)()
