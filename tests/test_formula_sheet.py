"""The formula sheet's numbers: distances to ReLU, Lipschitz constants, the inverse of CRReLU, torch's own functions."""

import math

import mpmath
import pytest
import sympy
import torch

import softknee as sk
from helpers import F64, grid
from softknee.spec import elementary
from softknee.spec.reference import evaluate

DISTANCES = {  # name: (parameter, distance to ReLU times or over the parameter, where)
    "srelu": lambda knob: (3 * knob / 16, 0.0),
    "smelu": lambda knob: (knob / 4, 0.0),
    "softplus": lambda knob: (math.log(2) / knob, 0.0),
    "lambda_gelu": lambda knob: (0.16997120747990366 / knob, 0.751791524693564 / knob),
}


@pytest.mark.parametrize("name", DISTANCES)
def test_distance_to_relu(name: str):
    act = sk.get(name)
    for knob in (1.0, 2.5, 40.0):
        sup, where = DISTANCES[name](knob)
        values = {act.knob: knob}
        at_place = evaluate(act, where, **values) - max(where, 0.0)
        assert float(abs(at_place)) == pytest.approx(sup, rel=1e-14)
        x = grid(values)
        assert (act(x, **values) - torch.relu(x)).abs().max().item() <= sup * (1 + 1e-12)


LIPSCHITZ = {
    "gelu": (1.4, "1.1289041451851547863"),
    "swish": (2.4, "1.0998393201288669170"),
    "mish": (1.5, "1.0884981612517278612"),
    "tanhexp": (1.0, "1.0619753087179159692"),
    "gelu_tanh": (1.4, "1.1289930686587717655"),
}


@pytest.mark.parametrize("name", LIPSCHITZ)
def test_lipschitz_constants_to_twenty_digits(name: str):
    act, (start, digits) = sk.get(name), LIPSCHITZ[name]
    with mpmath.workdps(40):
        ends = (start - 0.5, start + 0.5)
        top = mpmath.findroot(lambda at: evaluate(act.derivative(2), at, beta=1), ends, solver="illinois", tol=1e-36)
        result = evaluate(act.derivative(1), top, beta=1)
        assert abs(result - mpmath.mpf(digits)) < mpmath.mpf(10) ** -18
        assert abs(result - mpmath.mpf(str(sympy.N(elementary(act.claims.lipschitz), 30)))) < mpmath.mpf(10) ** -18


def test_crrelu_against_the_exact_inverse():
    """The paper's bound on its first-order inverse: on the way there and back, and in the distance of the functions."""
    x = torch.linspace(0, 8, 20001, dtype=F64)
    first_order = sk.get("crrelu")
    for eps in (0.01, 0.1):
        bound = math.exp(-1) * eps**2 + math.exp(-1.5) * eps**3 / 2
        y = first_order(x, eps=eps)
        back = (y - eps * y * torch.exp(-y * y / 2) - x).abs().max().item()
        apart = (y - sk.get("crrelu_exact")(x, eps=eps)).abs().max().item()
        assert back < bound
        assert apart < bound
        if eps == 0.01:
            assert round(back, 7) == 0.0000293
            assert round(apart, 7) == 0.0000295
            assert round(bound, 7) == 0.0000369


def test_crrelu_exact_inverts_equation_six():
    y = torch.linspace(0, 8, 2001, dtype=F64)
    for eps in (-2.0, -0.5, 0.01, 0.9):
        x = y - eps * y * torch.exp(-y * y / 2)
        torch.testing.assert_close(sk.get("crrelu_exact")(x, eps=eps), y, rtol=1e-12, atol=1e-13)


TWINS = {
    "relu": torch.relu,
    "relu6": torch.nn.functional.relu6,
    "hardtanh": torch.nn.functional.hardtanh,
    "hardswish": torch.nn.functional.hardswish,
    "elu": torch.nn.functional.elu,
    "celu": torch.nn.functional.celu,
    "selu": torch.nn.functional.selu,
    "softplus": torch.nn.functional.softplus,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "mish": torch.nn.functional.mish,
    "softsign": torch.nn.functional.softsign,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "leaky_relu": torch.nn.functional.leaky_relu,
}


@pytest.mark.parametrize("name", TWINS)
def test_defaults_are_those_of_torch(name: str):
    x = torch.linspace(-9, 9, 1001, dtype=F64)
    torch.testing.assert_close(sk.get(name)(x), TWINS[name](x), rtol=1e-8, atol=1e-8)
