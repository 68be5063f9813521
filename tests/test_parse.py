"""The text language: what it can say, and that nothing else gets through or takes long."""

import random
from contextlib import suppress

import pytest
import sympy
import torch

import softknee as sk
from helpers import at_once
from softknee import FormulaError
from softknee.spec import Activation, parse, positive
from softknee.spec.algebra import Expr

BETA = positive("beta", 1.0)


SAME_AS_THE_ZOO = {
    "swish": "x * sigmoid(beta * x)",
    "gelu": "x * normal_cdf(beta * x)",
    "smelu": "piecewise((0, x <= -beta), (x, x >= beta), (x + beta)**2 / (4 * beta))",
    "celu": "where(x > 0, x, beta * expm1(x / beta))",
    "softplus": "softplus(beta * x) / beta",
    "relu": "max(x, 0)",
    "relu6": "min(relu(x), 6)",
    "hardtanh": "where(x < -1, -1, where(not (x <= 1), 1, x))",
    "hardswish": "x * unit((x + 3) / 6)",
    "crrelu": "relu(x) + 0.3 * x * exp(-x**2 / 2)",
}


@pytest.mark.parametrize("name", SAME_AS_THE_ZOO)
def test_functions_of_the_zoo_can_be_written_down(name: str) -> None:
    params = (BETA,) if "beta" in SAME_AS_THE_ZOO[name] else ()
    act = Activation(f"text_{name}", parse(SAME_AS_THE_ZOO[name], params=params), params=params)
    points = torch.linspace(-8, 8, 101, dtype=torch.float64)
    torch.testing.assert_close(act(points), sk.get(name)(points))
    torch.testing.assert_close(act.derivative()(points + 1e-3), sk.get(name).derivative()(points + 1e-3))


HOSTILE = {
    "attribute": "x.__class__",
    "dunder": "__import__('os').system('true')",
    "call of a call": "sigmoid(x)(x)",
    "keyword": "sigmoid(u=x)",
    "star": "sigmoid(*x)",
    "lambda": "(lambda: x)()",
    "walrus": "(y := x)",
    "comprehension": "[x for x in x]",
    "subscript": "x[0]",
    "string": "'x'",
    "format string": "f'{x}'",
    "complex": "1j * x",
    "boolean": "True * x",
    "ternary": "x if x > 0 else 0",
    "bitwise": "x | 1",
    "matrix product": "x @ x",
    "floor division": "x // 2",
    "tower": "9**9**9**9",
    "grown tower": "((9**16)**16)**16",
    "power of powers": "((x**16)**16)**16",
    "fraction of a tower": "1 / (9**16 * 9**16 * 9**16)",
    "tower of exponentials": "exp(exp(exp(exp(9))))",
    "huge number": "1e308 * 10",
    "long number": "1" * 500,
    "deep brackets": "(" * 500 + "x" + ")" * 500,
    "deep signs": "-" * 1900 + "x",
    "deep not": "where(" + "not " * 400 + "x > 0, 1, 2)",
    "deep calls": "sigmoid(" * 60 + "x" + ")" * 60,
    "long": "x" + " + x" * 1000,
    "many parts": "x" + "+x" * 900,
    "doubled parts": "".join(f"max({i} * x, " for i in range(2, 41)) + "x" + ")" * 39,
    "look-alike letter": "ｘ + 1",
    "look-alike digit": "x + \u0661",
    "null": "x\0",
    "newline": "x\n+ 1",
    "nothing": "",
    "unfinished": "sigmoid(x",
    "division by nothing": "x / (1 - 1)",
    "zero to zero": "0**0",
    "no real value": "sqrt(-1) * x",
    "unknown": "gamma * x",
    "always": "where(1 < 2, x, 0)",
    "many pieces": "piecewise(" + "(x, x > 1), " * 40 + "x)",
    "not a piece": "piecewise(x, x > 1)",
    "condition as value": "1 + (x > 0)",
    "value as condition": "where(x, 1, 2)",
    "equality": "where(x == 0, 1, 2)",
    "assignment": "x = 1",
    "statement": "import os",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=list(HOSTILE))
def test_everything_else_is_refused_at_once(text: str) -> None:
    with at_once(), pytest.raises(FormulaError) as refused:
        parse(text)
    assert str(refused.value).endswith((".", "?"))


@pytest.mark.parametrize("value", [None, 3, b"x", sympy.Symbol("x")], ids=repr)
def test_only_a_text_is_a_formula(value: object) -> None:
    with pytest.raises(FormulaError, match="A formula is a text"):
        parse(value)  # pyright: ignore[reportArgumentType]


TYPED = {
    "e^x": "exp(x)",
    "2^x": "exp(log(2) * x)",
    "2x": "2 * x",
    "2x^2 − 3x": "2 * x**2 - 3 * x",
    "|x|": "abs(x)",
    "|x - |x||": "abs(x - abs(x))",
    "2|x|": "2 * abs(x)",
    "3(x + 1)(x - 1)": "3 * (x + 1) * (x - 1)",
    "x sigmoid(βx)": "x * sigmoid(beta * x)",
    "x·Sigmoid(𝛽 x)": "x * sigmoid(beta * x)",
    "x²sqrt(x²)": "x**2 * sqrt(x**2)",
    "√(1 + x²)": "sqrt(1 + x**2)",
    "(1 + x^2)^0.5": "sqrt(1 + x**2)",
    "e^-x^2": "exp(-x**2)",
    "2e^x + 2e3x": "2 * exp(x) + 2000 * x",
    "WHERE(X ≥ 0, ReLU(x), π x)": "where(x >= 0, relu(x), pi * x)",
    "where(x > 0 and x < 1, x, 0)": "where((x > 0) and (x < 1), x, 0)",
}


@pytest.mark.parametrize("typed", TYPED)
def test_what_people_type_is_read(typed: str) -> None:
    assert sympy.simplify(parse(typed, params=(BETA,)) - parse(TYPED[typed], params=(BETA,))) == 0


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("1/2x", "write /(2 * x) or /2 * x."),
        ("e^2x", "write ^(2 * x) or ^2 * x."),
        ("x / (x + 1)(x + 2)", "write /((x + 1) * (...)) or /(x + 1) * (...)."),
        ("x^-2|x|", "write ^(-2 * |...|) or ^-2 * |...|."),
        ("|x|x|x|", "write abs(...), or * between the factors."),
        ("|x", "A bar | is not closed"),
        ("x | 1", "A bar | is not closed"),
        ("x(x + 1)", "For a product write x * (...)."),
        ("beta(x + 1)", "For a product write beta * (...)."),
        ("sin x", "'sin' is a function; inside a formula write sin(x)."),
        ("x2 + 1", "write x**2 for a power, 2 * x for a product."),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_with_both(typed: str, words: str) -> None:
    with pytest.raises(FormulaError) as refused:
        parse(typed, params=(BETA,))
    assert words in str(refused.value)
    assert refused.value.span is not None


def test_a_misspelt_function_gets_a_suggestion() -> None:
    with pytest.raises(FormulaError, match="Did you mean 'sigmoid'"):
        parse("sigmiod(x)")


def _words(text: str) -> list[str]:
    return text.split()


WORDS = [
    *_words("x beta e pi 0 1 2 9 0.5 1e9 1e-9 16 + - * / ** ( ) , < > <= >= and or not where piecewise max min"),
    *_words("line finite_left log1p_minus sign atan clip sech_squared"),
    *_words("sigmoid exp log sqrt abs tanh relu __class__ __import__ lambda : := [ ] { } . ' if else for in @ % // =="),
    *_words("!= ~ # ; = f' \" 0x 1_0 1j True None await yield é ｘ"),
    *["\\", "\t", "\x00"],
]


def test_ten_thousand_random_texts_end_in_an_expression_or_a_formula_error() -> None:
    draw, read = random.Random(0), 0
    for _ in range(10_000):
        pieces = [draw.choice(WORDS) for _ in range(draw.randint(1, 14))]
        text = draw.choice(["", " "]).join(pieces)
        with at_once(), suppress(FormulaError):
            assert isinstance(parse(text, params=(BETA,)), sympy.Expr)
            read += 1
    assert read > 50  # the drawing does find formulas


@pytest.mark.slow
def test_ten_hundred_random_formulas_are_read() -> None:
    draw = random.Random(1)

    def formula(depth: int) -> str:
        if depth == 0:
            return draw.choice(["x", "x", "beta", "2", "0.5", "pi"])
        a, b = formula(depth - 1), formula(depth - 1)
        shape = draw.choice(
            ["({} + {})", "({} - {})", "{} * {}", "max({}, {})", "where(x < 1, {}, {})", "tanh({} * {})"]
        )
        return shape.format(a, b)

    for _ in range(1000):
        result: Expr = parse(formula(3), params=(BETA,))
        assert not result.has(sympy.nan)
