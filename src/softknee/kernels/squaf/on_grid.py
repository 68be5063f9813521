"""SQUAF on a general grid without a tensor of elements times points: piece by piece, and again in the backward pass.

Forward and backward keep nothing between them but x and the parameters. Each piece is computed in plain tensor
operations and differentiated by autograd, and the sums over pieces have a fixed order. The points that SQUAF-P draws
and SQUAF-S takes are found in the same pieces. Transforms, forward mode, export, compilers and second derivatives take
the plain form as a whole, which does keep the probabilities.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..dispatch import ordinary
from .dispatch import must_differentiate_through
from .eager import pieces, spread
from .layout import Layout, arrange, dense
from .op import as_stored
from .plain import compute_dtype, squaf_on_grid
from .symbols import nearest_symbol_on_grid, positions_of, sampled_symbol_on_grid, uniform


def squaf_on_grid_in_pieces(x: Tensor, grid: Tensor, alpha: Tensor, z: Tensor, laplacian: bool) -> Tensor:
    """phi on a general grid; x has a dimension or more, into which those of the parameters broadcast."""
    if not _can_be_cut(x):
        return squaf_on_grid(x, grid, alpha, z, laplacian)
    own = torch.broadcast_shapes((1,), grid.shape[:-1], alpha.shape, z.shape[:-1])
    points = grid.shape[-1]
    return _OnGrid.apply(x, grid.expand(*own, points), alpha.expand(own), z.expand(*own, points), laplacian)  # pyright: ignore


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
    own = torch.broadcast_shapes((1,), grid.shape[:-1], alpha.shape)
    x = dense(x)
    layout = arrange(x, parameter_shape=own)
    folded = layout.fold(x)
    table = spread(layout.fold_parameter(grid.expand(*own, grid.shape[-1]), table=True), layout)
    each = spread(layout.fold_parameter(alpha.expand(own)), layout)
    positions = None if seed is None else layout.fold(positions_of(x))
    out = torch.empty_like(folded, dtype=torch.int64)
    for piece in pieces(folded, kept=grid.shape[-1]):
        part = None if positions is None else positions[piece]
        out[piece] = _symbols(folded[piece], table, each, laplacian, seed=seed, positions=part)
    return layout.unfold(out)


def _symbols(
    x: Tensor, grid: Tensor, alpha: Tensor, laplacian: bool, *, seed: Tensor | None, positions: Tensor | None
) -> Tensor:
    if seed is None or positions is None:
        return nearest_symbol_on_grid(x, grid)
    return sampled_symbol_on_grid(x, grid, alpha, laplacian, u=uniform(seed, positions, compute_dtype(x)))


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
        for piece in pieces(folded, kept=z.shape[-1]):
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
        wide = torch.float64 if x.device.type != "mps" else torch.float32
        dx = torch.empty_like(folded) if needs[0] else None
        sums = [torch.zeros_like(row, dtype=wide) for row in rows]
        for piece in pieces(folded, kept=z.shape[-1]):
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
