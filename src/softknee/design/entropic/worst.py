r"""The worst function between two bounds: the one whose output has the largest entropy.

    f = low + (high - low) P(x),    P the distribution function of the pre-activations

Its output is uniform on (low, high), with entropy log(high - low); every other monotone function between the bounds has
less (the EAFO paper's WAFBC, equation 10). A uniform density gives a line, a logistic one the sigmoid. There is no best
function: mere scaling lowers the entropy without end.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor

from ...errors import ParameterError
from ...spec import Activation, Claims, x
from ...spec.algebra import Expr, Float, Piecewise, sympy
from ...spec.precision import to_digits
from ...spec.primitives import Primitive
from ...spec.printers import TORCH
from ..evaluate import curve
from ..quadrature import outwards, panels
from . import densities
from .densities import Density, number, piecewise

KNOTS = 32
_SMOOTHNESS = {"normal": math.inf, "logistic": math.inf, "laplace": 1, "uniform": 0}


def worst(density: Any = "normal", low: float = 0.0, high: float = 1.0, *, name: str | None = None) -> Activation:
    """The monotone function from low to high whose output has the largest entropy, for pre-activations of that density.

    Args:
        density: as in `eafo`. For a formula without an antiderivative in closed form, and for samples, the distribution
            function is a monotone cubic spline.
        low, high: the bounds.
        name: what to call the result.

    >>> import softknee as sk
    >>> sk.design.worst("logistic", -1, 1).formula
    2*Sigmoid(x) - 1
    >>> sk.design.worst("uniform", 0, 3).formula                # a line on (-1, 1)
    3*Unit(x/2 + 1/2)

    Reference: the EAFO paper, section 2.2 and appendix D.
    """
    given = densities.read(density)
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
            raise ParameterError(f"worst: a bound must be a finite number, and {bound!r} was given.")
    if not low < high:
        raise ParameterError(f"worst: low must lie below high, and {low} and {high} were given.")
    cdf = given.cdf if given.cdf is not None else _closed(given)
    if cdf is None:
        cdf = _spline(*(_of_samples(given.samples) if given.samples is not None else _of_formula(given)))
    rise = number(high) - number(low)
    return Activation(
        name or "worst",
        number(low) + rise * cdf,
        claims=_claims(given, rise),
        about=f"The function of largest output entropy between {low:g} and {high:g} for {given}.",
    )


def _claims(density: Density, rise: Expr) -> Claims | None:
    family = density.name.partition("(")[0]
    if family not in _SMOOTHNESS:
        return None
    middle = sympy.nsimplify(density.centre)
    peak = sympy.simplify(density.parts[1 if family == "uniform" else 0].subs(x, middle))
    return Claims(_SMOOTHNESS[family], True, rise * peak)


# -- distribution functions -------------------------------------------------------------------------------


def _closed(density: Density) -> Expr | None:
    """The distribution function by an antiderivative of each piece, where there is a simple one that computes well."""
    if density.samples is not None:
        return None
    parts: list[Expr] = []
    reached: Expr = sympy.Integer(0)
    ends = [None, *density.seams, None]
    for part, low, high in zip(density.parts, ends[:-1], ends[1:], strict=True):
        if part.count_ops() > 12 or part.has(Primitive):
            return None
        inner = sympy.integrate(part, x, manual=True)
        if inner.has(sympy.Integral) or not all(node.func in TORCH.functions for node in inner.atoms(sympy.Function)):
            return None
        start = sympy.limit(inner, x, -sympy.oo) if low is None else inner.subs(x, low)
        whole = reached + inner - start
        if not start.is_finite:
            return None
        parts.append(whole)
        reached = whole.subs(x, high) if high is not None else reached
    made = piecewise(
        density.seams,
        [part.replace(lambda e: e.is_number and e.has(Float), lambda e: to_digits(e, 17)) for part in parts],
    )
    return made if _agrees(made, density) else None


def _agrees(cdf: Expr, density: Density) -> bool:
    low, high, masses = panels(density.pdf, density.edges())
    at = torch.cat([low[:1], high])
    truth = torch.cat([torch.zeros(1, dtype=at.dtype), torch.cumsum(masses, 0)])
    found = curve(cdf)(torch.cat([at, torch.tensor([-math.inf, math.inf], dtype=at.dtype)]))
    ends = torch.cat([truth, torch.tensor([0.0, 1.0], dtype=at.dtype)])
    return bool(((found - ends).abs() < 1e-8).all())


def _of_formula(density: Density) -> tuple[Tensor, Tensor, Tensor]:
    """Knots, the distribution function there, and its slope, the density."""
    low, high, masses = panels(density.pdf, density.edges())
    total = torch.cumsum(masses, 0) / masses.sum()
    inside = (total > 1e-9) & (total < 1 - 1e-9)
    ends = max(float(low[inside][0]), density.reach[0]), min(float(high[inside][-1]), density.reach[1])
    knots = outwards(*ends, KNOTS, centre=density.centre, spread=4 * density.spread)
    seams = torch.tensor([s for s in map(float, density.seams) if ends[0] < s < ends[1]], dtype=torch.float64)
    knots = torch.unique(torch.cat([knots, seams]))
    steps = torch.stack([panels(density.pdf, knots[i : i + 2])[2].sum() for i in range(len(knots) - 1)])
    before = density.mass(-math.inf, float(knots[0]))
    values = (before + torch.cat([torch.zeros(1, dtype=torch.float64), torch.cumsum(steps, 0)])).clamp(0, 1)
    slopes = density.pdf(knots)
    return _ended(knots, values, slopes)


def _of_samples(samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Knots at quantiles, with the slopes of a monotone cubic spline (Fritsch and Butland 1984)."""
    seen = samples.cpu()
    rank = torch.linspace(0, len(seen) - 1, KNOTS, dtype=torch.float64).round().long()
    knots, place = torch.unique(seen[rank], return_inverse=True)
    # Where several ranks are one number the highest counts: the share of samples up to it.
    values = torch.zeros(len(knots), dtype=torch.float64).scatter_reduce(
        0, place, rank.double() / (len(seen) - 1), "amax"
    )
    values[0] = 0.0
    gap, rise = knots[1:] - knots[:-1], (values[1:] - values[:-1]) / (knots[1:] - knots[:-1])
    slopes = torch.zeros_like(knots)
    a, b = 2 * gap[1:] + gap[:-1], gap[1:] + 2 * gap[:-1]
    slopes[1:-1] = (a + b) / (a / rise[:-1] + b / rise[1:])
    return _ended(knots, values, slopes)


def _ended(knots: Tensor, values: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From exactly 0 to exactly 1, with slopes that keep each cubic monotone (at most 3 times its chord)."""
    values = (values - values[0]) / (values[-1] - values[0])
    chord = (values[1:] - values[:-1]) / (knots[1:] - knots[:-1])
    most = torch.full_like(slopes, math.inf)
    most[:-1] = 3 * chord
    most[1:] = torch.minimum(most[1:], 3 * chord)
    return knots, values, torch.minimum(slopes, most)


def _spline(knots: Tensor, values: Tensor, slopes: Tensor) -> Expr:
    """0, a cubic between each two knots, 1."""
    pairs: list[tuple[Expr, Any]] = [(sympy.Integer(0), x <= Float(float(knots[0]), 17))]
    rows = torch.stack([knots, values, slopes], 1).tolist()
    for (x0, y0, m0), (x1, y1, m1) in itertools.pairwise(rows):
        h = x1 - x0
        bend, twist = (3 * (y1 - y0) / h - 2 * m0 - m1) / h, (m0 + m1 - 2 * (y1 - y0) / h) / h**2
        t = x - Float(x0, 17)
        cubic = Float(y0, 17) + t * (Float(m0, 17) + t * (Float(bend, 17) + t * Float(twist, 17)))
        pairs.append((cubic, x <= Float(x1, 17)))
    return Piecewise(*pairs, (sympy.Integer(1), True), evaluate=False)
