"""SymPy expressions as programs on spans: each distinct part is computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction

from ...errors import DefinitionError
from ...spec.algebra import Add, Expr, Mul, Pow, Symbol, sympy
from .ball_algebra import masked
from .ball_functions import FUNCTIONS
from .balls import (
    INFINITY,
    MINUS_INFINITY,
    NOTHING,
    WHOLE,
    Arb,
    Span,
    above,
    arb,
    below,
    flint,
    larger,
)

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


def _sum(*parts: Span) -> Span:
    return functools.reduce(lambda a, b: a + b, parts)


def _product(*parts: Span) -> Span:
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
        fixed = self.fixed(expr)
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
            return _sum, where
        rule = FUNCTIONS.get(type(expr))
        if rule is None or not where:
            raise UnknownFunction(f"The ball arithmetic has no enclosure of {expr.func.__name__}, in {expr}.")
        return rule, where

    def fixed(self, expr: Expr) -> Span | None:
        """A number that needs no arithmetic."""
        return _constant(expr)

    def _multiply(self, expr: Expr) -> Step:
        factor, others = expr.as_coeff_mul()
        number = rational(factor)
        if number is None or number.denominator == 1:
            return _product, tuple(self._place(arg) for arg in expr.args)
        # Divided by the denominator at the end: 9/6 is a binary number, 9 times a rounded 1/6 is not.
        top, bottom = Span.exact(number.numerator), arb(number.denominator)
        where = tuple(self._place(arg) for arg in others)
        return (lambda *parts: _divided(_product(top, *parts), bottom)), where

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
        found = NOTHING
        for power in range(len(shifted)):
            found = found + Span.ball(shifted[power]) * reach.power(power)
        return found


def _as_ball(span: Span) -> Arb:
    middle = span.middle
    return arb(middle, larger(above(span.hi - middle), above(middle - span.lo)))


def polynomial(expr: Expr, symbol: Symbol) -> Polynomial | None:
    """The expression as a polynomial of degree 2 or more, where it is one of moderate degree."""
    if not expr.is_polynomial(symbol):
        return None
    degree = sympy.degree(masked(expr, numbers=True)[0], symbol)
    return Polynomial(expr, symbol) if 2 <= degree <= 64 else None


def constant(expr: Expr) -> Span:
    """The enclosure of an expression without symbols."""
    return Program(expr)()
