"""The small task that tests of training share: three classes from six numbers."""

import torch
from torch import nn

import softknee as sk

SEEDS = [3, 0, 2**40 + 7]
X = torch.randn(70, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] ** 2 > 0.8).long() + (X[:, 2] > 0.5).long()
# Two ways to sum a product differ in the last bits, and 100 steps of momentum let them grow.
NEAR = {"rtol": 2e-4, "atol": 2e-5}


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), sk.nn.SmeLU(beta=0.5, learn="beta"), nn.Linear(16, 16), sk.nn.SmeLU(), nn.Linear(16, 3)
    )
