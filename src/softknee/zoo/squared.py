r"""Functions that grow like a square: none of them has a Lipschitz constant.

    relu2(x)     = max(x, 0)^2                        slope continuous at 0
    star_relu(x) = scale max(x, 0)^2 + bias           mean 0 and variance 1 for normal x, with the default constants
    xielu(x)     = alpha_p x^2 + beta x for x > 0, alpha_n (e^x - 1 - x) + beta x else: the integral of an ELU

xielu has its second derivative jump from alpha_n to 2 alpha_p at 0, and falls towards the left where alpha_n > beta.
transformers learns it as alpha_p = softplus(a), alpha_n = beta + softplus(b); here alpha_p, alpha_n and beta are the
effective numbers. Hazards: e^x - 1 - x cancels near 0, where its series is summed; far on the left its two halves are
infinite, so the line (beta - alpha_n) x is taken first; x^2 overflows before scale x^2 does, so one factor goes to
the scale; a scale of 0 times infinity is 0, as `Line` says.

>>> import softknee as sk, torch
>>> sk.get("relu2")(torch.tensor([-2.0, 3.0]))
tensor([0., 9.])
>>> sk.get("xielu")(torch.tensor([-1.0, 0.0, 1.0]))
tensor([-0.2057,  0.0000,  1.3000])
"""

from ..spec import Activation, Claims, Expm1, Line, positive, real, x
from ..spec.algebra import Eq, Expr, FiniteSet, Interval, Piecewise, Rational, oo, sympy

_scale = real("scale", 0.8944, "half the second derivative above 0")
_bias = real("bias", -0.4472, "value at 0 and below")
_alpha_p = positive("alpha_p", 0.8, "half the second derivative above 0")
_alpha_n = positive("alpha_n", 0.8, "second derivative at 0 from below")
_beta = positive("beta", 0.5, "slope at 0")
scale, bias = _scale.symbol, _bias.symbol
alpha_p, alpha_n, beta = _alpha_p.symbol, _alpha_n.symbol, _beta.symbol
_near = x > -Rational(1, 2)


def _expm1_minus_series() -> Expr:
    """e^x - 1 - x by its first twelve terms: 1e-16 off relative to its size at |x| = 1/2."""
    total = sympy.Integer(0)
    for n in range(13, 1, -1):
        total = 1 / sympy.factorial(n) + x * total
    return x**2 * total


_bend = _expm1_minus_series()

relu2 = Activation(
    "relu2",
    Piecewise((x**2, x > 0), (0, True)),
    claims=Claims(1, True, oo, Interval(-oo, 0)),
    about="Squared ReLU (So et al. 2021, Primer).",
)
star_relu = Activation(
    "star_relu",
    Piecewise((Line(Line(scale, x), x) + bias, x > 0), (bias, True)),
    params=(_scale, _bias),
    stable={("x",): Piecewise((Line(2 * scale, x), x > 0), (0, True))},
    claims=Claims(1, scale >= 0, Piecewise((0, Eq(scale, 0)), (oo, True))),
    about="Squared ReLU with a scale and a bias (Yu et al. 2022, MetaFormer).",
)
xielu = Activation(
    "xielu",
    Piecewise((x * (alpha_p * x + beta), x > 0), (alpha_n * (Expm1(x) - x) + beta * x, True)),
    params=(_alpha_p, _alpha_n, _beta),
    stable={
        (): Piecewise(
            (x * (alpha_p * x + beta), x > 0),
            (alpha_n * _bend + beta * x, _near),
            (alpha_n * Expm1(x) + Line(beta - alpha_n, x), True),
        ),
        ("x",): Piecewise((2 * alpha_p * x + beta, x > 0), (alpha_n * Expm1(x) + beta, True)),
        ("alpha_n",): Piecewise((0, x > 0), (_bend, _near), (Expm1(x) - x, True)),
    },
    claims=Claims(1, alpha_n <= beta, oo, FiniteSet(0)),
    about="Integral of an ELU: quadratic above 0, exponential below (Huang and Schlag 2024).",
)
