"""The models of a loop: built from seeds, spread over processes where asked, read and written as whole tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from ..errors import InputError, ParameterError
from ..surgery.groups import split
from ..surgery.modules import activation_modules
from . import parallel
from .stacking import Knobs, apply_knobs, build_model, check_knobs, fitting, named_tensors

# -- batch norm over a batch that lies in several processes -----------------------------------------------
#
# The mean and variance are those of all examples.
#
#     mean = (sum over processes of the sum of x) / n,   variance = (sum over processes of the sum of (x - mean)^2) / n
#
# torch's SyncBatchNorm does the same on GPUs alone; this does it with any backend, and a process that only goes along
# (its part of the batch is empty) counts for nothing.


@dataclass
class Counted:
    """How many examples of the part that is run count; None outside of training."""

    examples: int | None = None


class _SyncedNorm:
    """In training, over all processes; else as it was."""

    def forward(self, input: Tensor) -> Tensor:
        own: Any = self
        counted = own.counted.examples
        if not own.training or counted is None:
            return super().forward(input)  # pyright: ignore[reportAttributeAccessIssue]
        own._check_input_dim(input)
        dims = [dim for dim in range(input.dim()) if dim != 1]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        real = float(counted > 0)
        places = input.numel() // input.shape[1] * real
        count = parallel.total(torch.tensor(places, dtype=torch.float64, device=input.device)).to(input.dtype)
        mean = parallel.summed(input.sum(dims) * real) / count
        centred = input - mean.view(shape)
        variance = parallel.summed(centred.square().sum(dims) * real) / count
        if own.running_mean is not None:
            self._follow(mean.detach(), variance.detach() * count / (count - 1).clamp(min=1))
        found = centred * torch.rsqrt(variance + own.eps).view(shape)
        return found * own.weight.view(shape) + own.bias.view(shape) if own.affine else found

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor) -> None:
        own: Any = self
        own.num_batches_tracked.add_(1)
        share = 1 / float(own.num_batches_tracked) if own.momentum is None else own.momentum
        own.running_mean.lerp_(mean, share)
        own.running_var.lerp_(variance, share)


def sync_norms_(model: nn.Module, counted: Counted) -> None:
    """Make the batch norms of a model take the statistics of the whole batch while `counted` says how much counts."""
    for path, module in model.named_modules():
        kind = type(module)
        if isinstance(module, _BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            if kind.forward is not _BatchNorm.forward:
                raise InputError(
                    f"{path!r} is a {kind.__name__}, a batch norm with a forward of its own, which would see a part of "
                    "each batch alone; make it an nn.SyncBatchNorm, or train with strategy='none'."
                )
            own: Any = module
            own.__class__ = type(f"Synced{kind.__name__}", (_SyncedNorm, kind), {})
            own.counted = counted


# -- the models of a loop ---------------------------------------------------------------------------------
#
# Built from seeds, spread over processes where asked, read and written as whole tensors.


class LoopModels:
    """`bare` are the models by their own names; `called` is what is called in training (the same, or in DDP)."""

    def __init__(
        self,
        make_model: Callable[..., nn.Module],
        *,
        seeds: Sequence[int],
        knobs: Knobs,
        device: torch.device,
        strategy: str,
    ) -> None:
        self.make_model, self.seeds, self.device = make_model, seeds, device
        self.frozen: frozenset[str] = frozenset()
        values = check_knobs(knobs, len(seeds))
        # Never trained: its activations are lent the tensors of each model in turn, to read and set what they mean.
        self._blank = build_model(make_model, seeds[0])
        _refuse_unbuilt(self._blank)
        split(self._blank)  # refuses a model without anything to train
        self._counted = Counted()
        self.bare: list[nn.Module] = []
        for index, seed in enumerate(seeds):
            made = build_model(make_model, seed)
            self._refuse_another(made, index)
            if seed == seeds[0]:
                _copy_tensors(self._blank, made)  # whatever else make_model draws from, a shared start is shared
            apply_knobs(made, {name: each[index] for name, each in values.items()})
            made = made.to(device)
            if strategy != "none":
                sync_norms_(made, self._counted)
            parallel.spread(made, strategy)
            self.bare.append(made)
        self.called = list(self.bare)
        self._averages = strategy != "ddp"  # FSDP2 does so by itself

    def copy(self, index: int) -> nn.Module:
        """An ordinary model with the tensors of one of them."""
        made = build_model(self.make_model, self.seeds[index])
        with torch.no_grad():
            own = named_tensors(made)
            for name, one in self._whole(index).items():
                own[name].copy_(one)
        return made.to(self.device)

    def stacked(self) -> dict[str, Tensor]:
        """All parameters and buffers by name, [M, ...]."""
        each = [self._whole(index) for index in range(len(self.bare))]
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def shapes(self) -> dict[str, Tensor]:
        """What `stacked` gives, without the values."""
        count = len(self.bare)
        return {
            name: torch.empty((count, *one.shape), dtype=one.dtype, device="meta")
            for name, one in named_tensors(self._blank).items()
        }

    @torch.no_grad()
    def load(self, stacked: Mapping[str, Tensor]) -> None:
        """The values of `stacked`, or of some of its names, copied into the models."""
        for index, model in enumerate(self.bare):
            own = named_tensors(model)
            for name, each in stacked.items():
                parallel.copy_whole_(own[name], each[index])

    def knobs(self) -> dict[str, Tensor]:
        """The effective parameters of every activation by "path.name", [M, ...], on the CPU."""
        found: dict[str, list[Tensor]] = {}

        def look(index: int, work: nn.Module) -> None:
            for path, module in activation_modules(work).items():
                for p in module.params:
                    key = f"{path}.{p.name}" if path else p.name
                    found.setdefault(key, []).append(module.effective(p).detach().clone())

        self._each_activation(look)
        return {key: torch.stack(each) for key, each in found.items()}

    def set_knobs(self, knobs: Knobs) -> None:
        """New effective values in every model; nothing is changed where one value is refused."""
        values = check_knobs(knobs, len(self.bare))
        self.load(
            self._each_activation(lambda i, work: apply_knobs(work, {name: each[i] for name, each in values.items()}))
        )

    def freeze(self, knobs: str | Iterable[str] | None) -> None:
        """Leave the tensors behind these activation parameters out of the training from now on."""
        names = {id(one): name for name, one in self._blank.named_parameters()}
        parts = split(self._blank)
        wanted = {names[id(one)] for one in parts["activations"]}
        if knobs is not None:
            asked: set[str] = set()
            for key in [knobs] if isinstance(knobs, str) else knobs:
                for path, module in fitting(activation_modules(self._blank), key).items():
                    stored = next(module._raw_name(p) for p in module.params if p.name == key.rpartition(".")[2])
                    asked.add(f"{path}.{stored}" if path else stored)
            wanted &= asked  # a fixed one is not moved by the optimiser anyway
        frozen = self.frozen | wanted
        if len(frozen) == sum(len(part) for part in parts.values()):
            raise ParameterError("freeze_knobs: nothing would be left to train, for the model has no other parameter.")
        self.frozen = frozen

    def average_gradients(self, loss_of: Callable[[nn.Module], Tensor]) -> None:
        """Put the models into DDP, once; `loss_of` shows which parameters have a part in the loss."""
        if self._averages:
            return
        first = self.bare[0]
        held = [one.clone() for one in first.buffers()]
        trained = [one for one in first.parameters() if one.requires_grad]
        found = torch.autograd.grad(loss_of(first), trained, allow_unused=True)
        with torch.no_grad():
            for one, value in zip(first.buffers(), held, strict=True):
                one.copy_(value)  # it was no step
        unused = any(one is None for one in found)
        self.called = [parallel.averaging(model, leaves_out_some=unused) for model in self.bare]
        self._averages = True

    @contextmanager
    def counting(self, examples: int) -> Iterator[None]:
        """While the models run on a part of a batch: how many examples of it count."""
        self._counted.examples = examples
        try:
            yield
        finally:
            self._counted.examples = None

    def _whole(self, index: int) -> dict[str, Tensor]:
        return {name: parallel.whole(one) for name, one in named_tensors(self.bare[index]).items()}

    @torch.no_grad()
    def _each_activation(self, do: Callable[[int, nn.Module], None]) -> dict[str, Tensor]:
        """Call `do` on a model that has the activation tensors of each one in turn; those tensors afterwards."""
        work = named_tensors(self._blank)
        prefixes = tuple(f"{path}." if path else "" for path in activation_modules(self._blank))
        names = [name for name in work if name.startswith(prefixes)]
        found: dict[str, list[Tensor]] = {name: [] for name in names}
        for index, model in enumerate(self.bare):
            own = named_tensors(model)
            for name in names:
                work[name].copy_(parallel.whole(own[name]))
            do(index, self._blank)
            for name in names:
                found[name].append(work[name].clone())
        return {name: torch.stack(each) for name, each in found.items()}

    def _refuse_another(self, made: nn.Module, index: int) -> None:
        first, second = (
            {name: (tuple(one.shape), str(one.dtype)) for name, one in named_tensors(model).items()}
            for model in (self._blank, made)
        )
        if first != second:
            differs = next((key for key in (*first, *second) if first.get(key) != second.get(key)), "the order")
            raise InputError(
                f"make_model returned another architecture for model {index} than for model 0 (they differ in "
                f"{differs!r}); models of one loop differ in their numbers only. Train others in a loop of their own."
            )
        same = all(torch.equal(a, b) for a, b in zip(self._blank.parameters(), made.parameters(), strict=True))
        if self.seeds[index] != self.seeds[0] and same:
            raise ParameterError(
                "make_model returned the same weights for two seeds: it must draw them from torch's global generator, "
                "or take an argument called seed. Pass share_init=True if all models shall start alike."
            )


def _refuse_unbuilt(model: nn.Module) -> None:
    for name, one in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(one) or one.device.type == "meta":
            raise InputError(f"{name!r} has no values yet; run the model once inside make_model, or build it whole.")


@torch.no_grad()
def _copy_tensors(source: nn.Module, target: nn.Module) -> None:
    values = named_tensors(source)
    for name, one in named_tensors(target).items():
        one.copy_(values[name])
