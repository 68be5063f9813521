"""The step of every replica by a module of its own, compiled and in bfloat16 where asked: for models that fill a GPU.

Running all replicas as one batched program (`together.Together`) pays where a model is small and the launching of
kernels is what takes the time. A large one is better off as it is: its own kernels, fused by torch.compile, and the
replicas beside one another on streams of their own inside one captured step. The modules hold views of the stacked
tensors, so that optimiser, states, knobs and everything else see no difference.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ParameterError
from .arguments import one_number, tensor_of
from .capture import compile_method
from .losses import Loss
from .stacked_modules import Draws, alone_modules_

# Autocast halves what these are given. A subclass may calculate with its weight before, and is left to autocast.
_MAPS = {nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d}
PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bfloat16": torch.bfloat16}


class Apart:
    """Losses and gradients of all replicas, each from a module that is a view of the stacked tensors.

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

    def __init__(
        self,
        *,
        template: nn.Module,
        tensors: dict[str, Tensor],
        names: Sequence[Sequence[str]],
        draws: Draws,
        loss: Loss,
        precision: str,
        compiled: bool,
    ) -> None:
        self.loss, self.dtype, self.draws = loss, read_precision(precision), draws
        self.device, self.compiled = draws.keys.device, compiled
        trained = [name for group in names for name in group]
        count = range(len(draws.keys))
        self.judged = [_viewing(template, tensors, index, draws).eval() for index in count]
        self.models = [_viewing(template, tensors, index, draws).train() for index in count]
        # Pairs of the half copies of weights and what they are copies of, for each replica.
        self.copies = [_in_half_(model, self.dtype) for model in self.models]
        self.leaves = [[dict(one.named_parameters())[name] for name in trained] for one in self.models]
        # Filled anew in each step, where the optimiser finds them.
        self.stacked = [[torch.zeros_like(tensors[name]) for name in group] for group in names]
        flat = [one for group in self.stacked for one in group]
        self.gradients = [[one[index] for one in flat] for index in range(len(self.models))]
        many = self.device.type == "cuda" and len(self.models) > 1
        self.streams = [torch.cuda.Stream(self.device) for _ in self.models] if many else []
        self._loss_of: Any = compile_method(self._plain_loss) if compiled else self._plain_loss

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
        """Of x and y [M, n, ...]: the losses [M], and the gradients [M, ...] by group."""
        cudnn = torch.backends.cudnn
        # All sizes stay the same, so that it pays to let cuDNN time its engines: its guess for small images is poor.
        held = cudnn.benchmark
        cudnn.benchmark = held or self.compiled
        try:
            return self._differentiate(x, y)
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
                found = torch.autograd.grad(loss, self.leaves[index], materialize_grads=True)
                with torch.no_grad():
                    torch._foreach_copy_(self.gradients[index], list(found))  # pyright: ignore[reportPrivateImportUsage]
                    losses[index].copy_(loss)
        for stream in self.streams:
            torch.cuda.current_stream(self.device).wait_stream(stream)
        return losses, self.stacked

    @torch.no_grad()
    def norms(self) -> Tensor:
        """The 2-norm of the whole gradient of each replica, [M]."""
        each = [torch.stack(torch._foreach_norm(one)) for one in self.gradients]  # pyright: ignore[reportPrivateImportUsage]
        return torch.linalg.vector_norm(torch.stack(each), dim=1)

    @torch.no_grad()
    def shorten(self, shares: Tensor) -> None:
        """Multiply the gradients of each replica by its share."""
        for index, one in enumerate(self.gradients):
            torch._foreach_mul_(one, shares[index])  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """The outputs of every replica of the same x, [M, n, ...], in float32 and eval mode."""
        found = []
        for model in self.judged:
            self.draws.passed.clear()  # each replica draws for its first pass, as in training
            found.append(tensor_of(model(x)))
        return torch.stack(found)

    def _plain_loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        if self.dtype is None:
            output = tensor_of(model(x))
        else:
            with torch.autocast(x.device.type, dtype=self.dtype, cache_enabled=False):
                output = tensor_of(model(x))
        return one_number(self.loss(output.float(), y))

    def _stream(self, index: int) -> AbstractContextManager[Any]:
        self.draws.passed.clear()
        if not self.streams:
            return nullcontext()
        self.streams[index].wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self.streams[index])


def read_precision(given: str) -> torch.dtype | None:
    """The type that autocast works in; None for none."""
    if given not in PRECISIONS:
        raise ParameterError(f"precision must be {' or '.join(map(repr, PRECISIONS))}, and {given!r} was given.")
    return PRECISIONS[given]


def _viewing(template: nn.Module, tensors: dict[str, Tensor], index: int, draws: Draws) -> nn.Module:
    """A copy of the template whose parameters and buffers are the replica's part of the stacked tensors."""
    made = copy.deepcopy(template)
    names = {id(one): name for name, one in (*made.named_parameters(), *made.named_buffers())}
    new: dict[str, Any] = {}
    for name, one in (*made.named_parameters(), *made.named_buffers()):
        view = tensors[name][index].detach()
        new[name] = nn.Parameter(view, requires_grad=one.requires_grad) if isinstance(one, nn.Parameter) else view
    for module in made.modules():  # a shared one has one name, and stays shared
        for held in (module._parameters, module._buffers):
            held.update({key: new[names[id(one)]] for key, one in held.items() if one is not None})
    alone_modules_(made, Draws(draws.keys[index : index + 1], draws.step, draws.passed))
    return made


def _in_half_(model: nn.Module, dtype: torch.dtype | None) -> tuple[list[Tensor], list[Tensor]]:
    """Give linear maps and convolutions half copies of their parameters; the copies, and what they are copies of.

    Autocast would make each of these copies by a kernel of its own, and as many more for the gradients on their way
    back; together it takes one. The numbers are the same.
    """
    halves: dict[int, tuple[nn.Parameter, Tensor]] = {}
    if dtype is None:
        return [], []
    # A weight that is also an embedding's has one gradient, and stays whole.
    others = [each for each in model.modules() if type(each) not in _MAPS]
    elsewhere = {id(one) for each in others for one in each._parameters.values()}
    for module in model.modules():
        if type(module) in _MAPS:
            for name, one in module._parameters.items():
                if one is not None and one.dtype == torch.float32 and id(one) not in elsewhere:
                    if id(one) not in halves:
                        halves[id(one)] = nn.Parameter(one.detach().to(dtype), requires_grad=one.requires_grad), one
                    module._parameters[name] = halves[id(one)][0]
    return [half.detach() for half, _ in halves.values()], [one.detach() for _, one in halves.values()]
