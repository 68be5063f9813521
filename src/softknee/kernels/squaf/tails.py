r"""SQUAF that goes on in a straight line beyond the ends of its grid, instead of coming to rest.

    phi(x)                             low <= x <= high,   low = -k q and high = k q, or the ends of a general grid
    phi(high) + s_high (x - high)      x > high
    phi(low)  + s_low  (x - low)       x < low

s_high and s_low are the slopes at the ends, from within: the function and its slope are continuous. With Gaussian
weights and P_i = P(y_i | end) they are 2 alpha sum_i P_i (z_i - phi) (y_i - end); with Laplacian ones, which have a
kink at every point, +-2 alpha P_end (z_end - phi). They are numbers of the parameters alone, one for each group.

At +-inf the value is that of the largest finite number: a slope of 0 times infinity would be NaN.
"""

import torch
from torch import Tensor

from softknee.errors import ParameterError, did_you_mean

from .plain import compute_dtype

TAILS = ("flat", "linear")


def check_tails(tails: str) -> str:
    """The name of the tails, or a sentence that says which there are."""
    if not isinstance(tails, str) or tails not in TAILS:
        near = did_you_mean(tails, list(TAILS)) if isinstance(tails, str) else ""
        raise ParameterError(f"squaf: tails must be 'flat' or 'linear', and {tails!r} was given.{near}")
    return tails


def ends_of(*, q: Tensor | None, grid: Tensor | None, points: int) -> tuple[Tensor, Tensor]:
    """The first and the last point of the grid."""
    if grid is not None:
        return grid[..., 0], grid[..., -1]
    assert q is not None
    high = (points // 2) * q
    return -high, high


def within(x: Tensor, *, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """x brought to the nearer end where it lies beyond one, and how far beyond it lies (0 inside); no narrower than
    the compute type."""
    kind = compute_dtype(x)
    x, low, high = x.to(kind), low.to(kind), high.to(kind)
    # Not x.clamp: at the ends themselves, where the slope is the inner one, torch 2.15 gives half of its gradient.
    inner = torch.where(x > high, high, torch.where(x < low, low, x))
    largest = torch.finfo(kind).max
    return inner, (x - inner).clamp(-largest, largest)


def end_slopes(
    *, q: Tensor | None, grid: Tensor | None, alpha: Tensor, z: Tensor, window: int | None, laplacian: bool
) -> tuple[Tensor, Tensor]:
    """phi' at the first and at the last point, from within; differentiable by every parameter."""
    points = z.shape[-1]
    kept = points if window is None else min(window // 2 + 1, points)
    if grid is not None:
        below, above = grid - grid[..., :1], grid - grid[..., -1:]
    else:
        assert q is not None
        steps = torch.arange(kept, dtype=q.dtype, device=q.device) * q.unsqueeze(-1)
        below, above = steps, -steps.flip(-1)
    alpha = alpha.unsqueeze(-1)
    return (
        _slope_at(below, alpha, z[..., :kept], end=0, laplacian=laplacian),
        _slope_at(above, alpha, z[..., -kept:], end=-1, laplacian=laplacian),
    )


def _slope_at(away: Tensor, alpha: Tensor, z: Tensor, *, end: int, laplacian: bool) -> Tensor:
    """The slope where `away` (the points less the end) is 0; with Laplacian weights the one on the inner side."""
    p = torch.softmax(-alpha * (away.abs() if laplacian else away.square()), -1)
    centred = p * (z - (p * z).sum(-1, keepdim=True))
    if laplacian:
        return (2.0 if end else -2.0) * alpha.squeeze(-1) * centred[..., end]
    return 2 * alpha.squeeze(-1) * (centred * away).sum(-1)


def beyond(value: Tensor, excess: Tensor, slopes: tuple[Tensor, Tensor]) -> Tensor:
    """The value at the ends continued by the excess."""
    low, high = (slope.to(value.dtype) for slope in slopes)
    return value + torch.where(excess > 0, high, low) * excess
