"""SQUAF's other modes: `squaf_sampled` (SQUAF-P), `squaf_step` (SQUAF-S), and the symbols they choose.

Reference: Soft quantization activation functions (the SQUAF paper), section 3.3 with equation 10, and appendix A.4 with
equations 43 and 44.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..dispatch import exporting, inside_transform, must_differentiate_through
from .eager import squaf_on_grid_in_pieces, symbols_on_grid_in_pieces
from .function import check_grid, check_uniform, check_weights
from .layout import Layout, arrange, as_stored, dense
from .op import SquafBackwardFunction, first_gradients, fold_replicas, kernels_for, remember, shape_without
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


# -- the operators ----------------------------------------------------------------------------------------
#
# `squaf_sample` draws z_i with probability P(y_i | x); its derivative is SQUAF's, by SQUAF's operator. `squaf_step`
# takes z at the nearest point; its derivative is the true one, 0 by x and q. `squaf_symbols` gives the places in z that
# either takes. A seed is a number, or (under vmap) a tensor whose dimensions are the first ones of x: each part of x is
# then drawn as it would be alone. Draws go by the place of an element in memory.
#
# `squaf_seed` draws that number from torch's generator. It is an operator because compilers replace torch.randint by
# random numbers of their own, and takes a new empty tensor, `token`, because two equal calls would become one.


_TAGS = (torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)

torch.library.define(
    "softknee::squaf_seed",
    "(Tensor x, Tensor token, int[] shape) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded, torch.Tag.pt2_compliant_tag),
)
torch.library.define(
    "softknee::squaf_sample",
    "(Tensor x, Tensor seed, Tensor q, Tensor alpha, Tensor z, int window, bool laplacian) -> Tensor",
    tags=_TAGS,
)
torch.library.define("softknee::squaf_step", "(Tensor x, Tensor q, Tensor z) -> Tensor", tags=_TAGS)
torch.library.define(
    "softknee::squaf_step_backward", "(Tensor grad, Tensor x, Tensor q, Tensor z) -> Tensor", tags=_TAGS
)
torch.library.define(
    "softknee::squaf_symbols",
    "(Tensor x, Tensor? seed, Tensor q, Tensor alpha, int points, int window, bool laplacian) -> Tensor",
    tags=_TAGS,
)


@torch.library.impl("softknee::squaf_seed", "CompositeExplicitAutograd")
def _seed(x: Tensor, token: Tensor, shape: list[int]) -> Tensor:
    return draw_seed(x, tuple(shape))


@torch.library.impl("softknee::squaf_sample", "CompositeExplicitAutograd")
def _sample(x: Tensor, seed: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
    return _choose(x, seed, q, alpha, z, points=z.shape[-1], window=window, laplacian=laplacian)


@torch.library.impl("softknee::squaf_step", "CompositeExplicitAutograd")
def _step(x: Tensor, q: Tensor, z: Tensor) -> Tensor:
    return _choose(x, None, q, q, z, points=z.shape[-1], window=0, laplacian=False)


@torch.library.impl("softknee::squaf_symbols", "CompositeExplicitAutograd")
def _symbols(
    x: Tensor, seed: Tensor | None, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool
) -> Tensor:
    return _choose(x, seed, q, alpha, None, points=points, window=window, laplacian=laplacian)


def _choose(
    x: Tensor,
    seed: Tensor | None,
    q: Tensor,
    alpha: Tensor,
    z: Tensor | None,
    *,
    points: int,
    window: int,
    laplacian: bool,
) -> Tensor:
    """The chosen values, or their symbols where z is None, with the strides that the fake operators promise."""
    x = _laid(x, seed)
    layout = arrange(x, parameter_shape=q.shape)
    how = {"points": points, "window": window, "laplacian": laplacian}
    if seed is not None and seed.dim() and not _in_order(layout):
        # Parameters along so many separate dimensions that folding mixes the parts of x: one part at a time.
        rows = [_row(i, q=q, alpha=alpha, z=z, dims=x.dim()) for i in range(len(x))]
        return torch.stack([_choose(part, s, *row, **how) for part, s, row in zip(x, seed, rows, strict=True)])
    rows = (
        layout.fold_parameter(q),
        layout.fold_parameter(alpha),
        None if z is None else layout.fold_parameter(z, table=True),
    )
    out = kernels_for(x).choose(layout.fold(x), seed, *rows, layout=layout, **how)
    return as_stored(layout.unfold(out), like=x)


def _laid(x: Tensor, seed: Tensor | None) -> Tensor:
    """x without gaps; contiguous where it has parts with seeds of their own, which then lie one after the other."""
    return x.contiguous() if seed is not None and seed.dim() else dense(x)


def _in_order(layout: Layout) -> bool:
    order = [dim for dim, size in zip(layout.order, layout.sizes, strict=True) if size != 1]
    return order == sorted(order)


def _row(i: int, *, q: Tensor, alpha: Tensor, z: Tensor | None, dims: int) -> tuple[Tensor, Tensor, Tensor | None]:
    """The parameters of part i of an x with so many dimensions; q, alpha and z have one shape but for z's last."""
    if q.dim() < dims:
        return q, alpha, z
    at = i if q.shape[0] > 1 else 0
    return q[at], alpha[at], None if z is None else z[at]


@torch.library.impl("softknee::squaf_step_backward", "CompositeExplicitAutograd")
def _step_backward(grad: Tensor, x: Tensor, q: Tensor, z: Tensor) -> Tensor:
    x = dense(x)
    layout = arrange(x, parameter_shape=q.shape)
    folded = layout.fold(grad).contiguous()
    row = layout.fold_parameter(q)
    dz = kernels_for(x).step_backward(folded, layout.fold(x), row, points=z.shape[-1], layout=layout)
    return layout.unfold_parameter(dz, like=z, table=True)


# ---- shapes ------------------------------------------------------------------------------------------------


@torch.library.register_fake("softknee::squaf_seed")
def _seed_shape(x: Tensor, token: Tensor, shape: list[int]) -> Tensor:
    return x.new_empty(shape, dtype=torch.int64)


@torch.library.register_fake("softknee::squaf_sample")
def _sample_shape(x: Tensor, seed: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
    return torch.empty_like(_laid(x, seed))


@torch.library.register_fake("softknee::squaf_step")
def _step_shape(x: Tensor, q: Tensor, z: Tensor) -> Tensor:
    return torch.empty_like(dense(x))


@torch.library.register_fake("softknee::squaf_step_backward")
def _step_backward_shape(grad: Tensor, x: Tensor, q: Tensor, z: Tensor) -> Tensor:
    return z.new_empty(z.shape)


@torch.library.register_fake("softknee::squaf_symbols")
def _symbols_shape(
    x: Tensor, seed: Tensor | None, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool
) -> Tensor:
    return torch.empty_like(_laid(x, seed), dtype=torch.int32)


# ---- derivatives -------------------------------------------------------------------------------------------


def _remember_sample(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, _, *rest = inputs
    remember(ctx, (x, *rest), output)


def _gradients_of_sample(ctx: Any, grad: Tensor, backward: Callable[..., Any]) -> Any:
    needs = ctx.needs_input_grad
    by_x, *rest = first_gradients(ctx, grad, (needs[0], *needs[2:5]), backward)
    return by_x, None, *rest, None, None


def _differentiate_sample(ctx: Any, grad: Tensor) -> Any:
    return _gradients_of_sample(ctx, grad, torch.ops.softknee.squaf_backward)


def _remember_step(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_step(ctx, grad: Tensor):
    x, q, z = ctx.saved_tensors  # once: activation checkpointing refuses a second look
    by_x, by_q, by_z = ctx.needs_input_grad
    return (
        torch.zeros_like(x) if by_x else None,
        torch.zeros_like(q) if by_q else None,
        torch.ops.softknee.squaf_step_backward(grad, x, q, z) if by_z else None,
    )


def _differentiate_step_backward(ctx, outer: Tensor):
    # The gradient of z is linear in grad: what belongs to an element is the outer gradient at its point.
    _, x, q, _ = ctx.saved_tensors
    return torch.ops.softknee.squaf_step(x, q, outer.to(x.dtype)), torch.zeros_like(x), torch.zeros_like(q), None


torch.library.register_autograd("softknee::squaf_sample", _differentiate_sample, setup_context=_remember_sample)
torch.library.register_autograd("softknee::squaf_step", _differentiate_step, setup_context=_remember_step)
torch.library.register_autograd(
    "softknee::squaf_step_backward", _differentiate_step_backward, setup_context=_remember_step
)


# ---- replicas ----------------------------------------------------------------------------------------------


def _seed_replicas(info, in_dims, x, token, shape):
    if info.randomness == "error":
        raise RuntimeError(
            "SQUAF-P draws random numbers, and this vmap has no word on its randomness: pass randomness='different' "
            "(every replica draws for itself) or randomness='same' to torch.func.vmap."
        )
    if info.randomness == "same":
        return torch.ops.softknee.squaf_seed(x, token, shape), None
    return torch.ops.softknee.squaf_seed(x, token, [info.batch_size, *shape]), 0


def _sample_replicas(info, in_dims, args, sample):
    """vmap's rule of `sample`, the operator or the Function around it; a seed for each replica, or one for all."""
    x, seed, q, alpha, z, window, laplacian = args
    dims = (in_dims[0], *in_dims[2:5])
    x, parameters = fold_replicas(info.batch_size, dims, x, (q, alpha, z), always=False)
    seed = seed.expand(info.batch_size, *seed.shape) if in_dims[1] is None else seed.movedim(in_dims[1], 0)
    return sample(x, seed, *parameters, window, laplacian), 0


def _step_replicas(info, in_dims, x, q, z):
    by_x, by_q, by_z = in_dims
    x, (q, _, z) = fold_replicas(info.batch_size, (by_x, by_q, by_q, by_z), x, (q, q, z), always=False)
    return torch.ops.softknee.squaf_step(x, q, z), 0


def _step_backward_replicas(info, in_dims, grad, x, q, z):
    by_grad, by_x, by_q, by_z = in_dims
    shape = shape_without(z, by_z)
    x, (q, _, z) = fold_replicas(info.batch_size, (by_x, by_q, by_q, by_z), x, (q, q, z), always=True)
    grad = grad.movedim(by_grad, 0) if by_grad is not None else grad.expand(x.shape)
    return torch.ops.softknee.squaf_step_backward(grad, x, q, z).reshape(info.batch_size, *shape), 0


torch.library.register_vmap("softknee::squaf_seed", _seed_replicas)
torch.library.register_vmap(
    "softknee::squaf_sample",
    lambda info, in_dims, *args: _sample_replicas(info, in_dims, args, torch.ops.softknee.squaf_sample),
)
torch.library.register_vmap("softknee::squaf_step", _step_replicas)
torch.library.register_vmap("softknee::squaf_step_backward", _step_backward_replicas)


class SquafSampleFunction(torch.autograd.Function):
    """`softknee::squaf_sample` inside torch.func transforms; its derivative is SQUAF's."""

    setup_context = staticmethod(_remember_sample)

    @staticmethod
    def forward(x: Tensor, seed: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
        return torch.ops.softknee.squaf_sample(x, seed, q, alpha, z, window, laplacian)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return _gradients_of_sample(ctx, outer[0], SquafBackwardFunction.apply)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return _sample_replicas(info, in_dims, args, SquafSampleFunction.apply)
