"""The derivatives of SQUAF by x as formulas of their own, because automatic ones of second order cancel.

With s_j the derivative of exponent j by x (2 alpha q j, or -alpha, 0, +alpha for Laplacian weights), phi' is
sum_j P_j (z_j - phi) (s_j - mean), and phi'' is sum_j a_j (z_j - phi), a_j = P_j ((s_j - mean)^2 - variance).
Where an end of the grid leaves an even number of points of nearly equal weight, a_j all but vanishes: for
two points it is P_0 P_1 (P_1 - P_0). Subtracting rounded squares then loses every digit that the bound on
the error asks for. There a_j is worked out from e_j = w_j - 1 = expm1(exponent), whose digits are all good.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .eager import slopes
from .plain import Window, compute_dtype, finite_range, keep_window, squaf_plain
from .wanted import BY_X

# Exponents above this count as nearly equal weights: w >= 0.2, so that 1 + e_j loses nothing either.
NEARLY_EQUAL = -1.5


def squaf_derivative(
    x: Tensor, q: Tensor, alpha: Tensor, z: Tensor, window: int, laplacian: bool, *, order: int
) -> Tensor:
    """The derivative of that order by x, in plain tensor operations fit for any transform."""
    if order == 0:
        return squaf_plain(x, q, alpha, z, window, laplacian)
    if order > 2:
        return nth_derivative(
            lambda at: squaf_derivative(at, q, alpha, z, window, laplacian, order=2), x, order=order - 2
        )
    # As for gradients of gradients: second derivatives are taken in float64 where there is one.
    kind = compute_dtype(x) if order == 1 else wide_dtype(x)
    q, alpha, z = q.to(kind), alpha.to(kind), z.to(kind)
    kept = keep_window(finite_range(x.to(kind)), q=q, alpha=alpha, z=z, window=window, laplacian=laplacian)
    if order == 1:
        slope = slopes(kept, q=q, alpha=alpha, laplacian=laplacian, wanted=BY_X)[0]
        assert slope is not None
        return slope.to(x.dtype)
    return curvature(kept, q=q, alpha=alpha, laplacian=laplacian).to(x.dtype)


def wide_dtype(x: Tensor) -> torch.dtype:
    """The widest type of the device that x is on."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def curvature(kept: Window, *, q: Tensor, alpha: Tensor, laplacian: bool) -> Tensor:
    """phi'' from the kept points."""
    if laplacian:
        scale, s = alpha, kept.steps.sign() + kept.rest.sign() * (kept.steps != 0)
    else:
        scale, s = 2 * (alpha * q), kept.steps
    p = kept.probability
    from_middle = s - (p * s).sum(0)
    usual = p * (from_middle.square() - (p * from_middle.square()).sum(0))
    inside = kept.inside.to(p.dtype)
    lowest = torch.where(kept.inside, kept.logits, torch.zeros_like(kept.logits)).amin(0)
    even = _nearly_equal(kept.logits, s=s, p=p, inside=inside)
    share = torch.where(lowest > NEARLY_EQUAL, even, usual)
    phi = (p * kept.value).sum(0)
    return scale.square() * (share * (kept.value - phi)).sum(0)


def _nearly_equal(logits: Tensor, *, s: Tensor, p: Tensor, inside: Tensor) -> Tensor:
    """a_j / scale^2, in powers of e_j = w_j - 1; the leading one is exact, and 0 for two equal halves.

    t_j is s_j less its plain mean, V the plain mean of t^2; e_0, e_1, e_2 are those of e, e t, e t^2.
    Then (1 + e_0)^2 ((s_j - mean)^2 - variance) is, sorted by powers of e, what is summed below.
    """
    count = inside.sum(0)
    t = s - (s * inside).sum(0) / count
    v = (t.square() * inside).sum(0) / count
    e = logits.expm1() * inside
    e0, e1, e2 = (e.sum(0) / count, (e * t).sum(0) / count, (e * t.square()).sum(0) / count)
    square = t.square()
    first = (2 * square - v) * e0 - 2 * t * e1 - e2
    second = e0 * (square * e0 - e2) + 2 * e1 * (e1 - t * e0)
    return p * ((square - v) + (first + second)) / (1 + e0).square()


def nth_derivative(function: Callable[[Tensor], Tensor], x: Tensor, *, order: int) -> Tensor:
    """The derivative of that order of an element-wise function, by a functional transform."""
    if order == 0:
        return function(x)
    pulled = torch.func.vjp(lambda at: nth_derivative(function, at, order=order - 1), x)
    return pulled[1](torch.ones_like(pulled[0]))[0]
