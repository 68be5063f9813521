"""The three dialects (torch, Triton, C) and the text of the functions generated from a definition."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import primitives as p
from .activation import Activation
from .algebra import Expr, sympy
from .constraints import Constraint
from .emit import PER_ELEMENT, Dialect, Emitter, Local, carries_nan, has_bare_u, share

_SHARED = {
    p.Sigmoid: "sigmoid",
    p.Softplus: "softplus",
    p.Tanh: "tanh",
    p.SechSquared: "sech_squared",
    p.MishGate: "mish_gate",
    p.NormalPdf: "normal_pdf",
    p.NormalCdf: "normal_cdf",
    p.Expm1: "expm1",
    p.Log1p: "log1p",
    p.Log1pMinus: "log1p_minus",
    p.Log1pMinusNear: "log1p_minus_near",
    p.Log1pUnit: "log1p_unit",
    p.Ramp: "ramp",
    p.Line: "line",
    p.Unit: "unit",
    p.Clip: "clip_unit",
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

# Newton's steps double the digits near the root and the bracket halves otherwise: 48 steps end at the last
# bit of float64 from any bracket the zoo uses, with room to spare. Torch operations take them all, because a traced
# loop cannot look at the numbers; a kernel stops when no element of its block moves any more.
NEWTON_STEPS = 48

TORCH = Dialect(
    {**_SHARED, **_TORCH_ALONE},
    where="where",
    full="full({}, x)",
    loop_start=(f"for _ in range({NEWTON_STEPS}):",),
)
TRITON = Dialect(
    _SHARED,
    where="tl.where",
    full="{}",
    loop_start=("moving = 1", "steps = 0", f"while (moving > 0) & (steps < {NEWTON_STEPS}):"),
    loop_end=("moving = tl.max(tl.where(tl.abs(guess - v) > 2e-7 * tl.abs(guess), 1, 0))", "steps += 1"),
    reciprocal="reciprocal({})",
)
# Float32, one element at a time: `kernels/c_source.py` makes declarations of the assignments and braces of the indents.
C = Dialect(
    {node: name for node, name in _SHARED.items() if name not in ("sin", "cos", "erf")},
    where="where",
    full="{}",
    loop_start=(f"for (int moving = 1, steps = 0; moving & (steps < {NEWTON_STEPS}); ++steps)",),
    loop_end=("moving = absolute(guess - v) > 2e-7 * absolute(guess)",),
)


@dataclass(frozen=True)
class Body:
    """Straight-line code that turns x and the parameters into results."""

    lines: tuple[str, ...]
    results: tuple[str, ...]


def body(act: Activation, indices: Sequence[tuple[str, ...]], dialect: Dialect) -> Body:
    """The code for some partial derivatives of an activation (the index () is its value), computed jointly."""
    return expressions_body(act, [act.partial(*index).computed for index in indices], dialect, slopes=any(indices))


def expressions_body(
    act: Activation,
    expressions: Sequence[Expr],
    dialect: Dialect,
    *,
    slopes: bool,
    guarded: int | None = None,
) -> Body:
    """The same for any expressions in the symbols of an activation.

    `slopes` says whether one is a derivative; the first `guarded` of them (all by default) give NaN for NaN.
    """
    lines: list[str] = []
    if act.implicit is not None:
        lines += _solve(act, dialect)
    if act.inner is not None and any(e.has(p.u) for e in expressions):
        lines += _inner(act, dialect, clipped=slopes or any(map(has_bare_u, expressions)))
    shared, reduced = share(expressions)
    emitter = Emitter(dialect, [*(meaning for _, meaning in shared), *reduced], names=[n for n, _ in shared])
    lines += emitter.lines
    results = []
    for place, (expr, text) in enumerate(zip(expressions, emitter.names[len(shared) :], strict=True)):
        if not carries_nan(expr) and (guarded is None or place < guarded):
            value = dialect.full.format(text) if expr.is_number else text
            text = f"{dialect.where}(x != x, x, {value})"
        results.append(text)
    return Body(tuple(lines), tuple(results))


def lift_bodies(constraint: Constraint, dialect: Dialect) -> tuple[Body, Body]:
    """The effective value of `raw` beside `anchor`, and its derivative by `raw`."""
    raw, anchor = Local("raw", real=True), Local("anchor", real=True)
    formula = constraint.lift_formula(raw, anchor)
    emitters = [Emitter(dialect, [expr]) for expr in (formula, sympy.diff(formula, raw))]
    value, slope = (Body(tuple(emitter.lines), tuple(emitter.names)) for emitter in emitters)
    return value, slope


def _inner(act: Activation, dialect: Dialect, *, clipped: bool) -> list[str]:
    assert act.inner is not None
    emitter = Emitter(dialect, [act.inner.value], prefix="i")
    lines = [*emitter.lines, f"u = {emitter.names[0]}"]
    # The value needs no clipping where u stands only inside primitives: they have their limits.
    if clipped:
        low, high = (_bound(end, dialect) for end in (act.inner.low, act.inner.high))
        if low and high:
            lines.append(f"u = clip(u, {low}, {high})")
        elif low or high:
            lines.append(f"u = maximum(u, {low})" if low else f"u = minimum(u, {high})")
    return lines


def _bound(end: float | Expr, dialect: Dialect) -> str:
    """The text of an end of the clipping range, empty where it is infinite."""
    if isinstance(end, sympy.Expr):
        return Emitter(dialect, [end], prefix="b").names[0]
    return repr(end) if math.isfinite(end) else ""


def _solve(act: Activation, dialect: Dialect) -> list[str]:
    """Safeguarded Newton: a step that leaves the bracket is replaced by bisection."""
    assert act.implicit is not None
    ends = Emitter(dialect, [act.implicit.low, act.implicit.high], prefix="e")
    slope = sympy.diff(act.implicit.inverse, p.v)
    step = Emitter(dialect, [act.implicit.inverse, slope], prefix="n")
    value, tangent = step.names
    where = dialect.where
    inside = [
        *step.lines,
        f"miss = {value} - x",
        f"lo = {where}(miss < 0, v, lo)",
        f"hi = {where}(miss > 0, v, hi)",
        f"guess = v - miss / {tangent}",
        f"guess = {where}((guess >= lo) & (guess <= hi), guess, lo + (hi - lo) * 0.5)",
        *dialect.loop_end,
        "v = guess",
    ]
    lines = [*ends.lines, f"lo = {ends.names[0]}", f"hi = {ends.names[1]}", "v = x + 0.0"]
    return [*lines, *dialect.loop_start, *(f"    {line}" for line in inside)]


@dataclass(frozen=True)
class Split:
    """Slopes by parameters as sums of (something in parameters alone) times (something per element).

    A kernel then sums the per-element factors and combines the sums at its end, once.
    """

    factors: tuple[Expr, ...]
    slopes: tuple[Expr, ...]


def split_slopes(act: Activation, names: Sequence[str]) -> Split | None:
    """The split of some parameters' slopes, where it needs no more sums than there are parameters; else None.

    Terms are taken as the definition wrote them and never expanded: u(1 - u) is one factor, because as u - u^2 it would
    be the small difference of two large sums.
    """
    factors: dict[Expr, Expr] = {}
    slopes: list[Expr] = []
    for name in names:
        total: Expr = sympy.Integer(0)
        for term in sympy.Add.make_args(act.partial(name).computed):
            shared, own = term.as_independent(*PER_ELEMENT, as_Add=False)
            symbol = factors.setdefault(own, Local(f"f{len(factors)}", real=True))
            total += shared * symbol
        slopes.append(total)
    if len(factors) > len(names):
        return None
    return Split(tuple(factors), tuple(slopes))
