"""SQUAF in plain tensor operations: phi(x) = sum_i z_i P(y_i | x), differentiable to every order.

Everything is measured from the grid point c q nearest to x. With d = x - c q and y = (c + j) q, the exponent
of neighbour j relative to that of the nearest point is

    Gaussian    alpha ((x - c q)^2 - (x - y)^2) = alpha q j (2 d - j q)
    Laplacian   alpha (|x - c q| - |x - y|)     = alpha (sign(j) d + |d| - |j| q)   for j != 0, and 0 for j =
    0

which is never positive for a neighbour on the grid: no h = alpha q^2 can overflow. Neighbours outside -k..k
get weight 0 before the exponential, because beyond the ends their exponent has no bound. The shift is the
same for every point of one x, so the probabilities, and their derivatives, do not depend on c being held
constant.

The window is laid along a new FIRST dimension: parameters then broadcast as they do against x itself, and the
CPU's softmax runs over contiguous elements.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Window(NamedTuple):
    """The kept points of every x, stacked along dimension 0."""

    probability: Tensor
    steps: Tensor  # j, in compute precision
    centre: Tensor  # c, in compute precision
    rest: Tensor  # d = x - c q
    logits: Tensor  # the logarithm of each weight relative to the nearest point's
    inside: Tensor | None  # whether a point is on the grid; None when the whole grid is kept

    def indices(self, table: torch.Size) -> Tensor | None:
        """The place of each kept point in a flattened table of this shape (parameters, then points); None for all."""
        if self.inside is None:
            return None
        n = table[-1]
        index = (self.centre + self.steps).clamp(-(n // 2), n // 2).to(torch.int64) + n // 2
        groups = table[:-1].numel()
        return index if groups == 1 else index + n * torch.arange(groups, device=index.device).reshape(table[:-1])


def compute_dtype(x: Tensor) -> torch.dtype:
    """float64 is computed in float64, every other type in float32."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def finite_range(x: Tensor) -> Tensor:
    """Infinities become huge numbers, so that no 0 * inf arises in a gradient; NaN stays NaN.

    The square root of the largest number leaves room for every product formed below, and is past the point
    where all of the probability sits on the last grid point for every alpha q >= 1e-17 (1e-150 in float64).
    """
    limit = torch.finfo(x.dtype).max ** 0.5
    return x.clamp(-limit, limit)


def distance_from(x: Tensor, *, centre: Tensor, q: Tensor) -> Tensor:
    """x - c q with no rounding of the product in float32.

    A rounded c q is off by eps |x|, and the exponent by 2 alpha q eps |x|: harmless in float64, but far above
    1 in float32 at alpha = 1e6 and q = 10. Half of q's digits at a time, the products with a small integer
    are exact.
    """
    if x.dtype == torch.float64:
        return x - centre * q
    leading = q.detach().to(torch.bfloat16).to(q.dtype)
    return (x - centre * leading) - centre * (q - leading)


def exponent(d: Tensor, *, q: Tensor, alpha: Tensor, steps: Tensor, laplacian: bool) -> Tensor:
    """The logarithm of each neighbour's weight relative to the nearest point's."""
    if laplacian:
        # sign(j) d + |d| first: it is 0 or 2|d| exactly, and the difference to q is then exact near a
        # midpoint.
        reach = torch.where(steps == 0, torch.zeros_like(d), steps.sign() * d + d.abs())
        return alpha * (reach - steps.abs() * q)
    return (alpha * q) * (steps * (2 * d - steps * q))


def keep_window(x: Tensor, *, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool) -> Window:
    """The kept points of every x; all arguments in compute precision, x of finite range or NaN, q and alpha
    broadcastable against it."""
    k = points // 2
    whole = window == 0 or window >= 2 * points
    reach = k if whole else window // 2
    ratio = x.detach() / q.detach()
    # A NaN must not become an index; it reaches the result through d.
    centre = torch.where(ratio.isnan(), torch.zeros_like(ratio), ratio).round().clamp(-k, k)
    d = distance_from(x, centre=centre, q=q)
    steps = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device).reshape(-1, *(1,) * x.dim())
    if whole:
        steps = steps - centre
    logits = exponent(d, q=q, alpha=alpha, steps=steps, laplacian=laplacian)
    inside = None
    if not whole:
        inside = (centre + steps).abs() <= k
        # Not -inf: a softmax differentiated twice would meet 0 * inf. Any weight this small is exactly 0.
        logits = torch.where(inside, logits, torch.full_like(logits, -1e30))
    return Window(torch.softmax(logits, 0), steps, centre, d, logits, inside)


def values_at(index: Tensor | None, z: Tensor, *, dims: int) -> Tensor:
    """z at the kept points, which lie along a new first dimension; `index` as `Window.indices` gives it."""
    return (
        points_first(z, dims=dims) if index is None else z.reshape(-1).gather(0, index.reshape(-1)).reshape(index.shape)
    )


def squaf_plain(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
    """The uniform grid y_i = i q; window 0 is the full sum. Fit for any derivative, transform or export."""
    kind = compute_dtype(x)
    q, alpha, z = q.to(kind), alpha.to(kind), z.to(kind)
    finite = finite_range(x.to(kind))
    near = keep_window(finite, q=q, alpha=alpha, points=z.shape[-1], window=window, laplacian=laplacian)
    value = values_at(near.indices(z.shape), z, dims=x.dim())
    return (near.probability * value).sum(0).to(x.dtype)


def squaf_on_grid(x: Tensor, grid: Tensor, alpha: Tensor, z: Tensor, laplacian: bool) -> Tensor:
    """A general sorted grid y_0 <= ... <= y_{n-1}, trainable too; the full sum over its points."""
    values = points_first(z.to(compute_dtype(x)), dims=x.dim())
    return (grid_probability(x, grid, alpha, laplacian) * values).sum(0).to(x.dtype)


def grid_probability(x: Tensor, grid: Tensor, alpha: Tensor, laplacian: bool) -> Tensor:
    """P(y_i | x) on a general grid, the points along a new first dimension.

    Exponents are taken relative to the nearest point y*: alpha (y - y*)(2 x - y - y*), which loses no digits
    to the squares of large numbers.
    """
    kind = compute_dtype(x)
    x_ = finite_range(x.to(kind))
    points = points_first(grid.to(kind), dims=x.dim())
    away = (x_.detach() - points.detach()).abs()
    nearest = torch.take_along_dim(points.detach().expand(away.shape), away.argmin(0, keepdim=True), 0)
    alpha = alpha.to(kind)
    if laplacian:
        logits = alpha * ((x_ - nearest).abs() - (x_ - points).abs())
    else:
        logits = alpha * ((points - nearest) * ((x_ - nearest) + (x_ - points)))
    return torch.softmax(logits, 0)


def points_first(table: Tensor, *, dims: int) -> Tensor:
    """A table of shape (parameters, points) with its points in front, to stand beside an x of so many dimensions."""
    return table.reshape((1,) * (dims + 1 - table.dim()) + table.shape).movedim(-1, 0)
