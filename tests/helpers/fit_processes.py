"""What each of two processes does in test_train_fit: apart, because they import it anew."""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import softknee as sk

WORLD = 2
X = torch.randn(24, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > X[:, 1]).long()
FIT = {"epochs": 2, "accumulate": 2, "clip": 0.3, "schedule": sk.train.cosine()}


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), sk.nn.SmeLU(learn=True), nn.Linear(8, 2))


def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(sk.param_groups(model, lr=0.05, weight_decay=0.1))


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=mesh["data_parallel"])
    return model


def train(fabric: Any, batches: Any) -> list[Tensor]:
    """The losses, and the parameters as whole tensors."""
    model = network()
    losses = sk.train.fit(model, batches, "cross_entropy", optimizer=optimizer, fabric=fabric, **FIT)
    full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
    return [losses, *(p.detach() for p in full)]


def process(rank: int, folder: str) -> None:
    """DDP over a DataLoader, which deals out the examples; FSDP2 over batches of each process."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.environments import TorchElasticEnvironment
    from lightning.fabric.strategies.ddp import DDPStrategy
    from lightning.fabric.strategies.model_parallel import ModelParallelStrategy

    results = {}
    for strategy in (DDPStrategy(), ModelParallelStrategy(shard, data_parallel_size=2, tensor_parallel_size=1)):
        fabric = Fabric(accelerator="cpu", devices=WORLD, strategy=strategy, plugins=[TorchElasticEnvironment()])
        fabric.launch()
        batches: Any = DataLoader(TensorDataset(X, Y), batch_size=3)
        if isinstance(strategy, ModelParallelStrategy):
            batches = list(zip(X[rank::WORLD].split(3), Y[rank::WORLD].split(3), strict=True))
        results[type(strategy).__name__] = train(fabric, batches)
    torch.save(results, f"{folder}/{rank}.pt")
