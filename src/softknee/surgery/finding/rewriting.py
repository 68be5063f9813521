"""Puts a module in the place of a call that is written into a method, such as `F.relu(x)` in a forward.

The method is compiled again from its own source with that one call replaced by `self.NAME(x)`, and the owner gets a
subclass of its class with the new method. What is left is ordinary Python: compilers, exporters and debuggers see a
module being called, at the line where the function was called before.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import inspect
import linecache
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

from torch import fx, nn

from ...errors import InputError

Position = tuple[int, int, int, int]
"""A call in a method: first line and last line, counted from the method's own first line, first and last column."""


@dataclass(frozen=True)
class Call:
    """A call in a method, or a larger expression that computes one activation."""

    method: str
    """The name of the method; that of a base class, which only `super()` reaches, is `Base.forward`."""
    position: Position
    text: str
    attribute: str = ""
    """The owner's attribute that is called, if it is one: `act` in `self.act(x)`."""
    on_tensor: bool = False
    """Whether it is a method of its tensor (`x.relu()`)."""
    tensor: str = ""
    """Of a larger expression, such as `h * torch.sigmoid(h)`: the part that is its input, `h`."""


class CannotRewrite(Exception):
    """The reason why a call cannot be replaced, as a half sentence."""


# -- methods --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """A method of a class: the function as it was written, and the decorators around it.

    name:     the attribute of the class, or `Base.forward` where a subclass has overridden it.
    function: the function that was written.
    wrappers: the functions that decorators put around it, from the outside in, each with the place in its closure
              where the next one is.
    """

    name: str
    function: Any  # a FunctionType, which type checkers would bind to the object as a method
    wrappers: tuple[tuple[FunctionType, int], ...] = ()

    def wrapped(self, function: FunctionType) -> FunctionType:
        """The same decorators around another function."""
        inside = self.function
        for wrapper, index in reversed(self.wrappers):
            cells = list(wrapper.__closure__ or ())
            cells[index] = CellType(function)
            made = rebuilt(wrapper, wrapper.__code__, tuple(cells))
            # Marks such as __wrapped__ name the function inside.
            vars(made).update({name: function for name, value in vars(wrapper).items() if value is inside})
            inside, function = wrapper, made
        return function


def rebuilt(function: FunctionType, code: CodeType, closure: tuple[CellType, ...]) -> FunctionType:
    """A function with other code or another closure, and everything else as it was."""
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    functools.update_wrapper(made, function)
    del vars(made)["__wrapped__"]
    vars(made).update(vars(function))
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def method_named(owner: type, name: str) -> Method | None:
    """The method of that name, None where the class has none that is written in Python."""
    if issubclass(owner, fx.GraphModule):
        return None
    home, _, attribute = name.rpartition(".")
    if not home:
        return _method(name, inspect.getattr_static(owner, name, None))
    bases = (cls for cls in owner.__mro__ if cls.__qualname__ == home and attribute in vars(cls))
    return next((_method(name, vars(cls)[attribute]) for cls in bases), None)


def methods(owner: type, *, below: type) -> Iterator[Method]:
    """The methods that a class has of its own or inherits, down to the class `below`; each as `super()` reaches it."""
    seen: set[str] = set()
    for cls in owner.__mro__ if not issubclass(owner, fx.GraphModule) else ():
        if issubclass(below, cls):
            continue
        for attribute in sorted(vars(cls)):
            name = attribute if attribute not in seen else f"{cls.__qualname__}.{attribute}"
            seen.add(attribute)
            if (method := _method(name, vars(cls)[attribute])) is not None:
                yield method


def method_of(owner: type, code: CodeType) -> Method | None:
    """The method of a class that has that code."""
    method = method_named(owner, code.co_name)
    if method is not None and method.function.__code__ is code:
        return method
    # A method of a base class, or a function that was put into the class under another name.
    return next((each for each in methods(owner, below=object) if each.function.__code__ is code), None)


def _method(name: str, value: Any) -> Method | None:
    """The function behind an attribute of a class, found through the decorators around it."""
    if not isinstance(value, FunctionType):
        return None
    wrappers: list[tuple[FunctionType, int]] = []
    while (index := _wraps(value, name.rpartition(".")[2])) is not None:
        wrappers.append((value, index))
        value = (value.__closure__ or ())[index].cell_contents
    # A decorator that keeps its function elsewhere cannot be put around another one.
    return None if hasattr(value, "__wrapped__") else Method(name, value, tuple(wrappers))


def _wraps(function: FunctionType, name: str) -> int | None:
    """Where in its closure a decorator's function has the function that it decorates; None where it is none."""
    inside = vars(function).get("__wrapped__")
    for index, cell in enumerate(function.__closure__ or ()):
        try:
            held = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        undeclared = isinstance(held, FunctionType) and held.__name__ == name != function.__code__.co_name
        if isinstance(held, FunctionType) and (held is inside or (inside is None and undeclared)):
            return index
    return None


# -- calls ----------------------------------------------------------------------------------------------------


def node_at(function: FunctionType, position: Position) -> ast.expr:
    """The expression at a place of a function's source."""
    for node in ast.walk(definition_of(function)):
        if isinstance(node, ast.expr) and position in (span(node, function), _span_in_code(node, function)):
            return node
    raise CannotRewrite("no call of it is written there")


@functools.lru_cache(maxsize=1024)
def parents_of(definition: ast.FunctionDef) -> dict[ast.AST, ast.AST]:
    """For every node of a function the node around it."""
    return {child: node for node in ast.walk(definition) for child in ast.iter_child_nodes(node)}


def describe(
    function: FunctionType, node: ast.expr, *, method: str, on_tensor: bool = False, tensor: ast.expr | None = None
) -> Call:
    """What a call in a method is, or why it cannot be replaced; with `tensor`, of a larger expression."""
    if tensor is None and (not isinstance(node, ast.Call) or tensor_of(node, on_tensor=on_tensor) is None):
        raise CannotRewrite(f"which argument of {ast.unparse(node)!r} is its tensor cannot be told")
    me = function.__code__.co_varnames[0]
    if _rebinds(definition_of(function), me, node):
        raise CannotRewrite(f"{me!r} means something else where it is called")
    return Call(
        method=method,
        position=span(node, function),
        text=ast.unparse(node),
        attribute=_attribute(node, me, function.__code__) if isinstance(node, ast.Call) and tensor is None else "",
        on_tensor=on_tensor,
        tensor=ast.unparse(tensor) if tensor is not None else "",
    )


def _attribute(node: ast.Call, me: str, code: CodeType) -> str:
    """The attribute of the first argument that is called, as it is really named, or nothing."""
    func = node.func
    if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == me):
        return ""
    if func.attr.startswith("__") and not func.attr.endswith("__") and (home := _class_of(code)):
        return f"_{home.lstrip('_')}{func.attr}"
    return func.attr


def _class_of(code: CodeType) -> str:
    """The class that a function is written in, or nothing."""
    around = code.co_qualname.split(".")[:-1]
    return around[-1] if around and around[-1] != "<locals>" else ""


@functools.lru_cache(maxsize=4096)
def calls_of(function: FunctionType) -> tuple[tuple[ast.Call, str], ...]:
    """Every call in a function, with the owner's attribute that is called, if it is one."""
    code = function.__code__
    if not code.co_argcount:
        return ()
    calls = [node for node in ast.walk(definition_of(function)) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    return tuple((node, _attribute(node, code.co_varnames[0], code)) for node in calls)


def tensor_of(node: ast.Call, *, on_tensor: bool) -> ast.expr | None:
    """The expression of the tensor that a call is made on; None where it cannot be told."""
    if on_tensor:
        return node.func.value if isinstance(node.func, ast.Attribute) else None
    if node.args:
        return None if isinstance(node.args[0], ast.Starred) else node.args[0]
    return next((keyword.value for keyword in node.keywords if keyword.arg == "input"), None)


def span(node: ast.AST, function: FunctionType) -> Position:
    """The place of a node in the source of a function."""
    first = function.__code__.co_firstlineno
    lines = (getattr(node, "lineno", first) - first, getattr(node, "end_lineno", first) - first)
    return (*lines, getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0))


def _span_in_code(node: ast.expr, function: FunctionType) -> Position:
    """Where the compiler says that a method is called whose name stands on a line after its object: at the name."""
    first, last, column, end = span(node, function)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return first, last, column, end
    at = (node.func.end_lineno or 0) - function.__code__.co_firstlineno
    if at == first:
        return first, last, column, end
    column = (node.func.end_col_offset or 0) - len(node.func.attr)
    return at, last, column, max(end, column) if last <= at else end


def _rebinds(definition: ast.FunctionDef, me: str, node: ast.AST) -> bool:
    """Whether the method gives its first argument's name to something else, or a function around the node does."""
    inside = list(ast.walk(definition))
    if any(isinstance(part, ast.Name) and part.id == me and not isinstance(part.ctx, ast.Load) for part in inside):
        return True
    functions = [part for part in inside if isinstance(part, ast.FunctionDef | ast.Lambda) and part is not definition]
    around = [function for function in functions if any(part is node for part in ast.walk(function))]
    arguments = [part for function in around for part in ast.iter_child_nodes(function.args)]
    return any(isinstance(part, ast.arg) and part.arg == me for part in arguments)


# -- source and code: nothing is believed of a source that does not compile to the very code that runs ------
#
# A file may have been edited since it was imported, and a tool may have changed the function.


@functools.lru_cache(maxsize=4096)
def definition_of(function: FunctionType) -> ast.FunctionDef:
    """The source of a function, which is checked to be what runs."""
    code = function.__code__
    for node in _functions(_tree(code.co_filename)).get((code.co_name, code.co_firstlineno), ()):
        if _same(compiled(node, function), code):
            return node
    raise CannotRewrite(
        f"the source of {code.co_name!r} is not there or is not the code that runs (was the file changed since it was "
        f"imported?)"
    )


def compiled(definition: ast.FunctionDef, function: FunctionType) -> CodeType | None:
    """The code of a definition, as if it stood where the function stands."""
    code = function.__code__
    home = _class_of(code)
    free = [name for name in code.co_freevars if name != "__class__"]
    # What is defined here stood in its module: who mentions it (super(Net, self)) means the global of that name.
    outermost = home or code.co_name
    known = f"global {outermost}" if outermost not in free else "pass"
    # Inside a class of the same name, so that private names (self.__x) and super() mean what they meant.
    tree = ast.parse(f"def factory({', '.join(free)}):\n {known}\n class {home or 'Home'}: pass")
    factory: Any = tree.body[0]
    inside = factory.body[1] if home else factory
    bare = copy.copy(definition)
    bare.decorator_list = []
    inside.body = [bare] if home else [factory.body[0], bare]
    tree.body[:0] = _imports(code.co_filename)
    ast.fix_missing_locations(tree)
    result: CodeType | None = compile(tree, code.co_filename, "exec", flags=_future(code), dont_inherit=True)
    for name in ("factory", home, code.co_name):
        result = _inner(result, name) if result is not None and name else result
    return result


def _imports(file: str) -> list[ast.stmt]:
    """The names that a file imports, as imports: Python compiles calls on them in a way of its own."""
    names: list[str] = []
    outside: list[ast.AST] = [*_tree(file).body]
    while outside:
        node = outside.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            names += [alias.asname or alias.name.partition(".")[0] for alias in node.names if alias.name != "*"]
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            outside += ast.iter_child_nodes(node)
    return [ast.Import(names=[ast.alias(name=name)]) for name in names]


def _inner(code: CodeType, name: str) -> CodeType | None:
    return next((const for const in code.co_consts if isinstance(const, CodeType) and const.co_name == name), None)


def _future(code: CodeType) -> int:
    import __future__

    flags = (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
    return code.co_flags & functools.reduce(int.__or__, flags)


def _same(first: Any, other: Any) -> bool:
    """Whether two code objects do the same, wherever they stand; of other constants, whether they are the same."""
    if not (isinstance(first, CodeType) and isinstance(other, CodeType)):
        return type(first) is type(other) and (first == other or repr(first) == repr(other))
    if any(getattr(first, part) != getattr(other, part) for part in _PARTS) or len(first.co_consts) != len(
        other.co_consts
    ):
        return False
    return all(map(_same, first.co_consts, other.co_consts))


_PARTS = ("co_code", "co_names", "co_varnames", "co_freevars")


@functools.lru_cache(maxsize=64)
def _functions(tree: ast.Module) -> dict[tuple[str, int], list[ast.FunctionDef]]:
    """The functions of a file by name and first line: files of thousands of lines are asked hundreds of times."""
    functions: dict[tuple[str, int], list[ast.FunctionDef]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            functions.setdefault((node.name, first), []).append(node)
    return functions


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _tree(file: str) -> ast.Module:
    text = "".join(linecache.getlines(file))
    try:
        return _parsed(text)
    except (SyntaxError, ValueError):
        raise CannotRewrite(f"{file} cannot be read as Python") from None


# -- classes in which calls go elsewhere -------------------------------------------------------------------

_EDITS = "_softknee_edits"


@dataclass(frozen=True, order=True)
class Target:
    """Where a call goes: the owner's attribute.

    text:      how the call, or the expression, reads.
    on_tensor: whether it was a method of its tensor.
    whole:     whether all arguments go along, or the tensor alone.
    tensor:    of an expression that is replaced whole, how its input reads.
    gate:      of a product that is replaced whole, how its other factor reads, which goes along.
    """

    name: str
    text: str
    on_tensor: bool = False
    whole: bool = False
    tensor: str = ""
    gate: str = ""


Edits = Mapping[str, Mapping[Position, Target]]
"""For each method, the calls that go elsewhere."""
_Frozen = tuple[tuple[str, tuple[tuple[Position, Target], ...]], ...]


def edits_for(calls: Iterable[Call], name: str, *, whole: bool = False) -> dict[str, dict[Position, Target]]:
    """The edits that send these calls to the attribute `name`, with their tensor or with all arguments."""
    edits: dict[str, dict[Position, Target]] = {}
    for call in calls:
        edits.setdefault(call.method, {})[call.position] = Target(name, call.text, call.on_tensor, whole, call.tensor)
    return edits


def with_calls(owner: type[nn.Module], edits: Edits) -> type[nn.Module]:
    """A subclass of `owner` in which these calls of its methods go to attributes of the instance."""
    original, before = edits_of(owner)
    for method, calls in edits.items():
        before.setdefault(method, {}).update(calls)
    return _subclass(original, _frozen(before))


def without_calls(owner: type[nn.Module], edits: Edits) -> type[nn.Module]:
    """The class without these edits, whatever else was changed in it since."""
    original, now = edits_of(owner)
    for method, calls in edits.items():
        for position in calls:
            now[method].pop(position)
    left = _frozen(now)
    return _subclass(original, left) if left else original


def edits_of(owner: type) -> tuple[type[nn.Module], dict[str, dict[Position, Target]]]:
    """The class as it was written, and what was changed in it since."""
    if _EDITS not in vars(owner):
        return owner, {}
    original, frozen = vars(owner)[_EDITS]
    return original, {method: dict(calls) for method, calls in frozen}


def count_calls(owner: type, name: str) -> int:
    """From how many places in its methods a class calls `self.NAME`."""
    count = 0
    for method in methods(edits_of(owner)[0], below=nn.Module):
        with contextlib.suppress(CannotRewrite):
            count += sum(attribute == name for _, attribute in calls_of(method.function))
    return count


def gate_products(owner: type, name: str) -> dict[str, dict[Position, Target]]:
    """The products `self.NAME(a) * b` of a class as edits that make them `self.NAME(a, b)`.

    None of them where a call of the attribute is anything else: the module that takes two inputs serves them all. A
    factor before the call must be no call itself, because it would be computed after the other one.
    """
    edits: dict[str, dict[Position, Target]] = {}
    for method in methods(edits_of(owner)[0], below=nn.Module):
        with contextlib.suppress(CannotRewrite):
            parents = parents_of(definition_of(method.function))
            for call in (node for node, attribute in calls_of(method.function) if attribute == name):
                product, tensor = parents.get(call), tensor_of(call, on_tensor=False)
                if not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult) or tensor is None:
                    return {}
                gate = product.right if product.left is call else product.left
                if len(call.args) != 1 or call.keywords or (gate is product.left and _calls_something(gate)):
                    return {}
                target = Target(name, ast.unparse(product), tensor=ast.unparse(tensor), gate=ast.unparse(gate))
                edits.setdefault(method.name, {})[span(product, method.function)] = target
    return edits


def _calls_something(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) for part in ast.walk(node))


def _frozen(edits: Edits) -> _Frozen:
    return tuple((method, tuple(sorted(calls.items()))) for method, calls in sorted(edits.items()) if calls)


@functools.cache
def _subclass(original: type[nn.Module], edits: _Frozen) -> Any:
    """One class for one set of edits, so that a hundred equal blocks share their code."""
    changed = {method: _edited(original, method, dict(calls)) for method, calls in edits}
    # The name of the original: libraries choose blocks (to shard, to leave whole) by the name of their class.
    body: dict[str, Any] = {name: function for name, function in changed.items() if "." not in name}
    body |= _same_names(original) | {_EDITS: (original, edits), "__reduce_ex__": _reduce}
    bases: dict[str, dict[str, Any]] = {}
    for name, function in changed.items():
        home, _, attribute = name.rpartition(".")
        if home:
            bases.setdefault(home, {})[attribute] = function
    metaclass: Any = _with_bases(type(original), original, bases) if bases else type(original)
    return metaclass(original.__name__, (original,), body)


def _same_names(cls: type) -> dict[str, Any]:
    return {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}


def _with_bases(kind: Any, original: type, changed: Mapping[str, Mapping[str, Any]]) -> type:
    """A metaclass whose classes find a changed base class right before the base class itself.

    So `super().forward(x)` in a method of the original reaches the changed method.
    """
    homes = {cls.__qualname__: cls for cls in reversed(original.__mro__)}
    stand_ins = {
        homes[home]: kind(homes[home].__name__, (homes[home],), {**methods, **_same_names(homes[home])})
        for home, methods in changed.items()
    }

    class WithChangedBases(kind):  # type: ignore[misc]
        def mro(self) -> list[type]:
            order = []
            for each in super().mro():
                if each in stand_ins and stand_ins[each] not in order:
                    order.append(stand_ins[each])
                order.append(each)
            return order

    return WithChangedBases


def _reduce(self: nn.Module, protocol: Any) -> Any:
    """A pickle names the class as written and the edits; it could not find a class that was made here."""
    edited = next(cls for cls in type(self).__mro__ if _EDITS in vars(cls))
    if edited is not type(self):  # a further subclass, as sharding makes
        return super(edited, self).__reduce_ex__(protocol)
    original, edits = vars(edited)[_EDITS]
    return _rebuilt, (original, edits), self.__getstate__()


def _rebuilt(original: type[nn.Module], edits: Any) -> nn.Module:
    cls = _subclass(original, edits)
    return cls.__new__(cls)


def _edited(original: type[nn.Module], name: str, calls: Mapping[Position, Target]) -> FunctionType:
    """The method with each of these calls sent to an attribute of its first argument."""
    method = method_named(original, name)
    try:
        if method is None:
            raise CannotRewrite("the method is not there")
        definition = copy.deepcopy(definition_of(method.function))
    except CannotRewrite as reason:
        raise InputError(_outdated(original, name, f" ({reason})")) from None
    function = method.function
    replaced = _Replace(calls, function)
    definition = replaced.visit(definition)
    code = compiled(definition, function)
    if replaced.done != set(calls) or code is None:
        raise InputError(_outdated(original, name))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return method.wrapped(rebuilt(function, code, tuple(cells[free] for free in code.co_freevars)))


def _outdated(original: type, method: str, reason: str = "") -> str:
    return (
        f"The source of {original.__name__}.{method} is not what it was when the surgery was planned{reason}; plan it "
        f"again with swap_ on this version."
    )


class _Replace(ast.NodeTransformer):
    def __init__(self, calls: Mapping[Position, Target], function: FunctionType) -> None:
        self.calls, self.function, self.done = calls, function, set[Position]()

    def visit(self, node: ast.AST) -> Any:
        position = span(node, self.function)
        target = self.calls.get(position) if isinstance(node, ast.expr) else None
        if target is None or not isinstance(node, ast.expr) or ast.unparse(node) != target.text:
            return self.generic_visit(node)
        if target.tensor:
            argument = _part(node, target.tensor)
        else:
            argument = tensor_of(node, on_tensor=target.on_tensor) if isinstance(node, ast.Call) else None
        if argument is None:
            return self.generic_visit(node)
        self.done.add(position)
        me = ast.Name(self.function.__code__.co_varnames[0], ast.Load())
        # At the place of the name that stood there, so that every line of a traceback stays.
        name = node.func if isinstance(node, ast.Call) else node
        attribute = ast.copy_location(ast.Attribute(value=me, attr=target.name, ctx=ast.Load()), name)
        if target.whole and isinstance(node, ast.Call):
            self.generic_visit(node)
            return ast.copy_location(ast.Call(func=attribute, args=node.args, keywords=node.keywords), node)
        gate = _part(node, target.gate) if target.gate else None
        arguments = [self.visit(part) for part in (argument, gate) if part is not None]
        return ast.copy_location(ast.Call(func=attribute, args=arguments, keywords=[]), node)


def _part(node: ast.expr, text: str) -> ast.expr | None:
    """The part of an expression that reads so."""
    return next((part for part in ast.walk(node) if isinstance(part, ast.expr) and ast.unparse(part) == text), None)
