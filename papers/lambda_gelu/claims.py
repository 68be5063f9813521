"""Claims of the lambda-GELU paper."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from softknee.nn import make
from softknee.spec import NormalCdf, NormalPdf, elementary, x
from softknee.spec.algebra import oo, sympy
from softknee.spec.reference import evaluate

from ..claim import F64, OURS, Finding, certificate, claims_of, formula, get, integral, line, mp, same

claim = claims_of("lambda_gelu")

lam = sympy.Symbol("lam", positive=True)
TOLERANCE = 5e-3


@claim(place="Section III, equation 1", says=r"At $\lambda = 1$ the family is GELU.", expect="holds")
def gelu_at_one() -> Finding:
    """The two formulas, symbolically, and the computed values bit by bit."""
    points = line(-9, 9)
    equal = sympy.simplify(formula("lambda_gelu", lam=1) - formula("gelu", beta=1)) == 0
    bits = torch.equal(get("lambda_gelu")(points, lam=1.0), get("gelu")(points, beta=1.0))
    return Finding("one formula, and the same bits on 20,001 points", parts={"one function": bool(equal) and bits})


@claim(
    place="Section III, equation 2", says=r"For $\lambda \to\infty$, $x\,\Phi(\lambda x)$ becomes ReLU.", expect="holds"
)
def becomes_relu() -> Finding:
    """The certified distance to ReLU at 1 and at 160, and where it is reached; the function scales with 1/lambda."""
    soft, hard = (certificate("lambda_gelu", lam=k).distance for k in (1, 160))
    scales = same(formula("lambda_gelu").subs(x, x / lam) * lam, formula("lambda_gelu", lam=1))
    assert soft is not None
    assert hard is not None
    at = abs(float(soft.places[0].begin))
    return Finding(
        rf"uniformly, not only point by point: the distance is {float(soft):.12f}$/\lambda$, at $\lvert x\rvert = "
        rf"{at:.9f}/\lambda$; proved to be {float(hard):.9f} at $\lambda = 160$",
        parts={"limit": scales and abs(float(hard) * 160 / float(soft) - 1) < 1e-12},
        numbers={"distance_times_lambda": float(soft), "place_times_lambda": at},
    )


@claim(
    place="Section IV.C",
    says=r"The gate's distance from the step is $E(\lambda) = \int\lvert H(x) - \Phi(\lambda x)\rvert dx = "
    r"2/(\lambda\sqrt{2\pi})$.",
    expect="holds",
)
def gate_distance() -> Finding:
    """The integral by SymPy with lambda left open, and by quadrature to 30 digits at two values."""
    closed = 2 * sympy.integrate(elementary(NormalCdf(-lam * x)), (x, 0, oo))
    exact = sympy.simplify(closed - 2 / (lam * sympy.sqrt(2 * sympy.pi))) == 0
    gaps = []
    with mp.workdps(35):
        for k in (1, 160):
            steps = [mp.mpf(step) / k for step in (0, 3, 12, 40)]
            distance = 2 * integral(lambda at, k=k: mp.ncdf(-k * at), *steps)
            gaps.append(abs(distance * k - 2 / mp.sqrt(2 * mp.pi)))
    return Finding(
        rf"the integral in closed form, for every $\lambda$: {2 / math.sqrt(2 * math.pi):.9f}$/\lambda$; quadrature "
        f"agrees to {'25 digits' if max(gaps) < 1e-25 else 'fewer than 25 digits'}",
        parts={"closed form": bool(exact) and max(gaps) < 1e-25},
        numbers={"distance_times_lambda": 2 / math.sqrt(2 * math.pi)},
    )


@claim(
    place="Section IV.C",
    says=r"A tolerance $\varepsilon = 5 \cdot 10^{-3}$ asks for $\lambda_{\mathrm{target}} \ge "
    r"2/(\varepsilon\sqrt{2\pi})$, about 160.",
    expect="holds",
)
def target_hardness() -> Finding:
    """The formula, and the distance of the gate and of the function at 160."""
    target = 2 / (TOLERANCE * math.sqrt(2 * math.pi))
    at_160 = 2 / (160 * math.sqrt(2 * math.pi))
    distance = certificate("lambda_gelu", lam=1).distance
    assert distance is not None
    enough = float(distance) / TOLERANCE
    return Finding(
        rf"{target:.3f}; at 160 the distance is {at_160:.6f}. (A function within {TOLERANCE:g} of ReLU everywhere "
        rf"needs only $\lambda = {enough:.1f}$.)",
        parts={"about 160": abs(target - 160) < 0.5 and at_160 <= TOLERANCE},
        numbers={"target": target, "distance_at_160": at_160, "enough_for_the_function": enough},
    )


@claim(
    place=f"{OURS} remark on section V",
    says=r"The tolerance of the target $\lambda$ is one of the integral over $x$; at 0 the gate stays half a step away "
    r"for every $\lambda$.",
    expect="holds",
)
def gate_is_half_a_step_away() -> Finding:
    """1 - Phi(lambda x) just right of 0, from the 50-digit reference, for three lambdas; it tends to 1/2 for each."""
    at = 1e-15
    sup = {k: float(1 - evaluate(get("lambda_gelu"), at, lam=k) / mp.mpf(at)) for k in (1, 160, 10**6)}
    wide = float(-mp.sqrt(2) * mp.erfinv(2 * mp.mpf(TOLERANCE) - 1)) / 160
    text = ", ".join(f"{value:.6f}" for value in sup.values())
    return Finding(
        rf"$\sup\lvert H - \Phi(\lambda x)\rvert = 1/2$ for every $\lambda$ (at $x = 10^{{-15}}$ it is {text} for "
        rf"$\lambda = 1$, 160 and $10^6$). The tolerance is one of the integral over $x$: at 160 the gate is still off "
        rf"by more than {TOLERANCE:g} for $\lvert x\rvert < {wide:.4f}$",
        parts={"half a step away": all(abs(value - 0.5) < 1e-3 for value in sup.values())},
        numbers={"sup": max(sup.values()), "off_within": wide},
    )


@claim(
    place="Section V, and section IV.C (distribution-agnostic)",
    says=r"The target $\lambda$ guarantees a uniform tolerance of the gate independently of the statistics of the "
    r"pre-activations.",
    expect="partly",
)
def tolerance_depends_on_the_scale() -> Finding:
    r"""The integral of |H - Phi(lambda x)| over x by quadrature, which knows no data; and its mean over x from N(0,
    sigma^2), which is arctan(1/(lambda sigma))/pi."""
    means = {}
    for sigma in (1.0, 0.1, 0.01):
        scale = 160 * sigma
        error = 2 * integral(lambda at, s=scale: mp.npdf(at) * mp.ncdf(-s * at), 0, 0.1, 0.5, 2, 9, digits=15)
        means[sigma] = float(error)
        assert abs(error - mp.atan(1 / mp.mpf(scale)) / mp.pi) < 1e-12
    text = ", ".join(f"{value:.4f} at σ = {sigma:g}" for sigma, value in means.items())
    whole = float(2 * integral(lambda at: mp.ncdf(-160 * at), 0, 0.01, 0.1, 1, digits=15))
    return Finding(
        rf"the integral of the gate's error over $x$, which the tolerance is of, is {whole:.4f} whatever the data; "
        r"the mean error of the gate over $N(0, \sigma^2)$ is $\arctan(1/(\lambda\sigma))/\pi$; at $\lambda = 160$: "
        f"{text}. A width in $x$ is a width in units of the pre-activations",
        parts={
            "the integral is within the tolerance": whole <= TOLERANCE,
            "the mean over the data is": all(value <= TOLERANCE for value in means.values()),
        },
        numbers={f"mean_error_at_sigma_{sigma:g}": value for sigma, value in means.items()},
    )


@claim(
    place="Section III, before equation 3",
    says=r"$\partial a/\partial\lambda = x^2\varphi(\lambda x)$.",
    expect="holds",
)
def slope_by_lambda() -> Finding:
    """The derivative of the definition by lambda, symbolically."""
    residue = sympy.diff(formula("lambda_gelu"), lam) - elementary(x**2 * NormalPdf(lam * x))
    return Finding("identical, for every x and λ", parts={"formula": sympy.simplify(residue) == 0})


def _hardness(start: float, temperature: float) -> Any:
    return make("lambda_gelu", lam=start, learn="lam", temperature=temperature, dtype=F64)


def _inputs(count: int = 400) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0), dtype=F64)


@claim(
    place="Section III, before equation 3",
    says=r"The gradient by $s$ is $\delta\,x^2\varphi(\lambda x)\,\sigma(s/t)/t$ with $\lambda = 1 + "
    r"\mathrm{softplus}(s/t)$.",
    expect="holds",
)
def gradient_by_s() -> Finding:
    """Autograd through the module, whose raw parameter is s, against the printed product, at three temperatures."""
    worst = 0.0
    for temperature in (0.1, 0.3, 0.9):
        m, points = _hardness(1.3, temperature), _inputs()
        signal = torch.cos(points)
        (m(points) * signal).sum().backward()
        s, hardness = m.raw_lam.detach(), m.lam.detach()
        density = torch.exp(-((hardness * points) ** 2) / 2) / math.sqrt(2 * math.pi)
        printed = (signal * points**2 * density).sum() * torch.sigmoid(s / temperature) / temperature
        worst = max(worst, (m.raw_lam.grad / printed - 1).abs().item())
    return Finding(
        f"agrees to {'12 digits' if worst < 1e-12 else 'fewer than 12 digits'} with automatic differentiation",
        parts={"formula": worst < 1e-12},
    )


@claim(
    place="Section III, equation 3",
    says=r"One gradient step changes $\lambda$ by $-\eta_s\,(\sigma(s/t)/t)^2\,\partial L/\partial\lambda$ to first "
    r"order.",
    expect="holds",
)
def step_on_lambda() -> Finding:
    """The change of lambda after one step of SGD on the module, for a step and for a tenth of it."""
    misses = []
    for step in (1e-4, 1e-5):
        m, points = _hardness(1.3, 0.1), _inputs()
        (before,) = m.lam.tolist()
        (m(points) ** 2).mean().backward()
        factor = (torch.sigmoid(m.raw_lam / 0.1) / 0.1).item()
        predicted = -step * factor * m.raw_lam.grad.item()
        torch.optim.SGD([m.raw_lam], lr=step).step()
        misses.append(abs((m.lam.item() - before) / predicted - 1))
    return Finding(
        f"relative error {misses[0]:.1e} at a learning rate of 1e-4 and {misses[1]:.1e} at 1e-5: first order",
        parts={"first order": misses[0] < 1e-2 and 5 < misses[0] / misses[1] < 20},
        numbers={"error_at_1e-4": misses[0], "error_at_1e-5": misses[1]},
    )


def _path(temperature: float, rate: float, optimiser: str, steps: int = 100) -> Tensor:
    """The hardness after each step of training towards a harder gate."""
    m, points = _hardness(1.2, temperature), _inputs(100)
    goal = get("lambda_gelu")(points, lam=4.0)
    kinds = {
        "sgd": lambda: torch.optim.SGD([m.raw_lam], lr=rate, momentum=0.9),
        # eps far below the gradients, as a scale-free update needs it.
        "adam": lambda: torch.optim.Adam([m.raw_lam], lr=rate, eps=1e-30),
    }
    how, path = kinds[optimiser](), []
    for _ in range(steps):
        how.zero_grad()
        ((m(points) - goal) ** 2).mean().backward()
        how.step()
        path.append(m.lam.item())
    return torch.tensor(path, dtype=F64)


@claim(
    place="Section III, below equation 3",
    says=r"Changing the temperature $t$ is not equivalent to a constant rescaling of the learning rate.",
    expect="fails",
)
def temperature_is_a_learning_rate() -> Finding:
    r"""Two runs of 100 steps from one lambda: t = 0.1 and t = 0.3 with the rate times 9 (SGD) or 3 (Adam).

    In r = s/t the step of SGD is -(eta/t^2) dL/dr, and sigmoid(s/t) = 1 - e^(1 - lambda) does not know t.
    """
    sgd = _path(0.1, 0.04, "sgd"), _path(0.3, 9 * 0.04, "sgd")
    adam = _path(0.1, 0.01, "adam"), _path(0.3, 3 * 0.01, "adam")
    apart = [(a - b).abs().max().item() for a, b in (sgd, adam)]
    grid = {Fraction(c) / Fraction(t) ** 2 for t in ("1/10", "3/10", "6/10", "9/10") for c in (1, 3, 6, 9)}
    return Finding(
        rf"from the same $\lambda$ it is exactly that, since in $r = s/t$ the temperature is gone: the same path of "
        rf"$\lambda$ (from 1.2 to {sgd[0][-1].item():.2f}; apart by less than "
        f"{'1e-9' if max(apart) < 1e-9 else f'{max(apart):.0e}'}) with the rate scaled by $t^2$ for SGD with momentum, "
        f"by $t$ for Adam. The 16 pairs $(t, c)$ of section IV.A have {len(grid)} different $c/t^2$",
        parts={"a temperature does what no rate can": max(apart) > 1e-9},
        numbers={"different_rates_in_the_grid": len(grid), "final_lambda": sgd[0][-1].item()},
    )


@claim(
    place="Abstract and section III",
    says=r"The reparameterization avoids the attenuation that a plain gradient on $\lambda$ suffers.",
    expect="partly",
)
def attenuation_near_one() -> Finding:
    r"""The factor c (sigmoid(s/t)/t)^2 on the step, as a function of lambda, at the paper's t = 0.1 and c = 9."""
    factor = {}
    for start in (1.001, 1.01, 1.1, 2.0):
        m = _hardness(start, 0.1)
        (slope,) = torch.autograd.grad(m.lam.sum(), m.raw_lam)
        factor[start] = 9 * slope.item() ** 2
        assert math.isclose(slope.item(), -math.expm1(1 - start) / 0.1, rel_tol=1e-9)
    text = ", ".join(f"{value:.3g} at λ = {start:g}" for start, value in factor.items())
    return Finding(
        rf"the step is multiplied by $c\,((1 - e^{{1-\lambda}})/t)^2$: {text}. It helps away from 1; the uniform start "
        r"($\lambda \approx 1$) is where it attenuates most",
        parts={"amplified from 2": factor[2.0] >= 1, "amplified at the uniform start": factor[1.01] >= 1},
        numbers={f"factor_at_{start:g}": value for start, value in factor.items()},
    )


@claim(
    place="Section IV.A",
    says=r"As $\lambda$ grows, $\partial a/\partial\lambda$ concentrates near $x = 0$ and becomes small.",
    expect="holds",
)
def signal_for_lambda_shrinks() -> Finding:
    """The mean over N(0, 1) in closed form by SymPy, and where the slope peaks."""
    square = sympy.integrate(x**2 * sympy.exp(-(x**2) * (1 + lam**2) / 2) / (2 * sympy.pi), (x, -oo, oo))
    exact = sympy.simplify(square - (1 + lam**2) ** sympy.Rational(-3, 2) / sympy.sqrt(2 * sympy.pi)) == 0
    peak = sympy.solve(sympy.diff(elementary(x**2 * NormalPdf(lam * x)), x), x)
    mean = {k: (1 + k * k) ** -1.5 / math.sqrt(2 * math.pi) for k in (1, 2, 10, 160)}
    return Finding(
        r"over $N(0, 1)$ its mean is $(1 + \lambda^2)^{-3/2}/\sqrt{2\pi}$: "
        + ", ".join(f"{value:.2g} at λ = {k}" for k, value in mean.items())
        + r"; it is 0 at $x = 0$ itself and peaks at $\pm\sqrt{2}/\lambda$",
        parts={"small": bool(exact), "near 0": sympy.sqrt(2) / lam in peak},
        numbers={f"mean_at_{k}": value for k, value in mean.items()},
    )


@claim(
    place="Section IV.C, algorithm 1",
    says=r"The schedule ensures that every gate is hardened to $\lambda_{\mathrm{target}}$ before ReLU is substituted.",
    expect="partly",
)
def hardened_before_substitution() -> Finding:
    """Algorithm 1 in exact fractions: lambda at the last epoch, and at the checkpoint that step 7 selects."""
    epochs, start, target = 100, Fraction(3, 2), Fraction(160)
    switch = epochs // 4

    def hardness(epoch: int) -> Fraction:
        return start + Fraction(epoch - switch, epochs - switch) * (target - start)

    early = {epoch: float(hardness(epoch)) for epoch in (26, 50, 90)}
    text = ", ".join(f"{value:.1f} at epoch {epoch}" for epoch, value in early.items())
    return Finding(
        r"$\lambda(T)$ is the target exactly; but the substitution is made at the best-validation checkpoint (step "
        f"7), which may be any epoch: of 100, from λ = 1.5, {text}",
        parts={"at the last epoch": hardness(epochs) == target, "at the checkpoint": hardness(90) == target},
        numbers={f"lambda_at_{epoch}": value for epoch, value in early.items()},
    )
