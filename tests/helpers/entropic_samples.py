"""Samples and names of densities that the tests of entropic design share."""

import torch

from helpers import F64

DENSITIES = ("normal", "laplace", "logistic", "uniform")


def normal_samples(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=F64)


def draw(count: int, seed: int = 0) -> torch.Tensor:
    """Two unequal bumps: skewed, and no worst function of any start of a descent."""
    generator = torch.Generator().manual_seed(seed)
    left = 0.6 * torch.randn(count // 2, generator=generator, dtype=F64) - 1
    return torch.cat([left, torch.randn(count - count // 2, generator=generator, dtype=F64) + 0.8])
