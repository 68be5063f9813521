"""The activations of softknee inside a model, in order of depth."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from torch import nn

from ..errors import ParameterError, SoftkneeError
from ..nn.parameters import Parameterised, require_model

T = TypeVar("T")


def activation_modules(model: nn.Module) -> dict[str, Parameterised]:
    """Every softknee module of a model by its path, in order of depth; a shared one once.

    The order is that of registration, unless one swap put all of them in place and saw the order of execution: a module
    that took the place of a call is registered last wherever it is called.

    >>> import softknee as sk, torch
    >>> from softknee.surgery.modules import activation_modules
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 8), sk.nn.SReLU(), torch.nn.Linear(8, 1))
    >>> activation_modules(net)
    {'1': SReLU(delta=0.01)}
    """
    require_model(model)
    found = {path: module for path, module in model.named_modules() if isinstance(module, Parameterised)}
    return dict(by_depth(list(found.items()), lambda one: one[1]))


def by_depth(found: Sequence[T], module_of: Callable[[T], nn.Module]) -> list[T]:
    """In the order in which one swap saw the modules run; as they come where it is not known of all of them."""
    depths = {id(module_of(one)): vars(module_of(one)).get(_DEPTH) for one in found}
    if None in depths.values() or len(set(depths.values())) != len(depths):
        return list(found)
    return sorted(found, key=lambda one: vars(module_of(one))[_DEPTH])


def read_where(where: Any, title: str, *, error: type[SoftkneeError] = ParameterError) -> Any:
    """Patterns of paths as a list, or a function, or None; anything else is refused with a sentence."""
    if where is None or callable(where):
        return where
    patterns = [where] if isinstance(where, str) else list(where) if isinstance(where, Iterable) else [where]
    for one in patterns:
        if not isinstance(one, str):
            raise error(
                f"{title}: where takes a pattern for the paths of activations, several, or a function, and "
                f"{type(one).__name__} was given."
            )
    return patterns


def number_by_depth(modules: Iterable[nn.Module]) -> None:
    """Remember the order in which modules are applied."""
    for depth, module in enumerate(modules):
        vars(module)[_DEPTH] = depth


_DEPTH = "_softknee_depth"
