"""A training step of all replicas: losses and gradients, as one batched program or model by model, and the update."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..errors import InputError, first_line, require_choice
from .arguments import scalar_loss, tensor_of
from .augment import Augment
from .capture import captured, compile_method
from .chain import chain_of
from .losses import Loss
from .optimizers import StackedOptimizer
from .stacked_modules import Draws, alone_modules_
from .streamed import Feed


@dataclass(kw_only=True, eq=False)
class BatchedGradients:
    """Losses and gradients of all replicas, from one call of the model under vmap.

    Args:
        skeleton: a model whose tensors are replaced by the stacked ones in every call.
        names: of the trained parameters, by group of the optimiser.
        tensors: all parameters and buffers, stacked.
        loss: of outputs and targets [M, n, ...].
    """

    skeleton: nn.Module
    names: Sequence[Sequence[str]]
    tensors: dict[str, Tensor]
    draws: Draws
    loss: Loss

    def __post_init__(self) -> None:
        # Leaves that share their memory with the stacked tensors: differentiated, and moved underneath.
        self.leaves = {name: self.tensors[name].detach().requires_grad_() for group in self.names for name in group}
        self.inputs = {**self.tensors, **self.leaves}
        self.chain = chain_of(self.skeleton, self.inputs) if self.draws.keys.device.type == "cpu" else None
        self._gradients: list[list[Tensor]] = []
        self.made: Tensor | None = None  # the outputs of the last batch, [M, n, ...]

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
        """Of x and y [M, n, ...]: the losses [M], and the gradients [M, ...] by group."""
        made = outputs(self.skeleton, self.inputs, x, draws=self.draws, chain=self.chain)
        self.made = made.detach()
        losses = losses_of(self.loss, made, y)
        each = iter(torch.autograd.grad(losses.sum(), list(self.leaves.values()), materialize_grads=True))
        self._gradients = [[next(each) for _ in group] for group in self.names]
        return losses.detach(), self._gradients

    def norms(self) -> Tensor:
        """The 2-norm of the whole gradient of each replica, [M]."""
        return norms([gradient for group in self._gradients for gradient in group])

    def shorten(self, shares: Tensor) -> None:
        """Multiply the gradients of each replica by its share."""
        for group in self._gradients:
            group[:] = [gradient * shares.view(-1, *[1] * (gradient.dim() - 1)) for gradient in group]


def norms(tensors: Sequence[Tensor]) -> Tensor:
    """The 2-norm over all tensors for each replica, [M]."""
    each = torch.stack([torch.linalg.vector_norm(tensor.reshape(len(tensor), -1), dim=1) for tensor in tensors])
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

    def forward(own: dict[str, Tensor], input: Tensor) -> Tensor:
        return functional_call(skeleton, own, (input,))

    try:
        output = chain(x) if chain is not None else vmap(forward, in_dims=(0, None if shared else 0))(tensors, x)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        hint = (
            "it draws random numbers outside of nn.Dropout, which could not be keyed by replica; use modules"
            if "randomness" in str(error)
            else "use modules that torch.func.vmap can run, or train these models one by one (sk.train.OneByOne; in a "
            "recipe `engine: loop` under `training`)"
        )
        raise InputError(
            f"{type(skeleton).__name__} could not be run for all replicas at once: {hint}. (torch says: "
            f"{first_line(error)})"
        ) from error
    if not isinstance(output, Tensor):
        raise InputError(f"The model must return one tensor, and it returned a {type(output).__name__}.")
    return output


def losses_of(loss: Loss, output: Tensor, target: Tensor) -> Tensor:
    """The loss of every replica, [M], of outputs and targets [M, n, ...]; refused where one is not a number."""
    losses = loss(output, target)
    if losses.shape != (len(output),):
        raise InputError(
            f"The loss must be one number for each replica, and it has shape {tuple(losses.shape[1:])}; take its mean "
            "over the examples."
        )
    return losses


# Autocast halves what these are given. A subclass may calculate with its weight before, and is left to autocast.
_MAPS = {nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d}
PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bfloat16": torch.bfloat16}


@dataclass(kw_only=True, eq=False)
class SeparateGradients:
    """Losses and gradients of all replicas, each from a module that is a view of the stacked tensors.

    A large model is better off this way than in one batched program: its own kernels, fused by torch.compile, and the
    replicas beside one another on streams of their own inside one captured step. Optimiser, states and knobs see no
    difference.

    Args:
        template: a model; its copies get the tensors.
        tensors: all parameters and buffers by name, [M, ...].
        names: of the trained parameters, by group of the optimiser.
        loss: of one replica's output and target.
        precision: "bfloat16" runs the model under torch's autocast: weights, their gradients and what the optimiser
            keeps stay in float32.
        compiled: through torch.compile. Otherwise the modules are called as they are, with the same numbers to
            rounding.
    """

    template: nn.Module
    tensors: dict[str, Tensor]
    names: Sequence[Sequence[str]]
    draws: Draws
    loss: Loss
    precision: str
    compiled: bool

    def __post_init__(self) -> None:
        draws, tensors, count = self.draws, self.tensors, range(len(self.draws.keys))
        self.dtype, self.device = read_precision(self.precision), draws.keys.device
        self.judged = [_viewing(self.template, tensors, index, draws).eval() for index in count]
        self.models = [_viewing(self.template, tensors, index, draws).train() for index in count]
        # Pairs of the half copies of weights and what they are copies of, for each replica.
        self.copies = [_in_half_(model, self.dtype) for model in self.models]
        trained = [name for group in self.names for name in group]
        self.leaves = [[dict(model.named_parameters())[name] for name in trained] for model in self.models]
        # Filled anew in each step, where the optimiser finds them.
        self.stacked = [[torch.zeros_like(tensors[name]) for name in group] for group in self.names]
        flat = [gradient for group in self.stacked for gradient in group]
        self.gradients = [[gradient[index] for gradient in flat] for index in count]
        many = self.device.type == "cuda" and len(self.models) > 1
        self.streams = [torch.cuda.Stream(self.device) for _ in self.models] if many else []
        self._loss_of: Any = compile_method(self._plain_loss) if self.compiled else self._plain_loss

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
        """Of x and y [M, n, ...]: the losses [M], and the gradients [M, ...] by group."""
        cudnn = torch.backends.cudnn
        # All sizes stay the same, so that it pays to let cuDNN time its engines: its guess for small images is poor.
        held = cudnn.benchmark
        cudnn.benchmark = held or self.compiled
        try:
            return self._differentiate(x, y)
        except RuntimeError as error:
            # By its name, since torch._dynamo takes a second to import.
            if not any(kind.__name__ == "TorchDynamoException" for kind in type(error).__mro__):
                raise
            reason = getattr(error, "inner_exception", error)
            raise InputError(
                f"torch.compile could not compile {type(self.template).__name__}: train without it (compiled=False; in "
                "a recipe `engine: replicas` or `engine: loop` under `training`), or with another torch. (torch says: "
                f"{first_line(reason)})"
            ) from error
        finally:
            cudnn.benchmark = held

    def _differentiate(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
        losses = torch.empty(len(self.models), device=self.device)
        for index in range(len(self.models)):
            with self._stream(index):
                halves, whole = self.copies[index]
                if halves:
                    with torch.no_grad():
                        torch._foreach_copy_(halves, whole)  # pyright: ignore[reportPrivateImportUsage]
                loss = self._loss_of(self.models[index], x[index], y[index])
                gradients = torch.autograd.grad(loss, self.leaves[index], materialize_grads=True)
                with torch.no_grad():
                    torch._foreach_copy_(self.gradients[index], list(gradients))  # pyright: ignore[reportPrivateImportUsage]
                    losses[index].copy_(loss)
        for stream in self.streams:
            torch.cuda.current_stream(self.device).wait_stream(stream)
        return losses, self.stacked

    @torch.no_grad()
    def norms(self) -> Tensor:
        """The 2-norm of the whole gradient of each replica, [M]."""
        each = [torch.stack(torch._foreach_norm(gradients)) for gradients in self.gradients]  # pyright: ignore[reportPrivateImportUsage]
        return torch.linalg.vector_norm(torch.stack(each), dim=1)

    @torch.no_grad()
    def shorten(self, shares: Tensor) -> None:
        """Multiply the gradients of each replica by its share."""
        for index, gradients in enumerate(self.gradients):
            torch._foreach_mul_(gradients, shares[index])  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """The outputs of every replica of the same x, [M, n, ...], in float32 and eval mode."""
        predictions = []
        for model in self.judged:
            self.draws.passed.clear()  # each replica draws for its first pass, as in training
            predictions.append(tensor_of(model(x)))
        return torch.stack(predictions)

    def _plain_loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if self.dtype is None:
            output = tensor_of(model(x))
        else:
            with torch.autocast(x.device.type, dtype=self.dtype, cache_enabled=False):
                output = tensor_of(model(x))
        return scalar_loss(self.loss(output.float(), y))

    def _stream(self, index: int) -> AbstractContextManager[Any]:
        self.draws.passed.clear()
        if not self.streams:
            return nullcontext()
        self.streams[index].wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.streams[index])


def read_precision(given: str) -> torch.dtype | None:
    """The type that autocast works in; None without autocast."""
    require_choice("fit", "precision", given, PRECISIONS)
    return PRECISIONS[given]


def _viewing(template: nn.Module, tensors: dict[str, Tensor], index: int, draws: Draws) -> nn.Module:
    """A copy of the template whose parameters and buffers are the replica's part of the stacked tensors."""
    made = copy.deepcopy(template)
    names = {id(tensor): name for name, tensor in (*made.named_parameters(), *made.named_buffers())}
    new: dict[str, Any] = {}
    for name, tensor in (*made.named_parameters(), *made.named_buffers()):
        view = tensors[name][index].detach()
        new[name] = nn.Parameter(view, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else view
    for module in made.modules():  # a shared one has one name, and stays shared
        for held in (module._parameters, module._buffers):
            held.update({key: new[names[id(tensor)]] for key, tensor in held.items() if tensor is not None})
    alone_modules_(made, Draws(draws.keys[index : index + 1], draws.step, draws.passed))
    return made


def _in_half_(model: nn.Module, dtype: torch.dtype | None) -> tuple[list[Tensor], list[Tensor]]:
    """Give linear maps and convolutions half copies of their parameters; the copies, and what they are copies of.

    Autocast would make each of these copies by a kernel of its own, and as many more for the gradients on their way
    back; one kernel copies them all here. The numbers are the same.
    """
    halves: dict[int, tuple[nn.Parameter, Tensor]] = {}
    if dtype is None:
        return [], []
    # A weight that is also an embedding's has one gradient, and stays whole.
    others = [each for each in model.modules() if type(each) not in _MAPS]
    elsewhere = {id(parameter) for each in others for parameter in each._parameters.values()}
    for module in model.modules():
        if type(module) in _MAPS:
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.dtype == torch.float32 and id(parameter) not in elsewhere:
                    if id(parameter) not in halves:
                        half = nn.Parameter(parameter.detach().to(dtype), requires_grad=parameter.requires_grad)
                        halves[id(parameter)] = half, parameter
                    module._parameters[name] = halves[id(parameter)][0]
    return [half.detach() for half, _ in halves.values()], [weight.detach() for _, weight in halves.values()]


@dataclass(kw_only=True, eq=False)
class Program:
    """Gathers a batch for each replica, takes the gradients of their losses, and moves the parameters.

    Args:
        differentiate: the losses and gradients of all replicas for a batch.
        tensors: all parameters and buffers, stacked.
        x, y: the examples, on the device; or in the place of x what brings each batch of them there.
        order: [M or 1, n], rewritten at the start of each epoch.
        rates: the rate of every step of this training, [steps] or [steps, M].
        log: [steps of an epoch, 1 or 2, M]: the losses, and the gradient norms where there is room for them.
        targets: what the loss is given in the place of the targets, from inputs and targets of a batch.
        compiled: gather and augment in a few fused kernels instead of one for each operation.
        predictions: [M, n, ...], where the outputs of each step are kept, in the order of the steps; None keeps none.
    """

    differentiate: BatchedGradients | SeparateGradients
    tensors: dict[str, Tensor]
    draws: Draws
    x: Tensor | Feed
    y: Tensor
    order: Tensor
    rates: Tensor
    log: Tensor
    batch: int
    optimizer: StackedOptimizer
    clip: float | None
    augment: Augment | None = None
    targets: Callable[[Tensor, Tensor], Tensor] | None = None
    compiled: bool = False
    predictions: Tensor | None = None

    def __post_init__(self) -> None:
        self.device, self.count = self.y.device, self.log.shape[-1]
        self.row = torch.zeros(1, dtype=torch.int64, device=self.device)  # of the rates
        self.turn = torch.zeros(1, dtype=torch.int64, device=self.device)  # within the epoch
        self._steps: dict[int, Callable[[], None]] = {}
        self._batch: Any = self._gather
        if self.compiled:
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
        if self.targets is not None:
            with torch.no_grad():
                y = self.targets(x, y)
        losses, gradients = self.differentiate(x, y)
        with torch.no_grad():
            if self.predictions is not None and isinstance(self.differentiate, BatchedGradients):
                assert self.differentiate.made is not None
                self.predictions.index_copy_(1, self._places(size), self.differentiate.made)
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
        """The places of the next batch within the epoch."""
        return self.turn * self.batch + torch.arange(size, device=self.device)

    def _chosen(self, data: Tensor, chosen: Tensor) -> Tensor:
        return self._for_each(data.index_select(0, chosen.flatten()).view(*chosen.shape, *data.shape[1:]))

    def _for_each(self, values: Tensor) -> Tensor:
        """[M or 1, ...] for every replica."""
        return values.expand(self.count, *values.shape[1:])
