"""torch.compile for a method of one object among many."""

from __future__ import annotations

from types import FunctionType, MethodType
from typing import Any

import torch


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
    return torch.compile(MethodType(copied, method.__self__), dynamic=False)
