"""The text language with its engines: what it can say, and how definitions are written again and carried on."""

import pickle
import random
from pathlib import Path

import pytest
import sympy
import torch

import processes
import softknee as sk
from helpers import F64, SUBJECTS, ZOO
from softknee import FormulaError
from softknee.design import definition, join, mollify, rescu
from softknee.design.texts.given import read_constraint, read_param, write_constraint
from softknee.spec import (
    Activation,
    AtLeastOne,
    Between,
    Line,
    Param,
    Positive,
    Ramp,
    Real,
    elementary,
    parse,
    positive,
    real,
    x,
)
from softknee.spec.algebra import Expr
from softknee.spec.text import write

BETA = positive("beta", 1.0)
beta = BETA.symbol
POINTS = torch.linspace(-4, 4, 81, dtype=F64)


def same(first: Activation, second: Activation) -> bool:
    return first.formula == second.formula and first.params == second.params


# -- what it can say --------------------------------------------------------------------------------------


def test_a_name_is_the_definition_itself() -> None:
    assert definition("swish") is sk.get("swish")
    assert definition(" silu ") is sk.get("swish")


def test_names_are_read_in_capitals_and_letters_in_greek() -> None:
    for text, name in (("GELU", "gelu"), ("LeakyReLU", "leaky_relu"), ("softknee:SReLU", "srelu"), ("ReLU6", "relu6")):
        assert sk.get(text) is sk.get(name)
    assert sk.get("SReLU(delta=0.5)").param("delta").default == 0.5
    act = definition("α·SReLU(x, delta=0.5) + Mollify(ReLU, box, width=δ)", params={"alpha": 2.0})
    assert {p.name for p in act.params} == {"alpha", "delta"}
    assert act.recipe.isascii()
    with pytest.raises(sk.UnknownActivationError):
        sk.get("GELUU")


def test_a_formula_with_declared_parameters() -> None:
    act = definition("x * sigmoid(beta * x) + g", params={"beta": 2.0, "g": "0.5:real"})
    assert act.params == (Param("beta", 2.0, Positive()), Param("g", 0.5, Real()))
    torch.testing.assert_close(act(POINTS), sk.get("swish")(POINTS, beta=2.0) + 0.5)
    assert act.recipe == "x * sigmoid(beta * x) + g"
    assert definition("g * x", params={"g": -1}).params == (Param("g", -1.0, Real()),)
    assert definition("beta * x", params=[BETA]).params == (BETA,)


ENGINES = {
    "mollify(relu, epanechnikov, width=0.1)": lambda: mollify("relu", "epanechnikov", 0.1),
    "mollify(relu, (box, triangle), width=w)": lambda: mollify("relu", ("box", "triangle"), "w"),
    "mollify(relu, kernel='box')": lambda: mollify("relu", "box"),
    "mollify(f=relu6, kernel=box, width='w')": lambda: mollify("relu6", "box", "w"),
    "mollify(where(x < 1, x, 1), box, 1/2)": lambda: mollify(sympy.Piecewise((x, x < 1), (1, True)), "box", 0.5),
    "join(0, x, between=(-1, 1))": lambda: join(0, x, between=(-1, 1)),
    "join(tanh, x, between=[-1, 1], smoothness=2, fixed=True)": lambda: join(
        "tanh", x, between=(-1, 1), smoothness=2, fixed=True
    ),
    "join(0, x, (-beta, beta))": lambda: join(0, x, between=(-beta, beta), params=[BETA]),
    "rescu((0, -1), ((x + 1)**2 / 4, 1), x)": lambda: rescu([(0, -1), ((x + 1) ** 2 / 4, 1), x]),
    "rescu([(celu, 0), x])": lambda: rescu([("celu", 0), x]),
    "mollify(join(0, x, between=(-1, 0)), box, width=0.1)": lambda: mollify(join(0, x, between=(-1, 0)), "box", 0.1),
    "worst(logistic, -1, 1)": lambda: sk.design.worst("logistic", -1, 1),
}


@pytest.mark.parametrize("text", ENGINES)
def test_an_engine_in_a_text_is_the_engine(text: str) -> None:
    params = [BETA] if "beta" in text else []
    made = definition(text, params=params)
    assert same(made, ENGINES[text]())
    assert made.recipe == text
    assert same(definition(made.recipe, params=made.params), made)


def test_eafo_in_a_text() -> None:
    made = definition("eafo(relu, density=normal)")
    expected = sk.design.eafo("relu", "normal").activation
    torch.testing.assert_close(made(POINTS), expected(POINTS))


def test_engines_and_names_inside_a_formula() -> None:
    act = definition("2 * mollify(relu, box, width=w) + a * x", params={"a": "0.5:real"})
    assert {p.name for p in act.params} == {"a", "w"}
    torch.testing.assert_close(act(POINTS, w=0.7), 2 * sk.get("smelu")(POINTS, beta=0.7) + 0.5 * POINTS)
    act = definition("swish(x, beta=b) - 0.5 * gelu(x + 1)", params={"b": 3.0})
    expected = sk.get("swish")(POINTS, beta=3.0) - 0.5 * sk.get("gelu")(POINTS + 1)
    torch.testing.assert_close(act(POINTS), expected)
    assert definition("smelu(0.5) * x").formula == sympy.Float(0.5625, 17) * x


def test_names_are_given_in_the_text_or_beside_it() -> None:
    assert definition("mollify(relu, box, width=1, name=knee)").name == "knee"
    assert definition("mollify(relu, box, width=1, name='knee')", name="other").name == "other"
    assert definition("x + 1", name="mine").name == "mine"
    assert definition("x + 1").name == "formula"


def test_a_number_sets_the_default_of_what_a_name_brought_along() -> None:
    act = definition("prelu", params={"slope": 0.3})
    assert act.params[0].default == 0.3
    assert isinstance(act.params[0].constraint, Real)
    assert definition("mollify(prelu, box, width=w)", params={"slope": "0.5:real", "w": 0.2}).params[0].default == 0.5
    with pytest.raises(sk.ParameterError, match="declared as"):
        definition("prelu", params={"slope": "0.5:positive"})


def test_a_definition_keeps_its_inner_form_under_another_name() -> None:
    act = definition("swish", name="mine")
    assert act.inner == sk.get("swish").inner
    assert act.bound_formula == sk.get("swish").bound_formula
    far = torch.tensor([-torch.inf, -1e30], requires_grad=True)
    (slope,) = torch.autograd.grad(act(far, beta=3.0).sum(), far)
    assert (slope == 0).all()


def test_formulas_have_their_limits_far_out() -> None:
    act = definition("x**2 * sigmoid(beta * x)", params={"beta": 1.0})
    far = torch.tensor([-torch.inf, -1e30, -1e19], requires_grad=True)
    width = torch.tensor([0.5], requires_grad=True)
    y = act(far, beta=width)
    slopes = torch.autograd.grad(y.sum(), [far, width])
    assert all((item == 0).all() for item in (y, *slopes, act.derivative(2)(far.detach())))


# -- the way back -----------------------------------------------------------------------------------------

SAYABLE = {name: act for name, act in ZOO.items() if act.implicit is None}
RECIPES = {name: act for name, act in SUBJECTS.items() if act.recipe}


@pytest.mark.parametrize("act", SAYABLE.values(), ids=SAYABLE)
def test_the_zoo_is_written_and_read_again(act: Activation) -> None:
    again = parse(write(act.formula), params=act.params)
    if (
        act.name == "gelu_10"
    ):  # its largest value, gelu(10), is a function of a number, which is read as 17 digits of it
        gap = sympy.lambdify(x, elementary(again - act.formula), "mpmath")
        assert all(abs(gap(at)) < 1e-15 for at in (-3, 0.5, 9, 10, 11, 1e6))
    else:
        assert again == act.formula


@pytest.mark.parametrize("act", RECIPES.values(), ids=RECIPES)
def test_what_engines_made_is_made_again_from_its_recipe(act: Activation) -> None:
    assert definition(act.recipe, params=act.params).formula == act.formula


G = real("g", 0.5)
EXPRESSIONS: list[Expr] = [
    -x,
    x / 3,
    -x / 3,
    2 / x,
    1 / (x * beta) ** 2,
    -(x**2),
    (-x) ** 3,
    (x - 1) / (x + 1),
    x - (beta - x),
    x * (-beta),
    (x + 1) * (x - 1) / ((x + 2) * (x + 3)),
    -(x - beta) / (6 * beta**2),
    2 * (x - beta) / beta,
    -3 * (x - beta) * (x + beta) / 4,
    sympy.sqrt(x**2 + 1),
    1 / sympy.sqrt(x**2 + 1),
    (x**2 + 1) ** sympy.Rational(3, 2),
    sympy.sqrt(2) * x / sympy.sqrt(sympy.pi),
    sympy.exp(-(x**2) / 2),
    sympy.exp(x) ** 2,
    sympy.E * x,
    sympy.Rational(-3, 7) * x + sympy.Rational(1, 9),
    sympy.Abs(x) - sympy.sign(x),
    sympy.erfc(x) + sympy.atan(x) + sympy.asinh(x),
    Line(G.symbol, x - beta),
    Ramp(x) - 2 * Ramp(-x),
    sympy.Piecewise((1, (x > 1) & (x < 2)), (2, (x < -1) | (x > 5)), (x, True)),
    sympy.Piecewise((1, sympy.Not(sympy.And(x > 1, x < beta))), (x, True)),
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_an_expression_is_written_and_read_again(expr: Expr) -> None:
    assert parse(write(expr), params=(BETA, G)) == expr


@pytest.mark.slow
def test_random_formulas_are_written_and_read_again() -> None:
    draw = random.Random(3)

    def formula(depth: int) -> Expr:
        if depth == 0:
            return draw.choice([x, x, beta, sympy.Integer(2), sympy.Rational(-1, 3), sympy.pi])
        a, b = formula(depth - 1), formula(depth - 1)
        return draw.choice([a + b, a - b, a * b, a**2, -a, a / (1 + b**2), sympy.exp(a), Ramp(a), sympy.sqrt(1 + a**2)])

    refused = 0
    for _ in range(150):
        expr = formula(3)
        if expr.is_number:
            continue
        text = write(expr)
        try:
            again = parse(text, params=(BETA,))
        except FormulaError:
            refused += 1  # a constant or a power beyond the limits
            continue
        values = {x: sympy.Rational(7, 10), beta: sympy.Rational(13, 10)}
        gap = (sk.spec.elementary(again - expr)).subs(values).evalf(20)
        assert abs(gap) <= 1e-12 * (1 + abs(sk.spec.elementary(expr).subs(values).evalf(20))), text
    assert refused < 20


@pytest.mark.parametrize("expr", [sympy.gamma(x), x**20, x**beta, sympy.zeta(x), sympy.Eq(x, 1)], ids=str)
def test_what_the_language_has_no_word_for_is_said(expr: Expr) -> None:
    target = sympy.Piecewise((1, expr), (0, True)) if isinstance(expr, sympy.Eq) else expr
    with pytest.raises(FormulaError) as refused:
        write(target)
    assert str(refused.value).endswith(".")


def test_constraints_are_written_and_read() -> None:
    for item in (Positive(), Real(), AtLeastOne(0.25), Between(-2.5, 1e-3)):
        assert read_constraint(write_constraint(item)) == item
    assert read_param("lam", "2:at_least_one") == Param("lam", 2.0, AtLeastOne())


# -- definitions on the move ------------------------------------------------------------------------------


def designed() -> dict[str, Activation]:
    return {
        "text": definition("x * sigmoid(beta * x)", params={"beta": 1.5}, name="own"),
        "mollify": mollify("relu", "box", "w"),
        "join": join("tanh", "x", between=("-beta", "beta"), params=[BETA]),
        "rescu": rescu([("celu", 0), "x"]),
        "renamed": definition("swish", name="swosh", params={"beta": 3.0}),
        "by hand": Activation("by_hand", beta * Ramp(x) ** 2, params=(BETA,)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", designed())
def test_a_designed_definition_is_pickled_with_its_module(name: str, tmp_path: Path) -> None:
    act = designed()[name]
    again = pickle.loads(pickle.dumps(act))
    assert same(again, act)
    assert again.name == act.name
    if act.recipe:
        assert again is act
    slope = pickle.loads(pickle.dumps(act.derivative(1)))
    assert torch.equal(slope(POINTS), act.derivative(1)(POINTS))
    module = sk.nn.make(act, learn=True) if act.params else sk.nn.make(act)
    torch.save(module, tmp_path / "module.pt")
    loaded = torch.load(tmp_path / "module.pt", weights_only=False)
    assert torch.equal(loaded(POINTS), module(POINTS))


@pytest.mark.slow
def test_another_process_unpickles_it(tmp_path: Path) -> None:
    file = tmp_path / "acts.pickle"
    file.write_bytes(pickle.dumps((list(designed().values()), POINTS)))
    program = (
        "import pickle, sys, torch\n"
        "acts, points = pickle.load(open(sys.argv[1], 'rb'))\n"
        "torch.save([a(points) for a in acts], sys.argv[2])\n"
    )
    processes.run(processes.execute, program, str(file), str(tmp_path / "out.pt"), count=1)
    values = torch.load(tmp_path / "out.pt")
    for act, value in zip(designed().values(), values, strict=True):
        torch.testing.assert_close(value, act(POINTS), rtol=0, atol=0)


def test_another_function_does_not_keep_the_recipe() -> None:
    act = mollify("relu", "box", 0.1)
    assert act.with_(name="knee").recipe == act.recipe
    assert act.with_(formula=x + 5, stable={}).recipe == ""


def test_two_parameters_of_one_name_are_refused() -> None:
    with pytest.raises(sk.DefinitionError, match="same name"):
        Activation("twice", x * beta, params=(BETA, positive("beta", 2.0)))


def test_let_declares_parameters_inside_a_text() -> None:
    text = "let(x * sigmoid(b * x + c), b=2, c='-0.5:real')"
    act = sk.get(text)
    assert act.params == (Param("b", 2.0, Positive()), Param("c", -0.5, Real()))
    assert act.recipe == text
    assert same(act, definition("x * sigmoid(b * x + c)", params={"b": 2.0, "c": "-0.5:real"}))
    torch.testing.assert_close(pickle.loads(pickle.dumps(act))(POINTS), act(POINTS))
    assert sk.nn.make(text, learn="b").learned == ("b",)


def test_let_goes_with_engines_and_names() -> None:
    knee = sk.get("let(mollify(relu, box, width=w), w=0.5)")
    assert (knee.limit, knee.params[0].default) == ("relu", 0.5)
    assert sk.get("let(swish, beta=2.5)").params[0].default == 2.5
    torch.testing.assert_close(sk.get("1 + 2 * let(b * x, b=3)")(POINTS), 1 + 6 * POINTS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("let(x, b=2)", "nothing in it contains"),
        ("let(b * x, b=x)", "where a point is wanted"),
        ("let(b * x, b='2:positve')", "no constraint"),
        ("let(b * x)", "no 'b' here"),
        ("let(b * x, x, b=2)", "more was given"),
    ],
)
def test_let_refuses(text: str, words: str) -> None:
    with pytest.raises(FormulaError, match=words):
        sk.get(text)
