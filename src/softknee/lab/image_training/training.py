"""Training one image network with any loss, the images on the device and, on a GPU, the step as one CUDA graph.

A step gathers a batch, changes its images, asks `judge` for the loss, takes the gradient and moves the parameters; no
value of a tensor reaches the host. The graph is recorded once and serves every training of the same network: `begin`
puts other weights, another seed, and whatever numbers the loss reads into the same tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import InputError
from ...surgery.groups import split
from ...train.capture import captured
from ...train.optimizers import Own, StackedOptimizer
from ...train.schedules import read_table, step
from ..data.images import ImageSet
from .batches import Batches
from .plan import Plan

Judge = Callable[[Tensor, Tensor, Tensor], Tensor]  # images, labels and what the network made of the images
_TEST_BATCH = 500


def settings_of_record(data: ImageSet, plan: Plan, device: torch.device) -> dict[str, Any]:
    """What a record says about a training: on how many images, where, and every number of the plan."""
    return {
        "data": data.name,
        "training_images": len(data.train_labels),
        "test_images": len(data.test_labels),
        "device": device.type,
        "bfloat16": plan.autocast(device),
        **asdict(plan),
    }


def cross_entropy(images: Tensor, labels: Tensor, output: Tensor) -> Tensor:
    """The usual loss."""
    return F.cross_entropy(output, labels)


class ImageTraining:
    """One network, trained from other weights as often as asked.

    Args:
        model: the network; it is moved to the device and its parameters are changed in place.
        data: the images, or batches of them that several trainings share.
        judge: the loss of a batch from images, labels and outputs. On a GPU it is called only while the graph is
            recorded, so that what changes between trainings must lie in tensors of `holds`.
        holds: tensors that the judge reads and `begin` may write, by name.

    >>> from softknee.lab.image_training import Entry, build
    >>> from softknee.lab.data.images import ImageSet
    >>> noise = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8)
    >>> few = ImageSet(name="noise", train_images=noise, train_labels=torch.arange(8) % 2, test_images=noise,
    ...                test_labels=torch.arange(8) % 2, labels=("a", "b"))
    >>> model = build("wrn16_2", Entry(title="ReLU", name="relu"), classes=2, seed=0)
    >>> training = ImageTraining(model, few, Plan(epochs=1, batch=4), device="cpu")
    >>> training.begin(model.state_dict(), seed=0).run().losses.shape
    torch.Size([2])
    """

    def __init__(
        self,
        model: nn.Module,
        data: ImageSet | Batches,
        plan: Plan,
        *,
        device: torch.device | str,
        judge: Judge = cross_entropy,
        holds: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.device, self.plan, self.judge, self.holds = torch.device(device), plan, judge, dict(holds or {})
        self.batches = data if isinstance(data, Batches) else Batches(data, plan, device=self.device)
        self.data, self.per_epoch = self.batches.data, self.batches.per_epoch
        moved: Any = model  # torch has no type for both at once
        self.model: nn.Module = moved.to(self.device, memory_format=self.batches.layout)
        # Hooks of a penalty do not follow a copy, so that looking at the test images does not disturb it.
        self.twin = copy.deepcopy(self.model).eval()
        self._make_optimizers()
        self._make_tensors()
        self._step: Callable[[], None] | None = None
        self.seed = self.epoch = 0
        self.tests: dict[int, float] = {}

    def _make_optimizers(self) -> None:
        parts, plan = split(self.model), self.plan
        # As the paper's source of recipes, everything but activations decays, biases and norms among it.
        self.weights = [*parts["weights"], *parts["no_decay"]]
        self.knobs = parts["activations"]
        options = {"momentum": plan.momentum, "weight_decay": plan.weight_decay}
        groups: list[Any] = [(self.weights, 1.0, True)]
        if self.knobs:
            groups.append((self.knobs, Own("adam", plan.activation_rate), False))
        self.mover = StackedOptimizer("sgd", groups, options=options)

    def _make_tensors(self) -> None:
        plan, where, total = self.plan, self.device, self.per_epoch * self.plan.epochs
        falling = step(milestones=plan.milestones, factor=plan.factor)
        shares = read_table(falling, first=0, count=total, total=total)
        self.rates = plan.learning_rate * torch.tensor(shares, dtype=torch.float32, device=where)
        self.row = torch.zeros(1, dtype=torch.int64, device=where)
        self.log = torch.zeros(total, 2, device=where)  # loss, and the share of the batch that was right

    def begin(self, weights: Mapping[str, Tensor], *, seed: int, **held: float) -> ImageTraining:
        """From these weights, with the order and the draws of this seed; `held` are new values of `holds`."""
        with torch.no_grad():
            self.model.load_state_dict(dict(weights))
            for one in (*self.mover.tensors(), self.row, self.log):
                one.zero_()
            self.batches.begin(seed)
            for name, value in held.items():
                self.holds[name].fill_(value)
        torch.manual_seed(seed)  # SQUAF-P draws from torch's generator
        self.seed, self.epoch, self.tests = seed, 0, {}
        return self

    def run(self, advance: Callable[[], None] = lambda: None) -> ImageTraining:
        """All epochs; `advance` is called after each."""
        self.model.train()
        if self._step is None:
            self._step = self._recorded()
        for _ in range(self.plan.epochs):
            self.batches.begin_epoch(self.seed, self.epoch)
            for _ in range(self.per_epoch):
                self._step()
            self.epoch += 1
            if self.epoch % self.plan.every == 0 or self.epoch == self.plan.epochs:
                self.tests[self.epoch] = accuracy(self.snapshot(), self.data)
            advance()
        return self

    def snapshot(self) -> nn.Module:
        """The network as it is now, in eval mode, as a copy that the next call overwrites."""
        self.twin.load_state_dict(self.model.state_dict())
        return self.twin

    @property
    def losses(self) -> Tensor:
        """The loss of every step, on the CPU."""
        return self.log[:, 0].cpu().clone()  # the next training writes into the same tensor

    @property
    def train_accuracy(self) -> list[float]:
        """The share of training images, as they were changed, that was right in each epoch, in percent."""
        return (100 * self.log[:, 1].view(self.plan.epochs, -1).mean(1)).tolist()

    def _recorded(self) -> Callable[[], None]:
        if self.device.type != "cuda":
            return self._one_step
        moving = [*self.model.state_dict(keep_vars=True).values(), *self.mover.tensors()]
        changes = [one.detach() for one in moving if isinstance(one, Tensor)]
        changes += [self.row, self.log, *self.batches.counters]
        before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True  # one shape, many steps
        try:
            return captured(self._one_step, changes=changes, device=self.device)
        finally:
            torch.backends.cudnn.benchmark = before

    def _one_step(self) -> None:
        x, y = self.batches.next()
        with self._precision():
            output = self.model(x)
            loss = self.judge(x, y, output)
        if loss.dim():
            raise InputError(f"The loss must be one number, and it has shape {tuple(loss.shape)}; take its mean.")
        gradients = torch.autograd.grad(loss, [*self.weights, *self.knobs], materialize_grads=True)
        with torch.no_grad():
            parts = [gradients[: len(self.weights)]] + [gradients[len(self.weights) :]] * bool(self.knobs)
            self.mover.step(parts, self.rates.index_select(0, self.row))
            right = (output.argmax(1) == y).float().mean()
            self.log.index_copy_(0, self.row, torch.stack([loss.detach().float(), right]).unsqueeze(0))
            for counter in (self.row, *self.batches.counters):
                counter.add_(1)

    def _precision(self) -> AbstractContextManager[Any]:
        # Casts of weights are not kept: a kept one would be that of the weights at the recording.
        wanted = self.plan.autocast(self.device)
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=wanted, cache_enabled=False)


@torch.no_grad()
def accuracy(model: nn.Module, data: ImageSet) -> float:
    """The share of test images that the network, in eval mode, gets right, in percent."""
    right = torch.zeros((), dtype=torch.int64, device=data.test_labels.device)
    for images, labels in zip(data.test_images.split(_TEST_BATCH), data.test_labels.split(_TEST_BATCH), strict=True):
        right += (model(data.ready(images)).argmax(1) == labels).sum()
    return 100 * int(right) / len(data.test_labels)


def few_images(data: ImageSet, count: int) -> ImageSet:
    """The first images of each part."""
    names = ("train_images", "train_labels", "test_images", "test_labels")
    return replace(data, **{name: getattr(data, name)[:count] for name in names})
