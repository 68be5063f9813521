"""Networks with SQUAF and the baselines of its tables, and how replicas of them are trained."""

import pytest
import torch
from torch import nn

import softknee as sk

ACTIVATIONS = {
    "squaf": {"k": 2, "q": 0.5, "alpha": 5, "z": "random", "learn": True},
    "squaf-k16": {"k": 16, "q": 0.25, "learn": ("q", "z"), "window": None, "weights": "laplacian"},
    "squaf-grid": {"grid": [-1.0, -0.2, 0.4, 1.5], "alpha": 3.0, "learn": True},
    "squaf-step": {"k": 4, "q": 0.5, "learn": "z", "mode": "step"},
    "polyrelu": {},
    "polynorm": {},
    "kaf": {"start": "random"},
    "ditac": {"theta": torch.linspace(-0.5, 0.7, 9)},
    "prelu": {"learn": True},
}


EACH = pytest.mark.parametrize("name", list(ACTIVATIONS))
X = torch.linspace(-2, 2, 24).unsqueeze(1)
Y = torch.sin(3 * X)
FIT = {"epochs": 3, "batch": 8, "lr": 0.01, "optimizer": "adam", "loss": "mse"}


def mlp(name: str) -> nn.Module:
    act = sk.nn.make(name.partition("-")[0], **ACTIVATIONS[name])
    return nn.Sequential(nn.Linear(1, 64), act, nn.Linear(64, 1))
