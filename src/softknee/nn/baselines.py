"""Trainable activations of other papers, with which SQUAF is compared: polynomials, kernels, and a flow."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ParameterError, require_count, require_number
from ..kernels import find
from ..kernels.squaf.plain import compute_dtype
from ..spec import VectorParam
from .one_vector import OneVector

# -- PolyReLU and PolyNorm -------------------------------------------------------------------------------

ORDER = 3
COEFFICIENTS = VectorParam("a", "", about="the coefficients a_0 (constant) to a_r")


class PolyReLU(OneVector):
    """A polynomial of ReLU: a_0 + a_1 relu(x) + a_2 relu(x)^2 + a_3 relu(x)^3.

    Start: a_i = 1/3, as in the paper's experiments, and a_0 = 0, which is our choice. Four numbers per layer, which is
    also what the SQUAF paper counts for it. The slope at 0 is that of ReLU from the left, 0.

    Args:
        a: the coefficients at the start, a_0 first; left out, 0 and then 1/order each.
        order: the degree, 3 as in the paper; left out where a is given.
        learn: False for a buffer instead of a parameter.
        per, size, dim: one vector for the "layer", or one for each "channel" (`size` of them along the input's
            dimension `dim`) or "neuron" (of the trailing shape `size`); as in `Pointwise`.
        device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> sk.nn.PolyReLU()(torch.tensor([-1.0, 0.0, 3.0])).detach()
    tensor([ 0.,  0., 13.])

    Reference: Zhuo, Wang, Zeng, Li, Zhou and Ma, Polynomial composition activations, ICLR 2025 (arXiv 2411.03884).
    """

    vector = COEFFICIENTS
    settings = ("order",)

    def __init__(
        self,
        a: Tensor | Sequence[float] | None = None,
        *,
        order: int | None = None,
        learn: bool | str | Iterable[str] = True,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        start = read_coefficients("polyrelu", a, order=order)
        self.order = start.shape[-1] - 1
        self._hold_vector("polyrelu", start, learn=learn, per=per, size=size, dim=dim, device=device, dtype=dtype)

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        ramp = x.relu()
        parts = vector.unbind(-1)
        total = parts[-1] * ramp
        for coefficient in parts[-2:0:-1]:
            total = (total + coefficient) * ramp
        return total + parts[0]


def read_coefficients(title: str, a: Tensor | Sequence[float] | None, *, order: int | None) -> Tensor:
    """The start of the coefficients, or a sentence that says what they should be."""
    if order is not None:
        require_count(title, "order", order)
    if a is None:
        order = ORDER if order is None else order
        return torch.tensor([0.0] + [1 / order] * order, dtype=torch.float64)
    start = torch.as_tensor(a, dtype=torch.float64).detach()
    degree = start.shape[-1] - 1 if start.dim() else 0
    if degree < 1 or order not in (None, degree):
        count = "two or more" if order is None else f"order + 1 = {order + 1}"
        raise ParameterError(
            f"{title}: a must have {count} coefficients, a_0 first, and {max(degree + 1, 1)} were given."
        )
    return start


class PolyNorm(OneVector):
    """Powers of the input, each brought to root mean square 1 along a row: a_0 + a_1 n(x) + a_2 n(x^2) + a_3 n(x^3).

    n(u) = u / sqrt(mean over the row of u^2 + eps). A row lies along `row_dim`, by default the last dimension, as in
    the paper, which has transformers in mind; the SQUAF paper does not say along which it normalises in CNNs. Start:
    a_i = 1/3, as in the paper's experiments; a_0 = 0 and eps = 1e-6 are our choice. Rows of zeros give a_0.

    Args:
        a: the coefficients at the start, a_0 first; left out, 0 and then 1/order each.
        order: the degree, 3 as in the paper; left out where a is given.
        row_dim: the dimension along which rows lie.
        eps: added to the mean square, above 0.
        learn: False for a buffer instead of a parameter.
        per, size, dim: one vector of coefficients per layer, or per="channel" along a dimension other than the rows'.
        device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> sk.nn.PolyNorm(eps=1e-12)(torch.tensor([[2.0, 2.0], [-3.0, 3.0]])).detach()
    tensor([[ 1.0000,  1.0000],
            [-0.3333,  1.0000]])

    Reference: Zhuo, Wang, Zeng, Li, Zhou and Ma, Polynomial composition activations, ICLR 2025 (arXiv 2411.03884).
    """

    vector = COEFFICIENTS
    settings = ("order", "row_dim", "eps")

    def __init__(
        self,
        a: Tensor | Sequence[float] | None = None,
        *,
        order: int | None = None,
        row_dim: int = -1,
        eps: float = 1e-6,
        learn: bool | str | Iterable[str] = True,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_number("polynorm", "eps", eps)
        start = read_coefficients("polynorm", a, order=order)
        self.order, self.row_dim, self.eps = start.shape[-1] - 1, row_dim, float(eps)
        self._hold_vector("polynorm", start, learn=learn, per=per, size=size, dim=dim, device=device, dtype=dtype)
        if per == "neuron" or (per == "channel" and dim == row_dim):
            raise ParameterError(
                f"polynorm: it works on rows along dimension {row_dim}, so a row has one vector of coefficients; use "
                f"per='layer', or per='channel' with dim= another dimension."
            )

    def _ready(self, input: Tensor) -> tuple[Tensor, Tensor]:
        if not -input.dim() <= self.row_dim < input.dim():
            raise InputError(
                f"polynorm: rows lie along dimension {self.row_dim}, which an input of shape {tuple(input.shape)} does "
                f"not have; pass row_dim=."
            )
        return super()._ready(input)

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        parts = vector.unbind(-1)
        along = self.row_dim if self.row_dim < 0 else self.row_dim + self.leading
        if x.shape[along] == 0:
            return x + parts[0]  # rows of no elements, which have no mean; the result is as empty as they are
        # x^6 overflows float32 from |x| = 2.6e6 on, so a row is divided by its largest |x| where that is above 1.
        # Scaling
        # a row and eps alike changes nothing, so the scale may be a constant: no gradient goes through it.
        largest = x.detach().abs().amax(along, keepdim=True)
        scale = torch.where(largest.isfinite(), largest.clamp(min=1.0), 1.0)
        small = x / scale
        total = parts[0]
        power, eps = small, self.eps / scale.square()
        for coefficient in parts[1:]:
            mean = power.square().mean(along, keepdim=True)
            total = total + coefficient * (power * torch.rsqrt(mean + eps))
            power, eps = power * small, eps / scale.square()
        return total

    def extra_repr(self) -> str:
        where = [] if self.row_dim == -1 else [f"row_dim={self.row_dim}"]
        return ", ".join([*self._shown(), *where, f"eps={self.eps:g}"])


# -- KAF -------------------------------------------------------------------------------------------------

_MIXING = VectorParam("a", "", about="the weights of the bumps")
_SPREAD = 0.3  # of a random start


class KAF(OneVector):
    """The kernel activation function, Gaussian bumps at fixed places: sum_i a_i e^(-gamma (x - d_i)^2), i = 1..D.

    The dictionary d is D points spread evenly over [-boundary, boundary], Delta apart. gamma = 1/(6 Delta^2) is the
    rule
    of thumb that we use: at the middle between two neighbours each bump still has e^(-1/24) = 0.96 of its height, so
    that their sum is smooth. Only a is learned. The start stands for a known function f by kernel ridge regression, a =
    (K + ridge I)^-1 f(d) with K_ij = e^(-gamma (d_i - d_j)^2), or is random with standard deviation 0.3 (our choice as
    well). Far outside the dictionary the function is 0, whatever f does there.

    The authors give every neuron an `a` of its own (per="neuron") and 20 points; the SQUAF paper shares one per layer,
    and its parameter counts leave 7 numbers for it, which would be points=7; it does not say.

    Args:
        start: a name, a definition or a function of a tensor to begin as; a tensor or list of D numbers for a itself;
            or "random".
        points: D, the size of the dictionary.
        boundary: the dictionary covers [-boundary, boundary].
        gamma: left out, 1/(6 Delta^2).
        ridge: of the kernel ridge regression.
        learn: False for a buffer instead of a parameter.
        per, size, dim: one vector for the "layer", or one for each "channel" (`size` of them along the input's
            dimension `dim`) or "neuron" (of the trailing shape `size`); as in `Pointwise`.
        device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> act = sk.nn.KAF("tanh")
    >>> x = torch.linspace(-3, 3, 61)
    >>> bool((act(x) - x.tanh()).abs().max() < 0.01)
    True

    Reference: Scardapane, Van Vaerenbergh, Totaro and Uncini, Kafnets: kernel-based non-parametric activation functions
    for neural networks, Neural Networks 2019 (arXiv 1707.04035).
    """

    vector = _MIXING
    settings = ("points", "boundary", "gamma")
    words = ("start",)

    def __init__(
        self,
        start: str | Callable[[Tensor], Tensor] | Tensor | Sequence[float] = "elu",
        *,
        points: int = 20,
        boundary: float = 3.0,
        gamma: float | None = None,
        ridge: float = 1e-5,
        learn: bool | str | Iterable[str] = True,
        per: str = "layer",
        size: int | Sequence[int] | None = None,
        dim: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_count("kaf", "points", points, least=2)
        for name, value in (("boundary", boundary), ("gamma", 1.0 if gamma is None else gamma), ("ridge", ridge)):
            require_number("kaf", name, value)
        dictionary = torch.linspace(-boundary, boundary, points, dtype=torch.float64, device="cpu")
        apart = 2 * boundary / (points - 1)
        self.points, self.boundary = points, float(boundary)
        self.gamma = 1 / (6 * apart**2) if gamma is None else float(gamma)
        weights = _mixing(start, dictionary, gamma=self.gamma, ridge=ridge)
        self._hold_vector("kaf", weights, learn=learn, per=per, size=size, dim=dim, device=device, dtype=dtype)

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        # Made anew: as a buffer it would be lost where a model is built on the meta device.
        d = torch.linspace(-self.boundary, self.boundary, self.points, dtype=x.dtype, device=x.device)
        away = x.unsqueeze(-1) - d
        return (torch.exp(-self.gamma * away.square()) * vector).sum(-1)

    def extra_repr(self) -> str:
        return ", ".join([f"points={self.points}, boundary={self.boundary:g}, gamma={self.gamma:.4g}", *self._shown()])


def _mixing(start: Any, dictionary: Tensor, *, gamma: float, ridge: float) -> Tensor:
    """The weights of the bumps at the start."""
    if isinstance(start, (Tensor, list, tuple)):
        weights = torch.as_tensor(start, dtype=torch.float64).detach()
        if not weights.dim() or weights.shape[-1] != len(dictionary):
            raise ParameterError(
                f"kaf: a must have {len(dictionary)} numbers, one for each point of the dictionary, and its shape is "
                f"{tuple(weights.shape)}."
            )
        return weights
    if isinstance(start, str) and start == "random":
        return _SPREAD * torch.randn(len(dictionary), dtype=torch.float64, device="cpu")
    function = find(start) if isinstance(start, str) else start
    if not callable(function):
        raise ParameterError(
            f"kaf: the start must be a name, a function of a tensor, {len(dictionary)} numbers or 'random', and "
            f"{type(start).__name__} was given."
        )
    with torch.no_grad():
        wanted = function(dictionary)
    if not isinstance(wanted, Tensor) or wanted.shape != dictionary.shape or not bool(wanted.isfinite().all()):
        raise ParameterError(
            "kaf: the function to begin as must give one finite number for each point it is called with."
        )
    kernel = torch.exp(-gamma * (dictionary[:, None] - dictionary).square())
    return torch.linalg.solve(kernel + ridge * torch.eye(len(dictionary), dtype=torch.float64), wanted.double())


# -- DiTAC: the flow of a continuous piecewise-affine velocity on a line (CPAB in one dimension) -----------
#
# The interval is [0, n], one unit per cell; the velocity V has the values v_0 = 0, v_1, ..., v_(n-1), v_n = 0 at the
# whole numbers and is straight between them. The flow carries u along du/dt = V(u) for the time 1. V does not change
# its sign along a path, so that a path moves one way or rests:
#
#     inside a cell       u(t) = u + V(u) t E(s t),   E(y) = (e^y - 1)/y,   s the slope of V in the cell
#     to a cell's end B   takes |B - u| L(|V(u)|, |V(B)|),   L(a, b) = log(b/a)/(b - a),   for ever if V(B) is 0 or
# turns
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
    time = length * torch.where(near, 2 * series / total, exact)
    return torch.where(passes & (time.detach() < _NEVER), time, _NEVER)


def _growth(y: Tensor) -> Tensor:
    """(e^y - 1)/y."""
    near = y.detach().abs() < 0.5
    small = torch.where(near, y, 0.0)
    series = torch.zeros_like(y)
    for k in range(14, 0, -1):
        series = (series * small) / (k + 1) + 1
    large = torch.where(near, 1.0, y)
    return torch.where(near, series, large.expm1() / large)


_THETA = VectorParam("theta", "", about="the velocities at the inner borders of the cells, in cells per unit of time")


class DiTAC(OneVector):
    """GELU whose argument is bent by a learned diffeomorphism: T(x) Phi(x), with T(x) = x outside [low, high].

    T is the position after the time 1 of a point that starts at x and moves with a velocity that is continuous,
    straight in each of `cells` equal cells and 0 at both ends, so that T is increasing, maps [low, high] onto itself,
    and -theta gives its inverse. theta has the velocities at the cells - 1 inner borders, in cells per unit of time; at
    theta = 0 it is GELU.

    By the paper and its published code: the product with Phi, x outside the interval, 10 cells and so 9 numbers, which
    is also what the SQUAF paper counts. Different here: the coordinates theta of the same space of velocities (theirs
    are those of an orthonormal basis of slopes and offsets), the start (0; theirs is drawn from a smooth Gaussian
    process), exact values where theirs come from a table of 2048 entries, and no regularisation term. Their variants
    Leaky-DiTAC and GE-DiTAC are left out.

    Args:
        theta: the cells - 1 velocities at the start; left out, 0.
        cells: into how many equal parts the interval is cut.
        low, high: the interval; the published code has [-3, 3] for regression.
        gate: "gelu" for the product with Phi(x), None for T alone.
        learn: False for a buffer instead of a parameter.
        per, size, dim: one vector for the "layer", or one for each "channel" (`size` of them along the input's
            dimension `dim`) or "neuron" (of the trailing shape `size`); as in `Pointwise`.
        device, dtype: as in `Pointwise`.

    >>> import softknee as sk, torch
    >>> x = torch.linspace(-4, 4, 9)
    >>> torch.allclose(sk.nn.DiTAC()(x), torch.nn.functional.gelu(x), atol=1e-6)
    True

    Reference: Chelly, Finder, Ifergane and Freifeld, Trainable highly-expressive activation functions, ECCV 2024 (arXiv
    2407.07564); the flow: Freifeld, Hauberg, Batmanghelich and Fisher, Transformations based on continuous
    piecewise-affine velocity fields, PAMI 2017.
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
        require_count("ditac", "cells", cells, least=2)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ParameterError(f"ditac: low must be below high, both finite, and {low!r}, {high!r} were given.")
        if gate not in ("gelu", None):
            raise ParameterError(f"ditac: gate must be 'gelu' or None, and {gate!r} was given.")
        start = torch.zeros(cells - 1, dtype=torch.float64, device="cpu")
        if theta is not None:
            start = torch.as_tensor(theta, dtype=torch.float64).detach()
        if not start.dim() or start.shape[-1] != cells - 1:
            raise ParameterError(
                f"ditac: theta must have cells - 1 = {cells - 1} numbers, and its shape is {tuple(start.shape)}."
            )
        self.cells, self.low, self.high, self.gate = cells, float(low), float(high), gate
        self._hold_vector("ditac", start, learn=learn, per=per, size=size, dim=dim, device=device, dtype=dtype)

    def compute(self, x: Tensor, vector: Tensor) -> Tensor:
        return bend(x, vector, low=self.low, high=self.high, gated=self.gate is not None)

    def extra_repr(self) -> str:
        plain = [] if self.gate else ["gate=None"]
        return ", ".join([f"cells={self.cells}, low={self.low:g}, high={self.high:g}", *self._shown(), *plain])


# Names for `sk.nn.make`. They are not in the zoo: their numbers are vectors, and their formulas sums over them.
BASELINES: dict[str, type[OneVector]] = {"ditac": DiTAC, "kaf": KAF, "polynorm": PolyNorm, "polyrelu": PolyReLU}


@dataclass(frozen=True)
class Baseline:
    """A module without a definition, in the place where surgery has one of the zoo: its name, and its class."""

    name: str
    module: type[OneVector]

    @property
    def params(self) -> tuple[VectorParam, ...]:
        return (self.module.vector,)

    @property
    def text_arguments(self) -> tuple[list[str], list[str]]:
        """What a text can set: the arguments that are numbers, and those that may be words."""
        return list(self.module.settings), list(self.module.words)

    @property
    def learns(self) -> bool:
        """Whether a module learns by default."""
        return bool(inspect.signature(self.module).parameters["learn"].default)


def baseline_named(name: object) -> Baseline | None:
    """The baseline of that name, or None; `registry.resolve` prefers a definition that has the name."""
    if name == "entropic_spline":  # built upon the engines of `sk.design`, which no other module needs
        from .entropic import EntropicSpline

        return Baseline("entropic_spline", EntropicSpline)
    return Baseline(name, BASELINES[name]) if isinstance(name, str) and name in BASELINES else None
