"""torch.compile for a method of one object among many."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import fx

_ATTENTION = torch.nn.functional.scaled_dot_product_attention
_UNBIND = (torch.unbind, "unbind")


def compile_method(method: Any) -> Any:
    """The bound method through torch.compile, for sizes that stay as they are.

    torch keeps eight versions of a piece of code, counted over all objects that run it, and runs what comes after them
    as it is: the fifth model that is trained with batches of two sizes would not be compiled. So each object gets a
    copy of the code, whose versions also go when it does.
    """
    plain = method.__func__
    assert not hasattr(plain, "__wrapped__")  # of a decorated method this would be the decorator's code
    copied = FunctionType(
        plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__
    )
    return torch.compile(MethodType(copied, method.__self__), dynamic=False, backend=_inductor)


def _inductor(graph: fx.GraphModule, inputs: Sequence[Any]) -> Any:
    """torch's own compiler, after attention over short sequences has got the kernel made for it."""
    # Before Ampere there are no products in bfloat16.
    if torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0):
        shorten_attention_(graph, device="cuda")
    return torch._dynamo.lookup_backend("inductor")(graph, inputs)  # pyright: ignore[reportArgumentType]


def shorten_attention_(graph: fx.GraphModule, *, device: str) -> int:
    """Give attention over few tokens, whose parts come from one linear map, to `kernels.short_attention`.

    It is the same function to rounding. Whatever else is asked of attention (a mask, dropout, causality, more tokens, a
    norm of the queries) stays as it is. Returns how many were replaced.
    """
    replaced = 0
    for node in list(graph.graph.nodes):
        found = _packed(node, device) if node.target is _ATTENTION else None
        if found is None:
            continue
        # Not at the top: a training without attention needs no Triton.
        from ..kernels.short_attention import short_attention

        packed, scale = found
        with graph.graph.inserting_before(node):
            short: Any = short_attention
            new = graph.graph.call_function(short._opoverload, (packed, scale))
        new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        graph.graph.erase_node(node)
        replaced += 1
    if replaced:
        graph.graph.eliminate_dead_code()
        graph.recompile()
    return replaced


def _packed(node: fx.Node, device: str) -> tuple[fx.Node, float] | None:
    """The one tensor [3, B, H, N, D] of which queries, keys and values are parts, and the scale, if that is so."""
    from ..kernels.short_attention import fits

    parts = node.args[:3]
    asked = dict(zip(("attn_mask", "dropout_p", "is_causal"), node.args[3:], strict=False)) | node.kwargs
    if len(parts) != 3 or any(asked.pop(name, None) for name in ("attn_mask", "dropout_p", "is_causal", "enable_gqa")):
        return None
    scale = asked.pop("scale", None)
    if (
        asked
        or not isinstance(scale, int | float | None)
        or not all(isinstance(one, fx.Node) and one.target is operator.getitem for one in parts)
    ):
        return None
    taken: list[Any] = [one.args for one in parts if isinstance(one, fx.Node)]
    source = taken[0][0]
    if [place for _, place in taken] != [0, 1, 2] or any(one is not source for one, _ in taken):
        return None
    if source.target not in _UNBIND or (*source.args[1:], *source.kwargs.values(), 0)[0] != 0:
        return None
    packed = source.args[0]
    value = packed.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.device.type != device or not fits(value.shape, value.dtype):
        return None
    return packed, value.shape[-1] ** -0.5 if scale is None else float(scale)
