"""Small networks for tests of the hardener, a step of their training, and the functions that harden."""

import torch
from torch import nn

import softknee as sk
from helpers import ZOO

F32 = torch.finfo(torch.float32).eps
HARDENED = {name: act for name, act in ZOO.items() if act.knobs and act.claims.distance.is_finite is not False}
HARDENED = {name: act for name, act in HARDENED.items() if name not in ("leaky_relu", "prelu")}


class Net(nn.Module):
    def __init__(self, make=lambda i: sk.nn.LambdaGELU(lam=1.5 + i, learn=True), depth: int = 2):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))
        self.acts = nn.ModuleList(make(i) for i in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, act in zip(self.layers, self.acts, strict=True):
            x = act(layer(x))
        return x


def srelu_net() -> Net:
    return Net(lambda i: sk.nn.SReLU(delta=1.0 + i, learn=True))


def data(seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(16, 4, generator=generator), torch.randn(16, 4, generator=generator)


def train(net: nn.Module, optimizer, seed: int = 1) -> None:
    x, y = data(seed)
    optimizer.zero_grad()
    (net(x) - y).square().mean().backward()
    optimizer.step()


def adam(net: nn.Module, **settings):
    return torch.optim.AdamW(sk.param_groups(net, lr=1e-2, weight_decay=0.1), **settings)
