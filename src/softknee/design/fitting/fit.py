r"""`fit`: the smallest SQUAF within a tolerance of a function.

That one exists for every continuous function on a closed interval is SQUAF's approximation theorem: on a grid fine
enough for the function, a mean of its values near x under weights that fall with the distance is near its value at x.
The error goes to 0 with the spacing, at least as fast as the function's modulus of continuity:

>>> import softknee as sk, torch
>>> wave = lambda x: torch.sin(3 * x) + 0.3 * (x - 0.3).abs()
>>> sups = [sk.design.fit(wave, low=-1.0, high=1.0, k=k).sup for k in (2, 4, 8, 16)]
>>> all(after < 0.7 * before for before, after in zip(sups, sups[1:]))
True
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...errors import ParameterError
from ...registry import get, service
from .solving import Solution, Task, best_of_size
from .target import read_target

# -- the result of fit, and a bound for its largest error -------------------------------------------------


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
        return service("make_module")("squaf", **{**self.starts, "learn": learn, **arguments})

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
    largest = 0.0
    while True:
        parts = middle.split(_AT_ONCE // len(one.z))
        curve = torch.cat([task.shares(part, k=one.k, q=one.q, alpha=one.alpha) @ one.z for part in parts])
        above = (curve - target.values(middle)).abs() + steepest * half
        # What is within 5% of the largest error seen need not be known better.
        open_ = above > 1.05 * one.sup + 1e-12
        largest = max(largest, float(above[~open_].max()) if bool((~open_).any()) else 0.0)
        if not bool(open_.any()):
            return largest
        if 2 * int(open_.sum()) > _MOST_PIECES or float(half.max()) < 1e-12 * target.reach:
            return max(largest, float(above.max()))
        middle, half = middle[open_], half[open_] / 2
        middle, half = torch.cat([middle - half, middle + half]), torch.cat([half, half])


def steepest_slope(one: Solution, task: Task) -> float:
    """The Lipschitz constant that the zoo claims of SQUAF, for this table."""
    if task.weights == "laplacian":
        return one.alpha * float(one.z.max() - one.z.min()) / 2
    h = one.alpha * one.q**2
    return float(one.z.diff().abs().max()) / one.q * h / -math.expm1(-h)


# -- fit: the smallest SQUAF within a tolerance of a function ---------------------------------------------


_SMALLER_TRIED = 2  # how many sizes in a row must fail below the one kept, because the error may ripple along k
_LARGE = 16  # from here on a size begins like its neighbour, instead of from three starts
_PAPER_Q = {"relu": 1.0, "gelu": 0.25}


def fit(
    target: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    k: int | None = None,
    q: float | None = None,
    alpha: float | None = None,
    tolerance: float | None = None,
    error: str = "sup",
    weights: str = "gaussian",
    window: int | None = 5,
    largest: int = 128,
    lipschitz: float | None = None,
) -> Fitted:
    """The smallest SQUAF whose error on [low, high] is at most the tolerance; with k, the best of that size.

    Args:
        target: a name, a definition, a function of a float64 tensor (to one of the same shape) or of a number, or
            samples (x, y).
        low, high: where it is to be near; of samples, left out, their smallest and largest x.
        k: the size, 2k+1 points. With a tolerance too, that size must reach it.
        q, alpha: the spacing and the sharpness where they are given; else they are searched for.
        tolerance: the largest error allowed, in the sense of `error`.
        error: "sup" for the largest |SQUAF - target|, as looked at in many places (see `Fitted.sup`), or "mean_square"
            for the mean of its square.
        weights, window: of the SQUAF, as in `sk.nn.Squaf`.
        largest: the largest k that is tried.
        lipschitz: a Lipschitz constant of the target on [low, high], for `Fitted.bound`; definitions bring their own.

    The table is least squares in closed form; q and alpha are found by Gauss-Newton steps from three starts, so that
    the best of them is a local best. k is doubled until the tolerance is reached, and the gap then halved, which finds
    the smallest size wherever the error falls along k; because it may ripple, smaller ones are tried until two in a row
    fail.
    The grid is symmetric about 0: an interval far from 0 leaves many of its points unused. A window jumps where it
    slides (see `zoo.squaf`), so that with the usual 5 points the error falls no faster than 1/k below 1e-3 or so of the
    range; window=None goes much further for a smooth target.

    >>> import softknee as sk
    >>> found = sk.design.fit("gelu", low=-4.0, high=4.0, tolerance=0.02)
    >>> found.k, found.sup <= 0.02, found.sup <= found.bound
    (2, True, True)
    >>> found.module(learn="z").learned
    ('z',)
    """
    _check(k=k, q=q, alpha=alpha, tolerance=tolerance, error=error, weights=weights, window=window, largest=largest)
    read = read_target(target, low=low, high=high, lipschitz=lipschitz)
    if read.reach == 0:
        raise ParameterError("fit: [low, high] has no point beside 0.")
    task = Task(read, weights, window, error)
    enough = 0.0 if tolerance is None else float(tolerance)

    made: dict[int, Solution] = {}

    def size(k: int, thorough: bool = False) -> Solution:
        known = min(made, key=lambda one: abs(one - k), default=None)
        quick = k > _LARGE and known is not None and not thorough
        if k not in made or (thorough and k > _LARGE):
            near = made[known] if quick and known is not None else None
            made[k] = best_of_size(task, k=k, q=q, alpha=alpha, enough=enough, near=near)
        return made[k]

    if k is not None:
        if tolerance is not None and task.measure(size(k)) > enough:
            raise ParameterError(_unreached(task, size(k), enough, f"With k={k}", "give a larger k, or leave k out"))
        return finished(task, size(k))
    return finished(task, _smallest(task, size, enough, largest))


def _smallest(task: Task, size: Any, enough: float, largest: int) -> Solution:
    def reaches(k: int) -> bool:
        return task.measure(size(k)) <= enough

    high = 1
    while not reaches(high):
        if high >= largest:
            tried = [2**i for i in range(largest.bit_length()) if 2**i <= largest] + [largest]
            best = min((size(k) for k in tried), key=task.measure)
            more = "" if task.window is None else ", the full sum with window=None"
            cure = f"allow a larger one with largest=, a larger tolerance, a shorter interval{more}"
            raise ParameterError(_unreached(task, best, enough, f"Up to k={largest}", cure))
        high = min(2 * high, largest)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    best, smaller = size(high), high - 1
    while smaller > max(best.k - 1 - _SMALLER_TRIED, 0):
        tried = size(smaller, thorough=True)
        best = tried if task.measure(tried) <= enough else best
        smaller -= 1
    return best


def _unreached(task: Task, best: Solution, enough: float, how: str, cure: str) -> str:
    what = "largest error" if task.error == "sup" else "mean square of the error"
    target = task.target
    return (
        f"fit: the tolerance {enough:g} is not reached for {target.name} on [{target.low:g}, {target.high:g}]. {how} "
        f"the {what} is {task.measure(best):.3g} (k={best.k}, q={best.q:.4g}, alpha={best.alpha:.4g}); {cure}."
    )


@functools.lru_cache(maxsize=64)
def start(
    name: str, *, k: int = 16, q: float | None = None, weights: str = "gaussian", window: int | None = 5
) -> Fitted:
    """The fitted ReLU or GELU from which the SQUAF paper starts its networks.

    Args:
        name: "relu" (the paper's CNNs), "gelu" (its transformers), or any name with q given.
        k: 16 in the paper.
        q: 1 for ReLU and 0.25 for GELU, as on CIFAR-100; on ImageNet and for language models the paper has 1 for both.
        weights, window: of the SQUAF.

    As in the paper q is fixed and z is fitted in the mean square, over the grid and half a step more; alpha stays at
    1.5/q^2 (1.5/q for Laplacian weights), from where the paper trains it too. The paper fits by gradient descent; here
    z is the exact minimum.

    >>> import softknee as sk
    >>> found = sk.design.start("gelu")
    >>> found.k, found.q, sum(one.numel() for one in found.module(learn=True).parameters())
    (16, 0.25, 35)
    """
    if q is None and name not in _PAPER_Q:
        raise ParameterError(
            f"start: {name!r} has no spacing in the paper, which starts from 'relu' and 'gelu'; give q=."
        )
    spacing = _PAPER_Q[name] if q is None else q
    reach = (k + 0.5) * spacing
    alpha = 1.5 / spacing if weights == "laplacian" else 1.5 / spacing**2
    return fit(
        name, low=-reach, high=reach, k=k, q=spacing, alpha=alpha, error="mean_square", weights=weights, window=window
    )


def _check(**given: Any) -> None:
    k, tolerance, window = given["k"], given["tolerance"], given["window"]
    if k is None and tolerance is None:
        raise ParameterError("fit: give k for the best of one size, or a tolerance for the smallest that reaches it.")
    for name in ("k", "largest"):
        value = given[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ParameterError(f"fit: {name} must be a whole number of at least 1, and {value!r} was given.")
    for name in ("q", "alpha", "tolerance"):
        value = given[name]
        wrong = isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf
        if value is not None and wrong:
            raise ParameterError(f"fit: {name} must be a finite number above 0, and {value!r} was given.")
    if given["error"] not in ("sup", "mean_square"):
        raise ParameterError(f"fit: error must be 'sup' or 'mean_square', and {given['error']!r} was given.")
    if given["weights"] not in ("gaussian", "laplacian"):
        raise ParameterError(f"fit: weights must be 'gaussian' or 'laplacian', and {given['weights']!r} was given.")
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 3 or not window % 2):
        raise ParameterError(
            f"fit: window must be an odd number of points (3, 5, ...) or None for all, and {window!r} was given."
        )
