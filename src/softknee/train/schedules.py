"""Learning-rate schedules: pure functions from progress in [0, 1) to the share of the full rate.

>>> half = cosine()
>>> half(0.0), round(half(0.5), 6)
(1.0, 0.5)
>>> linear(warmup=0.1, floor=0.2)(0.05)
0.5
>>> rising = cosine(warmup=0.2, start=0.004, floor=0.04)
>>> rising(0.0), round(rising(0.1), 3), rising(0.2), round(rising(1.0), 12)
(0.004, 0.502, 1.0, 0.04)
>>> falling = step(milestones=(0.5, 0.75), factor=0.1)
>>> falling(0.49), falling(0.5), round(falling(0.75), 12)
(1.0, 0.1, 0.01)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..errors import ParameterError

Schedule = Callable[[float], float]


def linear(*, warmup: float = 0.0, floor: float = 0.0, start: float = 0.0) -> Schedule:
    """From `start` to 1 during `warmup` (a share of the training), then evenly down to `floor`."""
    return _warmed(lambda progress: 1 - progress, warmup=warmup, floor=floor, start=start)


def cosine(*, warmup: float = 0.0, floor: float = 0.0, start: float = 0.0) -> Schedule:
    """From `start` to 1 during `warmup`, then down to `floor` along half a cosine."""
    return _warmed(lambda progress: (1 + math.cos(math.pi * progress)) / 2, warmup=warmup, floor=floor, start=start)


def constant(*, warmup: float = 0.0, start: float = 0.0) -> Schedule:
    """From `start` to 1 during `warmup`, then 1."""
    return _warmed(lambda progress: 1.0, warmup=warmup, floor=0.0, start=start)


def step(*, milestones: Sequence[float], factor: float = 0.1, warmup: float = 0.0, start: float = 0.0) -> Schedule:
    """From `start` to 1 during `warmup`, then 1, and `factor` times lower from each milestone on.

    milestones: shares of the whole training; m of n epochs are m/n, which the first step of epoch m + 1 meets exactly.
                One of 1 or more is never reached.
    """
    if not 0 < factor <= 1:
        raise ParameterError(f"A schedule's factor must be in (0, 1], and {factor!r} was given.")
    for milestone in milestones:
        if not 0 < milestone < math.inf:
            raise ParameterError(f"A milestone must be a share of the training above 0, and {milestone!r} was given.")
    lower, warmed = tuple(milestones), constant(warmup=warmup, start=start)
    return lambda progress: warmed(progress) * factor ** sum(progress >= milestone for milestone in lower)


def _warmed(shape: Schedule, *, warmup: float, floor: float, start: float) -> Schedule:
    for name, value in (("warmup", warmup), ("floor", floor), ("start", start)):
        if not 0 <= value < 1:
            raise ParameterError(f"A schedule's {name} must be in [0, 1), and {value!r} was given.")

    def share(progress: float) -> float:
        if progress < warmup:
            return start + (1 - start) * (progress / warmup)
        return floor + (1 - floor) * shape((progress - warmup) / (1 - warmup))

    return share


def read_table(schedule: Schedule | None, *, first: int, count: int, total: int) -> list[float]:
    """The shares of the steps from `first` on, `count` of them, where `total` steps are the whole training."""
    if schedule is None:
        return [1.0] * count
    if not callable(schedule):
        raise ParameterError(f"schedule must be a function, such as cosine(), not a {type(schedule).__name__}.")
    table = [float(schedule(step / total)) for step in range(first, first + count)]
    for step, share in enumerate(table):
        if not math.isfinite(share) or share < 0:
            raise ParameterError(
                f"The schedule gives {share} at progress {(first + step) / total:.3g}, which is no rate."
            )
    return table
