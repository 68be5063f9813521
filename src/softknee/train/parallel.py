"""One model in the processes that torchrun started, on Lightning Fabric; here is what Fabric leaves to its caller.

`torchrun --nproc-per-node 2 -m softknee study ...` starts equal processes that do the same work on parts of each batch.
Fabric makes them meet, spreads a model over them and carries their messages. Ours are the parts of a model that FSDP2
shards, batch norm over a batch that lies in several processes, and a state that is whole in each of them.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..devices import need_device, read_device
from ..errors import InputError, ParameterError, need_package, require_choice

STRATEGIES = ("none", "ddp", "fsdp2")
_ENVIRONMENT = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# The others wait while the main process measures or writes; torchrun ends them all when one of them dies.
_PATIENCE = timedelta(hours=12)
# A part of a model is sharded by itself where it holds more than this share of all parameters: fewer and larger
# messages are quicker than many small ones.
_LEAST_SHARE = 0.01


def world() -> int:
    """How many processes torchrun started; 1 where it did not start this one."""
    return int(os.environ["WORLD_SIZE"]) if _started_by_torchrun() else 1


def _started_by_torchrun() -> bool:
    return all(name in os.environ for name in _ENVIRONMENT)


def join(strategy: str, device: torch.device | str, *, find_unused_parameters: bool = False) -> Any:
    """The launched Fabric of this process, which meets the others; None with "none".

    find_unused_parameters: of DDP, which must look for parameters without a part in the loss at every step.
    """
    require_choice("", "strategy", strategy, STRATEGIES)
    if strategy == "none":
        return None
    chosen = read_device(device)
    if not _started_by_torchrun():
        raise ParameterError(
            f"strategy={strategy!r} trains one model in several processes, and this one was started alone. Start them "
            "with: torchrun --nproc-per-node NUMBER -m softknee study RECIPE (or your script in place of -m ...)"
        )
    if chosen.type == "cuda" and chosen.index is None:
        chosen = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    need_device(chosen, cures="start one process for each GPU, or choose device='cpu'")
    return _launched(strategy, chosen, find_unused_parameters)


@functools.cache
def _launched(strategy: str, device: torch.device, find_unused_parameters: bool) -> Any:
    need_package("lightning.fabric", f"strategy={strategy!r} trains with Lightning Fabric", "parallel")
    from lightning.fabric import Fabric
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
    from lightning.fabric.strategies.ddp import DDPStrategy
    from lightning.fabric.strategies.model_parallel import ModelParallelStrategy

    spread: Any
    if strategy == "ddp":
        # Buffers are alike already: no statistics are those of a part.
        spread = DDPStrategy(timeout=_PATIENCE, broadcast_buffers=False, find_unused_parameters=find_unused_parameters)
    else:
        spread = ModelParallelStrategy(_shard_, world(), tensor_parallel_size=1, timeout=_PATIENCE)
    # The device of this process, at the place of any: Fabric looks it up by the process's number.
    spread.parallel_devices = [device] * world()
    fabric = Fabric(accelerator=device.type, strategy=spread, plugins=[TorchElasticEnvironment()])
    fabric.launch()
    return fabric


def part_of(count: int, fabric: Any) -> slice:
    """The part of `count` examples that is this process's: the parts cover all, and differ by 1 in size at most."""
    rank, world = fabric.global_rank, fabric.world_size
    return slice(count * rank // world, count * (rank + 1) // world)


# -- batch norm over a batch that lies in several processes -----------------------------------------------
#
# The mean and variance are those of all examples.
#
#     mean = (sum over processes of the sum of x) / n,   variance = (sum over processes of the sum of (x - mean)^2) / n
#
# torch's SyncBatchNorm does the same on GPUs alone; this does it with any backend, and a process that only goes along
# (its part of the batch is empty) counts for nothing. torch's differentiable sum over processes warns of its end.


@dataclass
class Counted:
    """How many examples of the part that is run count; None outside of training."""

    examples: int | None = None


class _Summed(torch.autograd.Function):
    """The sum over the processes; each input moves the losses of all of them, so the gradient is a sum, too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return _total(tensor)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        return _total(grad_outputs[0])


def _summed(tensor: Tensor) -> Tensor:
    return _Summed.apply(tensor)  # pyright: ignore[reportReturnType]


def _total(tensor: Tensor) -> Tensor:
    result = tensor.detach().clone()
    dist.all_reduce(result)
    return result


class _SyncedNorm:
    """In training, over all processes; else as it was."""

    def forward(self, input: Tensor) -> Tensor:
        own: Any = self
        counted = own.counted.examples
        if not own.training or counted is None:
            return super().forward(input)  # pyright: ignore[reportAttributeAccessIssue]
        own._check_input_dim(input)
        dims = [dim for dim in range(input.dim()) if dim != 1]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        real = float(counted > 0)
        places = input.numel() // input.shape[1] * real
        count = _total(torch.tensor(places, dtype=torch.float64, device=input.device)).to(input.dtype)
        mean = _summed(input.sum(dims) * real) / count
        centred = input - mean.view(shape)
        variance = _summed(centred.square().sum(dims) * real) / count
        if own.running_mean is not None:
            self._follow(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        normed = centred * torch.rsqrt(variance + own.eps).view(shape)
        return normed * own.weight.view(shape) + own.bias.view(shape) if own.affine else normed

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        own: Any = self
        own.num_batches_tracked.add_(1)
        share = 1 / float(own.num_batches_tracked) if own.momentum is None else own.momentum
        own.running_mean.lerp_(mean, share)
        own.running_var.lerp_(variance, share)


def sync_norms_(model: nn.Module, counted: Counted) -> None:
    """Make the batch norms of a model take the statistics of the whole batch while `counted` says how much counts."""
    for path, module in model.named_modules():
        kind = type(module)
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            if kind.forward is not _BatchNorm.forward:
                raise InputError(
                    f"{path!r} is a {kind.__name__}, a batch norm with a forward of its own, which would see a part of "
                    "each batch alone; make it an nn.SyncBatchNorm, or train with strategy='none'."
                )
            own: Any = module
            own.__class__ = type(f"Synced{kind.__name__}", (_SyncedNorm, kind), {})
            own.counted = counted


# -- a model in shards ------------------------------------------------------------------------------------


def _shard_(model: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise InputError(f"fsdp2 cannot shard {name!r}, which has no dimension; give it the shape (1,).")
    for block in blocks(model):
        fully_shard(block, mesh=mesh["data_parallel"])
    fully_shard(model, mesh=mesh["data_parallel"])
    return model


def blocks(model: nn.Module) -> list[nn.Module]:
    """The parts that are gathered one at a time: the entries of the longest lists of layers, where they are large.

    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8))
    >>> blocks(net) == [net[0], net[2]]
    True
    """
    total = sum(parameter.numel() for parameter in model.parameters())
    # A tensor of two parts must be gathered once, with the whole.
    tied = len(list(model.named_parameters(remove_duplicate=False))) > len(list(model.parameters()))
    parts: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for module in model.modules():
        if tied or module in inside or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        large = [child for child in module if sum(p.numel() for p in child.parameters()) > _LEAST_SHARE * total]
        if len(large) < 2:
            continue
        parts += large
        inside |= {each for child in module for each in child.modules()}
    return parts


def whole(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one; any other as it is. All processes must call it."""
    held: Any = tensor.detach()
    return held.full_tensor() if hasattr(held, "full_tensor") else held


def like(held: Any, full: Tensor) -> Tensor:
    """A full tensor, which every process has, on the device and in the shards of another one."""
    there = full.to(held.device)
    if not hasattr(held, "full_tensor"):
        return there
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(there, held.device_mesh, held.placements, src_data_rank=None)


def reshard_(model: nn.Module) -> None:
    """After a forward pass without a backward one, the root of a sharded model is still whole: shard it again."""
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
