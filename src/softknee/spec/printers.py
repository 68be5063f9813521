"""The two dialects (torch, Triton) and the text of the functions generated from a definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import sympy
from sympy import Expr

from . import primitives as p
from .activation import Activation
from .activation import u as _u
from .activation import v as _v
from .emit import Dialect, Emitter, carries_nan, has_bare_u

_SHARED = {
    p.Sigmoid: "sigmoid",
    p.Softplus: "softplus",
    p.Tanh: "tanh",
    p.NormalPdf: "normal_pdf",
    p.NormalCdf: "normal_cdf",
    p.Expm1: "expm1",
    p.Log1p: "log1p",
    p.Log1pMinus: "log1p_minus",
    p.Ramp: "ramp",
    p.Line: "line",
    p.FiniteLeft: "finite_left",
    sympy.exp: "exp",
    sympy.log: "log",
    sympy.sqrt: "sqrt",
    sympy.Abs: "absolute",
    sympy.sign: "sign",
    sympy.sin: "sin",
    sympy.cos: "cos",
    sympy.tanh: "tanh",
    sympy.erf: "erf",
    sympy.Max: "maximum",
    sympy.Min: "minimum",
}
_TORCH_ALONE = {
    sympy.atan: "atan",
    sympy.sinh: "sinh",
    sympy.cosh: "cosh",
    sympy.asinh: "asinh",
    sympy.erfc: "erfc",
    sympy.floor: "floor",
}

TORCH = Dialect({**_SHARED, **_TORCH_ALONE}, where="where", full="full({}, x)")
TRITON = Dialect(_SHARED, where="tl.where", full="{}")


@dataclass(frozen=True)
class Body:
    """Straight-line code that turns x and the parameters into results."""

    lines: tuple[str, ...]
    results: tuple[str, ...]


def body(act: Activation, indices: Sequence[tuple[str, ...]], dialect: Dialect) -> Body:
    """The code for some partial derivatives of an activation (the index () is its value), computed jointly."""
    parts = [act.partial(*index) for index in indices]
    expressions = [part.computed for part in parts]
    lines: list[str] = []
    if act.implicit is not None:
        lines += _solve(act, dialect)
    if act.inner is not None and any(e.has(_u) for e in expressions):
        lines += _inner(act, parts, expressions, dialect)
    emitter = Emitter(dialect, expressions)
    lines += emitter.lines
    results = []
    for expr, text in zip(expressions, emitter.names, strict=True):
        if not carries_nan(expr):
            value = dialect.full.format(text) if expr.is_number else text
            text = f"{dialect.where}(x != x, x, {value})"
        results.append(text)
    return Body(tuple(lines), tuple(results))


def _inner(
    act: Activation, parts: Sequence[Activation], expressions: Sequence[Expr], dialect: Dialect
) -> list[str]:
    assert act.inner is not None
    emitter = Emitter(dialect, [act.inner.value], prefix="i")
    lines = [*emitter.lines, f"u = {emitter.names[0]}"]
    # The value needs no clipping where u stands only inside primitives: they have their limits.
    clipped = any(part.index or has_bare_u(expr) for part, expr in zip(parts, expressions, strict=True))
    if clipped and math.isfinite(act.inner.high) and math.isfinite(act.inner.low):
        lines.append(f"u = clip(u, {act.inner.low!r}, {act.inner.high!r})")
    elif clipped and math.isfinite(act.inner.high):
        lines.append(f"u = minimum(u, {act.inner.high!r})")
    elif clipped and math.isfinite(act.inner.low):
        lines.append(f"u = maximum(u, {act.inner.low!r})")
    return lines


# Newton's steps double the digits near the root and the bracket halves otherwise: 48 steps end at the last
# bit of float64 from any bracket the zoo uses, with room to spare.
NEWTON_STEPS = 48


def _solve(act: Activation, dialect: Dialect) -> list[str]:
    """Safeguarded Newton: a step that leaves the bracket is replaced by bisection."""
    assert act.implicit is not None
    ends = Emitter(dialect, [act.implicit.low, act.implicit.high], prefix="e")
    slope = sympy.diff(act.implicit.inverse, _v)
    step = Emitter(dialect, [act.implicit.inverse, slope], prefix="n")
    value, tangent = step.names
    lines = [*ends.lines, f"lo = {ends.names[0]}", f"hi = {ends.names[1]}", "v = x + 0.0"]
    lines.append(f"for _ in range({NEWTON_STEPS}):")
    inside = [
        *step.lines,
        f"miss = {value} - x",
        f"lo = {dialect.where}(miss < 0, v, lo)",
        f"hi = {dialect.where}(miss > 0, v, hi)",
        f"guess = v - miss / {tangent}",
        f"v = {dialect.where}((guess >= lo) & (guess <= hi), guess, lo + (hi - lo) * 0.5)",
    ]
    return lines + [f"    {line}" for line in inside]
