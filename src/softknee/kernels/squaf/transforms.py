"""SQUAF inside torch.func transforms (grad, vjp, vmap, jacrev and their nestings).

An operator with a registered derivative cannot be differentiated by torch.func; an autograd.Function can.
These two wrap the operators, each derivative being a Function again, and share the operators' vmap rule.
"""

from typing import Any

import torch
from torch import Tensor

from .op import differentiate_again, fold_replicas, shape_without


class SquafFunction(torch.autograd.Function):
    """The value; its derivative is `SquafBackwardFunction`."""

    @staticmethod
    def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool) -> Tensor:
        return torch.ops.softknee.squaf(x, q, alpha, z, window, laplacian)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.window, ctx.laplacian = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        gradients = SquafBackwardFunction.apply(outer[0], *ctx.saved_tensors, ctx.window, ctx.laplacian)
        return *gradients, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        x, q, alpha, z, window, laplacian = args
        x, parameters = fold_replicas(info.batch_size, in_dims[:4], x, (q, alpha, z), always=False)
        return SquafFunction.apply(x, *parameters, window, laplacian), 0


class SquafBackwardFunction(torch.autograd.Function):
    """The first derivatives; theirs go through the plain form."""

    @staticmethod
    def forward(
        grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return torch.ops.softknee.squaf_backward(grad, x, q, alpha, z, window, laplacian)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        SquafFunction.setup_context(ctx, inputs, output)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return differentiate_again(ctx, *outer)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        grad, x, q, alpha, z, window, laplacian = args
        shapes = [shape_without(p, dim) for p, dim in zip((q, alpha, z), in_dims[2:5], strict=True)]
        x, parameters = fold_replicas(info.batch_size, in_dims[1:5], x, (q, alpha, z), always=True)
        grad = grad.movedim(in_dims[0], 0) if in_dims[0] is not None else grad.expand(x.shape)
        dx, *rest = SquafBackwardFunction.apply(grad, x, *parameters, window, laplacian)
        sums = [g.reshape(info.batch_size, *shape) for g, shape in zip(rest, shapes, strict=True)]
        return (dx, *sums), (0, 0, 0, 0)
