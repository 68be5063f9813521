"""What the functions of the formula language mean inside a Triton kernel, in float32.

No vendor library is called, so that Triton's interpreter runs the same code in the tests. The polynomials are
minimax fits made for this file; each says its error in float32 units (2^-23) of the whole result.
"""

import triton
import triton.language as tl

ALL = tl.constexpr(tl.PropagateNan.ALL)
_LOG2E = tl.constexpr(1.4426950408889634)
_PEAK = tl.constexpr(0.3989422804014327)
_LOWEST = tl.constexpr(-3.4028234663852886e38)
_HIGHEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def exp(u):
    return tl.exp2(u * _LOG2E)


@triton.jit
def log(u):
    return tl.log(u)


@triton.jit
def sqrt(u):
    return tl.sqrt(u)


@triton.jit
def sin(u):
    return tl.sin(u)


@triton.jit
def cos(u):
    return tl.cos(u)


@triton.jit
def erf(u):
    return tl.erf(u)


@triton.jit
def absolute(u):
    return tl.abs(u)


@triton.jit
def sign(u):
    return tl.where(u > 0, 1.0, tl.where(u < 0, -1.0, u))


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=ALL)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=ALL)


@triton.jit
def clip(u, low, high):
    return tl.minimum(tl.maximum(u, low, propagate_nan=ALL), high, propagate_nan=ALL)


@triton.jit
def ramp(u):
    return tl.maximum(u, 0.0, propagate_nan=ALL)


@triton.jit
def finite_left(u):
    return tl.maximum(u, _LOWEST, propagate_nan=ALL)


@triton.jit
def line(g, u):
    return tl.where(g == 0.0, g * clip(u, _LOWEST, _HIGHEST), g * u)


@triton.jit
def sigmoid(u):
    return 1.0 / (1.0 + exp(-u))


@triton.jit
def sigmoid_pair(u):
    # One exponential and one reciprocal for both; e <= 1, so nothing overflows.
    e = exp(-tl.abs(u))
    r = 1.0 / (1.0 + e)
    small = e * r
    right = u >= 0
    return tl.where(right, r, small), tl.where(right, small, r)


@triton.jit
def tanh(u):
    # Below 0.6 an odd polynomial (0.03 units), above it 1 - 2/(1 + e^{2|u|}).
    q = u * u
    p = -0.005905868019908667 * q + 0.02080538496375084
    p = p * q - 0.053786683827638626
    p = p * q + 0.13331958651542664
    p = p * q - 0.33333298563957214
    far = 1.0 - 2.0 / (1.0 + exp(2.0 * tl.abs(u)))
    return tl.where(q < 0.36, u + u * q * p, tl.where(u < 0, -far, far))


@triton.jit
def expm1(u):
    # Below 1/2 a polynomial (0.03 units), above it the difference, which no longer cancels.
    p = 0.00019993181922473013 * u + 0.0013997446512803435
    p = p * u + 0.008333072066307068
    p = p * u + 0.04166531562805176
    p = p * u + 0.1666666865348816
    p = p * u + 0.5
    return tl.where(tl.abs(u) < 0.5, u + u * u * p, exp(u) - 1.0)


@triton.jit
def _atanh_tail(q):
    """(atanh(s)/s - 1)/s^2 with q = s^2 <= 1/9, to 0.001 units."""
    p = 0.10407563298940659 * q + 0.0872853547334671
    p = p * q + 0.11132726073265076
    p = p * q + 0.14285138249397278
    p = p * q + 0.20000006258487701
    return p * q + 0.3333333432674408


@triton.jit
def log1p(v):
    # log(1+v) = 2 atanh(v/(2+v)); exact relative to its size where 1+v would lose the last bits of v.
    s = v / (2.0 + v)
    q = s * s
    near = 2.0 * s + 2.0 * s * q * _atanh_tail(q)
    return tl.where((v > -0.5) & (v <= 1.0), near, tl.log(1.0 + v))


@triton.jit
def log1p_minus(u):
    s = u / (2.0 + u)
    q = s * s
    near = s * (2.0 * q * _atanh_tail(q) - u)
    return tl.where(tl.abs(u) < 0.5, near, log1p(u) - u)


@triton.jit
def softplus(u):
    return ramp(u) + log1p(exp(-tl.abs(u)))


@triton.jit
def normal_pdf(u):
    return _PEAK * tl.exp2(u * u * (-0.5 * _LOG2E))


@triton.jit
def _normal_tail(z):
    """Phi(-z) e^{z^2/2} for z >= 0, a polynomial in 1/(1 + 0.21 z): 0.2 units, 3 with its rounding."""
    t = 1.0 / (1.0 + 0.21 * z)
    p = -0.07129407674074173 * t + 0.2818009853363037
    p = p * t - 0.3264857828617096
    p = p * t + 0.3449779748916626
    p = p * t - 0.09076650440692902
    p = p * t + 0.12346945703029633
    p = p * t + 0.06957044452428818
    p = p * t + 0.08501233905553818
    return (p * t + 0.08371515572071075) * t


@triton.jit
def normal_cdf(u):
    tail = tl.exp2(u * u * (-0.5 * _LOG2E)) * _normal_tail(tl.abs(u))
    return tl.where(u < 0, tail, 1.0 - tail)


@triton.jit
def normal_pair(u):
    bell = tl.exp2(u * u * (-0.5 * _LOG2E))
    tail = bell * _normal_tail(tl.abs(u))
    return tl.where(u < 0, tail, 1.0 - tail), _PEAK * bell


@triton.jit
def normal_cdf_half(u):
    """As normal_cdf, relative error 2^-12: enough for a value that is rounded to 8 or 11 bits next."""
    z = tl.abs(u)
    t = 1.0 / (1.0 + 0.3 * z)
    p = 0.20884642004966736 * t + 0.035585008561611176
    p = p * t + 0.13747946918010712
    p = (p * t + 0.11820422112941742) * t
    tail = tl.exp2(u * u * (-0.5 * _LOG2E)) * p
    return tl.where(u < 0, tail, 1.0 - tail)
