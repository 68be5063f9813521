"""The marginal of SQUAF without a fused kernel: tensor operations over pieces that fit in a processor's cache.

x is folded (see layout.py), q and alpha have the shape (groups,), and sums are in float64 where there is one. `slope`,
of shape (groups, n), is the gradient of what is made of the sums.
"""

import torch
from torch import Tensor

from .eager import pieces, slopes, spread
from .layout import Layout
from .plain import compute_dtype, finite_range, keep_window
from .wanted import BY_X, EVERY

Gradients = tuple[Tensor, Tensor | None, Tensor | None]


def eager_sums(x: Tensor, q: Tensor, alpha: Tensor, n: int, *, layout: Layout, window: int, laplacian: bool) -> Tensor:
    """sum_x P(y_i | x) of each group, (groups, n), the pieces added in order."""
    kind, wide = compute_dtype(x), _widest(x)
    sums = torch.zeros(layout.groups, n, dtype=wide, device=x.device)
    q5, alpha5 = spread(q.to(kind), layout), spread(alpha.to(kind), layout)
    table = spread(torch.zeros(layout.groups, n, dtype=kind, device=x.device), layout)
    for piece in pieces(x, kept=window or n):
        part = finite_range(x[piece].to(kind))
        kept = keep_window(part, q=q5, alpha=alpha5, z=table, window=window, laplacian=laplacian)
        if kept.rows is None:
            sums += _sum_elements(kept.probability, wide).T
        elif x.device.type == "cpu":
            sums.view(-1).index_add_(0, kept.rows.reshape(-1), kept.probability.to(wide).reshape(-1))
        else:
            # Elsewhere index_add uses atomics, in any order. A point beyond an end counts there, with probability 0.
            for i in range(n):
                here = torch.where(kept.rows % n == i, kept.probability, 0)
                sums[:, i] += _sum_elements(here.sum(0), wide)
    return sums


def eager_gradients(
    slope: Tensor,
    x: Tensor,
    q: Tensor,
    alpha: Tensor,
    *,
    layout: Layout,
    window: int,
    laplacian: bool,
    parameters: bool,
) -> Gradients:
    """The gradient by x, and by q and alpha where `parameters` asks for them."""
    kind, wide = compute_dtype(x), _widest(x)
    dx = torch.empty_like(x)
    dq = dalpha = None
    if parameters:
        dq = torch.zeros(layout.groups, dtype=wide, device=x.device)
        dalpha = torch.zeros_like(dq)
    q5, alpha5, table = (spread(p.to(kind), layout) for p in (q, alpha, slope))
    for piece in pieces(x, kept=window or slope.shape[-1]):
        part = finite_range(x[piece].to(kind))
        kept = keep_window(part, q=q5, alpha=alpha5, z=table, window=window, laplacian=laplacian)
        wanted = EVERY if parameters else BY_X
        by_x, by_q, by_alpha = slopes(kept, q=q5, alpha=alpha5, laplacian=laplacian, wanted=wanted)
        assert by_x is not None
        dx[piece] = by_x.to(x.dtype)
        if dq is not None and dalpha is not None and by_q is not None and by_alpha is not None:
            dq += _sum_elements(by_q, wide)
            dalpha += _sum_elements(by_alpha, wide)
    return dx, dq, dalpha


def _sum_elements(terms: Tensor, kind: torch.dtype) -> Tensor:
    """Sum over everything but groups (and a leading dimension of points, if there is one)."""
    summed = terms.sum((-5, -3, -1), dtype=kind)
    return summed.reshape(*summed.shape[:-2], -1)


def _widest(x: Tensor) -> torch.dtype:
    return torch.float64 if x.device.type != "mps" else torch.float32
