"""Arithmetic of functions near infinity, for the half-lines that branch and bound ends in.

On y >= R a function h is kept as

    h(y) = sum of c_i y^i  +  k log y  +  rest,    |rest| <= C y^n e^(-a y - b y^2),

and, where it is known to keep its sign, with a lower bound of the same shape: sign h(y) >= C y^n e^(-a y - b y^2) > 0.
The sum is exact where its numbers are rational, so that softplus(x) - x is seen to vanish and not to be infinity minus
infinity. Whatever cannot be kept so raises `NoForm`, and a larger R or a plain enclosure may do.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias

from ...spec import primitives as p
from ...spec.algebra import Add, Expr, Mul, Pow, Symbol, exp, log, pi, sqrt, sympy
from .balls import (
    INFINITY,
    LONGEST_FACTORED,
    MINUS_INFINITY,
    NOTHING,
    ONE,
    WHOLE,
    ZERO,
    Arb,
    OutOfRange,
    Program,
    Span,
    above,
    arb,
    as_rational,
    below,
    constant,
    flint,
    is_quickly_expanded,
    rational,
    smaller,
    tidy,
)

Coefficient: TypeAlias = Any  # an exact fmpq, or a Span
NIL = flint.fmpq(0)
LOWEST_POWER = -6  # smaller powers go into the rest


class NoForm(Exception):
    """The function has no such form on this half-line."""


@dataclass(frozen=True)
class Growth:
    """c y^n e^(-a y - b y^2)."""

    c: Arb
    n: Fraction = Fraction(0)
    a: Any = NIL
    b: Any = NIL

    def __mul__(self, other: Growth) -> Growth:
        return Growth(self.c * other.c, self.n + other.n, self.a + other.a, self.b + other.b)

    @property
    def rank(self) -> tuple[Any, ...]:
        """The larger, the faster it falls."""
        return self.b, self.a, -self.n

    @property
    def vanishes(self) -> bool:
        return self.c == 0 or self.rank > (0, 0, 0)

    @property
    def grows(self) -> bool:
        return self.c > 0 and self.rank < (0, 0, 0)


NONE = Growth(ZERO)


@dataclass(frozen=True)
class Form:
    """A function on the half-line, as above."""

    main: dict[Fraction, Coefficient] = field(default_factory=dict)
    rest: Growth = NONE
    sign: int = 0
    low: Growth | None = None
    logs: Coefficient = NIL

    @property
    def is_constant(self) -> bool:
        return set(self.main) <= {Fraction(0)} and self.rest.c == 0 and _is_zero(self.logs)


def as_span(c: Coefficient) -> Span:
    return c if isinstance(c, Span) else Span.ball(arb(c))


def _exact_where_possible(c: Span) -> Coefficient:
    if not c.is_point or not c.lo.is_finite():
        return c
    try:
        return as_rational(c.lo)
    except OutOfRange:
        return c


def _is_zero(c: Coefficient) -> bool:
    return not isinstance(c, Span) and c == 0


def _alike(a: Coefficient, b: Coefficient) -> tuple[Coefficient, Coefficient]:
    """Both exact, or both spans."""
    return (as_span(a), as_span(b)) if isinstance(a, Span) or isinstance(b, Span) else (a, b)


def _plus(a: Coefficient, b: Coefficient) -> Coefficient:
    return operator.add(*_alike(a, b))


def _times(a: Coefficient, b: Coefficient) -> Coefficient:
    return operator.mul(*_alike(a, b))


def number(value: Span | Fraction) -> Form:
    """A constant."""
    if isinstance(value, Fraction):
        return Form({Fraction(0): flint.fmpq(value.numerator, value.denominator)})
    return Form({Fraction(0): _exact_where_possible(value)})


class HalfLine:
    """The numbers y >= start (1 or more), and the arithmetic of forms on them."""

    def __init__(self, start: Arb) -> None:
        self.start = start

    # -- bounds -----------------------------------------------------------------------------------------

    def _at_start(self, n: Fraction, a: Any, b: Any) -> Arb:
        whole = n.denominator == 1
        power = self.start**n.numerator if whole else self.start ** arb(flint.fmpq(n.numerator, n.denominator))
        return power * (-arb(a) * self.start - arb(b) * self.start**2).exp()

    def ratio(self, growth: Growth, other: Growth) -> Arb:
        """An upper bound of (shape of one)/(shape of other), which must fall from the start on."""
        n, a, b = growth.n - other.n, growth.a - other.a, growth.b - other.b
        falls = (
            n <= 0
            if a == 0 and b == 0
            # The logarithm's slope times y is n - a y - 2 b y^2: negative at the start and falling from there.
            else b >= 0
            and (b > 0 or a > 0)
            and arb(a) + 4 * arb(b) * self.start >= 0
            and arb(flint.fmpq(n.numerator, n.denominator)) - arb(a) * self.start - 2 * arb(b) * self.start**2 <= 0
        )
        if not falls:
            raise NoForm("one term does not fall below another yet")
        return above(self._at_start(n, a, b))

    def sup(self, growth: Growth) -> Arb:
        """The largest value of a bound on the half-line."""
        if growth.c == 0:
            return ZERO
        try:
            return above(growth.c * self.ratio(growth, NONE))
        except NoForm:
            return INFINITY

    def inf(self, growth: Growth) -> Arb:
        """A number that the bound does not fall below."""
        try:
            self.ratio(NONE, growth)
        except NoForm:
            return ZERO
        return below(growth.c * self._at_start(growth.n, growth.a, growth.b))

    def add_bounds(self, growth: Growth, other: Growth) -> Growth:
        if growth.c == 0:
            return other
        if other.c == 0:
            return growth
        slow, fast = (growth, other) if growth.rank <= other.rank else (other, growth)
        return replace(slow, c=above(slow.c + fast.c * self.ratio(fast, slow)))

    def size(self, form: Form) -> Growth:
        """A bound of |h|."""
        plain = self.without_logs(form)
        return self.add_bounds(self._main_size(plain.main), plain.rest)

    def without_logs(self, form: Form) -> Form:
        """The same with its logarithm in the rest: log y <= sqrt(y)."""
        if _is_zero(form.logs):
            return form
        rest = self.add_bounds(form.rest, Growth(as_span(form.logs).size.hi, Fraction(1, 2)))
        return replace(form, rest=rest, logs=NIL)

    def _main_size(self, main: dict[Fraction, Coefficient]) -> Growth:
        if not main:
            return NONE
        top = max(main)
        total = ZERO
        for power, c in main.items():
            total = above(total + as_span(c).size.hi * self._at_start(power - top, 0, 0))
        return Growth(total, top)

    def lower(self, form: Form) -> tuple[int, Growth] | None:
        """(sign, bound) with sign h >= bound > 0."""
        led = self._led(self.without_logs(form))
        if form.low is None or (led is not None and led[1].rank < form.low.rank):
            return led
        return form.sign, form.low

    def _led(self, form: Form) -> tuple[int, Growth] | None:
        """A lower bound by the leading power."""
        if not form.main:
            return None
        top = max(form.main)
        c = as_span(form.main[top])
        if not c.sign:
            return None
        others = self._main_size({power: k for power, k in form.main.items() if power != top})
        try:
            off = others.c * self.ratio(others, Growth(ZERO, top)) if others.c != 0 else ZERO
            if form.rest.c != 0:
                off = off + form.rest.c * self.ratio(form.rest, Growth(ZERO, top))
        except NoForm:
            return None
        left = below(c.size.lo - off)
        return (c.sign, Growth(left, top)) if left > 0 else None

    # -- what a form says -------------------------------------------------------------------------------

    def limit(self, form: Form) -> Span | None:
        """The limit: a span around it, one with an infinite end twice, or None where there may be none."""
        known = self.lower(form)
        if known is not None and known[1].grows:
            return _infinite(known[0])
        if form.rest.vanishes and all(power <= 0 for power in form.main):
            if not _is_zero(form.logs):
                sign = as_span(form.logs).sign
                return _infinite(sign) if sign else None
            return as_span(form.main.get(Fraction(0), NIL))
        return None

    def range(self, form: Form) -> Span:
        """An enclosure of every value on the half-line."""
        span = Span(-self.sup(form.rest), self.sup(form.rest))
        if not _is_zero(form.logs):
            span = span + as_span(form.logs) * Span(below(self.start.log()), INFINITY)
        for power, c in form.main.items():
            at_start = as_span(c) * Span.ball(self._at_start(power, 0, 0))
            if power == 0:
                span = span + as_span(c)
            elif power < 0:
                span = span + at_start.join(NOTHING)
            else:
                ends = {1: Span(at_start.lo, INFINITY), -1: Span(MINUS_INFINITY, at_start.hi)}
                sign = as_span(c).sign
                span = span + (ends[sign] if sign else WHOLE)
        known = self.lower(form)
        if known is None:
            return span
        sign, low = known
        least = self.inf(low)
        return span.meet(Span(least, INFINITY) if sign > 0 else Span(MINUS_INFINITY, -least))

    # -- arithmetic -------------------------------------------------------------------------------------

    def add(self, form: Form, other: Form) -> Form:
        main = dict(form.main)
        for power, c in other.main.items():
            main[power] = _plus(main[power], c) if power in main else c
        main = {power: c for power, c in main.items() if not _is_zero(c)}
        sign, low = self._sum_low(form, other)
        logs = _plus(form.logs, other.logs)
        return Form(main, self.add_bounds(form.rest, other.rest), sign, low, logs)

    def _sum_low(self, form: Form, other: Form) -> tuple[int, Growth | None]:
        first, second = self.lower(form), self.lower(other)
        if first and second and first[0] == second[0]:
            return min((first, second), key=lambda pair: pair[1].rank)
        for known, rival in ((first, other), (second, form)):
            if known is None:
                continue
            try:
                size = self.size(rival)
                left = below(known[1].c - (size.c * self.ratio(size, known[1]) if size.c != 0 else ZERO))
            except NoForm:
                continue
            if left > 0:
                return known[0], replace(known[1], c=left)
        return 0, None

    def multiply(self, factor: Form, other: Form) -> Form:
        logs: Coefficient = NIL
        for first, second in ((factor, other), (other, factor)):
            if not _is_zero(first.logs) and second.is_constant:
                logs = _times(first.logs, second.main.get(Fraction(0), NIL))
        known, also = self.lower(factor), self.lower(other)
        if not _is_zero(logs):  # the logarithm is the product's
            factor, other = replace(factor, logs=NIL), replace(other, logs=NIL)
        factor, other = self.without_logs(factor), self.without_logs(other)
        main: dict[Fraction, Coefficient] = {}
        rest = NONE
        for i, a in factor.main.items():
            for j, b in other.main.items():
                c = _times(a, b)
                if i + j < LOWEST_POWER:
                    rest = self.add_bounds(rest, Growth(as_span(c).size.hi, i + j))
                else:
                    main[i + j] = _plus(main[i + j], c) if i + j in main else c
        main = {power: c for power, c in main.items() if not _is_zero(c)}
        first, second = self._main_size(factor.main), self._main_size(other.main)
        for extra in (first * other.rest, second * factor.rest, factor.rest * other.rest):
            if extra.c != 0:
                rest = self.add_bounds(rest, replace(extra, c=above(extra.c)))
        sign, low = 0, None
        if known and also:
            both = known[1] * also[1]
            sign, low = known[0] * also[0], replace(both, c=below(both.c))
        return Form(main, rest, sign, low if low is None or low.c > 0 else None, logs)

    def reciprocal(self, form: Form) -> Form:
        """1/h by the lower bound of |h|, for what is no power of y."""
        known = self.lower(form)
        if known is None:
            raise NoForm("the denominator may come near 0")
        sign, low = known
        size = self.size(form)
        rest = Growth(above(1 / low.c), -low.n, -low.a, -low.b)
        return Form({}, rest, sign, Growth(below(1 / size.c), -size.n, -size.a, -size.b) if size.c > 0 else None)

    def leading(self, form: Form) -> tuple[Fraction, Coefficient, Form]:
        """(d, c, delta) with h = c y^d (1 + delta), delta tending to 0."""
        form = self.without_logs(form)
        if not form.main:
            raise NoForm("no leading power")
        top = max(form.main)
        c = form.main[top]
        span = as_span(c)
        if not span.sign:
            raise NoForm("the leading coefficient may be 0")
        inverse = _exact_where_possible(span.reciprocal()) if isinstance(c, Span) else 1 / c
        others = {power: k for power, k in form.main.items() if power != top}
        delta = self.multiply(Form(others, form.rest), Form({-top: inverse}))
        if not self.size(delta).vanishes:
            raise NoForm("the leading power does not lead")
        return top, c, delta

    def near(self, delta: Form, value: Span, slope: Span, bend: Span) -> Form:
        """f(c + delta) by Taylor: value and slope of f at c, and its second derivative on the range of delta."""
        size = self.size(delta)
        squared = size * size
        error = replace(squared, c=above(squared.c * bend.size.hi / 2))
        linear = self.add(number(value), self.multiply(delta, number(slope)))
        result = Form(linear.main, self.add_bounds(linear.rest, error))
        known = self.lower(delta)
        if result.main or known is None or not (value.lo == 0 and value.hi == 0):
            return result
        # f(c) = 0, so f keeps delta's sign times its slope's as long as the slope keeps its own.
        steepness = slope + bend * self.range(delta).join(NOTHING)
        if not steepness.sign:
            return result
        low = replace(known[1], c=below(known[1].c * steepness.size.lo))
        return Form(result.main, result.rest, known[0] * steepness.sign, low if low.c > 0 else None)


def _infinite(sign: int) -> Span:
    return Span(INFINITY, INFINITY) if sign > 0 else Span(MINUS_INFINITY, MINUS_INFINITY)


# -- the form near infinity of every function of the formula language --------------------
#
# Most functions are rewritten in the few that have a rule of their own (exp, log, powers, and sigmoid, softplus and the
# normal distribution where they vanish): sigmoid(w) is 1 - sigmoid(-w) where w grows, and so on.


_t = sympy.Symbol("t", real=True)
STEEPEST = arb(2) ** 20  # a decay faster than e^(-2^20 y) is kept as this one: its constant would overflow


# What a function of w is, written in others, where w goes to plus or minus infinity.
_FAR: dict[Any, Callable[[Expr, int], Expr | None]] = {
    p.Sigmoid: lambda w, way: 1 - p.Sigmoid(-w) if way > 0 else None,
    p.Softplus: lambda w, way: w + p.Softplus(-w) if way > 0 else None,
    p.NormalCdf: lambda w, way: 1 - p.NormalCdf(-w) if way > 0 else None,
    p.Tanh: lambda w, way: 1 - 2 * p.Sigmoid(-2 * w) if way > 0 else 2 * p.Sigmoid(2 * w) - 1,
    sympy.erf: lambda w, way: way - 2 * way * p.NormalCdf(-way * sqrt(2) * w),
    sympy.atan: lambda w, way: way * pi / 2 - sympy.atan(1 / w),
}
_FAR[sympy.tanh] = _FAR[p.Tanh]


def _mish(w: Expr, way: int) -> Expr:
    e = exp(-way * w)
    return 1 - 2 * e**2 / (1 + 2 * e + 2 * e**2) if way > 0 else e * (e + 2) / (e * (e + 2) + 2)


_FAR[p.MishGate] = _mish

# And what it is anywhere.
_ANYWHERE: dict[Any, Callable[[Expr], Expr]] = {
    p.SechSquared: lambda w: 4 * p.Sigmoid(2 * w) * p.Sigmoid(-2 * w),
    p.NormalPdf: lambda w: exp(-(w**2) / 2) / sqrt(2 * pi),
    p.Expm1: lambda w: exp(w) - 1,
    p.Log1p: lambda w: log(1 + w),
    p.Log1pMinus: lambda w: log(1 + w) - w,
    sympy.erfc: lambda w: 2 * p.NormalCdf(-sqrt(2) * w),
    sympy.sinh: lambda w: (exp(w) - exp(-w)) / 2,
    sympy.cosh: lambda w: (exp(w) + exp(-w)) / 2,
}
_ANYWHERE[p.Log1pUnit] = _ANYWHERE[p.Log1p]
_ANYWHERE[p.Log1pMinusNear] = _ANYWHERE[p.Log1pMinus]


class Tail:
    """The forms of expressions in one symbol on x >= start (side 1) or x <= -start (side -1)."""

    def __init__(self, symbol: Symbol, start: Arb, side: int) -> None:
        self.symbol, self.side = symbol, side
        self.line = HalfLine(start)
        self.span = Span(start, INFINITY) if side > 0 else Span(MINUS_INFINITY, -start)
        self._found: dict[Expr, Form | None] = {}

    def range(self, expr: Expr) -> Span | None:
        """An enclosure of every value on the half-line, or None where there is no form."""
        return self._of_form(self.line.range, expr)

    def limit(self, expr: Expr) -> Span | None:
        """The limit at infinity, or None where it is not known."""
        return self._of_form(self.line.limit, expr)

    def sign(self, expr: Expr) -> int | None:
        """The sign that it keeps on the half-line, or None where that is not known."""
        known = self._of_form(self.line.lower, expr)
        return None if known is None else known[0]

    def _of_form(self, read: Callable[[Form], Any], expr: Expr) -> Any:
        try:
            return read(self.form(expr))
        except NoForm:
            return None

    def form(self, expr: Expr) -> Form:
        if expr not in self._found:
            try:
                self._found[expr] = self._make(expr)
            except NoForm:
                self._found[expr] = self._plain(expr)
        known = self._found[expr]
        if known is None:
            raise NoForm(f"no form of {expr}")
        return known

    def _plain(self, expr: Expr) -> Form | None:
        """A bounded function has at least its bounds."""
        seen = Program(expr, self.symbol)(self.span)
        if not seen.is_finite:
            return None
        sign = seen.sign or 0
        return Form({}, Growth(seen.size.hi), sign, Growth(seen.size.lo) if sign else None)

    def _make(self, expr: Expr) -> Form:
        line = self.line
        if expr == self.symbol:
            return Form({Fraction(1): flint.fmpq(self.side)})
        if not expr.has(self.symbol):
            value = rational(expr)
            return number(constant(expr) if value is None else value)
        if isinstance(expr, Add):
            return functools.reduce(line.add, [self.form(arg) for arg in expr.args])
        if isinstance(expr, Mul):
            return functools.reduce(line.multiply, [self.form(arg) for arg in expr.args])
        if isinstance(expr, Pow):
            return self._power(expr)
        kind = type(expr)
        if kind in _ANYWHERE:
            return self.form(_ANYWHERE[kind](*expr.args))
        if len(expr.args) != 1:
            raise NoForm(f"no rule for {kind.__name__}")
        return self._function(kind, expr.args[0])

    def _function(self, kind: Any, w: Expr) -> Form:
        form = self.form(w)
        if kind is exp:
            return self._exp(form)
        end = self.line.limit(form)
        if end is None:
            raise NoForm(f"{w} may have no limit")
        if end.is_finite:
            return self._near(kind(_t), form, end, ZERO if kind is log else MINUS_INFINITY)
        way = 1 if end.hi > 0 else -1
        rewrite = _FAR.get(kind)
        other = rewrite(w, way) if rewrite is not None else None
        if other is not None:
            return self.form(other)
        if kind is log and way > 0:
            return self._log(form)
        return self._vanishing(kind, w, form)

    def _near(self, function: Expr, form: Form, end: Span, least: Arb = MINUS_INFINITY) -> Form:
        """A function, smooth above `least`, of something that has a limit."""
        low = form.low if end.is_point and end.lo == 0 else None
        delta = Form({power: c for power, c in form.main.items() if power != 0}, form.rest, form.sign, low)
        reach = end + self.line.range(delta).join(NOTHING)
        slope = sympy.diff(function, _t)
        bend = Program(sympy.diff(slope, _t), _t)(reach)
        if not reach.lo > least or not bend.is_finite:
            raise NoForm("not smooth near its limit")
        return self.line.near(delta, Program(function, _t)(end), Program(slope, _t)(end), bend)

    def _vanishing(self, kind: Any, w: Expr, form: Form) -> Form:
        """Sigmoid, softplus and the normal distribution of something that goes to minus infinity."""
        highest = self.line.range(form).hi
        if kind in (p.Sigmoid, p.Softplus) and highest <= 0:
            bound = self._exp(form)
            return _bounded_by(bound, arb(0.5) if kind is p.Sigmoid else arb(0.6875))  # log 2 = 0.693
        if kind is p.NormalCdf and highest <= -1:
            # phi(z)/z > Phi(-z) > phi(z) z/(z^2 + 1), which is half as much or more for z >= 1.
            return _bounded_by(self.form(p.NormalPdf(w) * (-1 / w)), arb(0.5))
        raise NoForm(f"no rule for {kind.__name__} here")

    def _log(self, form: Form) -> Form:
        """log(c y^d (1 + delta)) = log c + d log y + log(1 + delta)."""
        top, c, delta = self.line.leading(form)
        if as_span(c).sign != 1:
            raise NoForm("the logarithm of something negative")
        value = Program(log(_t), _t)(as_span(c))
        start = Form(number(value).main, logs=flint.fmpq(top.numerator, top.denominator))
        return self.line.add(start, self._near(log(1 + _t), delta, NOTHING, -ONE))

    def _power(self, expr: Expr) -> Form:
        base, exponent = expr.args
        power = rational(exponent)
        if power is None:
            return self.form(exp(exponent * log(base)))
        form, line = self.form(base), self.line
        if power.denominator == 1 and power > 0:
            return functools.reduce(line.multiply, [form] * int(power))
        try:
            top, c, delta = line.leading(form)
        except NoForm:
            if power.denominator != 1:
                raise
            return functools.reduce(line.multiply, [line.reciprocal(form)] * -int(power))
        if power.denominator == 1:
            factor: Any = Form({top * power: c ** int(power) if not isinstance(c, Span) else c.power(int(power))})
        else:
            if as_span(c).sign != 1:
                raise NoForm("a root of something negative")
            root = as_span(c).root_power(power)
            factor = Form({top * power: as_rational(root.lo) if root.is_point else root})
        if not delta.main and delta.rest.c == 0:
            return factor
        return line.multiply(factor, self._near((1 + _t) ** exponent, delta, NOTHING, -ONE))

    def _exp(self, form: Form) -> Form:
        line = self.line
        if isinstance(form.logs, Span):
            raise NoForm("a power of y that is no fraction")
        if form.logs != 0:  # e^(k log y) = y^k
            power = Fraction(int(form.logs.p), int(form.logs.q))
            return line.multiply(Form({power: flint.fmpq(1)}), self._exp(Form(form.main, form.rest)))
        rising = {power: c for power, c in form.main.items() if power > 0}
        if not rising:
            return self._exp_of_no_power(form)
        bounded = Form({power: c for power, c in form.main.items() if power <= 0}, form.rest)
        off = line.range(bounded)
        if not off.is_finite:
            raise NoForm("an exponent that is not a polynomial and something bounded")
        if set(rising) <= {Fraction(1), Fraction(2)}:
            (linear, linear_up), (square, square_up) = (_ends(rising.get(Fraction(i), NIL)) for i in (1, 2))
            rest = Growth(above(off.hi.exp()), Fraction(0), -linear_up, -square_up)
            low = Growth(below(off.lo.exp()), Fraction(0), -linear, -square)
            return Form({}, rest, 1, low if low.c > 0 else None)
        return Form({}, self._steep({power: as_span(c) for power, c in rising.items()}, off))

    def _steep(self, rising: dict[Fraction, Span], off: Span) -> Growth:
        """A bound of e to a polynomial of another degree: y^3 >= R y^2, and so on."""
        start = self.line.start
        totals = {0: off.hi, 1: ZERO, 2: ZERO}
        for power, c in rising.items():
            upper = c.hi
            if upper > 0 and power > 2:
                raise NoForm("an exponent that grows faster than a square")
            near = int(power) if power in (1, 2) else (min(int(power), 2) if upper <= 0 else 1 + int(power))
            shift = power - near
            scale = start ** arb(flint.fmpq(shift.numerator, shift.denominator))
            totals[near] = above(totals[near] + upper * scale)
        return Growth(above(totals[0].exp()), Fraction(0), -as_rational(totals[1]), -as_rational(totals[2]))

    def _exp_of_no_power(self, form: Form) -> Form:
        line = self.line
        end = line.limit(form)
        if end is not None and end.is_finite:
            return self._near(exp(_t), form, end)
        known = line.lower(form)
        if known is None or known[0] > 0 or not known[1].grows:
            raise NoForm("the exponential of something without a limit")
        # w <= -L(y), and L grows at the rate k at least, so L(y) >= L(R)(1 + k (y - R)).
        low = known[1]
        if low.n < 0 or low.b > 0 or low.a >= 0:
            raise NoForm("the exponential of something that goes down slowly")
        depth = line.inf(low)
        rate = smaller(below(depth * arb(-low.a)), STEEPEST)
        return Form({}, Growth(above((rate * line.start - depth).exp()), Fraction(0), as_rational(rate)))


_UNFOLDED = (p.Sigmoid, p.Softplus, p.NormalCdf, p.Tanh, sympy.tanh, sympy.erf)


@functools.lru_cache(maxsize=4096)
def unfolded(expr: Expr, symbol: Symbol, side: int) -> Expr | None:
    """The same with what tends to 1 as 1 less what tends to 0, where that is shorter: Phi(x) - Phi(x - 6) for large x
    is Phi(6 - x) - Phi(-x), in which nothing cancels."""
    if not expr.has(*_UNFOLDED):
        return None
    tail = Tail(symbol, arb(2) ** 40, side)

    def rewritten(node: Expr) -> Expr:
        end = tail.limit(node.args[0])
        if end is None or end.is_finite:
            return node
        other = _FAR[type(node)](node.args[0], 1 if end.hi > 0 else -1)
        return node if other is None else other

    if expr.count_ops() > LONGEST_FACTORED or not is_quickly_expanded(expr):
        return None
    rewritten_expr = expr.replace(lambda node: isinstance(node, _UNFOLDED), rewritten)
    if not is_quickly_expanded(rewritten_expr):
        return None
    rewritten_expr = sympy.expand(rewritten_expr)
    shorter = len(Add.make_args(rewritten_expr)) <= len(Add.make_args(sympy.expand(expr)))
    return tidy(rewritten_expr) if shorter and rewritten_expr != expr else None


def _bounded_by(form: Form, share: Arb) -> Form:
    """Something between `share` times a positive form and the form itself."""
    if form.main:
        raise NoForm("not small")
    low = None if form.low is None else replace(form.low, c=below(form.low.c * share))
    return Form({}, form.rest, 1 if low is not None else 0, low)


def _ends(c: Coefficient) -> tuple[Any, Any]:
    """The ends of a coefficient as exact fractions."""
    return (as_rational(c.lo), as_rational(c.hi)) if isinstance(c, Span) else (c, c)
