"""The gain of initial weights: closed forms, the variance that it keeps, torch's gains, refusals."""

import functools
import math

import pytest
import torch

import softknee as sk
from softknee.design.concrete import concrete
from softknee.design.gaussian import resolve
from softknee.spec import Activation, x


def test_gains_with_a_closed_form():
    gain = sk.design.init_gain
    assert gain("relu") == math.sqrt(2) == torch.nn.init.calculate_gain("relu")
    assert gain("relu", q=7.0) == math.sqrt(2)
    assert abs(gain("leaky_relu", slope=0.2) - torch.nn.init.calculate_gain("leaky_relu", 0.2)) < 1e-15
    assert abs(gain("selu") - 1) < 1e-14
    assert abs(gain("gelu") - 1 / math.sqrt(1 / 3 + 1 / (2 * math.pi * math.sqrt(3)))) < 1e-14
    assert abs(gain("srelu", delta=1e-9) - math.sqrt(2)) < 1e-9


@functools.cache
def many_draws() -> torch.Tensor:
    return torch.randn(400_000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.2, 1.0, 9.0])
@pytest.mark.parametrize("name", ["tanh", "silu", "smelu", "softplus", "squaf", "crrelu"])
def test_a_gain_keeps_the_variance(name: str, q: float):
    f = concrete(name)
    assert abs(sk.design.init_gain(name, q=q) ** 2 * resolve(f, q).mean_square / q - 1) < 1e-14
    draws = many_draws() * math.sqrt(q)
    assert abs(sk.design.init_gain(name, q=q) ** 2 * float((f.value(draws) ** 2).mean()) / q - 1) < 0.01


def test_a_text_and_a_formula_have_a_gain():
    assert sk.design.init_gain("x * sigmoid(x)") == pytest.approx(sk.design.init_gain("silu"), rel=1e-12)
    assert sk.design.init_gain(2 * x) == 0.5


def test_what_is_said_of_torchs_gains():
    assert abs(sk.design.init_gain("tanh") - 1.5925) < 1e-4
    assert abs(sk.design.init_gain("tanh", q=1.17848049) - torch.nn.init.calculate_gain("tanh")) < 1e-8


def test_gains_that_do_not_exist():
    with pytest.raises(sk.ParameterError, match="above 0"):
        sk.design.init_gain("relu", q=0.0)
    with pytest.raises(sk.ParameterError, match="no gain brings"):
        sk.design.init_gain(Activation("zero", 0 * x))
    with pytest.raises(sk.ParameterError, match="above 0"):
        sk.design.init_gain("gelu", q=True)
    with pytest.raises(sk.UnknownActivationError):
        sk.design.init_gain("rleu")
