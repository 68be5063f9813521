"""Sampling and stepping without a fused kernel: tensor operations over pieces that fit in a processor's cache."""

from math import prod

import torch
from torch import Tensor

from .choice import as_symbols, nearest_symbol, sampled_symbol, value_at
from .eager import pieces, spread
from .layout import Layout
from .plain import compute_dtype
from .random_bits import uniform


def forward(
    x: Tensor,
    seed: Tensor | None,
    q: Tensor,
    alpha: Tensor,
    z: Tensor | None,
    *,
    points: int,
    layout: Layout,
    window: int,
    laplacian: bool,
) -> Tensor:
    """The chosen values of a folded x, or their symbols where z is None; without a seed the nearest point is chosen.

    A seed of several numbers has one for each equal part of x, in the order in which x is folded.
    """
    out = torch.empty_like(x, dtype=torch.int32 if z is None else x.dtype)
    q, alpha = spread(q, layout), spread(alpha, layout)
    table = None if z is None else spread(z, layout)
    kept = 8 if seed is None else window or points
    short = x.numel() <= 1 << 32
    for piece in pieces(x, kept=kept):
        part = x[piece]
        if seed is None:
            symbol = nearest_symbol(part, q, points=points)
        else:
            u = uniform(*_keys(seed, piece, x=x), dtype=compute_dtype(x), short=short)
            symbol = sampled_symbol(part, q, alpha, points, window, laplacian, u=u)
        out[piece] = as_symbols(symbol, x=part) if table is None else value_at(table, symbol, x=part)
    return out


def step_backward(grad: Tensor, x: Tensor, q: Tensor, *, points: int, layout: Layout) -> Tensor:
    """The gradient of z (groups, n) for the step function: the sum of the gradients that meet each point."""
    wide = torch.float64 if x.device.type != "mps" else torch.float32
    dz = torch.zeros(layout.groups, points, dtype=wide, device=x.device)
    rows = points * spread(torch.arange(layout.groups, device=x.device), layout)
    q = spread(q, layout)
    for piece in pieces(x, kept=8):
        symbol = nearest_symbol(x[piece], q, points=points)
        # As in SQUAF itself a NaN belongs to the middle, and does not stay hidden.
        g = torch.where(x[piece].isnan(), torch.nan, grad[piece].to(compute_dtype(x)))
        if x.device.type == "cpu":
            dz.view(-1).index_add_(0, (symbol + rows).reshape(-1), g.to(wide).reshape(-1))
        else:
            for i in range(points):
                # One masked sum for each point: index_add would use atomics here.
                met = torch.where(symbol == i, g, 0).sum((0, 2, 4), dtype=wide)
                dz[:, i] += met.reshape(-1)
    return dz


def _keys(seed: Tensor, piece: tuple[slice, ...], *, x: Tensor) -> tuple[Tensor, Tensor]:
    """The seed of every element of a piece, and its position among the elements of that seed."""
    position = torch.zeros((), dtype=torch.int64, device=x.device)
    for dim, cut in enumerate(piece):
        start, end, _ = cut.indices(x.shape[dim])
        # Each dimension counts in units of all that lies within it.
        position = position.unsqueeze(-1) + torch.arange(start, end, device=x.device) * prod(x.shape[dim + 1 :])
    if seed.dim() == 0:
        return seed, position
    each = x.numel() // seed.numel()
    return seed.reshape(-1)[position // each], position % each
