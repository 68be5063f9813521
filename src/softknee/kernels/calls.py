"""Calls whose checks have all been made: what an eager call of a module or a definition with numbers costs its host.

A `Call` is made for one layout of the input (shape, strides, type, device) and for certain tensors or numbers as
parameters. Where the next input is such a one and nothing watches (no tracer, mode, transform or profiler), the call
launches the fused kernel and does nothing else; raw parameters go into it as they are. Everything else takes the
general way in `pointwise`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from ..spec import Activation, Constraint
from ..spec.printers import TORCH
from . import operators, torch_math
from .dispatch import interpreting, ordinary
from .fused import FusedPlan
from .generate import load
from .layout import writable
from .plain import working_type
from .triton_source import NUMBER, Source, lift_bodies

_MOST_CALLS = 256  # of one module or definition; a program that sees ever new shapes must not grow for ever
_NONE: Mapping[str, Any] = {}
_profiled: Any = torch._C._autograd._profiler_enabled  # pyright: ignore[reportAttributeAccessIssue]
_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor  # pyright: ignore[reportAttributeAccessIssue]


def unwatched(x: Tensor) -> bool:
    """Whether x is memory and nothing more, and no one would see the operator that is called on it."""
    return (
        ordinary(x)
        and forward_ad._current_level < 0
        and not _profiled()
        and not x.is_neg()
        and not x._is_zerotensor()
        and not _wrapped(x)  # one that has outlived its transform
    )


def may_be_quick(x: Any) -> bool:
    """Whether there is a fused kernel for such tensors at all; cheap, for the many that have none."""
    return type(x) in (Tensor, Parameter) and (x.is_cuda or _INTERPRETED)


_INTERPRETED = interpreting()


class Call:
    """The call of a definition on inputs of one layout, with these tensors or numbers as its parameters."""

    __slots__ = (
        *("act", "plan", "sources", "tensors", "numbers", "apply", "stride", "dtype", "device", "parameters"),
        "buffers",
    )

    def __init__(
        self,
        act: Activation,
        plan: FusedPlan,
        x: Tensor,
        *,
        apply: Any,
        numbers: Sequence[float] = (),
        parameters: Sequence[tuple[str, Tensor]] = (),
        buffers: Sequence[tuple[str, Tensor]] = (),
        tensors: Sequence[Tensor] = (),
    ) -> None:
        self.act, self.plan, self.sources, self.apply = act, plan, plan.sources, apply
        self.numbers, self.tensors = tuple(numbers), tuple(tensors)
        self.stride, self.dtype, self.device = x.stride(), x.dtype, x.device
        self.parameters = [(name, tensor, tensor.dtype) for name, tensor in parameters]
        self.buffers = [(name, tensor, tensor.dtype) for name, tensor in buffers]

    def takes(self, x: Tensor, parameters: Mapping[str, Any] = _NONE, buffers: Mapping[str, Any] = _NONE) -> bool:
        """Whether it was made for an input like x, of the same shape, and for these tensors of a module."""
        device = self.device
        if x.dtype is not self.dtype or x.device != device or x.stride() != self.stride or not unwatched(x):
            return False
        for name, tensor, dtype in self.parameters:
            if parameters.get(name) is not tensor or tensor.dtype is not dtype or tensor.device != device:
                return False
        for name, tensor, dtype in self.buffers:
            if buffers.get(name) is not tensor or tensor.dtype is not dtype or tensor.device != device:
                return False
        return True

    def __call__(self, x: Tensor, inplace: bool = False) -> Tensor:
        if torch.is_grad_enabled() and (x.requires_grad or any([tensor.requires_grad for tensor in self.tensors])):
            return self.apply(self, x, *self.tensors)
        if inplace and self.plan.dense and writable(x):
            self.plan.forward(x, self.tensors, self.numbers, out=x)
            torch.autograd.graph.increment_version(x)
            return x
        return self.plan.forward(x, self.tensors, self.numbers)

    # -- for gradients that are differentiated again ------------------------------------------------------

    def effective(self, x: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The values of the parameters, differentiable by the tensors."""
        if self.numbers:
            work = working_type(x.dtype)
            values = [torch.full((1,), number, dtype=work, device=x.device) for number in self.numbers]
        else:
            anchors = iter(tensors[len(self.sources) :])
            values = [
                lifted(source, raw, next(anchors)) if isinstance(source, Constraint) else raw
                for source, raw in zip(self.sources, tensors, strict=False)
            ]
        return [value.reshape([1] * x.dim()) if value.dim() > x.dim() else value for value in values]

    def chained(self, gradients: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients by x and the tensors, from those by x and the values of the parameters."""
        by_x, *others = gradients
        anchors = iter(tensors[len(self.sources) :])
        result = [by_x]
        for source, raw, gradient in zip(self.sources, tensors, others, strict=False):
            anchor = next(anchors) if isinstance(source, Constraint) else None
            if gradient is not None:
                gradient = gradient.reshape(raw.shape)
                if isinstance(source, Constraint) and anchor is not None:
                    work = working_type(raw.dtype)
                    gradient = (gradient * _slope(source)(raw.to(work), anchor.to(work))).to(raw.dtype)
            result.append(gradient)
        return result + [None] * (1 + len(tensors) - len(result))


def lifted(constraint: Constraint, raw: Tensor, anchor: Tensor | None) -> Tensor:
    """The effective value of a raw one, at least in float32."""
    work = working_type(raw.dtype)
    return constraint.lift(raw.to(work), None if anchor is None else anchor.to(work))


@cache
def _slope(constraint: Constraint) -> Any:
    """The derivative of an effective value by the raw one, as differentiable operations on (raw, anchor)."""
    code = lift_bodies(constraint, TORCH)[1]
    lines = ["def slope(raw, anchor):", *(f"    {line}" for line in code.lines), f"    return {code.results[0]}", ""]
    return load("\n".join(lines), f"slope of {constraint}", vars(torch_math), "slope", torch_math.__name__)


class Calls(dict[Any, Call]):
    """The calls of one module or definition, by the shape of the input (and the numbers given)."""

    def add(self, key: Any, call: Call) -> Call:
        if len(self) >= _MOST_CALLS:
            self.clear()
        self[key] = call
        return call


def for_tensors(
    act: Activation,
    x: Tensor,
    sources: tuple[Source, ...],
    parameters: Mapping[str, Any],
    buffers: Mapping[str, Any],
    names: Sequence[str],
    apply: Any,
) -> Call | None:
    """The call with tensors of a module (those of the parameters, then the anchors), or None where there is none."""
    if not unwatched(x) or x.is_nested or x.layout != torch.strided:
        return None
    tensors = [parameters.get(name, buffers.get(name)) for name in names]
    for tensor, source in zip(tensors, (*sources, *[None] * (len(tensors) - len(sources))), strict=True):
        known = type(tensor) in (Tensor, Parameter) and tensor.device == x.device and tensor.numel() == 1
        if not known or not tensor.is_floating_point() or (isinstance(source, Constraint) and tensor.itemsize > 4):
            return None
    if any(tensor.requires_grad for tensor in tensors[len(sources) :]):
        return None
    plan = operators.find_plan(x, tensors[: len(sources)], act.key, sources)
    if not isinstance(plan, FusedPlan):
        return None
    return Call(
        act,
        plan,
        x,
        apply=apply,
        tensors=tensors,
        parameters=[(name, parameters[name]) for name in names if name in parameters],
        buffers=[(name, buffers[name]) for name in names if name not in parameters],
    )


def for_numbers(act: Activation, x: Tensor, numbers: Sequence[float], apply: Any) -> Call | None:
    """The call with numbers, or None where there is none."""
    if not unwatched(x) or x.is_nested or x.layout != torch.strided:
        return None
    plan = operators.find_plan(x, (), act.key, (NUMBER,) * len(numbers))
    return Call(act, plan, x, apply=apply, numbers=numbers) if isinstance(plan, FusedPlan) else None
