r"""How rough a surface is, from its heights on a grid of step h.

Slopes are differences of neighbours over h along either input, bends the changes of slope from one cell to the next.

    kink     = max |bend| / max |slope|: 0 for a plane, up to 2 for a fold. Where the surface is smooth it shrinks with
               h; at a kink it stays, however fine the grid.
    bending  = rms of (bend/h) / rms of slope: how fast slopes change, per unit of input. It grows as 1/sqrt(h) where
               there are kinks, and settles where there are none.
    extrema  = points of the grid higher than their eight neighbours, or lower than them; a sharp crest that runs askew
               to the grid counts several times.

None of them changes when the surface is scaled or lifted. The mean of |bend| would not do: smoothing a kink spreads the
same change of slope over more cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Roughness:
    """The numbers above, and the lowest and highest point and the steepest slope."""

    kink: float
    bending: float
    extrema: int
    low: float
    high: float
    steepest: float


def roughness(surface: Tensor, *, step: float) -> Roughness:
    """Measure a surface [n, n] of grid step `step`.

    >>> import torch
    >>> x = torch.linspace(-1, 1, 5)
    >>> fold = roughness(x.abs().expand(5, 5), step=0.5)
    >>> fold.kink, fold.extrema, fold.steepest
    (2.0, 0, 1.0)
    """
    z = surface.double()
    slopes = [z.diff(dim=side) / step for side in (0, 1)]
    bends = [one.diff(dim=side) for side, one in enumerate(slopes)]
    steepest = max(float(one.abs().max()) for one in slopes)
    sharpest = max(float(one.abs().max()) for one in bends)
    slope = torch.cat([one.flatten() for one in slopes]).square().mean().sqrt()
    bend = torch.cat([one.flatten() for one in bends]).square().mean().sqrt()
    flat = steepest == 0
    return Roughness(
        kink=0.0 if flat else sharpest / steepest,
        bending=0.0 if flat else float(bend / step / slope),
        extrema=_peaks(z) + _peaks(-z),
        low=float(z.min()),
        high=float(z.max()),
        steepest=steepest,
    )


def _peaks(z: Tensor) -> int:
    """Points strictly above all eight neighbours; the rim has too few of them to be judged."""
    around = F.unfold(z[None, None], 3)[0]
    middle = around[4]
    others = torch.cat([around[:4], around[5:]]).amax(0)
    return int((middle > others).sum())
