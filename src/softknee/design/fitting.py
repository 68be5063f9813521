"""The smallest SQUAF that stands for a given function: `fit`, and the paper's fitted ReLU and GELU: `start`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ParameterError, SoftkneeError, require_choice, require_count, require_number
from ..registry import get, service
from ..spec import Activation, Rowwise, SoftTable
from ..spec.algebra import sympy
from ..spec.precision import to_digits
from ..spec.soft_table import read_window
from .concrete import concrete
from .quadrature import legendre_rule

# Directions of z that move the function by less than this share of what the strongest direction does are left alone:
# a table may then be ten thousand times its own effect, which float32 still computes to 1e-3 of it.
_WEAKEST = 1e-4


@dataclass(frozen=True, eq=False)
class TableFit:
    """A fitted table.

    z:       the values at the points i q, i = -k..k, in float64.
    error:   the largest |SQUAF - target| seen on [low, high].
    rms:     its root mean square there.
    sampled: the largest error of the sampled table, for comparison.
    low, high: where the two were compared.
    """

    z: Tensor
    error: float
    rms: float
    sampled: float
    low: float
    high: float


def fit_table(
    target: Any,
    *,
    k: int,
    q: float,
    alpha: float,
    weights: str = "gaussian",
    window: int | None = None,
    low: float | None = None,
    high: float | None = None,
) -> TableFit:
    """The table z that brings SQUAF nearest to a function in the mean square, in closed form.

    Args:
        target: a name, a definition, or any function, of a float64 tensor (to one of the same shape) or of a number.
        k, q, alpha, weights: of the SQUAF, as in `sk.nn.Squaf`.
        window: how many of the nearest points it keeps; None for all.
        low, high: where it is to be near; by default the grid and half a step more, up to where its ends are still the
            points nearest to x. SQUAF is constant beyond, and no table changes that.

    >>> import softknee as sk
    >>> fit = sk.design.fit_table("gelu", k=16, q=0.25, alpha=24.0)
    >>> fit.z.shape, fit.error < fit.sampled / 2
    (torch.Size([33]), True)
    """
    require_count("fit_table", "k", k)
    _check("fit_table", {}, {"q": q, "alpha": alpha}, weights, window)
    reach = (k + 0.5) * q
    low, high = _ends(-reach if low is None else low, reach if high is None else high, title="fit_table")
    curve, seams = curve_of(target)
    wanted = Target("", low, high, curve, seams, None, title="fit_table", nodes=12, looks=16, panels=1)
    task = Task(wanted, weights, window, "sup")
    sampled = task.target.values(q * torch.arange(-k, k + 1, dtype=torch.float64))
    fitted, rows = solve(task, k=k, q=q, alpha=alpha, start=sampled)
    error = _judged(task, rows, k=k, q=q, alpha=alpha, z=sampled).sup
    return TableFit(fitted.z, fitted.sup, math.sqrt(fitted.mean_square), error, low, high)


def curve_of(target: Any, *, title: str = "fit_table") -> tuple[Callable[[Any], Any], tuple[float, ...]]:
    """The target as a function, and where its pieces meet as far as that is known. title: what the user called."""
    if isinstance(target, str | Activation | SoftTable | Rowwise):
        found = concrete(target)
        return found.value, found.seams
    if not callable(target):
        raise ParameterError(
            f"{title}: the target must be a name, a definition or a function of a tensor or a number, and "
            f"{type(target).__name__} was given."
        )
    function: Callable[[Any], Any] = target
    return function, (0.0,)


def values_of(curve: Callable[[Any], Any], at: Tensor, *, title: str = "fit_table") -> Tensor:
    """The target at these places: asked for all at once, or one by one if it is a function of a number."""
    with torch.no_grad():
        values = _values_at(curve, at, title)
    if values.shape != at.shape:
        raise InputError(f"{title}: the target must give one value for each number of the tensor it is called with.")
    if not bool(values.isfinite().all()):
        place = int((~values.isfinite()).nonzero()[0])
        raise InputError(
            f"{title}: the target is not finite everywhere: at {float(at[place]):g} it is {float(values[place]):g}. "
            "Choose low, high and q so that the grid and what it is compared on lie where it is."
        )
    return values.detach().double().cpu()


def _values_at(curve: Callable[[Any], Any], at: Tensor, title: str) -> Tensor:
    try:
        result = curve(at)
    except SoftkneeError:
        raise
    except Exception as error:  # of whatever kind: it is the user's function, and may be one of a number
        why = f"{type(error).__name__}: {error}"
    else:
        if isinstance(result, Tensor):
            return result
        why = f"it gave {type(result).__name__}"
    values: list[float] = []
    for x in at.tolist():
        try:
            values.append(float(curve(x)))
        except Exception as error:
            raise InputError(
                f"{title}: the target can be called neither with a tensor ({why}) nor with the number {x:g} "
                f"({type(error).__name__}: {error}). It must be a function of a float64 tensor or of a number, with a "
                "value everywhere on the grid and between low and high."
            ) from error
    return torch.tensor(values, dtype=torch.float64)


def shares_of(x: Tensor, *, k: int, q: float, alpha: float, weights: str, window: int | None) -> Tensor:
    """P(y_i|x), one row for each x."""
    steps = torch.arange(-k, k + 1, dtype=torch.float64)
    centre = (x / q).round().clamp(-k, k)[:, None]
    rest = x[:, None] - centre * q
    j = steps - centre
    if weights == "gaussian":
        exponents = alpha * q * j * (2 * rest - j * q)  # relative to the nearest point, so that none overflows
    else:
        exponents = alpha * (rest.abs() - (rest - j * q).abs())
    if window is not None:
        exponents = exponents.masked_fill(j.abs() > window // 2, -math.inf)
    return torch.softmax(exponents, dim=1)


def on_panels(edges: list[float], nodes: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """A rule on (-1, 1) repeated between all edges."""
    ends = torch.tensor(list(itertools.pairwise(edges)), dtype=torch.float64)
    middle, half = ends.mean(1, keepdim=True), (ends[:, 1:] - ends[:, :1]) / 2
    return (middle + half * nodes).reshape(-1), (half * weights).reshape(-1)


def even(count: int) -> tuple[Tensor, Tensor]:
    """Places spread evenly up to a hair from both ends: at an end itself a window may be the left or the right one."""
    nodes = torch.linspace(-1 + 1e-9, 1 - 1e-9, count, dtype=torch.float64)
    return nodes, torch.full_like(nodes, 2 / count)


@dataclass(frozen=True, eq=False)
class Rows:
    """Where SQUAF and its target are compared: places with masses for the mean square, places for the largest error."""

    x: Tensor
    y: Tensor
    mass: Tensor
    look_x: Tensor
    look_y: Tensor


@dataclass(frozen=True, eq=False)
class Target:
    """A function on [low, high], or samples of one.

    curve:     the function; of samples, their linear interpolation, from which a table starts.
    seams:     where it may bend.
    lipschitz: a Lipschitz constant, where one is known.
    samples:   (x, y) inside [low, high], or None for a function.
    title:     what the user called, for errors.
    nodes, looks: places per panel for the mean square and for the largest error.
    panels:    the least number of panels, for a target that is not simple between its seams.
    """

    name: str
    low: float
    high: float
    curve: Callable[[Any], Any]
    seams: tuple[float, ...]
    lipschitz: float | None
    samples: tuple[Tensor, Tensor] | None = None
    title: str = "fit"
    nodes: int = 8
    looks: int = 12
    panels: int = 32

    @property
    def reach(self) -> float:
        return max(abs(self.low), abs(self.high))

    def edges(self, *, k: int, q: float) -> list[float]:
        """Where SQUAF or the target may bend or jump, and enough between for a target that is not that simple."""
        halves = [q * i / 2 for i in range(-2 * k - 1, 2 * k + 2)]
        evenly = [self.low + (self.high - self.low) * i / self.panels for i in range(1, self.panels)]
        inner = (edge for edge in [*halves, *self.seams, *evenly] if self.low < edge < self.high)
        return sorted({self.low, self.high, *inner})

    def rows(self, *, k: int, q: float) -> Rows:
        if self.samples is not None:
            x, y = self.samples
            return Rows(x, y, torch.full_like(x, 1 / len(x)), x, y)
        edges = self.edges(k=k, q=q)
        x, mass = on_panels(edges, *legendre_rule(self.nodes))
        look_x, _ = on_panels(edges, *even(self.looks))
        values = self.values(torch.cat([x, look_x]))
        return Rows(x, values[: len(x)], mass / (self.high - self.low), look_x, values[len(x) :])

    def values(self, at: Tensor) -> Tensor:
        return values_of(self.curve, at, title=self.title)


def read_target(target: Any, *, low: float | None, high: float | None, lipschitz: float | None) -> Target:
    """What the arguments of `fit` mean, or a sentence that says what they should be."""
    if isinstance(target, tuple | list):
        return _of_samples(target, low=low, high=high)
    if low is None or high is None:
        raise ParameterError("fit: low and high say where the function is to be fitted; give both.")
    low, high = _ends(low, high)
    if lipschitz is not None:
        require_number("fit", "lipschitz", lipschitz, zero=True)
    curve, seams = curve_of(target, title="fit")
    name = target if isinstance(target, str) else getattr(target, "name", None) or "the function"
    return Target(name, low, high, curve, seams, _claimed(target) if lipschitz is None else float(lipschitz))


def _ends(low: Any, high: Any, title: str = "fit") -> tuple[float, float]:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (low, high))
    if not numbers or not -math.inf < low < high < math.inf:
        raise ParameterError(f"{title}: low must be below high, both finite numbers, and {low!r}, {high!r} were given.")
    return float(low), float(high)


def _of_samples(target: Any, *, low: float | None, high: float | None) -> Target:
    try:
        x, y = (torch.as_tensor(column, dtype=torch.float64).detach().cpu().reshape(-1) for column in target)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError("fit: samples are a pair (x, y) of tensors or lists of numbers.") from error
    if len(x) != len(y) or len(x) < 2:
        raise InputError(f"fit: samples need two or more x and as many y, and {len(x)} and {len(y)} were given.")
    for name, values in (("x", x), ("y", y)):
        if len(lost := (~values.isfinite()).nonzero()):
            first = int(lost[0])
            raise InputError(
                f"fit: samples must be finite, and {len(lost)} of {len(values)} {name} are not, the first of them "
                f"{name}[{first}], which is {float(values[first]):g}; leave these samples out."
            )
    low, high = _ends(float(x.min()) if low is None else low, float(x.max()) if high is None else high)
    inside = (x >= low) & (x <= high)
    if int(inside.sum()) < 2:
        raise InputError(f"fit: fewer than two samples lie in [{low:g}, {high:g}]; choose low and high around them.")
    order = x[inside].argsort(stable=True)
    x, y = x[inside][order], y[inside][order]

    def line(at: Tensor) -> Tensor:
        right = torch.searchsorted(x, at).clamp(1, len(x) - 1)
        gap = (x[right] - x[right - 1]).clamp(min=1e-300)
        share = ((at - x[right - 1]) / gap).clamp(0, 1)
        return y[right - 1] + share * (y[right] - y[right - 1])

    return Target("the samples", low, high, line, (), None, (x, y))


def _claimed(target: Any) -> float | None:
    """The Lipschitz constant that a definition claims, at the defaults of its parameters."""
    if not isinstance(target, str | Activation | SoftTable):
        return None
    function = concrete(target)
    definition = get(target) if isinstance(target, str) else target
    if not isinstance(definition, Activation) or definition.claims is None:
        return None
    values = {definition.param(name).symbol: value for name, value in function.params.items()}
    claimed = sympy.sympify(definition.claims.lipschitz).subs(values)
    constant = float(to_digits(claimed, 17)) if claimed.is_number else math.inf
    return constant if math.isfinite(constant) else None


_STEPS = 6
_ROUNDS = 24  # of Lawson's weights
# Softer than this, tables of alternating sign and any size are all but the same function; harder, it is a staircase.
SOFTEST, HARDEST = 0.35, 12.0
_WIDEST, _NARROWEST = 1.6, 0.5  # the grid's end k q, as a share of the reach of [low, high]


@dataclass(frozen=True, eq=False)
class Solution:
    """A table for one grid, with its errors at the rows."""

    k: int
    q: float
    alpha: float
    z: Tensor
    sup: float
    mean_square: float


@dataclass(frozen=True, eq=False)
class Task:
    """What does not change while grids are tried."""

    target: Target
    weights: str
    window: int | None
    error: str

    def shares(self, x: Tensor, *, k: int, q: float, alpha: float) -> Tensor:
        return shares_of(x, k=k, q=q, alpha=alpha, weights=self.weights, window=self.window)

    def measure(self, solution: Solution) -> float:
        return solution.sup if self.error == "sup" else solution.mean_square

    def softness(self, q: float, alpha: float) -> float:
        return alpha * q if self.weights == "laplacian" else alpha * q * q

    def alpha_for(self, q: float, softness: float) -> float:
        return softness / q if self.weights == "laplacian" else softness / q**2


def solve(task: Task, *, k: int, q: float, alpha: float, start: Tensor | None = None) -> tuple[Solution, Rows]:
    """The table of least mean square, as a correction of `start`: by default the target at the points of the grid."""
    rows = task.target.rows(k=k, q=q)
    if start is None:
        points = q * torch.arange(-k, k + 1, dtype=torch.float64)
        start = task.target.values(points.clamp(task.target.low, task.target.high))
    design = task.shares(rows.x, k=k, q=q, alpha=alpha)
    z = start + _least_squares(design, rows.y - design @ start, rows.mass)
    return _judged(task, rows, k=k, q=q, alpha=alpha, z=z), rows


def _least_squares(design: Tensor, missing: Tensor, mass: Tensor) -> Tensor:
    root = mass.sqrt()
    fit = torch.linalg.lstsq(root[:, None] * design, (root * missing)[:, None], rcond=_WEAKEST, driver="gelsd")
    return fit.solution[:, 0]


def _judged(task: Task, rows: Rows, *, k: int, q: float, alpha: float, z: Tensor) -> Solution:
    off = task.shares(rows.x, k=k, q=q, alpha=alpha) @ z - rows.y
    looks = task.shares(rows.look_x, k=k, q=q, alpha=alpha) @ z - rows.look_y
    return Solution(k, q, alpha, z, float(looks.abs().max()), float(off.square() @ rows.mass))


def levelled(task: Task, solution: Solution, rows: Rows, *, enough: float = 0.0) -> Solution:
    """The same grid with a table of smaller largest error."""
    design = task.shares(rows.look_x, k=solution.k, q=solution.q, alpha=solution.alpha)
    mass = torch.full_like(rows.look_x, 1 / len(rows.look_x))
    best, z = solution, solution.z
    for _ in range(_ROUNDS if solution.k <= 48 else _ROUNDS // 3):
        off = (rows.look_y - design @ z).abs()
        if float(off.max()) < best.sup:
            best = _judged(task, rows, k=solution.k, q=solution.q, alpha=solution.alpha, z=z)
        if best.sup <= enough or not float(off.max()) > 0:
            break
        mass = mass * (off / off.max() + 1e-3)
        mass = mass / mass.sum()
        z = solution.z + _least_squares(design, rows.look_y - design @ solution.z, mass)
    return best


def improved(
    task: Task, solution: Solution, rows: Rows, *, free: tuple[bool, bool], enough: float
) -> tuple[Solution, Rows]:
    """Gauss-Newton along those of q and alpha that are free."""
    for _ in range(_STEPS if solution.k <= 64 else 2):
        if not any(free) or task.measure(solution) <= enough:
            break
        step = _step(task, solution, rows, free)
        before = task.measure(solution)
        for share in (1.0, 0.5, 0.25, 0.0625):
            q, alpha = _moved(task, solution, [share * part for part in step], free)
            if (q, alpha) == (solution.q, solution.alpha):
                continue
            tried, its_rows = solve(task, k=solution.k, q=q, alpha=alpha)
            if task.measure(tried) < before:
                solution, rows = tried, its_rows
                break
        if task.measure(solution) > 0.995 * before:
            break
    return solution, rows


def _step(task: Task, start: Solution, rows: Rows, free: tuple[bool, bool]) -> list[float]:
    """The change of log q and log alpha."""
    root = rows.mass.sqrt()[:, None]
    shares = task.shares(rows.x, k=start.k, q=start.q, alpha=start.alpha)
    slopes = _slopes(task, start, rows.x, shares)[:, list(free)] * root
    basis = torch.linalg.qr(root * shares).Q
    slopes = slopes - basis @ (basis.T @ slopes)
    off = root * (rows.y - shares @ start.z)[:, None]
    changes = iter(torch.linalg.lstsq(slopes, off, driver="gelsd").solution[:, 0].tolist())
    return [max(-0.5, min(0.5, next(changes))) if is_free else 0.0 for is_free in free]


def _slopes(task: Task, solution: Solution, x: Tensor, shares: Tensor) -> Tensor:
    """d SQUAF/d log q and d SQUAF/d log alpha at fixed z, one row for each x."""
    steps = torch.arange(-solution.k, solution.k + 1, dtype=torch.float64)
    away = x[:, None] - steps * solution.q
    value = (shares @ solution.z)[:, None]
    pull = shares * (solution.z - value)
    if task.weights == "laplacian":
        along_q = solution.alpha * solution.q * (pull * steps * away.sign()).sum(1)
        along_alpha = -solution.alpha * (pull * away.abs()).sum(1)
    else:
        along_q = 2 * solution.alpha * solution.q * (pull * steps * away).sum(1)
        along_alpha = -solution.alpha * (pull * away.square()).sum(1)
    return torch.stack([along_q, along_alpha], dim=1)


def _moved(task: Task, solution: Solution, step: list[float], free: tuple[bool, bool]) -> tuple[float, float]:
    """q and alpha after a step, within the limits of what is sensible."""
    q, alpha = solution.q * math.exp(step[0]), solution.alpha * math.exp(step[1])
    if free[0]:
        q = min(max(q, _NARROWEST * task.target.reach / solution.k), _WIDEST * task.target.reach / solution.k)
    if free[1]:
        softness = min(max(task.softness(q, alpha), SOFTEST), HARDEST)
        alpha = task.alpha_for(q, softness)
    return q, alpha


def best_of_size(
    task: Task, *, k: int, q: float | None, alpha: float | None, enough: float, near: Solution | None = None
) -> Solution:
    """The best SQUAF with 2k+1 points, or the first that is good enough. near: one of another size, to begin like."""
    best: Solution | None = None
    for width, sharp in _starts(task, k=k, q=q, alpha=alpha, near=near):
        solution, rows = solve(task, k=k, q=width, alpha=sharp)
        solution, rows = improved(task, solution, rows, free=(q is None, alpha is None), enough=enough)
        if task.error == "sup" and solution.sup > enough:
            solution = levelled(task, solution, rows, enough=enough)
        if best is None or task.measure(solution) < task.measure(best):
            best = solution
        if task.measure(best) <= enough:
            break
    assert best is not None
    return best


def _starts(
    task: Task, *, k: int, q: float | None, alpha: float | None, near: Solution | None
) -> list[tuple[float, float]]:
    """The pairs of q and alpha to begin from. Large sizes are costly, and much like one half as large."""
    pairs: list[tuple[float, float]] = []
    if near is not None:
        tries = [(near.k * near.q / k, task.softness(near.q, near.alpha))]
    else:
        # With some points beyond the ends, because SQUAF levels off at its last one.
        tries = [(task.target.reach / max(k - spare, 0.75 * k), h) for spare, h in ((0.0, 1.5), (1.5, 1.5), (1.5, 0.7))]
    for width, softness in tries:
        width = width if q is None else q
        pair = width, task.alpha_for(width, softness) if alpha is None else alpha
        if pair not in pairs:
            pairs.append(pair)
    return pairs


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
        names = ("k", "q", "alpha", "window", "weights")
        return {"z": self.z.clone(), **{name: getattr(self, name) for name in names}}

    def module(self, *, learn: bool | str | Iterable[str] = False, **arguments: Any) -> Any:
        """It as a module; `learn`, `per`, `size`, `device`, `dtype` and the others as in `sk.nn.Squaf`."""
        return service("make_module")("squaf", **{**self.starts, "learn": learn, **arguments})

    def __call__(self, x: Tensor) -> Tensor:
        """SQUAF at x."""
        return get("squaf")(x, **self.starts)


def finished(task: Task, solution: Solution) -> Fitted:
    """The result, with what has to be said of it."""
    ends = (solution.k + _STEPS_OUT) * solution.q * torch.tensor([-1.0, 1.0], dtype=torch.float64)
    with torch.enable_grad():
        curve = task.shares(ends.requires_grad_(), k=solution.k, q=solution.q, alpha=solution.alpha) @ solution.z
        (slopes,) = torch.autograd.grad(curve.sum(), ends)
    return Fitted(
        **vars(solution),
        bound=_bound(task, solution),
        slopes_outside=(float(slopes[0]), float(slopes[1])),
        low=task.target.low,
        high=task.target.high,
        target=task.target.name,
        weights=task.weights,
        window=task.window,
    )


def _bound(task: Task, solution: Solution) -> float | None:
    """An upper bound of |SQUAF - target|: in a piece of half width w around m it is below |error at m| + w L.

    Pieces whose bound is not good enough are halved. They end where a window slides, and a window is a SQUAF of fewer
    points, to which the same Lipschitz constant applies.
    """
    target = task.target
    if target.lipschitz is None or target.samples is not None:
        return None
    steepest = target.lipschitz + steepest_slope(solution, task)
    pairs = torch.tensor(list(itertools.pairwise(target.edges(k=solution.k, q=solution.q))), dtype=torch.float64)
    middle, half = pairs.mean(1), (pairs[:, 1] - pairs[:, 0]) / 2
    largest = 0.0
    while True:
        parts = middle.split(_AT_ONCE // len(solution.z))
        curve = torch.cat(
            [task.shares(part, k=solution.k, q=solution.q, alpha=solution.alpha) @ solution.z for part in parts]
        )
        above = (curve - target.values(middle)).abs() + steepest * half
        # What is within 5% of the largest error seen need not be known better.
        open_ = above > 1.05 * solution.sup + 1e-12
        largest = max(largest, float(above[~open_].max()) if bool((~open_).any()) else 0.0)
        if not bool(open_.any()):
            return largest
        if 2 * int(open_.sum()) > _MOST_PIECES or float(half.max()) < 1e-12 * target.reach:
            return max(largest, float(above.max()))
        middle, half = middle[open_], half[open_] / 2
        middle, half = torch.cat([middle - half, middle + half]), torch.cat([half, half])


def steepest_slope(solution: Solution, task: Task) -> float:
    """The Lipschitz constant that the zoo claims of SQUAF, for this table."""
    if task.weights == "laplacian":
        return solution.alpha * float(solution.z.max() - solution.z.min()) / 2
    h = solution.alpha * solution.q**2
    return float(solution.z.diff().abs().max()) / solution.q * h / -math.expm1(-h)


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
    if k is None and tolerance is None:
        raise ParameterError("fit: give k for the best of one size, or a tolerance for the smallest that reaches it.")
    require_choice("fit", "error", error, ("sup", "mean_square"))
    _check("fit", {"k": k, "largest": largest}, {"q": q, "alpha": alpha, "tolerance": tolerance}, weights, window)
    read = read_target(target, low=low, high=high, lipschitz=lipschitz)
    if read.reach == 0:
        raise ParameterError("fit: [low, high] has no point beside 0.")
    task = Task(read, weights, window, error)
    enough = 0.0 if tolerance is None else float(tolerance)

    made: dict[int, Solution] = {}

    def size(k: int, thorough: bool = False) -> Solution:
        known = min(made, key=lambda other: abs(other - k), default=None)
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


def _check(title: str, counts: dict[str, Any], numbers: dict[str, Any], weights: Any, window: Any) -> None:
    """Refuse arguments that no SQUAF has; a count or a number may be left out."""
    for name, value in counts.items():
        if value is not None:
            require_count(title, name, value)
    for name, value in numbers.items():
        if value is not None:
            require_number(title, name, value)
    require_choice(title, "weights", weights, ("gaussian", "laplacian"))
    read_window(window, title=title)
