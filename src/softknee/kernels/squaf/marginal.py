r"""How often each point of SQUAF's grid is chosen, and how many bits that takes.

    marginal   p_i = mean_l P(y_i | x[l])                 over all elements x[l] of a layer
    rate       R = -sum_i p_i log2 p_i                    bits per activation, 0 log 0 being 0

SQUAF-P sends the point i with the probability P(y_i | x); R is what no code with one table for the layer can do better
than (Shannon 1948), and what Huffman's code misses by less than a bit. Reference: Soft quantization activation
functions, equation 12, where each layer has one alphabet.

Channels or neurons with grids of their own still send the number i of a point, and the layer has one table of code
words for it: p is then the mean of their marginals. (A table for each channel would need the mean of the channels'
entropies, which is never more.)
"""

from __future__ import annotations

import torch
from torch import Tensor

from softknee.errors import InputError, ParameterError

from . import marginal_op  # noqa: F401 - it makes the operators known to torch
from .dispatch import inside_transform, must_differentiate_through
from .function import _common_shape, squaf
from .windows import check_weights


def squaf_marginal(
    x: Tensor,
    *,
    alpha: Tensor,
    points: int | None = None,
    q: Tensor | None = None,
    window: int | None = 5,
    weights: str = "gaussian",
    grid: Tensor | None = None,
    pooled: bool = True,
) -> Tensor:
    """The mean over x of P(y_i | x), one number for each point; differentiable by x, q, alpha (and grid).

    On a uniform grid of `points` = 2k+1 points it is computed in one pass that keeps no probabilities, and so is its
    gradient; the sums have a fixed order, so that results repeat to the bit. A general grid, and the transforms of
    torch.func, take plain tensor operations, which do keep them. `q`, `alpha`, `window`, `weights` and `grid` are as
    for `squaf`; with `pooled=False` parameters of shape S give S + (points,), a marginal for each of them.

    The result is float32, or float64 for a float64 x.

    >>> x = torch.tensor([0.0, 0.0, 1.0, 9.0])
    >>> p = squaf_marginal(x, q=torch.ones(1), alpha=torch.full((1,), 200.0), points=5)
    >>> p
    tensor([0.0000, 0.0000, 0.5000, 0.2500, 0.2500])
    >>> entropy_in_bits(p)
    tensor(1.5000)
    """
    if not x.is_floating_point():
        raise InputError(
            f"A marginal is taken of floating-point numbers, and x is {x.dtype}; convert it with x.float()."
        )
    if x.numel() == 0:
        raise InputError("x is empty, and the mean over nothing has no value; leave empty batches out.")
    check_weights(weights)
    flat = x.reshape(1) if x.dim() == 0 else x
    if grid is not None:
        if q is not None or window is not None:
            raise ParameterError("A general grid has no q and is summed in full: leave q out and pass window=None.")
        own = _common_shape(flat, grid.shape[:-1], alpha.shape)
        found = _by_slope(flat, own=own, points=grid.shape[-1], grid=grid, alpha=alpha, window=window, weights=weights)
    else:
        if q is None or points is None or points < 3 or points % 2 == 0:
            raise ParameterError(
                f"A uniform grid needs q and an odd number of points of at least 3, and points={points!r} was given"
                f"{'' if q is not None else ' without q'}."
            )
        if window is not None and (window < 3 or window % 2 == 0):
            raise ParameterError(f"window={window!r} is not an odd number of points; use 3, 5, 7, ... or None for all.")
        own = _common_shape(flat, q.shape, alpha.shape)
        q, alpha = q.expand(own), alpha.expand(own)
        if inside_transform() or must_differentiate_through():
            found = _by_slope(flat, own=own, points=points, q=q, alpha=alpha, window=window, weights=weights)
        else:
            laplacian = weights == "laplacian"
            found = torch.ops.softknee.squaf_marginal(flat, q, alpha, points, window or 0, laplacian)
    return found.reshape(-1, found.shape[-1]).mean(0) if pooled else found


def entropy_in_bits(p: Tensor) -> Tensor:
    """-sum_i p_i log2 p_i along the last dimension; where p_i is 0 the term is 0, and so is its gradient.

    The derivative -(log2 p + 1/ln 2) has no bound as p goes to 0, but a point that no x comes near (p exactly 0) does
    not come nearer under a small change of x either: 0 times that slope is 0.
    """
    chosen = torch.where(p > 0, p, torch.ones_like(p))
    return -(p * chosen.log2()).sum(-1)


def _by_slope(x: Tensor, *, own: tuple[int, ...], points: int, **arguments: object) -> Tensor:
    """The marginal as the slope of SQUAF's outputs by their values z: P(y_i | x) = d phi / d z_i."""
    z = torch.zeros(*own, points, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32, device=x.device)
    pulled = torch.func.vjp(lambda z: squaf(x, z=z, **arguments), z)  # pyright: ignore[reportArgumentType]
    (sums,) = pulled[1](torch.ones_like(pulled[0]))
    return sums * (sums.shape[:-1].numel() / x.numel())
