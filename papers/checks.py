"""What the checks share: exact comparison of piecewise formulas, certificates, integrals to 30 digits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softknee.api import get
from softknee.design.proof.certificate import Certificate, Enclosure, Extremum
from softknee.design.proof.certify import certify
from softknee.spec import Activation, elementary, x
from softknee.spec.algebra import Expr, sympy
from softknee.spec.pieces import split
from softknee.spec.precision import OwnContext

mp = OwnContext()
"""mpmath's functions, with a precision that belongs to the ledger and to the thread that calls."""
F64 = torch.float64
DIGITS = 30


def formula(name: str, **values: Any) -> Expr:
    """The textbook formula of a definition, with some of its parameters put in."""
    act: Activation = get(name)
    return elementary(act.formula).subs({act.param(key).symbol: value for key, value in values.items()})


def same(left: Expr, right: Expr) -> bool:
    """Whether two piecewise formulas are one function, for all x and all parameters."""
    return all(sympy.simplify(part) == 0 for part in split(left - right).parts)


def jumps(expr: Expr, order: int) -> list[Expr]:
    """By how much the derivative of that order jumps at each seam, from left to right."""
    pieces = split(expr)
    slopes = [sympy.diff(part, x, order) for part in pieces.parts]
    return [
        sympy.simplify((right - left).subs(x, seam))
        for left, right, seam in zip(slopes, slopes[1:], pieces.seams, strict=False)
    ]


def smooth(expr: Expr, order: int) -> bool:
    """Whether every derivative up to that order is continuous."""
    return all(jump == 0 for below in range(order + 1) for jump in jumps(expr, below))


def line(low: float, high: float, count: int = 20001) -> Tensor:
    """Points on the line in float64."""
    return torch.linspace(low, high, count, dtype=F64)


@functools.cache
def _proved(act: Activation, values: tuple[tuple[str, Any], ...]) -> Certificate:
    return certify(act, **dict(values))


def certificate(name: str, **values: Any) -> Certificate:
    """What ball arithmetic proves of a definition for exactly these parameters."""
    return _proved(get(name), tuple(sorted(values.items())))


def place(extremum: Extremum) -> float:
    """The one point at which an extreme value is reached."""
    (only,) = extremum.places
    assert only.is_point, f"{only} is more than a point."
    return float(only.begin)


def reached_at(extremum: Extremum, at: Any) -> bool:
    """Whether an extreme value is reached at a point."""
    return any(region.begin.lower <= at <= region.end.upper for region in extremum.places)


def rounds_to(enclosure: Enclosure, printed: str) -> bool:
    """Whether a number rounds to the printed decimal, wherever in its enclosure it lies."""
    digits = len(printed.partition(".")[2])
    return {round(float(end), digits) for end in (enclosure.lower, enclosure.upper)} == {float(printed)}


def integral(f: Callable[[Any], Any], *points: Any, digits: int = DIGITS) -> Any:
    """The integral through the given points, to 30 digits or as many as are asked for; f calculates with `mp`."""
    with mp.workdps(digits + 5):
        return mp.quad(f, [mp.mpf(point) for point in points])


def tex(expr: Expr) -> str:
    """A formula as LaTeX that the ledger's texts can show."""
    return sympy.latex(sympy.simplify(expr), symbol_names={sympy.Symbol("g_minus", real=True): "g_-"})
