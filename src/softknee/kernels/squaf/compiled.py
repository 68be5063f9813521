"""SQUAF compiled for a CPU: one pass over x for the values, one for all gradients (`soft.c`), and one for the points
that SQUAF-P draws and SQUAF-S takes (`choose.c`).

The functions are those of `eager`, which has the rest. The plan is for the usual case, which `quick` brings here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...spec.constraints import Positive
from .. import c_source, compiled
from . import eager
from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, EVERY, Layout

# The elements of a group that are summed together: the split depends on the elements of one group alone.
_PART = 1 << 14
MOST_POINTS = 1 << 12  # whose sums have room on a thread's stack


def why_not(x: Tensor) -> str:
    """An empty string where the compiled kernels can compute x, else why not."""
    if reason := compiled.why_not_for(x):
        return reason
    library = _library()
    return library if isinstance(library, str) else ""


@functools.cache
def _library() -> ctypes.CDLL | str:
    library = compiled.load(_source)
    if not isinstance(library, str):
        sizes, numbers = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int)
        library.squaf.argtypes = [*[ctypes.c_void_p] * 9, sizes, numbers, ctypes.c_uint]
        library.squaf.restype = None
        library.squaf_choose.argtypes = [*[ctypes.c_void_p] * 7, ctypes.c_int64, sizes, numbers, ctypes.c_uint]
        library.squaf_choose.restype = None
    return library


def _source() -> str:
    """The text of the library: the frame, how a raw q or alpha is lifted, `soft.c` and `choose.c`."""
    bodies = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("soft.c", "choose.c")]
    return c_source.frame() + c_source.lifts(Positive(), "positive") + "".join(bodies)


def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, layout: Layout, window: int, laplacian: bool) -> Tensor:
    """As `eager.forward`."""
    if z.shape[-1] > MOST_POINTS:
        return eager.forward(x, q, alpha, z, layout=layout, window=window, laplacian=laplacian)
    out = torch.empty_like(x)
    _run(None, x, out, (q, alpha, z), None, layout=layout, window=window, laplacian=laplacian)
    return out


def backward(
    grad: Tensor | None,
    x: Tensor,
    q: Tensor,
    alpha: Tensor,
    z: Tensor,
    *,
    layout: Layout,
    window: int,
    laplacian: bool,
    wanted: int = EVERY,
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """As `eager.backward`."""
    how: Any = {"layout": layout, "window": window, "laplacian": laplacian, "wanted": wanted}
    groups, n = z.shape
    if n > MOST_POINTS:
        return eager.backward(grad, x, q, alpha, z, **how)
    grad = torch.ones_like(x) if grad is None else grad.to(x.dtype)
    dx = torch.empty_like(x) if wanted & BY_X else None
    sums = torch.empty(-(-layout.per_group // _PART) * groups, n + 2, dtype=torch.float64)
    _run(grad, x, dx, (q, alpha, z), sums, **how)
    by_q, by_alpha, by_z = sums[:groups].split([1, 1, n], 1)
    return (
        dx,
        by_q[:, 0] if wanted & BY_Q else None,
        by_alpha[:, 0] if wanted & BY_ALPHA else None,
        by_z if wanted & BY_Z else None,
    )


def choose(
    x: Tensor,
    seed: Tensor | None,
    q: Tensor,
    alpha: Tensor,
    z: Tensor | None,
    *,
    points: int,
    layout: Layout,
    window: int,
    laplacian: bool,
) -> Tensor:
    """As `eager.choose`; which of two points an element draws that lies between them to rounding may differ."""
    if points > MOST_POINTS or (seed is not None and (window != 5 or laplacian)):
        how: Any = {"points": points, "layout": layout, "window": window, "laplacian": laplacian}
        return eager.choose(x, seed, q, alpha, z, **how)
    library = _library()
    assert not isinstance(library, str)
    out = torch.empty_like(x, dtype=torch.int32 if z is None else x.dtype)
    rows = [row.float().contiguous() for row in (q, alpha, q if z is None else z)]
    seeds = None if seed is None else seed.contiguous()
    values, symbols = (None, out.data_ptr()) if z is None else (out.data_ptr(), None)
    library.squaf_choose(
        *(x.data_ptr(), values, symbols, *(row.data_ptr() for row in rows)),
        *(None if seeds is None else seeds.data_ptr(), x.numel() // (1 if seeds is None else seeds.numel())),
        (ctypes.c_int64 * 6)(*layout.shape, _PART),
        (ctypes.c_int * 2)(c_source.TYPES.index(x.dtype), points),
        compiled.threads_for(x.numel()),
    )
    return out


step_backward = eager.step_backward


def _run(
    grad: Tensor | None,
    x: Tensor,
    out: Tensor | None,
    parameters: Sequence[Tensor],
    sums: Tensor | None,
    *,
    layout: Layout,
    window: int,
    laplacian: bool,
    wanted: int = 0,
) -> None:
    library = _library()
    assert not isinstance(library, str)
    q, alpha, z = (parameter.float() for parameter in parameters)
    n = z.shape[-1]
    half = window // 2 if 0 < window < 2 * n - 1 else -1
    sizes = (ctypes.c_int64 * 6)(*layout.shape, _PART)
    numbers = (ctypes.c_int * 5)(c_source.TYPES.index(x.dtype), n, half, laplacian, wanted)
    tensors = (grad, x, out, q, None, alpha, None, z, sums)
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    library.squaf(*pointers, sizes, numbers, compiled.threads_for(x.numel()))


class TablePlan:
    """Prepared calls for an x of one layout and one table: five points with Gaussian weights, in float32."""

    def __init__(self, x: Tensor, z: Tensor) -> None:
        library = _library()
        assert not isinstance(library, str)
        self.library, self.size, self.points = library, x.numel(), z.numel()
        self.shape, self.stride, self.dtype, self.device = tuple(x.shape), x.stride(), x.dtype, x.device
        self._kind = c_source.TYPES.index(x.dtype)
        self._sizes = (ctypes.c_int64 * 6)(1, 1, 1, 1, self.size, _PART)
        self._numbers = {wanted: self._numbers_for(wanted) for wanted in range(EVERY + 1)}
        self._sums = ctypes.c_double * (-(-self.size // _PART) * (self.points + 2))

    def _numbers_for(self, wanted: int) -> Any:
        return (ctypes.c_int * 5)(self._kind, self.points, 2, False, wanted)

    def can_take(self, x: Tensor) -> bool:
        """Whether x, which has the layout, is still one for the compiled kernels."""
        return not why_not(x)

    def values(self, x: Tensor, addresses: Sequence[int]) -> Tensor:
        """phi of x; the addresses are those of q, its anchor, alpha, its anchor, and z."""
        out = torch.empty_like(x)
        threads = compiled.threads_for(self.size)
        self.library.squaf(None, x.data_ptr(), out.data_ptr(), *addresses, None, self._sizes, self._numbers[0], threads)
        return out

    def gradients(
        self, grad: Tensor, x: Tensor, params: Sequence[Tensor], addresses: Sequence[int], wanted: int
    ) -> tuple[Tensor | None, ...]:
        """The gradients by x and by q, alpha and z as they are held; None where not wanted."""
        if grad.dtype is not self.dtype or grad.stride() != self.stride:
            grad = torch.empty_like(x).copy_(grad)
        dx, sums = torch.empty_like(x) if wanted & BY_X else None, self._sums()
        places = grad.data_ptr(), x.data_ptr(), None if dx is None else dx.data_ptr()
        threads = compiled.threads_for(self.size)
        self.library.squaf(*places, *addresses, ctypes.addressof(sums), self._sizes, self._numbers[wanted], threads)
        q, alpha, z = params
        by_z = torch.frombuffer(sums, dtype=torch.float64)[2 : self.points + 2] if wanted & BY_Z else None
        return (
            dx,
            torch.full(q.shape, sums[0], dtype=q.dtype) if wanted & BY_Q else None,
            torch.full(alpha.shape, sums[1], dtype=alpha.dtype) if wanted & BY_ALPHA else None,
            None if by_z is None else by_z.to(z.dtype).view(z.shape),
        )
