r"""Polynomials on [0, 1] with given derivatives at both ends, as combinations of those derivatives.

    M(s) = sum_j L_j h^j P_j(s) + R_j h^j Q_j(s)

where L_j and R_j are the derivatives of order j at the ends of a window of width h, and s the place in it. P_j and Q_j
are fixed polynomials with rational coefficients: of degree 2k + 1 where both values are given, and of degree 2k where
the right one is free (then P_0 = 1 and Q_0 = 0). The derivative of M by a parameter that moves the ends or the data is
the same kind of sum with other fixed polynomials, so that what cancels, cancels before it is computed.

A polynomial is the tuple of its coefficients, the constant first.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from itertools import zip_longest

from ...spec.algebra import Add, Expr, Rational

Polynomial = tuple[Fraction, ...]
ONE: Polynomial = (Fraction(1),)
PLACE: Polynomial = (Fraction(0), Fraction(1))
REST: Polynomial = (Fraction(1), Fraction(-1))


def add(*several: Polynomial) -> Polynomial:
    total = [sum(column, Fraction(0)) for column in zip_longest(*several, fillvalue=Fraction(0))]
    while total and total[-1] == 0:
        total.pop()
    return tuple(total)


def times(first: Polynomial, second: Polynomial | Fraction | int) -> Polynomial:
    if not isinstance(second, tuple):
        return add(tuple(one * second for one in first))
    shifted = [(Fraction(0),) * i + tuple(one * c for c in second) for i, one in enumerate(first)]
    return add(*shifted)


def power(base: Polynomial, exponent: int) -> Polynomial:
    return functools.reduce(times, [base] * exponent, ONE)


def derivative(polynomial: Polynomial, order: int = 1) -> Polynomial:
    for _ in range(order):
        polynomial = tuple(i * c for i, c in enumerate(polynomial))[1:]
    return polynomial


def integral(polynomial: Polynomial) -> Polynomial:
    return (Fraction(0), *(c / (i + 1) for i, c in enumerate(polynomial))) if polynomial else ()


def mirrored(polynomial: Polynomial) -> Polynomial:
    """The polynomial of 1 - s."""
    return add(*(times(power(REST, i), c) for i, c in enumerate(polynomial)))


@functools.cache
def basis(order: int, fixed: bool) -> tuple[tuple[Polynomial, ...], tuple[Polynomial, ...]]:
    """P_0 .. P_order and Q_0 .. Q_order for that many derivatives at both ends."""
    count = order + 1 if fixed else order
    left = [_left(j, count) for j in range(count)]
    right = [times(mirrored(one), (-1) ** j) for j, one in enumerate(left)]
    if fixed:
        return tuple(left), tuple(right)
    return (ONE, *map(integral, left)), ((), *map(integral, right))


def _left(j: int, count: int) -> Polynomial:
    """The polynomial whose derivative of order j at 0 is 1, all others of order below `count` at 0 and 1 being 0."""
    tail = tuple(Fraction(math.comb(count - 1 + m, m), math.factorial(j)) for m in range(count - j))
    return times(times(power(PLACE, j), power(REST, count)), tail)


@functools.cache
def moving_basis(order: int, fixed: bool) -> dict[str, list[Polynomial]]:
    """The polynomials that a moving end brings: "La"[j] goes with (da/dp) L_j h^(j-1), and so on for R and b.

    With s = (x - a)/h at a fixed x, ds/dp = -(a' (1 - s) + b' s)/h, and L_j itself moves by L_(j+1) a'.
    """
    first, second = ([*one, ()] for one in basis(order, fixed))
    found: dict[str, list[Polynomial]] = {"La": [], "Lb": [], "Ra": [], "Rb": []}
    for j in range(order + 2):
        for side, own in (("L", first), ("R", second)):
            before = own[j - 1] if j else ()
            slope = times(derivative(own[j]), -1)
            moved = add(times(own[j], -j), times(slope, REST))
            found[side + "a"].append(add(moved, before) if side == "L" else moved)
            moved = add(times(own[j], j), times(slope, PLACE))
            found[side + "b"].append(add(moved, before) if side == "R" else moved)
    return found


def written(polynomial: Polynomial, place: Expr, rest: Expr) -> Expr:
    """A polynomial, written in the place and in 1 minus it so that it does not cancel on [0, 1].

    Factors s and 1 - s are taken out; what is left stays a sum of powers where all signs agree, and becomes a sum of
    Bernstein polynomials where they do not.
    """
    left, right, terms = _terms(polynomial)
    return (
        place**left
        * rest**right
        * Add(*(Rational(c.numerator, c.denominator) * place**i * rest**j for c, i, j in terms))
    )


@functools.cache
def _terms(polynomial: Polynomial) -> tuple[int, int, list[tuple[Fraction, int, int]]]:
    """The powers of s and 1 - s that are factors, and the rest as (coefficient, power of s, power of 1 - s)."""
    polynomial = add(polynomial)
    if not polynomial:
        return 0, 0, []
    left = right = 0
    while polynomial[0] == 0:
        polynomial, left = polynomial[1:], left + 1
    while sum(polynomial) == 0:  # by 1 - s: the partial sums of the coefficients
        sums = [sum(polynomial[: i + 1], Fraction(0)) for i in range(len(polynomial))]
        polynomial, right = add(tuple(sums)), right + 1
    degree = len(polynomial) - 1
    if all(c >= 0 for c in polynomial) or all(c <= 0 for c in polynomial):
        return left, right, [(c, i, 0) for i, c in enumerate(polynomial) if c != 0]
    bernstein = [
        math.comb(degree, i) * sum(math.comb(i, j) * polynomial[j] / math.comb(degree, j) for j in range(i + 1))
        for i in range(degree + 1)
    ]
    return left, right, [(Fraction(c), i, degree - i) for i, c in enumerate(bernstein) if c != 0]
