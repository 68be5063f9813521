"""SQUAF in 50 digits, the bound its errors are held to, and the points at which both are asked for."""

import math
from dataclasses import dataclass

import mpmath
import torch
from torch import Tensor

from softknee.kernels.squaf import squaf
from softknee.kernels.squaf.plain import squaf_plain

DIGITS = 50


@dataclass(frozen=True)
class Sample:
    """One x with its own q, alpha and row of z, for each entry of the first dimension."""

    x: Tensor
    q: Tensor
    alpha: Tensor
    z: Tensor
    window: int | None
    laplacian: bool

    @property
    def weights(self) -> str:
        return "laplacian" if self.laplacian else "gaussian"

    def value(self, x: Tensor) -> Tensor:
        return squaf(x, q=self.q, alpha=self.alpha, z=self.z, window=self.window, weights=self.weights)


def true_derivatives(sample: Sample, *, row: int) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """phi, phi' and phi'': the mean of z, and its central moments with the slopes of the log weights."""
    with mpmath.workdps(DIGITS):
        x, q, alpha = (mpmath.mpf(t[row].item()) for t in (sample.x, sample.q, sample.alpha))
        z = [mpmath.mpf(v) for v in sample.z[row].tolist()]
        k = len(z) // 2
        half = sample.window // 2 if sample.window else 2 * k
        centre = int(max(-k, min(k, mpmath.nint(x / q))))
        kept = range(max(-k, centre - half), min(k, centre + half) + 1)
        if sample.laplacian:
            logs = [-alpha * abs(x - i * q) for i in kept]
            slopes = [-alpha * mpmath.sign(x - i * q) for i in kept]
        else:
            logs = [-alpha * (x - i * q) ** 2 for i in kept]
            slopes = [2 * alpha * i * q for i in kept]
        return moments(logs, slopes, [z[i + k] for i in kept])


def moments(logs: list, slopes: list, z: list) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    top = max(logs)
    weights = [mpmath.exp(e - top) for e in logs]
    total = mpmath.fsum(weights)
    p = [w / total for w in weights]
    mean = mpmath.fsum(a * b for a, b in zip(p, z, strict=True))
    middle = mpmath.fsum(a * b for a, b in zip(p, slopes, strict=True))
    terms = [(a * (b - mean), s - middle) for a, b, s in zip(p, z, slopes, strict=True)]
    return mean, mpmath.fsum(t * s for t, s in terms), mpmath.fsum(t * s * s for t, s in terms)


def condition(sample: Sample) -> list[Tensor]:
    """max(1, |f|) + |x df/dx| + sum |p df/dp| for f = phi, phi', phi'': what rounding the inputs costs."""
    inputs = [t.detach().double().requires_grad_() for t in (sample.x, sample.q, sample.alpha, sample.z)]
    f = squaf_plain(*inputs, sample.window or 0, sample.laplacian)
    (f1,) = torch.autograd.grad(f.sum(), inputs[0], create_graph=True)
    (f2,) = torch.autograd.grad(f1.sum(), inputs[0], create_graph=True)
    bounds = []
    for quantity in (f, f1, f2):
        slopes = torch.autograd.grad(quantity.sum(), inputs, retain_graph=True)
        terms = [(p * s).abs() for p, s in zip(inputs, slopes, strict=True)]
        bounds.append((quantity.abs().clamp(min=1) + terms[0] + terms[1] + terms[2] + terms[3].sum(-1)).detach())
    return bounds


def draw(
    count: int,
    *,
    k: int,
    window: int | None,
    laplacian: bool,
    dtype: torch.dtype,
    seed: int,
    wide: float = 6.0,
) -> Sample:
    """x in [-50, 50] near, between and beyond the grid points; q and alpha over 10^-wide..10^wide."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*(shape or (count,)), generator=generator, dtype=torch.float64)

    q = 10 ** uniform(-wide, wide)
    softness = 10 ** uniform(-4, 4)
    alpha = softness / (q if laplacian else q * q)
    alpha = torch.where(uniform(0, 1) < 0.3, 10 ** uniform(-wide, wide), alpha).clamp(10**-wide, 10**wide)
    side = uniform(-0.5, 0.5)
    side = torch.where(uniform(0, 1) < 0.3, side.sign() * 0.5 * (1 - 10 ** uniform(-5, 0)), side)
    on_grid = (torch.randint(-k - 2, k + 3, (count,), generator=generator) + side) * q
    x = torch.where(uniform(0, 1) < 0.75, on_grid, uniform(-50, 50)).clamp(-50, 50)
    z = torch.randn(count, 2 * k + 1, generator=generator, dtype=torch.float64) * 10 ** uniform(-2, 2, count, 1)
    x, q, alpha, z = (t.to(dtype) for t in (x, q, alpha, z))
    place = x.double() / q.double()
    # The windowed function jumps where a window slides, and the Laplacian has a kink on each grid point.
    jump = (place - place.floor() - 0.5).abs() <= 1e-5 * place.abs()
    unclear = jump & (place.abs() < k + 1) if window else torch.zeros_like(jump)
    if laplacian:
        unclear |= (place - place.round()).abs() <= 1e-5 * place.abs()
    clear = ~unclear
    assert clear.sum() > count // 2
    return Sample(x[clear], q[clear], alpha[clear], z[clear], window, laplacian)


def worst_ratios(sample: Sample, *, orders: int = 3) -> list[float]:
    """The largest error of phi, phi', phi'' in units of eps times the condition above."""
    x = sample.x.clone().requires_grad_()
    results = [sample.value(x)]
    for order in range(1, orders):
        results.append(torch.autograd.grad(results[-1].sum(), x, create_graph=order + 1 < orders)[0])
    bounds = condition(sample)
    eps = torch.finfo(x.dtype).eps
    worst = [0.0] * orders
    for row in range(len(x)):
        for order, truth in enumerate(true_derivatives(sample, row=row)[:orders]):
            error = abs(mpmath.mpf(results[order][row].item()) - truth)
            ratio = float(error / (eps * bounds[order][row].item()))
            worst[order] = max(worst[order], math.inf if math.isnan(ratio) else ratio)
    return worst


def parameters(shape: tuple[int, ...] = (1,), *, k: int = 4, dtype: torch.dtype = torch.float64, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    q = 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
    alpha = 0.5 + torch.rand(shape, generator=generator, dtype=torch.float64)
    z = torch.randn(*shape, 2 * k + 1, generator=generator, dtype=torch.float64)
    return {"q": q.to(dtype), "alpha": alpha.to(dtype), "z": z.to(dtype)}


def inputs(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1, spread: float = 2.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
