"""Where pieces meet: whether they do, decided exactly, and the sentence that says how far they are apart.

A difference is first tried at numbers, with 30 digits: one that is not 0 there is refuted, with a witness. What
survives has to be proved 0 by algebra; a difference that can neither be refuted nor proved is an error that says so.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import DefinitionError
from ...spec import AtLeastOne, Between, Param, Positive, elementary, x
from ...spec.algebra import Expr, Piecewise, Rational, Symbol, sympy
from ...spec.pieces import Pieces, sign_of, split
from ...spec.precision import compiled, context, to_digits

_DRAWS, _DIGITS = 3, 30
_LARGEST_PROOF = 400  # operations; SymPy may take minutes to simplify more


@dataclass(frozen=True)
class Meeting:
    """Two neighbouring parts at their seam, for messages: what they are called and where they meet."""

    left: Expr
    right: Expr
    at: Expr
    names: str

    def sides(self, order: int) -> tuple[Expr, Expr]:
        """The derivative of that order from the left and from the right."""
        left, right = (sympy.diff(side, x, order) if order else side for side in (self.left, self.right))
        return at_point(left, self.at), at_point(right, self.at)


def at_point(expr: Expr, at: Expr) -> Expr:
    """The value at a point, in its shortest form where that is cheap to find."""
    return neat(expr.subs(x, at))


def neat(expr: Expr) -> Expr:
    """Factored or expanded where that is shorter; functions are left as they are."""
    if not expr.args or expr.atoms(sympy.Function) or expr.count_ops() > _LARGEST_PROOF:
        return expr
    return min((expr, sympy.expand(expr), sympy.factor(expr)), key=lambda e: e.count_ops())


def pieces_of(expr: Expr, low: Expr | None, high: Expr | None) -> Pieces:
    """An expression's own pieces between two points (None is infinity), as written where it has but one."""
    found = split(expr)
    inner = [
        seam
        for seam in found.seams
        if (low is None or sign_of(seam - low) > 0) and (high is None or sign_of(high - seam) > 0)
    ]
    if not found.seams:
        return Pieces((), (expr,))
    ends = [low, *inner, high]
    samples = [_between(a, b) for a, b in itertools.pairwise(ends)]
    return Pieces(tuple(inner), tuple(found.part_of(sample) for sample in samples))


def _between(low: Expr | None, high: Expr | None) -> Expr:
    if low is None:
        return sympy.Integer(0) if high is None else high - 1
    return low + 1 if high is None else (low + high) / 2


def joined(seams: Sequence[Expr], parts: Sequence[Expr]) -> Expr:
    """One expression from parts and the seams between them.

    The default, where a NaN ends up, is an inner part if there is one, and of these the one with most parameters.
    """
    if len(parts) == 1:
        return parts[0]
    inner = range(1, len(parts) - 1) if len(parts) > 2 else range(2)
    default = max(inner, key=lambda i: (len(parts[i].free_symbols - {x}), parts[i].has(x), -i))
    before = [(parts[i], x <= seams[i]) for i in range(default)]
    after = [(parts[i], x >= seams[i - 1]) for i in range(len(parts) - 1, default, -1)]
    return Piecewise(*before, *after, (parts[default], True), evaluate=False)


def check(engine: str, meeting: Meeting, params: Sequence[Param], smoothness: int) -> None:
    """Refuse a seam at which a derivative up to that order jumps, or cannot be shown not to."""
    for order in range(smoothness + 1):
        left, right = meeting.sides(order)
        witness = refute(left, right, params)
        if witness is not None:
            raise DefinitionError(_apart(engine, meeting, max(order, 1), witness))
        if not proved_zero(left - right):
            raise DefinitionError(
                f"{engine}: whether {meeting.names} join at x = {meeting.at} cannot be decided. Their "
                f"{_WORDS[min(order, 2)].format(order)} there are {short(left)} and {short(right)}, which agree to "
                f"{_DIGITS} digits at numbers but not by algebra; write the pieces in a simpler form."
            )


_WORDS = ("values", "slopes", "derivatives of order {}")


def _apart(engine: str, meeting: Meeting, order: int, witness: Mapping[Symbol, Expr]) -> str:
    said = []
    for one in dict.fromkeys((0, 1, order)):
        left, right = meeting.sides(one)
        text = f"{_WORDS[min(one, 2)].format(one)} {short(left)} and {short(right)}"
        if left.free_symbols or right.free_symbols:
            text += f" ({_number(left, witness)} and {_number(right, witness)})"
        said.append(text)
    hint = ""
    if all(_nearly(*meeting.sides(one), witness) for one in range(order + 1)):
        hint = (
            " They differ by rounding alone: 1.2 in Python is a binary number, and 1/1.2 another. Write the piece as a "
            "text, in which decimals are exact, or with sympy.Rational."
        )
    place = f" (numbers are for {', '.join(f'{s} = {float(n):g}' for s, n in witness.items())})" if witness else ""
    return (
        f"{engine}: {meeting.names} do not join at x = {meeting.at}: {'; '.join(said)}{place}. A RESCU is "
        f"continuously differentiable.{hint} Change a piece or the point, or let softknee.design.join(left, right, "
        f"between=...) solve for a piece between."
    )


def _nearly(left: Expr, right: Expr, witness: Mapping[Symbol, Expr]) -> bool:
    """Whether two numbers differ by no more than decimals lose when they become binary."""
    if not (_has_value(left) and _has_value(right)):
        return False
    a, b = (to_digits(elementary(side).subs(witness), _DIGITS) for side in (left, right))
    return bool(a.is_Number and b.is_Number and a.is_finite and b.is_finite and abs(a - b) <= 1e-13 * (1 + abs(a)))


def short(expr: Expr) -> str:
    """The expression for a sentence."""
    text = str(expr) if _has_value(expr) else "undefined"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _number(expr: Expr, witness: Mapping[Symbol, Expr]) -> str:
    if not _has_value(expr):
        return "undefined"
    value = to_digits(elementary(expr).subs(witness), _DIGITS)
    return f"{float(value):.6g}" if value.is_Float or value.is_Rational else str(value)


def refute(left: Expr, right: Expr, params: Sequence[Param]) -> dict[Symbol, Expr] | None:
    """Parameter values at which the two are not equal, or None."""
    names: list[Symbol] = sorted({*left.free_symbols, *right.free_symbols}, key=str)
    constraints = {p.symbol: p for p in params}

    def drawn(seed: int) -> dict[Symbol, Expr]:
        return {s: _draw(constraints[s], random.Random(f"{seed} {s}")) for s in names}

    if not (_has_value(left) and _has_value(right)):
        return drawn(0)
    try:
        mp = context(2 * _DIGITS)
        sides = [compiled(names, elementary(side), mp) for side in (left, right)]
    except NotImplementedError:  # a derivative that SymPy does not have, as of floor
        return drawn(0)
    for seed in range(_DRAWS if names else 1):
        values = drawn(seed)
        numbers = [mp.mpf(n.p) / n.q for n in values.values()]
        try:
            a, b = (mp.convert(side(*numbers)) for side in sides)
            apart = abs(a - b) > mp.mpf(10) ** -_DIGITS * (1 + abs(a) + abs(b))
        except (ZeroDivisionError, ValueError, TypeError, OverflowError):
            return values  # one of them has no value there
        if apart or mp.isnan(a) or mp.isnan(b) or isinstance(a + b, mp.mpc):
            return values
    return None


def _has_value(expr: Expr) -> bool:
    """Whether SymPy found a number at the point, and no pole or limit."""
    return not expr.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo, sympy.AccumBounds)


def _draw(p: Param, draw: random.Random) -> Expr:
    """A fraction that the constraint allows, of moderate size."""
    share = Rational(draw.randint(1, 9999), 10_000)
    if isinstance(p.constraint, Positive):
        return Rational(1, 4) + 2 * share
    if isinstance(p.constraint, AtLeastOne):
        return 1 + 2 * share
    if isinstance(p.constraint, Between):
        low, high = (Rational(repr(end)) for end in (p.constraint.low, p.constraint.high))
        return low + (high - low) * share
    return 4 * share - 2


@functools.lru_cache(maxsize=512)
def proved_zero(difference: Expr) -> bool:
    """Whether algebra shows the difference to be 0."""
    if difference == 0:
        return True
    expr = elementary(difference)
    if expr.count_ops() > _LARGEST_PROOF:
        return False
    forms = (sympy.expand, lambda e: sympy.cancel(sympy.together(e)), sympy.simplify)
    return any(form(expr) == 0 for form in forms)
