"""SQUAF's usual case on a GPU, with as little work for the host as it can be done with.

A layer of a small model takes a GPU a few microseconds, and Python many more to ask for it: the operator's dispatch,
the layout of any tensor, and every learned parameter brought into its range by four small kernels cost the host many
times what the kernels take. Here one autograd function (in a compiled model, the operator `softknee::squaf_table`) goes
straight to the kernels, which take the parameters as the module holds them: one for the values; back, one for the
gradients and one that adds them up. Values and gradients are those of the operator `softknee::squaf`, which takes what
is not usual (see `usual`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...spec.constraints import Positive
from . import op
from .cuda import launch, modes, soft
from .cuda.launch import KINDS, Kernel, compiled
from .cuda.source import SOURCE
from .dispatch import inside_transform, must_differentiate_through
from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, Layout, only_wanted, wanted_of
from .op import Gradients
from .symbols import draw_seed

_THREADS = 128
_PLAIN = (Tensor, torch.nn.Parameter)


class TableParameters(NamedTuple):
    """The parameters as a module holds them: q and alpha raw where they have an anchor, else as they are."""

    q: Tensor
    alpha: Tensor
    z: Tensor
    q_anchor: Tensor | None = None
    alpha_anchor: Tensor | None = None


def usual_types(x: Tensor, params: TableParameters) -> bool:
    """Whether types, devices and the layout are what this path was written for; a compiler can trace the question."""
    kind, points = params.z.dtype, params.z.numel()
    if x.dtype not in KINDS or kind not in KINDS or points < 5 or launch.backward_threads(points) == 0:
        return False
    if any(tensor is not None and (tensor.dtype != kind or tensor.device != x.device) for tensor in params):
        return False
    return params.z.is_contiguous() and _memory_format(x) is not None and not must_differentiate_through()


def usual(x: Tensor, params: TableParameters) -> bool:
    """Whether x and one row of parameters are what this path was written for; asked before every call, so cheap."""
    device, points = x.device, params.z.numel()
    if type(x) not in _PLAIN or any(tensor is not None and type(tensor) not in _PLAIN for tensor in params):
        return False
    if not 0 < x.numel() < 2**33 or not x.is_cuda or not usual_types(x, params):
        return False
    # Whoever watches operations (a mode, a transform) should see the operator.
    if torch._C._len_torch_dispatch_stack() or inside_transform():  # pyright: ignore
        return False
    if device.index != torch._C._cuda_getDevice() or x.data_ptr() % 16:  # pyright: ignore
        return False
    return _gather(device.index, KINDS[params.z.dtype], points) is not None


def _memory_format(x: Tensor) -> torch.memory_format | None:
    """How x lies in memory without gaps; one row of parameters does not care about the order."""
    if x.is_contiguous():
        return torch.contiguous_format
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return None


def quick_squaf(x: Tensor, params: TableParameters, *, mode: str = "soft") -> Tensor:
    """SQUAF with five points and Gaussian weights, or one of its modes, of an x that `usual` has accepted."""
    return _Quick.apply(x, params.q, params.alpha, params.z, params, mode)  # pyright: ignore[reportReturnType]


class _Quick(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, params: TableParameters, mode: str) -> Tensor:
        if mode == "soft":
            out = _values(x, params)
        else:
            out = torch.empty_like(x)
            seed = draw_seed(x) if mode == "sampled" else None
            how: Any = {"points": z.numel(), "layout": _row_of(x.numel()), "parameters": KINDS[z.dtype]}
            modes.launch_choice(x, seed, _addresses(params), out=out, **how)
        ctx.save_for_backward(x, q, alpha, z)
        ctx.anchors, ctx.mode = (params.q_anchor, params.alpha_anchor), mode
        return out

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Any:
        x, q, alpha, z = ctx.saved_tensors
        params = TableParameters(q, alpha, z, *ctx.anchors)
        (grad,) = outer
        needs = ctx.needs_input_grad[:4]
        if ctx.mode == "step" or torch.is_grad_enabled() or type(grad) is not Tensor:
            return *_by_operator(grad, x, params, needs, ctx.mode), None, None
        return *_gradients(grad, x, params, wanted_of(needs)), None, None


def _values(x: Tensor, params: TableParameters) -> Tensor:
    points, device, row = params.z.numel(), x.device.index, _row_of(x.numel())
    out = torch.empty_like(x)
    kernel = soft.soft_kernel(device, KINDS[x.dtype], KINDS[params.z.dtype], points, True, None)
    assert kernel is not None
    kernel(
        grid=(soft.forward_blocks(row, device), 1),
        threads=soft.FORWARD_THREADS,
        args=[x.data_ptr(), out.data_ptr(), *_addresses(params), *launch.shape(row)],
        shared=launch.forward_bytes(points),
        device=device,
    )
    return out


def _gradients(grad: Tensor, x: Tensor, params: TableParameters, wanted: int) -> tuple[Tensor | None, ...]:
    """The gradients by x and by q, alpha and z as they are held; None where not wanted."""
    laid = _memory_format(x)
    assert laid is not None
    if grad.dtype != x.dtype or not grad.is_contiguous(memory_format=laid) or grad.data_ptr() % 16:
        grad = grad.to(x.dtype, memory_format=laid, copy=True)
    q, alpha, z, *_ = params
    points, device, row, kind = z.numel(), x.device.index, _row_of(x.numel()), KINDS[z.dtype]
    count, bins = soft.backward_blocks(row, points), launch.bins_of(points, wanted)
    dx = torch.empty_like(x) if wanted & BY_X else None
    partial = torch.empty(count * bins, dtype=torch.float32, device=x.device) if bins else None
    kernel = soft.soft_kernel(device, KINDS[x.dtype], kind, points, True, wanted)
    assert kernel is not None
    threads = launch.backward_threads(points)
    places = [grad.data_ptr(), x.data_ptr(), _address(dx), _address(partial)]
    kernel(
        grid=(count, 1),
        threads=threads,
        args=[*places, *_addresses(params), *launch.shape(row)],
        shared=launch.backward_bytes(points, threads, bins=bins),
        device=device,
    )
    if partial is None:
        return dx, None, None, None
    dq = torch.empty_like(q) if wanted & BY_Q else None
    dalpha = torch.empty_like(alpha) if wanted & BY_ALPHA else None
    dz = torch.empty_like(z) if wanted & BY_Z else None
    gather = _gather(device, kind, points)
    assert gather is not None
    into = [_address(dq), _address(dalpha), _address(dz)]
    gather(
        grid=(bins, 1),
        threads=_THREADS,
        args=[partial.data_ptr(), *_addresses(params)[:4], *into, count, bins],
        shared=0,
        device=device,
    )
    return dx, dq, dalpha, dz


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _addresses(params: TableParameters) -> list[int]:
    """q, its anchor, alpha, its anchor and z, as the kernels take them."""
    q, alpha, z, q_anchor, alpha_anchor = params
    return [q.data_ptr(), _address(q_anchor), alpha.data_ptr(), _address(alpha_anchor), z.data_ptr()]


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
    return _values(x, params) if usual(x, params) else _table_by_operator(x, *held)


@torch.library.impl("softknee::squaf_table_backward", "CompositeExplicitAutograd")
def _table_backward(grad: Tensor, x: Tensor, *held: Any) -> Gradients:
    *held, wanted = held
    params = TableParameters(*held)
    if not usual(x, params):
        return _table_backward_by_operator(grad, x, *held, wanted)
    gradients = _gradients(grad, x, params, wanted)
    dx, dq, dalpha, dz = (x.new_empty(0) if gradient is None else gradient for gradient in gradients)
    return dx, dq, dalpha, dz


def _table_by_operator(x: Tensor, *held: Any) -> Tensor:
    return torch.ops.softknee.squaf(*_effective(x, TableParameters(*held)), 5, False).reshape(x.shape)


def _table_backward_by_operator(grad: Tensor, x: Tensor, *held: Any) -> Gradients:
    *held, wanted = held
    params = TableParameters(*held)
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
    held = _in_front(info.batch_size, in_dims[1:], held)
    arguments = (x, *_effective_rows(TableParameters(*held)), 5, False)
    return op.replicas(info, (in_dims[0], 0, 0, 0), arguments, torch.ops.softknee.squaf)


def _backward_replicas(info: Any, in_dims: tuple[int | None, ...], grad: Tensor, x: Tensor, *held: Any) -> Any:
    *held, wanted = held
    params = TableParameters(*_in_front(info.batch_size, in_dims[2:7], held))
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


def _in_front(count: int, dims: Sequence[int | None], tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
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
    return compiled(SOURCE + GATHER, "squaf_gather", one_group=True, threads=_THREADS, **common)


GATHER = r"""
// How the effective value moves with the raw one.
__device__ __forceinline__ float rate(const void* raw, const void* anchor) {
    if (anchor == 0) return 1.0f;
    const float value = parameter(raw, 0), scale = parameter(anchor, 0), e = expf(value);
    const float grown = scale * (value > 20.0f ? value : log1pf(e));
    if (grown < NARROWEST || grown > WIDEST) return 0.0f;
    return value > 20.0f ? scale : scale * (e / (e + 1.0f));
}

// One block for each sum of the backward kernel's parts, added up in an order that does not change.
extern "C" __global__ void __launch_bounds__(THREADS)
squaf_gather(const float* partial, const void* q, const void* q_anchor, const void* alpha, const void* alpha_anchor,
             void* dq, void* dalpha, void* dz, u32 count, u32 bins) {
    __shared__ float warps[THREADS / 32];
    const u32 bin = blockIdx.x;
    float sum = 0.0f;
    for (u32 at = threadIdx.x; at < count; at += THREADS) sum += partial[(u64)at * bins + bin];
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += warps[warp];
    const u32 first = dz == 0 ? 0 : POINTS;
    if (bin < first) {
        store_one(dz, bin, sum);
    } else if (bin == first) {
        if (dq != 0) store_one(dq, 0, sum * rate(q, q_anchor));
    } else if (dalpha != 0) {
        store_one(dalpha, 0, sum * rate(alpha, alpha_anchor));
    }
}
"""
