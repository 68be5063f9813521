"""Numbers that the type of a SQUAF layer cannot hold are refused: what is left of them gives NaN or infinity.

float16 ends at 65504 and 6e-8; alpha = 1.5/q^2 is above that from q = 0.0047 down. Everything that writes numbers asks
here first: building a layer, set_, reset_parameters, load_state_dict, learning what was fixed, and .half().
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ParameterError
from .parameters import Held, Parameterised


def written(p: Held, value: float | Tensor, *, learned: bool) -> dict[str, Tensor]:
    """What is kept for a value of a parameter, by its name in a state dict."""
    # On the CPU whatever device stands for all tensors here, such as transformers' meta device.
    start = torch.as_tensor(value, dtype=torch.float64, device="cpu")
    if not learned or not p.constraint.anchored:
        return {p.name: start}
    return {f"anchor_{p.name}": p.constraint.anchor(start)}


def refuse_written(module: Parameterised, p: Held, value: float | Tensor, dtype: torch.dtype, *, learned: bool) -> None:
    """Raise where a value cannot be written into a layer whose numbers have this type."""
    for name, kept in written(p, value, learned=learned).items():
        refuse_lost(module.title, name, kept, dtype, f"{_wider(dtype)}, or give another {p.name}.")


def refuse_converted(module: Parameterised, name: str, kept: Tensor, dtype: torch.dtype) -> None:
    """Raise where a tensor of the layer cannot be converted to this type."""
    if _narrows(kept.dtype, dtype):
        cure = f"{_wider(dtype)}, or use torch.autocast. This layer is as it was; others of the model may have been"
        refuse_lost(module.title, name, kept, dtype, f"{cure} converted before it.")


def refuse_loaded(module: Parameterised, state: Mapping[str, Any], prefix: str) -> None:
    """Raise where numbers of a state dict cannot be copied into the tensors of this layer."""
    for name, held in (*module._parameters.items(), *module._buffers.items()):
        given: Any = state.get(f"{prefix}{name}")
        if held is None or held.is_meta or type(given) not in (Tensor, nn.Parameter) or given.is_meta:
            continue
        if held.is_floating_point() and given.is_floating_point() and _narrows(given.dtype, held.dtype):
            cure = f"{_wider(held.dtype)} before the state is loaded. This layer is as it was; others of the model may"
            refuse_lost(module.title, name, given.detach(), held.dtype, f"{cure} have been loaded before it.")


def refuse_lost(title: str, name: str, kept: Tensor, dtype: torch.dtype, cure: str) -> None:
    """Raise where a number is infinite in this type; of a spacing or a sharpness also where it is 0."""
    small, large = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).max
    if all(one == 0 or small <= abs(one) <= large for one in kept.flatten().tolist()):
        return
    held = kept.to(dtype).double()
    lost = kept.isfinite() & ~held.isfinite()
    if name.removeprefix("anchor_") in ("q", "alpha"):
        lost |= (kept != 0) & (held == 0)
    if lost.any():
        part = name.removeprefix("anchor_")
        why = "" if part == name else f" ({part} is learned as a multiple of it)"
        raise ParameterError(
            f"{title}: {name}={kept[lost][0].item():g}{why} is {held[lost][0].item():g} in {dtype}, which has no "
            f"number so near to 0 or so large; {cure}"
        )


def _narrows(old: torch.dtype, new: torch.dtype) -> bool:
    """Values are looked at only where a type of less range is asked for: nothing else waits for a GPU."""
    before, after = torch.finfo(old), torch.finfo(new)
    return after.max < before.max or after.smallest_normal > before.smallest_normal


def _wider(dtype: torch.dtype) -> str:
    wide = "torch.float64" if dtype in (torch.float32, torch.bfloat16) else "torch.float32 or torch.bfloat16"
    return f"keep this layer in {wide}"
