"""A small CNN trained over two processes of this machine with a `Boundary` at the cut, and the same in one process."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn import functional as F

from ..errors import MissingToolError
from ..nn import SQUAFP, RatePenalty
from ..wire import Boundary, Traffic

CHANNELS = 16
_LR = 0.003


@dataclass(frozen=True, kw_only=True)
class Data:
    """Images of 8 x 8 with one channel, and their labels 0 to 9."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def to(self, device: torch.device) -> Data:
        return Data(**{name: value.to(device) for name, value in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training: how long, with which weight of the rate penalty, coded how."""

    device: str
    epochs: int
    batch: int
    seed: int
    rate: float
    coder: str = "auto"
    threads: int = 1
    timeout: float = 120.0


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came of it; `traffic` is that of training alone, `symbols` are those of the test images."""

    losses: list[float]
    accuracy: float
    traffic: Traffic | None = None
    symbols: Tensor | None = None


def parts(seed: int) -> tuple[nn.Module, SQUAFP, nn.Module]:
    """The network before the cut, the layer at it, and the network behind it."""
    torch.manual_seed(seed)
    return (
        nn.Conv2d(1, CHANNELS, 3, padding=1),
        SQUAFP(k=16, q=0.25, learn=True),
        nn.Sequential(nn.Conv2d(CHANNELS, 32, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 9, 10)),
    )


def train_alone(job: Job, data: Data) -> Trained:
    """In one process."""
    with _steady(job), ExitStack() as stack:
        data = data.to(torch.device(job.device))
        first, layer, rest = (part.to(job.device) for part in parts(job.seed))
        penalty = stack.enter_context(RatePenalty(layer, weight=job.rate)) if job.rate else None
        step = _optimizer(first, layer, rest)
        losses: list[float] = []
        torch.manual_seed(job.seed)
        for images, labels in _batches(job, data):
            step.zero_grad()
            loss = F.cross_entropy(rest(layer(first(images))), labels)
            (loss if penalty is None else loss + penalty()).backward()
            step.step()
            losses.append(loss.item())
        with torch.no_grad():
            right = rest(layer(first(data.test_images))).argmax(1) == data.test_labels
    return Trained(losses=losses, accuracy=right.double().mean().item())


def train_cut(job: Job, data: Data) -> Trained:
    """In two processes, which are started for it and meet through a file."""
    if not (dist.is_available() and dist.is_gloo_available()):
        raise MissingToolError("Two processes need gloo, which this torch was built without.")
    with tempfile.TemporaryDirectory() as folder:
        torch.save({name: value.cpu() for name, value in vars(data).items()}, f"{folder}/data.pt")
        spawn(_end, args=(job, folder), nprocs=2)
        sender, receiver = (torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    traffic = Traffic(**sender["traffic"])
    return Trained(losses=receiver["losses"], accuracy=receiver["accuracy"], traffic=traffic, symbols=sender["symbols"])


def _end(rank: int, job: Job, folder: str) -> None:
    """One of the two processes."""
    if "lo" in {name for _, name in socket.if_nameindex()}:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/store", 2)  # pyright: ignore[reportPrivateImportUsage]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=job.timeout))
    data = Data(**torch.load(f"{folder}/data.pt", weights_only=True)).to(torch.device(job.device))
    with _steady(job):
        found = (_sender if rank == 0 else _receiver)(job, data)
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def _sender(job: Job, data: Data) -> dict[str, Any]:
    first, layer, _ = parts(job.seed)
    first.to(job.device)
    layer.to(job.device)
    penalty = RatePenalty(layer, weight=job.rate) if job.rate else None
    boundary = Boundary(layer, to=1, coder=job.coder, timeout=job.timeout)
    step = _optimizer(first, layer)
    torch.manual_seed(job.seed)
    for images, _ in _batches(job, data):
        step.zero_grad()
        loss = boundary(first(images))
        (loss if penalty is None else loss + penalty()).backward()
        step.step()
    traffic = boundary.report()
    with torch.no_grad():
        boundary(first(data.test_images))
        symbols = layer.symbols(first(data.test_images)).to(torch.uint8).cpu()
    boundary.close()
    return {"traffic": vars(traffic), "symbols": symbols}


def _receiver(job: Job, data: Data) -> dict[str, Any]:
    *_, rest = parts(job.seed)
    rest.to(job.device)
    boundary = Boundary(frm=0, device=job.device, timeout=job.timeout)
    step = _optimizer(rest)
    losses: list[float] = []
    for _, labels in _batches(job, data):
        step.zero_grad()
        loss = F.cross_entropy(rest(boundary.receive()), labels)
        loss.backward()
        step.step()
        losses.append(loss.item())
    with torch.no_grad():
        right = rest(boundary.receive()).argmax(1) == data.test_labels
    boundary.close()
    return {"losses": losses, "accuracy": right.double().mean().item()}


def _optimizer(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam([one for module in modules for one in module.parameters()], lr=_LR)


def _batches(job: Job, data: Data) -> list[tuple[Tensor, Tensor]]:
    """All batches of all epochs, the same in every process."""
    draw = torch.Generator().manual_seed(job.seed)
    orders = [torch.randperm(len(data.train_labels), generator=draw) for _ in range(job.epochs)]
    chosen = [one.to(data.train_labels.device) for order in orders for one in order.split(job.batch)]
    return [(data.train_images[one], data.train_labels[one]) for one in chosen]


class _steady:
    """The threads of the job, and convolutions whose sums have a fixed order; afterwards as it was."""

    def __init__(self, job: Job) -> None:
        self.threads = job.threads

    def __enter__(self) -> None:
        cudnn: Any = torch.backends.cudnn
        self.before = torch.get_num_threads(), cudnn.deterministic, cudnn.benchmark
        torch.set_num_threads(self.threads)
        cudnn.deterministic, cudnn.benchmark = True, False

    def __exit__(self, *_: object) -> None:
        cudnn: Any = torch.backends.cudnn
        threads, cudnn.deterministic, cudnn.benchmark = self.before
        torch.set_num_threads(threads)
