r"""RESCU: rectified smooth continuous units, a smooth left part joined to a line.

    sigmoid_rescu(x) = 2 beta sigmoid(2(x - beta)/beta) for x <= beta;  x above      0 at -infinity
    smooth_relu(x)   = x - log(1 + beta x)/beta for x >= 0;  0 below                 (Xie et al. 2020)

sigmoid_rescu meets its line in value, slope and curvature (the sigmoid turns there). smooth_relu never returns to x:
its distance to ReLU is infinite for every beta. Hazards: smooth_relu is -log1pmx(beta x)/beta where beta x < 2/5 (the
difference would cancel), and x minus a logarithm above (beta x itself may overflow).

>>> import softknee as sk, torch
>>> sk.get("sigmoid_rescu")(torch.tensor([0.0, 2.0]), beta=1.0)
tensor([0.2384, 2.0000])
"""

from ..spec import Activation, Claims, Inner, Log1p, Log1pMinus, Log1pMinusNear, Sigmoid, positive, u, x
from ..spec.algebra import Interval, Piecewise, Rational, exp, log, oo

_beta = positive("beta", 1.0, "where the sigmoid meets the line")
_hardness = positive("beta", 1.0, "hardness")
beta = _beta.symbol
_near = u < Rational(2, 5)
# log(1 + beta x) of x itself and not of the clipped u, for the slope that goes to infinity with x; beyond 1e25 the
# product might overflow, and 1 no longer counts; x is divided because torch 2.6 takes log1p(3e38) for infinite.
_log = Log1p(Piecewise((beta * x, x < 1e25), (x / 2**30, True))) + Piecewise((0, x < 1e25), (log(2**30 * beta), True))

sigmoid_rescu = Activation(
    "sigmoid_rescu",
    Piecewise((x, x > beta), (2 * beta * Sigmoid(u), True)),
    params=(_beta,),
    inner=Inner(2 * x / beta - 2, low=-800.0, high=800.0),
    claims=Claims(2, True, 1, distance=2 * beta / (1 + exp(2))),
    knob="beta",
    limit="relu",
    about="A sigmoid below beta joined to the identity above (Shamir, Lin and Coviello).",
)
smooth_relu = Activation(
    "smooth_relu",
    Piecewise((0, x < 0), (-Log1pMinus(u) / beta, True)),
    params=(_hardness,),
    # Below 0 u is clipped to 0, where value and slopes are 0: no piece to choose.
    inner=Inner(beta * x, low=0.0, high=1e38),
    stable={
        (): Piecewise((-Log1pMinusNear(u) / beta, _near), (x - Log1p(u) / beta, True)),
        ("x",): u / (1 + u),
        ("beta",): Piecewise(
            ((Log1pMinusNear(u) + u**2 / (1 + u)) / beta**2, _near),
            ((_log - u / (1 + u)) / beta**2, True),
        ),
    },
    claims=Claims(1, True, 1, Interval(-oo, 0), distance=oo),
    knob="beta",
    toward=float("inf"),
    about="ReLU less a logarithm (Xie et al. 2020); slope tends to 1, the distance to ReLU does not end.",
)
