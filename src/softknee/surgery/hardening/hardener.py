"""sk.Hardener: train freely, freeze the knobs, move them to where the hard limit may stand in for the function."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ...errors import ParameterError, did_you_mean, require_count, require_number
from ...nn.parameters import require_model
from ..modules import quoted
from .sites import (
    Batches,
    HardeningSite,
    Knobs,
    Where,
    choose_sites,
    copies_of,
    refuse_no_batches,
    refuse_strict_ddp,
    samples,
)
from .targets import (
    agreed,
    by_data,
    by_tolerance,
    free_steps,
    given_targets,
    innermost,
    metric_number,
    refuse_other_sign,
    refuse_replaced,
    refuse_zero,
)

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


Progress = Callable[[float], float]
_LOOKS = 1000  # points at which a function of yours is looked at
_NEAR = 1e-9
_SHARES: dict[str, Progress] = {
    "linear": lambda progress: progress,
    "cosine": lambda progress: (1 - math.cos(math.pi * progress)) / 2,
    "geometric": lambda progress: progress,
}


@dataclass(frozen=True)
class Schedule:
    """`share` of the way as a function of progress; a geometric way is even in the logarithm of the knob."""

    name: str
    share: Progress
    geometric: bool = False

    def between(self, begin: Tensor, target: Tensor, progress: float) -> Tensor:
        """The knob at that progress. The target itself at 1, whatever the rounding."""
        if progress >= 1:
            return target.clone()
        share = self.share(progress)
        if not self.geometric:
            return begin + share * (target - begin)
        # Where the two are one number, 0 included, there is no way to go.
        ratio = torch.where(begin == target, 1.0, target / begin)
        return begin * ratio**share


def read_schedule(schedule: str | Progress) -> Schedule:
    """The schedule of that name, or a function of progress after a look at it."""
    if isinstance(schedule, str):
        if schedule not in _SHARES:
            raise ParameterError(
                f"Hardener: schedule must be {', '.join(map(repr, _SHARES))} or a function of progress, and "
                f"{schedule!r} was given.{did_you_mean(schedule, _SHARES)}"
            )
        return Schedule(schedule, _SHARES[schedule], geometric=schedule == "geometric")
    if not callable(schedule):
        raise ParameterError(
            f"Hardener: schedule must be a name or a function of progress, and {type(schedule).__name__} was given."
        )
    name = getattr(schedule, "__name__", type(schedule).__name__)
    _check_schedule(schedule, name)
    return Schedule(name, lambda progress: float(schedule(progress)))


def _check_schedule(schedule: Progress, name: str) -> None:
    """Refuse a function that does not go from 0 to 1, or that goes backwards on the way."""
    before = 0.0
    for i in range(_LOOKS + 1):
        progress = i / _LOOKS
        try:
            share = float(schedule(progress))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ParameterError(
                f"Hardener: the schedule {name} must give a number for every progress from 0 to 1, and at {progress:g} "
                f"it failed: {error}."
            ) from error
        if i in (0, _LOOKS) and not abs(share - progress) <= _NEAR:
            raise ParameterError(
                f"Hardener: a schedule must be 0 at progress 0 and 1 at progress 1, and {name} gives {share:g} at "
                f"{progress:g}; the knob would jump when it is frozen, or miss its target."
            )
        if not share >= before - _NEAR:
            raise ParameterError(
                f"Hardener: a schedule that goes backwards would soften what it has hardened: {name} gives {before:g} "
                f"and then {share:g} at progress {progress:g}. Let it never fall."
            )
        before = share


# -- when a validation metric has flattened ---------------------------------------------------------------


BETTER = ("lower", "higher")


@dataclass
class Plateau:
    """Flat after `patience` metrics in a row none of which beat the best by a share of at least `min_delta`.

    A metric that is not a number counts as no improvement.
    """

    better: str | None
    patience: int = 3
    min_delta: float = 1e-3
    best: float | None = None
    waited: int = 0

    def __post_init__(self) -> None:
        if self.better not in BETTER:
            raise ParameterError(
                f"Hardener: start='plateau' needs better='lower' (a loss) or better='higher' (an accuracy), and "
                f"{self.better!r} was given."
            )
        require_count("Hardener", "patience", self.patience)
        require_number("Hardener", "min_delta", self.min_delta, zero=True)

    @property
    def flat(self) -> bool:
        return self.waited >= self.patience

    def seen(self, metric: float) -> Plateau:
        """What is known after one more metric."""
        gain = math.inf if self.best is None else (metric - self.best) * (1 if self.better == "higher" else -1)
        enough = 0.0 if self.best is None else self.min_delta * abs(self.best)
        if math.isfinite(metric) and gain > enough:
            return replace(self, best=metric, waited=0)
        return replace(self, waited=self.waited + 1)


# -- the state of a hardener, as plain numbers and texts that JSON and every checkpoint format can hold -----

VERSION = 1


@dataclass(frozen=True)
class State:
    """A state that was read and fits."""

    position: float
    last_free: int
    plateau: Plateau | None
    given: dict[str, Knobs]
    begin: dict[str, Knobs]
    targets: dict[str, Knobs]


def _numbers(knobs: Knobs | None) -> dict[str, list[float]] | None:
    return None if knobs is None else {name: value.flatten().tolist() for name, value in knobs.items()}


def read_state(hardener: Hardener, state: Mapping[str, Any]) -> State:
    """The state, checked whole against this hardener before anything is changed."""
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        version = state.get("version") if isinstance(state, Mapping) else type(state).__name__
        raise ParameterError(
            f"This is not the state of a Hardener that this softknee reads (version {VERSION}): it has version "
            f"{version!r}."
        )
    made = {"total": hardener.total, "schedule": hardener.schedule.name, "tolerance": hardener.tolerance}
    for name, ours in made.items():
        # States of before the tolerance was kept in them have none to compare.
        theirs = state.get(name, ours if name == "tolerance" else None)
        if theirs != ours:
            raise ParameterError(
                f"The state was saved by a Hardener with {name}={theirs!r}, and this one has {name}={ours!r}; "
                f"resuming would not give the same numbers. Make the hardener as it was."
            )
    sites, ours = state.get("sites"), {site.path: site for site in hardener.sites}
    if not isinstance(sites, Mapping) or set(sites) != set(ours):
        theirs = sorted(map(str, sites)) if isinstance(sites, Mapping) else []
        raise ParameterError(
            f"The state belongs to another model: it has the activations {quoted(theirs)}, and this model has "
            f"{quoted(list(ours))}."
        )
    if (state.get("plateau") is None) != (hardener.plateau is None):
        raise ParameterError(
            "The state was saved by a Hardener that starts in another way (start='plateau' on one side alone). Make "
            "the hardener as it was."
        )
    last_free = state.get("last_free")
    if hardener.plateau is None and last_free != hardener.last_free:
        raise ParameterError(
            f"The state was saved by a Hardener that trains freely for {last_free!r} steps, and this one does for "
            f"{hardener.last_free}; make the hardener with the start that it had."
        )
    read = {
        part: {path: knobs for path, site in ours.items() if (knobs := _knobs(site, sites[path], part)) is not None}
        for part in ("given", "begin", "target")
    }
    position = _number(state.get("position"))
    if (
        not isinstance(last_free, int)
        or not 0 <= last_free < hardener.total
        or set(read["begin"]) != set(read["target"])
    ):
        raise ParameterError("The state of the Hardener is damaged; take it again from the checkpoint.")
    if read["begin"] and len(read["begin"]) != len(ours):
        raise ParameterError("The state of the Hardener is damaged: only some of its activations have begun to harden.")
    return State(position, last_free, _plateau(hardener.plateau, state), read["given"], read["begin"], read["target"])


def _plateau(ours: Plateau | None, state: Mapping[str, Any]) -> Plateau | None:
    if ours is None:
        return None
    best, waited = state["plateau"].get("best"), state["plateau"].get("waited", 0)
    return replace(ours, best=None if best is None else _number(best), waited=int(_number(waited)))


def _knobs(site: HardeningSite, entry: Any, part: str) -> Knobs | None:
    name = site.module.definition.name
    if not isinstance(entry, Mapping) or entry.get("activation") != name:
        theirs = entry.get("activation") if isinstance(entry, Mapping) else None
        raise ParameterError(
            f"The state belongs to another model: at {site.path!r} it has {theirs!r}, and this model has {name!r}."
        )
    values = entry.get(part)
    if values is None:
        return None
    now = site.now()
    if set(values) != set(now) or any(len(values[knob]) != now[knob].numel() for knob in now):
        raise ParameterError(
            f"The state belongs to another model: the knobs at {site.path!r} have other names or numbers of values "
            "there."
        )
    return {
        knob: torch.tensor([_number(each) for each in values[knob]], dtype=torch.float64).reshape(now[knob].shape)
        for knob in now
    }


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(f"The state of the Hardener is damaged: {value!r} stands where a number should.")
    return value


# -- the hardener -----------------------------------------------------------------------------------------


class Hardener:
    r"""Moves the knob of every activation of a model to its hard limit while the model trains.

    Algorithm 1 of the lambda-GELU paper, for every function with a knob. Call `step(e)` before epoch e, for e = 1 to
    `total`. Up to e_s = floor(start total) nothing happens: the knobs are learned like any parameter. Before epoch
    e_s + 1 they are frozen at their values k(e_s), and epoch e > e_s trains with

        k(e) = k(e_s) + (e - e_s)/(total - e_s) (target - k(e_s))

    so that the last epoch trains with the target itself. Where epochs are few, count optimiser steps instead: `total`
    is in whatever is counted, and `step()` counts by itself. After `total` the knobs stay.

    Args:
        model: with softknee activations; wrapped (DDP, compiled) or not.
        total: how many epochs, or optimiser steps, there will be.
        start: the share of them that trains freely (0.10, 0.25, 0.50); or their number, as an int; or "plateau": until
            the metrics passed to `step(e, metric=...)` have flattened (`better`, `patience`, `min_delta`, `latest`).
        tolerance: how far from the limit the functions may end. lambda-GELU: E(lam) = 2/(lam sqrt(2 pi)) as in the
            paper; the others: sup |f - limit|, proved; with `data`: the mean of |f - limit| over the layer's inputs.
        schedule: "linear", "cosine", "geometric", or a function of progress that goes from 0 to 1 and never back.
        target: knobs to end at instead: a number, or a mapping from knobs or paths (patterns) to numbers.
        data: batches (or a function that gives them) from which each layer's target is chosen when it is frozen: the
            softest within the tolerance.
        where: which activations: a pattern of paths, several, or a function of path and module; all by default.
        copies: averaged copies of the model whose knobs follow (`sync_`).
        better: "lower" or "higher", which metric is the better one.
        patience, min_delta: flat is when `patience` metrics in a row did not beat the best by that share of it.
        latest: the share of `total` after which hardening begins even if nothing has flattened.
        seed: of the sample taken from `data`.

    A knob harder than its target stays where it is. Other parameters (a leak) go on being learned.

    >>> import softknee as sk, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.LambdaGELU(learn=True), torch.nn.Linear(8, 1))
    >>> h = sk.Hardener(net, total=8)
    >>> [round(net[1].lam.item(), 3) for epoch in range(1, 9) if h.step(epoch) >= 0]
    [1.01, 1.01, 27.438, 53.866, 80.293, 106.721, 133.149, 159.577]

    Reference: Perez-Corral et al., lambda-GELU: learning gating hardness for controlled ReLU-ization.
    """

    def __init__(
        self,
        model: nn.Module,
        total: int,
        start: float | int | str = 0.25,
        tolerance: float = 5e-3,
        *,
        schedule: str | Progress = "linear",
        target: float | Mapping[str, Any] | None = None,
        data: Batches | None = None,
        where: Where = None,
        copies: Iterable[nn.Module] = (),
        better: str | None = None,
        patience: int = 3,
        min_delta: float = 1e-3,
        latest: float = 0.5,
        seed: int = 0,
    ) -> None:
        require_model(model, "Hardener")
        require_count("Hardener", "total", total)
        require_number("Hardener", "tolerance", tolerance)
        if target is not None and data is not None:
            raise ParameterError("Hardener: target= and data= both say where the knobs are to end; give one of them.")
        if data is not None:
            refuse_no_batches(data)
        self.total, self.tolerance, self.data, self.seed = int(total), float(tolerance), data, seed
        self.schedule = read_schedule(schedule)
        self.plateau: Plateau | None = None
        if start == "plateau":
            self.plateau = Plateau(better, patience, min_delta)
        self.last_free = free_steps("latest", latest, total) if self.plateau else free_steps("start", start, total)
        self.model = model
        self.sites = choose_sites(model, where)
        refuse_strict_ddp(model, self.sites)
        self._given = {} if target is None else given_targets(self.sites, target)
        if self.schedule.geometric:
            refuse_zero(self._given)
        if data is None:
            self._chosen_targets()  # what cannot be hardened is said now, and not after a quarter of the training
        self.copies = tuple(copies)
        for copy in self.copies:
            copies_of(self.sites, copy)
        self.position: float = 0
        self.begun = False
        self.begin: dict[str, Knobs] = {}
        self.targets: dict[str, Knobs] = {}
        self._frozen: list[nn.Parameter] = []

    # -- stepping ---------------------------------------------------------------------------------------

    def step(self, position: float | None = None, *, metric: float | None = None) -> float:
        """Set every knob for the epoch (or optimiser step) of that number, counted from 1; call it before that epoch.

        Returns the progress of the hardening, from 0 to 1. `metric` is the last validation metric, for start="plateau";
        with several processes, the same in all of them.
        """
        position = math.floor(self.position) + 1 if position is None else self._checked(position)
        refuse_replaced(self.model, self.sites)
        plateau, last_free = self.plateau, self.last_free
        if plateau is not None and not self.begun and position > self.position:
            plateau = plateau if metric is None else plateau.seen(metric_number(metric))
            if plateau.flat:
                # What came before this step was the last free epoch. At least one is left to harden in.
                last_free = min(last_free, max(math.ceil(position) - 1, 0))
        begins = not self.begun and position > last_free
        if begins:
            self._begin()
        self.plateau, self.last_free, self.position = plateau, last_free, position
        if self.begun:
            self._move()
        if begins and self.stays:
            warnings.warn(
                f"Hardener: {len(self.stays)} of {len(self.sites)} activations are as hard as asked already and stay "
                f"as they are: {quoted(self.stays)}. A smaller tolerance would move them.",
                stacklevel=2,
            )
        return self.progress

    @property
    def progress(self) -> float:
        """How much of the hardening is done: 0 until it has begun, 1 at the end."""
        if not self.begun:
            return 0.0
        return min((self.position - self.last_free) / (self.total - self.last_free), 1.0)

    @property
    def stays(self) -> tuple[str, ...]:
        """The paths of sites that were frozen as hard as asked, or harder, and do not move."""
        if not self.begun:
            return ()
        same = (
            all(bool((self.begin[s.path][k] == self.targets[s.path][k]).all()) for k in s.knobs) for s in self.sites
        )
        return tuple(site.path for site, stay in zip(self.sites, same, strict=True) if stay)

    def _checked(self, position: float) -> float:
        if isinstance(position, bool) or not isinstance(position, Real) or not 0 <= position < math.inf:
            raise ParameterError(f"Hardener.step takes the number of an epoch or step, and {position!r} was given.")
        position = int(position) if position == int(position) else float(position)
        if position < self.position:
            raise ParameterError(
                f"Hardener: step {position:g} comes after step {self.position:g}, and time does not go back. To resume "
                f"from a checkpoint, give the hardener its state with load_state_dict."
            )
        if self.position == 0 and not self.begun and position > max(self.last_free + 1, 1):
            raise ParameterError(
                f"Hardener: its first step is {position:g}, and the knobs should have been frozen after "
                f"{self.last_free:g}; their values of that time are not known. To resume from a checkpoint, give the "
                f"hardener its state with load_state_dict."
            )
        return position

    def _begin(self) -> None:
        """Freeze the knobs where they are. Everything that may fail comes before the first change."""
        begin = {site.path: site.now() for site in self.sites}
        if self.data is not None and not self._given:
            self.targets_from(self.data)
        targets = self._chosen_targets()
        if self.schedule.geometric:
            refuse_other_sign(begin, targets)
        self._freeze(begin, targets)

    def _freeze(self, begin: dict[str, Knobs], targets: dict[str, Knobs]) -> None:
        for site in self.sites:
            for parameter in site.parameters():
                if parameter.requires_grad:
                    self._frozen.append(parameter)
                parameter.requires_grad_(False)
                # A gradient left behind, even of zeros, would let momentum and weight decay move it.
                parameter.grad = None
        self.begin, self.targets, self.begun = begin, targets, True

    def _move(self) -> None:
        knobs, stays = self.scheduled(), self.stays
        for site in self.sites:
            if site.path not in stays:
                site.set_(knobs[site.path])
        self.sync_(*self.copies)

    def scheduled(self) -> dict[str, Knobs]:
        """The knobs that the schedule asks for now, by path; empty before the hardening has begun."""
        return {
            path: {k: self.schedule.between(begin, self.targets[path][k], self.progress) for k, begin in knobs.items()}
            for path, knobs in self.begin.items()
        }

    # -- targets ----------------------------------------------------------------------------------------

    def targets_from(self, batches: Batches) -> dict[str, Knobs]:
        """Choose each layer's target from these batches: the softest knob whose mean |f(x) - limit(x)| over the layer's
        own pre-activations is within the tolerance.

        The model runs once over them, in eval mode; a random sample of bounded size is kept of each layer. With several
        processes the targets of the first hold for all.
        """
        if self.begun:
            raise ParameterError("Hardener: the knobs are on their way already; choose targets before it begins.")
        refuse_no_batches(batches)
        seen = samples(self.model, self.sites, batches, seed=self.seed)
        targets = {site.path: by_data(site, seen[site.path], self.tolerance) for site in self.sites}
        self._given = agreed(targets)
        return {path: dict(knobs) for path, knobs in self._given.items()}

    def _chosen_targets(self) -> dict[str, Knobs]:
        """Where each knob is to end if it were frozen now; never softer than it is."""
        targets: dict[str, Knobs] = {}
        for site in self.sites:
            target, now = self._given.get(site.path), site.now()
            targets[site.path] = by_tolerance(site, self.tolerance) if target is None else site.harder(target, now)
            for name, value in targets[site.path].items():
                site.check(name, value[value != now[name]])
        return targets

    # -- copies and optimisers --------------------------------------------------------------------------

    def sync_(self, *models: nn.Module) -> None:
        """Give averaged copies of the model the knobs that the model has: an average lags behind what is on its way.

        Before the hardening has begun nothing is done: an average of learned knobs is what a copy should have.
        """
        copies = [copies_of(self.sites, model) for model in models]
        for modules in copies if self.begun else ():
            for site in self.sites:
                site.copy_to(modules[site.path])

    def attach(self, optimizer: Optimizer) -> RemovableHandle:
        """Step with the optimiser: before its step number n, the knobs are those of step n of `total`.

        Counts what the optimiser does and not what goes through the model, so that accumulated gradients and steps that
        a gradient scaler skips are right. Returns a handle to `remove`. An optimiser that Accelerate has prepared is
        looked into: the one inside steps only where it really does.
        """
        inside = innermost(optimizer)
        if self.position == 0:
            self.step(1)
        return inside.register_step_post_hook(lambda *_: self._follow())

    def _follow(self) -> None:
        if self.position < self.total:
            self.step()

    # -- state ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that resuming needs beside the model's and the optimiser's state, as plain numbers and texts."""
        return {
            "version": VERSION,
            "total": self.total,
            "schedule": self.schedule.name,
            "tolerance": self.tolerance,
            "position": self.position,
            "last_free": self.last_free,
            "plateau": None if self.plateau is None else {"best": self.plateau.best, "waited": self.plateau.waited},
            "sites": {
                site.path: {
                    "activation": site.module.definition.name,
                    "given": _numbers(self._given.get(site.path)),
                    "begin": _numbers(self.begin.get(site.path)),
                    "target": _numbers(self.targets.get(site.path)),
                }
                for site in self.sites
            },
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from there: knobs frozen and set as they were. Make the optimiser first, while they can be trained."""
        read = read_state(self, state_dict)
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        self._frozen, self.begin, self.targets, self.begun = [], {}, {}, False
        self.position, self.last_free = read.position, read.last_free
        self.plateau, self._given = read.plateau, read.given
        if read.begin:
            self._freeze(read.begin, read.targets)
            self._move()

    # -- callbacks --------------------------------------------------------------------------------------

    def transformers_callback(self, *, every: str = "epoch", metric: str | None = None) -> Any:
        """A callback for the Trainer of transformers, with its state in the checkpoints."""
        from .callbacks import transformers_callback

        return transformers_callback(self, every=every, metric=metric)

    def lightning_callback(self, *, every: str = "epoch", metric: str | None = None) -> Any:
        """A callback for the Trainer of Lightning, with its state in the checkpoints."""
        from .callbacks import lightning_callback

        return lightning_callback(self, every=every, metric=metric)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(site.module.definition.name for site in self.sites))
        where = f"progress {self.progress:.0%}" if self.begun else f"free until {self.last_free}"
        return f"Hardener({len(self.sites)} sites: {names}; at {self.position:g} of {self.total}, {where})"
