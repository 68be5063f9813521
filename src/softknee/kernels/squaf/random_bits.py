"""Random numbers hashed from (seed, position): sampling needs one small seed a call, and no tensor of x's size.

The seed is a number of 63 bits from torch's own generator; the hash mixes 32 bits twice, each time with one half of the
seed: bits = mix(mix(position + low) xor high). `mix` is the finaliser "lowbias32" (Chris Wellons, Prospecting for hash
functions), of which every step can be undone, so that no two positions of one seed meet. The fused kernels calculate
the same bits.
"""

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_FIRST = 0x7FEB352D
_SECOND = 0x846CA68B - (1 << 32)  # the same factor modulo 2^32; its product with 32 bits does not leave int64


def draw_seed(x: Tensor, shape: tuple[int, ...] = ()) -> Tensor:
    """A seed from the default generator of the device that x is on."""
    return torch.randint(0, 2**63 - 1, shape, dtype=torch.int64, device=x.device)


def hash_bits(seed: Tensor, position: Tensor, *, short: bool = False) -> Tensor:
    """32 bits at each position (int64, not negative), as int64; seed and position broadcast.

    `short` says that all positions are below 2^32, which saves a third of the work.
    """
    high = seed >> 32 if short else (seed >> 32) ^ _mix(position >> 32)
    return _mix(_mix((position + (seed & _MASK)) & _MASK) ^ high)


def uniform(seed: Tensor, position: Tensor, dtype: torch.dtype, *, short: bool = False) -> Tensor:
    """Numbers in [0, 1): multiples of 2^-32 in float64, of 2^-24 in float32, so that none is rounded up to 1."""
    found = hash_bits(seed, position, short=short)
    if dtype == torch.float64:
        return found.to(dtype) * 2.0**-32
    return (found >> 8).to(dtype) * 2.0**-24


def _mix(h: Tensor) -> Tensor:
    h = (h ^ (h >> 16)).mul_(_FIRST).bitwise_and_(_MASK)
    h = (h ^ (h >> 15)).mul_(_SECOND).bitwise_and_(_MASK)
    return h ^ (h >> 16)
