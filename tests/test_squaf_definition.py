"""SQUAF as a definition: its formula against its numbers, its claims, its defaults and its name."""

import copy
import math
import pickle

import pytest
import sympy
import torch

import softknee as sk
from softknee.errors import ParameterError
from softknee.zoo.squaf import alpha, k, q, z, z_range, z_step
from softknee.zoo.squaf import squaf as act
from squaf_reference import inputs, parameters

WEIGHTS = ["gaussian", "laplacian"]
F64 = torch.float64


def table(count: int = 5, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed), dtype=F64)


def test_it_is_one_of_the_names():
    assert "squaf" in sk.names()
    assert sk.get("squaf") is act
    assert (act.name, act.knob, act.knobs, act.toward, act.limit) == (
        "squaf",
        "alpha",
        ("alpha",),
        sympy.oo,
        None,
    )
    assert [p.name for p in act.params] == ["q", "alpha", "z"]
    assert "round(x/q)" in act.about
    assert act.latex().startswith(r"\operatorname{squaf}(x) = \frac{\sum_{i=- k}^{k}")
    assert act.derivative(2).latex().startswith(r"\operatorname{squaf}''(x)")
    assert repr(act) == "<activation squaf(q=0.5, alpha=5.0, z=relu)>"
    with pytest.raises(ParameterError, match=r"no parameter 'alpa'.*Did you mean 'alpha'"):
        act.param("alpa")


@pytest.mark.slow
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_formula_and_its_derivatives_are_what_is_computed(order, weights):
    one = act.with_weights(weights).derivative(order)
    values = table()
    expression = one.formula.subs({k: 2, q: sympy.Rational(2, 5), alpha: 3}).doit()
    for number in range(-2, 3):
        expression = expression.subs(z[number], sympy.Float(values[number + 2].item(), 40))
    points = [-1.93, -0.5, 0.13, 0.7, 1.1]
    truth = [float(expression.subs(sk.spec.x, sympy.Float(point, 40)).evalf(30)) for point in points]
    x = torch.tensor(points, dtype=F64)
    result = one(x, q=0.4, alpha=3.0, z=values, window=None)
    torch.testing.assert_close(result, torch.tensor(truth, dtype=F64), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("window", [3, 5, None])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_derivatives_agree_with_autograd_and_are_differentiable(weights, window):
    p = parameters()
    x = inputs(40).requires_grad_()
    options = {**p, "window": window, "weights": weights}
    slope = act(x, **options)
    for order in (1, 2, 3):
        own = act.derivative(order)(x, **options)
        (slope,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        torch.testing.assert_close(own, slope, rtol=1e-9, atol=1e-9)


def test_derivatives_on_a_general_grid():
    grid, x = torch.tensor([-1.0, 0.2, 0.5, 2.0], dtype=F64), inputs(9).requires_grad_()
    value = act(x, grid=grid, z=table(4))
    (slope,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(act.derivative(1)(x, grid=grid, z=table(4)), slope)
    torch.testing.assert_close(act.derivative(1).derivative(1)(x, grid=grid, z=table(4)), bend)


# ---- claims -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_lipschitz_bound_holds_and_is_within_a_small_factor(weights):
    bound_of = sympy.lambdify([q, alpha, z_step, z_range], act.with_weights(weights).claims.lipschitz, "math")
    closest = 0.0
    for seed in range(30):
        h = 10 ** (seed / 6 - 2.5)
        spacing, size = 0.1 + seed % 4, 2 * (1 + seed % 5) + 1
        sharpness = h / spacing if weights == "laplacian" else h / spacing**2
        heights = table(size, seed=seed)
        if seed % 3 == 0:
            heights = (torch.arange(size) > size // 2).to(F64)  # a step, where a slope is steepest
        if seed % 3 == 1:
            heights = torch.arange(size, dtype=F64)
        x = torch.linspace(-1.2, 1.2, 4001, dtype=F64) * spacing * (size // 2)
        slope = act.derivative(1)(x, q=spacing, alpha=sharpness, z=heights, window=None, weights=weights)
        steps = (heights.diff().abs().max().item(), (heights.max() - heights.min()).item())
        bound = bound_of(spacing, sharpness, *steps)
        assert slope.abs().max().item() <= bound * (1 + 1e-12)
        closest = max(closest, slope.abs().max().item() / bound)
    assert closest > 0.75


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("window", [3, 5, None])
def test_a_rising_table_makes_a_rising_function(window, weights):
    rising = table(9).sort().values
    x = torch.linspace(-4, 4, 4001, dtype=F64)
    for sharpness in (0.1, 1.0, 10.0):
        values = act(x, q=0.7, alpha=sharpness, z=rising, window=window, weights=weights)
        assert (values.diff() >= -1e-14).all()
    falls = act(x, q=0.7, alpha=1000.0, z=table(9), window=window, weights=weights)
    assert (falls.diff() < -0.1).any()


def test_smoothness_is_claimed_as_it_is():
    assert act.claims.smoothness == math.inf
    assert act.with_weights("laplacian").claims.smoothness == 0
    assert act.claims.zeros == sympy.S.EmptySet
    assert act.derivative(1).claims is None
    beside = torch.tensor([0.5 - 1e-9, 0.5 + 1e-9], dtype=F64)  # a grid point
    kink = act.derivative(1)(beside, z=table(), weights="laplacian")
    smooth = act.derivative(1)(beside, z=table())
    assert kink.diff().abs().item() > 1e-2 > 1e-7 > smooth.diff().abs().item()


def test_the_knob_hardens_it_into_the_staircase():
    x = torch.tensor([-2.0, -0.9, -0.26, 0.1, 0.24, 0.26, 3.0], dtype=F64)
    heights = table()
    stairs = heights[(x / 0.5).round().clamp(-2, 2).long() + 2]
    torch.testing.assert_close(act(x, alpha=1e5, z=heights), stairs)


# ---- arguments --------------------------------------------------------------------------------------


def test_defaults_are_the_papers():
    x = inputs(50)
    heights = torch.tensor([0.0, 0.0, 0.0, 0.5, 1.0], dtype=F64)
    torch.testing.assert_close(act(x), act(x, k=2, q=0.5, alpha=5.0, z=heights, window=5))
    torch.testing.assert_close(act(x, k=4, q=0.25), act(x, k=4, q=0.25, alpha=24.0))
    torch.testing.assert_close(act(x, alpha="auto"), act(x, alpha=6.0))
    torch.testing.assert_close(act(x, q=0.25, weights="laplacian"), act(x, q=0.25, alpha=6.0, weights="laplacian"))


@pytest.mark.parametrize("start", ["gelu", torch.nn.functional.gelu, sk.get("gelu")], ids=["name", "torch", "own"])
def test_z_samples_a_function(start):
    x, points = inputs(50), 0.25 * torch.arange(-16, 17, dtype=F64)
    result = act(x, k=16, q=0.25, z=start)
    torch.testing.assert_close(result, act(x, q=0.25, z=torch.nn.functional.gelu(points)))
    near = x[x.abs() < 3.5]
    assert (act(near, k=16, q=0.25, z=start) - torch.nn.functional.gelu(near)).abs().max() < 0.05


def test_windows():
    x, p = inputs(100), {"k": 16, "q": 0.25, "z": "gelu"}
    exact = act(x, **p, window=None)
    assert torch.equal(act(x, **p, window="auto", tolerance=1e-3), act(x, **p, window=5))
    assert torch.equal(act(x, **p, window="auto"), act(x, **p, window=7))
    assert (act(x, **p) - exact).abs().max() < 1e-3
    assert (act(x, **p) - exact).abs().max() > 1e-7


def test_gradients_reach_every_parameter_given_as_a_tensor():
    given = {name: t.requires_grad_() for name, t in parameters().items()}
    grads = torch.autograd.grad(act(inputs(30), **given).square().sum(), list(given.values()))
    assert all(g.abs().sum() > 0 for g in grads)


# ---- a name like any other --------------------------------------------------------------------------


@pytest.mark.parametrize("one", [act, act.derivative(1), act.with_weights("laplacian").derivative(2)])
def test_it_is_pickled_by_name(one):
    assert pickle.loads(pickle.dumps(one)) is one
    assert copy.deepcopy(one) is one


@pytest.mark.slow
def test_explain_and_compile():
    assert sk.explain(act, torch.zeros(3, dtype=F64)).path == "plain"
    assert "derivative" in sk.explain(act.derivative(1), torch.zeros(3)).reason
    x = inputs(20, dtype=torch.float32)

    def model(x):
        return sk.get("squaf")(x, k=3, z="gelu") + act.derivative(1)(x)

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
