"""The one rule that says which implementation of SQUAF runs, and why."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..dispatch import exporting, interpreting, triton_works

Path = Literal["fused", "plain"]


def choose_path(x: Tensor, *, uniform: bool = True) -> tuple[Path, str]:
    """('fused' or 'plain', the reason as a sentence), for `sk.explain` and for the operators alike."""
    if not uniform:
        return "plain", "A non-uniform grid is summed with plain tensor operations."
    if must_differentiate_through():
        return "plain", "Export and forward-mode differentiation need plain tensor operations."
    return choose_kernel(x)


def choose_kernel(x: Tensor) -> tuple[Path, str]:
    """The same question inside the operator, where only device and dtype matter."""
    if x.dtype == torch.float64:
        return "plain", "The fused kernels compute in float32; float64 takes plain tensor operations."
    if reason := triton_works():
        return "plain", f"The fused kernels do not run here: {reason}."
    if x.device.type == "cpu" and interpreting():
        return "fused", "TRITON_INTERPRET=1 runs the fused kernels on the CPU, slowly, for tests."
    if x.device.type != "cuda":
        return "plain", f"There is no fused kernel for the device type '{x.device.type}'."
    return "fused", "A CUDA tensor: one fused kernel forward and one backward."


def must_differentiate_through() -> bool:
    """True where an opaque operator is in the way: in an export, and in forward-mode differentiation."""
    # The level is -1 outside of any dual-number context; torch.func.jvp enters one as well.
    return exporting() or forward_ad._current_level >= 0  # pyright: ignore[reportPrivateUsage]


def inside_transform() -> bool:
    """True inside torch.func.grad, vjp or vmap, which need an autograd.Function in the operator's place."""
    if torch.compiler.is_dynamo_compiling():
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore
