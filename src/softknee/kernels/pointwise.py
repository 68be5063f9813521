"""The differentiable call of a definition, to any order and under every transform.

Each definition has one `torch.autograd.Function`. It saves x and the parameters and nothing else. Its backward is the
fused or blocked joint kernel when nobody will differentiate it again, and otherwise calls the Functions of the
partial derivatives, which are definitions themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.autograd import profiler
from torch.nn import Parameter

from .. import torch_compat
from ..errors import InputError, ParameterError
from ..registry import get
from ..spec import Activation, Param, by_key, set_engine
from . import operators, plain
from .calls import Call, Calls, call_with_numbers, has_kernels, has_memory, unwatched
from .dispatch import beside_the_trace, choose, exporting, ordinary
from .generate import torch_function
from .layout import check_nested, like, sum_to_shape, values_of, writable


@dataclass(frozen=True)
class Runtime:
    """The autograd Functions of a definition: for eager calls, and inside torch.func.

    Both take a `Call` first, or None: then x and the parameters' values follow.
    """

    eager: Any
    transformed: Any
    calls: Calls = field(default_factory=Calls)


@dataclass(frozen=True)
class Traced:
    """What torch.compile traces of a definition: an autograd Function, and the value alone."""

    function: Any
    value: Any


class Shelf:
    """Definitions by name, as attributes: torch.compile reads a dictionary once per trace, an attribute each time."""


_definitions = Shelf()
_MOST_DEFINITIONS = 1024  # a file is a name, too, and there may be ever new ones


@beside_the_trace
def prepare(key: str) -> str:
    """Derive and print the functions of the definition with this key, once; return the key.

    torch.compile must not trace this work, and takes and gives only constants beside its trace: hence strings, and a
    look-up by the caller.
    """
    act = by_key(key)
    if act.derived.runtime is None:
        torch_function(act, ())
        if not act.index:
            torch_function(act, *_slopes(act))  # what cannot be trained is refused before anybody tries
        act.derived.runtime = Runtime(*_functions(act))
    return key


def runtime_of(act: Activation) -> Runtime:
    """The Functions of a definition."""
    prepare(act.key)
    return act.derived.runtime


@beside_the_trace
def _prepare_traced(key: str) -> str:
    act = by_key(key)
    if act.derived.traced is None:
        act.derived.traced = _traced(act)
    return key


def traced_of(act: Activation) -> Traced:
    """What torch.compile traces of a definition."""
    _prepare_traced(act.key)
    return act.derived.traced


@beside_the_trace
def _build(name: str) -> str:
    if len(vars(_definitions)) >= _MOST_DEFINITIONS:
        vars(_definitions).clear()
    setattr(_definitions, name, get(name))
    return name


def find(name: str) -> Any:
    """`get`, usable inside a function that torch.compile traces."""
    return getattr(_definitions, _build(name))


def _functions(act: Activation) -> tuple[Any, Any]:
    names = ["x", *(p.name for p in act.params)]
    key = act.key

    def value(x: Tensor, params: Sequence[Tensor]) -> Tensor:
        if not ordinary(x):
            return operators.own(plain.value(act, x, params), x)
        compute = torch.ops.softknee.pointwise.default if needs_dispatcher(x, *params) else operators.pointwise
        with torch._C._AutoDispatchBelowAutograd():
            return compute(x, params, key)

    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        x, *params = ctx.saved_tensors
        (g,), call = grad_outputs, ctx.call
        needs = ctx.needs_input_grad[1:]
        if call is not None:
            if (done := call.backward(ctx, g, x)) is not None:
                return done
            params, needs = call.effective(x), call.needs(needs)
        if torch.is_grad_enabled() or not ordinary(g) or not ordinary(x) or batched(g):
            gradients = [along(act, n, x, params, g) if need else None for n, need in zip(names, needs, strict=True)]
        else:
            by_name = needs_dispatcher(g, x, *params)
            compute = torch.ops.softknee.pointwise_backward.default if by_name else operators.pointwise_backward
            made = iter(compute(g, x, params, key, needs))
            gradients = [next(made) if need else None for need in needs]
        return None, *(gradients if call is None else call.chained(gradients))

    def jvp(ctx: Any, _: None, *grad_inputs: Tensor | None) -> Tensor:
        x, *params = ctx.saved_tensors
        parts = [
            slope_of(act, name, x, params) * tangent
            for name, tangent in zip(names, grad_inputs, strict=True)
            if tangent is not None
        ]
        return sum(parts[1:], parts[0]).to(x.dtype).expand(x.shape)

    def remember(ctx: Any, inputs: Sequence[Any]) -> None:
        ctx.call, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    def forward(ctx: Any, call: Call | None, x: Tensor, *params: Tensor) -> Tensor:
        if call is None:
            remember(ctx, (None, x, *params))
            return value(x, params)
        ctx.call, ctx.to_save = call, (x,)  # as save_for_backward(x) does
        if call.tensors:
            ctx.versions = [tensor._version for tensor in call.tensors]
        return call.value(x)

    # torch binds the arguments of a Function that sets its context up apart by `inspect`, which takes 40 us; only
    # torch.func needs that kind.
    eager = {"forward": forward, "backward": backward, "jvp": jvp}
    apart = {
        "forward": lambda call, x, *params: value(x, params),
        "setup_context": lambda ctx, inputs, output: remember(ctx, inputs),
        "backward": backward,
        "jvp": jvp,
    }
    return _function(act, eager), _function(act, apart, generate_vmap_rule=True)


def needs_dispatcher(*tensors: Tensor) -> bool:
    """Whether the operators are called by their names: a profiler shows them, and torch's dispatcher has rules of its
    own for tensors without memory or that stand for their negative. Else their functions are called: that is quicker.
    """
    return profiler._is_profiler_enabled or any(
        type(t) not in (Tensor, Parameter) or t.is_neg() or not has_memory(t) for t in tensors
    )


def batched(g: Tensor) -> bool:
    """Whether this stands for several gradients at once: torch.autograd.grad(..., is_grads_batched=True).

    That is not torch.func's vmap, and no operator of ours can have a rule for it.
    """
    return torch._C._functorch.is_legacy_batchedtensor(g)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]


def _function(act: Activation, methods: Mapping[str, Any], **attributes: Any) -> Any:
    body = {name: staticmethod(method) for name, method in methods.items()}
    return type(f"Softknee_{act.name}", (torch.autograd.Function,), {**body, **attributes})


def _apply(runtime: Runtime, x: Tensor, params: Sequence[Tensor]) -> Tensor:
    if torch._C._are_functorch_transforms_active():
        return runtime.transformed.apply(None, x, *params)
    return runtime.eager.apply(None, x, *params)


def _slopes(act: Activation) -> list[tuple[str]]:
    """The indices of the first derivatives."""
    return [("x",), *((p.name,) for p in act.params)]


def _traced(act: Activation) -> Traced:
    """Plain operations both ways, and the value alone: torch.compile takes no Function with a jvp.

    Without a Function the compiler would differentiate the operations themselves, and a piece that overflows beside
    the one that is selected would make a NaN of the gradient.

    A definition that solves an equation has some hundred operations, each of which uses several of those before it. The
    compiler of an old torch does not come to an end with them (see torch_compat), and is given the operators instead.
    """
    key, opaque = act.key, torch_compat.FOLLOWS_EVERY_PATH and act.implicit is not None
    value, coarse_value = torch_function(act, ()), torch_function(act, (), coarse=True)
    slopes, coarse_slopes = traced_slopes(act)

    def traced_value(x: Tensor, *params: Tensor) -> Tensor:
        work = plain.working_type(x.dtype)
        chosen = coarse_value if is_half_on_gpu(x) else value
        (result,) = chosen(x.to(work), *(p.to(work) for p in params))
        # torch 2.11's compiler loses the gradient of a Function that ends in a conversion to the type there was.
        return operators.own(result if result.dtype == x.dtype else result.to(x.dtype), x)

    class TracedFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, *params: Tensor) -> Tensor:
            ctx.save_for_backward(x, *params)
            if opaque:
                return torch.ops.softknee.pointwise.default(x, params, key)
            return traced_value(x, *params)

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
            x, *params = ctx.saved_tensors
            if opaque:
                needs = list(ctx.needs_input_grad)
                grads = torch.ops.softknee.pointwise_backward.default(grad_outputs[0], x, params, key, needs)
                return tuple([grads[sum(needs[:i])] if need else None for i, need in enumerate(needs)])
            chosen = coarse_slopes if is_half_on_gpu(x) else slopes
            return from_all(chosen, grad_outputs[0], x, params, ctx.needs_input_grad)

    return Traced(TracedFunction, traced_value)


def traced_slopes(act: Activation) -> tuple[Any, Any]:
    """Every first derivative at once; with all digits, and with those that a half type can hold."""
    derivatives = _slopes(act)
    return torch_function(act, *derivatives), torch_function(act, *derivatives, coarse=True)


def is_half_on_gpu(x: Tensor) -> bool:
    """Where the fused kernels of eager calls use their coarse functions, too."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16)


def from_all(function: Any, g: Tensor, x: Tensor, params: Sequence[Tensor], needs: Sequence[bool]) -> Any:
    """Every derivative at once; a compiler drops those that are not needed."""
    work = plain.working_type(x.dtype)
    slopes = function(x.to(work), *(p.to(work) for p in params))
    return tuple(
        sum_to_shape(g.to(work) * slope, value.shape).to(value.dtype) if need else None
        for slope, value, need in zip(slopes, [x, *params], needs, strict=True)
    )


def slope_of(act: Activation, name: str, x: Tensor, params: Sequence[Tensor]) -> Tensor:
    """A partial derivative as a differentiable call, in the working type."""
    return _apply(runtime_of(act.partial(name)), x.to(plain.working_type(x.dtype)), params)


def along(act: Activation, name: str, x: Tensor, params: Sequence[Tensor], g: Tensor) -> Tensor:
    slope = slope_of(act, name, x, params)
    target = x if name == "x" else params[[p.name for p in act.params].index(name)]
    return sum_to_shape(g.to(slope.dtype) * slope, target.shape).to(target.dtype)


def call(act: Activation, x: Tensor, params: Sequence[Tensor], *, inplace: bool = False) -> Tensor:
    """The definition on a tensor, with parameters given as tensors that broadcast against it."""
    if x.is_nested:
        values, params = values_of(act, x, params)
        return like(call(act, values, params, inplace=inplace), x)
    if torch.compiler.is_compiling():
        # Where no gradient is wanted torch 2.12 would call a Function's forward without its context. In a strict export
        # a Function becomes a part without gradient, and torch 2.6 has no Function whose sizes are free there.
        differentiated = _wants_gradient(x, params) and not exporting()
        traced = traced_of(act)
        return (traced.function.apply if differentiated else traced.value)(x, *params)
    runtime = runtime_of(act)
    if not _wants_gradient(x, params):
        if inplace and ordinary(x) and writable(x):
            return operators.value_into(act, x, params)
        if unwatched(x) and not needs_dispatcher(x, *params):
            return operators.pointwise(x, params, act.key)
    return _apply(runtime, x, params)


def _wants_gradient(x: Tensor, params: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in params))


def check_input(act: Activation, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise InputError(
            f"{act.name} works on a torch.Tensor, and {type(x).__name__} was given; wrap it with torch.as_tensor."
        )
    if not x.is_floating_point():
        raise InputError(f"{act.name} works on real floating-point tensors, and {x.dtype} was given; convert it first.")
    if x.is_nested:
        check_nested(act, x)
    elif x.layout != torch.strided:
        raise InputError(f"{act.name} works on dense tensors, and {x.layout} was given; convert it with x.to_dense().")


def fit_shape(act: Activation, name: str, p: Tensor, x: Tensor) -> Tensor:
    """A parameter in a shape that broadcasts to x, or a sentence that says why it cannot."""
    if p.device != x.device:
        raise ParameterError(
            f"{act.name}: {name} lies on {p.device} and the input on {x.device}; move one of them with .to(...)."
        )
    if p.is_complex():
        raise ParameterError(f"{act.name}: {name} must be real, and {p.dtype} was given.")
    if p.is_nested and p.shape == x.shape:
        return p
    if p.numel() == 1:
        return p if p.dim() <= x.dim() else p.reshape([1] * x.dim())
    lead = x.dim() - p.dim()
    if lead < 0 or any(size != 1 and size != x.shape[lead + d] for d, size in enumerate(p.shape)):
        raise ParameterError(
            f"{act.name}: {name} has shape {tuple(p.shape)}, which does not broadcast against an input of shape "
            f"{tuple(x.shape)}; a value per channel of dimension 1 has shape (C, 1, ...), one per layer (1,)."
        )
    return p


def run(act: Activation, x: Tensor, values: Mapping[str, Any]) -> Tensor:
    """What `act(x, **values)` does."""
    if not torch.compiler.is_compiling() and has_kernels(x):
        result = _run_with_numbers(act, x, values)
        if result is not None:
            return result
    if act.variants and not act.index:
        act, values = act.choose_variant(values, find)
    if act.groups:
        values = act.spread(values)
    check_input(act, x)
    if "temperature" in values:
        values = act.configured(values)[1]
    act.check(values)
    params = []
    for p in act.params:
        value = values.get(p.name, p.default)
        if not isinstance(value, Tensor):
            work = plain.working_type(x.dtype)
            value = torch.full((1,), held_number(act.name, p, float(value), work), dtype=work, device=x.device)
        elif value.requires_grad:
            value = p.constraint.within(value)  # a learned number; a module has its own within its range already
        params.append(fit_shape(act, p.name, value, x))
    return call(act, x, params)


def _run_with_numbers(act: Activation, x: Tensor, values: Mapping[str, Any]) -> Tensor | None:
    """What a prepared call with these numbers gives; None where there is none."""
    for value in values.values():
        if type(value) not in (float, int):
            return None
    key = (x.shape, *values, *values.values())
    if 0 in values.values():
        key += tuple(map(math.copysign, repeat(1.0), values.values()))  # 0.0 and -0.0 are equal
    runtime: Runtime | None = act.derived.runtime
    call = None if runtime is None else runtime.calls.get(key)
    result = None if call is None else call.run(x)
    if result is not None or not {p.name for p in act.params}.issuperset(values):
        return result
    check_input(act, x)
    act.check(values)
    work = plain.working_type(x.dtype)
    numbers = [held_number(act.name, p, float(values.get(p.name, p.default)), work) for p in act.params]
    calls = runtime_of(act).calls
    call = call_with_numbers(act, x, numbers)
    return None if call is None else calls.add(key, call).run(x)


def held_number(title: str, p: Param, number: float, work: torch.dtype) -> float:
    """The number, refused where the type has none so large, or none so near to a 0 that is not allowed."""
    kind, size = torch.finfo(work), abs(number)
    if size > kind.max or (0 < size < kind.tiny and not p.constraint.allows(0.0)):
        raise ParameterError(
            f"{title}: {p.name}={number:g} is beyond the numbers of {work}, in which it is computed; give another "
            "value, or a float64 input."
        )
    return number


set_engine(run)

__all__ = ["call", "check_input", "choose", "find", "fit_shape", "run", "runtime_of", "traced_of"]
