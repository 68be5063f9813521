r"""How much entropy the numbers have that go into each activation of a model, and those that come out of it.

The EAFO paper judges an activation by the differential entropy -∫ q log q of what comes out. For ReLU and everything
else that is constant somewhere there is no density q, and that entropy is -infinity. Here it is taken at a resolution:
numbers are counted in cells of width w around 0, ±w, ±2w ..., and

    H_w = -sum_i p_i log(p_i / w)      nats

is the entropy of the density that is p_i / w in cell i. With a density and a small w it is the differential entropy;
a share a of exact zeros, whatever their density, adds about -a log(a / w). Every activation has a number so.

Differential entropy moves with the scale: log c for c times as much. `spread` is the standard deviation beside it, so
that output - log(spread) is what the shape alone has (1.419 for a normal distribution, which is the most there is).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import InputError, require_count, require_number
from ..surgery import sites
from ..surgery.modules import quietly, refuse_one_batch, run_all

# -- watching what goes into the activations of a model, and what comes out of them -------------------------


class Watcher(Protocol):
    """Gets the input of a module, before an inplace one overwrites it, and then its output."""

    def before(self, x: Tensor) -> None: ...

    def after(self, y: Tensor) -> None: ...


def watch(model: nn.Module, batches: Iterable[Any], watched: Mapping[nn.Module, Watcher]) -> int:
    """Run every batch in eval mode, each module watched by its watcher; returns how many batches there were."""
    with ExitStack() as stack:
        stack.enter_context(quietly(model, {module: watcher.before for module, watcher in watched.items()}))
        for module, watcher in watched.items():
            stack.callback(module.register_forward_hook(_output_hook(watcher.after)).remove)
        return run_all(model, batches)


def _output_hook(after: Callable[[Tensor], None]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            after(result.detach())

    return hook


# -- entropies ------------------------------------------------------------------------------------------

WIDTH = 2.0**-6  # finer than the steps that bfloat16 makes at 4, coarser than those at 1
SAMPLES = 2**20  # numbers of each batch: some thousand cells are filled with an error of about 0.001
_CELLS = 2**18  # to either side of 0; what lies beyond counts for the last one


@dataclass(frozen=True)
class SiteEntropy:
    """One activation: entropies in nats of what goes in and of what comes out, and the standard deviation of that."""

    path: str
    activation: str
    input: float
    output: float
    spread: float

    @property
    def shape(self) -> float:
        """The entropy of the outputs divided by their spread; -infinity where they are all one number."""
        return self.output - math.log(self.spread) if self.spread > 0 else -math.inf


def entropies(
    model: nn.Module, batches: Iterable[Any], *, width: float = WIDTH, samples: int = SAMPLES
) -> tuple[SiteEntropy, ...]:
    """The entropy before and after each activation module, in order of depth, in eval mode; the model stays as it is.

    batches: tensors, tuples whose first entry is the input, or dicts of keyword arguments.
    width:   of a cell, see above. A width of w cannot tell a density narrower than w from a single number.
    samples: how many numbers of each batch are counted, at random, at each activation.

    >>> import softknee as sk, torch
    >>> x = torch.rand(50_000, 1, generator=torch.Generator().manual_seed(0)) * 2 - 1
    >>> (site,) = sk.measure.entropies(torch.nn.Sequential(torch.nn.ReLU()), [x])
    >>> abs(site.input - 0.693) < 0.01                              # log 2: uniform on (-1, 1)
    True
    >>> site.output < site.input                                   # half of it is 0 now
    True

    Reference: Sun et al., "A Method on Searching Better Activation Functions", section 2.
    """
    refuse_one_batch(batches)
    require_number("entropies", "width", width)
    require_count("entropies", "samples", samples)
    watched: dict[nn.Module, _Watched] = {}
    for site in sites(model):
        module = site.place.old
        if isinstance(module, nn.Module):
            watched.setdefault(module, _Watched(site.path, site.activation, width, samples))
    if not watched:
        raise InputError(f"{type(model).__name__} has no activation module whose entropy could be measured.")
    watch(model, batches, watched)
    seen = tuple(entry.finished() for entry in watched.values() if entry.outputs.total)
    if not seen:
        raise InputError("No batch reached any activation, so that there is nothing to go by.")
    return seen


@dataclass
class _Counts:
    """How many numbers lie in each cell, their sum and the sum of their squares."""

    cells: Tensor | None = None
    total: int = 0
    sum: float = 0.0
    squares: float = 0.0

    def add(self, x: Tensor, width: float) -> None:
        places = (x / width).round().clamp(-_CELLS, _CELLS).long() + _CELLS
        counts = torch.bincount(places, minlength=2 * _CELLS + 1)
        self.cells = counts if self.cells is None else self.cells + counts
        self.total += x.numel()
        self.sum += float(x.sum())
        self.squares += float(x.square().sum())

    def entropy(self, width: float) -> float:
        assert self.cells is not None
        share = self.cells[self.cells > 0].double() / self.total
        return float(-(share * (share / width).log()).sum())

    @property
    def spread(self) -> float:
        return math.sqrt(max(0.0, self.squares / self.total - (self.sum / self.total) ** 2))


@dataclass
class _Watched:
    """The counts of one activation."""

    path: str
    activation: str
    width: float
    samples: int
    inputs: _Counts = field(default_factory=_Counts)
    outputs: _Counts = field(default_factory=_Counts)
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))

    def before(self, x: Tensor) -> None:
        # Counted before an inplace activation overwrites it.
        self._count(self.inputs, x)

    def after(self, y: Tensor) -> None:
        self._count(self.outputs, y)

    def _count(self, counts: _Counts, x: Tensor) -> None:
        flat = x.detach().flatten()
        if flat.numel() > self.samples:
            # Drawn on the CPU: the same places with and without a GPU.
            places = torch.randint(flat.numel(), (self.samples,), generator=self.generator)
            flat = flat[places.to(flat.device)]
        flat = flat.double()
        if not bool(flat.isfinite().all()):
            raise InputError(f"A number at {self.path!r} is NaN or infinite; check the batches and the model.")
        counts.add(flat, self.width)

    def finished(self) -> SiteEntropy:
        return SiteEntropy(
            path=self.path,
            activation=self.activation,
            input=self.inputs.entropy(self.width),
            output=self.outputs.entropy(self.width),
            spread=self.outputs.spread,
        )
