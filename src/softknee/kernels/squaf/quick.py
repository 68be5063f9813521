"""SQUAF's usual case, with as little work for the host as it can be done with.

A layer of a small model takes a GPU a few microseconds, and Python many more to ask for it: the operator's dispatch,
the layout of any tensor, and every learned parameter brought into its range by four small kernels cost the host many
times what the kernels take. Here one autograd function (in a compiled model the operator `softknee::squaf_table`)
goes straight to the kernels, which take the parameters as the module holds them: on a GPU one for the values; back,
one for the gradients and one that adds them up; on a CPU the compiled pass each way. Values and gradients are those
of the operator `softknee::squaf`, which takes what is not usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, is_grad_enabled
from torch._C import _are_functorch_transforms_active as functorch_is_active
from torch._C import _is_tracing as is_tracing
from torch._C import _len_torch_dispatch_stack as count_of_modes
from torch.autograd import forward_ad
from torch.nn import Parameter

from ...spec.constraints import Positive
from ..calls import has_memory, unwatched
from ..dispatch import must_differentiate_through
from ..fused import current_device, current_stream, new_on_gpu, scratch_for
from . import compiled as on_cpu
from . import op
from .cuda import launch, modes, soft
from .cuda.launch import KINDS, Kernel, Prepared, compiled
from .dispatch import choose_kernel
from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, Layout, only_wanted, wanted_of
from .op import Gradients
from .symbols import draw_seed

_THREADS = 128
_PLAIN = (Tensor, Parameter)


class TableParameters(NamedTuple):
    """The parameters as a module holds them: q and alpha raw where they have an anchor, else as they are."""

    q: Tensor
    alpha: Tensor
    z: Tensor
    q_anchor: Tensor | None = None
    alpha_anchor: Tensor | None = None


def has_usual_types(x: Tensor, params: TableParameters) -> bool:
    """Whether types, devices and the layout are what this path was written for; a compiler can trace the question."""
    kind, points = params.z.dtype, params.z.numel()
    if x.dtype not in KINDS or kind not in KINDS or points < 5 or launch.backward_threads(points) == 0:
        return False
    if any(tensor is not None and (tensor.dtype != kind or tensor.device != x.device) for tensor in params):
        return False
    return params.z.is_contiguous() and _memory_format(x) is not None and not must_differentiate_through()


def _memory_format(x: Tensor) -> torch.memory_format | None:
    """How x lies in memory without gaps; one row of parameters does not care about the order."""
    if x.is_contiguous():
        return torch.contiguous_format
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return None


# -- a plan for one layout -------------------------------------------------------------------------------------


class TablePlan:
    """Prepared launches for an x of one layout and a table of so many points, held in one type."""

    def __init__(self, x: Tensor, z: Tensor, gather: Kernel) -> None:
        self.shape, self.stride, self.dtype = tuple(x.shape), x.stride(), x.dtype
        self.device, self.index = x.device, x.device.index
        self.points, self.kind, self.row, self._gather = z.numel(), KINDS[z.dtype], _row_of(x.numel()), gather
        self._forward: Prepared | None = None
        self._backward: dict[int, tuple[Prepared, Prepared | None, int]] = {}

    def can_take(self, x: Tensor) -> bool:
        """Whether x, which has the layout, lies where the kernels can read it and this is the current device."""
        return not x.data_ptr() & 15 and current_device() == self.index

    def values(self, x: Tensor, addresses: Sequence[int]) -> Tensor:
        if self._forward is None:
            kernel = soft.soft_kernel(self.index, KINDS[x.dtype], self.kind, self.points, True, None)
            assert kernel is not None
            self._forward = Prepared(
                kernel,
                grid=(soft.forward_blocks(self.row, self.index), 1),
                threads=soft.FORWARD_THREADS,
                args=[*[0] * 7, *launch.shape(self.row)],
                shared=launch.forward_bytes(self.points),
            )
        out = new_on_gpu(self.shape, self.stride, self.dtype)
        self._forward(current_stream(self.index), (x.data_ptr(), out.data_ptr(), *addresses))
        return out

    def gradients(
        self, grad: Tensor, x: Tensor, params: Sequence[Tensor], addresses: Sequence[int], wanted: int
    ) -> tuple[Tensor | None, ...]:
        """The gradients by x and by q, alpha and z as they are held; None where not wanted."""
        if grad.dtype is not self.dtype or grad.stride() != self.stride or grad.data_ptr() & 15:
            grad = new_on_gpu(self.shape, self.stride, self.dtype).copy_(grad)
        backward, gather, size = self._backward.get(wanted) or self._prepare_backward(wanted)
        stream = current_stream(self.index)
        dx = new_on_gpu(self.shape, self.stride, self.dtype) if wanted & BY_X else None
        partial = scratch_for(self.device, stream, size)[0].data_ptr() if size else 0
        places = (grad.data_ptr(), x.data_ptr(), 0 if dx is None else dx.data_ptr(), partial)
        backward(stream, (*places, *addresses))
        if gather is None:
            return dx, None, None, None
        made = [
            new_on_gpu(tuple(t.shape), t.stride(), t.dtype) if wanted & flag else None
            for t, flag in zip(params, (BY_Q, BY_ALPHA, BY_Z), strict=True)
        ]
        gather(stream, (partial, *addresses[:4], *[0 if t is None else t.data_ptr() for t in made]))
        return dx, *made

    def _prepare_backward(self, wanted: int) -> tuple[Prepared, Prepared | None, int]:
        points, threads = self.points, launch.backward_threads(self.points)
        count, bins = soft.backward_blocks(self.row, points), launch.bins_of(points, wanted)
        kernel = soft.soft_kernel(self.index, KINDS[self.dtype], self.kind, points, True, wanted)
        assert kernel is not None
        backward = Prepared(
            kernel,
            grid=(count, 1),
            threads=threads,
            args=[*[0] * 9, *launch.shape(self.row)],
            shared=launch.backward_bytes(points, threads, bins=bins),
        )
        args = [*[0] * 8, count, bins]
        gather = Prepared(self._gather, grid=(bins, 1), threads=_THREADS, args=args, shared=0) if bins else None
        self._backward[wanted] = prepared = backward, gather, count * bins
        return prepared


Plan = TablePlan | on_cpu.TablePlan
_plans: dict[Any, Plan] = {}
_MOST_PLANS = 1024


def _plan_for(x: Tensor, params: TableParameters) -> Plan | None:
    """The plan that x can be computed with now; None where there are no kernels for it, or it lies elsewhere."""
    plan = _plan_of_layout(x, params.z) if has_usual_types(x, params) else None
    return plan if plan is not None and plan.can_take(x) else None


def _plan_of_layout(x: Tensor, z: Tensor) -> Plan | None:
    key = x.shape, x.stride(), x.dtype, x.device, z.dtype, z.numel()
    plan = _plans.get(key)
    if plan is None and (plan := _new_plan(x, z)) is not None:
        if len(_plans) >= _MOST_PLANS:
            _plans.clear()
        _plans[key] = plan
    return plan


def _new_plan(x: Tensor, z: Tensor) -> Plan | None:
    if x.is_cpu:
        usual = z.dtype == torch.float32 and z.numel() <= on_cpu.MOST_POINTS and choose_kernel(x)[0] == "compiled"
        return on_cpu.TablePlan(x, z) if usual else None
    if not x.is_cuda or not 0 < x.numel() < 2**33 or new_on_gpu is None:
        return None
    gather = _gather(x.device.index, KINDS[z.dtype], z.numel())
    return None if gather is None else TablePlan(x, z, gather)


# -- the call of a module --------------------------------------------------------------------------------------


class TableCall:
    """The call of a module in one mode, for one layout of x and the tensors that the module holds under these names.

    Written flat, as `kernels.calls` is: at this size every function of Python's counts.
    """

    __slots__ = ("addresses", "apply", "held", "mode", "params", "plan", "sources")

    def __init__(self, plan: Plan, params: TableParameters, names: Sequence[str], mode: str) -> None:
        self.plan: Any = plan
        self.params, self.mode = params, mode
        self.sources = params[:3]
        self.addresses = _addresses(params)
        self.held = [
            (name, tensor, tensor.data_ptr(), type(tensor) is Parameter)
            for name, tensor in zip(names, params, strict=True)
            if tensor is not None
        ]
        # In C; what Function.apply does in Python before it is for torch.func's transforms.
        function: Any = super(torch.autograd.Function, _Quick)
        self.apply = function.apply

    @classmethod
    def of(cls, x: Tensor, params: TableParameters, names: Sequence[str], mode: str) -> TableCall | None:
        """The call for inputs like x; None where something watches or the kernels were not written for them."""
        if not unwatched(x) or any(tensor is not None and type(tensor) not in _PLAIN for tensor in params):
            return None
        plan = _plan_for(x, params)
        return None if plan is None or (x.is_cpu and mode != "soft") else cls(plan, params, names, mode)

    def run(self, x: Tensor, parameters: Mapping[str, Any], buffers: Mapping[str, Any]) -> Tensor | None:
        """The value for a plain x of the shape that it was made for; None where something has changed or watches."""
        plan = self.plan
        if (
            x.dtype is not plan.dtype
            or x.device != plan.device
            or x.stride() != plan.stride
            or functorch_is_active()
            or count_of_modes()
            or is_tracing()
            or forward_ad._current_level >= 0
        ):
            return None
        for name, tensor, pointer, trained in self.held:
            if (parameters if trained else buffers).get(name) is not tensor or tensor.data_ptr() != pointer:
                return None
        if not has_memory(x) or not plan.can_take(x):
            return None
        q, alpha, z = self.sources
        if is_grad_enabled() and (x.requires_grad or q.requires_grad or alpha.requires_grad or z.requires_grad):
            return self.apply(self, x, q, alpha, z)
        return self.value(x)

    def value(self, x: Tensor) -> Tensor:
        plan = self.plan
        if self.mode == "soft":
            return plan.values(x, self.addresses)
        out = new_on_gpu(plan.shape, plan.stride, plan.dtype)
        seed = draw_seed(x) if self.mode == "sampled" else None
        how: Any = {"points": plan.points, "layout": plan.row, "parameters": plan.kind}
        modes.launch_choice(x, seed, self.addresses, out=out, **how)
        return out


class _Quick(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: TableCall, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor) -> Tensor:
        ctx.save_for_backward(x, q, alpha, z)
        ctx.call = call
        return call.value(x)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        x, *sources = ctx.saved_tensors
        (grad,), call, needs = outer, ctx.call, ctx.needs_input_grad[1:]
        plan, params = call.plan, TableParameters(*sources, *call.params[3:])
        addresses = _addresses(params)
        # A hook on saved tensors may have made another one of x.
        usual = unwatched(grad) and type(x) in _PLAIN and x.stride() == plan.stride and x.dtype is plan.dtype
        if call.mode == "step" or is_grad_enabled() or not usual or not plan.can_take(x):
            return None, *_by_operator(grad, x, params, needs, call.mode)
        return None, *plan.gradients(grad, x, sources, addresses, wanted_of(needs))


def _addresses(params: TableParameters) -> list[int]:
    """q, its anchor, alpha, its anchor and z, as the kernels take them; 0 for what there is not."""
    q, alpha, z, q_anchor, alpha_anchor = params
    return [
        q.data_ptr(),
        0 if q_anchor is None else q_anchor.data_ptr(),
        alpha.data_ptr(),
        0 if alpha_anchor is None else alpha_anchor.data_ptr(),
        z.data_ptr(),
    ]


def _by_operator(
    grad: Tensor, x: Tensor, params: TableParameters, needs: tuple[bool, ...], mode: str
) -> list[Tensor | None]:
    """The gradients by the operators, which can be differentiated again; a sample's are those of SQUAF."""
    sources = [tensor for tensor, needed in zip((x, *params[:3]), needs, strict=True) if needed]
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        if mode == "step":
            flat, q, _, z = _effective(x, params)
            value = torch.ops.softknee.squaf_step(flat, q, z).reshape(x.shape)
        else:
            value = _table_by_operator(x, *params)
        gradients = iter(torch.autograd.grad(value, sources, grad, create_graph=again, allow_unused=True))
    return [next(gradients) if needed else None for needed in needs]


def _effective(x: Tensor, params: TableParameters) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, q, alpha and z as `softknee::squaf` takes them."""
    q, alpha = _lifted(params.q, params.q_anchor).reshape(1), _lifted(params.alpha, params.alpha_anchor).reshape(1)
    return x.reshape(1) if x.dim() == 0 else x, q, alpha, params.z.reshape(1, -1)


def _lifted(raw: Tensor, anchor: Tensor | None) -> Tensor:
    return raw if anchor is None else Positive().lift(raw.float(), anchor.float())


# -- the same as operators, for compiled models ------------------------------------------------------------
#
# In a compiled model the parameters' constraints, and the sums of the parts of their gradients, would be a dozen small
# kernels a layer.


_TABLE = "Tensor q, Tensor alpha, Tensor z, Tensor? q_anchor, Tensor? alpha_anchor"
torch.library.define(
    "softknee::squaf_table",
    f"(Tensor x, {_TABLE}) -> Tensor",
    tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag),
)
torch.library.define(
    "softknee::squaf_table_backward",
    f"(Tensor grad, Tensor x, {_TABLE}, int wanted) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag),
)


@torch.library.impl("softknee::squaf_table", "CompositeExplicitAutograd")
def _table(x: Tensor, *held: Any) -> Tensor:
    params = TableParameters(*held)
    plan = _plan_for(x, params)
    if plan is None:
        return _table_by_operator(x, *held)
    return plan.values(x, _addresses(params))


@torch.library.impl("softknee::squaf_table_backward", "CompositeExplicitAutograd")
def _table_backward(grad: Tensor, x: Tensor, *held: Any) -> Gradients:
    *rest, wanted = held
    params = TableParameters(*rest)
    plan = _plan_for(x, params)
    if plan is None:
        return _table_backward_by_operator(grad, x, *held)
    gradients = plan.gradients(grad, x, params[:3], _addresses(params), wanted)
    dx, dq, dalpha, dz = (x.new_empty(0) if gradient is None else gradient for gradient in gradients)
    return dx, dq, dalpha, dz


def _table_by_operator(x: Tensor, *held: Any) -> Tensor:
    return torch.ops.softknee.squaf(*_effective(x, TableParameters(*held)), 5, False).reshape(x.shape)


def _table_backward_by_operator(grad: Tensor, x: Tensor, *held: Any) -> Gradients:
    *rest, wanted = held
    params = TableParameters(*rest)
    flat, q, alpha, z = _effective(x, params)
    gradients = torch.ops.softknee.squaf_backward(grad.reshape(flat.shape), flat, q, alpha, z, 5, False, wanted)
    dx, dq, dalpha, dz = only_wanted(gradients, wanted)
    return (
        x.new_empty(0) if dx is None else dx.reshape(x.shape),
        x.new_empty(0) if dq is None else _by_raw(dq, params.q, params.q_anchor),
        x.new_empty(0) if dalpha is None else _by_raw(dalpha, params.alpha, params.alpha_anchor),
        x.new_empty(0) if dz is None else dz.reshape(params.z.shape),
    )


def _by_raw(gradient: Tensor, raw: Tensor, anchor: Tensor | None) -> Tensor:
    """The gradient by what is held, from that by the effective value."""
    gradient = gradient.reshape(raw.shape)
    if anchor is None:
        return gradient
    low, high = Positive().learned_range
    grown = anchor * torch.nn.functional.softplus(raw)
    return torch.where((grown < low) | (grown > high), 0.0, gradient * anchor * raw.sigmoid()).to(raw.dtype)


@torch.library.register_fake("softknee::squaf_table")
def _table_shapes(x: Tensor, *held: Any) -> Tensor:
    return torch.empty_like(x)


@torch.library.register_fake("softknee::squaf_table_backward")
def _table_backward_shapes(grad: Tensor, x: Tensor, *held: Any) -> Gradients:
    q, alpha, z, _, _, wanted = held
    sources = ((x, BY_X), (q, BY_Q), (alpha, BY_ALPHA), (z, BY_Z))
    dx, dq, dalpha, dz = (torch.empty_like(t) if wanted & flag else x.new_empty(0) for t, flag in sources)
    return dx, dq, dalpha, dz


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    *tensors, q_anchor, alpha_anchor = inputs
    ctx.save_for_backward(*tensors)
    ctx.anchors = q_anchor, alpha_anchor


def _differentiate(ctx: Any, grad: Tensor) -> Any:
    wanted = wanted_of(ctx.needs_input_grad[:4])
    gradients = torch.ops.softknee.squaf_table_backward(grad, *ctx.saved_tensors, *ctx.anchors, wanted)
    return *only_wanted(gradients, wanted), None, None


torch.library.register_autograd("softknee::squaf_table", _differentiate, setup_context=_remember)


def _replicas(info: Any, in_dims: tuple[int | None, ...], x: Tensor, *held: Any) -> Any:
    """vmap's rule: rows of parameters, which `softknee::squaf` takes."""
    params = TableParameters(*_in_front(info.batch_size, in_dims[1:], held))
    arguments = (x, *_effective_rows(params), 5, False)
    return op.replicas(info, (in_dims[0], 0, 0, 0), arguments, torch.ops.softknee.squaf)


def _backward_replicas(info: Any, in_dims: tuple[int | None, ...], grad: Tensor, x: Tensor, *held: Any) -> Any:
    *rest, wanted = held
    params = TableParameters(*_in_front(info.batch_size, in_dims[2:7], rest))
    arguments = (grad, x, *_effective_rows(params), 5, False, wanted)
    backward = torch.ops.softknee.squaf_backward
    (dx, *sums), dims = op.backward_replicas(info, (*in_dims[:2], 0, 0, 0), arguments, backward)
    dq, dalpha, dz = (None if dim is None else gradient for gradient, dim in zip(sums, dims[1:], strict=True))
    gradients = (
        dx,
        x.new_empty(0) if dq is None else _by_raw(dq, params.q, params.q_anchor),
        x.new_empty(0) if dalpha is None else _by_raw(dalpha, params.alpha, params.alpha_anchor),
        x.new_empty(0) if dz is None else dz.reshape(params.z.shape),
    )
    return gradients, dims


def _in_front(count: int, dims: Sequence[int | None], tensors: Sequence[Any]) -> list[Any]:
    """Every tensor with the replicas in front."""
    return [
        None if tensor is None else tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]


def _effective_rows(params: TableParameters) -> tuple[Tensor, Tensor, Tensor]:
    q, alpha = _lifted(params.q, params.q_anchor), _lifted(params.alpha, params.alpha_anchor)
    return q.reshape(len(q), 1), alpha.reshape(len(q), 1), params.z.reshape(len(q), 1, -1)


torch.library.register_vmap("softknee::squaf_table", _replicas)
torch.library.register_vmap("softknee::squaf_table_backward", _backward_replicas)


# -- the kernel that adds up ----------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _row_of(count: int) -> Layout:
    return Layout(order=(0,), sizes=(count,), parameter_sizes=(1,), shape=(1, 1, 1, 1, count))


@cache
def _gather(device: int, parameters: int, points: int) -> Kernel | None:
    # The gradients are stored as the parameters are.
    common: dict[str, Any] = {"device": device, "kind": parameters, "parameters": parameters, "points": points}
    return compiled("squaf_gather", "gather.cu", one_group=True, threads=_THREADS, **common)
