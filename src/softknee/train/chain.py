"""A model that is a chain of well-known modules, run for all replicas without vmap.

vmap can run any model, but on a CPU its bookkeeping takes as long as the arithmetic of a small network. In a chain
(nn.Sequential, nested or not) of the modules below, each step is called on the stacked tensors themselves: the same
operations in the same order, so the numbers are the same. On a GPU a step is captured, and the bookkeeping with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from .stacked_modules import (
    StackedDropout,
    StackedLinear,
    StackedNorm,
    StackedPointwise,
    StackedSquaf,
    StackedVector,
    linear,
)

Step = Callable[[Tensor], Tensor]

# Element by element, without tensors of their own: a dimension more in front changes nothing.
_ELEMENTWISE = (
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Mish, nn.ELU, nn.CELU, nn.SELU, nn.Softplus),
    *(nn.Tanh, nn.Sigmoid, nn.Hardtanh),
)


def chain_of(model: nn.Module, tensors: Mapping[str, Tensor]) -> Step | None:
    """From x [M, n, ...] to what every replica makes of it; None where the model is no such chain.

    Args:
        model: with stacked modules in it (`stack_modules_`).
        tensors: its parameters and buffers by name, [M, ...]; read anew at every call.
    """
    steps: list[Step] = []
    for path, module in _in_order(model, ""):
        # A parametrized module, such as one with normed weights, computes its tensors from others.
        alone = not _has_hooks(module) and not is_parametrized(module)
        step = _step(module, path, tensors) if alone else None
        if step is None:
            return None
        steps.append(step)

    def run(x: Tensor) -> Tensor:
        for step in steps:
            x = step(x)
        return x

    return run


def _in_order(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
    """The modules that compute, each with its path. A sequence with hooks is not opened, and then refused."""
    if type(module) is not nn.Sequential or _has_hooks(module):
        yield path, module
        return
    for name, child in module._modules.items():  # named_children would leave out a module that comes a second time
        assert child is not None
        yield from _in_order(child, f"{path}.{name}" if path else name)


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


def _step(module: nn.Module, path: str, tensors: Mapping[str, Tensor]) -> Step | None:
    if type(module) in _ELEMENTWISE:
        return module.forward
    if type(module) is nn.Flatten and module.start_dim >= 1:
        start, end = module.start_dim + 1, module.end_dim if module.end_dim < 0 else module.end_dim + 1
        return lambda x: x.flatten(start, end)
    if isinstance(module, StackedDropout):
        return module.forward_all
    held = _with_tensors(module, path, tensors)
    if held is None:
        return None
    if isinstance(held, StackedLinear):
        return lambda x: linear(x, held.weight, held.bias)
    if isinstance(held, StackedPointwise | StackedSquaf | StackedVector) and held.granularity.per == "layer":
        return lambda x: held.run(x, *[held.effective(p) for p in held.params])
    if isinstance(held, StackedNorm):
        return held.forward_all
    return None


def _with_tensors(module: nn.Module, path: str, tensors: Mapping[str, Tensor]) -> nn.Module | None:
    """The module with the stacked tensors as its own; None where one is missing (it is shared with another module)."""
    held = copy.copy(module)
    prefix = f"{path}." if path else ""
    own = {
        name: f"{prefix}{name}"
        for name in (*module._parameters, *module._buffers)
        if getattr(module, name, 0) is not None
    }
    if any(name not in tensors for name in own.values()):
        return None
    stacked = {name: tensors[full] for name, full in own.items()}
    held._parameters = {name: stacked.get(name) for name in module._parameters}  # pyright: ignore[reportAttributeAccessIssue]
    held._buffers = {name: stacked.get(name) for name in module._buffers}
    return held
