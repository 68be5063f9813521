"""The result of `fit`, and a bound for its largest error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ...registry import get
from .solving import Solution, Task

_STEPS_OUT = 4  # how many grid steps beyond the last point the slope outside is taken
_MOST_PIECES, _AT_ONCE = 300_000, 2_000_000


@dataclass(frozen=True, eq=False)
class Fitted:
    """A SQUAF that stands for a function on [low, high].

    k, q, alpha, z: the SQUAF: 2k+1 values z, in float64, at the points i q.
    weights, window: its kind of weights, and how many points it keeps.
    sup:         the largest |SQUAF - target| seen: at 12 places or more between any two places where either may bend
                 or jump, or at the samples. A look, not a proof.
    bound:       a proven upper bound of it on the whole of [low, high], from the Lipschitz constants of both and ever
                 smaller pieces; None where the target's constant is not known, and for samples. Within 5% of sup,
                 unless the error is so small (1e-5 of the range or so) that the pieces would be too many.
    mean_square: the mean of (SQUAF - target)^2 over [low, high], or over the samples.
    slopes_outside: the slope of SQUAF four grid steps beyond its first and its last point. It goes to 0 there, whatever
                 the target does: SQUAF is constant at both ends of the line.
    """

    k: int
    q: float
    alpha: float
    z: Tensor = field(repr=False)
    sup: float
    bound: float | None
    mean_square: float
    slopes_outside: tuple[float, float]
    low: float
    high: float
    target: str
    weights: str
    window: int | None

    @property
    def starts(self) -> dict[str, Any]:
        """The arguments with which `sk.nn.Squaf` and `sk.nn.make("squaf", ...)` build it."""
        return {
            "k": self.k,
            "q": self.q,
            "alpha": self.alpha,
            "z": self.z.clone(),
            "window": self.window,
            "weights": self.weights,
        }

    def module(self, *, learn: bool | str | Iterable[str] = False, **arguments: Any) -> Any:
        """It as a module; `learn`, `per`, `size`, `device`, `dtype` and the others as in `sk.nn.Squaf`."""
        # By name, because modules are built upon this room.
        return import_module("softknee.nn").make("squaf", **{**self.starts, "learn": learn, **arguments})

    def __call__(self, x: Tensor) -> Tensor:
        """SQUAF at x."""
        return get("squaf")(x, **self.starts)


def finished(task: Task, one: Solution) -> Fitted:
    """The result, with what has to be said of it."""
    ends = (one.k + _STEPS_OUT) * one.q * torch.tensor([-1.0, 1.0], dtype=torch.float64)
    steps = torch.arange(-one.k, one.k + 1, dtype=torch.float64)
    shares = task.shares(ends, k=one.k, q=one.q, alpha=one.alpha)
    away = ends[:, None] - steps * one.q
    push = -one.alpha * away.sign() if task.weights == "laplacian" else -2 * one.alpha * away
    # The slope of a softmax mean is the covariance of z with the slopes of the exponents.
    off = push - (shares * push).sum(1, keepdim=True)
    slopes = (shares * off * (one.z - (shares * one.z).sum(1, keepdim=True))).sum(1)
    return Fitted(
        k=one.k,
        q=one.q,
        alpha=one.alpha,
        z=one.z,
        sup=one.sup,
        bound=_bound(task, one),
        mean_square=one.mean_square,
        slopes_outside=(float(slopes[0]), float(slopes[1])),
        low=task.target.low,
        high=task.target.high,
        target=task.target.name,
        weights=task.weights,
        window=task.window,
    )


def _bound(task: Task, one: Solution) -> float | None:
    """An upper bound of |SQUAF - target|: in a piece of half width w around m it is below |error at m| + w L.

    Pieces whose bound is not good enough are halved. They end where a window slides, and a window is a SQUAF of fewer
    points, to which the same Lipschitz constant applies.
    """
    target = task.target
    if target.lipschitz is None or target.samples is not None:
        return None
    steepest = target.lipschitz + steepest_slope(one, task)
    pairs = torch.tensor(list(itertools.pairwise(target.edges(k=one.k, q=one.q))), dtype=torch.float64)
    middle, half = pairs.mean(1), (pairs[:, 1] - pairs[:, 0]) / 2
    settled = 0.0
    while True:
        parts = middle.split(_AT_ONCE // len(one.z))
        curve = torch.cat([task.shares(part, k=one.k, q=one.q, alpha=one.alpha) @ one.z for part in parts])
        above = (curve - target.values(middle)).abs() + steepest * half
        # What is within 5% of the largest error seen need not be known better.
        open_ = above > 1.05 * one.sup + 1e-12
        settled = max(settled, float(above[~open_].max()) if bool((~open_).any()) else 0.0)
        if not bool(open_.any()):
            return settled
        if 2 * int(open_.sum()) > _MOST_PIECES or float(half.max()) < 1e-12 * target.reach:
            return max(settled, float(above.max()))
        middle, half = middle[open_], half[open_] / 2
        middle, half = torch.cat([middle - half, middle + half]), torch.cat([half, half])


def steepest_slope(one: Solution, task: Task) -> float:
    """The Lipschitz constant that the zoo claims of SQUAF, for this table."""
    if task.weights == "laplacian":
        return one.alpha * float(one.z.max() - one.z.min()) / 2
    h = one.alpha * one.q**2
    return float(one.z.diff().abs().max()) / one.q * h / -math.expm1(-h)
