"""One training step of all replicas, written so that it can be captured: no value of a tensor reaches the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..errors import InputError
from .augment import Augment
from .capture import captured
from .chain import chain_of
from .losses import Loss
from .optimizers import StackedOptimizer
from .stacked_modules import Draws


class Program:
    """Gathers a batch for each replica, takes the gradient of the sum of their losses, and moves the parameters.

    Args:
        skeleton: a model whose tensors are replaced by the stacked ones in every call.
        names: of the trained parameters, by group of the optimiser.
        tensors: all parameters and buffers, stacked.
        x, y: the examples, on the device.
        order: [M or 1, n], rewritten at the start of each epoch.
        rates: the rate of every step of this training, [steps] or [steps, M].
        log: [steps of an epoch, 1 or 2, M]: the losses, and the gradient norms where there is room for them.
    """

    def __init__(
        self,
        *,
        skeleton: nn.Module,
        names: Sequence[Sequence[str]],
        tensors: dict[str, Tensor],
        draws: Draws,
        x: Tensor,
        y: Tensor,
        order: Tensor,
        rates: Tensor,
        log: Tensor,
        batch: int,
        loss: Loss,
        optimizer: StackedOptimizer,
        clip: float | None,
        augment: Augment | None = None,
    ) -> None:
        self.skeleton, self.tensors, self.draws = skeleton, tensors, draws
        self.x, self.y, self.order, self.rates, self.log = x, y, order, rates, log
        self.batch, self.loss, self.optimizer, self.clip, self.augment = batch, loss, optimizer, clip, augment
        self.count = log.shape[-1]
        self.names = names
        # Leaves that share their memory with the stacked tensors: differentiated, and moved underneath.
        self.leaves = {name: tensors[name].detach().requires_grad_() for group in names for name in group}
        self.inputs = {**tensors, **self.leaves}
        self.chain = chain_of(skeleton, self.inputs) if x.device.type == "cpu" else None
        self.row = torch.zeros(1, dtype=torch.int64, device=x.device)  # of the rates
        self.turn = torch.zeros(1, dtype=torch.int64, device=x.device)  # within the epoch
        self._steps: dict[int, Callable[[], None]] = {}

    def run(self, size: int) -> None:
        """The next step, on a batch of this size."""
        if size not in self._steps:
            plain = partial(self._step, size)
            if self.x.device.type == "cuda":
                changes = [*self.tensors.values(), *self.optimizer.tensors(), self.row, self.turn, self.draws.step]
                self._steps[size] = captured(plain, changes=[*changes, self.log], device=self.x.device)
            else:
                self._steps[size] = plain
        self._steps[size]()

    def _step(self, size: int) -> None:
        places = self.turn * self.batch + torch.arange(size, device=self.x.device)
        chosen = self.order.index_select(1, places)
        x, y = self._gather(self.x, chosen), self._gather(self.y, chosen)
        if self.augment is not None:
            x, y = self.augment(x, y, draws=self.draws)
        losses = self.loss(outputs(self.skeleton, self.inputs, x, draws=self.draws, chain=self.chain), y)
        if losses.shape != (self.count,):
            raise InputError(
                f"The loss must be one number for each replica, and it has shape {tuple(losses.shape[1:])}; take its "
                "mean over the examples."
            )
        each = iter(torch.autograd.grad(losses.sum(), list(self.leaves.values()), materialize_grads=True))
        gradients = [[next(each) for _ in group] for group in self.names]
        with torch.no_grad():
            rows = [losses.detach()]
            if self.clip is not None or self.log.shape[1] > 1:
                norm = norms([one for group in gradients for one in group])
                rows.append(norm)
                if self.clip is not None:
                    share = (self.clip / (norm + 1e-6)).clamp_(max=1.0)
                    gradients = [[g * share.view(-1, *[1] * (g.dim() - 1)) for g in group] for group in gradients]
            self.optimizer.step(gradients, self.rates.index_select(0, self.row).squeeze(0))
            kept = torch.stack(rows[: self.log.shape[1]]).to(self.log.dtype)
            self.log.index_copy_(0, self.turn, kept.unsqueeze(0))
            for counter in (self.row, self.turn, self.draws.step):
                counter.add_(1)

    def _gather(self, data: Tensor, chosen: Tensor) -> Tensor:
        found = data.index_select(0, chosen.flatten()).view(*chosen.shape, *data.shape[1:])
        return found.expand(self.count, *found.shape[1:])


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The 2-norm over all tensors for each replica, [M]."""
    each = torch.stack([torch.linalg.vector_norm(one.reshape(len(one), -1), dim=1) for one in tensors])
    return torch.linalg.vector_norm(each, dim=0)


def outputs(
    skeleton: nn.Module,
    tensors: dict[str, Tensor],
    x: Tensor,
    *,
    draws: Draws,
    shared: bool = False,
    chain: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """What every replica makes of its x, [M, n, ...]; of the same x [n, ...] where it is shared."""
    draws.passed.clear()

    def one(own: dict[str, Tensor], input: Tensor) -> Tensor:
        return functional_call(skeleton, own, (input,))

    try:
        found = chain(x) if chain is not None else vmap(one, in_dims=(0, None if shared else 0))(tensors, x)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        line = (str(error).strip().splitlines() or ["no message"])[0]
        hint = (
            "it draws random numbers outside of nn.Dropout, which could not be keyed by replica; use modules"
            if "randomness" in str(error)
            else "use modules that torch.func.vmap can run, or train these models one by one"
        )
        raise InputError(
            f"{type(skeleton).__name__} could not be run for all replicas at once: {hint}. (torch says: {line})"
        ) from error
    if not isinstance(found, Tensor):
        raise InputError(f"The model must return one tensor, and it returned a {type(found).__name__}.")
    return found
