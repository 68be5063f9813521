"""What the gallery shows of each function: which settings, how far, which figure of a paper, how far from the limit.

A function without an entry is shown with its knob at its default and at multiples of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..spec.algebra import Abs, Expr, Float, Integer, Max, exp, log
from .typeset import Formula

_SMOOTH = "*Smooth activations and reproducibility in deep networks* (Shamir, Lin and Coviello)"
_MOLLIFIED = "*Reshaping activation functions: a framework based on mollification theory*"
_EAFO = "*A method on searching better activation functions*"


@dataclass(frozen=True)
class Exhibit:
    """The lines of a function's figure and what else its page says.

    settings: the parameters of each line.
    low, high: the stretch of x.
    shared: parameters that all lines have in common.
    figures: the figures of the papers that show the same family, in words.
    formulas: f, f' and f'' in words of mathematics, for a definition that has no closed form to differentiate.
    distance, place: the largest distance to the hard limit, and the |x| it is at, in the parameters in their order.
    """

    settings: tuple[Mapping[str, Any], ...] = ()
    low: float | None = None
    high: float | None = None
    shared: Mapping[str, Any] = field(default_factory=dict)
    figures: str = ""
    formulas: tuple[Formula, ...] = ()
    distance: Callable[..., Expr] | None = None
    place: Callable[..., Expr] | None = None


def _along(name: str, *numbers: float) -> tuple[dict[str, float], ...]:
    return tuple({name: number} for number in numbers)


def _paper(figures: str, paper: str, letter: str = "β") -> str:
    return f"The same family as {figures} of {paper}, whose caption names no values of {letter}: those here are ours."


_WIDTHS, _GATES = (0.25, 0.5, 1.0, 2.0), (0.5, 1.0, 2.0, 4.0)
_GATED = _paper("figure 11", _SMOOTH)
_JOINED = _paper("figures 1 and 12", _SMOOTH)
_FIGURE_12 = f"Of the family in figure 12 of {_SMOOTH}."

_PROBABILITY = r"p_i(x) = e^{-\alpha (x - y_i)^2} / \sum_{j=-k}^{k} e^{-\alpha (x - y_j)^2}, \; y_i = i q"
_MEAN = r"m(x) = \sum_{i=-k}^{k} y_i\, p_i(x)"

EXHIBITS: Mapping[str, Exhibit] = {
    "leaky_relu": Exhibit(_along("slope", 0.01, 0.1, 0.25, -0.25), low=-3, high=3),
    "prelu": Exhibit(_along("slope", 0.25, 0.5, 0.75, -0.25), low=-3, high=3),
    "rrelu": Exhibit(({}, {"lower": 0.0, "upper": 0.2}, {"lower": 0.25, "upper": 0.75}), low=-3, high=3),
    "hardtanh": Exhibit(low=-3, high=3),
    "clamp": Exhibit(({}, {"low": 0.0, "high": 2.0}, {"low": -2.0, "high": 0.5}), low=-3, high=3),
    "hardswish": Exhibit(low=-5, high=5),
    "elu": Exhibit(
        _along("beta", *_WIDTHS),
        low=-5,
        high=2,
        figures=f"SELU with lam = 1; {_SMOOTH} has SELU and CELU in figure 9.",
        distance=lambda beta: beta,
    ),
    "celu": Exhibit(
        _along("beta", *_WIDTHS), low=-5, high=2, figures=_paper("figure 9", _SMOOTH), distance=lambda beta: beta
    ),
    "selu": Exhibit(
        _along("beta", 0.5, 1.0, 1.6732632423543772, 2.5), low=-5, high=2, figures=_paper("figure 9", _SMOOTH)
    ),
    "softplus": Exhibit(
        _along("beta", *_GATES),
        low=-4,
        high=4,
        figures=_paper("figures 1 and 10", _SMOOTH),
        distance=lambda beta: log(2) / beta,
        place=lambda beta: Integer(0),
    ),
    "swish": Exhibit(
        _along("beta", *_GATES),
        low=-5,
        high=5,
        figures=_GATED,
        distance=lambda beta: Float("0.27846454276107380", 17) / beta,
        place=lambda beta: Float("1.27846454276107380", 17) / beta,
    ),
    "gelu": Exhibit(
        _along("beta", *_GATES),
        low=-4,
        high=4,
        figures=_GATED,
        distance=lambda beta: Float("0.16997120747990366", 17) / beta,
        place=lambda beta: Float("0.75179152469356445", 17) / beta,
    ),
    "gelu_tanh": Exhibit(_along("beta", *_GATES), low=-4, high=4),
    "lambda_gelu": Exhibit(
        _along("lam", 1.0, 1.5, 2.5, 5.0),
        low=-3,
        high=3,
        distance=lambda lam: Float("0.16997120747990366", 17) / lam,
        place=lambda lam: Float("0.75179152469356445", 17) / lam,
    ),
    "mish": Exhibit(_along("beta", *_GATES), low=-5, high=5, figures=_GATED),
    "tanhexp": Exhibit(_along("beta", *_GATES), low=-5, high=5, figures=_GATED),
    "srelu": Exhibit(
        _along("delta", *_WIDTHS),
        low=-3,
        high=3,
        figures=_paper("figure 1", _MOLLIFIED, "δ"),
        distance=lambda delta: 3 * delta / 16,
        place=lambda delta: Integer(0),
    ),
    "smelu": Exhibit(
        _along("beta", *_WIDTHS),
        low=-3,
        high=3,
        figures=_JOINED,
        distance=lambda beta: beta / 4,
        place=lambda beta: Integer(0),
    ),
    "asymmetric_smelu": Exhibit(
        (
            {"alpha": 1.0, "beta": 1.0},
            {"alpha": 0.5, "beta": 2.0},
            {"alpha": 2.0, "beta": 1.0},
            {"alpha": 0.25, "beta": 0.75},
        ),
        low=-3,
        high=3,
        figures=_FIGURE_12,
        distance=lambda alpha, beta: Max(alpha**2 / (2 * (alpha + beta)), (beta - alpha) / 2),
    ),
    "leaky_smelu": Exhibit(_along("beta", *_WIDTHS), shared={"g_minus": 0.1}, low=-3, high=3, figures=_FIGURE_12),
    "shifted_smelu": Exhibit(_along("shift", -1.0, 0.0, 1.0), shared={"beta": 0.5}, low=-3, high=3, figures=_FIGURE_12),
    "generalized_smelu": Exhibit(
        ({}, {"alpha": 0.5, "beta": 2.0}, {"g_minus": -0.25}, {"g_plus": 1.5, "t": 0.5}),
        low=-3,
        high=3,
        figures=f"The family of figure 12 of {_SMOOTH}, whose caption names no values: those here are ours.",
    ),
    "origin_smelu": Exhibit(
        ({}, {"alpha": 0.5, "beta": 0.5}, {"alpha": 0.5, "beta": 2.0}, {"g_minus": 0.25}),
        low=-3,
        high=3,
        figures=_FIGURE_12,
    ),
    "sigmoid_rescu": Exhibit(
        _along("beta", *_WIDTHS),
        low=-4,
        high=3,
        figures=_paper("figure 12", _SMOOTH),
        distance=lambda beta: 2 * beta / (1 + exp(2)),
        place=lambda beta: Integer(0),
    ),
    "smooth_relu": Exhibit(_along("beta", 0.5, 1.0, 2.0, 5.0), low=-2, high=6, figures=_paper("figure 12", _SMOOTH)),
    "crrelu": Exhibit(
        _along("eps", -0.5, 0.01, 0.25, 0.5, 1.0),
        low=-5,
        high=5,
        figures=_paper("figure 3", _EAFO, "ε"),
        distance=lambda eps: Abs(eps) * exp(-Integer(1) / 2),
        place=lambda eps: Integer(1),
    ),
    "crrelu_exact": Exhibit(
        _along("eps", -0.5, 0.01, 0.25, 0.5),
        low=-5,
        high=5,
        distance=lambda eps: Abs(eps) * exp(-Integer(1) / 2),
    ),
    "tanh": Exhibit(low=-5, high=5),
    "sigmoid": Exhibit(low=-8, high=8),
    "softsign": Exhibit(low=-6, high=6),
    "hardsigmoid": Exhibit(low=-5, high=5),
    "sparse_sigmoid": Exhibit(low=-3, high=3),
    "laplace": Exhibit(({}, {"sigma": 0.5}, {"mu": 0.0, "sigma": 0.5}, {"mu": 0.0, "sigma": 1.0}), low=-3, high=3),
    "gelu_10": Exhibit(low=-4, high=14),
    "quick_gelu": Exhibit(
        low=-4,
        high=4,
        distance=lambda beta: Float("0.27846454276107380", 17) / beta,
        place=lambda beta: Float("1.27846454276107380", 17) / beta,
    ),
    "hard_mish": Exhibit(low=-4, high=4),
    "logsigmoid": Exhibit(low=-6, high=6),
    "squareplus": Exhibit(
        _along("delta", 0.5, 1.0, 2.0, 4.0),
        low=-4,
        high=4,
        distance=lambda delta: delta / 2,
        place=lambda delta: Integer(0),
    ),
    "softshrink": Exhibit(_along("lam", 0.25, 0.5, 1.0), low=-3, high=3),
    "hardshrink": Exhibit(_along("lam", 0.25, 0.5, 1.0), low=-3, high=3),
    "tanhshrink": Exhibit(low=-4, high=4),
    "threshold": Exhibit(({}, {"theta": 0.5}, {"theta": 0.0, "value": -1.0}), low=-3, high=3),
    "relu2": Exhibit(low=-2, high=3),
    "star_relu": Exhibit(({}, {"scale": 0.5, "bias": 0.0}), low=-2, high=3),
    "xielu": Exhibit(({}, {"alpha_n": 0.5}, {"alpha_p": 0.25, "alpha_n": 1.5}), low=-4, high=3),
    "squaf": Exhibit(
        _along("alpha", 2.0, 6.0, 12.0),
        shared={"k": 6, "q": 0.5, "z": "relu", "window": None},
        low=-2,
        high=5,
        formulas=(
            Formula(r"\sum_{i=-k}^{k} z_i\, p_i(x)", (_PROBABILITY,)),
            Formula(r"2 \alpha \sum_{i=-k}^{k} (z_i - f(x))\, (y_i - m(x))\, p_i(x)", (_PROBABILITY, _MEAN)),
            Formula(r"4 \alpha^2 \sum_{i=-k}^{k} (z_i - f(x))\, (y_i - m(x))^2\, p_i(x)", (_PROBABILITY, _MEAN)),
        ),
    ),
}


def exhibit(name: str) -> Exhibit:
    """What the gallery shows of a function; nothing in particular where nothing is written down."""
    return EXHIBITS.get(name, Exhibit())
