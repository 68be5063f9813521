r"""SQUAF: soft quantisation, the mean of a table z under weights that fall with the distance to a grid.

    squaf(x) = sum_i z_i w_i(x) / sum_i w_i(x),   w_i = e^(-alpha (x - i q)^2),   i = -k..k

or w_i = e^(-alpha |x - i q|) with weights="laplacian". z at the ends of the grid at both infinities (with
Laplacian weights a mean of the last few). Every value lies between the smallest and the largest z. As alpha
grows it becomes the staircase z at round(x/q). `window` keeps that many of the nearest points (None: all of
them), and then the function jumps by e^(-h m(m+1)) relative to the nearest weight, h = alpha q^2 and m the
half window, wherever the window slides. A `grid` of points may stand in place of i q.

Lipschitz: phi' = 2 alpha Cov(z, y | x), and |Cov(z, j)| <= max|z_{i+1} - z_i| Var(j). The walk on the grid
that steps up at rate sqrt(p_{j+1}/p_j) and down at sqrt(p_{j-1}/p_j) keeps p, contracts at rate 2(1 - e^-h)
or faster, and its Dirichlet form of j is sum sqrt(p_j p_{j+1}) <= 1: so Var(j) <= 1/(2(1 - e^-h)). With
Laplacian weights phi' = 2 alpha P(left) P(right) (mean of z on the right - on the left).

Hazard: weights are taken relative to the nearest point's, so that no exponent is positive, and second
derivatives near equal weights are worked out from expm1.

>>> import softknee as sk, torch
>>> sk.get("squaf")(torch.tensor([-9.0, 0.25, 9.0]), k=2, q=0.5, alpha=5.0)
tensor([0.0000, 0.2689, 1.0000])
"""

from typing import Any

from sympy import Abs, Expr, IndexedBase, Le, Sum, Symbol, exp, oo

from ..spec import SoftTable, TableClaims, VectorParam, positive, x

_q = positive("q", 0.5, "spacing of the grid")
_alpha = positive("alpha", 5.0, "sharpness; where q alone is given, 1.5/q^2 (1.5/q for Laplacian weights)")
_z = VectorParam("z", "relu", about="the values at the grid points; by default relu(i q)")

q, alpha = _q.symbol, _alpha.symbol
z: IndexedBase = _z.symbol
i, k = Symbol("i", integer=True), Symbol("k", integer=True, positive=True)
# The largest difference of neighbours in z, and the difference of its largest and smallest value.
z_step, z_range = Symbol("z_step", nonnegative=True), Symbol("z_range", nonnegative=True)


def _mean(weight: Expr) -> Any:
    above: Any = Sum(z[i] * weight, (i, -k, k))
    return above / Sum(weight, (i, -k, k))


_h = alpha * q**2
_NOTES = {
    "monotone": "Enough for every q and alpha, and needed if it is to hold for every alpha; windows keep it.",
    "lipschitz": "A bound, not the least constant; z_step = max|z[i+1] - z[i]| and z_range = max z - min z.",
}
_JUMPS = "For the full sum; a window of 2m+1 points jumps by {} of the nearest weight where it slides."

squaf = SoftTable(
    "squaf",
    {"gaussian": _mean(exp(-alpha * (x - i * q) ** 2)), "laplacian": _mean(exp(-alpha * Abs(x - i * q)))},
    params=(_q, _alpha, _z),
    claims_by_weights={
        "gaussian": TableClaims(
            float("inf"),
            Le(z[i], z[i + 1]),
            z_step / q * _h / (1 - exp(-_h)),
            notes=_NOTES | {"smoothness": _JUMPS.format("e^(-h m(m+1)), h = alpha q^2,")},
        ),
        "laplacian": TableClaims(
            0,
            Le(z[i], z[i + 1]),
            alpha * z_range / 2,
            notes=_NOTES | {"smoothness": _JUMPS.format("e^(-alpha q m)")},
        ),
    },
    options={"k": 2, "window": 5, "weights": "gaussian", "grid": None, "tolerance": 1e-4},
    knob="alpha",
    toward=oo,
    about="Soft quantisation activation function; its hard limit is the staircase z at round(x/q), which has "
    "no name of its own because it takes z along.",
)
