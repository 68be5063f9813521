"""What the functions of the formula language mean inside a Triton kernel, in float32.

No vendor library is called, so that Triton's interpreter runs the same code in the tests. The polynomials are
minimax fits made for this file; each says its error in float32 units (2^-23) of the whole result.
"""

# Code for Triton's compiler, which a type checker takes for Python.
# pyright: reportGeneralTypeIssues=false

import triton
import triton.language as tl

from .dispatch import interpreting

_INTERPRETED = tl.constexpr(interpreting())  # which has no instructions of a GPU
ALL = tl.constexpr(tl.PropagateNan.ALL)
_LOG2E = tl.constexpr(1.4426950408889634)
_PEAK = tl.constexpr(0.3989422804014327)
_LOWEST = tl.constexpr(-3.4028234663852886e38)
_HIGHEST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def reciprocal(u):
    """1/u to one unit for u up to 2^126, 0 from there: one instruction, where a division takes eight."""
    if _INTERPRETED:
        return 1.0 / u
    else:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1
        )


@triton.jit
def exp(u):
    return tl.exp2(u * _LOG2E)


@triton.jit
def log(u):
    return tl.log(u)


@triton.jit
def log_half(u):
    """log(u) by the GPU's own base-2 logarithm, to 2^-22 beside 1."""
    if _INTERPRETED:
        return tl.log(u)
    else:
        log2 = tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1
        )
        return log2 * 0.6931471805599453


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
def unit(u):
    return clip(u, 0.0, 1.0)


@triton.jit
def clip_unit(u):
    return clip(u, -1.0, 1.0)


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
    return reciprocal(1.0 + exp(-u))


@triton.jit
def sigmoid_pair(u):
    # One exponential and one reciprocal for both; e <= 1, so nothing overflows.
    e = exp(-tl.abs(u))
    r = reciprocal(1.0 + e)
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
    far = 1.0 - 2.0 * reciprocal(1.0 + exp(2.0 * tl.abs(u)))
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
def tanh_pair(u):
    """tanh(u) and its slope 4 w/(1 + w)^2 with w = e^{-2|u|}."""
    w = exp(-2.0 * tl.abs(u))
    r = reciprocal(1.0 + w)
    q = u * u
    p = -0.005905868019908667 * q + 0.02080538496375084
    p = p * q - 0.053786683827638626
    p = p * q + 0.13331958651542664
    p = p * q - 0.33333298563957214
    far = (1.0 - w) * r
    return tl.where(q < 0.36, u + u * q * p, tl.where(u < 0, -far, far)), 4.0 * w * r * r


@triton.jit
def sech_squared(u):
    w = exp(-2.0 * tl.abs(u))
    r = reciprocal(1.0 + w)
    return 4.0 * w * r * r


@triton.jit
def tanh_half(u):
    """A rational function, relative error 2^-16: no exponential for a value that is rounded to 8 or 11 bits."""
    z = clip(u, -6.5, 6.5)
    q = z * z
    p = (0.0014535448281094432 * q + 0.11386886984109879) * q + 0.9999877214431763
    d = (5.245266220299527e-05 * q + 0.017249001190066338) * q + 0.44712311029434204
    return z * p * reciprocal(d * q + 1.0)


@triton.jit
def tanh_pair_half(u):
    t = tanh_half(u)
    # Where tanh is clipped its slope must end too: beside it may stand a factor that grows (tanhexp).
    return t, tl.where(tl.abs(u) < 6.5, 1.0 - t * t, 0.0)


@triton.jit
def mish_gate(u):
    # tanh(log(1+e)) = n/(n+2) with n = e(e+2); at u = 40 it has been 1 for long and n is still a float32 number.
    e = exp(tl.minimum(u, 40.0, propagate_nan=ALL))
    n = e * (e + 2.0)
    return n * reciprocal(n + 2.0)


@triton.jit
def _log_parts(u):
    """log(1+u) = k log 2 + 2 atanh(s): k (also as a float), s, and the series (atanh(s)/s - 1)/s^2.

    |s| < 0.18, where the series is good to 0.0001 units. Where k is 0 the s is made from u itself, not from 1 + u,
    which would have lost u's last bits.
    """
    w = 1.0 + u
    bits = w.to(tl.int32, bitcast=True)
    k = (bits - 0x3F3504F3) >> 23
    mantissa = (bits - (k << 23)).to(tl.float32, bitcast=True)
    part = tl.where(k == 0, u, mantissa - 1.0)
    s = part * reciprocal(2.0 + part)
    q = s * s
    tail = (0.14012229442596436 * q + 0.13999570906162262) * q + 0.20010849833488464
    # k as a float without a conversion, which is as dear as an exponential: k + 2^23 + 2^22 in the mantissa's bits.
    whole = (k + 0x4B400000).to(tl.float32, bitcast=True) - 12582912.0
    return k, whole, s, tail * q + 0.3333320617675781


@triton.jit
def log1p(u):
    _k, whole, s, tail = _log_parts(u)
    # The bits of an infinity read as 2^128.
    return tl.where(u > _HIGHEST, u, whole * 0.6931471805599453 + (2.0 * s + 2.0 * s * s * s * tail))


@triton.jit
def log1p_minus(u):
    k, whole, s, tail = _log_parts(u)
    near = s * (2.0 * s * s * tail - u)
    far = whole * 0.6931471805599453 + (2.0 * s + 2.0 * s * s * s * tail) - u
    return tl.where(k == 0, near, far)


@triton.jit
def log1p_minus_near(u):
    # The parts are those of log1p(u), so that a formula with both computes them once.
    _k, _whole, s, tail = _log_parts(u)
    return s * (2.0 * s * s * tail - u)


@triton.jit
def log1p_unit(v):
    """log(1+v) for 0 <= v <= 1: 2 atanh(v/(2+v)), to 0.04 units."""
    s = v * reciprocal(2.0 + v)
    q = s * s
    tail = (0.14012229442596436 * q + 0.13999570906162262) * q + 0.20010849833488464
    return 2.0 * s + 2.0 * s * q * (tail * q + 0.3333320617675781)


@triton.jit
def softplus(u):
    return ramp(u) + log1p_unit(exp(-tl.abs(u)))


@triton.jit
def normal_pdf(u):
    return _PEAK * tl.exp2(u * u * (-0.5 * _LOG2E))


@triton.jit
def _normal_tail(z):
    """Phi(-z) e^{z^2/2} for z >= 0, a polynomial in 1/(1 + 0.21 z): 0.2 units, 3 with its rounding."""
    t = reciprocal(1.0 + 0.21 * z)
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
    t = reciprocal(1.0 + 0.3 * z)
    p = 0.20884642004966736 * t + 0.035585008561611176
    p = p * t + 0.13747946918010712
    p = (p * t + 0.11820422112941742) * t
    tail = tl.exp2(u * u * (-0.5 * _LOG2E)) * p
    return tl.where(u < 0, tail, 1.0 - tail)


@triton.jit
def normal_pair_half(u):
    """As normal_pair, relative error 2^-20: a gradient near its zero needs more digits than a value."""
    bell = tl.exp2(u * u * (-0.5 * _LOG2E))
    t = reciprocal(1.0 + 0.36 * tl.abs(u))
    p = 0.04678286984562874 * t - 0.17882795631885529
    p = p * t + 0.17967954277992249
    p = p * t + 0.027425291016697884
    p = p * t + 0.13940055668354034
    p = p * t + 0.14183029532432556
    tail = bell * ((p * t + 0.1437089741230011) * t)
    return tl.where(u < 0, tail, 1.0 - tail), _PEAK * bell


@triton.jit
def log1p_minus_near_half(u):
    """As log1p_minus_near, a polynomial of relative error 2^-18."""
    p = 0.07702186703681946 * u - 0.173153817653656
    p = p * u + 0.2463907152414322
    p = p * u - 0.33315613865852356
    return -u * u * (p * u + 0.4999985694885254)


@triton.jit
def log1p_half(u):
    """log(1+u), with two terms of the series near 0, where 1 + u loses u."""
    return tl.where(tl.abs(u) < 0.01, u - 0.5 * u * u, log_half(1.0 + u))
