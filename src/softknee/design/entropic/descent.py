"""Repeated EAFO on real pre-activations: a monotone spline whose output entropy falls at every step.

For an increasing f, H(f(X)) = H(X) + E log f'(X). Its change along f + t g is t E[g'(X)/f'(X)], the paper's first
variation before it is integrated by parts: in this form it asks for no density and no derivative of one, only for means
over the samples. Mere scaling would lower the entropy without end, so mean and variance of f(X) are held where f had
them, and what falls is

    E log f'(X) - log std f(X)

f' is linear between K knots at quantiles of the samples, with log-slopes as unknowns. A step goes down the gradient,
smoothed over neighbouring knots (lowering entropy is diffusion run backwards: rough directions would win otherwise),
as far as `rate` allows and back by halves until the entropy has fallen. Slopes stay above a share of the highest: f
stays invertible, and without that the entropy would have no bottom at fixed variance either (two points have entropy
minus infinity). With it the descent ends, mostly with every slope at one of the two limits: softplus becomes a broken
line much like a leaky ReLU, and a leaky ReLU is nearly at the end already.

Cost: one sort of n samples, n log n; then a few passes over them per step, and K^3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import InputError, ParameterError, require_count, require_number
from ...spec import Activation, Claims, x
from ...spec.algebra import Expr, Float, Piecewise, sympy
from ...spec.precision import to_digits
from ...spec.primitives import Primitive
from ...spec.printers import TORCH
from ..concrete import concrete
from ..evaluate import curve, definition_of
from ..quadrature import outwards, panels
from . import densities
from .densities import Density, number, piecewise, sorted_samples
from .spline import Spline

SMOOTH = 2.0  # the reach of the smoothing, in knots
LEAST_FALL = 1e-10  # nats; below it a step is not worth its name
_TAIL = 1e-3  # of the samples lie beyond the outer knots, on each side


@dataclass(frozen=True, eq=False, repr=False)
class EafoDescent:
    """What `eafo_descent` found.

    spline:     the activation: call it on tensors, ask it for its slope or inverse, or make a definition of it.
    entropies:  H(f(X)) - H(X) = E log f'(X) over the samples, in nats: at the start and after each step, falling.
    means, variances: of f(X) over the samples at the same times; all equal up to rounding.
    stopped:    why it ended.
    started:    what was changed of f before the first step, or "".
    """

    spline: Spline
    entropies: tuple[float, ...]
    means: tuple[float, ...]
    variances: tuple[float, ...]
    stopped: str
    started: str = ""

    @property
    def steps(self) -> int:
        """The number of steps taken."""
        return len(self.entropies) - 1

    @property
    def fall(self) -> float:
        """How far the entropy fell, in nats."""
        return self.entropies[0] - self.entropies[-1]

    def __call__(self, at: Tensor) -> Tensor:
        return self.spline(at)

    def __repr__(self) -> str:
        return f"<entropy descent: {self.steps} steps, {-self.fall:+.4g} nats>"

    def __str__(self) -> str:
        lines = [
            f"entropy descent: {self.steps} steps, {self.fall:.6g} nats down at mean {self.means[-1]:.4g} and variance "
            f"{self.variances[-1]:.4g}",
            f"  slopes from {float(self.spline.slopes.min()):.4g} to {float(self.spline.slopes.max()):.4g} at "
            f"{len(self.spline.knots)} knots",
            f"  {self.stopped}",
        ]
        return "\n".join([*lines, f"  {self.started}"] if self.started else lines)


def eafo_descent(
    f: str | Activation | Callable[[Tensor], Tensor],
    samples: Tensor | Sequence[float],
    steps: int = 20,
    *,
    knots: int = 48,
    floor: float = 0.01,
    rate: float = 0.25,
    **params: Any,
) -> EafoDescent:
    """Lower the entropy of f(X) step by step, X given by samples, with mean and variance of f(X) held fixed.

    Args:
        f: the start: a name, a definition, or any function of a tensor, such as a `Spline` found before. Where it is
            flat or falls (ReLU below 0, the dip of GELU) the start is given the lowest slope allowed, as a leaky ReLU.
        samples: pre-activations, a tensor of any shape.
        steps: the most steps to take.
        knots: of the spline, at most; fewer where samples coincide.
        floor: the lowest slope, as a share of the highest.
        rate: the largest change of the logarithm of a slope in one step.
        params: the parameters of f.

    >>> import softknee as sk, torch
    >>> x = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    >>> found = sk.design.eafo_descent("softplus", x, steps=5)
    >>> all(later < earlier for earlier, later in zip(found.entropies, found.entropies[1:]))
    True

    Reference: the EAFO paper leaves this open (appendices E and J).
    """
    _check(steps=steps, knots=knots, floor=floor, rate=rate)
    x = sorted_samples(samples, "eafo_descent")
    start = _function(f, params)
    output = start(x)
    if output.shape != x.shape or not bool(output.isfinite().all()):
        raise InputError("eafo_descent: f must give one finite number for each sample, and it did not.")
    centre, spread = float(output.mean()), float(output.std(unbiased=False))
    if spread <= 1e-12 * float(output.abs().max()):
        raise InputError("eafo_descent: f is constant on these samples; there is no entropy to lower.")
    sample = _Sample(x, _knots(x, knots), centre=centre, spread=spread, floor=floor)
    slopes, started = _start(start, sample, float(x[0]), float(x[-1]))
    return _descend(sample, slopes, steps, rate, started)


def _check(*, steps: int, knots: int, floor: float, rate: float) -> None:
    require_count("eafo_descent", "steps", steps, least=0)
    require_count("eafo_descent", "knots", knots, least=4, most=512)
    if not isinstance(floor, int | float) or not 0 < floor < 1:
        raise ParameterError(f"eafo_descent: floor must lie strictly between 0 and 1, and {floor!r} was given.")
    require_number("eafo_descent", "rate", rate, most=10)


def _function(f: Any, params: dict[str, Any]) -> Callable[[Tensor], Tensor]:
    if isinstance(f, str | Activation | sympy.Expr):
        act = definition_of(f, needed_by="eafo_descent")
        return concrete(act, params).value
    if not callable(f):
        raise InputError(f"eafo_descent: f is a name, a definition or a function, and {type(f).__name__} was given.")
    if params:
        raise ParameterError(f"eafo_descent: {', '.join(params)} cannot be given to a function; bind them first.")
    start: Any = f
    return lambda at: start(at).detach().to(at.dtype)


def _knots(x: Tensor, count: int) -> Tensor:
    """Quantiles of sorted samples, with the twins left out."""
    share = torch.linspace(_TAIL, 1 - _TAIL, count, dtype=x.dtype, device=x.device)
    quantiles = x[(share * (len(x) - 1)).round().long()]
    # Apart enough to stay apart as float32 numbers, in which a module keeps them.
    least = max(1e-4 * float(quantiles[-1] - quantiles[0]), 1e-6 * float(quantiles.abs().max()))
    distinct = [float(quantiles[0])]
    for knot in quantiles.tolist()[1:]:
        if knot - distinct[-1] > least:
            distinct.append(knot)
    if len(distinct) < 4:
        raise InputError(
            "eafo_descent: fewer than four of the quantiles of the samples differ; too many of them coincide."
        )
    return torch.tensor(distinct, dtype=x.dtype, device=x.device)


class _Sample:
    """The samples as the descent sees them: each in its cell, with the sums that mean and variance need."""

    def __init__(self, x: Tensor, knots: Tensor, *, centre: float, spread: float, floor: float) -> None:
        self.x, self.knots, self.centre, self.spread, self.floor = x, knots, centre, spread, floor
        self.width = knots[1:] - knots[:-1]
        self.cell = (torch.searchsorted(knots, x, right=True) - 1).clamp(0, len(knots) - 2)
        inside = x.clamp(knots[0], knots[-1])
        self.place = (inside - knots[self.cell]) / self.width[self.cell]
        cells = len(knots) - 1
        middle = inside == x
        powers = [torch.bincount(self.cell[middle], self.place[middle] ** k, minlength=cells) for k in range(5)]
        self.sums = torch.stack(powers)
        left, right = (x - knots[0])[x < knots[0]], (x - knots[-1])[x > knots[-1]]
        self.tails = [(float(len(t)), float(t.sum()), float((t * t).sum())) for t in (left, right)]

    def objective(self, slopes: Tensor) -> Tensor:
        """E log f'(X) - log std f(X): the entropy of f(X) at a fixed spread, up to a constant."""
        each = torch.lerp(slopes[self.cell], slopes[self.cell + 1], self.place)
        return torch.log(each).mean() - 0.5 * torch.log(self.moments(slopes)[1])

    def gradient(self, slopes: Tensor) -> tuple[float, Tensor]:
        """The objective, and its gradient by the logarithms of the slopes."""
        with torch.enable_grad():
            log = slopes.log().requires_grad_()
            now = self.objective(log.exp())
            (gradient,) = torch.autograd.grad(now, log)
        return float(now.detach()), gradient

    def values(self, slopes: Tensor) -> Tensor:
        """f at the knots, up to a constant."""
        steps = self.width * (slopes[1:] + slopes[:-1]) / 2
        return torch.cat([steps.new_zeros(1), torch.cumsum(steps, 0)])

    def moments(self, slopes: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of f(X), from the sums.

        In a cell f = v + h (s u + (s' - s) u^2/2), v the value at its left knot, h its width, u in (0, 1).
        """
        n, h = float(len(self.x)), self.width
        s, b, value = slopes[:-1], (slopes[1:] - slopes[:-1]) / 2, self.values(slopes)
        ones, u, uu, uuu, uuuu = self.sums
        (n0, r0, rr0), (n1, r1, rr1) = self.tails
        rise = h * (s * u + b * uu)
        mean = ((ones * value[:-1] + rise).sum() + slopes[0] * r0 + n1 * value[-1] + slopes[-1] * r1) / n
        off = value - mean
        # Sums over each cell of (f - mean) times 1, u, u^2, and over the tails of it times 1 and the distance.
        by_one = off[:-1] * ones + rise
        by_u, by_uu = off[:-1] * u + h * (s * uu + b * uuu), off[:-1] * uu + h * (s * uuu + b * uuuu)
        left, right = n0 * off[0] + slopes[0] * r0, n1 * off[-1] + slopes[-1] * r1
        by_left, by_right = off[0] * r0 + slopes[0] * rr0, off[-1] * r1 + slopes[-1] * rr1
        inside = (off[:-1] * by_one + h * (s * by_u + b * by_uu)).sum()
        variance = (inside + off[0] * left + slopes[0] * by_left + off[-1] * right + slopes[-1] * by_right) / n
        return mean, variance

    def fitted(self, slopes: Tensor) -> Tensor:
        """The slopes scaled to the spread that is held."""
        return slopes * (self.spread / self.moments(slopes)[1].sqrt())

    def spline(self, slopes: Tensor) -> Spline:
        offset = self.centre - float(self.moments(slopes)[0])
        return Spline(self.knots, self.values(slopes) + offset, slopes)


def _start(f: Callable[[Tensor], Tensor], sample: _Sample, low: float, high: float) -> tuple[Tensor, str]:
    """The slopes of f averaged around each knot, within the limits; and what that changed."""
    middles = (sample.knots[1:] + sample.knots[:-1]) / 2
    ends = sample.knots[:1].clamp(max=low), sample.knots[-1:].clamp(min=high)
    edges = torch.cat([torch.minimum(ends[0], sample.knots[:1] - sample.width[:1]), middles])
    edges = torch.cat([edges, torch.maximum(ends[1], sample.knots[-1:] + sample.width[-1:])])
    average = (f(edges[1:]) - f(edges[:-1])) / (edges[1:] - edges[:-1])
    least = sample.floor * float(average.max())
    if not least > 0:
        raise InputError("eafo_descent: f falls on all of these samples; start from its mirror image, x -> f(-x).")
    below = int((average < least).sum())
    slopes = sample.fitted(average.clamp(min=least))
    if not below:
        return slopes, ""
    return slopes, (
        f"f is flat, nearly flat or falling at {below} of {len(average)} knots; there it started with the lowest slope "
        f"allowed, {float(slopes.min()):.4g}."
    )


def _descend(sample: _Sample, slopes: Tensor, steps: int, rate: float, started: str) -> EafoDescent:
    smoothing = _smoothing(len(slopes), slopes)
    history = [_measured(sample, slopes)]
    stopped = f"all {steps} steps were taken."
    for _ in range(steps):
        now, gradient = sample.gradient(slopes)
        log = torch.log(slopes)
        # A common factor of all slopes changes nothing, so the highest one stays where it is (of several, the one that
        # would rise) and the others move below it. A slope at a limit that it is pushed through has no say.
        top = log >= log.max() - 1e-9
        high = log[torch.where(top, gradient, math.inf).argmin()]
        low = high + math.log(sample.floor)
        held = ((log <= low + 1e-9) & (gradient > 0)) | (top & (gradient < 0))
        held[torch.where(top, gradient, math.inf).argmin()] = True
        steepest = torch.where(held, 0.0, -gradient)
        smooth = torch.where(held, 0.0, smoothing @ steepest)
        # Cut off at the limits a smooth direction may lead up; the steepest one cannot, and has the last word.
        lower = _step(sample, log, smooth, now, rate, (low, high))
        if lower is None:
            lower = _step(sample, log, steepest, now, rate, (low, high))
        if lower is None:
            limit = int((log <= low + 1e-9).sum())
            stopped = (
                f"after {len(history) - 1} steps no step lowered the entropy by {LEAST_FALL:g} nats "
                f"({limit} of {len(slopes)} slopes are the lowest allowed)."
            )
            break
        slopes = lower
        history.append(_measured(sample, slopes))
    entropies, means, variances = zip(*history, strict=True)
    return EafoDescent(sample.spline(slopes), entropies, means, variances, stopped, started)


def _measured(sample: _Sample, slopes: Tensor) -> tuple[float, float, float]:
    """Entropy, mean and variance as a user would measure them: from the finished spline, over every sample."""
    spline = sample.spline(slopes)
    output = spline(sample.x)
    entropy = float(torch.log(spline.slope(sample.x)).mean())
    return entropy, float(output.mean()), float(output.var(unbiased=False))


def _smoothing(count: int, like: Tensor) -> Tensor:
    """(1 + SMOOTH^2 D'D)^-1, D the difference of neighbours: positive definite, so that downhill stays downhill."""
    eye = torch.eye(count, dtype=like.dtype, device=like.device)
    difference = eye[1:] - eye[:-1]
    return torch.linalg.inv(eye + SMOOTH**2 * difference.T @ difference)


def _step(
    sample: _Sample, log: Tensor, way: Tensor, now: float, rate: float, limits: tuple[Tensor, Tensor]
) -> Tensor | None:
    """The first of rate, rate/2, rate/4, ... along the way that lowers the entropy at fixed spread, if one does."""
    largest = float(way.abs().max())
    if not largest > 0:
        return None
    for halving in range(30):
        moved = (log + way * (rate / largest * 0.5**halving)).clamp(*limits)
        candidate = sample.fitted(torch.exp(moved))
        if float(sample.objective(candidate)) < now - LEAST_FALL:
            return candidate
    return None


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
    distribution = densities.read(density)
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
            raise ParameterError(f"worst: a bound must be a finite number, and {bound!r} was given.")
    if not low < high:
        raise ParameterError(f"worst: low must lie below high, and {low} and {high} were given.")
    cdf = distribution.cdf if distribution.cdf is not None else _closed(distribution)
    if cdf is None:
        cdf = _spline(
            *(_of_samples(distribution.samples) if distribution.samples is not None else _of_formula(distribution))
        )
    rise = number(high) - number(low)
    return Activation(
        name or "worst",
        number(low) + rise * cdf,
        claims=_claims(distribution, rise),
        about=f"The function of largest output entropy between {low:g} and {high:g} for {distribution}.",
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
    values = curve(cdf)(torch.cat([at, torch.tensor([-math.inf, math.inf], dtype=at.dtype)]))
    ends = torch.cat([truth, torch.tensor([0.0, 1.0], dtype=at.dtype)])
    return bool(((values - ends).abs() < 1e-8).all())


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
