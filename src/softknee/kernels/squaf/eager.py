"""SQUAF without a fused kernel: tensor operations over pieces that fit in a processor's cache.

Forward and backward keep nothing between them but x and the parameters. The gradient of z is summed in a
fixed order: index_add on a CPU (which runs it in order), one masked sum per grid point elsewhere, where
index_add would use atomics.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, EVERY, Layout
from .plain import Window, compute_dtype, exponent, finite_range, keep_window, squaf_plain

# Elements of x times points kept in one piece: 2^19 float32 numbers are 2 MiB, a core's share of the cache.
PIECE = 1 << 19


def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, layout: Layout, window: int, laplacian: bool) -> Tensor:
    """phi of a folded x of five dimensions; q, alpha of shape (groups,) and z of shape (groups, n)."""
    out = torch.empty_like(x)
    q, alpha, z = spread(q, layout), spread(alpha, layout), spread(z, layout)
    for piece in pieces(x, kept=window or z.shape[-1]):
        out[piece] = squaf_plain(x[piece], q, alpha, z, window, laplacian)
    return out


def backward(
    grad: Tensor,
    x: Tensor,
    q: Tensor,
    alpha: Tensor,
    z: Tensor,
    *,
    layout: Layout,
    window: int,
    laplacian: bool,
    wanted: int = EVERY,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x (folded), q, alpha (groups,) and z (groups, n), None for one that is not wanted; sums in float64
    where there is one."""
    kind = compute_dtype(x)
    wide = torch.float64 if x.device.type != "mps" else torch.float32
    groups, n = z.shape
    q5, alpha5, z5 = (spread(p.to(kind), layout) for p in (q, alpha, z))
    dx = torch.empty_like(x) if wanted & BY_X else None
    dq, dalpha = (
        torch.zeros(groups, dtype=wide, device=x.device) if wanted & flag else None for flag in (BY_Q, BY_ALPHA)
    )
    dz = torch.zeros(groups, n, dtype=wide, device=x.device) if wanted & BY_Z else None
    for piece in pieces(x, kept=window or n):
        part = finite_range(x[piece].to(kind))
        kept = keep_window(
            part, q=q5, alpha=alpha5, z=z5, window=window, laplacian=laplacian, values=bool(wanted & ~BY_Z)
        )
        g = grad[piece].to(kind)
        if wanted & ~BY_Z:
            by_x, by_q, by_alpha = slopes(kept, q=q5, alpha=alpha5, laplacian=laplacian, wanted=wanted)
            if dx is not None and by_x is not None:
                dx[piece] = (g * by_x).to(x.dtype)
            if dq is not None and by_q is not None:
                dq += _sum_elements(g * by_q, wide)
            if dalpha is not None and by_alpha is not None:
                dalpha += _sum_elements(g * by_alpha, wide)
        if dz is None:
            continue
        if kept.rows is None:
            dz += _sum_elements(g * kept.probability, wide).T
        elif x.device.type == "cpu":
            dz.view(-1).index_add_(0, kept.rows.reshape(-1), (g * kept.probability).to(wide).reshape(-1))
        else:
            for i in range(n):
                dz[:, i] += _sum_elements(
                    g * _probability_of(i, kept, q=q5, alpha=alpha5, n=n, laplacian=laplacian), wide
                )
    return dx, dq, dalpha, dz


def slopes(
    kept: Window, *, q: Tensor, alpha: Tensor, laplacian: bool, wanted: int = EVERY
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The derivatives of phi by x, q and alpha, as far as they are wanted, from moments of z - phi.

    Each is sum_j P_j (z_j - phi) times the derivative of exponent j; subtracting phi first keeps the digits
    where the probabilities are spread evenly over large z.
    """
    phi = (kept.probability * kept.value).sum(0)
    weighted = kept.probability * (kept.value - phi)
    d, c = kept.rest, kept.centre
    if laplacian:
        by_x = by_q = by_alpha = None
        spread = (weighted * kept.steps.abs()).sum(0) if wanted & (BY_Q | BY_ALPHA) else torch.zeros_like(phi)
        if wanted & (BY_X | BY_Q):
            slope = kept.steps.sign() + d.sign() * (kept.steps != 0)
            by_x = alpha * (weighted * (slope - (kept.probability * slope).sum(0))).sum(0)
            by_q = -c * by_x - alpha * spread if wanted & BY_Q else None
        if wanted & BY_ALPHA:
            signed = (weighted * kept.steps.sign()).sum(0)
            off_centre = (weighted * (kept.steps != 0)).sum(0)
            by_alpha = d * signed + d.abs() * off_centre - q * spread
        return by_x if wanted & BY_X else None, by_q, by_alpha
    # Subtracting the mean of j as well keeps the error of phi out of the result.
    first = (weighted * (kept.steps - (kept.probability * kept.steps).sum(0))).sum(0)
    by_x = 2 * (alpha * q) * first if wanted & BY_X else None
    if not wanted & (BY_Q | BY_ALPHA):
        return by_x, None, None
    second = (weighted * kept.steps.square()).sum(0)
    by_q = 2 * alpha * ((d - c * q) * first - q * second) if wanted & BY_Q else None
    return by_x, by_q, q * (2 * d * first - q * second) if wanted & BY_ALPHA else None


def _probability_of(i: int, kept: Window, *, q: Tensor, alpha: Tensor, n: int, laplacian: bool) -> Tensor:
    """P(y_i | x) for one grid point, 0 where it is outside the window."""
    half = kept.probability.shape[0] // 2
    steps = (i - (n - 1) // 2) - kept.centre
    # The nearest point's probability is e^0 / sum: it turns a relative weight into a probability.
    relative = exponent(kept.rest, q=q, alpha=alpha, steps=steps, laplacian=laplacian).clamp(max=80)
    return torch.where(steps.abs() <= half, relative.exp() * kept.probability[half], 0)


def spread(parameter: Tensor, layout: Layout) -> Tensor:
    return parameter.reshape(1, layout.shape[1], 1, layout.shape[3], 1, *parameter.shape[1:])


def _sum_elements(terms: Tensor, kind: torch.dtype) -> Tensor:
    """Sum over everything but groups (and a leading window dimension, if there is one)."""
    summed = terms.sum((-5, -3, -1), dtype=kind)
    return summed.reshape(*summed.shape[:-2], -1)


def pieces(x: Tensor, *, kept: int) -> Iterator[tuple[slice, ...]]:
    """Slices along the longest of the dimensions that are summed over."""
    if x.numel() == 0:
        return
    everything = slice(None)
    along = max((0, 2, 4), key=lambda dim: x.shape[dim])
    length = x.shape[along]
    step = max(1, PIECE * length // (x.numel() * kept))
    for start in range(0, length, step):
        yield tuple(slice(start, start + step) if dim == along else everything for dim in range(5))
