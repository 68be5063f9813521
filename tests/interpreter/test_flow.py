"""The Triton kernels of the flow under DiTAC, run by Triton's interpreter and held to float64.

Run with TRITON_INTERPRET=1 in the environment: Triton reads it when it is imported.
"""

import math
import os

import pytest
import torch
from torch import Tensor

from softknee.kernels.flow import bend
from softknee.kernels.squaf import choose_path
from test_baselines_flow import FIELDS, OPTIONS, SHAPES, drawn, outer_slopes, value_and_gradients

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is asked for with TRITON_INTERPRET=1.", allow_module_level=True)


def check(x: Tensor, theta: Tensor, *, rough: float = 1e-5, **options) -> list[Tensor]:
    assert choose_path(x)[0] == "fused"
    found = value_and_gradients(bend, x, theta, **OPTIONS | options)
    truth = value_and_gradients(bend, x.double(), theta.double(), **OPTIONS | options)
    for ours, true in zip(found, truth, strict=True):
        coarse = 2 * torch.finfo(ours.dtype).eps if ours.dtype.itemsize == 2 else rough
        torch.testing.assert_close(ours.double(), true, rtol=coarse, atol=rough * float(true.abs().max()))
    return found


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients_match_float64(shape):
    x = drawn(2, 3, 5, spread=2.0, dtype=torch.float32)
    check(x, drawn(*shape, 5, spread=2.0, seed=1, dtype=torch.float32))


@pytest.mark.parametrize("name", FIELDS)
def test_every_kind_of_field(name):
    """Borders are among the points; what is steep multiplies the rounding of x by up to e^(its slope)."""
    theta = torch.tensor(FIELDS[name], dtype=torch.float32).unsqueeze(0)
    steepest = min(6.0, float(torch.nn.functional.pad(theta, (1, 1)).diff().abs().max()))
    x = torch.linspace(0, 10, 81)
    check(x, theta, rough=1e-6 * math.exp(steepest), low=0.0, high=10.0, gated=False)


@pytest.mark.parametrize("cells", [2, 3, 17])
def test_any_number_of_cells(cells):
    check(drawn(40, spread=2.0, dtype=torch.float32), drawn(1, cells - 1, dtype=torch.float32))


@pytest.mark.parametrize("shape", [(1,), (15,), (20, 1)])
def test_many_tiles_and_a_rest_repeat_their_bits(shape, monkeypatch):
    from softknee.kernels.flow import fused

    monkeypatch.setattr(fused, "PARTS", 2)
    monkeypatch.setattr(fused, "TILE", 128)
    x, theta = drawn(20, 15, spread=2.0, dtype=torch.float32), drawn(*shape, 2, seed=1, dtype=torch.float32)
    first, second = check(x, theta), value_and_gradients(bend, x, theta, **OPTIONS)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    found = check(drawn(300, spread=2.0, dtype=dtype), drawn(1, 9, dtype=torch.float32))
    assert [t.dtype for t in found] == [dtype, dtype, torch.float32]


def test_other_memory_orders():
    theta = drawn(3, 1, 1, 4, dtype=torch.float32)
    x = drawn(2, 3, 4, 5, spread=2.0, dtype=torch.float32)
    check(x.to(memory_format=torch.channels_last), theta)
    check(drawn(2, 3, 4, 10, dtype=torch.float32)[..., ::2], theta)


def test_replicas_sum_as_they_would_alone():
    x, theta = drawn(2, 10, 40, spread=2.0, dtype=torch.float32), drawn(2, 1, 4, dtype=torch.float32)

    def gradients(theta, x):
        return torch.func.grad(lambda t, x: bend(x, t, **OPTIONS).square().sum(), argnums=(0, 1))(theta, x)

    together = torch.func.vmap(gradients)(theta, x)
    for at in range(2):
        for ours, alone in zip(together, gradients(theta[at], x[at]), strict=True):
            assert torch.equal(ours[at], alone)


def test_what_is_not_a_number_or_outside():
    x = torch.tensor([math.nan, math.inf, -math.inf, -3.0, 3.0, 1e18, -1e18, 7.0, 1.0], requires_grad=True)
    theta = drawn(1, 9, spread=2.0, dtype=torch.float32).requires_grad_()
    alone = bend(x, theta, **OPTIONS | {"gated": False})
    assert alone[1:8].equal(x[1:8])
    assert alone[0].isnan()
    assert alone[8] != 1
    gated = bend(x, theta, **OPTIONS)
    assert gated[2] == 0
    assert gated[6] == 0
    assert gated[1] == math.inf
    assert gated[0].isnan()
    by_x, by_theta = torch.autograd.grad(gated.sum(), [x, theta])
    assert by_x[1:3].tolist() == [1, 0]
    assert by_x[5:7].tolist() == [1, 0]
    assert by_x[0].isnan()
    assert by_theta.isfinite().all()
    assert by_theta.any()


def test_steep_cells_give_numbers_and_a_velocity_that_is_none_shows():
    theta = torch.tensor([[-150.0, 150.0, -150.0, 0.0, 150.0]])
    assert all(t.isfinite().all() for t in value_and_gradients(bend, torch.linspace(-3, 3, 601), theta, **OPTIONS))
    theta[0, 2] = math.nan
    assert bend(torch.tensor([0.1, -0.1]), theta, **OPTIONS).isnan().all()


def test_empty_and_one_gradient_alone():
    x, theta = drawn(5, 8, spread=2.0, dtype=torch.float32), drawn(1, 4, dtype=torch.float32)
    assert [t.shape for t in value_and_gradients(bend, x[:0], theta, **OPTIONS)] == [(0, 8), (0, 8), (1, 4)]
    _, *wanted = value_and_gradients(bend, x, theta, **OPTIONS)
    for at in range(2):
        given = [x.clone(), theta.clone()]
        given[at].requires_grad_()
        assert torch.equal(torch.autograd.grad(bend(*given, **OPTIONS), given[at], outer_slopes(x))[0], wanted[at])
