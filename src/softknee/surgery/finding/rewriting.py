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
    plain_method,
    plain_methods,
    span,
    tensor_of,
)

_EDITS = "_softknee_edits"


@dataclass(frozen=True, order=True)
class Target:
    """Where a call goes: the owner's attribute.

    text:      how the call reads.
    on_tensor: whether it was a method of its tensor.
    whole:     whether all arguments go along, or the tensor alone.
    """

    name: str
    text: str
    on_tensor: bool = False
    whole: bool = False


Edits = Mapping[str, Mapping[Position, Target]]
"""For each method, the calls that go elsewhere."""
_Frozen = tuple[tuple[str, tuple[tuple[Position, Target], ...]], ...]


def edits_for(calls: Iterable[Call], name: str, *, whole: bool = False) -> dict[str, dict[Position, Target]]:
    """The edits that send these calls to the attribute `name`, with their tensor or with all arguments."""
    edits: dict[str, dict[Position, Target]] = {}
    for call in calls:
        edits.setdefault(call.method, {})[call.position] = Target(name, call.text, call.on_tensor, whole)
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
    """From how many places in its plain methods a class calls `self.NAME`."""
    count = 0
    for _, method in plain_methods(edits_of(owner)[0], below=nn.Module):
        with contextlib.suppress(CannotRewrite):
            count += sum(attribute == name for _, attribute in calls_of(method))
    return count


def _frozen(edits: Edits) -> _Frozen:
    return tuple((method, tuple(sorted(calls.items()))) for method, calls in sorted(edits.items()) if calls)


@functools.cache
def _subclass(original: type[nn.Module], edits: _Frozen) -> Any:
    """One class for one set of edits, so that a hundred equal blocks share their code."""
    body: dict[str, Any] = {method: _edited(original, method, dict(calls)) for method, calls in edits}
    # The name of the original: libraries choose blocks (to shard, to leave whole) by the name of their class.
    body |= {"__module__": original.__module__, "__qualname__": original.__qualname__, "__doc__": original.__doc__}
    body |= {_EDITS: (original, edits), "__reduce_ex__": _reduce}
    metaclass: Any = type(original)
    return metaclass(original.__name__, (original,), body)


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


def _edited(original: type[nn.Module], method: str, calls: Mapping[Position, Target]) -> FunctionType:
    """The method with each of these calls sent to an attribute of its first argument."""
    function = plain_method(original, method)
    try:
        if function is None:
            raise CannotRewrite("the method is not there")
        definition = copy.deepcopy(definition_of(function))
    except CannotRewrite as reason:
        raise InputError(_outdated(original, method, f" ({reason})")) from None
    changed = _Replace(calls, function)
    definition = changed.visit(definition)
    code = compiled(definition, function)
    if changed.done != set(calls) or code is None:
        raise InputError(_outdated(original, method))
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    functools.update_wrapper(made, function)
    del vars(made)["__wrapped__"]
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _outdated(original: type, method: str, reason: str = "") -> str:
    return (
        f"The source of {original.__name__}.{method} is not what it was when the surgery was planned{reason}; plan it "
        f"again with swap_ on this version."
    )


class _Replace(ast.NodeTransformer):
    def __init__(self, calls: Mapping[Position, Target], function: FunctionType) -> None:
        self.calls, self.function, self.done = calls, function, set[Position]()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        position = span(node, self.function)
        target = self.calls.get(position)
        reads = ast.unparse(node) if target is not None else ""
        self.generic_visit(node)
        if target is None or reads != target.text:
            return node
        argument = tensor_of(node, on_tensor=target.on_tensor)
        if argument is None:
            return node
        self.done.add(position)
        me = ast.Name(self.function.__code__.co_varnames[0], ast.Load())
        # At the place of the name that stood there, so that every line of a traceback stays.
        replaced = ast.copy_location(ast.Attribute(value=me, attr=target.name, ctx=ast.Load()), node.func)
        args, keywords = (node.args, node.keywords) if target.whole else ([argument], [])
        return ast.copy_location(ast.Call(func=replaced, args=args, keywords=keywords), node)
