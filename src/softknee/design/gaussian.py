"""Means under the normal distribution, to about 1e-14, of functions that may bend sharply.

    E g(f(sqrt(q) Z)),        Z ~ N(0, 1)
    E (f(U) - f(V))^2,        U, V ~ N(0, q) with correlation 1 - e

The line is cut into panels, at the seams of f and then by halving until a polynomial of degree 15 gives f and its slope
on each panel (`resolve`): Gauss-Legendre quadrature is exact there, however sharp the knee. A Gauss-Hermite rule, which
knows nothing of the seams, is not: for ReLU with 200 nodes its 1 - c at depth 2000 is off by a factor of 48.

For two correlated inputs take U, V = m + d, m - d with independent m ~ N(0, q(1 - e/2)) and d ~ N(0, q e/2). For every
d the line of m is cut at the panels' ends moved by +d and -d, so both f(m + d) and f(m - d) are smooth in each part.
Where both lie in one panel much wider than d their difference is the integral of f' between them, which does not
cancel: the result is as exact for e = 1e-12 as for e = 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import DefinitionError, ParameterError
from .concrete import Concrete, Curve, concrete
from .quadrature import legendre_rule, legendre_values

NODES = 16
REACH = 14.0  # panels go to 14 standard deviations: U and V are m + d and m - d, each of which goes to FAR
FAR = 9.5  # phi(9.5) = 1e-20
TOLERANCE = 1e-13  # how well a panel's polynomial gives f and its slope, relative to their root mean squares
MOST_PANELS = 4000
_START = (0.0, 1.5, 3.0, 4.5, 6.5, FAR, REACH)
_OUTER = (0.0, 1.2, 3.0, 5.5, FAR)
_EPS = torch.finfo(torch.float64).eps


@functools.cache
def _to_coefficients() -> Tensor:
    """Values at the nodes times this are the coefficients of the polynomial through them."""
    nodes, weights = legendre_rule(NODES)
    return legendre_values(nodes, NODES) * weights[:, None] * (torch.arange(NODES) + 0.5)


@functools.cache
def _checks() -> tuple[Tensor, Tensor]:
    """Places in [-1, 1] where a panel's polynomial is held against f, and the matrix that gives it there.

    Ever nearer to both ends, because a knee a millionth wide hides there; and some between.
    """
    near = 2.0 ** -torch.arange(2, 52, dtype=torch.float64)
    places = torch.cat([-1 + near, 1 - near, torch.linspace(-0.5, 0.5, 6, dtype=torch.float64)])
    return places, (_to_coefficients() @ legendre_values(places, NODES).T)


@dataclass(frozen=True)
class Resolved:
    """A function under N(0, q), with the ends of the panels on which it is a polynomial to `TOLERANCE`."""

    f: Concrete
    q: float
    ends: Tensor

    def mean(self, g: Curve) -> float:
        """E g(X) for X ~ N(0, q), g being made of f and its slope."""
        nodes, weights = legendre_rule(NODES)
        low, high = self.ends[:-1, None], self.ends[1:, None]
        at = (low + high) / 2 + (high - low) / 2 * nodes
        parts = g(at) * _normal(at / math.sqrt(self.q)) * weights * (high - low) / 2
        return float(parts.sum()) / math.sqrt(self.q)

    @property
    def mean_square(self) -> float:
        """E f^2."""
        if self.f.two_lines is not None:
            return self.q * self.mean_square_slope
        return self.mean(lambda at: self.f.value(at) ** 2)

    @property
    def mean_square_slope(self) -> float:
        """E f'^2."""
        if self.f.two_lines is not None:
            left, right = self.f.two_lines
            return (left**2 + right**2) / 2
        return self.mean(lambda at: self.f.slope(at) ** 2)


def resolve(f: Concrete, q: float) -> Resolved:
    """Cut the line into panels on which the function and its slope are polynomials to 13 digits.

    >>> from softknee.design.concrete import concrete
    >>> from softknee.design.gaussian import resolve
    >>> round(resolve(concrete("gelu"), 1.0).mean_square, 10)
    0.4252214826
    """
    spread = math.sqrt(q)
    ends = sorted(
        {s * spread * z for z in _START for s in (-1, 1)} | {p for p in f.landmarks if abs(p) < REACH * spread}
    )
    waiting = torch.tensor(ends, dtype=torch.float64).unfold(0, 2, 1)
    coarse = Resolved(f, q, torch.tensor(ends, dtype=torch.float64))
    if f.two_lines is not None:
        return coarse
    scales = [math.sqrt(coarse.mean(lambda at, g=g: g(at) ** 2)) for g in (f.value, f.slope)]
    done, count = [], 0
    while len(waiting):
        count += len(waiting)
        if count > MOST_PANELS:
            raise DefinitionError(
                f"{f.name} is too rough to integrate: {MOST_PANELS} panels do not give it to {TOLERANCE:g}. An "
                f"activation here is made of finitely many smooth pieces."
            )
        good = _is_polynomial(f, q, waiting, scales)
        done.append(waiting[good])
        left = waiting[~good]
        middle = left.mean(dim=1, keepdim=True)
        waiting = torch.cat([torch.cat([left[:, :1], middle], 1), torch.cat([middle, left[:, 1:]], 1)])
    grid = torch.cat([torch.cat(done)[:, 0].sort().values, torch.tensor(ends[-1:], dtype=torch.float64)])
    return Resolved(_tabulated(f, grid) if f.costly else f, q, grid)


def _tabulated(f: Concrete, ends: Tensor) -> Concrete:
    """The function with its value and slope read from the polynomials of its panels."""
    middle, half = (ends[1:] + ends[:-1]) / 2, (ends[1:] - ends[:-1]) / 2

    def table(curve: Curve) -> Curve:
        parts = curve(middle[:, None] + half[:, None] * legendre_rule(NODES)[0]) @ _to_coefficients()

        def read(at: Tensor) -> Tensor:
            home = (torch.searchsorted(ends, at.contiguous()) - 1).clamp(0, len(parts) - 1)
            place = (at - middle[home]) / half[home]
            above, two_above = torch.zeros_like(place), torch.zeros_like(place)
            for n in range(NODES - 1, 0, -1):  # Clenshaw's sum
                factor = (2 * n + 1) / (n + 1) * place
                above, two_above = parts[:, n][home] + factor * above - (n + 1) / (n + 2) * two_above, above
            return parts[:, 0][home] + place * above - two_above / 2

        return read

    return replace(f, value=table(f.value), slope=table(f.slope), costly=False)


def _is_polynomial(f: Concrete, q: float, panels: Tensor, scales: list[float]) -> Tensor:
    """For each panel, whether a polynomial through the nodes gives the function and its slope."""
    nodes, _ = legendre_rule(NODES)
    places, extend = _checks()
    low, high = panels[:, :1], panels[:, 1:]
    half, middle = (high - low) / 2, (high + low) / 2
    at = middle + half * places
    # Measured from its own end, a place very near to it keeps its distance; on the end itself either side may answer.
    at = torch.where(
        places < -0.6, low + half * (places + 1), torch.where(places > 0.6, high - half * (1 - places), at)
    )
    size = torch.maximum(low.abs(), high.abs())
    seen = (at - low > 4 * _EPS * size) & (high - at > 4 * _EPS * size)
    weight = torch.exp(-(at**2) / (4 * q))
    # Halves of what is narrower than this would be lost in rounding and in every integral.
    good = (half <= 2.0**-50 * math.sqrt(q)).squeeze(1) | (half <= 64 * _EPS * size).squeeze(1)
    fine = torch.ones_like(good)
    for curve, scale in zip((f.value, f.slope), scales, strict=True):
        through, there = curve(middle + half * nodes), curve(at)
        if not bool(torch.isfinite(through).all() and torch.isfinite(there).all()):
            raise DefinitionError(f"{f.name} or its slope is not finite near x = {float(middle[0]):g}.")
        miss = (through @ extend - there).abs()
        # What rounding of x alone may do: a steep curve far from 0 is known no better.
        rise = through.amax(1, keepdim=True) - through.amin(1, keepdim=True)
        noise = 64 * _EPS * (size / half * rise + through.abs().amax(1, keepdim=True))
        fine &= (~seen | (miss <= TOLERANCE * scale / weight + noise)).all(dim=1)
    return good | fine


def mean_square_difference(on: Resolved, e: float) -> float:
    """E (f(U) - f(V))^2 for U, V ~ N(0, q) with correlation 1 - e, exact relative to its size for every e in (0, 2)."""
    if on.f.two_lines is not None:
        left, right = on.f.two_lines
        bend = (right - left) ** 2 / math.pi
        return on.q * ((left**2 + right**2) * e - bend * sine_minus(2 * math.asin(math.sqrt(e / 2))))
    spread_m, spread_d = math.sqrt(on.q * (1 - e / 2)), math.sqrt(on.q * e / 2)
    ends = on.ends
    if e > 1:  # the density of m is then narrower than the panels
        ends = torch.cat([ends, torch.tensor([s * spread_m * z for z in _START for s in (-1, 1)], dtype=torch.float64)])
        ends = ends.unique()
    # The mean over m has a kink of its own where two seams are 2d apart.
    seams = on.f.seams
    kinks = {(b - a) / 2 / spread_d for i, a in enumerate(seams) for b in seams[i + 1 :]}
    cuts = sorted({*_OUTER, *(k for k in kinks if 1e-6 < k < FAR)})
    return _integrate(
        lambda b: 2 * _normal(b) * _mean_over_middle(on.f, ends, spread_m, spread_d * b),
        torch.tensor(cuts, dtype=torch.float64).unfold(0, 2, 1),
    )


def sine_minus(angle: float) -> float:
    """sin a - a cos a, by its series where the two would cancel."""
    if angle > 0.5:
        return math.sin(angle) - angle * math.cos(angle)
    term, total = angle, 0.0
    for k in range(1, 12):
        term *= -(angle**2) / (2 * k * (2 * k + 1))
        total -= 2 * k * term
    return total


def _integrate(function: Curve, waiting: Tensor) -> float:
    """The integral over panels, halved until the last coefficients of each panel's polynomial are small."""
    nodes, weights = legendre_rule(NODES)
    total, rounds = 0.0, 0
    while len(waiting):
        half, middle = (waiting[:, 1:] - waiting[:, :1]) / 2, waiting.mean(dim=1, keepdim=True)
        values = function((middle + half * nodes).reshape(-1)).reshape(-1, NODES)
        parts = (values * weights * half).sum(1)
        tails = (values @ _to_coefficients())[:, -2:].abs().amax(1) * half.squeeze(1)
        whole = total + float(parts.sum())
        # The rule is exact to twice the degree that the tail is about, so its own error is far below the tail.
        good = (tails <= 1e-10 * whole) | (half.squeeze(1) < 1e-9)
        total += float(parts[good].sum())
        left, mid, rounds = waiting[~good], middle[~good], rounds + 1
        waiting = torch.cat([torch.cat([left[:, :1], mid], 1), torch.cat([mid, left[:, 1:]], 1)])
    return total


def _mean_over_middle(f: Concrete, ends: Tensor, spread: float, d: Tensor) -> Tensor:
    """E over m ~ N(0, spread^2) of (f(m + d) - f(m - d))^2, for each d."""
    nodes, weights = legendre_rule(NODES)
    cuts = torch.cat([ends + d[:, None], ends - d[:, None]], 1).clamp(-FAR * spread, FAR * spread).sort(dim=1).values
    low, high = cuts[:, :-1], cuts[:, 1:]
    row, column = torch.nonzero(high > low, as_tuple=True)
    low, high, d_of = low[row, column], high[row, column], d[row]
    half, middle = (high - low) / 2, (high + low) / 2
    home, other = (torch.searchsorted(ends, middle + s * d_of) for s in (1, -1))
    widths = torch.cat([ends.new_ones(1), (ends[1:] - ends[:-1]) / 2, ends.new_ones(1)])
    near = (d_of / widths[home]).masked_fill(home != other, math.inf)
    at = middle[:, None] + half[:, None] * nodes
    difference = torch.empty_like(at)
    # Far smaller than its panel, d leaves a polynomial of low degree between m - d and m + d.
    for count, which in ((4, near <= 1 / 64), (8, (near > 1 / 64) & (near <= 1 / 8)), (0, near > 1 / 8)):
        if bool(which.any()):
            difference[which] = _difference(f, at[which], d_of[which, None], count)
    parts = (difference**2 * _normal(at / spread) / spread * weights).sum(1) * half
    return torch.zeros_like(d).index_add_(0, row, parts)


def _difference(f: Concrete, at: Tensor, d: Tensor, count: int) -> Tensor:
    """f(m + d) - f(m - d), as the integral of the slope with so many nodes, or by subtraction with none."""
    if not count:
        return f.value(at + d) - f.value(at - d)
    nodes, weights = legendre_rule(count)
    return d * sum((w * f.slope(at + d * t) for t, w in zip(nodes.tolist(), weights.tolist(), strict=True)), 0 * at)


def _normal(z: Tensor) -> Tensor:
    return torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def init_gain(f: Any, *, q: float = 1.0, params: Mapping[str, Any] | None = None, **more: Any) -> float:
    """The gain g for which weights of variance g^2/fan_in keep pre-activations at variance q.

    f:      a name, a formula or a definition; its parameters follow by name (or in `params`, for one that is called q).
    q:      the variance to keep.

    Good to 1e-14; multiply it into an initialiser that keeps the variance of a linear layer:

    >>> import softknee as sk, torch
    >>> sk.design.init_gain("relu"), round(sk.design.init_gain("srelu", delta=0.5), 6)
    (1.4142135623730951, 1.41201)
    >>> layer = torch.nn.Linear(512, 512)
    >>> _ = torch.nn.init.normal_(layer.weight, std=sk.design.init_gain("gelu") / 512**0.5)
    """
    if isinstance(q, bool) or not (isinstance(q, int | float) and 0 < q < math.inf):
        raise ParameterError(f"q is the variance to keep, a finite number above 0, and {q!r} was given.")
    function = concrete(f, {**(params or {}), **more})
    if function.two_lines is not None and any(function.two_lines):
        left, right = function.two_lines
        return math.sqrt(2 / (left**2 + right**2))
    square = resolve(function, float(q)).mean_square
    if square == 0:
        raise ParameterError(f"{function.name} is 0 wherever N(0, {q:g}) is, and no gain brings its signal back.")
    return math.sqrt(q / square)
