"""Smooth pieces joined into one function, every join decided by algebra."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import DefinitionError
from ..spec import (
    Activation,
    AtLeastOne,
    Between,
    Claims,
    Expm1,
    Line,
    MishGate,
    NormalCdf,
    NormalPdf,
    Param,
    Positive,
    SechSquared,
    Sigmoid,
    Softplus,
    Unit,
    elementary,
    x,
)
from ..spec.algebra import Abs, Add, Expr, Interval, Max, Mul, Piecewise, Pow, Rational, Symbol, oo, sympy
from ..spec.pieces import Pieces, sign_of, split, within
from ..spec.precision import compiled, context, to_digits
from .texts.given import Given

_s = sympy.Symbol("s")
ONE, PLACE, REST = (sympy.Poly(polynomial, _s, domain="QQ") for polynomial in (1, _s, 1 - _s))


@functools.cache
def basis(order: int, fixed: bool) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """P_0 .. P_order and Q_0 .. Q_order for that many derivatives at both ends."""
    count = order + 1 if fixed else order
    left = [_left(j, count) for j in range(count)]
    right = [polynomial.compose(REST) * (-1) ** j for j, polynomial in enumerate(left)]
    if fixed:
        return tuple(left), tuple(right)
    return (ONE, *(polynomial.integrate() for polynomial in left)), (
        0 * ONE,
        *(polynomial.integrate() for polynomial in right),
    )


def _left(j: int, count: int) -> Expr:
    """The polynomial whose derivative of order j at 0 is 1, all others of order below `count` at 0 and 1 being 0."""
    tail = sum(math.comb(count - 1 + m, m) * PLACE**m for m in range(count - j))
    return PLACE**j * REST**count * tail * Rational(1, math.factorial(j))


def derivative(polynomial: Expr, order: int) -> Expr:
    """The derivative of that order, 0 included."""
    return polynomial.diff((_s, order)) if order else polynomial


@functools.cache
def moving_basis(order: int, fixed: bool) -> dict[str, list[Expr]]:
    """The polynomials that a moving end brings: "La"[j] goes with (da/dp) L_j h^(j-1), and so on for R and b.

    With s = (x - a)/h at a fixed x, ds/dp = -(a' (1 - s) + b' s)/h, and L_j itself moves by L_(j+1) a'.
    """
    moving: dict[str, list[Expr]] = {"La": [], "Lb": [], "Ra": [], "Rb": []}
    for side, own in zip("LR", basis(order, fixed), strict=True):
        for j, (before, polynomial) in enumerate(itertools.pairwise([0 * ONE, *own, 0 * ONE])):
            slope = polynomial.diff()
            moving[side + "a"].append(-j * polynomial - slope * REST + (before if side == "L" else 0))
            moving[side + "b"].append(j * polynomial - slope * PLACE + (before if side == "R" else 0))
    return moving


def written(polynomial: Expr, place: Expr, rest: Expr) -> Expr:
    """A polynomial, written in the place and in 1 minus it so that it does not cancel on [0, 1].

    Factors s and 1 - s are taken out; what is left stays a sum of powers where all signs agree, and becomes a sum of
    Bernstein polynomials where they do not.
    """
    left, right, terms = _terms(polynomial)
    return place**left * rest**right * Add(*(c * place**i * rest**j for c, i, j in terms))


@functools.cache
def _terms(polynomial: Expr) -> tuple[int, int, list[tuple[Expr, int, int]]]:
    """The powers of s and 1 - s that are factors, and the rest as (coefficient, power of s, power of 1 - s)."""
    if polynomial.is_zero:
        return 0, 0, []
    left = right = 0
    while polynomial.eval(0) == 0:
        polynomial, left = polynomial.exquo(PLACE), left + 1
    while polynomial.eval(1) == 0:
        polynomial, right = polynomial.exquo(REST), right + 1
    degree, coefficients = polynomial.degree(), polynomial.all_coeffs()[::-1]
    if all(c >= 0 for c in coefficients) or all(c <= 0 for c in coefficients):
        return left, right, [(c, i, 0) for i, c in enumerate(coefficients) if c != 0]
    bernstein = [
        math.comb(degree, i) * sum(math.comb(i, j) * coefficients[j] / math.comb(degree, j) for j in range(i + 1))
        for i in range(degree + 1)
    ]
    return left, right, [(c, i, degree - i) for i, c in enumerate(bernstein) if c != 0]


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
    pieces = split(expr)
    return within(pieces, low, high) if pieces.seams else Pieces((), (expr,))


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
    sentences = []
    for value in dict.fromkeys((0, 1, order)):
        left, right = meeting.sides(value)
        text = f"{_WORDS[min(value, 2)].format(value)} {short(left)} and {short(right)}"
        if left.free_symbols or right.free_symbols:
            text += f" ({_number(left, witness)} and {_number(right, witness)})"
        sentences.append(text)
    hint = ""
    if all(_nearly(*meeting.sides(item), witness) for item in range(order + 1)):
        hint = (
            " They differ by rounding alone: 1.2 in Python is a binary number, and 1/1.2 another. Write the piece as a "
            "text, in which decimals are exact, or with sympy.Rational."
        )
    place = f" (numbers are for {', '.join(f'{s} = {float(n):g}' for s, n in witness.items())})" if witness else ""
    return (
        f"{engine}: {meeting.names} do not join at x = {meeting.at}: {'; '.join(sentences)}{place}. A RESCU is "
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


_MOST_TERMS, _MOST_PRODUCTS = 12, 100
Index = tuple[str, ...]
_VANISHING = (Sigmoid, NormalPdf, NormalCdf, SechSquared, MishGate, Softplus, sympy.exp, sympy.erfc)
_TAME = (*_VANISHING, Expm1, sympy.tanh, sympy.erf)


def guard(expr: Expr) -> Expr:
    """The same function, with every product of a gate and something that grows made safe far out."""
    return _Guarding().made(expr)


class _Guarding:
    """One formula's work. Equal parts are done once, and products of sums are written out while the budget lasts: they
    grow with the power of their number, and k sums of 12 terms would have 12^k.
    """

    def __init__(self) -> None:
        self._made: dict[Expr, Expr] = {}
        self._left = _MOST_PRODUCTS

    def made(self, expr: Expr) -> Expr:
        if not expr.args or not expr.has(x) or isinstance(expr, Line):
            return expr
        if expr not in self._made:
            self._made[expr] = self._product(expr) if isinstance(expr, Mul) else self._other(expr)
        return self._made[expr]

    def _other(self, expr: Expr) -> Expr:
        if isinstance(expr, Piecewise):
            return Piecewise(*((self.made(piece), when) for piece, when in expr.args), evaluate=False)
        return expr.func(*(self.made(arg) for arg in expr.args))

    def _product(self, expr: Expr) -> Expr:
        gates = [f for f in expr.args if _vanishes(f)]
        growing = [f for f in expr.args if f not in gates and f.has(x) and not isinstance(f, _TAME)]
        if not gates or not growing:
            return Mul(*(self.made(f) for f in expr.args))
        for factor in growing:
            if not isinstance(factor, Add) or factor.is_polynomial(x):
                continue
            if len(factor.args) <= min(_MOST_TERMS, self._left):
                # Terms that grow at different paces would be infinity less infinity: each gets the gate for itself.
                self._left -= len(factor.args)
                others = Mul(*(f for f in expr.args if f is not factor))
                return Add(*(self.made(others * term) for term in factor.args))
        rest = [self.made(f) for f in expr.args if f not in gates and f not in growing]
        return Mul(*rest, Line(Mul(*gates), Mul(*(_nested(self.made(f)) for f in growing))))


def _nested(factor: Expr) -> Expr:
    """A polynomial by Horner's rule: x^4 - 9 x^2 would be infinity less infinity."""
    return sympy.horner(factor, x) if isinstance(factor, Add) and factor.is_polynomial(x) else factor


def _vanishes(factor: Expr) -> bool:
    """Whether a factor can become 0 far out, faster than any power grows."""
    if isinstance(factor, Pow) and factor.exp.is_positive and factor.base != sympy.E:
        factor = factor.base
    return isinstance(factor, _VANISHING) and factor.has(x)


def guarded(
    name: str, formula: Expr, *, better: Callable[[Index], Expr | None] | None = None, **fields: Any
) -> Activation:
    """A definition whose value and derivatives of every order are computed in their guarded form.

    `better` is an engine's own form of a derivative, asked first; it answers None where it has none.
    """
    bare = Activation(f"{name}_unguarded", formula, params=fields.get("params", ()))
    return Activation(name, formula, stable=Guarded(bare, better), **fields)


@dataclass(eq=False)
class Guarded:
    """What is computed for the value and each derivative."""

    bare: Activation
    better: Callable[[Index], Expr | None] | None = None

    def __call__(self, index: Index) -> Expr:
        form = self.better(index) if self.better else None
        return guard(self.bare.partial(*index).bound_formula) if form is None else form


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
    arguments = Given("join", params)
    sides = arguments.function(left), arguments.function(right)
    a, b = (arguments.point(end) for end in between)
    if sign_of(b - a) <= 0:
        raise DefinitionError(f"join takes between=(a, b) with a below b, and {a} is not below {b}.")
    used = arguments.params_of(*sides, a, b)
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
        recipe=arguments.recipe(*sides, between=(a, b), smoothness=smoothness, fixed=fixed),
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
        ends = []
        for _ in range(self.order + 2):
            ends.append(neat(side.subs(x, at)))
            side = sympy.diff(side, x)
        return ends

    # -- the middle -----------------------------------------------------------------------------------

    def middle(self, place: Expr, rest: Expr, times: int = 0) -> Expr:
        """The polynomial, or its derivative of an order by x, in the place in the window and 1 minus it."""
        h, terms = self.width, []
        for data, polynomials in zip(self.ends, basis(self.order, self.fixed), strict=True):
            for j, polynomial in enumerate(derivative(polynomial, times) for polynomial in polynomials):
                if data[j] != 0:
                    terms.append(data[j] * h ** (j - times) * written(polynomial, place, rest))
        return Add(*terms)

    def anchored(self, place: Expr, rest: Expr, times: int) -> Expr:
        """The same between two fixed polynomials: near each end its own function, and what the other one changes.

        As a sum over both ends it would be b less (b - x) near the right one, at a window that is much wider than x.
        """
        first, second = basis(self.order, True)
        halves = []
        for own, other, at, polynomials in (
            (self.left, self.right, self.b, second),
            (self.right, self.left, self.a, first),
        ):
            changes = [neat(sympy.diff(other - own, x, j).subs(x, at)) for j in range(self.order + 1)]
            terms = [
                change * self.width ** (j - times) * written(derivative(polynomial, times), place, rest)
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
        for data, polynomials in zip(self.ends_by(symbol), basis(self.order, self.fixed), strict=True):
            for j, polynomial in enumerate(polynomials):
                terms.append(data[j] * h**j * written(polynomial, place, rest))
        for key, polynomials in moving_basis(self.order, self.fixed).items():
            data, move = first if key[0] == "L" else second, moves[key[1]]
            for j, polynomial in enumerate(polynomials):
                if data[j] != 0 and move != 0:
                    terms.append(move * data[j] * h ** (j - 1) * written(polynomial, place, rest))
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
            step = basis(self.order, False)[1][1]
            bend = neat(steep - gentle) * self.width * written(step, place, 1 - place)
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
        return sympy.expand(part) if slope is not None and slope.is_number else straight(part, at)

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
        symbols = [p.symbol for p in self.params if index == (p.name,)]
        return self.by(symbols[0]) if symbols else None

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


MOST_PIECES, SMOOTHEST_RESCU = 32, 8


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
    if not isinstance(smoothness, int) or isinstance(smoothness, bool) or not 1 <= smoothness <= SMOOTHEST_RESCU:
        raise DefinitionError(f"rescu takes a smoothness from 1 to {SMOOTHEST_RESCU}, and {smoothness!r} was given.")
    arguments = Given("rescu", params)
    functions, points = _read(pieces, arguments)
    used = arguments.params_of(*functions, *points)
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
        recipe=arguments.recipe(*zip(functions, points, strict=False), functions[-1], **options),
    )


def _read(pieces: Sequence[Any], arguments: Given) -> tuple[list[Expr], list[Expr]]:
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
    functions = [arguments.function(f) for f, _ in pairs]
    functions.append(arguments.function(last))
    points = [arguments.point(end) for _, end in pairs]
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
    for order in range(least + 1, SMOOTHEST_RESCU + 2):
        sides = [Meeting(a, b, s, "").sides(order) for a, b, s in zip(parts[:-1], parts[1:], seams, strict=True)]
        if any(refute(left, right, params) is not None for left, right in sides):
            return order - 1
        if not all(proved_zero(left - right) for left, right in sides):
            return None
    return None
