"""Claims of the mollification paper about propagation, kernels and the Lipschitz bound (sections 4.1 to 4.5)."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import torch

from ... import design, measure
from ...spec import x
from ...spec.algebra import exp, sympy
from ...spec.precision import compiled
from .entry import Finding, claims_of
from .tools import F64, certificate, get, integral, line, mp

claim = claims_of("mollification")

DELTAS = ("0.001", "0.1", "10")


@claim(
    place="Section 4.1",
    says=r"With ReLU the correlation of two inputs tends to 1 with depth as $1 - c_l \sim 9\pi^2/(2 l^2)$.",
    expect="holds",
)
def relu_correlation_rate() -> Finding:
    """1 - c tracked layer by layer on the edge of chaos, in closed form for ReLU."""
    found = {depth: measure.propagation("relu", depth).coefficient for depth in (200, 2000)}
    limit = 9 * math.pi**2 / 2
    near = {depth: value / limit for depth, value in found.items() if value is not None}
    return Finding(
        rf"$l^2(1 - c_l)$ is {found[200]:.2f} after 200 layers and {found[2000]:.2f} after 2,000; the limit is "
        rf"{limit:.2f}",
        # The law's own corrections are of relative size log(l)/l: ten times the depth leaves a fifth of them at most.
        parts={"rate": abs(1 - near[2000]) < 0.2 * abs(1 - near[200])},
        numbers={f"l2_times_gap_at_{depth}": value for depth, value in found.items()} | {"limit": limit},
    )


@claim(
    place="Section 4.1",
    says=r"With smooth activations it tends to 1 as $\beta_q/l$; a second derivative that is continuous piece by piece "
    r"is enough.",
    expect="holds",
)
def smooth_correlation_rate() -> Finding:
    """The same for GELU and for origin-crossing SmeLU, each on its edge of chaos."""
    rows: dict[str, Any] = {name: measure.propagation(name, 500) for name in ("gelu", "origin_smelu")}
    limit = {name: row.edge.limit_coefficient for name, row in rows.items()}
    text = ", ".join(f"{name} {row.coefficient:.3f} (limit {limit[name]:.3f})" for name, row in rows.items())
    return Finding(
        f"$l(1 - c_l)$ after 500 layers: {text}; the second derivative of the latter jumps",
        parts={name: 0.9 < row.coefficient / limit[name] < 1.1 for name, row in rows.items()},
        numbers={name: row.coefficient for name, row in rows.items()},
    )


@claim(
    place="Section 4.6, with section 4.1",
    says=r"S-ReLU is smooth in the sense of section 4.1, so with it correlations decay at the slower rate $\beta_q/l$.",
    expect="fails",
)
def srelu_has_no_edge() -> Finding:
    r"""The bias variance that the edge of chaos would need, q - E f^2/E f'^2 over N(0, q), by exact quadrature."""
    act, needed = get("srelu"), {}
    for delta in (0.01, 0.1, 1.0):
        square = _mean(lambda at, d=delta: act(at, delta=d) ** 2, delta)
        slope = _mean(lambda at, d=delta: act.derivative(1)(at, delta=d) ** 2, delta)
        needed[delta] = 1 - square / slope
    found = measure.propagation("srelu", 100, delta=0.1)
    text = ", ".join(f"{value:.3g} at δ = {delta:g}" for delta, value in needed.items())
    return Finding(
        rf"there is no edge of chaos for it to have a rate on: at $q = 1$ the bias variance would have to be {text}. A "
        rf"ReLU mollified with "
        "a symmetric kernel has none at any variance; the rates above are those of functions that have one",
        parts={"has an edge of chaos": found.edge is not None or any(value >= 0 for value in needed.values())},
        numbers={f"bias_variance_at_delta_{delta:g}": value for delta, value in needed.items()},
    )


def _mean(f: Any, delta: float) -> float:
    """The mean of a function of N(0, 1) with seams at 0 and +-delta: Gauss-Legendre between them, 60 nodes a piece."""
    nodes, weights = _legendre(60)
    total = 0.0
    edges = sorted({-12.0, -6.0, -2.0, -delta, 0.0, delta, 2.0, 6.0, 12.0})
    for low, high in itertools.pairwise(edges):
        at = (low + high) / 2 + (high - low) / 2 * nodes
        density = torch.exp(-(at**2) / 2) / math.sqrt(2 * math.pi)
        total += ((high - low) / 2 * weights * density * f(at)).sum().item()
    return total


def _legendre(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes and weights from the eigenvectors of the Jacobi matrix (Golub and Welsch)."""
    k = torch.arange(1, count, dtype=F64)
    off = k / torch.sqrt(4 * k**2 - 1)
    nodes, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return nodes, 2 * vectors[0] ** 2


def _bump(order: int = 0) -> Any:
    """The derivative of e^(1/(x^2 - 1)) of that order, as a function of mpmath numbers in (-1, 1)."""
    return compiled([x], sympy.diff(exp(1 / (x**2 - 1)), x, order), mp.context)


@functools.cache
def _smoothed(f: Any, kernel: str) -> Any:
    """A definition mollified over a width delta; made once for all the checks."""
    return design.mollify(f, kernel, width="delta")


def _scale() -> Any:
    """A of definition 1, to 30 digits."""
    return mp.context.make_mpf(_exact_scale())


@functools.cache
def _exact_scale() -> Any:
    with mp.workdps(35):
        return (1 / (2 * integral(_bump(), 0, 1)))._mpf_


@claim(
    place="Proposition 1, definitions 1 and 2",
    says=r"The kernel and each $\phi_\delta$ integrate to 1.",
    expect="holds",
)
def kernel_is_normalised() -> Finding:
    """A by quadrature to 30 digits, and the integral of the scaled kernel in parts that A was not made with."""
    scale = _scale()
    with mp.workdps(30):
        delta = mp.mpf("0.01")
        bump = _bump()
        whole = integral(lambda at: scale / delta * bump(at / delta), -delta, delta / 3, delta)
        gap = abs(whole - 1)
        text = mp.nstr(scale, 20)
    return Finding(
        rf"$A = {text}$; $\int\phi_\delta = 1$ at $\delta = 0.01$ to "
        rf"{'20 digits' if gap < 1e-20 else 'fewer than 20 digits'}",
        parts={"normalised": gap < 1e-20},
        numbers={"A": float(scale)},
    )


@claim(
    place="Proposition 2",
    says="The kernel is infinitely differentiable, every derivative is bounded and is 0 at the ends of the support.",
    expect="holds",
)
def kernel_is_smooth() -> Finding:
    r"""Induction by SymPy: the derivative of P/(x^2 - 1)^(2k) e^(1/(x^2 - 1)) has that form again, P and k left open.

    So every derivative is a polynomial over a power of x^2 - 1 times an exponential that is smaller than every power.
    """
    k, polynomial = sympy.Symbol("k", integer=True, nonnegative=True), sympy.Function("P")(x)
    w = x**2 - 1

    def following(top: Any, order: Any) -> Any:
        return sympy.diff(top, x) * w**2 - 4 * order * x * w * top - 2 * x * top

    stem = polynomial / w ** (2 * k) * exp(1 / w)
    step = sympy.simplify((sympy.diff(stem, x) - following(polynomial, k) / w ** (2 * k + 2) * exp(1 / w)) / stem) == 0
    scale, at, top = float(_scale()), line(-0.999, 0.999, 4001), sympy.Integer(1)
    tops, ends = [], []
    for order in range(5):
        values = sympy.lambdify(x, top + 0 * x, torch)(at) / (at**2 - 1) ** (2 * order) * torch.exp(1 / (at**2 - 1))
        tops.append(scale * values.abs().max().item())
        ends.append(values[[0, -1]].abs().max().item())
        top = sympy.expand(following(top, order))
    return Finding(
        r"by induction, for every order: a polynomial over a power of $x^2 - 1$, times the exponential, which vanishes "
        r"faster than any power at $\pm 1$. Largest values, from "
        "order 0: " + ", ".join(f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}" for value in tops),
        parts={
            "induction": bool(step),
            "0 at the ends": max(ends) < 1e-150,
            "bounded": all(math.isfinite(value) for value in tops),
        },
        numbers={f"largest_of_order_{order}": value for order, value in enumerate(tops)},
    )


@claim(
    place="Section 4.2, below definition 2",
    says=r"For $\delta \to 0$ the kernels converge to the Dirac distribution.",
    expect="holds",
)
def kernels_become_a_point() -> Finding:
    r"""The mean of a test function that is neither even nor linear, e^u cos 3u, against its value at 0."""
    scale, bump = _scale(), _bump()

    def miss(delta: float) -> float:
        tested = lambda at: scale * bump(at) * mp.exp(delta * at) * mp.cos(3 * delta * at)  # noqa: E731
        return abs(float(integral(tested, -1, 0, 1, digits=15) - 1))

    gaps = {delta: miss(delta) for delta in (0.1, 0.01)}
    ratio = gaps[0.1] / gaps[0.01]
    variance = float(2 * integral(lambda at: scale * bump(at) * at**2, 0, 1, digits=15))
    return Finding(
        rf"$\int\phi_\delta(u)e^u\,\cos 3u\,du$ misses its value at 0 by {gaps[0.1]:.3g} at $\delta = 0.1$ and "
        rf"{gaps[0.01]:.3g} at 0.01: second order, with variance {variance:.6f}$\,\delta^2$",
        parts={"converges": 90 < ratio < 110},
        numbers={"variance": variance},
    )


@claim(
    place="Section 4.3",
    says=r"Mollification with this kernel makes every locally integrable $f$ infinitely differentiable.",
    expect="holds",
)
def mollified_is_smooth() -> Finding:
    """ReLU mollified by the engine: its second derivative is the kernel itself, for which see proposition 2."""
    made = _smoothed(get("relu"), "bump")
    at, delta = line(-1.2, 1.2, 1201), 0.7
    bend = made.derivative(2)(at, delta=delta)
    inside = at.abs() < delta
    kernel = torch.zeros_like(at)
    kernel[inside] = float(_scale()) * torch.exp(1 / ((at[inside] / delta) ** 2 - 1)) / delta
    gap = (bend - kernel).abs().max().item()
    outer = made(torch.tensor([-0.7, 0.7], dtype=F64), delta=delta)
    return Finding(
        rf"for ReLU: $f_\delta'' = \phi_\delta$ (to {'13 digits' if gap < 1e-12 else 'fewer than 13 digits'}), which "
        rf"has every derivative; outside "
        r"$(-\delta, \delta)$ it is ReLU",
        parts={
            "second derivative is the kernel": gap < 1e-12
            and abs(outer[0].item()) < 1e-15
            and abs(outer[1].item() - 0.7) < 1e-15
        },
    )


@claim(
    place="Section 4.4",
    says=r"$f_\delta \to f$ uniformly on compact sets for every continuous $f$.",
    expect="holds",
)
def mollified_converges() -> Finding:
    r"""sup |f_delta - f| on [-5, 5] with delta falling by tens, for ReLU with both kernels and hardtanh with one."""
    at, deltas = line(-5, 5, 10001), (0.5, 0.05, 0.005)
    cases = {("relu", "bump"): 1.0, ("relu", "epanechnikov"): 1.0, ("hardtanh", "epanechnikov"): 1.0}
    ratio, held = {}, True
    for (name, kernel), slope in cases.items():
        made = _smoothed(get(name), kernel)
        sup = [(made(at, delta=delta) - get(name)(at)).abs().max().item() for delta in deltas]
        ratio[name, kernel] = sup[2] / deltas[2]
        held &= all(value <= slope * delta for value, delta in zip(sup, deltas, strict=True)) and sup[2] < 0.02 * sup[0]
    return Finding(
        rf"the distance is at most $\delta$ times the largest slope in all three cases tried; for ReLU it is "
        rf"{ratio['relu', 'bump']:.4f}$\,\delta$ with this kernel and {ratio['relu', 'epanechnikov']:.4f}$\,\delta$ "
        rf"with Epanechnikov's",
        parts={"converges": held},
        numbers={f"{name}_{kernel}_over_delta": value for (name, kernel), value in ratio.items()},
    )


@claim(
    place="Section 4.5, equations 7 and 8",
    says=r"$\int\lvert\phi_\delta'\rvert = C_\phi/\delta$ with a constant of the kernel alone, and so a function "
    r"bounded by $M$ has $\lvert f_\delta'\rvert \le M C_\phi/\delta$.",
    expect="holds",
)
def lipschitz_bound_for_bounded_functions() -> Finding:
    r"""C_phi by quadrature of |phi'| and as 2 phi(0); the bound against the steepest slope of sign and hardtanh."""
    scale = _scale()
    with mp.workdps(30):
        slope = _bump(1)
        constant = 2 * integral(lambda at: -scale * slope(at), 0, 1)
        gap = abs(constant - 2 * scale * mp.exp(-1))
        text = mp.nstr(constant, 17)
    step = design.mollify(sympy.sign(x), "bump", width="delta").derivative(1)(line(-1, 1, 2001), delta=0.5).max().item()
    soft = _smoothed(get("hardtanh"), "epanechnikov").derivative(1)(line(-3, 3, 6001), delta=0.5).max().item()
    bound = float(constant) / 0.5
    return Finding(
        rf"$C_\phi = 2\phi(0) = {text}$. At $\delta = 0.5$ the bound is {bound:.4f}: attained by the sign function "
        f"({step:.4f}), far from attained by hardtanh ({soft:.4f}), whose slope was never above 1",
        parts={
            "constant": gap < 1e-20,
            "bound": step <= bound * (1 + 1e-12) and soft <= bound,
            "attained": step > bound * (1 - 1e-9),
        },
        numbers={"C_phi": float(constant), "slope_of_sign": step, "slope_of_hardtanh": soft},
    )


@claim(
    place="Section 4.5, last paragraph",
    says=r"For an activation such as ReLU a larger $\delta$ lowers the Lipschitz bound $M C_\phi/\delta$ and so makes "
    r"gradients more stable.",
    expect="fails",
)
def lipschitz_bound_for_relu() -> Finding:
    r"""M over [x - delta, x + delta] grows with x, so there is no bound; and the constant of S-ReLU for five deltas."""
    constants = {delta: certificate("srelu", delta=delta).lipschitz for delta in DELTAS}
    # The largest |f| on [x - delta, x + delta] is x + delta for ReLU right of 0.
    bound = {at: (at + 1) * float(2 * _scale() * mp.exp(-1)) for at in (1, 1000)}
    return Finding(
        rf"it says nothing for an unbounded $f$: $M$ is the largest value near $x$, so at $\delta = 1$ the bound is "
        rf"{bound[1]:.1f} at $x = 1$ and {bound[1000]:.0f} at $x = 1000$. "
        "S-ReLU's constant is proved to be "
        + ", ".join(f"{one} at δ = {delta}" for delta, one in constants.items())
        + ": the same for every δ, and ReLU's own",
        parts={"a larger delta lowers it": constants["10"].upper < constants["0.001"].lower},
        numbers={f"constant_at_{delta}": float(one) for delta, one in constants.items()},
    )
