"""Pieces that join, pieces that do not, and the piece between two functions: exact, and in float32 to the last bits."""

import itertools
import math

import pytest
import sympy
import torch

import softknee as sk
from helpers import F32, F64
from joined import ALPHA, BETA, G_MINUS, G_PLUS, JOINED, alpha, beta, g_minus, g_plus, lines, t
from softknee.design import join, joining, rescu
from softknee.design.joining import guard
from softknee.spec import (
    Activation,
    Between,
    Line,
    NormalPdf,
    Param,
    Sigmoid,
    Tanh,
    elementary,
    real,
    x,
)
from softknee.spec.algebra import Expr
from softknee.spec.pieces import split
from softknee.spec.reference import evaluate


def same(first: Expr, second: Expr) -> bool:
    """Whether two expressions in x have the same pieces, by algebra."""
    a, b = split(first), split(second)
    gaps = [p - q for p, q in zip((*a.seams, *a.parts), (*b.seams, *b.parts), strict=True)]
    return all(sympy.simplify(elementary(gap)) == 0 for gap in gaps)


# -- the paper's functions --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["generalized_smelu", "asymmetric_smelu", "leaky_smelu", "smelu"])
def test_two_lines_make_the_family_of_smelu(name: str) -> None:
    made = {
        "generalized_smelu": lines(),
        "asymmetric_smelu": JOINED["asymmetric"],
        "leaky_smelu": join(g_minus * (x + beta), x, between=(-beta, beta), params=[BETA, G_MINUS]),
        "smelu": join(0, x, between=(-beta, beta), params=[BETA]),
    }
    assert same(made[name].formula, sk.get(name).formula)


def test_a_line_through_the_origin_gives_generalized_smelu_at_the_height_it_has() -> None:
    made = join(g_minus * x, g_plus * x, between=(-alpha, beta), params=[ALPHA, BETA, G_MINUS, G_PLUS])
    assert same(made.formula, sk.get("generalized_smelu").formula.subs(t, -g_minus * alpha))


def test_rescu_assembles_the_papers_functions() -> None:
    sigmoid = rescu([(2 * beta * Sigmoid(2 * (x - beta) / beta), beta), x], params=[BETA], smoothness=2)
    smooth_relu = rescu([(0, 0), "-log1p_minus(beta * x) / beta"], params=[BETA])
    textbook = rescu([(0, 0), "x - log1p(beta * x) / beta"], params=[BETA])
    points = torch.linspace(-6, 6, 121, dtype=F64)
    for name, made in {"sigmoid_rescu": sigmoid, "smooth_relu": smooth_relu, "smelu": JOINED["smelu"]}.items():
        torch.testing.assert_close(made(points, beta=0.7), sk.get(name)(points, beta=0.7), rtol=1e-14, atol=1e-15)
    assert same(elementary(textbook.formula), elementary(sk.get("smooth_relu").formula))
    assert same(rescu([("celu", 0), "x"]).formula, sk.get("celu").formula)


def test_the_swish_like_shape_dips_and_comes_back() -> None:
    act = JOINED["swish_like"]
    points = torch.linspace(-9, 3, 1201, dtype=F64)
    values = act(points)
    assert (values[points <= -7] == 0).all()
    assert torch.equal(values[points >= 1], points[points >= 1])
    assert values.min().item() == pytest.approx(float(evaluate(act, -5 / 3)), abs=1e-5)
    bend = act.derivative(2)(torch.tensor([-3.0, -1.0], dtype=F64))
    assert bend[0] < 0 < bend[1]  # the concave piece is left of the convex one


# -- smoothness, by algebra and to 40 digits --------------------------------------------------------------

GENERIC: dict[str, tuple[Expr, Expr]] = {
    "lines": (g_minus * x, g_plus * x),
    "sigmoid to softplus": (Sigmoid(x), sympy.log(1 + sympy.exp(x))),
    "tanh to cubic": (Tanh(x), x**3 / 9),
    "curve to line": (x * Sigmoid(x), x),
}


def parts_with_numbers(act: Activation) -> list[Expr]:
    exact = {p.symbol: sympy.Rational(str(p.default)) for p in act.params}
    return [elementary(part).subs(exact).evalf(60) for part in split(act.formula).parts]


def number(expr: Expr, order: int, at: Expr) -> float:
    return float(sympy.diff(expr, x, order).subs(x, at).evalf(40))


# All of them for lines; of the others each smoothness once, and each way of the ends, since the polynomial between
# depends on the derivatives at the ends alone.
JOINS = [
    *itertools.product(["lines"], [1, 2, 3], [False, True]),
    *(("sigmoid to softplus", smoothness, smoothness == 2) for smoothness in (1, 2, 3)),
    *(("tanh to cubic", smoothness, smoothness != 2) for smoothness in (1, 2, 3)),
    *(("curve to line", smoothness, smoothness == 1) for smoothness in (1, 2, 3)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "smoothness", "fixed"), JOINS)
def test_a_join_is_as_smooth_as_asked_and_no_smoother(name: str, smoothness: int, fixed: bool) -> None:
    sides = GENERIC[name]
    params = [real("g_minus", 0.2), real("g_plus", 1.3)] if name == "lines" else []
    act = join(*sides, between=(-1.5, 0.8), smoothness=smoothness, fixed=fixed, params=params)
    left, middle, right = parts_with_numbers(act)
    a, b = sympy.Rational(-3, 2), sympy.Rational(4, 5)
    gaps = [(middle - left, a), (middle - right, b)]
    for order in range(smoothness + 1):
        assert all(abs(number(gap, order, at)) < 1e-30 for gap, at in gaps)
    assert max(abs(number(gap, smoothness + 1, at)) for gap, at in gaps) > 1e-3
    degree = 2 * smoothness + fixed
    assert abs(number(middle, degree + 1, sympy.Rational(1, 3))) < 1e-30
    given = [elementary(side).subs({p.symbol: sympy.Rational(str(p.default)) for p in params}) for side in sides]
    assert all(abs(number(left - given[0], 0, sympy.Integer(at))) < 1e-30 for at in (-2, -5))  # left is fixed
    lifts = [number(right - given[1], 0, sympy.Integer(at)) for at in (1, 4)]
    assert abs(lifts[0] - lifts[1]) < 1e-30  # right moves by a constant,
    assert (abs(lifts[0]) < 1e-30) == fixed  # or not at all


def test_fixed_ends_stay_where_they_are() -> None:
    act = join(0, "x", between=(-1, 1), fixed=True)
    assert same(act.formula, sympy.Piecewise((0, x <= -1), (x, x >= 1), ((x + 1) ** 2 / 4, True)))
    act = join(0, "x + 1", between=(-1, 1), fixed=True)
    assert split(act.formula).parts[-1] == x + 1


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("order", range(1, 7))
def test_the_basis_has_the_derivatives_it_says(order: int, fixed: bool) -> None:
    sides = joining.basis(order, fixed)
    for side, end in itertools.product((0, 1), repeat=2):
        for j, i in itertools.product(range(order + 1), repeat=2):
            result = joining.derivative(sides[side][j], i).eval(end)
            if fixed or i > 0:
                assert result == int(i == j and end == side)
            elif end == 0:
                assert result == int(side == j == 0)  # the value on the left; that on the right is free
    assert max(item.degree() for side in sides for item in side) == 2 * order + fixed


@pytest.mark.parametrize("polynomial", [(0, 0, 1, -1), (3, -2), (1, 0, -3), (0, -2, 1), (1, -2, 1), (5,), ()], ids=str)
def test_a_polynomial_is_written_again_as_itself(polynomial: tuple[int, ...]) -> None:
    result = joining.written(sympy.Poly(polynomial[::-1] or [0], sympy.Symbol("s")), x, 1 - x)
    assert sympy.expand(result - sum(c * x**i for i, c in enumerate(polynomial))) == 0


# -- refusals ---------------------------------------------------------------------------------------------

REFUSED = {
    "a kink": ([(0, 0), "x"], ["piece 1 and piece 2", "x = 0", "values 0 and 0", "slopes 0 and 1"]),
    "a jump": ([(0, 1), "x"], ["x = 1", "values 0 and 1", "slopes 0 and 1"]),
    "a kink for all but one parameter": ([("beta * x", 0), "x"], ["slopes beta and 1", "beta = "]),
    "the second join": (
        [(0, "-beta"), ("(x + beta)**2 / (4 * beta)", "beta"), "x + 1"],
        ["piece 2 and piece 3", "x = beta", "values beta and beta + 1", "slopes 1 and 1"],
    ),
    "a kink inside a piece": ([("relu", "beta"), "x"], ["two parts of piece 1", "x = 0", "slopes 0 and 1"]),
    "elu": ([("elu", 0), "x"], ["slopes beta and 1"]),
}


@pytest.mark.parametrize(("pieces", "words"), REFUSED.values(), ids=REFUSED)
def test_a_join_that_does_not_meet_is_refused_with_its_numbers(pieces: list, words: list[str]) -> None:
    params = [BETA] if "beta" in str(pieces) else []
    with pytest.raises(sk.DefinitionError) as refused:
        rescu(pieces, params=params)
    for word in [*words, "do not join", "continuously differentiable"]:
        assert word in str(refused.value)


def test_more_smoothness_can_be_asked_for() -> None:
    with pytest.raises(sk.DefinitionError, match=r"derivatives of order 2 0 and 1/\(2\*beta\)"):
        rescu([(0, "-beta"), ("(x + beta)**2 / (4 * beta)", "beta"), "x"], params=[BETA], smoothness=2)


def test_a_join_that_is_true_but_not_obvious_is_proved() -> None:
    hidden = sympy.log(sympy.exp(x) * sympy.exp(2)) + sympy.sin(beta) ** 2 + sympy.cos(beta) ** 2 - 3
    assert split(rescu([(hidden, 0), x], params=[BETA]).formula).parts[-1] == x


def test_what_cannot_be_decided_is_not_guessed() -> None:
    machin = 4 * sympy.atan(sympy.Rational(1, 5)) - sympy.atan(sympy.Rational(1, 239))  # is pi/4
    with pytest.raises(sk.DefinitionError, match="cannot be decided"):
        rescu([(machin, 0), sympy.pi / 4])


WRONG = {
    "one piece": (lambda: rescu(["x"]), "2 to 32 pieces"),
    "a text": (lambda: rescu("x"), "2 to 32 pieces"),
    "no end": (lambda: rescu(["0", "x"]), "pair"),
    "an end too many": (lambda: rescu([(0, 0), ("x", 1)]), "goes on for ever"),
    "out of order": (lambda: rescu([(0, 1), (0, 0), 0]), "not in order"),
    "order unknown": (lambda: rescu([(0, g_minus), (0, g_plus), 0], params=[G_MINUS, G_PLUS]), "order of two seams"),
    "x as a point": (lambda: rescu([(0, x), x]), "do not contain x"),
    "undeclared": (lambda: rescu([(0, beta), x]), "declare each parameter"),
    "unused": (lambda: rescu([(0, 0), 0], params=[BETA]), "nothing in it contains"),
    "no param": (lambda: rescu([(0, 0), 0], params=["beta"]), "softknee.spec.Param"),
    "no function": (lambda: rescu([(None, 0), 0]), "NoneType was given"),
    "by its inverse": (lambda: rescu([("crrelu_exact", 0), 0]), "no closed form"),
    "two betas": (lambda: join("swish", "beta * x", between=(0, 1), params=[real("beta", 1.0)]), "two parameters"),
    "too smooth": (lambda: join(0, x, between=(0, 1), smoothness=5), "from 1 to 4"),
    "not smooth": (lambda: join(0, x, between=(0, 1), smoothness=0), "from 1 to 4"),
    "no window": (lambda: join(0, x, between=(1, 1)), "is not below"),
    "one end": (lambda: join(0, x, between=(1,)), "between=(a, b)"),
    "a kink outside": (lambda: join("relu", x, between=(1, 2)), "two parts of the left function"),
    "a pole": (lambda: rescu([(0, 0), "1 / x"]), "values 0 and undefined"),
    "a pole at an end": (
        lambda: join("log(x)", 0, between=(0, 1)),
        "the left function or one of its slopes is undefined",
    ),
    "not real at an end": (lambda: join(0, "log(x)", between=(-2, -1)), "finite real number is needed"),
    "no derivative": (lambda: join(sympy.floor(x), x, between=(0, 1)), "finite real number is needed"),
    "neither fixed nor free": (lambda: join(0, x, between=(0, 1), fixed="no"), "fixed=True or fixed=False"),
    "rounded": (lambda: rescu([(0, -0.3), ((x + 0.3) ** 2 / 1.2, 0.3), x]), "differ by rounding alone"),
    "infinite": (lambda: join(sympy.oo, x, between=(1, 2)), "not a finite real"),
    "unknown text": (lambda: join("swosh", x, between=(1, 2)), "Did you mean 'swish'"),
}


@pytest.mark.parametrize(("call", "words"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_get_a_sentence(call, words: str) -> None:
    with pytest.raises(sk.SoftkneeError) as refused:
        call()
    assert words in str(refused.value)
    assert str(refused.value).endswith((".", "?"))


# -- numbers ----------------------------------------------------------------------------------------------


def test_slopes_are_exact_at_the_ends_of_the_window() -> None:
    for act in (JOINED["lines"], JOINED["lines_2"], JOINED["lines_3"]):
        slope = act.derivative(1)
        at = torch.tensor([-0.3, 0.7, -math.inf, math.inf], dtype=F32)
        values = {"alpha": 0.3, "beta": 0.7, "g_minus": 0.1, "g_plus": 1.25, "t": 0.5}
        assert slope(at, **values).tolist() == torch.tensor([0.1, 1.25, 0.1, 1.25], dtype=F32).tolist()


def test_only_what_is_proved_is_claimed() -> None:
    claimed = {name for name, act in JOINED.items() if act.claims is not None}
    assert claimed == {"smelu", "swish_like", "leaky", "lines", "lines_2", "lines_3", "asymmetric"}
    assert rescu([("celu", 0), "x"]).claims is None
    assert join("sigmoid", "x", between=(0, 1)).claims is None


TAILS = {
    "gates": rescu([("x * sigmoid(beta * x)", "-beta"), "x * sigmoid(beta * x)"], params=[BETA]),
    "sigmoid": rescu([("2 * beta * sigmoid(2 * x / beta - 2)", "beta"), "x"], params=[BETA]),
    "celu": rescu([("celu", 0), "x"]),
    "swish to a line": join("swish", "x", between=("beta", "2 * beta"), smoothness=2, params=[BETA]),
    "density": join("x**2 * normal_pdf(x)", "x * exp(-x)", between=(-1, 1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [F64, F32], ids=["float64", "float32"])
@pytest.mark.parametrize("act", TAILS.values(), ids=TAILS)
def test_a_vanishing_tail_has_its_limit_far_out(act: Activation, dtype: torch.dtype) -> None:
    far = torch.tensor([-math.inf, -1e38, -1e30, -1e19], dtype=dtype, requires_grad=True)
    values = {p.name: torch.tensor([0.8], dtype=dtype, requires_grad=True) for p in act.params}
    y = act(far, **values)
    slopes = torch.autograd.grad(y.sum(), [far, *values.values()])
    for got in (y, *slopes, act.derivative(2)(far.detach(), **values), act.derivative(3)(far.detach(), **values)):
        assert got.isfinite().all()
        assert (got == got[0]).all()
    if act is TAILS["density"]:
        right = act(-far.detach())
        assert right.isfinite().all()
        assert (right == right[0]).all()


def test_guard_changes_the_form_and_not_the_function() -> None:
    for expr in (x**2 * Sigmoid(x) * Sigmoid(-x) / 3, x * NormalPdf(x) + x, sympy.exp(-(x**2)) * (x + 1) ** 3):
        safe = guard(expr)
        assert safe.has(Line)
        assert sympy.expand(elementary(safe) - elementary(expr)) == 0
    assert guard(x**2 + beta) == x**2 + beta


# -- arguments --------------------------------------------------------------------------------------------


def test_functions_and_points_come_in_every_form() -> None:
    forms = [
        rescu([("0", "-beta"), ("(x + beta)**2 / (4 * beta)", "beta"), "x"], params=[BETA]),
        rescu([(0, -beta), ((x + beta) ** 2 / (4 * beta), beta), x], params=[BETA]),
        rescu([(sympy.Integer(0), -sympy.Symbol("beta")), (sk.get("smelu"), sympy.Symbol("beta")), x], params=[BETA]),
    ]
    assert all(form.formula == forms[0].formula for form in forms[1:])
    assert rescu([(0, "-beta"), ("smelu", "beta"), "x"], params={"beta": 1.0}).formula == forms[0].formula
    assert join(0, "x", between=(-0.5, 0.5)).formula == join(0, x, between=("-1/2", "1/2")).formula


def test_constrained_parameters_are_drawn_inside_their_constraint() -> None:
    eps = Param("eps", 0.5, Between(low=0.0, high=1.0))
    act = rescu([(0, -eps.symbol), ((x + eps.symbol) ** 2 / (4 * eps.symbol), eps.symbol), x], params=[eps])
    assert act.claims is not None


def test_name_about_and_recipe_come_along() -> None:
    act = join(0, "x", between=("-beta", "beta"), params=[BETA], name="knee", about="Mine.")
    assert (act.name, act.about) == ("knee", "Mine.")
    assert sk.design.definition(act.recipe, params=act.params).formula == act.formula
