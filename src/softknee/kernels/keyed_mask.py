r"""Which elements dropout keeps, drawn from a key for each row, in one pass of a Triton kernel.

    mask[m, i] = scale if h(key_m, i) >= threshold else 0,    h the hash of `train.random_keys`, 32 bits

`train.random_keys.bits` has the hash in torch operations on int64, some thirty kernels for a mask; here it is computed
in 32 bits, whose products are the same modulo 2^32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .launch import divide_up, on_device_of

_BLOCK = 1024


@triton.jit
def _mix(x):
    factor = tl.full((1,), 0x45D9F3B, tl.uint32)
    x = ((x >> 16) ^ x) * factor
    x = ((x >> 16) ^ x) * factor
    return (x >> 16) ^ x


@triton.jit
def _keyed_mask(keys_ptr, out_ptr, length, threshold, scale, SECOND: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys_ptr + row).to(tl.uint32) + tl.zeros((1,), tl.uint32)
    second = tl.full((1,), SECOND, tl.uint32)
    drawn = _mix(_mix(place.to(tl.uint32) + key) ^ _mix(key ^ second))
    kept = tl.where(drawn.to(tl.int64) >= threshold, scale, 0.0)
    tl.store(out_ptr + row.to(tl.int64) * length + place, kept.to(out_ptr.dtype.element_ty), mask=place < length)


def keyed_mask(keys: Tensor, length: int, *, threshold: int, scale: float, second: int, dtype: torch.dtype) -> Tensor:
    """[M, length] for keys [M] of 32 bits, as int64; `second` is the hash's own constant."""
    out = torch.empty(len(keys), length, dtype=dtype, device=keys.device)
    kernel: Any = _keyed_mask
    with on_device_of(keys):
        kernel[(divide_up(length, _BLOCK), len(keys))](keys, out, length, threshold, scale, SECOND=second, BLOCK=_BLOCK)
    return out
