r"""Batch norm over a batch that lies in several processes: the mean and variance are those of all examples.

    mean = (sum over processes of the sum of x) / n,   variance = (sum over processes of the sum of (x - mean)^2) / n

torch's SyncBatchNorm does the same on GPUs alone; this does it with any backend, and a process that only goes along
(its part of the batch is empty) counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import InputError
from . import parallel


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
        count = parallel.total(torch.tensor(places, dtype=torch.float64, device=input.device)).to(input.dtype)
        mean = parallel.summed(input.sum(dims) * real) / count
        centred = input - mean.view(shape)
        variance = parallel.summed(centred.square().sum(dims) * real) / count
        if own.running_mean is not None:
            self._follow(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        found = centred * torch.rsqrt(variance + own.eps).view(shape)
        return found * own.weight.view(shape) + own.bias.view(shape) if own.affine else found

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
