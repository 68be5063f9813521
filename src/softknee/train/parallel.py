"""Training across processes: who this process is, how a model is spread over them, how its tensors come together.

`torchrun --nproc-per-node 2 -m softknee study ...` starts equal processes that do the same work on parts of each batch.
Only the main one should write anything; what one of them alone knows, such as what is on a disk, `agree` tells the
others.
"""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..devices import need_device, read_device
from ..errors import InputError, ParameterError, require_choice

STRATEGIES = ("none", "ddp", "fsdp2")
_ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# The others wait while the main process measures or writes; torchrun ends them all when one of them dies.
_PATIENCE = timedelta(hours=12)
# A part of a model is sharded by itself where it holds more than this share of all parameters: fewer and larger
# messages are quicker than many small ones.
_LEAST_SHARE = 0.01


def _joined() -> bool:
    return dist.is_available() and dist.is_initialized()


def _started_by_torchrun() -> bool:
    return all(name in os.environ for name in _ENVIRONMENT)


def world() -> int:
    """How many processes train together; 1 where nothing like torchrun started this one."""
    if _joined():
        return dist.get_world_size()
    return int(os.environ["WORLD_SIZE"]) if _started_by_torchrun() else 1


def rank() -> int:
    """The number of this process, from 0."""
    if _joined():
        return dist.get_rank()
    return int(os.environ["RANK"]) if _started_by_torchrun() else 0


def is_main() -> bool:
    """Whether this is the process that writes."""
    return rank() == 0


def join(strategy: str, device: torch.device | str) -> torch.device:
    """Meet the other processes, unless that was done; the device of this process. With "none" nothing is met."""
    require_choice("", "strategy", strategy, STRATEGIES)
    if strategy == "none":
        return need_device(device)
    chosen = read_device(device)
    if not dist.is_available():
        raise ParameterError(f"strategy={strategy!r} needs a torch that was built with torch.distributed.")
    if not _joined() and not _started_by_torchrun():
        raise ParameterError(
            f"strategy={strategy!r} trains one model in several processes, and this one was started alone. Start them "
            "with: torchrun --nproc-per-node NUMBER -m softknee study RECIPE (or your script in place of -m ...)"
        )
    if chosen.type == "cuda" and chosen.index is None:
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    need_device(chosen, cures="start one process for each GPU, or choose device='cpu'")
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if not _joined():
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=_PATIENCE)
        atexit.register(leave)
    return chosen


def leave() -> None:
    """Take leave of the other processes; done at the end of the program where `join` made them meet."""
    if _joined():
        dist.destroy_process_group()


# -- what processes tell each other -----------------------------------------------------------------------


def agree(value: Any) -> Any:
    """The main process's value in every process."""
    if not _joined() or dist.get_world_size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0, device=_message_device())
    return values[0]


def any_process(flag: bool) -> bool:
    """Whether the flag is true in any process: so that all of them stop at the same step."""
    if not _joined() or dist.get_world_size() == 1:
        return flag
    flags = torch.tensor([int(flag)], device=_message_device())
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags)


def total(tensor: Tensor) -> Tensor:
    """The sum over the processes, in each of them."""
    result = tensor.detach().clone()
    dist.all_reduce(result)
    return result


class _Summed(torch.autograd.Function):
    """The sum over the processes; each input moves the losses of all of them, so the gradient is a sum, too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return total(tensor)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
        return total(grad_outputs[0])


def summed(tensor: Tensor) -> Tensor:
    """The sum over the processes, differentiable."""
    return _Summed.apply(tensor)  # pyright: ignore[reportReturnType]


def _message_device() -> torch.device:
    on_gpu = "nccl" in str(dist.get_backend())
    return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


def part_of(count: int) -> slice:
    """The part of `count` examples that is this process's: the parts cover all, and differ by 1 in size at most.

    >>> part_of(5)
    slice(0, 5, None)
    """
    return slice(count * rank() // world(), count * (rank() + 1) // world())


def gather_rows(part: Tensor, *, count: int) -> Tensor:
    """The rows of all processes, each of which has equally many; the first `count` of them."""
    parts = [torch.empty_like(part) for _ in range(world())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts)[:count]


# -- batch norm over a batch that lies in several processes -----------------------------------------------
#
# The mean and variance are those of all examples.
#
#     mean = (sum over processes of the sum of x) / n,   variance = (sum over processes of the sum of (x - mean)^2) / n
#
# torch's SyncBatchNorm does the same on GPUs alone; this does it with any backend, and a process that only goes along
# (its part of the batch is empty) counts for nothing.


@dataclass
class Counted:
    """How many examples of the part that is run count; None outside of training."""

    examples: int | None = None


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
        count = total(torch.tensor(places, dtype=torch.float64, device=input.device)).to(input.dtype)
        mean = summed(input.sum(dims) * real) / count
        centred = input - mean.view(shape)
        variance = summed(centred.square().sum(dims) * real) / count
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


# -- a model in several processes -------------------------------------------------------------------------


def start_alike_(model: nn.Module) -> None:
    """Give every process the tensors of the main one, whatever else its model was drawn from."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            sent = tensor.detach().contiguous()
            dist.broadcast(sent, src=0)
            tensor.copy_(sent)


def spread(model: nn.Module, strategy: str) -> None:
    """Make the models of all processes one: the same start, and with "fsdp2" a part of the parameters in each."""
    if strategy != "none":
        start_alike_(model)
    if strategy == "fsdp2":
        _shard_(model)


def averaging(model: nn.Module, *, leaves_out_some: bool) -> nn.Module:
    """The model in DDP, which takes the mean of the gradients over the processes.

    leaves_out_some: some parameters have no part in the loss, so that DDP must look for them at every step.
    """
    device = next(model.parameters()).device
    return nn.parallel.DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        find_unused_parameters=leaves_out_some,
        broadcast_buffers=False,  # they are alike already: no statistics are those of a part
    )


def _shard_(model: nn.Module) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    for name, parameter in model.named_parameters():
        if parameter.dim() == 0:
            raise InputError(f"fsdp2 cannot shard {name!r}, which has no dimension; give it the shape (1,).")
    mesh = init_device_mesh(next(model.parameters()).device.type, (world(),))
    for block in blocks(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


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
    held = tensor.detach()
    gather = getattr(held, "full_tensor", None)
    return held if gather is None else gather()


def copy_whole_(held: Tensor, full: Tensor) -> None:
    """Give a tensor, sharded or not, the values of a full one that every process has."""
    held = held.detach()
    held.copy_(like_sharded(held, full) if hasattr(held, "full_tensor") else full)


def like_sharded(held: Any, full: Tensor) -> Tensor:
    """A full tensor, which every process has, in the shards of another one."""
    from torch.distributed.tensor import distribute_tensor

    there = full.to(held.device)
    return distribute_tensor(there, held.device_mesh, held.placements, src_data_rank=None)


def local(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    inner = getattr(tensor, "to_local", None)
    return tensor if inner is None else inner()


def settle_(model: nn.Module) -> None:
    """After a forward pass without a backward one, the root of a sharded model is still whole: shard it again."""
    for module in model.modules():
        reshard = getattr(module, "reshard", None)
        if reshard is not None and hasattr(module, "set_reshard_after_backward"):
            reshard()
