"""Which grid point an x takes: drawn with random numbers hashed from (seed, position), or the nearest."""

from __future__ import annotations

import torch
from torch import Tensor

from ... import torch_compat
from .plain import compute_dtype, finite_range, keep_window, points_first

# -- random numbers hashed from (seed, position) ----------------------------------------------------------
#
# Sampling needs one small seed a call, and no tensor of x's size.
#
# The seed is a number of 63 bits from torch's own generator; the hash mixes 32 bits twice, each time with one half of
# the seed: bits = mix(mix(position + low) xor high). `mix` is the finaliser "lowbias32" (Chris Wellons, Prospecting for
# hash functions), of which every step can be undone, so that no two positions of one seed meet. The fused kernels
# calculate the same bits.


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
    bits = hash_bits(seed, position, short=short)
    if dtype == torch.float64:
        return bits.to(dtype) * 2.0**-32
    return (bits >> 8).to(dtype) * 2.0**-24


def _mix(h: Tensor) -> Tensor:
    h = (h ^ (h >> 16)).mul_(_FIRST).bitwise_and_(_MASK)
    h = (h ^ (h >> 15)).mul_(_SECOND).bitwise_and_(_MASK)
    return h ^ (h >> 16)


# -- which grid point an x takes, in plain tensor operations ----------------------------------------------
#
# One drawn from P(. | x), or the nearest.


NO_POINT = -1  # the symbol of NaN


def sampled_symbol(
    x: Tensor, q: Tensor, alpha: Tensor, points: int, window: int, laplacian: bool, *, u: Tensor
) -> Tensor:
    """The symbol drawn on the uniform grid (int64, some symbol where x is NaN); u in the compute type of x."""
    kind = compute_dtype(x)
    x, q, alpha = finite_range(x.to(kind)), q.to(kind), alpha.to(kind)
    near = keep_window(x, q=q, alpha=alpha, points=points, window=window, laplacian=laplacian)
    slot = drawn_slot(near.probability, u)
    if near.inside is None:
        return slot
    return (slot + near.centre.to(torch.int64) + (points // 2 - window // 2)).clamp(0, points - 1)


def drawn_slot(probability: Tensor, u: Tensor) -> Tensor:
    """The place, along the first dimension, of the point that u in [0, 1) draws."""
    running = probability.cumsum(0)
    # u times the sum, the way it was rounded, is below that sum: no last point of probability 0 is ever drawn.
    return (running[:-1] <= u * running[-1]).sum(0)


def nearest_symbol(x: Tensor, q: Tensor, *, points: int) -> Tensor:
    """k + clamp(round(x/q), -k, k) as int32; in the middle between two points the even one, as torch.round has it."""
    kind = compute_dtype(x)
    k = points // 2
    # A NaN passes the clamp, which leaves no infinity behind, and must not become an index.
    return (x.to(kind) / q.to(kind)).clamp(-k, k).round().nan_to_num(0.0).to(torch.int32) + k


def nearest_symbol_on_grid(x: Tensor, grid: Tensor) -> Tensor:
    """How many of the midpoints between neighbours are at or below x: the cells are closed below, as in the paper."""
    kind = compute_dtype(x)
    points = points_first(grid.to(kind), dims=x.dim())
    middle = points[:-1] + (points[1:] - points[:-1]) / 2
    return (middle <= x.to(kind)).sum(0).broadcast_to(x.shape)


def value_at(z: Tensor, symbol: Tensor, *, x: Tensor) -> Tensor:
    """z at its symbols, in the type of x; NaN where x is NaN. z has the shape of the parameters and (n,).

    The result depends on x, with derivative 0, so that it can always be differentiated.
    """
    n, rows = z.shape[-1], z.shape[:-1].numel()
    index = symbol if torch_compat.GATHERS_INT32 else symbol.long()
    if rows > 1:
        index = index + n * torch.arange(rows, device=z.device).reshape(z.shape[:-1])
    value = z.reshape(-1).index_select(0, index.reshape(-1)).reshape(index.shape).to(x.dtype)
    return torch.where(x.isnan(), x, value)


def as_symbols(symbol: Tensor, *, x: Tensor) -> Tensor:
    """The symbols as they are given out: int32, and -1 where x is NaN and no point was chosen."""
    return torch.where(x.isnan(), NO_POINT, symbol).to(torch.int32)


def positions_of(x: Tensor) -> Tensor:
    """Where each element lies in a contiguous x."""
    return torch.arange(x.numel(), device=x.device).reshape(x.shape)
