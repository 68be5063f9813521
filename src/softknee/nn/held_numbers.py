"""Numbers that the type of a layer cannot hold are refused: what is left of them gives NaN or infinity.

float16 ends at 65504 and 6e-8; SQUAF's alpha = 1.5/q^2 is above that from q = 0.0047 down. Everything that
writes numbers asks here first: building a layer, set_, reset_parameters, load_state_dict, learning what was fixed, and
.half().
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import ParameterError
from ..spec import AtLeastOne, Between, Constraint, Positive

if TYPE_CHECKING:
    from .parameters import Held, Parameterised


def written(p: Held, value: float | Tensor, dtype: torch.dtype, *, learned: bool) -> dict[str, Tensor]:
    """What is written for a value of a parameter into tensors of this type, by their names in a state dict; float64."""
    # On the CPU whatever device stands for all tensors here, such as transformers' meta device.
    start = torch.as_tensor(value, dtype=torch.float64, device="cpu")
    if not learned or not p.constraint.lifted:
        return {p.name: start}
    if not p.constraint.anchored:
        return {f"raw_{p.name}": p.constraint.raw(start)}
    anchor = p.constraint.anchor(start)
    # From float32 on the anchor is as near as the value itself can be.
    coarse = torch.finfo(dtype).eps > torch.finfo(torch.float32).eps
    raw = p.constraint.raw_beside(start, anchor.to(dtype).double()) if coarse else p.constraint.raw(start)
    return {f"anchor_{p.name}": anchor, f"raw_{p.name}": raw}


def refuse_written(module: Parameterised, p: Held, value: float | Tensor, dtype: torch.dtype, *, learned: bool) -> None:
    """Raise where a value cannot be written into a layer whose numbers have this type."""
    for name, kept in written(p, value, dtype, learned=learned).items():
        cure = f"{_wider(dtype)}, or give another {p.name}."
        refuse_lost(module.title, name, kept, dtype, cure, constraint=p.constraint)


def refuse_converted(module: Parameterised, name: str, kept: Tensor, dtype: torch.dtype) -> None:
    """Raise where a tensor of the layer cannot be converted to this type."""
    if _narrows(kept.dtype, dtype):
        cure = f"{_wider(dtype)}, or use torch.autocast. This layer is as it was; others of the model may have been"
        constraint = _constraint_of(module, name)
        refuse_lost(module.title, name, kept, dtype, f"{cure} converted before it.", constraint=constraint)


def refuse_loaded(module: Parameterised, state: Mapping[str, Any], prefix: str) -> None:
    """Raise where numbers of a state dict cannot be copied into the tensors of this layer."""
    for name, held in (*module._parameters.items(), *module._buffers.items()):
        given: Any = state.get(f"{prefix}{name}")
        if held is None or held.is_meta or type(given) not in (Tensor, nn.Parameter) or given.is_meta:
            continue
        if held.is_floating_point() and given.is_floating_point() and _narrows(given.dtype, held.dtype):
            cure = f"{_wider(held.dtype)} before the state is loaded. This layer is as it was; others of the model may"
            cure, constraint = f"{cure} have been loaded before it.", _constraint_of(module, name)
            refuse_lost(module.title, name, given.detach(), held.dtype, cure, constraint=constraint)


def refuse_lost(
    title: str, name: str, kept: Tensor, dtype: torch.dtype, cure: str, *, constraint: Constraint | None
) -> None:
    """Raise where a number that is allowed is none that is, once it is of this type: infinite, 0, or a bound."""
    small, large = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    before = kept.flatten().tolist()
    if not isinstance(constraint, Between) and all(one == 0 or small <= abs(one) <= large for one in before):
        return
    allows = _allowed(name, constraint)
    for one, held in zip(before, kept.flatten().to(dtype).tolist(), strict=True):
        if allows(one) and not allows(held):
            part = name.removeprefix("anchor_").removeprefix("raw_")
            scale = name.startswith("anchor_") and isinstance(constraint, Positive)
            why = f" ({part} is learned {'as a multiple of' if scale else 'with'} it)" if part != name else ""
            raise ParameterError(
                f"{title}: {name}={one:.10g}{why} is {held:g} in {dtype}, which has no number so near; {cure}"
                if isinstance(constraint, Between)
                else f"{title}: {name}={one:g}{why} is {held:g} in {dtype}, which has no number so near to 0 or so "
                f"large; {cure}"
            )


def _allowed(name: str, constraint: Constraint | None) -> Callable[[float], bool]:
    """What a tensor of that name may hold."""
    if constraint is None or name.startswith("raw_"):
        return math.isfinite
    # An anchor is the start, a multiple of it, or a temperature.
    temperature = name.startswith("anchor_") and isinstance(constraint, AtLeastOne)
    return Positive().allows if temperature else constraint.allows


def _constraint_of(module: Parameterised, name: str) -> Constraint | None:
    part = name.removeprefix("anchor_").removeprefix("raw_")
    return next((p.constraint for p in module.params if p.name == part), None)


def _narrows(old: torch.dtype, new: torch.dtype) -> bool:
    """Values are looked at only where a type of less range is asked for: nothing else waits for a GPU."""
    before, after = torch.finfo(old), torch.finfo(new)
    return after.max < before.max or after.smallest_normal > before.smallest_normal


def _wider(dtype: torch.dtype) -> str:
    wide = "torch.float64" if dtype in (torch.float32, torch.bfloat16) else "torch.float32 or torch.bfloat16"
    return f"keep this layer in {wide}"
