"""The text language, with the engines: a definition from a text.

    x * sigmoid(beta * x)                                        a formula; beta must be declared
    0.5 * swish(x, beta=2) + 0.5 * relu(x)                       functions of the zoo inside it, parameters as numbers
    swish                                                        a name: that definition itself
    swish(beta=2)                                                the same with another default
    mollify(relu, epanechnikov, width=0.1)                       an engine; a width may be the name of a new parameter
    mollify(relu, (box, triangle), width=delta)                  a mixture of kernels
    join(g * x, x, between=(-1, 1), smoothness=2, fixed=False)   the piece between two functions
    rescu((0, -1), ((x + 1)**2 / 4, 1), x)                       pieces and where each ends
    eafo(relu, density=normal)                                   entropy-optimised
    eafo(relu, density=logistic(mean=-0.4, scale=0.8))           the same under a density of another place and scale
    worst(normal, 0, 1)                                          the function of highest entropy between two bounds
    with_limit(x * sigmoid(b * x), relu, knob=b)                 a function with ReLU as the hard limit of a knob
    let(x * sigmoid(b * x + c), b=1.0, c="0.5:real")             a text that declares its own parameters
    mollify(join(0, x, between=(-1, 0)), box, width=0.1)         engines inside engines, three deep at most

Formulas are those of `softknee.spec.parse`: read by a whitelist over Python's syntax tree, nothing reaches eval, and
no text can name a file. Parameters are declared beside the text: `params={"beta": 1.0}`, or `--param beta=1.0`
(see `declared`); or inside it by `let`, which any place that takes a name can read. A text that is not in the language,
or beyond its limits, is a `FormulaError`.

>>> from softknee.design import definition
>>> definition("x * sigmoid(beta * x)", params={"beta": 1.0}).derivative(1).params[0].name
'beta'
>>> definition("mollify(relu, box, width=beta)").formula
Piecewise((0, x <= -beta), ((beta + x)**2/(4*beta), x < beta), (x, True))
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import zoo  # noqa: F401 - importing the zoo announces its names
from ...errors import FormulaError, SoftkneeError, did_you_mean, same_name
from ...registry import get, names, resolve_call
from ...spec import Activation, Param, x
from ...spec.activation import remembered
from ...spec.algebra import Expr, sympy
from ...spec.notation import plain_text
from ...spec.parse import FUNCTIONS, Reader, blamed, evaluated, tree_of
from ..entropic.densities import NAMED, Density
from ..entropic.descent import worst
from ..entropic.eafo import eafo
from ..joining import MOST_PIECES, guarded, join, rescu
from ..limits import with_limit
from ..smoothing.mollify import mollify
from .given import LONGEST_NAME, merged_params, read_params

DEEPEST_ENGINES, LARGEST_SOURCE = 3, 200


def definition(text: str, *, params: Sequence[Param] | Mapping[str, Any] = (), name: str | None = None) -> Activation:
    """The definition that a text stands for.

    text:   a formula, a name, or a call of an engine.
    params: the parameters in it: a mapping such as {"beta": 1.0, "g": "0.1:real"}, or several `softknee.spec.Param`.
    name:   what to call the result; an engine and a name of the zoo bring their own.
    """
    declared = read_params(params)
    if name is not None:
        check_name(name)
    activation = read(text, params=declared)
    for param in declared:
        if param.name not in {p.name for p in activation.params}:
            raise FormulaError(f"The parameter {param.name!r} was declared, and nothing in the text contains it.")
    final = merged_params(activation.params, declared, params)
    if final == activation.params and name in (None, activation.name):
        return activation
    recipe = plain_text(text) if text.strip().isidentifier() else activation.recipe
    return activation.with_(name=name or activation.name, params=final, recipe=recipe)


def read(text: str, *, params: Sequence[Param] = ()) -> Activation:
    """As `definition`, for parameters of which some may not occur."""
    body = tree_of(text).body
    written = ast.unparse(body)
    try:
        activation = Language(params).definition(body, 0)
    except FormulaError:
        raise
    except SoftkneeError as error:  # what an engine refuses is, in a text, an error of the text
        raise FormulaError(str(error)) from error
    if isinstance(body, ast.Name):
        return activation
    recipe = plain_text(text) if ast.unparse(body) == written else ast.unparse(body)  # any release reads it again
    return activation if activation.recipe == recipe else activation.with_(recipe=recipe)


def remake(recipe: str, name: str, params: Sequence[Param]) -> Activation:
    """The definition with this recipe, name and parameters; the same one again while anybody has it."""

    def make() -> Activation:
        made = read(recipe, params=params)
        return (
            made if (made.name, made.params) == (name, tuple(params)) else made.with_(name=name, params=tuple(params))
        )

    return remembered((recipe, name, tuple(params)), make)


def check_name(name: Any) -> None:
    """Refuse the name of a definition that is no identifier."""
    plain = isinstance(name, str) and name.isidentifier() and name.isascii() and not name.startswith("__")
    if not plain or len(name) > LONGEST_NAME:
        raise FormulaError(
            f"A definition's name is a word of at most {LONGEST_NAME} plain letters, digits and _; {name!a} is not."
        )


class _Formulas(Reader):
    """The reader of formulas, which here can say how a parameter is declared."""

    def declare(self, name: str) -> str:
        return (
            f" A parameter of your own is declared beside the text: softknee.design.definition(text, "
            f"params={{{name!r}: 1.0}}), or --param {name}=1.0."
        )


class Language:
    """Reads one text: formulas by the whitelist, engines by their own arguments."""

    def __init__(self, params: Sequence[Param]) -> None:
        self.params = {param.name: param for param in params}
        self.engines = 0

    def definition(self, node: ast.AST, depth: int) -> Activation:
        """What stands where a function is wanted: a name, a call of an engine, or a formula."""
        with blamed(node):
            return self._definition(node, depth)

    def _definition(self, node: ast.AST, depth: int) -> Activation:
        if isinstance(node, ast.Name) and node.id not in self.params and node.id not in ("x", "X", "pi", "e"):
            return self.named(node.id, is_part=depth > 0)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            node.func.id = same_name(node.func.id, ENGINES) or node.func.id
            if node.func.id in ENGINES:
                return self.engine(node, depth)
        if isinstance(node, ast.Call) and not node.args and (call := resolve_call(ast.unparse(node))) is not None:
            return call.as_definition()
        brought: dict[str, Param] = {}
        expr = self._reader(brought).formula(node, depth)
        known = brought | self.params
        used = tuple(param for param in known.values() if param.symbol in expr.free_symbols)
        return guarded("formula", expr, params=used, recipe=ast.unparse(node), about="A formula of a user's own.")

    def expression(self, node: ast.AST, depth: int) -> Expr:
        """A point or a number: a formula without x."""
        expr = self._reader({}).formula(node, depth)
        if expr.has(x):
            raise FormulaError(f"x stands where a point is wanted, in {ast.unparse(node)!r}.")
        return expr

    def named(self, name: str, *, is_part: bool = False) -> Activation:
        """The element-wise definition of that name."""
        known = names()
        if same_name(name, known) is None:
            near = did_you_mean(name, [*known, *self.params, *ENGINES, *FUNCTIONS])
            error = FormulaError(f"No activation is called {name!r}, and no such parameter is declared.{near}")
            error.unknown = name if is_part and not near else None
            raise error
        definition = get(name)
        if not isinstance(definition, Activation):
            raise FormulaError(f"{name!r} is not an element-wise formula, and the language has no other kind.")
        return definition

    def engine(self, node: ast.Call, depth: int) -> Activation:
        """The definition that an engine makes."""
        assert isinstance(node.func, ast.Name)
        if self.engines >= DEEPEST_ENGINES:
            raise FormulaError(f"Engines stand inside each other deeper than {DEEPEST_ENGINES}.")
        self.engines += 1
        try:
            call = Call(node, self, depth + 1)
            made = ENGINES[node.func.id](call)
            call.finish()
        except FormulaError:
            raise
        except SoftkneeError as error:  # what an engine refuses is, in a text, an error of the text
            raise FormulaError(str(error)) from error
        finally:
            self.engines -= 1
        own = call.name
        if own is not None:
            check_name(own)
        return made if own is None else made.with_(name=own)

    def source(self, node: ast.AST, depth: int) -> Activation:
        """A function handed to an engine, which must be of moderate size."""
        activation = self.definition(node, depth)
        if activation.formula.count_ops() > LARGEST_SOURCE:
            raise FormulaError(f"A function handed to an engine has more than {LARGEST_SOURCE} operations.")
        return activation

    # -- calls inside formulas ------------------------------------------------------------------------

    def _reader(self, brought: dict[str, Param]) -> Reader:
        calls: dict[str, Callable[[ast.Call, int], Expr]] = {}
        reader = _Formulas(tuple(self.params.values()), calls)
        for name in ENGINES:
            calls[name] = lambda node, depth: self._inner_engine(node, depth, brought, reader)
        for name in names():
            if name not in FUNCTIONS:
                calls[name] = lambda node, depth: self._inner_name(node, depth, reader)
        return reader

    def _inner_engine(self, node: ast.Call, depth: int, brought: dict[str, Param], reader: Reader) -> Expr:
        made = self.engine(node, depth)
        self._closed(made)
        for param in made.params:
            other = (brought | self.params).setdefault(param.name, param)
            if other.symbol != param.symbol:
                raise FormulaError(f"Two different parameters are called {param.name!r}; rename one of them.")
            brought.setdefault(param.name, param)
        return reader.sized(made.formula)

    def _inner_name(self, node: ast.Call, depth: int, reader: Reader) -> Expr:
        """A function of the zoo with numbers (or expressions) for its parameters."""
        assert isinstance(node.func, ast.Name)
        act = self.named(node.func.id)
        self._closed(act)
        if len(node.args) != 1:
            raise FormulaError(
                f"{act.name} takes one argument inside a formula, as in {act.name}(x), and {len(node.args)} were given."
            )
        values = {p.symbol: sympy.Rational(repr(p.default)) for p in act.params}
        for keyword in node.keywords:
            known = [p.name for p in act.params]
            if keyword.arg not in known:
                raise FormulaError(f"{act.name} has no parameter {keyword.arg!r}.{did_you_mean(keyword.arg, known)}")
            values[act.param(keyword.arg).symbol] = reader.value(keyword.value, depth + 1)
        # A default that a preset stands beside is a choice of ours: the recipe says the number.
        missing = {name for preset in act.presets.values() for name in preset} - {item.arg for item in node.keywords}
        node.keywords += [ast.keyword(name, ast.Constant(act.param(name).default)) for name in sorted(missing)]
        argument = reader.value(node.args[0], depth + 1)
        formula = reader.sized(act.formula.xreplace(values))
        return evaluated(lambda at: formula.xreplace({x: at}), argument, act.name)

    def _closed(self, act: Activation) -> None:
        if act.implicit is not None:
            raise FormulaError(f"{act.name} is given by its inverse and cannot stand inside a formula.")


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

    def several(self, name: str, default: Any = _MISSING) -> str | tuple[str, ...]:
        """A word, or words in brackets."""
        node = self.take(name, default=_MISSING if default is _MISSING else None)
        if isinstance(node, ast.Tuple | ast.List):
            if not 1 <= len(node.elts) <= MOST_PIECES:
                raise FormulaError(f"{self.engine} takes 1 to {MOST_PIECES} words as {name}.")
            return tuple(self.word_of(element, name) for element in node.elts)
        return default if node is None else self.word_of(node, name)

    def whole(self, name: str, default: int) -> int:
        return self._constant(name, default, "a whole number")

    def flag(self, name: str, default: bool) -> bool:
        return self._constant(name, default, "True or False")

    def _constant(self, name: str, default: Any, words: str) -> Any:
        """A constant of the default's type."""
        node = self.take(name, default=None)
        if node is None:
            return default
        if isinstance(node, ast.Constant) and type(node.value) is type(default):
            return node.value
        raise FormulaError(f"{self.engine} takes {words} as {name}.")

    def declared(self) -> dict[str, float | str]:
        """Every argument by name that is left, as the declaration of a parameter: a number, or a text with its kind."""
        values: dict[str, float | str] = {}
        for name, node in self.named.items():
            text = node.value if isinstance(node, ast.Constant) else None
            values[name] = text if isinstance(text, str) else self._number(node, name)
        self.named = {}
        return values

    def number(self, name: str) -> float:
        return self._number(self.take(name), name)

    def density(self, name: str) -> str | Density:
        """A density by name, "normal" where there is none, or with its place and scale: normal(mean=0.5, scale=2)."""
        node = self.take(name, default=None)
        if not isinstance(node, ast.Call):
            word = "normal" if node is None else self.word_of(node, name)
            _check_density(word)
            return word
        word = self.word_of(node.func, name)
        _check_density(word)
        takes = inspect.signature(NAMED[word]).parameters
        given = {keyword.arg or "": keyword.value for keyword in node.keywords}
        if node.args or len(given) < len(node.keywords) or not given.keys() <= takes.keys():
            raise FormulaError(f"The density {word} takes {' and '.join(takes)}, by name and each once.")
        return NAMED[word](**{key: self._number(value, key) for key, value in given.items()})

    def _number(self, node: ast.AST, name: str) -> float:
        value = self.language.expression(node, self.depth)
        if not value.is_number:
            raise FormulaError(f"{self.engine} takes a number as {name}, and {value} is none.")
        return float(value)

    def width(self, name: str) -> str | float | Param:
        """A number, a declared parameter, or the name of a new one."""
        node = self.take(name, default=None)
        if node is None:
            return "delta"
        if isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
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
    source, density, flat = call.function("f"), call.density("density"), call.word("flat", "leave")
    return eafo(source, density, flat=flat).activation


def _worst(call: Call) -> Activation:
    density, low, high = call.density("density"), call.number("low"), call.number("high")
    return worst(density, low, high)


def _with_limit(call: Call) -> Activation:
    return with_limit(call.function("f"), call.word("limit", "relu"), knob=call.several("knob"))


def _let(call: Call) -> Activation:
    body, values = call.take("f"), call.declared()
    declared = read_params(values)
    inner = Language((*call.language.params.values(), *declared))
    inner.engines = call.language.engines
    made = inner.source(body, call.depth)
    for name in values:
        if name not in {param.name for param in made.params}:
            raise FormulaError(f"let declares the parameter {name!r}, and nothing in it contains it.")
    final = merged_params(made.params, declared, values | {p.name: p for p in made.params if p.name not in values})
    return made if final == made.params else made.with_(params=final)


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
    "with_limit": _with_limit,
    "let": _let,
}
