"""Which function a module or a call computes, found out by computing it.

A class name says little: torch, timm and transformers have a dozen classes for GELU alone, and users write their own.
So a candidate is evaluated on a few numbers, in float64 where it can, and compared with the functions of the zoo.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from ...kernels import find
from ...nn.entropic import EntropicSpline
from ...nn.parameters import Parameterised
from .probing import NUMBERS, double, of_activations, probe, stand_in

_TOLERANCE = 2e-6

# What gates, normalises or limits rather than activates: changed only by those who name it.
GATES = frozenset(
    ["sigmoid", "tanh", "softsign", "hardtanh", "clamp", "hardsigmoid", "sparse_sigmoid", "logsigmoid", "laplace"]
)


@dataclass(frozen=True)
class Identity:
    """What a candidate computes: a name of softknee with its parameters, or the name of the foreign class."""

    name: str
    params: Mapping[str, float] = field(default_factory=dict)
    known: bool = True

    def __str__(self) -> str:
        values = ", ".join(f"{name}={value:.6g}" for name, value in self.params.items())
        return f"{self.name}({values})" if values else self.name


def identify_module(module: nn.Module) -> Identity | None:
    """What a module computes now, or None where it is no activation."""
    if isinstance(module, Parameterised | EntropicSpline):
        return _own(module)
    if (inside := uncompiled(module)) is not module:
        # Compiled, it holds on to what is inside, and is replaced as a whole.
        return identify_module(inside)
    foreign = Identity(type(module).__name__, known=False)
    if isinstance(module, nn.PReLU):
        return Identity("prelu", _unusual(find("prelu").params[0], "slope", module.weight))
    if isinstance(module, nn.GLU):  # of whole rows
        return foreign
    if isinstance(module, nn.RReLU):  # random in training
        return _with_numbers("rrelu", lower=module.lower, upper=module.upper)
    parts = [each for each in module.modules() if each is not module]
    if not _may_be_one(module) or (parts and not _may_be_whole(module, parts)):
        return None
    twin = stand_in(module)
    computed = identify(twin.forward) if twin is not None else None
    if parts:
        return _whole(foreign, computed, parts)
    if computed is not None and computed.known:
        return computed
    # Of a jump, a few numbers do not show the place.
    if isinstance(module, nn.Hardshrink):
        return _with_numbers("hardshrink", lam=module.lambd)
    if isinstance(module, nn.Threshold):
        return _with_numbers("threshold", theta=module.threshold, value=module.value)
    if computed is not None:
        return foreign
    return foreign if isinstance(module, _SURELY) or _of_activations(module) else None


def _may_be_whole(module: nn.Module, parts: Sequence[nn.Module]) -> bool:
    """Whether a module with parts may compute one function: h_swish has an h_sigmoid, which has a ReLU6."""
    if isinstance(module, _CONTAINERS) or len(parts) > _MOST_PARTS:
        return False
    numbers = sum(each.numel() for each in module.parameters())
    return numbers <= _MOST_PARAMETERS and all(_may_be_one(part) for part in parts)


def _whole(foreign: Identity, computed: Identity | None, parts: Sequence[nn.Module]) -> Identity | None:
    """What a module with parts computes; None where it hands on what one of its parts computes."""
    if computed is None:
        return None
    identities = [identify_module(part) for part in parts]
    if computed in identities:
        return None
    # With a part that is no activation, such as a dropout, it does more than can be seen in eval mode.
    if None in identities:
        return None
    return computed if computed.known else foreign


# Their parts are applied one after the other, and each is an activation of its own.
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict, fx.GraphModule, torch.jit.ScriptModule)
_MOST_PARTS, _MOST_PARAMETERS = 8, 8


def _with_numbers(name: str, **numbers: float) -> Identity:
    """A function with its numbers, where they are not the usual ones."""
    usual = {p.name: getattr(p, "default", math.nan) for p in find(name).params}
    return Identity(name, {key: value for key, value in numbers.items() if not math.isclose(value, usual[key])})


def uncompiled(module: Any) -> Any:
    """The module inside of what torch.compile put around it; anything else as it is."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is not None and isinstance(module, compiler.OptimizedModule):
        return uncompiled(module.get_submodule("_orig_mod"))
    return module


def identify(function: Callable[..., Any]) -> Identity | None:
    """What a function of one tensor computes; None where it fails, is not element-wise, or is linear."""
    values = probe(function)
    if values is None:
        return None
    for name, parameters in _candidates(values):
        if torch.allclose(values, _values(name, **parameters), rtol=_TOLERANCE, atol=_TOLERANCE):
            return _with_numbers(name, **parameters)
    return Identity(getattr(function, "__name__", type(function).__name__), known=False)


@functools.lru_cache(maxsize=1024)
def _values(name: str, **parameters: float) -> Tensor:
    return find(name)(double(), **parameters)


def _own(module: nn.Module) -> Identity:
    """A module of softknee by its name, and its numbers where they are not the usual ones."""
    title: str = getattr(module, "title", type(module).__name__)
    if not isinstance(module, Parameterised):
        return Identity(title)
    if getattr(module, "definition", None) is None:  # a baseline: no definition stands behind its name
        return Identity(title, known=False)
    params: dict[str, float] = {}
    for p in module.params:
        params |= _unusual(p, p.name, module.effective(p))
    # SiLU is Swish under the name that people look for.
    return Identity("silu" if title == "swish" and not params and not module.learned else title, params)


def _unusual(param: Any, name: str, value: Tensor) -> dict[str, float]:
    """A parameter's value, where it is one number and not the usual one."""
    if value.numel() != 1 or value.device.type == "meta":
        return {}
    usual = getattr(param, "default", math.nan)
    return {} if math.isclose(value.item(), usual, rel_tol=1e-6) else {name: value.item()}


# Activations whatever their settings, some of which make a line of them.
_SURELY = (nn.Softshrink,)


def _may_be_one(module: nn.Module) -> bool:
    """Modules of torch activate only in one file."""
    home = type(module).__module__
    return not home.startswith("torch.") or home == "torch.nn.modules.activation"


def _of_activations(module: nn.Module) -> bool:
    """From a file of activations, though no probe shows what it computes: it has a parameter for each channel, say."""
    return of_activations(module) and next(module.parameters(), None) is not None


def _candidates(values: Tensor) -> Iterator[tuple[str, dict[str, float]]]:
    """The functions it may be, their parameters read off the values."""
    at = dict(zip(NUMBERS, values.tolist(), strict=True))
    yield from ((name, {}) for name in _PLAIN)
    slope, floor, ceiling = -at[-1.0], at[-55.0], at[55.0]
    if slope > 0:
        yield "leaky_relu", {"slope": slope}
    if floor < 0:
        yield "elu", {"beta": -floor}
        yield "celu", {"beta": -floor}
    if at[0.0] > 0:
        yield "softplus", {"beta": math.log(2.0) / at[0.0]}
        yield "smelu", {"beta": 4 * at[0.0]}
        yield "srelu", {"delta": 16 * at[0.0] / 3}
        yield "squareplus", {"delta": 2 * at[0.0]}
    if 0.5 < at[1.0] < 1:
        yield "swish", {"beta": round(math.log(at[1.0] / (1 - at[1.0])), 9)}
    if floor < ceiling:
        yield "clamp", {"low": floor, "high": ceiling}
    if ceiling < 55:
        yield "softshrink", {"lam": 55 - ceiling}
    yield "star_relu", {"scale": at[1.0] - at[0.0], "bias": at[0.0]}
    bend = (at[2.5] - 2.5 * at[1.0]) / 3.75
    rise, left = at[1.0] - bend, (at[-1.0] + at[1.0] - bend) * math.e
    if min(bend, rise, left) > 0:
        yield "xielu", {"alpha_p": bend, "alpha_n": left, "beta": rise}


_PLAIN = (
    "relu",
    "gelu",
    "silu",
    "gelu_tanh",
    "relu6",
    "hardswish",
    "mish",
    "selu",
    "elu",
    "leaky_relu",
    "tanh",
    "hardtanh",
    "sigmoid",
    "hardsigmoid",
    "logsigmoid",
    "softplus",
    "softsign",
    "tanhexp",
    "tanhshrink",
    "relu2",
    "hard_mish",
    "gelu_10",
    "laplace",
    "sparse_sigmoid",
)
