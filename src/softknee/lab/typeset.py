r"""Formulas for people: pieces from left to right, primitives written out, long arguments given a name.

    smelu''    \begin{cases} 0 & x < -\beta \\ \frac{1}{2 \beta} & -\beta < x < \beta \\ 0 & x > \beta \end{cases}

`Activation.latex` prints a definition as it stands; here the same function is put as a textbook would.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from sympy.printing.latex import LatexPrinter

from ..errors import DefinitionError, FormulaError
from ..spec import (
    Activation,
    Expm1,
    FiniteLeft,
    Line,
    Log1p,
    Log1pMinus,
    Log1pMinusNear,
    Log1pUnit,
    MishGate,
    NormalCdf,
    NormalPdf,
    Sigmoid,
    Softplus,
    elementary,
    u,
    v,
    x,
)
from ..spec.algebra import Add, Expr, Float, Mul, Piecewise, Rational, Symbol, sympy
from ..spec.pieces import Pieces, deciding, split
from ..spec.primitives import Primitive
from ..spec.text import write

_SPELLED_OUT = (Softplus, Expm1, Log1p, Log1pMinus, Log1pMinusNear, Log1pUnit, MishGate, Line, FiniteLeft)
_NAMED = {
    Sigmoid: r"\sigma(y) = 1/(1 + e^{-y})",
    NormalCdf: r"\Phi \text{ the standard normal distribution function}",
    NormalPdf: r"\varphi \text{ the standard normal density}",
}
_GUARD = 20.0  # a seam beyond guards the arithmetic against overflow; the function is the same on both sides
_w = sympy.Symbol("w", real=True)


@dataclass(frozen=True)
class Formula:
    """The right-hand side, and what its letters stand for."""

    latex: str
    where: tuple[str, ...] = ()
    at_numbers: bool = False  # whether it holds only for parameters near certain numbers, as `where` says


def formula(act: Activation, order: int = 0, at: Mapping[str, float] | None = None) -> Formula:
    r"""f, f' or a higher derivative of a definition, typeset.

    `at` are numbers for the parameters: where the order of the pieces hangs on them, the formula is that of these
    numbers, and `where` says as long as what it is.

    >>> import softknee as sk
    >>> formula(sk.get("smelu"), 2).latex
    '\\begin{cases} 0 & x < - \\beta \\\\ \\frac{1}{2 \\beta} & - \\beta < x < \\beta \\\\ 0 & x > \\beta \\end{cases}'
    """
    derivative = act.derivative(order)
    numbers = {p.symbol: sympy.Rational(str(at[p.name])) for p in act.params if p.name in at} if at else {}
    with deciding(numbers) as decided:
        pieces = pieces_of(derivative.formula)
        plain = _typeset(act, order, pieces, {})
    if decided:
        plain = replace(plain, where=(*plain.where, *_bounds(pieces.seams, decided, act)), at_numbers=True)
    if act.inner is None:
        return plain
    in_u = _typeset(act, order, pieces_of(derivative.bound_formula), {u: act.inner.value})
    return in_u if _cost(in_u) < _cost(plain) else plain


def _bounds(seams: Sequence[Expr], decided: Mapping[Expr, int], act: Activation) -> list[str]:
    """What the parameters must be for this order of the seams: a bound of one that stands alone, else the order."""
    ends: dict[tuple[Symbol, str], list[Expr]] = {}
    words = [f"{expression(expr, act)} = 0" for expr, sign in decided.items() if not sign]
    for low, high in pairwise(seams):
        gap = sympy.expand(high - low)
        if gap.is_positive or gap.is_number:
            continue
        (symbol, *others) = gap.free_symbols
        if others or not gap.is_polynomial(symbol) or sympy.degree(gap, symbol) != 1:
            words.append(f"{expression(low, act)} < {expression(high, act)}")
            continue
        slope, offset = sympy.Poly(gap, symbol).all_coeffs()
        end = -offset / slope
        if not (symbol.is_positive and end <= 0):
            ends.setdefault((symbol, ">" if slope > 0 else "<"), []).append(end)
    for (symbol, relation), places in ends.items():
        end = max(places) if relation == ">" else min(places)
        words.append(f"{expression(symbol, act)} {relation} {expression(end, act)}")
    return words


def closed_form(act: Activation, order: int = 0) -> str:
    """The same as a line of text, in the language that `spec.parse` reads, for places without LaTeX.

    >>> import softknee as sk
    >>> closed_form(sk.get("smelu"))
    '0 if x < -beta; (beta + x)**2 / (4 * beta) if x < beta; x otherwise'
    """
    pieces = pieces_of(act.derivative(order).formula)
    ends = [*(f" if x < {_text(seam)}" for seam in pieces.seams), " otherwise" if pieces.seams else ""]
    return "; ".join(f"{_text(part)}{end}" for part, end in zip(pieces.parts, ends, strict=True))


def _text(expr: Expr) -> str:
    try:
        return write(expr)
    except FormulaError:
        return str(expr)  # a function that the language has no word for


def _cost(part: Formula) -> int:
    # A letter to be looked up below the formula costs a reader more than a few symbols in it.
    return len(part.latex) + sum(25 + len(words) for words in part.where)


class _Printer(LatexPrinter):
    """Sums with x first and nothing negative in front where that can be helped: x + alpha, 3 - u."""

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        terms = super()._as_ordered_terms(expr, order=order)
        return sorted(terms, key=lambda term: (term.could_extract_minus_sign(), not term.has(x)))


def expression(expr: Any, act: Any) -> str:
    """An expression in a definition's parameters as LaTeX."""
    names = {p.symbol: p.letter for p in act.params if not isinstance(p.default, str)}
    latex = _Printer({"symbol_names": names}).doprint(_decimals(sympy.sympify(expr)))
    # A bar would end the cell of a table.
    return latex.replace(r"\left|", r"\left\lvert ").replace(r"\right|", r"\right\rvert ")


# -- pieces -----------------------------------------------------------------------------------------------


def pieces_of(expr: Expr) -> Pieces:
    """The pieces, each in the shortest of a few forms; guards of the arithmetic are left out."""
    written = expr.replace(lambda node: isinstance(node, _SPELLED_OUT), lambda node: node.elementary(*node.args))
    written = _decimals(written)
    several = any(isinstance(node, Piecewise) for node in written.args)  # parts of a sum read best as they are
    try:
        pieces = split(written, tidy=not several)
    except DefinitionError:
        return Pieces((), (written,))
    kept = [not (seam.is_number and abs(float(seam)) > _GUARD) for seam in pieces.seams]
    parts = [pieces.parts[0]]
    seams = []
    for seam, keep, part in zip(pieces.seams, kept, pieces.parts[1:], strict=True):
        if keep:
            seams.append(seam)
            parts.append(part)
        elif seam < 0:
            parts[-1] = part
    as_given = [value for value, _ in written.args] if isinstance(written, Piecewise) else [written]
    if several:
        return Pieces(tuple(seams), tuple(map(_shortest, parts)))
    given = {sympy.expand(value): value for value in as_given}
    return Pieces(tuple(seams), tuple(_shortest(given.get(sympy.expand(part), part)) for part in parts))


@lru_cache(maxsize=1024)
def _shortest(part: Expr) -> Expr:
    """The form that reads best: few operations, little ink; as it was written, unless others are clearly better."""
    expanded = sympy.expand(part)
    forms = [sympy.factor(part), expanded]
    forms += [sympy.collect(expanded, list(by), sympy.factor) for by in ((x, u), expanded.atoms(sympy.exp)) if by]
    best = min(dict.fromkeys(map(_turned, forms)), key=_effort)
    return best if _effort(best) < _effort(part) - 8 else _turned(part)


@lru_cache(maxsize=1024)
def _effort(form: Expr) -> int:
    latex = _Printer().doprint(form)
    ink = re.sub(r"\\(left|right)|[\s{}]", "", latex)
    return 2 * int(sympy.count_ops(form)) + 6 * latex.count(r"\frac") + len(re.sub(r"\\[A-Za-z]+", "c", ink))


def _turned(form: Expr) -> Expr:
    """-(u - 2)(u + 1) as (2 - u)(u + 1): a sign in front goes into a factor that can take it."""
    sign, factors = form.as_coeff_mul()
    if sign.is_negative and len(factors) > 1:
        for place, factor in enumerate(factors):
            if isinstance(factor, Add) and any(term.could_extract_minus_sign() for term in factor.args):
                return Mul(-sign, *factors[:place], sympy.expand(-factor), *factors[place + 1 :])
    return form


def _typeset(act: Activation, order: int, pieces: Pieces, given: Mapping[Symbol, Expr]) -> Formula:
    used = set().union(*(part.free_symbols for part in pieces.parts))
    where = [rf"{symbol} = {expression(value, act)}" for symbol, value in given.items() if symbol in used]
    if act.implicit is not None and v in used:
        where.append(rf"v \text{{ solves }} {expression(_shortest(elementary(act.implicit.inverse)), act)} = x")
    parts, long = _named_argument(pieces.parts)
    if long is not None:
        where.append(rf"w = {expression(long, act)}")
    where += [words for kind, words in _NAMED.items() if any(part.has(kind) for part in parts)]
    latex = [expression(part, act) for part in parts]
    if not pieces.seams:
        return Formula(latex[0], tuple(where))
    seams = [expression(seam, act) for seam in pieces.seams]
    known = act.claims is not None and order <= act.claims.smoothness
    up_to, down_to = (r"\le", r"\ge") if known or _is_continuous(pieces, given) else ("<", ">")
    middle = [rf"{low} < x < {high}" for low, high in pairwise(seams)]
    when = [rf"x {up_to} {seams[0]}", *middle, rf"x {down_to} {seams[-1]}"]
    rows = r" \\ ".join(f"{part} & {place}" for part, place in zip(latex, when, strict=True))
    return Formula(rf"\begin{{cases}} {rows} \end{{cases}}", tuple(where))


def _is_continuous(pieces: Pieces, given: Mapping[Symbol, Expr]) -> bool:
    """Whether neighbouring pieces agree at every seam; at a jump the value belongs to one side by convention."""
    for seam, left, right in zip(pieces.seams, pieces.parts[:-1], pieces.parts[1:], strict=True):
        if v in (left - right).free_symbols:
            return False
        gap = elementary((left - right).xreplace(dict(given)).subs(x, seam))
        tidied = sympy.cancel(gap) if gap.is_rational_function() else sympy.simplify(gap)
        if tidied != 0:
            return False
    return True


def _named_argument(parts: tuple[Expr, ...]) -> tuple[list[Expr], Expr | None]:
    """The parts with one long argument of theirs called w, where it stands in several places."""
    arguments = [
        node.args[0] for part in parts for node in sympy.preorder_traversal(part) if isinstance(node, Primitive)
    ]
    for long in sorted(set(arguments), key=lambda e: (-sympy.count_ops(e), str(e))):
        both = arguments.count(long) + arguments.count(-long)
        if sympy.count_ops(long) > 5 and both > 1 and not str(long).startswith("-"):
            return [part.xreplace({long: _w, -long: -_w}) for part in parts], long
    return list(parts), None


def _decimals(expr: Expr) -> Expr:
    """Fractions that came from long decimals, such as 8943/200000, as decimals again; floats to eight digits."""
    long = [atom for atom in expr.atoms(Rational) if atom.q > 1000 and set(sympy.factorint(atom.q)) <= {2, 5}]
    new = {fraction: sympy.Symbol(f"{float(fraction):.10g}", positive=True) for fraction in long}
    new |= {atom: sympy.Symbol(f"{float(atom):.8g}", real=True) for atom in expr.atoms(Float)}
    return expr.xreplace(new)
