"""Integrals over the line, by Gauss-Legendre panels that are halved until they agree with their halves."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .evaluate import Curve

ORDER = 16
MOST_ROUNDS, MOST_PANELS = 48, 40_000


@functools.cache
def legendre_rule(count: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss-Legendre quadrature on [-1, 1], by Newton's method."""
    place = torch.arange(count, 0, -1, dtype=torch.float64)
    nodes = torch.cos(math.pi * (place - 0.25) / (count + 0.5))
    for _ in range(100):
        values = legendre_values(nodes, count + 1)
        slope = count * (values[:, -2] - nodes * values[:, -1]) / (1 - nodes**2)
        step = values[:, -1] / slope
        nodes = nodes - step
        if float(step.abs().max()) < 1e-16:
            break
    values = legendre_values(nodes, count + 1)
    slope = count * (values[:, -2] - nodes * values[:, -1]) / (1 - nodes**2)
    return nodes, 2 / ((1 - nodes**2) * slope**2)


def legendre_values(at: Tensor, count: int) -> Tensor:
    """P_0 .. P_{count-1} at some points, one column for each polynomial."""
    columns = [torch.ones_like(at), at]
    for n in range(1, count - 1):
        columns.append(((2 * n + 1) * at * columns[n] - n * columns[n - 1]) / (n + 1))
    return torch.stack(columns[:count], dim=-1)


def fixed_sums(curve: Curve, low: Tensor, high: Tensor) -> Tensor:
    """The integral over each panel by one rule of 16 points, however good that is."""
    nodes, weights = legendre_rule(ORDER)
    half = (high - low) / 2
    at = (low + high)[:, None] / 2 + half[:, None] * nodes
    return half * (curve(at.reshape(-1)).reshape(at.shape) * weights).sum(1)


def panels(curve: Curve, edges: Sequence[float] | Tensor, *, relative: float = 1e-13) -> tuple[Tensor, Tensor, Tensor]:
    """The integral of a function between increasing edges, in parts: (low ends, high ends, integrals).

    A panel that differs from the sum of its halves by more than its share of the error is replaced by them; one that is
    as narrow as a float allows, or part of too many, is left as it is.
    """
    bounds = torch.as_tensor(edges, dtype=torch.float64)
    low, high = bounds[:-1], bounds[1:]
    whole = fixed_sums(curve, low, high)
    done: list[tuple[Tensor, Tensor, Tensor]] = []
    finished = 0
    for _ in range(MOST_ROUNDS):
        middle = (low + high) / 2
        left, right = fixed_sums(curve, low, middle), fixed_sums(curve, middle, high)
        size = float(torch.cat([panel[2] for panel in done] + [left, right]).abs().sum())
        good = (whole - left - right).abs() <= relative * max(size, 1e-300) * 0.01
        good |= (middle <= low) | (middle >= high)
        done.append((low[good], high[good], (left + right)[good]))
        finished += int(good.sum())
        bad = ~good
        if not bool(bad.any()) or finished + 2 * int(bad.sum()) > MOST_PANELS:
            done.append((low[bad], high[bad], (left + right)[bad]))
            break
        low, high = torch.cat([low[bad], middle[bad]]), torch.cat([middle[bad], high[bad]])
        whole = torch.cat([left[bad], right[bad]])
    else:
        done.append((low, high, whole))
    ends, tops, parts = (torch.cat(column) for column in zip(*done, strict=True))
    order = torch.argsort(ends)
    return ends[order], tops[order], parts[order]


def integrate(curve: Curve, edges: Sequence[float] | Tensor) -> float:
    """The integral of a function of a float64 tensor between the first and the last of some increasing edges.

    >>> import math, torch
    >>> from softknee.design.quadrature import integrate
    >>> abs(integrate(lambda x: torch.exp(-x * x), [-9.0, 0.0, 9.0]) - math.sqrt(math.pi)) < 1e-14
    True
    """
    return math.fsum(panels(curve, edges)[2].tolist())


def outwards(low: float, high: float, count: int, *, centre: float, spread: float) -> Tensor:
    """Points from low to high whose distances are even near the centre and grow in proportion far from it."""
    first, last = (math.asinh((end - centre) / spread) for end in (low, high))
    return centre + spread * torch.sinh(torch.linspace(first, last, count, dtype=torch.float64))


def points(low: float, high: float, *, centre: float, spread: float, count: int = 2001) -> Tensor:
    """Points of an interval to look at a function on: dense near the centre, near 0 and near both ends."""
    wide = outwards(low, high, count, centre=centre, spread=spread)
    share = torch.logspace(-8, -1, 71, dtype=torch.float64) * min(high - low, spread)
    near = torch.cat([low + share, high - share, share, -share, torch.zeros(1, dtype=torch.float64)])
    places = torch.unique(torch.cat([wide, near]))
    return places[(places > low) & (places < high)]


_NARROW = 1e-6  # of the spread: jumps, kinks and poles leave panels as narrow as that
_FIRST, _SHELLS = 8, 12  # doublings of the narrowest panel: nearer than that its own place is not known well enough
_LEAST = 0.05  # doublings per shell: 1/(r log^2 r), which can be summed, has more where shells are looked at
_PLACES = 64
_ROUNDING = 1e-9
_FAR, _GONE = 1e12, 1e-290  # how far tails are followed, in spans, and the density at which they end


def has_poles(curve: Curve, low: Tensor, high: Tensor, parts: Tensor, *, spread: float) -> bool:
    """Whether |f| has no integral about one of the places at which these panels, in order, are narrow.

    parts: the integrals of the panels. What is small beside those of the wide ones is rounding, which grows at such
           places too: (x sech^2 x - tanh x)/x^2 comes out as 1e-16/x where x is small, and should be -2x/3.
    spread: of the density, which says what is narrow.
    """
    width = high - low
    thin = width < _NARROW * spread
    narrow, size = torch.nonzero(thin).flatten().tolist(), float(parts[~thin].abs().sum())
    runs: list[list[int]] = []
    for place in narrow:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])

    def inside(at: Tensor) -> Tensor:
        size = torch.where((at > low[0]) & (at < high[-1]), curve(at).abs(), 0.0)
        return size.nan_to_num(nan=0.0, posinf=math.inf)

    for run in runs[:_PLACES]:
        # Where f is largest, and not where panels are narrowest: rounding errors leave many as narrow as can be.
        panel = run[int((parts[run].abs() / width[run]).nan_to_num(nan=math.inf).argmax())]
        centre = float(low[panel] + high[panel]) / 2
        apart = max(float(width[panel]), 4 * torch.finfo(torch.float64).eps * abs(centre))
        radii = apart * 2.0 ** torch.arange(_FIRST, _FIRST + _SHELLS + 1, dtype=torch.float64)
        shells = fixed_sums(inside, centre + radii[:-1], centre + radii[1:])
        shells += fixed_sums(inside, centre - radii[1:], centre - radii[:-1])
        if float(shells.max()) > _ROUNDING * size and _doublings(shells) < _LEAST:
            return True
    return False


def has_heavy_tail(curve: Curve, density: Curve, *, centre: float, end: float) -> bool:
    """Whether |f| has no integral from here to the end of the line on the side of `end`, f being 0 with the density."""
    reach = end - centre
    while abs(reach) < _FAR * abs(end - centre) and float(density(torch.tensor([centre + 2 * reach]).double())) > _GONE:
        reach *= 2
    ends = centre + reach * torch.linspace(0.25, 1, 25, dtype=torch.float64)  # a shell from 1/4 to 1/2, and one to 1

    def size(at: Tensor) -> Tensor:
        return curve(at).abs().nan_to_num(nan=0.0, posinf=math.inf)

    lower, upper = torch.minimum(ends[:-1], ends[1:]), torch.maximum(ends[:-1], ends[1:])
    parts = fixed_sums(size, lower, upper)
    inner, outer = float(parts[:8].sum()), float(parts[8:].sum())
    if outer == 0 or math.isinf(outer):
        return outer > 0
    return inner == 0 or math.log2(outer / inner) > -_LEAST


def _doublings(shells: Tensor) -> float:
    """How many times a shell doubles from one to the next wider one, in the middle of them; minus infinity where one is
    infinite."""
    if not bool(shells.isfinite().all()):
        return -math.inf
    steps = shells[1:].log2() - shells[:-1].log2()
    steps = steps[steps.isfinite()]
    return float(steps.median()) if len(steps) else math.inf
