"""Kernels that are polynomials on [-1, 1]: exact closed forms for every piecewise polynomial.

    box 1/2                          triangle 1 - |t|                       epanechnikov 3/4 (1 - t^2)
    biweight 15/16 (1 - t^2)^2       triweight 35/32 (1 - t^2)^3

What a seam k adds is a polynomial in s = (x - k)/w between s = -1 and s = 1, so the closed form is a sum over the seams
of three (triangle: four) pieces each, right for every width, also where windows overlap.

Hazard: summed that way, relu6 at a width of 1e6 is the difference of two numbers near 2e5. What is computed instead
goes segment by segment: between two seams the integrand is a polynomial in t, and Gauss-Legendre quadrature with enough
points for its degree is exact with positive weights, so that nothing cancels.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sympy.integrals.quadrature import gauss_legendre

from ...spec import Clip, Line, Ramp, x
from ...spec.algebra import Add, Expr, Mul, Piecewise, Rational, Symbol, sympy
from .convolution import Atom, Bulk, Convolution, Weight, degree, t, taylor

# How the symbols of a mixture's shares begin.
SHARE = "share_"


def half(weight: Weight, right: bool) -> Expr:
    return factored(weight.right if right else weight.left)


def integral(
    weight: Weight, factor: Expr, low: Any, high: Any, *, low_right: bool = False, high_right: bool = True
) -> Expr:
    """The integral by t of a polynomial times the weight; `low_right`, `high_right`: whether an end lies right of 0."""
    left, right = (sympy.expand(factor * side) for side in (weight.left, weight.right))
    if weight.whole or low_right == high_right:
        return definite(right if high_right else left, low, high)
    return definite(left, low, 0) + definite(right, 0, high)


def definite(expr: Expr, low: Any, high: Any) -> Expr:
    """The integral by t of a polynomial in t: many times quicker than SymPy's general one."""
    whole = sympy.Poly(expr, t).integrate(t).as_expr()
    return whole.subs(t, high) - whole.subs(t, low)


_s = sympy.Symbol("s", real=True)


@functools.lru_cache(maxsize=2048)
def below(weight: Weight, order: int, right: bool) -> Expr:
    """integral_{-1}^s (s - t)^j psi(t) dt as a factored polynomial, written in t for s."""
    return factored(integral(weight, (_s - t) ** order, -1, _s, high_right=right)).subs(_s, t)


@functools.lru_cache(maxsize=2048)
def above(weight: Weight, order: int, right: bool) -> Expr:
    """integral_s^1 (s - t)^j psi(t) dt."""
    return factored(integral(weight, (_s - t) ** order, _s, 1, low_right=right)).subs(_s, t)


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
    return integral(weight, (_z - t) ** order, -1, upto, high_right=right)


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


_POWERS = {"epanechnikov": 1, "biweight": 2, "triweight": 3}
NAMES = ("box", "triangle", *_POWERS)
# Continuous derivatives of the kernel itself; -1 for one that jumps at the ends of its support.
SMOOTHNESS = {"box": -1, "triangle": 0, "epanechnikov": 0, "biweight": 1, "triweight": 2}


def density(name: str) -> Weight:
    """The kernel of half-width 1."""
    if name == "box":
        return Weight.even(Rational(1, 2))
    if name == "triangle":
        return Weight(1 + t, 1 - t)
    shape = (1 - t**2) ** _POWERS[name]
    return Weight.even(sympy.expand(shape / sympy.integrate(shape, (t, -1, 1))))


@dataclass(frozen=True)
class PolynomialKernel:
    """One kernel, or a mixture: `shares` gives the expressions of the symbols that stand in its weight, `members` the
    kernel that each belongs to."""

    weight: Weight
    shares: Mapping[Symbol, Expr] = field(default_factory=dict)
    members: Mapping[Symbol, Weight] = field(default_factory=dict)

    # -- integrals of the weight ----------------------------------------------------------------------

    def moment(self, weight: Weight, order: int) -> Expr:
        return sympy.expand(integral(weight, t**order, -1, 1))

    def averaged(self, q: Expr, weight: Weight, width: Expr) -> Expr:
        """integral q(x - w t) psi(t) dt over the whole window: what is left of a polynomial without seams."""
        total, order = sympy.Integer(0), 0
        while q != 0:
            total += q * (-width) ** order * self.moment(weight, order) / sympy.factorial(order)
            q, order = sympy.diff(q, x), order + 1
        return sympy.expand(total)

    # -- the textbook form ----------------------------------------------------------------------------

    def textbook(self, whole: Convolution) -> Expr:
        """The closed form as one reads it: a piece per window where there is one seam, a sum over seams otherwise."""
        (bulk,) = whole.bulks
        if self.members:
            alone = {p: replace(whole, bulks=(replace(bulk, weight=member),)) for p, member in self.members.items()}
            return Add(
                *(self.shares[p] * PolynomialKernel(self.members[p]).textbook(member) for p, member in alone.items())
            )
        parts, width = bulk.parts, whole.width
        start = self.averaged(parts[0], bulk.weight, width)
        changes = [self._change(whole, i) for i in range(len(whole.seams))]
        if len(changes) != 1:
            return start + Add(*(Piecewise(*pieces, evaluate=False) for pieces in changes))
        pieces = [(factored(start + value), when) for value, when in changes[0]]
        return Piecewise(*pieces, evaluate=False)

    def _change(self, whole: Convolution, place: int) -> list[tuple[Expr, Expr]]:
        """What one seam adds: nothing before its window, a polynomial in it, the average of the change after."""
        (bulk,) = whole.bulks
        seam, width, weight = whole.seams[place], whole.width, bulk.weight
        change = bulk.parts[place + 1] - bulk.parts[place]
        within = [
            (self._from_left(taylor(change, seam), weight, width, side, (x - seam) / width), when)
            for side, when in _sides(weight, seam, x < seam + width)
        ]
        after = self.averaged(change, weight, width)
        return [(sympy.Integer(0), x <= seam - width), *within, (after, True)]

    def _shown(self, expr: Expr) -> Expr:
        return expr.xreplace(dict(self.shares)) if self.shares else expr

    # -- what is computed -----------------------------------------------------------------------------

    def computed(self, whole: Convolution) -> Expr:
        """The same function, segment by segment."""
        if not whole.seams:
            return self._shown(self._level(whole, 0))
        if len(whole.seams) == 2:
            return self._shown(self._two_windows(whole))
        seams, width = whole.seams, whole.width
        pieces = [(self._level(whole, 0), x <= seams[0] - width)]
        for i, (low, high) in enumerate(itertools.pairwise(seams), start=1):
            if (high - low - 2 * width).is_negative:
                continue  # two windows that always meet leave no level ground between them
            pieces.append((self._level(whole, i), sympy.And(x >= low + width, x <= high - width)))
        pieces.append((self._level(whole, len(seams)), x >= seams[-1] + width))
        inside = Add(
            *(b.factor * width**b.power * self._segments(b, whole) for b in whole.bulks),
            *(self._atom(a, width) for a in whole.atoms),
        )
        return self._shown(Piecewise(*pieces, (inside, True), evaluate=False))

    def _two_windows(self, whole: Convolution) -> Expr:
        """Every place the window can be in: before, after and between the seams, over one of them, over both."""
        (first, second), width = whole.seams, whole.width
        over_first = self._over_one(whole, 0)
        over_second = self._over_one(whole, 1)
        pieces = [
            (self._level(whole, 0), x <= first - width),
            (self._level(whole, 2), x >= second + width),
        ]
        if not (second - first - 2 * width).is_negative:
            pieces.append((self._level(whole, 1), sympy.And(x >= first + width, x <= second - width)))
        if not (second - first - 2 * width).is_positive:
            over_both = Add(
                *(b.factor * width**b.power * self._over_both(b, (first, second), width) for b in whole.bulks),
                *(self._atom(a, width) for a in whole.atoms),
            )
            pieces.append((over_both, sympy.And(x > second - width, x < first + width)))
        return Piecewise(*pieces, (over_first, x <= second - width), (over_second, True), evaluate=False)

    def _over_both(self, bulk: Bulk, seams: tuple[Expr, Expr], width: Expr) -> Expr:
        """All in one polynomial; but where one side is 0 the other side's tail is small, and stays in factors."""
        left, between, right = bulk.parts
        if 0 not in (left, right):
            return over_two_seams(bulk, seams, width)
        return Add(
            over_two_seams(replace(bulk, parts=(sympy.S.Zero, between, sympy.S.Zero)), seams, width),
            self._tails(left, bulk.weight, seams[0], width, self._from_right),
            self._tails(right, bulk.weight, seams[1], width, self._from_left),
        )

    def _over_one(self, whole: Convolution, place: int) -> Expr:
        seam, width = whole.seams[place], whole.width
        return Add(
            *(
                b.factor * width**b.power * self._one_seam(b.parts[place : place + 2], b.weight, seam, width)
                for b in whole.bulks
            ),
            *(self._atom(a, width) for a in whole.atoms if a.seam == seam),
        )

    def _level(self, whole: Convolution, place: int) -> Expr:
        """Where the window sees one polynomial alone."""
        width = whole.width
        return Add(
            *(
                b.factor * width**b.power * with_lines(self.averaged(b.parts[place], b.weight, width))
                for b in whole.bulks
            )
        )

    def _segments(self, bulk: Bulk, whole: Convolution) -> Expr:
        seams, width, weight = whole.seams, whole.width, bulk.weight
        parts = [sympy.expand(q) for q in bulk.parts]
        if len(seams) == 1:
            return self._one_seam(parts, weight, seams[0], width)
        if all(degree(q) == 0 for q in parts):
            return self._steps(parts, weight, seams, width)
        common = common_part(parts)
        rest = [sympy.expand(q - common) for q in parts]
        total = [with_lines(self.averaged(common, weight, width))]
        total.append(self._tails(rest[0], weight, seams[0], width, self._from_right))
        total.append(self._tails(rest[-1], weight, seams[-1], width, self._from_left))
        for q, low, high in zip(rest[1:-1], seams[:-1], seams[1:], strict=True):
            total.append(exact_quadrature(q, weight, _place(high, width), _place(low, width), width))
        return Add(*total)

    def _steps(self, levels: Sequence[Expr], weight: Weight, seams: Sequence[Expr], width: Expr) -> Expr:
        """Constant pieces: one of them, and what the steps away from it add on either side."""
        pivot = levels.index(0) if 0 in levels else len(levels) // 2
        total = [levels[pivot] * self.moment(weight, 0)]
        for i, seam in enumerate(seams):
            step = levels[i + 1] - levels[i]
            if i >= pivot:
                total.append(step * self._tails(sympy.S.One, weight, seam, width, self._from_left))
            else:
                total.append(-step * self._tails(sympy.S.One, weight, seam, width, self._from_right))
        return Add(*total)

    def _one_seam(self, parts: Sequence[Expr], weight: Weight, seam: Expr, width: Expr) -> Expr:
        """A lone seam: the piece that x lies in, and what is seen of the other one across the seam.

        The latter is small where the window barely reaches it, so that a piece keeps its digits where it crosses 0.
        """
        before, after = (sympy.expand(q) for q in parts)
        if 0 in (before, after):
            return self._tails(before, weight, seam, width, self._from_right) + self._tails(
                after, weight, seam, width, self._from_left
            )
        change, s = taylor(sympy.expand(after - before), seam), _place(seam, width)
        left, right = (with_lines(self.averaged(q, weight, width)) for q in (before, after))
        return Piecewise(
            (left + self._from_left(change, weight, width, False, s), x < seam),
            (right - self._from_right(change, weight, width, True, s), True),
            evaluate=False,
        )

    def _tails(self, q: Expr, weight: Weight, seam: Expr, width: Expr, integral: Callable[..., Expr]) -> Expr:
        if q == 0:
            return sympy.Integer(0)
        return _chosen_side(
            weight,
            seam,
            _place(seam, width),
            lambda side, s: integral(taylor(q, seam), weight, width, side, s),
        )

    def _from_left(self, coefficients: Sequence[Expr], weight: Weight, width: Expr, side: bool, s: Expr) -> Expr:
        """sum_j c_j w^j integral_{-1}^s (s - t)^j psi(t) dt."""
        return Add(*(c * width**j * below(weight, j, side).subs(t, s) for j, c in enumerate(coefficients) if c != 0))

    def _from_right(self, coefficients: Sequence[Expr], weight: Weight, width: Expr, side: bool, s: Expr) -> Expr:
        """sum_j c_j w^j integral_s^1 (s - t)^j psi(t) dt."""
        return Add(*(c * width**j * above(weight, j, side).subs(t, s) for j, c in enumerate(coefficients) if c != 0))

    def _atom(self, atom: Atom, width: Expr) -> Expr:
        weight, seam = atom.weight, atom.seam
        value = _chosen_side(weight, seam, _place(seam, width), lambda side, s: half(weight, side).subs(t, s))
        if weight.left.subs(t, -1) != 0 or weight.right.subs(t, 1) != 0:
            # Not 0 at the ends of the window: outside it is cut off.
            value = Piecewise((value, sympy.And(x > seam - width, x < seam + width)), (0, True), evaluate=False)
        return atom.factor * width**atom.power * value


# -- helpers ----------------------------------------------------------------------------------------------


def _place(seam: Expr, width: Expr) -> Expr:
    return Clip((x - seam) / width)


def _sides(weight: Weight, seam: Expr, last: Expr) -> list[tuple[bool, Expr]]:
    return [(True, last)] if weight.whole else [(False, x < seam), (True, last)]


def _chosen_side(weight: Weight, seam: Expr, s: Expr, build: Callable[[bool, Expr], Expr]) -> Expr:
    if weight.whole:
        return build(True, s)
    return Piecewise((build(False, s), x < seam), (build(True, s), True), evaluate=False)
