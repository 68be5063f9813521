"""SQUAF without a fused kernel: tensor operations over pieces that fit in a processor's cache.

Uniform grids, the points that SQUAF-P draws and SQUAF-S takes, and general grids. Forward and backward keep nothing
between them but x and the parameters. Sums over pieces have a fixed order: index_add on a CPU (which runs it in order),
one masked sum per grid point elsewhere, where index_add would use atomics.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor

from ..dispatch import must_differentiate_through, ordinary
from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, EVERY, Layout, arrange, as_stored, dense
from .plain import (
    Window,
    compute_dtype,
    finite_range,
    grid_probability,
    keep_window,
    squaf_on_grid,
    squaf_plain,
    values_at,
)
from .symbols import (
    as_symbols,
    drawn_slot,
    nearest_symbol,
    nearest_symbol_on_grid,
    positions_of,
    sampled_symbol,
    uniform,
    value_at,
)

# Elements of x times points kept in one piece: 2^19 float32 numbers are 2 MiB, a core's share of the cache.
PIECE = 1 << 19


def pieces(x: Tensor, *, points: int) -> Iterator[tuple[slice, ...]]:
    """Slices along the longest of the dimensions that are summed over."""
    if x.numel() == 0:
        return
    everything = slice(None)
    along = max((0, 2, 4), key=lambda dim: x.shape[dim])
    length = x.shape[along]
    step = max(1, PIECE * length // (x.numel() * points))
    for start in range(0, length, step):
        yield tuple(slice(start, start + step) if dim == along else everything for dim in range(5))


def spread(parameter: Tensor, layout: Layout) -> Tensor:
    """Rows of parameters, (groups,) or (groups, n), as they stand beside a folded x."""
    return parameter.reshape(1, layout.shape[1], 1, layout.shape[3], 1, *parameter.shape[1:])


def wide_dtype(x: Tensor) -> torch.dtype:
    """The widest type of the device that x is on."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def _sum_elements(terms: Tensor, kind: torch.dtype) -> Tensor:
    """Sum over everything but groups (and a leading dimension of points, if there is one)."""
    summed = terms.sum((-5, -3, -1), dtype=kind)
    return summed.reshape(*summed.shape[:-2], -1)


def _add_at(total: Tensor, index: Tensor, terms: Tensor) -> None:
    """Add the terms of a piece to a flattened total (groups, points) at these places."""
    if total.device.type == "cpu":
        total.view(-1).index_add_(0, index.reshape(-1), terms.to(total.dtype).reshape(-1))
        return
    symbol = index % total.shape[1]
    for i in range(total.shape[1]):
        here = torch.where(symbol == i, terms, 0)
        total[:, i] += _sum_elements(here.sum(0) if here.dim() > 5 else here, total.dtype)


# -- the uniform grid -------------------------------------------------------------------------------------


def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, layout: Layout, window: int, laplacian: bool) -> Tensor:
    """phi of a folded x of five dimensions; q, alpha of shape (groups,) and z of shape (groups, n)."""
    out = torch.empty_like(x)
    q, alpha, z = spread(q, layout), spread(alpha, layout), spread(z, layout)
    for piece in pieces(x, points=window or z.shape[-1]):
        out[piece] = squaf_plain(x[piece], q, alpha, z, window, laplacian)
    return out


def backward(
    grad: Tensor | None,
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
    where there is one. Without `grad` those of the sum of phi."""
    kind, wide = compute_dtype(x), wide_dtype(x)
    groups, n = z.shape
    q5, alpha5, z5 = (spread(p.to(kind), layout) for p in (q, alpha, z))
    dx = torch.empty_like(x) if wanted & BY_X else None
    dq, dalpha = (
        torch.zeros(groups, dtype=wide, device=x.device) if wanted & flag else None for flag in (BY_Q, BY_ALPHA)
    )
    dz = torch.zeros(groups, n, dtype=wide, device=x.device) if wanted & BY_Z else None
    for piece in pieces(x, points=window or n):
        part = finite_range(x[piece].to(kind))
        near = keep_window(part, q=q5, alpha=alpha5, points=n, window=window, laplacian=laplacian)
        index = near.indices(z5.shape)
        g = 1 if grad is None else grad[piece].to(kind)
        if wanted & ~BY_Z:
            value = values_at(index, z5, dims=5)
            by_x, by_q, by_alpha = slopes(near, value, q=q5, alpha=alpha5, laplacian=laplacian, wanted=wanted)
            if dx is not None and by_x is not None:
                dx[piece] = (g * by_x).to(x.dtype)
            if dq is not None and by_q is not None:
                dq += _sum_elements(g * by_q, wide)
            if dalpha is not None and by_alpha is not None:
                dalpha += _sum_elements(g * by_alpha, wide)
        if dz is not None and index is None:
            dz += _sum_elements(g * near.probability, wide).T
        elif dz is not None and index is not None:
            _add_at(dz, index, g * near.probability)
    return dx, dq, dalpha, dz


def slopes(
    near: Window, value: Tensor, *, q: Tensor, alpha: Tensor, laplacian: bool, wanted: int = EVERY
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The derivatives of phi by x, q and alpha, as far as they are wanted, from moments of z - phi.

    Each is sum_j P_j (z_j - phi) times the derivative of exponent j; subtracting phi first keeps the digits
    where the probabilities are spread evenly over large z. `value` is z at the kept points.
    """
    phi = (near.probability * value).sum(0)
    weighted = near.probability * (value - phi)
    d, c = near.rest, near.centre
    if laplacian:
        by_x = by_q = by_alpha = None
        spread = (weighted * near.steps.abs()).sum(0) if wanted & (BY_Q | BY_ALPHA) else torch.zeros_like(phi)
        if wanted & (BY_X | BY_Q):
            slope = near.steps.sign() + d.sign() * (near.steps != 0)
            by_x = alpha * (weighted * (slope - (near.probability * slope).sum(0))).sum(0)
            by_q = -c * by_x - alpha * spread if wanted & BY_Q else None
        if wanted & BY_ALPHA:
            signed = (weighted * near.steps.sign()).sum(0)
            off_centre = (weighted * (near.steps != 0)).sum(0)
            by_alpha = d * signed + d.abs() * off_centre - q * spread
        return by_x if wanted & BY_X else None, by_q, by_alpha
    # Subtracting the mean of j as well keeps the error of phi out of the result.
    first = (weighted * (near.steps - (near.probability * near.steps).sum(0))).sum(0)
    by_x = 2 * (alpha * q) * first if wanted & BY_X else None
    if not wanted & (BY_Q | BY_ALPHA):
        return by_x, None, None
    second = (weighted * near.steps.square()).sum(0)
    by_q = 2 * alpha * ((d - c * q) * first - q * second) if wanted & BY_Q else None
    return by_x, by_q, q * (2 * d * first - q * second) if wanted & BY_ALPHA else None


# -- the points that SQUAF-P draws and SQUAF-S takes ------------------------------------------------------


def choose(
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
    points_per_element = 8 if seed is None else window or points
    short = x.numel() <= 1 << 32
    for piece in pieces(x, points=points_per_element):
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
    dz = torch.zeros(layout.groups, points, dtype=wide_dtype(x), device=x.device)
    rows = points * spread(torch.arange(layout.groups, device=x.device), layout)
    q = spread(q, layout)
    for piece in pieces(x, points=8):
        # As in SQUAF itself a NaN belongs to the middle, and does not stay hidden.
        g = torch.where(x[piece].isnan(), torch.nan, grad[piece].to(compute_dtype(x)))
        _add_at(dz, nearest_symbol(x[piece], q, points=points) + rows, g)
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


# -- general grids ----------------------------------------------------------------------------------------
#
# Each piece is computed in plain tensor operations and differentiated by autograd. Transforms, forward mode, export,
# compilers and second derivatives take the plain form as a whole, which does keep the probabilities.


def squaf_on_grid_in_pieces(x: Tensor, grid: Tensor, alpha: Tensor, z: Tensor, laplacian: bool) -> Tensor:
    """phi on a general grid; x has a dimension or more, into which those of the parameters broadcast."""
    if not _can_be_cut(x):
        return squaf_on_grid(x, grid, alpha, z, laplacian)
    shape = torch.broadcast_shapes((1,), grid.shape[:-1], alpha.shape, z.shape[:-1])
    points = grid.shape[-1]
    return _OnGrid.apply(x, grid.expand(*shape, points), alpha.expand(shape), z.expand(*shape, points), laplacian)  # pyright: ignore


@torch.no_grad()
def symbols_on_grid_in_pieces(
    x: Tensor, grid: Tensor, alpha: Tensor, laplacian: bool, *, seed: Tensor | None
) -> Tensor:
    """The symbol of every x (some symbol where x is NaN): drawn with this seed, the nearest point where it is None.

    The number that draws an element goes by its place in x, whatever the pieces are.
    """
    x, grid, alpha = x.detach(), grid.detach(), alpha.detach()
    if not _can_be_cut(x) or (seed is not None and seed.dim()):
        return _symbols(x, grid, alpha, laplacian, seed=seed, positions=None if seed is None else positions_of(x))
    shape = torch.broadcast_shapes((1,), grid.shape[:-1], alpha.shape)
    x = dense(x)
    layout = arrange(x, parameter_shape=shape)
    folded = layout.fold(x)
    table = spread(layout.fold_parameter(grid.expand(*shape, grid.shape[-1]), table=True), layout)
    alpha = spread(layout.fold_parameter(alpha.expand(shape)), layout)
    positions = None if seed is None else layout.fold(positions_of(x))
    out = torch.empty_like(folded, dtype=torch.int64)
    for piece in pieces(folded, points=grid.shape[-1]):
        part = None if positions is None else positions[piece]
        out[piece] = _symbols(folded[piece], table, alpha, laplacian, seed=seed, positions=part)
    return layout.unfold(out)


def _symbols(
    x: Tensor, grid: Tensor, alpha: Tensor, laplacian: bool, *, seed: Tensor | None, positions: Tensor | None
) -> Tensor:
    if seed is None or positions is None:
        return nearest_symbol_on_grid(x, grid)
    probability = grid_probability(x, grid, alpha, laplacian)
    return drawn_slot(probability, uniform(seed, positions, compute_dtype(x)))


def _can_be_cut(x: Tensor) -> bool:
    return not torch.compiler.is_compiling() and not must_differentiate_through() and ordinary(x)


class _OnGrid(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, grid: Tensor, alpha: Tensor, z: Tensor, laplacian: bool) -> Tensor:
        ctx.save_for_backward(x, grid, alpha, z)
        ctx.laplacian = laplacian
        x = dense(x)
        layout = arrange(x, parameter_shape=alpha.shape)
        folded = layout.fold(x)
        rows = _rows(layout, grid, alpha, z)
        out = torch.empty_like(folded)
        for piece in pieces(folded, points=z.shape[-1]):
            out[piece] = squaf_on_grid(folded[piece], *rows, laplacian)
        return as_stored(layout.unfold(out), like=x)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        (x, grid, alpha, z), needs = ctx.saved_tensors, ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():  # the gradient is to be differentiated in its turn
            wanted = [tensor for tensor, needed in zip((x, grid, alpha, z), needs, strict=True) if needed]
            value = squaf_on_grid(x, grid, alpha, z, ctx.laplacian)
            gradients = iter(torch.autograd.grad(value, wanted, outer[0], create_graph=True))
            return *(next(gradients) if needed else None for needed in needs), None
        x = dense(x)
        layout = arrange(x, parameter_shape=alpha.shape)
        folded, grad = layout.fold(x), layout.fold(outer[0])
        kind = compute_dtype(x)  # of the sums of a piece; those of the pieces are in float64 where there is one
        rows = [row.to(kind) for row in _rows(layout, grid, alpha, z)]
        dx = torch.empty_like(folded) if needs[0] else None
        sums = [torch.zeros_like(row, dtype=wide_dtype(x)) for row in rows]
        for piece in pieces(folded, points=z.shape[-1]):
            inputs = zip((folded[piece], *rows), needs, strict=True)
            at, *parameters = (tensor.detach().requires_grad_(needed) for tensor, needed in inputs)
            with torch.enable_grad():
                part = squaf_on_grid(at, parameters[0], parameters[1], parameters[2], ctx.laplacian)
            wanted = [tensor for tensor in (at, *parameters) if tensor.requires_grad]
            gradients = iter(torch.autograd.grad(part, wanted, grad[piece]))
            if dx is not None:
                dx[piece] = next(gradients)
            for total, needed in zip(sums, needs[1:], strict=True):
                if needed:
                    total += next(gradients)
        dgrid, dalpha, dz = (
            layout.unfold_parameter(total.reshape(layout.groups, *total.shape[5:]), like=like, table=total.dim() > 5)
            if needed
            else None
            for total, like, needed in zip(sums, (grid, alpha, z), needs[1:], strict=True)
        )
        return None if dx is None else as_stored(layout.unfold(dx), like=x), dgrid, dalpha, dz, None


def _rows(layout: Layout, grid: Tensor, alpha: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The parameters as they stand beside a folded x."""
    rows = (layout.fold_parameter(p, table=table) for p, table in ((grid, True), (alpha, False), (z, True)))
    grid, alpha, z = (spread(row, layout) for row in rows)
    return grid, alpha, z
