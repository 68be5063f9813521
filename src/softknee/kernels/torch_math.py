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
log1p_unit = torch.log1p
_ROOT_HALF = math.sqrt(0.5)
_PEAK = 1 / math.sqrt(2 * math.pi)


def full(value: float, like: Tensor) -> Tensor:
    """A constant of the right type, for places where torch would otherwise take its default type."""
    return torch.full((), value, dtype=like.dtype, device=like.device)


def clip(u: Tensor, low: Number, high: Number) -> Tensor:
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return minimum(maximum(u, low), high)
    return torch.clamp(u, low, high)


def unit(u: Tensor) -> Tensor:
    return torch.clamp(u, 0.0, 1.0)


def clip_unit(u: Tensor) -> Tensor:
    return torch.clamp(u, -1.0, 1.0)


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


def normal_cdf_half(u: Tensor) -> Tensor:
    """As normal_cdf, relative error 2^-12: enough for a value that is rounded to 8 or 11 bits next."""
    t = 1 / (1 + 0.3 * torch.abs(u))
    p = 0.20884642004966736 * t + 0.035585008561611176
    p = p * t + 0.13747946918010712
    tail = torch.exp(-0.5 * (u * u)) * ((p * t + 0.11820422112941742) * t)
    return torch.where(u < 0, tail, 1 - tail)


def normal_pair_half(u: Tensor) -> tuple[Tensor, Tensor]:
    """As normal_pair, relative error 2^-19 for |u| <= 6: a gradient near its zero needs more digits than a value."""
    bell = torch.exp(-0.5 * (u * u))
    t = 1 / (1 + 0.36 * torch.abs(u))
    p = 0.04678286984562874 * t - 0.17882795631885529
    p = p * t + 0.17967954277992249
    p = p * t + 0.027425291016697884
    p = p * t + 0.13940055668354034
    p = p * t + 0.14183029532432556
    tail = bell * ((p * t + 0.1437089741230011) * t)
    return torch.where(u < 0, tail, 1 - tail), _PEAK * bell


def sech_squared(u: Tensor) -> Tensor:
    return tanh_pair(u)[1]


def tanh_pair(u: Tensor) -> tuple[Tensor, Tensor]:
    """tanh(u) and its slope, the slope as 4 w/(1 + w)^2 with w = e^{-2|u|}."""
    w = torch.exp(-2 * torch.abs(u))
    r = 1 / (1 + w)
    return torch.tanh(u), 4 * w * (r * r)


def mish_gate(u: Tensor) -> Tensor:
    e = torch.exp(torch.clamp(u, max=40.0))
    n = e * (e + 2)
    return n / (n + 2)


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
    """log(1+u) - u."""
    return torch.where(torch.abs(u) < 0.5, log1p_minus_near(u), torch.log1p(u) - u)


def log1p_minus_near(u: Tensor) -> Tensor:
    """The same near 0, where both are u and the difference is -u^2/2: 2 atanh(s) - u = -s u + 2 s^3/3 + ..."""
    s = u / (2 + u)
    square = s * s
    series = torch.full_like(square, _SERIES[-1])
    for term in reversed(_SERIES[:-1]):
        series = series * square + term
    return s * (square * series - u)
