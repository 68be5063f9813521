"""SQUAF compiled for a CPU: one pass over x for the values, one for all gradients (`soft.c`).

The two functions are those of `eager`, which has the rest: the points that SQUAF-P draws and SQUAF-S takes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import c_source, compiled
from . import eager
from .layout import BY_ALPHA, BY_Q, BY_X, BY_Z, EVERY, Layout

# The elements of a group that are summed together: the split depends on the elements of one group alone.
_PART = 1 << 14
_MOST_POINTS = 1 << 12  # whose sums have room on a thread's stack


def why_not(x: Tensor) -> str:
    """An empty string where the compiled kernels can compute x, else why not."""
    if reason := compiled.why_not_for(x):
        return reason
    library = _library()
    return library if isinstance(library, str) else ""


@functools.cache
def _library() -> ctypes.CDLL | str:
    library = compiled.load(lambda: c_source.frame() + Path(__file__).with_name("soft.c").read_text(encoding="utf-8"))
    if not isinstance(library, str):
        pointer = ctypes.c_void_p
        sizes, numbers = ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(ctypes.c_int)
        library.squaf.argtypes = [*[pointer] * 6, pointer, sizes, numbers, ctypes.c_uint]
        library.squaf.restype = None
    return library


def forward(x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, *, layout: Layout, window: int, laplacian: bool) -> Tensor:
    """As `eager.forward`."""
    if z.shape[-1] > _MOST_POINTS:
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
    if n > _MOST_POINTS:
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
    tensors = (grad, x, out, q, alpha, z, sums)
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    library.squaf(*pointers, sizes, numbers, compiled.threads_for(x.numel()))
