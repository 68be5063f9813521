"""The text language of formulas, read by a whitelist: nothing of a text reaches eval or SymPy's own parser.

    x * sigmoid(beta * x)
    where(x > 0, x, beta * expm1(x / beta))
    piecewise((0, x <= -delta), (x, x >= delta), (x + delta)**2 / (4 * delta))

Names are x, the parameters, pi and e; numbers; + - * / and ** with a small whole power, or any power of a number above
0; comparisons with and, or, not inside `where` and `piecewise`; and the functions below, in capitals too. `notation`
reads what people write beside that: 2x, |x|, e^x, Greek letters. The text becomes Python's syntax tree, and each node
that is not on the list is refused with a `FormulaError` that says what and where. Limits on length, depth, powers, size
of numbers and number of pieces keep a hostile text from costing more than a moment.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import FormulaError, did_you_mean, same_name
from . import primitives as p
from .algebra import Expr, sympy
from .notation import plain
from .param import Param

LONGEST, DEEPEST, MOST_NODES, MOST_PIECES, HIGHEST_POWER = 2000, 40, 500, 32, 16
MOST_COMPARISONS = 10  # in a condition: SymPy's time for alternatives of alternatives grows exponentially
LARGEST_NUMBER = 10**40  # and no constant but 0 is nearer to 0 than one over it
LARGEST_TREE = 3000  # max(a, b) has b twice: nested, the expression outgrows its text by powers of two
EXACT_ROOTS = 10_000  # roots of larger numbers become decimals, because finding their squares costs time

FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    "sigmoid": p.Sigmoid,
    "softplus": p.Softplus,
    "tanh": p.Tanh,
    "normal_cdf": p.NormalCdf,
    "normal_pdf": p.NormalPdf,
    "expm1": p.Expm1,
    "log1p": p.Log1p,
    "relu": p.Ramp,
    "unit": p.Unit,
    "clip": p.Clip,
    "finite_left": p.FiniteLeft,
    "sech_squared": p.SechSquared,
    "mish_gate": p.MishGate,
    "log1p_minus": p.Log1pMinus,
    "log1p_minus_near": p.Log1pMinusNear,
    "log1p_unit": p.Log1pUnit,
    "exp": sympy.exp,
    "log": sympy.log,
    "sqrt": sympy.sqrt,
    "sin": sympy.sin,
    "cos": sympy.cos,
    "erf": sympy.erf,
    "erfc": sympy.erfc,
    "atan": sympy.atan,
    "asinh": sympy.asinh,
    "sign": sympy.sign,
    "abs": sympy.Abs,
}
_BINARY: dict[type, Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}
# By relu, and not by SymPy's Max, whose comparisons of symbols can take for ever.
_PAIRS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "max": lambda a, b: b + p.Ramp(a - b),
    "min": lambda a, b: b - p.Ramp(b - a),
    "line": p.Line,
}
_COMPARE: dict[type, Callable[[Expr, Expr], Expr]] = {
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
}


def parse(text: str, *, params: Sequence[Param] = ()) -> Expr:
    """The SymPy expression that a text stands for, in x and the symbols of the parameters.

    >>> from softknee.spec import Activation, parse, positive
    >>> beta = positive("beta", 1.0)
    >>> Activation("mine", parse("x * sigmoid(beta * x)", params=(beta,)), params=(beta,)).formula
    x*Sigmoid(beta*x)
    """
    return Reader(params).formula(tree_of(text).body)


def tree_of(text: str) -> ast.Expression:
    if not isinstance(text, str):
        raise FormulaError(f"A formula is a text, and {type(text).__name__} was given.")
    if len(text) > LONGEST:
        raise FormulaError(f"The formula has {len(text)} characters, and {LONGEST} are allowed.")
    written, places = plain(text.strip())
    if not written.isascii() or not written.isprintable():
        # Python would read look-alike letters as the plain ones.
        raise FormulaError(f"The formula {shown(text)} has characters that are not plain printable ASCII.")
    if _nesting(written) > DEEPEST:
        raise FormulaError(f"The formula nests brackets or signs deeper than {DEEPEST}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tree = ast.parse(written, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError, Warning) as error:
        refused = FormulaError(f"The formula {shown(text)} cannot be read: {type(error).__name__}.")
        if isinstance(error, SyntaxError) and error.offset:
            refused.span = _given(places, error.offset - 1, max(error.end_offset or 0, error.offset + 1) - 1)
        raise refused from None
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.keyword)) and node.end_col_offset is not None:
            node.col_offset, node.end_col_offset = _given(places, node.col_offset, node.end_col_offset)
    return tree


def _given(places: Sequence[int], first: int, behind: int) -> tuple[int, int]:
    """A stretch of what Python read as a stretch of the text that was given."""
    end = (places[-1] if places else 0) + 1
    start = places[first] if first < len(places) else end
    return start, max(start + 1, places[behind - 1] + 1) if 0 < behind <= len(places) else end + 1


@contextmanager
def blamed(node: ast.AST) -> Iterator[None]:
    """A FormulaError that is raised inside gets the place of this node, unless it has a narrower one."""
    try:
        yield
    except FormulaError as error:
        first, behind = getattr(node, "col_offset", None), getattr(node, "end_col_offset", None)
        if error.span is None and first is not None and behind is not None:
            error.span = first, behind
        raise


def _nesting(text: str) -> int:
    """The deepest bracket, or the longest run of signs, that the text has: Python's reader must not go deeper."""
    depth = deepest = run = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        run = run + 1 if letter in "+-~* " or (letter.isalpha() and run) else 0
        deepest = max(deepest, depth, run // 4)
    return deepest


def shown(text: str) -> str:
    short = text if len(text) <= 60 else text[:57] + "..."
    return ascii(short)


class Reader:
    """Turns nodes of the syntax tree into expressions; counts them, and refuses what it does not know.

    `calls` adds functions that read their own arguments: the engines of `softknee.design`.
    """

    def __init__(
        self, params: Sequence[Param] = (), calls: Mapping[str, Callable[[ast.Call, int], Expr]] | None = None
    ) -> None:
        self.known = {"x": p.x, "pi": sympy.pi, "e": sympy.E} | {param.name: param.symbol for param in params}
        self.calls = {} if calls is None else calls
        self.nodes = 0
        self._sizes: dict[Expr, int] = {}

    def formula(self, node: ast.AST, depth: int = 0) -> Expr:
        """The expression of a whole formula, which must be real and finite."""
        expr = self.value(node, depth)
        if expr.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo, sympy.I):
            raise FormulaError(f"The formula {shown(ast.unparse(node))} divides by 0 or has no real value.")
        return expr

    def value(self, node: ast.AST, depth: int) -> Expr:
        """The expression of a node, with everything below it."""
        with blamed(node):
            self._step(depth)
            return self.sized(self._value(node, depth))

    def sized(self, expr: Expr) -> Expr:
        """The expression, refused where it has grown too large to work with."""
        if self._size(expr) > LARGEST_TREE:
            raise FormulaError(f"Written out, the formula has more than {LARGEST_TREE} parts.")
        return expr

    def _size(self, expr: Expr) -> int:
        if not expr.args:
            return 1
        if expr not in self._sizes:
            self._sizes[expr] = 1 + sum(map(self._size, expr.args))
        return self._sizes[expr]

    def _value(self, node: ast.AST, depth: int) -> Expr:
        if isinstance(node, ast.Constant):
            return self._number(node)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            inner = self.value(node.operand, depth + 1)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            return self._binary(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        choice = "; write where(x > 0, x, 0)" if isinstance(node, ast.IfExp) else ""
        raise FormulaError(f"{_what(node)} has no place in a formula, at column {_column(node)}{choice}.")

    def _step(self, depth: int) -> None:
        self.nodes += 1
        if depth > DEEPEST or self.nodes > MOST_NODES:
            raise FormulaError(f"The formula is deeper than {DEEPEST} or has more than {MOST_NODES} parts.")

    def _number(self, node: ast.Constant) -> Expr:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise FormulaError(f"{type(value).__name__} is no number, at column {_column(node)}.")
        if not _moderate(value):
            raise FormulaError(f"The number at column {_column(node)} is larger than 1e40, or smaller than 1e-40.")
        return sympy.Integer(value) if isinstance(value, int) else sympy.Rational(str(value))

    def _name(self, node: ast.Name) -> Expr:
        name = node.id if node.id in self.known else same_name(node.id, ("x", "pi"))
        if name is None:
            raise self._unknown(node.id)
        return self.known[name]

    def _unknown(self, name: str) -> FormulaError:
        """What to say of a name that nobody declared."""
        function = same_name(name, [*self.calls, *FUNCTIONS])
        if function is not None:
            return FormulaError(f"{name!r} is a function; inside a formula write {function}(x).")
        if re.fullmatch(r"[xX][0-9]+", name):
            return FormulaError(
                f"There is no {name!r} here; write x**{name[1:]} for a power, {name[1:]} * x for a product."
            )
        near = did_you_mean(name, [*self.known, *FUNCTIONS])
        error = FormulaError(f"There is no {name!r} here; known are {', '.join(self.known)}.{near}{self.declare(name)}")
        error.unknown = name
        return error

    def declare(self, name: str) -> str:
        """How to declare a parameter, as a sentence."""
        return ""

    def _binary(self, node: ast.BinOp, depth: int) -> Expr:
        if isinstance(node.op, ast.Pow):
            return self._power(node, depth)
        rule = _BINARY.get(type(node.op))
        if rule is None:
            raise FormulaError(f"The operator {_what(node.op)} is none of + - * / **, at column {_column(node)}.")
        left, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if isinstance(node.op, ast.Div) and right.is_zero:
            raise FormulaError(f"The formula divides by 0 at column {_column(node)}.")
        return _bounded(rule(left, right))

    def _power(self, node: ast.BinOp, depth: int) -> Expr:
        base, power = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
        if power == sympy.Rational(1, 2):
            return evaluated(sympy.sqrt, base, "sqrt")
        if base.is_number and base.is_positive and not power.is_Integer:
            factor = sympy.Integer(1) if base == sympy.E else evaluated(sympy.log, base, "log")
            return evaluated(sympy.exp, _bounded(factor * power), "exp")
        if not power.is_Integer or abs(power) > HIGHEST_POWER:
            raise FormulaError(
                f"The power at column {_column(node)} must be a whole number of at most {HIGHEST_POWER}; "
                f"write sqrt(...) for a square root, and exp(a * log(b)) for b to the a."
            )
        if base.is_zero and power <= 0:
            raise FormulaError(f"The formula raises 0 to {power} at column {_column(node)}.")
        return _bounded(base**power)

    def _call(self, node: ast.Call, depth: int) -> Expr:
        own = (*FUNCTIONS, *_PAIRS, "where", "piecewise")
        if isinstance(node.func, ast.Name) and node.func.id not in self.known:
            node.func.id = same_name(node.func.id, (*self.calls, *own)) or node.func.id
        if isinstance(node.func, ast.Name) and node.func.id in self.calls:
            return self.calls[node.func.id](node, depth)
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise FormulaError(
                f"Only functions of the language can be called, by name, at column {_column(node)}; a product is "
                f"written with *."
            )
        name = node.func.id
        if name == "where":
            condition, yes, no = self._arguments(node, name, 3)
            return self._pieces([(yes, condition)], no, depth)
        if name == "piecewise":
            return self._piecewise(node, depth)
        if name in _PAIRS:
            return _PAIRS[name](*(self.value(arg, depth + 1) for arg in self._arguments(node, name, 2)))
        if name not in FUNCTIONS:
            near = did_you_mean(name, [*own, *self.calls]) or f" For a product write {name} * (...)."
            raise FormulaError(f"There is no function {name!r}; known are {', '.join(own)}.{near}")
        (argument,) = self._arguments(node, name, 1)
        return evaluated(FUNCTIONS[name], self.value(argument, depth + 1), name)

    def _arguments(self, node: ast.Call, name: str, count: int) -> list[ast.expr]:
        if len(node.args) != count:
            raise FormulaError(f"{name} takes {count} argument{'s' * (count > 1)}, and {len(node.args)} were given.")
        return node.args

    def _piecewise(self, node: ast.Call, depth: int) -> Expr:
        *pieces, default = node.args or [None]
        pairs = [piece.elts for piece in pieces if isinstance(piece, ast.Tuple) and len(piece.elts) == 2]
        if default is None or not pairs or len(pairs) != len(pieces) or isinstance(default, ast.Tuple):
            raise FormulaError("piecewise takes pairs (value, condition) and a last value for everywhere else.")
        if len(pairs) > MOST_PIECES:
            raise FormulaError(f"piecewise has {len(pairs)} pieces, and {MOST_PIECES} are allowed.")
        return self._pieces([(value, condition) for value, condition in pairs], default, depth)

    def _pieces(self, pairs: Sequence[tuple[ast.expr, ast.expr]], default: ast.expr, depth: int) -> Expr:
        read = [(self.value(value, depth + 1), self._condition(when, depth + 1)) for value, when in pairs]
        for _, when in read:
            if when in (sympy.true, sympy.false):
                raise FormulaError("A condition is always true or always false; leave its piece out.")
            if (count := len(when.atoms(sympy.Rel))) > MOST_COMPARISONS:
                raise FormulaError(
                    f"A condition works out to {count} comparisons, case by case, and {MOST_COMPARISONS} are allowed; "
                    "compare functions that have fewer pieces."
                )
        return sympy.Piecewise(*read, (self.value(default, depth + 1), True), evaluate=False)

    def _condition(self, node: ast.AST, depth: int) -> Expr:
        with blamed(node):
            return self._compared(node, depth)

    def _compared(self, node: ast.AST, depth: int) -> Expr:
        self._step(depth)
        if isinstance(node, ast.BoolOp):
            parts = [self._condition(value, depth + 1) for value in node.values]
            return sympy.And(*parts) if isinstance(node.op, ast.And) else sympy.Or(*parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return sympy.Not(self._condition(node.operand, depth + 1))
        if isinstance(node, ast.Compare) and all(type(op) in _COMPARE for op in node.ops):
            sides = [self.value(side, depth + 1) for side in (node.left, *node.comparators)]
            links = zip(node.ops, sides[:-1], sides[1:], strict=True)
            return sympy.And(*(p.compared(_COMPARE[type(op)], left, right) for op, left, right in links))
        raise FormulaError(
            f"A condition compares with <, <=, > or >=; {_what(node)} does not, at column {_column(node)}."
        )


def evaluated(function: Callable[[Expr], Expr], argument: Expr, name: str) -> Expr:
    """The function; of a constant its number, because a tower of constants could take SymPy for ever."""
    if not argument.is_number:
        return function(argument)
    if name == "sqrt" and (argument == sympy.pi or (argument.is_Rational and argument > 0 and _small(argument))):
        return function(argument)
    try:
        number = float(function(sympy.Float(float(argument), 25)))
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        number = math.nan
    if not _moderate(number):
        raise FormulaError(f"{name} of that constant is not a number below 1e40, or it is smaller than 1e-40.")
    return sympy.Float(number, 17)


def _moderate(number: Any) -> bool:
    """Whether a constant is 0 or has a size to calculate with; NaN has none."""
    return bool(number == 0 or 1 <= abs(number) * LARGEST_NUMBER <= LARGEST_NUMBER**2)


def _small(number: Expr) -> bool:
    return max(number.p, number.q) <= EXACT_ROOTS


def _bounded(expr: Expr) -> Expr:
    """The expression, refused where a constant in it has grown beyond all sense."""
    coefficient = expr.as_coeff_Mul()[0]  # of a number, the number
    digits = coefficient.is_Rational and max(abs(coefficient.p), coefficient.q) > LARGEST_NUMBER
    if digits or (coefficient.is_Float and not _moderate(coefficient)):
        raise FormulaError(
            "A constant of the formula is larger than 1e40 or smaller than 1e-40, or has more than 40 digits below the "
            "line."
        )
    if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and abs(expr.exp) > 4 * HIGHEST_POWER:
        raise FormulaError(f"Powers of powers of the formula multiply to more than {4 * HIGHEST_POWER}.")
    return expr


def _what(node: ast.AST) -> str:
    return type(node).__name__


def _column(node: ast.AST) -> int:
    return getattr(node, "col_offset", 0) + 1
