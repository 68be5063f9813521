"""What the functions of the formula language mean in torch operations, stable over the whole number line."""

import math

import torch
from torch import Tensor
from torch.special import erfc

Number = Tensor | float

absolute = torch.abs
atan, sinh, cosh, asinh, floor = torch.atan, torch.sinh, torch.cosh, torch.asinh, torch.floor
cos, erf, exp, expm1, log, log1p, sigmoid, sign, sin, sqrt, tanh, where = (
    torch.cos,
    torch.erf,
    torch.exp,
    torch.expm1,
    torch.log,
    torch.log1p,
    torch.sigmoid,
    torch.sign,
    torch.sin,
    torch.sqrt,
    torch.tanh,
    torch.where,
)
ramp = torch.relu
_ROOT_HALF = math.sqrt(0.5)
_PEAK = 1 / math.sqrt(2 * math.pi)


def full(value: float, like: Tensor) -> Tensor:
    """A constant of the right type, for places where torch would otherwise take its default type."""
    return torch.full((), value, dtype=like.dtype, device=like.device)


def clip(u: Tensor, low: float, high: float) -> Tensor:
    return torch.clamp(u, low, high)


def maximum(a: Number, b: Number) -> Tensor:
    return _extreme(torch.maximum, a, b)


def minimum(a: Number, b: Number) -> Tensor:
    return _extreme(torch.minimum, a, b)


def _extreme(pick, a: Number, b: Number) -> Tensor:
    if not isinstance(a, Tensor):
        a, b = b, a
    assert isinstance(a, Tensor)
    return pick(a, b if isinstance(b, Tensor) else full(b, a))


def sigmoid_pair(u: Tensor) -> tuple[Tensor, Tensor]:
    return torch.sigmoid(u), torch.sigmoid(-u)


def normal_pdf(u: Tensor) -> Tensor:
    return _PEAK * torch.exp(-0.5 * (u * u))


def normal_cdf(u: Tensor) -> Tensor:
    return 0.5 * erfc(-_ROOT_HALF * u)


def normal_pair(u: Tensor) -> tuple[Tensor, Tensor]:
    return normal_cdf(u), normal_pdf(u)


def softplus(u: Tensor) -> Tensor:
    # torch's own softplus returns u from a threshold on, an error of 2e-9 relative in float64.
    return torch.relu(u) + torch.log1p(torch.exp(-torch.abs(u)))


def finite_left(u: Tensor) -> Tensor:
    return torch.clamp(u, min=torch.finfo(u.dtype).min)


def line(g: Number, u: Tensor) -> Tensor:
    """g u, with 0 for a flat line at infinity; NaN stays NaN."""
    if not isinstance(g, Tensor):
        return g * u
    most = torch.finfo(u.dtype).max
    return g * torch.where(g == 0, torch.clamp(u, -most, most), u)


# log(1+u) = 2 atanh(s) with s = u/(2+u): the series in s^2 after its first term, for |u| < 1/2 (|s| < 1/3).
_SERIES = [2 / (2 * n + 1) for n in range(1, 17)]


def log1p_minus(u: Tensor) -> Tensor:
    """log(1+u) - u. Near 0 both are u and the difference is -u^2/2: there 2 atanh(s) - u = -s u + 2 s^3/3 + ..."""
    s = u / (2 + u)
    square = s * s
    series = torch.full_like(square, _SERIES[-1])
    for term in reversed(_SERIES[:-1]):
        series = series * square + term
    near = s * (square * series - u)
    return torch.where(torch.abs(u) < 0.5, near, torch.log1p(u) - u)
