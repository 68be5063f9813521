"""The plain path: a definition in torch operations, right on every device.

On a CPU large tensors are worked on in blocks that stay in the cache: a formula of ten operations then costs ten
passes over the cache and one over memory, instead of ten over memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..spec import Activation
from .generate import Index, torch_function
from .layout import storage_order, sum_to_shape

# 256K float32 numbers are 1 MiB: large enough that starting an operation does not count, small enough for the last
# level of cache with a handful of them alive (S-ReLU of 4M
# numbers on two Neoverse cores: 27 ms with blocks of 64K, 19 with these).
BLOCK = 1 << 18


def working_type(dtype: torch.dtype) -> torch.dtype:
    """Half types are computed in float32; every parameter is read in this type."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def value(act: Activation, x: Tensor, params: Sequence[Tensor]) -> Tensor:
    """The function in torch operations, in one piece: what tracing, transforms and small tensors use."""
    work = working_type(x.dtype)
    (result,) = torch_function(act, ())(x.to(work), *(p.to(work) for p in params))
    return result.to(x.dtype)


def gradients(
    act: Activation, g: Tensor, x: Tensor, params: Sequence[Tensor], needs: Sequence[bool]
) -> list[Tensor | None]:
    """g times each derivative that is needed, summed to the shape of what it belongs to."""
    work = working_type(x.dtype)
    wide = g.to(work)
    inputs = [x, *params]
    indices = _indices(act, needs)
    slopes = iter(torch_function(act, *indices)(x.to(work), *(p.to(work) for p in params)))
    return [
        sum_to_shape(wide * next(slopes), value.shape).to(value.dtype) if need else None
        for value, need in zip(inputs, needs, strict=True)
    ]


def value_in_blocks(act: Activation, x: Tensor, params: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """As `value`, block by block; `out` may be x itself."""
    y = torch.empty_like(x) if out is None else out
    function, work = torch_function(act, ()), working_type(x.dtype)
    wide = [p.to(work) for p in params]
    for source, target in zip(blocks(x, params), blocks(y, params), strict=True):
        target.copy_(function(source.to(work), *wide)[0])
    return y


def gradients_in_blocks(
    act: Activation, g: Tensor, x: Tensor, params: Sequence[Tensor], needs: Sequence[bool]
) -> list[Tensor | None]:
    """As `gradients`, block by block; the sums of the blocks are added in their order, so the bits repeat."""
    if g.stride() != x.stride():
        g = torch.empty_like(x).copy_(g)
    function, work = torch_function(act, *_indices(act, needs)), working_type(x.dtype)
    wide = [p.to(work) for p in params]
    dx = torch.empty_like(x) if needs[0] else None
    wanted = [p for p, need in zip(params, needs[1:], strict=True) if need]
    sums: list[list[Tensor]] = [[] for _ in wanted]
    targets = blocks(dx if dx is not None else x, params)
    for grad, source, target in zip(blocks(g, params), blocks(x, params), targets, strict=True):
        grad = grad.to(work)
        slopes = list(function(source.to(work), *wide))
        # No slope is written into: it may be x itself (that of x^2/2) or also a parameter's (that of tanh(x + s)).
        if dx is not None:
            slope = slopes.pop(0)
            if work == x.dtype:
                torch.mul(grad, slope, out=target)
            else:
                target.copy_(grad * slope)
        for total, slope, p in zip(sums, slopes, wanted, strict=True):
            # A dot product would be faster and lose digits: 5e-4 of a sum of 256K equal terms, and this 1e-7.
            parts = grad * slope
            total.append(parts.sum().reshape(p.shape) if p.numel() == 1 else sum_to_shape(parts, p.shape))
    done = iter(torch.stack(total).sum(0).to(p.dtype) for total, p in zip(sums, wanted, strict=True))
    return [dx, *(next(done) if need else None for need in needs[1:])]


def fits_blocks(x: Tensor, params: Sequence[Tensor]) -> bool:
    """Whether working in blocks is possible and worth it."""
    if x.numel() < 2 * BLOCK or storage_order(x) is None:
        return False
    return _scalars(params) or _rows(x, params)


def _scalars(params: Sequence[Tensor]) -> bool:
    return all(p.numel() == 1 for p in params)


def _rows(x: Tensor, params: Sequence[Tensor]) -> bool:
    whole = all(p.dim() < x.dim() or p.shape[0] == 1 for p in params)
    return whole and x.is_contiguous() and x.shape[0] > 1


def blocks(x: Tensor, params: Sequence[Tensor]) -> tuple[Tensor, ...]:
    if _scalars(params):
        return x.as_strided((x.numel(),), (1,)).split(BLOCK)
    return x.split(max(1, BLOCK * x.shape[0] // x.numel()))


def _indices(act: Activation, needs: Sequence[bool]) -> list[Index]:
    names = ["x", *(p.name for p in act.params)]
    return [(name,) for name, need in zip(names, needs, strict=True) if need]
