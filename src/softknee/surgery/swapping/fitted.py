"""A SQUAF that starts as the function it replaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...design.soft_table_fit import fit_table
from ...errors import ParameterError
from ...kernels import find
from ...nn import Squaf
from ...spec import Activation, SoftTable
from ..finding.probing import stand_in
from ..finding.sites import Site


def fitted_table(site: Site, definition: SoftTable, arguments: Mapping[str, Any]) -> Tensor:
    """The table z, by least squares, with which SQUAF is nearest to what the site computes now."""
    if any(isinstance(arguments.get(name), Tensor) and arguments[name].numel() != 1 for name in ("q", "alpha")):
        raise ParameterError("squaf: z='fit' needs one q and one alpha for the layer; give numbers.")
    shape = {name: value for name, value in arguments.items() if name not in _NOT_OF_THE_SHAPE}
    made = Squaf(definition, **shape, dtype=torch.float64, device="cpu")
    if made.k is None:
        raise ParameterError("squaf: z='fit' needs a uniform grid; give q= and k= instead of grid=.")
    q, alpha = made.q.item(), made.alpha.item()
    try:
        return fit_table(_target(site), k=made.k, q=q, alpha=alpha, weights=made.weights, window=made.window).z
    except Exception as error:  # what a foreign function raises may be anything
        reason = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise ParameterError(
            f"squaf: z='fit' cannot be fitted to {site.path} ({site.function}), because {reason}. Leave the site out "
            f"with where=, or give z= a name to start from."
        ) from error


_NOT_OF_THE_SHAPE = ("z", "learn", "per", "size", "dim", "inplace", "device", "dtype")


def _target(site: Site) -> Any:
    """What the site computes, as fit_table takes it."""
    old = site.place.old
    if site.known and isinstance(found := find(site.activation), Activation) and not _has_numbers(old):
        return found if not site.params else lambda x: found(x, **site.params)
    if isinstance(old, nn.Module):
        # With its numbers as they are now: a copy, because those may lie on another device.
        twin = stand_in(old)
        if twin is not None:
            return twin.forward
    if old is None or isinstance(old, nn.Module):
        raise ParameterError("it cannot be evaluated on its own")
    return old


def _has_numbers(old: Any) -> bool:
    return isinstance(old, nn.Module) and any(True for _ in (*old.parameters(), *old.buffers()))
