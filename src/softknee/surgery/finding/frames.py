"""From inside a call: which module's method made it, and where that is written."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any

from torch import Tensor, nn

from .rewriting import edits_of
from .source import Call, CannotRewrite, Position, describe, method_of, node_at, plain_method

_MISSING = object()

# Files of torch whose frames only carry a call through.
_CARRIERS = (
    "torch/nn/functional.py",
    "torch/overrides.py",
    "torch/nn/modules/module.py",
    "torch/utils/_contextlib.py",
    "torch/_jit_internal.py",
    "torch/utils/_device.py",
    "surgery/finding/tracing.py",
)


@dataclass(frozen=True)
class Origin:
    """Where a call comes from.

    owner:    the module whose method makes it.
    key:      what tells it from other calls.
    call:     the call in the owner's source, None where there is trouble.
    trouble:  why it cannot be sent elsewhere, as a half sentence.
    """

    owner: nn.Module
    key: tuple[Any, ...]
    call: Call | None = None
    trouble: str = ""


def origin(frame: FrameType | None, *, inside: set[int], function: Any = None) -> Origin | None:
    """The call that is being made above this frame, None where no module of `inside` (by identity) makes it.

    `function` is what torch was asked to compute; without it a module is being called.
    """
    carried = False
    while frame is not None and _carries(frame):
        carried, frame = carried or not frame.f_code.co_filename.endswith("tracing.py"), frame.f_back
    if frame is None:
        return None
    owners = [(one, me) for one in _stack(frame) if id(me := _first_argument(one)) in inside]
    if not owners:
        return None
    key = (frame.f_code, _positions(frame))  # not f_lasti: Python may use two instructions for one call
    for home, me in owners:
        if home is not frame and frame.f_code not in _nested(home.f_code):
            continue
        if (method := method_of(type(me), home.f_code)) is None:
            continue
        try:
            return Origin(me, key, _call(frame, me, method, function, carried))
        except CannotRewrite as reason:
            return Origin(me, key, trouble=str(reason))
    home, me = owners[0]
    return Origin(me, key, trouble=_elsewhere(frame, home, me))


def _call(frame: FrameType, owner: nn.Module, method: str, function: Any, carried: bool) -> Call:
    # Positions are those of the class as written; an edited method has the same lines.
    written = plain_method(edits_of(type(owner))[0], method)
    assert written is not None
    node = node_at(written, _position(frame, written.__code__.co_firstlineno))
    return describe(written, node, method=method, on_tensor=_on_tensor(node, frame, function, carried))


def _on_tensor(node: ast.Call, frame: FrameType, function: Any, carried: bool) -> bool:
    """Whether the function is called as a method of its tensor; refused where something else calls it."""
    name = getattr(function, "__name__", "")
    if function is None:
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == name:
        base = _value(node.func.value, frame)
        as_method = type(function).__name__ in ("method_descriptor", "wrapper_descriptor") and not carried
        if isinstance(base, Tensor) or (base is _MISSING and as_method):
            return True
    called = _value(node.func, frame)
    while isinstance(called, functools.partial | staticmethod):
        called = called.func if isinstance(called, functools.partial) else called.__func__
    if called is not _MISSING and getattr(called, "__name__", "") not in (name, f"{name}_", name.removesuffix("_")):
        raise CannotRewrite(f"it is handed over in {ast.unparse(node)!r}, which calls it")
    return False


def _value(node: ast.expr, frame: FrameType) -> Any:
    """What a name in a frame stands for, looked up without running anything."""
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if node.id in names:
                return names[node.id]
    if isinstance(node, ast.Attribute):
        base = _value(node.value, frame)
        if isinstance(base, nn.Module) and node.attr in base._modules:
            return base._modules[node.attr]
        if isinstance(base, ModuleType | type | nn.Module):
            found = inspect.getattr_static(base, node.attr, _MISSING)
            return found if not isinstance(found, property) else _MISSING
    return _MISSING


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
    direct = [one for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(direct).union(*(_nested(one) for one in direct))


def _carries(frame: FrameType) -> bool:
    return frame.f_code.co_filename.replace("\\", "/").endswith(_CARRIERS)


def _elsewhere(frame: FrameType, home: FrameType, owner: nn.Module) -> str:
    """Why a call that is not in a plain method of the owner cannot be replaced."""
    name = frame.f_code.co_name
    if home is not frame:
        return f"it is called in the function {name!r}, outside every module"
    found = inspect.getattr_static(type(owner), name, None)
    title = type(owner).__name__
    if hasattr(found, "__wrapped__"):
        return f"it is called in {name!r} of {title}, which a decorator is wrapped around"
    return f"it is called in a {name!r} that is not the one of {title}, as a base class has it"
