"""From expressions back to the text language: what `parse` reads again as the same expression.

>>> from softknee.spec import Sigmoid, parse, positive, x
>>> from softknee.spec.text import write
>>> beta = positive("beta", 1.0)
>>> write(x * Sigmoid(beta.symbol * x) / 2)
'x * sigmoid(beta * x) / 2'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sympy.logic.boolalg import And, Not, Or

from ..errors import FormulaError
from .algebra import Add, Expr, Mul, Piecewise, Pow, sympy
from .parse import FUNCTIONS, HIGHEST_POWER
from .primitives import Line

_NAMES: dict[type, str] = {function: name for name, function in FUNCTIONS.items() if isinstance(function, type)}
_NAMES |= {Line: "line", sympy.Max: "max", sympy.Min: "min", sympy.tanh: "tanh"}
# How tightly a text holds together: a sum, a product, a power, a name or a call.
_SUM, _PRODUCT, _POWER, _ATOM = range(4)


def write(expr: Expr) -> str:
    """The text of an expression, or a `FormulaError` where the language has no word for a part of it."""
    return _text(sympy.sympify(expr))[0]


def _text(expr: Expr) -> tuple[str, int]:
    if isinstance(expr, sympy.Symbol):
        return expr.name, _ATOM
    if expr.is_Rational or isinstance(expr, sympy.Float):
        return _number(expr)
    if expr in (sympy.pi, sympy.E):
        return ("pi" if expr == sympy.pi else "e"), _ATOM
    if isinstance(expr, Add):
        return _sum(expr), _SUM
    if isinstance(expr, Mul):
        return _product(expr), _PRODUCT
    if isinstance(expr, Piecewise):
        return _pieces(expr), _ATOM
    if isinstance(expr, Pow) and expr.base != sympy.E:
        return _power(expr)
    name = _NAMES.get(type(expr)) or ("exp" if isinstance(expr, sympy.exp) else None)
    if name is None:
        raise FormulaError(f"The text language has no word for {type(expr).__name__}, which stands in {expr}.")
    arguments = [write(arg) for arg in expr.args]
    if name in ("max", "min"):
        return _pairs(name, arguments), _ATOM
    return f"{name}({', '.join(arguments)})", _ATOM


def _held(expr: Expr, least: int) -> str:
    text, tight = _text(expr)
    return text if tight >= least else f"({text})"


def _number(expr: Expr) -> tuple[str, int]:
    if isinstance(expr, sympy.Float):
        text = repr(float(expr))
        return text, _ATOM if expr >= 0 else _PRODUCT
    if expr.q == 1:
        return str(expr.p), _ATOM if expr.p >= 0 else _PRODUCT
    return f"{expr.p} / {expr.q}", _PRODUCT


def _sum(expr: Expr) -> str:
    first, *rest = expr.as_ordered_terms()
    text = _held(first, _SUM)
    for term in rest:
        if term.could_extract_minus_sign():
            text += f" - {_held(-term, _PRODUCT)}"
        else:
            text += f" + {_held(term, _PRODUCT)}"
    return text


def _product(expr: Expr) -> str:
    if expr.could_extract_minus_sign():
        text = _held(-expr, _PRODUCT)
        # A minus sign right before a sum would be multiplied into it.
        return f"-({text})" if text.startswith("(") else f"-{text}"
    number, rest = expr.as_coeff_Mul()
    above: list[Expr] = []
    below: list[Expr] = []
    for factor in Mul.make_args(rest) if not isinstance(rest, Mul) else rest.as_ordered_factors():
        base, power = (factor.base, factor.exp) if isinstance(factor, Pow) else (factor, sympy.Integer(1))
        if base != sympy.E and power.is_Rational and power < 0:
            below.append(base**-power)
        else:
            above.append(factor)
    if above and isinstance(above[0], Add) and number is not sympy.S.One:
        # So would a number, which therefore comes last.
        return f"{_fraction(above, below)} * {_held(number, _POWER)}"
    if number.is_Rational:
        above = [sympy.Integer(number.p)] * (number.p != 1) + above
        below = [sympy.Integer(number.q)] * (number.q != 1) + below
        return _fraction(above, below)
    return _fraction([number, *above], below)


def _fraction(above: Sequence[Expr], below: Sequence[Expr]) -> str:
    text = " * ".join(_held(factor, _POWER) for factor in above) or "1"
    if len(below) == 1:
        return f"{text} / {_held(below[0], _POWER)}"
    return f"{text} / ({' * '.join(_held(divisor, _POWER) for divisor in below)})" if below else text


def _power(expr: Expr) -> tuple[str, int]:
    base, power = expr.base, expr.exp
    if power.is_Rational and power < 0:
        return f"1 / {_held(base**-power, _POWER)}", _PRODUCT
    if power == sympy.Rational(1, 2):
        return f"sqrt({write(base)})", _ATOM
    if power.is_Rational and power.q == 2:
        return f"sqrt({write(base)})**{power.p}", _POWER
    if not power.is_Integer or power > HIGHEST_POWER:
        raise FormulaError(f"The text language takes whole powers of at most {HIGHEST_POWER}, and {expr} is none.")
    return f"{_held(base, _ATOM)}**{power}", _POWER


def _pairs(name: str, arguments: Sequence[str]) -> str:
    text = arguments[0]
    for other in arguments[1:]:
        text = f"{name}({text}, {other})"
    return text


def _pieces(expr: Expr) -> str:
    *pieces, (default, last) = expr.args
    if last != sympy.true:
        raise FormulaError(f"The piecewise formula {expr} leaves some x without a value; end it with True.")
    texts = [(write(value), _condition(when)) for value, when in pieces]
    if len(texts) == 1:
        return f"where({texts[0][1]}, {texts[0][0]}, {write(default)})"
    return f"piecewise({', '.join(f'({value}, {when})' for value, when in texts)}, {write(default)})"


def _condition(when: Any) -> str:
    sign = getattr(when, "rel_op", "")
    if sign in ("<", "<=", ">", ">="):
        return f"{write(when.lhs)} {sign} {write(when.rhs)}"
    if isinstance(when, (And, Or)):
        joint = " and " if isinstance(when, And) else " or "
        return joint.join(f"({_condition(argument)})" for argument in sorted(when.args, key=sympy.default_sort_key))
    if isinstance(when, Not):
        return f"not ({_condition(when.args[0])})"
    raise FormulaError(f"The text language compares with <, <=, > and >=, and {when} does not.")
