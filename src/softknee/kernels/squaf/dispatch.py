"""The one rule that says which implementation of SQUAF runs, and why."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..dispatch import interpreting, must_differentiate_through, triton_works
from . import compiled

Path = Literal["fused", "compiled", "plain"]


def choose_path(x: Tensor, *, uniform: bool = True) -> tuple[Path, str]:
    """('fused', 'compiled' or 'plain', the reason as a sentence), for `sk.explain` and for the operators alike."""
    if not uniform:
        return "plain", "A non-uniform grid is summed with plain tensor operations."
    if must_differentiate_through():
        return "plain", "Export and forward-mode differentiation need plain tensor operations."
    return choose_kernel(x)


def choose_kernel(x: Tensor) -> tuple[Path, str]:
    """The same question inside the operator, where only device and dtype matter."""
    if x.dtype == torch.float64:
        return "plain", "The fused kernels compute in float32; float64 takes plain tensor operations."
    if x.device.type == "cpu" and not interpreting():
        reason = compiled.why_not(x)
        return ("plain", f"On a CPU: {reason}.") if reason else ("compiled", "On a CPU one compiled pass each way.")
    if reason := triton_works():
        return "plain", f"The fused kernels do not run here: {reason}."
    if x.device.type == "cpu":
        return "fused", "TRITON_INTERPRET=1 runs the fused kernels on the CPU, slowly, for tests."
    if x.device.type != "cuda":
        return "plain", f"There is no fused kernel for the device type '{x.device.type}'."
    return "fused", "A CUDA tensor: one fused kernel forward and one backward."
