r"""The C-infinity kernel of the mollification paper, A e^{1/(t^2 - 1)} on (-1, 1).

Its integrals have no closed form. The tail integrals T_j(a), j = 0..3, are polynomials on eight pieces of [0, 0.985]
and 0 beyond (`bump_table`), within 1e-14 of the truth (`bump_proof` proves it). The density itself, and so the second
derivative of a mollified piecewise linear function, is exact.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...spec.algebra import Expr, Float, Piecewise, Rational, exp, sympy
from ...spec.precision import context_of
from ...spec.primitives import Primitive
from . import bump_table
from .convolution import t
from .decaying_kernels import DecayingKernel

SCALE = Float(bump_table.SCALE, 30)
# From here on the kernel is below 1e-300: a clipped argument makes its slopes end at 0 and not at 0 times infinity.
_END = Rational(4093, 4096)


def bump() -> DecayingKernel:
    return DecayingKernel(
        density=SCALE * exp(1 / (t**2 - 1)),
        tails=tuple(_pieces(order, t) for order in range(4)),
        below=tuple(BumpIntegral(sympy.Integer(order), t) for order in range(4)),
        moments=tuple(Float(m, 30) for m in bump_table.MOMENTS),
        reach=_END,
        support=1,
    )


def _pieces(order: int, a: Expr) -> Expr:
    """T_j on [0, 1] as it is computed."""
    pieces = [(polynomial(order, i).subs(_z, scaled(i, a)), a < Rational(high)) for i, high in _highs()]
    return Piecewise(*pieces, (0, True), evaluate=False)


def _highs() -> Sequence[tuple[int, str]]:
    return list(enumerate(bump_table.EDGES[1:]))


_z = sympy.Symbol("z", real=True)


@functools.cache
def polynomial(order: int, place: int) -> Expr:
    """T_j on one piece in the variable z of [-1, 1], nested for evaluation."""
    value: Expr = sympy.Integer(0)
    for word in reversed(bump_table.TAILS[order][place].split()):
        value = value * _z + Float(word, 25)
    return value


def scaled(place: int, a: Expr) -> Expr:
    low, high = (Rational(e) for e in bump_table.EDGES[place : place + 2])
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
            low, top = (mp.mpf(e) for e in bump_table.EDGES[place : place + 2])
            z = (a - (low + top) / 2) * 2 / (top - low)
            words = bump_table.TAILS[order][place].split()
            return mp.polyval([mp.mpf(word) for word in reversed(words)], z)
    return mp.mpf(0)


def _whole(order: int, s: Any, mp: Any) -> Any:
    """integral (s - t)^j phi(t) dt over the whole support."""
    moments = [mp.mpf(m) for m in bump_table.MOMENTS]
    return sum(mp.binomial(order, 2 * i) * s ** (order - 2 * i) * moments[i] for i in range(order // 2 + 1))


__all__ = ["BumpIntegral", "bump"]
