"""SymPy expressions: better forms, exact proofs that a number is 0, and programs on spans, each part computed once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from sympy.simplify.fu import TR8 as _TR8

from ...errors import DefinitionError
from ...spec import elementary, primitives
from ...spec.algebra import Add, Expr, Mul, Pow, Symbol, exp, log, sympy
from .balls import FUNCTIONS, INFINITY, MINUS_INFINITY, NOTHING, WHOLE, Arb, Span, above, arb, below, flint, larger

# -- better forms of an expression ------------------------------------------------------------------------


TR8: Any = _TR8  # products of sines and cosines as sums
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


def factored(expr: Expr) -> Expr:
    """The expression in factors, its functions and roots untouched."""
    plain, back = masked(expr, numbers=True)
    return sympy.factor(plain).xreplace(back)


@functools.lru_cache(maxsize=4096)
def tidy(expr: Expr) -> Expr:
    """In factors where that is no longer: a product of one-signed factors shows its sign."""
    if expr.count_ops() > LONGEST_FACTORED:
        return expr
    if expr.has(sympy.sin, sympy.cos):
        # sin a cos a as sin(2a)/2: the range of one wave is known, that of a product of two is not.
        waves = TR8(sympy.expand(expr))
        expr = waves if waves.count(_is_wave) < expr.count(_is_wave) else expr
    return min((factored(expr), _without_roots_squared(expr), expr), key=lambda form: form.count_ops())


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
            return primitives.Softplus(gate(node.args[0]))
        return primitives.Sigmoid(-sympy.sympify(gate(node.base))) ** -node.exp

    return expr.replace(is_spelled_out, rewritten).replace(sympy.tanh, primitives.Tanh)


def collected(expr: Expr, symbol: Symbol) -> Expr:
    """A polynomial with one coefficient for each power; anything else as it is."""
    if not expr.is_polynomial(symbol):
        return expr
    powers = sympy.collect(sympy.expand(expr), symbol, evaluate=False)
    return Add(*(power * coefficient for power, coefficient in powers.items()))


# -- numbers that are 0 -----------------------------------------------------------------------------------


def proves_zero(expr: Expr) -> bool:
    """Whether an exact number is shown to be 0 by algebra; False means only that it was not."""
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
        total = NOTHING
        for power in range(len(shifted)):
            total = total + Span.ball(shifted[power]) * reach.power(power)
        return total


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
