"""Hard limits: proved distances to them, and the plain modules of torch that they are."""

import math
from fractions import Fraction

import pytest
import torch
from torch import nn

import softknee as sk
from hardening_models import HARDENED
from helpers import ZOO, ordinary_values
from softknee.errors import ParameterError
from softknee.spec import Activation, positive
from softknee.spec import x as X
from softknee.surgery.hardening import distance_bound, hard_module
from softknee.surgery.hardening.sites import distance_of


def extreme_values(act: Activation) -> list[dict[str, float]]:
    """Ordinary ones, and some where another branch of a distance is the largest."""
    usual = ordinary_values(act)
    steep = {"alpha": 0.2, "beta": 3.0, "g_minus": -1.5, "g_plus": 0.4, "t": 2.0, "shift": 1.5, "eps": -0.9}
    return [usual, usual | {name: value for name, value in steep.items() if name in usual}]


# -- distances --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("act", [a for a in ZOO.values() if a.knobs], ids=lambda a: a.name)
def test_a_claimed_distance_is_the_proved_one(act: Activation):
    for values in extreme_values(act):
        proved = sk.design.certify(act, **values).distance
        claimed = distance_of(act)(values)
        if math.isinf(claimed):
            assert proved.lower == math.inf
        else:
            assert float(proved.lower) <= claimed <= float(proved.upper) * (1 + 1e-12), values


def test_what_has_no_knob_claims_no_distance():
    assert all((act.claims.distance is None) == (not act.knobs) for act in ZOO.values())


def test_the_distance_is_reached_and_not_passed_on_a_dense_grid():
    """An independent look: no certificate, only values."""
    x = torch.linspace(-30, 30, 60001, dtype=torch.float64)
    for act in HARDENED.values():
        for values in extreme_values(act):
            module = sk.nn.make(act, **values, dtype=torch.float64)
            hard = hard_values(act, values, x)
            seen = (module(x) - hard).abs().max().item()
            bound = distance_bound(module)
            assert seen <= bound * (1 + 1e-12), (act.name, values)
            assert seen >= bound * (1 - 3e-3), (act.name, values)  # a kink between two points of the grid


def hard_values(act: Activation, values: dict[str, float], x: torch.Tensor) -> torch.Tensor:
    """The hard limits, written down here."""
    if "g_minus" in values:
        rise = values.get("g_plus", 1.0)
        return torch.where(x < 0, values["g_minus"] * x, rise * x) + values.get("t", 0.0)
    return (x - values.get("shift", 0.0)).clamp(min=0)


def test_bounds_of_modules():
    assert distance_bound(sk.nn.SReLU(delta=0.5)) == pytest.approx(3 * 0.5 / 16, rel=1e-14)
    widths = torch.tensor([0.1, 0.4, 0.2])
    assert distance_bound(sk.nn.SmeLU(beta=widths, per="channel", size=3)) == pytest.approx(0.1, rel=1e-6)
    assert distance_bound(sk.nn.ReLU()) == distance_bound(sk.nn.PReLU(slope=0.3)) == 0
    assert distance_bound(sk.nn.SmoothReLU()) == math.inf
    # A bound is never below the truth, not even by rounding.
    for delta in torch.rand(50, generator=torch.Generator().manual_seed(0)).tolist():
        assert Fraction(distance_bound(sk.nn.SReLU(delta=delta, dtype=torch.float64))) >= Fraction(delta) * 3 / 16


def test_a_designed_function_is_certified():
    module = sk.nn.make(sk.design.mollify("leaky_relu", "triangle"), delta=0.5, dtype=torch.float64)
    # The triangle kernel has E|u| = 1/3, half of it on either side of the knee, whose slopes differ by 0.99.
    assert distance_bound(module) == pytest.approx(0.99 * 0.5 / 6, rel=1e-12)
    assert isinstance(hard_module(module), nn.LeakyReLU)


# -- plain modules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", HARDENED.values(), ids=HARDENED)
def test_the_hard_module_is_the_limit(act: Activation):
    given = {"g_plus": 1.0, "t": 0.0, "shift": 0.0}
    values = ordinary_values(act) | {p.name: given[p.name] for p in act.params if p.name in given}
    # As hard as the limit, to the eye of float64.
    values |= dict.fromkeys(act.knobs, 1e-9 if act.toward == 0 else 1e9)
    module = sk.nn.make(act, **values, dtype=torch.float64)
    plain = hard_module(module)
    assert type(plain).__module__.startswith("torch.nn")
    x = torch.linspace(-3, 3, 1001, dtype=torch.float64)
    assert (plain(x) - module(x)).abs().max() < 1e-7  # a leak goes through float32


def test_which_torch_module_it_is():
    nn_ = sk.nn
    assert isinstance(hard_module(nn_.LambdaGELU(learn=True)), nn.ReLU)
    assert isinstance(hard_module(nn_.GeneralizedSmeLU()), nn.ReLU)
    assert isinstance(hard_module(nn_.OriginSmeLU()), nn.ReLU)
    leaky = hard_module(nn_.OriginSmeLU(g_minus=0.25))
    assert isinstance(leaky, nn.LeakyReLU)
    assert leaky.negative_slope == 0.25
    for ours, theirs in ((nn_.ReLU6, nn.ReLU6), (nn_.Hardtanh, nn.Hardtanh), (nn_.Hardswish, nn.Hardswish)):
        assert isinstance(hard_module(ours()), theirs)
        x = torch.linspace(-8, 8, 101)
        assert torch.allclose(hard_module(ours())(x), ours()(x))
    assert isinstance(hard_module(sk.nn.make(sk.design.mollify("relu6", "box"))), nn.ReLU6)


def test_a_prelu_keeps_a_slope_for_each_channel_even_while_they_are_equal() -> None:
    made = hard_module(sk.nn.PReLU(learn=True, slope=0.25, per="channel", size=4))
    assert isinstance(made, nn.PReLU)
    assert made.weight.tolist() == [0.25] * 4


def test_leaks_for_each_channel_become_a_prelu():
    slopes = torch.tensor([0.1, 0.2, 0.3])
    module = sk.nn.make("leaky_smelu", beta=1e-6, g_minus=slopes, per="channel", size=3)
    plain = hard_module(module)
    assert isinstance(plain, nn.PReLU)
    x = torch.randn(5, 3, 4)
    assert torch.allclose(plain(x), module(x), atol=1e-5)
    trained = hard_module(sk.nn.PReLU(learn=True, slope=0.4))
    assert isinstance(trained, nn.PReLU)
    assert trained.weight.requires_grad
    with pytest.raises(ParameterError, match="dimension 1 alone"):
        hard_module(sk.nn.make("leaky_smelu", g_minus=slopes, per="channel", size=3, dim=-1))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (lambda: sk.nn.Tanh(), "no knob"),
        (lambda: sk.nn.Sigmoid(), "no knob"),
        (lambda: sk.nn.Softsign(), "no knob"),
        (lambda: sk.nn.SELU(), "no knob"),
        (lambda: sk.nn.SmoothReLU(), "infinitely far"),
        (lambda: sk.nn.Squaf(), "staircase"),
        (lambda: sk.nn.GeneralizedSmeLU(g_plus=1.5), "g_plus=1.5"),
        (lambda: sk.nn.GeneralizedSmeLU(t=0.5), "t=0.5"),
        (lambda: sk.nn.ShiftedSmeLU(shift=1.0), "bias"),
        (lambda: nn.GELU(), "is none"),
        (lambda: sk.nn.make(own_softplus()), "no name"),
    ],
)
def test_what_has_no_plain_module(module, words):
    with pytest.raises(ParameterError, match=words):
        hard_module(module())


def own_softplus() -> Activation:
    """A function of a user's: a knob, and no name for where it leads."""
    beta = positive("beta", 1.0)
    formula = sk.spec.Softplus(beta.symbol * X) / beta.symbol
    return sk.Activation("own_softplus", formula, params=(beta,), knob="beta", toward=math.inf)
