"""The operators of SQUAF's other modes: `softknee::squaf_sample`, `squaf_step` and `squaf_symbols`.

`squaf_sample` draws z_i with probability P(y_i | x); its derivative is SQUAF's, by SQUAF's operator. `squaf_step` takes
z at the nearest point; its derivative is the true one, 0 by x and q. `squaf_symbols` gives the places in z that either
takes. A seed is a number, or (under vmap) a tensor whose dimensions are the first ones of x: each part of x is
then drawn as it would be alone. Draws go by the place of an element in memory.

`squaf_seed` draws that number from torch's generator. It is an operator because compilers replace torch.randint by
random numbers of their own, and has the argument `token`, a new empty tensor, because two equal calls would become one.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from .dispatch import choose_kernel
from .eager import pieces, spread
from .layout import Layout, arrange, dense, only_wanted, wanted_of
from .op import as_stored, fold_replicas, shape_without
from .plain import compute_dtype
from .symbols import as_symbols, draw_seed, nearest_symbol, sampled_symbol, uniform, value_at

# -- sampling and stepping without a fused kernel ---------------------------------------------------------
#
# Tensor operations over pieces that fit in a processor's cache.


def eager_forward(
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


def eager_step_backward(grad: Tensor, x: Tensor, q: Tensor, *, points: int, layout: Layout) -> Tensor:
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


# -- the operators of SQUAF's other modes: softknee::squaf_sample, squaf_step and squaf_symbols -----------


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
        own = [_row(i, q=q, alpha=alpha, z=z, dims=x.dim()) for i in range(len(x))]
        each = [_choose(part, one, *row, **how) for part, one, row in zip(x, seed, own, strict=True)]
        return torch.stack(each)
    rows = (
        layout.fold_parameter(q),
        layout.fold_parameter(alpha),
        None if z is None else layout.fold_parameter(z, table=True),
    )
    if choose_kernel(x)[0] == "fused":
        from . import fused_modes

        out = fused_modes.forward(layout.fold(x), seed, *rows, layout=layout, **how)
    else:
        out = eager_forward(layout.fold(x), seed, *rows, layout=layout, **how)
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
    given = folded, layout.fold(x), layout.fold_parameter(q)
    dz = None
    if choose_kernel(x)[0] == "fused":
        from . import fused_modes

        dz = fused_modes.step_backward(*given, points=z.shape[-1], layout=layout)
    if dz is None:
        dz = eager_step_backward(*given, points=z.shape[-1], layout=layout)
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


def _remember_sample(ctx, inputs, output) -> None:
    x, _, q, alpha, z, ctx.window, ctx.laplacian = inputs
    ctx.save_for_backward(x, q, alpha, z)


def _differentiate_sample(ctx, grad: Tensor):
    needs = ctx.needs_input_grad
    wanted = wanted_of((needs[0], *needs[2:5]))
    gradients = torch.ops.softknee.squaf_backward(grad, *ctx.saved_tensors, ctx.window, ctx.laplacian, wanted)
    by_x, *rest = only_wanted(gradients, wanted)
    return by_x, None, *rest, None, None


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


def fold_seed(replicas: int, dim: int | None, seed: Tensor) -> Tensor:
    """Seeds with the replicas in front: their own, or the same for all."""
    return seed.movedim(dim, 0) if dim is not None else seed.expand(replicas, *seed.shape)


def _seed_replicas(info, in_dims, x, token, shape):
    if info.randomness == "error":
        raise RuntimeError(
            "SQUAF-P draws random numbers, and this vmap has no word on its randomness: pass randomness='different' "
            "(every replica draws for itself) or randomness='same' to torch.func.vmap."
        )
    if info.randomness == "same":
        return torch.ops.softknee.squaf_seed(x, token, shape), None
    return torch.ops.softknee.squaf_seed(x, token, [info.batch_size, *shape]), 0


def _sample_replicas(info, in_dims, x, seed, q, alpha, z, window, laplacian):
    dims = (in_dims[0], *in_dims[2:5])
    x, parameters = fold_replicas(info.batch_size, dims, x, (q, alpha, z), always=False)
    seed = fold_seed(info.batch_size, in_dims[1], seed)
    return torch.ops.softknee.squaf_sample(x, seed, *parameters, window, laplacian), 0


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
torch.library.register_vmap("softknee::squaf_sample", _sample_replicas)
torch.library.register_vmap("softknee::squaf_step", _step_replicas)
torch.library.register_vmap("softknee::squaf_step_backward", _step_backward_replicas)
