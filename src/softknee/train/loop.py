"""M models trained in an ordinary loop: any model, torch's own optimisers, and one model across several processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..surgery.groups import LR_SCALE
from . import parallel
from .arguments import (
    check_clip,
    read_examples,
    read_rate,
    read_seeds,
    read_shares,
    read_single,
    read_targets,
    steps_of_epoch,
    tensor_of,
    try_example,
)
from .augment import Augment
from .loop_models import LoopModels
from .loop_state import read_state, write_state
from .loop_steps import LoopSteps
from .losses import Loss
from .many import ManyModels
from .optimizers import read_own
from .random_keys import order
from .schedules import Schedule
from .stacking import Knobs
from .state import pair_tensors


class OneByOne(ManyModels):
    """Trains `count` models in one readable loop, a step of each in turn; the interface is that of `Replicas`.

    Nothing is asked of the model but that it is an nn.Module whose output is a tensor, or has one called `logits`.
    Start, order of the examples, groups of the optimiser and rates are those of `Replicas`, so that without dropout
    both train the same models, to rounding, of augmented images as well. Dropout comes from torch's generator, seeded
    for each step from (seed, step).

    Args:
        make_model, count, seeds, share_init, share_order, share_dropout, knobs, device: as for `Replicas`.
        strategy: "none"; or, in processes that torchrun started, "ddp" (each has the models and a part of every batch)
            or "fsdp2" (each has a part of the parameters, too). Then all processes call the same methods; each loss is
            the mean over the examples of the whole batch, and the result is that of one process, to rounding (but for
            dropout, which each process draws for its part). Batch norm takes the statistics of the whole batch.

    >>> import softknee as sk, torch
    >>> make = lambda: torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SmeLU(), torch.nn.Linear(8, 2))
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > x[:, 1]).long()
    >>> loop = sk.train.OneByOne(make, count=2, knobs={"beta": [0.1, 1.0]})
    >>> loop.fit(x, y, epochs=3, batch=16, lr=0.5, momentum=0.9)
    OneByOne(count=2, epochs=3, steps=12)
    >>> together = sk.train.Replicas(make, count=2, knobs={"beta": [0.1, 1.0]}).fit(
    ...     x, y, epochs=3, batch=16, lr=0.5, momentum=0.9)
    >>> torch.allclose(loop.predict(x), together.predict(x), atol=1e-5)
    True

    Reference: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (2020); Zhao et al.,
    "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (2023).
    """

    def __init__(
        self,
        make_model: Callable[..., nn.Module],
        *,
        count: int,
        seeds: Iterable[int] | None = None,
        share_init: bool = False,
        share_order: bool = False,
        share_dropout: bool = False,
        knobs: Knobs | None = None,
        device: torch.device | str = "cpu",
        strategy: str = "none",
    ) -> None:
        self.seeds = read_seeds("OneByOne", count=count, seeds=seeds)
        self.count, self.strategy = count, strategy
        self.device = parallel.join(strategy, device)
        self.shares = {"init": share_init, "order": share_order, "dropout": share_dropout}
        starts = [self.seeds[0]] * count if share_init else self.seeds
        self._models = LoopModels(make_model, seeds=starts, knobs=knobs or {}, device=self.device, strategy=strategy)
        drawn = [self.seeds[0]] * count if share_dropout else self.seeds
        self._steps = LoopSteps(self._models, dropout_seeds=drawn, device=self.device, strategy=strategy)
        self.epoch = self.step = 0
        self._logs: list[Tensor] = []

    # -- training -----------------------------------------------------------------------------------------

    def fit(
        self,
        x: Tensor,
        y: Tensor,
        *,
        epochs: int,
        batch: int,
        lr: float | Sequence[float] | Tensor,
        optimizer: str = "sgd",
        loss: str | Loss = "cross_entropy",
        clip: float | None = None,
        augment: Augment | None = None,
        schedule: Schedule | None = None,
        total_epochs: int | None = None,
        drop_last: bool = False,
        shuffle: int | None = None,
        gradient_norms: bool = False,
        lr_scale: float = LR_SCALE,
        activation_optimizer: str | None = None,
        activation_lr: float | None = None,
        on_step: Callable[[int], object] | None = None,
        on_epoch: Callable[[OneByOne], object] | None = None,
        **options: Any,
    ) -> OneByOne:
        """Train for some epochs more. The arguments are those of `Replicas.fit`; a batch is that of all processes.

        A `loss` of your own must be a mean over the examples. `on_step` is called when every model has done the step.
        """
        x, y = read_examples(x, y, epochs=epochs, batch=batch, device=self.device)
        y = read_targets(y, loss)
        if self.step == 0 and augment is None and self.strategy == "none":
            try_example(self.model(0), x, y, loss)
        per_epoch = steps_of_epoch(len(x), batch=batch, drop_last=drop_last)
        check_clip(clip)
        shares = iter(
            read_shares(schedule, done=self.epoch, epochs=epochs, total_epochs=total_epochs, per_epoch=per_epoch)
        )
        rates = read_rate(lr, count=self.count).expand(self.count).tolist()
        own = read_own(activation_optimizer, activation_lr, lr_scale=lr_scale)
        self._steps.choose_optimizer(optimizer, options, lr_scale, own)
        judge = read_single(loss)
        log = torch.zeros(per_epoch, 2 if gradient_norms else 1, self.count, device=self.device)
        self._steps.begin(x[:batch], y[:batch], judge, augment)
        ordered = self.seeds[:1] if self.shares["order"] else self.seeds
        for _ in range(epochs):
            orders = order(seeds=ordered, epoch=self.epoch, length=len(x), device=self.device, window=shuffle)
            for turn in range(per_epoch):
                rows = orders[:, turn * batch : (turn + 1) * batch].expand(self.count, -1)
                share = next(shares)
                with self._steps.own_random_numbers():
                    for index, (row, rate) in enumerate(zip(rows, rates, strict=True)):
                        self._steps.seed_dropout(index, self.step)
                        log[turn, 0, index] = self._steps.differentiate(index, x, y, row, judge, step=self.step)
                        if clip is not None or gradient_norms:
                            log[turn, 1:, index] = self._steps.clip(index, clip)
                        self._steps.move(index, rate * share)
                self.step += 1
                if on_step is not None:
                    on_step(self.step)
            self.epoch += 1
            kept = log.clone()
            if self.strategy != "none":
                kept[:, 0] = parallel.total(kept[:, 0])
            self._logs.append(kept)
            if on_epoch is not None:
                on_epoch(self)
        return self

    # -- what came of it ----------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, x: Tensor, *, probabilities: bool = False, batch: int = 1024) -> Tensor:
        """The outputs of every model in eval mode, [M, N, ...], in every process; with `probabilities`, through softmax
        (one output: the sigmoid)."""
        if not isinstance(x, Tensor) or x.dim() == 0 or len(x) == 0 or batch < 1:
            raise InputError("predict needs a tensor of at least one example, and a batch of at least 1.")
        own, each = x, math.ceil(len(x) / parallel.world())
        if self.strategy != "none":
            # Equally many for each process, because all gather parameters together: the last example fills up.
            places = torch.arange(each * parallel.rank(), each * (parallel.rank() + 1)).clamp_(max=len(x) - 1)
            own = x[places.to(x.device)]
        found = torch.stack([self._predict(index, own, batch) for index in range(self.count)])
        if self.strategy != "none":
            found = parallel.gather_rows(found.transpose(0, 1), count=len(x)).transpose(0, 1).contiguous()
        if not probabilities:
            return found
        return found.sigmoid() if found.dim() < 3 or found.shape[2] == 1 else found.softmax(dim=2)

    def _predict(self, index: int, x: Tensor, batch: int) -> Tensor:
        model = self._models.bare[index]
        was = [(one, one.training) for one in model.modules()]
        model.eval()
        try:
            found = torch.cat([tensor_of(model(part.to(self.device))) for part in x.split(batch)])
        finally:
            for one, training in was:
                one.training = training  # predict may be called between two epochs
            parallel.settle_(model)
        return found

    def weight_norms(self) -> Tensor:
        """The 2-norm of all trained parameters of each model, [M]."""
        trained = [name for name, one in self._models.bare[0].named_parameters() if one.requires_grad]
        each = self._models.stacked()
        return torch.linalg.vector_norm(torch.cat([each[name].flatten(1) for name in trained], 1), dim=1).cpu()

    def knobs(self) -> dict[str, Tensor]:
        """The effective parameters of the activations by "path.name", with the models first, on the CPU."""
        return self._models.knobs()

    def set_knobs(self, knobs: Knobs) -> OneByOne:
        """New effective values of activation parameters, as `knobs` at construction; all or none are set."""
        self._models.set_knobs(knobs)
        return self

    def freeze_knobs(self, knobs: str | Iterable[str] | None = None) -> OneByOne:
        """From the next `fit` on the optimiser leaves activation parameters alone; `set_knobs` still moves them.

        Args:
            knobs: which, as the keys of `knobs`; every parameter of an activation by default.
        """
        self._models.freeze(knobs)
        self._steps.keep_optimizer()
        return self

    def weights(self) -> dict[str, Tensor]:
        """Copies of all parameters and buffers by name, [M, ...], where the models live; whole in every process."""
        return self._models.stacked()

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Tensor]) -> OneByOne:
        """What `weights` gave, copied back; those of other models are refused, and nothing is changed."""
        pair_tensors(self._models.shapes(), weights, what="weights are")
        self._models.load(weights)
        return self

    def state_dict(self) -> dict[str, Any]:
        """Everything that training goes on from, as tensors on the CPU, numbers and text; whole in every process."""
        return write_state(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> OneByOne:
        """Go on from a state; one of other models is refused, and nothing is changed."""
        read_state(self, state)
        return self

    def __repr__(self) -> str:
        shared = "".join(f", share_{name}=True" for name, shares in self.shares.items() if shares)
        spread = "" if self.strategy == "none" else f", strategy={self.strategy!r}"
        return f"OneByOne(count={self.count}{shared}{spread}, epochs={self.epoch}, steps={self.step})"

    def _copy(self, index: int) -> nn.Module:
        return self._models.copy(index)
