"""The proof that the bump kernel's table is right: a rigorous bound on its error, by ball arithmetic.

On a piece let E_j = P_j - T_j, P_j the polynomial of the table and T_j the true tail integral. T_0' = -phi and
T_j' = -j T_{j-1} are known, so at the middle m of a short interval of half-length h

    |E_0(a)| <= |E_0(m)| + h sup |P_0' + phi|
    |E_j(a)| <= |E_j(m)| + h (sup |P_j' + j P_{j-1}| + j sup |E_{j-1}|)

where T_j(m) is a rigorously enclosed integral, and the suprema come from Taylor series at m whose last coefficient is
enclosed over the whole interval. Beyond the last edge T_j is at most its value there.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from . import bump_table

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
        for order in range(len(bump_table.TAILS)):
            bounds.append(_bound(order, bounds))
        return tuple(float(one.upper()) + 1e-30 for one in bounds)
    finally:
        flint.ctx.prec = before


def _bound(order: int, lower: list[Any]) -> Any:
    import flint

    arb = flint.arb
    worst = _tail(order, arb(bump_table.EDGES[-1]))  # beyond the last edge the table says 0
    for place, (low, high) in enumerate(itertools.pairwise(bump_table.EDGES)):
        start, half = arb(low), (arb(high) - arb(low)) / (2 * CELLS)
        for cell in range(CELLS):
            middle = start + half * (2 * cell + 1)
            here = abs(_value(order, place, middle)[0] - _tail(order, middle))
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

    low, high = (flint.arb(e) for e in bump_table.EDGES[place : place + 2])
    z = (flint.arb_series([a], prec=1) if isinstance(a, flint.arb) else a) - (low + high) / 2
    z = z * (2 / (high - low))
    total = z * 0
    for word in reversed(bump_table.TAILS[order][place].split()):
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


def _tail(order: int, a: Any) -> Any:
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


__all__ = ["error_bounds"]
