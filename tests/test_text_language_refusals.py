"""The text language with its engines: that nothing else gets through, and that random texts do no harm."""

import random
import time
from contextlib import suppress

import pytest
import torch

import softknee as sk
from helpers import at_once
from softknee import FormulaError
from softknee.design import definition
from softknee.spec import Activation, positive
from softknee.spec.parse import FUNCTIONS

BETA = positive("beta", 1.0)


# -- refusals ---------------------------------------------------------------------------------------------

LONG = " + ".join(f"relu(x - {i})" for i in range(36))
REFUSED = {
    "unknown name": ("swosh", "Did you mean 'swish'"),
    "unknown parameter": ("x * gamma", "definition(text, params={'gamma': 1.0}), or --param gamma=1.0"),
    "a function without its argument": ("2 * swish", "write swish(x)"),
    "not element-wise": ("squaf", "not an element-wise formula"),
    "a table inside": ("squaf(x) + 1", "not an element-wise formula"),
    "by its inverse": ("crrelu_exact(x) + 1", "given by its inverse"),
    "two arguments": ("swish(x, 2)", "takes one argument"),
    "no such parameter": ("swish(x, bta=2)", "Did you mean 'beta'"),
    "misspelt engine": ("molify(relu, box)", "Did you mean 'mollify'"),
    "misspelt kernel": ("mollify(relu, bax)", "Did you mean 'box'"),
    "misspelt density": ("worst(narmal, 0, 1)", "Did you mean 'normal'"),
    "misspelt argument": ("join(0, x, betwen=(0, 1))", "needs between"),
    "an argument too many": ("join(0, x, between=(0, 1), width=2)", "no argument 'width'"),
    "places too many": ("mollify(relu, box, 1, 2)", "more was given"),
    "given twice": ("mollify(relu, f=relu)", "given"),
    "nothing given": ("mollify()", "needs f"),
    "stars": ("mollify(*x)", "without stars"),
    "double stars": ("mollify(**x)", "without stars"),
    "a number as a kernel": ("mollify(relu, 3)", "a word as kernel"),
    "a word as a number": ("join(0, x, between=(0, 1), smoothness=two)", "whole number"),
    "a fraction": ("join(0, x, between=(0, 1), smoothness=1.5)", "whole number"),
    "a truth as a number": ("join(0, x, between=(0, 1), smoothness=True)", "whole number"),
    "a number as a truth": ("join(0, x, between=(0, 1), fixed=1)", "True or False"),
    "three points": ("join(0, x, between=(0, 1, 2))", "two points"),
    "x as a point": ("join(0, x, between=(0, x))", "where a point is wanted"),
    "too smooth": ("join(0, x, between=(0, 1), smoothness=99)", "from 1 to 4"),
    "a refused join": ("rescu((0, 0), x)", "slopes 0 and 1"),
    "a pole at a join": ("rescu((0, 0), 1 / x)", "undefined"),
    "no real number at a join": ("join(log(x), x, between=(-1, 1))", "finite real number"),
    "too many pieces": (f"rescu({'(0, 0), ' * 40}0)", "2 to 32 pieces"),
    "engines too deep": ("mollify(mollify(mollify(mollify(relu, box, 1), box, 1), box, 1), box, 1)", "deeper than 3"),
    "a long function": (
        f"mollify(({LONG}) - ({LONG.replace('x', '2*x')}), box, 1)",
        "more than 200",
    ),
    "a high degree": ("mollify(relu(x)**16, box, 1)", "degree"),
    "a curve to mollify": ("mollify(swish, box, 1)", "piecewise polynomials"),
    "width below 0": ("mollify(relu, box, width=-1)", "above 0"),
    "width taken": ("mollify(prelu, box, width=slope)", "already"),
    "a bad name": ("mollify(relu, box, 1, name='a b')", "plain letters"),
    "a name that is a number": ("mollify(relu, box, 1, name=3)", "a word as name"),
    "a file": ("'knee.json'", "no number"),
    "a file as a function": ("mollify('knee.json', box, 1)", "no number"),
    "nested names": ("swish(" * 13 + "x" + ")" * 13, "parts"),
    "nested max": ("".join(f"max({i} * x, " for i in range(2, 41)) + "x" + ")" * 39, "parts"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_everything_else_is_refused_at_once(text: str, words: str) -> None:
    with at_once(), pytest.raises(FormulaError) as refused:
        definition(text)
    assert words in str(refused.value)
    assert str(refused.value).endswith((".", "?"))


@pytest.mark.parametrize("name", ["", "a b", "1a", "x" * 65, "naïve", None, 3, "a.b"], ids=repr)
def test_a_name_is_a_plain_word(name: object) -> None:
    if name is None:
        return
    with pytest.raises(FormulaError, match="plain letters"):
        definition("x", name=name)  # pyright: ignore[reportArgumentType]


def test_a_parameter_that_nothing_contains_is_refused() -> None:
    with pytest.raises(FormulaError, match="nothing in the text contains it"):
        definition("x + 1", params={"beta": 1.0})


BAD_PARAMS = {
    "reserved": {"x": 1.0},
    "a function": {"sigmoid": 1.0},
    "a constant": {"pi": 3.0},
    "dunder": {"__class__": 1.0},
    "no identifier": {"a b": 1.0},
    "no ASCII": {"β": 1.0},
    "no number": {"beta": "one"},
    "infinite": {"beta": float("inf")},
    "unknown constraint": {"beta": "1:positiv"},
    "constraint with code": {"beta": "1:between(__import__('os'), 1)"},
    "outside": {"beta": "-1:positive"},
    "below one": {"beta": "0.5:at_least_one"},
    "empty interval": {"beta": "0.5:between(1, 0)"},
    "truth": {"beta": True},
    "nothing": {"beta": None},
    "not params": [1.0],
    "text": "beta",
}


@pytest.mark.parametrize("params", BAD_PARAMS.values(), ids=BAD_PARAMS)
def test_bad_parameters_get_a_sentence(params) -> None:
    with pytest.raises(sk.ParameterError) as refused:
        definition("beta * x", params=params)
    assert str(refused.value).endswith((".", "?"))


# -- thousands of texts -----------------------------------------------------------------------------------

PIECES = """x beta e pi 0 1 2 9 0.5 1e9 16 + - * / ** ( ) , ( ) , < > = and not where piecewise max min swish relu
    mollify( join( rescu( eafo( worst( box triangle width= between= (-1,1) smoothness= fixed= True normal
    name= 'knee.json' '__class__' __class__ __import__ lambda : := [ ] { } . ' if else for in @ % // == f' " 1j
    with_limit( knob= None await é ｘ smelu gelu(x) sigmoid(x) # ; *x **x"""
WORDS = [*PIECES.split(), "\\", "\t", "\x00"]
HOSTILE = [
    "__import__('os').system('true')",
    "().__class__.__bases__[0].__subclasses__()",
    "mollify.__globals__",
    "mollify(__import__('os'), box)",
    "mollify(relu, box, width=__import__('os'))",
    "join(x.real, x, between=(0, 1))",
    "join(0, x, between=(lambda: 0, 1))",
    "rescu((y := x, 0), x)",
    "swish(x, beta=9**9**9**9)",
    "swish(x, beta=1e400)",
    "mollify(x**16**16, box)",
    "mollify(relu(9**16**16*x), box)",
    "worst(normal, 10**400, 1)",
    "eafo(open('/etc/passwd'))",
    "get('swish')",
    "sk.load('knee.json')",
    "mollify(" * 30 + "x" + ")" * 30,
    "[relu for relu in (1,)]",
    "{x: x}",
    "mollify(relu, [box] * 10**9)",
    "mollify(relu, ('box',) * 99, 1)",
    "eval('x')",
    "exec",
    "mollify(relu, box, width=1, name='__class__')",
    "ｓｗｉｓｈ",
    "swish\u200b(x)",
]


def refused_or_valid(text: str) -> bool:
    try:
        made = definition(text, params=(BETA,))
    except FormulaError:
        return False
    assert isinstance(made, Activation)
    return True


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_refused(text: str) -> None:
    with at_once(), pytest.raises(FormulaError):
        definition(text)


def test_thousands_of_random_texts_end_in_a_definition_or_a_formula_error() -> None:
    draw, read = random.Random(0), 0
    for _ in range(4_000):
        pieces = [draw.choice(WORDS) for _ in range(draw.randint(1, 12))]
        text = draw.choice(["", " "]).join(pieces)
        with at_once():
            read += refused_or_valid(text)
    assert read > 5  # the drawing does find formulas


# Each took from 3 seconds to minutes, or all memory: SymPy factored numbers of 300 digits and polynomials of degree
# 10^11, solved for the sets on which conditions hold, or wrote out products of sums.
SLOW = [
    "min((abs(1e-320) * log1p_minus(x)), (1e39 - unit(x)))",
    "min((abs(1e-39) * log1p_minus(x)), (1e39 - unit(x)))",
    "finite_left((softplus(log1p_minus_near(x)) / erfc((x + 99999999999))))",
    "erf(((beta / 1e-20) + (1 * x)))",
    "(x + ((abs(1/3) - max(beta, x)))**16)",
    "softplus((((gelu(x) * gelu(x)) + (swish(x) / x)))**16)",
    "atan(piecewise((where((relu(x) * x) > (gelu(x) - beta), (e + x), (relu(x) * x)), log1p_minus_near(piecewise("
    "(smelu(x), x < 0), (swish(x), x > 0.5), x)) < 0), (x, x > 0.5), log1p_minus_near(piecewise((smelu(x), x < 0), "
    "(swish(x), x > 0.5), x))))",
    "erfc(finite_left(max(tanh(beta), 0.1234567890123)))",
    "unit((cos((x / pi)) * ((smelu(x) / x) - where(pi < relu(x), pi, pi))))",
    "mish_gate(((swish(x) / beta) * min(x, smelu(x))))",
    "log(mish_gate(asinh(gelu(x))))",
    "((atan((x / beta)) * x) - ((max(beta, x) / tanh(x)) / (asinh(x) * finite_left(16))))",
    "max(atan(asinh(x)), ((7e-9 + 1e-39) + erfc(swish(x))))",
    "log1p(where(piecewise((smelu(x), swish(x) < 0), (2, x > 1e9), swish(x)) <= softplus(0.5), asinh(beta), x))",
    "min(where(log((x + smelu(x))) <= log1p_minus_near(relu(x) - pi), sin(max(1e-20, 0.12)), x), swish(x) / gelu(x))",
    "atan(min(min((x - beta), (gelu(x) + smelu(x))), (min(3, gelu(x)) * where(gelu(x) <= x, pi, gelu(x)))))",
    "unit(log1p(piecewise(((x)**-2, piecewise((x, smelu(x) < 0), (x, x > 0.5), smelu(x)) < 0), (where(beta >= relu(x), "
    "99999999999, beta), x > 0.5), piecewise((x, smelu(x) < 0), (x, x > 0.5), smelu(x)))))",
    "(((line(x, pi) - (swish(x) * 2)) + min(piecewise((relu(x), x < 0), (beta, x > 1), x), where(relu(x) > smelu(x),"
    " beta, relu(x)))) / erfc((log1p_minus_near(0.5) * max(smelu(x), x))))",
    "erf((min(piecewise((x, gelu(x) < 0), (beta, x > 0.5), gelu(x)), where(smelu(x) <= 0.5, gelu(x), smelu(x))))**3)",
]


ENOUGH = 6.0  # seconds of processor time; idle, half a second is the most, and a busy machine's caches are shared


def answer(text: str) -> None:
    """Everything that is asked of a text: the definition, its value and slopes, the second derivative, the formula."""
    act = definition(text, params=(BETA,) if "beta" in text else ())
    x = torch.linspace(-3, 3, 7, requires_grad=True)
    act(x).sum().backward()
    act.derivative(2)(x.detach())
    act.latex()


@pytest.mark.slow
@pytest.mark.parametrize("text", SLOW)
def test_texts_that_took_long_answer_in_time(text: str) -> None:
    start = time.thread_time()
    with suppress(FormulaError):
        answer(text)
    assert time.thread_time() - start < ENOUGH


def hostile_text(draw: random.Random, depth: int) -> str:
    """A formula of any functions inside each other, with numbers of every size."""
    if depth == 0 or draw.random() < 0.12:
        numbers = ["0", "1", "0.5", "-1", "1e-39", "1e39", "7e-9", "1/3", "99999999999", "pi", "e", "1e-320", "16"]
        return draw.choice(["x", "x", "x", "beta", draw.choice(numbers), "relu(x)", "swish(x)", "gelu(x)", "smelu(x)"])
    a, b, c = (hostile_text(draw, depth - 1) for _ in range(3))
    shapes = [
        *[f"{draw.choice([*FUNCTIONS])}({a})"] * 3,
        *[f"({a} {draw.choice('+-*/')} {b})"] * 3,
        f"({a})**{draw.choice([2, 3, -1, -2, 16, 0, 5])}",
        f"{draw.choice(['max', 'min', 'line'])}({a}, {b})",
        f"where({a} {draw.choice(['<', '>', '<=', '>='])} {b}, {c}, {a})",
        f"piecewise(({a}, {b} < 0), ({c}, x > 0.5), {b})",
    ]
    return draw.choice(shapes)


@pytest.mark.slow
def test_hostile_formulas_answer_in_time() -> None:
    draw, answered = random.Random(7), 0
    for _ in range(60):
        text = hostile_text(draw, draw.randint(1, 4))
        start = time.thread_time()
        with suppress(FormulaError, TypeError, RuntimeError):  # some have no value anywhere, or none in float32
            answer(text)
            answered += 1
        assert time.thread_time() - start < ENOUGH, text
    assert answered > 20


def test_a_comparison_of_pieces_is_read_case_by_case() -> None:
    act = definition("where(log(smelu(x)) <= 0.5 * smelu(x), relu(smelu(x) - 0.25), 1)")
    at = torch.linspace(-3, 3, 601, dtype=torch.float64)
    smelu = sk.get("smelu")(at)
    truth = torch.where((smelu.log() <= smelu / 2) & (smelu > 0), (smelu - 0.25).relu(), 1.0)
    torch.testing.assert_close(act(at), truth)
    slope = torch.where((smelu > 0.25) & (smelu > 0), sk.get("smelu").derivative(1)(at), 0.0)
    torch.testing.assert_close(act.derivative(1)(at), torch.where(smelu > 0, slope, 0.0))
    at = at + 0.003  # beside the corners, where the slope is that of one side
    smelu = sk.get("smelu")(at)
    clipped = definition("clip(2 * smelu(x) - 1.5)")
    expected = torch.where((smelu > 0.25) & (smelu < 1.25), 2 * sk.get("smelu").derivative(1)(at), 0.0)
    torch.testing.assert_close(clipped.derivative(1)(at), expected)
    many = " + ".join(f"where(x < {i}, 0, x)" for i in range(8))
    with pytest.raises(FormulaError, match="more than 64 cases"):
        definition(f"where({many} < 1, 0, x)")


def random_text(draw: random.Random, depth: int) -> str:
    """A text of the right form: engines, names and formulas inside each other."""
    if depth == 0:
        return draw.choice(["x", "x", "beta", "2", "0.5", "-1", "relu", "swish", "smelu", "0"])
    a, b, c = (random_text(draw, depth - 1) for _ in range(3))
    shapes = [
        "({} + {})",
        "{} * {}",
        "max({}, {})",
        "where(x < {}, {}, {})",
        "tanh({})",
        "({})**2",
        "swish({})",
        "join({}, {}, between=(-beta, beta))",
        "join({}, {}, between=(-1, 1), smoothness=2, fixed=True)",
        "rescu(({}, -1), ({}, 1), {})",
        "rescu(({}, 0), {})",
        "mollify({}, box, width=0.5)",
        "mollify({}, gaussian, width=w)",
    ]
    return draw.choice(shapes).format(a, b, c)


@pytest.mark.slow
def test_random_texts_of_the_right_form_end_in_a_definition_or_a_formula_error() -> None:
    draw, read = random.Random(2), 0
    for _ in range(300):
        read += refused_or_valid(random_text(draw, draw.randint(1, 3)))
    assert read > 20
