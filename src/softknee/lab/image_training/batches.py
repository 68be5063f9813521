"""The batches of a training, drawn and changed on the device: an order for each epoch, windows and mirror images."""

from __future__ import annotations

import torch
from torch import Tensor

from ...train.augment import Augment
from ...train.capture import compile_method
from ...train.random_keys import order, seed_keys
from ...train.stacked_modules import Draws
from ..data.images import ImageSet
from .plan import Plan


class Batches:
    """What the steps of a training see, in tensors that keep their place, so that a recorded step can read them.

    Trainings one after the other may share them: on a GPU they are compiled, once for all. (The draws are a hundred
    small kernels; in a small network they would take as long as a layer does.)

    Args:
        data: the images, as bytes; those that do not fill a last batch are left out of an epoch.
    """

    def __init__(self, data: ImageSet, plan: Plan, *, device: torch.device | str) -> None:
        self.device = torch.device(device)
        self.data = data.to(self.device)
        count = len(self.data.train_labels)
        self.per_epoch, self.batch = max(1, count // plan.batch), min(plan.batch, count)
        self.layout = torch.channels_last if self.device.type == "cuda" else torch.preserve_format
        mean, spread = ([one / 255 for one in three] for three in (data.mean, data.spread))
        self.augment = Augment(crop=plan.crop, flip=plan.flip, mean=mean, std=spread)
        self.order = torch.zeros(count, dtype=torch.int64, device=self.device)
        self.turn, self.drawn = (torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(2))
        self.draws = Draws(seed_keys([0], device=self.device), self.drawn)
        self.next = compile_method(self.plain_next) if self.device.type == "cuda" else self.plain_next

    @property
    def counters(self) -> list[Tensor]:
        """What a step moves on by one."""
        return [self.turn, self.drawn]

    def begin(self, seed: int) -> None:
        """With the draws of this seed, from the first on."""
        for counter in self.counters:  # of the turns, too: a step is recorded before the first epoch begins
            counter.zero_()
        self.draws.keys.copy_(seed_keys([seed], device=self.device))

    def begin_epoch(self, seed: int, epoch: int) -> None:
        """With the order of this epoch."""
        shuffled = order(seeds=[seed], epoch=epoch, length=len(self.order), device=self.device)
        self.order.copy_(shuffled[0])
        self.turn.zero_()

    def plain_next(self) -> tuple[Tensor, Tensor]:
        """The images of this step, changed at random, and their labels."""
        places = self.turn * self.batch + torch.arange(self.batch, device=self.device)
        chosen = self.order.index_select(0, places)
        x, y = self.data.train_images.index_select(0, chosen), self.data.train_labels.index_select(0, chosen)
        x, y = self.augment(x, y, draws=self.draws)
        return x.contiguous(memory_format=self.layout) if self.device.type == "cuda" else x, y
