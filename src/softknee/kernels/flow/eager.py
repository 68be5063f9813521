r"""The flow and its gradients on a CPU: tensor operations on pieces that fit in a processor's cache.

Values as in `plain.py`, but no graph goes through them: along a path u(t) the derivative of its end T by the place at
the time t is p(t) = e^(the integral of V' from t to 1), so that

    dT/du = p(0),      dT/dv_j = the integral of p(t) hat_j(u(t)) dt,   hat_j the hat function of border j.

Borders add nothing, since V is continuous. In a cell that is entered at u_0 with the speed a and left after the time t,
with y = s t, the integrals of p and p (u - u_0) are P t E(y) and P a t^2 F(y), F(y) = (y e^y - e^y + 1)/y^2, P the
value of p at the exit. Over a whole cell p = |V(T)|/|V(u)|, and the integral is |V(T)| times one number for the cell.

Elements that stay in their cell need nothing but tables. The few that leave it walk on together, from cell to cell.
Selections are made by `lerp` with a weight of 0 or 1, which is exact and costs a sixth of `where`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..squaf.plain import compute_dtype
from .places import Scale, scale_of

# Elements in one piece: some twenty tensors of 2^15 float32 numbers are 2.5 MiB.
PIECE = 1 << 15
# The time for a cell in which the velocity turns; any number above the time 1.
NEVER = 2.0


class Cells(NamedTuple):
    """What is known of each cell, the cells of all groups one after the other."""

    n: int  # cells of a group
    left: Tensor  # the velocity at the left border
    right: Tensor  # and at the right one
    slope: Tensor
    time: Tensor  # for the whole cell

    def at(self, table: Tensor, cell: Tensor) -> Tensor:
        return table.index_select(0, cell)


class Start(NamedTuple):
    """Where each element is, and whether it leaves its cell."""

    cell: Tensor
    fraction: Tensor
    speed: Tensor
    time: Tensor  # to the border ahead, NaN if it is never reached
    leaving: Tensor  # the numbers of those that leave


class Walk(NamedTuple):
    """The further path of those that leave."""

    cell: Tensor  # where they began
    up: Tensor  # 1 for those that move up, 0 for the others
    speed: Tensor  # at their beginning
    last: Tensor  # the cell in which they end
    pace: Tensor  # the velocity at which they entered it
    time: Tensor  # how long they were in it
    steep: Tensor  # the slope there times that time


def forward(x: Tensor, theta: Tensor, *, low: float, high: float, gated: bool) -> Tensor:
    """`bend` of x (groups, elements) with theta (groups, n - 1)."""
    out = torch.empty_like(x)
    kind = compute_dtype(x)
    cells, scale = _cells(theta.to(kind)), scale_of(low, high, theta.shape[1] + 1)
    growth = _growth(cells.slope)
    for piece in _pieces(x):
        part = x[:, piece].to(kind).contiguous()
        start = _start(part, cells, scale)
        bent = _bent(part, start, _walk(start, cells), cells, growth, scale)
        out[:, piece] = bent.clamp_(min=-1e30) * _share(part) if gated else bent  # 0 at -inf, as GELU
    return out


def backward(
    grad: Tensor, x: Tensor, theta: Tensor, *, low: float, high: float, gated: bool, by_x: bool, by_theta: bool
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of x (groups, elements) and of theta (groups, n - 1), the latter in float64."""
    kind = compute_dtype(x)
    cells, scale = _cells(theta.to(kind)), scale_of(low, high, theta.shape[1] + 1)
    growth, factor = _growth(cells.slope), _exp(cells.slope)
    dx = torch.empty_like(x) if by_x else None
    sums = _Sums(cells, groups=x.shape[0]) if by_theta else None
    for piece in _pieces(x):
        part, g = (one[:, piece].to(kind).contiguous() for one in (x, grad))
        start = _start(part, cells, scale)
        walk = _walk(start, cells)
        grown = _exp(walk.steep)
        share = _share(part) if gated else 1.0
        inside = (part > low) & (part < high)
        if dx is not None:
            # The factors of all cells but the last are ratios of velocities, of which the ends remain.
            slope = cells.at(factor, start.cell).index_copy_(0, start.leaving, grown * walk.pace / walk.speed)
            slope = torch.where(inside, slope.view(part.shape), 1.0)
            if gated:
                density = (part.square() * -0.5).exp_() * math.sqrt(0.5 / math.pi)
                # An infinite x is finite here: its density is 0.
                bent = _bent(part, start, walk, cells, growth, scale).clamp_(-1e18, 1e18)
                slope = slope * share + bent * density
            dx[:, piece] = g * slope
        if sums is not None:
            sums.add(torch.where(inside, g * share, 0.0).reshape(-1), grown, start, walk)
    return dx, None if sums is None else sums.of_borders(growth) * scale.width


def _start(x: Tensor, cells: Cells, scale: Scale) -> Start:
    groups, n = x.shape[0], cells.n
    # A NaN must not become an index, nor a part of a sum; it counts as outside, where the result is x itself.
    x = x.nan_to_num(scale.low, scale.high, scale.low)
    floor = ((x - scale.low) / scale.width).floor_().clamp_(0, n - 1)
    fraction = x.sub_(floor * scale.width_head + scale.low_head).sub_(floor * scale.width_rest + scale.low_rest)
    fraction = fraction.div_(scale.width).clamp_(0, 1).view(-1)
    cell = floor.long()
    if groups > 1:
        cell += torch.arange(0, groups * n, n, device=x.device).unsqueeze(1)
    cell = cell.view(-1)
    left, right = cells.at(cells.left, cell), cells.at(cells.right, cell)
    speed = torch.addcmul(left, cells.at(cells.slope, cell), fraction)
    up = (speed > 0).to(x.dtype)
    time = _travel_time(torch.lerp(fraction, 1 - fraction, up), speed, torch.lerp(left, right, up))
    return Start(cell, fraction, speed, time, (time < 1).nonzero().view(-1))


def _walk(start: Start, cells: Cells) -> Walk:
    first, speed, rest = (one.index_select(0, start.leaving) for one in (start.cell, start.speed, start.time))
    rest = 1 - rest
    ahead = speed > 0
    way, up = ahead.long().mul_(2).sub_(1), ahead.to(speed.dtype)
    last = first + way
    for _ in range(cells.n):
        time = cells.at(cells.time, last)
        crosses = rest > time
        if not crosses.any():
            break
        rest = rest.sub_(time * crosses)
        last += way * crosses
    pace = torch.lerp(cells.at(cells.right, last), cells.at(cells.left, last), up)
    return Walk(first, up, speed, last, pace, rest, cells.at(cells.slope, last) * rest)


def _bent(x: Tensor, start: Start, walk: Walk, cells: Cells, growth: Tensor, scale: Scale) -> Tensor:
    """T(x)."""
    low, high, width = scale[:3]
    # Counted from x itself where no border is passed, so that what rests keeps its digits.
    bent = torch.add(x.reshape(-1), start.speed * cells.at(growth, start.cell), alpha=width)
    entry = (walk.last % cells.n).to(x.dtype) + (1 - walk.up)
    bent.index_copy_(0, start.leaving, low + width * (entry + walk.pace * walk.time * _growth(walk.steep)))
    return torch.where((x > low) & (x < high), bent.view(x.shape), x)


class _Sums:
    """Weighted sums of dT/dv, gathered for each cell in a fixed order."""

    def __init__(self, cells: Cells, *, groups: int) -> None:
        self.cells, self.groups = cells, groups
        # Of those that stay: weights, and weights times fractions. Of the others: what the stretches in a part of a
        # cell give to both its borders together and to its right one, and |V(T)| where whole cells begin and end.
        self.stay, self.stay_fraction, self.both, self.right, self.edges = (
            torch.zeros_like(cells.left, dtype=torch.float64) for _ in range(5)
        )

    def add(self, weight: Tensor, grown: Tensor, start: Start, walk: Walk) -> None:
        # The last stretch: from a border, at fraction 0 or 1 of its cell.
        own = weight.index_select(0, start.leaving)
        both = own * walk.time * _growth(walk.steep)
        right = torch.addcmul(both * (1 - walk.up), own * walk.pace, walk.time.square() * _bent_growth(walk.steep))
        self._into(self.both, walk.last, both)
        self._into(self.right, walk.last, right)
        # The stretch to the first border. There e^y is a ratio of velocities, and the integral of p is gap/speed.
        fraction, time = (one.index_select(0, start.leaving) for one in (start.fraction, start.time))
        end_speed = own * grown * walk.pace
        at_end = end_speed / torch.lerp(
            self.cells.at(self.cells.left, walk.cell), self.cells.at(self.cells.right, walk.cell), walk.up
        )
        both = at_end * torch.lerp(fraction, 1 - fraction, walk.up) / walk.speed.abs()
        bend = _bent_growth(self.cells.at(self.cells.slope, walk.cell) * time)
        self._into(self.both, walk.cell, both)
        self._into(self.right, walk.cell, torch.addcmul(both * fraction, at_end * walk.speed, time.square() * bend))
        # Whole cells lie between the two: each element opens the sum after the one and closes it at the other.
        end_speed.mul_(walk.pace.sign())
        self._into(self.edges, torch.minimum(walk.cell, walk.last) + 1, end_speed)
        self._into(self.edges, torch.maximum(walk.cell, walk.last), -end_speed)
        weight = weight.index_fill(0, start.leaving, 0.0)
        self._into(self.stay, start.cell, weight)
        self._into(self.stay_fraction, start.cell, weight * start.fraction)

    def _into(self, sums: Tensor, cell: Tensor, values: Tensor) -> None:
        sums += torch.bincount(cell, values.to(sums.dtype), minlength=sums.shape[0])

    def of_borders(self, growth: Tensor) -> Tensor:
        """(groups, n - 1)."""
        cells, growth = self.cells, growth.double()
        left, slope = cells.left.double(), cells.slope.double()
        pushed = left * self.stay + slope * self.stay_fraction
        to_both = self.both + growth * self.stay
        to_right = self.right + growth * self.stay_fraction + _bent_growth(slope) * pushed
        by_left, by_right = _whole_cells(left, cells.right.double(), cells.time.double())
        through = self.edges.view(self.groups, -1).cumsum(1).view(-1)
        to_left = (to_both - to_right + through * by_left).view(self.groups, -1)
        to_right = (to_right + through * by_right).view(self.groups, -1)
        return to_left[:, 1:] + to_right[:, :-1]


def _cells(theta: Tensor) -> Cells:
    velocity = torch.nn.functional.pad(theta, (1, 1))
    left, right = velocity[:, :-1].reshape(-1), velocity[:, 1:].reshape(-1)
    time = _travel_time(torch.ones_like(left), left, right).nan_to_num(NEVER)
    return Cells(velocity.shape[1] - 1, left, right, right - left, time)


def _travel_time(gap: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The time for a gap along which the velocity goes straight from a to b, gap log(b/a)/(b - a); NaN if it turns."""
    b = (b * a.sign()).clamp_(min=0)
    a = a.abs()
    small = torch.minimum(a, b).abs_()
    # Where it turns this is an infinity, and log(1 + r)/r a NaN. Where it is near 0 its rounding error does no harm.
    ratio = ((a - b).abs_() / small).clamp_(min=1e-30)
    return ratio.log1p().div_(ratio).mul_(gap).div_(small)


def _whole_cells(a: Tensor, b: Tensor, time: Tensor) -> tuple[Tensor, Tensor]:
    """For each cell the integrals over u of hat/V^2, of the hats of its left and its right border; 0 where V turns."""
    crossed = time < 1
    a, b = (torch.where(crossed, v.abs(), 1.0) for v in (a, b))
    right = torch.where(crossed, a / b * time.square() * _bent_growth((b - a) * time), 0.0)
    return torch.where(crossed, 1 / (a * b) - right, 0.0), right


def _exp(y: Tensor) -> Tensor:
    """e^y, short of an overflow: what rests in a steep cell shall not become 0 times infinity."""
    return y.clamp(max=_highest(y.dtype)).exp_()


def _growth(y: Tensor) -> Tensor:
    """E(y) = (e^y - 1)/y."""
    # One in 1e30 is 0 for the exponential, and no division by 0.
    y = y.clamp(max=_highest(y.dtype))
    y = y + (y == 0) * 1e-30
    return y.expm1().div_(y)


def _bent_growth(y: Tensor) -> Tensor:
    """F(y) = (y e^y - e^y + 1)/y^2; near 0 its series, the sum of y^k/(k! (k + 2))."""
    y = y.clamp(max=_highest(y.dtype))
    series = torch.zeros_like(y)
    for k in range(14 if y.dtype == torch.float64 else 8, -1, -1):
        series.mul_(y).add_(1 / (math.factorial(k) * (k + 2)))
    near = y.abs() < 0.5
    far = y.masked_fill(near, 1.0)
    return torch.where(near, series, (far * far.exp()).sub_(far.expm1()).div_(far.square()))


def _highest(kind: torch.dtype) -> float:
    """An exponent whose exponential, times some hundreds, is a number of this type."""
    return 700.0 if kind == torch.float64 else 80.0


def _share(x: Tensor) -> Tensor:
    """Phi(x)."""
    return (x * -math.sqrt(0.5)).erfc_().mul_(0.5)


def _pieces(x: Tensor) -> Iterator[slice]:
    groups, elements = x.shape
    step = max(1, PIECE // max(1, groups))
    for start in range(0, elements, step):
        yield slice(start, start + step)
