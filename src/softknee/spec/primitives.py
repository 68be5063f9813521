"""The stable functions of the formula language.

A formula uses these instead of spelling them out with exp and log. Each knows three things: its textbook
form (`elementary`, what the 50-digit reference evaluates), its derivative written again in stable
primitives (`fdiff`, so that no derivative of any order cancels in a tail), and how it is typeset.
Each backend has its own lowering for them (`torch_printer`, `triton_printer`).
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ..errors import FormulaError
from .algebra import Expr, Float, Piecewise, exp, log, pi, sqrt, sympy
from .precision import compiled, context_of

x = sympy.Symbol("x", real=True)
"""The input of every activation."""
u = sympy.Symbol("u", real=True)
"""The scaled input of a formula (see `Inner`)."""
v = sympy.Symbol("v", real=True)
"""The value of an implicit function (see `Implicit`)."""


MOST_CASES = 64


@functools.lru_cache(maxsize=512)  # each derivative by a parameter asks for the same corners
def compared(rule: Callable[[Expr, Expr], Expr], left: Expr, right: Expr) -> Expr:
    """The comparison by `rule`; where there are pieces inside, case by case.

    SymPy would ask on which sets of numbers each case holds, which takes minutes. A case without a real value is False.

    >>> compared(sympy.Gt, Piecewise((x, x < 1), (2, True)), sympy.Integer(0))
    (x >= 1) | ((x > 0) & (x < 1))
    """
    if not (left.has(Piecewise) or right.has(Piecewise)):
        return rule(left, right)
    parts = []
    for when, difference in _cases(left - right):
        if len(parts) == MOST_CASES:
            raise FormulaError(
                f"A condition, or the corner of relu, max, min or clip, has more than {MOST_CASES} cases of pieces "
                "inside; write the pieces outermost, or fewer of them."
            )
        if not difference.has(sympy.nan, sympy.zoo, sympy.I):
            parts.append(sympy.And(when, rule(difference, sympy.Integer(0))))
    return sympy.Or(*parts)


def _cases(expr: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The expression without pieces for each choice of them, and when that choice is the one."""
    inner = next((p for p in expr.atoms(Piecewise) if not any(piece.has(Piecewise) for piece, _ in p.args)), None)
    if inner is None:
        yield sympy.true, expr
        return
    before: list[Expr] = []
    for piece, when in inner.args:
        condition = sympy.And(*before, when)
        before.append(sympy.Not(when))
        if condition != sympy.false:
            for other, value in _cases(expr.xreplace({inner: piece})):
                yield sympy.And(condition, other), value


class Primitive(sympy.Function):
    """A function of the formula language with a textbook form and a stable derivative.

    Each has a class method `elementary` (the textbook form in SymPy's own functions) and a method `fdiff`.
    """

    nargs = 1
    tex: ClassVar[str]

    @classmethod
    def eval(cls, *args: Any) -> Expr | None:
        if all(isinstance(arg, Float) or arg.is_Rational for arg in args):
            return cls.elementary(*args)
        return None

    def _eval_is_extended_real(self) -> bool | None:
        # Without it SymPy differentiates abs(...) of a primitive as that of a complex number.
        return True if all(arg.is_extended_real for arg in self.args) else None

    def _eval_evalf(self, prec: int) -> Expr:
        return self.elementary(*self.args)._eval_evalf(prec)

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        inner = ", ".join(printer._print(arg) for arg in self.args)
        text = rf"{self.tex}\left({inner}\right)"
        return rf"{text}^{{{exp}}}" if exp else text

    @classmethod
    def _imp_(cls, *args: Any) -> Any:
        """Lets `sympy.lambdify` evaluate a formula with mpmath numbers."""
        names = [sympy.Symbol(f"a{i}", real=True) for i in range(len(args))]
        mp = context_of(*args)
        return compiled(names, cls.elementary(*names), mp)(*map(mp.convert, args))


class Sigmoid(Primitive):
    """1/(1 + e^-u). Its derivative is sigmoid(u) sigmoid(-u): no 1 - sigmoid, which would cancel."""

    tex = r"\sigma"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return 1 / (1 + exp(-u))

    def fdiff(self, argindex: int = 1) -> Expr:
        (u,) = self.args
        return Sigmoid(u) * Sigmoid(-u)


class Softplus(Primitive):
    """log(1 + e^u)."""

    tex = r"\operatorname{softplus}"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return log(1 + exp(u))

    def fdiff(self, argindex: int = 1) -> Expr:
        return Sigmoid(self.args[0])


class Tanh(Primitive):
    """tanh(u), with its slope a primitive too: 1 - tanh^2 would cancel."""

    tex = r"\tanh"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return sympy.tanh(u)

    def fdiff(self, argindex: int = 1) -> Expr:
        return SechSquared(self.args[0])


class SechSquared(Primitive):
    """1/cosh(u)^2, the slope of tanh, exact relative to its size in both tails."""

    tex = r"\operatorname{sech}^2"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return 1 / sympy.cosh(u) ** 2

    def fdiff(self, argindex: int = 1) -> Expr:
        (u,) = self.args
        return -2 * Tanh(u) * SechSquared(u)


class MishGate(Primitive):
    """tanh(log(1 + e^u)), with its slope 4 s c^2/(1 + c^2)^2 in s = sigmoid(u), c = sigmoid(-u): nothing cancels."""

    tex = r"\tanh\operatorname{softplus}"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return sympy.tanh(log(1 + exp(u)))

    def fdiff(self, argindex: int = 1) -> Expr:
        s, c = Sigmoid(self.args[0]), Sigmoid(-self.args[0])
        return 4 * s * c**2 / (1 + c**2) ** 2


class NormalPdf(Primitive):
    """The standard normal density."""

    tex = r"\varphi"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return exp(-(u**2) / 2) / sqrt(2 * pi)

    def fdiff(self, argindex: int = 1) -> Expr:
        (u,) = self.args
        return -u * NormalPdf(u)


class NormalCdf(Primitive):
    """The standard normal distribution function, exact relative to its size in the left tail."""

    tex = r"\Phi"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return sympy.erfc(-u / sqrt(2)) / 2

    def fdiff(self, argindex: int = 1) -> Expr:
        return NormalPdf(self.args[0])


class Expm1(Primitive):
    """e^u - 1."""

    tex = r"\operatorname{expm1}"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return exp(u) - 1

    def fdiff(self, argindex: int = 1) -> Expr:
        return exp(self.args[0])


class Log1p(Primitive):
    """log(1 + u)."""

    tex = r"\operatorname{log1p}"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return log(1 + u)

    def fdiff(self, argindex: int = 1) -> Expr:
        return 1 / (1 + self.args[0])


class Log1pUnit(Log1p):
    """log(1 + u) for an argument that is known to lie in [0, 1], where one short series does."""


class Log1pMinus(Primitive):
    """log(1 + u) - u, exact relative to its size near 0, where it is -u^2/2."""

    tex = r"\operatorname{log1pmx}"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return log(1 + u) - u

    def fdiff(self, argindex: int = 1) -> Expr:
        (u,) = self.args
        return -u / (1 + u)


class Log1pMinusNear(Log1pMinus):
    """log(1 + u) - u for an argument that is known to lie in [-0.29, 0.41], where one series does."""


class Ramp(Primitive):
    """max(u, 0), with slope 0 at 0."""

    tex = r"\operatorname{relu}"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return Piecewise((u, u > 0), (0, True))

    def fdiff(self, argindex: int = 1) -> Expr:
        (u,) = self.args
        corner = compared(sympy.Gt, u, sympy.Integer(0))
        return _step(corner, inside=1, outside=0) if u.has(Piecewise) else Piecewise((1, corner), (0, True))


def _inside(u: Expr, low: int) -> Expr:
    """1 from low to 1, and 0 outside."""
    if not u.has(Piecewise):
        return Piecewise((0, u < low), (0, u > 1), (1, True))
    # As a product: SymPy would bring two long conditions of one Piecewise into a normal form, of exponential length.
    ends = compared(sympy.Lt, u, sympy.Integer(low)), compared(sympy.Gt, u, sympy.Integer(1))
    return sympy.Mul(*(_step(end, inside=0, outside=1) for end in ends))


def _step(when: Expr, *, inside: int, outside: int) -> Expr:
    """One number where a long condition holds, another elsewhere, without SymPy's search for a normal form of it."""
    if when in (sympy.true, sympy.false):
        return sympy.Integer(inside if when == sympy.true else outside)
    return Piecewise((sympy.Integer(inside), when), (sympy.Integer(outside), True), evaluate=False)


class Unit(Primitive):
    """u clipped to [0, 1]."""

    tex = r"\operatorname{clip}_{[0,1]}"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return Piecewise((0, u < 0), (1, u > 1), (u, True))

    def fdiff(self, argindex: int = 1) -> Expr:
        (u,) = self.args
        return _inside(u, 0)


class Clip(Primitive):
    """u clipped to [-1, 1]; near 0 it keeps every digit of u."""

    tex = r"\operatorname{clip}_{[-1,1]}"

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return Piecewise((-1, u < -1), (1, u > 1), (u, True))

    def fdiff(self, argindex: int = 1) -> Expr:
        (u,) = self.args
        return _inside(u, -1)


class Line(Primitive):
    """g u, with 0 where g is 0 even at an infinite u: a flat line stays flat for ever."""

    nargs = 2

    @classmethod
    def elementary(cls, g: Expr, u: Expr) -> Expr:
        return g * u

    @classmethod
    def eval(cls, *args: Any) -> Expr | None:
        g, u = args
        return g * u if g.is_number or (u.is_number and u.is_finite) else None

    def fdiff(self, argindex: int = 1) -> Expr:
        g, u = self.args
        return u if argindex == 1 else g

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = printer._print(self.args[0] * self.args[1])
        return rf"\left({text}\right)^{{{exp}}}" if exp else text


class FiniteLeft(Primitive):
    """u, with -infinity read as the lowest finite number, so that u times a vanishing gate is 0."""

    @classmethod
    def elementary(cls, u: Expr) -> Expr:
        return u

    @classmethod
    def eval(cls, *args: Any) -> Expr | None:
        return args[0] if args[0].is_number else None

    def fdiff(self, argindex: int = 1) -> Expr:
        return sympy.Integer(1)

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        text = printer._print(self.args[0])
        return rf"{text}^{{{exp}}}" if exp else text


# These have finite limits at both infinities, so an infinite argument needs no care.
BOUNDED = (Sigmoid, Tanh, SechSquared, MishGate, NormalCdf, NormalPdf)


def elementary(expr: Expr) -> Expr:
    """The expression with every primitive replaced by its textbook form."""
    primitives = [node for node in sympy.preorder_traversal(expr) if isinstance(node, Primitive)]
    if not primitives:
        return expr
    # Innermost first: a primitive inside another is replaced before the outer one is rewritten.
    return expr.replace(lambda node: isinstance(node, Primitive), lambda node: node.elementary(*node.args))
