"""M models trained in an ordinary loop: any model, torch's own optimisers, and one model across several processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from ..devices import need_device
from ..errors import InputError
from ..surgery.groups import LR_SCALE, param_groups
from ..surgery.modules import eval_mode, restored
from . import parallel
from .arguments import (
    check_clip,
    read_examples,
    read_rate,
    read_shares,
    read_single,
    read_targets,
    scalar_loss,
    steps_of_epoch,
    tensor_of,
    try_example,
)
from .augment import Augment
from .loop import Step
from .losses import Loss
from .many import ManyModels, to_probabilities
from .optimizers import Own, make_optimizer, parts_of, read_own
from .random_keys import fold, seed_keys, site_number
from .schedules import Schedule
from .stacked_modules import Draws
from .stacking import Knobs, Stack, named_tensors, refuse_unbuilt


class OneByOne(ManyModels):
    """Trains `count` models in one readable loop, a step of each in turn; the interface is that of `Replicas`.

    The model may be any nn.Module whose output is a tensor, or has one called `logits`.
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
    >>> replicas = sk.train.Replicas(make, count=2, knobs={"beta": [0.1, 1.0]}).fit(
    ...     x, y, epochs=3, batch=16, lr=0.5, momentum=0.9)
    >>> torch.allclose(loop.predict(x), replicas.predict(x), atol=1e-5)
    True

    Reference: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training" (2020); Zhao et al.,
    "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (2023).
    """

    format, title = "one by one, 2", "such a loop"
    _stack: Any  # a `_Separate`
    _optimizer: list[Optimizer]

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
        starts, drawn = self._set_up(
            count=count, seeds=seeds, init=share_init, order=share_order, dropout=share_dropout
        )
        self.strategy, self._fabric = strategy, parallel.join(strategy, device)
        self.device = need_device(device) if self._fabric is None else self._fabric.device
        self._stack = _Separate(
            make_model, seeds=starts, knobs=knobs or {}, device=self.device, strategy=strategy, fabric=self._fabric
        )
        self._dropout_keys = fold(seed_keys(drawn), site_number("dropout"))
        self._keys = seed_keys(drawn, device=self.device)
        self._augment: Augment | None = None

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
        self._choose_optimizer(optimizer, options, lr_scale, own)
        compare = read_single(loss)
        log = torch.zeros(per_epoch, 2 if gradient_norms else 1, self.count, device=self.device)
        self._augment = augment
        self._begin(x[:batch], y[:batch], compare)
        settings: dict[str, Any] = {"fabric": self._fabric, "clip": clip, "norms": gradient_norms, "fill": True}
        steps = [
            Step(model, partial(self._loss, index=index, x=x, y=y, compare=compare), optimizer, **settings)
            for index, (model, optimizer) in enumerate(zip(self._stack.called, self._optimizer, strict=True))
        ]
        for turn, orders in self._turns(
            log, epochs=epochs, examples=len(x), window=shuffle, on_step=on_step, on_epoch=on_epoch
        ):
            rows = orders[:, turn * batch : (turn + 1) * batch].expand(self.count, -1)
            share = next(shares)
            with self._own_random_numbers():
                for index, (step, row, rate) in enumerate(zip(steps, rows, rates, strict=True)):
                    self._set_rate(index, rate * share)
                    log[turn, 0, index] = step([row])
                    if gradient_norms:
                        log[turn, 1, index] = step.norm
            if self._fabric is not None and turn + 1 == per_epoch:
                log[:, 0] = self._fabric.all_reduce(log[:, 0].clone(), reduce_op="mean")
        return self

    # -- results ------------------------------------------------------------------------------------------

    @torch.no_grad()
    def predict(self, x: Tensor, *, probabilities: bool = False, batch: int = 1024) -> Tensor:
        """The outputs of every model in eval mode, [M, N, ...], in every process; with `probabilities`, through softmax
        (one output: the sigmoid)."""
        if not isinstance(x, Tensor) or x.dim() == 0 or len(x) == 0 or batch < 1:
            raise InputError("predict needs a tensor of at least one example, and a batch of at least 1.")
        own, fabric = x, self._fabric
        if fabric is not None:
            # Every process takes equally many, because all must gather parameters: the last example fills up.
            each = math.ceil(len(x) / fabric.world_size)
            places = torch.arange(each * fabric.global_rank, each * (fabric.global_rank + 1)).clamp_(max=len(x) - 1)
            own = x[places.to(x.device)]
        outputs = torch.stack([self._predict(index, own, batch) for index in range(self.count)])
        if fabric is not None:
            parts = [torch.empty_like(outputs) for _ in range(fabric.world_size)]
            dist.all_gather(parts, outputs)  # Fabric's calls a function of torch that warns of its end
            outputs = torch.cat(parts, dim=1)[:, : len(x)].contiguous()
        return to_probabilities(outputs) if probabilities else outputs

    def _predict(self, index: int, x: Tensor, batch: int) -> Tensor:
        model = self._stack.bare[index]
        with eval_mode(model):  # predict may be called between two epochs
            outputs = torch.cat([tensor_of(model(part.to(self.device))) for part in x.split(batch)])
        if self.strategy == "fsdp2":
            parallel.reshard_(model)
        return outputs

    def __repr__(self) -> str:
        spread = "" if self.strategy == "none" else f", strategy={self.strategy!r}"
        return super().__repr__().replace(", epochs=", f"{spread}, epochs=")

    # -- one step of one model ----------------------------------------------------------------------------

    def _begin(self, x: Tensor, y: Tensor, compare: Loss) -> None:
        """Make the models ready to be trained; x and y are a batch of examples."""
        for model in self._stack.bare:
            model.train()

        def loss_of(model: nn.Module) -> Tensor:
            images, targets = self._batch(0, x, y, torch.arange(len(x), device=self.device), step=0)
            return compare(tensor_of(model(images)), targets)

        self._stack.average_gradients(loss_of)

    def _own_random_numbers(self) -> Any:
        """What is drawn inside leaves torch's generators as they were."""
        return torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else [])

    def _seed_dropout(self, index: int) -> None:
        """From now on torch draws what belongs to this model and step, and with several processes to this one."""
        key = fold(self._dropout_keys[index : index + 1], self.step)
        if self._fabric is not None:
            key = fold(key, self._fabric.global_rank)
        torch.default_generator.manual_seed(int(key))
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):  # the seed is that of the current device
                torch.cuda.manual_seed(int(key))
        elif self.device.type != "cpu":
            getattr(torch, self.device.type).manual_seed(int(key))

    def _loss(self, model: nn.Module, row: Tensor, *, index: int, x: Tensor, y: Tensor, compare: Loss) -> Tensor:
        """The loss of a model over the batch `row`; of this process's part of it, so that the mean over all is that."""
        self._seed_dropout(index)
        if self._fabric is None:
            images, targets = self._batch(index, x, y, row, step=self.step)
            return compare(tensor_of(model(images)), targets)
        part = parallel.part_of(len(row), self._fabric)
        self._stack.counted.examples = count = len(row[part])
        # With nothing to do a process goes along with one example that counts for nothing.
        images, targets = self._batch(index, x, y, row, step=self.step, part=part if count else slice(1))
        loss = scalar_loss(compare(tensor_of(model(images)), targets))
        return loss * (self._fabric.world_size * count / len(row))

    def _batch(
        self, index: int, x: Tensor, y: Tensor, row: Tensor, *, step: int, part: slice = slice(None)
    ) -> tuple[Tensor, Tensor]:
        """The examples of a part of the batch `row`, augmented as those of this model are in `Replicas`."""
        if self._augment is None:
            return x[row[part]], y[row[part]]
        # All of them, whatever the part: what is drawn depends on the place in the batch, and images are mixed.
        draws = Draws(self._keys[index : index + 1], torch.tensor([step], device=self.device))
        images, targets = self._augment(x[row].unsqueeze(0), y[row].unsqueeze(0), draws=draws)
        return images[0, part], targets[0, part]

    def _set_rate(self, index: int, rate: float) -> None:
        _, _, lr_scale, own = self._optimizer_key
        for group in self._optimizer[index].param_groups:
            if group["name"] != "activations":
                group["lr"] = rate
            elif own is None:
                group["lr"] = rate * lr_scale

    def _make_optimizer(self, name: str, options: Any, lr_scale: float, own: Own | None) -> list[Optimizer]:
        read, optimizers = dict(options), []
        for model in self._stack.bare:
            frozen = {id(parameter) for path, parameter in model.named_parameters() if path in self._stack.frozen}
            groups = param_groups(model, lr=1.0, weight_decay=read["weight_decay"], lr_scale=lr_scale)
            for group in groups:
                group["params"] = [p for p in group["params"] if id(p) not in frozen]
            optimizers.append(make_optimizer([group for group in groups if group["params"]], name, read, own))
        return optimizers

    def _moments(self) -> dict[str, Tensor]:
        tensors: dict[str, list[Tensor]] = {}
        for model, optimizer in zip(self._stack.bare, self._optimizer, strict=True):
            for path, parameter in model.named_parameters():
                for part in parts_of(optimizer):
                    for key, value in part.state.get(parameter, {}).items():
                        if value is not None:  # SGD without momentum says that it has none
                            tensors.setdefault(f"{path}:{key}", []).append(parallel.whole(torch.as_tensor(value)).cpu())
        return {key: torch.stack(each) for key, each in tensors.items()}

    def _check_moments(self, tensors: Mapping[str, Tensor]) -> None:
        shapes = {name: tuple(tensor.shape) for name, tensor in self._stack.shapes().items()}
        moving = {name for names in self._stack.moving.values() for name in names}
        for key, each in tensors.items():
            name = key.rpartition(":")[0]
            # A number, or something of the shape of its parameter.
            if name not in moving or tuple(each.shape) not in ((self.count,), shapes[name]):
                raise InputError(f"The state is of another model: {key!r} of its optimiser has no place here.")

    def _load_moments(self, tensors: Mapping[str, Tensor]) -> None:
        for index, (model, optimizer) in enumerate(zip(self._stack.bare, self._optimizer, strict=True)):
            parameters = dict(model.named_parameters())
            parts = {
                parameter: part
                for part in parts_of(optimizer)
                for group in part.param_groups
                for parameter in group["params"]
            }
            for key, each in tensors.items():
                path, _, name = key.rpartition(":")
                parameter = parameters[path]
                value = each[index].clone()
                # A count of steps stays on the CPU.
                parts[parameter].state[parameter][name] = value if name == "step" else parallel.like(parameter, value)


class _Separate(Stack):
    """Models of their own: `bare` by their own names; `called` is what is called in training (the same, or in DDP)."""

    def __init__(
        self,
        make_model: Callable[..., nn.Module],
        *,
        seeds: Sequence[int],
        knobs: Knobs,
        device: torch.device,
        strategy: str,
        fabric: Any,
    ) -> None:
        self._strategy, self._fabric, self.counted = strategy, fabric, parallel.Counted()
        self.bare: list[nn.Module] = []
        self.called: list[nn.Module] = []
        super().__init__(make_model, seeds=seeds, knobs=knobs, device=device)

    def _refuse(self, model: nn.Module) -> None:
        refuse_unbuilt(model)

    def _put(self, index: int, model: nn.Module) -> None:
        if self._fabric is not None:
            # Every process has the tensors of the main one, whatever else its model was drawn from.
            for name, tensor in self._fabric.broadcast(named_tensors(model)).items():
                named_tensors(model)[name].copy_(tensor)
            parallel.sync_norms_(model, self.counted)
            # torch hangs what it does around a backward pass on the outputs that it finds, and looks into few objects.
            model.register_forward_hook(lambda module, inputs, output: tensor_of(output))
        self.bare.append(model.to(self.device))
        if self._strategy != "ddp":  # which needs an example first
            self.called.append(model if self._fabric is None else self._fabric.setup_module(model))

    def stacked(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        each = [named_tensors(model) for model in self.bare]
        return {
            name: torch.stack([parallel.whole(tensors[name]) for tensors in each])
            for name in (each[0] if names is None else names)
        }

    def load(self, stacked: Mapping[str, Tensor]) -> None:
        for index, model in enumerate(self.bare):
            own = named_tensors(model)
            for name, each in stacked.items():
                own[name].copy_(parallel.like(own[name], each[index]))

    def _tensor(self, name: str, index: int) -> Tensor:
        return parallel.whole(named_tensors(self.bare[index])[name])

    def average_gradients(self, loss_of: Callable[[nn.Module], Tensor]) -> None:
        """Put the models into DDP, once; `loss_of` shows which parameters have a part in the loss."""
        if self.called:
            return
        first = self.bare[0]
        trained = [parameter for parameter in first.parameters() if parameter.requires_grad]
        with restored(first):  # it is no step
            gradients = torch.autograd.grad(loss_of(first), trained, allow_unused=True)
        unused = any(gradient is None for gradient in gradients)
        fabric = parallel.join(self._strategy, self.device, find_unused_parameters=unused)
        self.called = [fabric.setup_module(model) for model in self.bare]
