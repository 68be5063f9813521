"""Claims of the SmeLU paper about SmeLU and the activations beside it; its relatives are in smelu_family."""

from __future__ import annotations

import math
from fractions import Fraction

import torch

from ... import design
from ...spec import positive, x
from ...spec.algebra import Piecewise, log, sympy
from ...spec.pieces import split
from .entry import Finding, claims_of
from .tools import certificate, formula, get, jumps, line, reached_at, same, smooth, tex

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


@claim(
    place="Section 4, below equation 9",
    says=r"For $\beta \to 0$ SmeLU becomes ReLU.",
    expect="holds",
)
def smelu_becomes_relu() -> Finding:
    """The certified distance to ReLU at two widths, and where it is reached; the function scales with beta."""
    distances = {width: certificate("smelu", beta=width).distance for width in ("1", "0.1")}
    scales = same(formula("smelu").subs(x, beta * x), beta * formula("smelu", beta=1))
    exact = all(one and Fraction(width) / 4 in one and reached_at(one, 0) for width, one in distances.items())
    return Finding(
        r"the distance to ReLU is $\beta/4$, at $x = 0$: proportional to the knob, so 0.25 at $\beta = 1$ and 0.025 at "
        r"$\beta = 0.1$ (proved at both)",
        parts={"distance": exact and scales},
        numbers={f"distance_at_{width}": float(one) for width, one in distances.items() if one is not None},
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
    lowest = {name: float(one.distance) for name, one in proved.items() if one.distance is not None}
    text = ", ".join(f"{name} {-value:.4f}" for name, value in lowest.items())
    only_zero = all(one.zeros is not None and [str(region) for region in one.zeros] == ["0"] for one in proved.values())
    return Finding(
        rf"proved for all four: they fall and rise, and are 0 at 0 alone. Lowest values at $\beta = 1$ (over $\beta$ "
        rf"otherwise): {text}",
        parts={"not monotone": all(one.monotone is False for one in proved.values()), "no zero region": only_zero},
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
        rf"are within "
        f"{max(bent[n] for n in gated):.4f} of a line, softplus of one at height {offset['softplus']:.0f}; SELU is "
        f"{bent['selu']:.2f} off, a ReLU",
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
    says=r"Scaling the input by $v$ narrows the transition by $v$, so a weight norm and $\beta$ trade off; a norm does "
    r"not change "
    "ReLU's shape.",
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
