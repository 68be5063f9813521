"""The registered operators `softknee::pointwise` and `softknee::pointwise_backward`.

Tracers, profilers and fake tensors see one operator with a schema. A definition travels through the operator by its
key, a string. An eager call that nothing watches goes past the operators (see `calls`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..spec import Activation, by_key
from ..spec.activation import once_per_definition
from . import plain
from .compiled import CompiledPlan
from .dispatch import choose_kernel
from .fused import FusedPlan
from .layout import storage_order
from .triton_source import Source

Plan = FusedPlan | CompiledPlan | str
"""What computes tensors of one layout: kernels, or the name of a path without any."""

# A program that sees ever new shapes must not grow for ever; making a plan again is cheap.
MOST_PLANS = 4096


def find_plan(x: Tensor, params: Sequence[Tensor], key: str, sources: tuple[Source, ...] = ()) -> Plan:
    """How such tensors are computed.

    `sources` says what the kernels of a GPU are given for each parameter, where it is not the tensor of its value.
    """
    layout = (
        x.shape,
        x.stride(),
        x.dtype,
        x.device,
        sources,
        *[(p.shape, p.stride(), p.dtype, p.device) for p in params],
    )
    act = by_key(key)
    plans = _plans(act)
    plan = plans.get(layout)
    if plan is None:
        if len(plans) >= MOST_PLANS:
            plans.clear()
        path = choose_kernel(act, x, params).path
        if path == "fused":
            plan = FusedPlan(act, x, params, sources)
        else:
            plan = CompiledPlan(act, x, params) if path == "compiled" else path
        plans[layout] = plan
    return plan


@once_per_definition
def _plans(act: Activation) -> dict[tuple[Any, ...], Plan]:
    """The plans of a definition so far, by the layout of the tensors."""
    return {}


def pointwise(x: Tensor, params: Sequence[Tensor], key: str) -> Tensor:
    """The value, on any device."""
    plan = find_plan(x, params, key)
    if not isinstance(plan, str):
        return plan.forward(x, params)
    if plan == "blocks":
        return plain.value_in_blocks(by_key(key), x, params)
    return own(plain.value(by_key(key), x, params), x)


def own(result: Tensor, x: Tensor) -> Tensor:
    """An operator may not return its input: the identity piece of a one-piece formula could."""
    return result.clone() if result is x else result


def value_into(act: Activation, x: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Overwrite x with the value (no gradient will be asked for)."""
    plan = find_plan(x, params, act.key)
    if not isinstance(plan, str) and plan.dense:
        plan.forward(x, params, out=x)
        torch.autograd.graph.increment_version(x)
        return x
    if plan == "blocks":
        return plain.value_in_blocks(act, x, params, out=x)
    return x.copy_(plain.value(act, x, params))


def pointwise_backward(g: Tensor, x: Tensor, params: Sequence[Tensor], key: str, needs: Sequence[bool]) -> list[Tensor]:
    """The gradients that are needed, in the order x, parameters."""
    plan = find_plan(x, params, key)
    if not isinstance(plan, str):
        return plan.backward(g, x, params, tuple(needs))
    if plan == "blocks":
        return [grad for grad in plain.gradients_in_blocks(by_key(key), g, x, params, needs) if grad is not None]
    gradients = [grad for grad in plain.gradients(by_key(key), g, x, params, needs) if grad is not None]
    if needs[0]:
        # A product is laid out as its first factor, g; the operator promises tracers the layout of `_fake_backward`.
        strides = x.stride() if storage_order(x) is not None else x.new_empty(x.shape, device="meta").stride()
        if gradients[0].stride() != strides:
            gradients[0] = x.new_empty_strided(x.shape, strides).copy_(gradients[0])
    return gradients


def _fake_pointwise(x: Tensor, params: Sequence[Tensor], key: str) -> Tensor:
    return torch.empty_like(x) if storage_order(x) is not None else x.new_empty(x.shape)


def _fake_backward(g: Tensor, x: Tensor, params: Sequence[Tensor], key: str, needs: Sequence[bool]) -> list[Tensor]:
    like_x = _fake_pointwise(x, params, key)
    return [like_x if i == 0 else torch.empty_like(value) for i, value in enumerate([x, *params]) if needs[i]]


_library = torch.library.Library("softknee", "DEF")
_TAGS = (torch.Tag.pt2_compliant_tag,)
_library.define("pointwise(Tensor x, Tensor[] params, str key) -> Tensor", tags=_TAGS)
_library.define(
    "pointwise_backward(Tensor grad, Tensor x, Tensor[] params, str key, bool[] needs) -> Tensor[]",
    tags=_TAGS,
)
# One implementation for every device: where there is no kernel it takes the plain path.
_library.impl("pointwise", pointwise, "CompositeExplicitAutograd")
_library.impl("pointwise_backward", pointwise_backward, "CompositeExplicitAutograd")
torch.library.register_fake("softknee::pointwise", _fake_pointwise, lib=_library)
torch.library.register_fake("softknee::pointwise_backward", _fake_backward, lib=_library)
