"""SymPy under one roof, without its type annotations.

SymPy declares its operators and functions in ways that a type checker reads as errors (`exp(x) * x` is one); here
its names are `Any`, and everything of ours around them is typed. The zoo imports its mathematics from here.
"""

import itertools
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import sympy as _sympy

sympy: Any = _sympy

# What annotations say; at run time a class to test against is `sympy.Expr`.
Expr: TypeAlias = Any
Symbol: TypeAlias = Any

Add, Mul, Pow, Eq, Max, Min, Abs, Piecewise = (
    sympy.Add,
    sympy.Mul,
    sympy.Pow,
    sympy.Eq,
    sympy.Max,
    sympy.Min,
    sympy.Abs,
    sympy.Piecewise,
)
Function, Dummy, IndexedBase = sympy.Function, sympy.Dummy, sympy.IndexedBase
Integer, Rational, Float, oo, pi = sympy.Integer, sympy.Rational, sympy.Float, sympy.oo, sympy.pi
FiniteSet, Interval = sympy.FiniteSet, sympy.Interval
exp, log, sign, sqrt = sympy.exp, sympy.log, sympy.sign, sympy.sqrt


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` done to each of its parts, innermost first.

    SymPy's `replace` visits a part as often as it occurs. Here each is visited once, and no Piecewise is evaluated.
    """
    results: dict[Expr, Expr] = {}

    def visit(part: Expr) -> Expr:
        if part not in results:
            args = [visit(arg) for arg in part.args]
            if all(map(operator.is_, args, part.args)):
                results[part] = change(part)
            else:
                options = {"evaluate": False} if isinstance(part, Piecewise) else {}
                results[part] = change(part.func(*args, **options))
        return results[part]

    return visit(expr)


def is_longer(expr: Expr, most: int) -> bool:
    """Whether the expression has more than so many parts, counted no further than that."""
    return next(itertools.islice(sympy.preorder_traversal(expr), most, None), None) is not None
