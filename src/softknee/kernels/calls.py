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
from torch._C import _are_functorch_transforms_active, _is_tracing, _len_torch_dispatch_stack
from torch.autograd import forward_ad
from torch.nn import Parameter

from ..spec import Activation, Constraint
from ..spec.printers import TORCH
from . import operators, torch_math
from .dispatch import interpreting
from .fused import FusedPlan, current_device, current_stream, new_on_gpu, scratch_for
from .generate import load
from .launch import Launch
from .layout import writable
from .plain import working_type
from .triton_source import NUMBER, Source, lift_bodies

_MOST_CALLS = 256  # of one module or definition; a program that sees ever new shapes must not grow for ever
_NONE: Mapping[str, Any] = {}
_INTERPRETED = interpreting()
_profiled: Any = torch._C._autograd._profiler_enabled  # pyright: ignore[reportAttributeAccessIssue]


def unwatched(x: Tensor) -> bool:
    """Whether x is memory and nothing more, and no one would see the operator that is called on it.

    (A tensor that stands for its negative, such as the imaginary part of a conjugate, is never dense unless it has one
    element: those have no prepared call.)
    """
    if (
        type(x) not in (Tensor, Parameter)
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack()
        or _is_tracing()
        or forward_ad._current_level >= 0
        or _profiled()
    ):
        return False
    try:
        return x.data_ptr() != 0  # it is 0 for a tensor of zeros without memory
    except RuntimeError:  # of a batch, or of a transform that has ended
        return False


def has_kernels(x: Any) -> bool:
    """Whether there may be a fused kernel for such a tensor: cheap, for the many that have none."""
    return type(x) is Tensor and (x.is_cuda or _INTERPRETED) and not x.is_nested


class Call:
    """The call of a definition on inputs of one layout, with these tensors or numbers as its parameters.

    `tensors` are those of the parameters, then the anchors; `names` are theirs in a module.
    """

    __slots__ = (
        *("act", "plan", "sources", "apply", "tensors", "places", "trained", "numbers", "pointers", "held", "alone"),
        *("shape", "stride", "dtype", "device", "forward_end", "backward_ends", "needed"),
    )

    def __init__(
        self,
        act: Activation,
        plan: FusedPlan,
        x: Tensor,
        apply: Any,
        *,
        tensors: Sequence[Tensor] = (),
        names: Sequence[str] = (),
        numbers: Sequence[float] = (),
    ) -> None:
        self.act, self.plan, self.sources, self.apply = act, plan, plan.sources, apply
        self.tensors, self.numbers = tuple(tensors), tuple(numbers)
        count = len(self.sources)
        self.places = [i for i, t in enumerate(tensors[:count]) if type(t) is Parameter or t.requires_grad]
        self.trained = tuple(tensors[place] for place in self.places)
        self.shape, self.stride, self.dtype, self.device = plan.shape, x.stride(), x.dtype, x.device
        self.pointers = [tensor.data_ptr() for tensor in tensors]
        self.held = [
            (name, tensors[place], self.pointers[place], tensors[place].dtype, place in self.places)
            for place, name in enumerate(names)
        ]
        self.alone = not x.is_cuda or torch.cuda.device_count() == 1
        # A handle of the launch and its arguments after the pointers of x and of results, once both are known.
        self.forward_end: tuple[Any, tuple[Any, ...]] | None = None
        self.backward_ends: dict[tuple[bool, ...], tuple[Any, tuple[Any, ...], list[Any], int]] = {}
        self.needed: dict[tuple[bool, ...], tuple[bool, ...]] = {}

    def takes(self, x: Tensor, parameters: Mapping[str, Any] = _NONE, buffers: Mapping[str, Any] = _NONE) -> bool:
        """Whether it was made for an input like x, of the same shape, and for these tensors of a module."""
        if x.dtype is not self.dtype or x.device != self.device or x.stride() != self.stride or not unwatched(x):
            return False
        for name, tensor, pointer, dtype, trained in self.held:
            if (parameters if trained else buffers).get(name) is not tensor or tensor.dtype is not dtype:
                return False
            if tensor.data_ptr() != pointer or (not trained and tensor.requires_grad):
                return False
        return True

    def __call__(self, x: Tensor, inplace: bool = False) -> Tensor:
        if torch.is_grad_enabled() and (x.requires_grad or any([tensor.requires_grad for tensor in self.trained])):
            return self.apply(self, x, *self.trained)
        if inplace and self.plan.dense and writable(x):
            self.plan.forward(x, self.tensors, self.numbers, out=x)
            torch.autograd.graph.increment_version(x)
            return x
        return self.value(x)

    def value(self, x: Tensor) -> Tensor:
        pointer, end = x.data_ptr(), self.forward_end
        if end is None or pointer & 15 or not (self.alone or current_device() == self.plan.index):
            y = self.plan.forward(x, self.tensors, self.numbers)
            self.forward_end = self._end_of(self.plan.forward_launch)
            return y
        y = new_on_gpu(self.shape, self.stride, self.dtype)
        end[0](current_stream(self.plan.index), (pointer, y.data_ptr()), end[1])
        return y

    def _end_of(self, launch: Launch | None) -> tuple[Any, tuple[Any, ...]] | None:
        """How to launch with pointers alone; None where the plan has to see to more."""
        if launch is None or launch.handle is None or not self.plan.dense or new_on_gpu is None:
            return None
        return launch.handle, (*self.pointers, *self.numbers, *launch.last)

    def versions(self) -> list[int]:
        """What tells whether a parameter was written to."""
        return [tensor._version for tensor in self.tensors]

    def still_fits(self, x: Tensor, versions: Sequence[int]) -> bool:
        """Whether the kernel can be launched on x, which was saved, and on the tensors as they are now."""
        if self.versions() != versions:
            raise RuntimeError(
                f"{self.act.name}: one of its parameters has been modified by an inplace operation between the forward "
                "and the backward pass, which needs the value that it had."
            )
        # A hook on saved tensors may have made another one of x.
        same = x.stride() == self.stride and x.dtype is self.dtype and x.device == self.device
        return same and type(x) in (Tensor, Parameter) and [t.data_ptr() for t in self.tensors] == self.pointers

    def needs(self, wanted: tuple[bool, ...]) -> tuple[bool, ...]:
        """Which gradients are needed, of x and all parameters, where `wanted` says it of x and the trained tensors."""
        if wanted not in self.needed:
            by_place = dict(zip(self.places, wanted[1:], strict=True))
            self.needed[wanted] = wanted[0], *(by_place.get(place, False) for place in range(len(self.sources)))
        return self.needed[wanted]

    def gradients(self, g: Tensor, x: Tensor, needs: tuple[bool, ...]) -> list[Tensor]:
        """The gradients that are needed, of x and the parameters, by the fused kernel."""
        end = self.backward_ends.get(needs)
        from_g, from_x = g.data_ptr(), x.data_ptr()
        aligned = (from_g | from_x) & 15 == 0 and (self.alone or current_device() == self.plan.index)
        if end is None or not aligned or g.stride() != self.stride or g.dtype is not self.dtype:
            made = self.plan.backward(g, x, self.tensors, needs, self.numbers)
            launch, shape = self.plan.backwards[needs]
            if (end := self._end_of(launch)) is not None:
                wanted = [t for t, need in zip(self.tensors, needs[1:], strict=False) if need]
                layouts = [(tuple(t.shape), t.stride(), t.dtype) for t in wanted]
                self.backward_ends[needs] = (*end, layouts, shape[0] * shape[1])
            return made
        handle, rest, layouts, sums = end
        stream = current_stream(self.plan.index)
        made = [new_on_gpu(self.shape, self.stride, self.dtype)] if needs[0] else []
        pointers = [from_g, from_x, made[0].data_ptr() if made else from_x]
        if sums:
            partial, counter = scratch_for(self.device, stream, sums)
            totals = [new_on_gpu(*layout) for layout in layouts]
            pointers += [partial.data_ptr(), counter.data_ptr(), *[total.data_ptr() for total in totals]]
            made += totals
        handle(stream, pointers, rest)
        return made

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


class Calls(dict[Any, Call]):
    """The calls of one module or definition, by the shape of the input (and the numbers given)."""

    def add(self, key: Any, call: Call | None) -> Call | None:
        if call is not None:
            if len(self) >= _MOST_CALLS:
                self.clear()
            self[key] = call
        return call


def call_with_tensors(
    act: Activation,
    x: Tensor,
    apply: Any,
    sources: tuple[Source, ...],
    names: Sequence[str],
    tensors: Sequence[Any],
) -> Call | None:
    """The call with tensors of a module (those of the parameters, then the anchors), or None where there is none."""
    if not unwatched(x) or x.layout != torch.strided or x.numel() == 1:
        return None
    for tensor in tensors:
        known = type(tensor) in (Tensor, Parameter) and tensor.device == x.device and tensor.numel() == 1
        if not known or not tensor.is_leaf or not tensor.is_floating_point() or (any(sources) and tensor.itemsize > 4):
            return None
    if any(anchor.requires_grad for anchor in tensors[len(sources) :]):
        return None
    plan = operators.find_plan(x, tensors[: len(sources)], act.key, sources)
    return Call(act, plan, x, apply, tensors=tensors, names=names) if isinstance(plan, FusedPlan) else None


def call_with_numbers(act: Activation, x: Tensor, apply: Any, numbers: Sequence[float]) -> Call | None:
    """The call with numbers, or None where there is none."""
    if not unwatched(x) or x.layout != torch.strided or x.numel() == 1:
        return None
    plan = operators.find_plan(x, (), act.key, (NUMBER,) * len(numbers))
    return Call(act, plan, x, apply, numbers=numbers) if isinstance(plan, FusedPlan) else None
