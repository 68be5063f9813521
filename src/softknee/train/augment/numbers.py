"""Random numbers of a batch: hashed from the key of the replica, the step, a name and the place of the image.

What an image is given depends on nothing else: neither on the other replicas nor on the size of the batch. Numbers are
made by a fixed number of operations, without a loop that ends when a draw is accepted, so that they can be captured.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..random_keys import bits, fold, site_number

# A gamma draw of shape 1 or more is accepted with more than 0.95: all of these fail once in 2.5e10.
_ATTEMPTS = 8
# Computed once: torch.compile cannot look into a checksum.
IMAGES, NOISE, MIXING, CHANCE = (site_number(f"augment/{name}") for name in ("images", "noise", "mixing", "chance"))
BETA_BITS = 2 * (2 * _ATTEMPTS + 1)


def image_bits(keys: Tensor, site: int, *, images: int, each: int) -> Tensor:
    """32 random bits, `each` for every image of every replica, [M, images, each]; the keys are those of the step."""
    return bits(fold(keys, site), images * each).view(-1, images, each)


def uniform(raw: Tensor) -> Tensor:
    """In (0, 1), of 23 bits: with the half that is added float32 holds them exactly, and neither end is met."""
    return ((raw >> 9).float() + 0.5) * 2**-23


def whole(raw: Tensor, count: int | Tensor) -> Tensor:
    """0, 1, ..., count - 1, each with probability 1 / count up to 2**-32."""
    return (raw * count) >> 32


def normal(raw: Tensor) -> Tensor:
    """Standard normal, by its quantile function: sqrt(2) erfinv(2 u - 1)."""
    return torch.erfinv(2 * uniform(raw) - 1) * math.sqrt(2)


def beta(raw: Tensor, alpha: Tensor) -> Tensor:
    """Beta(alpha, alpha) from BETA_BITS draws in the last dimension, as float64.

    G / (G + G') of two gamma draws of shape alpha, which is the sigmoid of the difference of their logarithms: with a
    small alpha both draws may be too small for a float, and their logarithms are not.
    """
    both = _log_gamma(raw.unflatten(-1, (2, -1)), alpha.unsqueeze(-1).double())
    return torch.sigmoid(both[..., 0] - both[..., 1])


def _log_gamma(raw: Tensor, alpha: Tensor) -> Tensor:
    """ln of a Gamma(alpha) draw: that of Gamma(alpha + 1) by Marsaglia and Tsang, times u^(1 / alpha)."""
    d = (alpha + (1 - 1 / 3)).unsqueeze(-1)
    u = uniform(raw).double()
    x, u, last = normal(raw[..., :_ATTEMPTS]).double(), u[..., _ATTEMPTS : 2 * _ATTEMPTS], u[..., -1]
    cube = (1 + x / (9 * d).sqrt()) ** 3
    log_cube = cube.clamp(min=1e-300).log()
    accepted = (cube > 0) & (u.log() < 0.5 * x * x + d - d * cube + d * log_cube)
    turns = torch.arange(_ATTEMPTS, device=raw.device)
    first = torch.where(accepted, turns, _ATTEMPTS - 1).amin(dim=-1, keepdim=True)
    return d.squeeze(-1).log() + log_cube.gather(-1, first).squeeze(-1) + last.log() / alpha
