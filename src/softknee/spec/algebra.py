"""SymPy under one roof, without its type annotations.

SymPy declares its operators and functions in ways that a type checker reads as errors (`exp(x) * x` is one); here
its names are `Any`, and everything of ours around them is typed. The zoo imports its mathematics from here.
"""

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
