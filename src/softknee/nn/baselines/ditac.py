r"""DiTAC: GELU whose argument is bent by a learned diffeomorphism.

    ditac(x) = T(x) Phi(x),   T(x) = the CPAB flow of x on [low, high], and x outside

T is the position after the time 1 of a point that starts at x and moves with a velocity that is continuous, straight in
each of `cells` equal cells and 0 at both ends (see `bend`), so that T is increasing, maps [low, high] onto itself, and
-theta gives its inverse. theta has the velocities at the cells - 1 inner borders, in cells per unit of time; at
theta = 0 it is GELU. With `gate=None` it is T alone.

By the paper and its published code: the product with Phi, x outside the interval, 10 cells and so 9 numbers, which is
also what the SQUAF paper counts. Different here: the coordinates theta of the same space of velocities (theirs are
those of an orthonormal basis of slopes and offsets), the start (0; theirs is drawn from a smooth Gaussian process),
exact values where theirs come from a table of 2048 entries, and no regularisation term. Their variants Leaky-DiTAC and
GE-DiTAC are left out.

Reference: Chelly, Finder, Ifergane and Freifeld, Trainable highly-expressive activation functions, ECCV 2024 (arXiv
2407.07564); the flow: Freifeld, Hauberg, Batmanghelich and Fisher, Transformations based on continuous piecewise-affine
velocity fields, PAMI 2017.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ...errors import ParameterError
from ...kernels.squaf.plain import compute_dtype
from ...spec import VectorParam
from .vector import OneVector

# -- the flow of a continuous piecewise-affine velocity on a line (CPAB in one dimension) ------------------
#
# The interval is [0, n], one unit per cell; the velocity V has the values v_0 = 0, v_1, ..., v_(n-1), v_n = 0 at the
# whole numbers and is straight between them. The flow carries u along du/dt = V(u) for the time 1. V does not change
# its sign along a path, so that a path moves one way or rests:
#
#     inside a cell       u(t) = u + V(u) t E(s t),   E(y) = (e^y - 1)/y,   s the slope of V in the cell     to a cell's
# end B   takes |B - u| L(|V(u)|, |V(B)|),   L(a, b) = log(b/a)/(b - a),   for ever if V(B) is 0 or turns
#
# The times for whole cells are summed once, C_j; the last cell of a path is where C passes the time that is left. So no
# path is followed from cell to cell, and autograd goes through these formulas, to every order. A cell that cannot be
# crossed in the time 1 counts as 2, so that differences of C keep their digits.
#
# Hazard: L at a = b and E at 0 are taken from series, there and in their derivatives.


_NEVER = 2.0


def bend(x: Tensor, theta: Tensor, *, low: float, high: float, gated: bool) -> Tensor:
    """T(x) Phi(x), or T(x) where `gated` is False: T carries x along a velocity on [low, high] for the time 1.

    The velocity is 0 at both ends and outside, theta (the last dimension) at the borders between equal cells, in cells
    per unit of time, and straight in each cell. The other dimensions of theta broadcast against x. Differentiable to
    every order by x and theta; half types are computed in float32. NaN stays NaN, and T(x) = x outside.

    >>> import torch
    >>> bend(torch.tensor([0.0, 0.5, 1.0, 2.5]), torch.tensor([1.0]), low=0.0, high=2.0, gated=False)
    tensor([0.0000, 1.2642, 1.6321, 2.5000])
    """
    own, wanted = theta.shape[:-1], x.shape or torch.Size([1])
    try:
        fits = torch.broadcast_shapes(own, wanted) == wanted
    except RuntimeError:
        fits = False
    if not fits:
        raise ParameterError(
            f"theta has shape {tuple(theta.shape)}, and without its last dimension it does not broadcast into x of "
            f"shape {tuple(x.shape)}; use (1, cells - 1) for the whole tensor."
        )
    shape, x = x.shape, x.reshape(1) if x.dim() == 0 else x
    kind = compute_dtype(x)
    stored, x, theta = x.dtype, x.to(kind), theta.to(kind)
    inside = (x > low) & (x < high)
    width = (high - low) / (theta.shape[-1] + 1)
    place = (torch.where(inside, x, low) - low) / width
    velocity = torch.nn.functional.pad(theta, (1, 1))
    bent = torch.where(inside, low + width * flow(place, velocity), x)
    if gated:
        # Phi is 0 or 1 from 40 on in float64; 0 times minus infinity is 0 here, as in GELU.
        place = torch.where(x.abs() < 40, x, x.detach().clamp(-40, 40))
        bent = torch.where(x == -math.inf, 0.0, bent) * (0.5 * torch.erfc(-place * math.sqrt(0.5)))
    return bent.to(stored).reshape(shape)


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
    # What grows by more than e^80 within its cell begins at rest.
    return begin + pace * time * _growth((slope * time).clamp(max=80.0))


def _at(table: Tensor, place: Tensor) -> Tensor:
    """The values of a table (its last dimension; the others broadcast) at places."""
    rows = torch.arange(table[..., 0].numel(), device=table.device).reshape(table.shape[:-1]) * table.shape[-1]
    # On a GPU the gradient of an index sums equal places one by one; that of index_select does not.
    place = rows + place
    return table.reshape(-1).index_select(0, place.reshape(-1)).reshape(place.shape)


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


# -- the module ------------------------------------------------------------------------------------------


_THETA = VectorParam("theta", "", about="the velocities at the inner borders of the cells, in cells per unit of time")


class DiTAC(OneVector):
    """T(x) Phi(x), with T a learned increasing map of [low, high] onto itself and x outside.

    Args:
        theta: the cells - 1 velocities at the start; left out, 0.
        cells: into how many equal parts the interval is cut.
        low, high: the interval; the published code has [-3, 3] for regression.
        gate: "gelu" for the product with Phi(x), None for T alone.
        learn: False for a buffer instead of a parameter.
        per, size, dim, device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> x = torch.linspace(-4, 4, 9)
    >>> torch.allclose(sk.nn.DiTAC()(x), torch.nn.functional.gelu(x), atol=1e-6)
    True
    """

    vector = _THETA
    settings = ("cells", "low", "high", "gate")
    words = ("gate",)

    def __init__(
        self,
        theta: Tensor | Sequence[float] | None = None,
        *,
        cells: int = 10,
        low: float = -3.0,
        high: float = 3.0,
        gate: str | None = "gelu",
        learn: bool | str | Iterable[str] = True,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(cells, bool) or not isinstance(cells, int) or cells < 2:
            raise ParameterError(f"ditac: cells must be a whole number of at least 2, and {cells!r} was given.")
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ParameterError(f"ditac: low must be below high, both finite, and {low!r}, {high!r} were given.")
        if gate not in ("gelu", None):
            raise ParameterError(f"ditac: gate must be 'gelu' or None, and {gate!r} was given.")
        given = torch.zeros(cells - 1, dtype=torch.float64, device="cpu")
        if theta is not None:
            given = torch.as_tensor(theta, dtype=torch.float64).detach()
        if not given.dim() or given.shape[-1] != cells - 1:
            raise ParameterError(
                f"ditac: theta must have cells - 1 = {cells - 1} numbers, and its shape is {tuple(given.shape)}."
            )
        self.cells, self.low, self.high, self.gate = cells, float(low), float(high), gate
        self._hold_vector(
            "ditac",
            start=given,
            points=cells - 1,
            learn=learn,
            per=per,
            size=size,
            dim=dim,
            device=device,
            dtype=dtype,
        )

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        return bend(x, vector, low=self.low, high=self.high, gated=self.gate is not None)

    def extra_repr(self) -> str:
        plain = [] if self.gate else ["gate=None"]
        return ", ".join([f"cells={self.cells}, low={self.low:g}, high={self.high:g}", *self._shown(), *plain])
