"""The form near infinity of every function of the formula language (see `ball_tails`).

Most functions are rewritten in the few that have a rule of their own (exp, log, powers, and sigmoid, softplus and the
normal distribution where they vanish): sigmoid(w) is 1 - sigmoid(-w) where w grows, and so on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ...spec import primitives as p
from ...spec.algebra import Add, Expr, Mul, Pow, Symbol, exp, log, pi, sqrt, sympy
from .ball_algebra import LONGEST_FACTORED, tidy
from .ball_programs import Program, constant, rational
from .ball_tails import NIL, Coefficient, Form, Growth, HalfLine, NoForm, as_span, number
from .balls import INFINITY, MINUS_INFINITY, NOTHING, ONE, ZERO, Arb, Span, above, arb, below, flint, smaller

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
        try:
            return self.line.range(self.form(expr))
        except NoForm:
            return None

    def limit(self, expr: Expr) -> Span | None:
        """The limit at infinity, or None where it is not known."""
        try:
            return self.line.limit(self.form(expr))
        except NoForm:
            return None

    def sign(self, expr: Expr) -> int | None:
        """The sign that it keeps on the half-line, or None where that is not known."""
        try:
            known = self.line.lower(self.form(expr))
        except NoForm:
            return None
        return None if known is None else known[0]

    def form(self, expr: Expr) -> Form:
        if expr not in self._found:
            try:
                self._found[expr] = self._make(expr)
            except NoForm:
                self._found[expr] = self._plain(expr)
        found = self._found[expr]
        if found is None:
            raise NoForm(f"no form of {expr}")
        return found

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
            found = self._exp(form)
            return _bounded_by(found, arb(0.5) if kind is p.Sigmoid else arb(0.6875))  # log 2 = 0.693
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
            factor = Form({top * power: root.lo.fmpq() if root.is_point else root})
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
        settled = Form({power: c for power, c in form.main.items() if power <= 0}, form.rest)
        off = line.range(settled)
        if not off.is_finite:
            raise NoForm("an exponent that is not a polynomial and something bounded")
        if set(rising) <= {Fraction(1), Fraction(2)}:
            (one, one_up), (two, two_up) = (_ends(rising.get(Fraction(i), NIL)) for i in (1, 2))
            rest = Growth(above(off.hi.exp()), Fraction(0), -one_up, -two_up)
            low = Growth(below(off.lo.exp()), Fraction(0), -one, -two)
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
        return Growth(above(totals[0].exp()), Fraction(0), -totals[1].fmpq(), -totals[2].fmpq())

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
        return Form({}, Growth(above((rate * line.start - depth).exp()), Fraction(0), rate.fmpq()))


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

    if expr.count_ops() > LONGEST_FACTORED:
        return None
    found = sympy.expand(expr.replace(lambda node: isinstance(node, _UNFOLDED), rewritten))
    shorter = len(Add.make_args(found)) <= len(Add.make_args(sympy.expand(expr)))
    return tidy(found) if shorter and found != expr else None


def _bounded_by(form: Form, share: Arb) -> Form:
    """Something between `share` times a positive form and the form itself."""
    if form.main:
        raise NoForm("not small")
    low = None if form.low is None else Growth(below(form.low.c * share), form.low.n, form.low.a, form.low.b)
    return Form({}, form.rest, 1 if low is not None else 0, low)


def _ends(c: Coefficient) -> tuple[Any, Any]:
    """The ends of a coefficient as exact fractions."""
    return (c.lo.fmpq(), c.hi.fmpq()) if isinstance(c, Span) else (c, c)
