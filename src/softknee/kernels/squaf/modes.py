"""SQUAF's other modes as functions: `squaf_sampled` (SQUAF-P), `squaf_step` (SQUAF-S), and the symbols they choose.

Reference: Soft quantization activation functions (the SQUAF paper), section 3.3 with equation 10, and appendix A.4 with
equations 43 and 44.
"""

from typing import Any

import torch
from torch import Tensor

from ..dispatch import exporting
from . import modes_op  # noqa: F401  (defines the operators)
from .dispatch import inside_transform, must_differentiate_through
from .function import check_grid, check_uniform, check_weights
from .modes_op import fold_seed
from .on_grid import squaf_on_grid_in_pieces, symbols_on_grid_in_pieces
from .op import first_gradients, fold_replicas
from .plain import compute_dtype, squaf_plain
from .symbols import as_symbols, draw_seed, nearest_symbol, positions_of, sampled_symbol, uniform, value_at


def new_seed(x: Tensor) -> Tensor:
    """A seed for one call on x, from torch's default generator of its device; one for each replica under vmap."""
    if torch.compiler.is_compiling() and not exporting():
        return torch.ops.softknee.squaf_seed(x, torch.empty(0, device=x.device), [])
    return draw_seed(x)


def squaf_sampled(
    x: Tensor,
    *,
    alpha: Tensor,
    z: Tensor,
    q: Tensor | None = None,
    k: int | None = None,
    window: int | None = 5,
    weights: str = "gaussian",
    grid: Tensor | None = None,
    seed: Tensor | None = None,
) -> Tensor:
    """SQUAF-P: z_i with probability P(y_i | x), drawn anew at every call; its derivatives are those of `squaf`.

    The arguments are those of `squaf`. `seed` is a number of 63 bits as a tensor of no dimensions; left out, one is
    drawn from torch's default generator, so that torch.manual_seed repeats the samples. The mean over many calls is
    `squaf` itself. P is met to 2^-24 (2^-32 for a float64 x): less likely points are drawn a little more seldom or
    often.

    >>> _ = torch.manual_seed(0)
    >>> z = torch.tensor([0.0, 5.0, 6.0])
    >>> squaf_sampled(torch.full((8,), 0.5), q=torch.ones(1), alpha=torch.full((1,), 16.0), z=z, window=3).unique()
    tensor([5., 6.])
    """
    check_weights(weights)
    laplacian = weights == "laplacian"
    seed = new_seed(x) if seed is None else seed
    if grid is not None:
        flat = check_grid(x, grid=grid, q=q, alpha=alpha, z=z, window=window)
        symbol = symbols_on_grid_in_pieces(flat, grid, alpha, laplacian, seed=seed)
        soft = squaf_on_grid_in_pieces(flat, grid, alpha, z, laplacian)
        return _with_slopes_of(soft, _on_table(z, symbol, flat)).reshape(x.shape)
    flat, q, alpha, z = check_uniform(x, q=q, alpha=alpha, z=z, k=k, window=window)
    arguments: tuple[Any, ...] = (q, alpha, z, window or 0, laplacian)
    if must_differentiate_through():
        u = uniform(seed, positions_of(flat), compute_dtype(x))
        symbol = sampled_symbol(flat.detach(), q.detach(), alpha.detach(), z.shape[-1], window or 0, laplacian, u=u)
        out = _with_slopes_of(squaf_plain(flat, *arguments), _on_table(z, symbol, flat))
    elif inside_transform():
        out: Tensor = SquafSampleFunction.apply(flat, seed, *arguments)  # pyright: ignore
    else:
        out = torch.ops.softknee.squaf_sample(flat, seed, *arguments)
    return out.reshape(()) if x.dim() == 0 else out


def squaf_step(
    x: Tensor, *, z: Tensor, q: Tensor | None = None, k: int | None = None, grid: Tensor | None = None
) -> Tensor:
    """SQUAF-S: z at clamp(round(x/q), -k, k); on a general grid, z at the nearest point.

    Its derivatives are the true ones of a staircase: 0 by x, q and grid, and by z_i the elements that take it. In the
    middle between two points round takes the even one; on a general grid, as in the paper, the upper one.

    >>> squaf_step(torch.tensor([-9.0, 0.4, 0.6, 9.0]), q=torch.ones(1), z=torch.tensor([0.0, 5.0, 6.0]))
    tensor([0., 5., 6., 6.])
    """
    if grid is not None:
        flat = check_grid(x, grid=grid, q=q, alpha=grid.new_ones(1), z=z, window=None)
        return value_at(z, _nearest_on_grid(flat, grid), x=flat).reshape(x.shape)
    flat, q, _, z = check_uniform(x, q=q, alpha=z.new_ones(1), z=z, k=k, window=None)
    # A compiler joins plain operations with their neighbours, but its gradient of z would have no fixed order.
    free = torch.compiler.is_compiling() and not (z.requires_grad and torch.is_grad_enabled())
    if free or must_differentiate_through() or inside_transform():
        out = value_at(z, nearest_symbol(flat.detach(), q.detach(), points=z.shape[-1]), x=flat)
    else:
        out = torch.ops.softknee.squaf_step(flat, q, z)
    return out.reshape(()) if x.dim() == 0 else out


@torch.no_grad()
def sampled_symbols(
    x: Tensor,
    *,
    alpha: Tensor,
    z: Tensor,
    seed: Tensor,
    q: Tensor | None = None,
    k: int | None = None,
    window: int | None = 5,
    weights: str = "gaussian",
    grid: Tensor | None = None,
) -> Tensor:
    """The places in z that `squaf_sampled` takes with this seed, as int32; -1 where x is NaN."""
    check_weights(weights)
    laplacian = weights == "laplacian"
    if grid is not None:
        flat = check_grid(x, grid=grid, q=q, alpha=alpha, z=z, window=window)
        symbol = symbols_on_grid_in_pieces(flat, grid, alpha, laplacian, seed=seed)
        return as_symbols(symbol, x=flat).reshape(x.shape)
    flat, q, alpha, z = check_uniform(x, q=q, alpha=alpha, z=z, k=k, window=window)
    result = torch.ops.softknee.squaf_symbols(flat, seed, q, alpha, z.shape[-1], window or 0, laplacian)
    return result.reshape(x.shape)


@torch.no_grad()
def step_symbols(
    x: Tensor, *, z: Tensor, q: Tensor | None = None, k: int | None = None, grid: Tensor | None = None
) -> Tensor:
    """The places in z that `squaf_step` takes, as int32; -1 where x is NaN."""
    if grid is not None:
        flat = check_grid(x, grid=grid, q=q, alpha=grid.new_ones(1), z=z, window=None)
        return as_symbols(_nearest_on_grid(flat, grid), x=flat).reshape(x.shape)
    flat, q, _, z = check_uniform(x, q=q, alpha=z.new_ones(1), z=z, k=k, window=None)
    return torch.ops.softknee.squaf_symbols(flat, None, q, q, z.shape[-1], 0, False).reshape(x.shape)


def _nearest_on_grid(x: Tensor, grid: Tensor) -> Tensor:
    return symbols_on_grid_in_pieces(x, grid, grid.new_ones(1), False, seed=None)


def _on_table(z: Tensor, symbol: Tensor, x: Tensor) -> Tensor:
    return value_at(z.detach(), symbol, x=x.detach())


def _with_slopes_of(soft: Tensor, value: Tensor) -> Tensor:
    """This value with the derivatives of `soft`: the paper's stop-gradient form, arranged so that it adds exactly 0."""
    return value + (soft - soft.detach())


class SquafSampleFunction(torch.autograd.Function):
    """`softknee::squaf_sample` inside torch.func transforms; its derivative is SQUAF's."""

    @staticmethod
    def forward(x: Tensor, seed: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
        return torch.ops.softknee.squaf_sample(x, seed, q, alpha, z, window, laplacian)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, _, q, alpha, z, ctx.window, ctx.laplacian = inputs
        ctx.save_for_backward(x, q, alpha, z)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        needs = ctx.needs_input_grad
        by_x, *rest = first_gradients(ctx, outer[0], (needs[0], *needs[2:5]))
        return by_x, None, *rest, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        x, seed, q, alpha, z, window, laplacian = args
        dims = (in_dims[0], *in_dims[2:5])
        x, parameters = fold_replicas(info.batch_size, dims, x, (q, alpha, z), always=False)
        seed = fold_seed(info.batch_size, in_dims[1], seed)
        return SquafSampleFunction.apply(x, seed, *parameters, window, laplacian), 0
