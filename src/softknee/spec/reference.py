"""The truth: a definition's textbook formula evaluated by mpmath, 50 digits and more.

Independent of the kernels and of the stable primitives' derivatives: the formula is rewritten in SymPy's
own exp, log, erfc, tanh before it is differentiated.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from .activation import Activation, once_per_definition
from .algebra import Add, Expr, Piecewise, sympy
from .calculus import without_jumps
from .precision import compiled, context
from .primitives import elementary, v, x

DIGITS = 50
# Textbook forms cancel (1 - tanh^2, log(1+u) - u); this many digits leave 50 good ones for every knob from
# 1e-6 to 1e6.
WORKING_DIGITS = 140


# What `evaluate` gives belongs to this context, whose precision is set once: sums and products of results have 50
# digits in every thread, whatever the precision of `mpmath.mp` is.
_RESULTS = context(DIGITS)


class _Own(threading.local):
    """The context of this thread, and the formulas compiled for it."""

    def __init__(self) -> None:
        self.mp = context(WORKING_DIGITS)
        self.functions: weakref.WeakKeyDictionary[Activation, tuple[Callable[..., Any], Callable[..., Any] | None]] = (
            weakref.WeakKeyDictionary()
        )

    def function(self, act: Activation) -> tuple[Callable[..., Any], Callable[..., Any] | None]:
        if act not in self.functions:
            names = [x, v, *(p.symbol for p in act.root.params)]
            expr, inverse = _formula(act)
            self.functions[act] = (
                compiled(names, expr, self.mp),
                None if inverse is None else compiled(names, inverse, self.mp),
            )
        return self.functions[act]


_own = _Own()


@once_per_definition
def _formula(act: Activation) -> tuple[Expr, Expr | None]:
    """The textbook formula of a definition, differentiated as it says, and of an implicit one its inverse."""
    root = act.root
    expr = elementary(root.formula)
    if root.implicit is not None:
        inverse = elementary(root.implicit.inverse)
        slope = sympy.diff(inverse, v)
        for name in act.index:
            symbol = x if name == "x" else root.param(name).symbol
            along = 1 if symbol == x else -sympy.diff(inverse, symbol)
            expr = _each(expr, lambda e, s=symbol, a=along: sympy.diff(e, s) + sympy.diff(e, v) * a / slope)
        return expr, inverse
    for name in act.index:
        symbol = x if name == "x" else root.param(name).symbol
        expr = _each(expr, lambda e, s=symbol: without_jumps(sympy.diff(e, s)))
    return expr, None


def _each(expr: Expr, do: Callable[[Expr], Expr]) -> Expr:
    if isinstance(expr, Piecewise):
        return Piecewise(*((_each(piece, do), when) for piece, when in expr.args), evaluate=False)
    if isinstance(expr, Add):
        return Add(*(_each(term, do) for term in expr.args))
    folded = sympy.piecewise_fold(expr) if expr.has(Piecewise) else expr
    return _each(folded, do) if isinstance(folded, Piecewise) else do(expr)


def evaluate(act: Activation, at: float, **values: float) -> Any:
    """The exact value at a number, for parameters that are exactly these numbers: an mpmath number of 50 digits.

    Threads may call this at the same time, and `mpmath.mp` is neither read nor set.
    """
    mp, (function, inverse) = _own.mp, _own.function(act)
    mp.dps = WORKING_DIGITS  # an interrupt inside one of mpmath's functions could have left another
    values_by_name = {p.name: p.default for p in act.params} | values
    numbers = [mp.mpf(values_by_name[p.name]) for p in act.root.params]
    point = mp.mpf(at)
    value = mp.mpf(0)
    if inverse is not None:
        value = _root(lambda y: inverse(point, y, *numbers) - point, point)
    return _RESULTS.mpf(function(point, value, *numbers))


def _root(miss: Callable[[Any], Any], start: Any) -> Any:
    """The root of an increasing function: widened, halved, and then by secants where these end between two signs."""
    low, high = start - 1, start + 1
    while miss(low) > 0:
        low -= high - low
    while miss(high) < 0:
        high += high - low
    halvings = int(WORKING_DIGITS * 3.4) + 40
    for count in range(halvings):
        if count == 64 and (root := _by_secants(miss, low, high)) is not None:
            return root
        middle = (low + high) / 2
        low, high = (middle, high) if miss(middle) < 0 else (low, middle)
    return (low + high) / 2


def _by_secants(miss: Callable[[Any], Any], low: Any, high: Any) -> Any:
    """The root near two numbers, all digits but two of it proved by the signs around it; None where that fails."""
    one, other = (low, miss(low)), (high, miss(high))
    for _ in range(16):
        if one[1] == other[1]:
            break
        place = other[0] - other[1] * (other[0] - one[0]) / (other[1] - one[1])
        one, other = other, (place, miss(place))
    root = other[0]
    reach = abs(root) / 10 ** (WORKING_DIGITS - 2)
    return root if low <= root <= high and miss(root - reach) <= 0 <= miss(root + reach) else None
