"""The CPAB flow under DiTAC: against an integration by small steps, and the identities of a flow."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch

import softknee as sk
from helpers import rounding
from softknee.errors import ParameterError
from softknee.nn.baselines import bend, flow

F64 = torch.float64


@functools.cache
def stepped_on_borders(name: str) -> tuple[torch.Tensor, np.ndarray]:
    u = torch.linspace(0, 10, 81, dtype=F64)  # border points among them
    return u, stepped(u.numpy(), velocity(name).numpy())


def stepped(u: np.ndarray, v: np.ndarray, *, time: float = 1.0, steps: int = 4_000) -> np.ndarray:
    """Runge-Kutta of order 4 with steps far shorter than a cell; at a kink it is of order 2."""
    places, step = np.arange(len(v)), time / steps
    for _ in range(steps):
        first = np.interp(u, places, v)
        second = np.interp(u + step / 2 * first, places, v)
        third = np.interp(u + step / 2 * second, places, v)
        fourth = np.interp(u + step * third, places, v)
        u = u + step / 6 * (first + 2 * second + 2 * third + fourth)
    return u


FIELDS = {
    "gentle": np.random.default_rng(0).normal(size=9) * 0.3,
    "wild": np.random.default_rng(1).normal(size=9) * 4,
    "one way": np.abs(np.random.default_rng(2).normal(size=9)) * 6 + 0.1,
    "the other way": -np.abs(np.random.default_rng(3).normal(size=9)) * 6 - 0.1,
    "all equal": np.full(9, 2.5),
    "with rests": np.array([1.0, 0.0, -2.0, 0.0, 0.0, 3.0, 1e-9, -1e-9, 5.0]),
}
every_field = pytest.mark.parametrize("name", FIELDS)


def velocity(name: str) -> torch.Tensor:
    return torch.tensor(np.concatenate([[0.0], FIELDS[name], [0.0]]))


@every_field
def test_against_small_steps(name: str):
    u, wanted = stepped_on_borders(name)
    np.testing.assert_allclose(flow(u, velocity(name)).numpy(), wanted, rtol=0, atol=2e-6)


@every_field
def test_it_rises_and_stays_inside(name: str):
    u = torch.linspace(0, 10, 5001, dtype=F64)
    result = flow(u, velocity(name))
    assert (result.diff() > -1e-13).all()
    assert result[[0, -1]].tolist() == [0, 10]


@every_field
def test_the_other_sign_goes_back(name: str):
    u = torch.linspace(0, 10, 1001, dtype=F64)
    v = velocity(name)
    # There and back multiplies rounding by the greatest contraction, e^(steepest slope).
    grown = math.exp(float(v.diff().abs().max()))
    torch.testing.assert_close(flow(flow(u, v), -v), u, rtol=0, atol=1e-14 * grown * 10)


@every_field
def test_two_halves_make_a_whole(name: str):
    u = torch.linspace(0, 10, 1001, dtype=F64)
    v = velocity(name)
    grown = math.exp(float(v.diff().abs().max()))
    torch.testing.assert_close(flow(flow(u, v / 2), v / 2), flow(u, v), rtol=0, atol=1e-14 * grown * 10)


@every_field
def test_the_slope_is_the_ratio_of_velocities(name: str):
    u = torch.linspace(0, 10, 301, dtype=F64)[1:-1].requires_grad_()  # border points among them
    v = velocity(name)
    result = flow(u, v)
    (slope,) = torch.autograd.grad(result.sum(), u)
    places = np.arange(11)
    here, there = (np.interp(item.detach().numpy(), places, v.numpy()) for item in (u, result))
    moving = np.abs(here) > 1e-6  # elsewhere the ratio is one of rounding errors
    np.testing.assert_allclose(slope.numpy()[moving], (there / np.where(moving, here, 1))[moving], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["gentle", "wild", "one way", "all equal"])
def test_gradients_by_velocity(name: str):
    u = (torch.rand(16, dtype=F64, generator=torch.Generator().manual_seed(0)) * 9.8 + 0.1).requires_grad_()
    inner = velocity(name)[1:-1].requires_grad_()
    assert torch.autograd.gradcheck(lambda u, v: flow(u, torch.nn.functional.pad(v, (1, 1))), (u, inner), atol=1e-5)


def test_gradients_at_rest_are_those_of_hats():
    """At zero velocity a change of one border's velocity moves x by the hat function there."""
    inner = torch.zeros(9, dtype=F64, requires_grad=True)
    for at in (0.25, 3.0, 4.5, 9.9):
        result = flow(torch.tensor([at], dtype=F64), torch.nn.functional.pad(inner, (1, 1)))
        (slope,) = torch.autograd.grad(result.sum(), inner)
        hats = [max(0.0, 1 - abs(at - j)) for j in range(1, 10)]
        np.testing.assert_allclose(slope.numpy(), hats, atol=1e-14)


def test_single_precision_is_as_good_as_it_can_be():
    for name in FIELDS:
        v = velocity(name)
        u = torch.linspace(0, 10, 2001)
        wide = flow(u.double(), v.float().double())
        grown = math.exp(min(float(v.diff().abs().max()), 6.0))
        torch.testing.assert_close(flow(u, v.float()).double(), wide, rtol=0, atol=2e-6 * grown)


def test_ditac_at_zero_is_gelu_and_beyond_the_interval_always():
    x = torch.tensor([-math.inf, -50.0, -3.0, -1.3, 0.0, 0.7, 3.0, 1e30, math.inf, math.nan], dtype=F64)
    wanted = torch.nn.functional.gelu(x)
    wanted[0] = 0.0
    torch.testing.assert_close(sk.nn.DiTAC(dtype=F64)(x), wanted, rtol=1e-12, atol=1e-15, equal_nan=True)
    bent = sk.nn.DiTAC(list(FIELDS["wild"]), dtype=F64)
    outside = (x <= -3) | (x >= 3) | x.isnan()
    torch.testing.assert_close(bent(x)[outside], wanted[outside], rtol=1e-12, atol=1e-15, equal_nan=True)
    assert not torch.allclose(bent(x)[~outside], wanted[~outside], atol=1e-2)


def test_ditac_alone_is_a_diffeomorphism_of_its_interval():
    theta = torch.tensor(FIELDS["gentle"])
    there, back = (sk.nn.DiTAC(s * theta, gate=None, low=-1.0, high=2.0, dtype=F64) for s in (1, -1))
    x = torch.linspace(-1.5, 2.5, 401, dtype=F64)
    assert (there(x).diff() > 0).all()
    torch.testing.assert_close(back(there(x)), x, rtol=0, atol=1e-13)
    inside = (x > -1) & (x < 2)
    assert there(x)[~inside].equal(x[~inside])
    wanted = stepped(((x[inside] + 1) / 0.3).numpy(), velocity("gentle").numpy(), steps=2000) * 0.3 - 1
    np.testing.assert_allclose(there(x)[inside].detach().numpy(), wanted, atol=1e-6)
    gated = sk.nn.DiTAC(theta, low=-1.0, high=2.0, dtype=F64)
    torch.testing.assert_close(gated(x), there(x) * torch.special.ndtr(x), rtol=1e-12, atol=1e-15)


def test_the_gradient_has_no_holes_at_borders():
    """Crossing a border at any time gives one smooth function: values left and right of every event agree."""
    v = velocity("one way")
    u = torch.linspace(0.01, 9.99, 20_001, dtype=F64).requires_grad_()
    (slope,) = torch.autograd.grad(flow(u, v).sum(), u)
    jumps = [abs(a - b) for a, b in itertools.pairwise(slope.tolist())]
    assert max(jumps) < 0.02 * float(slope.max())
    assert (slope > 0).all()


OPTIONS = {"low": -3.0, "high": 3.0, "gated": True}


def drawn(*shape: int, spread: float = 1.0, seed: int = 0, dtype: torch.dtype = F64) -> torch.Tensor:
    return spread * torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def value_and_gradients(function, x: torch.Tensor, theta: torch.Tensor, **options) -> list[torch.Tensor]:
    x, theta = (t.detach().requires_grad_() for t in (x, theta))
    out = function(x, theta, **options)
    return [out.detach(), *torch.autograd.grad(out, [x, theta], outer_slopes(out))]


def outer_slopes(out: torch.Tensor) -> torch.Tensor:
    """Slopes of some function of the values; whole numbers, which every type holds."""
    return (torch.arange(out.numel(), device=out.device) % 7 - 2).to(out.dtype).reshape(out.shape)


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16])
def test_what_is_not_a_number_or_outside(dtype):
    x = torch.tensor([math.nan, math.inf, -math.inf, -3.0, 3.0, 3e38, -3e38, 7.0, 1.0], dtype=dtype, requires_grad=True)
    theta = drawn(1, 9, spread=2.0).requires_grad_()
    alone = bend(x, theta, low=-3.0, high=3.0, gated=False)
    assert alone[1:8].equal(x[1:8])
    assert alone[0].isnan()
    assert alone[8] != 1
    by_x, by_theta = torch.autograd.grad(alone.sum(), [x, theta])
    assert by_x[:8].eq(1).all()
    assert by_theta.isfinite().all()
    assert by_theta.any()
    gated = bend(x, theta, **OPTIONS)
    assert gated.dtype == dtype
    assert gated[2] == 0
    assert gated[6] == 0
    assert gated[1] == math.inf
    by_x, by_theta = torch.autograd.grad(gated.sum(), [x, theta])
    assert by_x[1:3].tolist() == [1, 0]
    assert by_x[5:7].tolist() == [1, 0]
    assert by_x[0].isnan()
    assert by_theta.isfinite().all()
    assert by_theta.any()


def test_steep_cells_give_numbers():
    """Slopes whose exponentials no float32 holds: what rests between them rests, and gradients are finite."""
    x = torch.linspace(-3, 3, 601)
    theta = torch.tensor([[-150.0, 150.0, -150.0, 0.0, 150.0]])
    result = value_and_gradients(bend, x, theta, **OPTIONS)
    assert all(t.isfinite().all() for t in result)
    assert (bend(x, theta, **OPTIONS | {"gated": False}).diff() >= -1e-6).all()


def test_a_velocity_that_is_not_a_number_shows_and_one_gradient_alone_is_the_same():
    x, theta = drawn(5, 8, spread=2.0, dtype=torch.float32), drawn(1, 9, seed=1, dtype=torch.float32)
    broken = theta.clone()
    broken[0, 4] = math.nan
    assert bend(torch.tensor([0.1]), broken, **OPTIONS).isnan().all()
    _, by_x, by_theta = value_and_gradients(bend, x, theta, **OPTIONS)
    for at, wanted in ((0, by_x), (1, by_theta)):
        given = [x.clone(), theta.clone()]
        given[at].requires_grad_()
        (alone,) = torch.autograd.grad(bend(*given, **OPTIONS), given[at], outer_slopes(x))
        close = rounding(torch.float32)
        torch.testing.assert_close(alone, wanted, rtol=close, atol=close * wanted.abs().max().item())


def test_empty_and_single_numbers_and_a_shape_that_does_not_fit():
    theta = drawn(1, 9, dtype=torch.float32).requires_grad_()
    assert bend(torch.zeros(0, 4), theta, **OPTIONS).shape == (0, 4)
    (nothing,) = torch.autograd.grad(bend(torch.zeros(0, 4), theta, **OPTIONS).sum(), theta)
    assert nothing.eq(0).all()
    assert nothing.shape == theta.shape
    assert bend(torch.tensor(0.5), theta, **OPTIONS).shape == ()
    with pytest.raises(ParameterError, match="does not broadcast"):
        bend(torch.zeros(4, 5), torch.zeros(3, 9), **OPTIONS)


def test_single_precision_keeps_its_digits():
    """Also near a border with a small velocity, where the slope changes fast."""
    for seed in range(3):
        x = torch.rand(20_000, generator=torch.Generator().manual_seed(seed)) * 6.4 - 3.2
        theta = drawn(1, 9, spread=0.5, seed=seed, dtype=torch.float32)
        ours = value_and_gradients(bend, x, theta, **OPTIONS)
        for result, true, bound in zip(
            ours, value_and_gradients(bend, x.double(), theta.double(), **OPTIONS), (5e-7, 3e-5, 2e-6), strict=True
        ):
            torch.testing.assert_close(result.double(), true, rtol=0, atol=bound * max(1.0, float(true.abs().max())))
