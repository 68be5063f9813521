"""Formulas of a user's own, drawn at random: whatever SymPy makes of their derivatives, the values are right."""

import random

import pytest
import sympy
import torch

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
    draw, found = random.Random(seed), []
    while len(found) < count:
        formula = sympy.sympify(_formula(draw, 3))
        if x in formula.free_symbols:
            found.append(Activation(f"own{seed}_{len(found)}", formula, params=PARAMS))
    return found


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
