"""Claims of the mollification paper about S-ReLU and the constants beside it (section 4.6, appendices, tables)."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch

from ... import design
from ...spec import NormalCdf, NormalPdf, elementary, positive, x
from ...spec.algebra import Piecewise, Rational, exp, sympy
from ...spec.pieces import split
from ...spec.precision import to_digits
from .entry import Finding, claims_of
from .tools import certificate, formula, get, jumps, line, mp, place, reached_at, rounds_to, same, smooth, tex

claim = claims_of("mollification")

delta = sympy.Symbol("delta", positive=True)
MIDDLE = x / 2 + 3 * x**2 / (8 * delta) + 3 * delta / 16 - x**4 / (16 * delta**3)


@claim(
    place="Section 4.6 and appendix C",
    says=r"ReLU mollified with the Epanechnikov kernel is $x/2 + 3x^2/(8\delta) + 3\delta/16 - x^4/(16\delta^3)$ "
    r"inside $(-\delta, \delta)$ and "
    "ReLU outside.",
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


@claim(
    place="Section 4.6, below the formula",
    says="S-ReLU has a continuous second derivative.",
    expect="holds",
)
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
    says="Activations built by this method, S-ReLU among them, are infinitely differentiable.",
    expect="fails",
)
def srelu_is_not_infinitely_differentiable() -> Finding:
    """The jump of the third derivative: the Epanechnikov kernel has corners, which definition 1's kernel has not."""
    third = jumps(formula("srelu"), 3)
    return Finding(
        rf"the proof uses a $C^\infty$ kernel; Epanechnikov's has corners at its ends, and S-ReLU's third derivative "
        rf"jumps by ${tex(third[0])}$ at $\pm\delta$ ({float(third[0].subs(delta, 0.001)):,.0f} at $\delta = 0.001$)",
        parts={"third derivative is continuous": all(jump == 0 for jump in third)},
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
    exact = all(one and Fraction(width) * 3 / 16 in one and reached_at(one, 0) for width, one in distances.items())
    return Finding(
        r"$3\delta/16$ exactly, at $x = 0$. It is proportional to the knob: 0.001875 at $\delta = 0.01$ and 0.0001875 "
        r"at 0.001, proved at both",
        parts={"distance": exact and scales},
        numbers={f"distance_at_{width}": float(one) for width, one in distances.items() if one is not None},
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
        f"conclusion drawn is right, "
        "the word is not",
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


@claim(
    place="Remark 3, the proof",
    says="The printed first and second derivatives of Mish are right.",
    expect="partly",
)
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
    larger = [name for name, one in proved.items() if one.lower > 1]
    equal = [name for name, one in proved.items() if 1 in one]
    return Finding(
        f"larger for {', '.join(f'{name} ({float(proved[name]):.4f})' for name in larger)}; the same 1 for "
        f"{', '.join(equal)}",
        parts={
            "smaller than GELU, SiLU and Mish": larger == ["gelu", "swish", "mish"],
            "smaller than the others": not equal,
        },
        numbers={name: float(one) for name, one in proved.items()},
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
        rf"estimation; nothing in it refers to "
        "smoothing an activation",
        parts={
            "smallest": min(factor, key=lambda name: factor[name]) == "epanechnikov",
            "lowest degree": no_line == {a: 0, b: 0},
        },
        numbers={name: value / best for name, value in factor.items()},
    )


@claim(
    place="Appendices D and H",
    says=r"The pseudocode is the function of the experiments.",
    expect="fails",
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
        rf"experiments use 0.001, ten times harder "
        f"and up to {other:.6f} away",
        parts={"same delta": other < 1e-9 or itself > 1e-9},
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
    place="Tables 1 and 2",
    says="ELU and CELU are two baselines with results of their own.",
    expect="fails",
)
def elu_and_celu_are_one() -> Finding:
    """The two definitions at their usual parameter 1, symbolically; the printed columns beside them."""
    one = same(formula("elu", beta=1), formula("celu", beta=1))
    printed = {
        "CIFAR-100, a row that seems to be DeiT-Tiny's": (56.9, 40.5),
        "CIFAR-100, average": (43.1, 37.5),
        "CIFAR-10, average": (67.8, 67.6),
    }
    text = "; ".join(f"{name} {a} and {b}" for name, (a, b) in printed.items())
    return Finding(
        rf"at $\alpha = 1$, the value both have when nothing is said, they are one function; printed: {text}. The "
        rf"printed spreads are below one point",
        parts={"two functions": not one},
        numbers={name: a - b for name, (a, b) in printed.items()},
    )
