"""Integrals of polynomials against a polynomial weight, exact and written so that they are computed well."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from sympy.integrals.quadrature import gauss_legendre

from ...spec import Line, Ramp, x
from ...spec.algebra import Add, Expr, Mul, Piecewise, sympy
from .convolution import Bulk, Weight, degree, t, taylor

# How the symbols of a mixture's shares begin.
SHARE = "share_"


def half(weight: Weight, right: bool) -> Expr:
    return factored(weight.right if right else weight.left)


def integral(weight: Weight, do: Callable[[Expr], Expr], low: Expr, high: Expr) -> Expr:
    """Over a range that ends on both sides of 0."""
    if weight.whole:
        return sympy.expand(definite(do(weight.left), low, high))
    left = definite(do(weight.left), low, 0)
    return sympy.expand(left + definite(do(weight.right), 0, high))


def definite(expr: Expr, low: Any, high: Any) -> Expr:
    """The integral by t of a polynomial in t: many times quicker than SymPy's general one."""
    whole = sympy.Poly(expr, t).integrate(t).as_expr()
    return whole.subs(t, high) - whole.subs(t, low)


_s = sympy.Symbol("s", real=True)


@functools.lru_cache(maxsize=2048)
def below(weight: Weight, order: int, right: bool) -> Expr:
    """integral_{-1}^s (s - t)^j psi(t) dt as a factored polynomial, written in t for s."""
    power = (_s - t) ** order
    if weight.whole or not right:
        value = definite(sympy.expand(power * weight.left), -1, _s)
    else:
        value = definite(sympy.expand(power * weight.left), -1, 0)
        value += definite(sympy.expand(power * weight.right), 0, _s)
    return factored(value).subs(_s, t)


@functools.lru_cache(maxsize=2048)
def above(weight: Weight, order: int, right: bool) -> Expr:
    """integral_s^1 (s - t)^j psi(t) dt."""
    power = (_s - t) ** order
    if weight.whole or right:
        value = definite(sympy.expand(power * weight.right), _s, 1)
    else:
        value = definite(sympy.expand(power * weight.left), _s, 0)
        value += definite(sympy.expand(power * weight.right), 0, 1)
    return factored(value).subs(_s, t)


def factored(expr: Expr) -> Expr:
    """In factors, those of each product of shares by themselves: no factor loses digits where it is small."""
    shares = sorted((s for s in expr.free_symbols if s.name.startswith(SHARE)), key=str)
    if not shares:
        return sympy.factor(sympy.together(sympy.expand(expr)))
    poly = sympy.Poly(sympy.expand(expr), *shares)
    return Add(*(Mul(*(s**n for s, n in zip(shares, powers, strict=True)), factored(c)) for powers, c in poly.terms()))


def exact_quadrature(q: Expr, weight: Weight, low: Expr, high: Expr, width: Expr) -> Expr:
    """integral_low^high q(x - w t) psi(t) dt, exact."""
    if q == 0:
        return sympy.Integer(0)
    if not weight.whole:
        left, right = Weight.even(weight.left), Weight.even(weight.right)
        return exact_quadrature(q, left, -Ramp(-low), -Ramp(-high), width) + exact_quadrature(
            q, right, Ramp(low), Ramp(high), width
        )
    psi = factored(weight.left)
    nodes, weights = gauss_legendre((degree(q) + degree(sympy.expand(psi), t)) // 2 + 1, 30)
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle + node * half for node in nodes]
    nested = sympy.horner(q, x)
    terms = [
        share * nested.subs(x, x - width * point) * psi.subs(t, point)
        for share, point in zip(weights, points, strict=True)
    ]
    return half * Add(*terms)


_z, _gap = sympy.Symbol("z", real=True), sympy.Symbol("h", positive=True)


def over_two_seams(bulk: Bulk, seams: tuple[Expr, Expr], width: Expr) -> Expr:
    """A window over both seams: one polynomial in z = (x - c)/w, c the middle of the seams, and h = half their
    distance over w. Written about the middle, an odd function keeps its digits where it crosses 0."""
    low, high = seams
    middle = (low + high) / 2
    coefficients = [taylor(sympy.expand(q), middle) for q in bulk.parts]
    weight = bulk.weight

    def value(first_right: bool, second_right: bool) -> Expr:
        total = []
        for j in range(max(map(len, coefficients))):
            left, between, right = (c[j] if j < len(c) else sympy.S.Zero for c in coefficients)
            upto_low = _mass(weight, j, _z + _gap, first_right)
            upto_high = _mass(weight, j, _z - _gap, second_right)
            whole = _mass(weight, j, sympy.S.One, True)
            sums = left * (whole - upto_low) + between * (upto_low - upto_high) + right * upto_high
            total.append(width**j * nested(sums))
        return Add(*total).subs({_z: (x - middle) / width, _gap: (high - low) / (2 * width)}, simultaneous=True)

    if weight.whole:
        return value(True, True)
    return Piecewise(
        (value(False, False), x < low), (value(True, False), x < high), (value(True, True), True), evaluate=False
    )


def nested(expr: Expr) -> Expr:
    """A polynomial in z in nested form, those of each product of shares by themselves."""
    expr = sympy.expand(expr)
    shares = sorted((s for s in expr.free_symbols if s.name.startswith(SHARE)), key=str)
    if shares:
        terms = sympy.Poly(expr, *shares).terms()
        return Add(*(Mul(*(s**n for s, n in zip(shares, powers, strict=True)), nested(c)) for powers, c in terms))
    poly = sympy.Poly(expr, _z)
    powers = [(n, sympy.factor(c)) for (n,), c in reversed(poly.terms())]
    # Steps of the powers that occur: an odd polynomial is z times one in z^2.
    value, above = sympy.S.Zero, None
    for n, c in reversed(powers):
        value = c if above is None else c + value * _z ** (above - n)
        above = n
    return value * _z**above if above else value


@functools.lru_cache(maxsize=2048)
def _mass(weight: Weight, order: int, upto: Expr, right: bool) -> Expr:
    """integral_{-1}^upto (z - t)^j psi(t) dt, `upto` lying on the right of 0 or not."""
    power = (_z - t) ** order
    if weight.whole or not right:
        return definite(sympy.expand(power * weight.left), -1, upto)
    left = definite(sympy.expand(power * weight.left), -1, 0)
    return left + definite(sympy.expand(power * weight.right), 0, upto)


def common_part(parts: Sequence[Expr]) -> Expr:
    """The polynomial that is taken out before the segments are added up.

    The tails may grow with the window, so what is left of one of them must be 0 or a constant: otherwise they would
    cancel one another in a wide window.
    """
    first, last = parts[0], parts[-1]
    if 0 in (first, last):
        return sympy.Integer(0)
    return sympy.expand((first + last) / 2) if degree(sympy.expand(last - first)) == 0 else first


def with_lines(q: Expr) -> Expr:
    """A polynomial in x that stays what it is at infinity where a coefficient is a parameter that may be 0."""
    if not q.has(x):
        return q
    constant, *others = reversed(sympy.Poly(q, x).all_coeffs())
    inner = others[-1]
    for coefficient in reversed(others[:-1]):
        inner = coefficient + Line(inner, x)
    return constant + Line(inner, x)
