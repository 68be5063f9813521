"""How a knob goes from where it was frozen to its target, as progress goes from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

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
