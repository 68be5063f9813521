"""How a knob goes from where it was frozen to its target, as progress goes from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...errors import ParameterError, did_you_mean

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


def read_schedule(given: str | Progress) -> Schedule:
    """The schedule of that name, or a function of progress after a look at it."""
    if isinstance(given, str):
        if given not in _SHARES:
            raise ParameterError(
                f"Hardener: schedule must be {', '.join(map(repr, _SHARES))} or a function of progress, and {given!r} "
                f"was given.{did_you_mean(given, _SHARES)}"
            )
        return Schedule(given, _SHARES[given], geometric=given == "geometric")
    if not callable(given):
        raise ParameterError(
            f"Hardener: schedule must be a name or a function of progress, and {type(given).__name__} was given."
        )
    name = getattr(given, "__name__", type(given).__name__)
    _look_at(given, name)
    return Schedule(name, lambda progress: float(given(progress)))


def _look_at(given: Progress, name: str) -> None:
    """Refuse a function that does not go from 0 to 1, or that goes backwards on the way."""
    before = 0.0
    for i in range(_LOOKS + 1):
        progress = i / _LOOKS
        try:
            share = float(given(progress))
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
    best: float | None = field(default=None)
    waited: int = field(default=0)

    def __post_init__(self) -> None:
        if self.better not in BETTER:
            raise ParameterError(
                f"Hardener: start='plateau' needs better='lower' (a loss) or better='higher' (an accuracy), and "
                f"{self.better!r} was given."
            )
        if isinstance(self.patience, bool) or not isinstance(self.patience, int) or self.patience < 1:
            raise ParameterError(
                f"Hardener: patience must be a whole number of at least 1, and {self.patience!r} was given."
            )
        if not isinstance(self.min_delta, int | float) or not 0 <= self.min_delta < math.inf:
            raise ParameterError(
                f"Hardener: min_delta must be a finite number of at least 0, and {self.min_delta!r} was given."
            )

    @property
    def flat(self) -> bool:
        return self.waited >= self.patience

    def seen(self, metric: float) -> Plateau:
        """What is known after one more metric."""
        gain = math.inf if self.best is None else (metric - self.best) * (1 if self.better == "higher" else -1)
        enough = 0.0 if self.best is None else self.min_delta * abs(self.best)
        if math.isfinite(metric) and gain > enough:
            return Plateau(self.better, self.patience, self.min_delta, best=metric)
        return Plateau(self.better, self.patience, self.min_delta, self.best, self.waited + 1)

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}
