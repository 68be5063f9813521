"""Random numbers as a function of their key: the same on a CPU and on a GPU, for one replica and for many.

A number is hashed from (seed, step, site, position) by integer operations on tensors, so that no state is kept and
nothing depends on what else was drawn. The hash mixes 32 bits twice with x -> (x xor x >> 16) * 0x45d9f3b, each time
with a key of its own: with one key, the streams of two steps would be rearrangements of each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import torch
from torch import Tensor

from ..errors import ParameterError, require_count
from ..kernels.dispatch import triton_works

_MASK = 0xFFFFFFFF
_FACTOR = 0x45D9F3B  # below 2**27: the product with 32 bits does not overflow 63
_ORDER_SITE, _SECOND = 0x6F72, 0x51ED270B
_LONG = 2**22  # examples


def order(
    *,
    seeds: Sequence[int],
    epoch: int,
    length: int,
    device: torch.device | str = "cpu",
    window: int | None = None,
) -> Tensor:
    """The order in which each replica sees the examples in an epoch: a permutation for every seed, [M, length].

    window: shuffle within so many examples that follow one another, and keep the order otherwise; 1 keeps it whole, and
            None shuffles everything.

    >>> order(seeds=[0, 7], epoch=0, length=6)
    tensor([[3, 4, 1, 2, 5, 0],
            [1, 0, 4, 2, 3, 5]])
    >>> order(seeds=[0], epoch=0, length=6, window=3)
    tensor([[1, 2, 0, 3, 4, 5]])
    """
    if window is not None:
        require_count("order", "window", window)
    if length < 1 or epoch < 0:
        raise ParameterError(f"order: length must be at least 1 and epoch at least 0, not {length} and {epoch}.")
    if len(seeds) > 1 and length > _LONG:  # one after the other: what the sorting takes is many times the result
        return torch.cat([order(seeds=[s], epoch=epoch, length=length, device=device, window=window) for s in seeds])
    keys = fold(fold(seed_keys(seeds, device=device), _ORDER_SITE), epoch)
    first, second = bits(keys, length), bits(fold(keys, _SECOND), length)
    shuffled = ((first >> 1 << 32) | second).argsort(dim=1, stable=True)
    if window is None:
        return shuffled
    # A stable sort by the number of the window leaves the order within each as it was drawn.
    return shuffled.gather(1, (shuffled // window).argsort(dim=1, stable=True))


def seed_keys(seeds: Sequence[int], *, device: torch.device | str = "cpu") -> Tensor:
    """A key of 32 bits for every seed, [M]."""
    given = torch.tensor(list(seeds), dtype=torch.int64, device=device)
    return _mix(_mix(given & _MASK) ^ (given >> 32) ^ _SECOND)


def site_number(path: str) -> int:
    """The number of a place in a model, from its path alone."""
    return crc32(path.encode())


def fold(keys: Tensor, value: int | Tensor) -> Tensor:
    """New keys from keys and a number (or a tensor of numbers that broadcasts)."""
    mixed = _mix((value & _MASK) ^ _SECOND) if isinstance(value, Tensor) else _mix_number((value & _MASK) ^ _SECOND)
    return _mix((keys + mixed) & _MASK)


def bits(keys: Tensor, length: int) -> Tensor:
    """32 random bits at each of `length` positions for every key, [M, length], as int64."""
    positions = torch.arange(length, device=keys.device)
    keys = keys.unsqueeze(1)
    return _mix(_mix((positions + keys) & _MASK) ^ _mix(keys ^ _SECOND))


def masks(keys: Tensor, length: int, *, threshold: int, scale: float, dtype: torch.dtype) -> Tensor:
    """`scale` where the bits of a position are at least the threshold, and 0 elsewhere, [M, length]."""
    if keys.is_cuda and not torch.compiler.is_compiling() and not triton_works():
        from ..kernels.keyed_mask import keyed_mask

        return keyed_mask(keys, length, threshold=threshold, scale=scale, second=_SECOND, dtype=dtype)
    return (bits(keys, length) >= threshold).to(dtype).mul_(scale)


def _mix(x: Tensor) -> Tensor:
    x = ((x >> 16) ^ x).mul_(_FACTOR).bitwise_and_(_MASK)
    x = (x ^ (x >> 16)).mul_(_FACTOR).bitwise_and_(_MASK)
    return x ^ (x >> 16)


def _mix_number(x: int) -> int:
    x = ((x >> 16) ^ x) * _FACTOR & _MASK
    x = ((x >> 16) ^ x) * _FACTOR & _MASK
    return x ^ (x >> 16)
