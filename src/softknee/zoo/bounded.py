r"""The bounded classics.

    tanh(x)                                           -1, 0, 1 at -infinity, 0, +infinity
    sigmoid(x) = 1/(1 + e^-x)                         0, 1/2, 1
    softsign(x) = x/(1 + |x|)                         -1, 0, 1

Hazard: softsign at infinity is infinity over infinity; its input is clipped at 1e30, where it is 1 to the last bit.

>>> import softknee as sk, torch
>>> sk.get("softsign")(torch.tensor([-torch.inf, 1.0]))
tensor([-1.0000,  0.5000])
"""

from ..spec import Activation, Claims, Inner, Sigmoid, Tanh, u, x
from ..spec.algebra import Abs, FiniteSet, Piecewise, Rational

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
