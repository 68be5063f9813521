"""The operators `softknee::bend` and `softknee::bend_backward`, and the same for torch.func transforms.

They know their shapes (for tracing), their derivatives to every order (the second and later ones through the plain
form) and a vmap rule that turns a replica dimension into rows of parameters. theta[..., 0] broadcasts against x. A
gradient that is not asked for comes back as an empty tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..squaf.dispatch import choose_kernel
from ..squaf.layout import Layout, arrange, dense
from ..squaf.op import as_stored
from . import eager
from .plain import bend_plain

_TAGS = (torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)
torch.library.define(
    "softknee::bend", "(Tensor x, Tensor theta, float low, float high, bool gated) -> Tensor", tags=_TAGS
)
torch.library.define(
    "softknee::bend_backward",
    "(Tensor grad, Tensor x, Tensor theta, float low, float high, bool gated, bool by_x, bool by_theta)"
    " -> (Tensor, Tensor)",
    tags=_TAGS,
)


@torch.library.impl("softknee::bend", "CompositeExplicitAutograd")
def _bend(x: Tensor, theta: Tensor, low: float, high: float, gated: bool) -> Tensor:
    x = dense(x)
    layout = arrange(x, parameter_shape=theta.shape[:-1])
    rows = layout.fold_parameter(theta, table=True)
    if choose_kernel(x)[0] == "fused":
        from . import fused

        out = fused.forward(layout.fold(x), rows, layout=layout, low=low, high=high, gated=gated)
    elif x.device.type == "cpu":
        out = _from_rows(eager.forward(_in_rows(x, layout), rows, low=low, high=high, gated=gated), layout)
    else:
        return as_stored(bend_plain(x, theta, low, high, gated), like=x)
    return as_stored(layout.unfold(out), like=x)


@torch.library.impl("softknee::bend_backward", "CompositeExplicitAutograd")
def _bend_backward(
    grad: Tensor, x: Tensor, theta: Tensor, low: float, high: float, gated: bool, by_x: bool, by_theta: bool
) -> tuple[Tensor, Tensor]:
    x = dense(x)
    layout = arrange(x, parameter_shape=theta.shape[:-1])
    rows = layout.fold_parameter(theta, table=True)
    asked: dict[str, Any] = {"low": low, "high": high, "gated": gated, "by_x": by_x, "by_theta": by_theta}
    if choose_kernel(x)[0] == "fused":
        from . import fused

        # The gradient may arrive in another memory order than x (or expanded, after a sum): x's order decides.
        dx, sums = fused.backward(layout.fold(grad).contiguous(), layout.fold(x), rows, layout=layout, **asked)
    elif x.device.type == "cpu":
        dx, sums = eager.backward(_in_rows(grad, layout), _in_rows(x, layout), rows, **asked)
        dx = None if dx is None else _from_rows(dx, layout)
    else:
        dx, dtheta = _plain_gradients(grad, x, theta, low, high, gated)
        return as_stored(dx, like=x) if by_x else x.new_empty(0), dtheta if by_theta else theta.new_empty(0)
    return (
        x.new_empty(0) if dx is None else as_stored(layout.unfold(dx), like=x),
        theta.new_empty(0) if sums is None else layout.unfold_parameter(sums, like=theta, table=True),
    )


def _plain_gradients(grad: Tensor, x: Tensor, theta: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    return torch.func.vjp(lambda x, theta: bend_plain(x, theta, *options), x, theta)[1](grad)


def _in_rows(x: Tensor, layout: Layout) -> Tensor:
    """(groups, elements of each)."""
    return layout.fold(x).permute(1, 3, 0, 2, 4).reshape(layout.groups, -1)


def _from_rows(rows: Tensor, layout: Layout) -> Tensor:
    outer, g1, middle, g2, inner = layout.shape
    return rows.reshape(g1, g2, outer, middle, inner).permute(2, 0, 3, 1, 4)


@torch.library.register_fake("softknee::bend")
def _bend_shape(x: Tensor, theta: Tensor, low: float, high: float, gated: bool) -> Tensor:
    return torch.empty_like(dense(x))


@torch.library.register_fake("softknee::bend_backward")
def _bend_backward_shapes(
    grad: Tensor, x: Tensor, theta: Tensor, low: float, high: float, gated: bool, by_x: bool, by_theta: bool
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(dense(x)) if by_x else x.new_empty(0), theta.new_empty(theta.shape if by_theta else 0)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    x, theta, *ctx.options = inputs
    ctx.save_for_backward(x, theta)


def _remember_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    grad, x, theta, *ctx.options = inputs
    ctx.save_for_backward(grad, x, theta)


def _with(run: Any) -> Any:
    """The rule of differentiation, whose gradients are computed by `run`: the operator, or the Function around it."""

    def differentiate(ctx: Any, grad: Tensor) -> Any:
        by_x, by_theta = ctx.needs_input_grad[:2]
        dx, dtheta = run(grad, *ctx.saved_tensors, *ctx.options, by_x, by_theta)
        return dx if by_x else None, dtheta if by_theta else None, None, None, None

    return differentiate


def _differentiate_again(ctx: Any, *outer: Tensor) -> Any:
    """Gradients of the first-order gradients, by (grad, x, theta), through the plain form."""
    *options, by_x, by_theta = ctx.options
    saved = ctx.saved_tensors  # once: activation checkpointing refuses a second look
    # A gradient that was not computed has no derivatives either.
    along = tuple(
        g if asked else torch.zeros_like(of) for g, of, asked in zip(outer, saved[1:], (by_x, by_theta), strict=True)
    )

    # Every tensor is an argument: one that a function closes over may belong to a transform that has ended.
    pull = torch.func.vjp(lambda *inputs: _plain_gradients(*inputs, *options), *saved)[1]
    return *pull(along), None, None, None, None, None


torch.library.register_autograd(
    "softknee::bend", _with(lambda *given: torch.ops.softknee.bend_backward(*given)), setup_context=_remember
)
torch.library.register_autograd("softknee::bend_backward", _differentiate_again, setup_context=_remember_backward)


def _fold_replicas(
    replicas: int, x_dim: int | None, theta_dim: int | None, x: Tensor, theta: Tensor, *, always: bool
) -> tuple[Tensor, Tensor]:
    """x with the replicas in front, and a theta that varies along them (always, or where it is mapped)."""
    x = x.movedim(x_dim, 0) if x_dim is not None else x.expand(replicas, *x.shape)
    if theta_dim is None and not always:
        return x, theta
    theta = theta.movedim(theta_dim, 0) if theta_dim is not None else theta.expand(replicas, *theta.shape)
    filler = (1,) * (x.dim() + 1 - theta.dim())
    return x, theta.reshape(replicas, *filler, *theta.shape[1:])


def _replicas(run: Any) -> Any:
    def rule(info: Any, in_dims: tuple[int | None, ...], x: Tensor, theta: Tensor, *options: Any) -> Any:
        x, theta = _fold_replicas(info.batch_size, in_dims[0], in_dims[1], x, theta, always=False)
        return run(x, theta, *options), 0

    return rule


def _backward_replicas(run: Any) -> Any:
    def rule(info: Any, in_dims: tuple[int | None, ...], grad: Tensor, x: Tensor, theta: Tensor, *options: Any) -> Any:
        own = [size for axis, size in enumerate(theta.shape) if axis != in_dims[2]]
        x, theta = _fold_replicas(info.batch_size, in_dims[1], in_dims[2], x, theta, always=True)
        grad = grad.movedim(in_dims[0], 0) if in_dims[0] is not None else grad.expand(x.shape)
        dx, dtheta = run(grad, x, theta, *options)
        by_x, by_theta = options[-2:]
        dtheta = dtheta.reshape(info.batch_size, *own) if by_theta else dtheta
        return (dx, dtheta), (0 if by_x else None, 0 if by_theta else None)

    return rule


torch.library.register_vmap("softknee::bend", _replicas(lambda *given: torch.ops.softknee.bend(*given)))
torch.library.register_vmap(
    "softknee::bend_backward", _backward_replicas(lambda *given: torch.ops.softknee.bend_backward(*given))
)


class BendFunction(torch.autograd.Function):
    """The operator inside torch.func transforms, which cannot differentiate an operator but can a Function."""

    @staticmethod
    def forward(x: Tensor, theta: Tensor, low: float, high: float, gated: bool) -> Tensor:
        return torch.ops.softknee.bend(x, theta, low, high, gated)

    setup_context = staticmethod(_remember)
    backward = staticmethod(_with(lambda *given: BendBackwardFunction.apply(*given)))
    vmap = staticmethod(_replicas(lambda *given: BendFunction.apply(*given)))


class BendBackwardFunction(torch.autograd.Function):
    """Its first derivatives."""

    @staticmethod
    def forward(grad: Tensor, x: Tensor, theta: Tensor, *options: Any) -> Any:
        return torch.ops.softknee.bend_backward(grad, x, theta, *options)

    setup_context = staticmethod(_remember_backward)
    backward = staticmethod(_differentiate_again)
    vmap = staticmethod(_backward_replicas(lambda *given: BendBackwardFunction.apply(*given)))
