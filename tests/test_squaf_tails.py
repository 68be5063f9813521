"""tails="linear": beyond its grid SQUAF goes on with the value and the slope of its end."""

import pytest
import torch

import softknee as sk
from helpers import F64, rounding
from softknee.errors import ParameterError
from softknee.kernels.squaf import squaf
from softknee.surgery import module_of, name_of
from squaf_reference import inputs, parameters

KINDS = pytest.mark.parametrize("weights", ["gaussian", "laplacian"])
GRID = torch.tensor([-2.0, -0.7, 0.1, 0.9, 1.4], dtype=F64)


def uniform(x, q, alpha, z, **options):
    return squaf(x, q=q, alpha=alpha, z=z, tails="linear", **options)


def general(x, grid, alpha, z, weights):
    return squaf(x, grid=grid, alpha=alpha, z=z, window=None, weights=weights, tails="linear")


def slope_of(module, at):
    x = torch.tensor(at, dtype=F64, requires_grad=True)
    return torch.autograd.grad(module(x).sum(), x)[0]


# ---- the numbers --------------------------------------------------------------------------------------


def test_the_slope_that_dies_goes_on():
    flat, linear = (sk.nn.SQUAF(k=16, q=0.25, z="relu", tails=tails, dtype=F64) for tails in ("flat", "linear"))
    dead, alive = slope_of(flat, [5.0, 6.0, -5.0]), slope_of(linear, [4.0, 5.0, 6.0, 400.0, -5.0])
    assert dead[0].item() == pytest.approx(4e-6, rel=0.2)
    assert dead[1] < 1e-9
    assert dead[2] == 0
    # At the end there are points on one side only: weights 1, e^(-1.5), e^(-6) of the last three, and 2 h Var(j).
    p = torch.softmax(torch.tensor([0.0, -1.5, -6.0], dtype=F64), 0)
    j = torch.tensor([0.0, -1.0, -2.0], dtype=F64)
    end = 3 * ((p * j**2).sum() - (p * j).sum() ** 2)
    assert end.item() == pytest.approx(0.4665, abs=1e-4)
    torch.testing.assert_close(alive[:4], end.expand(4))
    assert alive[4] == 0
    # Inside it is the same function, and beyond the end a line through the value there.
    x = torch.linspace(-4, 4, 101, dtype=F64)
    torch.testing.assert_close(flat(x), linear(x), rtol=rounding(F64), atol=rounding(F64))
    torch.testing.assert_close(linear(torch.tensor([9.0], dtype=F64)), linear(torch.tensor([4.0], dtype=F64)) + 5 * end)


@KINDS
@pytest.mark.parametrize("window", [3, 5, None])
def test_value_and_slope_are_continuous_at_both_ends(weights, window):
    p = parameters(k=3)
    end, step = 3 * p["q"].item(), 1e-7
    for side in (-1, 1):
        near = torch.tensor([side * (end - step), side * end, side * (end + step)], dtype=F64, requires_grad=True)
        value = squaf(near, **p, window=window, weights=weights, tails="linear")
        slope = torch.autograd.grad(value.sum(), near)[0]
        assert abs(value[0] - value[2]) < 20 * step
        assert abs(slope[0] - slope[2]) < 100 * step
        assert abs(slope[2]) > 1e-3


@KINDS
def test_a_general_grid_has_ends_of_its_own(weights):
    z = torch.tensor([1.0, -2.0, 0.5, 0.3, 2.0], dtype=F64)
    alpha = torch.tensor([1.3], dtype=F64)
    x = torch.tensor([-5.0, -2.0 + 1e-9, 1.4 - 1e-9, 4.0], dtype=F64, requires_grad=True)
    value = general(x, GRID, alpha, z, weights)
    flat = squaf(x, grid=GRID, alpha=alpha, z=z, window=None, weights=weights)
    slopes, inner = (torch.autograd.grad(item.sum(), x)[0] for item in (value, flat))
    torch.testing.assert_close(slopes[[0, 3]], inner[[1, 2]], rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(value[[0, 3]], flat[[1, 2]] + inner[[1, 2]] * torch.tensor([-3.0, 2.6], dtype=F64))


# ---- gradients ----------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("window", [5, None])
def test_gradients_by_everything(weights, window):
    p = {name: item.requires_grad_() for name, item in parameters(k=3).items()}
    x = (3 * inputs(12)).requires_grad_()
    assert (x.abs() > 3 * p["q"]).float().mean() > 0.3

    def run(x, q, alpha, z):
        return uniform(x, q, alpha, z, window=window, weights=weights)

    assert torch.autograd.gradcheck(run, [x, *p.values()])


# ---- the module ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types_infinities_and_nan(dtype):
    module = sk.nn.SQUAF(k=4, q=0.5, z="relu", tails="linear", learn=True)
    x = torch.tensor([torch.nan, -torch.inf, 1.0, 50.0, torch.inf], dtype=dtype, requires_grad=True)
    y = module(x)
    assert y.dtype == dtype
    assert y.isnan().tolist() == [True, False, False, False, False]
    exact = sk.nn.SQUAF(k=4, q=0.5, z="relu", tails="linear", dtype=F64)(x.detach().double())
    torch.testing.assert_close(y[1:4].double(), exact[1:4], rtol=4 * torch.finfo(dtype).eps, atol=1e-5)
    assert y[4] > 1e4
    assert module(torch.tensor(9.0)).shape == ()
    assert module(torch.zeros(0, 3)).shape == (0, 3)


def test_it_is_an_argument_not_a_tensor():
    module = sk.nn.make("squaf", k=4, q=0.5, tails="linear", learn=True)
    assert "tails='linear'" in repr(module)
    assert "tails" not in repr(sk.nn.SQUAF())
    flat = sk.nn.SQUAF(k=4, q=0.5, learn=True)
    flat.load_state_dict(module.state_dict())
    x = 3 * torch.randn(50)
    torch.testing.assert_close(module.as_soft()(x), module(x), rtol=0, atol=0)
    torch.testing.assert_close(sk.get("squaf")(x, k=4, q=0.5, tails="linear"), module(x), rtol=1e-5, atol=1e-6)
    text = name_of(module)
    assert "tails=linear" in text
    torch.testing.assert_close(module_of(text)(x), module(x))
    assert module_of("squaf(tails=linear)").tails == "linear"
    assert "linear tails" in sk.explain(module, x).reason


def test_what_has_no_linear_tails_says_so():
    module = sk.nn.SQUAF(k=4, q=0.5, tails="linear")
    for change in (module.as_step, module.as_sampled, lambda: sk.squaf_mode_(torch.nn.Sequential(module), "step")):
        with pytest.raises(ParameterError, match="values of its table alone"):
            change()
    for cls in (sk.nn.SQUAFP, sk.nn.SQUAFS):
        with pytest.raises(ParameterError, match="values of its table alone"):
            cls(tails="linear")
    with pytest.raises(ParameterError, match="'flat' or 'linear'"):
        sk.nn.SQUAF(tails="linaer")
    with pytest.raises(ParameterError, match="'flat' or 'linear'"):
        sk.get("squaf")(torch.zeros(1), tails="straight")
    with pytest.raises(ParameterError, match="derivative"):
        sk.nn.SQUAF(sk.get("squaf").derivative(), tails="linear")
    with pytest.raises(ParameterError, match="derivative"):
        sk.get("squaf").derivative()(torch.zeros(1), tails="linear")
    with pytest.raises(ParameterError, match="hard limit"):
        sk.surgery.hardening.hard_module(module)


def test_replicas_of_it():
    def make():
        act = sk.nn.SQUAF(k=2, q=0.5, z="random", tails="linear", learn=True)
        return torch.nn.Sequential(torch.nn.Linear(1, 8), act, torch.nn.Linear(8, 1))

    x = torch.linspace(-4, 4, 16).unsqueeze(1)
    fit = {"epochs": 2, "batch": 8, "lr": 0.01, "loss": "mse"}
    ours, theirs = (kind(make, count=2).fit(x, x.cos(), **fit) for kind in (sk.train.Replicas, sk.train.OneByOne))
    torch.testing.assert_close(ours.losses, theirs.losses, rtol=1e-4, atol=1e-6)
