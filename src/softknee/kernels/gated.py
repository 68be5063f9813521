"""A definition times a gate, f(x) * gate: one kernel each way, and x and the gate are all that is saved.

    y = f(x; p) gate      dx = g gate f'(x)      dgate = g f(x)      dp = sum of g gate df/dp

Both inputs may be halves of one tensor: rows that lie a fixed step apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..spec import Activation
from ..spec.activation import once_per_definition
from ..spec.emit import PARAMETER
from . import operators
from .dispatch import choose_kernel, ordinary
from .fused import cores, load_kernel, stream_on
from .launch import Launch, divide_up, power_of_two
from .pointwise import along, batched, call
from .triton_source import compute, factors_of

_BLOCK, _WARPS, _PER_CORE = 1024, 4, 64


def call_gated(act: Activation, x: Tensor, params: Sequence[Tensor], gate: Tensor, *, inplace: bool = False) -> Tensor:
    """f(x) * gate, with parameters given as tensors that broadcast against x.

    inplace: a fused backward pass writes the gradients of x and of the gate over them, unless they are leaves.
    """
    alike = x.shape == gate.shape and x.dtype == gate.dtype and x.device == gate.device and not x.is_nested
    if not alike or torch.compiler.is_compiling() or not ordinary(x) or not ordinary(gate) or _forward_mode():
        return call(act, x, params) * gate
    overwrites = inplace and x.grad_fn is not None and gate.grad_fn is not None
    return _function(act).apply(overwrites, x, gate, *params)


def _forward_mode() -> bool:
    return forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


@once_per_definition
def _function(act: Activation) -> Any:
    names, key = ["x", *(p.name for p in act.params)], act.key

    def forward(ctx: Any, overwrites: bool, x: Tensor, gate: Tensor, *params: Tensor) -> Tensor:
        ctx.overwrites = overwrites
        ctx.save_for_backward(x, gate, *params)
        plan = _plan(act, x, gate, params)
        if plan is not None:
            return plan.forward(x, gate, params)
        return torch.ops.softknee.pointwise.default(x, params, key) * gate

    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        x, gate, *params = ctx.saved_tensors
        (g,), (_, need_x, need_gate, *need_params) = grad_outputs, ctx.needs_input_grad
        needs = [need_x, *need_params]
        if torch.is_grad_enabled() or not ordinary(g) or batched(g):
            d_gate = g * call(act, x, params) if need_gate else None
            rest = [along(act, n, x, params, g * gate) if need else None for n, need in zip(names, needs, strict=True)]
            return None, rest[0], d_gate, *rest[1:]
        plan = _plan(act, x, gate, params)
        if plan is not None:
            return None, *plan.backward(g, x, gate, params, needs, overwrites=ctx.overwrites)
        d_gate = g * torch.ops.softknee.pointwise.default(x, params, key) if need_gate else None
        gradients = iter(operators.pointwise_backward(g * gate, x, params, key, needs) if any(needs) else ())
        d_x, *d_params = [next(gradients) if need else None for need in needs]
        return None, d_x, d_gate, *d_params

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(f"Softknee_gated_{act.name}", (torch.autograd.Function,), body)


# -- the fused kernels ------------------------------------------------------------------------------------


@once_per_definition
def _plans(act: Activation) -> dict[tuple[Any, ...], GatedPlan | None]:
    return {}


def _plan(act: Activation, x: Tensor, gate: Tensor, params: Sequence[Tensor]) -> GatedPlan | None:
    """The plan for such tensors, None where they take plain operations."""
    layout = (x.shape, x.stride(), gate.stride(), x.dtype, x.device, *[(p.numel(), p.dtype, p.device) for p in params])
    plans = _plans(act)
    if layout not in plans:
        if len(plans) >= operators.MOST_PLANS:
            plans.clear()
        fused = all(p.numel() == 1 for p in params) and choose_kernel(act, x, params).path == "fused"
        plans[layout] = GatedPlan(act, x, gate) if fused else None
    return plans[layout]


def row_step(x: Tensor) -> int | None:
    """How far apart the rows along the last dimension begin; None where a row has holes, or rows overlap or vary.

    >>> row_step(torch.zeros(2, 3, 8)[..., :4])
    8
    """
    sizes, strides = x.shape, x.stride()
    if x.dim() == 0 or (strides[-1] != 1 and sizes[-1] != 1):
        return None
    leading = [d for d in range(x.dim() - 1) if sizes[d] != 1]
    for outer, inner in pairwise(leading):
        if strides[outer] != strides[inner] * sizes[inner]:
            return None
    step = strides[leading[-1]] if leading else sizes[-1]
    return step if step >= sizes[-1] else None


class GatedPlan:
    """What does not depend on the numbers; made once per layout."""

    def __init__(self, act: Activation, x: Tensor, gate: Tensor) -> None:
        self.act, self.dtype, self.device = act, x.dtype, x.device
        self.index = x.device.index if x.is_cuda else None
        width = x.shape[-1] if x.dim() else 1
        x_step, gate_step = row_step(x), row_step(gate)
        self.copies = x_step is None or gate_step is None
        steps = (width, width) if x_step is None or gate_step is None else (x_step, gate_step)
        if steps == (width, width):  # no rows apart: one long one
            width, steps = x.numel(), (x.numel(), x.numel())
        self.width, self.steps, self.rows = width, steps, x.numel() // width
        self.block = min(_BLOCK if x.dtype == torch.float32 else 2 * _BLOCK, max(64, power_of_two(width)))
        self.blocks = divide_up(width, self.block)
        self._forward: Launch | None = None
        self._backwards: dict[tuple[bool, ...], tuple[Launch, tuple[int, int]]] = {}  # by what is needed, and where

    def forward(self, x: Tensor, gate: Tensor, params: Sequence[Tensor]) -> Tensor:
        if self.copies:
            x, gate = x.contiguous(), gate.contiguous()
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if self._forward is None:
            kernel = _forward_kernel(self.act, self.dtype)
            numbers = (self.width, *self.steps, self.blocks)
            self._forward = Launch(kernel, (self.rows * self.blocks,), numbers, warps=_WARPS, BLOCK=self.block)
        self._run(self._forward, x, gate, y, *params)
        return y

    def backward(
        self,
        g: Tensor,
        x: Tensor,
        gate: Tensor,
        params: Sequence[Tensor],
        needs: Sequence[bool],
        *,
        overwrites: bool,
    ) -> tuple[Tensor | None, ...]:
        """The gradients of x, of the gate, and of the parameters that need one."""
        if self.copies:
            x, gate = x.contiguous(), gate.contiguous()
        g = g.contiguous() if g.dtype == x.dtype else g.to(x.dtype).contiguous()
        overwrites = overwrites and not self.copies and self._apart(x, gate)
        made = self._backwards.get((overwrites, *needs[1:]))
        if made is None:
            made = self._backwards[overwrites, *needs[1:]] = self._make_backward(needs, overwrites=overwrites)
        launch, partial_shape = made
        partial = torch.empty(partial_shape, dtype=torch.float32, device=x.device)
        if overwrites:
            dx, dgate = x.detach(), gate.detach()
            for changed in (dx, dgate):  # who else has saved them, or goes through this graph again, hears of it
                torch.autograd.graph.increment_version(changed)
        else:
            dx, dgate = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for _ in range(2))
        self._run(launch, g, x, gate, dx, dgate, partial, *params)
        sums = iter(partial.sum(dim=1).unbind(0) if partial_shape[0] else ())
        d_params = [
            next(sums).reshape(p.shape).to(p.dtype) if need else None for p, need in zip(params, needs[1:], strict=True)
        ]
        return dx, dgate, *d_params

    def _run(self, launch: Launch, *tensors: Tensor) -> None:
        stream = stream_on(self.index)
        if stream is None:
            with torch.cuda.device(self.index):
                return self._run(launch, *tensors)
        return launch(stream, tensors)

    def _apart(self, x: Tensor, gate: Tensor) -> bool:
        """Whether no number of x lies where one of the gate does."""
        if x.untyped_storage().data_ptr() != gate.untyped_storage().data_ptr():
            return True
        step = self.steps[0]
        distance = (gate.storage_offset() - x.storage_offset()) % step
        return self.steps[1] == step and self.width <= distance <= step - self.width

    def _make_backward(self, needs: Sequence[bool], *, overwrites: bool) -> tuple[Launch, tuple[int, int]]:
        needed = tuple(p.name for p, need in zip(self.act.params, needs[1:], strict=True) if need)
        every = self.rows * self.blocks
        programs = min(every, _PER_CORE * cores(self.device)) if needed else every
        kernel = _backward_kernel(self.act, needed, self.dtype)
        out = self.steps if overwrites else (self.width, self.width)
        numbers = (self.width, *self.steps, *out, self.blocks, every)
        return Launch(kernel, (programs,), numbers, warps=_WARPS, BLOCK=self.block), (len(needed), programs)


@once_per_definition
def _forward_kernel(act: Activation, dtype: torch.dtype) -> Any:
    params = [PARAMETER + p.name for p in act.params]
    pointers = "".join(f"{p}_ptr, " for p in params)
    loads = "".join(f"    {p} = tl.load({p}_ptr).to(tl.float32)\n" for p in params)
    text = f"""{compute(act, "value", [()])}
@triton.jit
def gated_forward(x_ptr, gate_ptr, y_ptr, {pointers}width, x_step, gate_step, blocks, BLOCK: tl.constexpr):
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
{loads}    x = tl.load(x_ptr + row * x_step + column, mask=inside, other=0.0).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_step + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * width + column, value({", ".join(["x", *params])}) * gate, mask=inside)
"""
    return load_kernel(text, f"{act.key} gated_forward", "gated_forward", dtype)


@once_per_definition
def _backward_kernel(act: Activation, needed: tuple[str, ...], dtype: torch.dtype) -> Any:
    params = [PARAMETER + p.name for p in act.params]
    pointers = "".join(f"{p}_ptr, " for p in params)
    loads = "".join(f"    {p} = tl.load({p}_ptr).to(tl.float32)\n" for p in params)
    slopes, factors, combine = factors_of(act, needed, want_x=True, want_value=True)
    zero = "".join(f"    sum_{f} = tl.zeros([BLOCK], tl.float32)\n" for f in factors)
    add = "".join(f"        sum_{f} += g * gate * {f}\n" for f in factors)
    total = "".join(f"    {f} = tl.sum(sum_{f}, axis=0)\n" for f in factors)
    lines = "".join(f"    {line}\n" for line in combine.lines)
    out = "".join(
        f"    tl.store(partial_ptr + {i} * tl.num_programs(0) + tl.program_id(0), {text})\n"
        for i, text in enumerate(combine.results)
    )
    text = f"""{slopes}
@triton.jit
def gated_backward(g_ptr, x_ptr, gate_ptr, dx_ptr, dgate_ptr, partial_ptr, {pointers}width, x_step, gate_step, dx_step,
                   dgate_step, blocks, every, BLOCK: tl.constexpr):
{loads}{zero}    for at in range(tl.program_id(0), every, tl.num_programs(0)):
        row = (at // blocks).to(tl.int64)
        column = (at % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = column < width
        x = tl.load(x_ptr + row * x_step + column, mask=inside, other=0.0).to(tl.float32)
        gate = tl.load(gate_ptr + row * gate_step + column, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + row * width + column, mask=inside, other=0.0).to(tl.float32)
        {", ".join(["value", "dx", *factors])} = slopes({", ".join(["x", *params])})
        tl.store(dx_ptr + row * dx_step + column, g * gate * dx, mask=inside)
        tl.store(dgate_ptr + row * dgate_step + column, g * value, mask=inside)
{add}{total}{lines}{out}"""
    return load_kernel(text, f"{act.key} gated_backward {' '.join(needed)}", "gated_backward", dtype)
