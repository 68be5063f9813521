"""The operators `softknee::squaf` and `softknee::squaf_backward`.

They stay opaque under torch.compile: compiled from tensor operations SQUAF costs 36 to 1,217 times a copy, as
an operator little more than one. They know their shapes (for tracing), their derivatives to every order (the
second and later ones through the plain form) and a vmap rule that turns a replica dimension into rows of
parameters.

Here window 0 means the full sum, and q, alpha and z[..., 0] share one shape that broadcasts against x. `wanted` says
which gradients are computed (see `layout.py`); one that is not wanted comes back as an empty tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import compiled, eager
from .dispatch import choose_kernel
from .eager import slopes, wide_dtype
from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, EVERY, Layout, arrange, as_stored, dense, only_wanted, wanted_of
from .plain import Window, compute_dtype, finite_range, keep_window, squaf_plain, values_at

# -- the derivatives of SQUAF by x as formulas of their own, because automatic ones of second order cancel ---
#
# With s_j the derivative of exponent j by x (2 alpha q j, or -alpha, 0, +alpha for Laplacian weights), phi' is
# sum_j P_j (z_j - phi) (s_j - mean), and phi'' is sum_j a_j (z_j - phi), a_j = P_j ((s_j - mean)^2 - variance).
# Where an end of the grid leaves an even number of points of nearly equal weight, a_j all but vanishes: for
# two points it is P_0 P_1 (P_1 - P_0). Subtracting rounded squares then loses every digit that the bound on
# the error asks for. There a_j is worked out from e_j = w_j - 1 = expm1(exponent), whose digits are all good.


# Exponents above this count as nearly equal weights: w >= 0.2, so that 1 + e_j loses nothing either.
NEARLY_EQUAL = -1.5


def squaf_derivative(
    x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool, *, order: int
) -> Tensor:
    """The derivative of that order by x, in plain tensor operations fit for any transform."""
    if order == 0:
        return squaf_plain(x, q, alpha, z, window, laplacian)
    if order > 2:
        return nth_derivative(
            lambda at: squaf_derivative(at, q, alpha, z, window, laplacian, order=2), x, order=order - 2
        )
    # As for gradients of gradients: second derivatives are taken in float64 where there is one.
    kind = compute_dtype(x) if order == 1 else wide_dtype(x)
    q, alpha, z = q.to(kind), alpha.to(kind), z.to(kind)
    finite = finite_range(x.to(kind))
    near = keep_window(finite, q=q, alpha=alpha, points=z.shape[-1], window=window, laplacian=laplacian)
    value = values_at(near.indices(z.shape), z, dims=x.dim())
    if order == 1:
        slope = slopes(near, value, q=q, alpha=alpha, laplacian=laplacian, wanted=BY_X)[0]
        assert slope is not None
        return slope.to(x.dtype)
    return curvature(near, value, q=q, alpha=alpha, laplacian=laplacian).to(x.dtype)


def curvature(near: Window, value: Tensor, *, q: Tensor, alpha: Tensor, laplacian: bool) -> Tensor:
    """phi'' from the kept points and z there."""
    if laplacian:
        scale, s = alpha, near.steps.sign() + near.rest.sign() * (near.steps != 0)
    else:
        scale, s = 2 * (alpha * q), near.steps
    p = near.probability
    from_middle = s - (p * s).sum(0)
    usual = p * (from_middle.square() - (p * from_middle.square()).sum(0))
    on_grid = torch.ones_like(p, dtype=torch.bool) if near.inside is None else near.inside
    inside = on_grid.to(p.dtype)
    lowest = torch.where(on_grid, near.logits, torch.zeros_like(near.logits)).amin(0)
    even = _nearly_equal(near.logits, s=s, p=p, inside=inside)
    share = torch.where(lowest > NEARLY_EQUAL, even, usual)
    phi = (p * value).sum(0)
    return scale.square() * (share * (value - phi)).sum(0)


def _nearly_equal(logits: Tensor, *, s: Tensor, p: Tensor, inside: Tensor) -> Tensor:
    """a_j / scale^2, in powers of e_j = w_j - 1; the leading one is exact, and 0 for two equal halves.

    t_j is s_j less its plain mean, V the plain mean of t^2; e_0, e_1, e_2 are those of e, e t, e t^2.
    Then (1 + e_0)^2 ((s_j - mean)^2 - variance) is, sorted by powers of e, what is summed below.
    """
    count = inside.sum(0)
    t = s - (s * inside).sum(0) / count
    v = (t.square() * inside).sum(0) / count
    e = logits.expm1() * inside
    e0, e1, e2 = (e.sum(0) / count, (e * t).sum(0) / count, (e * t.square()).sum(0) / count)
    square = t.square()
    first = (2 * square - v) * e0 - 2 * t * e1 - e2
    second = e0 * (square * e0 - e2) + 2 * e1 * (e1 - t * e0)
    return p * ((square - v) + (first + second)) / (1 + e0).square()


def nth_derivative(function: Callable[[Tensor], Tensor], x: Tensor, *, order: int) -> Tensor:
    """The derivative of that order of an element-wise function, by a functional transform."""
    if order == 0:
        return function(x)
    pulled = torch.func.vjp(lambda at: nth_derivative(function, at, order=order - 1), x)
    return pulled[1](torch.ones_like(pulled[0]))[0]


# -- the operators softknee::squaf and softknee::squaf_backward -------------------------------------------


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
    kernel = kernels_for(x)
    out = kernel.forward(layout.fold(x), *rows, layout=layout, window=window, laplacian=laplacian)
    return as_stored(layout.unfold(out), like=x)


@torch.library.impl("softknee::squaf_backward", "CompositeExplicitAutograd")
def _squaf_backward(
    grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool, wanted: int = EVERY
) -> Gradients:
    layout, (dx, dq, dalpha, dz) = gradient_rows(grad, x, q, alpha, z, window, laplacian, wanted)
    return (
        x.new_empty(0) if dx is None else dx,
        q.new_empty(0) if dq is None else layout.unfold_parameter(dq, like=q),
        alpha.new_empty(0) if dalpha is None else layout.unfold_parameter(dalpha, like=alpha),
        z.new_empty(0) if dz is None else layout.unfold_parameter(dz, like=z, table=True),
    )


def gradient_rows(
    grad: Tensor | None, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool, wanted: int
) -> tuple[Layout, tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]]:
    """The gradient of x, and those of q, alpha (groups,) and z (groups, n) as their sums were left; None where not
    wanted. Without `grad` those of the sum of phi."""
    x = dense(x)
    layout = arrange(x, parameter_shape=q.shape)
    rows = layout.fold_parameter(q), layout.fold_parameter(alpha), layout.fold_parameter(z, table=True)
    # The gradient may arrive in another memory order than x (or expanded, after a sum): x's order decides.
    folded = None if grad is None else layout.fold(grad).contiguous()
    dx, *sums = kernels_for(x).backward(
        folded, layout.fold(x), *rows, layout=layout, window=window, laplacian=laplacian, wanted=wanted
    )
    return layout, (None if dx is None else as_stored(layout.unfold(dx), like=x), *sums)


def kernels_for(x: Tensor) -> Any:
    """The module whose functions compute x: `fused`, `compiled` or `eager`."""
    path = "plain" if x.numel() == 0 else choose_kernel(x)[0]
    if path == "compiled":
        return compiled
    if path != "fused":
        return eager
    from . import fused

    return fused


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


def remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Save x, q, alpha and z."""
    *tensors, ctx.window, ctx.laplacian = inputs
    ctx.save_for_backward(*tensors)


def _remember_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, ctx.window, ctx.laplacian, ctx.wanted = inputs
    ctx.save_for_backward(*tensors)


def first_gradients(ctx: Any, grad: Tensor, needs: Sequence[bool], backward: Callable[..., Any]) -> list[Tensor | None]:
    """The gradients by x, q, alpha and z, which a context has saved, as far as they are needed."""
    wanted = wanted_of(needs)
    return only_wanted(backward(grad, *ctx.saved_tensors, ctx.window, ctx.laplacian, wanted), wanted)


def _differentiate(ctx: Any, grad: Tensor) -> Any:
    return *first_gradients(ctx, grad, ctx.needs_input_grad[:4], torch.ops.softknee.squaf_backward), None, None


def differentiate_again(ctx, *outer: Tensor):
    """Gradients of the first-order gradients, by (grad, x, q, alpha, z).

    Second derivatives are differences of nearly equal moments; where there is float64 they are taken in it.
    That by x twice has a formula of its own (see above), the others come from functional transforms,
    which compose with any order of differentiation around them where autograd.grad would not.
    """
    saved = ctx.saved_tensors  # once: activation checkpointing refuses a second look
    grad, x, *parameters = saved
    # A gradient that was not computed has no derivatives either.
    computed = only_wanted(outer, ctx.wanted)
    outer = tuple(torch.zeros_like(t) if g is None else g for g, t in zip(computed, saved[1:], strict=True))
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


torch.library.register_autograd("softknee::squaf", _differentiate, setup_context=remember)
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


def replicas(info: Any, in_dims: tuple[int | None, ...], args: tuple[Any, ...], value: Callable[..., Tensor]) -> Any:
    """vmap's rule of `value`, the operator or the Function around it."""
    x, q, alpha, z, window, laplacian = args
    x, parameters = fold_replicas(info.batch_size, in_dims[:4], x, (q, alpha, z), always=False)
    return value(x, *parameters, window, laplacian), 0


def backward_replicas(
    info: Any, in_dims: tuple[int | None, ...], args: tuple[Any, ...], backward: Callable[..., Gradients]
) -> Any:
    """The same for gradients: those of the parameters in their own shapes, and where the replicas are."""
    grad, x, q, alpha, z, window, laplacian, wanted = args if len(args) == 8 else (*args, EVERY)
    shapes = [shape_without(p, dim) for p, dim in zip((q, alpha, z), in_dims[2:5], strict=True)]
    x, parameters = fold_replicas(info.batch_size, in_dims[1:5], x, (q, alpha, z), always=True)
    grad = grad.movedim(in_dims[0], 0) if in_dims[0] is not None else grad.expand(x.shape)
    dx, *rest = gradients = backward(grad, x, *parameters, window, laplacian, wanted)
    computed = only_wanted(gradients, wanted)
    sums = [
        g if gradient is None else g.reshape(info.batch_size, *shape)
        for g, gradient, shape in zip(rest, computed[1:], shapes, strict=True)
    ]
    return (dx, *sums), tuple(None if gradient is None else 0 for gradient in computed)


def shape_without(parameter: Tensor, dim: int | None) -> tuple[int, ...]:
    """The shape of a parameter but for the dimension that vmap maps over."""
    return tuple(size for axis, size in enumerate(parameter.shape) if axis != dim)


torch.library.register_vmap(
    "softknee::squaf", lambda info, in_dims, *args: replicas(info, in_dims, args, torch.ops.softknee.squaf)
)
torch.library.register_vmap(
    "softknee::squaf_backward",
    lambda info, in_dims, *args: backward_replicas(info, in_dims, args, torch.ops.softknee.squaf_backward),
)


# -- SQUAF inside torch.func transforms (grad, vjp, vmap, jacrev and their nestings) ----------------------
#
# An operator with a registered derivative cannot be differentiated by torch.func; an autograd.Function can.
# These two wrap the operators, each derivative being a Function again, and share the operators' rules.


class SquafFunction(torch.autograd.Function):
    """The value; its derivative is `SquafBackwardFunction`."""

    setup_context = staticmethod(remember)

    @staticmethod
    def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
        return torch.ops.softknee.squaf(x, q, alpha, z, window, laplacian)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return *first_gradients(ctx, outer[0], ctx.needs_input_grad[:4], SquafBackwardFunction.apply), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return replicas(info, in_dims, args, SquafFunction.apply)  # pyright: ignore[reportArgumentType]


class SquafBackwardFunction(torch.autograd.Function):
    """The first derivatives; theirs go through the plain form."""

    setup_context = staticmethod(_remember_backward)
    backward = staticmethod(differentiate_again)

    @staticmethod
    def forward(*args: Any) -> Gradients:
        return torch.ops.softknee.squaf_backward(*args)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        return backward_replicas(info, in_dims, args, SquafBackwardFunction.apply)  # pyright: ignore
