"""Densities of pre-activations: named ones, a formula of the user's own, or fitted to samples.

    normal    e^{-z^2/2} / (s sqrt(2 pi))          logistic   sigmoid(z) sigmoid(-z) / s
    laplace   e^{-|z|} / (2 s)                     uniform    1/(high - low) on (low, high)

with z = (x - mean)/s. A density is pieces between seams, like a function; its score is p'/p.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from ...errors import FormulaError, InputError, ParameterError, did_you_mean
from ...spec import NormalCdf, NormalPdf, Sigmoid, Tanh, Unit, parse, x
from ...spec.algebra import Expr, Float, Piecewise, Rational, exp, oo, sympy
from ...spec.pieces import split
from ..evaluate import Curve, curve
from ..quadrature import integrate, legendre_values, outwards, panels, points

# Below this share of its peak a density is as good as 0; its square root is still a number in float32.
NEGLIGIBLE = 1e-36
# A density with tails as heavy as Cauchy's is followed this many spreads from its centre.
FURTHEST = 1e8
_WIDE = 1e-6  # of the mass may be missing or uncertain before a formula is refused


def number(value: float) -> Expr:
    """A number as an exact fraction, 0.1 as 1/10."""
    return Rational(repr(float(value)))


def piecewise(seams: Sequence[Expr], parts: Sequence[Expr]) -> Expr:
    """One expression from pieces; a seam belongs to the piece on its left."""
    if not seams:
        return parts[0]
    pairs = [(part, x <= seam) for part, seam in zip(parts, seams, strict=False)]
    return Piecewise(*pairs, (parts[-1], True), evaluate=False)


@dataclass(frozen=True, eq=False)
class Density:
    """A density of pre-activations.

    name:     what sentences call it.
    seams:    where its pieces meet, increasing.
    parts:    the density on each piece, 0 outside its support.
    cdf:      its distribution function, where that has a closed form.
    centre, spread: its median and about one standard deviation, however heavy its tails.
    samples:  the pre-activations it was fitted to, sorted.
    fit:      the largest difference between its distribution function and that of the samples.
    """

    name: str
    parts: tuple[Expr, ...]
    seams: tuple[Expr, ...] = ()
    cdf: Expr | None = None
    centre: float = 0.0
    spread: float = 1.0
    samples: Tensor | None = field(default=None, repr=False)
    fit: float | None = None

    @functools.cached_property
    def formula(self) -> Expr:
        """The density as one expression in x."""
        return piecewise(self.seams, self.parts)

    @functools.cached_property
    def pdf(self) -> Curve:
        """The density as a function of float64 tensors."""
        return curve(self.formula)

    @functools.cached_property
    def support(self) -> tuple[Expr, Expr]:
        """The smallest interval outside which it is exactly 0."""
        ends = [-oo, *self.seams, oo]
        there = [i for i, part in enumerate(self.parts) if part != 0]
        return ends[there[0]], ends[there[-1] + 1]

    @functools.cached_property
    def reach(self) -> tuple[float, float]:
        """The interval outside which it is 0 or negligible, in finite numbers."""
        return _end(self, -1), _end(self, 1)

    def edges(self, low: float = -math.inf, high: float = math.inf, also: Sequence[float] = ()) -> Tensor:
        """Places to cut an integral over (low, high) at: seams, those in `also`, and steps that grow outwards."""
        low, high = max(low, self.reach[0]), min(high, self.reach[1])
        steps = outwards(low, high, 49, centre=self.centre, spread=self.spread)
        inner = torch.tensor([*map(float, self.seams), *also], dtype=torch.float64)
        cuts = torch.unique(torch.cat([steps, inner, torch.zeros(1, dtype=torch.float64)]))
        bounds = torch.tensor([low, high], dtype=torch.float64)
        gap = 1e-12 * (high - low)  # the outermost steps are the ends again, up to rounding
        return torch.cat([bounds[:1], cuts[(cuts > low + gap) & (cuts < high - gap)], bounds[1:]])

    @functools.cached_property
    def entropy(self) -> float:
        """Its differential entropy in nats."""

        def surprise(at: Tensor) -> Tensor:
            p = self.pdf(at)
            return torch.where(p > 0, -p * torch.log(p), 0.0)

        return integrate(surprise, self.edges())

    def mass(self, low: float, high: float) -> float:
        """The probability of an interval."""
        return integrate(self.pdf, self.edges(low, high)) if high > low else 0.0

    def __str__(self) -> str:
        return self.name


def _end(density: Density, side: int) -> float:
    limit = float(density.support[0 if side < 0 else 1])
    if math.isfinite(limit):
        return limit
    steps = torch.logspace(-1, math.log10(FURTHEST), 4000, dtype=torch.float64) * density.spread
    values = density.pdf(density.centre + side * steps)
    peak = max(float(values.max()), float(density.pdf(torch.tensor([density.centre], dtype=torch.float64))))
    there = torch.nonzero(values > NEGLIGIBLE * peak).flatten()
    return density.centre + side * float(steps[int(there[-1]) if len(there) else 0])


# -- named ------------------------------------------------------------------------------------------------


def _placed(mean: float, scale: float) -> tuple[Expr, Expr]:
    if not (_finite(mean) and _finite(scale) and scale > 0):
        raise ParameterError(
            f"A density has a finite mean and a scale above 0, and mean={mean}, scale={scale} was given."
        )
    return (x - number(mean)) / number(scale), number(scale)


def _finite(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _titled(name: str, mean: float, scale: float) -> str:
    """As the text language writes it."""
    return name if (mean, scale) == (0, 1) else f"{name}(mean={_shortest(mean)}, scale={_shortest(scale)})"


def _shortest(value: float) -> str:
    return short if float(short := f"{value:g}") == value else repr(float(value))


def normal(*, mean: float = 0.0, scale: float = 1.0) -> Density:
    """The normal density, with its standard deviation as scale."""
    z, s = _placed(mean, scale)
    return Density(_titled("normal", mean, scale), (NormalPdf(z) / s,), (), NormalCdf(z), mean, scale)


def logistic(*, mean: float = 0.0, scale: float = 1.0) -> Density:
    """The logistic density, the slope of the sigmoid."""
    z, s = _placed(mean, scale)
    return Density(_titled("logistic", mean, scale), (Sigmoid(z) * Sigmoid(-z) / s,), (), Sigmoid(z), mean, 1.8 * scale)


def laplace(*, mean: float = 0.0, scale: float = 1.0) -> Density:
    """The Laplace density, with a kink at its mean."""
    z, s = _placed(mean, scale)
    sides = exp(z) / 2, exp(-z) / 2
    seams = (number(mean),)
    cdf = piecewise(seams, (sides[0], 1 - sides[1]))
    return Density(_titled("laplace", mean, scale), tuple(side / s for side in sides), seams, cdf, mean, 1.4 * scale)


def uniform(*, low: float = -1.0, high: float = 1.0) -> Density:
    """The uniform density on an interval."""
    if not (_finite(low) and _finite(high) and low < high):
        raise ParameterError(f"A uniform density lies between finite low < high, and {low}, {high} was given.")
    ends, width = (number(low), number(high)), number(high) - number(low)
    name = "uniform" if (low, high) == (-1, 1) else f"uniform(low={_shortest(low)}, high={_shortest(high)})"
    cdf = Unit((x - ends[0]) / width)
    zero = sympy.Integer(0)
    return Density(name, (zero, 1 / width, zero), ends, cdf, (low + high) / 2, (high - low) / math.sqrt(12))


NAMED: dict[str, Callable[[], Density]] = {
    "normal": normal,
    "laplace": laplace,
    "logistic": logistic,
    "uniform": uniform,
}


# -- of the user's own ------------------------------------------------------------------------------------


def of_formula(formula: str | Expr) -> Density:
    """The density that is proportional to a formula in x, such as "exp(-x**4)"; its integral is found here.

    >>> from softknee.design.entropic.densities import of_formula
    >>> round(of_formula("exp(-x**2 / 2)").entropy, 12)  # log(2 pi e)/2
    1.418938533205
    """
    expr = parse(formula) if isinstance(formula, str) else in_x(formula)
    pieces = split(expr)
    value = curve(piecewise(pieces.seams, pieces.parts))
    edges = _whole_line([float(seam) for seam in pieces.seams])

    def on_line(t: Tensor) -> Tensor:
        room = 1 - t * t
        stretched = value(t / room) * (1 + t * t) / (room * room)
        return torch.where(stretched.isfinite(), stretched, math.nan)

    low, high, parts = panels(on_line, edges, relative=1e-12)
    total = math.fsum(parts.tolist())
    seen = value(points(-1e4, 1e4, centre=0.0, spread=1.0, count=20001))
    if not bool(seen.isfinite().all()) or float(seen.min()) < -1e-12 * float(seen.abs().max()):
        raise FormulaError(
            f"The density {formula} is negative or undefined somewhere; a density is 0 or more for every x."
        )
    rough = math.fsum(panels(on_line, edges[::2], relative=1e-4)[2].tolist())
    # Beyond |x| of about 5e6; mass there means a tail that does not end, or one too heavy to be followed.
    tail = float(parts[low.abs() > 1 - 1e-7].abs().sum() + parts[high.abs() > 1 - 1e-7].abs().sum())
    if not math.isfinite(total) or total <= 0 or tail > _WIDE * total or abs(rough - total) > 1e-3 * total:
        raise FormulaError(
            f"The density {formula} has no finite positive integral over the line, or falls off too slowly to find it; "
            f"let it fall off like 1/x**2 or faster on both sides, or end it with where(...)."
        )
    quantile = _quantiles(low, high, parts / total)
    middle, width = quantile(0.5), quantile(0.75) - quantile(0.25)
    scale = sympy.Integer(1) if abs(total - 1) < 1e-11 else Float(1 / total, 17)
    return Density(
        str(formula),
        tuple(part * scale for part in pieces.parts),
        pieces.seams,
        None,
        middle,
        max(width / 1.349, 1e-300),
    )


def in_x(expression: Expr) -> Expr:
    """The expression in our own x, refused where anything else stands in it."""
    expr = sympy.sympify(expression)
    expr = expr.xreplace({s: x for s in expr.free_symbols if s.name == "x"})
    if strange := expr.free_symbols - {x}:
        raise FormulaError(f"A formula in x alone is needed here, and {', '.join(sorted(map(str, strange)))} is in it.")
    return expr


def _whole_line(seams: Sequence[float]) -> Tensor:
    """Edges in (-1, 1) for the map x = t/(1 - t^2), the seams among them."""
    inner = [0.5 * (math.sqrt(1 + 4 * s * s) - 1) / s if s else 0.0 for s in seams]
    near = 1 - torch.logspace(-2, -9, 29, dtype=torch.float64)
    steps = [torch.linspace(-0.99, 0.99, 401, dtype=torch.float64), near, -near]
    return torch.unique(torch.cat([*steps, torch.tensor(inner, dtype=torch.float64)]))


def _quantiles(low: Tensor, high: Tensor, parts: Tensor) -> Callable[[float], float]:
    total = torch.cumsum(parts, 0)

    def at(share: float) -> float:
        i = min(int(torch.searchsorted(total, share)), len(parts) - 1)
        inside = 1 - (float(total[i]) - share) / max(float(parts[i]), 1e-300)
        t = float(low[i]) + min(max(inside, 0.0), 1.0) * float(high[i] - low[i])
        return t / (1 - t * t)

    return at


def read(source: Any) -> Density:
    """A density in any form: a name, a formula, samples (a tensor, an array or a list), or a `Density`."""
    if isinstance(source, Density):
        return source
    if isinstance(source, str):
        if source in NAMED:
            return NAMED[source]()
        try:
            return of_formula(source)
        except FormulaError as error:
            if not source.isidentifier():
                raise
            raise ParameterError(
                f"There is no density {source!r}; the named ones are {', '.join(NAMED)}, and a formula in x such as "
                f"'exp(-x**4)' or a tensor of samples does as well.{did_you_mean(source, NAMED)}"
            ) from error
    if isinstance(source, sympy.Expr):
        return of_formula(source)
    samples = source if isinstance(source, Tensor | list | tuple) else _array(source)
    if samples is not None:
        return of_samples(samples)
    raise InputError(
        f"A density is a name ({', '.join(NAMED)}), a formula in x, samples (a tensor, an array or a list) or a "
        f"Density, and {type(source).__name__} was given."
    )


def _array(values: Any) -> Tensor | None:
    """An array of NumPy, or whatever else torch reads as more than one number."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        return None
    return tensor if tensor.dim() else None


DEGREE = 6
FEWEST = 32
LARGEST_ATOM = 0.2  # of the samples may be one and the same number
_GRID = 6001
_RIDGE = 1e-6


def sorted_samples(given: Tensor | Sequence[float], what: str) -> Tensor:
    """Samples as a sorted float64 vector, refused where they cannot describe a density."""
    try:
        vector = torch.as_tensor(given).detach().reshape(-1)
        if vector.is_complex():
            raise TypeError("complex numbers have no order and no density here")
        # Apple's devices have no float64.
        vector = (vector.cpu() if vector.device.type == "mps" else vector).to(torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} takes samples as a tensor, an array or a list of numbers: {error}.") from error
    if vector.numel() < FEWEST:
        raise InputError(f"{what} needs at least {FEWEST} samples, and {vector.numel()} were given.")
    if not bool(vector.isfinite().all()):
        raise InputError(f"{what} was given samples that are infinite or NaN; leave them out with x[x.isfinite()].")
    ordered = torch.sort(vector).values
    runs = torch.unique_consecutive(ordered, return_counts=True)[1]
    if float(runs.max()) > LARGEST_ATOM * len(ordered):
        raise InputError(
            f"{what} was given {len(ordered)} samples of which {int(runs.max())} are the same number; a density cannot "
            f"describe them. Pass pre-activations from before a ReLU or a dropout."
        )
    return ordered


def of_samples(values: Tensor | Sequence[float]) -> Density:
    """The density that makes these samples most likely, with its distance to them as `fit`.

    >>> import torch
    >>> from softknee.design.entropic.densities import of_samples
    >>> seen = of_samples(torch.randn(4000, generator=torch.Generator().manual_seed(0)))
    >>> seen.fit < 0.02, abs(seen.entropy - 1.4189) < 0.02
    (True, True)
    """
    samples = sorted_samples(values, "A density")
    quarter = len(samples) // 4
    median, width = float(samples[2 * quarter]), float(samples[3 * quarter] - samples[quarter])
    spread = width / 1.349 if width > 0 else float(samples.std())
    z = (samples - median) / spread
    # Steps that grow outwards reach the last sample, however far, and beyond it where the logistic has ended.
    grid = torch.sinh(
        torch.linspace(-1, 1, _GRID, dtype=z.dtype, device=z.device) * math.asinh(4 * float(z.abs().max()) + 40)
    )
    cells = torch.zeros_like(grid)
    cells[1:] += (grid[1:] - grid[:-1]) / 2
    cells[:-1] += (grid[1:] - grid[:-1]) / 2
    weights = _fitted(_features(z).mean(0), grid, cells)
    log_density = _base(grid) + _features(grid) @ weights
    log_total = torch.logsumexp(log_density + torch.log(cells), 0)
    distance = _distance(z, grid, torch.exp(log_density - log_total))
    rough = Density(
        "rough", (_formula(weights.tolist(), float(log_total), median, spread),), centre=median, spread=spread
    )
    # The sum above is good to 1e-6; the total by quadrature makes it a density to the last digits.
    formula = rough.parts[0] / Float(rough.mass(-math.inf, math.inf), 17)
    return replace(
        rough, name=f"a density fitted to {len(samples)} samples", parts=(formula,), samples=samples, fit=distance
    )


def nearest_named(values: Tensor | Sequence[float], *, digits: int = 3) -> Density:
    """Of normal, laplace and logistic the one that lies nearest to the samples, each at its likeliest place and scale.

    Far less is known of it than of `of_samples`, and far more can be proved of what is made with it.

    >>> import torch
    >>> from softknee.design.entropic.densities import nearest_named
    >>> evenly = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    >>> print(nearest_named(2 * torch.special.ndtri(evenly) + 1))
    normal(mean=1, scale=2)
    """
    samples = sorted_samples(values, "A density")
    mean, median = samples.mean(), samples[len(samples) // 2]
    fits = {
        normal: (mean, samples.std()),
        laplace: (median, (samples - median).abs().mean()),
        logistic: (mean, samples.std() * math.sqrt(3) / math.pi),
    }
    seen = (torch.arange(len(samples), dtype=samples.dtype, device=samples.device) + 0.5) / len(samples)

    def fitted(make: Callable[..., Density]) -> Density:
        place, scale = (float(f"{float(value):.{digits}g}") for value in fits[make])
        density = make(mean=place, scale=scale)
        assert density.cdf is not None
        distance = float((curve(density.cdf)(samples) - seen).abs().max())
        return replace(density, fit=distance)

    return min(map(fitted, fits), key=lambda density: density.fit or 0.0)


def _base(z: Tensor) -> Tensor:
    return -torch.abs(z) - 2 * torch.log1p(torch.exp(-torch.abs(z)))


def _features(z: Tensor) -> Tensor:
    """-z^2, and the Legendre polynomials of tanh(z/2) (powers would be nearly dependent)."""
    return torch.cat([-(z * z)[:, None], legendre_values(torch.tanh(z / 2), DEGREE + 1)[:, 1:]], dim=1)


def _fitted(mean: Tensor, grid: Tensor, cells: Tensor) -> Tensor:
    """The weights of largest likelihood; where the square would make the tails heavier, without the square."""
    features, base = _features(grid), _base(grid) + torch.log(cells)
    weights = _newton(mean, features, base)
    if float(weights[0]) < 0:
        rest = _newton(mean[1:], features[:, 1:], base)
        weights = torch.cat([torch.zeros_like(rest[:1]), rest])
    return weights


def _newton(mean: Tensor, features: Tensor, base: Tensor) -> Tensor:
    """Damped Newton steps down a convex function: the log of the total less the mean log-likelihood."""
    weights = torch.zeros_like(mean)
    ridge = _RIDGE * torch.eye(len(mean), dtype=mean.dtype, device=mean.device)

    def loss(at: Tensor) -> Tensor:
        return torch.logsumexp(base + features @ at, 0) - at @ mean + _RIDGE / 2 * at @ at

    for _ in range(100):
        share = torch.softmax(base + features @ weights, 0)
        expected = share @ features
        slope = expected - mean + _RIDGE * weights
        if float(slope.abs().max()) < 1e-10:
            break
        centred = features - expected
        step = -torch.linalg.solve((centred * share[:, None]).T @ centred + ridge, slope)
        size, now = 1.0, loss(weights)
        while size > 1e-9 and not bool(loss(weights + size * step) <= now + 1e-4 * size * (slope @ step)):
            size /= 2
        weights = weights + size * step
    return weights


def _distance(z: Tensor, grid: Tensor, density: Tensor) -> float:
    """The largest difference of two distribution functions (Kolmogorov and Smirnov)."""
    total = torch.zeros_like(grid)
    total[1:] = torch.cumsum((density[1:] + density[:-1]) / 2 * (grid[1:] - grid[:-1]), 0)
    left = (torch.searchsorted(grid, z, right=True) - 1).clamp(0, len(grid) - 2)
    inside = (z - grid[left]) / (grid[left + 1] - grid[left])
    fitted = total[left] + inside * (total[left + 1] - total[left])
    seen = (torch.arange(len(z), dtype=z.dtype, device=z.device) + 0.5) / len(z)
    return float((fitted - seen).abs().max())


def _formula(weights: Sequence[float], log_total: float, median: float, spread: float) -> Expr:
    t = sympy.Symbol("t", real=True)
    z = (x - Float(median, 17)) / Float(spread, 17)
    polynomial = sum(Float(w, 17) * sympy.legendre(k, t) for k, w in enumerate(weights[1:], start=1))
    bend = sympy.expand(polynomial).subs(t, Tanh(z / 2))
    constant = Float(math.exp(-log_total) / spread, 17)
    return constant * Sigmoid(z) * Sigmoid(-z) * exp(-Float(weights[0], 17) * z**2 + bend)
