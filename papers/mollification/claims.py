"""Claims of the mollification paper."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction
from typing import Any

import torch

from softknee import design, measure
from softknee.spec import NormalCdf, NormalPdf, elementary, positive, x
from softknee.spec.algebra import Piecewise, Rational, exp, sympy
from softknee.spec.pieces import split
from softknee.spec.precision import compiled, to_digits

from ..claim import (
    F64,
    HOLDS,
    Finding,
    certificate,
    claims_of,
    formula,
    get,
    integral,
    jumps,
    line,
    mp,
    place,
    reached_at,
    rounds_to,
    same,
    smooth,
    tex,
)

claim = claims_of("mollification")

DELTAS = ("0.001", "0.1", "10")


@claim(
    place="Section 4.1",
    says=r"With ReLU the correlation of two inputs tends to 1 with depth as $1 - c_l \sim 9\pi^2/(2 l^2)$.",
    expect="holds",
)
def relu_correlation_rate() -> Finding:
    """1 - c tracked layer by layer on the edge of chaos, in closed form for ReLU."""
    gaps = {depth: measure.propagation("relu", depth).coefficient for depth in (200, 2000)}
    limit = 9 * math.pi**2 / 2
    near = {depth: value / limit for depth, value in gaps.items() if value is not None}
    return Finding(
        rf"$l^2(1 - c_l)$ is {gaps[200]:.2f} after 200 layers and {gaps[2000]:.2f} after 2,000; the limit is "
        rf"{limit:.2f}",
        # The law's own corrections are of relative size log(l)/l: ten times the depth leaves a fifth of them at most.
        parts={"rate": abs(1 - near[2000]) < 0.2 * abs(1 - near[200])},
        numbers={f"l2_times_gap_at_{depth}": value for depth, value in gaps.items()} | {"limit": limit},
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
    flow = measure.propagation("srelu", 100, delta=0.1)
    text = ", ".join(f"{value:.3g} at δ = {delta:g}" for delta, value in needed.items())
    return Finding(
        "correlations decay at that rate on the edge of chaos, the variances of weights and biases at which they "
        rf"neither grow nor shrink with depth, and S-ReLU has none: at $q = 1$ its bias variance would have to be "
        rf"{text}. No ReLU mollified with a symmetric kernel has one at any variance; the rates of section 4.1, which "
        "hold, are those of functions that have",
        parts={"has an edge of chaos": flow.edge is not None or any(value >= 0 for value in needed.values())},
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
        r"has every derivative; outside $(-\delta, \delta)$ it is ReLU",
        parts={
            "second derivative is the kernel": gap < 1e-12
            and abs(outer[0].item()) < 1e-15
            and abs(outer[1].item() - 0.7) < 1e-15
        },
    )


@claim(
    place="Section 4.4", says=r"$f_\delta \to f$ uniformly on compact sets for every continuous $f$.", expect="holds"
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
    expect="partly",
)
def lipschitz_bound_for_relu() -> Finding:
    r"""For three deltas the bound at one x, where M is the largest value on [x - delta, x + delta], and the constant of
    S-ReLU."""
    constants = {delta: certificate("srelu", delta=delta).lipschitz for delta in DELTAS}
    # The largest |f| on [x - delta, x + delta] is x + delta for ReLU right of 0.
    bound = {
        width: {at: (at + float(width)) / float(width) * float(2 * _scale() * mp.exp(-1)) for at in (1, 1000)}
        for width in DELTAS
    }
    falls = all(bound[b][at] < bound[a][at] for a, b in itertools.pairwise(DELTAS) for at in (1, 1000))
    return Finding(
        rf"the bound falls with $\delta$ at every $x$, and there is none for all $x$, since $M$ is the largest value "
        rf"near $x$: at $\delta = 0.1$ it is {bound['0.1'][1]:.0f} at $x = 1$ and {bound['0.1'][1000]:,.0f} at "
        "$x = 1000$. The slope itself does not fall: S-ReLU's constant is proved to be "
        + ", ".join(f"{constant} at δ = {width}" for width, constant in constants.items())
        + ", ReLU's own",
        parts={
            "a larger delta lowers the bound": falls,
            "a larger delta lowers the constant": constants["10"].upper < constants["0.001"].lower,
        },
        numbers={f"constant_at_{delta}": float(constant) for delta, constant in constants.items()},
    )


# -- Claims of the mollification paper about S-ReLU and the constants beside it (section 4.6, appendices, tables).


delta = sympy.Symbol("delta", positive=True)
MIDDLE = x / 2 + 3 * x**2 / (8 * delta) + 3 * delta / 16 - x**4 / (16 * delta**3)


@claim(
    place="Section 4.6 and appendix C",
    says=r"ReLU mollified with the Epanechnikov kernel is $x/2 + 3x^2/(8\delta) + 3\delta/16 - x^4/(16\delta^3)$ "
    r"inside $(-\delta, \delta)$ and ReLU outside.",
    expect="holds",
)
def srelu_formula() -> Finding:
    """The printed formula against the engine's convolution and against the definition, piece by piece."""
    printed = Piecewise((0, x <= -delta), (x, x >= delta), (MIDDLE, True))
    made = design.mollify("relu", "epanechnikov", width=positive("delta", 1.0))
    return Finding(
        "the convolution in closed form, the definition and the printed formula are one function",
        parts={"convolution": same(printed, made.formula), "definition": same(printed, formula("srelu"))},
    )


@claim(place="Section 4.6, below the formula", says="S-ReLU has a continuous second derivative.", expect="holds")
def srelu_is_twice_differentiable() -> Finding:
    """The jumps at both seams, symbolic in delta, and the printed second derivative."""
    f = formula("srelu")
    bend = sympy.diff(split(f).parts[1], x, 2)
    printed = sympy.simplify(bend - 3 * (delta**2 - x**2) / (4 * delta**3)) == 0
    return Finding(
        r"value, slope and second derivative meet at $\pm\delta$ for every $\delta$, and $f'' = 3(\delta^2 - "
        r"x^2)/(4\delta^3)$ as printed",
        parts={"continuous": smooth(f, 2), "printed form": bool(printed)},
    )


@claim(
    place="Section 4.6, first paragraph, with section 4.3",
    says="Activations built by this method are infinitely differentiable.",
    expect="partly",
)
def srelu_is_not_infinitely_differentiable() -> Finding:
    """Definition 1's kernel by the claim on section 4.3, and the jump of S-ReLU's third derivative: the Epanechnikov
    kernel has corners."""
    third = jumps(formula("srelu"), 3)
    return Finding(
        rf"so with definition 1's kernel; Epanechnikov's, with which S-ReLU is made, has corners at its ends, and "
        rf"S-ReLU's third derivative jumps by ${tex(third[0])}$ at $\pm\delta$ "
        rf"({float(third[0].subs(delta, 0.001)):,.0f} at $\delta = 0.001$). The paper itself calls it $C^2$",
        parts={
            "with definition 1's kernel": mollified_is_smooth.check().verdict == HOLDS,
            "third derivative of S-ReLU is continuous": all(jump == 0 for jump in third),
        },
        numbers={"jump_at_delta_1": float(third[0].subs(delta, 1))},
    )


@claim(
    place="Section 4.6 and appendix C",
    says=r"S-ReLU differs from ReLU by at most $3\delta/16$, and for $\delta \to 0$ S-ReLU is ReLU.",
    expect="holds",
)
def srelu_distance() -> Finding:
    """The certified distance at the two widths of the paper, and where; the function scales with delta."""
    distances = {width: certificate("srelu", delta=width).distance for width in ("0.01", "0.001")}
    scales = same(formula("srelu").subs(x, delta * x), delta * formula("srelu", delta=1))
    exact = all(
        distance and Fraction(width) * 3 / 16 in distance and reached_at(distance, 0)
        for width, distance in distances.items()
    )
    return Finding(
        r"$3\delta/16$ exactly, at $x = 0$. It is proportional to the knob: 0.001875 at $\delta = 0.01$ and 0.0001875 "
        r"at 0.001, proved at both",
        parts={"distance": exact and scales},
        numbers={
            f"distance_at_{width}": float(distance) for width, distance in distances.items() if distance is not None
        },
    )


@claim(
    place="Appendix C, last paragraph",
    says=r"The error decreases on $[0, \delta]$, so its minimum is its value at 0.",
    expect="partly",
)
def srelu_error_is_largest_at_zero() -> Finding:
    """The computed gap on a grid at delta = 1."""
    at = line(0, 1, 10001)
    gap = get("srelu")(at, delta=1.0) - at
    falls = bool((gap.diff() <= 1e-16).all())
    return Finding(
        f"it decreases from {gap[0].item():.4f} to {abs(gap[-1].item()):.4f}, so its value at 0 is the maximum; the "
        "conclusion drawn is right, the word is not",
        parts={"decreases": falls, "smallest at 0": gap.argmin().item() == 0},
        numbers={"at_0": gap[0].item(), "at_delta": gap[-1].item()},
    )


@claim(place="Fact 1 and remark 1", says="The Lipschitz constant of GELU is 1.084.", expect="fails")
def gelu_constant() -> Finding:
    """The largest slope of GELU and its place, enclosed by ball arithmetic; the closed form at sqrt 2 beside it."""
    proved = certificate("gelu", beta=1).lipschitz
    at, root = place(proved), sympy.sqrt(2)
    closed = to_digits(elementary(NormalCdf(root) + root * NormalPdf(root)), 30)
    form = r"$\Phi(\sqrt 2) + \sqrt 2\,\varphi(\sqrt 2)$, " if abs(float(closed) - float(proved)) < 1e-14 else ""
    return Finding(
        rf"it is {form}proved to be {proved} The place, $x = {at:.6f}$, is right; the value there is not",
        parts={"1.084": rounds_to(proved, "1.084")},
        numbers={"constant": float(proved), "place": at},
    )


@claim(
    place="Fact 1 and remark 2",
    says=r"SiLU's slope lies in $[-0.100, 1.100]$ with its extremes at $\pm 2.3994$; its Lipschitz constant is 1.100.",
    expect="holds",
)
def silu_constant() -> Finding:
    """Both extremes of the slope and their places by ball arithmetic, and the printed second derivative."""
    proved = certificate("swish", beta=1)
    top, low = proved.largest_slope, proved.smallest_slope
    printed = exp(x) * (-exp(x) * (x - 2) + x + 2) / (1 + exp(x)) ** 3
    bend = sympy.simplify(sympy.diff(formula("swish", beta=1), x, 2) - printed) == 0
    return Finding(
        f"{float(top):.10f} at {place(top):.4f} and {float(low):.10f} at {place(low):.4f}; the printed second "
        f"derivative is right",
        parts={
            "constant": rounds_to(proved.lipschitz, "1.100"),
            "range and places": rounds_to(low, "-0.100")
            and (round(place(top), 4), round(place(low), 4)) == (2.3994, -2.3994),
            "second derivative": bool(bend),
        },
        numbers={"constant": float(top), "lowest_slope": float(low), "place": place(top)},
    )


@claim(
    place="Fact 1 and remark 3",
    says=r"Mish's slope lies in $[-0.113, 1.089]$, with its extremes at $-2.2564$ and $1.4906$; its Lipschitz constant "
    r"is 1.089.",
    expect="partly",
)
def mish_constant() -> Finding:
    """Both extremes of the slope and their places by ball arithmetic."""
    proved = certificate("mish", beta=1)
    top, low = proved.largest_slope, proved.smallest_slope
    return Finding(
        f"{float(top):.10f}, which rounds to 1.088 (1.089 is 1.0885 rounded once more); the places {place(low):.4f} "
        f"and {place(top):.4f} and the lowest slope {float(low):.4f} are right",
        parts={
            "constant to three digits": rounds_to(proved.lipschitz, "1.089"),
            "places and lowest slope": (round(place(low), 4), round(place(top), 4)) == (-2.2564, 1.4906)
            and rounds_to(low, "-0.113"),
        },
        numbers={"constant": float(top), "lowest_slope": float(low)},
    )


@claim(place="Remark 3, the proof", says="The printed first and second derivatives of Mish are right.", expect="partly")
def mish_derivatives() -> Finding:
    """The printed quotients against the derivatives of the definition, with e^x as a variable of its own."""
    e = sympy.Symbol("e", positive=True)

    def slope(f: Any) -> Any:
        return sympy.diff(f, x) + e * sympy.diff(f, e)

    below = e**2 + 2 * e + 2
    first = e * (4 * (x + 1) + 4 * e**2 + e**3 + e * (4 * x + 6)) / below**2
    second = 4 * e * (3 * e**2 * (x - 2) + 2 * e**3 * (x - 1) - 2 * (x + 2) - 2 * e * (x + 4)) / below**3
    f = x * (e**2 + 2 * e) / below
    assert abs(sympy.N((f.subs(e, exp(x)) - formula("mish", beta=1)).subs(x, Rational(7, 5)), 30)) < 1e-25
    right = [sympy.cancel(slope(f) - first) == 0, sympy.cancel(slope(slope(f)) - second) == 0]
    negated = sympy.cancel(slope(slope(f)) + second) == 0
    return Finding(
        f"the first is right; the second has the wrong sign{' throughout' if negated else ''} (its roots, and so the "
        f"places above, are the same)",
        parts={"first": bool(right[0]), "second": bool(right[1])},
    )


@claim(
    place="Fact 1 and remark 4",
    says=r"S-ReLU's Lipschitz constant is 1.000 for every $\delta$: its slope rises from 0 to 1.",
    expect="holds",
)
def srelu_constant() -> Finding:
    """The slope in closed form, which rises from seam to seam, and the certificate at 0.01."""
    slope = sympy.diff(split(formula("srelu")).parts[1], x)
    ends = [sympy.simplify(slope.subs(x, side * delta)) for side in (-1, 1)]
    rising = sympy.simplify(sympy.diff(slope, x) - 3 * (delta**2 - x**2) / (4 * delta**3)) == 0
    proved = certificate("srelu", delta="0.01")
    return Finding(
        rf"the slope is {ends[0]} at $-\delta$ and {ends[1]} at $\delta$ and rises between them, for every $\delta$; "
        rf"proved to be {proved.lipschitz} at 0.01",
        parts={"constant": ends == [0, 1] and bool(rising) and 1 in proved.lipschitz},
        numbers={"constant": float(proved.lipschitz)},
    )


@claim(
    place="Section 4.6, last paragraph",
    says="A Lipschitz constant of 1 is a clear advantage of S-ReLU over the other activation functions compared.",
    expect="partly",
)
def others_have_constant_one_too() -> Finding:
    """The constants of the paper's six baselines and of ReLU itself, each enclosed by ball arithmetic."""
    proved = {name: certificate(name).lipschitz for name in ("gelu", "swish", "mish", "elu", "celu", "prelu", "relu")}
    larger = [name for name, constant in proved.items() if constant.lower > 1]
    equal = [name for name, constant in proved.items() if 1 in constant]
    return Finding(
        f"larger for {', '.join(f'{name} ({float(proved[name]):.4f})' for name in larger)}; the same 1 for "
        f"{', '.join(equal)}",
        parts={
            "smaller than GELU, SiLU and Mish": larger == ["gelu", "swish", "mish"],
            "smaller than the others": not equal,
        },
        numbers={name: float(constant) for name, constant in proved.items()},
    )


@claim(
    place="Section 4.6, choice of the kernel",
    says="The Epanechnikov kernel minimises the mean integrated squared error, and is the lowest-degree non-negative "
    "polynomial that is continuous at the ends of its support.",
    expect="holds",
)
def epanechnikov_is_optimal() -> Finding:
    r"""The kernel's factor in the asymptotic error of a density estimate, R(K)^(4/5) sigma^(4/5), for six kernels."""
    box = Rational(1, 2) + 0 * x
    kernels = {
        "epanechnikov": Rational(3, 4) * (1 - x**2),
        "biweight": Rational(15, 16) * (1 - x**2) ** 2,
        "triweight": Rational(35, 32) * (1 - x**2) ** 3,
        "box": box,
    }
    factor = {}
    for name, kernel in kernels.items():
        rough = sympy.integrate(kernel**2, (x, -1, 1))
        spread = sympy.sqrt(sympy.integrate(x**2 * kernel, (x, -1, 1)))
        factor[name] = float(rough * spread)
    factor["triangle"] = float(Rational(2, 3) * sympy.sqrt(Rational(1, 6)))
    factor["gaussian"] = 1 / (2 * math.sqrt(math.pi))
    best = factor["epanechnikov"]
    # A line that is 0 at both ends of [-1, 1] is 0.
    a, b = sympy.symbols("a b")
    no_line = sympy.solve([a + b, a - b], [a, b])
    text = ", ".join(f"{name} {value / best:.4f}" for name, value in factor.items() if name != "epanechnikov")
    return Finding(
        rf"in $\int K^2 \cdot \sigma_K$, relative to Epanechnikov: {text}. The optimality is one of density "
        "estimation; nothing in it refers to smoothing an activation",
        parts={
            "smallest": min(factor, key=lambda name: factor[name]) == "epanechnikov",
            "lowest degree": no_line == {a: 0, b: 0},
        },
        numbers={name: value / best for name, value in factor.items()},
    )


@claim(
    place="Appendices D and H",
    says="The pseudocode of S-ReLU is the function of the experiments, if the two are read together.",
    expect="partly",
)
def pseudocode_has_another_delta() -> Finding:
    r"""The pseudocode, typed in, against the definition at its delta and at the experiments'."""
    at = line(-0.03, 0.03, 60001)
    a = 0.01
    middle = at / 2.0 + 3.0 * at**2 / (8.0 * a) + 3.0 * a / 16.0 - at**4 / (16.0 * a**3)
    typed = torch.where(at <= -a, torch.zeros_like(at), torch.where((at > -a) & (at < a), middle, at))
    itself = (typed - get("srelu")(at, delta=0.01)).abs().max().item()
    other = (typed - get("srelu")(at, delta=0.001)).abs().max().item()
    return Finding(
        rf"it computes S-ReLU at $\delta = 0.01$ (to {'1e-15' if itself < 1e-15 else f'{itself:.0e}'}); the "
        f"experiments use 0.001, ten times harder and up to {other:.6f} away",
        parts={"S-ReLU": itself < 1e-9, "same delta": other < 1e-9},
        numbers={"away": other},
    )


@claim(
    place="Appendix E",
    says=r"Since the slope is nonzero on $(-\delta, 0)$, S-ReLU avoids the dead ReLU problem.",
    expect="partly",
)
def dead_units_remain() -> Finding:
    """The exact slope left of -delta, and the share of N(0, 1) there."""
    outside = split(formula("srelu")).parts[0]
    share = {d: float(mp.ncdf(-d)) for d in (0.001, 0.01, 0.1)}
    inside = bool((get("srelu").derivative(1)(line(-0.0999, -0.0001), delta=0.1) > 0).all())
    text = ", ".join(f"{100 * value:.2f}% at δ = {d:g}" for d, value in share.items())
    return Finding(
        rf"nonzero on $(-\delta, 0)$, and exactly 0 left of it, as ReLU's: for $N(0, 1)$ inputs the slope is 0 with "
        rf"probability {text} (ReLU: 50%)",
        parts={"slope inside": inside, "slope left of it": outside != 0},
        numbers={f"dead_share_at_{d:g}": value for d, value in share.items()},
    )


@claim(
    place="Table 1, CIFAR-100",
    says="ELU and CELU have different accuracies (43.1 and 37.5 % in the mean of three networks).",
    expect="partly",
)
def elu_and_celu_are_one() -> Finding:
    """The two definitions at their usual parameter 1 and at another, symbolically; what is printed beside them."""
    equal, other = (same(formula("elu", beta=beta), formula("celu", beta=beta)) for beta in (1, 2))
    printed = {"the mean": (43.1, 37.5), "CIFAR-10, the mean": (67.8, 67.6), "table 2": (30.3, 30.5)}
    return Finding(
        r"at $\alpha = 1$, the default of both, they are one function, and elsewhere their "
        r"printed accuracies agree (CIFAR-10 67.8 and 67.6 %, ConvNeXt on CIFAR-100 30.3 and 30.5 %): either one of "
        r"them has another $\alpha$ here, which the paper does not say, or a number is wrong",
        parts={"at 1 they are two": not equal, "elsewhere they are": not other},
        numbers={name: a - b for name, (a, b) in printed.items()},
    )
