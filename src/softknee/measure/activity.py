r"""What the activations of a model do on data: how much is exactly 0, which units never speak, how inputs spread.

    zero_fraction  share of outputs that are exactly 0
    dead_units     units (channels) whose output was exactly 0 on everything that was seen
    entropy        differential entropy of the pre-activations, in nats, estimated from a random sample of them
    rate           of a SQUAF: entropy in bits of the marginal mean_l P(.|x[l]) over the points of its grid

Everything is summed batch by batch, so memory does not grow with the data, and the model is left as it was: modes,
hooks, random numbers, also where a batch fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ..design.entropic.entropy import spacing_entropy
from ..errors import InputError, ParameterError, require_count
from ..nn import Squaf
from ..nn.rate import marginal_of
from ..surgery import sites
from ..surgery.modules import Reservoir, refuse_one_batch
from .entropy import watch


@dataclass(frozen=True)
class SiteActivity:
    """One activation: see the top of the module for the numbers.

    elements: how many outputs were seen.
    units:    how many units they belong to; None where the outputs have no units (a single number for each example).
    entropy:  None where there are too few pre-activations, or where more than a fifth are one and the same number.
    rate:     None of everything but a SQUAF.
    """

    path: str
    activation: str
    elements: int
    zero_fraction: float
    units: int | None
    dead_units: tuple[int, ...]
    entropy: float | None
    rate: float | None

    @property
    def dead(self) -> int:
        """How many units are dead."""
        return len(self.dead_units)


@dataclass(frozen=True)
class Activity:
    """The activations of a model in order of depth, what could not be watched with the reason, and how many batches."""

    sites: tuple[SiteActivity, ...]
    skipped: Mapping[str, str]
    batches: int

    @property
    def zero_fraction(self) -> float:
        """Of all outputs of all sites together."""
        zeros = sum(site.zero_fraction * site.elements for site in self.sites)
        return zeros / sum(site.elements for site in self.sites)

    @property
    def dead(self) -> int:
        """Dead units of all sites together."""
        return sum(site.dead for site in self.sites)

    @property
    def rate(self) -> float | None:
        """Bits per activation, the mean over the SQUAF sites weighted by their elements; None without one."""
        rates = [(site.rate, site.elements) for site in self.sites if site.rate is not None]
        return sum(rate * count for rate, count in rates) / sum(count for _, count in rates) if rates else None

    def __str__(self) -> str:
        wide = max(len(site.path) for site in self.sites)
        lines = []
        for site in self.sites:
            parts = [f"{site.zero_fraction:.2%} zeros"]
            parts += [f"{site.dead} of {site.units} units dead"] if site.units is not None else []
            parts += [f"entropy {site.entropy:.4g} nats"] if site.entropy is not None else []
            parts += [f"rate {site.rate:.4g} bits"] if site.rate is not None else []
            lines.append(f"{site.path:<{wide}}  {site.activation}: {', '.join(parts)}")
        return "\n".join([*lines, *(f"{path} was not watched: {reason}" for path, reason in self.skipped.items())])


def activity(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    where: str | Iterable[str] | None = None,
    example: Any = None,
    dim: int | None = None,
    samples: int = 20_000,
) -> Activity:
    """What every activation of a model does on these batches, in eval mode.

    batches: tensors, tuples whose first entry is the input, or dicts of keyword arguments.
    where:   a pattern for the paths of the activations, or several; left out, all that `sk.sites` finds.
    example: what the model is called with, to name the functions called inside forward too; those cannot be watched,
             and are listed under `skipped` (make them modules with sk.swap_ first).
    dim:     the dimension the units lie along; left out, the last of outputs with two or three dimensions, the second
             of images and volumes.
    samples: how many pre-activations of each site are kept, at random, for the entropy.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    >>> with torch.no_grad():
    ...     _ = net[0].bias.copy_(torch.tensor([100.0, -100.0, 100.0]))
    >>> result = sk.measure.activity(net, [torch.rand(50, 2)])
    >>> result.sites[0].zero_fraction == 1 / 3, result.sites[0].dead_units
    (True, (1,))
    """
    refuse_one_batch(batches)
    require_count("activity", "samples", samples, least=32)
    if dim is not None:
        require_count("activity", "dim", dim, least=-99, most=99)
    watched, skipped = _watched_sites(model, where, example, dim, samples)
    count = watch(model, batches, watched)
    if not count:
        raise InputError("batches was empty, so that there is nothing to go by.")
    reached = [site for site in watched.values() if site.elements]
    if not reached:
        raise InputError("No batch reached any of the activations; give batches that take their way, or other ones.")
    skipped |= {site.path: "No batch reached it." for site in watched.values() if not site.elements}
    return Activity(tuple(site.finished() for site in reached), skipped, count)


def _watched_sites(
    model: nn.Module, where: str | Iterable[str] | None, example: Any, dim: int | None, samples: int
) -> tuple[dict[nn.Module, _Site], dict[str, str]]:
    """The modules to watch, each once, and what cannot be watched."""
    patterns = ["*"] if where is None else _patterns(where)
    model_sites = sites(model, example)
    chosen = [site for site in model_sites if any(fnmatchcase(site.path, pattern) for pattern in patterns)]
    watched: dict[nn.Module, _Site] = {}
    skipped: dict[str, str] = {}
    for site in chosen:
        module = site.place.old
        if isinstance(module, nn.Module):
            watched.setdefault(module, _Site(site.path, site.activation, module, dim, Reservoir(samples)))
        else:
            skipped[site.path] = "It is a function called inside forward; make it a module with sk.swap_ to watch it."
    if not watched:
        paths = ", ".join(repr(site.path) for site in model_sites[:3]) or "none at all"
        matching = "" if where is None else f" that matches where={where!r}"
        raise InputError(f"{type(model).__name__} has no activation module{matching} to watch; it has {paths}.")
    return watched, skipped


def _patterns(where: Any) -> list[str]:
    try:
        several = [where] if isinstance(where, str) else list(where)
    except TypeError:
        several = [where]
    for pattern in several:
        if not isinstance(pattern, str):
            raise ParameterError(
                f"where is a pattern for paths of activations, or several, not {type(pattern).__name__}."
            )
    return several


@dataclass
class _Site:
    """The sums of one site."""

    path: str
    activation: str
    module: nn.Module
    dim: int | None
    reservoir: Reservoir
    elements: int = 0
    zeros: int = 0
    alive: Tensor | None = None
    points: Tensor | None = None  # of a SQUAF: the sum of P(.|x) over what was seen

    def before(self, x: Tensor) -> None:
        """The pre-activations, before an inplace activation overwrites them."""
        if not bool(x.isfinite().all()):
            raise InputError(f"A pre-activation of {self.path!r} is NaN or infinite; check the batches and the model.")
        self.reservoir.add(x)
        if isinstance(self.module, Squaf):
            here = marginal_of(self.module, x).double().cpu() * x.numel()
            self.points = here if self.points is None else self.points + here

    def after(self, y: Tensor) -> None:
        zero = y == 0
        self.elements += y.numel()
        self.zeros += int(zero.sum())
        if y.dim() < 2:
            return
        dim = self.dim if self.dim is not None else (1 if y.dim() > 3 else y.dim() - 1)
        if not -y.dim() <= dim < y.dim():
            raise ParameterError(f"dim={dim} is no dimension of the outputs of {self.path!r}, {tuple(y.shape)}.")
        alive = (~zero).movedim(dim, 0).flatten(1).any(dim=1).cpu()
        if self.alive is not None and len(self.alive) != len(alive):
            raise ParameterError(
                f"The outputs of {self.path!r} had {len(self.alive)} units and now {len(alive)} along dimension {dim}; "
                f"say with dim= where the units are."
            )
        self.alive = alive if self.alive is None else self.alive | alive

    def finished(self) -> SiteActivity:
        dead = () if self.alive is None else tuple((~self.alive).nonzero().flatten().tolist())
        try:
            entropy = spacing_entropy(self.reservoir.values)
        except InputError:  # too few, or so many equal ones that they have no density
            entropy = None
        return SiteActivity(
            path=self.path,
            activation=self.activation,
            elements=self.elements,
            zero_fraction=self.zeros / self.elements,
            units=None if self.alive is None else len(self.alive),
            dead_units=dead,
            entropy=entropy if entropy is not None and math.isfinite(entropy) else None,
            rate=None if self.points is None else _bits(self.points),
        )


def _bits(points: Tensor) -> float:
    share = points / points.sum()
    return float(-torch.where(share > 0, share * torch.log2(share.clamp(min=1e-300)), 0.0).sum())
