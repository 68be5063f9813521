r"""The differential entropy of an activation's output, in nats.

For a one-to-one f, H(f(X)) = H(X) + E log|f'(X)|: no inverse and no histogram. A function that is flat somewhere sends
mass into one point (its entropy is minus infinity), and one that folds only has H(f(X)) <= H(X) + E log|f'(X)|; both
are refused with the interval they can be asked on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...errors import DefinitionError, ParameterError
from ...spec import Activation
from ..concrete import concrete
from ..evaluate import Curve, definition_of
from ..quadrature import has_heavy_tail, has_poles, panels
from . import densities
from .densities import Density, sorted_samples


def entropy(
    f: str | Activation, density: Any = "normal", *, between: tuple[float, float] | None = None, **params: Any
) -> float:
    """The entropy of f(X) in nats, for X of that density; given that X lies `between` two points where that is said.

    >>> import math, softknee as sk
    >>> round(sk.design.entropy("sigmoid", "logistic"), 12)     # its output is uniform on (0, 1)
    0.0
    """
    return entropy_change(None, f, density, between=between, **params)


def entropy_change(
    before: str | Activation | None,
    after: str | Activation,
    density: Any = "normal",
    *,
    between: tuple[float, float] | None = None,
    **params: Any,
) -> float:
    """H(after(X)) - H(before(X)) in nats, on an interval where both are one-to-one; `params` are those of `after`.

    >>> import math, softknee as sk
    >>> half = (0, math.inf)
    >>> [round(sk.design.entropy_change("relu", "crrelu", between=half, eps=e), 6) for e in (0.01, -0.01)]
    [0.003516, -0.003555]
    """
    distribution = densities.read(density)
    low, high = _interval(between)
    functions = [concrete(definition_of(after, needed_by="entropy"), params)]
    if before is not None:
        functions.append(concrete(definition_of(before, needed_by="entropy_change")))
    seams = [seam for function in functions for seam in function.seams]

    def gain(at: Tensor) -> Tensor:
        sizes = [function.slope(at) for function in functions]
        for function, size in zip(functions, sizes, strict=True):
            _refuse_folds(function.name, at, size, distribution.pdf(at))
        total = torch.log(sizes[0].abs())
        return total - torch.log(sizes[1].abs()) if len(sizes) > 1 else total

    mean, mass = mean_of(gain, distribution, low, high, seams, sure=True)
    if mass == 0:
        raise ParameterError(
            f"entropy: no x lies between {low:g} and {high:g} under {distribution}; take a wider interval."
        )
    return mean if before is not None else mean + _input_entropy(distribution, low, high, mass)


def _interval(between: Any) -> tuple[float, float]:
    if between is None:
        return -math.inf, math.inf
    try:
        low, high = map(float, between)
        if low < high:
            return low, high
    except (TypeError, ValueError):
        pass
    raise ParameterError(
        f"entropy: between=(low, high) takes two numbers with low below high, and {between!r} was given."
    )


def _refuse_folds(name: str, at: Tensor, slope: Tensor, weight: Tensor) -> None:
    seen = weight > 0
    flat, up, down = (bool((seen & mask).any()) for mask in (slope == 0, slope > 0, slope < 0))
    if flat or (up and down):
        what = "is flat on part of it" if flat else "goes up and down"
        where = at[seen & (slope == 0 if flat else slope < 0)]
        raise DefinitionError(
            f"{name} {what} (near x = {float(where[len(where) // 2]):.4g}), so E log|slope| is not the entropy of its "
            f"output; pass between=(low, high) with an interval on which it is one-to-one."
        )


def mean_of(
    curve: Curve, density: Density, low: float, high: float, seams: Sequence[float] = (), *, sure: bool = False
) -> tuple[float, float]:
    """The mean of a function of X given that X lies in an interval, and the probability of that.

    NaN where the mean does not exist, as that of 1/X or of X^2 under a Cauchy density; `sure` says that it does, or
    that the function has no meaning beyond the reach of the density. For a density that comes from samples it is their
    mean, and nothing is estimated.

    >>> import math, torch
    >>> from softknee.design.entropic.densities import normal
    >>> [mean_of(curve, normal(), -math.inf, math.inf)[0] for curve in (torch.reciprocal, lambda x: (x * x / 2).exp())]
    [nan, nan]
    """
    if density.samples is not None:
        inside = density.samples[(density.samples > low) & (density.samples < high)]
        share = len(inside) / len(density.samples)
        return (float(curve(inside).mean()) if len(inside) else 0.0), share
    mass = density.mass(low, high)
    if mass <= 0:
        return 0.0, 0.0
    edges = density.edges(low, high, seams)

    def weighted(at: Tensor) -> Tensor:
        p = density.pdf(at)
        return torch.where(p > 0, p * curve(at), 0.0)

    lows, highs, parts = panels(weighted, edges)
    total = math.fsum(parts.tolist())
    there = sure or (math.isfinite(total) and _exists(weighted, density, (lows, highs, parts)))
    return (total / mass if there else math.nan), mass


def _exists(weighted: Curve, density: Density, integrals: tuple[Tensor, Tensor, Tensor]) -> bool:
    """Whether the integral of |weighted| over these panels is finite, and beyond them where the density goes on."""
    ends = float(integrals[0][0]), float(integrals[1][-1])
    for end, reach, support in zip(ends, density.reach, density.support, strict=True):
        goes_on = end == reach and not math.isfinite(float(support))
        if goes_on and has_heavy_tail(weighted, density.pdf, centre=density.centre, end=end):
            return False
    return not has_poles(weighted, *integrals, spread=density.spread)


def _input_entropy(density: Density, low: float, high: float, mass: float) -> float:
    """The entropy of X itself, given the interval."""
    if density.samples is not None:
        inside = density.samples[(density.samples > low) & (density.samples < high)]
        return spacing_entropy(inside)
    entropy, _ = mean_of(lambda at: -torch.log(density.pdf(at)), density, low, high, sure=True)
    return entropy + math.log(mass)


def spacing_entropy(samples: Tensor | Sequence[float]) -> float:
    """The entropy that samples were drawn with, from the distances between neighbours of order m = sqrt(n).

    The estimate of Vasicek (1976) with the correction of Ebrahimi, Pflughoeft and Soofi (1994) at both ends. It sees
    the samples alone, so it can contradict a formula.

    >>> import torch
    >>> from softknee.design.entropic.entropy import spacing_entropy
    >>> drawn = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    >>> abs(spacing_entropy(3 * drawn) - 1.0986) < 0.01         # log 3
    True
    """
    x = sorted_samples(samples, "spacing_entropy")
    n = len(x)
    m = max(1, round(math.sqrt(n)))
    rank = torch.arange(n, device=x.device)
    gaps = x[(rank + m).clamp(max=n - 1)] - x[(rank - m).clamp(min=0)]
    outside = torch.minimum(rank, n - 1 - rank).clamp(max=m).to(x.dtype)
    share = 1 + outside / m
    return float(torch.log(n * gaps / (share * m)).mean())
