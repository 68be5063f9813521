"""The operators `softknee::squaf` and `softknee::squaf_backward`.

They stay opaque under torch.compile: compiled from tensor operations SQUAF costs 36 to 1,217 times a copy, as
an operator little more than one. They know their shapes (for tracing), their derivatives to every order (the
second and later ones through the plain form) and a vmap rule that turns a replica dimension into rows of
parameters.

Here window 0 means the full sum, and q, alpha and z[..., 0] share one shape that broadcasts against x. `wanted` says
which gradients are computed (see `wanted.py`); one that is not wanted comes back as an empty tensor.
"""

import torch
from torch import Tensor

from . import eager
from .derivatives import squaf_derivative, wide_dtype
from .dispatch import choose_kernel
from .layout import arrange, dense
from .plain import squaf_plain
from .wanted import BY_ALPHA, BY_Q, BY_X, BY_Z, EVERY, only_wanted, wanted_of

Gradients = tuple[Tensor, Tensor, Tensor, Tensor]

torch.library.define(
    "softknee::squaf",
    "(Tensor x, Tensor q, Tensor alpha, Tensor z, int window, bool laplacian) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag),
)
torch.library.define(
    "softknee::squaf_backward",
    f"(Tensor grad, Tensor x, Tensor q, Tensor alpha, Tensor z, int window, bool laplacian, int wanted={EVERY})"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag),
)


@torch.library.impl("softknee::squaf", "CompositeExplicitAutograd")
def _squaf(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
    x = dense(x)
    layout = arrange(x, parameter_shape=q.shape)
    rows = layout.fold_parameter(q), layout.fold_parameter(alpha), layout.fold_parameter(z, table=True)
    if choose_kernel(x)[0] == "fused":
        from . import fused

        out = fused.forward(layout.fold(x), *rows, layout=layout, window=window, laplacian=laplacian)
    else:
        out = eager.forward(layout.fold(x), *rows, layout=layout, window=window, laplacian=laplacian)
    return as_stored(layout.unfold(out), like=x)


@torch.library.impl("softknee::squaf_backward", "CompositeExplicitAutograd")
def _squaf_backward(
    grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool, wanted: int = EVERY
) -> Gradients:
    x = dense(x)
    layout = arrange(x, parameter_shape=q.shape)
    rows = layout.fold_parameter(q), layout.fold_parameter(alpha), layout.fold_parameter(z, table=True)
    # The gradient may arrive in another memory order than x (or expanded, after a sum): x's order decides.
    folded = layout.fold(grad).contiguous()
    if choose_kernel(x)[0] == "fused":
        from . import fused as kernel
    else:
        kernel = eager
    dx, dq, dalpha, dz = kernel.backward(
        folded, layout.fold(x), *rows, layout=layout, window=window, laplacian=laplacian, wanted=wanted
    )
    return (
        x.new_empty(0) if dx is None else as_stored(layout.unfold(dx), like=x),
        q.new_empty(0) if dq is None else layout.unfold_parameter(dq, like=q),
        alpha.new_empty(0) if dalpha is None else layout.unfold_parameter(dalpha, like=alpha),
        z.new_empty(0) if dz is None else layout.unfold_parameter(dz, like=z, table=True),
    )


def as_stored(tensor: Tensor, *, like: Tensor) -> Tensor:
    """Strides as the fake operator promised them: those of a dense x."""
    return tensor if tensor.stride() == like.stride() else torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)


@torch.library.register_fake("softknee::squaf")
def _squaf_shapes(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
    return torch.empty_like(dense(x))


@torch.library.register_fake("softknee::squaf_backward")
def _squaf_backward_shapes(
    grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool, wanted: int = EVERY
) -> Gradients:
    return (
        torch.empty_like(dense(x)) if wanted & BY_X else x.new_empty(0),
        q.new_empty(q.shape if wanted & BY_Q else 0),
        alpha.new_empty(alpha.shape if wanted & BY_ALPHA else 0),
        z.new_empty(z.shape if wanted & BY_Z else 0),
    )


def _remember(ctx, inputs, output) -> None:
    *tensors, ctx.window, ctx.laplacian = inputs
    ctx.save_for_backward(*tensors)


def _remember_backward(ctx, inputs, output) -> None:
    *tensors, ctx.window, ctx.laplacian, ctx.wanted = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx, grad: Tensor):
    wanted = wanted_of(ctx.needs_input_grad[:4])
    gradients = torch.ops.softknee.squaf_backward(grad, *ctx.saved_tensors, ctx.window, ctx.laplacian, wanted)
    return *only_wanted(gradients, wanted), None, None


def differentiate_again(ctx, *outer: Tensor):
    """Gradients of the first-order gradients, by (grad, x, q, alpha, z).

    Second derivatives are differences of nearly equal moments; where there is float64 they are taken in it.
    That by x twice has a formula of its own (see derivatives.py), the others come from functional transforms,
    which compose with any order of differentiation around them where autograd.grad would not.
    """
    saved = ctx.saved_tensors  # once: activation checkpointing refuses a second look
    grad, x, *parameters = saved
    # A gradient that was not computed has no derivatives either.
    there = only_wanted(outer, ctx.wanted)
    outer = tuple(torch.zeros_like(of) if g is None else g for g, of in zip(there, saved[1:], strict=True))
    along_x, *along_parameters = outer
    wide = wide_dtype(x)

    def value(*inputs: Tensor) -> Tensor:
        x, q, alpha, z = (tensor.to(wide) for tensor in inputs)
        return squaf_plain(x, q, alpha, z, ctx.window, ctx.laplacian).to(inputs[0].dtype)

    def first_order(grad: Tensor, x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        return torch.func.vjp(value, x, *parameters)[1](grad)

    # Every tensor is an argument: one that a function closes over may belong to a transform that has ended.
    pull = torch.func.vjp(first_order, *saved)[1]
    by_grad, _, *by_parameters = pull(outer)
    by_x = pull((torch.zeros_like(along_x), *along_parameters))[1]
    # Not in the type of x: a float16 could overflow where its product with a gradient does not.
    q, alpha, z = (p.to(wide) for p in parameters)
    bend = squaf_derivative(x.to(wide), q, alpha, z, ctx.window, ctx.laplacian, order=2)
    by_x = by_x + (grad.to(wide) * along_x.to(wide) * bend).to(x.dtype)
    return by_grad, by_x, *by_parameters, None, None, None


torch.library.register_autograd("softknee::squaf", _differentiate, setup_context=_remember)
torch.library.register_autograd("softknee::squaf_backward", differentiate_again, setup_context=_remember_backward)


def fold_replicas(
    replicas: int, in_dims: tuple[int | None, ...], x: Tensor, parameters: tuple[Tensor, ...], *, always: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """x with the replicas in front, and parameters that vary along them (always, or where mapped)."""
    x_dim, *parameter_dims = in_dims
    x = x.movedim(x_dim, 0) if x_dim is not None else x.expand(replicas, *x.shape)
    if not always and all(dim is None for dim in parameter_dims):
        return x, parameters
    folded = []
    for parameter, dim, tail in zip(parameters, parameter_dims, (0, 0, 1), strict=True):
        mapped = parameter.movedim(dim, 0) if dim is not None else parameter.expand(replicas, *parameter.shape)
        filler = (1,) * (x.dim() - mapped.dim() + tail)
        folded.append(mapped.reshape(mapped.shape[0], *filler, *mapped.shape[1:]))
    return x, tuple(folded)


def _squaf_replicas(info, in_dims, x, q, alpha, z, window, laplacian):
    x, parameters = fold_replicas(info.batch_size, in_dims[:4], x, (q, alpha, z), always=False)
    return torch.ops.softknee.squaf(x, *parameters, window, laplacian), 0


def _squaf_backward_replicas(info, in_dims, grad, x, q, alpha, z, window, laplacian, wanted=EVERY):
    shapes = [shape_without(p, dim) for p, dim in zip((q, alpha, z), in_dims[2:5], strict=True)]
    x, parameters = fold_replicas(info.batch_size, in_dims[1:5], x, (q, alpha, z), always=True)
    grad = grad.movedim(in_dims[0], 0) if in_dims[0] is not None else grad.expand(x.shape)
    found = torch.ops.softknee.squaf_backward(grad, x, *parameters, window, laplacian, wanted)
    return of_replicas(info.batch_size, found, shapes, wanted)


def of_replicas(replicas: int, found: Gradients, shapes: list[tuple[int, ...]], wanted: int):
    """What a vmap rule returns: the gradients of the parameters in their own shapes, and where the replicas are."""
    dx, *rest = found
    there = only_wanted(found, wanted)
    sums = [
        g if kept is None else g.reshape(replicas, *shape)
        for g, kept, shape in zip(rest, there[1:], shapes, strict=True)
    ]
    return (dx, *sums), tuple(None if kept is None else 0 for kept in there)


torch.library.register_vmap("softknee::squaf", _squaf_replicas)
torch.library.register_vmap("softknee::squaf_backward", _squaf_backward_replicas)


def shape_without(parameter: Tensor, dim: int | None) -> tuple[int, ...]:
    return tuple(size for axis, size in enumerate(parameter.shape) if axis != dim)
