"""The differentiable call that saves its output and not its input (`save="output"`).

The next layer holds the output anyway. The backward pass recovers x from it (`inverse`) inside the kernel that computes
the gradients; a function with a minimum saves one bit per element more, for its side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..spec import Activation
from ..spec.activation import once_per_definition
from . import operators
from .calls import Call
from .dispatch import beside_the_trace, exporting, ordinary
from .inverse import ROUNDING, Inverse, inverse_by_key
from .layout import sum_to_shape
from .plain import working_type
from .pointwise import along, batched, call, from_all, is_half_on_gpu, slope_of, traced_of, traced_slopes


def call_saving_output(inverse: Inverse, x: Tensor, params: Sequence[Tensor], *, inplace: bool = False) -> Tensor:
    """The definition on a tensor; the output is all that is saved for the backward pass, and a bit for a side."""
    act = inverse.act
    saves = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in params)) and not x.is_nested
    if torch.compiler.is_compiling():
        if not saves or exporting():
            return call(act, x, params, inplace=inplace)
        _prepare_traced(inverse.key)
        return inverse.derived.traced.apply(x, *params)
    if not saves or not ordinary(x) or forward_ad._current_level >= 0:  # pyright: ignore[reportPrivateUsage]
        return call(act, x, params, inplace=inplace)
    return eager_function(act, inverse).apply(None, x, *params)


@once_per_definition
def eager_function(act: Activation, inverse: Inverse) -> Any:
    """The Function of eager calls. It takes a `Call` first, or None: then x and the parameters' values follow."""
    names, key, sided = ["x", *(p.name for p in act.params)], inverse.key, inverse.place is not None

    def forward(ctx: Any, prepared: Call | None, x: Tensor, *params: Tensor) -> Tensor:
        ctx.call = prepared
        if prepared is not None:
            if prepared.tensors:
                ctx.versions = [tensor._version for tensor in prepared.tensors]
            ctx.to_save = saved = prepared.value_and_sides(x) if sided else (prepared.value(x),)
            return saved[0]
        with torch._C._AutoDispatchBelowAutograd():
            if sided:
                saved = torch.ops.softknee.pointwise_with_sides.default(x, params, key)
            else:
                saved = (torch.ops.softknee.pointwise.default(x, params, act.key),)
        ctx.save_for_backward(*saved, *params)
        return saved[0]

    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        saved, prepared, (g,) = ctx.saved_tensors, ctx.call, grad_outputs
        y, sides, params = saved[0], saved[1] if sided else None, saved[1 + sided :]
        needs = ctx.needs_input_grad[1:]
        if prepared is not None:
            if (done := prepared.backward(ctx, g, y, sides)) is not None:
                return done
            params, needs = prepared.effective(y), prepared.needs(needs)
        if torch.is_grad_enabled() or not ordinary(g) or batched(g):
            x = _recovering(act, inverse).apply(y, sides, *params)
            gradients = [along(act, n, x, params, g) if need else None for n, need in zip(names, needs, strict=True)]
            gradients[0] = None if gradients[0] is None else gradients[0].to(y.dtype)
        else:
            made = torch.ops.softknee.pointwise_backward_from_output.default(g, y, sides, params, key, needs)
            gradients = [made[sum(needs[:i])] if need else None for i, need in enumerate(needs)]
        return None, *(gradients if prepared is None else prepared.chained(gradients))

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(f"Softknee_saving_{act.name}", (torch.autograd.Function,), body)


@once_per_definition
def _recovering(act: Activation, inverse: Inverse) -> Any:
    """x as a differentiable function of y: dx/dy = 1/f', dx/dp = -(df/dp)/f'; 0 where the slope is 0.

    y's own node multiplies by the same f' again, so that a gradient arrives at x as it is.
    """
    names = [p.name for p in act.params]

    def forward(ctx: Any, y: Tensor, sides: Tensor | None, *params: Tensor) -> Tensor:
        x = operators.recover(inverse, y, sides, params)
        ctx.kind = y.dtype
        ctx.save_for_backward(x, *params)
        return x

    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        x, *params = ctx.saved_tensors
        slope = slope_of(act, "x", x, params)
        flat = slope.abs() < torch.finfo(torch.float16).tiny
        g = torch.where(flat, 0.0, grad_outputs[0] / torch.where(flat, 1.0, slope))
        d_params = [
            -sum_to_shape(g * slope_of(act, name, x, params), p.shape).to(p.dtype) if need else None
            for name, p, need in zip(names, params, ctx.needs_input_grad[2:], strict=True)
        ]
        limit = torch.finfo(ctx.kind).max
        return g.clamp(-limit, limit).to(ctx.kind), None, *d_params

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(f"Softknee_recovering_{act.name}", (torch.autograd.Function,), body)


@beside_the_trace
def _prepare_traced(key: str) -> str:
    inverse = inverse_by_key(key)
    if inverse.derived.traced is None:
        inverse.derived.traced = _traced(inverse.act, inverse)
    return key


def _traced(act: Activation, inverse: Inverse) -> Any:
    """What torch.compile traces: plain operations both ways, which it fuses with their neighbours."""
    sided, value = inverse.place is not None, traced_of(act).value
    place: Any = inverse.place_function() if sided else None
    inverts = {dtype: inverse.torch(dtype) for dtype in ROUNDING}
    slopes, coarse_slopes = traced_slopes(act)

    class TracedFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, *params: Tensor) -> Tensor:
            y = value(x, *params)
            if sided:
                work = working_type(x.dtype)
                sides = operators.pack(x.to(work) > place(*[p.to(work) for p in params]))
                ctx.save_for_backward(y, sides, *params)
            else:
                ctx.save_for_backward(y, *params)
            return y

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
            y, *rest = ctx.saved_tensors
            sides, params = (operators.unpack(rest[0], y), rest[1:]) if sided else (None, rest)
            work = working_type(y.dtype)
            x = inverts[y.dtype](y.to(work), sides, *[p.to(work) for p in params])
            chosen = coarse_slopes if is_half_on_gpu(y) else slopes
            gradients = from_all(chosen, grad_outputs[0], x, params, ctx.needs_input_grad)
            return None if gradients[0] is None else gradients[0].to(y.dtype), *gradients[1:]

    return TracedFunction
