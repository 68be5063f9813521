"""EAFO: the correction of an activation that lowers the entropy of its output (equation 5 of Sun et al., "A method on
searching better activation functions").

    f_new = f + eps c,    c = p' - p f''/f'

p is the density of the pre-activations. The paper moves the inverse y of f by eps eta, eta = -(p(y) y''/y' + p'(y) y');
c is the same step seen from f. Functions without an inverse are taken piece by piece: a function that folds (GELU, x^2)
on each side of its folds; a flat piece, whose output is one point, is left alone, or gets the correction of its
neighbour continued into it, as the paper does for ReLU below 0.

The sign. With ReLU and a normal density equation 5 gives eta = +x phi(x), so that c = -x phi(x); the paper prints the
other sign, and its CRReLU relu(x) + e x e^{-x^2/2} with e > 0 raises the entropy that it sets out to lower.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from sympy.core.expr import AtomicExpr
from torch import Tensor

from ...errors import DefinitionError, ParameterError, require_choice
from ...registry import holds
from ...spec import Activation, Expm1, Param, elementary, real, x
from ...spec.algebra import Expr, Float, Piecewise, Rational, oo, pi, sqrt, sympy
from ...spec.pieces import split
from ...spec.primitives import Primitive
from ..concrete import concrete
from ..evaluate import Curve, curve, definition_of
from ..quadrature import integrate, points
from . import densities
from .densities import Density, number
from .entropy import mean_of

# |(w c)'| <= STEEPEST |f'|: the corrected function is one-to-one wherever f is, for every |eps| below 1/STEEPEST.
STEEPEST = 10.0
_SMALL = 1e-12  # of the largest value counts as 0
_DEAD = 1e-200  # a slope below this has lost its digits
LEAST_FACTOR_OF = 1e9
_HOPELESS = "no eps worth having would keep f one-to-one: it is left as it is."


@dataclass(frozen=True)
class Piece:
    """A part of the line on which f is one-to-one (or flat), and its correction.

    low, high:  its ends, exact where a formula gives them.
    equation5:  c, as the paper's equation gives it; 0 on a flat piece.
    weight:     w.
    flat:       whether f is constant there.
    rising:     whether f rises there.
    inner:      the interval that is corrected, where that is not all of it.
    span:       the interval in which w c is computed; outside it, it is 0 or a pole's last digits.
    steepest:   the largest fall of w c in units of f': 1/steepest is the largest eps.
    exact:      whether nothing was found by number: no fold, no cut, no factor.
    notes:      what was done to it, in sentences.
    """

    low: Expr
    high: Expr
    equation5: Expr
    weight: Expr = sympy.S.One
    flat: bool = False
    rising: bool = True
    inner: tuple[Expr, Expr] = (-oo, oo)
    span: tuple[float, float] = (-math.inf, math.inf)
    steepest: float = 0.0
    exact: bool = True
    notes: tuple[str, ...] = ()

    @property
    def correction(self) -> Expr:
        return self.equation5 * self.weight

    def __str__(self) -> str:
        return f"({_short(self.low)}, {_short(self.high)})"


def pieces_of(act: Activation, values: Mapping[str, float], density: Density) -> tuple[Piece, ...]:
    """The pieces of a function under a density, from left to right, each with its correction."""
    exact = {p.symbol: number(values[p.name]) for p in act.params}
    whole = split(sympy.sympify(act.formula).subs(exact))
    ends = sorted({*whole.seams, *density.seams}, key=float)
    merged = [end for i, end in enumerate(ends) if i == 0 or float(end) > float(ends[i - 1])]
    pieces: list[Piece] = []
    for low, high in zip([-oo, *merged], [*merged, oo], strict=True):
        inside = _between(float(low), float(high))
        part = whole.parts[sum(float(seam) < inside for seam in whole.seams)]
        p = density.parts[sum(float(seam) < inside for seam in density.seams)]
        if p == 0 or float(high) <= density.reach[0] or float(low) >= density.reach[1]:
            continue
        pieces += _monotone(part, p, low, high, density)
    if all(piece.flat for piece in pieces):
        raise DefinitionError(f"{act.name} is flat wherever the density is not 0: there is no entropy to lower.")
    return tuple(pieces)


def _between(low: float, high: float) -> float:
    if math.isinf(low):
        return 0.0 if math.isinf(high) else high - 1
    return low + 1 if math.isinf(high) else (low + high) / 2


def _monotone(part: Expr, p: Expr, low: Expr, high: Expr, density: Density) -> list[Piece]:
    """The one-to-one pieces of a smooth part."""
    if not part.has(x):
        return [Piece(low, high, sympy.Integer(0), flat=True)]
    slope = sympy.diff(part, x)
    if not slope.has(x):
        zeros: list[float] = []
    else:
        zeros = _zeros(curve(slope), _sample_points(low, high, density))
    bounds = [low, *(Float(zero, 17) for zero in zeros), high]
    return [
        _corrected(part, p, a, b, density, found=(i > 0, i < len(zeros)))
        for i, (a, b) in enumerate(itertools.pairwise(bounds))
    ]


def _sample_points(low: Expr, high: Expr, density: Density) -> Tensor:
    ends = max(float(low), density.reach[0]), min(float(high), density.reach[1])
    return points(*ends, centre=density.centre, spread=density.spread)


def _zeros(slope: Curve, at: Tensor) -> list[float]:
    """Where a slope is 0 inside its part: it changes its sign there, or touches 0."""
    values = slope(at)
    # A slope that has died out in a tail is not a zero of it.
    alive = torch.nonzero(values.abs() > 1e-290).flatten()
    if len(alive) == 0:
        return []
    at, values = at[alive[0] : alive[-1] + 1], values[alive[0] : alive[-1] + 1]
    if not bool(values.isfinite().all()):
        raise DefinitionError("The slope of the function is infinite or undefined somewhere, so it has no correction.")
    zeros = at[values == 0].tolist()
    places, signs = at[values != 0], torch.sign(values[values != 0])
    for i in torch.nonzero(signs[1:] != signs[:-1]).flatten().tolist():
        a, b = float(places[i]), float(places[i + 1])
        if not any(a < zero < b for zero in zeros):
            zeros.append(_crossing(slope, a, b))
    size = values.abs()
    dips = torch.nonzero((size[1:-1] < size[:-2]) & (size[1:-1] < size[2:]) & (size[1:-1] > 0)).flatten() + 1
    for i in dips.tolist():
        a, b = float(at[i - 1]), float(at[i + 1])
        if not any(a <= zero <= b for zero in zeros) and (touch := _touch(slope, a, b)) is not None:
            zeros.append(touch)
    return sorted(zeros)


def _crossing(slope: Curve, low: float, high: float) -> float:
    rising = float(slope(torch.tensor([high], dtype=torch.float64))) > 0
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        above = float(slope(torch.tensor([middle], dtype=torch.float64))) > 0
        low, high = (low, middle) if above == rising else (middle, high)
    return (low + high) / 2


def _touch(slope: Curve, low: float, high: float) -> float | None:
    ends = slope(torch.tensor([low, high], dtype=torch.float64)).abs().max()
    for _ in range(60):
        at = torch.linspace(low, high, 9, dtype=torch.float64)
        best = int(slope(at).abs().argmin())
        low, high = float(at[max(best - 1, 0)]), float(at[min(best + 1, 8)])
    middle = (low + high) / 2
    return middle if float(slope(torch.tensor([middle], dtype=torch.float64)).abs()) < 1e-12 * float(ends) else None


# -- one piece --------------------------------------------------------------------------------------------


def _corrected(part: Expr, p: Expr, low: Expr, high: Expr, density: Density, *, found: tuple[bool, bool]) -> Piece:
    at = _sample_points(low, high, density)
    slope_curve = curve(sympy.diff(part, x))
    slope = slope_curve(at)
    rising = bool(slope[slope.abs().argmax()] > 0)
    raw = equation5(part, p, rising=rising)
    room = min(density.spread, float(at[-1] - at[0]) / 4)
    ends, notes = [low, high], []
    span = [max(float(low), density.reach[0]), min(float(high), density.reach[1])]
    weight: Expr = sympy.Integer(1)
    finite = [side for side in (0, 1) if math.isfinite(float(ends[side]))]
    folds = [side for side in finite if _is_fold(slope_curve, float(ends[side]), slope)]
    for side in folds:
        weight *= _taper(ends[side], room) ** 3
        span[side] += (1 - 2 * side) * 1e-3 * room
        notes.append(f"f' is 0 at x = {_short(ends[side])}, a pole of equation 5: the correction fades out there.")
    inside = at[(at > span[0]) & (at < span[1])]
    peak = float(curve(raw * weight)(inside).abs().nan_to_num(0.0).max())
    if peak <= _SMALL * float(curve(p)(at).max()) / density.spread:
        return Piece(low, high, sympy.Integer(0), rising=rising)
    for side in finite:
        if side not in folds and (value := _at_end(raw, float(ends[side]))) > _SMALL * peak:
            # The less there is to take away, the nearer to the end it is taken.
            weight *= _taper(ends[side], room * min(1.0, max(0.02, value / peak)))
            notes.append(f"equation 5 does not end with 0 at x = {_short(ends[side])}: the correction fades out there.")
    exact = not any(found)
    for side, cut in _runaway(raw * weight, slope_curve, inside, ends):
        ends[side], span[side], exact = Float(cut, 17), cut, False
        weight *= _taper(ends[side], room)
        tail = "below" if side == 0 else "above"
        notes.append(f"f' dies out faster than the density {tail} x = {cut:.6g}: f is left as it is from there on.")
    fall = _fall(raw * weight, slope_curve, at[(at > span[0]) & (at < span[1])])
    if (worst := float(fall.abs().max())) > STEEPEST:
        if worst > LEAST_FACTOR_OF * STEEPEST:
            return Piece(low, high, sympy.Integer(0), rising=rising, exact=False, notes=(_HOPELESS,))
        factor = Float(f"{0.99 * STEEPEST / worst:.3g}", 17)
        weight, fall, exact = weight * factor, fall * float(factor), False
        notes.append(f"the correction is taken {float(factor):.3g} times, so that eps up to 1/10 keeps f one-to-one.")
    steepest = max(float(fall.max()), 0.0)
    inner, spanned = (ends[0], ends[1]), (span[0], span[1])
    return Piece(low, high, raw, weight, False, rising, inner, spanned, steepest, exact, tuple(notes))


def equation5(part: Expr, p: Expr, *, rising: bool) -> Expr:
    """c = p' - p f''/f' where f rises, its opposite where f falls."""
    first = sympy.diff(part, x)
    bend = _ratio(sympy.diff(first, x), first)
    score = _ratio(sympy.diff(p, x), p)
    # A score without a denominator is shorter and does not cancel; otherwise p' is taken as it is.
    whole = p * (score - bend) if not sympy.fraction(score)[1].has(x) else sympy.diff(p, x) - p * bend
    return whole if rising else -whole


def _ratio(above: Expr, below: Expr) -> Expr:
    """A quotient with its common factors taken out."""
    if above.is_polynomial(x) and below.is_polynomial(x):
        return sympy.factor(above) / sympy.factor(below)
    # Full factoring of other expressions can take for ever.
    return sympy.factor_terms(above) / sympy.factor_terms(below)


def _taper(end: Expr, width: float) -> Expr:
    """1 - e^{-t^2/(2h^2)} in the distance t to an end: 0 with its slope there, and 1 from a few h on."""
    return -Expm1(-((x - end) ** 2) / (2 * Rational(f"{width:.3g}") ** 2))


def _is_fold(slope: Curve, end: float, seen: Tensor) -> bool:
    there = float(slope(torch.tensor([end], dtype=torch.float64)).abs())
    return not there > 1e-9 * float(seen.abs().max())  # a NaN counts as one


def _at_end(expr: Expr, end: float) -> float:
    value = float(curve(expr)(torch.tensor([end], dtype=torch.float64)).abs())
    return value if math.isfinite(value) else math.inf


def _fall(correction: Expr, slope: Curve, at: Tensor) -> Tensor:
    """-(w c)'/f': what eps takes from the slope, in units of the slope."""
    fall = -curve(sympy.diff(correction, x))(at) / slope(at)
    return torch.where(fall.isfinite(), fall, math.inf)


def _runaway(correction: Expr, slope: Curve, at: Tensor, ends: Sequence[Expr]) -> list[tuple[int, float]]:
    """The points beyond which, in an endless tail, the corrected function folds whatever eps is."""
    fall = _fall(correction, slope, at).abs()
    alive = slope(at).abs() > _DEAD
    middle = int(torch.where(alive, curve(correction)(at).abs().nan_to_num(0.0), 0.0).argmax())
    wild = torch.nonzero(fall > STEEPEST / 4).flatten()
    cuts = []
    for side, beyond in ((0, wild[wild < middle]), (1, wild[wild > middle])):
        # A passing peak of moderate height is a matter of a factor.
        if math.isinf(float(ends[side])) and len(beyond) and float(fall[beyond].max()) > 4 * STEEPEST:
            cuts.append((side, float(at[int(beyond[-1] if side == 0 else beyond[0])])))
    return cuts


# -- all pieces -------------------------------------------------------------------------------------------


def continued(pieces: Sequence[Piece], density: Density) -> tuple[Piece, ...]:
    """Flat pieces with the correction of the next piece continued into them, as the paper does below 0 for ReLU."""
    corrected = list(pieces)
    for i, piece in enumerate(pieces):
        neighbours = [pieces[j] for j in (i + 1, i - 1) if 0 <= j < len(pieces) and pieces[j].equation5 != 0]
        if piece.flat and neighbours:
            span = max(float(piece.low), density.reach[0]), min(float(piece.high), density.reach[1])
            corrected[i] = replace(
                piece,
                equation5=neighbours[0].equation5,
                weight=neighbours[0].weight,
                inner=(piece.low, piece.high),
                span=span,
            )
    return tuple(corrected)


def textbook(pieces: Sequence[Piece], order: int = 0) -> Expr:
    """The correction, or a derivative of it, as one expression with its exact ends."""
    return _chain([(piece.inner, _derivative(piece.correction, order)) for piece in pieces if piece.equation5 != 0])


def computed(pieces: Sequence[Piece], order: int) -> Expr:
    """A derivative of the correction as it is computed: 0 outside each span, so that no tail is 0 times infinity."""
    return _chain([(piece.span, _derivative(piece.correction, order)) for piece in pieces if piece.equation5 != 0])


def _derivative(expr: Expr, order: int) -> Expr:
    for _ in range(order):
        expr = sympy.diff(expr, x, simplify=False)  # simplifying costs far more than it shortens
    return expr


def _chain(parts: Sequence[tuple[tuple[Any, Any], Expr]]) -> Expr:
    """Expressions on disjoint intervals from left to right as one, 0 between them; equal neighbours are joined."""
    joined: list[tuple[Any, Any, Expr]] = []
    for (low, high), expr in parts:
        if joined and float(joined[-1][1]) == float(low) and joined[-1][2] == expr:
            joined[-1] = (joined[-1][0], high, expr)
        else:
            joined.append((low, high, expr))
    if not joined:
        return sympy.Integer(0)
    pairs: list[tuple[Expr, Any]] = []
    reached = -math.inf
    for low, high, expr in joined:
        if float(low) > reached:
            pairs.append((sympy.Integer(0), x <= _exact(low)))
        pairs.append((expr, x <= _exact(high)) if float(high) < math.inf else (expr, True))
        reached = float(high)
    if reached < math.inf:
        pairs.append((sympy.Integer(0), True))
    return pairs[0][0] if len(pairs) == 1 else Piecewise(*pairs, evaluate=False)


def _exact(end: Any) -> Expr:
    return Float(end, 17) if isinstance(end, float) else end


def _short(end: Expr) -> str:
    value = float(end)
    return f"{value:.6g}" if math.isfinite(value) else ("-inf" if value < 0 else "inf")


FLAT = ("leave", "continue")
SMALL_STEP = 0.01
SHORT = 40  # operations


@dataclass(frozen=True, eq=False, repr=False)
class Eafo:
    """What `eafo` found.

    activation: the corrected definition, with the parameter `eps` (learnable; f itself at 0).
    correction: c times its weight, an expression in x: the activation is f + eps * correction.
    predicted:  the change of the output's entropy by the first variation, in nats, at `eps`.
    measured:   the change there is, E log|f_new'/f'|, given that x lies in a piece that is not flat.
    mass:       the probability of those pieces.
    symbolic:   whether `correction` is equation 5 itself: no fitted density, no point or factor found by number.
    largest:    up to this eps the activation is one-to-one wherever f is.
    pieces:     the pieces, with what was done to each.
    """

    source: Activation
    density: Density
    activation: Activation
    correction: Expr
    eps: float
    predicted: float
    measured: float
    mass: float
    largest: float
    symbolic: bool
    pieces: tuple[Piece, ...]
    values: Mapping[str, float]

    def change(self, eps: float) -> float:
        """The measured change of the entropy at another eps, in nats."""
        measured = _measured(self.source, self.values, self.density, self.pieces, _size(eps, self.largest))[0]
        if math.isnan(measured):
            raise _folds(eps)
        return measured

    @property
    def crrelu(self) -> Expr | None:
        """The parameter of CRReLU with this correction above 0, -eps/sqrt(2 pi); None for another f or density."""
        same = self.source.name == "relu" and self.density.name == "normal"
        return -sympy.Rational(str(self.eps)) / sqrt(2 * pi) if same else None

    def __repr__(self) -> str:
        return f"<{self.activation.name} under {_the(self.density)}: {self.measured:+.4g} nats at eps = {self.eps:g}>"

    def __str__(self) -> str:
        lines = [
            f"{self.activation.name}: {self.source.name} + eps * correction, under {_the(self.density)}",
            f"  correction  {self.correction}",
            f"  entropy     predicted {self.predicted:+.6g}, measured {self.measured:+.6g} nats at eps = {self.eps:g}",
        ]
        if self.mass < 1 - 1e-9:
            lines.append(
                f"              given that x lies in the pieces that are not flat (probability {self.mass:.6g})"
            )
        lines.append(f"  one-to-one  wherever {self.source.name} is, for eps up to {self.largest:.3g}")
        for piece in self.pieces:
            lines += [f"  on {piece}  {note}" for note in piece.notes]
            if piece.flat:
                done = "f is flat: left as it is" if piece.equation5 == 0 else "f is flat: the correction is continued"
                lines.append(f"  on {piece}  {done}.")
            elif piece.equation5 == 0 and not piece.notes:
                lines.append(f"  on {piece}  equation 5 gives 0: f is the worst function of this density there.")
        if self.density.fit is not None:
            lines.append(f"  the density differs from the samples by at most {self.density.fit:.2g} in probability")
        if (e := self.crrelu) is not None:
            lines += [
                "  CRReLU, the paper's version, is relu(x) + e x exp(-x^2/2) on both sides of 0; above 0 this is",
                f"  e = -eps/sqrt(2 pi) = {float(e):.6g}. The paper prints the other sign: e > 0 raises the entropy.",
            ]
        return "\n".join(lines)


def _the(density: Density) -> str:
    return f"the {density.name} density" if density.name in densities.NAMED else density.name


def eafo(
    f: str | Activation | Expr,
    density: Any = "normal",
    *,
    eps: float | None = None,
    flat: str = "leave",
    name: str | None = None,
    **params: Any,
) -> Eafo:
    """The correction of equation 5 for an activation and a density of its pre-activations.

    Args:
        f: a name, a definition, or a formula in x.
        density: "normal", "laplace", "logistic", "uniform", a formula in x, samples (a tensor, an array or a list), or
            a density such as `design.normal(mean=1, scale=2)`.
        eps: the start of the learnable size of the correction; 0.01, or less where that would fold f.
        flat: "leave" flat pieces as they are, or "continue" their neighbour's correction into them, as CRReLU does.
        name: what to call the result.
        params: the parameters of f that the correction is made for; in the result they remain parameters of f.

    >>> import softknee as sk
    >>> found = sk.design.eafo("softplus")
    >>> found.correction
    (-x - Sigmoid(-x))*NormalPdf(x)
    >>> found.measured < 0, found.symbolic
    (True, True)

    Reference: the EAFO paper, sections 2.3 and 2.4 and appendix F.
    """
    require_choice("eafo", "flat", flat, FLAT)
    act = definition_of(f, needed_by="eafo")
    if act.implicit is not None:
        raise DefinitionError(f"{act.name} is given by its inverse; eafo needs a formula in x.")
    if act.index:
        raise DefinitionError(f"{act.name} is a derivative; eafo takes the function itself.")
    values = concrete(act, params).params
    distribution = densities.read(density)
    pieces = pieces_of(act, values, distribution)
    if flat == "continue":
        pieces = continued(pieces, distribution)
    steepest = max(piece.steepest for piece in pieces)
    largest = 1 / steepest if steepest > 0 else math.inf
    size = _size(eps, largest)
    plain = not params and eps is None and flat == "leave" and distribution.name.partition("(")[0] in densities.NAMED
    recipe = (
        f"eafo({act.recipe or act.name}, density={distribution.name})" if plain and (act.recipe or holds(act)) else ""
    )
    corrected = _definition(act, values, pieces, size, name or f"{act.name}_eafo", recipe)
    measured, mass = _measured(act, values, distribution, pieces, size)
    if math.isnan(measured):
        raise _folds(size)
    return Eafo(
        source=act,
        density=distribution,
        activation=corrected,
        correction=textbook(pieces),
        eps=size,
        predicted=size * _variation(act, values, distribution, pieces) / mass,
        measured=measured,
        mass=mass,
        largest=largest,
        symbolic=distribution.samples is None and all(piece.exact for piece in pieces),
        pieces=pieces,
        values=values,
    )


def _folds(eps: float) -> ParameterError:
    return ParameterError(f"eafo: eps = {eps:g} folds the function; take one nearer to 0.")


def _size(eps: float | None, largest: float) -> float:
    if eps is None:
        return min(SMALL_STEP, float(f"{largest / 4:.1g}"))
    if isinstance(eps, bool) or not isinstance(eps, int | float) or not math.isfinite(eps):
        raise ParameterError(f"eafo: eps must be a finite number, and {eps!r} was given.")
    if eps >= largest:
        raise ParameterError(f"eafo: eps = {eps:g} would fold the function; it must stay below {largest:.4g}.")
    return float(eps)


# -- the corrected definition -----------------------------------------------------------------------------


@dataclass(eq=False)
class _Sums:
    """What is computed for each derivative: that of f as f has it, and that of eps c beside it."""

    act: Activation
    pieces: tuple[Piece, ...]
    eps: Param

    def __call__(self, index: tuple[str, ...]) -> Expr:
        others = [item for item in index if item != self.eps.name]
        by_eps = len(index) - len(others)
        alone = all(other == "x" for other in others)
        own = computed(self.pieces, len(others)) if alone and by_eps < 2 else sympy.Integer(0)
        return own if by_eps else self.act.partial(*others).computed + self.eps.symbol * own


class _Sealed(AtomicExpr):
    """A function of one number that SymPy cannot look into: whatever walks through expressions stops here."""

    __slots__ = ("inside", "order")

    def __new__(cls, inside: Expr, order: int = 0) -> Expr:
        made = AtomicExpr.__new__(cls)
        made.inside, made.order = inside, order
        return made

    def _hashable_content(self) -> tuple[Any, ...]:
        return self.inside, self.order

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.inside, self.order

    def _sympystr(self, printer: Any) -> str:
        return f"correction{self.order}"

    def expression(self) -> Expr:
        (bound,) = self.inside.variables
        derivative = self.inside.expr
        for _ in range(self.order):
            derivative = sympy.diff(derivative, bound, simplify=False)
        return sympy.Lambda(bound, derivative)


class _Unopened(Primitive):
    """A long correction under one name. What is computed comes from `_Sums`; the algebra of definitions, which tidies
    every derivative, would look for factors inside it for minutes."""

    nargs = 2

    @classmethod
    def elementary(cls, at: Expr, sealed: Expr) -> Expr:
        return elementary(sealed.expression()(at))

    def fdiff(self, argindex: int = 1) -> Expr:
        at, sealed = self.args
        return _Unopened(at, _Sealed(sealed.inside, sealed.order + 1))

    def _eval_is_extended_real(self) -> bool | None:
        return True

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        at, sealed = self.args
        text = printer._print(sealed.expression()(at))
        return rf"\left({text}\right)^{{{exp}}}" if exp else text


def _definition(
    act: Activation, values: Mapping[str, float], pieces: tuple[Piece, ...], size: float, name: str, recipe: str
) -> Activation:
    taken = {p.name for p in act.params}
    eps = real("eps" if "eps" not in taken else "eps_eafo", size, "size of the correction")
    term = textbook(pieces)
    inside = sympy.Symbol("t", real=True)
    plain = term.count_ops() <= SHORT and all(piece.weight == 1 for piece in pieces)
    short = term if plain else _Unopened(x, _Sealed(sympy.Lambda(inside, term.xreplace({x: inside}))))
    known = holds(act)
    return Activation(
        name,
        act.formula + eps.symbol * term,
        params=(*(replace(p, default=values[p.name], learned_default=None) for p in act.params), eps),
        inner=act.inner,
        worked=act.bound_formula + eps.symbol * short,
        stable=_Sums(act, pieces, eps),
        knob=eps.name,
        limit=act.name if known else None,
        limit_params={p.name: p.name for p in act.params} if known else {},
        recipe=recipe,
        about=f"{act.name} with the entropy-lowering correction of the EAFO paper's equation 5.",
    )


# -- entropies --------------------------------------------------------------------------------------------


def _measured(
    act: Activation, values: Mapping[str, float], density: Density, pieces: tuple[Piece, ...], size: float
) -> tuple[float, float]:
    """E log|f_new'/f'| over the pieces that are not flat, and their probability."""
    old, added = concrete(act, values).slope, curve(computed(pieces, 1))

    def gain(at: Tensor) -> Tensor:
        return torch.log1p(size * added(at) / old(at))

    total = mass = 0.0
    for piece in pieces:
        if piece.flat:
            continue
        share = density.mass(float(piece.low), float(piece.high))
        if density.samples is not None:
            share = mean_of(gain, density, float(piece.low), float(piece.high), sure=True)[1]
        low, high = (float(end) for end in piece.span)
        if piece.equation5 != 0:
            mean, inside = mean_of(gain, density, low, high, sure=True)
            total += mean * inside
        mass += share
    return (total / mass if mass else 0.0), mass


def _variation(act: Activation, values: Mapping[str, float], density: Density, pieces: tuple[Piece, ...]) -> float:
    """The first variation along the correction: minus the integral of w c^2/|f'| over the pieces that are not flat."""
    slope = concrete(act, values).slope
    total = 0.0
    for piece in pieces:
        if piece.flat or piece.equation5 == 0:
            continue
        c, w = curve(piece.equation5), curve(piece.weight)
        total -= integrate(lambda at, c=c, w=w: w(at) * c(at) ** 2 / slope(at).abs(), density.edges(*piece.span))
    return total
