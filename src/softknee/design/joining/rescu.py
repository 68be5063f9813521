r"""RESCU: a rectified smooth continuous unit, assembled from pieces that meet in value and slope.

    rescu([(left, a), (middle, b), right])       left up to a, middle from a to b, right from b on

Every join is checked exactly, for all values of the parameters: at each seam value and slope (and further derivatives
where `smoothness` asks for them) must agree, or the join is refused with both values and both slopes. Reference:
section 4 of the SmeLU paper (Shamir, Lin and Coviello), where any continuously differentiable function of smooth pieces
is a RESCU.

SmeLU itself; the sigmoid joined to a line; and a swish-like dip, which is a concave piece left of the convex one:

>>> import softknee as sk
>>> beta = sk.spec.positive("beta", 1.0)
>>> smelu = sk.design.rescu([(0, "-beta"), ("(x + beta)**2 / (4 * beta)", "beta"), "x"], params=[beta])
>>> smelu.claims.lipschitz, smelu.claims.monotone
(1, True)
>>> sigmoid = sk.design.rescu([("2 * beta * sigmoid(2 * x / beta - 2)", "beta"), "x"], params=[beta], smoothness=2)
>>> concave, convex = "-(x + 7 * beta)**2 / (80 * beta)", "(3 * x + beta) * (x + 3 * beta) / (16 * beta)"
>>> dip = [(0, "-7 * beta"), (concave, "-2 * beta"), (convex, "beta"), "x"]
>>> sk.design.rescu(dip, params=[beta]).claims.monotone
False
>>> sk.design.rescu([(0, 0), "x"])  # doctest: +ELLIPSIS
Traceback (most recent call last):
softknee.errors.DefinitionError: rescu: piece 1 and piece 2 do not join at x = 0: values 0 and 0; slopes 0 and 1. ...
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DefinitionError
from ...spec import Activation, Claims, Line, Param, x
from ...spec.algebra import Abs, Expr, Interval, Max, oo, sympy
from ...spec.pieces import sign_of
from ..texts.given import Given
from .guard import guarded
from .joints import Meeting, check, joined, neat, pieces_of, proved_zero, refute

MOST_PIECES, SMOOTHEST = 32, 8


def rescu(
    pieces: Sequence[Any],
    *,
    params: Sequence[Param] | Mapping[str, Any] = (),
    smoothness: int = 1,
    name: str = "rescu",
    about: str = "",
) -> Activation:
    """The definition that the pieces make together.

    pieces:     pairs (function, where it ends) from left to right, and a last function. A function is an expression in
                x, a number, a definition, its name, or a text; a point is an expression in the parameters, a number or
                a text.
    params:     the parameters that stand in expressions and texts, as `softknee.spec.Param` or as a mapping such as
                {"beta": 1.0, "g": "0.1:real"}; those of definitions come along.
    smoothness: how many derivatives must be continuous at every join; 1 makes it a RESCU.

    Where every piece is at most quadratic, its claims (monotone, Lipschitz constant) are proved and come with it.
    """
    if not isinstance(smoothness, int) or isinstance(smoothness, bool) or not 1 <= smoothness <= SMOOTHEST:
        raise DefinitionError(f"rescu takes a smoothness from 1 to {SMOOTHEST}, and {smoothness!r} was given.")
    given = Given("rescu", params)
    functions, points = _read(pieces, given)
    used = given.params_of(*functions, *points)
    seams, parts, titles = _flat(functions, points)
    for i, seam in enumerate(seams):
        meeting = Meeting(parts[i], parts[i + 1], seam, _titles(titles[i], titles[i + 1]))
        check("rescu", meeting, used, smoothness)
    shown = [_straight(part, seams, i) for i, part in enumerate(parts)]
    options = {"smoothness": smoothness} if smoothness > 1 else {}
    return guarded(
        name,
        joined(seams, shown),
        params=used,
        claims=_claims(seams, parts, used, smoothness),
        about=about or f"A RESCU of {len(parts)} pieces.",
        recipe=given.recipe(*zip(functions, points, strict=False), functions[-1], **options),
    )


def _read(pieces: Sequence[Any], given: Given) -> tuple[list[Expr], list[Expr]]:
    if isinstance(pieces, str) or not isinstance(pieces, Sequence) or not 2 <= len(pieces) <= MOST_PIECES:
        raise DefinitionError(
            f"rescu takes a list of 2 to {MOST_PIECES} pieces: pairs (function, where it ends), and a last function."
        )
    *pairs, last = pieces
    for place, pair in enumerate(pairs, start=1):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise DefinitionError(
                f"Piece {place} of rescu must be a pair (function, where it ends); only the last is not."
            )
    if isinstance(last, tuple | list):
        raise DefinitionError("The last piece of rescu goes on for ever: give it as a function, without an end.")
    functions = [given.function(f) for f, _ in pairs]
    functions.append(given.function(last))
    points = [given.point(end) for _, end in pairs]
    for place, (before, after) in enumerate(itertools.pairwise(points), start=1):
        if sign_of(after - before) <= 0:
            raise DefinitionError(
                f"The joins {place} and {place + 1} of rescu, {before} and {after}, are not in order."
            )
    return functions, points


def _flat(functions: Sequence[Expr], points: Sequence[Expr]) -> tuple[list[Expr], list[Expr], list[int]]:
    """Seams, parts and the number of the piece each part comes from: a piece may have corners of its own."""
    seams: list[Expr] = []
    parts: list[Expr] = []
    titles: list[int] = []
    ends = [None, *points, None]
    for place, function in enumerate(functions):
        own = pieces_of(function, ends[place], ends[place + 1])
        seams += own.seams
        parts += own.parts
        titles += [place + 1] * len(own.parts)
        if place < len(points):
            seams.append(points[place])
    return seams, parts, titles


def _titles(left: int, right: int) -> str:
    return f"two parts of piece {left}" if left == right else f"piece {left} and piece {right}"


def _straight(part: Expr, seams: Sequence[Expr], place: int) -> Expr:
    """An outer line whose slope is a parameter, so that a slope of 0 stays flat at infinity."""
    if 0 < place < len(seams):
        return part
    return straight(part, seams[min(place, len(seams) - 1)])


def straight(part: Expr, at: Expr) -> Expr:
    """A line as slope times the distance from a point plus its value there; anything else as it is."""
    slope = line_slope(part)
    if slope is None or slope.is_number:
        return part
    return Line(slope, x - at) + neat(part.subs(x, at))


def line_slope(part: Expr) -> Expr | None:
    """The slope of a line, None for a curve."""
    if not part.is_polynomial(x):
        return None
    slope = neat(sympy.diff(part, x))
    return None if slope.has(x) else slope


# -- what can be proved -----------------------------------------------------------------------------------


def _claims(seams: Sequence[Expr], parts: Sequence[Expr], params: Sequence[Param], smoothness: int) -> Claims | None:
    """Slopes that are straight between the seams take their extremes there; other shapes are left without claims."""
    degrees = [sympy.degree(part, x) if part.is_polynomial(x) and part.has(x) else 0 for part in parts]
    if not all(part.is_polynomial(x) for part in parts) or max(degrees) > 2 or degrees[0] > 1 or degrees[-1] > 1:
        return None
    slopes = [neat(sympy.diff(part, x).subs(x, seam)) for part, seam in zip(parts[:-1], seams, strict=True)]
    exactly = _smoothness(seams, parts, params, smoothness)
    if exactly is None:
        return None
    flat = proved_zero(parts[0])
    return Claims(
        exactly,
        sympy.And(*(slope >= 0 for slope in dict.fromkeys(slopes))),
        Max(*(Abs(slope) for slope in slopes)),
        Interval(-oo, seams[0]) if flat else sympy.S.EmptySet,
    )


def _smoothness(seams: Sequence[Expr], parts: Sequence[Expr], params: Sequence[Param], least: int) -> int | None:
    """The number of continuous derivatives: those that agree everywhere, up to the first that is refuted somewhere."""
    for order in range(least + 1, SMOOTHEST + 2):
        sides = [Meeting(a, b, s, "").sides(order) for a, b, s in zip(parts[:-1], parts[1:], seams, strict=True)]
        if any(refute(left, right, params) is not None for left, right in sides):
            return order - 1
        if not all(proved_zero(left - right) for left, right in sides):
            return None
    return None
