"""Where the replacements' parameters start, and how many of each there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...design.soft_table_fit import fit_table
from ...errors import InputError, ParameterError, did_you_mean
from ...kernels import find
from ...nn import Squaf
from ...spec import Activation, Param, SoftTable
from ..finding.identify import identify_module
from ..finding.probing import stand_in
from ..finding.sites import Site

MODES = ("uniform", "increasing", "decreasing")


def start_values(activation: Any, values: Mapping[str, Any], *, count: int, learn: Any) -> list[dict[str, Any]]:
    """For each of `count` sites in order of depth: the values its module is made with.

    A list has one value per site; "uniform" is the usual start everywhere, "increasing" goes from there to twice the
    usual value with depth and "decreasing" comes back (the lambda-GELU paper: from about 1 to 2).
    """
    numbers = {p.name: p for p in activation.params if isinstance(p, Param)}
    spread = {
        name: _over_depth(activation, numbers[name], value, count, learn) if name in numbers else [value] * count
        for name, value in values.items()
    }
    return [{name: each[index] for name, each in spread.items()} for index in range(count)]


def _over_depth(activation: Any, param: Param, value: Any, count: int, learn: Any) -> list[Any]:
    title = f"{activation.name}: {param.name}"
    if isinstance(value, list | tuple):
        if len(value) != count:
            raise ParameterError(
                f"{title} was given {len(value)} values for {count} sites; give one for each, in order of depth "
                f"(dry_run=True lists them)."
            )
        return list(value)
    if not isinstance(value, str) or (isinstance(activation, SoftTable) and value == "auto"):
        return [value] * count
    if value not in MODES:
        raise ParameterError(
            f"{title} starts at a number, a list, or one of {', '.join(MODES)}, not {value!r}."
            f"{did_you_mean(value, MODES)}"
        )
    learned = param.name in ([learn] if isinstance(learn, str) else learn) if not isinstance(learn, bool) else learn
    low, high = param.start if learned else param.default, 2 * param.default
    if value != "uniform" and low == high:
        raise ParameterError(f"{title} usually starts at {low:g}, from where {value!r} leads nowhere; give a list.")
    steps = torch.linspace(low, high, count, dtype=torch.float64).tolist() if count > 1 else [low]
    return {"uniform": [low] * count, "increasing": steps, "decreasing": steps[::-1]}[value]


def granularity(site: Site, *, per: str) -> dict[str, Any]:
    """The size (and the dimension) of a module with a value per channel or neuron, from the layer before the site."""
    if per == "layer":
        return {}
    seen = site.seen
    if per == "neuron":
        if seen is None or seen.shape is None or len(seen.shape) < 2:
            changes = seen is not None and seen.shape is None
            how = "use per='layer', because it changes from call to call" if changes else "give example=, with a batch"
            raise InputError(f"per='neuron' needs the one shape of all that reaches {site.path!r}; {how}.")
        return {"per": per, "size": seen.shape[1:]}
    if per != "channel":
        return {"per": per}
    if seen is not None and seen.channels is not None:
        return {"per": per, "size": seen.channels.count, "dim": seen.channels.dim}
    known = _before_in_sequence(site) if seen is None else None
    if known is None:
        how = "give example=" if seen is None else "use per='layer', or leave the site out with where="
        raise InputError(
            f"per='channel' needs the layer that produces what reaches {site.path!r}, and it cannot be told; {how}."
        )
    return {"per": per, "size": known[0], "dim": known[1]}


def _before_in_sequence(site: Site) -> tuple[int, int] | None:
    """In a Sequential the order is known without running it."""
    owner = site.place.owner
    if type(owner).forward is not nn.Sequential.forward:
        return None
    before = list(owner._modules.items())
    here = [name for name, _ in before].index(site.place.name)
    for _, module in reversed(before[:here]):
        if isinstance(module, nn.Linear):
            return module.out_features, -1
        if isinstance(module, nn.modules.conv._ConvNd):
            return module.out_channels, 1
        if isinstance(module, nn.modules.batchnorm._NormBase):
            return module.num_features, 1
        if isinstance(module, nn.GroupNorm):
            return module.num_channels, 1
        if isinstance(module, nn.LayerNorm):
            return module.normalized_shape[-1], -1
        if not isinstance(module, _IN_PLACE) and (module is None or identify_module(module) is None):
            return None
    return None


# What leaves the channels where they are.
_IN_PLACE = (nn.Identity, nn.modules.dropout._DropoutNd, nn.modules.pooling._MaxPoolNd, nn.modules.pooling._AvgPoolNd)


# -- a SQUAF that starts as the function it replaces ------------------------------------------------------


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
