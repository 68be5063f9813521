r"""The piece between two given functions, solved for.

    join(left, right, between=(a, b), smoothness=k)

gives left up to a, right from b on, and between them the polynomial that meets both in k derivatives. Left is fixed.
Right is given up to an additive constant, which is solved for together with a polynomial of degree 2k; with
`fixed=True` both stay where they are and the degree is 2k + 1. Two lines and k = 1 make the generalised SmeLU (this is
the construction of equations 10 to 12 of the SmeLU paper).

The polynomial is written in s = (x - a)/(b - a) and in 1 - s, both clipped to [0, 1], as a combination of the
derivatives at the two ends (see `hermite`): nothing cancels, and between two lines the slope of the middle is that of
the whole, exact at both ends.

>>> import softknee as sk, torch
>>> alpha, beta = sk.spec.positive("alpha", 1.0), sk.spec.positive("beta", 1.0)
>>> sk.design.join(0, "x", between=(-alpha.symbol, beta.symbol), params=[alpha, beta]).formula
Piecewise((0, x <= -alpha), (alpha/2 - beta/2 + x, x >= beta), ((alpha + x)**2/(2*(alpha + beta)), True))
>>> knee = sk.design.join("x * sigmoid(x)", "x", between=(1, 3), smoothness=2, fixed=True, name="capped_swish")
>>> knee(torch.tensor([1.0, 3.0]))
tensor([0.7311, 3.0000])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import DefinitionError
from ...spec import Activation, Claims, Line, Param, Unit, x
from ...spec.algebra import Abs, Add, Expr, Interval, Max, Symbol, oo, sympy
from ...spec.pieces import Pieces, sign_of
from ..texts.given import Given
from . import hermite
from .guard import guard, guarded
from .joints import Meeting, check, joined, neat, pieces_of, refute, short
from .rescu import line_slope

SMOOTHEST = 4


def join(
    left: Any,
    right: Any,
    *,
    between: tuple[Any, Any],
    smoothness: int = 1,
    fixed: bool = False,
    params: Sequence[Param] | Mapping[str, Any] = (),
    name: str = "join",
    about: str = "",
) -> Activation:
    """The definition that goes from one function to the other, `smoothness` times continuously differentiable.

    left, right: expressions in x, numbers, definitions, their names, or texts.
    between:     where left ends and where right begins: expressions in the parameters, numbers or texts.
    fixed:       whether right stays where it is; otherwise a constant is added to it.
    params:      the parameters that stand in expressions and texts, as `softknee.spec.Param` or as a mapping such as
                 {"beta": 1.0, "g": "0.1:real"}; those of definitions come along.

    Joined lines come with their claims (monotone, Lipschitz constant, smoothness), unless both ends are fixed.
    """
    if not isinstance(smoothness, int) or isinstance(smoothness, bool) or not 1 <= smoothness <= SMOOTHEST:
        raise DefinitionError(f"join takes a smoothness from 1 to {SMOOTHEST}, and {smoothness!r} was given.")
    if not isinstance(between, tuple | list) or len(between) != 2:
        raise DefinitionError("join takes between=(a, b): where the left function ends and where the right one begins.")
    if not isinstance(fixed, bool):
        raise DefinitionError(f"join takes fixed=True or fixed=False, and {fixed!r} was given.")
    given = Given("join", params)
    sides = given.function(left), given.function(right)
    a, b = (given.point(end) for end in between)
    if sign_of(b - a) <= 0:
        raise DefinitionError(f"join takes between=(a, b) with a below b, and {a} is not below {b}.")
    used = given.params_of(*sides, a, b)
    before, after = pieces_of(sides[0], None, a), pieces_of(sides[1], b, None)
    for pieces, which in ((before, "left"), (after, "right")):
        for i, seam in enumerate(pieces.seams):
            own = Meeting(pieces.parts[i], pieces.parts[i + 1], seam, f"two parts of the {which} function")
            check("join", own, used, 1)
    window = _Window(before, after, a, b, smoothness, fixed, used)
    for which, at, side in (("left", a, window.ends[0]), ("right", b, window.ends[1])):
        for value in side[: smoothness + 1]:
            if refute(value, value, used) is not None:  # not equal to itself: no real number there
                raise DefinitionError(
                    f"join: at x = {at} the {which} function or one of its slopes is {short(value)}, and a finite real "
                    f"number is needed there to join it. Move that end of between."
                )
    return guarded(
        name,
        window.formula(),
        params=used,
        claims=window.claims(),
        better=window.computed,
        about=about or f"Two functions and the polynomial of degree {2 * smoothness + fixed} between them.",
        recipe=given.recipe(*sides, between=(a, b), smoothness=smoothness, fixed=fixed),
    )


@dataclass(frozen=True)
class _Window:
    """The two functions, the window between them, and everything that is derived from the derivatives at its ends."""

    before: Pieces
    after: Pieces
    a: Expr
    b: Expr
    order: int
    fixed: bool
    params: tuple[Param, ...]

    @functools.cached_property
    def width(self) -> Expr:
        return neat(self.b - self.a)

    @property
    def left(self) -> Expr:
        return self.before.parts[-1]

    @property
    def right(self) -> Expr:
        return self.after.parts[0]

    @functools.cached_property
    def ends(self) -> tuple[list[Expr], list[Expr]]:
        """The derivatives by x at the ends, up to one more than is joined."""
        return self._ends_of(self.left, self.a), self._ends_of(self.right, self.b)

    def ends_by(self, symbol: Symbol) -> tuple[list[Expr], list[Expr]]:
        """The same of the derivatives by a parameter."""
        sides = ((self.left, self.a), (self.right, self.b))
        left, right = (self._ends_of(sympy.diff(side, symbol), at) for side, at in sides)
        return left, right

    def _ends_of(self, side: Expr, at: Expr) -> list[Expr]:
        found = []
        for _ in range(self.order + 2):
            found.append(neat(side.subs(x, at)))
            side = sympy.diff(side, x)
        return found

    # -- the middle -----------------------------------------------------------------------------------

    def middle(self, place: Expr, rest: Expr, times: int = 0) -> Expr:
        """The polynomial, or its derivative of an order by x, in the place in the window and 1 minus it."""
        h, terms = self.width, []
        for data, polynomials in zip(self.ends, hermite.basis(self.order, self.fixed), strict=True):
            for j, polynomial in enumerate(hermite.derivative(one, times) for one in polynomials):
                if data[j] != 0:
                    terms.append(data[j] * h ** (j - times) * hermite.written(polynomial, place, rest))
        return Add(*terms)

    def anchored(self, place: Expr, rest: Expr, times: int) -> Expr:
        """The same between two fixed polynomials: near each end its own function, and what the other one changes.

        As a sum over both ends it would be b less (b - x) near the right one, at a window that is much wider than x.
        """
        first, second = hermite.basis(self.order, True)
        halves = []
        for own, other, at, polynomials in (
            (self.left, self.right, self.b, second),
            (self.right, self.left, self.a, first),
        ):
            changes = [neat(sympy.diff(other - own, x, j).subs(x, at)) for j in range(self.order + 1)]
            terms = [
                change * self.width ** (j - times) * hermite.written(hermite.derivative(polynomial, times), place, rest)
                for j, (change, polynomial) in enumerate(zip(changes, polynomials, strict=True))
            ]
            halves.append(sympy.diff(own, x, times) + Add(*terms))
        return sympy.Piecewise((halves[0], x < neat((self.a + self.b) / 2)), (halves[1], True), evaluate=False)

    def middle_by(self, symbol: Symbol, place: Expr, rest: Expr) -> Expr:
        """The derivative of the polynomial by a parameter, at a fixed x."""
        h = self.width
        first, second = self.ends
        moves = {"a": sympy.diff(self.a, symbol), "b": sympy.diff(self.b, symbol)}
        terms = []
        for data, polynomials in zip(self.ends_by(symbol), hermite.basis(self.order, self.fixed), strict=True):
            for j, polynomial in enumerate(polynomials):
                terms.append(data[j] * h**j * hermite.written(polynomial, place, rest))
        for key, polynomials in hermite.moving_basis(self.order, self.fixed).items():
            data, move = first if key[0] == "L" else second, moves[key[1]]
            for j, polynomial in enumerate(polynomials):
                if data[j] != 0 and move != 0:
                    terms.append(move * data[j] * h ** (j - 1) * hermite.written(polynomial, place, rest))
        return Add(*terms)

    @functools.cached_property
    def end(self) -> Expr:
        """The value where the right function begins."""
        one, zero = sympy.Integer(1), sympy.Integer(0)
        return neat(self.middle(one, zero))

    # -- the whole ------------------------------------------------------------------------------------

    def formula(self) -> Expr:
        """The closed form as one reads it."""
        place = (x - self.a) / self.width
        gentle, steep = line_slope(self.left), line_slope(self.right)
        if gentle is not None and steep is not None and not self.fixed:
            # Between lines: the left line, and the change of slope times a smooth step, integrated.
            step = hermite.basis(self.order, False)[1][1]
            bend = neat(steep - gentle) * self.width * hermite.written(step, place, 1 - place)
            inner = neat(self.left.subs(x, self.a)) + gentle * (x - self.a) + bend
        else:
            inner = self.middle(place, (self.b - x) / self.width)
        return self._joined(self._outer(self.left, self.a), inner, self._outer(self.right + self._lift, self.b))

    @functools.cached_property
    def _lift(self) -> Expr:
        """What is added to the right function."""
        return sympy.Integer(0) if self.fixed else neat(self.end - self.ends[1][0])

    def _outer(self, part: Expr, at: Expr) -> Expr:
        slope = line_slope(part)
        if slope is None:
            return part
        if slope.is_number:
            return sympy.expand(part)
        return Line(slope, x - at) + neat(part.subs(x, at))

    def _joined(self, left: Expr, middle: Expr, right: Expr, do: Callable[[Expr], Expr] = lambda e: e) -> Expr:
        """One expression; parts further out, if the functions have any, are treated by `do`."""
        far_left = [do(part) for part in self.before.parts[:-1]]
        far_right = [do(part + self._lift) for part in self.after.parts[1:]]
        seams = [*self.before.seams, self.a, self.b, *self.after.seams]
        return joined(seams, [*far_left, left, middle, right, *far_right])

    def _clipped(self) -> tuple[Expr, Expr]:
        h = self.width
        return Unit((x - self.a) / h), Unit((self.b - x) / h)

    def computed(self, index: tuple[str, ...]) -> Expr | None:
        """The value, the first two slopes and the first derivatives by parameters as they are computed."""
        if set(index) <= {"x"}:
            return self.slope(len(index)) if len(index) < 3 else None
        found = [p.symbol for p in self.params if index == (p.name,)]
        return self.by(found[0]) if found else None

    def slope(self, order: int) -> Expr:
        """The derivative of that order by x, as it is computed."""
        polynomials = all(
            side.is_polynomial(x) and sympy.diff(side, x, self.order + 1) == 0 for side in (self.left, self.right)
        )
        inner = (self.anchored if self.fixed and polynomials else self.middle)(*self._clipped(), order)
        lines = line_slope(self.left) is not None and line_slope(self.right) is not None
        if order == 1 and lines and not (self.before.seams or self.after.seams):
            return inner  # at the ends of the window it is the slope of the lines, exactly
        outer = [self._outer(self.left, self.a), self._outer(self.right + self._lift, self.b)]
        left, right = (guard(sympy.diff(part, x, order)) for part in outer)
        return self._joined(left, inner, right, lambda part: guard(sympy.diff(part, x, order)))

    def by(self, symbol: Symbol) -> Expr:
        """The derivative by a parameter, as it is computed."""
        left = self._outer_by(self.left, self.a, sympy.Integer(0), symbol)
        right = self._outer_by(self.right, self.b, self._lift, symbol)
        inner = self.middle_by(symbol, *self._clipped())
        return self._joined(left, inner, right, lambda part: guard(sympy.diff(part, symbol)))

    def _outer_by(self, part: Expr, at: Expr, lift: Expr, symbol: Symbol) -> Expr:
        slope = line_slope(part)
        if slope is None:
            return guard(sympy.diff(part, symbol)) + neat(sympy.diff(lift, symbol))
        turn = sympy.diff(slope, symbol)
        level = neat(sympy.diff((part + lift).subs(x, at), symbol) - slope * sympy.diff(at, symbol))
        return Line(turn, x - at) + level

    def claims(self) -> Claims | None:
        """Between lines the slope goes from one to the other without turning; nothing is claimed of other joins."""
        gentle, steep = line_slope(self.left), line_slope(self.right)
        if gentle is None or steep is None or self.fixed or self.before.seams or self.after.seams:
            return None
        if neat(steep - gentle) == 0:
            return None
        flat = neat(self.left) == 0
        return Claims(
            self.order,
            sympy.And(gentle >= 0, steep >= 0),
            Max(Abs(gentle), Abs(steep)),
            Interval(-oo, self.a) if flat else sympy.S.EmptySet,
        )
