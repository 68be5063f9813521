"""Fused kernels of a definition: built once, launched on dense tensors in the order of their storage."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..spec import Activation
from . import triton_source as source
from .generate import load
from .layout import Repeat

try:
    import triton
    import triton.language as tl

    from . import triton_math
except ImportError:  # a build of torch without Triton; the dispatch rule never comes here then
    triton = tl = triton_math = None

# Largest number of programs that share one strip of columns or one channel in the first stage of a sum.
SPLITS = 128


@functools.cache
def _namespace(half: bool) -> dict[str, Any]:
    names = {name: value for name, value in vars(triton_math).items() if not name.startswith("__")}
    if half:
        names["normal_cdf"] = names["normal_cdf_half"]
    return names | {"triton": triton, "tl": tl}


@functools.cache
def _forward(act: Activation, rows: bool, half: bool) -> Callable[..., Any]:
    name = "forward_rows" if rows else "forward_flat"
    text = source.compute(act, "value", [()]) + getattr(source, name)(act)
    return load(text, f"{act.name} {name} half={half}", _namespace(half), name)


@functools.cache
def _backward(act: Activation, needed: tuple[str, ...], want_x: bool, shape: str) -> Callable[..., Any]:
    indices = [("x",)] * want_x + [(name,) for name in needed]
    text = source.compute(act, "slopes", indices)
    text += getattr(source, f"backward_{shape}")(act, needed, want_x)
    label = f"{act.name} backward_{shape} {want_x} {' '.join(needed)}"
    return load(text, label, _namespace(False), "backward_flat" if shape == "flat" else "backward_rows")


def _guard(x: Tensor) -> Any:
    """Kernels launch on the current GPU: make it the tensor's."""
    return torch.cuda.device_of(x)


def _with_steps(flat: Sequence[Tensor]) -> list[Any]:
    return [item for p in flat for item in (p, 0 if p.numel() == 1 else 1)]


def forward(act: Activation, x: Tensor, repeat: Repeat, *, out: Tensor | None = None) -> Tensor:
    """The value, in a tensor that lies in memory as x does (or in `out`, which may be x itself)."""
    y = torch.empty_like(x) if out is None else out
    n = x.numel()
    half = x.dtype in (torch.float16, torch.bfloat16)
    with _guard(x):
        if repeat.channels == 1:
            block = _block(n)
            _forward(act, False, half)[(triton.cdiv(n, block),)](x, y, *repeat.flat, n, BLOCK=block, num_warps=4)
        else:
            block = 1024
            _forward(act, True, half)[(triton.cdiv(n, block),)](
                x, y, *_with_steps(repeat.flat), n, repeat.channels, repeat.inner, BLOCK=block, num_warps=4
            )
    return y


def backward(
    act: Activation, g: Tensor, x: Tensor, repeat: Repeat, *, want_x: bool, needed: tuple[str, ...]
) -> tuple[Tensor | None, list[Tensor]]:
    """The gradient of x, and of each needed parameter its sum per channel (float32)."""
    dx = torch.empty_like(x) if want_x else None
    n = x.numel()
    if repeat.channels == 1:
        block = _block(n)
        programs = triton.cdiv(n, block)
        partial = torch.empty((len(needed), programs), dtype=torch.float32, device=x.device)
        extra = {"EVEN": n % block == 0} if needed else {}
        with _guard(x):
            _backward(act, needed, want_x, "flat")[(programs,)](
                g, x, x if dx is None else dx, partial, *repeat.flat, n, BLOCK=block, num_warps=4, **extra
            )
        return dx, list(partial.sum(dim=1, keepdim=True).unbind(0)) if needed else []
    columns_vary = repeat.inner == 1
    items = repeat.outer if columns_vary else repeat.outer * repeat.inner
    rows, columns = (16, 64) if columns_vary else (1, min(1024, triton.next_power_of_2(items)))
    strips = triton.cdiv(repeat.channels, columns) if columns_vary else repeat.channels
    unit = rows if columns_vary else columns
    splits = max(1, min(SPLITS, triton.cdiv(items, 4 * unit), 65535))
    share = triton.cdiv(triton.cdiv(items, splits), unit) * unit
    splits = max(1, triton.cdiv(items, share))
    partial = torch.empty((len(needed), splits, repeat.channels), dtype=torch.float32, device=x.device)
    kernel = _backward(act, needed, want_x, "columns" if columns_vary else "channels")
    with _guard(x):
        kernel[(strips, splits)](
            g, x, x if dx is None else dx, partial, *_with_steps(repeat.flat),
            repeat.outer, repeat.channels, repeat.inner, share, ROWS=rows, COLUMNS=columns, num_warps=4,
        )  # fmt: skip
    return dx, list(partial.sum(dim=1).unbind(0)) if needed else []


def _block(n: int) -> int:
    """Large blocks for large tensors; a small tensor is spread over more programs."""
    return 4096 if n >= 1 << 22 else 1024 if n >= 1 << 16 else max(64, min(256, 1 << math.ceil(math.log2(n))))
