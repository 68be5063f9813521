"""The registered operators `softknee::pointwise` and `softknee::pointwise_backward`.

Fused kernels are launched from here and nowhere else, so tracers, profilers and fake tensors see one operator with a
schema. A definition travels through the operator by its key, a string.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..spec import Activation
from . import fused, plain
from .dispatch import choose_kernel
from .layout import repeat_pattern, storage_order

_by_key: dict[str, Activation] = {}
_keys: dict[Activation, str] = {}


def key_of(act: Activation) -> str:
    """The string by which an operator finds this definition; two definitions never share one."""
    key = _keys.get(act)
    if key is None:
        key = ".".join([act.root.name, *act.index])
        if key in _by_key:
            key = f"{key}#{len(_by_key)}"
        _keys[act], _by_key[key] = key, act
    return key


def pointwise(x: Tensor, params: Sequence[Tensor], key: str) -> Tensor:
    """The value; the kernel that is registered for CPU and CUDA."""
    act = _by_key[key]
    path = choose_kernel(act, x, params).path
    if path == "fused":
        return _fused_value(act, x, params)
    if path == "blocks":
        return plain.value_in_blocks(act, x, params)
    return own(plain.value(act, x, params), x)


def own(result: Tensor, x: Tensor) -> Tensor:
    """An operator may not return its input: the identity piece of a one-piece formula could."""
    return result.clone() if result is x else result


def value_into(act: Activation, x: Tensor, params: Sequence[Tensor]) -> Tensor:
    """Overwrite x with the value (no gradient will be asked for)."""
    path = choose_kernel(act, x, params).path
    if path == "fused" and storage_order(x) is not None:
        _fused_value(act, x, params, out=x)
        torch.autograd.graph.increment_version(x)
        return x
    if path == "blocks":
        return plain.value_in_blocks(act, x, params, out=x)
    return x.copy_(plain.value(act, x, params))


def _fused_value(act: Activation, x: Tensor, params: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    order = storage_order(x)
    dense = x if order is not None else x.contiguous()
    repeat = repeat_pattern(dense, range(x.dim()) if order is None else order, params)
    assert repeat is not None
    return fused.forward(act, dense, repeat, out=out)


def pointwise_backward(
    g: Tensor, x: Tensor, params: Sequence[Tensor], key: str, needs: Sequence[bool]
) -> list[Tensor]:
    """The gradients that are needed, in the order x, parameters."""
    act = _by_key[key]
    path = choose_kernel(act, x, params).path
    if path == "fused":
        return _fused_gradients(act, g, x, params, needs)
    rule = plain.gradients_in_blocks if path == "blocks" else plain.gradients
    return [one for one in rule(act, g, x, params, needs) if one is not None]


def _fused_gradients(
    act: Activation, g: Tensor, x: Tensor, params: Sequence[Tensor], needs: Sequence[bool]
) -> list[Tensor]:
    order = storage_order(x)
    dense = x if order is not None else x.contiguous()
    if g.stride() != dense.stride():
        g = torch.empty_like(dense).copy_(g)
    repeat = repeat_pattern(dense, range(x.dim()) if order is None else order, params)
    assert repeat is not None
    wanted = [i for i, need in enumerate(needs[1:]) if need]
    needed = tuple(act.params[i].name for i in wanted)
    dx, sums = fused.backward(act, g, dense, repeat, want_x=needs[0], needed=needed)
    grads = [repeat.restore(total, x, params[i]) for i, total in zip(wanted, sums, strict=True)]
    return [*([dx] if dx is not None else []), *grads]


def _fake_pointwise(x: Tensor, params: Sequence[Tensor], key: str) -> Tensor:
    return torch.empty_like(x) if storage_order(x) is not None else x.new_empty(x.shape)


def _fake_backward(g: Tensor, x: Tensor, params: Sequence[Tensor], key: str, needs: Sequence[bool]) -> list[Tensor]:
    like_x = _fake_pointwise(x, params, key)
    return [like_x if i == 0 else torch.empty_like(one) for i, one in enumerate([x, *params]) if needs[i]]


_library = torch.library.Library("softknee", "DEF")
_TAGS = (torch.Tag.pt2_compliant_tag,)
_library.define("pointwise(Tensor x, Tensor[] params, str key) -> Tensor", tags=_TAGS)
_library.define(
    "pointwise_backward(Tensor grad, Tensor x, Tensor[] params, str key, bool[] needs) -> Tensor[]", tags=_TAGS
)
for _device in ("CPU", "CUDA"):
    _library.impl("pointwise", pointwise, _device)
    _library.impl("pointwise_backward", pointwise_backward, _device)
torch.library.register_fake("softknee::pointwise", _fake_pointwise, lib=_library)
torch.library.register_fake("softknee::pointwise_backward", _fake_backward, lib=_library)
