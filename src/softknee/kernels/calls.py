"""Calls whose checks have all been made: what an eager call of a module or a definition with numbers costs its host.

A `Call` is made for one layout of the input (shape, strides, type, device) and for certain tensors or numbers as
parameters. Where the next input is such a one and nothing watches (no tracer, mode, transform or profiler), the call
launches the fused kernel, on a CPU the compiled one, and does nothing else; raw parameters go into it as they are.
Everything else takes the general way in `pointwise`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch._C import _are_functorch_transforms_active as functorch_is_active
from torch._C import _is_tracing as is_tracing
from torch._C import _len_torch_dispatch_stack as count_of_modes
from torch.autograd import forward_ad, profiler
from torch.nn import Parameter

from ..spec import Activation, Constraint
from ..spec.printers import TORCH, lift_bodies
from . import compiled, operators, torch_math
from .compiled import CompiledPlan
from .dispatch import interpreting
from .fused import FusedPlan, current_device, current_stream, new_on_gpu, scratch_for
from .generate import load
from .inverse import Inverse
from .launch import Handle
from .layout import writable
from .plain import working_type
from .triton_source import NUMBER, Source

_MOST_CALLS = 256  # of one module or definition; a program that sees ever new shapes must not grow for ever
_NONE: Mapping[str, Any] = {}
_INTERPRETED = interpreting()


def has_memory(x: Tensor) -> bool:
    """Whether x is memory and nothing more: not a batch, nor what a transform has left, nor zeros that are none."""
    try:
        return x.data_ptr() != 0
    except RuntimeError:
        return False


def unwatched(x: Tensor) -> bool:
    """Whether x is a plain tensor, and no one would see the operator that is called on it.

    (A tensor that stands for its negative, such as the imaginary part of a conjugate, is never dense unless it has one
    element: those have no prepared call.)
    """
    return (
        type(x) is Tensor
        and not functorch_is_active()
        and not count_of_modes()
        and not is_tracing()
        and forward_ad._current_level < 0
        and not profiler._is_profiler_enabled
        and has_memory(x)
    )


def has_kernels(x: Any) -> bool:
    """Whether there may be kernels for such a tensor: cheap, for the many that have none."""
    return type(x) is Tensor and (x.is_cuda or _INTERPRETED or compiled.may_serve(x)) and not x.is_nested


class Call:
    """The call of a definition on inputs of one layout, with these tensors or numbers as its parameters.

    `tensors` are those of the parameters, then the anchors; `names` are theirs in a module. `handle` launches the
    forward kernel, with `rest` after the pointers of x and of the result, `sided` the one that also writes the sides of
    a minimum, and `ends` has the same for the backward kernels by the inputs that need gradients: once the plan has
    launched each.

    What follows is written flat: each call of a Python function is 1 % of what a call of a module may cost, and more in
    autograd's own thread.
    """

    __slots__ = (
        *("act", "plan", "sources", "apply", "tensors", "places", "trained", "numbers", "pointers", "held"),
        *("shape", "stride", "dtype", "device", "index", "alone", "simple", "handle", "sided", "rest", "ends"),
    )

    def __init__(
        self,
        act: Activation,
        plan: FusedPlan | CompiledPlan,
        x: Tensor,
        *,
        tensors: Sequence[Tensor] = (),
        names: Sequence[str] = (),
        numbers: Sequence[float] = (),
        function: Any = None,
    ) -> None:
        self.act, self.sources = act, plan.sources
        self.plan: Any = plan  # a FusedPlan where there are sides
        # In C; what Function.apply does in Python before it is for torch.func's transforms.
        function = super(torch.autograd.Function, act.derived.runtime.eager if function is None else function)
        self.apply = function.apply
        self.tensors, self.numbers = tuple(tensors), tuple(numbers)
        values = tensors[: len(self.sources)]
        self.places = [place for place, t in enumerate(values) if type(t) is Parameter or t.requires_grad]
        self.trained = tuple(tensors[place] for place in self.places)
        self.shape, self.stride, self.dtype, self.device = plan.shape, x.stride(), x.dtype, x.device
        self.index = plan.index
        self.pointers = [tensor.data_ptr() for tensor in tensors]
        self.held = [
            (name, tensors[place], self.pointers[place], tensors[place].dtype, place in self.places)
            for place, name in enumerate(names)
        ]
        self.alone = not x.is_cuda or torch.cuda.device_count() == 1
        aligned = all(pointer & 15 == 0 for pointer in self.pointers)
        self.simple = plan.dense and aligned and new_on_gpu is not None  # launched with pointers alone
        self.handle: Handle | None = None
        self.sided: Handle | None = None
        self.rest: tuple[Any, ...] = ()
        self.ends: dict[tuple[bool, ...], tuple[Handle, tuple[Any, ...], tuple[Any, ...], int]] = {}

    def run(
        self,
        x: Tensor,
        inplace: bool = False,
        parameters: Mapping[str, Any] = _NONE,
        buffers: Mapping[str, Any] = _NONE,
    ) -> Tensor | None:
        """The value for a plain x of the shape that it was made for, with these tensors of a module.

        None where something else has changed or something watches.
        """
        if (
            x.dtype is not self.dtype
            or x.device != self.device
            or x.stride() != self.stride
            or functorch_is_active()
            or count_of_modes()
            or is_tracing()
            or forward_ad._current_level >= 0
            or profiler._is_profiler_enabled
        ):
            return None
        for name, tensor, pointer, dtype, trained in self.held:
            if (parameters if trained else buffers).get(name) is not tensor or tensor.dtype is not dtype:
                return None
            if tensor.data_ptr() != pointer or (not trained and tensor.requires_grad):
                return None
        try:
            if not x.data_ptr():
                return None
        except RuntimeError:  # it has no memory, see has_memory
            return None
        if is_grad_enabled() and (x.requires_grad or any(tensor.requires_grad for tensor in self.trained)):
            return self.apply(self, x, *self.trained)
        if inplace and self.plan.dense and writable(x):
            self.plan.forward(x, self.tensors, self.numbers, out=x)
            torch.autograd.graph.increment_version(x)
            return x
        return self.value(x)

    def value(self, x: Tensor) -> Tensor:
        pointer, handle = x.data_ptr(), self.handle
        if handle is None or pointer & 15 or not (self.alone or current_device() == self.index):
            y = self.plan.forward(x, self.tensors, self.numbers)
            launch = self.plan.forward_launch
            if launch is not None and self.simple:
                self.rest = (*self.pointers, *self.numbers, *launch.last)
                self.handle = launch.handle  # last: another thread may look
            return y
        y = new_on_gpu(self.shape, self.stride, self.dtype)
        handle(current_stream(self.index), (pointer, y.data_ptr()), self.rest)
        return y

    def value_and_sides(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value, and on which side of the minimum each x lies."""
        pointer, handle = x.data_ptr(), self.sided
        if handle is None or pointer & 15 or not (self.alone or current_device() == self.index):
            sides = self.plan.new_sides(x)
            y = self.plan.forward(x, self.tensors, self.numbers, sides=sides)
            launch = self.plan.sides_launch
            if launch is not None and self.simple:
                self.rest = (*self.pointers, *self.numbers, *launch.last)
                self.sided = launch.handle
            return y, sides
        y, sides = new_on_gpu(self.shape, self.stride, self.dtype), self.plan.new_sides(x)
        handle(current_stream(self.index), (pointer, y.data_ptr(), sides.data_ptr()), self.rest)
        return y, sides

    def backward(self, ctx: Any, g: Tensor, x: Tensor, sides: Tensor | None = None) -> tuple[Tensor | None, ...] | None:
        """The gradients of x and the trained tensors; None where the general way must be taken.

        Where the output was saved it is given for x, and the sides of the minimum where there is one.
        """
        tensors, stride, dtype = self.tensors, self.stride, self.dtype
        if tensors and ctx.versions != [tensor._version for tensor in tensors]:
            raise RuntimeError(
                f"{self.act.name}: one of its parameters has been modified by an inplace operation between the forward "
                "and the backward pass, which needs the value that it had."
            )
        if (
            is_grad_enabled()
            or not unwatched(g)
            # A hook on saved tensors may have made another one of x.
            or type(x) not in (Tensor, Parameter)
            or x.stride() != stride
            or x.dtype is not dtype
            or x.device != self.device
            or (tensors and [tensor.data_ptr() for tensor in tensors] != self.pointers)
        ):
            return None
        needs, from_g, from_x = ctx.needs_input_grad, g.data_ptr(), x.data_ptr()
        end = self.ends.get(needs)
        from_sides = () if sides is None else (sides.data_ptr(),)
        aligned = (from_g | from_x | sum(from_sides)) & 15 == 0 and (self.alone or current_device() == self.index)
        if end is None or not aligned or g.stride() != stride or g.dtype is not dtype:
            return self._first_backward(g, x, needs, sides)
        handle, rest, layout, sums = end
        stream = current_stream(self.index)
        dx = new_on_gpu(self.shape, stride, dtype) if needs[1] else None
        pointers = [from_g, from_x, *from_sides, from_x if dx is None else dx.data_ptr()]
        if not sums:
            handle(stream, pointers, rest)
            return None, dx, *[None] * len(self.trained)
        partial, counter = scratch_for(self.device, stream, sums)
        totals = new_on_gpu(*layout)
        totals = [totals] if len(layout[0]) == 1 else totals.unbind(0)
        handle(stream, [*pointers, partial.data_ptr(), counter.data_ptr(), *[t.data_ptr() for t in totals]], rest)
        made = iter(totals)
        return None, dx, *[next(made) if need else None for need in needs[2:]]

    def _first_backward(
        self, g: Tensor, x: Tensor, needs: tuple[bool, ...], sides: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """The gradients by the plan itself, which sees to whatever is not as it is at most times."""
        plan, needed = self.plan, self.needs(needs[1:])
        if isinstance(plan, CompiledPlan):
            made = iter(plan.backward(g, x, self.tensors, needed, self.numbers))
            return None, *[next(made) if need else None for need in needs[1:]]
        made = iter(plan.backward(g, x, self.tensors, needed, self.numbers, sides))
        launch, (count, programs) = plan.backwards[needed]
        kinds = {t.dtype for t, need in zip(self.trained, needs[2:], strict=True) if need}
        if launch.handle is not None and self.simple and len(kinds) <= 1 and all(t.dim() == 1 for t in self.trained):
            # Sums of several parameters are rows of one tensor, 16 bytes apart.
            kind = kinds.pop() if kinds else torch.float32
            layout = ((1,), (1,), kind) if count == 1 else ((count, 1), (16 // kind.itemsize, 1), kind)
            rest = (*self.pointers, *self.numbers, *launch.last)
            self.ends[needs] = launch.handle, rest, layout, count * programs
        return None, *[next(made) if need else None for need in needs[1:]]

    def needs(self, wanted: Sequence[bool]) -> tuple[bool, ...]:
        """Which gradients are needed, of x and all parameters, where `wanted` says it of x and the trained tensors."""
        by_place = dict(zip(self.places, wanted[1:], strict=True))
        return wanted[0], *(by_place.get(place, False) for place in range(len(self.sources)))

    # -- where gradients are differentiated again, or something watches -----------------------------------

    def effective(self, x: Tensor) -> list[Tensor]:
        """The values of the parameters, differentiable by the tensors."""
        if self.numbers:
            work = working_type(x.dtype)
            values = [torch.full((1,), number, dtype=work, device=x.device) for number in self.numbers]
        else:
            anchors = iter(self.tensors[len(self.sources) :])
            values = [
                lifted(source, raw, next(anchors)) if isinstance(source, Constraint) else raw
                for source, raw in zip(self.sources, self.tensors, strict=False)
            ]
        return [value.reshape([1] * x.dim()) if value.dim() > x.dim() else value for value in values]

    def chained(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients by x and the trained tensors, from those by x and the values of all parameters."""
        made = list(gradients[1:])
        anchors = iter(self.tensors[len(self.sources) :])
        for place, (source, raw) in enumerate(zip(self.sources, self.tensors, strict=False)):
            anchor, gradient = next(anchors) if isinstance(source, Constraint) else None, made[place]
            if gradient is not None:
                made[place] = gradient = gradient.reshape(raw.shape)
                if isinstance(source, Constraint) and anchor is not None:
                    work = working_type(raw.dtype)
                    made[place] = (gradient * _slope(source)(raw.to(work), anchor.to(work))).to(raw.dtype)
        return [gradients[0], *[made[place] for place in self.places]]


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


class Calls(dict[Any, Any]):
    """The calls of one module or definition, by the shape of the input (and the numbers given)."""

    def add(self, key: Any, call: Any) -> Any:
        if len(self) >= _MOST_CALLS:
            self.clear()
        self[key] = call
        return call


def call_with_tensors(
    act: Activation,
    x: Tensor,
    sources: tuple[Source, ...],
    names: Sequence[str],
    tensors: Sequence[Any],
    *,
    inverse: Inverse | None = None,
    function: Any = None,
) -> Call | None:
    """The call with a module's tensors (of the parameters, then of anchors), which have these names in it.

    None where something watches or there is no kernel. The definition has been prepared. With an `inverse` the
    output is saved, by this `function`.
    """
    if not unwatched(x) or x.layout != torch.strided or x.numel() == 1:
        return None
    for tensor in tensors:
        known = type(tensor) in (Tensor, Parameter) and tensor.device == x.device and tensor.numel() == 1
        if not known or not tensor.is_leaf or not tensor.is_floating_point() or (any(sources) and tensor.itemsize > 4):
            return None
    if any(anchor.requires_grad for anchor in tensors[len(sources) :]):
        return None
    plan = operators.find_plan(x, tensors[: len(sources)], act.key, sources, inverse)
    if isinstance(plan, str) or (inverse is not None and isinstance(plan, CompiledPlan)):
        return None
    return Call(act, plan, x, tensors=tensors, names=names, function=function)


def call_with_numbers(act: Activation, x: Tensor, numbers: Sequence[float]) -> Call | None:
    """The same with a number for each parameter."""
    if not unwatched(x) or x.layout != torch.strided or x.numel() == 1:
        return None
    plan = operators.find_plan(x, (), act.key, (NUMBER,) * len(numbers))
    return None if isinstance(plan, str) else Call(act, plan, x, numbers=numbers)
