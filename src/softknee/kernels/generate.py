"""Definitions to Python functions: the printed source is compiled once and kept where tracebacks can read it."""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ..spec import Activation
from ..spec.activation import once_per_definition
from ..spec.emit import PARAMETER
from ..spec.printers import TORCH, body
from . import torch_math

Index = tuple[str, ...]


def load(source: str, name: str, namespace: Mapping[str, Any], function: str, home: str) -> Callable[..., Any]:
    """Compile source text that we printed ourselves, and return one function of it.

    The text is entered into `linecache`, so that a traceback shows it and Triton can read it back, for as long as the
    function lives. `home` is the module that has the names the text uses: torch.compile and Triton ask for it.
    """
    filename = f"<softknee {name}>"
    entry = (len(source), None, source.splitlines(keepends=True), filename)
    linecache.cache[filename] = entry
    scope: dict[str, Any] = {**namespace, "__name__": home}
    exec(compile(source, filename, "exec"), scope)
    weakref.finalize(scope[function], _forget, filename, entry).atexit = False
    return scope[function]


def _forget(filename: str, entry: Any) -> None:
    if linecache.cache.get(filename) is entry:
        del linecache.cache[filename]


_NAMESPACE = {name: value for name, value in vars(torch_math).items() if callable(value)}
# Results that are rounded to a half type need fewer digits, as in the fused kernels.
_COARSE = {name: _NAMESPACE[f"{name}_half"] for name in _NAMESPACE if f"{name}_half" in _NAMESPACE}


@once_per_definition
def torch_function(act: Activation, *indices: Index, coarse: bool = False) -> Callable[..., tuple[Tensor, ...]]:
    """A function (x, *params) -> the partial derivatives asked for, in torch operations.

    coarse: with as many digits as a half type can hold, which is for a compiler that makes one kernel of it.
    """
    label = f"{act.root.key} {' '.join('.'.join(index) or 'value' for index in indices)}{' coarse' * coarse}"
    namespace = _NAMESPACE | _COARSE if coarse else _NAMESPACE
    return load(_torch_source(act, *indices), label, namespace, "compute", torch_math.__name__)


@once_per_definition
def _torch_source(act: Activation, *indices: Index) -> str:
    code = body(act, indices, TORCH)
    names = ", ".join(["x", *(PARAMETER + p.name for p in act.params)])
    lines = [f"def compute({names}):", *(f"    {line}" for line in code.lines)]
    lines.append(f"    return ({', '.join(code.results)},)")
    return "\n".join(lines) + "\n"
