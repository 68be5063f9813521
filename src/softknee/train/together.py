"""The step of all replicas as one batched program: every tensor has the replicas as its first dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from ..errors import InputError
from .chain import chain_of
from .losses import Loss
from .stacked_modules import Draws


class Together:
    """Losses and gradients of all replicas, from one call of the model under vmap.

    Args:
        skeleton: a model whose tensors are replaced by the stacked ones in every call.
        names: of the trained parameters, by group of the optimiser.
        tensors: all parameters and buffers, stacked.
        loss: of outputs and targets [M, n, ...].
    """

    def __init__(
        self,
        *,
        skeleton: nn.Module,
        names: Sequence[Sequence[str]],
        tensors: dict[str, Tensor],
        draws: Draws,
        loss: Loss,
    ) -> None:
        self.skeleton, self.names, self.draws, self.loss = skeleton, names, draws, loss
        # Leaves that share their memory with the stacked tensors: differentiated, and moved underneath.
        self.leaves = {name: tensors[name].detach().requires_grad_() for group in names for name in group}
        self.inputs = {**tensors, **self.leaves}
        self.chain = chain_of(skeleton, self.inputs) if draws.keys.device.type == "cpu" else None
        self._found: list[list[Tensor]] = []
        self.made: Tensor | None = None  # the outputs of the last batch, [M, n, ...]

    def __call__(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[list[Tensor]]]:
        """Of x and y [M, n, ...]: the losses [M], and the gradients [M, ...] by group."""
        made = outputs(self.skeleton, self.inputs, x, draws=self.draws, chain=self.chain)
        self.made = made.detach()
        losses = self.loss(made, y)
        if losses.shape != (len(self.draws.keys),):
            raise InputError(
                f"The loss must be one number for each replica, and it has shape {tuple(losses.shape[1:])}; take its "
                "mean over the examples."
            )
        each = iter(torch.autograd.grad(losses.sum(), list(self.leaves.values()), materialize_grads=True))
        self._found = [[next(each) for _ in group] for group in self.names]
        return losses.detach(), self._found

    def norms(self) -> Tensor:
        """The 2-norm of the whole gradient of each replica, [M]."""
        return norms([one for group in self._found for one in group])

    def shorten(self, shares: Tensor) -> None:
        """Multiply the gradients of each replica by its share."""
        for group in self._found:
            group[:] = [one * shares.view(-1, *[1] * (one.dim() - 1)) for one in group]


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

    def forward(own: dict[str, Tensor], input: Tensor) -> Tensor:
        return functional_call(skeleton, own, (input,))

    try:
        output = chain(x) if chain is not None else vmap(forward, in_dims=(0, None if shared else 0))(tensors, x)
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        line = (str(error).strip().splitlines() or ["no message"])[0]
        hint = (
            "it draws random numbers outside of nn.Dropout, which could not be keyed by replica; use modules"
            if "randomness" in str(error)
            else "use modules that torch.func.vmap can run, or train these models one by one (sk.train.OneByOne; in a "
            "recipe `engine: loop` under `training`)"
        )
        raise InputError(
            f"{type(skeleton).__name__} could not be run for all replicas at once: {hint}. (torch says: {line})"
        ) from error
    if not isinstance(output, Tensor):
        raise InputError(f"The model must return one tensor, and it returned a {type(output).__name__}.")
    return output
