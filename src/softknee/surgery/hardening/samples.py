"""A bounded random sample of what reaches each activation, taken while batches go through the model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError, ParameterError
from .sites import HardeningSite, unwrapped

Batches = Iterable[Any] | Callable[[], Iterable[Any]]
SIZE = 65536  # numbers per activation: an expected error is then good to about half a percent
_BLOCK = 1 << 20  # elements looked at together, so that a huge input needs no huge table of random keys


@dataclass(frozen=True)
class Sample:
    """Pre-activations in float64, and for each the place of its parameters in the module."""

    x: Tensor
    row: Tensor

    def at(self, value: Tensor) -> Tensor:
        """A parameter's value for each x."""
        flat = value.flatten()
        return flat if flat.numel() == 1 else flat[self.row]


class Reservoir:
    """Keeps the elements with the smallest random keys: a uniform sample of everything that has gone by."""

    def __init__(self, site: HardeningSite, size: int, generator: torch.Generator) -> None:
        self.site, self.size, self.generator = site, size, generator
        self.x = torch.empty(0, dtype=torch.float64)
        self.row = torch.empty(0, dtype=torch.int64)
        self.keys = torch.empty(0, dtype=torch.float64)

    def take(self, _: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A forward pre-hook."""
        x = (args[0] if args else kwargs["input"]).detach()
        flat = x.reshape(-1)
        for first in range(0, flat.numel(), _BLOCK):
            block = flat[first : first + _BLOCK]
            keys = torch.rand(block.numel(), generator=self.generator, dtype=torch.float64)
            if len(self.keys) == self.size:
                place = (keys < self.keys.max()).nonzero().squeeze(1)
            else:
                place = torch.arange(block.numel())
            if len(place) > self.size:
                place = place[keys[place].argsort()[: self.size]]
            new = block[place.to(block.device)].double().cpu()
            keep = new.isfinite()
            self._keep(new[keep], self._rows(x, first + place)[keep], keys[place][keep])

    def _keep(self, x: Tensor, row: Tensor, keys: Tensor) -> None:
        x, row, keys = torch.cat([self.x, x]), torch.cat([self.row, row]), torch.cat([self.keys, keys])
        kept = keys.argsort()[: self.size]
        self.x, self.row, self.keys = x[kept], row[kept], keys[kept]

    def _rows(self, x: Tensor, place: Tensor) -> Tensor:
        """Which of the module's parameters the elements at these places meet."""
        granularity = self.site.module.granularity
        if granularity.count == 1:
            return torch.zeros_like(place)
        if granularity.per == "neuron":
            return place % granularity.count
        dim = granularity.dim if granularity.dim >= 0 else x.dim() + granularity.dim
        behind = x.shape[dim + 1 :].numel()
        return place // behind % granularity.count

    def sample(self) -> Sample:
        if not len(self.x):
            raise ParameterError(
                f"Hardener: no finite number reached the activation at {self.site.path!r} in the batches given; pass "
                f"batches that go through it, or give its target (target=...)."
            )
        return Sample(self.x, self.row)


def samples(
    model: nn.Module, sites: Sequence[HardeningSite], batches: Batches, *, size: int = SIZE, seed: int = 0
) -> dict[str, Sample]:
    """A sample for each site. The model runs in eval mode without gradients and is left as it was."""
    model = unwrapped(model)  # each process for itself: a wrapper would wait for the others
    kept = {site.path: Reservoir(site, size, torch.Generator().manual_seed(seed)) for site in sites}
    count = 0
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        # A loader that shuffles draws from the global generator; the training goes on as if nobody had looked.
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.enter_context(_evaluating(model))
        if "torch._dynamo" in sys.modules:
            # A compiled graph does not see hooks that came after it. Where nothing was compiled, nothing is loaded.
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        for site in sites:
            handle = site.module.register_forward_pre_hook(kept[site.path].take, with_kwargs=True)
            stack.callback(handle.remove)
        for batch in batches() if callable(batches) else batches:
            _forward(model, batch, number=count)
            count += 1
    if not count:
        raise ParameterError("Hardener: data has no batch; pass a loader or a list with at least one.")
    return {path: one.sample() for path, one in kept.items()}


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def refuse_no_batches(data: Any) -> None:
    """Refuse what is one batch, or nothing to iterate over: else it would be said after a quarter of the training."""
    if isinstance(data, Tensor | Mapping | str) or not (callable(data) or isinstance(data, Iterable)):
        one = "one " if isinstance(data, Tensor | Mapping) else ""
        raise ParameterError(
            f"Hardener: data must be batches (a loader or a list of them) or a function that gives them, and "
            f"{one}{type(data).__name__} was given; put a single batch in a list."
        )


def _forward(model: nn.Module, batch: Any, *, number: int) -> None:
    """A mapping goes in by keywords; of a pair (inputs, labels) the inputs; on the model's device."""
    device = next((one.device for one in model.parameters()), torch.device("cpu"))
    given = batch[0] if isinstance(batch, list | tuple) and batch else batch
    if not isinstance(given, Tensor | Mapping):
        raise InputError(
            f"Hardener: a batch must be a tensor, a pair whose first is one, or a mapping of keywords, and "
            f"{type(batch).__name__} was given."
        )
    try:
        if isinstance(given, Tensor):
            model(given.to(device))
        else:
            model(**{name: one.to(device) if isinstance(one, Tensor) else one for name, one in given.items()})
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise InputError(
            f"Hardener: batch {number} of data does not fit {type(model).__name__}: {reason}. The knobs are as they "
            f"were."
        ) from error
