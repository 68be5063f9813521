"""Claims of the EAFO paper about entropy and the worst function. Those about CRReLU and tables are in eafo_crrelu."""

from __future__ import annotations

import math
from typing import Any

from ... import design
from ...spec import x
from ...spec.algebra import sympy
from ...spec.pieces import split
from .entry import Finding, claims_of
from .tools import integral, mp, tex

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
    place="Section 2.1.1",
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
        found = -2 * integral(lambda at, d=density: d(at) * mp.log(d(at)), *(c * point for point in edges), digits=15)
        error = integral(lambda at, c=c: mp.npdf((at + c) / c) / c, *(c * point for point in edges), digits=15)
        rows[c] = (float(found), float(error))
        assert abs(found - base - mp.log(c)) < 1e-12
    text = ", ".join(f"H = {h:.4f} at c = {c:g}" for c, (h, _) in rows.items())
    errors = [error for _, error in rows.values()]
    return Finding(
        rf"$H(cX) = H(X) + \log c$ falls without limit while nothing about the classes changes: {text}, Bayes error "
        rf"{errors[0]:.6f} for all "
        "three. No one-to-one activation changes the Bayes error at all",
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
        rf"differencing the entropy itself (to "
        f"{'9 digits' if miss < 1e-9 else f'{float(miss):.0e}'})",
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
    found = design.entropy("normal_cdf(2*x)", "normal")
    text = ", ".join(f"{value:.2f} at n = {n}" for n, value in closed.items())
    return Finding(
        rf"with bounds 0 and 1 kept, $\Phi(nx)$ has entropy $1/2 + \log n - n^2/2$: {text}. It has no lower bound",
        parts={"no lower bound": closed[50] < -1000 and abs(found - closed[2]) < 1e-9},
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
    found = {name: design.entropy(name, "normal", between=(0, math.inf)) for name in ("sigmoid", "tanh", "relu")}
    text = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
    return Finding(
        f"the worst function is worst among functions with the same bounds. Across bounds the entropy ranks them the "
        f"other way round: {text} nats for inputs "
        "above 0 (below 0 ReLU is one point)",
        parts={"ReLU has the lowest entropy": found["relu"] < min(found["sigmoid"], found["tanh"])},
        numbers=found,
    )


@claim(
    place="Appendix D",
    says="For uniformly distributed inputs the worst function is linear.",
    expect="holds",
)
def uniform_density_gives_a_line() -> Finding:
    """The engine's worst function for the uniform density, as a formula inside its support."""
    made = design.worst(design.uniform(low=-2, high=3))
    inside = split(made.formula).part_of(sympy.Rational(1, 3))
    line = sympy.simplify(inside - (x + 2) / 5) == 0
    return Finding(
        rf"on $(-2, 3)$ it is ${tex(inside)}$, a line from 0 to 1",
        parts={"linear": bool(line)},
    )


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
        r"identical for every density and inverse: the variation is $p(y)y''/y' + p'(y)y'$",
        parts={"formula": identity},
    )
