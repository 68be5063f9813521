"""What the numbers of a tensor were made from: which input, through which activations, or from weights alone.

Marks travel on the tensors through element-wise functions. So it is seen where the result of an activation meets its
own input again (`gate = torch.sigmoid(h)`, then `h * gate`), where a clamp only keeps a square root defined, and where
a softplus makes a weight out of a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from .expressions import ELEMENTWISE
from .running import tensors_in

_ROOT, _THROUGH, _WEIGHT = "_softknee_root", "_softknee_through", "_softknee_weight"

_PRODUCTS = frozenset(["mul", "multiply", "imul", "rmul", "div", "divide", "truediv", "itruediv", "rtruediv"])
_FOLLOWED = frozenset(name.strip("_") for name in ELEMENTWISE) | _PRODUCTS | {"activation", "iadd", "isub", "ipow"}
_DEFINED_FROM_0 = frozenset({"log", "rsqrt", "sqrt"})
_POWERS = frozenset({"pow", "ipow"})

_MULTIPLIED = (
    "its result is multiplied by its own input in another statement, so that both compute one function; write that "
    "function as one expression, or as a module of its own"
)


def made_of_weights(tensor: Any) -> bool:
    """Whether a tensor is a parameter, or made from parameters alone."""
    return isinstance(tensor, nn.Parameter) or getattr(tensor, _WEIGHT, False) is True


def meet(name: str, given: Sequence[Any], result: Any, seen: Any) -> None:
    """After a function was called: mark its result, and note what its inputs are to one another.

    Args:
        seen: where the function is an activation, what is known of the place; it has `trouble`, `role` and `clamps`.
    """
    core = name.strip("_")
    tensors, results = tensors_in(list(given)), tensors_in(result)
    if not tensors or not results:
        return
    if all(made_of_weights(each) for each in tensors):
        for each in results:
            _mark(each, _WEIGHT, True)
    if core in _DEFINED_FROM_0 or (core in _POWERS and isinstance(given[-1], float) and given[-1] % 1):
        for place in _through(tensors[0]):
            if place.clamps:
                place.role = "it keeps a root or a logarithm defined"
    if core not in _FOLLOWED or len(results) != 1:
        return
    roots = {id(root): root for root in map(_root, tensors)}
    if core in _PRODUCTS and len(tensors) == 2 and len(roots) == 1:
        for place in _through(tensors[0]) ^ _through(tensors[1]):
            place.trouble = place.trouble or _MULTIPLIED
    if len(roots) == 1:
        passed = frozenset().union(*map(_through, tensors))
        _mark(results[0], _ROOT, next(iter(roots.values())))
        _mark(results[0], _THROUGH, passed | {seen} if seen is not None and not seen.whole else passed)
    elif getattr(results[0], _ROOT, None) is not None:  # overwritten with something else
        _mark(results[0], _ROOT, object())
        _mark(results[0], _THROUGH, frozenset())


def _root(tensor: Tensor) -> object:
    """What stands for the tensor that this one was made from, place by place."""
    if getattr(tensor, _ROOT, None) is None:
        _mark(tensor, _ROOT, object())
    return getattr(tensor, _ROOT, tensor)


def _through(tensor: Tensor) -> frozenset[Any]:
    return getattr(tensor, _THROUGH, frozenset())


def _mark(tensor: Tensor, name: str, value: Any) -> None:
    if not isinstance(tensor, nn.Parameter):  # those stay as they are
        setattr(tensor, name, value)
