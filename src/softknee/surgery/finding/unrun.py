"""Activations that stand in the source of a model's methods and were not seen to run.

A branch that the example does not take, or all of them without an example: not to be changed, but not to be passed over
in silence either.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from ... import registry
from .expressions import MISSING, Scope, whole_of
from .identify import FUNCTIONS, GATES, Identity, identify_module
from .rewriting import edits_of
from .sites import Place, Site, parts_of_weights
from .source import CannotRewrite, Method, calls_of, definition_of, methods, parents_of, span, tensor_of
from .tracing import Trace


def unrun(model: nn.Module, sites: Sequence[Site], run: Trace | None) -> list[Site]:
    """The sites with those of their methods that the run did not reach, which cannot be changed.

    Args:
        sites: what was found, among it the modules that are activations themselves.
        run: what the example showed, None without one.
    """
    ran = run.positions() if run is not None else {}
    apart = {id(site.place.old) for site in sites} | parts_of_weights(model)
    parts: dict[tuple[int, str], str] = {}
    unreached = []
    for path, owner in model.named_modules():
        original, edits = edits_of(type(owner))
        if id(owner) in apart or original.__module__.startswith(("torch.", "softknee.")):
            continue
        for method in _reached(original):
            for node, name, attribute in _activations(method, owner):
                if span(node, method.function) in edits.get(method.name, {}) or any(
                    _within(node, at) for at in ran.get(id(owner), ())
                ):
                    continue
                where = f"it is called in {original.__name__}.{method.name} as {ast.unparse(node)!r}"
                where += _UNREACHED if run is not None else _WITHOUT_EXAMPLE
                if attribute:  # a module, and so a site already, is a part of the expression
                    parts[id(owner), attribute] = where
                unreached.append(_site(path, owner, name, where))
    return [_as_part(site, parts) for site in sites] + unreached


def _as_part(site: Site, parts: Mapping[tuple[int, str], str]) -> Site:
    """A site that the example did not reach, and that is a part of an expression: not to be changed by itself."""
    where = parts.get((id(site.place.owner), site.place.name))
    if where is None or site.seen is not None:
        return site
    return replace(site, trouble=where.replace("it is called in", "it is a part of a function, which is computed in"))


def _reached(cls: type) -> Iterator[Method]:
    """The methods of a class, without those of base classes that it overrides and does not call."""
    every = list(methods(cls, below=nn.Module))
    called = {name for method in every for name in _super_calls(method.function)}
    for method in every:
        if "." not in method.name or method.name.rpartition(".")[2] in called:
            yield method


@functools.lru_cache(maxsize=4096)
def _super_calls(function: FunctionType) -> frozenset[str]:
    """The methods that a function calls as `super().NAME`."""
    try:
        calls = [node.func for node, _ in calls_of(function)]
    except CannotRewrite:
        return frozenset()
    return frozenset(
        func.attr
        for func in calls
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call) and "super" in ast.unparse(func.value)
    )


def _within(node: ast.expr, at: tuple[int | None, ...]) -> bool:
    """Whether a call was made inside a node: of `F.relu(x) if flat else F.gelu(x)` one line runs, and one call."""
    line, end_line, column, end = at
    last = node.end_lineno or node.lineno
    if line is None or end_line is None or column is None or end is None:  # python -X no_debug_ranges
        return line is not None and node.lineno <= line <= last
    return (node.lineno, node.col_offset) <= (line, column) and (end_line, end) <= (last, node.end_col_offset or 0)


_UNREACHED = ", which the example, run in eval mode, did not reach; give one that does, or make it a module of its own"
_WITHOUT_EXAMPLE = "; give example= to change it, too"


def _site(path: str, owner: nn.Module, name: str, trouble: str) -> Site:
    return Site(
        path=f"{path}.{name}" if path else name,
        activation=name,
        kind="functional",
        shared=False,
        owner=path,
        known=name in registry.names(),
        trouble=trouble,
        place=Place(owner, name, None),
    )


def _activations(method: Method, owner: nn.Module) -> list[tuple[ast.expr, str, str]]:
    """The expressions in a method that compute an activation, without gates: those stand in half of all models.

    Each with its name, and with the attribute of the owner that it calls, if it is more than that call.
    """
    result: dict[ast.expr, tuple[str, str]] = {}
    with contextlib.suppress(CannotRewrite):
        for node, attribute in _candidates(method.function, owner):
            scope = Scope.of_method(method.function, owner)
            called = _called(node, scope)
            identity = Identity(called) if called in registry.names() else None
            held = owner._modules.get(attribute) if attribute else None
            if held is not None:
                identity = identify_module(held)
            if attribute and identity is None:
                continue
            tensor = tensor_of(node, on_tensor=_on_tensor(node, scope))
            part = whole_of(node, tensor, identity, parents_of(definition_of(method.function)), scope)
            larger = part is not None and part.node is not node
            if (
                part is not None
                and part.identity.known
                and part.identity.name not in GATES
                and (larger or not attribute)
            ):
                result.setdefault(part.node, (part.identity.name, attribute if larger else ""))
            elif called in FUNCTIONS - GATES and not attribute and part is None:
                result.setdefault(node, (called, ""))
    return [(node, *names) for node, names in result.items()]


def _candidates(function: FunctionType, owner: nn.Module) -> Iterator[tuple[ast.Call, str]]:
    """The calls of functions of torch, of helpers, and of attributes of the owner that are activations."""
    scope = Scope.of_method(function, owner)
    for node, attribute in calls_of(function):
        held = owner._modules.get(attribute) if attribute else None
        if held is not None or _called(node, scope) in FUNCTIONS:
            yield node, attribute if held is not None else ""
        elif _is_helper(scope.value(node.func)):
            yield node, ""


def _is_helper(value: Any) -> bool:
    return isinstance(value, torch.jit.ScriptFunction) or (isinstance(value, FunctionType) and not _of_torch(value))


def _called(node: ast.Call, scope: Scope) -> str:
    """The name of the function of torch that a call applies, also as a method of a tensor; nothing for others."""
    name = getattr(node.func, "attr", getattr(node.func, "id", "")).strip("_")
    value = scope.value(node.func)
    if value is not MISSING:
        return getattr(value, "__name__", name).strip("_") if _of_torch(value) else ""
    return name if _on_tensor(node, scope) else ""


def _on_tensor(node: ast.Call, scope: Scope) -> bool:
    func = node.func
    return isinstance(func, ast.Attribute) and hasattr(Tensor, func.attr) and scope.value(func.value) is MISSING


def _of_torch(value: Any) -> bool:
    home = str(getattr(value, "__module__", None) or type(value).__module__)
    return home.startswith("torch") or isinstance(value, BuiltinFunctionType)
