"""The engines as words of the text language: which arguments each takes, and how they are read."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import FormulaError, did_you_mean
from ...spec import Activation, Param
from ...spec.algebra import Expr
from ..entropic.densities import NAMED
from ..entropic.descent import worst
from ..entropic.eafo import eafo
from ..joining import MOST_PIECES, join, rescu
from ..smoothing.mollify import mollify

if TYPE_CHECKING:
    from .language import Language

_MISSING: Any = object()


class Call:
    """The arguments of one call in a text, each taken once, by place or by name."""

    def __init__(self, node: ast.Call, language: Language, depth: int) -> None:
        assert isinstance(node.func, ast.Name)
        self.engine = node.func.id
        self.language = language
        self.depth = depth
        self.places = list(node.args)
        self.named: dict[str, ast.expr] = {}
        self._asked: list[str] = []
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in self.named:
                raise FormulaError(f"{self.engine} takes arguments by place and by name, each once and without stars.")
            self.named[keyword.arg] = keyword.value
        if any(isinstance(argument, ast.Starred) for argument in self.places):
            raise FormulaError(f"{self.engine} takes arguments by place and by name, each once and without stars.")
        own_name = self.named.pop("name", None)
        self.name = None if own_name is None else self.word_of(own_name, "name")

    def take(self, name: str, *, default: Any = _MISSING) -> Any:
        """The node of an argument."""
        self._asked.append(name)
        if self.places:
            if name in self.named:
                raise FormulaError(f"{self.engine} was given {name} twice.")
            return self.places.pop(0)
        node = self.named.pop(name, default)
        if node is _MISSING:
            raise FormulaError(f"{self.engine} needs {name}.")
        return node

    def finish(self) -> None:
        """Refuse what nobody asked for."""
        if self.places:
            raise FormulaError(f"{self.engine} takes {', '.join(self._asked)}, and more was given.")
        for name in self.named:
            raise FormulaError(
                f"{self.engine} has no argument {name!r}; it takes {', '.join([*self._asked, 'name'])}."
                f"{did_you_mean(name, self._asked)}"
            )

    # -- kinds of argument ----------------------------------------------------------------------------

    def function(self, name: str) -> Activation:
        return self.language.source(self.take(name), self.depth)

    def word(self, name: str, default: str) -> str:
        node = self.take(name, default=None)
        return default if node is None else self.word_of(node, name)

    def word_of(self, node: ast.AST, name: str) -> str:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        raise FormulaError(f"{self.engine} takes a word as {name}.")

    def several(self, name: str, default: str) -> str | tuple[str, ...]:
        """A word, or words in brackets."""
        node = self.take(name, default=None)
        if isinstance(node, ast.Tuple | ast.List):
            if not 1 <= len(node.elts) <= MOST_PIECES:
                raise FormulaError(f"{self.engine} takes 1 to {MOST_PIECES} words as {name}.")
            return tuple(self.word_of(element, name) for element in node.elts)
        return default if node is None else self.word_of(node, name)

    def whole(self, name: str, default: int) -> int:
        node = self.take(name, default=None)
        if node is None:
            return default
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
            return node.value
        raise FormulaError(f"{self.engine} takes a whole number as {name}.")

    def flag(self, name: str, default: bool) -> bool:
        node = self.take(name, default=None)
        if node is None:
            return default
        if isinstance(node, ast.Constant) and isinstance(node.value, bool):
            return node.value
        raise FormulaError(f"{self.engine} takes True or False as {name}.")

    def number(self, name: str) -> float:
        value = self.language.expression(self.take(name), self.depth)
        if not value.is_number:
            raise FormulaError(f"{self.engine} takes a number as {name}, and {value} is none.")
        return float(value)

    def width(self, name: str) -> str | float | Param:
        """A number, a declared parameter, or the name of a new one."""
        node = self.take(name, default=None)
        if node is None:
            return "delta"
        if isinstance(node, ast.Name | ast.Constant) and not (
            isinstance(node, ast.Constant) and not isinstance(node.value, str)
        ):
            word = self.word_of(node, name)
            return self.language.params.get(word, word)
        value = self.language.expression(node, self.depth)
        if not value.is_number:
            raise FormulaError(f"{self.engine} takes a number or the name of a parameter as {name}.")
        return float(value)

    def pair(self, name: str) -> tuple[Expr, Expr]:
        """Two points in brackets."""
        node = self.take(name)
        if not isinstance(node, ast.Tuple | ast.List) or len(node.elts) != 2:
            raise FormulaError(f"{self.engine} takes two points as {name}, such as {name}=(-1, 1).")
        first, second = (self.language.expression(element, self.depth) for element in node.elts)
        return first, second

    def pieces(self) -> list[Any]:
        """Pairs (function, where it ends) and a last function, side by side or in one list."""
        nodes = self.places
        if len(nodes) == 1 and isinstance(nodes[0], ast.List):
            nodes = nodes[0].elts
        self.places = []
        if not 2 <= len(nodes) <= MOST_PIECES:
            raise FormulaError(
                f"{self.engine} takes 2 to {MOST_PIECES} pieces: (function, where it ends), and a last one."
            )
        parts: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Tuple | ast.List) and len(node.elts) == 2:
                function, end = node.elts
                parts.append((self.language.source(function, self.depth), self.language.expression(end, self.depth)))
            else:
                parts.append(self.language.source(node, self.depth))
        return parts

    def occurring(self, *points: Expr) -> tuple[Param, ...]:
        """The declared parameters that stand in some points."""
        symbols = set().union(*(point.free_symbols for point in points))
        return tuple(param for param in self.language.params.values() if param.symbol in symbols)


def _mollify(call: Call) -> Activation:
    source, kernel, width = call.function("f"), call.several("kernel", "epanechnikov"), call.width("width")
    return mollify(source, kernel, width)


def _join(call: Call) -> Activation:
    left, right, between = call.function("left"), call.function("right"), call.pair("between")
    smoothness, fixed = call.whole("smoothness", 1), call.flag("fixed", False)
    return join(left, right, between=between, smoothness=smoothness, fixed=fixed, params=call.occurring(*between))


def _rescu(call: Call) -> Activation:
    pieces, smoothness = call.pieces(), call.whole("smoothness", 1)
    ends = [piece[1] for piece in pieces if isinstance(piece, tuple)]
    return rescu(pieces, smoothness=smoothness, params=call.occurring(*ends))


def _eafo(call: Call) -> Activation:
    source, density, flat = call.function("f"), call.word("density", "normal"), call.word("flat", "leave")
    _check_density(density)
    return eafo(source, density, flat=flat).activation


def _worst(call: Call) -> Activation:
    density, low, high = call.word("density", "normal"), call.number("low"), call.number("high")
    _check_density(density)
    return worst(density, low, high)


def _check_density(name: str) -> None:
    """By name alone: a formula would be integrated, which can take SymPy as long as it likes."""
    if name not in NAMED:
        raise FormulaError(f"There is no density {name!r}; choose among {', '.join(NAMED)}.{did_you_mean(name, NAMED)}")


ENGINES: dict[str, Callable[[Call], Activation]] = {
    "mollify": _mollify,
    "join": _join,
    "rescu": _rescu,
    "eafo": _eafo,
    "worst": _worst,
}
