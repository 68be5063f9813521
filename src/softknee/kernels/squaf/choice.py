"""Which grid point an x takes, in plain tensor operations: one drawn from P(. | x), or the nearest.

A point is known by its symbol, its place 0..n-1 in the table z; the value is z there. Drawn is the first point at which
the running sum of the probabilities passes u times their sum, u uniform in [0, 1): a point of probability 0 never is.
"""

import torch
from torch import Tensor

from ... import torch_compat
from .plain import Placed, compute_dtype, exponent, finite_range, grid_probability, place, points_first

NO_POINT = -1  # the symbol of NaN


def sampled_symbol(
    x: Tensor, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool, *, u: Tensor
) -> Tensor:
    """The symbol drawn on the uniform grid (int64, some symbol where x is NaN); u in the compute type of x."""
    kind = compute_dtype(x)
    q, alpha = q.to(kind), alpha.to(kind)
    k = points // 2
    at = place(finite_range(x.to(kind)), q=q, k=k)
    logits, first = _logits(at, q=q, alpha=alpha, points=points, window=window, laplacian=laplacian)
    slot = drawn_slot(torch.softmax(logits, 0), u)
    return slot if first is None else (slot + first).clamp(0, points - 1)


def _logits(
    at: Placed, *, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool
) -> tuple[Tensor, Tensor | None]:
    """The logarithms of the weights along a new first dimension, and the symbol of the first (None: 0)."""
    k, half = points // 2, window // 2
    whole = window == 0 or window >= 2 * points
    low, high = (-k, k) if whole else (-half, half)
    steps = torch.arange(low, high + 1, dtype=at.rest.dtype, device=at.rest.device)
    steps = steps.reshape(-1, *(1,) * at.rest.dim())
    if whole:
        return exponent(at.rest, q=q, alpha=alpha, steps=steps - at.centre, laplacian=laplacian), None
    logits = exponent(at.rest, q=q, alpha=alpha, steps=steps, laplacian=laplacian)
    inside = (at.centre + steps).abs() <= k
    return torch.where(inside, logits, -torch.inf), at.centre.to(torch.int64) + (k - half)


def drawn_slot(probability: Tensor, u: Tensor) -> Tensor:
    """The place, along the first dimension, of the point that u in [0, 1) draws."""
    running = probability.cumsum(0)
    # u times the sum, the way it was rounded, is below that sum: no last point of probability 0 is ever drawn.
    return (running[:-1] <= u * running[-1]).sum(0)


def sampled_symbol_on_grid(x: Tensor, grid: Tensor, alpha: Tensor, laplacian: bool, *, u: Tensor) -> Tensor:
    """The symbol drawn on a general grid."""
    return drawn_slot(grid_probability(x, grid, alpha, laplacian), u)


def nearest_symbol(x: Tensor, q: Tensor, *, points: int) -> Tensor:
    """k + clamp(round(x/q), -k, k) as int32; in the middle between two points the even one, as torch.round has it."""
    kind = compute_dtype(x)
    k = points // 2
    # A NaN passes the clamp, which leaves no infinity behind, and must not become an index.
    return (x.to(kind) / q.to(kind)).clamp(-k, k).round().nan_to_num(0.0).to(torch.int32) + k


def nearest_symbol_on_grid(x: Tensor, grid: Tensor) -> Tensor:
    """How many of the midpoints between neighbours are at or below x: the cells are closed below, as in the paper."""
    kind = compute_dtype(x)
    points = points_first(grid.to(kind), dims=x.dim())
    middle = points[:-1] + (points[1:] - points[:-1]) / 2
    return (middle <= x.to(kind)).sum(0).broadcast_to(x.shape)


def value_at(z: Tensor, symbol: Tensor, *, x: Tensor) -> Tensor:
    """z at its symbols, in the type of x; NaN where x is NaN. z has the shape of the parameters and (n,).

    The result depends on x, with derivative 0, so that it can always be differentiated.
    """
    n, rows = z.shape[-1], z.shape[:-1].numel()
    index = symbol if torch_compat.GATHERS_INT32 else symbol.long()
    if rows > 1:
        index = index + n * torch.arange(rows, device=z.device).reshape(z.shape[:-1])
    found = z.reshape(-1).index_select(0, index.reshape(-1)).reshape(index.shape).to(x.dtype)
    return torch.where(x.isnan(), x, found)


def as_symbols(symbol: Tensor, *, x: Tensor) -> Tensor:
    """The symbols as they are given out: int32, and -1 where x is NaN and no point was chosen."""
    return torch.where(x.isnan(), NO_POINT, symbol).to(torch.int32)


def positions_of(x: Tensor) -> Tensor:
    """Where each element lies in a contiguous x."""
    return torch.arange(x.numel(), device=x.device).reshape(x.shape)
