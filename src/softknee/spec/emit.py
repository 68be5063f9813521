"""From expressions to straight-line source code, for any backend that gives us a `Dialect`.

Equal subexpressions are computed once. What depends on parameters alone is grouped, so that a tensor
backend does it on one number instead of once per element.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sympy.core.relational import Equality, Relational
from sympy.logic.boolalg import ITE, And, Boolean, BooleanFalse, BooleanTrue, Not, Or

from ..errors import DefinitionError
from .algebra import Add, Expr, Mul, Piecewise, Pow, rewrite, sympy
from .precision import to_digits
from .primitives import BOUNDED, NormalCdf, NormalPdf, SechSquared, Sigmoid, Tanh, u, v, x

PER_ELEMENT = {x, u, v}
# Parameters carry a prefix in generated code, so that one called `n` or `g` cannot meet a name of ours.
PARAMETER = "p_"


@dataclass(frozen=True)
class Dialect:
    """How a backend spells things. Functions are names; their meaning is given where the code is loaded."""

    functions: Mapping[type, str]
    where: str
    full: str
    loop_start: tuple[str, ...] = ()
    loop_end: tuple[str, ...] = ()
    reciprocal: str = "(1.0 / {})"  # of a number that differs from element to element

    def function(self, node: Expr) -> str:
        try:
            return self.functions[node.func]
        except KeyError:
            raise UnsupportedError(f"{node.func.__name__} has no lowering here.") from None


class UnsupportedError(DefinitionError):
    """The expression uses a function that this backend cannot compute."""


class Local(sympy.Dummy):
    """A symbol that stands for a subexpression; `own` says whether its value differs from element to element."""

    own: bool = False


def is_per_element(expr: Expr) -> bool:
    """Whether the value differs from element to element (or, with vector parameters, only by parameter)."""
    return any(s in PER_ELEMENT or (isinstance(s, Local) and s.own) for s in expr.free_symbols)


def share(expressions: Sequence[Expr]) -> tuple[list[tuple[Local, Expr]], list[Expr]]:
    """Common factors and terms of several expressions, each given a name: (names with their meaning, expressions).

    u phi in one slope and u^2 phi in another is computed once; equal subexpressions alone would not show it.
    """
    names = (Local(f"s{i}", real=True) for i in itertools.count())
    # Constants become numbers first: part of one given a name would be computed on no tensor at all.
    numeric = [rewrite(e, lambda part: to_digits(part, 30) if _is_constant(part) else part) for e in expressions]
    shared, reduced = sympy.cse(numeric, symbols=names, order="canonical", list=True)
    for name, meaning in shared:
        name.own = is_per_element(meaning)
    return shared, reduced


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, sympy.Expr) and expr.is_number and not expr.is_Atom


def carries_nan(expr: Expr) -> bool:
    """Whether a NaN input surely comes out: a seam is False for NaN, so the last piece decides."""
    if isinstance(expr, Piecewise):
        return carries_nan(expr.args[-1][0])
    if expr in PER_ELEMENT:
        return True
    return any(carries_nan(arg) for arg in expr.args if isinstance(arg, sympy.Expr))


def has_bare_u(expr: Expr) -> bool:
    """Whether u stands outside the bounded primitives, which have their limits at infinity."""
    if isinstance(expr, BOUNDED):
        return False
    return expr == u or any(has_bare_u(arg) for arg in expr.args)


class Emitter:
    """Writes the statements for some expressions; `lines` are the statements, `names` the results.

    The first expressions may be given `names`, by which the later ones refer to them.
    """

    def __init__(
        self, dialect: Dialect, expressions: Sequence[Expr], *, prefix: str = "t", names: Sequence[Local] = ()
    ) -> None:
        self.dialect = dialect
        self.prefix = prefix
        self.lines: list[str] = []
        self._text: dict[Expr, str] = {}
        self._uses: Counter[Expr] = Counter()
        self._seen_functions: set[Expr] = set()
        self._below: Counter[Expr] = Counter()
        for expr in expressions:
            self._count(expr)
        self.names = []
        for place, expr in enumerate(expressions):
            text = self._name(expr)
            if place < len(names):
                # What later expressions call by this name.
                self.lines.append(f"{names[place].name} = {text}")
            self.names.append(text)

    def _count(self, expr: Expr) -> None:
        self._uses[expr] += 1
        if self._uses[expr] == 1:
            if isinstance(expr, (Sigmoid, NormalCdf, NormalPdf, Tanh, SechSquared)):
                self._seen_functions.add(expr)
            if _is_reciprocal(expr):
                self._below[expr.base] += 1
            for arg in expr.args:
                self._count(arg)

    def _name(self, expr: Expr) -> str:
        """The text of an expression, as a variable where it is used more than once."""
        if expr in self._text:
            return self._text[expr]
        if isinstance(expr, sympy.Symbol):
            return expr.name if expr in PER_ELEMENT or isinstance(expr, Local) else f"{PARAMETER}{expr.name}"
        if isinstance(expr, Boolean):
            return self._condition(expr)
        if expr.is_number:
            return _number(expr)
        text = self._pair(expr) or self._spell(expr)
        often = self._uses[expr] > 1 or (_is_reciprocal(expr) and self._divides_often(expr))
        if often and text not in self._text.values():
            text = self._assign(text)
        self._text[expr] = text
        return text

    def _assign(self, text: str) -> str:
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _pair(self, expr: Expr) -> str | None:
        """Two functions of one argument that share their exponential are computed together."""
        if isinstance(expr, Sigmoid):
            partner, call = Sigmoid(-expr.args[0]), "sigmoid_pair"
            first = partner if expr.args[0].could_extract_minus_sign() else expr
        elif isinstance(expr, NormalCdf):
            partner, call, first = NormalPdf(expr.args[0]), "normal_pair", expr
        elif isinstance(expr, NormalPdf):
            partner, call = NormalCdf(expr.args[0]), "normal_pair"
            first = partner
        elif isinstance(expr, Tanh):
            partner, call, first = SechSquared(expr.args[0]), "tanh_pair", expr
        elif isinstance(expr, SechSquared):
            partner, call = Tanh(expr.args[0]), "tanh_pair"
            first = partner
        else:
            return None
        if partner not in self._seen_functions:
            return None
        argument = self._name(self._known(first.args[0]))
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"{name}, {name}b = {call}({argument})")
        second = partner if first is expr else expr
        self._text[first], self._text[second] = name, f"{name}b"
        return self._text[expr]

    def _spell(self, expr: Expr) -> str:
        if isinstance(expr, Add):
            return self._sum(expr)
        if isinstance(expr, Mul):
            return self._product(expr)
        if isinstance(expr, Pow):
            return self._power(expr)
        if isinstance(expr, Piecewise):
            return self._choice(expr)
        arguments = ", ".join(self._name(arg) for arg in expr.args)
        return f"{self.dialect.function(expr)}({arguments})"

    def _sum(self, expr: Expr) -> str:
        shared = [t for t in expr.args if not is_per_element(t)]
        own = [t for t in expr.args if is_per_element(t)]
        if len(shared) > 1 and own:
            return f"({self._name(self._known(Add(*shared)))} + {self._join(own)})"
        return f"({self._join(expr.args)})"

    def _join(self, terms: Sequence[Expr]) -> str:
        # A positive term first, so that no leading minus costs an operation of its own.
        terms = sorted(terms, key=lambda t: (t.could_extract_minus_sign(), sympy.default_sort_key(t)))
        text = self._name(terms[0])
        for term in terms[1:]:
            minus = term.could_extract_minus_sign()
            text += f" - {self._name(self._known(-term))}" if minus else f" + {self._name(term)}"
        return text

    def _known(self, expr: Expr) -> Expr:
        """Count an expression that was made here, as if it had stood in the source."""
        if expr not in self._uses:
            self._count(expr)
        return expr

    def _product(self, expr: Expr) -> str:
        """constant * (shared numerator / shared denominator) * (own numerator / own denominator)."""
        constant = Mul(*(f for f in expr.args if f.is_number))
        factors = [f for f in expr.args if not f.is_number]
        split: dict[tuple[bool, bool], list[str]] = {(a, b): [] for a in (True, False) for b in (True, False)}
        for factor in factors:
            below = _is_reciprocal(factor) and not self._divides_often(factor)
            split[is_per_element(factor), below].append(self._name(self._known(1 / factor) if below else factor))
        shared = _quotient([*([_number(constant)] if constant != 1 else []), *split[False, False]], split[False, True])
        own = _quotient(split[True, False], split[True, True])
        return f"({shared} * {own})" if shared and own else shared or own

    def _divides_often(self, factor: Expr) -> bool:
        """Whether elements are divided by (powers of) this base more than once."""
        base, exponent = factor.as_base_exp()
        alone = self._below[base] + (exponent == -1 and self._uses[factor] > 1)
        return is_per_element(base) and alone > 1

    def _power(self, expr: Expr) -> str:
        base, exponent = expr.as_base_exp()
        if base == sympy.E:
            return f"{self.dialect.functions[sympy.exp]}({self._name(exponent)})"
        if exponent == sympy.Rational(1, 2):
            return f"{self.dialect.functions[sympy.sqrt]}({self._name(base)})"
        if abs(exponent) > 64 or not (exponent.is_Integer or (exponent.is_Rational and exponent.q == 2)):
            raise UnsupportedError(f"The power {expr} is not a whole or half one of at most 64.")
        if not exponent.is_Integer:
            root, whole = self._name(self._known(sympy.sqrt(base))), abs(exponent.p) // 2
            text = f"({self._name(self._known(base**whole))} * {root})" if whole else root
            return self._reciprocal(base, text) if exponent < 0 else text
        power = int(exponent)
        if power == -1:
            return self._reciprocal(base, self._name(base))
        if power < 0 and self._divides_often(expr):
            # One division, then products: a reciprocal is the dearest operation of a kernel.
            return "(" + " * ".join([self._name(self._known(1 / base))] * -power) + ")"
        if power < 0:
            return self._reciprocal(base, self._name(self._known(base**-power)))
        self._uses[base] += 1  # a power reads its base more than once
        text = self._name(base)
        if power in (2, 3):
            return "(" + " * ".join([text] * power) + ")"
        half = self._known(base ** (power // 2))
        self._uses[half] += 2
        name = self._name(half)
        return f"({name} * {name} * {text})" if power % 2 else f"({name} * {name})"

    def _reciprocal(self, base: Expr, text: str) -> str:
        """One by a text whose value is a power of the base."""
        return (self.dialect.reciprocal if is_per_element(base) else "(1.0 / {})").format(text)

    def _choice(self, expr: Expr) -> str:
        pieces = _reachable(expr)
        default, last = pieces[-1]
        if last is not sympy.true:
            raise DefinitionError(f"The piecewise formula {expr} leaves some x without a value; end it with True.")
        text, number = self._name(default), default.is_number
        for value, when in reversed(pieces[:-1]):
            chosen = self._name(value)
            if number and value.is_number:
                text = self.dialect.full.format(text)
            text, number = f"{self.dialect.where}({self._condition(when)}, {chosen}, {text})", False
        return text

    def _condition(self, when: Expr) -> str:
        if isinstance(when, sympy.Symbol):
            return when.name
        if isinstance(when, (BooleanTrue, BooleanFalse)):
            raise DefinitionError("A seam that is always true or always false cannot be computed.")
        if isinstance(when, Relational):
            return self._comparison(when)
        joint = {And: " & ", Or: " | "}.get(type(when))
        if joint:
            return "(" + joint.join(self._condition(arg) for arg in when.args) + ")"
        if isinstance(when, Not):
            return f"(~{self._condition(when.args[0])})"
        raise UnsupportedError(f"The condition {when} is not a comparison.")

    def _comparison(self, when: Expr) -> str:
        """The element on the left and without a minus sign: then the right side is one number per parameter."""
        if is_per_element(when.rhs) and not is_per_element(when.lhs):
            when = when.reversed
        if when.lhs.could_extract_minus_sign():
            when = when.reversedsign
        operator = "==" if isinstance(when, Equality) else when.rel_op
        left, right = (self._name(self._known(side)) for side in (when.lhs, when.rhs))
        return f"({left} {operator} {right})"


def _reachable(expr: Expr) -> list[tuple[Expr, Expr]]:
    """The pieces that can be chosen, up to the first that always is, with SymPy's if-then-else seams spelled out."""
    pieces = []
    for value, when in expr.args:
        if when.has(ITE):  # what SymPy makes of comparing a piecewise value
            when = when.to_nnf()
        if when is not sympy.false:
            pieces.append((value, when))
        if when is sympy.true:
            break
    return pieces


def _is_reciprocal(expr: Expr) -> bool:
    return isinstance(expr, Pow) and expr.exp.is_Integer and expr.exp < 0


def _quotient(above: list[str], below: list[str]) -> str:
    if not below:
        return " * ".join(above) if len(above) < 2 else f"({' * '.join(above)})"
    return f"({' * '.join(above) or '1.0'} / ({' * '.join(below)}))"


def _number(expr: Expr) -> str:
    value = float(expr)
    if not math.isfinite(value):
        raise DefinitionError(f"The constant {expr} is not a finite number.")
    return repr(value)
