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
from .inverse import Inverse, inverse_by_key
from .layout import storage_order
from .triton_source import Source

Plan = FusedPlan | CompiledPlan | str
"""What computes tensors of one layout: kernels, or the name of a path without any."""

# A program that sees ever new shapes must not grow for ever; making a plan again is cheap.
MOST_PLANS = 4096


def find_plan(
    x: Tensor,
    params: Sequence[Tensor],
    key: str,
    sources: tuple[Source, ...] = (),
    inverse: Inverse | None = None,
) -> Plan:
    """How such tensors are computed.

    `sources` says what the kernels are given for each parameter, where it is not the tensor of its value; with an
    `inverse` those of a GPU save the output.
    """
    layout = (
        x.shape,
        x.stride(),
        x.dtype,
        x.device,
        sources,
        inverse,
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
            plan = FusedPlan(act, x, params, sources, inverse)
        else:
            plan = CompiledPlan(act, x, params, sources) if path == "compiled" else path
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


# -- where the output is saved --------------------------------------------------------------------------------


def pointwise_with_sides(x: Tensor, params: Sequence[Tensor], inverse: str) -> tuple[Tensor, Tensor]:
    """The value, and for each element a bit: whether x lies to the right of the minimum; 8 to a byte."""
    definition_inverse = inverse_by_key(inverse)
    plan = find_plan(x, params, definition_inverse.act.key, inverse=definition_inverse)
    if isinstance(plan, FusedPlan):
        sides = plan.new_sides(x)
        return plan.forward(x, params, sides=sides), sides
    work = plain.working_type(x.dtype)
    right = x.to(work) > definition_inverse.place_function()(*(p.to(work) for p in params))
    return pointwise(x, params, definition_inverse.act.key), pack(right)


def pointwise_backward_from_output(
    g: Tensor, y: Tensor, sides: Tensor | None, params: Sequence[Tensor], inverse: str, needs: Sequence[bool]
) -> list[Tensor]:
    """The gradients that are needed, in the order x, parameters, from the value."""
    definition_inverse = inverse_by_key(inverse)
    plan = find_plan(y, params, definition_inverse.act.key, inverse=definition_inverse)
    if isinstance(plan, FusedPlan):
        return plan.backward(g, y, params, tuple(needs), sides=sides)
    gradients = pointwise_backward(
        g, recover(definition_inverse, y, sides, params), params, definition_inverse.act.key, needs
    )
    return [gradients[0].to(y.dtype), *gradients[1:]] if needs[0] else gradients


def recover(inverse: Inverse, y: Tensor, sides: Tensor | None, params: Sequence[Tensor]) -> Tensor:
    """x in torch operations, in the working type."""
    work, invert = plain.working_type(y.dtype), inverse.torch(y.dtype)
    wide = [p.to(work) for p in params]
    right = y == y if sides is None else unpack(sides, y)
    if not plain.fits_blocks(y, params):
        return invert(y.to(work), right, *wide)
    x = torch.empty_like(y, dtype=work)
    for target, *block in zip(*(plain.blocks(tensor, params) for tensor in (x, y, right)), strict=True):
        target.copy_(invert(block[0].to(work), block[1], *wide))
    return x


def pack(right: Tensor) -> Tensor:
    """Bits in the order of storage, the first of eight lowest."""
    n = right.numel()
    flat = right.as_strided((n,), (1,)) if storage_order(right) is not None else right.reshape(-1)
    bits = torch.nn.functional.pad(flat, (0, -n % 8)).view(-1, 8)
    return (bits.to(torch.uint8) << torch.arange(8, dtype=torch.uint8, device=right.device)).sum(1, dtype=torch.uint8)


def unpack(sides: Tensor, y: Tensor) -> Tensor:
    bits = (sides[:, None] >> torch.arange(8, dtype=torch.uint8, device=y.device)) & 1
    flat = bits.view(-1)[: y.numel()].bool()
    return flat.as_strided(y.shape, y.stride()) if storage_order(y) is not None else flat.view(y.shape)


def _fake_with_sides(x: Tensor, params: Sequence[Tensor], inverse: str) -> tuple[Tensor, Tensor]:
    return _fake_pointwise(x, params, inverse), x.new_empty(((x.numel() + 7) // 8,), dtype=torch.uint8)


def _fake_from_output(
    g: Tensor, y: Tensor, sides: Tensor | None, params: Sequence[Tensor], inverse: str, needs: Sequence[bool]
) -> list[Tensor]:
    return _fake_backward(g, y, params, inverse, needs)


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
_library.define("pointwise_with_sides(Tensor x, Tensor[] params, str inverse) -> (Tensor, Tensor)", tags=_TAGS)
_library.define(
    "pointwise_backward_from_output(Tensor grad, Tensor y, Tensor? sides, Tensor[] params, str inverse, bool[] needs) "
    "-> Tensor[]",
    tags=_TAGS,
)
# One implementation for every device: where there is no kernel it takes the plain path.
_library.impl("pointwise", pointwise, "CompositeExplicitAutograd")
_library.impl("pointwise_backward", pointwise_backward, "CompositeExplicitAutograd")
torch.library.register_fake("softknee::pointwise", _fake_pointwise, lib=_library)
torch.library.register_fake("softknee::pointwise_backward", _fake_backward, lib=_library)
_library.impl("pointwise_with_sides", pointwise_with_sides, "CompositeExplicitAutograd")
_library.impl("pointwise_backward_from_output", pointwise_backward_from_output, "CompositeExplicitAutograd")
torch.library.register_fake("softknee::pointwise_with_sides", _fake_with_sides, lib=_library)
torch.library.register_fake("softknee::pointwise_backward_from_output", _fake_from_output, lib=_library)
