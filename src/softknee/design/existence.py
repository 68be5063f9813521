"""Whether an integral over the line exists, which a finite number of panels cannot tell: that of 1/|x| has a value too.

Around a place where panels became ever narrower, and towards the ends of the line, the integral of |f| is compared over
shells, each twice as wide as the one before. With f like r^-a at the distance r a shell has 2^(1-a) times the integral
of the next smaller one. Inwards the shells must shrink (a < 1), outwards too (a > 1); else their sum has no bound.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .evaluate import Curve
from .quadrature import fixed_sums

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
