"""The hard limit of a definition with its numbers put in: the one it names, or the one its knob leads to."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction

from ...errors import DefinitionError
from ...registry import get
from ...spec import Activation, elementary
from ...spec.algebra import Expr, Symbol, oo, sympy
from ...spec.pieces import Pieces, split
from .ball_algebra import proves_zero
from .ball_pieces import Unsettled, split_exact, x
from .ball_subjects import numbers_in

LONGEST = 120  # an expression with more operations is not given to SymPy's limits


def hard_limit(act: Activation, values: Mapping[str, Fraction]) -> tuple[str, Pieces] | None:
    """(name, pieces) of the hard limit; None for a definition without a knob."""
    if act.index or not (act.limit or act.knobs):
        return None
    if act.limit is None:
        return _followed(act, values)
    hard = get(act.limit)
    if not isinstance(hard, Activation):
        raise Unsettled(f"The hard limit {act.limit!r} is no formula.")
    given = {p.name: Fraction(p.default) for p in hard.params}
    given |= {theirs: values[ours] for theirs, ours in act.limit_params.items()}
    return act.limit, split_exact(numbers_in(hard.formula, hard, given))


def _followed(act: Activation, values: Mapping[str, Fraction]) -> tuple[str, Pieces]:
    """Seams and parts as the knobs go where they harden it; pieces whose seams run together are gone."""
    others = {name: value for name, value in values.items() if name not in act.knobs}
    knobs = [act.param(name).symbol for name in act.knobs]
    words = " and ".join(act.knobs)
    open_words = f"The hard limit for {words} -> {act.toward:g} is not known in closed form."
    if act.implicit is not None:
        raise Unsettled(open_words)
    try:
        pieces = split(numbers_in(act.formula, act, others))
    except DefinitionError:
        raise Unsettled(open_words) from None
    toward = oo if act.toward == float("inf") else sympy.Rational(*float(act.toward).as_integer_ratio())
    follow = functools.partial(_limit, knobs=knobs, toward=toward, words=open_words)
    kept: list[tuple[Expr, Expr]] = []
    for seam, part in zip((follow(seam, -oo, oo) for seam in pieces.seams), pieces.parts[1:], strict=True):
        if kept and proves_zero(seam - kept[-1][0]):
            kept.pop()
        kept.append((seam, part))
    ends = [-oo, *(seam for seam, _ in kept), oo]
    parts = [pieces.parts[0], *(part for _, part in kept)]
    hard = [follow(part, low, high) for part, low, high in zip(parts, ends[:-1], ends[1:], strict=True)]
    return f"its limit for {words} -> {act.toward:g}", Pieces(tuple(ends[1:-1]), tuple(hard))


def _limit(expr: Expr, low: Expr, high: Expr, knobs: list[Symbol], toward: Expr, words: str) -> Expr:
    """The limit of an expression in x between two seams."""
    plain = elementary(expr)
    away = sympy.Dummy("away", positive=True)
    back = {}
    if plain.has(x) and not all(plain.is_rational_function(knob) for knob in knobs):
        # SymPy must know on which side of the knee x lies: log(1 + e^(beta x))/beta has two limits.
        if (low == -oo) == (high == oo):
            raise Unsettled(words)
        plain = plain.xreplace({x: high - away if low == -oo else low + away})
        back = {away: high - x if low == -oo else x - low}
    for knob in knobs:
        if not plain.has(knob):
            continue
        if plain.count_ops() > LONGEST:
            raise Unsettled(words)
        try:
            plain = sympy.limit(plain, knob, toward, "-" if toward == oo else "+")
        except (NotImplementedError, ValueError, TypeError):
            raise Unsettled(words) from None
    if plain.has(sympy.Limit, oo, -oo, sympy.zoo, sympy.nan, sympy.AccumBounds):
        raise Unsettled(words)
    return plain.xreplace(back)
