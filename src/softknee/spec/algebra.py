"""SymPy under one roof, without its type annotations.

SymPy declares its operators and functions in ways that a type checker reads as errors (`exp(x) * x` is one); here its
names are `Any`, and everything of ours around them is typed. The zoo imports its mathematics from here.
"""

from typing import Any, TypeAlias

import sympy as _sympy

sympy: Any = _sympy

# What annotations say; at run time a class to test against is `sympy.Expr`.
Expr: TypeAlias = Any
Symbol: TypeAlias = Any

(
    Abs,
    Add,
    Dummy,
    FiniteSet,
    Float,
    Function,
    IndexedBase,
    Integer,
    Interval,
    Max,
    Mul,
    Piecewise,
    Pow,
    Rational,
) = (
    sympy.Abs,
    sympy.Add,
    sympy.Dummy,
    sympy.FiniteSet,
    sympy.Float,
    sympy.Function,
    sympy.IndexedBase,
    sympy.Integer,
    sympy.Interval,
    sympy.Max,
    sympy.Mul,
    sympy.Piecewise,
    sympy.Pow,
    sympy.Rational,
)
exp, log, oo, pi, sign, sqrt = sympy.exp, sympy.log, sympy.oo, sympy.pi, sympy.sign, sympy.sqrt
