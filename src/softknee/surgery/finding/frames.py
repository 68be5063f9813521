"""From inside a call: which module's method made it, and where that is written."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

from torch import Tensor, fx, nn

from .expressions import MISSING, Part, Scope, whole_of
from .identify import Identity
from .rewriting import edits_of
from .source import (
    Call,
    CannotRewrite,
    Method,
    Position,
    definition_of,
    describe,
    method_named,
    method_of,
    node_at,
    parents_of,
    tensor_of,
)

# Files of torch whose frames only carry a call through.
_CARRIERS = (
    "torch/nn/functional.py",
    "torch/functional.py",
    "torch/overrides.py",
    "torch/_tensor.py",
    "torch/nn/modules/module.py",
    "torch/utils/_contextlib.py",
    "torch/_jit_internal.py",
    "torch/utils/_device.py",
    "contextlib.py",
    "surgery/finding/tracing.py",
)


@dataclass(frozen=True)
class Origin:
    """Where a call comes from.

    owner:    the module whose method makes it.
    key:      what tells it from other calls.
    identity: what is computed there, by the call or by the expression around it; None where that is no activation.
    call:     the call in the owner's source, None where there is trouble.
    trouble:  why it cannot be sent elsewhere, as a half sentence.
    whole:    whether the expression is more than the call that was made.
    trigger:  what tells the call that was made from others, where the expression has several.
    node:     of a graph, the name of its node.
    """

    owner: nn.Module
    key: tuple[Any, ...]
    identity: Identity | None = None
    call: Call | None = None
    trouble: str = ""
    whole: bool = False
    trigger: Any = None
    node: str = ""


def origin(
    frame: FrameType | None, *, inside: set[int], function: Any = None, identity: Identity | None = None
) -> Origin | None:
    """The call that is being made above this frame, None where no module of `inside` (by identity) makes it.

    Args:
        function: what torch was asked to compute; without it a module is being called.
        identity: what that computes, None where it is an activation only together with what stands around it.
    """
    carried = False
    while frame is not None and _carries(frame):
        carried, frame = carried or not frame.f_code.co_filename.endswith("tracing.py"), frame.f_back
    if frame is None:
        return None
    owners = [(each, me) for each in _stack(frame) if id(me := _first_argument(each)) in inside]
    if not owners:
        return None
    for index, (home, me) in enumerate(owners):
        if isinstance(me, fx.GraphModule):
            return _in_graph(home, me, identity)
        method = method_of(type(me), home.f_code)
        if method is None:
            continue
        if any(other.f_code not in _nested(home.f_code) for other, _ in owners[:index]):
            break
        return _in_method(frame, home, me, method, function=function, identity=identity, carried=carried)
    return _outside(frame, *owners[0], identity)


def _in_method(
    frame: FrameType, home: FrameType, owner: nn.Module, method: Method, *, function: Any, identity: Any, carried: bool
) -> Origin | None:
    """A call that a method makes itself, or through a helper function."""
    at = next(each for each in _stack(frame) if each is home or each.f_code in _nested(home.f_code))
    key = (at.f_code, _positions(at))  # not f_lasti: Python may use two instructions for one call
    trigger = (frame.f_code, _positions(frame))
    try:
        # Positions are those of the class as written; an edited method has the same lines.
        written = _written(owner, method.name)
        node = node_at(written, _position(at, written.__code__.co_firstlineno))
        scope, parents = Scope.of_frame(at), parents_of(definition_of(written))
        if at is not frame:
            part = whole_of(node, None, None, parents, scope)
            if part is None or not part.identity.known:
                return _outside(frame, home, owner, identity)
            call = _described(written, method, part)
            return Origin(owner, _key(at, part), part.identity, call, whole=True, trigger=trigger)
        on_tensor = isinstance(node, ast.Call) and _on_tensor(node, scope, function, carried)
        tensor = tensor_of(node, on_tensor=on_tensor) if isinstance(node, ast.Call) else None
        part = whole_of(node, tensor, identity, parents, scope)
        if part is not None and (part.node is not node or identity is None):
            call = _described(written, method, part)
            return Origin(owner, _key(at, part), part.identity, call, whole=True, trigger=trigger)
        if identity is None:
            return None
        return Origin(owner, key, identity, describe(written, node, method=method.name, on_tensor=on_tensor))
    except CannotRewrite as reason:
        return Origin(owner, key, identity, trouble=str(reason)) if identity is not None else None


def _written(owner: nn.Module, name: str) -> FunctionType:
    method = method_named(edits_of(type(owner))[0], name)
    assert method is not None
    return method.function


def _key(frame: FrameType, part: Part) -> tuple[Any, ...]:
    node = part.node
    return frame.f_code, (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


def _described(written: FunctionType, method: Method, part: Part) -> Call:
    return describe(written, part.node, method=method.name, tensor=part.tensor)


def _in_graph(frame: FrameType, owner: fx.GraphModule, identity: Identity | None) -> Origin:
    """A call in the code that torch.fx wrote for a graph, where each node is assigned to its name."""
    first = type(owner).forward.__code__.co_firstlineno
    name = ""
    try:
        node: ast.AST | None = node_at(type(owner).forward, _position(frame, first))
        parents = parents_of(definition_of(type(owner).forward))
        while node is not None and not isinstance(node, ast.Assign | ast.AnnAssign):
            node = parents.get(node)
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        name = target.id if isinstance(target, ast.Name) else ""
    except CannotRewrite:
        pass
    return Origin(owner, (frame.f_code, _positions(frame)), identity, node=name)


def _outside(frame: FrameType, home: FrameType, owner: nn.Module, identity: Identity | None) -> Origin | None:
    """A call in a function that is no method of the owner."""
    if identity is None:
        return None
    return Origin(owner, (frame.f_code, _positions(frame)), identity, trouble=_elsewhere(frame, home, owner))


def _on_tensor(node: ast.Call, scope: Scope, function: Any, carried: bool) -> bool:
    """Whether the function is called as a method of its tensor; refused where something else calls it."""
    name = getattr(function, "__name__", "")
    if function is None:
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == name:
        base = scope.value(node.func.value)
        as_method = type(function).__name__ in ("method_descriptor", "wrapper_descriptor") and not carried
        if isinstance(base, Tensor) or (base is MISSING and as_method):
            return True
    called = scope.value(node.func)
    while isinstance(called, functools.partial):
        called = called.func
    if called is not MISSING and getattr(called, "__name__", "") not in (name, f"{name}_", name.removesuffix("_")):
        raise CannotRewrite(f"it is handed over in {ast.unparse(node)!r}, which calls it")
    return False


def _positions(frame: FrameType) -> tuple[int | None, ...]:
    return next(itertools.islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))


def _position(frame: FrameType, first: int) -> Position:
    """The call that a frame is in the middle of, in lines counted from `first`."""
    line, end_line, column, end = _positions(frame)
    if line is None or end_line is None or column is None or end is None:
        raise CannotRewrite("Python was started without column numbers (-X no_debug_ranges)")
    return line - first, end_line - first, column, end


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _first_argument(frame: FrameType) -> Any:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


@functools.lru_cache(maxsize=1024)
def _nested(code: CodeType) -> frozenset[CodeType]:
    """The functions written inside a function: comprehensions, lambdas, inner functions."""
    direct = [each for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(direct).union(*(_nested(each) for each in direct))


def _carries(frame: FrameType) -> bool:
    return frame.f_code.co_filename.replace("\\", "/").endswith(_CARRIERS)


def _elsewhere(frame: FrameType, home: FrameType, owner: nn.Module) -> str:
    """Why a call that is not in a method of the owner cannot be replaced."""
    name, title = frame.f_code.co_name, type(owner).__name__
    if home is not frame:
        file = frame.f_code.co_filename.replace("\\", "/").rpartition("/")[2]
        line = _positions(frame)[0] or frame.f_lineno
        return f"it is called in the function {name!r} ({file}:{line}), outside every module"
    if hasattr(inspect.getattr_static(type(owner), name, None), "__wrapped__"):
        return f"it is called in {name!r} of {title}, which a decorator hides"
    return f"it is called in a function {name!r} that is no method of {title}"
