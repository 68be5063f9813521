"""The C-infinity kernel of the mollification paper, A e^{1/(t^2 - 1)} on (-1, 1).

Its integrals have no closed form. The tail integrals T_j(a), j = 0..3, are polynomials on eight pieces of [0, 0.985]
and 0 beyond (`bump_table.json`), within 1e-14 of the truth (`error_bounds` proves it). The density itself, and so the
second derivative of a mollified piecewise linear function, is exact.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...spec.algebra import Expr, Float, Piecewise, Rational, exp, sympy
from ...spec.precision import context_of
from ...spec.primitives import Primitive
from .convolution import t
from .decaying_kernels import DecayingKernel

# Written by tools/make_bump_table.py. scale: 1 over the integral of e^{1/(t^2 - 1)}. tails[j][piece]: the coefficients
# of T_j in powers of z on a piece, from the constant up, with spaces between.
TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("bump_table.json").read_text(encoding="utf-8"))
CELLS, TERMS = 12, 12
BITS = 160
# The integrals end here; what is left out is below e^{-1/(1 - END^2)} < 1e-200.
END = "0.999"


@functools.cache
def error_bounds() -> tuple[float, ...]:
    """Upper bounds of |P_j - T_j| on [0, 1], j = 0..3: for a kink of 1 and a width of 1, j = 0 bounds the error of the
    slope and j = 1 that of the value."""
    import flint

    before = flint.ctx.prec
    flint.ctx.prec = BITS
    try:
        bounds: list[Any] = []
        for order in range(len(TABLE["tails"])):
            bounds.append(_bound(order, bounds))
        return tuple(float(bound.upper()) + 1e-30 for bound in bounds)
    finally:
        flint.ctx.prec = before


def _bound(order: int, lower: list[Any]) -> Any:
    import flint

    arb = flint.arb
    worst = _tail_ball(order, arb(TABLE["edges"][-1]))  # beyond the last edge the table says 0
    for place, (low, high) in enumerate(itertools.pairwise(TABLE["edges"])):
        start, half = arb(low), (arb(high) - arb(low)) / (2 * CELLS)
        for cell in range(CELLS):
            middle = start + half * (2 * cell + 1)
            here = abs(_value(order, place, middle)[0] - _tail_ball(order, middle))
            rate = _largest(order, place, middle, half) + (order * lower[-1] if order else 0)
            worst = worst.max(here + rate * half)
    return worst


def _largest(order: int, place: int, middle: Any, half: Any) -> Any:
    """A bound of |P_0' + phi|, or |P_j' + j P_{j-1}|, within `half` of the middle."""
    import flint

    around = flint.arb(middle.mid(), half.upper())
    total = flint.arb(0)
    for point, terms in ((middle, range(TERMS)), (around, [TERMS])):
        step = flint.arb_series([point, 1], prec=TERMS + 2)
        other = _density(step) if order == 0 else order * _value(order - 1, place, step)
        series = _value(order, place, step).derivative() + other
        total += sum((abs(series[i]) * half**i for i in terms), flint.arb(0))
    return total


def _value(order: int, place: int, a: Any) -> Any:
    """The table's polynomial at a point or at a series; a series always comes back."""
    import flint

    low, high = (flint.arb(e) for e in TABLE["edges"][place : place + 2])
    z = (flint.arb_series([a], prec=1) if isinstance(a, flint.arb) else a) - (low + high) / 2
    z = z * (2 / (high - low))
    total = z * 0
    for word in reversed(TABLE["tails"][order][place].split()):
        total = total * z + flint.arb(word)
    return total


def _density(a: Any) -> Any:
    return _scale() * (1 / (a * a - 1)).exp()


@functools.cache
def _scale() -> Any:
    """A, from its own integral and not from the table; the table's digits must lie in it."""
    import flint

    whole = 2 * _integral(lambda t: flint.acb(1), flint.arb(0))
    return 1 / whole


def _tail_ball(order: int, a: Any) -> Any:
    return _scale() * _integral(lambda t: (t - a) ** order, a)


def _integral(factor: Any, low: Any) -> Any:
    """integral_low^1 factor(t) e^{1/(t^2 - 1)} dt, factor at most 1 in size."""
    import flint

    def integrand(t: Any, _: Any) -> Any:
        return factor(t) * (1 / (t * t - 1)).exp()

    end = flint.arb(END)
    body = flint.acb.integral(integrand, low, end).real
    rest = (1 / (end * end - 1)).exp() * (1 - end)
    return body + flint.arb(0, rest.upper())


SCALE = Float(TABLE["scale"], 30)
# From here on the kernel is below 1e-300: a clipped argument makes its slopes end at 0 and not at 0 times infinity.
_END = Rational(4093, 4096)


def bump() -> DecayingKernel:
    return DecayingKernel(
        density=SCALE * exp(1 / (t**2 - 1)),
        tails=tuple(_pieces(order, t) for order in range(4)),
        below=tuple(BumpIntegral(sympy.Integer(order), t) for order in range(4)),
        moments=tuple(Float(m, 30) for m in TABLE["moments"]),
        reach=_END,
        support=1,
    )


def _pieces(order: int, a: Expr) -> Expr:
    """T_j on [0, 1] as it is computed."""
    pieces = [(polynomial(order, i).subs(_z, scaled(i, a)), a < Rational(high)) for i, high in _highs()]
    return Piecewise(*pieces, (0, True), evaluate=False)


def _highs() -> Sequence[tuple[int, str]]:
    return list(enumerate(TABLE["edges"][1:]))


_z = sympy.Symbol("z", real=True)


@functools.cache
def polynomial(order: int, place: int) -> Expr:
    """T_j on one piece in the variable z of [-1, 1], nested for evaluation."""
    value: Expr = sympy.Integer(0)
    for word in reversed(TABLE["tails"][order][place].split()):
        value = value * _z + Float(word, 25)
    return value


def scaled(place: int, a: Expr) -> Expr:
    low, high = (Rational(e) for e in TABLE["edges"][place : place + 2])
    return (a - (low + high) / 2) * (2 / (high - low))


class BumpIntegral(Primitive):
    """integral_{-1}^s (s - t)^j phi(t) dt for the bump kernel phi, -1 <= s <= 1, by the certified pieces.

    The derivative of the integral of order j is j times that of order j - 1, and at order 0 the kernel itself: exact
    from there on.
    """

    nargs = 2
    tex = r"\mathcal{B}"

    @classmethod
    def eval(cls, *args: Any) -> Expr | None:
        return None

    @classmethod
    def elementary(cls, order: Expr, s: Expr) -> Expr:
        return cls(order, s)  # it has no textbook form; `_imp_` computes it

    def fdiff(self, argindex: int = 1) -> Expr:
        order, s = self.args
        return order * BumpIntegral(order - 1, s) if order > 0 else SCALE * exp(1 / (s**2 - 1))

    @classmethod
    def _imp_(cls, *args: Any) -> Any:
        """With mpmath numbers: the pieces, or on the right the whole less the mirrored pieces."""
        order, s = args
        mp = context_of(s)
        s = mp.convert(s)
        j, a = int(order), abs(s)
        tail = _tail(j, a, mp)
        if s <= 0:
            return tail
        return _whole(j, s, mp) - (-1) ** j * tail


def _tail(order: int, a: Any, mp: Any) -> Any:
    for place, high in _highs():
        if a < mp.mpf(high):
            low, top = (mp.mpf(e) for e in TABLE["edges"][place : place + 2])
            z = (a - (low + top) / 2) * 2 / (top - low)
            words = TABLE["tails"][order][place].split()
            return mp.polyval([mp.mpf(word) for word in reversed(words)], z)
    return mp.mpf(0)


def _whole(order: int, s: Any, mp: Any) -> Any:
    """integral (s - t)^j phi(t) dt over the whole support."""
    moments = [mp.mpf(m) for m in TABLE["moments"]]
    return sum(mp.binomial(order, 2 * i) * s ** (order - 2 * i) * moments[i] for i in range(order // 2 + 1))
