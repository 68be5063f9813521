"""Formulas for people: the pieces that are typeset are the function, derivative by derivative."""

from __future__ import annotations

from functools import cache

import mpmath
import pytest
import sympy

import softknee as sk
from helpers import SUBJECTS, ordinary_values
from softknee.lab import typeset
from softknee.spec import Activation, elementary, u, v, x
from softknee.spec.reference import evaluate

pieces_of = cache(typeset.pieces_of)  # half a second each, and asked for twice
PLACES = (-3.1, -0.9, -0.41, -0.07, 0.29, 0.83, 4.3)


def value_of(pieces, at: float, given: dict) -> mpmath.mpf:
    """What the pieces say at a place, worked out by SymPy and mpmath from textbook functions."""
    seams = [seam.subs(given) for seam in pieces.seams]
    part = pieces.parts[sum(1 for seam in seams if at > seam)]
    return mpmath.mpf(sympy.N(elementary(part).subs(given | {x: sympy.Float(at, 50)}), 50))


# A constant of the bump kernel is a number of many digits, printed to eight: there the letters are not the function.
EXACT = {name: act for name, act in SUBJECTS.items() if not act.formula.has(sympy.Float)}


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("act", EXACT.values(), ids=EXACT)
def test_the_pieces_are_the_function(act: Activation, order: int):
    values = ordinary_values(act)
    given = {p.symbol: sympy.Float(values[p.name], 50) for p in act.params}
    decimals = {symbol: sympy.Float(symbol.name, 50) for symbol in _numbers(act, order)}
    with mpmath.workdps(50):
        places = PLACES if act.implicit is None else PLACES[::3]
        places = places if order == 0 else places[::2]  # the seams are the same in every derivative
        compare(act, order, values, given | decimals, places)


def compare(act: Activation, order: int, values: dict[str, float], given: dict, places: tuple[float, ...]) -> None:
    derivative = act.derivative(order)
    in_x = pieces_of(derivative.formula)
    in_u = pieces_of(derivative.bound_formula) if act.inner is not None else None
    for at in places:
        truth = evaluate(derivative, at, **values)
        letters = given | ({v: sympy.Float(evaluate(act, at, **values), 50)} if act.implicit is not None else {})
        values_there = [value_of(in_x, at, letters)]
        if act.inner is not None:
            inside = elementary(act.inner.value).subs(given | {x: sympy.Float(at, 50)})
            values_there.append(value_of(in_u, at, letters | {u: inside}))
        for value in values_there:
            assert abs(value - truth) <= 1e-25 * (1 + abs(truth)), (act.name, at)


def _numbers(act: Activation, order: int) -> set:
    """Symbols that stand for decimals, such as 0.044715."""
    symbols = set()
    for expr in (act.derivative(order).formula, act.derivative(order).bound_formula):
        for part in pieces_of(expr).parts:
            symbols |= {symbol for symbol in part.free_symbols if symbol.name[0].isdigit()}
    return symbols


def test_a_constant_of_many_digits_is_printed_to_eight():
    left_out = set(SUBJECTS) - set(EXACT)
    assert left_out == {"relu_bump"}
    assert "2.2522836" in typeset.formula(SUBJECTS["relu_bump"], 2).latex


def test_a_seam_belongs_to_both_sides_unless_the_function_jumps_there():
    assert typeset.formula(sk.get("relu"), 0).latex == r"\begin{cases} 0 & x \le 0 \\ x & x \ge 0 \end{cases}"
    assert typeset.formula(sk.get("relu"), 1).latex == r"\begin{cases} 0 & x < 0 \\ 1 & x > 0 \end{cases}"
    assert typeset.formula(sk.get("relu"), 2).latex == "0"
    smooth = typeset.formula(sk.get("srelu"), 2).latex
    assert r"x \le - \delta" in smooth
    assert r"\frac{3 \left(\delta - x\right) \left(x + \delta\right)}{4 \delta^{3}}" in smooth


def test_a_formula_without_claims_is_looked_at():
    knee = Activation("knee", sympy.Piecewise((0, x < 0), (x**2, True)))
    assert r"\le" in typeset.formula(knee, 1).latex
    assert r"\le" not in typeset.formula(knee, 2).latex


def test_primitives_are_written_out_or_explained():
    assert typeset.formula(sk.get("softplus")).latex == r"\frac{\log{\left(e^{\beta x} + 1 \right)}}{\beta}"
    assert typeset.formula(sk.get("smooth_relu")).latex.count("log1p") == 0
    assert typeset.formula(sk.get("gelu")).where == (r"\Phi \text{ the standard normal distribution function}",)
    long = typeset.formula(sk.get("gelu_tanh"), 2)
    assert any(words.startswith("w = ") for words in long.where)
    assert "0.044715" in " ".join(long.where)
    assert "40" not in typeset.formula(sk.get("crrelu_exact")).latex  # a guard of the arithmetic is no mathematics


def test_what_cannot_be_split_is_typeset_as_it_stands():
    act = Activation("wave", sympy.Abs(sympy.sin(x)))
    assert "sin" in typeset.formula(act).latex
    assert "sin" in typeset.closed_form(act)


def test_closed_form_is_text():
    assert typeset.closed_form(sk.get("hardtanh")) == "-1 if x < -1; x if x < 1; 1 otherwise"
    assert typeset.closed_form(sk.get("tanh")) == "tanh(x)"
