"""Formulas of a user's own, drawn at random: whatever SymPy makes of their derivatives, the values are right."""

import copy
import gc
import linecache
import random
import weakref

import pytest
import sympy
import torch
import torch.fx

import softknee as sk
from softknee.spec import (
    Activation,
    Expm1,
    Log1p,
    NormalCdf,
    NormalPdf,
    Ramp,
    Sigmoid,
    Softplus,
    Tanh,
    Unit,
    positive,
    real,
    x,
)
from softknee.spec.algebra import Expr
from softknee.spec.reference import evaluate

PARAMS = (positive("a", 1.31), real("b", -0.43))
A, B = (p.symbol for p in PARAMS)
# No sum of these and the parameters lies on a seam of the functions below.
POINTS = (-1.717, -0.329, 0.457, 1.913)
FUNCTIONS = (
    Sigmoid,
    Tanh,
    Softplus,
    NormalCdf,
    NormalPdf,
    Ramp,
    Unit,
    Expm1,
    sympy.exp,
    sympy.sin,
    sympy.cos,
    sympy.Abs,
    lambda u: sympy.Max(u, 0),
    lambda u: Log1p(u**2),
    lambda u: u**3,
)


def _formula(draw: random.Random, depth: int) -> Expr:
    if depth == 0:
        number = sympy.Rational(draw.randint(-5, 5), draw.randint(1, 5))
        return draw.choice([x, x, x, A, B, number])
    kind = draw.random()
    first = _formula(draw, depth - 1)
    if kind < 0.75:
        second = _formula(draw, depth - 1)
        if kind < 0.3:
            return first + second
        if kind < 0.55:
            return first * second
        if kind < 0.65:
            return first / (1 + second**2)
        return sympy.Piecewise((first, x < draw.choice([0, A, B])), (second, True))
    return draw.choice(FUNCTIONS)(first)


def _definitions(seed: int, count: int) -> list[Activation]:
    draw, result = random.Random(seed), []
    while len(result) < count:
        formula = sympy.sympify(_formula(draw, 3))
        if x in formula.free_symbols:
            result.append(Activation(f"own{seed}_{len(result)}", formula, params=PARAMS))
    return result


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_values_and_slopes_of_random_formulas(seed: int) -> None:
    points = torch.tensor(POINTS, dtype=torch.float64)
    for act in _definitions(seed, 8):
        for part in (act, *(act.partial(name) for name in ("x", "a", "b"))):
            for at, got in zip(POINTS, part(points).tolist(), strict=True):
                want = float(evaluate(part, at))
                assert got == pytest.approx(want, rel=1e-9, abs=1e-9), (part.name, act.formula, at)


def test_a_kink_of_abs_can_be_differentiated_twice() -> None:
    act = Activation("own_softsign", x / (1 + sympy.Abs(x)))
    points = torch.tensor([-2.0, 0.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(act, points)
    assert act.derivative(2)(points).tolist() == pytest.approx([2 / 27, -2 / 1.5**3])


def test_a_constant_used_twice_is_a_number() -> None:
    e3 = sympy.exp(3)
    act = Activation("own_constant", x * Ramp(e3 / (1 + e3), evaluate=False) + e3)
    assert act(torch.zeros(1, dtype=torch.float64)).item() == pytest.approx(float(e3))


# A slope that is x itself, one that is also the slope of a parameter, and one that is a parameter.
SHARED = {"x^2/2": x**2 / 2, "tanh(x + b)": Tanh(x + B), "a x": A * x, "x + b": x + B}


@pytest.mark.parametrize("text", SHARED)
def test_the_gradients_of_a_large_tensor_do_not_write_into_each_other(text: str):
    """Large enough to be worked on in blocks on a CPU."""
    act = Activation("shared", SHARED[text], params=tuple(p for p in PARAMS if SHARED[text].has(p.symbol)))
    large = torch.randn(1 << 19, generator=torch.Generator().manual_seed(0))
    grad, before = large.flip(0), large.clone()
    values = {p.name: torch.full((1,), p.default, requires_grad=True) for p in act.params}
    leaves = [large.requires_grad_(), *values.values()]
    actual = torch.autograd.grad(act(large, **values), leaves, grad)
    assert large.equal(before)
    with torch.no_grad():
        for name, item in zip(("x", *values), actual, strict=True):
            slope = act.partial(name)(large.double(), **values) * grad
            expected = slope if name == "x" else slope.sum().reshape(1)
            torch.testing.assert_close(item.double(), expected, rtol=1e-5, atol=1e-2 if name != "x" else 1e-5)


def test_the_gradient_of_a_parameter_is_summed_with_care():
    """Half a million equal terms: a running float32 sum loses its fourth digit."""
    values = {"b": torch.zeros(1, requires_grad=True)}
    y = Activation("moved", x + B, params=PARAMS[1:])(torch.zeros(1 << 19), **values)
    y.backward(torch.full_like(y, 0.01))
    torch.testing.assert_close(values["b"].grad, torch.tensor([0.01 * (1 << 19)]), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("x/sqrt(1+x**2)", lambda x: x * torch.rsqrt(1 + x * x)),
        ("x/sqrt(1+x**2)**3", lambda x: x * (1 + x * x) ** -1.5),
        ("x*sqrt(1+x**2)**5", lambda x: x * (1 + x * x) ** 2.5),
        ("asinh(x)", torch.asinh),
    ],
)
def test_roots_and_their_powers(text, truth):
    x = torch.linspace(-3, 3, 25, dtype=torch.float64, requires_grad=True)
    function = sk.design.definition(text)
    torch.testing.assert_close(function(x), truth(x))
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))


@pytest.mark.slow
def test_definitions_that_nobody_holds_are_gone() -> None:
    """A search over thousands of functions stays in bounded memory, with gradients, modules and exact values."""

    made: list[weakref.ref[Activation]] = []
    for number in range(200):
        act = sk.design.definition(f"x + tanh({number} * x)", name=f"candidate_{number % 150}")
        points = torch.tensor(POINTS, requires_grad=True)
        again = number % 25 == 0
        (slope,) = torch.autograd.grad(act(points).sum(), points, create_graph=again)
        if again:
            slope.sum().backward()
            sk.nn.Pointwise(act)(torch.zeros(3))
            evaluate(act, 0.5)
        made.append(weakref.ref(act))
    del act
    gc.collect()
    assert sum(item() is not None for item in made) <= 16
    assert sum("candidate" in name for name in linecache.cache) <= 64


def test_a_graph_outlives_the_definition_that_made_it() -> None:
    points = torch.tensor(POINTS, requires_grad=True)
    result = sk.design.definition("x * sigmoid(x)", name="fleeting")(points)
    gc.collect()
    (slope,) = torch.autograd.grad(result.sum(), points, create_graph=True)
    slope.sum().backward()
    gate = torch.sigmoid(points.detach())
    torch.testing.assert_close(slope.detach(), gate + points.detach() * gate * (1 - gate))


def test_a_traced_graph_holds_its_definition() -> None:
    traced = torch.fx.symbolic_trace(sk.nn.Pointwise(sk.design.definition("x * tanh(x)", name="fleeting")))
    gc.collect()
    points = torch.tensor(POINTS)
    for graph in (traced, copy.deepcopy(traced)):
        torch.testing.assert_close(graph(points), points * torch.tanh(points))
