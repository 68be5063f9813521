"""A module over a definition as a function of its tensors: what it computes, and what torch.fx writes down for it.

Inside a model a call of the module is one node. A module that is traced by itself has no name in a model to call it by;
its graph then has its tensors as attributes, under the names they have in the module, and one call of `pointwise`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch import Tensor

from ..kernels import call, find, fit_shape
from ..kernels.pointwise import check_input
from ..spec import Activation, by_key
from .granularity import Granularity
from .parameters import leaf_of_graph, lifted

if TYPE_CHECKING:
    from .module import Pointwise


def fitted(act: Activation, input: Tensor, values: Sequence[Tensor], granularity: Granularity) -> list[Tensor]:
    """The effective parameters in shapes that broadcast against this input."""
    check_input(act, input)
    shaped = [granularity.shaped(value, input, act.name) for value in values]
    return [fit_shape(act, p.name, value, input) for p, value in zip(act.params, shaped, strict=True)]


def compute(act: Activation, input: Tensor, params: Sequence[Tensor], *, inplace: bool, drawn: str) -> Tensor:
    """The definition on the input; with `drawn`, that one with a parameter drawn between ours for each element."""
    if not drawn:
        return call(act, input, params, inplace=inplace)
    low, high = params
    share = torch.rand_like(input, dtype=torch.promote_types(input.dtype, torch.float32))
    return call(find(drawn), input, [low + (high - low) * share], inplace=inplace)


def node_of(module: Pointwise, input: torch.fx.Proxy, drawn: str) -> Any:
    """What a symbolic trace writes down for a call of the module."""
    tracer: Any = input.tracer
    if tracer.path_of_module(module):
        return leaf_of_graph(module, input)
    tensors = (*module._parameters, *module._buffers)  # pyright: ignore[reportPrivateUsage] - by their stored names
    held = {name: tracer.create_proxy("get_attr", name, (), {}) for name in tensors}
    plan = (module.granularity.per, module.granularity.shape, module.granularity.dim)
    return pointwise(input, module.definition.key, module.learned, plan, module.inplace, drawn, **held)


def pointwise(
    input: Any,
    key: str,
    learned: tuple[str, ...],
    plan: tuple[str, tuple[int, ...], int],
    inplace: bool,
    drawn: str,
    **held: Any,
) -> Any:
    """What a module computes, from the key of its definition and the tensors that it holds."""
    if isinstance(input, torch.fx.Proxy):
        given = (input, key, learned, plan, inplace, drawn)
        return input.tracer.create_proxy("call_function", pointwise, given, held)
    act = by_key(key)
    values = [
        lifted(p, held[f"raw_{p.name}"], held.get(f"anchor_{p.name}"))
        if p.name in learned and p.constraint.lifted
        else held[p.name]
        for p in act.params
    ]
    return compute(act, input, fitted(act, input, values, Granularity(*plan)), inplace=inplace, drawn=drawn)
