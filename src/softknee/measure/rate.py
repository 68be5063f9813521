r"""How many bits the SQUAF activations of a model take on data, and how much of the data their grids do not reach.

    rate      r = -sum_i p_i log2 p_i,  p = mean_l P(.|x[l])      bits per activation of a layer
              R = sum_t N_t r_t / sum_t N_t                        of the network, N_t the elements of layer t
    outside   share of pre-activations with |x| > k q + q/2, where SQUAF is all but constant and has no slope

Reference: Soft quantization activation functions, equation 12. The rate is that of SQUAF-P, which sends point i with
the probability P(y_i|x); it is the same number whichever form of SQUAF the layer computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..nn import SQUAF
from ..nn.rate import Observed, last_observed, marginal_of
from ..surgery.modules import quietly, refuse_one_batch, run_all, unwrapped


@dataclass(frozen=True)
class SiteRate:
    """One SQUAF layer.

    elements: how many activations were seen.
    bits:     its rate, bits per activation.
    marginal: how often each point of the grid is taken.
    outside:  the share of pre-activations beyond the grid; None where a RatePenalty watched, which does not count them.
    """

    path: str
    elements: int
    bits: float
    marginal: tuple[float, ...]
    outside: float | None


@dataclass(frozen=True)
class Rate:
    """The SQUAF layers of a model in order of their names in it; `unreached` are those that no batch came to."""

    sites: tuple[SiteRate, ...]
    unreached: tuple[str, ...] = ()

    @property
    def elements(self) -> int:
        """Activations of all layers together."""
        return sum(site.elements for site in self.sites)

    @property
    def bits(self) -> float:
        """Bits per activation of the network: the mean over the layers, weighted by their elements."""
        return sum(site.bits * site.elements for site in self.sites) / self.elements

    @property
    def outside(self) -> float | None:
        """The share of all pre-activations that lie beyond their grids."""
        known = [(site.outside, site.elements) for site in self.sites if site.outside is not None]
        return sum(share * count for share, count in known) / sum(count for _, count in known) if known else None

    def __str__(self) -> str:
        wide = max(len(site.path) for site in self.sites)
        lines = []
        for path, bits, outside in [
            *((s.path, s.bits, s.outside) for s in self.sites),
            ("all", self.bits, self.outside),
        ]:
            beyond = "" if outside is None else f", {outside:.2%} outside the grid"
            lines.append(f"{path:<{max(wide, 3)}}  {bits:.4g} bits per activation{beyond}")
        return "\n".join([*lines, *(f"{path} was not reached." for path in self.unreached)])


def rate(model: nn.Module, batches: Iterable[Any] | None = None) -> Rate:
    """The rate of every SQUAF layer on these batches, in eval mode, with the model left as it was.

    batches: tensors, tuples whose first entry is the input, or dicts of keyword arguments. Left out, the rates are
             those that a `sk.nn.RatePenalty` of the model saw when it was last called.

    Everything is summed batch by batch: the marginal is that of all batches together.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(sk.nn.SQUAF(k=2, q=1.0, alpha=200.0))
    >>> result = sk.measure.rate(net, [torch.tensor([[0.0, 1.0]]), torch.tensor([[2.0, 9.0]])])
    >>> print(result)
    0    1.5 bits per activation, 25.00% outside the grid
    all  1.5 bits per activation, 25.00% outside the grid
    """
    layers = {path: module for path, module in unwrapped(model).named_modules() if isinstance(module, SQUAF)}
    if not layers:
        raise InputError(f"{type(model).__name__} has no SQUAF layer, and only these have a rate.")
    if batches is None:
        return _observed_last(layers)
    refuse_one_batch(batches)
    sums = {path: _Sums(path, layer) for path, layer in layers.items()}
    with quietly(model, {site.module: site.add for site in sums.values()}):
        run_all(model, batches)
    reached = tuple(site.finished() for site in sums.values() if site.elements)
    if not reached:
        raise InputError("No batch reached a SQUAF layer, or there was none; give batches that do.")
    return Rate(reached, tuple(site.path for site in sums.values() if not site.elements))


def _observed_last(layers: Mapping[str, SQUAF]) -> Rate:
    observed = {path: last for path, layer in layers.items() if (last := last_observed(layer)) is not None}
    if not observed:
        raise InputError(
            "Without batches the rates are those of a RatePenalty's last call, and none was made on this model; give "
            "batches, as in sk.measure.rate(model, batches)."
        )
    sites = tuple(_site_rate(path, last, None) for path, last in observed.items())
    return Rate(sites, tuple(path for path in layers if path not in observed))


def _site_rate(path: str, observed: Observed, outside: float | None) -> SiteRate:
    return SiteRate(path, observed.elements, observed.bits, tuple(observed.marginal.double().tolist()), outside)


@dataclass
class _Sums:
    """The sums of one layer."""

    path: str
    module: SQUAF
    elements: int = 0
    beyond: int = 0
    points: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))

    def add(self, x: Tensor) -> None:
        """Count the pre-activations of one call."""
        if not bool(x.isfinite().all()):
            raise InputError(f"A pre-activation of {self.path!r} is NaN or infinite; check the batches and the model.")
        if x.numel():
            self.points = self.points + marginal_of(self.module, x).double().cpu() * x.numel()
            self.beyond += _count_beyond(self.module, x)
            self.elements += x.numel()

    def finished(self) -> SiteRate:
        observed = Observed(self.points / self.elements, self.elements)
        return _site_rate(self.path, observed, self.beyond / self.elements)


def _count_beyond(module: SQUAF, x: Tensor) -> int:
    """How many lie more than half a step outside of the grid."""

    def shaped(value: Tensor) -> Tensor:
        return module.granularity.shaped(value, x, module.title)

    if module.k is not None:
        return int((x.abs() > shaped(module.q * (module.k + 0.5))).sum())
    grid = module.grid
    low = shaped(1.5 * grid[..., 0] - 0.5 * grid[..., 1])
    high = shaped(1.5 * grid[..., -1] - 0.5 * grid[..., -2])
    return int(((x < low) | (x > high)).sum())
