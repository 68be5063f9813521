r"""Mish and TanhExp: x gated by a tanh.

    mish(x)    = x tanh(log(1 + e^{beta x}))          -0 at -infinity, 0 at 0, x at +infinity
    tanhexp(x) = x tanh(e^{beta x})                   the same

Hazards: with s = sigmoid(u) and c = sigmoid(-u), mish's gate is s (1 + c)/(1 + c^2): one exponential, no overflow,
exact relative to its size in both tails. In tanhexp e^u overflows, so u is clipped at 10, where the gate has been 1
to the last bit of float64 since u = 3.

>>> import softknee as sk, torch
>>> sk.get("mish")(torch.tensor([1.0]), beta=1.0)
tensor([0.8651])
"""

from sympy import FiniteSet, Float, exp, oo

from ..spec import Activation, Claims, FiniteLeft, Inner, MishGate, Softplus, Tanh, positive, u, x

_beta = positive("beta", 1.0, "hardness of the gate")

mish = Activation(
    "mish",
    FiniteLeft(x) * Tanh(Softplus(u)),
    params=(_beta,),
    inner=Inner(_beta.symbol * x, low=-800.0, high=800.0),
    worked=FiniteLeft(x) * MishGate(u),
    claims=Claims(float("inf"), False, Float("1.0884981612517278612", 20), FiniteSet(0)),
    knob="beta",
    toward=oo,
    limit="relu",
    about="Tanh-of-softplus-gated linear unit (Misra 2019).",
)
tanhexp = Activation(
    "tanhexp",
    FiniteLeft(x) * Tanh(exp(u)),
    params=(_beta,),
    inner=Inner(_beta.symbol * x, low=-800.0, high=10.0),
    claims=Claims(float("inf"), False, Float("1.0619753087179159692", 20), FiniteSet(0)),
    knob="beta",
    toward=oo,
    limit="relu",
    about="Tanh-of-exponential-gated linear unit (Liu and Di 2020).",
)
