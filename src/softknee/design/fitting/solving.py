r"""The best table for a grid, and better grids: variable projection.

For q and alpha given the table is linear least squares in closed form (see `soft_table_fit`). Along q and alpha the
residual is r(log q, log alpha) with the table solved for at each point; Gauss-Newton takes its slope to be the part of
d SQUAF/d(log q, log alpha) at fixed z that no table can undo (Kaufman 1975), and halves the step until the error falls.

For the largest error instead of the mean square the table is solved again with weights that grow where the error is
large (Lawson 1961), which tends to the table of least largest error.

Reference: Golub and Pereyra, The differentiation of pseudo-inverses and nonlinear least squares, 1973.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..soft_table_fit import _WEAKEST, shares_of
from .target import Rows, Target

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

    def measure(self, one: Solution) -> float:
        return one.sup if self.error == "sup" else one.mean_square

    def softness(self, q: float, alpha: float) -> float:
        return alpha * q if self.weights == "laplacian" else alpha * q * q

    def alpha_for(self, q: float, softness: float) -> float:
        return softness / q if self.weights == "laplacian" else softness / q**2


def solve(task: Task, *, k: int, q: float, alpha: float) -> tuple[Solution, Rows]:
    """The table of least mean square."""
    rows = task.target.rows(k=k, q=q)
    start = task.target.values((q * torch.arange(-k, k + 1, dtype=torch.float64)).clamp(*_ends(task.target)))
    design = task.shares(rows.x, k=k, q=q, alpha=alpha)
    z = start + _least_squares(design, rows.y - design @ start, rows.mass)
    return _judged(task, rows, k=k, q=q, alpha=alpha, z=z), rows


def _ends(target: Target) -> tuple[float, float]:
    return target.low, target.high


def _least_squares(design: Tensor, missing: Tensor, mass: Tensor) -> Tensor:
    root = mass.sqrt()
    found = torch.linalg.lstsq(root[:, None] * design, (root * missing)[:, None], rcond=_WEAKEST, driver="gelsd")
    return found.solution[:, 0]


def _judged(task: Task, rows: Rows, *, k: int, q: float, alpha: float, z: Tensor) -> Solution:
    off = task.shares(rows.x, k=k, q=q, alpha=alpha) @ z - rows.y
    looks = task.shares(rows.look_x, k=k, q=q, alpha=alpha) @ z - rows.look_y
    return Solution(k, q, alpha, z, float(looks.abs().max()), float(off.square() @ rows.mass))


def levelled(task: Task, one: Solution, rows: Rows, *, enough: float = 0.0) -> Solution:
    """The same grid with a table of smaller largest error."""
    design = task.shares(rows.look_x, k=one.k, q=one.q, alpha=one.alpha)
    mass = torch.full_like(rows.look_x, 1 / len(rows.look_x))
    best, z = one, one.z
    for _ in range(_ROUNDS if one.k <= 48 else _ROUNDS // 3):
        off = (rows.look_y - design @ z).abs()
        if float(off.max()) < best.sup:
            best = _judged(task, rows, k=one.k, q=one.q, alpha=one.alpha, z=z)
        if best.sup <= enough or not float(off.max()) > 0:
            break
        mass = mass * (off / off.max() + 1e-3)
        mass = mass / mass.sum()
        z = one.z + _least_squares(design, rows.look_y - design @ one.z, mass)
    return best


def improved(task: Task, one: Solution, rows: Rows, *, free: tuple[bool, bool], enough: float) -> tuple[Solution, Rows]:
    """Gauss-Newton along those of q and alpha that are free."""
    for _ in range(_STEPS if one.k <= 64 else 2):
        if not any(free) or task.measure(one) <= enough:
            break
        step = _step(task, one, rows, free)
        before = task.measure(one)
        for share in (1.0, 0.5, 0.25, 0.0625):
            q, alpha = _moved(task, one, [share * part for part in step], free)
            if (q, alpha) == (one.q, one.alpha):
                continue
            tried, its_rows = solve(task, k=one.k, q=q, alpha=alpha)
            if task.measure(tried) < before:
                one, rows = tried, its_rows
                break
        if task.measure(one) > 0.995 * before:
            break
    return one, rows


def _step(task: Task, one: Solution, rows: Rows, free: tuple[bool, bool]) -> list[float]:
    """The change of log q and log alpha."""
    root = rows.mass.sqrt()[:, None]
    shares = task.shares(rows.x, k=one.k, q=one.q, alpha=one.alpha)
    slopes = _slopes(task, one, rows.x, shares)[:, list(free)] * root
    basis = torch.linalg.qr(root * shares).Q
    slopes = slopes - basis @ (basis.T @ slopes)
    off = root * (rows.y - shares @ one.z)[:, None]
    found = iter(torch.linalg.lstsq(slopes, off, driver="gelsd").solution[:, 0].tolist())
    return [max(-0.5, min(0.5, next(found))) if is_free else 0.0 for is_free in free]


def _slopes(task: Task, one: Solution, x: Tensor, shares: Tensor) -> Tensor:
    """d SQUAF/d log q and d SQUAF/d log alpha at fixed z, one row for each x."""
    steps = torch.arange(-one.k, one.k + 1, dtype=torch.float64)
    away = x[:, None] - steps * one.q
    value = (shares @ one.z)[:, None]
    pull = shares * (one.z - value)
    if task.weights == "laplacian":
        along_q = one.alpha * one.q * (pull * steps * away.sign()).sum(1)
        along_alpha = -one.alpha * (pull * away.abs()).sum(1)
    else:
        along_q = 2 * one.alpha * one.q * (pull * steps * away).sum(1)
        along_alpha = -one.alpha * (pull * away.square()).sum(1)
    return torch.stack([along_q, along_alpha], dim=1)


def _moved(task: Task, one: Solution, step: list[float], free: tuple[bool, bool]) -> tuple[float, float]:
    """q and alpha after a step, within the limits of what is sensible."""
    q, alpha = one.q * math.exp(step[0]), one.alpha * math.exp(step[1])
    if free[0]:
        q = min(max(q, _NARROWEST * task.target.reach / one.k), _WIDEST * task.target.reach / one.k)
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
        one, rows = solve(task, k=k, q=width, alpha=sharp)
        one, rows = improved(task, one, rows, free=(q is None, alpha is None), enough=enough)
        if task.error == "sup" and one.sup > enough:
            one = levelled(task, one, rows, enough=enough)
        if best is None or task.measure(one) < task.measure(best):
            best = one
        if task.measure(best) <= enough:
            break
    assert best is not None
    return best


def _starts(
    task: Task, *, k: int, q: float | None, alpha: float | None, near: Solution | None
) -> list[tuple[float, float]]:
    """The pairs of q and alpha to begin from. Large sizes are costly, and much like one half as large."""
    found: list[tuple[float, float]] = []
    if near is not None:
        tries = [(near.k * near.q / k, task.softness(near.q, near.alpha))]
    else:
        # With some points beyond the ends, because SQUAF levels off at its last one.
        tries = [(task.target.reach / max(k - spare, 0.75 * k), h) for spare, h in ((0.0, 1.5), (1.5, 1.5), (1.5, 0.7))]
    for width, softness in tries:
        width = width if q is None else q
        pair = width, task.alpha_for(width, softness) if alpha is None else alpha
        if pair not in found:
            found.append(pair)
    return found
