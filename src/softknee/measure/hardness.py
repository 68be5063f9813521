"""How hard the activations of a model are, layer by layer, and how that changes while it trains.

profile = hardness_profile(model)                 # the knob of each site, in order of depth
trace = HardnessTrace(model); trace.record(epoch) # after every epoch
trace.drift                                       # V, how far the knobs have wandered
spearman(first, second)                           # do two trainings order their layers alike?
"""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from ..errors import InputError, MissingToolError, ParameterError
from ..nn.module import Pointwise
from ..nn.parameters import Parameterised
from ..surgery.hardening.sites import distance_bound, is_hard, modules_by_path
from .inputs import check_flag, check_later


@dataclass(frozen=True)
class SiteHardness:
    """One activation.

    knob:      the name of what hardens it; several are joined by commas.
    toward:    where that leads as it hardens: 0 for a width, infinity for a hardness.
    value:     the knob, its mean over channels and over several knobs.
    low, high: the smallest and largest over channels and knobs.
    hardness:  the value where a function hardens as its knob grows, one over it where a width shrinks: the larger the
               harder, infinite at the limit.
    distance:  a proved bound on sup |f - hard limit|; None where none is known.
    """

    path: str
    activation: str
    knob: str
    toward: float
    value: float
    low: float
    high: float
    hardness: float
    distance: float | None


@dataclass(frozen=True)
class HardnessProfile:
    """The activations of a model that have a knob, in order of depth."""

    sites: tuple[SiteHardness, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the activations are, in order of depth."""
        return tuple(site.path for site in self.sites)

    @property
    def values(self) -> tuple[float, ...]:
        """The knob of each."""
        return tuple(site.value for site in self.sites)

    @property
    def hardness(self) -> tuple[float, ...]:
        """The same, turned so that more is always harder."""
        return tuple(site.hardness for site in self.sites)

    def __str__(self) -> str:
        wide = max(len(path) for path in self.paths)
        lines = []
        for site in self.sites:
            far = "" if site.distance is None else f", at most {site.distance:.3g} from its limit"
            spread = "" if site.low == site.high else f" ({site.low:.4g}..{site.high:.4g})"
            lines.append(f"{site.path:<{wide}}  {site.activation}, {site.knob}={site.value:.5g}{spread}{far}")
        return "\n".join(lines)


def hardness_profile(model: nn.Module, *, distances: bool = True) -> HardnessProfile:
    """The knob of every activation of a model that has one, in order of depth.

    distances: whether bounds on the distance to the limit are wanted too; of designed functions they are proved anew
        for every value, which takes a fraction of a second each.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(sk.nn.LambdaGELU(lam=1.5), torch.nn.Linear(2, 2), sk.nn.LambdaGELU(lam=2.0))
    >>> profile = sk.measure.hardness_profile(net)
    >>> profile.values, profile.hardness
    ((1.5, 2.0), (1.5, 2.0))

    Reference: Perez-Corral et al., lambda-GELU: learning gating hardness for controlled ReLU-ization.
    """
    check_flag("distances", distances)
    profile_sites = []
    for path, module in modules_by_path(model).items():
        assert isinstance(module, Parameterised)
        act: Any = getattr(module, "definition", None)
        if getattr(act, "knobs", ()) and not (isinstance(module, Pointwise) and is_hard(act)):
            profile_sites.append(_site(path, module, act, distances))
    if not profile_sites:
        raise InputError(
            f"{type(model).__name__} has no softknee activation with a knob, so that it has no hardness to show; put "
            "one in first, for instance with sk.swap_(model, 'lambda_gelu', learn=True)."
        )
    return HardnessProfile(tuple(profile_sites))


def _site(path: str, module: Parameterised, act: Any, distances: bool) -> SiteHardness:
    values = [value for name in act.knobs for value in getattr(module, name).detach().double().flatten().tolist()]
    value, toward = sum(values) / len(values), float(act.toward)
    if math.isinf(toward):
        hardness = value
    else:
        width = sum(abs(value - toward) for value in values) / len(values)
        hardness = 1 / width if width else math.inf
    return SiteHardness(
        path=path,
        activation=act.name,
        knob=", ".join(act.knobs),
        toward=toward,
        value=value,
        low=min(values),
        high=max(values),
        hardness=hardness,
        distance=_distance(module) if distances else None,
    )


def _distance(module: nn.Module) -> float | None:
    try:
        return distance_bound(module)
    except (ParameterError, MissingToolError):
        return None


# -- comparing profiles -----------------------------------------------------------------------------------


def drift(profiles: Sequence[HardnessProfile | Sequence[float]]) -> float:
    """V: how far the knobs wander from profile to profile, summed over time, the mean over layers.

        V = (1/L) sum_l sum_e |lam_l(e + 1) - lam_l(e)|

    >>> drift([[1.0, 1.0], [1.5, 1.0], [1.0, 1.25]])
    0.625
    """
    if isinstance(profiles, HardnessProfile | str | bytes | Mapping) or not isinstance(profiles, Iterable):
        raise ParameterError(f"drift takes profiles of one model over time, in a list, not {type(profiles).__name__}.")
    profiles = [*profiles] if not isinstance(profiles, Tensor) or profiles.dim() else []
    steps = [_values(profile) for profile in profiles]
    if not steps or not steps[0] or len({len(profile) for profile in steps}) > 1:
        lengths = ", ".join(str(len(profile)) for profile in steps) or "none"
        raise ParameterError(f"drift takes profiles with the same layers over time, and they have {lengths} layers.")
    _refuse_other_sites([profile for profile in profiles if isinstance(profile, HardnessProfile)])
    return sum(abs(after - before) for a, b in pairwise(steps) for before, after in zip(a, b, strict=True)) / len(
        steps[0]
    )


def spearman(a: HardnessProfile | Sequence[float], b: HardnessProfile | Sequence[float]) -> float:
    """Spearman's rank correlation of two profiles, layer by layer, hardest against hardest; ties share their mean rank.

    Not a number where all layers of one are equal: they have no order.

    >>> spearman([1.0, 1.2, 1.9], [1.1, 1.3, 1.4]), spearman([1, 2, 3], [3, 2, 1])
    (1.0, -1.0)
    """
    first, second = (
        [*profile.hardness] if isinstance(profile, HardnessProfile) else _values(profile) for profile in (a, b)
    )
    if len(first) != len(second) or len(first) < 2:
        raise ParameterError(
            f"spearman takes two profiles with the same two layers or more, and they have {len(first)} and "
            f"{len(second)}."
        )
    try:
        return max(-1.0, min(statistics.correlation(_ranks(first), _ranks(second)), 1.0))
    except statistics.StatisticsError:  # one of them is constant
        return math.nan


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1 up; equal values share the mean of their places."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) + 1) / 2 for value in values]


def _values(profile: HardnessProfile | Sequence[float]) -> list[float]:
    try:
        values = [float(value) for value in (profile.values if isinstance(profile, HardnessProfile) else profile)]
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ParameterError(
            f"A profile is what hardness_profile gives, or one number for each layer, and {type(profile).__name__} was "
            f"given: {error}."
        ) from error
    if any(math.isnan(value) for value in values):
        raise ParameterError("A profile holds a value that is not a number; the training it comes from has diverged.")
    return values


def _refuse_other_sites(profiles: Sequence[HardnessProfile]) -> None:
    for before, after in pairwise(profiles):
        if before.paths != after.paths:
            raise ParameterError(
                f"drift takes profiles of one model over time, and one has {', '.join(before.paths)} where the next "
                f"has {', '.join(after.paths)}."
            )


# -- a training -------------------------------------------------------------------------------------------


class HardnessTrace:
    """The profiles of a model while it trains: call `record(epoch)` after each epoch, and before the first with 0.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(sk.nn.LambdaGELU(lam=1.5), torch.nn.Linear(2, 2), sk.nn.LambdaGELU(lam=2.0))
    >>> trace = sk.measure.HardnessTrace(net)
    >>> for epoch in range(3):
    ...     _ = trace.record(epoch), net[0].set_(lam=2.0 + epoch)
    >>> trace.drift
    0.75
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.epochs: list[float] = []
        self.profiles: list[HardnessProfile] = []
        hardness_profile(model, distances=False)  # a model without a knob is refused now

    def record(self, epoch: float) -> HardnessProfile:
        """Keep the profile as it is now, under that number."""
        check_later(epoch, self.epochs[-1] if self.epochs else None)
        profile = hardness_profile(self.model, distances=False)
        _refuse_other_sites([*self.profiles[-1:], profile])
        self.epochs.append(epoch)
        self.profiles.append(profile)
        return profile

    @property
    def drift(self) -> float:
        """V over everything recorded so far."""
        return drift(self.profiles)

    def rows(self) -> list[dict[str, Any]]:
        """One row for each epoch and activation, as a `Record` takes them."""
        return [
            {"epoch": epoch, "path": site.path, "activation": site.activation, "knob": site.knob, "value": site.value}
            for epoch, profile in zip(self.epochs, self.profiles, strict=True)
            for site in profile.sites
        ]
