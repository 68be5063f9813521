"""One training step of all replicas, written so that it can be captured: no value of a tensor reaches the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .apart import Apart
from .augment import Augment
from .capture import captured, compile_method
from .feed import Feed
from .optimizers import StackedOptimizer
from .stacked_modules import Draws
from .together import Together


class Program:
    """Gathers a batch for each replica, takes the gradients of their losses, and moves the parameters.

    Args:
        differentiate: the losses and gradients of all replicas for a batch.
        tensors: all parameters and buffers, stacked.
        x, y: the examples, on the device; or in the place of x what brings each batch of them there.
        order: [M or 1, n], rewritten at the start of each epoch.
        rates: the rate of every step of this training, [steps] or [steps, M].
        log: [steps of an epoch, 1 or 2, M]: the losses, and the gradient norms where there is room for them.
        compiled: gather and augment in a few fused kernels instead of one for each operation.
        foretold: [M, n, ...], where the outputs of each step are kept, in the order of the steps; None keeps none.
    """

    def __init__(
        self,
        *,
        differentiate: Together | Apart,
        tensors: dict[str, Tensor],
        draws: Draws,
        x: Tensor | Feed,
        y: Tensor,
        order: Tensor,
        rates: Tensor,
        log: Tensor,
        batch: int,
        optimizer: StackedOptimizer,
        clip: float | None,
        augment: Augment | None = None,
        compiled: bool = False,
        foretold: Tensor | None = None,
    ) -> None:
        self.differentiate, self.tensors, self.draws = differentiate, tensors, draws
        self.x, self.y, self.order, self.rates, self.log = x, y, order, rates, log
        self.device = y.device
        self.batch, self.optimizer, self.clip, self.augment = batch, optimizer, clip, augment
        self.count, self.foretold = log.shape[-1], foretold
        self.row = torch.zeros(1, dtype=torch.int64, device=self.device)  # of the rates
        self.turn = torch.zeros(1, dtype=torch.int64, device=self.device)  # within the epoch
        self._steps: dict[int, Callable[[], None]] = {}
        self._batch: Any = self._gather
        if compiled:
            self._gather(1)  # puts the constants of the augmentation on the device, which must not happen inside
            self._batch = compile_method(self._gather)

    def begin_epoch(self, order: Tensor) -> None:
        """The steps to come take the examples in this order, [M or 1, n]."""
        self.order.copy_(order)
        self.turn.zero_()
        if isinstance(self.x, Feed):
            self.x.begin(order[:, : len(self.log) * self.batch])  # without what a dropped batch would have

    def run(self, size: int) -> None:
        """The next step, on a batch of this size."""
        if isinstance(self.x, Feed):
            self.x.take()
        if size not in self._steps:
            plain = partial(self._step, size)
            if self.device.type == "cuda":
                changes = [*self.tensors.values(), *self.optimizer.tensors(), self.row, self.turn, self.draws.step]
                self._steps[size] = captured(plain, changes=[*changes, self.log], device=self.device)
            else:
                self._steps[size] = plain
        self._steps[size]()

    def _step(self, size: int) -> None:
        x, y = self._batch(size)
        losses, gradients = self.differentiate(x, y)
        with torch.no_grad():
            if self.foretold is not None and isinstance(self.differentiate, Together):
                assert self.differentiate.made is not None
                self.foretold.index_copy_(1, self._places(size), self.differentiate.made)
            rows = [losses]
            if self.clip is not None or self.log.shape[1] > 1:
                norm = self.differentiate.norms()
                rows.append(norm)
                if self.clip is not None:
                    self.differentiate.shorten((self.clip / (norm + 1e-6)).clamp_(max=1.0))
            self.optimizer.step(gradients, self.rates.index_select(0, self.row).squeeze(0))
            kept = torch.stack(rows[: self.log.shape[1]]).to(self.log.dtype)
            self.log.index_copy_(0, self.turn, kept.unsqueeze(0))
            for counter in (self.row, self.turn, self.draws.step):
                counter.add_(1)

    def _gather(self, size: int) -> tuple[Tensor, Tensor]:
        """The next batch of every replica, [M, n, ...], augmented."""
        with torch.no_grad():
            chosen = self.order.index_select(1, self._places(size))
            y = self._chosen(self.y, chosen)
            if isinstance(self.x, Feed):
                x = self._for_each(self.x.images(size, ready=self.augment is None))
            else:
                x = self._chosen(self.x, chosen)
            return (x, y) if self.augment is None else self.augment(x, y, draws=self.draws)

    def _places(self, size: int) -> Tensor:
        """Of the next batch within the epoch."""
        return self.turn * self.batch + torch.arange(size, device=self.device)

    def _chosen(self, data: Tensor, chosen: Tensor) -> Tensor:
        return self._for_each(data.index_select(0, chosen.flatten()).view(*chosen.shape, *data.shape[1:]))

    def _for_each(self, found: Tensor) -> Tensor:
        """[M or 1, ...] for every replica."""
        return found.expand(self.count, *found.shape[1:])
