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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torch import nn

from ...errors import InputError
from .source import (
    Call,
    CannotRewrite,
    Position,
    calls_of,
    compiled,
    definition_of,
    method_named,
    methods,
    rebuilt,
    span,
    tensor_of,
)

_EDITS = "_softknee_edits"


@dataclass(frozen=True, order=True)
class Target:
    """Where a call goes: the owner's attribute.

    text:      how the call, or the expression, reads.
    on_tensor: whether it was a method of its tensor.
    whole:     whether all arguments go along, or the tensor alone.
    tensor:    of an expression that is replaced whole, how its input reads.
    """

    name: str
    text: str
    on_tensor: bool = False
    whole: bool = False
    tensor: str = ""


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
            parts = (part for part in ast.walk(node) if isinstance(part, ast.expr))
            argument = next((part for part in parts if ast.unparse(part) == target.tensor), None)
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
        return ast.copy_location(ast.Call(func=attribute, args=[self.visit(argument)], keywords=[]), node)
