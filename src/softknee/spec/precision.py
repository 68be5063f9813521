"""Numbers of many digits, in contexts of our own.

The precision of `mpmath.mp` belongs to the whole process: a thread that sets it changes the results of every other
thread and of every other user of mpmath. So this package makes its own contexts, none of which two threads share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import mpmath
from sympy.printing.pycode import MpmathPrinter

from .algebra import Expr, Float, sympy

# Functions that SymPy evaluates with a precision that it hands on; for all others it sets that of `mpmath.mp`.
_NATIVE = {sympy.exp, sympy.log, sympy.sin, sympy.cos, sympy.atan, sympy.Abs, sympy.Piecewise}
_MOST_DIGITS = 640  # with which a number is calculated before it counts as 0 against its terms


def context(digits: int) -> Any:
    """A new mpmath context with so many digits: all of mpmath's functions, and a precision that nobody else sets.

    >>> import mpmath
    >>> mp = context(30)
    >>> mp.exp(1)
    mpf('2.71828182845904523536028747135281')
    >>> mpmath.mp.dps
    15
    """
    mp = mpmath.MPContext()
    mp.dps = digits
    return mp


class OwnContext(threading.local):
    """A context for a whole module: the names of mpmath, and one precision for each thread.

    >>> mp = OwnContext()
    >>> with mp.workdps(30):
    ...     mp.sqrt(2)
    mpf('1.41421356237309504880168872420977')
    """

    def __init__(self) -> None:
        self.context = context(15)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.context, name)


def context_of(*numbers: Any) -> Any:
    """The context that one of these numbers belongs to, or a new one."""
    return next((n.context for n in numbers if hasattr(n, "_mpf_")), None) or context(15)


def compiled(names: Sequence[Expr], expr: Expr, mp: Any) -> Callable[..., Any]:
    """The expression as a function of numbers of this context; it calculates with the digits that `mp` has then.

    >>> from softknee.spec import x
    >>> mp = context(30)
    >>> compiled([x], sympy.exp(x) + sympy.pi, mp)(mp.mpf(0))
    mpf('4.14159265358979323846264338327933')
    """
    # SymPy's own "mpmath" namespace is that of `mpmath.mp`; these are the same names, of this context.
    namespace = {name: getattr(mp, name) for name in dir(mp) if not name.startswith("_")}
    settings = {"fully_qualified_modules": False, "inline": True, "allow_unknown_functions": True}
    return sympy.lambdify(names, expr, modules=[namespace], printer=MpmathPrinter(settings))


def to_digits(expr: Expr, digits: int) -> Expr:
    """A constant as a SymPy number with so many digits: `expr.evalf(digits)`, which would set mpmath's precision.

    Where the terms cancel, it is calculated again with twice the digits.

    >>> to_digits(sympy.erf(1), 20)
    0.84270079294971486934
    """
    if all(node.func in _NATIVE for node in expr.atoms(sympy.Function)):
        return expr.evalf(digits)
    mp = context(digits + 10)
    try:
        function = compiled([], expr, mp)
        value, good = mp.convert(function()), False
        while not good and mp.dps < _MOST_DIGITS:
            before, mp.dps = value, 2 * mp.dps
            value = mp.convert(function())
            good = value != 0 and mp.almosteq(before, value, 10.0 ** -(digits + 3), 0)
    except (ArithmeticError, ValueError, TypeError, NameError):
        return expr  # it has no value, and stays as it is
    if isinstance(value, mp.mpc):
        return Float(value.real, digits) + Float(value.imag, digits) * sympy.I
    return Float(value, digits)
