r"""The edge of chaos: the variances of weights and biases at which two inputs neither merge nor part exponentially.

In a wide network with weights of variance s/n (n inputs per neuron) and biases of variance b the pre-activations are
normal, and

    q'  =  s E f(X)^2 + b,        X ~ N(0, q)                             (their variance, layer by layer)
    c'  =  (s E f(U) f(V) + b)/q, U, V ~ N(0, q) of correlation c          (the correlation of two inputs)

and dc'/dc at c = 1 is s E f'(X)^2. The edge keeps q and has that slope 1: s = 1/E f'^2 and b = q - s E f^2. Since b is
a variance there is none where E f^2 > q E f'^2.

A ReLU smoothed with a symmetric kernel never has one. Write f(x) = E (x - S)_+ and f'(x) = P(S < x), S drawn from the
kernel. Then at q = 1, with T another draw, Z ~ N(0, 1) and L(t) = E (Z - t)_+ > 0, integration by parts gives

    E f^2 - E f'^2  =  E [ -min(S, T) L(max(S, T)) ]  =  E [ max(S, T) L(-min(S, T)) - min(S, T) L(max(S, T)) ] / 2,

the second by symmetry, and what stands in the brackets is positive for every a = min <= b = max: if a <= 0 <= b both
terms are; else use L(-t) = L(t) + t and that L falls. Other q are the same with another width.

Near c = 1 the map is c' = 1 - e + a e^(3/2) with e = 1 - c where the slope of f jumps by J at places k,
a = 2 s/(3 sqrt(pi)) sum J^2 phi(k/sqrt(q)), and so e ~ 4/(a^2 l^2) at depth l (9 pi^2/2 l^-2 for ReLU). Where no slope
jumps it is 1 - e + s q E f''^2 e^2/2, and e ~ 2/(s q E f''^2)/l. (Poole et al. 2016; Schoenholz et al. 2017; the two
laws: Hayou, Doucet and Rousseau 2019.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..design.concrete import Concrete
from ..design.gaussian import Resolved, resolve
from ..errors import DefinitionError

SEARCHED = tuple(sorted((10 ** (k / 4) for k in range(-16, 17)), key=lambda q: abs(math.log(q))))
"""Variances at which an edge is looked for when none is asked for: from 1e-4 to 1e4, those near 1 first."""
_UNDECIDED = 1e-13  # the integrals are good to 1e-14: what is nearer to 0 has no sign


@dataclass(frozen=True)
class Edge:
    """An edge of chaos.

    q:                 the variance of the pre-activations, kept from layer to layer.
    weight_variance:   of the weights, times the number of inputs.
    bias_variance:     of the biases.
    variance_slope:    dq'/dq: below 1 a disturbed variance returns to q, above 1 it runs away, slowly or not.
    limit_exponent:    1 - c goes like depth to this power: -2 where a slope jumps, -1 where none does, 0 for a line.
    limit_coefficient: what (1 - c) depth^-limit_exponent tends to; None for a line, whose 1 - c stays.
    """

    q: float
    weight_variance: float
    bias_variance: float
    variance_slope: float
    limit_exponent: int
    limit_coefficient: float | None


@dataclass(frozen=True)
class NoEdge:
    """There is none, and why."""

    why: str


def find_edge(f: Concrete, *, q: float | None = None) -> Edge | NoEdge:
    """The edge of chaos at a variance; without one, at 1 or at the nearest of `SEARCHED` that has an edge.

    >>> from softknee.design.concrete import concrete
    >>> from softknee.measure.edge import find_edge
    >>> edge = find_edge(concrete("relu"))
    >>> edge.weight_variance, edge.bias_variance
    (2.0, 0.0)
    """
    refuse_jumps(f)
    if q is not None:
        edge = _edge_at(resolve(f, q))
        if isinstance(edge, Edge):
            return edge
        if isinstance(other := find_edge(f), Edge):
            return NoEdge(f"{f.name} has no edge of chaos at this variance: {edge}; it has one at q = {other.q:g}.")
        return other
    reasons = []
    for variance in SEARCHED:
        edge = _edge_at(resolve(f, variance))
        if isinstance(edge, Edge):
            return edge
        reasons.append(edge)
    proof = (
        " It is a ReLU smoothed with a symmetric kernel, for which that is so at every variance."
        if is_symmetrically_smoothed_relu(f)
        else ""
    )
    return NoEdge(
        f"{f.name} has no edge of chaos at any of {len(SEARCHED)} variances q from {min(SEARCHED):g} to "
        f"{max(SEARCHED):g}: {next((reason for reason in reasons if '>' in reason), reasons[0])}.{proof}"
    )


def refuse_jumps(f: Concrete) -> None:
    """A function that jumps has no mean-field slope: two inputs part there however near they are."""
    for place, size in f.value_jumps().items():
        raise DefinitionError(
            f"{f.name} jumps by {size:.3g} at x = {place:g}, so the correlation of two inputs has no slope at 1. Take "
            f"a continuous function; of squaf the full sum, window=None."
        )


def _edge_at(on: Resolved) -> Edge | str:
    """The edge at this variance, or why there is none."""
    square, slopes = on.mean_square, on.mean_square_slope
    if slopes == 0:
        return f"its slope is 0 wherever N(0, {on.q:g}) is, so no weights keep two inputs apart"
    weights = 1 / slopes
    biases = 0.0 if on.f.two_lines else on.q - weights * square
    if abs(biases) <= _UNDECIDED * on.q and not on.f.two_lines:
        return f"at q = {on.q:g} the bias variance would be 0 to 13 digits, and its sign is not known"
    if biases < 0:
        return (
            f"E f^2 > q E f'^2 would need a negative bias variance (at q = {on.q:g}, {square:.6g} > "
            f"{on.q * slopes:.6g} and the bias variance {biases:.6g})"
        )
    moves = 1.0 if on.f.two_lines else weights * on.mean(lambda at: at * on.f.value(at) * on.f.slope(at)) / on.q
    return Edge(on.q, weights, biases, moves, *_limit_law(on, weights))


def _limit_law(on: Resolved, weights: float) -> tuple[int, float | None]:
    jumps = on.f.slope_jumps()
    if jumps:
        density = sum(j**2 * math.exp(-(k**2) / (2 * on.q)) for k, j in jumps.items()) / math.sqrt(2 * math.pi)
        a = 2 * weights * density / (3 * math.sqrt(math.pi))
        return -2, 4 / a**2
    bends = 0.0 if on.f.two_lines else on.mean(lambda at: on.f.bend(at) ** 2)
    return (-1, 2 / (weights * on.q * bends)) if bends else (0, None)


def is_symmetrically_smoothed_relu(f: Concrete) -> bool:
    """Whether f is convex, f(x) - f(-x) = x, and f is 0 far to the left, as far as 800 points can tell."""
    sizes = torch.logspace(-6, 9, 400, dtype=torch.float64)
    if f.two_lines:
        return False
    right, left = f.value(sizes), f.value(-sizes)
    slopes = f.slope(torch.cat([-sizes.flip(0), sizes]))
    even = (right - left - sizes).abs() <= 1e-14 * (right.abs() + left.abs() + sizes)
    convex = (slopes.diff() >= -1e-13).all()
    return bool(even.all() and convex and left[-1] == 0 and slopes[0] == 0)
