r"""The flow of a continuous piecewise-affine velocity on a line (CPAB in one dimension), in plain tensor operations.

The interval is [0, n], one unit per cell; the velocity V has the values v_0 = 0, v_1, ..., v_(n-1), v_n = 0 at the
whole numbers and is straight between them. The flow carries u along du/dt = V(u) for the time 1. V does not change its
sign along a path, so that a path moves one way or rests:

    inside a cell       u(t) = u + V(u) t E(s t),   E(y) = (e^y - 1)/y,   s the slope of V in the cell
    to a cell's end B   takes |B - u| L(|V(u)|, |V(B)|),   L(a, b) = log(b/a)/(b - a),   for ever if V(B) is 0 or turns

The times for whole cells are summed once, C_j; the last cell of a path is where C passes the time that is left. So no
path is followed from cell to cell, and autograd goes through these formulas, to every order. A cell that cannot be
crossed in the time 1 counts as 2, so that differences of C keep their digits.

This form serves exports, forward-mode differentiation and second derivatives; values and gradients have faster forms
in `eager.py` and `triton_kernels.py`.

Hazard: L at a = b and E at 0 are taken from series, there and in their derivatives.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..squaf.plain import compute_dtype

_NEVER = 2.0


def bend_plain(x: Tensor, theta: Tensor, low: float, high: float, gated: bool) -> Tensor:
    """As `bend`, for an x of one dimension or more and a theta that broadcasts against it."""
    kind = compute_dtype(x)
    stored, x, theta = x.dtype, x.to(kind), theta.to(kind)
    inside = (x > low) & (x < high)
    width = (high - low) / (theta.shape[-1] + 1)
    place = (torch.where(inside, x, low) - low) / width
    velocity = torch.nn.functional.pad(theta, (1, 1))
    bent = torch.where(inside, low + width * flow(place, velocity), x)
    if gated:
        # 0 times minus infinity is 0 here, as in GELU; Phi itself is 0 from -15 on in float32.
        share = 0.5 * torch.erfc(-x * math.sqrt(0.5))
        bent = torch.where(x == -math.inf, 0.0, bent * share)
    return bent.to(stored)


def flow(u: Tensor, velocity: Tensor) -> Tensor:
    """Where u, in [0, n], is after the time 1. velocity: the n+1 values along its last dimension, 0 at both ends;
    its other dimensions broadcast against u.

    >>> import torch
    >>> flow(torch.tensor([0.0, 0.5, 1.0, 2.0]), torch.tensor([0.0, 1.0, 0.0]))
    tensor([0.0000, 1.2642, 1.6321, 2.0000])
    """
    n = velocity.shape[-1] - 1
    spent = _crossing_times(velocity)
    cell = u.detach().floor().clamp(0, n - 1).long()
    left, right = _at(velocity, cell), _at(velocity, cell + 1)
    own_slope = right - left
    speed = left + own_slope * (u - cell)
    ahead = speed.detach() > 0
    border = torch.where(ahead, cell + 1, cell)
    to_border = _travel_time(torch.where(ahead, border - u, u - border), speed, torch.where(ahead, right, left))
    rest = 1 - to_border
    leaves = rest.detach() > 0
    at_border = _at(spent, border)
    last = _last_border(spent.detach(), at_border.detach(), border, rest.detach().clamp(0, 1), ahead)
    time_left = rest - torch.where(ahead, _at(spent, last) - at_border, at_border - _at(spent, last))
    beyond = _at(velocity, torch.where(ahead, last + 1, last - 1).clamp(0, n))
    speed_there = _at(velocity, last)
    # Where no border is reached the path begins, and ends, in its own cell.
    begin = torch.where(leaves, last.to(u.dtype), u)
    pace = torch.where(leaves, speed_there, speed)
    slope = torch.where(leaves, (beyond - speed_there) * torch.where(ahead, 1.0, -1.0).to(u.dtype), own_slope)
    # Rounding may leave a time a little below 0, for which the formula holds as well; a clamp would stop gradients.
    time = torch.where(leaves, time_left, 1.0)
    return begin + pace * time * _growth(slope * time)


def _at(table: Tensor, place: Tensor) -> Tensor:
    """The values of a table (its last dimension; the others broadcast) at places."""
    rows = torch.arange(table[..., 0].numel(), device=table.device).reshape(table.shape[:-1]) * table.shape[-1]
    return table.reshape(-1)[rows + place]


def _crossing_times(velocity: Tensor) -> Tensor:
    """C_0 = 0, C_1, ..., C_n: the summed times for whole cells."""
    times = _travel_time(1.0, velocity[..., :-1], velocity[..., 1:])
    return torch.cat([torch.zeros_like(times[..., :1]), times.cumsum(-1)], dim=-1)


def _last_border(spent: Tensor, at_border: Tensor, border: Tensor, rest: Tensor, ahead: Tensor) -> Tensor:
    """The last border that a path crosses, which crosses `border` with `rest` of its time left."""
    clock = at_border + torch.where(ahead, rest, -rest)
    # Where the time ends at a border, either of two cells gives that border: equality needs no care.
    passed = (spent <= clock.unsqueeze(-1)).sum(-1)
    last = torch.where(ahead, torch.maximum(passed - 1, border), torch.minimum(passed, border))
    return last.clamp(0, spent.shape[-1] - 1)


def _travel_time(length: Tensor | float, a: Tensor, b: Tensor) -> Tensor:
    """The time for a length along which the velocity goes straight from a to b; at most _NEVER."""
    passes = (a.detach() * b.detach().sign()) > 0
    a, b = torch.where(passes, a.abs(), 1.0), torch.where(passes, b.abs(), 1.0)
    total, difference = a + b, b - a
    ratio = difference / total
    near = ratio.detach().abs() < 0.1
    square = torch.where(near, ratio, 0.0).square()
    series = torch.zeros_like(square)
    for k in range(8, -1, -1):
        series = series * square + 1 / (2 * k + 1)  # artanh(r)/r
    far = torch.where(near, 0.5, a)  # two numbers apart, where the series stands in
    exact = (torch.where(near, 1.0, b) / far).log() / torch.where(near, 0.5, difference)
    found = length * torch.where(near, 2 * series / total, exact)
    return torch.where(passes & (found.detach() < _NEVER), found, _NEVER)


def _growth(y: Tensor) -> Tensor:
    """(e^y - 1)/y."""
    near = y.detach().abs() < 0.5
    small = torch.where(near, y, 0.0)
    series = torch.zeros_like(y)
    for k in range(14, 0, -1):
        series = (series * small) / (k + 1) + 1
    large = torch.where(near, 1.0, y)
    return torch.where(near, series, large.expm1() / large)
