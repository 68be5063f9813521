r"""EAFO: the correction of an activation that lowers the entropy of its output (equation 5 of Sun et al., "A method on
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

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from sympy.core.expr import AtomicExpr
from torch import Tensor

from ...errors import DefinitionError, ParameterError
from ...registry import get, names
from ...spec import Activation, Param, elementary, real, x
from ...spec.algebra import Expr, pi, sqrt, sympy
from ...spec.primitives import Primitive
from ..evaluate import curve
from ..quadrature import integrate
from ..source import definition_of
from . import densities
from .correction import Piece, computed, continued, pieces_of, textbook
from .densities import Density
from .entropy import mean_of, param_values, slope_of

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
        found = _measured(self.source, self.values, self.density, self.pieces, _size(eps, self.largest))[0]
        if math.isnan(found):
            raise _folds(eps)
        return found

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
    if flat not in FLAT:
        raise ParameterError(f"eafo: flat is one of {', '.join(map(repr, FLAT))}, and {flat!r} was given.")
    act = definition_of(f, needed_by="eafo")
    if act.implicit is not None:
        raise DefinitionError(f"{act.name} is given by its inverse; eafo needs a formula in x.")
    if act.index:
        raise DefinitionError(f"{act.name} is a derivative; eafo takes the function itself.")
    values = param_values(act, params)
    given = densities.read(density)
    pieces = pieces_of(act, values, given)
    if flat == "continue":
        pieces = continued(pieces, given)
    steepest = max(piece.steepest for piece in pieces)
    largest = 1 / steepest if steepest > 0 else math.inf
    size = _size(eps, largest)
    plain = not params and eps is None and flat == "leave" and given.name in densities.NAMED
    recipe = f"eafo({act.recipe or act.name}, density={given.name})" if plain and _can_be_named(act) else ""
    corrected = _definition(act, values, pieces, size, name or f"{act.name}_eafo", recipe)
    measured, mass = _measured(act, values, given, pieces, size)
    if math.isnan(measured):
        raise _folds(size)
    return Eafo(
        source=act,
        density=given,
        activation=corrected,
        correction=textbook(pieces),
        eps=size,
        predicted=size * _variation(act, values, given, pieces) / mass,
        measured=measured,
        mass=mass,
        largest=largest,
        symbolic=given.samples is None and all(piece.exact for piece in pieces),
        pieces=pieces,
        values=values,
    )


def _can_be_named(act: Activation) -> bool:
    """Whether a text can say which function is meant."""
    return bool(act.recipe) or (act.name in names() and get(act.name) is act)


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


@dataclass(frozen=True, eq=False)
class _Sums(Mapping[tuple[str, ...], Expr]):
    """What is computed for each derivative: that of f as f has it, and that of eps c beside it."""

    act: Activation
    pieces: tuple[Piece, ...]
    eps: Param
    _made: dict[tuple[str, ...], Expr] = field(default_factory=dict)

    def __getitem__(self, index: tuple[str, ...]) -> Expr:
        if index not in self._made:
            self._made[index] = self._sum(index)
        return self._made[index]

    def _sum(self, index: tuple[str, ...]) -> Expr:
        others = [one for one in index if one != self.eps.name]
        by_eps = len(index) - len(others)
        alone = all(one == "x" for one in others)
        own = computed(self.pieces, len(others)) if alone and by_eps < 2 else sympy.Integer(0)
        return own if by_eps else self.act.partial(*others).computed + self.eps.symbol * own

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


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
        found = self.inside.expr
        for _ in range(self.order):
            found = sympy.diff(found, bound, simplify=False)
        return sympy.Lambda(bound, found)


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
    known = act.name in names() and get(act.name) is act
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
    old, added = slope_of(act, values), curve(computed(pieces, 1))

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
    slope = slope_of(act, values)
    total = 0.0
    for piece in pieces:
        if piece.flat or piece.equation5 == 0:
            continue
        c, w = curve(piece.equation5), curve(piece.weight)
        total -= integrate(lambda at, c=c, w=w: w(at) * c(at) ** 2 / slope(at).abs(), density.edges(*piece.span))
    return total
