"""Every function of the formula language on spans.

Nearly all of them are monotone, so that a span goes to the values at its two ends and a half-line is as good as any
other; each is written so that neither end loses its digits in a tail, and held to the range it is known to have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...spec import primitives as p
from ...spec.algebra import sympy
from .balls import INFINITY, MINUS_INFINITY, ONE, ZERO, Arb, Span, above, arb, below, flint, larger

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


def _wave(name: str) -> Rule:
    def rule(a: Span) -> Span:
        if not a.is_finite:
            return Span(-ONE, ONE)
        ball = arb(a.middle, larger(above(a.hi - a.middle), above(a.middle - a.lo)))
        return Span.ball(getattr(ball, name)()).within(-ONE, ONE)

    return rule


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
    return -_largest(*(-one for one in several))


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
    sympy.sin: _wave("sin"),
    sympy.cos: _wave("cos"),
    sympy.Abs: lambda a: a.size,
    sympy.sign: _sign,
    sympy.Max: _largest,
    sympy.Min: _smallest,
}
FUNCTIONS[p.Log1pUnit] = FUNCTIONS[p.Log1p]
FUNCTIONS[p.Log1pMinusNear] = FUNCTIONS[p.Log1pMinus]

POSITIVE = (p.Sigmoid, p.Softplus, p.SechSquared, p.MishGate, p.NormalPdf, p.NormalCdf, sympy.exp, sympy.cosh)
"""Functions without a zero."""

ODD_LIKE = (p.Tanh, p.Expm1, p.Log1p, p.Log1pMinus, sympy.tanh, sympy.sinh, sympy.asinh, sympy.atan, sympy.erf)
"""Functions that are 0 where their argument is 0 and nowhere else."""
