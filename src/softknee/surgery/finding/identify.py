"""Which function a module or a call computes, found out by computing it.

A class name says little: torch, timm and transformers have a dozen classes for GELU alone, and users write their own.
So a candidate is evaluated on a few numbers, in float64 where it can, and compared with the functions of the zoo.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ...kernels import find
from ...nn.parameters import Parameterised
from ..modules import not_compiled

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
    if isinstance(module, Parameterised):
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
    # From a file of activations, though no probe shows what it computes: it has a parameter for each channel, say.
    unseen = of_activations(module) and next(module.parameters(), None) is not None
    # Softshrink is an activation whatever its settings, some of which make a line of it.
    return foreign if unseen or isinstance(module, nn.Softshrink) else None


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


def _own(module: Parameterised) -> Identity:
    """A module of softknee by its name, and its numbers where they are not the usual ones."""
    title = module.title
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


def _may_be_one(module: nn.Module) -> bool:
    """Modules of torch activate only in one file."""
    home = type(module).__module__
    return not home.startswith("torch.") or home == "torch.nn.modules.activation"


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


_WITHOUT_PARAMETERS = """
    relu gelu silu gelu_tanh relu6 hardswish mish selu elu leaky_relu tanh hardtanh sigmoid hardsigmoid logsigmoid
    softplus softsign tanhexp tanhshrink relu2 hard_mish gelu_10 laplace sparse_sigmoid
"""
_PLAIN = tuple(_WITHOUT_PARAMETERS.split())


# Both tails, the neighbourhood of 0, and past every clip in use (6, 10, 20); unsorted, so that a cumulative function
# does not look element-wise.
_TAILS = (-55.0, -20.5, -12.0, -7.0, 4.0, 6.5, 12.0, 20.5, 55.0)
_MIDDLE = (-3.1, -2.2, -1.0, -0.43, -0.004, 0.0, 0.05, 0.31, 0.75, 1.0, 2.5)
_BOTH = (*_TAILS, *_MIDDLE)
NUMBERS = tuple(_BOTH[7 * i % len(_BOTH)] for i in range(len(_BOTH)))
_ROWS = 4
# Names under which torch offers activations as functions and as methods of a tensor.
_OFFERED = """
    celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid logsigmoid mish prelu relu relu6
    rrelu selu sigmoid silu softplus softshrink softsign tanh tanhshrink threshold
"""
FUNCTIONS = frozenset(_OFFERED.split())
# In the code of a function: that it does something to the world.
_WORLDLY = """
    add_histogram add_scalar barrier critical debug dump dumps h5py info logger logging mlflow open os pickle post
    publish put recv requests save send shutil socket subprocess system to_csv tofile wandb warning write
"""
_EFFECTS = frozenset(_WORLDLY.split())
# An activation has a few numbers of its own. What has more is a layer, and too large to be copied for a look.
_MOST_NUMBERS = 100_000


def double() -> Tensor:
    """The numbers at which everything is compared, in float64."""
    return torch.tensor(NUMBERS, dtype=torch.float64, device="cpu")


def probe(function: Callable[..., Any]) -> Tensor | None:
    """The values at NUMBERS, in float64; None unless it is a deterministic element-wise function that bends."""
    x = double()
    try:
        with _undisturbed():
            values = function(x.clone())
            again = function(x.flip(0).reshape(_ROWS, -1).clone())
        for result, shape in ((values, x.shape), (again, (_ROWS, len(NUMBERS) // _ROWS))):
            if not isinstance(result, Tensor) or result.shape != shape or not result.is_floating_point():
                return None
        values, again = values.detach().double().cpu(), again.detach().double().cpu()
        # Not to the bit: torch computes the last few numbers of a tensor in another way than the others.
        if not torch.allclose(values, again.flatten().flip(0), rtol=1e-5, atol=1e-6):
            return None
        if not bool(values.isfinite().all()):
            return None
    except Exception:  # whatever a foreign module does with an input that it was not made for
        return None
    return None if _affine(values) else values


def harmless(function: Any) -> bool:
    """Whether a function may be called to see what it computes."""
    while isinstance(function, functools.partial | MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    if isinstance(function, torch.jit.ScriptFunction):
        return True  # a language for computing with tensors
    if not isinstance(function, FunctionType):
        return getattr(function, "__name__", "").strip("_") in FUNCTIONS
    home = str(function.__module__)
    if home.startswith("torch.") and not home.startswith("torch.nn."):
        return False
    return _EFFECTS.isdisjoint(_names(function.__code__))


def _names(code: CodeType) -> set[str]:
    inner = (_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*inner)


def stand_in(module: nn.Module) -> nn.Module | None:
    """A copy to be evaluated in its place, None where it is too large for that, cannot be copied or may do harm."""
    held = [*module.parameters(), *module.buffers()]
    if not all(of_activations(each) or harmless(each.forward) for each in module.modules()):
        return None
    if sum(each.numel() for each in held) > _MOST_NUMBERS:
        return None
    try:
        return _twin(module)
    except Exception:  # a class that cannot be copied, a tensor without values
        return None


def of_activations(module: nn.Module) -> bool:
    """Whether a module is from a library's own file of activations, which at most logs."""
    home = type(module).__module__
    return home == "transformers.activations" or home.startswith("timm.layers.activations")


def _twin(module: nn.Module) -> nn.Module:
    twin = copy.copy(module)
    for name, value in list(vars(module).items()):
        # One level down: a list of the module's own is copied, what it refers to (a model, say) is not.
        if name in _HOOKS:
            vars(twin)[name] = type(value)()
        elif isinstance(value, dict | list | set | Tensor):
            vars(twin)[name] = _copied(value)
    for tensors in (twin._parameters, twin._buffers):
        tensors.update({name: _copied(each) for name, each in tensors.items()})
    twin._modules.update({name: _twin(part) for name, part in twin._modules.items() if part is not None})
    return twin


# What would be told of a call; a look is none.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _copied(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return copy.copy(value)
    kind = torch.float64 if value.is_floating_point() else value.dtype
    return value.detach().to("cpu", kind, copy=True)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    with (
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        torch.device("cpu"),
        torch.autocast("cpu", enabled=False),
        not_compiled(),
        _OnlyArithmetic(),
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


class _OnlyArithmetic(TorchDispatchMode):
    """Refuses what a probe must not set off: a message to other processes, or a change of what is not its own."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        ours = func.namespace in ("aten", "prims")
        if "c10d" in func.namespace or (not ours and func._schema.is_mutable):
            raise TypeError(f"{func} is no arithmetic")
        return func(*args, **(kwargs or {}))


def _affine(values: Tensor) -> bool:
    x = double()
    at_zero = values[NUMBERS.index(0.0)]
    return torch.allclose(values, at_zero + (values[NUMBERS.index(1.0)] - at_zero) * x, rtol=1e-6, atol=1e-6)
