"""Claims of the EAFO paper: entropy and the worst function, CRReLU, and its tables."""

from __future__ import annotations

import math
from typing import Any

import torch

from softknee import design
from softknee.spec import NormalPdf, elementary, x
from softknee.spec.algebra import exp, sympy
from softknee.spec.pieces import split

from ..claim import OURS, Finding, claims_of, formula, get, integral, jumps, line, mp, same, tex

claim = claims_of("eafo")

# y(x) is the inverse activation, p the density; as functions with no more said about them the identities hold for all.
y = sympy.Function("y", positive=True)(x)
p = sympy.Function("p", positive=True)
slope = sympy.diff(y, x)
held, rate = sympy.Symbol("Y", real=True), sympy.Symbol("V", positive=True)  # y and y' as independent variables
INTEGRAND = -p(held) * rate * sympy.log(p(held) * rate)


def _along(expr: Any) -> Any:
    """An expression in y and y' as independent variables, taken along the function y(x)."""
    return expr.subs({rate: slope, held: y}).doit()


def _variation() -> Any:
    """dG/dy - d/dx dG/dy', the coefficient of the first variation."""
    return _along(sympy.diff(INTEGRAND, held)) - sympy.diff(_along(sympy.diff(INTEGRAND, rate)), x)


def _vanishes(expr: Any) -> bool:
    return sympy.simplify(sympy.expand_log(sympy.expand(expr.doit()), force=True)) == 0


HALF_LINE = (0, 1, 2, 4, 8, 16)


@claim(
    place="Sections 2.1.1 and 2.3",
    says="A lower entropy of the features goes with a lower Bayes error, so activations should lower the entropy.",
    expect="fails",
)
def scaling_changes_entropy_alone() -> Finding:
    r"""Two classes N(-1, 1) and N(1, 1): the mixture's entropy and the Bayes error after x -> c x, by quadrature."""
    mixed = lambda at: (mp.npdf(at - 1) + mp.npdf(at + 1)) / 2  # noqa: E731
    edges = (0, 2, 5, 12)
    base = -2 * integral(lambda at: mixed(at) * mp.log(mixed(at)), *edges, digits=15)
    rows = {}
    for c in (10, 1, 0.1):
        density = lambda at, c=c: mixed(at / c) / c  # noqa: E731
        entropy = -2 * integral(lambda at, d=density: d(at) * mp.log(d(at)), *(c * point for point in edges), digits=15)
        error = integral(lambda at, c=c: mp.npdf((at + c) / c) / c, *(c * point for point in edges), digits=15)
        rows[c] = (float(entropy), float(error))
        assert abs(entropy - base - mp.log(c)) < 1e-12
    text = ", ".join(f"H = {h:.4f} at c = {c:g}" for c, (h, _) in rows.items())
    errors = [error for _, error in rows.values()]
    return Finding(
        rf"$H(cX) = H(X) + \log c$ falls without limit while nothing about the classes changes: {text}, Bayes error "
        f"{errors[0]:.6f} for all three. No one-to-one activation changes the Bayes error at all",
        parts={"lower entropy, lower error": max(errors) - min(errors) > 1e-12},
        numbers={f"entropy_at_{c:g}": h for c, (h, _) in rows.items()} | {"bayes_error": errors[0]},
    )


@claim(
    place="Section 2.1.2",
    says=r"After an increasing activation with inverse $y$ the density is $q = p(y)y'$, and the entropy is $-\int "
    r"q\,\log q$.",
    expect="holds",
)
def entropy_of_the_output() -> Finding:
    r"""The sigmoid: its output's density integrates to 1; its entropy from q and as H(X) + E log f'(X)."""
    inverse = lambda at: mp.log(at / (1 - at))  # noqa: E731
    q = lambda at: mp.npdf(inverse(at)) / (at * (1 - at))  # noqa: E731
    edges = (1e-8, 0.001, 0.05, 0.5, 0.95, 0.999, 1 - 1e-8)
    total = integral(q, *edges, digits=15)
    direct = -integral(lambda at: q(at) * mp.log(q(at)), *edges, digits=15)
    engine = design.entropy("sigmoid", "normal")
    return Finding(
        rf"for the sigmoid and $N(0, 1)$: $\int q = {float(total):.9f}$, $-\int q\,\log q = {float(direct):.6f}$, and "
        rf"$H(X) + E\,\log f'(X) = {engine:.6f}$",
        parts={"density": abs(total - 1) < 1e-9, "entropy": abs(float(direct) - engine) < 1e-6},
        numbers={"entropy": engine},
    )


@claim(
    place="Section 2.2, equations 1 and 2",
    says=r"The first-order change of the entropy along $\eta$ is $\int(\partial G/\partial y - d/dx\,\partial "
    r"G/\partial y')\,\eta\,dx$.",
    expect="holds",
)
def first_variation() -> Finding:
    """The entropy of the inverse x + t x^2 e^-x on the half line, differentiated in t, against the integral."""

    def entropy_at(t: Any) -> Any:
        def minus(at: Any) -> Any:
            bump = at**2 * mp.exp(-at)
            q = mp.npdf(at + t * bump) * (1 + t * (2 * at - at**2) * mp.exp(-at))
            return -q * mp.log(q)

        return integral(minus, *HALF_LINE)

    with mp.workdps(30):
        step = mp.mpf("1e-6")
        numeric = (entropy_at(step) - entropy_at(-step)) / (2 * step)
        # For y = x the coefficient is p'(x) = -x p(x).
        printed = integral(lambda at: -at * mp.npdf(at) * at**2 * mp.exp(-at), *HALF_LINE)
        miss = abs(numeric / printed - 1)
    return Finding(
        rf"for $y = x$, $N(0, 1)$ above 0 and $\eta = x^2e^{{-x}}$: {float(printed):.8f} by the integral, the same by "
        f"differencing the entropy itself (to {'9 digits' if miss < 1e-9 else f'{float(miss):.0e}'})",
        parts={"first order": miss < 1e-9},
        numbers={"variation": float(printed)},
    )


@claim(
    place="Proposition 1 and appendix C",
    says=r"Where $G$ does not depend on $x$, the Euler-Lagrange equation gives $G - y'\,\partial G/\partial y' = C$.",
    expect="holds",
)
def first_integral() -> Finding:
    """d/dx (G - y' dG/dy') = y' (dG/dy - d/dx dG/dy'), for a density and an inverse that are left open."""
    conserved = _along(INTEGRAND - rate * sympy.diff(INTEGRAND, rate))
    identity = _vanishes(sympy.diff(conserved, x) - slope * _variation())
    return Finding(
        r"$d/dx\,(G - y'\,\partial G/\partial y')$ is $y'$ times the Euler-Lagrange expression, for every density and "
        r"inverse, so it is 0 where that is",
        parts={"identity": identity},
    )


@claim(
    place="Appendix D, equations 9 and 10",
    says=r"The extremal is $f = C_1\int p + C_2$, the cumulative distribution between the bounds.",
    expect="holds",
)
def worst_function_is_the_cdf() -> Finding:
    r"""The conserved quantity is p(y) y'; and what the engine's worst function makes of three densities."""
    conserved = sympy.simplify(_along(INTEGRAND - rate * sympy.diff(INTEGRAND, rate)) - p(y) * slope) == 0
    entropies = {name: design.entropy(design.worst(name), name) for name in ("normal", "logistic", "laplace")}
    flat = max(abs(value) for value in entropies.values())
    return Finding(
        r"$G - y'\,\partial G/\partial y' = p(y)y'$, so $p(y)y'$ is constant and the output uniform: on (0, 1) the "
        r"entropy is 0 "
        f"({'to 8 digits' if flat < 1e-8 else f'off by {flat:.0e}'}) for the normal, logistic and Laplace densities",
        parts={"form": bool(conserved), "uniform output": flat < 1e-8},
        numbers={f"entropy_{name}": value for name, value in entropies.items()},
    )


@claim(
    place="Appendix D",
    says=r"Legendre's condition $G_{y'y'} = -p(y)/y' \le 0$ makes it a maximum, in fact a global one.",
    expect="holds",
)
def legendre_condition() -> Finding:
    """The second derivative symbolically; the entropy of other increasing functions onto (0, 1) beside it."""
    bend = sympy.simplify(sympy.diff(INTEGRAND, rate, 2) + p(held) / rate) == 0
    others = {"sigmoid": design.entropy("sigmoid", "normal")}
    for steepness in (0.5, 2.0):
        # Phi(s x): the entropy is log s + (1 - s^2)/2 for N(0, 1).
        others[f"Φ({steepness:g}x)"] = math.log(steepness) + (1 - steepness**2) / 2
    text = ", ".join(f"{name} {value:.4f}" for name, value in others.items())
    return Finding(
        rf"$G_{{y'y'}} = -p(y)/y'$ identically; and a uniform output has the largest entropy on an interval: 0 on (0, "
        rf"1), against {text}",
        parts={"condition": bool(bend), "largest": all(value < 0 for value in others.values())},
        numbers=others,
    )


@claim(
    place="Section 2.3",
    says="The functional has a global maximum and no global minimum: there is no best activation.",
    expect="holds",
)
def no_minimum() -> Finding:
    r"""Phi(n x) onto (0, 1), whose entropy is 1/2 + log n - n^2/2 in closed form, checked by the engine at n = 2."""
    closed = {n: 0.5 + math.log(n) - n * n / 2 for n in (1, 2, 5, 50)}
    engine = design.entropy("normal_cdf(2*x)", "normal")
    text = ", ".join(f"{value:.2f} at n = {n}" for n, value in closed.items())
    return Finding(
        rf"with bounds 0 and 1 kept, $\Phi(nx)$ has entropy $1/2 + \log n - n^2/2$: {text}. It has no lower bound",
        parts={"no lower bound": closed[50] < -1000 and abs(engine - closed[2]) < 1e-9},
        numbers={f"entropy_at_{n}": value for n, value in closed.items()},
    )


@claim(
    place="Appendix D",
    says="The worst function explains why bounded activations such as Sigmoid and Tanh do worse than unbounded ones "
    "such as ReLU.",
    expect="fails",
)
def entropy_ranks_relu_last() -> Finding:
    """Entropies of the outputs for N(0, 1) inputs above 0, where all three are one-to-one."""
    entropies = {name: design.entropy(name, "normal", between=(0, math.inf)) for name in ("sigmoid", "tanh", "relu")}
    text = ", ".join(f"{name} {value:.4f}" for name, value in entropies.items())
    return Finding(
        "the worst function is worst among functions with the same bounds. Across bounds the entropy ranks them the "
        f"other way round: {text} nats for inputs above 0 (below 0 ReLU is one point)",
        parts={"ReLU has the lowest entropy": entropies["relu"] < min(entropies["sigmoid"], entropies["tanh"])},
        numbers=entropies,
    )


@claim(place="Appendix D", says="For uniformly distributed inputs the worst function is linear.", expect="holds")
def uniform_density_gives_a_line() -> Finding:
    """The engine's worst function for the uniform density, as a formula inside its support."""
    made = design.worst(design.uniform(low=-2, high=3))
    inside = split(made.formula).part_of(sympy.Rational(1, 3))
    line = sympy.simplify(inside - (x + 2) / 5) == 0
    return Finding(rf"on $(-2, 3)$ it is ${tex(inside)}$, a line from 0 to 1", parts={"linear": bool(line)})


@claim(
    place="Appendix D, figures 1 and 2",
    says="For normal inputs it is close to Sigmoid, and with bounds $e$ apart close to Tanh.",
    expect="partly",
)
def worst_for_normal_inputs() -> Finding:
    r"""sup |Phi - sigmoid| and sup |e (Phi - 1/2) - tanh|, each where the slopes are equal."""
    sigmoid = lambda at: 1 / (1 + mp.exp(-at))  # noqa: E731
    place = mp.findroot(lambda at: mp.npdf(at) - sigmoid(at) * sigmoid(-at), 1.3)
    first = float(mp.ncdf(place) - sigmoid(place))
    second = mp.findroot(lambda at: mp.e * mp.npdf(at) - 1 / mp.cosh(at) ** 2, 3.2)
    gap = float(mp.e * (mp.ncdf(second) - 0.5) - mp.tanh(second))
    scaled = min(
        max(abs(float(mp.ncdf(at / 50) - sigmoid(c * at / 50))) for at in range(250)) for c in (1.65, 1.70, 1.75)
    )
    return Finding(
        rf"$\sup\lvert\Phi(x) - \sigma(x)\rvert = {first:.4f}$ (a steeper sigmoid comes within {scaled:.3f}); "
        rf"$e(\Phi(x) - 1/2)$ is {gap:.4f} from $\tanh x$: its bounds are $\pm e/2 = \pm {math.e / 2:.4f}$, tanh's "
        rf"$\pm 1$",
        parts={"sigmoid": first < 0.15, "tanh": gap < 0.15},
        numbers={"phi_and_sigmoid": first, "e_phi_and_tanh": gap},
    )


@claim(
    place="Equations 4 and 5",
    says=r"The direction opposite to the variation is $\eta = -(p(y)y''/y' + p'(y)y')$.",
    expect="holds",
)
def correction_formula() -> Finding:
    """The coefficient of the first variation, worked out for an open density and inverse, against the printed one."""
    derivative = sympy.diff(p(held), held).subs(held, y).doit()
    printed = p(y) * sympy.diff(y, x, 2) / slope + derivative * slope
    identity = _vanishes(_variation() - printed)
    return Finding(
        r"identical for every density and inverse: the variation is $p(y)y''/y' + p'(y)y'$", parts={"formula": identity}
    )


# -- Claims of the EAFO paper about CRReLU, and about its tables.


EPS = 0.01


@claim(
    place="Section 2.4, from equation 5 to equation 6",
    says=r"For ReLU and a Gaussian density equation 5 gives $\eta = -C x e^{-x^2/2}$.",
    expect="fails",
)
def the_sign_of_the_correction() -> Finding:
    r"""Equation 5 with y = x, and the engine's correction of ReLU, which is seen from f and so is minus eta."""
    density = elementary(NormalPdf(x))
    eta = -sympy.diff(density, x)
    ratio = sympy.simplify(eta / (x * exp(-(x**2) / 2)))
    corrected = design.eafo("relu", "normal")
    seen_from_f = split(elementary(corrected.correction)).part_of(sympy.Integer(1))
    agrees = sympy.simplify(seen_from_f + eta) == 0
    return Finding(
        rf"$y = x$ gives $\eta = -p'(x) = +C x e^{{-x^2/2}}$, $C = 1/\sqrt{{2\pi}} = {float(ratio):.6f}$: the minus "
        "of $p'$ was lost. Seen from the activation the correction is $-C x e^{-x^2/2}$",
        parts={"minus sign": bool(ratio.is_negative) or not agrees},
        numbers={"C": float(ratio)},
    )


@claim(place="Section 2.4, below equation 7", says=r"The correction of CRReLU reduces the entropy.", expect="fails")
def crrelu_raises_the_entropy() -> Finding:
    r"""H(f(X)) - H(X) = E log f'(X) over the half normal, by the engine and by 30-digit quadrature."""
    change = {}
    for eps in (EPS, -EPS):
        by_engine = design.entropy_change("relu", "crrelu", "normal", between=(0, math.inf), eps=eps)
        own = 2 * integral(
            lambda at, e=eps: mp.npdf(at) * mp.log(1 + e * (1 - at**2) * mp.exp(-(at**2) / 2)), *HALF_LINE
        )
        assert abs(by_engine - float(own)) < 1e-9
        change[eps] = by_engine
    return Finding(
        rf"on the positive half, under its own Gaussian assumption: $\varepsilon = +0.01$ changes the entropy by "
        rf"{change[EPS]:+.6f} nats, $\varepsilon = -0.01$ by "
        f"{change[-EPS]:+.6f}. The paper's start raises what it sets out to lower",
        parts={"reduces": change[EPS] < 0},
        numbers={"at_plus_0.01": change[EPS], "at_minus_0.01": change[-EPS]},
    )


@claim(
    place="Section 2.3 and appendix E",
    says=r"Adding the whole of $\eta$ to the inverse lowers the entropy.",
    expect="holds",
)
def the_whole_step() -> Finding:
    r"""The entropy after the inverse x + s C x e^(-x^2/2), C = 1/sqrt(2 pi), for s = 1 and for the printed -1."""
    c = 1 / mp.sqrt(2 * mp.pi)

    def change(sign: int) -> float:
        inverse = lambda at: at + sign * c * at * mp.exp(-(at**2) / 2)  # noqa: E731
        speed = lambda at: 1 + sign * c * (1 - at**2) * mp.exp(-(at**2) / 2)  # noqa: E731
        return float(-2 * integral(lambda at: mp.npdf(inverse(at)) * speed(at) * mp.log(speed(at)), *HALF_LINE))

    right, printed = change(1), change(-1)
    return Finding(
        rf"for ReLU's positive half: {right:+.4f} nats for the whole step of equation 5, not only to first order; "
        rf"{printed:+.4f} with the sign of equation 6",
        parts={"lowers": right < 0},
        numbers={"right_sign": right, "printed_sign": printed},
    )


def _round_trip(eps: float, at: torch.Tensor) -> torch.Tensor:
    """g(f(x)) - x with the paper's g of equation 6 and f the definition's positive part."""
    value = get("crrelu")(at, eps=eps)
    return value - eps * value * torch.exp(-(value**2) / 2) - at


def _bound(eps: float) -> float:
    return abs(math.exp(-1) * eps**2 + 0.5 * math.exp(-1.5) * eps**3)


@claim(
    place="Proposition 2",
    says=r"For $x \ge 0$, $\lvert g(f(x)) - x\rvert \le \lvert\varepsilon^2/e + \varepsilon^3e^{-3/2}/2\rvert$.",
    expect="partly",
)
def inverse_error_bound() -> Finding:
    """The largest error on [0, 10] for positive and negative eps, and the distance to the exact inverse at 0.01."""
    at = line(0, 10, 100001)
    errors = {
        eps: (_round_trip(eps, at).abs().max().item(), _bound(eps)) for eps in (0.01, 0.1, 0.5, 1.0, -0.1, -0.5, -1.0)
    }
    exact = (get("crrelu")(at, eps=EPS) - get("crrelu_exact")(at, eps=EPS)).abs().max().item()
    return Finding(
        rf"true for $\varepsilon > 0$ as far as tried (0.01: {errors[0.01][0]:.7f} against {errors[0.01][1]:.7f}; 1: "
        rf"{errors[1.0][0]:.4f} against {errors[1.0][1]:.4f}) and at -0.1; false at -0.5 ({errors[-0.5][0]:.4f} "
        rf"against {errors[-0.5][1]:.4f}) and -1. $\varepsilon$ is learned and may go there. At 0.01 CRReLU is "
        f"{exact:.7f} from the exact inverse",
        parts={
            "positive": all(error <= bound for eps, (error, bound) in errors.items() if eps > 0),
            "negative": all(error <= bound for eps, (error, bound) in errors.items() if eps < 0),
        },
        numbers={f"error_at_{eps:g}": error for eps, (error, _) in errors.items()}
        | {f"bound_at_{eps:g}": bound for eps, (_, bound) in errors.items()}
        | {"to_exact_inverse": exact},
    )


@claim(place="Appendix G, the proof of proposition 2", says="The steps of the printed proof are right.", expect="fails")
def the_proof_of_the_bound() -> Finding:
    r"""The exponent of the third line against the true one, and the first inequality at small x, with eps = 0.01."""
    e = sympy.Symbol("e", positive=True)
    f = x + e * x * exp(-(x**2) / 2)
    true = sympy.expand(f**2 - x**2)
    printed = 2 * e * x * exp(-(x**2) / 2) + e**2 * x**2 * exp(-(x**2))
    dropped = sympy.simplify((true - e**2 * x**2 * exp(-(x**2))) / (2 * e * x * exp(-(x**2) / 2)))
    at = line(1e-4, 3, 30001)
    first = EPS * at * (torch.exp(-(at**2) / 2) - torch.exp(-(get("crrelu")(at, eps=EPS) ** 2) / 2))
    whole = _round_trip(EPS, at).abs()
    reach = at[whole > first.abs() * (1 + 1e-6)].max().item()
    cubic = float((sympy.Rational(3, 2)) ** sympy.Rational(3, 2) * exp(-sympy.Rational(3, 2)))
    return Finding(
        rf"line 3 drops a factor ${sympy.latex(dropped)}$ in the exponent ($2\varepsilon x^2e^{{-x^2/2}}$ became "
        rf"$2\varepsilon x e^{{-x^2/2}}$), and with it the leading term would be {cubic:.4f}$\,\varepsilon^2$, above "
        rf"$\varepsilon^2/e$; the first inequality, which drops the last term, is false for $x < {reach:.2f}$",
        parts={"line 3": sympy.simplify(true - printed) == 0, "first inequality": reach < 1e-3},
        numbers={"false_below": reach, "leading_coefficient": cubic},
    )


@claim(
    place="Appendix G, facts 1 to 4",
    says=r"$x e^{-x^2/2}$, $x^2e^{-x^2}$ and $x^3e^{-3x^2/2}$ range over $\pm e^{-1/2}$, $[0, e^{-1}]$ and $\pm "
    r"e^{-3/2}$; $1 - e^{-x} \le x$.",
    expect="holds",
)
def the_facts() -> Finding:
    """The stationary points and values by SymPy: all three peak at x = 1; the fourth is convexity."""
    tops = []
    for power in (1, 2, 3):
        f = x**power * exp(-sympy.Rational(power, 2) * x**2)
        places = [place for place in sympy.solve(sympy.diff(f, x), x) if place != 0]
        tops.append({sympy.simplify(f.subs(x, place)) for place in places})
    wanted = [{s * exp(-sympy.Rational(n, 2)) for s in signs} for n, signs in ((1, (1, -1)), (2, (1,)), (3, (1, -1)))]
    gap = 1 - exp(-x) - x
    fourth = sympy.diff(gap, x).subs(x, 0) == 0 and gap.subs(x, 0) == 0 and sympy.diff(gap, x, 2).is_negative
    return Finding(
        r"all four: extremes at $x = \pm 1$ with these values; $1 - e^{-x} - x$ is concave with its maximum 0 at 0",
        parts={"ranges": tops == wanted, "inequality": bool(fourth)},
    )


@claim(
    place=f"{OURS} remark on section 2.1.2, with equation 8",
    says="The method works with increasing activations that have an inverse, and its outcome CRReLU "
    "has none left of 0.",
    expect="holds",
)
def crrelu_is_not_monotone() -> Finding:
    r"""The slope of CRReLU left of -1 and at 0, from the definition."""
    act = get("crrelu")
    slopes = act.derivative(1)(torch.tensor([-2.0, -1.0, -0.5], dtype=torch.float64), eps=EPS).tolist()
    place = math.sqrt(3)
    lowest = act.derivative(1)(torch.tensor([-place], dtype=torch.float64), eps=EPS).item()
    jump = jumps(formula("crrelu"), 1)
    return Finding(
        rf"it falls left of -1 (slope {lowest:.6f} at $-\sqrt 3$) and rises right of it, so it has no inverse there; "
        rf"its slope also jumps by {jump[0]} at 0, as ReLU's",
        parts={"falls somewhere": min(slopes) < 0},
        numbers={"slope_at_minus_2": slopes[0], "lowest_slope": lowest},
    )


@claim(
    place="Section 1 and appendix F, below algorithm 1",
    says="CRReLU keeps gradients alive below 0 and preserves sparsity.",
    expect="partly",
)
def sparsity_is_lost() -> Finding:
    r"""Slope and value below 0: eps (1 - x^2) e^(-x^2/2), 0 at -1 alone, and eps x e^(-x^2/2), 0 nowhere."""
    act, at = get("crrelu"), torch.tensor([-0.5, -2.0, -4.0], dtype=torch.float64)
    values, slopes = act(at, eps=EPS).tolist(), act.derivative(1)(at, eps=EPS).tolist()
    zeros = int((act(line(-6, -0.001), eps=EPS) == 0).sum())
    text = ", ".join(f"{v:.2g} (slope {s:.2g}) at {p:g}" for v, s, p in zip(values, slopes, at.tolist(), strict=True))
    return Finding(
        f"the slope is nonzero but at $-1$, and dies as $e^{{-x^2/2}}$; the output tends to 0 and is never 0: {text}. "
        "ReLU gives exact zeros for half of $N(0, 1)$, CRReLU for none of it",
        parts={"gradients": all(abs(s) > 0 for s in slopes), "exact zeros": zeros > 0},
        numbers={"values": values, "slopes": slopes},
    )


@claim(place="Tables 1 to 3", says="ELU and CELU have the same accuracy everywhere.", expect="holds")
def elu_and_celu_agree() -> Finding:
    """The two definitions at their usual parameter 1, symbolically, beside the eight printed pairs."""
    elus = (0.669, 0.671, 0.689, 0.287, 0.4, 0.435, 0.384, 0.497)
    celus = (0.669, 0.671, 0.689, 0.287, 0.4, 0.435, 0.384, 0.497)
    equal = same(formula("elu", beta=1), formula("celu", beta=1))
    return Finding(
        "as it must be, with one seed: they are one function at their usual parameter 1, and all eight printed pairs "
        "are equal",
        parts={"one function": equal, "equal columns": elus == celus},
    )


def _gpt2() -> tuple[int, int]:
    """GPT-2's trainable numbers and its causal masks: 12 blocks of width 768, 1024 places, 50,257 tokens."""
    width, blocks, places, tokens = 768, 12, 1024, 50257
    attention = width * 3 * width + 3 * width + width * width + width
    feed = width * 4 * width + 4 * width + 4 * width * width + width
    return (tokens + places) * width + blocks * (attention + feed + 4 * width) + 2 * width, blocks * places * places


@claim(place="Appendix H", says="GPT-2 has 137 M parameters.", expect="fails")
def gpt2_size() -> Finding:
    """The count from the shapes of its layers."""
    trained, masks = _gpt2()
    return Finding(
        f"{trained:,} trainable; {trained + masks:,} if its {masks:,} numbers of causal mask are counted in",
        parts={"137 M": round(trained / 1e6) == 137},
        numbers={"trainable": trained, "with_masks": trained + masks},
    )


@claim(
    place="Table 7",
    says="A learned scalar per activation adds 12 parameters to ViT-Tiny and DeiT-Tiny and 24 to TNT-Small.",
    expect="holds",
)
def learned_scalars() -> Finding:
    """The printed counts with and without; the two small models have 12 blocks of one MLP, TNT-Small 12 of two."""
    pairs: dict[str, Any] = {
        "ViT-Tiny": [(5399818, 5399830), (5417188, 5417200), (5754472, 5754484)],
        "DeiT-Tiny": [(5365076, 5365088), (5399816, 5399828), (5910800, 5910812)],
        "TNT-Small": [(21525298, 21525322), (21559948, 21559972)],
    }
    added = {name: {after - before for before, after in counts} for name, counts in pairs.items()}
    classes = (5417188 - 5399818) / 90
    return Finding(
        f"12, 12 and 24 in every column; 90 more classes cost ViT-Tiny {classes:.0f} each, a head of width 192",
        parts={"added": added == {"ViT-Tiny": {12}, "DeiT-Tiny": {12}, "TNT-Small": {24}}, "head": classes == 193},
    )
