r"""The bounded classics.

    tanh(x)                                           -1, 0, 1 at -infinity, 0, +infinity
    sigmoid(x) = 1/(1 + e^-x)                         0, 1/2, 1
    softsign(x) = x/(1 + |x|)                         -1, 0, 1
    hardsigmoid(x) = min(max(x + 3, 0), 6)/6          0, 1/2, 1; 0 from -3 down, 1 from 3 up
    sparse_sigmoid(x) = min(max(x + 1, 0), 2)/2       0, 1/2, 1; 0 from -1 down, 1 from 1 up
    laplace(x) = Phi((x - mu)/sigma)                  0, and 1; with the default constants it follows relu(x)^2

Hazard: softsign at infinity is infinity over infinity; its input is clipped at 1e30, where it is 1 to the last bit.

>>> import softknee as sk, torch
>>> sk.get("softsign")(torch.tensor([-torch.inf, 1.0]))
tensor([-1.0000,  0.5000])
"""

from ..spec import Activation, Claims, Inner, NormalCdf, NormalPdf, Sigmoid, Tanh, positive, real, u, x
from ..spec.algebra import Abs, FiniteSet, Interval, Piecewise, Rational, oo

_mu = real("mu", 0.707107, "where it is 1/2")
_sigma = positive("sigma", 0.282095, "standard deviation of the step")

tanh = Activation("tanh", Tanh(x), claims=Claims(float("inf"), True, 1, FiniteSet(0)), about="Hyperbolic tangent.")
sigmoid = Activation(
    "sigmoid",
    Sigmoid(x),
    claims=Claims(float("inf"), True, Rational(1, 4)),
    about="Logistic function.",
)
softsign = Activation(
    "softsign",
    Piecewise((u / (1 - u), x < 0), (u / (1 + u), True)),
    inner=Inner(x, low=-1e30, high=1e30),
    stable={(): u / (1 + Abs(u)), ("x",): (1 + Abs(u)) ** -2},
    claims=Claims(1, True, 1, FiniteSet(0)),
    about="x over 1 + |x| (Turian et al. 2009).",
)
hardsigmoid = Activation(
    "hardsigmoid",
    Piecewise((0, x <= -3), (1, x >= 3), (x / 6 + Rational(1, 2), True)),
    claims=Claims(0, True, Rational(1, 6), Interval(-oo, -3)),
    about="Sigmoid in three straight pieces, with slope 1/6 (Courbariaux et al. 2015; Howard et al. 2019).",
)
sparse_sigmoid = Activation(
    "sparse_sigmoid",
    Piecewise((0, x <= -1), (1, x >= 1), (x / 2 + Rational(1, 2), True)),
    claims=Claims(0, True, Rational(1, 2), Interval(-oo, -1)),
    about="Sigmoid in three straight pieces: the two-class sparsemax (Martins and Astudillo 2016).",
)
laplace = Activation(
    "laplace",
    NormalCdf(u),
    params=(_mu, _sigma),
    inner=Inner((x - _mu.symbol) / _sigma.symbol, low=-40.0, high=40.0),
    claims=Claims(float("inf"), True, NormalPdf(0) / _sigma.symbol),
    about="Normal distribution function that follows squared ReLU (Ma et al. 2023, MEGA).",
)
