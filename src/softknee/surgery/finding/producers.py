"""Where the channels of a tensor are: the layer that produced it says so, and they are followed from there.

After a convolution they lie along dimension 1, after a linear layer along the last. The mark travels on the tensor
itself through norms, additions, views and permutations; where it can no longer be told, it is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

_MARK = "_softknee_channels"
_LASTS = "linear bilinear layer_norm rms_norm lstm gru rnn_tanh rnn_relu multi_head_attention_forward"
_LAST = frozenset(_LASTS.split())
# Products of matrices are linear layers where one of the two is a weight; of others the channels cannot be told.
_PRODUCTS = frozenset({"addmm", "matmul", "mm", "__matmul__"})
_MIXING = _PRODUCTS | {"bmm", "baddbmm", "einsum", "tensordot", "scaled_dot_product_attention"}
_CONVOLUTIONS = {f"conv{n}d": n for n in (1, 2, 3)} | {f"conv_transpose{n}d": n for n in (1, 2, 3)}
_SECOND = frozenset({"batch_norm", "group_norm", "instance_norm"})
# What moves, picks or reduces numbers by their place alone: done to the channels' numbers, it shows where they go.
_LAYOUTS = """
    T mT H mH adjoint amax amin chunk contiguous expand expand_as flatten flip getitem mean movedim moveaxis narrow
    permute repeat reshape reshape_as roll select split split_with_sizes squeeze sum swapaxes swapdims t tensor_split
    tile transpose unbind unflatten unfold unsqueeze view view_as
"""
_LAYOUT = frozenset(_LAYOUTS.split())


@dataclass(frozen=True)
class Channels:
    """The dimension that the channels lie along (-1: the last) and how many there are."""

    dim: int
    count: int


def channels_of(tensor: Tensor) -> Channels | None:
    """What is known of a tensor's channels, if it still fits."""
    mark = getattr(tensor, _MARK, None)
    return mark if mark is not None and _fits(mark, tensor) else None


def follow(func: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
    """After a function of torch was called: mark its result."""
    name = func if isinstance(func, str) else _name(func)
    results = [result] if isinstance(result, Tensor) else list(result) if isinstance(result, tuple | list) else []
    given = [*args, *kwargs.values()]
    if name in _LAYOUT:
        marks = _moved(func, args, kwargs, results)
    else:
        marks = [_made(name, given, one) or (_kept(given, one) if name not in _MIXING else None) for one in results]
    for tensor, mark in zip(results, marks, strict=False):
        if not isinstance(tensor, Tensor) or isinstance(tensor, nn.Parameter):
            continue
        if mark is not None and _fits(mark, tensor):
            setattr(tensor, _MARK, mark)
        elif hasattr(tensor, _MARK):
            delattr(tensor, _MARK)


def _name(func: Any) -> str:
    """The name of a function of torch; `x.T` and `x[0]` are functions, too."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "")
    return "getitem" if name == "__getitem__" else name


def _made(name: str, given: list[Any], tensor: Any) -> Channels | None:
    """The mark of a tensor that comes out of a layer."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point() or not tensor.dim():
        return None
    if name in _CONVOLUTIONS and tensor.dim() > _CONVOLUTIONS[name]:
        dim = tensor.dim() - _CONVOLUTIONS[name] - 1
        return Channels(dim, tensor.shape[dim])
    if name in _LAST or (name in _PRODUCTS and any(_is_weight(one) for one in given[1:])):
        return Channels(-1, tensor.shape[-1])
    if name in _SECOND and tensor.dim() > 1:
        return Channels(1, tensor.shape[1])
    return None


def _is_weight(one: Any) -> bool:
    return isinstance(one, nn.Parameter) or (isinstance(one, Tensor) and isinstance(one._base, nn.Parameter))


def _kept(given: list[Any], tensor: Any) -> Channels | None:
    """The mark of the first argument that has one, where the result has as many dimensions."""
    for one in given:
        for source in one if isinstance(one, tuple | list) else [one]:
            mark = channels_of(source) if isinstance(source, Tensor) else None
            if mark is not None:
                same = isinstance(tensor, Tensor) and tensor.dim() == source.dim() and _fits(mark, tensor)
                return mark if same else None
    return None


def _moved(func: Any, args: Any, kwargs: Mapping[str, Any], results: list[Any]) -> list[Channels | None]:
    """Do the same to the channels' numbers, and see along which dimension they lie now."""
    source = args[0] if args else kwargs.get("input")
    mark = channels_of(source) if isinstance(source, Tensor) else None
    if mark is None or not isinstance(source, Tensor):
        return [None] * len(results)
    shape = [1] * source.dim()
    shape[mark.dim] = mark.count
    numbers = torch.arange(1.0, mark.count + 1, dtype=torch.float64, device="cpu")
    numbers = numbers.reshape(shape).expand(source.shape).contiguous()
    try:
        others = [one.cpu() if isinstance(one, Tensor) else one for one in args[1:]]
        # The input by position, the rest as it was given.
        named = {key: value for key, value in kwargs.items() if key != "input" and value is not source}
        moved = func(numbers, *others, **named)
    except (RuntimeError, TypeError, IndexError, ValueError):
        return [None] * len(results)
    each = list(moved) if isinstance(moved, tuple | list) else [moved]
    return [_along(one) if isinstance(one, Tensor) else None for one in each[: len(results)]]


def _along(numbers: Tensor) -> Channels | None:
    """The one dimension along which the channels' numbers change, each time to another channel."""
    changing = [dim for dim, size in enumerate(numbers.shape) if size > 1 and bool((numbers.diff(dim=dim) != 0).any())]
    if len(changing) != 1:
        return None
    dim, count = changing[0], numbers.shape[changing[0]]
    if len(numbers.movedim(dim, 0).reshape(count, -1)[:, 0].unique()) != count:
        return None
    return Channels(-1 if dim == numbers.dim() - 1 else dim, count)


def _fits(mark: Channels, tensor: Tensor) -> bool:
    return -tensor.dim() <= mark.dim < tensor.dim() and tensor.shape[mark.dim] == mark.count
