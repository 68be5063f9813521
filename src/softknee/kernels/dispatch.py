"""The one rule that says how a definition is computed on a tensor, and why."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

from .. import torch_compat
from ..spec import Activation
from ..spec.activation import once_per_definition
from ..spec.emit import UnsupportedError
from . import compiled, plain
from .layout import find_pattern, values_of

FUSED_TYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Choice:
    """A path ("fused", "compiled", "blocks" or "plain") and the sentence that says why it was taken."""

    path: str
    reason: str


def interpreting() -> bool:
    """Whether Triton's interpreter stands in for a GPU (TRITON_INTERPRET=1 when the process began)."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def triton_works() -> str:
    """An empty string where Triton kernels can run, else why not."""
    if torch.version.hip:
        return "this is a ROCm build of torch, on which the fused kernels are not tested"
    return "" if find_spec("triton") else "Triton is not installed beside this torch"


@once_per_definition
def triton_prints(act: Activation) -> str:
    """An empty string where the definition and its derivatives can be printed for Triton, else why not."""
    from ..spec.printers import TRITON, body

    try:
        body(act, [(), ("x",), *((p.name,) for p in act.params)], TRITON)
    except UnsupportedError as error:
        return str(error)
    return ""


def ordinary(x: Tensor) -> bool:
    """Whether x is a plain tensor outside every tracer, mode and function transform."""
    return (
        type(x) in (Tensor, torch.nn.Parameter)
        and not torch._C._are_functorch_transforms_active()
        and _get_current_dispatch_mode() is None
        and not torch._C._is_tracing()
    )


def beside_the_trace(function: Any) -> Any:
    """torch.compile calls the function and takes its result for a constant.

    This is torch.compiler.assume_constant_result without its import of the whole compiler, 1.2 s.
    """
    function._dynamo_marked_constant = True
    return function


@beside_the_trace
def exporting() -> bool:
    """Whether this call is traced by torch.export (or an exporter that builds on it) and not by torch.compile."""
    return torch_compat.is_exporting()


def must_differentiate_through() -> bool:
    """True where an opaque operator is in the way: in an export, and in forward-mode differentiation."""
    # The level is -1 outside of any dual-number context; torch.func.jvp enters one as well.
    return exporting() or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


def inside_transform() -> bool:
    """True inside torch.func.grad, vjp or vmap, which need an autograd.Function in the operator's place."""
    if torch.compiler.is_dynamo_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore


def choose(act: Activation, x: Tensor, params: Sequence[Tensor]) -> Choice:
    """How this call will be computed."""
    if x.is_nested:
        values, params = values_of(act, x, params)
        return choose(act, values, params)
    if torch.compiler.is_compiling() or exporting():
        return Choice(
            "plain",
            "torch.compile and torch.export take plain operations and fuse them with their neighbours",
        )
    if not ordinary(x):
        return Choice("plain", "a function transform, a tracing mode or a tensor subclass takes plain operations")
    return choose_kernel(act, x, params)


def choose_kernel(act: Activation, x: Tensor, params: Sequence[Tensor]) -> Choice:
    """The same for a tensor that is known to be ordinary."""
    if x.is_cuda or (interpreting() and x.device.type == "cpu"):
        reason = _why_not_fused(act, x, params)
        where = "a GPU" if x.is_cuda else "Triton's interpreter"
        return Choice("plain", reason) if reason else Choice("fused", f"one fused kernel each way on {where}")
    if x.device.type == "cpu":
        reason = compiled.why_not(act, x, params)
        if not reason:
            return Choice("compiled", "on a CPU with a C compiler a large tensor takes one compiled pass each way")
        if plain.fits_blocks(x, params):
            return Choice("blocks", f"on a CPU a large tensor is worked on in blocks that stay in its cache ({reason})")
        return Choice("plain", f"on a CPU a small or scattered tensor is worked on in one piece ({reason})")
    return Choice("plain", f"there are no fused kernels for the device type {x.device.type!r}")


def _why_not_fused(act: Activation, x: Tensor, params: Sequence[Tensor]) -> str:
    if x.dtype not in FUSED_TYPES:
        return f"the fused kernels compute in float32, and the input is {x.dtype}"
    if x.numel() == 0:
        return "the tensor is empty"
    if reason := triton_works():
        return reason
    if reason := triton_prints(act):
        return reason
    pattern = find_pattern(x, params)
    if pattern is None or (pattern.channels > 1 and pattern.channels * pattern.inner >= 1 << 30):
        return "the parameters repeat along memory in a pattern that no fused kernel follows"
    return ""
