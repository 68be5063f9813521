"""Claims of the SmeLU paper about generalized SmeLU, its special cases, SoftPlus and RESCU."""

from __future__ import annotations

import math

from ... import design
from ...spec import positive, x
from ...spec.algebra import Piecewise, log, sympy
from ...spec.pieces import split
from ...spec.precision import to_digits
from .entry import Finding, claims_of
from .tools import formula, get, jumps, line, same, smooth, tex

claim = claims_of("smelu")

alpha, beta = sympy.Symbol("alpha", positive=True), sympy.Symbol("beta", positive=True)
g_minus, g_plus, t = sympy.Symbol("g_minus", real=True), sympy.Symbol("g_plus", real=True), sympy.Symbol("t", real=True)


@claim(
    place="Section 4, equations 10 to 12",
    says=r"The coefficients $a$, $b$, $c$ make generalized SmeLU continuous with slopes $g_-$ and $g_+$ and value $t$ "
    r"at $-\alpha$.",
    expect="holds",
)
def generalized_coefficients() -> Finding:
    """The printed pieces against the four conditions, symbolically, and against the definition."""
    a = (g_plus - g_minus) / (2 * (alpha + beta))
    b = (alpha * g_plus + beta * g_minus) / (alpha + beta)
    c = t + (alpha**2 * (g_plus + g_minus) + 2 * alpha * beta * g_minus) / (2 * (alpha + beta))
    right = g_plus * x + t + (alpha + beta) / 2 * g_minus + (alpha - beta) / 2 * g_plus
    printed = Piecewise(
        (g_minus * x + t + g_minus * alpha, x <= -alpha), (right, x >= beta), (a * x**2 + b * x + c, True)
    )
    slopes = [sympy.simplify(sympy.diff(a * x**2 + b * x + c, x).subs(x, at)) for at in (-alpha, beta)]
    height = sympy.simplify((a * x**2 + b * x + c).subs(x, -alpha))
    return Finding(
        "the four conditions are met for all five parameters, and the pieces are the definition's",
        parts={
            "conditions": smooth(printed, 1) and slopes == [g_minus, g_plus] and height == t,
            "definition": same(printed, formula("generalized_smelu")),
        },
    )


@claim(
    place="Section 4 and appendix D.1, equation 16",
    says=r"SmeLU is generalized SmeLU with $g_- = 0$, $g_+ = 1$, $\alpha = \beta$, $t = 0$; leaving $\alpha$ free "
    r"gives the "
    "asymmetric SmeLU, 0 on the left and slope 1 on the right.",
    expect="holds",
)
def special_cases() -> Finding:
    """Substitution into the generalized definition, compared with the two definitions piece by piece."""
    asymmetric = formula("generalized_smelu", g_minus=0, g_plus=1, t=0)
    parts = split(asymmetric).parts
    return Finding(
        r"both identical; on the right the asymmetric one is $x + (\alpha - \beta)/2$, so it meets ReLU only if "
        r"$\alpha = \beta$",
        parts={
            "SmeLU": same(asymmetric.subs(alpha, beta), formula("smelu")),
            "asymmetric": same(asymmetric, formula("asymmetric_smelu"))
            and parts[0] == 0
            and sympy.diff(parts[2], x) == 1,
        },
    )


@claim(
    place="Appendix D.2, equation 17",
    says=r"Leaky SmeLU follows with $g_+ = 1$, $\alpha = \beta$, $t = 0$ and resembles Leaky ReLU outside the middle "
    r"region.",
    expect="holds",
)
def leaky_smelu_is_raised() -> Finding:
    """The printed pieces against the generalized definition, and the outer ones against Leaky ReLU."""
    g = g_minus
    middle = (1 - g) / (4 * beta) * x**2 + (1 + g) / 2 * x + beta / 4 * (1 + 3 * g)
    printed = Piecewise((g * (x + beta), x <= -beta), (x + g * beta, x >= beta), (middle, True))
    generalized = formula("generalized_smelu", g_plus=1, t=0).subs(alpha, beta)
    left, _, right = split(printed).parts
    raised = [sympy.simplify(left - g * x), sympy.simplify(right - x)]
    return Finding(
        rf"equation 17 follows, and the outer slopes are Leaky ReLU's; both lines lie ${tex(raised[0])}$ above it, so "
        rf"that at $-\beta$ "
        r"the value is 0 where Leaky ReLU has $-g_-\beta$",
        parts={
            "equation 17": same(printed, generalized) and same(printed, formula("leaky_smelu")),
            "slopes of Leaky ReLU outside": not any(one.has(x) for one in raised),
        },
    )


@claim(
    place="Appendix D.4, equation 18",
    says="Generalized SmeLU shifted vertically to cross the origin has the printed form and keeps the sign of its "
    "input.",
    expect="holds",
)
def origin_crossing() -> Finding:
    """Generalized SmeLU minus its value at 0, piece by piece; the sign on a grid for several slopes of equal sign."""
    bend = (g_minus - g_plus) / (2 * (alpha + beta))
    middle = -bend * x**2 + (alpha * g_plus + beta * g_minus) / (alpha + beta) * x
    printed = Piecewise(
        (g_minus * x + alpha**2 * bend, x <= -alpha), (g_plus * x + beta**2 * bend, x >= beta), (middle, True)
    )
    whole = formula("generalized_smelu")
    shifted = whole - split(whole).part_of((beta - alpha) * 0 + beta / 2).subs(x, 0)
    points, act = line(-9, 9, 1801), get("origin_smelu")

    def keeps(left: float) -> bool:
        values = act(points, alpha=0.8, beta=0.5, g_minus=left, g_plus=1.0)
        return bool((values.sign() == points.sign()).all())

    return Finding(
        rf"identical; the sign is kept for $g_- \ge 0$ (tried at 0, 0.01 and 0.5) and lost for a negative $g_-$ "
        f"({'kept' if keeps(-0.2) else 'lost'} at -0.2)",
        parts={
            "equation 18": same(printed, shifted) and same(printed, formula("origin_smelu")),
            "sign for slopes from 0 up": all(keeps(left) for left in (0.0, 0.01, 0.5)),
        },
    )


@claim(
    place="Appendix D.5, equations 19 to 21",
    says=r"Near 0, SoftPlus with $\gamma = \beta/2$ is SmeLU raised by $(\beta/4)\ln(4/e)$, and the two meet at both "
    r"extremes.",
    expect="holds",
)
def softplus_relation() -> Finding:
    """The Taylor series of SoftPlus to second order against the parabola, and the distance on a grid."""
    gamma = beta / 2
    series = sympy.series(gamma * log(1 + sympy.exp(x / gamma)), x, 0, 3).removeO()
    parabola = (x + beta) ** 2 / (4 * beta)
    lift = sympy.simplify(series - parabola)
    constant = float(to_digits(lift / beta, 17))
    points = line(-40, 40, 80001)
    gap = get("softplus")(points, beta=2.0) - get("smelu")(points, beta=1.0)
    seam = math.log1p(math.exp(-2)) / 2
    return Finding(
        rf"the second-order terms agree and the lift is {constant:.6f}$\,\beta$; it is also the largest distance "
        rf"({gap.abs().max().item():.6f}$\,\beta$), and {seam:.4f}$\,\beta$ is left at the seams",
        parts={
            "lift": sympy.simplify(lift - beta / 4 * log(4 / sympy.E)) == 0,
            "extremes meet": gap[[0, -1]].abs().max().item() < 1e-15 and gap.abs().max().item() < constant + 1e-12,
        },
        numbers={"lift_over_beta": constant},
    )


@claim(
    place="Section 4, equation 13",
    says=r"A sigmoid on the left and $x$ on the right of $\beta$ make a RESCU: value and slope are continuous.",
    expect="holds",
)
def sigmoid_rescu_joins() -> Finding:
    """The jumps at beta, symbolic, and the engine that refuses a join that does not meet."""
    f = formula("sigmoid_rescu")
    size = positive("beta", 1.0)
    made = design.rescu([("2 * beta * sigmoid(2 * x / beta - 2)", "beta"), "x"], params=[size], smoothness=2)
    third = jumps(f, 3)[0]
    return Finding(
        rf"value, slope and (more than claimed) curvature meet at $\beta$; the third derivative jumps by "
        rf"${tex(third)}$",
        parts={
            "value and slope": smooth(f, 1),
            "accepted as a join": made.claims is not None or smooth(made.formula, 2),
        },
        numbers={"third_derivative_jump_at_beta_1": float(third.subs(beta, 1))},
    )


@claim(
    place="Section 4, below equation 12",
    says="Swish's dip can be had from parabolas alone: a concave piece to the left of the convex one, joined to 0 "
    "where its slope is 0.",
    expect="holds",
)
def a_dip_from_parabolas() -> Finding:
    """A RESCU of four pieces, whose joins the engine proves for every beta; its lowest point by calculus."""
    size = positive("beta", 1.0)
    concave, convex = "-(x + 7 * beta)**2 / (80 * beta)", "(3 * x + beta) * (x + 3 * beta) / (16 * beta)"
    made = design.rescu([(0, "-7 * beta"), (concave, "-2 * beta"), (convex, "beta"), "x"], params=[size])
    low = split(made.formula).part_of(sympy.Integer(0))
    (place,) = sympy.solve(sympy.diff(low, x), x)
    lowest = sympy.simplify(low.subs(x, place))
    return Finding(
        rf"0, concave, convex, $x$ with seams at $-7\beta$, $-2\beta$, $\beta$: accepted as $C^1$, lowest value "
        rf"${tex(lowest)}$ at ${tex(place)}$",
        parts={"joins": smooth(made.formula, 1), "dips": bool(lowest.is_negative)},
        numbers={"lowest_at_beta_1": float(lowest.subs(beta, 1))},
    )


@claim(
    place="Section 4 (RESCU), appendices A and C, equation 14",
    says=r"SELU is continuously differentiable only for $\beta = 1$; CELU is for every $\beta$.",
    expect="holds",
)
def selu_and_celu_at_zero() -> Finding:
    """The jump of the slope at 0, symbolic in the parameters."""
    selu, celu = jumps(formula("selu"), 1)[0], jumps(formula("celu"), 1)[0]
    only = sympy.solve(selu, beta)
    return Finding(
        rf"SELU's slope jumps by $\lambda(1 - \beta)$, which is 0 at $\beta = {only[0]}$ alone; CELU's by {celu}",
        parts={"SELU": only == [1], "CELU": celu == 0 and jumps(formula("celu"), 0) == [0]},
    )


@claim(
    place="Appendix C, equation 15",
    says=r"SmoothRelu (Xie et al.) reaches slope 1 only for $\beta$ much larger than 1, where it already approaches "
    r"ReLU.",
    expect="partly",
)
def smooth_relu_never_returns() -> Finding:
    """Slope and distance to ReLU in closed form: beta x/(1 + beta x) and log(1 + beta x)/beta."""
    f = split(formula("smooth_relu")).parts[-1]
    slope = sympy.simplify(sympy.diff(f, x) - beta * x / (1 + beta * x))
    far = sympy.limit(x - f, x, sympy.oo)
    away = {at: float(to_digits((x - f).subs({x: at, beta: 100}), 20)) for at in (1, 100, 10**6)}
    texts = ", ".join(f"{value:.3f} at x = {at:,}" for at, value in away.items())
    return Finding(
        rf"the slope $\beta x/(1 + \beta x)$ is below 1 everywhere; on bounded inputs it approaches ReLU, but the "
        rf"distance $\log(1 + \beta x)/\beta$ has no bound for any $\beta$: at $\beta = 100$ it is {texts}",
        parts={"slope below 1": slope == 0, "approaches ReLU uniformly": far != sympy.oo},
        numbers={f"distance_at_{at}": value for at, value in away.items()},
    )
