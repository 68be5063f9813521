r"""Mish and TanhExp: x gated by a tanh.

    mish(x)    = x tanh(log(1 + e^{beta x}))          -0 at -infinity, 0 at 0, x at +infinity
    tanhexp(x) = x tanh(e^{beta x})                   the same
    hard_mish(x) = x min(max(x + 2, 0), 2)/2          0 from -2 down, x from 0 up

Hazards: with E = e^u and n = E(E + 2), mish's gate is n/(n + 2): one exponential, and exact relative to its size in the
left tail. u is clipped at 40, where the gate has been 1 to the last bit of float64 since u = 19 and n is still a
float32 number. In tanhexp e^u overflows, so there u is clipped at 10, long after the gate has become 1.

>>> import softknee as sk, torch
>>> sk.get("mish")(torch.tensor([1.0]), beta=1.0)
tensor([0.8651])
"""

from ..spec import Activation, Claims, FiniteLeft, Inner, MishGate, Softplus, Tanh, positive, u, x
from ..spec.algebra import FiniteSet, Float, Interval, Piecewise, exp, oo

_beta = positive("beta", 1.0, "hardness of the gate")
_n = exp(u) * (exp(u) + 2)  # the slopes in one exponential and one reciprocal

mish = Activation(
    "mish",
    FiniteLeft(x) * Tanh(Softplus(u)),
    params=(_beta,),
    inner=Inner(_beta.symbol * x, low=-800.0, high=40.0),
    worked=FiniteLeft(x) * MishGate(u),
    stable={
        ("x",): _n / (_n + 2) + 4 * u * exp(u) * (exp(u) + 1) / (_n + 2) ** 2,
        ("beta",): 4 * u**2 * exp(u) * (exp(u) + 1) / (_n + 2) ** 2 / _beta.symbol**2,
    },
    claims=Claims(
        float("inf"),
        False,
        Float("1.0884981612517278612", 20),
        FiniteSet(0),
        distance=Float("0.30884341301725040663", 20) / _beta.symbol,
        one_minimum=True,
    ),
    knob="beta",
    toward=float("inf"),
    limit="relu",
    about="Tanh-of-softplus-gated linear unit (Misra 2019).",
)
tanhexp = Activation(
    "tanhexp",
    FiniteLeft(x) * Tanh(exp(u)),
    params=(_beta,),
    inner=Inner(_beta.symbol * x, low=-800.0, high=10.0),
    claims=Claims(
        float("inf"),
        False,
        Float("1.0619753087179159692", 20),
        FiniteSet(0),
        distance=Float("0.35328577784821127099", 20) / _beta.symbol,
        one_minimum=True,
    ),
    knob="beta",
    toward=float("inf"),
    limit="relu",
    about="Tanh-of-exponential-gated linear unit (Liu and Di 2020).",
)
hard_mish = Activation(
    "hard_mish",
    Piecewise((0, x <= -2), (x, x >= 0), (x * (x + 2) / 2, True)),
    claims=Claims(0, False, 1, Interval(-oo, -2) + FiniteSet(0), one_minimum=True),
    about="Mish with a piecewise linear gate (Misra's notes; timm).",
)
