"""The operators `softknee::squaf_marginal` and `softknee::squaf_marginal_backward`.

Forward keeps x and the parameters, nothing else: the gradient works the probabilities out again. Each group of
parameters (a channel with a grid of its own) has a marginal of its own here.
"""

from typing import Any

import torch
from torch import Tensor

from .dispatch import choose_kernel
from .layout import arrange, dense
from .marginal_eager import eager_gradients, eager_sums
from .plain import compute_dtype, squaf_plain

Three = tuple[Tensor, Tensor, Tensor]
_TAGS = (torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)

torch.library.define(
    "softknee::squaf_marginal",
    "(Tensor x, Tensor q, Tensor alpha, int points, int window, bool laplacian) -> Tensor",
    tags=_TAGS,
)
torch.library.define(
    "softknee::squaf_marginal_backward",
    "(Tensor grad, Tensor x, Tensor q, Tensor alpha, int window, bool laplacian, bool parameters)"
    " -> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)


@torch.library.impl("softknee::squaf_marginal", "CompositeExplicitAutograd")
def _marginal(x: Tensor, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool) -> Tensor:
    x = dense(x)
    layout = arrange(x, parameter_shape=q.shape)
    path = eager_sums
    if choose_kernel(x)[0] == "fused":
        from .marginal_fused import fused_sums as path
    rows = layout.fold_parameter(q), layout.fold_parameter(alpha)
    sums = path(layout.fold(x), *rows, points, layout=layout, window=window, laplacian=laplacian)
    like = x.new_empty((*q.shape, points), dtype=compute_dtype(x))
    return layout.unfold_parameter(sums / max(1, layout.per_group), like=like, table=True)


@torch.library.impl("softknee::squaf_marginal_backward", "CompositeExplicitAutograd")
def _marginal_backward(
    grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, window: int, laplacian: bool, parameters: bool
) -> Three:
    x = dense(x)
    layout = arrange(x, parameter_shape=q.shape)
    path = eager_gradients
    if choose_kernel(x)[0] == "fused":
        from .marginal_fused import fused_gradients as path
    rows = layout.fold_parameter(q), layout.fold_parameter(alpha)
    slope = layout.fold_parameter(grad, table=True) / max(1, layout.per_group)
    found = path(slope, layout.fold(x), *rows, layout=layout, window=window, laplacian=laplacian, parameters=parameters)
    dx = layout.unfold(found[0])
    dx = dx if dx.stride() == x.stride() else torch.empty_like(x).copy_(dx)
    if found[1] is None or found[2] is None:
        return dx, q.new_zeros(q.shape), alpha.new_zeros(alpha.shape)
    return dx, layout.unfold_parameter(found[1], like=q), layout.unfold_parameter(found[2], like=alpha)


@torch.library.register_fake("softknee::squaf_marginal")
def _marginal_shape(x: Tensor, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool) -> Tensor:
    return x.new_empty((*q.shape, points), dtype=compute_dtype(x))


@torch.library.register_fake("softknee::squaf_marginal_backward")
def _marginal_backward_shapes(
    grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, window: int, laplacian: bool, parameters: bool
) -> Three:
    return torch.empty_like(dense(x)), q.new_empty(q.shape), alpha.new_empty(alpha.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, q, alpha, ctx.points, ctx.window, ctx.laplacian = inputs
    ctx.save_for_backward(x, q, alpha)


def _differentiate(ctx: Any, grad: Tensor) -> Any:
    by_x, by_q, by_alpha = ctx.needs_input_grad[:3]
    found = torch.ops.softknee.squaf_marginal_backward(
        grad, *ctx.saved_tensors, ctx.window, ctx.laplacian, by_q or by_alpha
    )
    return *(one if asked else None for one, asked in zip(found, (by_x, by_q, by_alpha), strict=True)), None, None, None


def _remember_again(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, x, q, alpha, ctx.window, ctx.laplacian, ctx.parameters = inputs
    ctx.save_for_backward(grad, x, q, alpha)


def _differentiate_again(ctx: Any, *outer: Tensor) -> Any:
    """Through the plain form: a gradient of a gradient is rare, and may cost a tensor of elements times points."""
    saved = ctx.saved_tensors  # once: activation checkpointing refuses a second look
    elements = max(1, saved[1].numel() // saved[2].numel())

    def first_order(grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
        def value(x: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
            return squaf_plain(x, q, alpha, grad / elements, ctx.window, ctx.laplacian)

        pulled = torch.func.vjp(value, x, q, alpha)
        return pulled[1](torch.ones_like(pulled[0]))

    pull = torch.func.vjp(first_order, *saved)[1]
    along = outer if ctx.parameters else (outer[0], *(torch.zeros_like(one) for one in outer[1:]))
    return *pull(along), None, None, None


torch.library.register_autograd("softknee::squaf_marginal", _differentiate, setup_context=_remember)
torch.library.register_autograd(
    "softknee::squaf_marginal_backward", _differentiate_again, setup_context=_remember_again
)
