"""The hard limit of a module: the plain torch module it becomes there, and a proved bound on how far away it is.

    hard_module(sk.nn.SReLU())          # nn.ReLU()
    distance_bound(sk.nn.SReLU())       # sup |f - relu| = 3 delta/16 for the module's present delta

The zoo claims its distances in closed form (`Claims.distance`, which the tests hold against certificates), so that
nothing beyond torch is needed; of designed functions a certificate is made (python-flint).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import MissingToolError, ParameterError
from ...nn.module import Pointwise
from ...nn.parameters import Parameterised
from ...registry import get
from ...spec import Activation, Rowwise, SoftTable
from ...spec.algebra import sympy

# Functions that are what they harden into. prelu and leaky_relu have a knob, but no tool asks for less leak.
HARD = ("relu", "leaky_relu", "prelu", "relu6", "hardtanh", "hardswish")
_PLAIN: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "hardtanh": nn.Hardtanh,
    "hardswish": nn.Hardswish,
}
_OUTWARD = 1 + 2.0**-50  # a few roundings of float64
_SWAP = "Swap it for a function with a hard limit first."


def definition_of(module: nn.Module) -> Activation:
    """The element-wise definition of a module, or a sentence that says why it has no hard limit."""
    if isinstance(module, Pointwise):
        return module.definition
    if isinstance(module, Parameterised):
        definition = getattr(module, "definition", None)
        why = (
            "its limit is a staircase, which no plain torch module computes"
            if isinstance(definition, SoftTable)
            else "it is a function of whole rows"
            if isinstance(definition, Rowwise)
            else "it has none"
        )
        raise ParameterError(f"{module.title} cannot be replaced by a hard limit: {why}. {_SWAP}")
    raise ParameterError(f"A hard limit is asked of a softknee activation, and {type(module).__name__} is none.")


def is_hard(act: Activation) -> bool:
    """Whether a definition is its own hard limit already."""
    return act.name in HARD and act is get(act.name)


def hard_module(module: nn.Module) -> nn.Module:
    """The plain torch module that a softknee module becomes in its hard limit, for its present parameters.

    >>> import softknee as sk
    >>> from softknee.surgery.hardening import hard_module
    >>> hard_module(sk.nn.SReLU()), hard_module(sk.nn.LeakySmeLU(g_minus=0.25))
    (ReLU(), LeakyReLU(negative_slope=0.25))
    """
    act = definition_of(module)
    assert isinstance(module, Pointwise)
    if is_hard(act):
        return _named(act.name, module, {p.name: p.name for p in act.params})
    if act.limit is not None:
        return _named(act.limit, module, act.limit_params)
    if act.name in _LINES and act is get(act.name):
        return _LINES[act.name](module)
    raise ParameterError(f"{act.name} cannot be replaced by a plain torch module: {why_no_limit(act)}. {_SWAP}")


def why_no_limit(act: Activation) -> str:
    """Why a definition without a named limit has no plain torch module."""
    if not act.knobs:
        return "it has no knob that hardens it"
    if act.claims is not None and act.claims.distance is sympy.oo:
        return f"it stays infinitely far from its limit for every {' and '.join(act.knobs)}"
    return "its hard limit has no name"


def _named(limit: str, module: Pointwise, params: Mapping[str, str]) -> nn.Module:
    """The torch module of a hard function whose parameters are these parameters of ours."""
    if limit in _PLAIN:
        return _PLAIN[limit]()
    if limit in ("leaky_relu", "prelu"):
        slope = (
            getattr(module, params["slope"]).detach()
            if "slope" in params
            else torch.tensor([get(limit).params[0].default])
        )
        return _leaky(module, slope, as_prelu=module.definition.name == "prelu")
    raise ParameterError(f"{module.title} hardens into {limit!r}, for which torch has no plain module. {_SWAP}")


def _leaky(module: Pointwise, slope: Tensor, *, as_prelu: bool = False) -> nn.Module:
    one = bool((slope == slope.flatten()[0]).all())
    if one and not as_prelu:
        value = slope.flatten()[0].item()
        return nn.ReLU() if value == 0 else nn.LeakyReLU(value)
    by_channel = module.granularity.per == "channel" and module.granularity.dim == 1
    if slope.numel() > 1 and not one and not by_channel:
        raise ParameterError(
            f"{module.title} has a slope for each channel, and torch's PReLU takes slopes along dimension 1 alone, not "
            f"for {module.granularity}. Give all of them one value with set_, or use per='layer'."
        )
    # A PReLU with a slope for each channel keeps them, equal or not: so does the stock module it is loaded into.
    slope = slope.flatten()[:1] if one and not by_channel else slope
    made = nn.PReLU(slope.numel(), device=slope.device, dtype=slope.dtype)
    with torch.no_grad():
        made.weight.copy_(slope)
    return made.requires_grad_(bool(module.learned))


def _two_lines(module: Pointwise) -> nn.Module:
    """Generalized and origin-crossing SmeLU: the lines g_minus x + t and g_plus x + t."""
    values = {p.name: module.effective(p).detach().double().cpu() for p in module.params}
    for name, wanted in (("g_plus", 1.0), ("t", 0.0)):
        if name in values and bool((values[name] != wanted).any()):
            raise ParameterError(
                f"{module.title} hardens into two lines with {name}={_shown(values[name])}, and torch has modules for "
                f"{name}={wanted:g} alone (ReLU, LeakyReLU). Set it with set_({name}={wanted:g}) before it is replaced."
            )
    return _leaky(module, module.g_minus.detach())


def _shifted(module: Pointwise) -> nn.Module:
    shift = module.shift.detach()
    if bool((shift != 0).any()):
        raise ParameterError(
            f"{module.title} hardens into relu(x - shift) with shift={_shown(shift)}, and torch has a module for "
            f"shift=0 alone (ReLU). Move the shift into the bias of the layer before it, or set it to 0 with set_."
        )
    return nn.ReLU()


_LINES: dict[str, Callable[[Pointwise], nn.Module]] = {
    "generalized_smelu": _two_lines,
    "origin_smelu": _two_lines,
    "shifted_smelu": _shifted,
}


def _shown(value: Tensor) -> str:
    low, high = value.min().item(), value.max().item()
    return f"{low:.6g}" if low == high else f"{low:.4g}..{high:.4g}"


# -- distance ---------------------------------------------------------------------------------------------


def distance_bound(module: nn.Module) -> float:
    """An upper bound on sup |f - hard limit| for the module's present parameters, the largest over its channels.

    It is the least upper bound, rounded up in float64: 0 for what is hard already, infinite for what never comes near
    (smooth_relu). It speaks of the function, not of the rounding of a type that it is computed in.

    >>> import softknee as sk
    >>> from softknee.surgery.hardening import distance_bound
    >>> round(distance_bound(sk.nn.SReLU(delta=0.16)), 6)
    0.03
    """
    act = definition_of(module)
    assert isinstance(module, Pointwise)
    if is_hard(act):
        return 0.0
    distance = distance_of(act)
    return max(distance(row) for row in distinct_rows(module))


def distance_of(act: Activation) -> Callable[[Mapping[str, float]], float]:
    """sup |f - limit| as a function of all parameters, rounded up: claimed where it is, certified otherwise."""
    if act.claims is not None and act.claims.distance is not None:
        formula = _formula(act)
        return lambda values: formula(*(values[p.name] for p in act.params)) * _OUTWARD
    if not act.knobs:
        raise ParameterError(f"{act.name} cannot be hardened: {why_no_limit(act)}. {_SWAP}")
    return lambda values: _certified(act, tuple(sorted(values.items())))


@functools.lru_cache(maxsize=256)
def _formula(act: Activation) -> Callable[..., float]:
    assert act.claims is not None
    return sympy.lambdify([p.symbol for p in act.params], act.claims.distance, "math")


@functools.lru_cache(maxsize=4096)
def _certified(act: Activation, values: tuple[tuple[str, float], ...]) -> float:
    from ...design.proof.certify import certify

    try:
        found = certify(act, **dict(values))
    except MissingToolError as error:
        raise MissingToolError(
            f"How far {act.name} is from its hard limit is proved with python-flint, which is not installed. Install "
            "it with: pip install 'softknee[design]', or give the target yourself (target=...)."
        ) from error
    if found.distance is None or (not math.isfinite(found.distance.upper) and found.distance.lower != math.inf):
        reason = next(iter(found.open), "its certificate leaves it open").rstrip(".")
        raise ParameterError(
            f"How far {act.name} is from its hard limit is not settled ({reason}). Give the target yourself "
            "(target=...) or take it from data (data=...)."
        )
    return float(found.distance.upper) * _OUTWARD


def rows_of(module: Pointwise) -> dict[str, Tensor]:
    """The effective parameters in float64 on the CPU, flat: one number each, or one for each channel or neuron."""
    values = {p.name: module.effective(p).detach().double().cpu().flatten() for p in module.params}
    longest = max((value.numel() for value in values.values()), default=1)
    return {name: value.expand(longest) for name, value in values.items()}


def distinct_rows(module: Pointwise) -> list[dict[str, float]]:
    """Each combination of parameters that occurs in a module, once."""
    rows = rows_of(module)
    if not rows:
        return [{}]
    table: Any = torch.stack(list(rows.values()), dim=1).unique(dim=0)
    return [dict(zip(rows, row, strict=True)) for row in table.tolist()]
