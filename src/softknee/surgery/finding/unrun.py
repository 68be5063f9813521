"""Activations that stand in the source of a model's methods and were not seen to run.

A branch that the example does not take, or all of them without an example: not to be changed, but not to be passed over
in silence either.
"""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Sequence
from types import FunctionType, ModuleType
from typing import Any

from torch import Tensor, nn

from ... import registry
from .identify import GATES
from .probing import FUNCTIONS
from .rewriting import edits_of
from .sites import Place, Site, parts_of_weights
from .source import CannotRewrite, calls_of, plain_methods, span
from .tracing import Trace


def unrun(model: nn.Module, sites: Sequence[Site], run: Trace | None) -> list[Site]:
    """The calls of activations by name that the run did not reach, as sites that cannot be changed.

    Args:
        sites: what was found, among it the modules that are activations themselves.
        run: what the example showed, None without one.
    """
    ran = run.positions() if run is not None else {}
    apart = {id(site.place.old) for site in sites} | parts_of_weights(model)
    found = []
    for path, owner in model.named_modules():
        original, edits = edits_of(type(owner))
        if id(owner) in apart or original.__module__.startswith(("torch.", "softknee.")):
            continue
        for title, method in plain_methods(original, below=nn.Module):
            for node, name in _activations(method):
                if span(node, method) in edits.get(title, {}) or any(
                    _within(node, at) for at in ran.get(id(owner), ())
                ):
                    continue
                where = f"it is called in {original.__name__}.{title} as {ast.unparse(node)!r}"
                found.append(_site(path, owner, name, where + (_UNREACHED if run is not None else _UNASKED)))
    return found


def _within(node: ast.Call, at: tuple[int | None, ...]) -> bool:
    """Whether a call was made inside a node: of `F.relu(x) if flat else F.gelu(x)` one line runs, and one call."""
    line, end_line, column, end = at
    last = node.end_lineno or node.lineno
    if line is None or end_line is None or column is None or end is None:  # python -X no_debug_ranges
        return line is not None and node.lineno <= line <= last
    return (node.lineno, node.col_offset) <= (line, column) and (end_line, end) <= (last, node.end_col_offset or 0)


_UNREACHED = ", which the example, run in eval mode, did not reach; give one that does, or make it a module of its own"
_UNASKED = "; give example= to change it, too"


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


@functools.lru_cache(maxsize=4096)  # a model has many modules of few classes
def _activations(method: FunctionType) -> list[tuple[ast.Call, str]]:
    """The calls in a method that name an activation of torch, without gates: those stand in half of all models."""
    found = []
    with contextlib.suppress(CannotRewrite):
        for node, attribute in calls_of(method):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")).strip("_")
            if name in FUNCTIONS - GATES and not attribute and _of_torch(node.func, method):
                found.append((node, name))
    return found


def _of_torch(func: ast.expr, method: FunctionType) -> bool:
    """Whether a name is a function of torch in a method's module, or may be a method of a tensor."""
    found = _global(func, method)
    if found is not None:
        return str(getattr(found, "__module__", "")).startswith("torch")
    return isinstance(func, ast.Attribute) and hasattr(Tensor, func.attr) and _global(func.value, method) is None


def _global(node: ast.expr, method: FunctionType) -> Any:
    if isinstance(node, ast.Name):
        return method.__globals__.get(node.id)
    if isinstance(node, ast.Attribute):
        base = _global(node.value, method)
        return vars(base).get(node.attr) if isinstance(base, ModuleType) else None
    return None
