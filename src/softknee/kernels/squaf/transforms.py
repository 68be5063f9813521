"""SQUAF inside torch.func transforms (grad, vjp, vmap, jacrev and their nestings).

An operator with a registered derivative cannot be differentiated by torch.func; an autograd.Function can.
These two wrap the operators, each derivative being a Function again, and share the operators' vmap rule.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .op import differentiate_again, fold_replicas, of_replicas, shape_without
from .wanted import only_wanted, wanted_of


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
        return *first_gradients(ctx, outer[0], ctx.needs_input_grad[:4]), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        x, q, alpha, z, window, laplacian = args
        x, parameters = fold_replicas(info.batch_size, in_dims[:4], x, (q, alpha, z), always=False)
        return SquafFunction.apply(x, *parameters, window, laplacian), 0


def first_gradients(ctx: Any, grad: Tensor, needs: Sequence[bool]) -> list[Tensor | None]:
    """The gradients by x, q, alpha and z, which a context has saved, as far as they are needed."""
    wanted = wanted_of(needs)
    found: Any = SquafBackwardFunction.apply(grad, *ctx.saved_tensors, ctx.window, ctx.laplacian, wanted)
    return only_wanted(found, wanted)


class SquafBackwardFunction(torch.autograd.Function):
    """The first derivatives; theirs go through the plain form."""

    @staticmethod
    def forward(
        grad: Tensor, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool, wanted: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return torch.ops.softknee.squaf_backward(grad, x, q, alpha, z, window, laplacian, wanted)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.window, ctx.laplacian, ctx.wanted = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        return differentiate_again(ctx, *outer)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        grad, x, q, alpha, z, window, laplacian, wanted = args
        shapes = [shape_without(p, dim) for p, dim in zip((q, alpha, z), in_dims[2:5], strict=True)]
        x, parameters = fold_replicas(info.batch_size, in_dims[1:5], x, (q, alpha, z), always=True)
        grad = grad.movedim(in_dims[0], 0) if in_dims[0] is not None else grad.expand(x.shape)
        found: Any = SquafBackwardFunction.apply(grad, x, *parameters, window, laplacian, wanted)
        return of_replicas(info.batch_size, found, shapes, wanted)
