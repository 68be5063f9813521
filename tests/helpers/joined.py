"""Functions joined from pieces."""

import pytest

from helpers import SUBJECTS
from softknee.design import join, rescu
from softknee.spec import Activation, positive, real, x

ALPHA, BETA = positive("alpha", 1.0), positive("beta", 1.0)
G_MINUS, G_PLUS, T = real("g_minus", 0.0), real("g_plus", 1.0), real("t", 0.0)
alpha, beta, g_minus, g_plus, t = (p.symbol for p in (ALPHA, BETA, G_MINUS, G_PLUS, T))
FIVE = (ALPHA, BETA, G_MINUS, G_PLUS, T)
CONCAVE, CONVEX = "-(x + 7 * beta)**2 / (80 * beta)", "(3 * x + beta) * (x + 3 * beta) / (16 * beta)"


def lines(smoothness: int = 1, fixed: bool = False) -> Activation:
    """Two lines of any slopes with a polynomial between them."""
    return join(
        g_minus * (x + alpha) + t,
        g_plus * x,
        between=(-alpha, beta),
        smoothness=smoothness,
        fixed=fixed,
        params=FIVE,
        name=f"lines_{smoothness}",
    )


JOINED: dict[str, Activation] = {
    "smelu": rescu([(0, "-beta"), ("(x + beta)**2 / (4 * beta)", "beta"), "x"], params=[BETA]),
    "swish_like": rescu([(0, "-7 * beta"), (CONCAVE, "-2 * beta"), (CONVEX, "beta"), "x"], params=[BETA]),
    "leaky": rescu(
        [
            (g_minus * (x + beta), -beta),
            (g_minus * (x + beta) + (1 - g_minus) * (x + beta) ** 2 / (4 * beta), beta),
            x + g_minus * beta,
        ],
        params=[BETA, G_MINUS],
    ),
    "lines": lines(),
    "lines_2": lines(2),
    "lines_3": lines(3),
    "fixed_1": join(0, "x", between=(-alpha, beta), fixed=True, params=[ALPHA, BETA]),
    "fixed_2": join(0, "x", between=(-alpha, beta), smoothness=2, fixed=True, params=[ALPHA, BETA]),
    "asymmetric": join(0, x, between=(-alpha, beta), params=[ALPHA, BETA]),
    "parabola": join(0, "x**2 / 4", between=(-1, 3), smoothness=2),
}


FORMULAS = SUBJECTS | {f"joined_{name}": act for name, act in JOINED.items()}
"""Of these, too, every number and every claim is held against 50 digits."""
every_formula = pytest.mark.parametrize("act", FORMULAS.values(), ids=FORMULAS)
