"""Claims of the SmeLU paper: SmeLU and its relatives, prediction differences, the set-up of Criteo."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import torch

from softknee import design, measure
from softknee.spec import positive, x
from softknee.spec.algebra import Piecewise, log, sympy
from softknee.spec.pieces import split
from softknee.spec.precision import to_digits

from ..claim import F64, Finding, certificate, claims_of, formula, get, jumps, line, reached_at, same, smooth, tex
from .findings import AUC_SPREADS, IN_ORDER, SAME_START

claim = claims_of("smelu")

beta = sympy.Symbol("beta", positive=True)

GATED = ("swish", "gelu", "mish", "tanhexp")


@claim(
    place="Section 4, equations 8 and 9",
    says=r"SmeLU joins 0 and $x$ by a parabola on $[-\beta, \beta]$ so that value and slope are continuous.",
    expect="holds",
)
def smelu_is_once_differentiable() -> Finding:
    """The jumps of the definition and of its derivatives at both seams, symbolic in beta."""
    f = formula("smelu")
    bend = jumps(f, 2)
    return Finding(
        rf"no jump of value or slope at either seam; the second derivative jumps by ${tex(bend[0])}$, so it is "
        "$C^1$ and no smoother",
        parts={"value and slope are continuous": smooth(f, 1)},
        numbers={"jump_of_second_derivative_at_beta_1": float(bend[0].subs(beta, 1))},
    )


@claim(
    place="Section 4, below equation 9",
    says=r"SmeLU is the convolution of ReLU with a box of height $1/(2\beta)$ on $[-\beta, \beta]$.",
    expect="holds",
)
def smelu_is_relu_times_box() -> Finding:
    """The mollification engine's closed form for a box, compared with the definition piece by piece."""
    made = design.mollify("relu", "box", width=positive("beta", 1.0))
    equal = same(made.formula, formula("smelu"))
    return Finding(
        f"the convolution in closed form {'is' if equal else 'is not'} the definition, for every x and β",
        parts={"one function": equal},
    )


@claim(place="Section 4, below equation 9", says="The gradient of SmeLU is a hard sigmoid.", expect="holds")
def slope_is_a_hard_sigmoid() -> Finding:
    """The derivative compared with (x + beta)/(2 beta) clipped to [0, 1], piece by piece."""
    inside = (x + beta) / (2 * beta)
    hard_sigmoid = Piecewise((0, x < -beta), (1, x > beta), (inside, True))
    pieces = split(formula("smelu"))
    slope = Piecewise(
        (sympy.diff(pieces.parts[0], x), x < -beta),
        (sympy.diff(pieces.parts[2], x), x > beta),
        (sympy.diff(pieces.parts[1], x), True),
    )
    equal = same(slope, hard_sigmoid)
    return Finding(
        rf"$f'(x)$ is $(x + \beta)/(2\beta)$ clipped to $[0, 1]$: {'identical' if equal else 'different'}",
        parts={"one function": equal},
    )


@claim(place="Section 4, below equation 9", says=r"For $\beta \to 0$ SmeLU becomes ReLU.", expect="holds")
def smelu_becomes_relu() -> Finding:
    """The certified distance to ReLU at two widths, and where it is reached; the function scales with beta."""
    distances = {width: certificate("smelu", beta=width).distance for width in ("1", "0.1")}
    scales = same(formula("smelu").subs(x, beta * x), beta * formula("smelu", beta=1))
    exact = all(
        distance and Fraction(width) / 4 in distance and reached_at(distance, 0)
        for width, distance in distances.items()
    )
    return Finding(
        r"the distance to ReLU is $\beta/4$, at $x = 0$: proportional to the knob, so 0.25 at $\beta = 1$ and 0.025 at "
        r"$\beta = 0.1$ (proved at both)",
        parts={"distance": exact and scales},
        numbers={
            f"distance_at_{width}": float(distance) for width, distance in distances.items() if distance is not None
        },
    )


@claim(
    place="Section 4, third paragraph",
    says=r"SmeLU is monotonic and has a stop region where it is exactly 0 and a pass region where it is exactly $x$.",
    expect="holds",
)
def clean_regions() -> Finding:
    """The certificate at beta = 0.7 (monotone, exact zeros), the outer pieces of the formula, the computed bits."""
    proved = certificate("smelu", beta="0.7")
    left, _, right = split(formula("smelu")).parts
    points = line(-9, 9)
    values = get("smelu")(points, beta=0.7)
    exact = bool((values[points <= -0.7] == 0).all() and (values[points >= 0.7] == points[points >= 0.7]).all())
    return Finding(
        r"proved monotone; 0 for $x \le -\beta$ and $x$ for $x \ge \beta$, in the formula and in every computed bit",
        parts={"regions": left == 0 and right == x and exact, "monotone": proved.monotone is True},
    )


@claim(
    place="Section 4, first paragraph",
    says="Swish, GELU, Mish and TanhExp are not monotonic and have no region where they are exactly 0.",
    expect="holds",
)
def gated_functions_dip() -> Finding:
    """The certificates: monotone or not, every exact zero, and the distance to ReLU, which is the depth of the dip."""
    proved = {name: certificate(name, beta=1) for name in GATED}
    lowest = {name: float(proof.distance) for name, proof in proved.items() if proof.distance is not None}
    text = ", ".join(f"{name} {-value:.4f}" for name, value in lowest.items())
    only_zero = all(
        proof.zeros is not None and [str(region) for region in proof.zeros] == ["0"] for proof in proved.values()
    )
    return Finding(
        rf"proved for all four: they fall and rise, and are 0 at 0 alone. Lowest values at $\beta = 1$ (over $\beta$ "
        rf"otherwise): {text}",
        parts={"not monotone": all(proof.monotone is False for proof in proved.values()), "no zero region": only_zero},
        numbers=lowest,
    )


@claim(
    place="Section 4, first paragraph",
    says="SoftPlus is monotonic, and the wider its transition the farther it lies from the origin.",
    expect="holds",
)
def softplus_moves_away() -> Finding:
    """The value at 0, symbolic in beta, and the slope, which is a sigmoid."""
    f = formula("softplus")
    at_zero = sympy.simplify(f.subs(x, 0))
    slope = sympy.simplify(sympy.diff(f, x) - 1 / (1 + sympy.exp(-beta * x)))
    return Finding(
        rf"value at 0 and distance to ReLU are both $\log 2/\beta$: {math.log(2):.4f} at $\beta = 1$, "
        rf"{4 * math.log(2):.4f} at $\beta = 1/4$; the slope is a sigmoid, positive everywhere",
        parts={"monotone": slope == 0, "moves away": sympy.simplify(at_zero - log(2) / beta) == 0},
        numbers={"value_at_0_for_beta_1": math.log(2)},
    )


@claim(
    place="Section 3, below equation 7",
    says=r"All the activations of equations 2 to 7, SELU among them, resemble ReLU for $\beta \to\infty$ and a linear "
    r"function for $\beta \to 0$.",
    expect="partly",
)
def limits_of_the_knob() -> Finding:
    """sup |f - ReLU| at beta = 1000 and the departure from a line through the middle at beta = 1/1000, on [-5, 5]."""
    points = line(-5, 5)
    names = ("softplus", *GATED, "selu")
    hard, bent, offset = {}, {}, {}
    for name in names:
        act, more = get(name), {"lam": 1.0} if name == "selu" else {}
        hard[name] = (act(points, beta=1000.0, **more) - torch.relu(points)).abs().max().item()
        soft = act(points, beta=0.001, **more)
        slope = (soft[-1] - soft[0]) / 10
        bent[name] = (soft - soft[len(soft) // 2] - slope * points).abs().max().item()
        offset[name] = soft[len(soft) // 2].item()
    gated = ("softplus", *GATED)
    return Finding(
        rf"on $[-5, 5]$, at $\beta = 1000$, softplus and the gated four are within {max(hard[n] for n in gated):.4f} "
        rf"of ReLU, SELU is {hard['selu']:.0f} away (its knob hardens at $\beta \to 0$); at $\beta = 0.001$ the five "
        f"are within {max(bent[n] for n in gated):.4f} of a line, softplus of one at height {offset['softplus']:.0f}; "
        f"SELU is {bent['selu']:.2f} off, a ReLU",
        parts={
            "softplus and the gated four": all(hard[n] < 0.001 and bent[n] < 0.03 for n in gated),
            "SELU": hard["selu"] < 0.001 and bent["selu"] < 0.03,
        },
        numbers={"distance_to_relu": hard, "bend": bent, "softplus_at_0": offset["softplus"]},
    )


@claim(
    place="Section 3, below equation 7",
    says=r"GELU is approximated by Swish: $\mathrm{GELU}_\beta(x) \approx x\,\sigma(\sqrt{8/\pi}\,\beta x)$.",
    expect="holds",
)
def gelu_is_nearly_a_swish() -> Finding:
    """sup of the difference on a fine grid to x = 10; the slope of the two gates at 0 is the same."""
    points = line(-10, 10, 200001)
    gap = {c: (get("gelu")(points) - get("swish")(points, beta=c)).abs() for c in (math.sqrt(8 / math.pi), 1.702)}
    matched, best = (value.max().item() for value in gap.values())
    gate = sympy.diff(1 / (1 + sympy.exp(-sympy.sqrt(8 / sympy.pi) * x)), x).subs(x, 0)
    slope = sympy.simplify(gate - 1 / sympy.sqrt(2 * sympy.pi))
    return Finding(
        rf"the gates have the same slope at 0; the functions are at most {matched:.4f}$/\beta$ apart (with 1.702 in "
        rf"place of $\sqrt{{8/\pi}}$: {best:.4f}$/\beta$)",
        parts={"same gate at 0": slope == 0, "near everywhere": matched < 0.04},
        numbers={"distance_at_beta_1": matched, "distance_with_1.702": best},
    )


@claim(
    place="Section 3 and section 4, below figure 2",
    says=r"Scaling the input by $v$ narrows the transition by $v$, so a weight norm and $\beta$ trade off; a norm "
    "does not change ReLU's shape.",
    expect="holds",
)
def norm_trades_with_width() -> Finding:
    """f(v x) = v f(x) with the width over v, symbolically, for SmeLU and for ReLU."""
    v = sympy.Symbol("v", positive=True)
    scaled = formula("smelu").subs(x, v * x)
    traded = same(scaled, v * formula("smelu").subs(beta, beta / v))
    relu = same(formula("relu").subs(x, v * x), v * formula("relu"))
    return Finding(
        r"$f_\beta(v x) = v f_{\beta/v}(x)$ for SmeLU and $\mathrm{ReLU}(v x) = v\,\mathrm{ReLU}(x)$, identically",
        parts={"SmeLU": traded, "ReLU": relu},
    )


# -- Claims of the SmeLU paper about generalized SmeLU, its special cases, SoftPlus and RESCU.


alpha = sympy.Symbol("alpha", positive=True)
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
    "gives the asymmetric SmeLU, 0 on the left and slope 1 on the right.",
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
        f"equation 17 follows, and the outer slopes are Leaky ReLU's; both lines lie ${tex(raised[0])}$ above it, so "
        r"that at $-\beta$ the value is 0 where Leaky ReLU has $-g_-\beta$",
        parts={
            "equation 17": same(printed, generalized) and same(printed, formula("leaky_smelu")),
            "slopes of Leaky ReLU outside": not any(line.has(x) for line in raised),
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


# -- Claims of the SmeLU paper about prediction differences and about its Criteo set-up.


def _predictions(models: int, examples: int, labels: int) -> torch.Tensor:
    """Probabilities of the shape (models, examples, labels)."""
    drawn = torch.randn(models, examples, labels, generator=torch.Generator().manual_seed(0), dtype=F64)
    return torch.softmax(drawn, dim=2)


@claim(
    place="Section 2, below equation 1",
    says=r"With two models and two labels, $\Delta_1$ is the mean of $\lvert P_{n,1}(1) - P_{n,2}(1)\rvert$.",
    expect="holds",
)
def two_models_two_labels() -> Finding:
    """The metric on random predictions against the short form; and with more models, where it does not hold."""
    pair = _predictions(2, 500, 2)
    short = (pair[0, :, 1] - pair[1, :, 1]).abs().mean().item()
    gap = abs(measure.prediction_difference(pair).delta_1.value - short)
    return Finding(
        f"on 500 random examples both are {short:.6f} (apart by less than {'1e-15' if gap < 1e-15 else f'{gap:.0e}'}): "
        f"the two labels' halves add up to the whole",
        parts={"identity": gap < 1e-15},
        numbers={"delta_1": short},
    )


@claim(place="Appendix F, with equation 1", says=r"$\Delta_2$ behaves like $\Delta_1$.", expect="holds")
def norms_are_tied() -> Finding:
    r"""For two labels Delta_1 = sqrt(2) Delta_2 exactly; for ten, Delta_2 <= Delta_1 <= sqrt(10) Delta_2."""
    binary, ten = (measure.prediction_difference(_predictions(5, 400, labels)) for labels in (2, 10))
    ratios = [metrics.delta_1.value / metrics.delta_2.value for metrics in (binary, ten)]
    # Two models on either side of a tie disagree on every label and in next to no probability.
    tie = measure.prediction_difference(torch.tensor([[[0.51, 0.49]], [[0.49, 0.51]]], dtype=F64))
    return Finding(
        rf"$\Delta_1 = \sqrt 2\,\Delta_2$ for two labels, exactly; for $L$ labels it lies between $\Delta_2$ and "
        rf"$\sqrt L\,\Delta_2$ ({ratios[1]:.2f} times for ten random ones). (The Hamming difference is not tied to "
        rf"them: it is {tie.hamming.value:.0f} for two models with $\Delta_1 = {tie.delta_1.value:.2f}$.)",
        parts={"two labels": abs(ratios[0] - math.sqrt(2)) < 1e-12, "ten labels": 1 <= ratios[1] <= math.sqrt(10)},
        numbers={"ratio_for_two": ratios[0], "ratio_for_ten": ratios[1]},
    )


@claim(
    place="Section 2, last paragraph",
    says="The Hamming difference is the mean share of examples that two of the models label differently.",
    expect="holds",
)
def hamming_over_pairs() -> Finding:
    """The metric against a loop over all pairs of six models; and 0 for models that are equal."""
    drawn = _predictions(6, 300, 4)
    labels = drawn.argmax(2)
    pairs = list(itertools.combinations(range(6), 2))
    slow = sum((labels[a] != labels[b]).double().mean().item() for a, b in pairs) / len(pairs)
    hamming = measure.prediction_difference(drawn).hamming.value
    equal = measure.prediction_difference(drawn[:1].expand(3, -1, -1))
    return Finding(
        f"{hamming:.6f} for six random models and {slow:.6f} by a loop over their {len(pairs)} pairs; every metric is "
        "0 for equal models",
        parts={
            "pairs": abs(hamming - slow) < 1e-12,
            "equal models": equal.hamming.value == 0 and equal.delta_1.value < 1e-15,
        },
        numbers={"hamming": hamming},
    )


# Appendix E, equations 22 and 23: buckets of each categorical feature, and the width of its embedding (0: one-hot).
BUCKETS = (
    *(1373, 2148, 4847, 9781, 396, 28, 3591, 2798, 14, 7403, 2511, 5598, 9501),
    *(46, 4753, 4056, 23, 3828, 5856, 12, 4226, 23, 61, 3098, 494, 5087),
)
WIDTHS = (3, 9, 29, 11, 17, 0, 14, 4, 0, 12, 19, 24, 29, 0, 13, 25, 0, 8, 29, 0, 22, 0, 0, 31, 0, 29)


@claim(
    place="Section 5 and appendix E, equations 22 and 23",
    says="A categorical feature is one-hot if it has fewer than 110 buckets and embedded otherwise.",
    expect="partly",
)
def criteo_embeddings() -> Finding:
    """The rule against the two printed lists, feature by feature."""
    odd = [(n, d) for n, d in zip(BUCKETS, WIDTHS, strict=True) if (n < 110) != (d == 0)]
    text = ", ".join(f"one of {n} buckets has an embedding of size {d}" for n, d in odd) or "none"
    return Finding(
        f"{len(BUCKETS) - len(odd)} of {len(BUCKETS)} features follow it in the printed lists; not so: {text}, "
        "which is to say that it is one-hot",
        parts={"most features": len(odd) < len(BUCKETS) / 2, "every feature": not odd},
        numbers={"exceptions": [n for n, _ in odd]},
    )


# Tables 2 and 3: the standard deviation of Delta_1 with ReLU, and with SmeLU from the least beta to the largest.
DELTA_SPREADS = {
    IN_ORDER: (0.014, (0.003, 0.003, 0.004, 0.003, 0.003, 0.003)),
    SAME_START: (0.007, (0.004, 0.004, 0.004, 0.004, 0.004, 0.004)),
}


@claim(
    place="Appendix E, last paragraph, with tables 2 and 3",
    says=r"In both cases SmeLU lowers the standard deviations of both AUC and $\Delta_1$ by a factor of 4.",
    expect="partly",
)
def deviations_fall_by_four() -> Finding:
    """The printed deviation with ReLU by that with each SmeLU; a factor of 4 has to be reached for one beta or more."""
    factors = {}
    for place, name in (("table 2", IN_ORDER), ("table 3", SAME_START)):
        aucs = AUC_SPREADS[name]
        smelus = [spread for label, spread in aucs.items() if label.startswith("smelu")]
        factors[f"AUC, {place}"] = [aucs["relu"] / spread for spread in smelus]
        relu, smelus = DELTA_SPREADS[name]
        factors[rf"$\Delta_1$, {place}"] = [relu / spread for spread in smelus]
    text = "; ".join(
        f"{name}: {min(each):.3g}" + (f" to {max(each):.3g}" if min(each) < max(each) else "")
        for name, each in factors.items()
    )
    return Finding(
        f"by the printed deviations, {text}",
        parts={name: max(each) >= 4 for name, each in factors.items()},
        numbers={"largest_for_delta_1_in_table_3": max(factors[r"$\Delta_1$, table 3"])},
    )
