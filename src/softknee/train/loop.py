"""The one training loop of one model: batches, a loss, an optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice, repeat
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ..errors import InputError, ParameterError, require_count
from ..nn.parameters import require_model
from .arguments import check_clip, read_single, scalar_loss, tensor_of
from .capture import RecordedStep
from .parallel import whole
from .program import read_precision
from .schedules import Schedule, read_table

BatchLoss = Callable[[Any, Any], Tensor]


def fit(
    model: nn.Module,
    batches: Iterable[Any],
    loss: str | BatchLoss,
    *,
    optimizer: Optimizer | Callable[[nn.Module], Optimizer],
    steps: int | None = None,
    epochs: int = 1,
    schedule: Schedule | None = None,
    accumulate: int = 1,
    clip: float | None = None,
    precision: str = "float32",
    capture: bool = False,
    fabric: Any = None,
    before_step: Callable[[int], object] | None = None,
    on_step: Callable[[int], object] | None = None,
    on_epoch: Callable[[int], object] | None = None,
) -> Tensor:
    r"""Train one model in place, and return the loss of every step, [steps], on the CPU.

    With parameters w, batches B_1, ..., B_k of step t (k = `accumulate`) and s the schedule, a step is

        g = (1/k) sum_i grad L(w, B_i)
        g = g * min(1, clip / (|g| + 1e-6))                        where `clip` is given
        w = optimizer(w, g, rate * s(t / steps))                   t = 0, 1, ...

    Nothing waits for the device before the end, but for what the callbacks ask of it.

    Args:
        model: stays on its device, to which batches are moved.
        batches: iterated over once an epoch: a DataLoader, a list, or another iterable. A batch is a
            tensor, something with a method `to`, or a tuple, list or dict of these.
        loss: the mean loss of a batch as a function of model and batch; or the name of a loss of `Replicas.fit`
            ("cross_entropy", "mse", ...), for batches (x, y).
        optimizer: of torch, or a function that makes it from the model; the rates of its groups are the
            full rates.
        steps: how many steps, in as many epochs as they take; left out, all of `epochs`.
        epochs: passes over the batches.
        schedule: the share of the full rates as a function of progress in [0, 1), such as `cosine()`.
        accumulate: batches whose gradients a step adds up; at the end of an epoch there may be fewer.
        clip: the largest norm of a gradient.
        precision: "bfloat16" computes the loss under autocast.
        capture: on a GPU, record the step as a CUDA graph and replay it. Batches must be tensors, or tuples of them, of
            the same shapes, and an Adam built with capturable=True. On a CPU it has no meaning.
        fabric: for several devices, a launched `lightning.Fabric` with any of its strategies (DDP, FSDP2, ...). All
            processes call `fit`; a DataLoader deals its examples out to them, other batches are each process's own. The
            loss is the mean over the processes. A strategy that shards the model needs `optimizer` as a function.
        before_step, on_step: called with the number of the step, from 1, before and after it.
        on_epoch: called with the number of epochs done.

    >>> import softknee as sk, torch
    >>> x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > x[:, 1]).long()
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SmeLU(learn=True), torch.nn.Linear(8, 2))
    >>> adam = torch.optim.AdamW(sk.param_groups(net, lr=0.05, weight_decay=0.01))
    >>> batches = list(zip(x.split(16), y.split(16)))
    >>> losses = sk.train.fit(
    ...     net, batches, "cross_entropy", optimizer=adam, epochs=10, schedule=sk.train.cosine(warmup=0.1), clip=1.0)
    >>> len(losses), bool(losses[-1] < losses[0])
    (40, True)

    Reference: Robbins and Monro, "A Stochastic Approximation Method" (1951); Pascanu, Mikolov and Bengio, "On the
    difficulty of training recurrent neural networks" (2013), for clipping.
    """
    require_model(model, "fit")
    counts = {"epochs": epochs, "accumulate": accumulate} | ({} if steps is None else {"steps": steps})
    for name, value in counts.items():
        require_count("fit", name, value)
    check_clip(clip)
    called: Any = model
    if fabric is not None:
        if capture:
            raise ParameterError("fit: a step over several devices cannot be recorded; leave out capture or fabric.")
        called = fabric.setup_module(model)
        if isinstance(batches, DataLoader):
            batches = fabric.setup_dataloaders(batches)
    optimizer = optimizer if isinstance(optimizer, Optimizer) else optimizer(model)
    total = steps
    if steps is None:
        with suppress(TypeError):  # batches without a length
            total = epochs * math.ceil(len(cast(Any, batches)) / accumulate)
    if schedule is not None and total is None:
        raise InputError("fit: a schedule needs the number of steps, and these batches have no length; pass steps=.")
    shares = repeat(1.0) if total is None else iter(read_table(schedule, first=0, count=total, total=max(1, total)))
    device = next(model.parameters()).device
    capture = capture and device.type == "cuda"
    if isinstance(loss, str):
        compare = read_single(loss)
        batch_loss: BatchLoss = lambda model, batch: compare(tensor_of(model(batch[0])), batch[1])  # noqa: E731
    else:
        batch_loss = loss
    step = Step(called, batch_loss, optimizer, fabric=fabric, clip=clip, dtype=read_precision(precision))
    run = RecordedStep(step, model, optimizer, device=device) if capture else step
    log: list[Tensor] = []
    epoch = 0
    called.train()
    with _rates_of(optimizer, device if capture else None) as set_share:
        while epoch < epochs if steps is None else len(log) < steps:
            source, before = iter(batches), len(log)
            while len(log) != steps and (parts := list(islice(source, accumulate))):
                if before_step is not None:
                    before_step(len(log) + 1)
                set_share(next(shares))
                log.append(run([_to(batch, device) for batch in parts]))
                if on_step is not None:
                    on_step(len(log))
            if len(log) == before:
                raise InputError("fit: there are no batches to train on. (A generator yields its batches only once.)")
            epoch += 1
            if on_epoch is not None:
                on_epoch(epoch)
    losses = torch.stack(log)
    losses = (losses if fabric is None else fabric.all_reduce(losses, reduce_op="mean")).cpu()
    model.zero_grad(set_to_none=True)  # those of a recording lie in its memory
    return losses


class Step:
    """A step of one model: the gradient of its loss, the mean over some batches, clipped; and the optimiser's move.

    Args:
        model: what the loss is a function of: a module, or what Fabric made of it.
        loss: of model and batch, one number.
        fabric, clip: as for `fit`.
        dtype: of autocast; None computes in that of the model.
        norms: compute the norm of the gradient where nothing is clipped, too.
        fill: what the loss does not depend on has the gradient 0, so that it decays; torch leaves it as it is.

    norm: of the last gradient, before clipping; NaN where it is not computed.
    """

    def __init__(
        self,
        model: Any,
        loss: BatchLoss,
        optimizer: Optimizer,
        *,
        fabric: Any = None,
        clip: float | None = None,
        dtype: torch.dtype | None = None,
        norms: bool = False,
        fill: bool = False,
    ) -> None:
        self.model, self.loss, self.optimizer, self.fabric = model, loss, optimizer, fabric
        self.clip, self.dtype, self.norms, self.fill = clip, dtype, norms, fill
        self.wrapped_optimizer: Any = optimizer if fabric is None else fabric.setup_optimizers(optimizer)
        self.device = next(model.parameters()).device
        self.norm = torch.tensor(math.nan)

    def __call__(self, parts: Sequence[Any]) -> Tensor:
        """The mean loss of these batches, before the step."""
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for batch in parts:
            # Processes exchange their gradients once a step, with those of the last batch.
            last = len(losses) + 1 == len(parts)
            with nullcontext() if self.fabric is None or last else self.fabric.no_backward_sync(self.model):
                with self._autocast():
                    value = scalar_loss(self.loss(self.model, batch))
                if len(parts) > 1:
                    value = value * (1 / len(parts))
                value.backward() if self.fabric is None else self.fabric.backward(value)
            losses.append(value.detach())
        if self.fill:
            for parameter in self._trained():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
        self._clip()
        self.wrapped_optimizer.step()
        return losses[0] if len(losses) == 1 else torch.stack(losses).sum()

    def _trained(self) -> list[Tensor]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _clip(self) -> None:
        if self.clip is not None and self.fabric is not None:
            norm = self.fabric.clip_gradients(
                self.model, self.wrapped_optimizer, max_norm=self.clip, error_if_nonfinite=False
            )
        elif self.clip is not None:
            norm = nn.utils.clip_grad_norm_(self._trained(), self.clip)
        elif self.norms:
            gradients = [parameter.grad for parameter in self._trained() if parameter.grad is not None]
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients]))
        else:
            return
        self.norm = whole(norm)

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.dtype is None:
            return nullcontext()
        # Casts of weights are not kept: a kept one would be that of the weights at the recording.
        return torch.autocast(self.device.type, dtype=self.dtype, cache_enabled=False)


@contextmanager
def _rates_of(optimizer: Optimizer, recorded_on: torch.device | None) -> Iterator[Callable[[float], None]]:
    """Sets the rates of all groups to a share of what they are now; afterwards they are that again."""
    full = [float(group["lr"]) for group in optimizer.param_groups]
    if recorded_on is not None:
        for group, rate in zip(optimizer.param_groups, full, strict=True):
            if group.get("capturable") is False:
                raise ParameterError("fit: capture=True needs an optimizer that was built with capturable=True.")
            group["lr"] = torch.tensor(rate, device=recorded_on)  # a number would be part of the recording

    def set_share(share: float) -> None:
        for group, rate in zip(optimizer.param_groups, full, strict=True):
            if recorded_on is not None:
                group["lr"].fill_(rate * share)
            else:
                group["lr"] = rate * share

    try:
        yield set_share
    finally:
        for group, rate in zip(optimizer.param_groups, full, strict=True):
            group["lr"] = rate


def _to(batch: Any, device: torch.device) -> Any:
    if isinstance(batch, tuple | list):
        return tuple(_to(value, device) for value in batch)
    if hasattr(batch, "to"):
        return batch.to(device)
    return {key: _to(value, device) for key, value in batch.items()} if isinstance(batch, Mapping) else batch
