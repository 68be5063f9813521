"""Training across processes: who this process is, how a model is spread over them, how its tensors come together.

`torchrun --nproc-per-node 2 -m softknee study ...` starts equal processes that do the same work on parts of each batch.
Only the main one should write anything; what one of them alone knows, such as what is on a disk, `agree` tells the
others.
"""

from __future__ import annotations

import atexit
import json
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..devices import need_device, read_device
from ..errors import InputError, ParameterError, did_you_mean

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
    if strategy not in STRATEGIES:
        raise ParameterError(
            f"strategy must be one of {', '.join(map(repr, STRATEGIES))}, and {strategy!r} was given."
            f"{did_you_mean(strategy, STRATEGIES)}"
        )
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
    """The main process's value in every process; of JSON's types."""
    if not _joined() or dist.get_world_size() == 1:
        return value
    return json.loads(agree_bytes(json.dumps(value).encode()))


def agree_bytes(content: bytes) -> bytes:
    """The main process's bytes in every process."""
    if not _joined() or dist.get_world_size() == 1:
        return content
    device = _message_device()
    length = torch.tensor([len(content)], device=device)
    dist.broadcast(length, src=0)
    if is_main():
        sent = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
        sent = sent.to(device)
    else:
        sent = torch.empty(int(length), dtype=torch.uint8, device=device)
    if len(sent):
        dist.broadcast(sent, src=0)
    return bytes(sent.cpu().untyped_storage())[: len(sent)]


def any_process(flag: bool) -> bool:
    """Whether the flag is true in any process: so that all of them stop at the same step."""
    if not _joined() or dist.get_world_size() == 1:
        return flag
    found = torch.tensor([int(flag)], device=_message_device())
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return bool(found)


def total(tensor: Tensor) -> Tensor:
    """The sum over the processes, in each of them."""
    found = tensor.detach().clone()
    dist.all_reduce(found)
    return found


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
    """Which of `count` examples are this process's: all together have each once, and their shares differ by 1 at most.

    >>> part_of(5)
    slice(0, 5, None)
    """
    here, of = rank(), world()
    return slice(count * here // of, count * (here + 1) // of)


def gather_rows(part: Tensor, *, count: int) -> Tensor:
    """The rows of all processes, each of which has equally many; the first `count` of them."""
    parts = [torch.empty_like(part) for _ in range(world())]
    dist.all_gather(parts, part.contiguous())
    return torch.cat(parts)[:count]


# -- a model in several processes -------------------------------------------------------------------------


def start_alike_(model: nn.Module) -> None:
    """Give every process the tensors of the main one, whatever else its model was drawn from."""
    with torch.no_grad():
        for one in (*model.parameters(), *model.buffers()):
            sent = one.detach().contiguous()
            dist.broadcast(sent, src=0)
            one.copy_(sent)


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

    for name, one in model.named_parameters():
        if one.dim() == 0:
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
    total = sum(one.numel() for one in model.parameters())
    # A tensor of two parts must be gathered once, with the whole.
    tied = len(list(model.named_parameters(remove_duplicate=False))) > len(list(model.parameters()))
    found: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for module in model.modules():
        if tied or module in inside or not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        large = [child for child in module if sum(p.numel() for p in child.parameters()) > _LEAST_SHARE * total]
        if len(large) < 2:
            continue
        found += large
        inside |= {each for child in module for each in child.modules()}
    return found


def whole(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one; any other as it is. All processes ask for it together."""
    held = tensor.detach()
    gather = getattr(held, "full_tensor", None)
    return held if gather is None else gather()


def copy_whole_(held: Tensor, full: Tensor) -> None:
    """Give a tensor, sharded or not, the values of a full one that every process has."""
    held = held.detach()
    if not hasattr(held, "full_tensor"):
        held.copy_(full)
        return
    held.copy_(like_sharded(held, full))


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
